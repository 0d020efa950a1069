"""What waits for a decision: approvals, calls that did not run, calls of unknown outcome.

Owns: which actions are pending. Refuses: whether it is safe to take them (`resume.py`).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Final

from walld.sessions.gate.possibly_run import calls_elsewhere, may_have_started
from walld.sessions.gate.turn_history import History, history_of
from walld.sessions.gate.unreleased import UnreleasedReply, said_in
from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.events import Event

__all__ = ["open_tools", "pending"]

_ACTIONS: Final = {"asked": "approve", "approved": "run_tool", "intended": "decide_tool"}


def open_tools(account: History, doubtful: Container[str] = ()) -> list[CallAccount]:
    """Calls without a result, in order. doubtful: ids of entries of calls that may have started.

    What did not start in a turn that was completed is done with; what did, or may have, is not,
    whatever became of its turn. What the model said and nobody began, of a program that would have
    said so, is asked of the model again; what a later call took the place of, or the
    provider ran itself, waits for nothing.
    """
    return [
        call
        for call in account.calls.calls
        if (call.intent is not None and call.begun.id in doubtful)
        or (not call.closed and call.superseded_by is None and _waits(account, call, doubtful))
    ]


def _waits(account: History, call: CallAccount, doubtful: Container[str]) -> bool:
    if call.is_served:
        return False
    if call.outcome == "unknown" or call.begun.id in doubtful:
        return True
    return call.intent is not None and not _is_completed(account, call.turn)


def _is_completed(account: History, turn_id: str | None) -> bool:
    turn = account.turns.get(turn_id or "")
    return turn is not None and turn.state.state == "completed"


def pending(
    events: Sequence[Event], last_seq: int = 0, replies: Sequence[UnreleasedReply] = ()
) -> list[dict[str, Any]]:
    """In order of seq. action: approve | decide_tool | run_tool | settle_tool | answer_turn.

    settle_tool: it started, or may have, and has no result: somebody has to look what became of it;
    its seq is that of its intent, of the message that said a call that nobody intended (its state
    is said), or of what told of a call whose intent is not here.
    answer_turn: a turn that was submitted and has not ended.
    last_seq: the highest that was given, as far as is known. replies: those that are not released;
    the seq of a call that only such a one says is that of its turn's submission.
    """
    account = history_of(events, said_in(replies, events))
    found: list[dict[str, Any]] = [
        {
            "action": "answer_turn",
            "seq": turn.submitted.seq,
            "since_ms": turn.submitted.at_ms,
            "turn": turn.state.turn_id,
            "message_id": turn.state.message_id,
            "state": turn.state.state,
        }
        for turn in account.turns.values()
        if not turn.state.ended
    ]
    doubtful = may_have_started(account, events, last_seq)
    for tool in [*open_tools(account, doubtful), *calls_elsewhere(events)]:
        state, is_doubtful = tool.state.state, tool.begun.id in doubtful
        action = _ACTIONS.get(state, "settle_tool")
        if state == "approved" and tool.is_undecided:
            action = "decide_tool"
        found.append(
            {
                "action": "settle_tool" if is_doubtful else action,
                "seq": tool.begun.seq,
                "since_ms": tool.at_ms.get(state, tool.begun.at_ms),
                "turn": tool.turn,
                "call_id": tool.call_id,
                "tool": tool.state.tool,
                "state": state,
                "side_effect": tool.risk[0],
                "resume_policy": tool.risk[1],
            }
        )
    return sorted(found, key=lambda one: one["seq"])
