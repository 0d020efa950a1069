"""Computes what a hole in the log cost, by stream and seq.

Owns: which seqs of each stream stand in good batches, and between which batches others are missing.
Refuses: files, bodies, and what a hole means (`verdict.py`). Pure.

A hole does not say what stood in it. The streams do: seqs that are missing between a record that
stands before the hole and one that stands behind it were in it. What a stream said last of all
leaves no such trace; it is known only that the stream had not ended: one event at least is feared
to be lost, or as many as what is left of the batch claims (`Coverage.tails_lost`).

Memory: four numbers a stream, four more for each gap; one for a stream that has a tombstone.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from walld.wal import ranges
from walld.wal.layout import EPOCH_STREAMS_BITS, Flag

if TYPE_CHECKING:
    from collections.abc import Iterable

    from walld.wal.partial_batch import Claim, PartialBatch
    from walld.wal.ranges import Range
    from walld.wal.scan import ScannedBatch

__all__ = ["Coverage", "Gap"]

_DEAD = Flag.RELEASED | Flag.RESOLVED


class Gap(NamedTuple):
    """Missing seqs, and the batches that hold their neighbours (0: nothing stands before them)."""

    first_seq: int
    last_seq: int
    after_no: int
    before_no: int

    def may_be_of(self, first_no: int, last_no: int) -> bool:
        """True where batches first_no to last_no may have held these seqs."""
        if not first_no:
            return False
        low, high = self.after_no, self.before_no
        if low >= high:  # the record before it was carried: where it stood first is not known
            low, high = 0, low
        return low < last_no + 1 and first_no < high


class _Runs:
    """The seqs of one stream: runs of [first_seq, last_seq, batch of its first, of its last]."""

    __slots__ = ("_runs", "has_ended", "kept_seq", "stands_no")

    def __init__(self) -> None:
        self._runs: list[list[int]] = []
        self.has_ended = False
        self.kept_seq = -1
        """How far its partial goes."""
        self.stands_no = 0
        """Last batch with a record that stands where it first stood; where a carried one did is not
        known."""

    def take(self, first_seq: int, last_seq: int, batch_no: int) -> None:
        runs = self._runs
        if runs and first_seq == runs[-1][1] + 1:  # nearly every record
            runs[-1][1], runs[-1][3] = last_seq, batch_no
            return
        runs.append([first_seq, last_seq, batch_no, batch_no])
        self._join_up()

    def _join_up(self) -> None:
        runs = sorted(self._runs)
        joined = [runs[0]]
        for run in runs[1:]:
            before = joined[-1]
            if run[0] > before[1] + 1:
                joined.append(run)
            elif run[1] > before[1]:
                before[1], before[3] = run[1], run[3]
        self._runs = joined

    def goes_on_from(self, part: _Runs) -> None:
        """What an earlier part holds. Whether more may follow is this one's to say."""
        for first_seq, last_seq, first_no, last_no in part._runs:
            self._runs.append([first_seq, last_seq, first_no, last_no])
        self._join_up()
        self.has_ended |= part.has_ended
        self.stands_no = max(self.stands_no, part.stands_no)

    def gaps(self) -> list[Gap]:
        found = []
        seen, after_no = -1, 0
        for first_seq, last_seq, first_no, last_no in self._runs:
            if first_seq > seen + 1:
                found.append(Gap(seen + 1, first_seq - 1, after_no, first_no))
            seen, after_no = last_seq, last_no
        return found

    @property
    def last_seq(self) -> int:
        return self._runs[-1][1]

    @property
    def is_open(self) -> bool:
        """There may be more of it than stands here: it has neither ended nor been kept so far."""
        return not self.has_ended and self.kept_seq < self.last_seq

    def covered(self) -> list[Range]:
        return [(run[0], run[1]) for run in self._runs]


