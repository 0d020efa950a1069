"""Compaction: carries live records out of old segments and unlinks dead ones.

Owns: which records are written again, when, and which segment goes. Refuses: what a carried record
means for its stream (`engine/batch_builder.py`), writing it (`flusher.py`), partials
(`partial_writer.py`).

Two reasons to carry, one budget: the index of a stream has grown long, so some of its records are
folded into one; the oldest segment holds what was released, or stands before more segments than
what is live needs, so what is live in it moves to the current one. Segments go strictly oldest
first.

Invariants
- K1 A segment goes when it is the oldest, nothing in it is needed, and all that ordered this is
  synced (`segments.py`, G3); LOCK says before that the log begins behind it, or it would be missed;
  the directory is synced before the next one goes.
- K2 Carrying writes at most as many bytes as agents wrote: that budget, not the clock, wins (P5).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from anyio.lowlevel import checkpoint
from walld_client.wire import messages as wire

from walld import limits
from walld.daemon import event_loop
from walld.engine.batch import Carry, Tombstone
from walld.errors import FormatError
from walld.escape import escaped_line
from walld.recovery import quarantine
from walld.replies.merge import merge, seqs_of
from walld.wal import records
from walld.wal.index import OFFSET_BITS
from walld.wal.layout import Flag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walld.daemon.storage.disk_threads import Worker
    from walld.daemon.storage.flusher import Flusher
    from walld.daemon.storage.read_errors import BadRecord
    from walld.daemon.storage.reply_reader import ReplyReader
    from walld.daemon.storage.syncer import Syncer
    from walld.daemon.storage.writer import Writer
    from walld.engine.engine import Engine
    from walld.engine.segments import Segment
    from walld.engine.stream import Stream
    from walld.recovery.startup_recovery import NotSynced
    from walld.wal.segment_files import SegmentFiles

__all__ = ["Compaction", "UnlinkGuard", "carried_flags"]

_log = logging.getLogger("walld.compaction")
_CARRY_BYTES_MAX = 128 * 1024
"""One carried record."""
_PASS_BYTES = limits.BATCH_BYTES_CUT
"""Carried between two flushes."""


class UnlinkGuard(Protocol):
    """What must be durable elsewhere before a segment goes: what a start found and is to be told.

    `daemon/startup/deferred_recovery.py` is the one. OSError of any: the segment stays.
    """

    @property
    def holds_segments(self) -> bool:
        """No segment may go now."""

    async def has_left(self, segment: Segment) -> bool:
        """A segment that could not be read may go."""

    async def before_unlink(self) -> None:
        """Write down what only the oldest segment tells."""

    async def tell_first(self, batch_no: int) -> None:
        """Write down that the log begins with this batch."""


class Compaction:
    """Carries records and unlinks segments for one engine."""

    def __init__(
        self,
        engine: Engine,
        flusher: Flusher,
        writer: Writer,
        syncer: Syncer,
        files: SegmentFiles,
        reader: ReplyReader,
        thread: Worker,
        guard: UnlinkGuard,
        reclaim_seconds: float,
        release_hold_seconds: float,
    ) -> None:
        self._engine = engine
        self._flusher = flusher
        self._writer = writer
        self._syncer = syncer
        self._files = files
        self._reader = reader
        self._thread = thread
        self._guard = guard
        self._reclaim = reclaim_seconds
        self._hold = release_hold_seconds
        self._emptying: tuple[Segment, Iterator[Stream]] | None = None
        self._unrescued: list[tuple[Stream, Segment]] = []
        """What a start could neither sync nor read once more, and where it stands."""

    # --- carrying -------------------------------------------------------------------------------

    async def thin_out(self) -> None:
        """Fold the records of streams whose index has grown long."""
        for no, stream in list(self._engine.batches.crowded.items()):
            if stream.gone or stream.records <= limits.INDEX_ENTRIES_MAX:
                self._engine.batches.not_crowded(no)
            elif not stream.carrying:
                at, count = _small_run(stream)
                if count < 2:
                    self._engine.batches.not_crowded(no)
                elif sum(stream.sizes[at : at + count]) <= self._engine.carry_budget:
                    try:
                        await self._carry(stream, at, count)
                    except OSError:
                        self._engine.batches.crowded_last(stream)
                        raise

    async def _carry(self, stream: Stream, at: int, count: int) -> None:
        """Read records, merge them into one, and queue it."""
        damaged: list[BadRecord] = []
        read = self._reader.job(stream, damaged, at, count)
        was = tuple(stream.where[at : at + count])
        stream.carry_begun()
        begin = stream.begin

        def job() -> tuple[list[records.Item], bytes]:
            items = merge(read())
            if at == 0 and not (items and isinstance(items[0], records.Begin)):
                items.insert(0, begin)  # its record did not verify; without it nobody could ask
            encoded = [records.encode_item(item) for item in items]
            return items, records.pack_items(stream.no, encoded)

        try:
            items, body = await self._thread.run(job)
            await self._reader.read_errors.count()
        except OSError:
            stream.carry_failed()
            raise
        except FormatError as error:
            # Nobody tries again (it stays `carrying`): the segment stays, and the bytes with it.
            _log.error("stream %d: its records cannot be carried: %s", stream.no, error)
            return
        for bad in damaged:
            # One bad record must not hold the segment, and the log behind it, for ever.
            text = "%s; stream %s carried without it, a gap stands there"
            _log.error(text, bad.why, escaped_line(stream.begin.stream_id))
            stream.lost_record()
        if not items:
            self._engine.forget_records(stream, at, count, was)
            return
        first_seq, last_seq = seqs_of(items[0])[0], seqs_of(items[-1])[1]
        flags = carried_flags(items)
        carry = Carry(stream, at, count, was, first_seq, last_seq, flags, body)
        self._engine.carry(carry, event_loop.now())
        self._flusher.wake()

    async def rescue(self, not_synced: NotSynced) -> None:
        """What a start could not sync is written again where it is needed, whatever the budget.

        For a start, before agents come in: until it is done nothing may be called synced.
        """
        engine = self._engine
        for no, seq, flag in not_synced.tombstones:
            engine.batches.bury(Tombstone(no, seq, flag, None))
        wanted = [one for one in engine.segments if one.segment_id in not_synced.segment_ids]
        for stream in list(engine.registry.by_no.values()):
            for segment in wanted:
                if not await self._is_rescued(stream, segment):
                    # Kept where it is, and no row says that it stands elsewhere.
                    not_synced.batches -= _batches_within(stream, segment)
        await self._flusher.flush()
        await self._syncer.sync_all()

    async def _is_rescued(self, stream: Stream, segment: Segment) -> bool:
        """False where it cannot be read, which is said: no reason not to start (P9)."""
        while _batches_within(stream, segment):
            at, count = _run_within(stream, segment)
            try:
                await self._carry(stream, at, count)
            except OSError as error:
                text = "stream %d: neither synced nor written again: %s; tried again each second"
                _log.error(text, stream.no, error)
                self._unrescued.append((stream, segment))
                return False
            await self._flusher.flush()
            if stream.carrying:
                return False
        return True

    async def rescue_rest(self) -> None:
        """What a start could not read, as soon as that can be had. In the background. OSError, once
        all of it was tried: one that never can be read holds up no other.
        """
        failed: OSError | None = None
        for stream, segment in list(self._unrescued):
            if stream.gone or not _batches_within(stream, segment):
                self._unrescued.remove((stream, segment))
            elif not stream.carrying:
                try:
                    await self._carry(stream, *_run_within(stream, segment))
                except OSError as error:
                    failed = failed or error
        if failed is not None:
            raise failed

    async def rename_residues(self, residues: list[int]) -> None:
        """Segments without a header are not met again. For a start, once its rows are synced."""
        for segment_id in residues:
            await self._thread.run(partial(quarantine.rename_residue, self._files.disk, segment_id))

    # --- the oldest segment ---------------------------------------------------------------------

    async def empty_oldest(self) -> bool:
        """Make the oldest segment free of live bytes, where it is time to and the budget allows.

        True where there is more to carry, once this is flushed.
        """
        engine, segments = self._engine, self._engine.segments
        oldest = segments.oldest
        if oldest is segments.current and not await self._leave_current(oldest):
            return False
        oldest = segments.oldest
        if not oldest.live_bytes or not self._is_due() or engine.batches.has_carries:
            self._emptying = None if not oldest.live_bytes else self._emptying
            return False
        if self._emptying is None or self._emptying[0] is not oldest:
            if oldest is not segments.current and self._is_late(segments.current.released_since):
                # What is carried must not land behind bytes that are overdue themselves.
                await self._writer.roll()
            self._emptying = (oldest, iter(list(engine.registry.by_no.values())))
        bound = (oldest.last_batch + 1) << OFFSET_BITS
        carried = 0
        for looked, stream in enumerate(self._emptying[1]):
            if looked % 200 == 199:
                await checkpoint()
            if stream.gone or stream.carrying or not stream.where or min(stream.where) >= bound:
                continue
            if not any(oldest.holds(where >> OFFSET_BITS) for where in stream.where):
                continue
            at, count = _run_within(stream, oldest)
            size = sum(stream.sizes[at : at + count])
            if size > engine.carry_budget:
                return False
            carried += size
            await self._carry(stream, at, count)
            if carried >= _PASS_BYTES:
                # A whole write: nothing is won by waiting for company, and 16 MB of live records
                # took a linger for each 256 KiB, 16 s, while released text stood behind them.
                engine.schedule.hurry_flush()
                self._flusher.wake()
                return True
        self._emptying = None  # look again for what has more than one run, or was being carried
        return False

    def _is_due(self) -> bool:
        segments = self._engine.segments
        large = segments.size > 2 * segments.live_bytes + 2 * limits.SEGMENT_BYTES_MAX
        fit = 2 * segments.live_bytes // limits.SEGMENT_BYTES_MAX
        many = len(segments) > limits.SEGMENTS_MAX + fit
        # Of any: the oldest may hold nothing but a quiet stream, and all others wait for it.
        late = self._is_late(segments.released_since)
        return (large or many or late) and self._engine.carry_budget > 0

    def _is_late(self, released_since: float | None) -> bool:
        return released_since is not None and event_loop.now() - released_since > self._reclaim

    async def _leave_current(self, current: Segment) -> bool:
        """Roll where the only segment holds what must go. False where it may stay."""
        engine = self._engine
        if current.is_empty:
            return False
        idle = not (
            engine.segments.live_bytes
            or engine.batches.waiting
            or engine.batches.is_building
            or engine.orphans
        )
        if idle:
            if engine.batches.synced_no < current.unlink_after:
                engine.schedule.hurry_sync()
                self._syncer.wake()
                return False
        elif (
            current.released_since is None
            or not self._is_due()
            or engine.carry_budget < current.live_bytes
        ):
            return False
        await self._writer.roll()
        return True

    async def unlink(self) -> None:
        """Remove segments nobody needs, one after the other (K1)."""
        engine = self._engine
        while not self._guard.holds_segments:
            segment = engine.segments.can_unlink(engine.batches.synced_no)
            if segment is None or self._is_held(segment):
                return
            if not self._leaves_one_durable(segment):
                engine.schedule.written(event_loop.now())
                engine.schedule.hurry_sync()
                self._syncer.wake()
                return
            if segment.unreadable and not await self._guard.has_left(segment):
                return
            await self._guard.before_unlink()
            await self._guard.tell_first(engine.segments.begin_without(1))
            go = self._files.set_aside if segment.unreadable else self._files.unlink
            await self._thread.run(partial(go, segment.segment_id))
            engine.segments.unlinked(segment)

    def _leaves_one_durable(self, oldest: Segment) -> bool:
        """LOCK says that there is a log: power must not leave none of it, as
        `log_identity.is_there` is to see it.
        """
        return any(
            self._files.is_durable(one.segment_id)
            for one in self._engine.segments
            if one is not oldest and not one.nameless and not one.undurable
        )

    def _is_held(self, segment: Segment) -> bool:
        at = segment.last_release_at
        return bool(self._hold) and at is not None and event_loop.now() - at < self._hold


def carried_flags(items: list[records.Item]) -> int:
    """What a scan must look into a record with these items for."""
    flags = 0
    for item in items:
        if isinstance(item, records.Begin):
            flags |= Flag.BEGIN
        elif isinstance(item, records.Happened):
            if isinstance(item.event, wire.Move):
                flags |= Flag.MOVED
            elif isinstance(item.event, wire.End | wire.AppError):
                flags |= Flag.TERMINAL
    return flags


def _small_run(stream: Stream) -> tuple[int, int]:
    """(at, count) of the neighbouring records that are cheapest to fold into one.

    The smallest sum of a fixed number of them is what is newest: folding what was folded before
    along with it each time would cost the square of a reply's length.
    """
    sizes = stream.sizes
    count = min(limits.INDEX_ENTRIES_MAX // 2, len(sizes))
    while count >= 2:
        total = sum(sizes[:count])
        best, best_at = total, 0
        for at in range(1, len(sizes) - count + 1):
            total += sizes[at + count - 1] - sizes[at - 1]
            if total < best:
                best, best_at = total, at
        if best <= _CARRY_BYTES_MAX:
            return best_at, count
        count //= 2
    return 0, 0


def _batches_within(stream: Stream, segment: Segment) -> set[int]:
    """Batches of a segment that hold records of the stream."""
    numbers = {where >> OFFSET_BITS for where in stream.where}
    return {number for number in numbers if segment.holds(number)}


def _run_within(stream: Stream, segment: Segment) -> tuple[int, int]:
    """(at, count) of the first neighbouring records that stand in a segment."""
    held = [segment.holds(where >> OFFSET_BITS) for where in stream.where]
    at = held.index(True)
    count, size = 0, 0
    for is_held, length in zip(held[at:], stream.sizes[at:], strict=True):
        if not is_held or (count and size + length > _CARRY_BYTES_MAX):
            break
        count += 1
        size += length
    return at, count
