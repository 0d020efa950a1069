"""Opens the first segment of a start, on a full disk once there is room.

Owns: when the log of a start can be written to, and that a start goes on where only room is
missing for that. Refuses: how a segment is opened and written (`writer.py`), what is found
(`startup_recovery.py`).

A full disk is no reason to hide a reply. With its reserve spent not even a segment can be begun:
the start goes on all the same, what is there is served, what agents say waits in memory, and what
would have to be written before it is answered is refused (`disk_full`). Segments that nobody needs
go meanwhile: the disk may be full of those alone. Not where something of the old log could not be
made durable: it must be written again before anything may be called synced.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from walld.wal.verdict import TORN

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from walld.daemon.storage.compaction import Compaction
    from walld.daemon.storage.syncer import Syncer
    from walld.daemon.storage.writer import Writer
    from walld.engine.engine import Engine
    from walld.recovery.startup_recovery import RecoveredStorage

__all__ = ["FirstSegment"]


class FirstSegment:
    """Of one start."""

    def __init__(
        self, engine: Engine, writer: Writer, syncer: Syncer, compaction: Compaction
    ) -> None:
        self._engine = engine
        self._writer = writer
        self._syncer = syncer
        self._compaction = compaction
        self._may_go_on = anyio.Event()
        self._rest = anyio.CancelScope()
        self._is_given_up = False
        self._recovered: RecoveredStorage | None = None
        self.is_over = anyio.Event()
        """The log can be written to."""

    async def begin(self, tasks: TaskGroup, recovered: RecoveredStorage) -> None:
        """Return when that is done, or is known to wait for room."""
        self._recovered = recovered
        if not recovered.not_synced.segment_ids:
            self._writer.starved = self._starved
        tasks.start_soon(self._run, recovered)
        await self._may_go_on.wait()

    async def _starved(self) -> None:
        self._engine.batches.shut()
        # A stop must find the numbers that it has given all written.
        self._rest.shield = not self._is_given_up
        self._may_go_on.set()
        if self._may_segments_go():
            with suppress(OSError):  # it is tried again before long
                await self._compaction.unlink()

    def stop_waiting(self) -> None:
        """Nothing will ever be written there again: a stop waits for no room."""
        self._is_given_up = True
        self._rest.shield = False

    def _may_segments_go(self) -> bool:
        """All that this start has to write down is, at most, that something was torn: a later start
        says so again where it finds that, and misses nothing where it does not.
        """
        if self._recovered is None:
            return False
        verdict = self._recovered.verdict
        is_hurt = verdict.corrupt or verdict.unreadable
        return not is_hurt and all(row.verdict == TORN for row in verdict.rows())

    async def _run(self, recovered: RecoveredStorage) -> None:
        """May be cut short, and begun anew, until it has a segment."""
        writer, syncer, verdict = self._writer, self._syncer, recovered.verdict
        await writer.begin(recovered.last_segment_id, verdict)
        with self._rest:
            await writer.write_rows(verdict.rows())
            await syncer.sync_all()
            await self._compaction.rename_residues(recovered.residues)
            if recovered.not_synced.segment_ids:
                await self._compaction.rescue(recovered.not_synced)
                await writer.write_rows(recovered.not_synced.rows())
                await syncer.sync_all()
            await writer.rows_synced()
            await writer.tell_synced()  # damage from now on is none of what a crash leaves
            writer.starved = None
            self._engine.batches.opened()
            self.is_over.set()
            self._may_go_on.set()

    async def finish(self) -> bool:
        """At the end: what was taken is written, however long that has to wait for room.

        False where nothing was taken, and the log is as it was found.
        """
        if (
            not self.is_over.is_set()
            and self._engine.batches.waiting
            and self._recovered is not None
        ):
            await self._run(self._recovered)
        return self.is_over.is_set()
