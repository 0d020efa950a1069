"""Recovers the sound records of a batch that fails its checksum.

Owns: reading a batch whose header is good and whose payload is not, record by record. Refuses:
believing anything of it but a body that carries its own good CRC; files, beyond one read.

A payload's CRC fails as a whole, a body's CRC speaks for the body and for whose it is. So where the
directory still adds up, each record can be asked. What a directory says beside that (seqs, flags)
has no check of its own: seqs are read from the items, and a tombstone is not believed. Of a record
whose body does not verify it is a claim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from walld_client.wire import messages as wire

from walld.errors import FormatError
from walld.wal.layout import (
    BATCH_ALIGNMENT,
    BATCH_HEADER_BYTES,
    BatchKind,
    Flag,
    entry_bytes,
    segment_seed,
    unpack_batch_header,
    unpack_directory,
)
from walld.wal.records import Begin, Text, check_body, decode_body
from walld.wal.scan import Record, ScannedBatch
from walld.wal.segment_files import SegmentFiles

if TYPE_CHECKING:
    from walld.disk.base import Disk, File
    from walld.wal.layout import BatchHeader

__all__ = ["Claim", "PartialBatch", "doubtful_at", "doubtful_batch"]

_FLAGS = {wire.End: Flag.TERMINAL, wire.AppError: Flag.TERMINAL, wire.Move: Flag.MOVED}


Claim = tuple[int, int, int, bool]
"""Stream number, first seq, last seq; and whether a body that verifies says so."""


class PartialBatch(NamedTuple):
    """What its directory claims, and the bodies that verify: (record, body), in its order.

    Seqs and flags of those are by their items. tombstones: entries that claim to be one; what they
    claim is not known to be so.
    """

    batch_no: int
    claimed: list[Record]
    good: list[tuple[Record, bytes]]
    tombstones: int

    @property
    def claims(self) -> list[Claim]:
        """Seqs that stood in it. No event is of less than a byte: what claims more is left out."""
        good = [record for record, _ in self.good]
        sure = {record.offset for record in good}
        rest = [
            record
            for record in self.claimed
            if record.offset not in sure and record.last_seq - record.first_seq < record.body_bytes
        ]
        found = [(*record[:3], True) for record in good]
        return found + [(*record[:3], False) for record in rest]


def doubtful_at(disk: Disk, log_uuid: bytes, segment_id: int, offset: int) -> PartialBatch | None:
    """The batch at `offset` of a segment; None also where that cannot be read."""
    try:
        file = disk.open(SegmentFiles.path(segment_id))
        try:
            return doubtful_batch(file, segment_seed(log_uuid, segment_id), offset)
        finally:
            file.close()
    except OSError:
        return None


def doubtful_batch(file: File, seed: int, offset: int) -> PartialBatch | None:
    """The batch at `offset` of the segment with `seed`, also where the file ends inside it.

    None where its header is not good or its directory does not add up. Raises OSError.
    """
    header = unpack_batch_header(file.read_at(BATCH_HEADER_BYTES, offset), seed, offset)
    if header is None or header.kind != BatchKind.RECORDS:
        return None
    room = max(file.size() - offset - BATCH_HEADER_BYTES, 0)
    payload = file.read_at(min(header.payload_bytes, room), offset + BATCH_HEADER_BYTES)
    return _read(header, offset, memoryview(payload))


def _read(header: BatchHeader, offset: int, payload: memoryview) -> PartialBatch | None:
    columns = unpack_directory(header, payload)
    if columns is None:
        return None
    table_bytes = entry_bytes(header.widths) * header.records
    padding = header.payload_bytes - table_bytes - sum(columns.body_bytes)
    if not 0 <= padding < BATCH_ALIGNMENT:
        return None
    bodies_at = BATCH_HEADER_BYTES + table_bytes
    batch = ScannedBatch(header.batch_no, 0, offset, columns, bodies_at, payload)
    claimed = list(batch.records)
    good = []
    for record in claimed:
        body = batch.body(record.offset, record.body_bytes)
        is_whole = len(body) == record.body_bytes
        if body and is_whole and record.stream_no and check_body(record.stream_no, body):
            good.append((_as_said(record, body), body))
    tombstones = sum(bool(item.flags & (Flag.RELEASED | Flag.RESOLVED)) for item in claimed)
    return PartialBatch(header.batch_no, claimed, good, tombstones)


def _as_said(record: Record, body: bytes) -> Record:
    """The record as its items have it; as its directory has, where they are of a later version."""
    try:
        items = decode_body(record.stream_no, body)
    except FormatError:
        return record
    flags, seqs = 0, list[int]()
    for item in items:
        if isinstance(item, Begin):
            seqs.append(0)
            flags |= Flag.BEGIN
        elif isinstance(item, Text):
            seqs += item.first_seq, item.last_seq
        else:
            seqs.append(item.event.seq)
            flags |= _FLAGS.get(type(item.event), 0)
    if not seqs:
        return record
    return record._replace(first_seq=min(seqs), last_seq=max(seqs), flags=flags)
