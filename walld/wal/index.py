"""From a scan's batches to each stream's records, at the speed of memory.

Owns: collecting directory entries by stream, and putting carried records in their place. Refuses:
files, bodies, and what a stream means. Pure.

A restart spends its time here: a log of 256 MB can hold two million records. So nothing is done a
record at a time in Python: the columns of a directory are taken whole, only records with flags are
looked at one by one, and at the end all records are dealt to the streams that are still wanted by
one loop that runs in C. Tried and slower: two appends a record while scanning
(a cache miss each), sorting records by stream.
"""

from __future__ import annotations

import operator
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from walld.wal.layout import Flag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from walld.wal.scan import ScannedBatch

__all__ = ["LogIndex", "StreamRecords"]

OFFSET_BITS = 24
"""A place is batch_no << OFFSET_BITS | offset in the batch, which is 2 MiB at most."""
_LOW = (1 << 32) - 1
_DEAD = Flag.RELEASED | Flag.RESOLVED
_TELLING = Flag.BEGIN | Flag.MOVED | Flag.TERMINAL


class StreamRecords(NamedTuple):
    """A stream's records in seq order.

    where: places; sizes: body bytes at the same positions. telling: (place, body bytes) of those
    whose bodies say who it is, where it moved and that it ended. carried: some stand out of order.
    """

    where: array[int]
    sizes: array[int]
    last_seq: int
    telling: list[tuple[int, int]]
    carried: bool


class _Appends(dict[int, "Callable[[int], object]"]):
    """Stream number to what takes a record number of it: its list, or nothing for a dead one."""

    def __init__(self, dead: set[int]) -> None:
        self.lists: dict[int, array[int]] = {}
        nothing: deque[int] = deque(maxlen=0)
        self.update(dict.fromkeys(dead, nothing.append))

    def __missing__(self, no: int) -> Callable[[int], object]:
        found = self.lists[no] = array("I")
        append = self[no] = found.append
        return append


class LogIndex:
    """All records of a log by stream. Feed it every good batch, oldest first."""

    def __init__(self) -> None:
        # Columns of all directories, one behind the other: a record is its position in them.
        self._numbers = array("Q")
        self._seqs = array("Q")
        """first_seq | last_seq << 32"""
        self._sizes = array("I")
        self._places = array("Q")
        self._telling: dict[int, list[int]] = {}
        self._carried: dict[int, set[int]] = {}
        self.dead: set[int] = set()
        """Streams with a tombstone."""

    def take(self, batch: ScannedBatch) -> None:
        """One batch's directory."""
        if not batch.records:
            return
        start = len(self._numbers)
        words, halves = batch.directory.cast("Q"), batch.directory.cast("I")
        self._numbers.frombytes(words[0::3].tobytes())
        self._seqs.frombytes(words[1::3].tobytes())
        self._sizes.frombytes(halves[4::6].tobytes())
        base = batch.batch_no << OFFSET_BITS | batch.bodies_at
        self._places.extend(
            accumulate(halves[4 : 6 * batch.records - 6 : 6].tolist(), initial=base)
        )
        flags = halves[5::6].tobytes()
        if flags.count(0) != len(flags):
            for at, bits in enumerate(halves[5::6].tolist()):
                if bits:
                    self._note(self._numbers[start + at], start + at, bits)

    def _note(self, no: int, record: int, flags: int) -> None:
        if flags & _DEAD:
            self.dead.add(no)
        if flags & _TELLING:
            self._telling.setdefault(no, []).append(record)
        if flags & Flag.CARRIED:
            self._carried.setdefault(no, set()).add(record)

    @property
    def last_no(self) -> int:
        """Highest stream number in the log, 0 where there is none."""
        return max(self._numbers, default=0)

    def streams(self) -> Iterator[tuple[int, StreamRecords]]:
        """Every stream without a tombstone, by number, in the order they began to be written."""
        appends = _Appends(self.dead)
        numbers = self._numbers
        deal = map(operator.call, map(appends.__getitem__, numbers), range(len(numbers)))
        deque(deal, maxlen=0)
        for no, found in appends.lists.items():
            yield no, self._stream(no, found)

    def _stream(self, no: int, found: array[int]) -> StreamRecords:
        carried = self._carried.get(no)
        records = found if carried is None else self._in_place(found, carried)
        stands = None if carried is None else set(records)
        telling = [
            (self._places[record], self._sizes[record])
            for record in self._telling.get(no, ())
            if stands is None or record in stands
        ]
        return StreamRecords(
            array("Q", _picked(self._places, records)),
            array("I", _picked(self._sizes, records)),
            self._seqs[records[-1]] >> 32,
            telling,
            carried is not None,
        )

    def _in_place(self, found: array[int], carried: set[int]) -> array[int]:
        """A stream's records with each carried one where those stood that it stands for."""
        records, firsts = array("I"), array("Q")
        for record in found:
            first_seq, last_seq = self._seqs[record] & _LOW, self._seqs[record] >> 32
            at = bisect_left(firsts, first_seq)
            if record in carried:
                after = bisect_right(firsts, last_seq)
                del records[at:after]
                del firsts[at:after]
            records.insert(at, record)
            firsts.insert(at, first_seq)
        return records


def _picked(column: array[int], records: array[int]) -> tuple[int, ...]:
    if len(records) == 1:
        return (column[records[0]],)
    picked: tuple[int, ...] = operator.itemgetter(*records)(column)
    return picked
