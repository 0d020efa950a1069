"""Turns a reply's messages into entries of its session.

Owns: their payloads and what lies beside, their ids, their parents. Refuses: which reply is moved
and when (`turn_watcher.py`).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from functools import partial
from hashlib import sha256
from itertools import pairwise
from secrets import token_hex
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from walld_client.encoding import wtf8
from walld_client.recovered.entry_messages import OF_INFO, entry_messages, has_ended
from walld_client.recovered.partial import from_recovered
from walld_client.session.truncation import fit
from walld_client.wire import messages as wire

from walld import limits
from walld.ledger.line import line_seq
from walld.replies.model_facts import step_records, tells
from walld.sessions.state.account import Unreleased
from walld.sessions.state.entries import ids_for, line_event
from walld.sessions.state.references import is_above

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walld_client.recovered.partial import PartialReply
    from walld_client.recovered.segments import Segment

    from walld.daemon.session_store.handles import Files, Source
    from walld.daemon.session_store.open_sessions import Sessions
    from walld.engine.session_log import SessionLog
    from walld.sessions.state.session_state import SessionState
    from walld.sessions.state.turns import TurnState

    Made: TypeAlias = dict[int, tuple[list[wire.RecoveredSegment], int, list[dict[str, Any]]]]
    """Messages of steps that another follows: by first seq, of what, before which seq."""

__all__ = [
    "ReplyMessages",
    "ids_of",
    "model_payloads",
    "placed",
    "started_at_ms",
    "unreleased",
]

_AT_ONCE_CHARS = 32 * 1024
"""An answer that is longer is encoded in the thread, and an entry that is longer is read there."""
_RUN_LINES_MAX = 32
"""Entries of one reply that stand so near are read together: a line has up to 256 KiB."""
_SAID = ("role", "content", "tool_calls")
_SINCE = ("seq", "at", *OF_INFO)
"""Of a call: no part of what it says."""
_GAP = "gap"
"""Why a reply that ended clean may be partial all the same: some of it never came (P10)."""


class ReplyMessages:
    """Those of one daemon's replies."""

    def __init__(self, files: Files, sessions: Sessions) -> None:
        self._files = files
        self._sessions = sessions

    async def put(self, session: Source, turn_id: str | None, message: dict[str, Any]) -> bytes:
        """A message of a reply that is whole, as payload; long content is an artifact."""
        payload, beside = await self.fitted(turn_id, message)
        for held in beside:
            await self._files.thread.run(partial(self._put, session, held))
        return payload

    async def fitted(
        self, turn_id: str | None, message: dict[str, Any]
    ) -> tuple[bytes, list[bytes]]:
        """The payload, and what goes beside the session for it."""
        told = {key: value for key, value in message.items() if key != "_wal_recovered"}
        if told.get("_partial_reason") != _GAP:  # it ended: the rest is no doubt any more
            told.pop("_partial", None)
            told.pop("_partial_reason", None)
        told["_turn"] = turn_id
        if "tool_calls" in told or len(told["content"]) > _AT_ONCE_CHARS:
            return await self._files.thread.run(partial(fit, told))
        return fit(told)

    async def named(
        self, ledger: SessionLog, reply: PartialReply, messages: list[tuple[dict[str, Any], bytes]]
    ) -> list[tuple[str, bool]]:
        """The ids of the entries that messages are, and which are there, however often they come.

        An entry of the application's may have taken the id, or of a reply of that name in another
        turn: one that says the same in this turn, or in none, is the message, beside any other it
        gets the next id that is free.
        """
        state = ledger.state
        assert state is not None
        wanted = [f"{reply.stream_id}:{message['_wal_seq']}" for message, _ in messages]
        firsts = [state.ids.get(next(ids_of(reply, one))) for one in wanted]
        taken = sorted(seq for seq in firsts if seq is not None)
        lines, placed = dict[int, bytes](), list[tuple[str, bool]]()
        for one, (_, payload) in zip(wanted, messages, strict=True):
            names, is_there = ids_of(reply, one), False
            while not is_there and (seq := state.ids.get(name := next(names))) is not None:
                if seq not in lines:
                    lines = await self._lines(ledger, seq, taken)
                if seq in lines:
                    is_there = await self._is_said(lines[seq], name, payload)
            placed.append((name, is_there))
        return placed

    async def _lines(self, ledger: SessionLog, seq: int, wanted: list[int]) -> dict[int, bytes]:
        """That line, and those behind it that are wanted next, by seq: few enough to be held."""
        at = bisect_right(wanted, seq + _RUN_LINES_MAX - 1) - 1
        last = max(seq, wanted[at]) if at >= 0 else seq
        held = await self._sessions.lines(ledger.uid, ledger.session_id, seq - 1, last - seq + 1)
        lines = [] if held is None else held.lines
        return await self._files.thread.run(lambda: {line_seq(line): line for line in lines})

    async def _is_said(self, line: bytes, name: str, payload: bytes) -> bool:
        if len(line) + len(payload) > _AT_ONCE_CHARS:
            return await self._files.thread.run(partial(_says, line, name, payload))
        return _says(line, name, payload)

    def _put(self, session: Source, held: bytes) -> None:
        """Beside the session, unless its delete has begun: what comes behind that stays for ever.

        For the thread, in which the delete takes all away that came before.
        """
        if session.is_gone:
            return
        digest, size = sha256(held).digest(), len(held)
        for at in range(0, size, limits.ANSWER_CHUNK_BYTES):
            piece = held[at : at + limits.ANSWER_CHUNK_BYTES]
            self._files.artifacts.put(*session.key, digest, size, at, piece)


