"""The bytes of a partial's file (FORMAT.md, "Partial").

Owns: its header, that the body is whole, and what the first bytes tell of it. Refuses: paths and
directories (`store.py`), what the items mean (`replies/`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from walld_client.paths import path_name

from walld.errors import FormatError
from walld.partials.names import PLACE_BYTES, PartialOwner, misplaced, own_names, place_of, whose
from walld.wal.records import decode_begin, decode_items

if TYPE_CHECKING:
    from walld.disk.base import File

__all__ = [
    "GAP_WORDS",
    "LOST_REASON_BYTES_MAX",
    "PARTIAL_HEADER_BYTES",
    "PARTIAL_MAGIC",
    "PARTIAL_VERSION",
    "Partial",
    "PartialFacts",
    "check_place",
    "pack_partial",
    "read_facts",
    "read_partial",
    "unpack_partial",
]

PARTIAL_MAGIC = b"walldprt"
PARTIAL_VERSION = 1
PARTIAL_HEADER_BYTES = 128
LOST_REASON_BYTES_MAX = 24
GAP_WORDS = ("dropped", "torn", "corrupt", "unknown")
_FACTS_BYTES = 4096
"""What is read of one for its facts: its header, and mostly all of its Begin."""

_header = struct.Struct("<8sHHI16sQQQQII24s16sQI")  # + u32 header CRC
_crc = struct.Struct("<I")

assert _header.size + _crc.size == PARTIAL_HEADER_BYTES


class PartialFacts(NamedTuple):
    """What is known of a partial without its body.

    stream_no: its number in the log `log_uuid`. begun_at_ms: of its Begin, from which its items
    count, also those that are written when its owner comes back. made_at_ms: wall clock.
    lost_reason: why its owner is gone, None while that is not known; printable ASCII. gap_word:
    what missing seqs are put down to, one of GAP_WORDS. whose: in no header; None where it was not
    read, or the beginning of the body, which is checked by its header alone, does not tell.
    """

    log_uuid: bytes
    stream_no: int
    begun_at_ms: int
    made_at_ms: int
    first_seq: int
    last_seq: int
    lost_reason: str | None
    gap_word: str = "dropped"
    whose: PartialOwner | None = None


class Partial(NamedTuple):
    """A partial as read back. `body` is one record body: Begin first, then the merged items.

    place: which names it was made for (`entry_names.py`).
    """

    uid: int
    facts: PartialFacts
    body: bytes
    place: bytes


class _Header(NamedTuple):
    """The fixed part of a file."""

    uid: int
    facts: PartialFacts
    place: bytes
    body_bytes: int
    body_crc: int


def pack_partial(uid: int, facts: PartialFacts, body: bytes, place: bytes) -> bytes:
    """The bytes of a partial file. place: `names.place_of` its names."""
    reason = (facts.lost_reason or "").encode("ascii")
    assert len(reason) <= LOST_REASON_BYTES_MAX, (facts.lost_reason, LOST_REASON_BYTES_MAX)
    assert len(facts.log_uuid) == 16, facts.log_uuid
    assert len(place) == PLACE_BYTES, place
    fixed = _header.pack(
        PARTIAL_MAGIC,
        PARTIAL_VERSION,
        GAP_WORDS.index(facts.gap_word),
        PARTIAL_HEADER_BYTES,
        facts.log_uuid,
        uid,
        facts.stream_no,
        facts.begun_at_ms,
        facts.made_at_ms,
        facts.first_seq,
        facts.last_seq,
        reason,
        place,
        len(body),
        crc32(body),
    )
    return fixed + _crc.pack(crc32(fixed)) + body


def unpack_partial(data: bytes, path: str) -> Partial:
    """A whole file's bytes, verified. FormatError names `path`, the offset and both numbers."""
    header = _unpack_header(data, len(data), path)
    body = data[PARTIAL_HEADER_BYTES:]
    if crc32(body) != header.body_crc:
        raise _damaged(path, PARTIAL_HEADER_BYTES, "body CRC", crc32(body), header.body_crc)
    return Partial(header.uid, header.facts, body, header.place)


def read_partial(file: File, path: str) -> Partial:
    """Whosever it is. Its header says how long it is: a disk can make a file a TiB."""
    _read_header(file, path)
    return unpack_partial(file.read_at(file.size(), 0), path)


