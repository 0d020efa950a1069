"""Planted bugs: batches on their way to the disk, and a disk that refuses."""

from __future__ import annotations

from .mutant import DAEMON, DISK, ENGINE, WAL, Mutant

__all__ = ["MUTANTS"]

MUTANTS = (
    Mutant(
        "a write that fails is taken for written",
        DAEMON + "storage/writer.py",
        "            self._files.write(segment.segment_id, sealed.batch, synced_no, offset)\n",
        "            try:\n"
        "                self._files.write(segment.segment_id, sealed.batch, synced_no, "
        "offset)\n"
        "            except OSError as error:\n"
        '                _log.error("write: %s", error)\n',
        "P8",
        "1048",
    ),
    Mutant(
        "a short write is not continued",
        WAL + "segment_files.py",
        "        while done < len(data):\n",
        "        while not done:\n",
        "P4",
        "1891",
    ),
    Mutant(
        "a short write is continued from the beginning",
        WAL + "segment_files.py",
        "            taken = file.write_at(data[done:], offset + done)\n",
        "            taken = file.write_at(data, offset + done)\n",
        "P4",
        "1891",
    ),
    Mutant(
        "a partial's short write is not continued",
        DISK + "atomic.py",
        "    while written < len(data):\n",
        "    while not written:\n",
        "T1",
        "1155",
    ),
    Mutant(
        "a full disk: one batch too many is cut off",
        DAEMON + "storage/writer.py",
        "            await self._thread.run(lambda: self._files.cut(segment.segment_id, "
        "segment.size))\n",
        "            size = segment.offsets[-1] if segment.offsets else segment.size\n"
        "            await self._thread.run(lambda: self._files.cut(segment.segment_id, "
        "size))\n",
        "P7",
        "1048",
    ),
    Mutant(
        "a disk that was full goes on writing ends alone",
        ENGINE + "core.py",
        "        self.disk_full = self.batches.ends_only = False\n",
        "        self.disk_full = False\n",
        "P7",
        "714",
    ),
    Mutant(
        "the names of new segments are not synced",
        WAL + "segment_files.py",
        "            if segment_id in self._unnamed:\n"
        "                self.disk.sync_dir(WAL_DIR)\n",
        "            if segment_id in self._unnamed:\n",
        "P4",
        "223",
    ),
    Mutant(
        "a failed sync: what was written behind it is not written again",
        ENGINE + "batch_builder.py",
        "range(self.synced_no + 1, self.reached_no + 1)]\n        self.written_no",
        "range(self.synced_no + 1, self.written_no + 1)]\n        self.written_no",
        "P8",
        "223",
    ),
    Mutant(
        "a poisoned segment keeps its place in the order of numbers",
        ENGINE + "segments.py",
        "                segment.first_batch = min(segment.first_batch, synced_no + 1)\n",
        "                assert segment.first_batch\n",
        "G1",
        "1838",
    ),
    Mutant(
        "a failed sync poisons the current segment alone",
        ENGINE + "segments.py",
        "            if segment.last_batch > synced_no or segment is self._list[-1]:\n",
        "            if segment is self._list[-1]:\n",
        "P8",
        "1838",
    ),
    Mutant(
        "a column is one bit too narrow for its largest value",
        WAL + "layout.py",
        "    if largest < 1 << 8:\n",
        "    if largest <= 1 << 8:\n",
        "P9",
        "1155",
    ),
    Mutant(
        "a flush waits for company beyond the bound",
        ENGINE + "flush_schedule.py",
        "        return 0.0 if self._hurry_flush else self._oldest + self.linger\n",
        "        return 0.0 if self._hurry_flush else self._oldest + 3 * self.bound\n",
        "P3",
        "585",
    ),
    Mutant(
        "what nobody waits for is never synced",
        ENGINE + "flush_schedule.py",
        "        return self._unsynced_since + min(period, self.bound)\n",
        "        return self._unsynced_since + 100 * period\n",
        "P4",
        "50115",
    ),
    Mutant(
        "a stop does not flush",
        DAEMON + "service.py",
        "                await self.flusher.finish()\n                if",
        "                await self.syncer.sync_all()\n                if",
        "P1",
        "1448",
    ),
    Mutant(
        "a stop does not sync",
        DAEMON + "storage/flusher.py",
        "        await self._syncer.sync_all()\n        if",
        "        self._syncer.wake()\n        if",
        "P4",
        "247",
    ),
    Mutant(
        "a batch that was written again with the others is written once more",
        DAEMON + "storage/writer.py",
        "                if sealed.batch.batch_no <= self._engine.batches.written_no:\n"
        "                    return 0.0",
        "                if sealed.batch.batch_no < self._engine.batches.synced_no:\n"
        "                    return 0.0",
        "W1",
        "515",
    ),
    Mutant(
        "a daemon whose directory was taken writes on",
        DAEMON + "storage/writer.py",
        "        if not self._owner.is_owner():\n",
        "        if False:\n",
        "W4",
        "s111",
    ),
    Mutant(
        "a daemon whose directory was taken goes on with its files",
        DISK + "fenced.py",
        "        if not self._is_owner():\n",
        "        if False:\n",
        "D4",
        "s111",
    ),
)
