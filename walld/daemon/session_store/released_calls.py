"""Keeps what is known of a reply that goes: its model, and the tool calls that no message has.

Owns: which calls those are, whether it was an answer, and the `model_call` entries that tell it.
Refuses: when a reply goes (`turn_watcher.py`), its messages (`reply_messages.py`), what a reply
says of its model (`replies/model_facts.py`), what became of a call (`sessions/state/account.py`).

Invariants: of text, results and arguments nothing is kept but a hash of the arguments: a released
reply's bytes leave the disk (P5). What an entry of the session says already is not said again. Of
an attempt that was begun anew only tool calls of steps that had ended count: nobody had the others'
whole; the model was asked for each.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from walld_client.encoding import wtf8
from walld_client.recovered.entry_messages import OF_INFO, entry_messages, has_ended
from walld_client.wire import messages as wire

from walld import limits
from walld.daemon.session_store.reply_messages import (
    ids_of,
    model_payloads,
    started_at_ms,
)
from walld.replies.model_facts import short_text
from walld.sessions.state.account import calls_in
from walld.sessions.state.call_account import arguments_hash
from walld.sessions.state.entries import line_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld_client.recovered.partial import PartialReply
    from walld_client.recovered.segments import Segment

    from walld.daemon.session_store.open_sessions import Sessions
    from walld.engine.session_log import SessionLog
    from walld.sessions.state.events import Event

__all__ = ["ReadReply", "ReleasedCalls"]

_CALLS_MAX: Final = 256
"""Of a step in one entry."""
_LISTS: Final = frozenset(("calls", "results"))
_MODEL: Final = "model"
_FACTS: Final = ("call_id", "seq", "outcome")
_OF_MODEL: Final = (
    *("model", "provider", "request_id", "tools_hash", "usage", "status"),
    *("error_class", "error_kind", "finish_reason", "at_ms", "ended_at_ms", "answer"),
)
_AT_ONCE_BYTES: Final = 32 * 1024
"""An entry that is longer is looked at in the thread."""
T = TypeVar("T")


class ReadReply(NamedTuple):
    """ended: first seqs of what was said in steps of earlier attempts that had ended (`fold`)."""

    reply: PartialReply
    ended: set[int]


class ReleasedCalls:
    """The entries for them, of one daemon."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def entries(
        self, ledger: SessionLog, read: ReadReply, *, is_moved: bool, has_expired: bool = False
    ) -> list[wire.NewEntry] | None:
        """Those that the session lacks, with ids that are free; None of a reply without any.

        is_moved: the messages of its last attempt go to the session with it. has_expired: it goes
        for its age; else who had it has taken its words over.
        """
        reply, found = read.reply, list[wire.NewEntry]()
        steps = _steps(reply, read.ended, with_last=not is_moved)
        models = model_payloads(reply, read.ended)
        if not (is_moved or has_expired):
            models |= await self._answer(ledger, reply, models)
        for first_seq in sorted(steps.keys() | models.keys()):
            left = steps.get(first_seq, [])
            if left:
                look = partial(_said_in_message, reply=reply, segments=left)
                _, there = await self._free(ledger, reply, f"{reply.stream_id}:{first_seq}", look)
                said = set[int]().union(*there)
                left = [one for one in left if one.first_seq not in said]
            model = models.get(first_seq, {})
            for at in range(0, max(len(left), bool(model)), _CALLS_MAX):
                part = left[at : at + _CALLS_MAX]
                named_by = part[0].first_seq if at else first_seq
                told = {} if at else model
                found += await self._entries(ledger, reply, (first_seq, named_by), part, told)
        return found if steps or models else None

    async def _answer(
        self, ledger: SessionLog, reply: PartialReply, models: dict[int, dict[str, Any]]
    ) -> dict[int, dict[str, Any]]:
        """First seq of its last step -> that it was an answer, and what else is known of its model;
        none where it was none, or the session has its message.
        """
        if (seq := _answer_seq(reply)) is None:
            return {}
        look = partial(_is_message, reply=reply)
        _, there = await self._free(ledger, reply, f"{reply.stream_id}:{seq}", look)
        if any(there):
            return {}
        known: dict[str, Any] = {"status": reply.status}
        if reply.finish_reason is not None:
            known["finish_reason"] = short_text(reply.finish_reason)
        told = models.get(seq, known) | {"answer": True}
        return {seq: {name: wtf8.jsonable(value) for name, value in told.items()}}

    async def _entries(
        self,
        ledger: SessionLog,
        reply: PartialReply,
        seqs: tuple[int, int],
        left: list[Segment],
        model: dict[str, Any],
    ) -> list[wire.NewEntry]:
        """One, or more where that would be too long. seqs: of the step, and for its id. model: what
        is known of that; of several entries the first has it.
        """
        wanted, look = f"{reply.stream_id}:{seqs[1]}:call", partial(_said_of_calls, reply=reply)
        free, there = await self._free(ledger, reply, wanted, look)
        known = set[tuple[str, str]]().union(*there)
        model = {} if (_MODEL, _facts(model, _OF_MODEL)) in known else model
        payload = _payload(reply, seqs[0], left) | model
        for name in _LISTS & payload.keys():
            payload[name] = [one for one in payload[name] if (name, _facts(one)) not in known]
        if not model and not any(payload.get(name) for name in _LISTS):
            return []
        encoded = json.dumps(payload, ensure_ascii=True, separators=(",", ":")).encode("ascii")
        if len(encoded) > limits.LEDGER_PAYLOAD_BYTES_MAX and len(left) > 1:
            half = len(left) // 2
            first = await self._entries(ledger, reply, seqs, left[:half], model)
            seqs = seqs[0], left[half].first_seq
            return first + await self._entries(ledger, reply, seqs, left[half:], {})
        return [wire.NewEntry("model_call", encoded, free, turn=reply.turn_id, leaf=False)]

    async def _free(
        self, ledger: SessionLog, reply: PartialReply, wanted: str, look: Callable[[Event], T]
    ) -> tuple[str, list[T]]:
        """The first id that is free, and what a look at each entry that has one before it finds.

        One after the other: no more than a line of them is held.
        """
        assert ledger.state is not None
        ids, names, found = ledger.state.ids, ids_of(reply, wanted), list[T]()
        while (seq := ids.get(name := next(names))) is not None:
            held = await self._sessions.lines(ledger.uid, ledger.session_id, seq - 1, 1)
            for line in [] if held is None else held.lines:
                if len(line) > _AT_ONCE_BYTES:
                    found.append(await self._sessions.thread.run(partial(_looked, look, line)))
                else:
                    found.append(look(line_event(line)))
        return name, found


