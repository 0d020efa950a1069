"""Where a session stands, in one word.

Owns: the five words and which goes before which. Refuses: judging anything (`resume.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["STANDINGS", "standing"]

STANDINGS: Final = ("live", "waits", "blocked", "cut", "done")
_OF_A_PERSON: Final = frozenset(("approval_pending", "approval_stale"))
_CUT_OFF: Final = frozenset(("cancelled", "errored"))
"""A reply that ended so, and that nobody works on, whoever lives."""
_OF_WORKSPACE: Final = frozenset(("workspace_not_compared", "workspace_unknown"))


def standing(gate: Mapping[str, Any]) -> str:
    """The first that holds, of what `resume()` said.

    live: a living process works on a turn or a reply, who asks among them, or has yet to save one
    that is whole; of a sub-agent, too.
    waits: all that is in the way is a yes or a no of a person. blocked: something else is. cut: a
    reply is not released and its owner is gone, or cut it off, or work stopped before its end, or
    is to be looked at. done: none of it; a workspace that nobody looked at makes no finished work
    unfinished.
    """
    replies = gate["replies"]
    speaks = any(one["status"] == "live" and one["owner_alive"] for one in replies)
    works = any(one["code"] == "at_work" for one in gate["reasons"])
    if gate["owner"] is not None or gate["own_turns"] or speaks or works:
        return "live"
    in_the_way = [one for one in gate["reasons"] if one["verdict"] == "blocked"]
    if in_the_way:
        waits = all(_why(one) in _OF_A_PERSON for one in in_the_way)
        return "waits" if waits else "blocked"
    if replies:  # who lives and has a whole one has yet to save it
        saves = all(one["owner_alive"] and one["status"] not in _CUT_OFF for one in replies)
        return "live" if saves else "cut"
    to_look_at = {one["code"] for one in gate["reasons"]} - _OF_WORKSPACE
    if to_look_at or gate["boundary"] not in ("idle", "answered"):
        return "cut"
    return "done"


def _why(reason: Mapping[str, Any]) -> object:
    """Of a reason that a sub-agent's session has, what that says, however far below."""
    while (below := reason.get("of_child")) is not None:
        reason = below
    return reason.get("why")
