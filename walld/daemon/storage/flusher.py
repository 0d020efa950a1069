"""Flushes everything queued of all streams whenever a flush is due.

Owns: carrying out flushes, what each cost and how long its oldest event had waited. Refuses: when
one is due (`engine/flush_schedule.py`), what is in a batch (`engine/batch_builder.py`), how a batch
gets to disk (`writer.py`), syncs (`syncer.py`).

    wait until one is due, or room for what is not synced
    seal what is queued, a slice between two yields; write each batch that is full; the rest
    tell who waits, and the syncer; learn from what it cost

Sealing yields, so that agents are swept meanwhile; what they say then belongs to the next flush.
"""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint

from walld import limits
from walld.daemon import event_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld.daemon.metrics import Metrics
    from walld.daemon.storage.syncer import Syncer
    from walld.daemon.storage.writer import Follow, Writer
    from walld.daemon.transport.connections import Connections
    from walld.engine.engine import Engine

__all__ = ["Flusher"]

_log = logging.getLogger("walld.wal")
_SEAL_RECORDS = 200
"""Records sealed between two yields: about half a millisecond."""


class Flusher:
    """Flushes the queue of one engine."""

    def __init__(
        self,
        engine: Engine,
        connections: Connections,
        writer: Writer,
        syncer: Syncer,
        metrics: Metrics,
        begun: Callable[[], None],
        wrote: Callable[[float], None],
        flushed: Callable[[], None],
    ) -> None:
        """begun: called when a flush has taken what waits, so that agents may give more.

        wrote: seconds that a write of the disk took, without all that came before it.
        flushed: called after each flush: watermarks have moved.
        """
        self._engine = engine
        self._connections = connections
        self._writer = writer
        self._syncer = syncer
        self._metrics = metrics
        self._begun = begun
        self._wrote = wrote
        self._flushed = flushed
        self._changed = event_loop.Bell()
        self._sleeps_until: float | None = None
        self._shortened = False

    def wake(self) -> None:
        """Something was queued, or somebody waits: is the next flush nearer than thought?"""
        at = self._engine.schedule.flush_at()
        if at is not None and (self._sleeps_until is None or at < self._sleeps_until):
            self._changed.ring()

    def synced(self) -> None:
        """A sync has returned: what waited for memory, or for a disk that works, may go on."""
        self._changed.ring()

    async def run(self) -> None:
        """Flush whenever one is due, for ever."""
        while True:
            self._changed.clear()
            at = self._engine.schedule.flush_at()
            wait = None if at is None else at - event_loop.now()
            if wait is None or wait > 0:
                self._sleeps_until = at
                if self._engine.disk_full:
                    # Also while nobody speaks it is looked whether there is room again (P7).
                    wait = min(wait or math.inf, limits.DISK_RETRY_SECONDS)
                is_over = not await self._changed.wait(wait)
                if self._engine.disk_full and is_over:
                    await self._writer.has_room_again()
                continue
            if self._engine.batches.unsynced_bytes >= limits.UNSYNCED_BYTES_MAX:
                # What is not synced must stay in memory, so writing waits for the syncer here.
                self._engine.schedule.hurry_sync()
                self._syncer.wake()
                await self._changed.wait(limits.DISK_RETRY_SECONDS)
                continue
            await self.flush()
            if self._engine.disk_full and not await self._writer.has_room_again():
                await self._changed.wait(limits.DISK_RETRY_SECONDS)

    async def flush(self) -> None:
        """Write everything queued now, in batches of one write(2) each."""
        engine, started = self._engine, event_loop.now()
        oldest = engine.schedule.flush_begun()
        left, waiters = engine.begin_flush()
        self._begun()
        is_sync_awaited = any(waiter.level == "synced" for waiter in waiters)
        cost = await self._write_out(left, self._syncer.follow if is_sync_awaited else None)
        engine.schedule.flush_ended()
        if engine.batches.ends_only and engine.batches.waiting:
            engine.not_flushed(waiters, oldest)
        else:
            engine.flushed(waiters)
        self._connections.send_posted()
        ended = event_loop.now()
        if oldest is not None:
            self._metrics.flush_lag.observe(ended - oldest)
        # What the flush itself took: intake's sweeps between its slices are not its cost.
        engine.schedule.flush_cost(cost, ended - started)
        self._metrics.flush_duration.observe(cost)
        self._syncer.wake()
        self._flushed()
        self._say_what_is_off(oldest, ended)

    async def _write_out(self, left: int, follow: Follow | None) -> float:
        """Seal and write that many of what waits; `follow` the last batch. Returns the seconds it
        cost.
        """
        batches, cost = self._engine.batches, 0.0
        while left > 0 or batches.is_building:
            begun = time.perf_counter()
            asked = min(left, _SEAL_RECORDS)
            done = batches.seal_some(asked, event_loop.now())
            left += batches.take_jumped() - done
            more = left > 0 and done == asked
            sealed = None if more else batches.finish()
            cost += time.perf_counter() - begun
            if more:
                await checkpoint()
            elif sealed is None:
                break
            else:
                took = await self._writer.write(sealed, None if left > 0 else follow)
                self._wrote(took)
                cost += took
        return cost

    def _say_what_is_off(self, oldest: float | None, now: float) -> None:
        schedule = self._engine.schedule
        if schedule.linger_shortened != self._shortened:
            self._shortened = not self._shortened
            less = f"shortened to {schedule.linger * 1000:.0f} ms"
            _log.warning("linger: %s", less if self._shortened else "as it was set again")
        if oldest is not None and (age := now - oldest) > schedule.bound:
            _log.error(
                "flush bound breached: oldest event waited %.3f s, bound %.3f s",
                age,
                schedule.bound,
            )

    async def finish(self) -> None:
        """The end: whatever is taken becomes durable, however long the disk needs for it."""
        while unwritten := self._engine.batches.unwritten:
            # A flush, or a rewrite, was cancelled between sealing and writing.
            await self._writer.write(unwritten[0])
        await self.flush()
        while self._engine.batches.waiting:  # a full disk has taken ends alone
            if not await self._writer.has_room_again():
                await anyio.sleep(limits.DISK_RETRY_SECONDS)
            await self.flush()
        await self._syncer.sync_all()
        if self._engine.batches.waiting:  # what waited for that sync
            await self.flush()
            await self._syncer.sync_all()
        await self._writer.tell_synced()
