"""Planted bugs: what is released leaves the disk, and nothing else does."""

from __future__ import annotations

from .mutant import DAEMON, ENGINE, Mutant

__all__ = ["MUTANTS"]

MUTANTS = (
    Mutant(
        "a release is acknowledged before its tombstone is synced",
        ENGINE + "core.py",
        "        elif is_unwritten:\n"
        "            stream.written_seq = stream.synced_seq = stream.next_seq - 1\n"
        "            self._moved(stream)\n"
        "            return\n",
        "        stream.written_seq = stream.synced_seq = stream.next_seq - 1\n"
        "        self._moved(stream)\n"
        "        if is_unwritten and not stream.is_anew:\n"
        "            return\n",
        "P5",
        "223",
    ),
    Mutant(
        "released before its first flush, though it has records",
        ENGINE + "core.py",
        "        is_unwritten = stream.records == 0 and not stream.building and kept is None\n",
        "        is_unwritten = stream.synced_seq < 0 and not stream.building and kept is None\n",
        "P5",
        "223",
    ),
    Mutant(
        "the records of a released reply stay alive",
        ENGINE + "batch_builder.py",
        "            self._segments.died(place.batch_no, place.length, after, self.now)\n",
        "            assert after\n",
        "P5",
        "1838",
    ),
    Mutant(
        "a segment goes before what ordered it is synced",
        ENGINE + "segments.py",
        "        if oldest.live_bytes or oldest.unlink_after > synced_no:\n",
        "        if oldest.live_bytes:\n",
        "G3",
        "1891",
    ),
    Mutant(
        "a segment goes before the carried copies are synced",
        ENGINE + "batch_builder.py",
        "            self._segments.died(was.batch_no, was.length, place.batch_no, None)\n",
        "            self._segments.died(was.batch_no, was.length, 0, None)\n",
        "G3",
        "1838",
    ),
    Mutant(
        "a carried record does not say that its Begin is in it",
        DAEMON + "storage/compaction.py",
        "            flags |= Flag.BEGIN\n",
        "            flags |= 0\n",
        "P6",
        "1891",
    ),
    Mutant(
        "carrying has no budget",
        DAEMON + "storage/compaction.py",
        "        return (large or many or late) and self._engine.carry_budget > 0\n",
        "        return large\n",
        "P5",
        "1891",
    ),
    Mutant(
        "the last batch of the oldest segment is not emptied",
        DAEMON + "storage/compaction.py",
        "        bound = (oldest.last_batch + 1) << OFFSET_BITS\n",
        "        bound = oldest.last_batch << OFFSET_BITS\n",
        "P5",
        "5",
    ),
    Mutant(
        "only what was released in the oldest segment is overdue",
        DAEMON + "storage/compaction.py",
        "        late = self._is_late(segments.released_since)\n",
        "        late = self._is_late(segments.oldest.released_since)\n",
        "P5",
        "1891",
    ),
)
