"""The line of an event: one JSON object, the same bytes in the log and in the file.

Owns: its bytes (FORMAT.md, "Session"), and whether a line is whole. Refuses: what an event means,
files (`scan.py`, `store.py`), clocks.

A line says twice that it is right. `chain` is the hash of the line before, so that no line can be
taken out, moved or changed without the next one showing it; `crc` is of the line itself, since the
last line has no next one, and so that of two neighbours it is known which is damaged.

The payload is never parsed here: it is whatever JSON text the application gave, also escapes that
are half a surrogate pair, which strict readers of JSON refuse.
"""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

import msgspec

from walld.errors import FormatError, NewerVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "AT_MS_MAX",
    "CHAIN_BYTES",
    "LEDGER_VERSION",
    "Header",
    "Line",
    "are_whole",
    "as_known",
    "at_ms_of",
    "at_text",
    "chain_of",
    "chain_text",
    "header_line",
    "line_chain",
    "line_seq",
    "make_line",
    "read_header",
    "read_line",
]

LEDGER_VERSION: Final = 1
CHAIN_BYTES: Final = 16
AT_MS_MAX: Final = 253_402_300_799_999
"""The last millisecond that four digits of a year can say."""

_PAYLOAD = b',"payload":'
_CHAIN = b',"chain":"'
_CRC_END = b',"crc":"%08x"}\n'
_CHAIN_CHARS = 22
_crc_at = -len(_CRC_END % 0)
_chain_at = _crc_at - 1 - _CHAIN_CHARS - len(_CHAIN)
_chain_text = slice(_chain_at + len(_CHAIN), _crc_at - 1)
_seq = re.compile(rb'\{"seq":([1-9][0-9]{0,18}),"id":"')
_version = re.compile(rb'^\{"walld":[0-9]+')
_epoch = datetime(1970, 1, 1, tzinfo=UTC)


class _Fields(msgspec.Struct, omit_defaults=True):
    """What stands before the payload, in this order."""

    seq: int = 0
    id: str = ""
    parent: str | None = None
    at: str = ""
    type: str = ""
    turn: str | None = None
    cause: str | None = None
    correlation: str | None = None
    key: str | None = None
    leaf: bool = True
    owner: dict[str, str | int] | None = None


class Line(msgspec.Struct, frozen=True):
    """An event as read back. payload: JSON text as it was given. chain: of the line before."""

    seq: int
    id: str
    parent: str | None
    at_ms: int
    type: str
    turn: str | None
    cause: str | None
    correlation: str | None
    key: str | None
    leaf: bool
    owner: dict[str, str | int] | None
    payload: bytes
    chain: bytes


class Header(NamedTuple):
    """The first line of a file."""

    version: int
    uid: int
    session_id: str


class _HeaderFields(msgspec.Struct):
    """The header as it stands in the file."""

    walld: int
    uid: int = -1
    session: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Fields).decode
_decode_header = msgspec.json.Decoder(_HeaderFields).decode


def header_line(uid: int, session_id: str) -> bytes:
    """The first line of a session's file."""
    return _encode(_HeaderFields(LEDGER_VERSION, uid, session_id)) + b"\n"


def read_header(line: bytes, where: str = "a header") -> Header:
    """NewerVersion where a later walld wrote it, FormatError where it is none."""
    try:
        found = _decode_header(line if line.endswith(b"\n") else b"")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged(where, "header", line[:80], '{"walld":1,...}') from error
    if found.walld > LEDGER_VERSION:
        raise NewerVersion(
            f"{where}: version {found.walld} of a session file, this walld knows up to "
            f"{LEDGER_VERSION}: it is kept and not written to; a newer walld reads it"
        )
    if found.walld != LEDGER_VERSION:
        raise _damaged(where, "version", found.walld, LEDGER_VERSION)
    return Header(found.walld, found.uid, found.session)


def as_known(header: bytes) -> bytes:
    """The same header with the version of this walld."""
    return _version.sub(b'{"walld":%d' % LEDGER_VERSION, header, count=1)


def make_line(
    seq: int,
    id: str,  # noqa: A002  as the field is called
    at_ms: int,
    type: str,  # noqa: A002
    payload: bytes,
    previous: bytes,
    *,
    parent: str | None = None,
    turn: str | None = None,
    cause: str | None = None,
    correlation: str | None = None,
    key: str | None = None,
    leaf: bool = True,
    owner: Mapping[str, str | int] | None = None,
) -> bytes:
    """The bytes of an event, newline included. previous: `chain_of` the line before.

    payload: one JSON object as UTF-8 text without a newline; the caller has seen that it is one.
    """
    assert seq > 0, seq
    assert id, "an event without an id"
    assert len(previous) == CHAIN_BYTES, previous
    assert b"\n" not in payload, payload[:80]
    assert payload.strip()[:1] == b"{", payload[:80]
    fields = _Fields(
        seq, id, parent, at_text(at_ms), type, turn, cause, correlation, key, leaf,
        owner,  # type: ignore[arg-type]  # it is only read
    )  # fmt: skip
    begin = b'%b,"payload":' % _encode(fields)[:-1]
    end = b',"chain":"%b"' % chain_text(previous)
    crc = crc32(end, crc32(payload, crc32(begin)))
    return b"".join((begin, payload, end, _CRC_END % crc))  # a long payload is copied once