def ids_of(reply: PartialReply, wanted: str) -> Iterator[str]:
    """Ids to try for an entry of a reply."""
    whose = f"{reply.turn_id} {started_at_ms(reply)}"
    return ids_for(wanted, whose, partial(token_hex, 8))


def started_at_ms(reply: PartialReply) -> int:
    """As it was begun, by the wall clock."""
    return round(reply.started_at * 1000)


def unreleased(
    recovered: wire.Recovered, ended_before_retry: set[int], made: Made | None = None
) -> Unreleased:
    """A reply, as views of its session take it. ended_before_retry: of its fold. made: what was
    made of it before, and takes what is made now: a step that is as it was is not made again.
    """
    last = recovered.attempts - 1
    by_step: dict[int, list[wire.RecoveredSegment]] = {}
    for one in recovered.segments:
        if one.attempt == last:
            by_step.setdefault(one.step, []).append(one)
    steps, told, at = list(by_step.values()), list[dict[str, Any]](), 0
    for step, following in pairwise(steps):
        held = None if made is None else made.get(step[0].first_seq)
        if held is None or held[:2] != (step, following[0].first_seq):
            break
        told += held[2]
        at += 1
    anew = [one for one in recovered.segments if one.kind == "tool" and one.attempt < last]
    anew += [one for step in steps[at:] for one in step]
    reply = from_recovered(msgspec.structs.replace(recovered, segments=anew))
    messages = entry_messages(reply)
    if made is not None:
        if not at:
            made.clear()
        by_seq = {one["_wal_seq"]: [one] for one in messages}
        for step, following in pairwise(steps[at:]):
            seq = step[0].first_seq
            made[seq] = step, following[0].first_seq, by_seq.get(seq, [])
    return Unreleased(
        reply.stream_id,
        reply.turn_id,
        told + messages,
        has_ended(reply),
        _earlier_calls(reply, ended_before_retry),
        reply.status,
        reply.owner_alive,
        reply.doubt or ("a gap stands in it" if reply.gaps else None),
        _facts(recovered),
        _model_calls(recovered, ended_before_retry),
    )


