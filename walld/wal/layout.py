"""The fixed parts of a segment: its header, the header of a batch, the columns of its directory.

Owns: sizes, fields and checksums (FORMAT.md has the diagrams and is drift-tested against this).
Refuses: files, and what stands in a record (`records.py`).

Invariants: every header carries a CRC seeded with the log's uuid, the segment's id and the header's
own offset, so a stale, copied or misdirected block never verifies; header and payload have a CRC
each, so a bad payload does not cost its length; zero is never valid: no magic, segment id, batch
number or stream number is 0.

A directory is stored column by column, each as narrow as the batch's largest value allows: an entry
takes 6 to 21 bytes, and a scan takes a column whole. Tried before: rows of 24 bytes, which were a
quarter of what a token cost on disk, and were read by strides.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "BATCH_ALIGNMENT",
    "BATCH_HEADER_BYTES",
    "BATCH_MAGIC",
    "BATCH_NO_MAX",
    "ENTRY_BYTES",
    "ENTRY_BYTES_MAX",
    "EPOCH_STREAMS_BITS",
    "QUARANTINE_DIR",
    "RECORDS_MAX",
    "SEGMENT_HEADER_BYTES",
    "SEGMENT_ID_MAX",
    "SEGMENT_MAGIC",
    "SEGMENT_VERSION",
    "SETTLED_BYTES",
    "STREAM_NO_MAX",
    "WAL_DIR",
    "BatchHeader",
    "BatchKind",
    "Columns",
    "Flag",
    "SegmentHeader",
    "Settled",
    "entry_bytes",
    "pack_batch_header",
    "pack_column",
    "pack_segment_header",
    "parse_segment_name",
    "segment_name",
    "segment_seed",
    "segment_version",
    "settled",
    "unpack_batch_header",
    "unpack_directory",
    "unpack_segment_header",
    "width_code",
]

WAL_DIR = "wal"
QUARANTINE_DIR = "quarantine"
SEGMENT_MAGIC = b"walldwal"
SEGMENT_VERSION = 1
SEGMENT_HEADER_BYTES = 64
BATCH_MAGIC = 0xB1FE
"""Stands as FE B1 on disk: FE is in no UTF-8, so what agents say is rarely taken for a header."""
BATCH_HEADER_BYTES = 28
BATCH_ALIGNMENT = 4
ENTRY_BYTES = 8
"""What a record's share of a directory counts as, where live bytes are counted: about what it takes
in a batch of thousands (2 + 2 + 1 + 1 + 1) or of one (1 + 2 + 1 + 1 + 1)."""
ENTRY_BYTES_MAX = 8 + 4 + 4 + 4 + 1
EPOCH_STREAMS_BITS = 36
"""No daemon begins so many streams in its life: at 10,000 a second it would take 79 days. Numbers
that are given while something cannot be read are of an epoch of their own, so a reply that was
begun anew has one of a later epoch."""
RECORDS_MAX = 0xFFFF
SEGMENT_ID_MAX = 2**63 - 1
"""A file with a higher number is none of ours."""
BATCH_NO_MAX = 2**40 - 1
"""An index has 40 bits for a batch number; at 1,000 a second they last for 34 years."""
STREAM_NO_MAX = 2**63 + 2**EPOCH_STREAMS_BITS - 1
"""Those of the last epoch end there. What says a higher number than one of these is not ours,
whatever its CRC says: the next start would have none left."""
SETTLED_BYTES = 40

_AGAIN = 1
"""Flag of a segment header."""
_segment = struct.Struct("<8sHHI16sQQQI")  # + u32 CRC
_batch = struct.Struct("<HBBHHIQI")  # + u32 header CRC
_crc = struct.Struct("<I")
settled = struct.Struct("<QQQQII")
"""One row of a SETTLED batch's payload: the fields of `Settled`, then 4 zero bytes."""

assert _segment.size + 4 == SEGMENT_HEADER_BYTES
assert _batch.size + 4 == BATCH_HEADER_BYTES
assert settled.size == SETTLED_BYTES


_BEHIND_MAX = 0xFFFF
_CODES = "BHIQ"
"""Typecode of a column by its width code: 1, 2, 4, 8 bytes a value."""
_NARROW_CODE_MAX = 2
"""Seqs and lengths have at most 4 bytes; only a stream number has 8."""


class BatchKind:
    """What a batch's payload is. A reader skips the payload of a kind it does not know."""

    RECORDS = 0
    """A directory and bodies."""
    SETTLED = 1
    """A table of `Settled` rows, written by a start about what it found missing."""


