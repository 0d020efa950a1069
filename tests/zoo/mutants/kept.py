"""Planted bugs: partials, and answers to those who ask."""

from __future__ import annotations

from .mutant import DAEMON, DISK, Mutant

__all__ = ["MUTANTS"]

MUTANTS = (
    Mutant(
        "what waits is not read",
        DAEMON + "storage/reply_reader.py",
        "        waiting = [item.item for item in stream.waiting]\n",
        "        waiting = [item.item for item in stream.waiting[1:]]\n",
        "P11",
        "4449",
    ),
    Mutant(
        "one user is shown what is another's",
        DAEMON + "api/replies.py",
        "            streams = [s for s in registry.replies if s.begin.uid == uid]\n",
        "            streams = registry.replies\n",
        "P12",
        "1891",
    ),
    Mutant(
        "a partial is not synced",
        DISK + "atomic.py",
        "                if is_synced:\n                    file.sync()\n",
        "",
        "T1",
        "223",
    ),
    Mutant(
        "the name of a partial is not synced",
        DISK + "atomic.py",
        'is_synced=True)\n        self.sync_dir(path.rpartition("/")[0])\n',
        "is_synced=True)\n",
        "T1",
        "1155",
    ),
    Mutant(
        "the name of a new directory is not synced",
        DISK + "atomic.py",
        '                self.sync_dir("/".join(parts[: depth - 1]))\n',
        "",
        "T1",
        "223",
    ),
    Mutant(
        "a partial goes before its tombstone is written",
        DAEMON + "storage/partial_writer.py",
        "        is_buried = is_doubted or facts.wal_until >= self._engine.segments.first_batch\n",
        "        is_buried = False\n",
        "K3",
        "223",
    ),
    Mutant(
        "a resolved orphan gets no tombstone",
        DAEMON + "api/replies.py",
        "            self._engine.resolved.let_go(stream, now)\n",
        "            stream.gone = True\n"
        "            self._engine.batches.dropped(stream.drop_waiting())\n"
        "            self._engine.registry.remove(stream)\n"
        "            self._engine.orphans.pop(stream.no, None)\n",
        "P6",
        "1250",
    ),
)
