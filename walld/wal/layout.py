"""The fixed parts of a segment: its header, the header of a batch, the entries of its directory.

Owns: sizes, fields and checksums (FORMAT.md has the diagrams and is drift-tested against this).
Refuses: files, and what stands in a record (`records.py`).

Invariants: every header carries a CRC seeded with the log's uuid, the segment's id and the header's
own offset, so a stale, copied or misdirected block never verifies; header and payload have a CRC
each, so a bad payload does not cost its length; zero is never valid: no magic, segment id, batch
number or stream number is 0.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

__all__ = [
    "BATCH_ALIGNMENT",
    "BATCH_HEADER_BYTES",
    "BATCH_MAGIC",
    "ENTRY_BYTES",
    "QUARANTINE_DIR",
    "SEGMENT_HEADER_BYTES",
    "SEGMENT_MAGIC",
    "SEGMENT_VERSION",
    "SETTLED_BYTES",
    "WAL_DIR",
    "BatchFlag",
    "BatchHeader",
    "Flag",
    "SegmentHeader",
    "Settled",
    "directory",
    "pack_batch_header",
    "pack_segment_header",
    "parse_segment_name",
    "segment_name",
    "segment_seed",
    "segment_version",
    "settled",
    "unpack_batch_header",
    "unpack_segment_header",
]

WAL_DIR = "wal"
QUARANTINE_DIR = "quarantine"
SEGMENT_MAGIC = b"walldwal"
SEGMENT_VERSION = 1
SEGMENT_HEADER_BYTES = 64
BATCH_MAGIC = 0x3142_4C57  # "WLB1" as bytes on disk
BATCH_HEADER_BYTES = 48
BATCH_ALIGNMENT = 8
ENTRY_BYTES = 24
SETTLED_BYTES = 40

_segment = struct.Struct("<8sHHI16sQQQI")  # + u32 CRC
_batch = struct.Struct("<IIQQQII I")  # + u32 header CRC
_crc = struct.Struct("<I")
directory = struct.Struct("<QIIII")
"""One directory entry: stream_no u64, first_seq, last_seq, body_bytes, flags (u32 each)."""
settled = struct.Struct("<QQQQII")
"""One row of a SETTLED batch's payload: the fields of `Settled`, then 4 zero bytes."""

assert _segment.size + 4 == SEGMENT_HEADER_BYTES
assert _batch.size + 4 == BATCH_HEADER_BYTES
assert directory.size == ENTRY_BYTES
assert settled.size == SETTLED_BYTES


class BatchFlag:
    """Bits of a batch header. A reader skips the payload of a batch with a bit it does not know."""

    SETTLED = 1
    """The payload is a table of `Settled` rows, written by a start about what it found missing."""


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
    """

    log_uuid: bytes
    segment_id: int
    prev_batch_no: int
    epoch: int


class BatchHeader(NamedTuple):
    """payload_bytes: directory and bodies and padding. synced_no: highest batch known synced."""

    payload_bytes: int
    batch_no: int
    synced_no: int
    at_ms: int
    records: int
    flags: int
    payload_crc: int


class Settled(NamedTuple):
    """What a start has found about older segments, so that later starts know it.

    verdict 1 (torn) and 2 (corrupt): damage that is reported, and must not be again. It stands at
    segment_id and offset (0, 0: nowhere, the batches are missing without a trace) and cost the
    batches first_no to last_no (0, 0: none that is known).

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
    return int(stem) or None


def segment_seed(log_uuid: bytes, segment_id: int) -> int:
    """CRC seed of every header in a segment, before its offset is mixed in."""
    return crc32(log_uuid + segment_id.to_bytes(8, "little"))


def pack_segment_header(header: SegmentHeader) -> bytes:
    """The first 64 bytes of a segment."""
    fixed = _segment.pack(
        SEGMENT_MAGIC,
        SEGMENT_VERSION,
        0,
        SEGMENT_HEADER_BYTES,
        header.log_uuid,
        header.segment_id,
        header.prev_batch_no,
        header.epoch,
        0,
    )
    return fixed + _crc.pack(crc32(fixed))


def unpack_segment_header(data: bytes) -> SegmentHeader | None:
    """The header, or None where these 64 bytes are not one this version reads."""
    if len(data) < SEGMENT_HEADER_BYTES:
        return None
    fixed = bytes(data[: _segment.size])
    if crc32(fixed) != _crc.unpack_from(data, _segment.size)[0]:
        return None
    magic, version, _, size, log_uuid, segment_id, prev, epoch, _ = _segment.unpack(fixed)
    if magic != SEGMENT_MAGIC or version != SEGMENT_VERSION or size != SEGMENT_HEADER_BYTES:
        return None
    return SegmentHeader(log_uuid, segment_id, prev, epoch)


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
    """The 48 bytes before a payload, valid at `offset` of the segment with `seed` only."""
    fixed = _batch.pack(BATCH_MAGIC, *header)
    return fixed + _crc.pack(crc32(fixed, crc32(offset.to_bytes(8, "little"), seed)))


def unpack_batch_header(data: bytes, seed: int, offset: int) -> BatchHeader | None:
    """The header at `offset`, or None where no valid one stands there. `data` starts with it."""
    if len(data) < BATCH_HEADER_BYTES:
        return None
    fixed = bytes(data[: _batch.size])
    crc = crc32(fixed, crc32(offset.to_bytes(8, "little"), seed))
    if crc != _crc.unpack_from(data, _batch.size)[0]:
        return None
    magic, *fields = _batch.unpack(fixed)
    return BatchHeader(*fields) if magic == BATCH_MAGIC else None
