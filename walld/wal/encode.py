"""Encodes records into a batch: the bytes of one write(2).

Owns: how a batch is put together and stamped with its place. Refuses: files, and when to flush.

A batch is built without knowing where it will stand, and stamped when it does: after a failed sync
the same payload is stamped again for another segment, under its own number (P8).
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING
from zlib import crc32

from walld import limits
from walld.wal.layout import (
    BATCH_ALIGNMENT,
    BATCH_HEADER_BYTES,
    RECORDS_MAX,
    SETTLED_BYTES,
    BatchHeader,
    BatchKind,
    entry_bytes,
    pack_batch_header,
    pack_column,
    settled,
    width_code,
)

if TYPE_CHECKING:
    from walld.wal.layout import Settled

__all__ = ["Batch", "BatchEncoder", "settled_batches"]


class Batch:
    """A sealed batch: its number and payload. `offsets[i]` is where record i's body stands.

    Offsets count from the start of the batch's header, so they hold in whatever segment it lands.
    """

    __slots__ = ("batch_no", "kind", "offsets", "payload", "payload_crc", "records", "widths")

    def __init__(
        self,
        batch_no: int,
        records: int,
        payload: bytes,
        offsets: list[int],
        *,
        kind: int = BatchKind.RECORDS,
        widths: int = 0,
    ) -> None:
        assert batch_no > 0, "zero is never valid"
        assert records <= RECORDS_MAX, (records, RECORDS_MAX)
        length = BATCH_HEADER_BYTES + len(payload)
        # A scan takes a longer batch for damage, so it must never be written.
        assert length <= limits.BATCH_BYTES_MAX, (batch_no, length, limits.BATCH_BYTES_MAX)
        assert length % BATCH_ALIGNMENT == 0, (batch_no, length)
        self.batch_no = batch_no
        self.kind = kind
        self.widths = widths
        self.records = records
        self.payload = payload
        self.offsets = offsets
        self.payload_crc = crc32(payload)

    def __len__(self) -> int:
        """Bytes on disk, header and padding included."""
        return BATCH_HEADER_BYTES + len(self.payload)

    def stamped(self, synced_no: int, seed: int, offset: int) -> bytes:
        """The bytes to write at `offset` of the segment with `seed`."""
        header = BatchHeader(
            self.kind,
            self.widths,
            self.records,
            synced_no,
            len(self.payload),
            self.batch_no,
            self.payload_crc,
        )
        return pack_batch_header(header, seed, offset) + self.payload

    def body(self, offset: int, length: int) -> bytes:
        """A record body out of memory, by the same offset that finds it on disk."""
        start = offset - BATCH_HEADER_BYTES
        return self.payload[start : start + length]


class BatchEncoder:
    """Collects records until the next one would pass the cut."""

    __slots__ = ("_bodies", "_bodies_bytes", "_columns", "_entry_bytes", "_flags", "_tops")

    def __init__(self) -> None:
        self._columns: tuple[list[int], list[int], list[int], list[int]] = ([], [], [], [])
        """stream_no, first_seq, span, body_bytes"""
        self._tops = [0, 0, 0, 0]
        """First value that does not fit a column as wide as it is now."""
        self._flags = bytearray()
        self._bodies: list[bytes] = []
        self._bodies_bytes = 0
        self._entry_bytes = entry_bytes(0)

    def __len__(self) -> int:
        return len(self._bodies)

    def fits(self, stream_no: int, first_seq: int, last_seq: int, body_bytes: int) -> bool:
        """True where that record may join; a larger one is a batch of its own."""
        if not self._bodies:
            return True
        entry = self._entry_bytes
        tops = self._tops
        span = last_seq - first_seq
        if stream_no >= tops[0] or first_seq >= tops[1] or span >= tops[2] or body_bytes >= tops[3]:
            entry = 1
            for value, top in zip((stream_no, first_seq, span, body_bytes), tops, strict=True):
                entry += 1 << width_code(max(value, top - 1))
        count = len(self._bodies) + 1
        size = BATCH_HEADER_BYTES + entry * count + self._bodies_bytes + body_bytes
        return size + -size % BATCH_ALIGNMENT <= limits.BATCH_BYTES_CUT

    def add(self, stream_no: int, first_seq: int, last_seq: int, flags: int, body: bytes) -> None:
        """One record. The caller has asked whether it fits."""
        numbers, firsts, spans, sizes = self._columns
        tops = self._tops
        span, size = last_seq - first_seq, len(body)
        if stream_no >= tops[0] or first_seq >= tops[1] or span >= tops[2] or size >= tops[3]:
            self._widen((stream_no, first_seq, span, size))
        numbers.append(stream_no)
        firsts.append(first_seq)
        spans.append(span)
        sizes.append(size)
        self._flags.append(flags)
        self._bodies.append(body)
        self._bodies_bytes += size

    def _widen(self, values: tuple[int, int, int, int]) -> None:
        tops = self._tops
        entry = 1
        for at, value in enumerate(values):
            code = width_code(max(value, tops[at] - 1))
            tops[at] = 1 << (8 << code)
            entry += 1 << code
        self._entry_bytes = entry

    def seal(self, batch_no: int) -> Batch:
        """The batch; the builder is spent."""
        columns, widths = [], 0
        for at, values in enumerate(self._columns):
            code = width_code(max(self._tops[at] - 1, 0))
            widths |= code << 2 * at
            columns.append(pack_column(values, code))
        count = len(self._bodies)
        start = BATCH_HEADER_BYTES + entry_bytes(widths) * count
        *offsets, end = accumulate(self._columns[3], initial=start)
        padding = bytes(-end % BATCH_ALIGNMENT)
        payload = b"".join([*columns, self._flags, *self._bodies, padding])
        return Batch(batch_no, count, payload, offsets, widths=widths)


def settled_batches(batch_no: int, rows: list[Settled]) -> list[Batch]:
    """What a start writes first where it found damage, numbered from `batch_no`: mostly one."""
    step = (limits.BATCH_BYTES_CUT - BATCH_HEADER_BYTES) // SETTLED_BYTES
    batches = []
    for number, start in enumerate(range(0, len(rows), step), batch_no):
        part = rows[start : start + step]
        payload = b"".join(settled.pack(*row, 0) for row in part)
        batches.append(Batch(number, len(part), payload, [], kind=BatchKind.SETTLED))
    return batches
