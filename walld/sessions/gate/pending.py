"""What waits for somebody: approvals, calls that did not run or may have, results, answers.

Owns: which actions are pending. Refuses: whether it is safe to take them (`resume.py`).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

from walld.sessions.gate.approvals import is_stale, takes_over
from walld.sessions.gate.children import child_of, child_word
from walld.sessions.gate.possibly_run import calls_elsewhere, may_have_started
from walld.sessions.gate.processes import NamedProcess, process_of, seen, start_of
from walld.sessions.gate.turn_history import History, TurnHistory, history_of
from walld.sessions.gate.unreleased import said_at_ms, said_before, said_in
from walld.sessions.gate.workers import Worker
from walld.sessions.state.account import Unreleased, calls_in
from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.events import Event

__all__ = ["gone_answer", "is_answered", "is_unseen", "open_tools", "pending"]

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


def is_answered(
    turn: TurnHistory, waiting: Sequence[CallAccount], said: Sequence[Event] = ()
) -> bool:
    """The model has spoken last, to its end, and asks for nothing: there is nothing to resume.

    A message that says calls is no answer, also where their results are there: the model has yet to
    see those. An answer whose words went to its program's own store is one, too. waiting: the open
    calls. said: messages of replies that are not released.
    """
    turn_id = turn.state.turn_id
    last = gone_answer(turn, said)
    if last is None:
        spoken = [*turn.spoken, *(one for one in said if one.turn == turn_id)]
        last = spoken[-1] if spoken else None
        if last is None or last.type != "message" or last.payload.get("role") != "assistant":
            return False
        if not last.payload.get("content") or last.payload.get("_partial"):
            return False
        if any(not one.get("server") for one in calls_in(last.payload)):
            return False
    if any(call.turn == turn_id for call in waiting):
        return False
    journalled = (seq for call in turn.tools for seq in call.seqs.values())
    return max(journalled, default=0) < last.seq


def gone_answer(turn: TurnHistory, said: Sequence[Event] = ()) -> Event | None:
    """What is left of the model's last words of a turn, where those were an answer and its program
    took them to a store of its own.
    """
    last = turn.gone_answers[-1] if turn.gone_answers else None
    if last is None or any(one.turn == turn.state.turn_id for one in said):
        return None  # of two replies the one that went came before
    if turn.spoken and turn.spoken[-1].seq > last.seq:
        return None
    streams = turn.state.stream_ids
    return last if next(reversed(streams), None) in (None, last.payload["stream"]) else None


def pending(
    events: Sequence[Event],
    last_seq: int = 0,
    replies: Sequence[Unreleased] = (),
    workers: Sequence[Worker] = (),
    now_ms: int | None = None,
    processes: Mapping[NamedProcess, str] | None = None,
    gone: Container[str] = (),
) -> list[dict[str, Any]]:
    """In order of seq. action: approve | decide_tool | run_tool | settle_tool | observe_tool |
    answer_turn; None of a call that another living process is at, or that still runs in the process
    that its start named, which `owner` names.

    run_tool: it was approved, or is the retry of one that was, in a turn that was neither retried
    nor completed, while a turn is to be answered: else nobody runs it, and decide_tool is told of
    what a person must allow alone; or it is the work of a sub-agent, whose session, `child`, may go
    on.
    settle_tool: it started, or may have, and has no result: somebody has to look what became of it;
    its seq is that of its intent, of the message that said a call that nobody intended (its state
    is said), or of what told of a call whose intent is not here.
    answer_turn: the newest turn of its message, neither completed nor answered, at which nobody
    else is; of an interrupted one only where no other message came since.
    observe_tool: a call of such a turn that ended, and whose result the model did not see yet;
    artifact: where that result is.
    last_seq: the highest that was given, as far as is known. replies: those that are not released;
    the seq of a call that only such a one says is that of its turn's submission. workers: who lives
    and works on the session. now_ms: since 1970; without it no grant is too old. processes: of
    those that starts name, running or gone; any other is unseen. gone: ids of entries whose
    messages were undone.
    """
    said = said_in(replies, events)
    account = history_of(events, [*said, *said_before(replies, events)], gone=gone)
    doubtful = may_have_started(account, events, last_seq)
    waiting = [*open_tools(account, doubtful), *calls_elsewhere(events)]
    retried = {turn.state.retry_of for turn in account.turns.values()}
    others = {
        one.turn: one._replace(since_ms=account.turns[one.turn].submitted.at_ms)
        for one in workers
        if one.is_other and one.stream_id is None and one.turn in account.turns
    }
    newest = next(reversed(account.turns), None)
    to_answer = [
        turn
        for turn_id, turn in account.turns.items()
        if turn_id not in retried and turn_id not in others and turn.state.state != "completed"
        if not turn.state.ended or turn_id == newest
        if not is_answered(turn, waiting, said)
    ]
    found: list[dict[str, Any]] = [
        {
            "action": "answer_turn",
            "seq": turn.submitted.seq,
            "since_ms": turn.submitted.at_ms,
            "turn": turn.state.turn_id,
            "message_id": turn.state.message_id,
            "state": turn.state.state,
        }
        for turn in to_answer
    ]
    for call in waiting:
        state, is_doubtful = call.stage, call.begun.id in doubtful
        action = "settle_tool" if is_doubtful else _ACTIONS.get(state, "settle_tool")
        if action == "decide_tool" and takes_over(call, doubtful, now_ms):
            action = "run_tool"
        elif action == "run_tool" and (call.is_undecided or is_stale(call, now_ms)):
            action = "settle_tool" if call.outcome == "unknown" else "decide_tool"
        if action == "run_tool" and (call.turn in retried or not to_answer):
            continue
        if action == "decide_tool" and not to_answer and not _is_asked(call, now_ms):
            continue  # nobody can go on with it, and no word of a person is wanted
        if (worker := others.get(call.turn or "")) is not None:
            found.append(_of_call(call, None, replies) | {"owner": worker.told()})
        elif action == "settle_tool" and (owner := _running(call, processes or {})) is not None:
            found.append(_of_call(call, None, replies) | {"owner": owner.told()})
        elif (child := child_of(call)) is not None and child.owner is not None:
            found.append(_of_call(call, None, replies) | {"owner": dict(child.owner)})
        elif action == "settle_tool" and not is_doubtful and child_word(call) == "ok":
            found.append(_of_call(call, "run_tool", replies))
        else:
            found.append(_of_call(call, action, replies))
    for turn in to_answer:
        found += [
            _of_call(call, "observe_tool", replies) | {"artifact": _artifact(call)}
            for call in turn.tools
            if is_unseen(call, turn)
        ]
    return sorted(found, key=lambda one: one["seq"])


def _is_asked(call: CallAccount, now_ms: int | None) -> bool:
    wants = call.risk[1] == "require-user-confirmation"
    return wants or call.is_undecided or is_stale(call, now_ms)


def _running(call: CallAccount, processes: Mapping[NamedProcess, str]) -> Worker | None:
    """The process that it still runs in."""
    start = start_of(call)
    if start is None or seen(call, processes) != "running":
        return None
    named = process_of(start.payload)
    assert named is not None, "it is running"
    return Worker(call.turn, None, named.pid, start.at_ms, is_asker=False, is_seen=True)


def _of_call(
    call: CallAccount, action: str | None, replies: Sequence[Unreleased]
) -> dict[str, Any]:
    state = call.stage
    return {
        "action": action,
        "seq": call.begun.seq,
        "since_ms": said_at_ms(call, replies) or call.since_ms,
        "turn": call.turn,
        "call_id": call.call_id,
        "tool": call.state.tool,
        "state": state,
        "side_effect": call.risk[0],
        "resume_policy": call.risk[1],
    } | ({} if call.child is None else {"child": call.child_session})


def is_unseen(call: CallAccount, turn: TurnHistory) -> bool:
    """It ended, and neither an observation, a message of its result nor the model's next words
    stand behind it.
    """
    ended = max(call.seqs.get("finished", 0), call.seqs.get("failed", 0))
    if not ended or "observed" in call.seqs or call.message is not None:
        return False
    return not any(
        one.seq > ended and one.payload.get("role") == "assistant" for one in turn.spoken
    )


def _artifact(call: CallAccount) -> str | None:
    """Of its result, where that is beside the session."""
    result = None if call.finished is None else call.finished.payload.get("result")
    held = result.get("_artifact") if isinstance(result, dict) else None
    sha256 = held.get("sha256") if isinstance(held, dict) else None
    return sha256 if isinstance(sha256, str) else None