class Flag:
    """Bits of a directory entry: what a scan must look into; most records have none set."""

    BEGIN = 1
    """The body starts with a Begin item."""
    TERMINAL = 2
    """The body holds an End or AppError."""
    RELEASED = 4
    """Tombstone: ended and released. The body may be empty."""
    CARRIED = 8
    """Copied out of an older segment: replaces the stream's records of the same seqs."""
    MOVED = 16
    """The body holds a Move."""
    RESOLVED = 32
    """Tombstone written for `resolve` or `delete` of a reply whose owner is gone."""


class SegmentHeader(NamedTuple):
    """log_uuid: 16 bytes. epoch: of the owner.

    prev_batch_no: the first batch in this segment is prev_batch_no + 1; all up to it stand in older
    segments (a rewritten batch: also there).
    again: begun because a write or a sync had failed: what was not synced of older segments is
    written here again, so nothing of it need be there.
    passed: so many numbers up to prev_batch_no were torn when its owner began. What is there of
    them later came too late, and does not count.
    """

    log_uuid: bytes
    segment_id: int
    prev_batch_no: int
    epoch: int
    passed: int = 0
    again: bool = False


class BatchHeader(NamedTuple):
    """kind: a `BatchKind`. widths: of the directory's columns, two bits each; see `Columns`.

    payload_bytes: directory, bodies and padding. synced_no: highest batch known synced when it was
    built; 0 where that is further back than the header can say.
    """

    kind: int
    widths: int
    records: int
    synced_no: int
    payload_bytes: int
    batch_no: int
    payload_crc: int


class Columns(NamedTuple):
    """A batch's directory, a column each, as wide as its largest value: B, H, I or (stream) Q.

    span: last_seq - first_seq. body_bytes: of the record's body. flags: `Flag` bits.
    """

    stream_no: array[int]
    first_seq: array[int]
    span: array[int]
    body_bytes: array[int]
    flags: bytes


class Settled(NamedTuple):
    """What a start has found about older segments, so that later starts know it.

    verdict 1 (torn) and 2 (corrupt): damage that is reported, and must not be again. It stands at
    segment_id and offset (0, 0: nowhere, the batches are missing without a trace) and cost the
    batches first_no to last_no (0, 0: none that is known).

    verdict 4 (renewed): a start could not sync these batches; what is needed of them was written
    again before this row was, so they are not missed. segment_id and offset are 0.

    verdict 5 (leapt): these numbers may have been in use in what a start could not read, up to
    segment_id; it gave none of them. offset is 0.

    verdict 6 (unread): that start could not read segment_id, of offset bytes (0: not known), and
    leapt over first_no to last_no for it. From then on it must be there, and whole.

    verdict 7 (read): not any more. It was read, up to batch offset at least; or it was not whole,
    and that has cost batches first_no to last_no; or (all 0) it goes as it is, being the oldest.

    verdict 3 (stranded): the last good copy of these batches is in segment_id, though a later
    segment begins before them. They are not missed once that segment was unlinked. offset is 0.
    """

    segment_id: int
    offset: int
    first_no: int
    last_no: int
    verdict: int


def segment_name(segment_id: int) -> str:
    """The file name: 20 decimal digits and `.wal`, so names sort as ids do."""
    return f"{segment_id:020d}.wal"


def parse_segment_name(name: str) -> int | None:
    """The id in a segment's file name, None for any other name."""
    stem, dot, suffix = name.partition(".")
    if suffix != "wal" or not dot or len(stem) != 20 or not (stem.isascii() and stem.isdigit()):
        return None
    number = int(stem)
    return number if 0 < number <= SEGMENT_ID_MAX else None


def segment_seed(log_uuid: bytes, segment_id: int) -> int:
    """CRC seed of every header in a segment, before its offset is mixed in."""
    return crc32(log_uuid + segment_id.to_bytes(8, "little"))


def pack_segment_header(header: SegmentHeader) -> bytes:
    """The first 64 bytes of a segment."""
    fixed = _segment.pack(
        SEGMENT_MAGIC,
        SEGMENT_VERSION,
        _AGAIN if header.again else 0,
        SEGMENT_HEADER_BYTES,
        header.log_uuid,
        header.segment_id,
        header.prev_batch_no,
        header.epoch,
        header.passed,
    )
    return fixed + _crc.pack(crc32(fixed))


