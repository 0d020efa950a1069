"""What a new session is begun with when it is forked from another.

Owns: the lines of the copy, the `forked` event among them, and that no turn of it stays open: who
works on a turn of the source does not work on its copy. Refuses: which events are copied
(`sessions/fork.py`), writing the lines (`sessions.py`).
"""

from __future__ import annotations

import json
import re
from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from walld_client.entries import in_pieces
from walld_client.wire import messages as wire

from walld import limits
from walld.daemon.turns import interruption
from walld.engine.entries import entry_event, event_line, events_of, free_id
from walld.engine.ledgers import Ledger
from walld.errors import Refusal
from walld.ledger.line import chain_of
from walld.sessions.fork import BEFORE_FIRST, check_copy, forked, started_behind
from walld.sessions.losses import CAME_FROM, calls_elsewhere
from walld.sessions.state import SessionState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from walld.sessions.events import Event

__all__ = ["forked_lines"]

_LONE = re.compile("[\\ud800-\\udfff]")


def forked_lines(
    lines: Sequence[bytes], request: wire.Fork, uid: int, at_ms: int, until: int = 0
) -> list[bytes]:
    """The new session's lines. For a thread. ProtocolError, Refusal, FormatError.

    until: the highest seq that the source gave. Of what it lost the `forked` entry tells.
    """
    state, chain = SessionState(), Ledger.first_chain(uid, request.new_id)
    made = []
    for entry in _entries(lines, request, until):
        event = entry_event(state, entry, None, at_ms)
        problem = check_copy(state, event)
        if problem is not None and not request.whole:
            raise Refusal(problem.code, problem.message, problem.got, problem.limit)
        line = event_line(event, entry.payload, chain)
        state.apply(event)
        chain = chain_of(line)
        made.append(line)
    return made


def _entries(lines: Sequence[bytes], request: wire.Fork, until: int) -> list[wire.NewEntry]:
    events = list(events_of(lines))
    copies = forked(events, request.at, request.whole)
    state = SessionState()
    for copy in copies:
        state.apply(copy)
    entries = [_entry(copy) for copy in copies]
    lacks: dict[str, list[Any]] = {"missing": _missing(events, until)}
    lacks["started"] = started_behind(events, copies, until)
    if not request.whole:
        lacks["calls"] = [tool.intent.payload for tool in calls_elsewhere(events)]
    names = (f"forked:{request.new_id}" + ":more" * at for at in count())
    firsts = [
        wire.NewEntry("forked", payload, free_id(state, name), leaf=False)
        for name, payload in zip(names, _sources(request, lacks, len(copies)), strict=False)
    ]
    if not request.whole or request.at is None:
        entries[:0] = firsts
    elif request.at == BEFORE_FIRST:
        moved = _dumps({"target": None})
        wanted = f"forked:{request.new_id}:leaf"
        entries += [wire.NewEntry("leaf", moved, free_id(state, wanted)), *firsts]
    else:
        entries += [replace(firsts[0], parent=request.at, leaf=True), *firsts[1:]]
    for turn in state.journal.open_turns():
        wanted = f"{turn.turn_id}:forked:{len(entries) + 1}"
        entries.append(interruption(turn.turn_id, "forked", free_id(state, wanted)))
    return entries


def _sources(request: wire.Fork, lacks: dict[str, list[Any]], copied: int) -> list[bytes]:
    """Payloads of `forked` that say where it came from and what it lacks of that.

    One, or where that is too long for an entry one for each piece of it.
    """
    source: dict[str, object] = {
        "session": request.session_id,
        "at": request.at,
        "whole": request.whole,
    }
    told = {name: listed for name, listed in lacks.items() if listed}
    pieces: list[dict[str, Any]] = [told]
    if len(_dumps(source | told)) > limits.LEDGER_PAYLOAD_BYTES_MAX // 2:
        pieces = [{name: piece} for name, listed in told.items() for piece in in_pieces(listed)]
    until = {"until": copied + len(pieces)}
    return [
        _dumps(source | one | (until if one.keys() & {"missing", "started"} else {}))
        for one in pieces
    ]


def _missing(events: Sequence[Event], until: int) -> list[list[int]]:
    """Seqs of events that are lost, of the source or of what that was forked from."""
    missing: list[list[int]] = []
    last_seq = 0
    for event in events:
        if event.seq > last_seq + 1:
            missing.append([last_seq + 1, event.seq - 1])
        last_seq = event.seq
        if event.type in CAME_FROM:
            missing += event.payload.get("missing") or []
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