def _looked(look: Callable[[Event], T], line: bytes) -> T:
    return look(line_event(line))


def _steps(reply: PartialReply, ended: set[int], *, with_last: bool) -> dict[int, list[Segment]]:
    """First seq -> calls and results, of each step that has any which count."""
    steps: dict[tuple[int, int], list[Segment]] = {}
    for one in reply.segments:
        steps.setdefault((one.attempt, one.step), []).append(one)
    found: dict[int, list[Segment]] = {}
    for (attempt, _), segments in steps.items():
        is_last = attempt == reply.attempts - 1
        counted = [
            one
            for one in segments
            if one.kind in ("tool", "tool_result") and one.call_id is not None
            if (with_last if is_last else one.first_seq in ended)
        ]
        if counted:
            found[segments[0].first_seq] = counted
    return found


def _answer_seq(reply: PartialReply) -> int | None:
    """Of the first event of its last step, where that has words, asks for nothing, and it ended."""
    if reply.turn_id is None or not has_ended(reply):
        return None
    message = next(reversed(entry_messages(reply)), None)
    if message is None or not message["content"] or message.get("_partial"):
        return None
    is_asking = any(not one.get("server") for one in calls_in(message))
    return None if is_asking else message["_wal_seq"]


def _is_message(event: Event, reply: PartialReply) -> bool:
    return event.type == "message" and event.payload.get("_wal_stream") == reply.stream_id