def unpack_segment_header(data: bytes) -> SegmentHeader | None:
    """The header, or None where these 64 bytes are not one this version reads."""
    if len(data) < SEGMENT_HEADER_BYTES:
        return None
    fixed = bytes(data[: _segment.size])
    if crc32(fixed) != _crc.unpack_from(data, _segment.size)[0]:
        return None
    magic, version, flags, size, log_uuid, segment_id, prev, epoch, passed = _segment.unpack(fixed)
    if magic != SEGMENT_MAGIC or version != SEGMENT_VERSION or size != SEGMENT_HEADER_BYTES:
        return None
    if prev > BATCH_NO_MAX:
        return None
    return SegmentHeader(log_uuid, segment_id, prev, epoch, passed, bool(flags & _AGAIN))


def segment_version(data: bytes) -> int | None:
    """The version of a whole segment header of any version, None where these bytes are not one.

    Magic, version and header_bytes stand where they do, and the CRC ends the header, for ever.
    """
    if len(data) < SEGMENT_HEADER_BYTES or data[:8] != SEGMENT_MAGIC:
        return None
    version, _, header_bytes = struct.unpack_from("<HHI", data, 8)
    if not SEGMENT_HEADER_BYTES <= header_bytes <= len(data):
        return None
    end = header_bytes - 4
    return version if crc32(data[:end]) == _crc.unpack_from(data, end)[0] else None


def pack_batch_header(header: BatchHeader, seed: int, offset: int) -> bytes:
    """The 28 bytes before a payload, valid at `offset` of the segment with `seed` only."""
    kind, widths, records, synced_no, payload_bytes, batch_no, payload_crc = header
    behind = batch_no - synced_no
    assert behind > 0, (batch_no, synced_no)
    if behind > _BEHIND_MAX or not synced_no:
        behind = 0  # says nothing, which is always true
    fixed = _batch.pack(
        BATCH_MAGIC, kind, widths, records, behind, payload_bytes, batch_no, payload_crc
    )
    return fixed + _crc.pack(crc32(fixed, crc32(offset.to_bytes(8, "little"), seed)))


def unpack_batch_header(data: bytes, seed: int, offset: int) -> BatchHeader | None:
    """The header at `offset`, or None where no valid one stands there. `data` starts with it."""
    if len(data) < BATCH_HEADER_BYTES:
        return None
    fixed = bytes(data[: _batch.size])
    crc = crc32(fixed, crc32(offset.to_bytes(8, "little"), seed))
    if crc != _crc.unpack_from(data, _batch.size)[0]:
        return None
    magic, kind, widths, records, behind, payload_bytes, batch_no, payload_crc = _batch.unpack(
        fixed
    )
    if magic != BATCH_MAGIC:
        return None
    synced_no = max(batch_no - behind, 0) if behind else 0
    return BatchHeader(kind, widths, records, synced_no, payload_bytes, batch_no, payload_crc)


def width_code(largest: int) -> int:
    """0, 1, 2 or 3: a column with this largest value has 1, 2, 4 or 8 bytes a value."""
    if largest < 1 << 8:
        return 0
    if largest < 1 << 16:
        return 1
    return 2 if largest < 1 << 32 else 3


def entry_bytes(widths: int) -> int:
    """Bytes of one entry over all columns: four with a width of their own, and the flags."""
    return sum(1 << (widths >> shift & 3) for shift in (0, 2, 4, 6)) + 1


def pack_column(values: Iterable[int], code: int) -> bytes:
    """A column's bytes. Every value fits the width."""
    return array(_CODES[code], values).tobytes()


def unpack_directory(header: BatchHeader, payload: memoryview) -> Columns | None:
    """The columns at the start of a payload, or None where they cannot be ones we wrote."""
    records, widths = header.records, header.widths
    if records * entry_bytes(widths) > len(payload):
        return None
    columns: list[array[int]] = []
    at = 0
    for shift in (0, 2, 4, 6):
        code = widths >> shift & 3
        if shift and code > _NARROW_CODE_MAX:
            return None
        column = array(_CODES[code])
        stop = at + (records << code)
        column.frombytes(payload[at:stop])
        columns.append(column)
        at = stop
    numbers, firsts, spans, sizes = columns
    if widths & 3 > _NARROW_CODE_MAX and max(numbers, default=0) > STREAM_NO_MAX:
        return None
    return Columns(numbers, firsts, spans, sizes, bytes(payload[at : at + records]))
