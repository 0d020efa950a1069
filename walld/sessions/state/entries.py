"""The three forms of an entry: request, event, line.

Owns: reading a payload, and the three forms of one thing. Refuses: whether it may come
(`session_state.py`), where it goes (`engine/session_log.py`).
"""

from __future__ import annotations

import json
import math
from hashlib import sha256
from sys import intern
from typing import TYPE_CHECKING, Any

import msgspec

from walld import limits
from walld.errors import FormatError, Refusal
from walld.ledger.line import AT_MS_MAX, make_line, read_line
from walld.sessions.state.events import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from walld_client.wire import messages as wire

    from walld.ledger.line import Line
    from walld.sessions.state.session_state import SessionState
    from walld.wal.records import Owner

__all__ = [
    "check_id",
    "entry_event",
    "event_line",
    "events_of",
    "fitting",
    "free_id",
    "ids_for",
    "line_event",
    "next_id",
    "owner_fields",
]

_SHORT_ID = limits.ID_BYTES_MAX // 4
"""Characters that are never too long: none has more bytes than four."""
_PLAIN_IDS_MAX = 8
"""Who reads the entries of others that have the ids it wants reads no more than about so many."""


def entry_event(
    state: SessionState, entry: wire.NewEntry, owner: Owner | None, at_ms: int
) -> Event:
    """The event that an entry would be, as the session's next. Refusal where it cannot be read.

    owner: the process that says it; a turn belongs to that.
    """
    if not 0 <= entry.at_ms <= AT_MS_MAX:
        raise Refusal("bad_at", "at_ms is no time", entry.at_ms, f"0..{AT_MS_MAX}")
    is_owned = owner is not None and entry.type.startswith("turn_")
    return Event(
        seq=state.last_seq + 1,
        id=entry.id,
        parent=state.parent_for(entry),
        at_ms=entry.at_ms or at_ms,
        type=entry.type,
        turn=entry.turn,
        cause=entry.cause,
        correlation=entry.correlation,
        key=entry.key,
        leaf=entry.leaf,
        owner=owner_fields(owner) if is_owned and owner is not None else None,
        payload=_checked_payload(entry.payload),
    )


def event_line(event: Event, payload: bytes, previous: bytes) -> bytes:
    """The bytes of an accepted event. payload: as it was given. previous: chain of the line before.

    Made once (N1).
    """
    return make_line(
        event.seq,
        event.id,
        event.at_ms,
        event.type,
        payload,
        previous,
        parent=event.parent,
        turn=event.turn,
        cause=event.cause,
        correlation=event.correlation,
        key=event.key,
        leaf=event.leaf,
        owner=event.owner,
    )


def line_event(line: bytes) -> Event:
    """What a line says. FormatError."""
    read: Line = read_line(line)
    try:
        payload = _payload(read.payload)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"line {read.seq}: its payload is no JSON: {error}") from None
    return Event(
        seq=read.seq,
        id=read.id,
        parent=read.parent,
        at_ms=read.at_ms,
        type=intern(read.type),  # many events of one have it once
        turn=None if read.turn is None else intern(read.turn),
        cause=read.cause,
        correlation=read.correlation,
        key=read.key,
        leaf=read.leaf,
        owner=read.owner,
        payload=payload if isinstance(payload, dict) else {},
    )


def events_of(lines: Iterable[bytes]) -> list[Event]:
    """Lines as events. FormatError."""
    return [line_event(line) for line in lines]


def check_id(name: str, ident: str) -> None:
    """Of an entry or a session, as a request names it. Refusal."""
    if 0 < len(ident) <= _SHORT_ID:
        return
    length = len(ident.encode("utf-8", "surrogatepass"))
    if not 1 <= length <= limits.ID_BYTES_MAX:
        text = f"{name} is empty or too long"
        raise Refusal("id_length", text, f"{length} bytes", f"1..{limits.ID_BYTES_MAX}")


