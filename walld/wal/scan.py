"""Scans a segment: good batches, and holes between them.

Owns: walking a segment, and the checks before a byte is believed. Refuses: which segments there are
(`log_scan.py`), what a hole means (`verdict.py`), what stands in a record (`records.py`), writing.

Invariants
- C1 Any bytes give batches and holes, never an exception; a length is checked against the file and
  the hard limit before anything is read for it. Memory is one window, whatever the file's size.
- C2 A batch is given out only with both CRCs good and a directory that adds up to its payload, so a
  consumer may slice bodies without checking.
- C3 Zeros have no meaning, and a hole ends where the next batch header verifies at its own offset.
"""

from __future__ import annotations

import operator
import sys
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from walld import limits
from walld.wal import ranges
from walld.wal.layout import (
    BATCH_ALIGNMENT,
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    BATCH_NO_MAX,
    SEGMENT_HEADER_BYTES,
    SEGMENT_VERSION,
    SETTLED_BYTES,
    BatchHeader,
    BatchKind,
    Columns,
    Settled,
    entry_bytes,
    segment_seed,
    segment_version,
    settled,
    unpack_batch_header,
    unpack_directory,
    unpack_segment_header,
)
from walld.wal.scan_report import Hole, SegmentFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walld.disk.base import File
    from walld.wal.scan_report import Reason

__all__ = [
    "Record",
    "ScannedBatch",
    "SegmentScan",
    "whole_batch",
]

WINDOW_BYTES = 2 * limits.BATCH_BYTES_MAX
assert WINDOW_BYTES % BATCH_ALIGNMENT == 0
_LENGTH_MAX = limits.SEGMENT_BYTES_MAX + limits.BATCH_BYTES_MAX

_magic = BATCH_MAGIC.to_bytes(2, "little")

assert sys.byteorder == "little", "a directory's columns are taken in the machine's own order"


class Record(NamedTuple):
    """One entry of a directory. `offset`: of its body, from the batch's header."""

    stream_no: int
    first_seq: int
    last_seq: int
    offset: int
    body_bytes: int
    flags: int


class ScannedBatch(NamedTuple):
    """A good batch. `offset`: of its header in the file. `payload`: a view, of the window it is in.

    Record bodies are found by their offset from the header, as in `encode.Batch`; `bodies_at` is
    that of the first.
    """

    batch_no: int
    synced_no: int
    offset: int
    columns: Columns
    bodies_at: int
    payload: memoryview

    @property
    def records(self) -> Iterator[Record]:
        """Its directory, entry by entry."""
        numbers, firsts, spans, sizes, flags = self.columns
        lasts = map(operator.add, firsts, spans)
        offsets = accumulate(sizes, initial=self.bodies_at)
        return map(Record, numbers, firsts, lasts, offsets, sizes, flags)

    def body(self, offset: int, length: int) -> bytes:
        """A record body by its offset from the header."""
        start = offset - BATCH_HEADER_BYTES
        return bytes(self.payload[start : start + length])


