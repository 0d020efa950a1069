"""Events by type and key.

Owns: the search. Refuses: an index; the daemon has one for `once`, and searches for the `last`
ones from the end of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from walld.sessions.events import Event, as_dict
from walld.sessions.refusals import BadArgument

__all__ = ["find"]


def find(
    events: Sequence[Event],
    type: str | None = None,  # noqa: A002
    key_prefix: str | None = None,
    last: int | None = None,
) -> list[dict[str, Any]]:
    """Events of that type whose key begins so, in order; at most the `last` newest of them."""
    if last is not None and last < 0:
        raise BadArgument("last", last, "0 or more")
    found: list[dict[str, Any]] = []
    for event in reversed(events):
        if last is not None and len(found) == last:
            break
        if type is not None and event.type != type:
            continue
        if key_prefix is None or (event.key is not None and event.key.startswith(key_prefix)):
            found.append(as_dict(event))
    found.reverse()
    return found
