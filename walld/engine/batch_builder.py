"""Builds batches from what waits, and knows which of them are written and synced.

Owns: the queue of streams with something to write, carried records and tombstones, and sealing them
into one batch at a time. Refuses: what `written` and `synced` mean for each stream (`core.py`),
files, threads, clocks.

Invariants
- B1 Sealing a stream takes what waits of it and fixes the batch's share of its watermark in one
  step. What is acknowledged comes from the batch, never from the stream: events taken later are
  not in it (a prototype acknowledged tokens it had not written).
- B2 Batch numbers are dense, given at sealing, and stay with the payload whatever happens to it.
- B3 `queued >= written >= synced`; synced is contiguous. A batch stays in memory until synced, so
  it can be written again elsewhere and read meanwhile (P8).
- B4 A tombstone lies at or after every record of its stream: a carried record is checked once more
  when it is sealed, and nothing of a released stream waits.
- B5 What a tombstone is to be as durable as stands in its batch, whole (`bury_with`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from walld import limits
from walld.engine.batch import Carry, Part, SealedBatch, Tombstone
from walld.engine.stream import Place, Stream
from walld.errors import Refusal
from walld.wal.encode import Batch, BatchEncoder
from walld.wal.layout import ENTRY_BYTES, Flag
from walld.wal.records import pack_items

if TYPE_CHECKING:
    from walld.engine.segments import Segments

__all__ = ["BatchBuilder"]

_BODY_OVERHEAD_BYTES = 4 + 5
"""A record body beside its items: CRC and array header, at most."""


class BatchBuilder:
    """The queue, and the batches that are not synced."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._queue: deque[Stream] = deque()
        self._carries: deque[Carry] = deque()
        self._tombstones: deque[Tombstone] = deque()
        self._together: dict[int, tuple[int, Tombstone]] = {}
        """By stream number: up to which seq it is written with that tombstone."""
        self._jumped = 0  # tombstones and carries since the last look: they go first
        self.queue_bytes = 0
        self.carry_bytes = 0
        """Of carried records that are not written yet, counted as live bytes are."""
        self.ends_only = False
        """The disk lives on its reserve: only streams that have ended are written."""
        self.is_shut = False
        """A start found no room for a segment of its own: not even an end can be written."""
        self.tombs: list[tuple[int, int]] | None = None
        """(batch, stream number) of tombstones, where somebody must know before they go."""
        self.crowded: dict[int, Stream] = {}
        """Streams with more records than their index should have."""
        self.unsynced: dict[int, SealedBatch] = {}
        """Batches sealed and not known synced, by number, in order."""
        self.unsynced_bytes = 0
        self.next_batch = 1
        self.written_no = 0
        self.recorded_no = 0
        """Highest batch written that holds more than the news of a sync: what a sync is for."""
        self.reached_no = 0
        """Highest batch ever written: after a failure `written_no` falls back to `synced_no`."""
        self.syncing_no = 0
        """Up to where a sync under way reaches, 0 while there is none."""
        self.synced_no = 0
        self.told_synced_no = 0
        """The synced_no that stands in the last batch written."""
        self.now = 0.0
        """Monotonic now, set by the engine before each step: when bytes died."""
        self._builder: BatchEncoder | None = None
        self._parts: list[tuple[Part, Carry | None]] = []
        self._new_bytes = self._carried_bytes = 0

    def restored(self, reserved_no: int, synced_no: int) -> None:
        """A start found all numbers up to `reserved_no` used; the log says synced up to
        `synced_no`. Nothing has been sealed here yet.
        """
        assert self.next_batch == 1, self.next_batch
        self.written_no = self.synced_no = self.reached_no = reserved_no
        self.told_synced_no = synced_no
        self.next_batch = reserved_no + 1

    def told_synced(self, batch_no: int) -> None:
        """What was written last says that all up to there is synced."""
        assert batch_no <= self.synced_no, (batch_no, self.synced_no)
        self.told_synced_no = batch_no

    def sync_begun(self, batch_no: int) -> None:
        """A sync of all up to there is under way."""
        assert batch_no <= self.written_no, (batch_no, self.written_no)
        self.syncing_no = batch_no

    def sync_ended(self) -> None:
        """It has returned, whatever it came to."""
        self.syncing_no = 0

    def shut(self) -> None:
        """A start has no room for a segment of its own."""
        self.is_shut = True

    def opened(self) -> None:
        """It has one."""
        self.is_shut = False

    def watch_tombstones(self, before: list[tuple[int, int]]) -> None:
        """From here on somebody must know of tombstones before they go. before: of earlier ones."""
        self.tombs = before

    def tombstones_known(self, batch_no: int) -> None:
        """Of those in batches up to there it is known."""
        if self.tombs is not None:
            self.tombs = [tomb for tomb in self.tombs if tomb[0] > batch_no]

    def not_crowded(self, no: int) -> None:
        """The stream has no more records than it should, or none that can be folded."""
        del self.crowded[no]

    def crowded_last(self, stream: Stream) -> None:
        """Its records could not be folded now: the others' turn is first."""
        self.crowded.pop(stream.no, None)
        self.crowded[stream.no] = stream

    def check_open(self) -> None:
        """For who is answered once something is written. Raises Refusal."""
        if self.is_shut:
            raise Refusal("disk_full", "the disk is full: nothing can be written until it has room")

    # --- what waits -----------------------------------------------------------------------------

    def queued(self, stream: Stream, grown: int) -> None:
        """A stream has more waiting, by `grown` bytes."""
        self.queue_bytes += grown
        if not stream.queued:
            stream.queued = True
            self._queue.append(stream)

    def dropped(self, freed: int) -> None:
        """What waited of a stream will never be written."""
        self.queue_bytes -= freed

    def bury(self, tombstone: Tombstone) -> None:
        """A tombstone to write."""
        self._tombstones.append(tombstone)
        self._jumped += 1

    def bury_with(self, tombstone: Tombstone, other: Stream) -> None:
        """A tombstone to write in the batch of all that waits of `other` now (B5).

        That must fit a batch, and all of `other` before it be durable.
        """
        assert other.queued, other.no
        assert other.no not in self._together, other.no
        self._together[other.no] = (other.next_seq - 1, tombstone)

    def carry(self, carry: Carry) -> None:
        """Old records to write again."""
        self._carries.append(carry)
        self._jumped += 1
        self.carry_bytes += ENTRY_BYTES + len(carry.body)
        self.queue_bytes += len(carry.body)

    @property
    def waiting(self) -> int:
        """How many streams, carried records and tombstones wait now."""
        return len(self._queue) + len(self._carries) + len(self._tombstones)

    def begin_flush(self) -> int:
        """How much of what waits belongs to a flush that begins now."""
        self.take_jumped()
        return self.waiting

    def take_jumped(self) -> int:
        """What has come since and goes first: it must take no place of what waited longer (B1)."""
        jumped, self._jumped = self._jumped, 0
        return jumped

    @property
    def buried(self) -> list[Stream]:
        """Streams whose tombstone is not sealed yet: their records still count."""
        held = [tombstone for _, tombstone in self._together.values()]
        waiting = [t.stream for t in (*self._tombstones, *held) if t.stream]
        built = [part.stream for part, _ in self._parts if part.is_tombstone and part.stream]
        return waiting + built

    @property
    def has_carries(self) -> bool:
        """True while carried records wait."""
        return bool(self._carries)

    # --- sealing --------------------------------------------------------------------------------

    def seal_some(self, records_max: int, now: float) -> int:
        """Add up to `records_max` of what waits to the batch being built. Returns how many were
        used up: fewer where the batch is full or nothing is left.
        """
        self.now = now
        if self._builder is None:
            self._builder = BatchEncoder()
        builder, done = self._builder, 0
        while done < records_max:
            if self._tombstones:
                tombstone = self._tombstones[0]
                size = len(tombstone.body)
                if not builder.fits(tombstone.no, tombstone.seq, tombstone.seq, size):
                    break
                self._tombstones.popleft()
                self._seal_tombstone(builder, tombstone)
            elif self._carries:
                carry = self._carries[0]
                if not builder.fits(
                    carry.stream.no, carry.first_seq, carry.last_seq, len(carry.body)
                ):
                    break
                self._carries.popleft()
                self._seal_carry(builder, carry)
            elif self._queue:
                stream = self._queue[0]
                if self.ends_only and not stream.terminal:
                    self._queue.rotate(-1)
                elif not self._seal_stream(builder, stream):
                    break
                else:
                    self._queue.popleft()
            else:
                break
            done += 1
        return done

    def _seal_tombstone(self, builder: BatchEncoder, tombstone: Tombstone) -> None:
        seq = tombstone.seq
        builder.add(tombstone.no, seq, seq, tombstone.flag, tombstone.body)
        if self.tombs is not None:
            self.tombs.append((self.next_batch, tombstone.no))
        part = Part(tombstone.stream, seq, 0, is_tombstone=True)
        self._parts.append((part, None))

    def _seal_carry(self, builder: BatchEncoder, carry: Carry) -> None:
        self.queue_bytes -= len(carry.body)
        self.carry_bytes -= ENTRY_BYTES + len(carry.body)
        stream = carry.stream
        if stream.gone or tuple(stream.where[carry.at : carry.at + carry.records]) != carry.was:
            stream.carrying = False
            return
        flags = carry.flags | Flag.CARRIED
        builder.add(stream.no, carry.first_seq, carry.last_seq, flags, carry.body)
        part = Part(stream, carry.last_seq, len(carry.body), is_tombstone=False)
        self._parts.append((part, carry))
        self._carried_bytes += ENTRY_BYTES + len(carry.body)
        self.carry_bytes += ENTRY_BYTES + len(carry.body)

    def _seal_stream(self, builder: BatchEncoder, stream: Stream) -> bool:
        """What waits of one stream, as far as it fits. False where some is left and it is full."""
        stream.seal()
        waiting = stream.waiting
        size, flags, count = _BODY_OVERHEAD_BYTES, 0, 0
        for entry in waiting:
            grown = size + len(entry.item)
            if not builder.fits(stream.no, waiting[0].first_seq, entry.last_seq, grown) or (
                count and grown > limits.BATCH_BYTES_CUT
            ):
                break
            size = grown
            flags |= entry.flags
            count += 1
        until, tombstone = self._together.get(stream.no, (0, None))
        fits = not waiting or (count > 0 and waiting[count - 1].last_seq >= until)
        if tombstone and not fits and len(builder):
            return False  # in a batch of its own it is whole (B5)
        if count:
            body = pack_items(stream.no, [entry.item for entry in waiting[:count]])
            first_seq, last_seq = waiting[0].first_seq, waiting[count - 1].last_seq
            builder.add(stream.no, first_seq, last_seq, flags, body)
            stream.building += (body,)
            part = Part(stream, last_seq, len(body), is_tombstone=False)
            self._parts.append((part, None))
            self._new_bytes += ENTRY_BYTES + len(body)
            assert last_seq >= until, (stream.no, last_seq, until)
        if tombstone:  # a few bytes beyond the cut; alone where a deleted session's lines are none
            del self._together[stream.no]
            self._seal_tombstone(builder, tombstone)
        if count == len(waiting):
            waiting.clear()
            self.queue_bytes -= stream.waiting_bytes
            stream.waiting_bytes = 0
            stream.queued = False
            return True
        del waiting[:count]
        freed = min(size, stream.waiting_bytes)
        stream.waiting_bytes -= freed
        self.queue_bytes -= freed
        return False

    def finish(self) -> SealedBatch | None:
        """Seal the batch being built, None where nothing is in it."""
        if not self._parts:
            self._builder = None
            return None
        return self._close()

    def finish_empty(self) -> SealedBatch:
        """A batch without records: its header alone says what is synced."""
        assert not self._parts
        self._builder = BatchEncoder()
        return self._close()

    def _close(self) -> SealedBatch:
        assert self._builder is not None
        batch = self._builder.seal(self.next_batch)
        self.next_batch += 1
        parts: list[Part] = []
        for (part, carry), offset in zip(self._parts, batch.offsets, strict=True):
            parts.append(part)
            if part.stream is None:
                continue
            part.stream.building = ()
            if carry is not None:
                # Only now do its places change: a second carry before would replace what is behind.
                part.stream.carrying = False
            if part.is_tombstone:
                self._forget_records(part.stream, batch.batch_no)
            elif part.stream.gone:
                parts[-1] = msgspec.structs.replace(part, length=0)
            elif carry is not None:
                self._replace(carry, Place(batch.batch_no, offset, part.length))
            else:
                part.stream.place(Place(batch.batch_no, offset, part.length))
                if part.stream.records > limits.INDEX_ENTRIES_MAX:
                    self.crowded[part.stream.no] = part.stream
        sealed = SealedBatch(batch, parts, self._new_bytes, self._carried_bytes)
        self.unsynced[batch.batch_no] = sealed
        self.unsynced_bytes += len(batch)
        self._builder, self._parts = None, []
        self._new_bytes = self._carried_bytes = 0
        return sealed

    def _replace(self, carry: Carry, place: Place) -> None:
        for was in carry.stream.places(carry.at, carry.records):
            self._segments.died(was.batch_no, was.length, place.batch_no, None)
        carry.stream.replace_places(carry.at, carry.records, place)

    def _forget_records(self, stream: Stream, after: int) -> None:
        """The records of a released stream die with its tombstone."""
        for place in stream.places():
            self._segments.died(place.batch_no, place.length, after, self.now)
        stream.forget_places()

    def adopt(self, batch: Batch) -> SealedBatch:
        """A batch without records of streams, made elsewhere, takes its place in the order."""
        assert batch.batch_no == self.next_batch, (batch.batch_no, self.next_batch)
        assert not self._parts
        self.next_batch += 1
        sealed = SealedBatch(batch, [], 0, 0)
        self.unsynced[batch.batch_no] = sealed
        self.unsynced_bytes += len(batch)
        return sealed

    @property
    def is_building(self) -> bool:
        """A batch is begun and not sealed."""
        return bool(self._parts)

    # --- fates ----------------------------------------------------------------------------------

    def written(self, sealed: SealedBatch, offset: int) -> None:
        """write(2) returned for a batch, at `offset` of the current segment."""
        batch = sealed.batch
        assert batch.batch_no == self.written_no + 1, (batch.batch_no, self.written_no)
        self._segments.wrote(batch.batch_no, offset, len(batch))
        self.written_no = batch.batch_no
        self.reached_no = max(self.reached_no, batch.batch_no)
        if sealed.parts or batch.kind:
            self.recorded_no = batch.batch_no

    def synced(self, batch_no: int) -> list[SealedBatch]:
        """fdatasync(2) returned for everything up to a batch. Returns those it made durable."""
        durable: list[SealedBatch] = []
        while self.synced_no < batch_no:
            self.synced_no += 1
            sealed = self.unsynced.pop(self.synced_no)
            self.unsynced_bytes -= len(sealed.batch)
            durable.append(sealed)
        return durable

    @property
    def unwritten(self) -> list[SealedBatch]:
        """Batches sealed and not written, in order."""
        return [self.unsynced[no] for no in range(self.written_no + 1, self.next_batch)]

    def batches_to_rewrite(self) -> list[SealedBatch]:
        """A segment is lost: batches that were written to it and must be again, in order."""
        again = [self.unsynced[no] for no in range(self.synced_no + 1, self.reached_no + 1)]
        self.written_no = self.synced_no
        return again

    def in_memory(self, place: Place) -> bytes | None:
        """A record body out of a batch that is not synced yet, None where it is on disk only."""
        sealed = self.unsynced.get(place.batch_no)
        return None if sealed is None else sealed.batch.body(place.offset, place.length)
