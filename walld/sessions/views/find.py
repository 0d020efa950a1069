"""Events by type and key.

Owns: the search. Refuses: an index; the daemon's fold knows the first and the newest event of a
key, and for the `last` ones of a prefix it searches from the end of the log
(`daemon/api/key_lookup.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from walld.sessions.state.errors import BadArgument
from walld.sessions.state.events import Event, as_dict

__all__ = ["find"]


def find(
    events: Sequence[Event],
    type: str | None = None,  # noqa: A002
    key_prefix: str | None = None,
    last: int | None = None,
    key: str | None = None,
) -> list[dict[str, Any]]:
    """Events of that type and key, or whose key begins so, in order; at most the `last` newest."""
    if key is not None and key_prefix is not None:
        raise BadArgument("key_prefix", key_prefix, f"none beside key {key!r}")
    if last is not None and last < 0:
        raise BadArgument("last", last, "0 or more")
    found: list[dict[str, Any]] = []
    for event in reversed(events):
        if last is not None and len(found) == last:
            break
        if type is not None and event.type != type:
            continue
        if key is not None and event.key != key:
            continue
        if key_prefix is None or (event.key is not None and event.key.startswith(key_prefix)):
            found.append(as_dict(event))
    found.reverse()
    return found
