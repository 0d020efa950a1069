"""Builds each stream's record index from scanned batches.

Owns: collecting directory entries by stream, and putting carried records in their place. Refuses:
files, bodies, and what a stream means. Pure.

A restart spends its time here: a log of 256 MB can hold two million records. So nothing is done a
record at a time in Python: a directory's columns are taken as they are, only records with flags are
looked at one by one, and at the end all records are dealt to the streams that are still wanted by
one loop that runs in C. Tried and slower: two appends a record while scanning (a cache miss each),
sorting records by stream.
"""

from __future__ import annotations

import operator
import re
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from itertools import accumulate, chain
from typing import TYPE_CHECKING, NamedTuple

from walld.wal.layout import Flag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from walld.wal.layout import Columns
    from walld.wal.scan import ScannedBatch

__all__ = ["LogIndex", "StreamRecords"]

OFFSET_BITS = 24
"""A place is batch_no << OFFSET_BITS | offset in the batch, which is 2 MiB at most."""
_flagged = re.compile(rb"[^\0]").finditer
"""Where flags are set: most records have none."""
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

    def __init__(self, dead: Iterable[int]) -> None:
        self.lists: dict[int, array[int]] = {}
        nothing: deque[int] = deque(maxlen=0)
        self.update(dict.fromkeys(dead, nothing.append))

    def __missing__(self, no: int) -> Callable[[int], object]:
        found = self.lists[no] = array("I")
        append = self[no] = found.append
        return append


class LogIndex:
    """All records of a log by stream. Feed it every good batch, as a scan gives them.

    A record is known by its number: how many stood before it in the log. Batches come by segment,
    not by number, where those that a failed sync made a daemon write again stand in two: the older
    of both may have lost the segments before it. Places are in order whatever the segment.
    """

    def __init__(self) -> None:
        self._batches: list[Columns] = []
        self._starts: list[int] = []
        """Number of each batch's first record."""
        self._count = 0
        self._sizes = array("I")
        self._places = array("Q")
        self._is_mixed = False
        """Some batch came behind one of a higher number."""
        self._telling: dict[int, list[int]] = {}
        self._carried: dict[int, set[int]] = {}
        self.dead: dict[int, int] = {}
        """Streams with a tombstone, and its record."""

    def take(self, batch: ScannedBatch) -> None:
        """One batch's directory."""
        columns = batch.columns
        count = len(columns.flags)
        if not count:
            return
        start = self._count
        self._batches.append(columns)
        self._starts.append(start)
        self._count = start + count
        sizes = columns.body_bytes
        self._sizes.extend(sizes if sizes.typecode == "I" else array("I", sizes))
        base = batch.batch_no << OFFSET_BITS | batch.bodies_at
        self._is_mixed |= start > 0 and base < self._places[-1]
        self._places.extend(accumulate(sizes[:-1], initial=base))
        for flagged in _flagged(columns.flags):
            at = flagged.start()
            self._note(columns.stream_no[at], start + at, columns.flags[at])

    def _note(self, no: int, record: int, flags: int) -> None:
        if flags & _DEAD:
            self.dead[no] = record
        if flags & _TELLING:
            self._telling.setdefault(no, []).append(record)
        if flags & Flag.CARRIED:
            self._carried.setdefault(no, set()).add(record)

    def _seqs(self, record: int) -> tuple[int, int]:
        """First and last seq of a record."""
        batch = bisect_right(self._starts, record) - 1
        columns, at = self._batches[batch], record - self._starts[batch]
        first_seq = columns.first_seq[at]
        return first_seq, first_seq + columns.span[at]

    def tombstones(self, batches: set[int]) -> list[tuple[int, int, int]]:
        """(stream number, last seq, flags) of those that stand in one of these batches."""
        found = []
        for no, record in self.dead.items():
            if self._places[record] >> OFFSET_BITS in batches:
                at = bisect_right(self._starts, record) - 1
                flags = self._batches[at].flags[record - self._starts[at]]
                found.append((no, self._seqs(record)[1], flags & _DEAD))
        return found

    def ended(self) -> Iterator[tuple[int, int, int]]:
        """(stream number, place, body bytes) of the Begins of those that have a tombstone."""
        for no in self.dead:
            for record in self._telling.get(no, ()):
                at = bisect_right(self._starts, record) - 1
                if self._batches[at].flags[record - self._starts[at]] & Flag.BEGIN:
                    yield no, self._places[record], self._sizes[record]

    @property
    def last_no(self) -> int:
        """Highest stream number in the log, 0 where there is none."""
        return max((max(columns.stream_no) for columns in self._batches), default=0)

    def streams(self) -> Iterator[tuple[int, StreamRecords]]:
        """Every stream without a tombstone, by number, in the order they began to be written."""
        appends = _Appends(self.dead)
        numbers = chain.from_iterable(columns.stream_no for columns in self._batches)
        deal = map(operator.call, map(appends.__getitem__, numbers), range(self._count))
        deque(deal, maxlen=0)
        lists = appends.lists
        for no in sorted(lists) if self._is_mixed else lists:
            yield no, self._stream(no, lists[no])

    def _stream(self, no: int, found: array[int]) -> StreamRecords:
        if self._is_mixed:
            found = array("I", sorted(found, key=self._places.__getitem__))
        carried = self._carried.get(no)
        records = found if carried is None else self._in_place(found, carried)
        stands = None if carried is None else set(records)
        telling = [
            (self._places[record], self._sizes[record])
            for record in self._telling.get(no, ())
            if stands is None or record in stands
        ]
        if self._is_mixed:
            telling.sort()
        return StreamRecords(
            array("Q", _picked(self._places, records)),
            array("I", _picked(self._sizes, records)),
            self._seqs(records[-1])[1],
            telling,
            carried is not None,
        )

    def _in_place(self, found: array[int], carried: set[int]) -> array[int]:
        """A stream's records with each carried one where those stood that it stands for."""
        records, firsts = array("I"), array("Q")
        for record in found:
            first_seq, last_seq = self._seqs(record)
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
