"""The planted bugs: one replacement in one file each, and the promise it breaks.

Owns: the list. Refuses: whether they are found (`cage.py`).

Each is a mistake that somebody could make, or once made here or in another log; some have a row in
the track record of ARCHITECTURE.md. A name says what the wrong code does. Not in the list, because
nobody could tell: a mutant that does the same as the right code (`test_zoo.py` has the reasons).
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MUTANTS", "Mutant"]


class Mutant(NamedTuple):
    """old stands in the file once; new takes its place. promise: its number in ARCHITECTURE.md."""

    name: str
    path: str
    old: str
    new: str
    promise: str


_CLIENT = "clients/python/walld_client/"
_DAEMON = "walld/daemon/"
_ENGINE = "walld/engine/"
_WAL = "walld/wal/"

_ACKNOWLEDGED = (
    Mutant(
        "acknowledged from the stream instead of the batch",
        _ENGINE + "sealing.py",
        "                    stream.synced_seq = part.last_seq\n",
        "                    stream.synced_seq = stream.next_seq - 1\n",
        "B1",
    ),
    Mutant(
        "acknowledged when it is written, before the sync",
        _ENGINE + "engine.py",
        "            (stream.begin.number, stream.written_seq, stream.synced_seq)\n",
        "            (stream.begin.number, stream.written_seq, stream.written_seq)\n",
        "P4",
    ),
    Mutant(
        "acknowledged when the sync begins",
        _DAEMON + "syncer.py",
        "        self.syncing_since = anyio.current_time()\n        try:\n",
        "        self.syncing_since = anyio.current_time()\n"
        "        engine.synced(target)\n"
        "        try:\n",
        "P4",
    ),
    Mutant(
        "a sync taken to cover what was written while it ran",
        _DAEMON + "syncer.py",
        "        engine.synced(target)\n",
        "        target = engine.sealing.written_no\n        engine.synced(target)\n",
        "P4",
    ),
    Mutant(
        "a sync that fails is taken for done",
        _DAEMON + "syncer.py",
        "            await self._writer.sync_failed(what, generation)\n            return\n",
        "            _log.error(what)\n            took = 0.0\n",
        "P8",
    ),
    Mutant(
        "a sync that failed is tried again on the same file",
        _DAEMON + "syncer.py",
        "            await self._writer.sync_failed(what, generation)\n",
        "            _log.error(what)\n            engine.commit.written(anyio.current_time())\n",
        "P8",
    ),
    Mutant(
        "only the current segment is synced",
        _DAEMON + "syncer.py",
        "        ids = [segment.segment_id for segment in segments]\n",
        "        ids = [segment.segment_id for segment in segments[-1:]]\n",
        "P4",
    ),
    Mutant(
        "a sync counts for batches that moved while it ran",
        _DAEMON + "syncer.py",
        "        if generation != self._writer.generation:\n",
        "        if generation > self._writer.generation:\n",
        "P8",
    ),
    Mutant(
        "whoever waits for a sync is told at the write",
        _ENGINE + "engine.py",
        '            if waiter.level == "written" or recorded_no <= self.sealing.synced_no:\n',
        '            if waiter.level == "written" or recorded_no <= self.sealing.written_no:\n',
        "P4",
    ),
    Mutant(
        "resume of what is gone is acknowledged at once",
        _ENGINE + "engine.py",
        '            self.when("synced", partial(self._done_with, connection, resume), self.since)\n',
        "            self._done_with(connection, resume)\n",
        "P4",
    ),
    Mutant(
        "acks only to the connection that spoke last",
        _ENGINE + "engine.py",
        "            for connection in producer.connections:\n"
        "                connection.dirty.add(stream)\n",
        "            if stream.connection is not None:\n"
        "                stream.connection.dirty.add(stream)\n",
        "P2",
    ),
)

_RELEASED = (
    Mutant(
        "a release is acknowledged before its tombstone is synced",
        _ENGINE + "engine.py",
        "        if stream.records == 0 and not stream.building and kept is None:\n"
        "            stream.written_seq = stream.synced_seq = seq\n"
        "            self._moved(stream)\n"
        "            return\n",
        "        stream.written_seq = stream.synced_seq = seq\n"
        "        self._moved(stream)\n"
        "        if stream.records == 0 and not stream.building and kept is None:\n"
        "            return\n",
        "P5",
    ),
    Mutant(
        "released before its first flush, though it has records",
        _ENGINE + "engine.py",
        "        if stream.records == 0 and not stream.building and kept is None:\n",
        "        if stream.synced_seq < 0 and not stream.building and kept is None:\n",
        "P5",
    ),
    Mutant(
        "released before its first flush, though it is in the batch being built",
        _ENGINE + "engine.py",
        "        if stream.records == 0 and not stream.building and kept is None:\n",
        "        if stream.records == 0 and kept is None:\n",
        "P5",
    ),
    Mutant(
        "the records of a released reply stay alive",
        _ENGINE + "sealing.py",
        "            self._segments.died(place.batch_no, place.length, after, self.now)\n",
        "            assert after\n",
        "P5",
    ),
    Mutant(
        "a segment goes before what ordered it is synced",
        _ENGINE + "segments.py",
        "        if oldest.live_bytes or oldest.unlink_after > synced_no:\n",
        "        if oldest.live_bytes:\n",
        "G3",
    ),
    Mutant(
        "a segment goes before the carried copies are synced",
        _ENGINE + "sealing.py",
        "            self._segments.died(was.batch_no, was.length, place.batch_no, None)\n",
        "            self._segments.died(was.batch_no, was.length, 0, None)\n",
        "G3",
    ),
    Mutant(
        "a segment with tombstones in it goes as soon as it is oldest",
        _ENGINE + "sealing.py",
        "            current.unlink_after = max(current.unlink_after, batch.batch_no)\n",
        "            current.unlink_after = max(current.unlink_after, 0)\n",
        "G3",
    ),
    Mutant(
        "the name of an unlinked segment is not synced away",
        _WAL + "files.py",
        "        except FileNotFoundError:\n            return\n        self._disk.sync_dir(WAL_DIR)\n",
        "        except FileNotFoundError:\n            return\n",
        "K1",
    ),
    Mutant(
        "a carried copy is not checked for staleness",
        _ENGINE + "sealing.py",
        "        if stream.gone or tuple(stream.where[carry.at : carry.at + carry.records])"
        " != carry.was:\n",
        "        if len(carry.body) == 0:\n",
        "B4",
    ),
    Mutant(
        "a stream's records are carried twice at a time",
        _DAEMON + "reclaimer.py",
        "            if stream.gone or stream.carrying or not stream.where or"
        " min(stream.where) >= bound:\n",
        "            if stream.gone or not stream.where or min(stream.where) >= bound:\n",
        "B4",
    ),
    Mutant(
        "a carried record does not say that its Begin is in it",
        _DAEMON + "reclaimer.py",
        "            flags |= Flag.BEGIN\n",
        "            flags |= 0\n",
        "P6",
    ),
    Mutant(
        "a carried record does not say that its end is in it",
        _DAEMON + "reclaimer.py",
        "                flags |= Flag.TERMINAL\n",
        "                flags |= 0\n",
        "P6",
    ),
    Mutant(
        "a start does not put carried copies in their place",
        _WAL + "index.py",
        "        records = found if carried is None else self._in_place(found, carried)\n",
        "        records = found\n",
        "P6",
    ),
    Mutant(
        "carrying has no budget",
        _DAEMON + "reclaimer.py",
        "        return (large or late) and self._engine.carry_budget > 0\n",
        "        return large\n",
        "P5",
    ),
)

_WRITTEN = (
    Mutant(
        "a write that fails is taken for written",
        _DAEMON + "writer.py",
        "            self._files.write(segment.segment_id, sealed.batch, synced_no, offset)\n",
        "            try:\n"
        "                self._files.write(segment.segment_id, sealed.batch, synced_no, offset)\n"
        "            except OSError as error:\n"
        '                _log.error("write: %s", error)\n',
        "P8",
    ),
    Mutant(
        "a short write is not continued",
        _WAL + "files.py",
        "        while done < len(data):\n",
        "        while not done:\n",
        "P4",
    ),
    Mutant(
        "a short write is continued from the beginning",
        _WAL + "files.py",
        "            taken = file.write_at(data[done:], offset + done)\n",
        "            taken = file.write_at(data, offset + done)\n",
        "P4",
    ),
    Mutant(
        "a partial's short write is not continued",
        "walld/disk/composed.py",
        "    while written < len(data):\n",
        "    while not written:\n",
        "T1",
    ),
    Mutant(
        "a full disk: one batch too many is cut off",
        _DAEMON + "writer.py",
        "            await self._thread.run(lambda: self._files.cut(segment.segment_id,"
        " segment.size))\n",
        "            size = segment.offsets[-1] if segment.offsets else segment.size\n"
        "            await self._thread.run(lambda: self._files.cut(segment.segment_id, size))\n",
        "P7",
    ),
    Mutant(
        "a disk that was full goes on writing ends alone",
        _DAEMON + "writer.py",
        "        self._engine.disk_full = self._engine.sealing.ends_only = False\n",
        "        self._engine.disk_full = False\n",
        "P7",
    ),
    Mutant(
        "the names of new segments are not synced",
        _WAL + "files.py",
        "            if segment_id in self._unnamed:\n"
        "                self._disk.sync_dir(WAL_DIR)\n",
        "            if segment_id in self._unnamed:\n",
        "P4",
    ),
    Mutant(
        "headers say that what is written is synced",
        _DAEMON + "writer.py",
        "        offset, synced_no = segment.size, engine.sealing.synced_no\n",
        "        offset, synced_no = segment.size, engine.sealing.written_no\n",
        "P9",
    ),
    Mutant(
        "a start's headers call synced what it has not made so yet",
        _DAEMON + "writer.py",
        "            synced_no = min(synced_no, self._synced_no_max)\n",
        "            assert self._synced_no_max >= 0\n",
        "P9",
    ),
    Mutant(
        "a failed sync: what was written behind it is not written again",
        _ENGINE + "sealing.py",
        "range(self.synced_no + 1, self.reached_no + 1)]\n        self.written_no",
        "range(self.synced_no + 1, self.written_no + 1)]\n        self.written_no",
        "P8",
    ),
    Mutant(
        "a poisoned segment keeps its place in the order of numbers",
        _ENGINE + "segments.py",
        "                segment.first_batch = min(segment.first_batch, synced_no + 1)\n",
        "                assert segment.first_batch\n",
        "G1",
    ),
    Mutant(
        "a failed sync poisons the current segment alone",
        _ENGINE + "segments.py",
        "            if segment.last_batch > synced_no or segment is self._list[-1]:\n",
        "            if segment is self._list[-1]:\n",
        "P8",
    ),
    Mutant(
        "live bytes are not counted anew after a rewrite",
        _DAEMON + "writer.py",
        "            engine.recount()\n",
        "            engine.commit.hurry_sync()\n",
        "G2",
    ),
    Mutant(
        "a batch may say that it follows batches not yet known",
        _WAL + "encode.py",
        "            tops[at] = 1 << (8 << code)\n",
        "            tops[at] = (1 << (8 << code)) + 1\n",
        "P9",
    ),
    Mutant(
        "a flush waits for company beyond the bound",
        _ENGINE + "commit.py",
        "        return 0.0 if self._hurry_flush else self._oldest + self.linger\n",
        "        return 0.0 if self._hurry_flush else self._oldest + 3 * self.bound\n",
        "P3",
    ),
    Mutant(
        "what nobody waits for is never synced",
        _ENGINE + "commit.py",
        "        return self._unsynced_since + min(period, self.bound)\n",
        "        return self._unsynced_since + 100 * period\n",
        "P4",
    ),
    Mutant(
        "a stop does not read what the kernel holds",
        _DAEMON + "serve.py",
        "            await self.intake.read_to_end()\n",
        "            await self._door_shut()\n".replace("self._door_shut()", "self.door.shut()"),
        "P1",
    ),
    Mutant(
        "a stop does not flush",
        _DAEMON + "serve.py",
        "            await self.flusher.finish()\n",
        "            await self.syncer.sync_all()\n",
        "P1",
    ),
    Mutant(
        "a stop does not sync",
        _DAEMON + "flusher.py",
        "        await self._syncer.sync_all()\n",
        "        self._syncer.wake()\n",
        "P4",
    ),
)

_STARTED = (
    Mutant(
        "a start believes what an earlier daemon may have failed to sync",
        _DAEMON + "mend.py",
        "    failed = resync(disk, log_uuid, _tails(log, segments, verdict.synced_no))\n",
        "    failed = resync(disk, log_uuid, {})\n",
        "P4",
    ),
    Mutant(
        "a start syncs the end of the log and does not write it again",
        _DAEMON + "resync.py",
        "            file.write_at(data, offset)\n",
        "            assert data\n",
        "P4",
    ),
    Mutant(
        "a start writes the end of a log again and does not sync it",
        _DAEMON + "resync.py",
        "            file.write_at(data, offset)\n        file.sync()\n",
        "            file.write_at(data, offset)\n",
        "P4",
    ),
    Mutant(
        "tombstones that a start cannot sync are not written again",
        _DAEMON + "reclaimer.py",
        "            engine.sealing.bury(Tombstone(no, seq, flag, None))\n",
        "            assert no and flag and seq >= 0\n",
        "P5",
    ),
    Mutant(
        "what a start cannot sync is not written again",
        _DAEMON + "reclaimer.py",
        "        wanted = [one for one in engine.segments if one.segment_id in"
        " not_synced.segment_ids]\n",
        "        wanted: list[Segment] = []\n",
        "P4",
    ),
    Mutant(
        "what a start found is not settled",
        _DAEMON + "writer.py",
        "        await self.settle(verdict.rows())\n",
        "        await self.settle([])\n",
        "V2",
    ),
    Mutant(
        "batches that a rewrite left behind are not settled",
        _WAL + "verdict.py",
        "        return found + self.stranded\n",
        "        return found\n",
        "V1",
    ),
    Mutant(
        "what a start wrote elsewhere is not settled",
        _DAEMON + "serve.py",
        "            await self.writer.settle(mended.not_synced.rows())\n",
        "            assert mended.not_synced.rows() is not None\n",
        "V1",
    ),
    Mutant(
        "zeros are taken for the end of the log",
        _WAL + "scan.py",
        "        if header is None:\n            found = self._search(position",
        "        if header is None and not any(self._view(position, 4)):\n"
        "            return None, self.facts.size\n"
        "        if header is None:\n            found = self._search(position",
        "C3",
    ),
    Mutant(
        "a hole is taken for the end of the log",
        _WAL + "scan.py",
        "            found = self._search(position + BATCH_ALIGNMENT)\n",
        "            found = self.facts.size\n",
        "C3",
    ),
    Mutant(
        "the CRC of a payload is not checked",
        _WAL + "scan.py",
        "    if len(payload) != header.payload_bytes or crc32(payload) != header.payload_crc:\n"
        "        return False, None\n",
        "    if len(payload) != header.payload_bytes:\n        return False, None\n",
        "C2",
    ),
    Mutant(
        "the CRC of a header is not checked",
        _WAL + "layout.py",
        "    if crc != _crc.unpack_from(data, _batch.size)[0]:\n        return None\n"
        "    magic, kind",
        "    magic, kind",
        "C2",
    ),
    Mutant(
        "the CRC of a record is not checked when it is read alone",
        _WAL + "records.py",
        "    if not check_body(stream_no, body):\n",
        "    if len(body) < BODY_CRC_BYTES:\n",
        "P9",
    ),
    Mutant(
        "what is missing above W is called corrupt",
        _WAL + "verdict.py",
        "            if first <= self._synced_no:\n"
        "                split = min(last, self._synced_no)\n",
        "            if first <= self._last_no:\n"
        "                split = min(last, self._last_no)\n",
        "V1",
    ),
    Mutant(
        "what is missing up to W is called torn",
        _WAL + "verdict.py",
        "            if first <= self._synced_no:\n"
        "                split = min(last, self._synced_no)\n",
        "            if last < self._base_no:\n"
        "                split = min(last, self._synced_no)\n",
        "V1",
    ),
    Mutant(
        "batch numbers of a torn tail are given again",
        _DAEMON + "restore.py",
        "    sealing.reached_no = verdict.last_batch_no\n",
        "    verdict.last_batch_no = max((b[-1][0] for s in mended.segments if (b := s.batches)),"
        " default=0)\n"
        "    sealing.written_no = sealing.synced_no = sealing.told_synced_no = "
        "verdict.last_batch_no\n"
        "    sealing.reached_no = verdict.last_batch_no\n",
        "B2",
    ),
    Mutant(
        "two segments with one range of numbers: one's offsets are taken for the other's",
        _ENGINE + "segments.py",
        "            self._overlaps |= segment.first_batch <= max(s.last_batch for s in"
        " self._list)\n",
        "            self._overlaps |= segment.segment_id <= last.segment_id\n",
        "G1",
    ),
    Mutant(
        "a LOCK of zeros keeps every daemon from starting",
        "walld/disk/owner.py",
        '        raise FormatError(f"{path}: {text}")\n    return None\n',
        '        raise FormatError(f"{path}: {text}")\n'
        "    if raw:\n"
        '        raise FormatError(f"{path}: not a LOCK")\n'
        "    return None\n",
        "P9",
    ),
    Mutant(
        "a start takes every stream for an orphan",
        _DAEMON + "restore.py",
        "    process = watch(found.begin.uid, owner)\n",
        "    process = watch(found.begin.uid, owner) if found.terminal else None\n",
        "L2",
    ),
    Mutant(
        "numbers of streams begin anew with each start",
        _DAEMON + "restore.py",
        "    engine.registry.last_no = max(mended.last_stream_no, max(partials, default=0))\n",
        "    engine.registry.last_no = max(partials, default=0)\n",
        "P6",
    ),
    Mutant(
        "a start forgets which partials are of its log",
        _DAEMON + "restore.py",
        "            by_no[facts.stream_no] = ((uid, session, name), facts.last_seq)\n",
        "            assert known\n",
        "P6",
    ),
)

_KEPT = (
    Mutant(
        "a failed send closes the connection",
        _DAEMON + "connections.py",
        "            sent = 0  # I2: the reading side finds out what is wrong\n",
        "            self.close(peer)\n            return\n",
        "I2",
    ),
    Mutant(
        "what a dead agent left is not read",
        _DAEMON + "intake.py",
        "                await self._read_out(peer)\n                if connection",
        "                if connection",
        "P1",
    ),
    Mutant(
        "of what a dead agent left one read is taken",
        _DAEMON + "intake.py",
        "                await self._read_out(peer)\n                if connection",
        "                peer.socket.recv(0)\n                if connection",
        "P1",
    ),
    Mutant(
        "a reset ends a connection before it is read to its end",
        _DAEMON + "intake.py",
        "            peer = by_fd.get(fd)\n            if peer is not None:\n"
        "                if self._is_paused:\n",
        "            peer = by_fd.get(fd)\n            if peer is not None and _ & select.EPOLLHUP:\n"
        "                self._connections.close(peer)\n"
        "            elif peer is not None:\n"
        "                if self._is_paused:\n",
        "I2",
    ),
    Mutant(
        "silence for three seconds is taken for death",
        _DAEMON + "intake.py",
        "        for process in self._processes.overdue(now):\n",
        '        heard = self.__dict__.setdefault("heard", {})\n'
        "        for stream in list(self._engine.registry.by_no.values()):\n"
        "            if heard.setdefault(stream.no, (stream.next_seq, now))[0] != stream.next_seq:\n"
        "                heard[stream.no] = stream.next_seq, now\n"
        "            if now - heard[stream.no][1] > 3 and stream.owner is not None:\n"
        '                self._engine.orphan(stream, "agent_lost")\n'
        "        for process in self._processes.overdue(now):\n",
        "L2",
    ),
    Mutant(
        "the end of a connection is taken for the death of its process",
        _DAEMON + "connections.py",
        "        self._processes.leave(process, anyio.current_time())\n",
        "        self._processes.leave(process, anyio.current_time())\n"
        "        if not process.connections:\n"
        '            self._engine.lose(process, "agent_lost")\n',
        "L2",
    ),
    Mutant(
        "the death of a process is never noticed",
        _DAEMON + "processes.py",
        "            self._exited.append(pidfd)\n",
        "            assert pidfd not in self._exited\n",
        "L2",
    ),
    Mutant(
        "a question is answered before the dead are seen off",
        _DAEMON + "requests.py",
        "        await self._intake.catch_up()\n",
        "        await anyio.sleep(0)\n",
        "Q1",
    ),
    Mutant(
        "an earlier connection of a producer is not read before the next one",
        _DAEMON + "intake.py",
        "                if not self._read(left, at_ms):\n                    break\n",
        "                break\n",
        "P2",
    ),
    Mutant(
        "the end of one connection forgets a producer that has another",
        _ENGINE + "registry.py",
        "        if not producer.streams and not producer.connections:\n",
        "        if not producer.streams:\n",
        "P2",
    ),
    Mutant(
        "what was taken already is taken again",
        _ENGINE + "rules.py",
        "        elif event.seq < stream.next_seq:\n",
        "        elif event.seq < stream.written_seq:\n",
        "P2",
    ),
    Mutant(
        "of a run that overlaps what was taken nothing is taken",
        _ENGINE + "rules.py",
        "            event = _rest_of_run(event, stream.next_seq) or event\n",
        "            event = event\n",
        "P2",
    ),
    Mutant(
        "a Start that comes again begins anew",
        _ENGINE + "rules.py",
        "        if event.stream <= producer.number_max and known is None:\n",
        "        if event.stream < producer.number_max and known is None:\n",
        "P2",
    ),
    Mutant(
        "a token joins a run whatever is missing before it",
        _ENGINE + "stream.py",
        "        if run is None or run.kind != kind or first_seq != self.next_seq:\n",
        "        if run is None or run.kind != kind:\n",
        "S1",
    ),
    Mutant(
        "tokens join a run of reasoning",
        _ENGINE + "stream.py",
        "        if run is None or run.kind != kind or first_seq != self.next_seq:\n",
        "        if run is None or first_seq != self.next_seq:\n",
        "P11",
    ),
    Mutant(
        "another event does not end a run",
        _ENGINE + "stream.py",
        "        if self._run is not None:\n            self._close_run()\n"
        "        self.waiting.append(Waiting(seq",
        "        self.waiting.append(Waiting(seq",
        "S1",
    ),
    Mutant(
        "runs are merged over a gap",
        "walld/replies/merge.py",
        "            or item.first_seq != last.last_seq + 1\n",
        "            or item.first_seq <= last.last_seq\n",
        "P10",
    ),
    Mutant(
        "a gap is not said",
        "walld/replies/fold.py",
        "            if first_seq > self.last_seq + 1:\n",
        "            if first_seq > self.last_seq + 1 and self.run is None:\n",
        "P10",
    ),
    Mutant(
        "what waits is not read",
        _DAEMON + "reading.py",
        "            waiting = [item.item for item in stream.waiting]\n",
        "            waiting = [item.item for item in stream.waiting[1:]]\n",
        "P11",
    ),
    Mutant(
        "what is in the batch being built is not read",
        _DAEMON + "reading.py",
        "            source += stream.building\n",
        "            source += ()\n",
        "S3",
    ),
    Mutant(
        "one user is shown what is another's",
        _DAEMON + "requests.py",
        "            streams = [s for s in registry.by_no.values() if s.begin.uid == uid]\n",
        "            streams = list(registry.by_no.values())\n",
        "P12",
    ),
    Mutant(
        "records die before the partial is durable",
        _DAEMON + "keeper.py",
        "        try:\n            last_seq = await self._thread.run(job)\n",
        "        here = KeptFacts(stream.no, stream.next_seq - 1, wal_until, begin.at_ms, has_ended)\n"
        "        session, name = path_name(session_id), path_name(begin.stream_id)\n"
        "        self._engine.keep(stream, session, name, here)\n"
        "        try:\n            await self._thread.run(job)\n            return\n",
        "K3",
    ),
    Mutant(
        "a partial is not synced",
        "walld/disk/composed.py",
        "                _write_whole(file, data)\n                file.sync()\n",
        "                _write_whole(file, data)\n",
        "T1",
    ),
    Mutant(
        "the name of a partial is not synced",
        "walld/disk/composed.py",
        "            raise\n        self.sync_dir(head)\n",
        "            raise\n",
        "T1",
    ),
    Mutant(
        "the name of a new directory is not synced",
        "walld/disk/composed.py",
        '                self.sync_dir("/".join(parts[: depth - 1]))\n',
        "",
        "T1",
    ),
    Mutant(
        "a partial is written over the old one",
        "walld/disk/composed.py",
        '        temporary = f"{head}/.{name}.tmp" if head else f".{name}.tmp"\n',
        "        temporary = path\n",
        "T1",
    ),
    Mutant(
        "a partial goes before its tombstone is written",
        _DAEMON + "keeper.py",
        "        if facts.wal_until >= self._engine.segments.first_batch:\n",
        "        if facts.wal_until < self._engine.segments.first_batch:\n",
        "K3",
    ),
    Mutant(
        "a partial is made while some of it is not written",
        _DAEMON + "keeper.py",
        "        if stream.written_seq < stream.next_seq - 1 and stream.records:\n            return\n"
        "        if self._is_on_its_way(stream):\n            return\n",
        "",
        "K3",
    ),
    Mutant(
        "a partial outlives a reply that was resolved while it was made",
        _DAEMON + "keeper.py",
        "            if stream.gone:\n                await self._remove(begin.uid, session, name)\n",
        "",
        "K3",
    ),
    Mutant(
        "a resolved orphan gets no tombstone",
        _DAEMON + "requests.py",
        "            self._engine.release(stream, Flag.RESOLVED, now)\n",
        "            stream.gone = True\n"
        "            self._engine.sealing.dropped(stream.drop_waiting())\n"
        "            self._engine.registry.remove(stream)\n"
        "            self._engine.orphans.pop(stream.no, None)\n",
        "P6",
    ),
)

_CLIENTS = (
    Mutant(
        "client: takes written for synced",
        _CLIENT + "hearing.py",
        "        for number, _written, synced in ack.streams:\n",
        "        for number, synced, _synced in ack.streams:\n",
        "P2",
    ),
    Mutant(
        "client: lets go of frames that are not synced",
        _CLIENT + "backlog.py",
        "                    if last > stream.synced and not stream.gone and seq not in"
        " stream.refused:\n",
        "                    if last > self.taken_seq(stream) and seq not in stream.refused:\n",
        "P2",
    ),
    Mutant(
        "client: does not resend",
        _CLIENT + "backlog.py",
        "        everything = self.sent\n",
        "        everything: deque[bytes] = deque()\n",
        "P2",
    ),
    Mutant(
        "client: does not resend what was on its way",
        _CLIENT + "backlog.py",
        "        everything.extend(frame for frame in self.outgoing if frame[5] not in"
        " (0, frames.RESUME))\n",
        "",
        "P2",
    ),
    Mutant(
        "client: resends the newest first",
        _CLIENT + "backlog.py",
        "        everything.extend(self.waiting)\n        self.waiting = everything\n",
        "        self.waiting.extend(everything)\n",
        "P2",
    ),
    Mutant(
        "client: a token overtakes what waits after EAGAIN",
        _CLIENT + "connection.py",
        "        self.flowing = False\n        self.backlog.unsend",
        "        self.backlog.unsend",
        "P2",
    ),
    Mutant(
        "client: an event overtakes what waits after EAGAIN",
        _CLIENT + "link.py",
        "        self.backlog.hold(stream, frame)\n\n    def push",
        "        self.backlog.waiting.appendleft(frame)\n"
        "        self.backlog._waits(len(frame) + 48, 1)\n\n    def push",
        "P2",
    ),
    Mutant(
        "client: a send that was taken in part is sent again whole",
        _CLIENT + "connection.py",
        "        self.backlog.unsend(stream, taken_bytes)\n",
        "        self.backlog.unsend(stream, 0)\n",
        "P1",
    ),
    Mutant(
        "client: a send that was taken in part counts as whole",
        _CLIENT + "reply.py",
        "                        if taken != length + 19:\n",
        "                        if not taken:\n",
        "P1",
    ),
    Mutant(
        "client: the rest of a resend is begun anew",
        _CLIENT + "backlog.py",
        "            self._out_at += taken\n",
        "            self._out_at += taken if taken == len(self._out) else 0\n",
        "P1",
    ),
    Mutant(
        "client: does not resume its streams",
        _CLIENT + "connection.py",
        "        return [framing.encode(hello), *map(framing.encode, resumes)]\n",
        "        return [framing.encode(hello), *map(framing.encode, resumes[:0])]\n",
        "P2",
    ),
    Mutant(
        "client: does not say that a stream it resumes is released",
        _CLIENT + "connection.py",
        "            messages.Resume(s.start, s.held_from, s.synced, s.next_seq, s.released)\n",
        "            messages.Resume(s.start, s.held_from, s.synced, s.next_seq, False)\n",
        "P5",
    ),
    Mutant(
        "client: forgets a stream once its release is sent",
        _CLIENT + "registry.py",
        "        if stream.is_settled() or (stream.gone and",
        "        if stream.released or (stream.gone and",
        "P5",
    ),
    Mutant(
        "client: a run whose beginning is synced is not resent",
        _CLIENT + "backlog.py",
        "            if not stream.gone and last > stream.synced and seq not in stream.refused:\n",
        "            if not stream.gone and seq > stream.synced and seq not in stream.refused:\n",
        "P2",
    ),
    Mutant(
        "client: gives up a stream released while the daemon is away",
        _CLIENT + "saying.py",
        "    if not stream.introduced and not link.is_pushing_next():\n",
        "    if not link.is_pushing_next():\n",
        "P5",
    ),
    Mutant(
        "client: a fold mixes up the order of a stream",
        _CLIENT + "frames.py",
        "            if run is not None and run.tag == tag and run.next_seq == seq:\n",
        "            if run is not None and run.tag == tag:\n",
        "P2",
    ),
    Mutant(
        "client: does not hear that the daemon hung up",
        _CLIENT + "connection.py",
        "            if events & _HANGUP:\n",
        "            if events & _HANGUP and self._stalled:\n",
        "P2",
    ),
    Mutant(
        "client: keeps its drains to itself when the daemon is another",
        _CLIENT + "connection.py",
        "        for drain_id in self.hearing.drains:\n            self.hold_drain(drain_id)\n",
        "",
        "P2",
    ),
)

MUTANTS = (*_ACKNOWLEDGED, *_RELEASED, *_WRITTEN, *_STARTED, *_KEPT, *_CLIENTS)