class Coverage:
    """Every stream of a log that has no tombstone. Feed it each good batch, then the partials."""

    def __init__(self) -> None:
        self.dead: set[int] = set()
        """Streams with a tombstone: whatever is missing of them, nobody needs."""
        self.begins: dict[int, tuple[int, int, int]] = {}
        """Where a stream's Begin stands: segment, offset in the file, length of the body."""
        self.ended: dict[int, tuple[int, int, int]] = {}
        """The same of streams with a tombstone whose reply may stand under an earlier number, too
        (`replies/fragments.py`)."""
        self._streams: dict[int, _Runs] = {}
        self._all_gaps: list[tuple[int, Gap]] | None = None
        self._open: list[int] | None = None
        """Where the last record of each open stream stands, ascending."""

    def take(self, segment_id: int, batch: ScannedBatch) -> None:
        """One good batch's directory."""
        for record in batch.records:
            no, flags = record.stream_no, record.flags
            if flags & Flag.BEGIN and (no not in self.dead or flags & _DEAD):
                place = segment_id, batch.offset + record.offset, record.body_bytes
                self.begins.setdefault(no, place)
            if flags & _DEAD:
                self.done_with(no)
            if no in self.dead:
                continue
            runs = self.has(no, record.first_seq, record.last_seq, batch.batch_no)
            assert runs is not None, no
            if not flags & Flag.CARRIED:
                runs.stands_no = max(runs.stands_no, batch.batch_no)
            if flags & Flag.TERMINAL:
                runs.has_ended = True

    def done_with(self, no: int) -> None:
        """It has a tombstone, or its reply has, under a later number."""
        self.dead.add(no)
        self._streams.pop(no, None)
        self._all_gaps = self._open = None
        place = self.begins.pop(no, None)
        if place is not None and no >> EPOCH_STREAMS_BITS:
            self.ended[no] = place

    def doubted(self, segment_id: int, offset: int, batch: PartialBatch) -> None:
        """Bodies that verify in a batch, at that offset, that does not."""
        for record, _ in batch.good:
            no = record.stream_no
            runs = self.has(no, record.first_seq, record.last_seq, batch.batch_no)
            if runs is None:
                continue
            runs.stands_no = max(runs.stands_no, batch.batch_no)
            runs.has_ended |= bool(record.flags & Flag.TERMINAL)
            if record.flags & Flag.BEGIN:
                place = segment_id, offset + record.offset, record.body_bytes
                self.begins.setdefault(no, place)

    def has(self, stream_no: int, first_seq: int, last_seq: int, batch_no: int = 0) -> _Runs | None:
        """These seqs of it are there; batch 0: in its partial, where a Begin stands too."""
        if stream_no in self.dead:
            return None
        self._all_gaps = self._open = None
        runs = self._streams.get(stream_no)
        if runs is None:
            runs = self._streams[stream_no] = _Runs()
        runs.take(first_seq, last_seq, batch_no)
        if not batch_no:
            runs.kept_seq = max(runs.kept_seq, last_seq)
        return runs

    def join(self, numbers: list[int]) -> None:
        """These are one reply, which goes on as the last of them (`replies/fragments.py`)."""
        *earlier, last = numbers
        for no in earlier:
            self.begins.pop(no, None)
            part = self._streams.pop(no, None)
            if part is not None and last in self._streams:
                self._streams[last].goes_on_from(part)
        self._all_gaps = self._open = None

    @property
    def count(self) -> int:
        """Streams without a tombstone."""
        return len(self._streams)

    def gaps(self, stream_no: int) -> list[Gap]:
        """What is missing of a stream between what stands."""
        runs = self._streams.get(stream_no)
        return [] if runs is None else runs.gaps()

    def lost(
        self, first_no: int, last_no: int, claimed: Iterable[tuple[int, int, int]] = ()
    ) -> dict[int, list[Range]]:
        """Stream -> seqs that batches first_no to last_no may have held and nothing else does.

        claimed: (stream, first seq, last seq) by a directory that is not known to be good.
        """
        if self._all_gaps is None:
            self._all_gaps = [
                (no, gap) for no, runs in self._streams.items() for gap in runs.gaps()
            ]
        found: dict[int, list[Range]] = {}
        for no, gap in self._all_gaps:
            if gap.may_be_of(first_no, last_no):
                found.setdefault(no, []).append((gap.first_seq, gap.last_seq))
        for no, first_seq, last_seq in claimed:
            if no not in self.dead:
                known = self._streams.get(no)
                missing = ranges.without([(first_seq, last_seq)], known.covered() if known else [])
                if missing:
                    found[no] = ranges.merged([*found.get(no, ()), *missing])
        return found

    def open_before(self, batch_no: int) -> int:
        """How many streams may have said more in that batch."""
        if self._open is None:
            self._open = sorted(runs.stands_no for runs in self._streams.values() if runs.is_open)
        return bisect_left(self._open, batch_no)

    def tails_lost(self, until_no: int, claims: Iterable[Claim]) -> dict[int, int]:
        """Stream -> the seq it may have got to, of those that may have said more in lost batches.

        until_no: the last of these batches. claims: what is left of their directories; who is in
        none of them is feared to have lost one event. Each may have gone on behind that.
        """
        found = {
            no: runs.last_seq + 1
            for no, runs in self._streams.items()
            if runs.is_open and runs.stands_no < until_no
        }
        for no, first_seq, last_seq, is_sure in sorted(claims):
            if no in found and (is_sure or first_seq <= found[no] + 1):
                found[no] = max(found[no], last_seq)
        return found
