"""Why a sample failed: the layer of the failure, by rules that are stated here.

Owns: the rules and their order. Refuses: what counts of what an application says
(`session_facts.py`), calls (`state/account.py`), the shape of a sample (`evaluation.py`).

A sample is a turn, or a session's newest turn. It failed where a verification says so (rule V), or
where it came to no good end: it was interrupted, or its application says so in a `lifecycle` entry,
or it was completed and the model did not answer. One that is at work has not failed. The failure is
then the newest that the rules of the table find and that the model did not get over: behind which
it said nothing more in that turn. Of two at one place the rule that stands first counts. Where none
is found it is the end itself (rule L).

| rule | layer | what is a failure |
|---|---|---|
| V | verification | the newest of a name says `passed: false` |
| C1 | context | a model's call with the error class context_length |
| C2 | context | an entry of type `compaction_failed` |
| P1 | provider | a model's call with any other error class but cancelled |
| P2 | provider | a reply that is not released, and that ended in an error |
| T1 | tool_validation | a call that failed before it started, or was cut within its arguments |
| R1 | permission | a call that was denied, or that waits for a person's word |
| E1 | execution | a call that failed, was cut off, or of which nobody knows whether it ran |
| O1 | observation | a call that ended, and whose result the model did not see |
| L | lifecycle | none of these: why the turn was interrupted, or that there is no answer |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from walld.sessions.gate.pending import is_unseen
from walld.sessions.gate.turn_history import History, TurnHistory
from walld.sessions.state.account import Unreleased
from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.events import Event
from walld.sessions.views.session_facts import ended_at, lifecycle, verifications

__all__ = ["LAYERS", "failure_of"]

LAYERS: Final = (
    *("provider", "context", "tool_validation", "permission"),
    *("execution", "observation", "verification", "lifecycle"),
)
_ORDER: Final = ("C1", "C2", "P1", "P2", "T1", "R1", "E1", "O1")
_LAYER_OF: Final = {
    "C": "context",
    "P": "provider",
    "T": "tool_validation",
    "R": "permission",
    "E": "execution",
    "O": "observation",
}
_BROKEN: Final = frozenset(("failed", "timeout", "cancelled", "unknown"))


def failure_of(
    events: Sequence[Event],
    account: History,
    turn: str | None = None,
    unreleased: Sequence[Unreleased] = (),
) -> dict[str, Any] | None:
    """layer: one of LAYERS; why; seq: of the entry that shows it. None: it did not fail, or not
    yet. turn: a turn of the account; else the newest, and verifications of all.
    """
    failed = [one for one in verifications(events, turn) if one["passed"] is False]
    if failed:
        why = failed[-1]["name"] or "a verification without a name"
        return _failure("verification", why, failed[-1]["seq"])
    if not account.turns:
        return None
    last = next(reversed(account.turns.values())) if turn is None else account.turns[turn]
    if (end := _bad_end(events, last, account)) is None:
        return None
    said = max((one.seq for one in last.spoken if _is_said(one)), default=0)
    found = [
        (seq, -_ORDER.index(rule), rule, why)
        for rule, seq, why in _found(events, account, last, unreleased)
        if seq > said
    ]
    if not found:
        return _failure("lifecycle", *end)
    seq, _, rule, why = max(found)
    return _failure(_LAYER_OF[rule[0]], why, seq)


def _failure(layer: str, why: str, seq: int) -> dict[str, Any]:
    return {"layer": layer, "why": why, "seq": seq}


def _bad_end(
    events: Sequence[Event], turn: TurnHistory, account: History
) -> tuple[str, int] | None:
    """Why its end is none that is good, and by which entry; None where it is, or is to come."""
    if turn is next(reversed(account.turns.values())):
        now = lifecycle(events)
        if now is not None and now["is_said"] and now["state"] == "failed":
            return str(now["reason"] or "failed"), now["seq"]
    if turn.ended is None:
        return None
    if turn.state.state == "interrupted":
        return str(turn.state.reason), turn.ended.seq
    is_answered = any(_is_said(one) and one.payload.get("content") for one in turn.spoken)
    return None if is_answered else ("completed without an answer", turn.ended.seq)


def _is_said(event: Event) -> bool:
    return event.type == "message" and event.payload.get("role") == "assistant"


def _found(
    events: Sequence[Event], account: History, turn: TurnHistory, unreleased: Sequence[Unreleased]
) -> Iterator[tuple[str, int, str]]:
    """Rule, seq and why of what the table finds in a turn."""
    turn_id = turn.state.turn_id
    for event in events:
        if event.turn != turn_id:
            continue
        if event.type == "compaction_failed":
            yield "C2", event.seq, str(event.payload.get("reason") or "compaction failed")
        elif event.type == "model_call":
            kind = event.payload.get("error_class")
            if isinstance(kind, str) and kind != "cancelled" and not _is_got_over(event, turn):
                yield "C1" if kind == "context_length" else "P1", event.seq, kind
    for reply in unreleased:
        if reply.turn == turn_id and reply.status == "errored":
            yield "P2", events[-1].seq, f"reply {reply.stream_id} ended in an error"
    for call in account.calls.calls:
        if call.turn == turn_id and not call.is_served and call.superseded_by is None:
            yield from _of_call(call, turn)


def _is_got_over(failed: Event, turn: TurnHistory) -> bool:
    """The same reply said something in a later step: its entry, made as the reply went, stands
    behind that all the same.
    """
    stream, step = failed.payload.get("stream"), failed.payload.get("step")
    if not isinstance(step, int):
        return False
    said = [one.payload for one in turn.said if _is_said(one)]
    later = [one.get("_wal_seq") for one in said if one.get("_wal_stream") == stream]
    return any(isinstance(seq, int) and seq > step for seq in later)


def _of_call(call: CallAccount, turn: TurnHistory) -> Iterator[tuple[str, int, str]]:
    seq, outcome = ended_at(call), call.outcome
    named = f"{call.name or call.state.tool} (call {call.call_id})"
    if call.is_cut or (outcome == "failed" and _is_refused(call)):
        yield "T1", seq, f"{named}: {'its arguments were cut' if call.is_cut else _said(call)}"
    elif outcome == "denied":
        who, why = call.denied_by()
        yield "R1", seq, f"{named}: {who} rejected it" + (f": {why}" if why else "")
    elif outcome == "pending" and call.stage == "asked":
        yield "R1", seq, f"{named}: nobody has allowed it yet"
    elif outcome in _BROKEN:
        yield "E1", seq, f"{named}: {_said(call) if outcome == 'failed' else outcome}"
    elif is_unseen(call, turn):
        yield "O1", seq, f"{named}: the model did not see its result"


def _is_refused(call: CallAccount) -> bool:
    """Its journal says that it failed, and not that it started."""
    return "failed" in call.seqs and "started" not in call.seqs


def _said(call: CallAccount) -> str:
    result = call.result()[1]
    return result[:200] if isinstance(result, str) and result else "failed"
