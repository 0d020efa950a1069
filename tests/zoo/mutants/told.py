"""Planted bugs: what is said of a reply, and of the disk, is so."""

from __future__ import annotations

from .mutant import DAEMON, REPLIES, WAL, Mutant

__all__ = ["MUTANTS"]

MUTANTS = (
    Mutant(
        "a sync is taken to cover what was written while it ran",
        DAEMON + "storage/syncer.py",
        "        engine.synced(sync.target)\n",
        "        engine.synced(engine.batches.written_no)\n",
        "P4",
        "1838",
    ),
    Mutant(
        "headers say that what is written is synced",
        DAEMON + "storage/writer.py",
        "        offset, synced_no = segment.size, engine.batches.synced_no\n",
        "        offset, synced_no = segment.size, engine.batches.written_no\n",
        "V1",
        "40",
    ),
    Mutant(
        "the name of an unlinked segment is not synced away",
        WAL + "segment_files.py",
        "            self.disk.unlink(self.path(segment_id))\n"
        "        except FileNotFoundError:\n"
        "            return\n"
        "        self.disk.sync_dir(WAL_DIR)\n",
        "            self.disk.unlink(self.path(segment_id))\n"
        "        except FileNotFoundError:\n"
        "            return\n",
        "P5",
        "1838",
    ),
    Mutant(
        "what is in the batch being built is not read",
        DAEMON + "storage/reply_reader.py",
        "        no, building = stream.no, stream.building\n",
        "        no, building = stream.no, list[bytes]()\n",
        "Q1",
        "342",
    ),
    Mutant(
        "a query does not wait for what its process has sent",
        DAEMON + "api/replies.py",
        "        item = next(left, None)\n        if item is None:\n            return\n",
        "        return\n",
        "Q1",
        "10",
    ),
    Mutant(
        "a cancelled reply is called complete",
        REPLIES + "fold.py",
        '        self.status = "complete" if event.clean else "cancelled"\n',
        '        self.status = "complete"\n',
        "SIM3",
        "223",
    ),
    Mutant(
        "the finish of an end is not kept",
        REPLIES + "fold.py",
        "            self.finish_reason = event.finish_reason\n",
        "            pass\n",
        "SIM3",
        "1891",
    ),
    Mutant(
        "a reply whose process is there is called crashed",
        REPLIES + "fold.py",
        '            status = "live" if live else "crashed"\n',
        '            status = "crashed"\n',
        "SIM3",
        "1891",
    ),
)