def read_facts(file: File, path: str) -> PartialFacts:
    """What the header says, and whose the partial is. Raises as `unpack_partial` and `check_place`.

    Of the body no more is read than its Begin, where that tells.
    """
    data, size = file.read_at(_FACTS_BYTES, 0), file.size()
    header = _unpack_header(data, size, path)
    if not _is_of(path, header.uid, header.place):
        check_place(path, header.uid, header.place, file.read_at(size, PARTIAL_HEADER_BYTES))
    return header.facts._replace(whose=_whose(file, data, header, path))


def check_place(path: str, uid: int, place: bytes, body: bytes) -> None:
    """FormatError where the partial at `path` is of another uid, Misplaced of other names."""
    if _is_of(path, uid, place):
        return
    expected = int(path.split("/")[1])
    if uid != expected:
        raise _damaged(path, 32, "uid", uid, expected)
    try:
        names = own_names(decode_items(body))
    except FormatError:
        names = None
    raise misplaced(path, names)


def _is_of(path: str, uid: int, place: bytes) -> bool:
    _, expected, session_name, stream_name = path.split("/")
    return uid == int(expected) and place == place_of(session_name, stream_name)


def _whose(file: File, data: bytes, header: _Header, path: str) -> PartialOwner | None:
    """data: its first bytes, of which the header alone is checked where they are not all: what
    stands behind it has to agree with that, or all of it is read.
    """
    _, _, session_name, stream_name = path.split("/")
    body = data[PARTIAL_HEADER_BYTES:]
    if len(body) == header.body_bytes and crc32(body) != header.body_crc:
        return None
    begin = decode_begin(body)
    if begin is not None and path_name(begin.stream_id) == stream_name:
        fits = (begin.uid, begin.at_ms) == (header.uid, header.facts.begun_at_ms)
        found = whose([begin], session_name) if fits else None
        if found is not None:
            return found
    body += file.read_at(header.body_bytes, len(data))
    if crc32(body) != header.body_crc:
        return None
    try:
        return whose(decode_items(body), session_name)
    except FormatError:
        return None


def _read_header(file: File, path: str) -> _Header:
    return _unpack_header(file.read_at(PARTIAL_HEADER_BYTES, 0), file.size(), path)


def _unpack_header(data: bytes, size: int, path: str) -> _Header:
    """The header at the start of `data`, of a file of `size` bytes."""
    if len(data) < PARTIAL_HEADER_BYTES:
        raise _damaged(path, 0, "length", len(data), PARTIAL_HEADER_BYTES)
    at = _header.size
    fixed, expected = bytes(data[:at]), _crc.unpack_from(data, at)[0]
    magic, version, gaps, header_bytes, *fields = _header.unpack(fixed)
    *fields, reason, place, body_bytes, body_crc = fields
    if magic == PARTIAL_MAGIC and version != PARTIAL_VERSION:
        raise _damaged(path, 8, "version", version, PARTIAL_VERSION)
    if crc32(fixed) != expected:
        raise _damaged(path, at, "header CRC", crc32(fixed), expected)
    if magic != PARTIAL_MAGIC or header_bytes != PARTIAL_HEADER_BYTES:
        raise _damaged(path, 0, "header of bytes", header_bytes, PARTIAL_HEADER_BYTES)
    if PARTIAL_HEADER_BYTES + body_bytes != size:
        raise _damaged(path, at - 12, "length", size, PARTIAL_HEADER_BYTES + body_bytes)
    log_uuid, uid, stream_no, begun_at_ms, made_at_ms, first_seq, last_seq = fields
    lost_reason = reason.rstrip(b"\0").decode("ascii", "backslashreplace") or None
    gap_word = GAP_WORDS[min(gaps, len(GAP_WORDS) - 1)]
    numbers = stream_no, begun_at_ms, made_at_ms, first_seq, last_seq
    facts = PartialFacts(log_uuid, *numbers, lost_reason, gap_word)
    return _Header(uid, facts, place, body_bytes, body_crc)


def _damaged(path: str, offset: int, what: str, got: int, expected: int) -> FormatError:
    return FormatError(
        f"{path}: {what} at offset {offset} is {got}, expected {expected}: the file is damaged or "
        "of another version; it is kept, `walld dump` shows what it holds"
    )
