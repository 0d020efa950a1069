"""Planted bugs: what is acknowledged, when a sync is due, and when it counts."""

from __future__ import annotations

from .mutant import DAEMON, ENGINE, Mutant

__all__ = ["MUTANTS"]

MUTANTS = (
    Mutant(
        "acknowledged from the stream instead of the batch",
        ENGINE + "core.py",
        "                    stream.synced_seq = part.last_seq\n",
        "                    stream.synced_seq = stream.next_seq - 1\n",
        "B1",
        "190",
    ),
    Mutant(
        "acknowledged when it is written, before the sync",
        ENGINE + "core.py",
        "            (stream.begin.number, stream.written_seq, stream.synced_seq)\n",
        "            (stream.begin.number, stream.written_seq, stream.written_seq)\n",
        "P4",
        "1580",
    ),
    Mutant(
        "what is written is synced only where somebody waits",
        ENGINE + "flush_schedule.py",
        "        return self._unsynced_since + min(period, self.bound)\n",
        "        return self._unsynced_since + 20 * self.bound\n",
        "P4",
        "50115",
    ),
    Mutant(
        "acknowledged when the sync begins",
        DAEMON + "storage/syncer.py",
        "        self.syncing_since = event_loop.now()\n",
        "        self.syncing_since = event_loop.now()\n        self._engine.synced(sync.target)\n",
        "P4",
        "190",
    ),
    Mutant(
        "a sync that fails is taken for done",
        DAEMON + "storage/syncer.py",
        "                    await self._writer.sync_failed(what, error.errno, sync.generation)\n"
        "                await self._writer.pause()\n"
        "            finally:\n"
        "                self._under_way = None\n"
        "            return\n",
        "                    _log.error(what)\n            finally:\n                took = 0.0\n",
        "P8",
        "2038",
    ),
    Mutant(
        "a sync that failed is tried again on the same file",
        DAEMON + "storage/syncer.py",
        "                    await self._writer.sync_failed(what, error.errno, sync.generation)\n",
        "                    _log.error(what)\n"
        "                    engine.schedule.written(event_loop.now())\n",
        "P8",
        "2038",
    ),
    Mutant(
        "only the current segment is synced",
        DAEMON + "storage/syncer.py",
        "        ids = [segment.segment_id for segment in of]\n",
        "        ids = [segment.segment_id for segment in of[-1:]]\n",
        "P4",
        "190",
    ),
    Mutant(
        "LOCK names a batch before it is synced",
        DAEMON + "storage/syncer.py",
        "            self._files.sync(ids)\n            self._writer.has",
        "            self._writer._owner.synced(max(ids, default=0), named_no)\n"
        "            self._files.sync(ids)\n            self._writer.has",
        "P9",
        "190",
    ),
    Mutant(
        "a sync that follows a write begins before it",
        DAEMON + "storage/writer.py",
        "            self._files.write(segment.segment_id, sealed.batch, synced_no, offset)\n"
        "            self.check_owner()\n"
        "            if following",
        "            if following is not None:\n"
        "                following.errand._job()\n"
        "                following.errand._job = lambda: None\n"
        "            self._files.write(segment.segment_id, sealed.batch, synced_no, offset)\n"
        "            self.check_owner()\n"
        "            if following",
        "P4",
        "223",
    ),
    Mutant(
        "a sync begins beside the moving of what another one lost",
        DAEMON + "storage/syncer.py",
        "            self.syncing_since = None\n            engine",
        "            self.syncing_since = self._under_way = None\n            engine",
        "P8",
        "4449",
    ),
    Mutant(
        "a sync counts for batches that moved while it ran",
        DAEMON + "storage/syncer.py",
        "        if sync.generation != self._writer.generation:\n",
        "        if sync.generation > self._writer.generation:\n",
        "P8",
        "729",
    ),
    Mutant(
        "whoever waits for a sync is told at the write",
        ENGINE + "core.py",
        '            if waiter.level == "written" or recorded_no <= self.batches.synced_no:\n',
        '            if waiter.level == "written" or recorded_no <= self.batches.written_no:\n',
        "P4",
        "40",
    ),
    Mutant(
        "resume of what is gone is acknowledged at once",
        ENGINE + "resume.py",
        '        self._core.when("synced", partial(self._done, connection, resume), '
        "self._core.since)\n",
        "        self._done(connection, resume)\n",
        "P4",
        "1580",
    ),
    Mutant(
        "acks only to the connection that spoke last",
        ENGINE + "core.py",
        "            for connection in producer.connections:\n"
        "                connection.dirty.add(stream)\n",
        "            if stream.connection is not None:\n"
        "                stream.connection.dirty.add(stream)\n",
        "P2",
        "1048",
    ),
)