def free_id(state: SessionState, wanted: str) -> str:
    """An id for an entry of the daemon's own: no application can have taken it before."""
    wanted = fitting(wanted)
    while wanted in state.ids:
        wanted = next_id(wanted)
    return wanted


def ids_for(wanted: str, whose: str, chance: Callable[[], str]) -> Iterator[str]:
    """Ids to try for what the daemon says, where it is to be found again: always the same ones, the
    last of them with `whose` in it, what it is about. Then, by chance, such as nobody has taken.
    """
    name = fitting(wanted)
    for _ in range(_PLAIN_IDS_MAX):
        yield name
        name = next_id(name)
    of = sha256(whose.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    yield fitting(f"{wanted}:{of}")
    while True:
        yield fitting(f"{wanted}:{chance()}")


def next_id(taken: str) -> str:
    """The id to try where that one is another entry's."""
    return fitting(taken + "'")


def fitting(ident: str) -> str:
    """An id that the daemon made of another: its hash, where no request could name it (a label)."""
    text = ident.encode("utf-8", "surrogatepass")
    return ident if len(text) <= limits.ID_BYTES_MAX else f"sha256:{sha256(text).hexdigest()}"


def owner_fields(owner: Owner) -> dict[str, Any]:
    """Who advances a turn, so that a later boot can ask the kernel about it."""
    return {
        "boot": owner.boot_id,
        "pid": owner.pid,
        "inode": owner.pidfd_inode,
        "start": owner.start_ticks,
    }


def _finite(number: str) -> float:
    """A number that no view could tell again is not taken."""
    if not math.isfinite(float(number)):
        raise ValueError(f"{number[:40]} is beyond all numbers")
    return float(number)


def _finite_or_none(number: str) -> float | None:
    """Of a line that is there already."""
    return float(number) if math.isfinite(float(number)) else None


def _checked_payload(text: bytes) -> dict[str, Any]:
    if len(text) > limits.LEDGER_PAYLOAD_BYTES_MAX:
        raise Refusal(
            "payload_length",
            "the payload is too long: make it an artifact",
            f"{len(text)} bytes",
            f"{limits.LEDGER_PAYLOAD_BYTES_MAX} bytes",
        )
    if b"\n" in text or b"\r" in text:
        raise Refusal("bad_payload", "a payload is one line of JSON", "a line break", "none")
    try:
        if not text.isascii():  # a long one is copied once less
            text.decode("utf-8")
        payload = _payload(text, _finite)
    except (ValueError, RecursionError) as error:
        raise Refusal("bad_payload", "the payload is not JSON", str(error)[:200], "JSON") from None
    if not isinstance(payload, dict):
        got = type(payload).__name__
        raise Refusal("bad_payload", "the payload is no JSON object", got, "an object")
    if _has_openings(text, b"[") or _has_openings(text, b"{"):
        _check_depth(payload)
    return payload


def _has_openings(text: bytes, opening: bytes) -> bool:
    """So many that it may be too deep. bytes.count reads a long text 20 times as slowly."""
    at, left = text.find(opening), limits.LEDGER_DEPTH_MAX // 2
    while at >= 0 and left:
        at, left = text.find(opening, at + 1), left - 1
    return at >= 0


def _check_depth(payload: dict[str, Any]) -> None:
    """What is read here is told again with more around it, and by a deeper stack."""
    level: list[Any] = [payload]
    for _ in range(limits.LEDGER_DEPTH_MAX):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    got, limit = f"more than {limits.LEDGER_DEPTH_MAX} levels", f"{limits.LEDGER_DEPTH_MAX} levels"
    raise Refusal("bad_payload", "the payload nests too deep", got, limit)


def _payload(text: bytes, number: Callable[[str], float | None] = _finite_or_none) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):  # lone surrogates: msgspec refuses them
        whole = text.decode("utf-8", "surrogatepass")
        return json.loads(whole, parse_constant=_refuse, parse_float=number)


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")
