"""The writer and the syncer: batches to segments, segments to the disk's own keeping.

Owns: carrying out flushes, syncs, new segments, and what follows when one of them fails. Refuses:
deciding when (`engine/commit.py`), what is in a batch (`engine/sealing.py`).

Invariants
- W1 One writer: batches are written one at a time, in number order, at a tracked offset.
- W2 An error of a sync, or of a write that is not for want of room, poisons the segment: no second
  sync, no read-back; what is not synced is written again from memory into a new segment under its
  own numbers, and acknowledged only after ITS sync (P8). Failing again: kept, said, tried again.
- W3 A full disk: the write is taken back, the reserve makes room, and until it can be put aside
  again only ends and releases are written; tried again every second (P7).
- W4 Nothing is acknowledged by a daemon that is no longer the owner of its directory.
"""

from __future__ import annotations

import errno
import logging
import time
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint

from walld import limits
from walld.engine.segments import Segment
from walld.errors import DirectoryTaken
from walld.wal.encode import settled_batches

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld.daemon.intake import Intake
    from walld.daemon.metrics import Metrics
    from walld.daemon.reserve import Reserve
    from walld.daemon.workers import Worker
    from walld.disk.owner import Owner
    from walld.engine.engine import Engine
    from walld.engine.sealing import Sealed
    from walld.wal.files import SegmentFiles
    from walld.wal.verdict import Verdict

__all__ = ["Committer"]

_log = logging.getLogger("walld.wal")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SEAL_RECORDS = 200
"""Records sealed between two yields: about half a millisecond."""
_SLOW_SYNC_SECONDS = 1.0