def _said_in_message(event: Event, reply: PartialReply, segments: list[Segment]) -> set[int]:
    """Seqs of those that the entry of their step says, whoever appended that."""
    message = event.payload
    if event.type != "message" or message.get("_wal_stream") != reply.stream_id:
        return set()
    calls = _named(message.get("tool_calls"))  # an entry of before has no seqs
    results = {call_id for call_id, _ in _named(message.get("tool_results"))}
    return {
        one.first_seq
        for one in segments
        if (
            one.call_id in results
            if one.kind == "tool_result"
            else not calls.isdisjoint(((one.call_id, one.first_seq), (one.call_id, None)))
        )
    }


def _named(listed: object) -> set[tuple[str, int | None]]:
    """Call ids that a message names, and the seqs it gives them; None where it gives none."""
    return {
        (call_id, seq)
        for one in _dicts(listed)
        if isinstance(call_id := one.get("id"), str)
        if isinstance(seq := one.get("seq"), int) or "seq" not in one
    }


def _said_of_calls(event: Event, reply: PartialReply) -> set[tuple[str, str]]:
    """What the daemon has said of it already, and in which list."""
    if event.type != "model_call" or not _is_of(event, reply):
        return set()
    said = {(name, _facts(one)) for name in _LISTS for one in _dicts(event.payload.get(name))}
    return said | {(_MODEL, _facts(event.payload, _OF_MODEL))}


def _is_of(event: Event, reply: PartialReply) -> bool:
    """It tells of that reply, and of none before it that had the same name."""
    told = event.payload.get("stream"), event.payload.get("started_at_ms"), event.turn
    return told == (reply.stream_id, started_at_ms(reply), reply.turn_id)


def _payload(reply: PartialReply, step: int, left: list[Segment]) -> dict[str, Any]:
    """What is known of the calls of one step. finish_reason: of the reply's last one."""
    calls = [_call(one) for one in left if one.kind == "tool"]
    results = [
        {"call_id": one.call_id, "seq": one.first_seq, "outcome": one.outcome}
        for one in left
        if one.kind == "tool_result"
    ]
    told: dict[str, Any] = {
        "stream": reply.stream_id,
        "step": step,
        "started_at_ms": started_at_ms(reply),
        "status": reply.status,
        "calls": calls,
    }
    if results:
        told["results"] = results
    if left and reply.finish_reason is not None:
        last = reply.segments[-1]
        if (left[0].attempt, left[0].step) == (last.attempt, last.step):
            told["finish_reason"] = short_text(reply.finish_reason)
    return {name: wtf8.jsonable(value) for name, value in told.items()}


def _call(segment: Segment) -> dict[str, Any]:
    """pending: its arguments never became whole, so that nobody can have run it."""
    said, outcome = segment.arguments, segment.outcome
    is_begun = said is not None and said.lstrip().startswith("{")
    if outcome == "unknown" and is_begun and not segment.arguments_complete:
        outcome = "pending"
    told: dict[str, Any] = {
        "call_id": segment.call_id,
        "name": segment.name,
        "seq": segment.first_seq,
        "at_ms": round(segment.at * 1000),
        "outcome": outcome,
        "arguments_hash": arguments_hash(said) if segment.arguments_complete else None,
    }
    info = segment.info if isinstance(segment.info, dict) else {}
    risk = (name for name in sorted(OF_INFO) if isinstance(info.get(name), (str, bool)))
    return told | {name: info[name] for name in risk}


def _facts(one: dict[str, Any], names: tuple[str, ...] = _FACTS) -> str:
    """As text: an entry may say anything there."""
    return json.dumps([one.get(name) for name in names], sort_keys=True)


def _dicts(listed: object) -> list[dict[str, Any]]:
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
