"""Makes the lines that a forked session begins with.

Owns: the lines of the copy, the `forked` event among them, and that no turn of it stays open: who
works on a turn of the source does not work on its copy. Refuses: which events are copied
(`sessions/gate/fork.py`), writing the lines (`open_sessions.py`).
"""

from __future__ import annotations

import json
import re
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from walld_client.session.entries import in_pieces
from walld_client.wire import messages as wire

from walld import limits
from walld.daemon.session_store.interruption import interruption
from walld.engine.session_log import SessionLog
from walld.errors import Refusal
from walld.ledger.line import chain_of
from walld.sessions.gate.fork import BEFORE_FIRST, check_copy, forked, left_behind
from walld.sessions.gate.possibly_run import CAME_FROM, unfinished_imports
from walld.sessions.state.entries import entry_event, event_line, free_id
from walld.sessions.state.events import check_payload
from walld.sessions.state.session_state import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from walld.sessions.state.events import Event

__all__ = ["Forked", "forked_session"]

_LONE = re.compile("[\\ud800-\\udfff]")


class Forked(NamedTuple):
    """A new session: its lines, and what they come to, so that nobody folds them all again."""

    lines: list[bytes]
    base: bytes


def forked_session(
    events: Sequence[Event],
    request: wire.Fork,
    uid: int,
    at_ms: int,
    until: int = 0,
    hold: Callable[[int], None] | None = None,
) -> Forked:
    """The new session. For a thread. ProtocolError, Refusal.

    events: of the source. until: the highest seq that it gave. Of what it lost the `forked` entry
    tells. hold: told of each line's bytes; what it raises ends this.
    """
    state, chain = SessionState(), SessionLog.first_chain(uid, request.new_id)
    made = []
    for entry in _entries(events, request, until):
        event = entry_event(state, entry, None, at_ms)
        problem = check_copy(state, event)
        if problem is not None and not request.whole:
            raise Refusal(problem.code, problem.message, problem.got, problem.limit)
        line = event_line(event, entry.payload, chain)
        if hold is not None:
            hold(len(line))
        state.apply(event)
        chain = chain_of(line)
        made.append(line)
    return Forked(made, state.to_base())


def _entries(events: Sequence[Event], request: wire.Fork, until: int) -> Iterator[wire.NewEntry]:
    """One at a time: all of them would hold each text once more."""
    copies = forked(events, request.at, request.whole)
    state = SessionState()
    for copy in copies:
        state.apply(copy)
    names = (f"forked:{request.new_id}" + ":more" * at for at in count())
    missing = {"missing": _missing(events, until)}
    told = left_behind(events, copies, request.at, request.whole, until)
    as_of = {"as_of": events[-1].id} if events else {}
    firsts, lasts = (
        [
            wire.NewEntry("forked", payload, free_id(state, next(names)), leaf=False)
            for payload in payloads
        ]
        for payloads in (
            _sources(request, missing, {}) or [_source(request)],
            _sources(request, told, as_of),
        )
    )
    yield from firsts
    yield from map(_entry, copies)
    yield from lasts
    count_given = len(firsts) + len(copies) + len(lasts)
    if request.whole and request.at is not None:
        moved = _dumps({"target": None if request.at == BEFORE_FIRST else request.at})
        wanted = f"forked:{request.new_id}:leaf"
        yield wire.NewEntry("leaf", moved, free_id(state, wanted))
        count_given += 1
    for at, turn in enumerate(state.journal.open_turns(), count_given + 1):
        wanted = f"{turn.turn_id}:forked:{at}"
        yield interruption(turn.turn_id, "forked", free_id(state, wanted))


def _source(request: wire.Fork, **more: object) -> bytes:
    """Payload of a `forked` that says where it came from, and more."""
    source = {"session": request.session_id, "at": request.at, "whole": request.whole}
    return _dumps(source | more)


def _sources(request: wire.Fork, lacks: dict[str, list[Any]], more: dict[str, Any]) -> list[bytes]:
    """Payloads of `forked` that say what it lacks of where it came from, none for nothing.

    One, or where that is too long for an entry one for each piece of it.
    """
    told = {name: listed for name, listed in lacks.items() if listed}
    if not told:
        return []
    whole = _source(request, **told, **more)
    if len(whole) <= limits.LEDGER_PAYLOAD_BYTES_MAX // 2:
        return [whole]
    return [
        _source(request, **{name: piece}, **more)
        for name, listed in told.items()
        for piece in in_pieces(listed)
    ]


def _missing(events: Sequence[Event], until: int) -> list[list[int]]:
    """Seqs of events that are lost, of the source or of what that was forked from."""
    missing: list[list[int]] = []
    last_seq = 0
    for event in events:
        if event.seq > last_seq + 1:
            missing.append([last_seq + 1, event.seq - 1])
        last_seq = event.seq
        if event.type in CAME_FROM and check_payload(event.type, event.payload) is None:
            missing += event.payload.get("missing", [])
    if unfinished_imports(events):
        until = max(until, last_seq + 1)
    if until > last_seq:
        missing.append([last_seq + 1, until])
    return missing


def _entry(event: Event) -> wire.NewEntry:
    return wire.NewEntry(
        event.type,
        _dumps(event.payload),
        event.id,
        event.parent,
        event.turn,
        event.cause,
        event.correlation,
        event.key,
        event.leaf,
        at_ms=event.at_ms,
    )


def _dumps(value: object) -> bytes:
    """JSON of one line, no longer than it came; lone surrogates as escapes."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _LONE.sub(lambda half: f"\\u{ord(half[0]):04x}", text).encode()