def _facts(recovered: wire.Recovered) -> dict[str, Any]:
    """Its verdict, its times, and when it said each of its calls, by seq."""
    error = recovered.error
    return {
        "lost_reason": recovered.lost_reason,
        "partial": recovered.partial,
        "partial_reason": recovered.partial_reason,
        "error": None if error is None else {"message": error.message, "kind": error.kind},
        "attempts": recovered.attempts,
        "started_at_ms": recovered.started_at_ms,
        "last_event_at_ms": recovered.last_event_at_ms,
        "last_seq": recovered.last_seq,
        "said_at_ms": {
            one.first_seq: one.at_ms for one in recovered.segments if one.kind == "tool"
        },
    }


def model_payloads(reply: PartialReply, ended: set[int]) -> dict[int, dict[str, Any]]:
    """First seq of each step of which something is known of its model -> that, as an entry has it.
    ended: first seqs of what earlier attempts said in steps that had ended (`fold`).
    """
    named = {"stream": reply.stream_id, "started_at_ms": started_at_ms(reply)}
    return {
        seq: {name: wtf8.jsonable(value) for name, value in (named | {"step": seq} | told).items()}
        for seq, told in step_records(reply, ended).items()
    }


def _model_calls(recovered: wire.Recovered, ended: set[int]) -> tuple[dict[str, Any], ...]:
    """Of a reply that may be long: without its texts."""
    steps, kept = set[tuple[int, int]](), list[wire.RecoveredSegment]()
    for one in recovered.segments:
        if tells(one):
            kept.append(msgspec.structs.replace(one, text=b"") if one.text else one)
        elif (one.attempt, one.step) not in steps:
            kept.append(msgspec.structs.replace(one, text=b"", arguments=None, result=None))
        steps.add((one.attempt, one.step))
    reply = from_recovered(msgspec.structs.replace(recovered, segments=kept))
    return tuple(model_payloads(reply, ended).values())


def _earlier_calls(
    reply: PartialReply, ended_before_retry: set[int]
) -> tuple[tuple[dict[str, Any], bool], ...]:
    """The calls of its earlier attempts, as items of messages, and whether the step that said each
    had ended: else nobody can have run it.
    """
    return tuple(
        (_earlier_call(one), one.first_seq in ended_before_retry)
        for one in reply.segments
        if one.kind == "tool" and one.attempt < reply.attempts - 1
    )


def _earlier_call(segment: Segment) -> dict[str, Any]:
    info = segment.info if isinstance(segment.info, dict) else {}
    return {
        "id": segment.call_id,
        "name": segment.name,
        "arguments": segment.arguments,
        "arguments_complete": segment.arguments_complete,
        "outcome": segment.outcome,
        "result": segment.result,
        "seq": segment.first_seq,
    } | {name: info[name] for name in OF_INFO & info.keys()}


def placed(
    messages: list[wire.NewEntry], state: SessionState, turn: TurnState, parent: str | None
) -> list[wire.NewEntry]:
    """Messages of a turn's reply with their parents: below their turn.

    Where the session went on elsewhere meanwhile, they hang on the turn and the leaf stays (beside
    it, where no entry is called like the turn); or on the entry that the reply names.
    """
    is_there = is_above(turn.submitted_seq, state.leaf, state.ids, state.parents)
    above = None if is_there or turn.turn_id not in state.ids else turn.turn_id
    if parent is not None and parent in state.ids:
        above = parent
    if is_there and above is None:
        return messages
    placed = []
    for one in messages:
        placed.append(msgspec.structs.replace(one, parent=above, leaf=is_there))
        above = one.id
    return placed


def _dicts(listed: object) -> list[dict[str, Any]]:
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _says(line: bytes, name: str, payload: bytes) -> bool:
    """The line is that message, whoever put it there."""
    event, told = line_event(line), json.loads(payload)
    for one in _dicts(told.get("tool_calls")):
        for field in _SINCE:  # entries of before have none
            one.pop(field, None)
    for one in _dicts(event.payload.get("tool_calls")):
        for field in _SINCE:
            one.pop(field, None)
    same = all(event.payload.get(field) == told.get(field) for field in _SAID)
    same &= event.turn in (None, told["_turn"])
    return same and (event.id, event.type) == (name, "message")
