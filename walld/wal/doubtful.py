"""Records of a batch that does not verify: those of its bodies that do.

Owns: reading a batch whose header is good and whose payload is not, record by record. Refuses:
believing anything of it but a body that carries its own good CRC; files, beyond one read.

A payload's CRC fails as a whole, a body's CRC speaks for the body and for whose it is. So where the
directory still adds up, each record can be asked. What a directory says beside that (seqs, flags)
has no check of its own: seqs are read from the items, and a tombstone is not believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from walld.wal.files import SegmentFiles
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
from walld.wal.records import check_body
from walld.wal.scan import Record, ScannedBatch

if TYPE_CHECKING:
    from walld.disk.base import Disk, File
    from walld.wal.layout import BatchHeader

__all__ = ["DoubtfulBatch", "doubtful_at", "doubtful_batch"]


class DoubtfulBatch(NamedTuple):
    """What its directory claims, and the bodies that verify: (record, body), in its order.

    tombstones: entries that claim to be one; what they claim is not known to be so.
    """

    batch_no: int
    claimed: list[Record]
    good: list[tuple[Record, bytes]]
    tombstones: int


def doubtful_at(disk: Disk, log_uuid: bytes, segment_id: int, offset: int) -> DoubtfulBatch | None:
    """The batch at `offset` of a segment; None also where that cannot be read."""
    try:
        file = disk.open(SegmentFiles.path(segment_id))
        try:
            return doubtful_batch(file, segment_seed(log_uuid, segment_id), offset)
        finally:
            file.close()
    except OSError:
        return None


def doubtful_batch(file: File, seed: int, offset: int) -> DoubtfulBatch | None:
    """The batch at `offset` of the segment with `seed`, also where the file ends inside it.

    None where its header is not good or its directory does not add up. Raises OSError.
    """
    header = unpack_batch_header(file.read_at(BATCH_HEADER_BYTES, offset), seed, offset)
    if header is None or header.kind != BatchKind.RECORDS:
        return None
    room = max(file.size() - offset - BATCH_HEADER_BYTES, 0)
    payload = file.read_at(min(header.payload_bytes, room), offset + BATCH_HEADER_BYTES)
    return _read(header, offset, memoryview(payload))


def _read(header: BatchHeader, offset: int, payload: memoryview) -> DoubtfulBatch | None:
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
            good.append((record, body))
    tombstones = sum(bool(item.flags & (Flag.RELEASED | Flag.RESOLVED)) for item in claimed)
    return DoubtfulBatch(header.batch_no, claimed, good, tombstones)
