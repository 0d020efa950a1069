"""Logs that a session is damaged, once a process and break.

Owns: what has been said. Refuses: finding it, which is the daemon's.
"""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["told"]

_log = logging.getLogger("walld")
_SAID_MAX = 1000
_said: set[tuple[str, int, int, str]] = set()


def told(session_id: str, breaks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The breaks, each of them logged where this process has not logged it yet."""
    for one in breaks:
        first_seq, last_seq, why = one.get("first_seq", 0), one.get("last_seq", 0), one.get("why")
        key = (session_id, first_seq, last_seq, str(why))
        if key in _said:
            continue
        if len(_said) >= _SAID_MAX:
            _said.clear()
        _said.add(key)
        cost = f"events {first_seq} to {last_seq} are missing"
        if first_seq > last_seq:
            cost = f"no event is missing before {first_seq}"
        _log.warning("session %r is damaged (%s): %s", session_id, why, cost)
    return breaks