def chain_of(line: bytes) -> bytes:
    """What the next line's chain is."""
    return sha256(line).digest()[:CHAIN_BYTES]


def chain_text(chain: bytes) -> bytes:
    """A chain value as it stands in a line."""
    return b2a_base64(chain, newline=False)[:_CHAIN_CHARS]


def line_seq(line: bytes) -> int:
    """The seq of a line that is whole, as written; 0 where it is not."""
    found = _seq.match(line)
    return int(found[1]) if found and _is_whole(line) else 0


def are_whole(lines: Iterable[bytes]) -> bool:
    """`line_seq` is 0 of none; in less time than by asking it of each."""
    match = _seq.match
    return all(match(line) and line[_crc_at:] == _CRC_END % crc32(line[:_crc_at]) for line in lines)


def line_chain(line: bytes) -> bytes:
    """What a whole line says of the one before, as text: to be compared with `chain_text`.

    Empty where no member of that name stands in its place: walld did not write that line.
    """
    text = line[_chain_text]
    return text if line[_chain_at:_crc_at] == b'%b%b"' % (_CHAIN, text) else b""


def read_line(line: bytes) -> Line:
    """An event. FormatError names what is wrong, and both values."""
    if not _is_whole(line):
        raise _damaged("a line", "crc", line[_crc_at:], b"%08x" % crc32(line[:_crc_at]))
    # No string before it can hold this: the quotes in it would be escaped.
    at = line.find(_PAYLOAD)
    found, chain_said = _seq.match(line), line_chain(line)
    if at < 0 or found is None or not chain_said:
        raise _damaged("a line", "fields", line[:80], "payload, chain and crc at the end")
    try:
        fields = _decode(line[:at] + b"}")
        chain = _chain_bytes(chain_said)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise _damaged("a line", "fields", line[:80], error) from error
    if fields.seq != int(found[1]):
        raise _damaged("a line", "a second seq", fields.seq, int(found[1]))
    return Line(
        fields.seq, fields.id, fields.parent, at_ms_of(fields.at), fields.type,
        fields.turn, fields.cause, fields.correlation, fields.key, fields.leaf, fields.owner,
        line[at + len(_PAYLOAD) : _chain_at], chain,
    )  # fmt: skip


def at_text(at_ms: int) -> str:
    """Unix milliseconds as UTC, "2026-11-22T13:20:11.123Z"."""
    second, rest = divmod(at_ms, 1000)
    minute, second = divmod(second, 60)
    return f"{_minute_text(minute)}:{second:02d}.{rest:03d}Z"


def at_ms_of(text: str) -> int:
    """The reverse. FormatError where the text is not exactly that."""
    try:
        found = int(text[20:23]) + 1000 * _second_of(text[:19])
        if found >= 0 and at_text(found) == text:
            return found
    except ValueError:
        pass
    raise _damaged("a line", "at", text, "2026-11-22T13:20:11.123Z")


def _is_whole(line: bytes) -> bool:
    """Its crc is that of the bytes before it."""
    return line[_crc_at:] == _CRC_END % crc32(line[:_crc_at])


@lru_cache(maxsize=64)
def _minute_text(minute: int) -> str:
    """Events come many a minute, and in order."""
    assert 0 <= minute <= AT_MS_MAX // 60_000, minute
    return (_epoch + timedelta(minutes=minute)).isoformat()[:16]


@lru_cache(maxsize=64)
def _second_of(text: str) -> int:
    found = datetime.fromisoformat(text).replace(tzinfo=UTC)
    if found < _epoch:
        raise ValueError(text)
    return (found - _epoch) // timedelta(seconds=1)


def _chain_bytes(text: bytes) -> bytes:
    chain = a2b_base64(text + b"==")
    if chain_text(chain) != text:
        raise ValueError(f"chain {text!r}")
    return chain


def _damaged(where: str, what: str, got: object, expected: object) -> FormatError:
    return FormatError(
        f"{where}: {what} is {got!r}, expected {expected!r}: the line is damaged or of another "
        "version; it is kept"
    )