class SegmentScan:
    """One segment, once through. Iterate it to the end; then `facts` holds what was found.

    log_uuid: of the log it must belong to, None to take the header's word. With it, a segment whose
    header is damaged is read all the same. counted_no: from a batch with a higher number on nothing
    counts (`headers.py`).
    """

    def __init__(
        self,
        file: File,
        segment_id: int,
        log_uuid: bytes | None = None,
        counted_no: int = BATCH_NO_MAX,
    ) -> None:
        self.facts = SegmentFacts(segment_id)
        self._file = file
        self._log_uuid = log_uuid
        self._counted_no = counted_no
        self._seed = 0
        self._window = b""
        self._window_at = 0

    def __iter__(self) -> Iterator[ScannedBatch]:
        position = 0
        try:
            self.facts.size = self._file.size()
            position = self._open_segment()
            while position < self.facts.size:
                batch, position = self._take(position)
                if batch is not None:
                    yield batch
        except OSError:
            self._hole(position, max(self.facts.size - position, 0), "unreadable")
        self._window = b""

    def _open_segment(self) -> int:
        """Read the segment's header. Returns where batches start, or the end."""
        facts = self.facts
        if facts.size < SEGMENT_HEADER_BYTES:
            self._hole(0, facts.size, "residue")
            return facts.size
        start = bytes(self._view(0, SEGMENT_HEADER_BYTES))
        header = unpack_segment_header(start)
        if header is None:
            return self._without_header(start)
        facts.header = header
        log_uuid = header.log_uuid if self._log_uuid is None else self._log_uuid
        if header.log_uuid != log_uuid or header.segment_id != facts.segment_id:
            facts.header = None
            self._hole(0, facts.size, "foreign")
            return facts.size
        self._seed = segment_seed(log_uuid, facts.segment_id)
        return SEGMENT_HEADER_BYTES

    def _without_header(self, start: bytes) -> int:
        """A segment whose header does not verify: batches do not need it where the log is known."""
        if segment_version(start) not in (None, SEGMENT_VERSION):
            self._hole(0, self.facts.size, "version")
            return self.facts.size
        if self._log_uuid is None:
            self._hole(0, self.facts.size, "segment header")
            return self.facts.size
        self._seed = segment_seed(self._log_uuid, self.facts.segment_id)
        found = self._search(SEGMENT_HEADER_BYTES)
        self._hole(0, found, "segment header")
        return found

    def _take(self, position: int) -> tuple[ScannedBatch | None, int]:
        """The batch at `position`, or None and a hole noted; and where to go on."""
        header = self._header_at(position)
        if header is None:
            found = self._search(position + BATCH_ALIGNMENT)
            self._hole(position, found - position, "header")
            return None, found
        if header.batch_no > self._counted_no:
            self._hole(position, self.facts.size - position, "fenced")
            return None, self.facts.size
        self.facts.synced_no = max(self.facts.synced_no, header.synced_no)
        length = BATCH_HEADER_BYTES + header.payload_bytes
        if position + length > self.facts.size:
            self._hole(position, self.facts.size - position, "short", header.batch_no)
            return None, self.facts.size
        payload = self._view(position + BATCH_HEADER_BYTES, header.payload_bytes)
        is_good, batch = _checked(header, position, payload)
        if not is_good:
            self._hole(position, length, "payload", header.batch_no)
            return None, position + length
        self._number(header.batch_no)
        ranges.add(self.facts.numbers, header.batch_no)
        if batch is None:
            self._note(header, position, payload)
        return batch, position + length

    def _note(self, header: BatchHeader, position: int, payload: memoryview) -> None:
        """A batch without records of streams: what an earlier start settled, or a later kind."""
        self.facts.apart.append((header.batch_no, position, header.kind))
        if header.kind == BatchKind.SETTLED:
            table = payload[: SETTLED_BYTES * header.records]
            self.facts.settled += [Settled(*row[:5]) for row in settled.iter_unpack(table)]

    def _header_at(self, position: int) -> BatchHeader | None:
        """A header that verifies there and says nothing that cannot be."""
        data = self._view(position, min(BATCH_HEADER_BYTES, self.facts.size - position))
        header = unpack_batch_header(bytes(data), self._seed, position)
        return header if header is not None and _header_is_possible(header) else None

    def _search(self, position: int) -> int:
        """Offset of the next header that verifies, from `position` on; the size where none does.

        Behind the longest segment that walld writes none is looked for: a disk can make a file a
        TiB, and a start would read all of it.
        """
        end = min(self.facts.size, _LENGTH_MAX) - BATCH_HEADER_BYTES
        while position <= end and len(self._view(position, BATCH_HEADER_BYTES)):
            window, base = self._window, self._window_at
            at = window.find(_magic, position - base)
            while at >= 0:
                found = base + at
                if found % BATCH_ALIGNMENT == 0 and self._header_at(found) is not None:
                    return found
                at = window.find(_magic, at + 1)
            # Windows begin at multiples of 4, so none but the file's last cuts a magic in two.
            position = base + len(window)
            position += -position % BATCH_ALIGNMENT
        return self.facts.size

    def _hole(self, offset: int, length: int, reason: Reason, batch_no: int = 0) -> None:
        """Note that nothing was read from these bytes."""
        hole = Hole(offset, length, batch_no, reason, previous_no=self.facts.last_no)
        if batch_no:
            self._number(batch_no)
        self.facts.holes.append(hole)

    def _number(self, batch_no: int) -> None:
        """Note the number of a good header: it bounds what the hole before it can have held."""
        facts = self.facts
        facts.first_no = facts.first_no or batch_no
        facts.last_no = max(facts.last_no, batch_no)
        if facts.holes and not facts.holes[-1].next_no:
            facts.holes[-1].next_no = batch_no

    def _view(self, offset: int, length: int) -> memoryview:
        """These bytes, out of the window; fewer only where the file has shrunk."""
        start = offset - self._window_at
        if start < 0 or start + length > len(self._window):
            self._window = self._read(offset)
            self._window_at = offset
            start = 0
        return memoryview(self._window)[start : start + length]

    def _read(self, offset: int) -> bytes:
        length = min(WINDOW_BYTES, self.facts.size - offset)
        return self._file.read_at(length, offset)


def whole_batch(file: File, seed: int, offset: int) -> bytes | None:
    """The bytes of the batch at `offset`, None where no good one stands there. Raises OSError."""
    head = file.read_at(BATCH_HEADER_BYTES, offset)
    header = unpack_batch_header(head, seed, offset)
    if header is None or not _header_is_possible(header):
        return None
    payload = file.read_at(header.payload_bytes, offset + BATCH_HEADER_BYTES)
    is_good = len(payload) == header.payload_bytes and crc32(payload) == header.payload_crc
    return head + payload if is_good else None


def _header_is_possible(header: BatchHeader) -> bool:
    """No header we wrote fails this, whatever its CRC says."""
    length = BATCH_HEADER_BYTES + header.payload_bytes
    is_numbered = 0 < header.batch_no <= BATCH_NO_MAX
    return is_numbered and length <= limits.BATCH_BYTES_MAX and length % BATCH_ALIGNMENT == 0


def _checked(
    header: BatchHeader, offset: int, payload: memoryview
) -> tuple[bool, ScannedBatch | None]:
    """Whether CRC and table hold for the payload, and the batch where it has records of streams."""
    if len(payload) != header.payload_bytes or crc32(payload) != header.payload_crc:
        return False, None
    if header.kind == BatchKind.SETTLED:
        if SETTLED_BYTES * header.records != header.payload_bytes:
            return False, None
        return all(row[3] <= BATCH_NO_MAX for row in settled.iter_unpack(payload)), None
    if header.kind != BatchKind.RECORDS:
        return True, None
    columns = unpack_directory(header, payload)
    if columns is None:
        return False, None
    table_bytes = entry_bytes(header.widths) * header.records
    padding = header.payload_bytes - table_bytes - sum(columns.body_bytes)
    if not 0 <= padding < BATCH_ALIGNMENT:
        return False, None
    bodies_at = BATCH_HEADER_BYTES + table_bytes
    number, synced_no = header.batch_no, header.synced_no
    return True, ScannedBatch(number, synced_no, offset, columns, bodies_at, payload)
