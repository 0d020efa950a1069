"""The life of a tool call: from intended by way of approved and started to observed.

Owns: `ToolState`, which event moves it where, and what its outcome is called. Refuses: whether it
may run again (`sessions/gate/resume.py`), running anything.

Invariants: a call only goes forward; skipping is going forward. What was denied does not start. A
call that started and has no result is `unknown`, whatever became of its turn. Once its turn has
ended a call is only settled: what became of it may be said, one that did not start may be denied;
nothing is intended, approved or started any more.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from walld.sessions.state.events import Event, Problem

__all__ = [
    "TOOL_TYPES",
    "ToolState",
    "check_tool",
    "named_call",
    "settles",
    "take_tool",
    "tool_state_of",
]

TOOL_TYPES: Final = frozenset(
    (
        "tool_intent",
        "tool_decision",
        "tool_approval",
        "tool_started",
        "tool_finished",
        "observation",
    )
)

_RANKS: Final = {
    "said": -1,
    "intended": 0,
    "asked": 1,
    "approved": 1,
    "denied": 1,
    "started": 2,
    "finished": 3,
    "failed": 3,
    "observed": 4,
}
_APPROVED: Final = frozenset(("allow", "allowed", "approve", "approved", "grant", "granted"))
_DENIED: Final = frozenset(("deny", "denied", "reject", "rejected", "refuse", "refused", "block"))
_SETTLED_BY: Final = {
    "pending": "denied | tool_finished | observation",
    "unknown": "tool_finished | observation",
}
_ASKED: Final = frozenset(("ask", "asked"))


class ToolState(msgspec.Struct, array_like=True):
    """A call as far as it got. seqs: state -> seq of the event that last led there."""

    state: str
    tool: str
    side_effect: str
    resume_policy: str
    seqs: dict[str, int]

    @property
    def outcome(self) -> str:
        """Done | failed | denied | unknown (started, no result) | pending (nothing ran yet)."""
        if "finished" in self.seqs:
            return "done"
        if "failed" in self.seqs:
            return "failed"
        if "started" in self.seqs:
            return "unknown"
        denied = self.seqs.get("denied", 0)
        if denied > max(self.seqs.get("approved", 0), self.seqs.get("asked", 0)):
            return "denied"
        return "done" if "observed" in self.seqs else "pending"

    @property
    def closed(self) -> bool:
        """It has a result, was denied, or somebody observed what became of it."""
        return "observed" in self.seqs or self.outcome in ("done", "failed", "denied")

    @property
    def may_start(self) -> bool:
        """A start that comes now is its own, and not that of a call whose intent is lost."""
        return self.state in ("intended", "asked", "approved")

    def copy(self) -> ToolState:
        """One that does not change with this one."""
        return msgspec.structs.replace(self, seqs=self.seqs.copy())


def named_call(event: Event) -> tuple[str, str] | None:
    """(turn, call_id) of the call that the event tells of, None where it tells of none.

    An observation may name one by `of_turn` and `of_call`.
    """
    if event.type not in TOOL_TYPES:
        return None
    turn, call_id = event.turn, event.payload.get("call_id")
    if call_id is None and event.type == "observation":
        turn, call_id = event.payload.get("of_turn"), event.payload.get("of_call")
    return (turn, call_id) if turn and isinstance(turn, str) and isinstance(call_id, str) else None


def tool_state_of(type: str, facts: dict[str, Any]) -> str | None:  # noqa: A002
    """The state an event leads to, None for a verdict that is nobody's."""
    if type == "tool_approval":
        return {"asked": "asked", "granted": "approved", "denied": "denied"}.get(
            str(facts.get("state"))
        )
    if type == "tool_decision":
        verdict = str(facts.get("verdict")).lower()
        for words, state in ((_APPROVED, "approved"), (_DENIED, "denied"), (_ASKED, "asked")):
            if verdict in words:
                return state
        return None
    if type == "tool_finished":
        return "failed" if facts.get("failed") else "finished"
    return {"tool_intent": "intended", "tool_started": "started", "observation": "observed"}[type]


def check_tool(tool: ToolState | None, event: Event, ended: str | None) -> Problem | None:
    """Whether the event may come now. tool: None where the call is not known.

    ended: how the turn ended, None while it has not.
    """
    call_id = event.payload.get("call_id")
    if ended is not None and not settles(tool, event):
        got = f"{event.type} of call {call_id} in turn {event.turn}, which is {ended}"
        limit = "a turn that has not ended (submit with retry_of)"
        if tool is not None and tool.outcome in ("pending", "unknown"):
            limit += f", or what became of the call: {_SETTLED_BY[tool.outcome]}"
        return Problem("illegal_tool", f"turn of {event.type} has ended", got, limit)
    if event.type == "tool_intent":
        if tool is None or tool.closed:
            return None  # some providers count call ids anew
        return _illegal(call_id, "intended", f"a new call_id: this one is {tool.state}")
    if tool is None:
        return Problem(
            "unknown_tool",
            f"call_id of {event.type} names no call of turn {event.turn}",
            str(call_id),
            "a call_id that a tool_intent gave",
        )
    state = tool_state_of(event.type, event.payload)
    if state is None or state == tool.state == "observed":
        return None
    if state == "started" and tool.state == "denied":
        return _illegal(call_id, state, "approved first: it was denied")
    deciding = _RANKS[state] == 1 == _RANKS[tool.state]
    if _RANKS[state] <= _RANKS[tool.state] and not deciding:
        return _illegal(call_id, state, f"what follows {tool.state}")
    return None


def settles(tool: ToolState | None, event: Event) -> bool:
    """Whether the event says what became of a call, so that it may come after its turn's end."""
    if tool is None:
        return event.type != "tool_intent"  # refused as a call that is not known
    state = tool_state_of(event.type, event.payload)
    if state in ("finished", "failed", "observed"):
        return True
    return state == "denied" and "started" not in tool.seqs and not tool.closed


def _illegal(call_id: object, got: str, limit: str) -> Problem:
    return Problem("illegal_tool", f"tool call {call_id} does not go back", got, limit)


def take_tool(tool: ToolState, type: str, seq: int, facts: dict[str, Any]) -> None:  # noqa: A002
    """What an event behind the intent does to its call; one that may not come does nothing."""
    state = tool_state_of(type, facts)
    if state is not None and _RANKS[state] >= _RANKS[tool.state]:
        tool.state = state
        tool.seqs[state] = seq