class Committer:
    """Writes and syncs for one engine."""

    def __init__(
        self,
        engine: Engine,
        intake: Intake,
        files: SegmentFiles,
        reserve: Reserve,
        owner: Owner,
        metrics: Metrics,
        writer: Worker,
        syncer: Worker,
        settled: Callable[[], None],
    ) -> None:
        """settled: called after each flush and each sync: watermarks have moved."""
        self._settled = settled
        self._engine = engine
        self._intake = intake
        self._files = files
        self._owner = owner
        self._metrics = metrics
        self._writer = writer
        self._syncer = syncer
        self._changed = anyio.Event()
        self._may_sync = anyio.Event()
        self._write_lock = anyio.Lock()
        self.trouble: str | None = None
        """What keeps the disk from taking writes or syncs, None while all is well."""
        self.syncing_since: float | None = None
        """Since when a sync has not returned."""
        self._sleeps_until: float | None = None
        self._last_id = 0
        self._reserve = reserve
        self._shortened = False
        self._generation = 0
        """Raised when batches move to a new segment: a sync begun before says nothing of them."""
        self._synced_no_max: int | None = None

    def wake(self) -> None:
        """Something was queued, or somebody waits: is the next flush nearer than thought?"""
        at = self._engine.commit.flush_at()
        if at is not None and (self._sleeps_until is None or at < self._sleeps_until):
            self._changed.set()

    def wake_syncer(self) -> None:
        """Somebody waits for a sync of what is written already."""
        self._may_sync.set()

    # --- segments -------------------------------------------------------------------------------

    async def begin(self, last_segment_id: int, verdict: Verdict) -> None:
        """A start's own segment; first in it what the scan found, so that it is said once.

        A disk that takes nothing yet is no reason not to start: it is tried again every second.
        """
        self._last_id = last_segment_id
        while True:
            try:
                await self.open_segment(self._engine.sealing.written_no + 1)
                break
            except OSError as error:
                self._ill(f"write of a new segment: {error.strerror or error}")
                await anyio.sleep(limits.DISK_RETRY_SECONDS)
        if self.trouble is not None:
            self._well()
        await self._writer.run(self._reserve.make)
        at_ms = time.time_ns() // 1_000_000
        first = self._engine.sealing.next_batch
        for batch in settled_batches(first, at_ms, verdict.rows()):
            # Until these are synced no header may say that the numbers they speak of are.
            self._synced_no_max = verdict.synced_no
            await self._write(self._engine.sealing.adopt(batch))
        last = self._engine.sealing.written_no
        while self._engine.sealing.synced_no < last:
            await self.sync()
        self._synced_no_max = None

    async def open_segment(self, first_batch: int) -> None:
        """A new segment to write to. Raises OSError; the id is used up all the same."""
        segment_id = self._last_id + 1
        epoch = self._owner.epoch
        self._last_id = segment_id
        await self._writer.run(lambda: self._files.create(segment_id, first_batch - 1, epoch))
        now = anyio.current_time()
        self._engine.segments.add(Segment(segment_id, first_batch, now))

    async def roll(self) -> None:
        """End the current segment; the next batch goes to a new one."""
        async with self._write_lock:
            current = self._engine.segments.current
            if not current.is_empty:
                await self.open_segment(self._engine.sealing.written_no + 1)

    def _is_full(self, length: int) -> bool:
        current = self._engine.segments.current
        old = anyio.current_time() - current.created_at > limits.SEGMENT_SECONDS_MAX
        large = current.size + length > limits.SEGMENT_BYTES_MAX
        return not current.is_empty and (old or large)

    # --- the writer -----------------------------------------------------------------------------

    async def run_writer(self) -> None:
        """Flush whenever one is due, for ever."""
        while True:
            self._changed = anyio.Event()
            at = self._engine.commit.flush_at()
            wait = None if at is None else at - anyio.current_time()
            if wait is None or wait > 0:
                self._sleeps_until = at
                with anyio.move_on_after(wait):
                    await self._changed.wait()
                continue
            if self._engine.sealing.unsynced_bytes >= limits.UNSYNCED_BYTES_MAX:
                # What is not synced must stay in memory, so writing waits for the syncer here.
                self._engine.commit.hurry_sync()
                self._may_sync.set()
                with anyio.move_on_after(limits.DISK_RETRY_SECONDS):
                    await self._changed.wait()
                continue
            await self.flush()
            if self._engine.disk_full:
                await self._look_for_room()

    async def flush(self) -> None:
        """Write everything queued now, in batches of one write(2) each."""
        engine, cost, started = self._engine, 0.0, anyio.current_time()
        oldest = engine.commit.flush_begun()
        left, waiters = engine.begin_flush()
        while left > 0 or engine.sealing.is_building:
            engine.sealing.now = anyio.current_time()
            begun = time.perf_counter()
            done = engine.sealing.seal_some(min(left, _SEAL_RECORDS))
            left -= done
            more = left > 0 and done == _SEAL_RECORDS
            sealed = None if more else engine.sealing.finish(time.time_ns() // 1_000_000)
            cost += time.perf_counter() - begun
            if more:
                await checkpoint()
            elif sealed is None:
                break
            else:
                cost += await self._write(sealed)
        engine.commit.flush_ended()
        if oldest is not None:
            self._metrics.flush_lag.observe(anyio.current_time() - oldest)
        if engine.sealing.ends_only and engine.sealing.waiting:
            engine.not_flushed(waiters, oldest)
        else:
            engine.flushed(waiters)
        self._intake.send_posted()
        # What the flush itself took: intake's sweeps between its slices are not its cost.
        engine.commit.flush_cost(cost, anyio.current_time() - started)
        self._metrics.flush_duration.observe(cost)
        self._may_sync.set()
        self._settled()
        if engine.commit.linger_shortened != self._shortened:
            self._shortened = not self._shortened
            now = f"shortened to {engine.commit.linger * 1000:.0f} ms"
            _log.warning("linger: %s", now if self._shortened else "as it was set again")
        if oldest is not None and anyio.current_time() - oldest > engine.commit.bound:
            age = anyio.current_time() - oldest
            _log.error(
                "flush bound breached: oldest event waited %.3f s, bound %.3f s",
                age,
                engine.commit.bound,
            )

    async def finish(self) -> None:
        """The end: whatever is taken becomes durable, however long the disk needs for it."""
        for sealed in self._engine.sealing.unwritten:
            await self._write(sealed)  # its flush was cancelled between sealing and writing
        await self.flush()
        await self.sync()

    async def _write(self, sealed: Sealed) -> float:
        """One batch, however often it takes. Returns the seconds of the write(2) that did it."""
        async with self._write_lock:
            while True:
                try:
                    if self._is_full(len(sealed.batch)):
                        await self.open_segment(sealed.batch.batch_no)
                    took = await self._write_once(sealed)
                except OSError as error:
                    await self._write_failed(error)
                    continue
                if self.trouble is not None and not self._engine.disk_full:
                    self._well()
                return took

    async def _write_once(self, sealed: Sealed) -> float:
        engine = self._engine
        segment = engine.segments.current
        offset, synced_no = segment.size, engine.sealing.synced_no
        if self._synced_no_max is not None:
            synced_no = min(synced_no, self._synced_no_max)

        def job() -> None:
            self._files.write(segment.segment_id, sealed.batch, synced_no, offset)
            self._check_owner()

        took = await self._writer.timed(job)
        self._metrics.wal_write_duration.observe(took)
        engine.sealing.told_synced_no = synced_no
        engine.written(sealed, offset, anyio.current_time())
        return took

    def _check_owner(self) -> None:
        if not self._owner.is_owner():
            raise DirectoryTaken(f"{self._owner.path}: another daemon raised the epoch; stopping")

    async def _write_failed(self, error: OSError) -> None:
        """W2, W3: say so, make room for another try, wait a second."""
        segment = self._engine.segments.current
        self._ill(f"write to segment {segment.segment_id}: {error.strerror or error}")
        if error.errno not in _NO_ROOM:
            await self._replace_segments()
            return
        try:
            await self._writer.run(lambda: self._files.cut(segment.segment_id, segment.size))
        except OSError as failed:
            _log.error("segment %d: cannot take a write back: %s", segment.segment_id, failed)
        await self._no_room()

    async def _no_room(self) -> None:
        """Live on the reserve; where it is spent too, wait a second."""
        self._engine.disk_full = True
        self._engine.sealing.ends_only = True
        if not await self._writer.run(self._reserve.spend):
            await anyio.sleep(limits.DISK_RETRY_SECONDS)

    async def _look_for_room(self) -> None:
        """A disk that was full has room again once the reserve can be put aside."""
        try:
            if await self._writer.run(self._reserve.make):
                self._engine.disk_full = self._engine.sealing.ends_only = False
                self._well()
                return
        except OSError as error:
            self._ill(f"write of the reserve: {error.strerror or error}")
        with anyio.move_on_after(limits.DISK_RETRY_SECONDS):
            await self._changed.wait()

    # --- the syncer -----------------------------------------------------------------------------

    async def run_syncer(self) -> None:
        """Sync whenever one is due, for ever."""
        engine = self._engine
        while True:
            self._may_sync = anyio.Event()
            at = engine.commit.sync_at(engine.sealing.unsynced_bytes)
            wait = None if at is None else at - anyio.current_time()
            if wait is None or wait > 0:
                with anyio.move_on_after(wait):
                    await self._may_sync.wait()
                continue
            await self.sync()

    async def sync(self) -> None:
        """Make durable what is written now, and tell whom it concerns."""
        engine = self._engine
        target = engine.sealing.written_no
        segments = engine.segments.between(engine.sealing.synced_no + 1, target)
        engine.commit.sync_begun()
        ids = [segment.segment_id for segment in segments]
        generation = self._generation

        def job() -> None:
            self._files.sync(ids)
            self._check_owner()

        self.syncing_since = anyio.current_time()
        try:
            took = await self._syncer.timed(job)
        except OSError as error:
            self.syncing_since = None
            self._ill(f"sync up to batch {target}: {error.strerror or error}")
            async with self._write_lock:
                if generation == self._generation:
                    await self._replace_segments()
            return
        self.syncing_since = None
        if generation != self._generation:
            # Meanwhile a failed write moved the batches to a new segment: this sync was not its.
            engine.commit.written(anyio.current_time())
            return
        self._metrics.wal_fsync_duration.observe(took)
        if took > _SLOW_SYNC_SECONDS:
            _log.warning("slow fdatasync: %.3f s for segments %s", took, ids)
        engine.commit.sync_cost(took)
        engine.synced(target)
        if self.trouble is not None and not engine.disk_full:
            self._well()
        self._changed.set()
        self._settled()
        self._intake.send_posted()
        news = engine.sealing.told_synced_no < target and self._synced_no_max is None
        if news and engine.sealing.written_no == target:
            await self._tell_synced()

    async def _tell_synced(self) -> None:
        """Nothing is queued behind a sync: an empty batch says how far it reached."""
        sealing = self._engine.sealing
        if sealing.waiting or sealing.is_building or not self._engine.segments.live_bytes:
            return
        sealed = sealing.finish_empty(time.time_ns() // 1_000_000)
        await self._write(sealed)

    async def _replace_segments(self) -> None:
        """W2: a new segment with everything not synced in it, however often it takes."""
        self._generation += 1
        while not await self._write_again():
            pass
        self._engine.commit.written(anyio.current_time())
        self._may_sync.set()

    async def _write_again(self) -> bool:
        """From memory, under its own numbers. False where it failed once more."""
        engine = self._engine
        engine.segments.poison(engine.sealing.synced_no)
        again = engine.sealing.unwritten_again()
        try:
            await self.open_segment(engine.sealing.synced_no + 1)
            for sealed in again:
                await self._write_once(sealed)
        except OSError as error:
            self._ill(f"write to a new segment: {error.strerror or error}")
            if error.errno in _NO_ROOM:
                await self._no_room()
            else:
                await anyio.sleep(limits.DISK_RETRY_SECONDS)
            return False
        finally:
            engine.recount()
        _log.warning("segment %d: %d batches written again", self._last_id, len(again))
        return True

    # --- state ----------------------------------------------------------------------------------

    def _ill(self, what: str) -> None:
        if self.trouble != what:
            _log.error("disk trouble: %s; everything not synced is held in memory", what)
        self.trouble = what

    def _well(self) -> None:
        _log.warning("disk trouble is over: %s", self.trouble)
        self.trouble = None
        self._engine.disk_full = False
