"""The syncer: what is written becomes durable, on a cadence of its own.

Owns: carrying out syncs, one after the other, and telling whom each concerns. Refuses: when one is
due (`engine/commit.py`), where batches stand, and what follows when a sync fails (`writer.py`).

A sync has a thread to itself: while fdatasync(2) hangs, writes go on, and `syncing_since` says for
how long. What it makes durable is what was written when it began; of batches that moved to another
segment meanwhile it says nothing (W2), and nothing where another daemon owns the directory (W4).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from walld import limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld.daemon.connections import Connections
    from walld.daemon.metrics import Metrics
    from walld.daemon.workers import Worker
    from walld.daemon.writer import Writer
    from walld.engine.engine import Engine
    from walld.wal.files import SegmentFiles

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
        self._wanted = anyio.Event()
        self.syncing_since: float | None = None
        """Since when a sync has not returned."""
        self._tell_at: float | None = None
        """When a batch of its own says how far the last sync reached, unless one has by then."""

    def wake(self) -> None:
        """Something was written, or somebody waits for a sync of what is: is one due?"""
        self._wanted.set()

    async def run(self) -> None:
        """Sync whenever one is due, for ever."""
        engine = self._engine
        while True:
            self._wanted = anyio.Event()
            now = anyio.current_time()
            at = engine.commit.sync_at(engine.sealing.unsynced_bytes)
            if at is not None and at <= now:
                await self.sync()
            elif self._tell_at is not None and self._tell_at <= now:
                self._tell_at = None
                await self._writer.tell_synced()
            else:
                due = [one for one in (at, self._tell_at) if one is not None]
                with anyio.move_on_after(min(due) - now if due else None):
                    await self._wanted.wait()

    async def sync_all(self) -> None:
        """All that is written now, however often it takes: for a start, and for the end."""
        sealing = self._engine.sealing
        last = sealing.written_no
        while sealing.synced_no < last:
            await self.sync()

    async def sync(self) -> None:
        """Make durable what is written now, and tell whom it concerns."""
        engine = self._engine
        target = engine.sealing.written_no
        segments = engine.segments.between(engine.sealing.synced_no + 1, target)
        engine.commit.sync_begun()
        ids = [segment.segment_id for segment in segments]
        generation = self._writer.generation

        def job() -> None:
            self._files.sync(ids)
            self._writer.check_owner()

        self.syncing_since = anyio.current_time()
        try:
            took = await self._thread.timed(job)
        except OSError as error:
            self.syncing_since = None
            what = f"sync up to batch {target}: {error.strerror or error}"
            # Not to be cut short by a stop: its own sync would be the second of this file.
            with anyio.CancelScope(shield=True):
                await self._writer.sync_failed(what, error.errno, generation)
            await self._writer.pause()
            return
        self.syncing_since = None
        if generation != self._writer.generation:
            # Meanwhile a failed write moved the batches to a new segment: this sync was not its.
            engine.commit.written(anyio.current_time())
            return
        self._metrics.wal_fsync_duration.observe(took)
        if took > _SLOW_SYNC_SECONDS:
            _log.warning("slow fdatasync: %.3f s for segments %s", took, ids)
        engine.commit.sync_cost(took)
        engine.synced(target)
        self._writer.synced()
        self._synced()
        self._connections.send_posted()
        self._tell_at = anyio.current_time() + limits.TELL_SYNCED_SECONDS
