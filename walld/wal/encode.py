"""Records to a batch: the bytes of one write(2).

Owns: how a batch is put together and stamped with its place. Refuses: files, and when to flush.

A batch is built without knowing where it will stand, and stamped when it does: after a failed sync
the same payload is stamped again for another segment, under its own number (DESIGN P8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from walld import limits
from walld.wal.layout import (
    BATCH_ALIGNMENT,
    BATCH_HEADER_BYTES,
    ENTRY_BYTES,
    SETTLED_BYTES,
    BatchFlag,
    BatchHeader,
    directory,
    pack_batch_header,
    settled,
)

if TYPE_CHECKING:
    from walld.wal.layout import Settled

__all__ = ["Batch", "BatchBuilder", "settled_batches"]


class Batch:
    """A sealed batch: its number and payload. `offsets[i]` is where record i's body stands.

    Offsets count from the start of the batch's header, so they hold in whatever segment it lands.
    """

    __slots__ = ("at_ms", "batch_no", "flags", "offsets", "payload", "payload_crc", "records")

    def __init__(
        self,
        batch_no: int,
        at_ms: int,
        records: int,
        payload: bytes,
        offsets: list[int],
        flags: int = 0,
    ) -> None:
        assert batch_no > 0, "zero is never valid"
        length = BATCH_HEADER_BYTES + len(payload)
        # A scan takes a longer batch for damage, so it must never be written.
        assert length <= limits.BATCH_BYTES_MAX, (batch_no, length, limits.BATCH_BYTES_MAX)
        assert length % BATCH_ALIGNMENT == 0, (batch_no, length)
        self.batch_no = batch_no
        self.at_ms = at_ms
        self.records = records
        self.payload = payload
        self.offsets = offsets
        self.flags = flags
        self.payload_crc = crc32(payload)

    def __len__(self) -> int:
        """Bytes on disk, header and padding included."""
        return BATCH_HEADER_BYTES + len(self.payload)

    def stamped(self, synced_no: int, seed: int, offset: int) -> bytes:
        """The bytes to write at `offset` of the segment with `seed`."""
        header = BatchHeader(
            len(self.payload),
            self.batch_no,
            synced_no,
            self.at_ms,
            self.records,
            self.flags,
            self.payload_crc,
        )
        return pack_batch_header(header, seed, offset) + self.payload

    def body(self, offset: int, length: int) -> bytes:
        """A record body out of memory, by the same offset that finds it on disk."""
        start = offset - BATCH_HEADER_BYTES
        return self.payload[start : start + length]


class BatchBuilder:
    """Collects records until the next one would pass the cut."""

    __slots__ = ("_bodies", "_directory", "size")

    def __init__(self) -> None:
        self._directory: list[bytes] = []
        self._bodies: list[bytes] = []
        self.size = BATCH_HEADER_BYTES
        """Bytes the batch would have now, without padding."""

    def __len__(self) -> int:
        return len(self._bodies)

    def has_room(self, body_bytes: int) -> bool:
        """True where a body of that size may join; a larger one is a batch of its own."""
        return not self._bodies or self.size + ENTRY_BYTES + body_bytes <= limits.BATCH_BYTES_CUT

    def add(self, stream_no: int, first_seq: int, last_seq: int, flags: int, body: bytes) -> None:
        """One record. The caller has asked has_room."""
        self._directory.append(directory.pack(stream_no, first_seq, last_seq, len(body), flags))
        self._bodies.append(body)
        self.size += ENTRY_BYTES + len(body)

    def seal(self, batch_no: int, at_ms: int) -> Batch:
        """The batch; the builder is spent."""
        position = BATCH_HEADER_BYTES + ENTRY_BYTES * len(self._bodies)
        offsets = []
        for body in self._bodies:
            offsets.append(position)
            position += len(body)
        padding = bytes(-position % BATCH_ALIGNMENT)
        payload = b"".join([*self._directory, *self._bodies, padding])
        return Batch(batch_no, at_ms, len(self._bodies), payload, offsets)


def settled_batches(batch_no: int, at_ms: int, rows: list[Settled]) -> list[Batch]:
    """What a start writes first where it found damage, numbered from `batch_no`: mostly one."""
    step = (limits.BATCH_BYTES_CUT - BATCH_HEADER_BYTES) // SETTLED_BYTES
    batches = []
    for number, start in enumerate(range(0, len(rows), step), batch_no):
        part = rows[start : start + step]
        payload = b"".join(settled.pack(*row, 0) for row in part)
        batches.append(Batch(number, at_ms, len(part), payload, [], BatchFlag.SETTLED))
    return batches
