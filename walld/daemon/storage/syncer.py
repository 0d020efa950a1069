"""Syncs written segments, on a cadence of its own.

Owns: carrying out syncs, one after the other, and telling whom each concerns. Refuses: when one is
due (`engine/flush_schedule.py`), where batches stand, and what follows when a sync fails
(`writer.py`, which has W2 and W4).

A sync has a thread to itself: while fdatasync(2) hangs, writes go on, and `syncing_since` says for
how long. What it makes durable is what was written when it began; of batches that moved to another
segment meanwhile it says nothing (W2), and nothing where another daemon owns the directory (W4).

Where somebody waits for the sync of what a flush writes, and no sync is under way, the writer's
thread itself begins it behind its write (`follow`): the way over the loop, there and back, would be
a fifth of what such an append takes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from walld import limits
from walld.daemon import event_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld.daemon.metrics import Metrics
    from walld.daemon.storage.disk_threads import Errand, Worker
    from walld.daemon.storage.writer import Writer
    from walld.daemon.transport.connections import Connections
    from walld.engine.engine import Engine
    from walld.wal.segment_files import SegmentFiles

__all__ = ["Syncer"]

_log = logging.getLogger("walld.wal")
_SLOW_SYNC_SECONDS = 1.0


class Syncer:
    """Syncs the segments of one engine."""

    def __init__(
        self,
        engine: Engine,
        connections: Connections,
        files: SegmentFiles,
        writer: Writer,
        metrics: Metrics,
        thread: Worker,
        synced: Callable[[], None],
    ) -> None:
        """synced: called after each sync: watermarks have moved, memory is free again."""
        self._engine = engine
        self._connections = connections
        self._files = files
        self._writer = writer
        self._metrics = metrics
        self._thread = thread
        self._synced = synced
        self._wanted = event_loop.Bell()
        self._under_way: _Sync | None = None
        """Until what follows its failure is done, too: no other begins beside that."""
        self._following: _Sync | None = None
        """One that the writer's thread may begin."""
        self.syncing_since: float | None = None
        """Since when a sync has not returned."""
        self._moving = anyio.CancelScope()
        """What follows a failed sync."""
        self._is_given_up = False
        self._tell_at: float | None = None
        """When a batch of its own says how far the last sync reached, unless one has by then."""

    def wake(self) -> None:
        """Something was written, or somebody waits for a sync of what is: is one due?"""
        self._wanted.ring()

    async def run(self) -> None:
        """Sync whenever one is due, for ever."""
        engine = self._engine
        while True:
            self._wanted.clear()
            now = event_loop.now()
            at = engine.schedule.sync_at(engine.batches.unsynced_bytes)
            is_due = at is not None and at <= now
            if self._under_way is not None or (is_due and self._may_begin()):
                await self.sync()
            elif is_due:
                await self._wanted.wait()
            elif self._tell_at is not None and self._tell_at <= now:
                self._tell_at = None
                await self._writer.tell_synced()
            else:
                due = [one for one in (at, self._tell_at) if one is not None]
                await self._wanted.wait(min(due) - now if due else None)

    def stop_waiting(self) -> None:
        """Nothing will ever be written there again: a stop waits for no new segment."""
        self._is_given_up = True
        self._moving.shield = False

    async def sync_all(self) -> None:
        """All that is written now, however often it takes: for a start, and for the end."""
        batches = self._engine.batches
        last = batches.written_no
        while batches.synced_no < last:
            await self.sync()

    # --- one sync -------------------------------------------------------------------------------

    def follow(self, target: int) -> _Sync | None:
        """A sync for the writer to start behind a batch that it is about to write, None while
        another is under way.
        """
        if not self._may_begin():
            return None
        self._following = self._sync_of(target)
        return self._following

    def _may_begin(self) -> bool:
        """No sync is under way. One that was to follow a write is taken back: that write may hang,
        or have failed.
        """
        if self._under_way is not None:
            return False
        if self._following is not None and not self._following.claim():
            return False  # begun: the loop hears of its write next
        self._following = None
        return True

    def _sync_of(self, target: int) -> _Sync:
        """A sync of everything up to a batch, which is written or about to be."""
        segments, batches = self._engine.segments, self._engine.batches
        of = segments.between(batches.synced_no + 1, target)
        goes_there = target > batches.written_no
        is_bare = segments.current.is_empty and not goes_there
        if (goes_there or is_bare) and segments.current not in of:
            of.append(segments.current)  # where it is bare it may soon be all that is left
        named_no = 0 if is_bare else target
        ids = [segment.segment_id for segment in of]

        def job() -> None:
            self._files.sync(ids)
            self._writer.has_synced(max(ids, default=0), named_no)

        errand = self._thread.errand(job)
        return _Sync(target, ids, self._writer.generation, errand, self._written)

    def _written(self, sync: _Sync) -> None:
        if sync is self._following:
            self._following = None
            self._begun(sync)

    def _begun(self, sync: _Sync) -> None:
        """It runs in the thread by now, or soon."""
        self._under_way = sync
        self.syncing_since = event_loop.now()
        self._engine.schedule.sync_begun()
        self._engine.batches.sync_begun(sync.target)
        self._wanted.ring()

    async def sync(self) -> None:
        """Make durable what is written now, or see the sync under way to its end; and tell whom it
        concerns.
        """
        await checkpoint_if_cancelled()
        engine = self._engine
        if self._may_begin():
            own = self._sync_of(engine.batches.written_no)
            own.start()
            self._begun(own)
        sync = self._under_way
        assert sync is not None, "a sync whose write is not awaited"
        try:
            took = await sync.errand.timed()
        except OSError as error:
            self.syncing_since = None
            engine.batches.sync_ended()
            try:
                what = f"sync up to batch {sync.target}: {error.strerror or error}"
                # Not to be cut short by a stop: its own sync would be the second of this file.
                self._moving = anyio.CancelScope(shield=not self._is_given_up)
                with self._moving:
                    await self._writer.sync_failed(what, error.errno, sync.generation)
                await self._writer.pause()
            finally:
                self._under_way = None
            return
        self._under_way = self.syncing_since = None
        engine.batches.sync_ended()
        if sync.generation != self._writer.generation:
            # Meanwhile a failed write moved the batches to a new segment: this sync was not its.
            engine.schedule.written(event_loop.now())
            return
        self._metrics.wal_fsync_duration.observe(took)
        if took > _SLOW_SYNC_SECONDS:
            _log.warning("slow fdatasync: %.3f s for segments %s", took, sync.ids)
        engine.schedule.sync_cost(took)
        engine.synced(sync.target)
        self._writer.synced()
        self._synced()
        self._connections.send_posted()
        self._tell_at = event_loop.now() + limits.TELL_SYNCED_SECONDS


class _Sync:
    """One sync of the segments `ids`, which makes everything up to batch `target` durable."""

    def __init__(
        self,
        target: int,
        ids: list[int],
        generation: int,
        errand: Errand,
        written: Callable[[_Sync], None],
    ) -> None:
        self.target = target
        self.ids = ids
        self.generation = generation
        self.errand = errand
        self._written = written
        self._unclaimed = [True]

    def claim(self) -> bool:
        """True for the first who asks: the writer's thread, to begin it, or the loop, to take it
        back.
        """
        try:
            return self._unclaimed.pop()
        except IndexError:
            return False

    def start(self) -> None:
        """In whatever thread: what it is of is written."""
        if self.claim():
            self.errand.start()

    def written(self) -> None:
        """On the loop: it has heard of that write."""
        self._written(self)
