"""From a scan's batches to each stream's records, at the speed of memory.

Owns: collecting directory entries by stream, and putting carried records in their place. Refuses:
files, bodies, and what a stream means. Pure.

A restart spends its time here: a log of 256 MB can hold two million records. So nothing is done a
record at a time in Python: the columns of a directory are taken whole, and a record's running
number goes to its stream's list by one C loop. Only records with flags are looked at one by one,
and only streams that are still wanted at the end get their index built.
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


class _Appenders(dict[int, "Callable[[int], None]"]):
    """Stream number to the append of its list of record numbers."""

    def __init__(self, lists: dict[int, array[int]]) -> None:
        self._lists = lists

    def __missing__(self, no: int) -> Callable[[int], None]:
        found = self._lists[no] = array("I")
        append = self[no] = found.append
        return append


class LogIndex:
    """All records of a log by stream. Feed it every good batch, oldest first."""

    def __init__(self) -> None:
        self._places = array("Q")
        self._sizes = array("I")
        self._seqs = array("Q")
        """first_seq | last_seq << 32"""
        self._lists: dict[int, array[int]] = {}
        self._appenders = _Appenders(self._lists)
        self._telling: dict[int, list[int]] = {}
        self._carried: set[int] = set()
        self.dead: set[int] = set()
        """Streams with a tombstone."""

    def take(self, batch: ScannedBatch) -> None:
        """One batch's directory."""
        if not batch.records:
            return
        words = batch.directory.cast("Q")  # an entry is three: no, first | last, size | flags
        numbers = words[0::3].tolist()
        sizes = words[2::3].tolist()
        start = len(self._places)
        if max(sizes) > _LOW:
            flags = [size >> 32 for size in sizes]
            sizes = [size & _LOW for size in sizes]
            for at, bits in enumerate(flags):
                if bits:
                    self._note(numbers[at], start + at, bits)
        base = batch.batch_no << OFFSET_BITS | batch.bodies_at
        self._places.extend(accumulate(sizes[:-1], initial=base))
        self._sizes.extend(sizes)
        self._seqs.extend(words[1::3].tolist())
        appends = map(self._appenders.__getitem__, numbers)
        deque(map(operator.call, appends, range(start, start + len(numbers))), maxlen=0)

    def _note(self, no: int, record: int, flags: int) -> None:
        if flags & _DEAD:
            self.dead.add(no)
        if flags & _TELLING:
            self._telling.setdefault(no, []).append(record)
        if flags & Flag.CARRIED:
            self._carried.add(record)

    @property
    def last_no(self) -> int:
        """Highest stream number in the log, 0 where there is none."""
        return max(self._lists, default=0)

    def streams(self) -> Iterator[tuple[int, StreamRecords]]:
        """Every stream without a tombstone, by number, in the order they began to be written."""
        carriers = set(map(self._streams_of_carried().get, self._carried)) if self._carried else ()
        for no, numbers in self._lists.items():
            if no in self.dead:
                continue
            carried = no in carriers
            ordered = self._in_place(numbers) if carried else numbers
            kept = set(ordered) if carried else ()
            telling = [
                (self._places[record], self._sizes[record])
                for record in self._telling.get(no, ())
                if not carried or record in kept
            ]
            yield (
                no,
                StreamRecords(
                    array("Q", map(self._places.__getitem__, ordered)),
                    array("I", map(self._sizes.__getitem__, ordered)),
                    self._seqs[ordered[-1]] >> 32,
                    telling,
                    carried,
                ),
            )

    def _streams_of_carried(self) -> dict[int, int]:
        """Record number to stream, for carried records."""
        found: dict[int, int] = {}
        for no, numbers in self._lists.items():
            if no not in self.dead:
                found.update((record, no) for record in self._carried.intersection(numbers))
        return found

    def _in_place(self, numbers: array[int]) -> array[int]:
        """A stream's records with each carried one where those stood that it stands for."""
        ordered, firsts = array("I"), array("Q")
        for record in numbers:
            first_seq, last_seq = self._seqs[record] & _LOW, self._seqs[record] >> 32
            at = bisect_left(firsts, first_seq)
            if record in self._carried:
                after = bisect_right(firsts, last_seq)
                del ordered[at:after]
                del firsts[at:after]
            ordered.insert(at, record)
            firsts.insert(at, first_seq)
        return ordered
