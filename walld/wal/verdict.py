"""The verdict on a scan: torn is expected, corrupt is not (FORMAT.md, "Verdicts").

Owns: the rule that tells torn from corrupt. Refuses: the facts (`scan_report.py`, `scan.py`),
files, and what is done about it (renaming, quarantine, reports are the daemon's).

The rule. W is the highest batch known to have been synced: batch headers carry it, and LOCK names
one, and the first that must be there. What is missing between was lost by the disk: corrupt. What
is missing above W was never promised: torn, the normal end of a killed process. Numbers decide, not
positions: a hole whose batches stand elsewhere (rewritten after a failed sync) costs nothing.

Invariants
- V1 A crash alone never yields corrupt; damage to a synced batch always does.
- V2 Nothing is reported twice: a start writes down what it found (`Verdict.rows`), and what is
  written down is `settled` from then on.
- V3 What cannot be read, or is of another version or log, is neither torn nor corrupt: it may be
  whole, so it is kept, and judged again at the next start.
- V4 No number is given again that may be in use in what cannot be read: who goes on from here leaps
  over as many as fit into it, and writes that down, since numbers it never gave are not missing;
  and which segments that was for, so that those are (`unreadable_segments.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from walld import limits
from walld.wal import ranges
from walld.wal.layout import BATCH_HEADER_BYTES, Settled
from walld.wal.scan_report import Hole, SegmentFacts
from walld.wal.unreadable_segments import (
    KEPT,
    READ,
    UNREAD,
    UnreadableSegments,
    base_no,
    evident_no,
    start_no,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from walld.wal.ranges import Range
    from walld.wal.scan_report import Reason

__all__ = [
    "CORRUPT",
    "LEAPT",
    "RENEWED",
    "TORN",
    "Damage",
    "Verdict",
    "judge",
]

TORN, CORRUPT, STRANDED, RENEWED, LEAPT = 1, 2, 3, 4, 5
"""Verdicts of `layout.Settled` rows."""
SEGMENT_BATCHES_BITS = 20
"""No segment has so many batches: as many headers alone would not fit into it."""
_LEAP_NO_MAX = 1 << 39
"""No leap ends above: an index has 40 bits for a batch number."""

assert (limits.SEGMENT_BYTES_MAX + limits.BATCH_BYTES_MAX) >> SEGMENT_BATCHES_BITS < (
    BATCH_HEADER_BYTES
)


class Damage(NamedTuple):
    """One finding: where (segment_id 0: nowhere), which numbers it cost (first_no 0: none)."""

    segment_id: int
    offset: int
    length: int
    first_no: int
    last_no: int
    reason: Reason


@dataclass(slots=True)
class Verdict:
    """last_batch_no: highest number that is known to be in use. synced_no: W as the log says."""

    last_batch_no: int
    synced_no: int
    torn: list[Damage] = field(default_factory=list)
    corrupt: list[Damage] = field(default_factory=list)
    unreadable: list[Damage] = field(default_factory=list)
    superseded: list[Damage] = field(default_factory=list)
    """Holes whose batches are all read from elsewhere, or need not be there any more."""
    settled: list[Damage] = field(default_factory=list)
    """What an earlier start has reported."""
    stranded: list[Settled] = field(default_factory=list)
    """Batches that a later segment ought to hold again and does not. They are read, so nothing is
    wrong; but they must not be missed when their segment is unlinked."""
    unsettled: list[Damage] = field(default_factory=list)
    """Of `corrupt`: what has no row yet, so that the next start meets it again: it is not noted in
    quarantine/, or what it cost is known from these bytes alone."""
    not_kept: list[Damage] = field(default_factory=list)
    """Of `unsettled`: bytes that this start could not copy there. Their segment is set aside whole,
    in its turn, and until then each start meets them."""
    unread: list[Range] = field(default_factory=list)
    """Numbers that may stand in what cannot be read, and are read nowhere else."""
    leap: Settled | None = None
    """Numbers behind `last_batch_no` that may be in use all the same (V4)."""
    leaps: list[tuple[int, int, int]] = field(default_factory=list)
    """(first, last, synced_no) of numbers over which an earlier start has leapt: up to which of
    them what that start could not read was synced."""
    awaited: list[Settled] = field(default_factory=list)
    """About segments: for which this start leaps, and which can be read at last."""
    missed: dict[Damage, Settled] = field(default_factory=dict)
    """Of `corrupt`: what an earlier start could not read, and never will be; with its row."""
    torn_no: int = 0
    """The highest batch that was torn, by this start's word or an earlier one's; 0: none was."""

    @property
    def reserved_no(self) -> int:
        """The next number is one more."""
        return self.leap.last_no if self.leap is not None else self.last_batch_no

    @property
    def passed(self) -> int:
        """So many numbers before the next one were torn: no batch of theirs was read."""
        last_no = self.reserved_no
        for item in sorted(self.torn, key=lambda one: one.last_no, reverse=True):
            if item.first_no and item.last_no == last_no:
                last_no = item.first_no - 1
        return self.reserved_no - last_no

    def synced_up_to(self, number: int) -> int:
        """The highest batch that is known to have been synced with or before a later one.

        What was written behind a leap tells nothing of the numbers that it leapt over.
        """
        for first, last, synced_no in self.leaps:
            if first <= number <= last:
                return synced_no
        return self.synced_no

    @property
    def is_clean(self) -> bool:
        """True where this start has nothing to report."""
        return not (self.torn or self.corrupt or self.unreadable)

    def rows(self) -> list[Settled]:
        """What this start writes down, so that no later one reports it again."""
        found = [
            self._row(item, verdict)
            for verdict, damage in ((TORN, self.torn), (CORRUPT, self.corrupt))
            for item in damage
            if item not in self.unsettled
        ]
        # Without the segments that hold its batches nobody can tell what stood in it, and if any.
        found += [
            Settled(item.segment_id, item.offset, 0, 0, TORN)
            for item in self.superseded
            if item.reason == "segment header"
        ]
        found += [self.leap] if self.leap is not None else []
        return found + self.awaited + self.stranded

    def late_rows(self) -> list[Settled]:
        """What `rows` has left out, to be written down once that is no reason any more."""
        return [self._row(one, CORRUPT) for one in self.unsettled if one not in self.not_kept]

    def _row(self, item: Damage, verdict: int) -> Settled:
        row = Settled(item.segment_id, item.offset, item.first_no, item.last_no, verdict)
        return self.missed.get(item, row)


def judge(segments: Sequence[SegmentFacts], attested_no: int = 0, first_no: int = 0) -> Verdict:
    """Facts of all segments, ids ascending, and what LOCK says: a batch that was synced, and the
    first that must be there; 0 where it does not.
    """
    ids = [facts.segment_id for facts in segments]
    assert ids == sorted(set(ids)), f"segments must ascend: {ids}"
    return _Judge(segments, attested_no, first_no).verdict


class _Judge:
    """The working of `judge`: the sets it needs, then one decision per hole."""

    def __init__(self, segments: Sequence[SegmentFacts], attested_no: int, first_no: int) -> None:
        synced_no = max((facts.synced_no for facts in segments), default=0)
        last_no = max((evident_no(facts) for facts in segments), default=0)
        self._synced_no = max(synced_no, attested_no)
        self._first_no = first_no
        # What went before the first that must be there had its number, synced_no of LOCK or not.
        self._last_no = max(last_no, self._synced_no, first_no - 1)
        self.verdict = Verdict(self._last_no, synced_no)
        self._segments = segments
        self._good = good = ranges.merged(item for facts in segments for item in facts.numbers)
        rows = [row for facts in segments for row in facts.settled]
        self._awaited = UnreadableSegments(segments, good)
        self.verdict.awaited = self._awaited.read
        oldest_id = segments[0].segment_id if segments else 0
        known = ranges.merged(
            (row.first_no if row.verdict != LEAPT else self._leapt(row), row.last_no)
            for row in rows
            if row.first_no
            and row.verdict != UNREAD
            and (row.verdict != STRANDED or row.segment_id < oldest_id)
        )
        nowhere = STRANDED, LEAPT, UNREAD, READ
        self._places = {(row.segment_id, row.offset) for row in rows if row.verdict not in nowhere}
        self._base_no = base_no(segments, self._places, first_no)
        self._absent = ranges.without([(self._base_no + 1, self._last_no)], good)
        self._missing = ranges.without(self._absent, known)
        explained: list[Range] = []
        for index, facts in enumerate(segments):
            for hole in facts.holes:
                explained += self._decide(index, facts.segment_id, hole)
        for item in ranges.without(self._missing, ranges.merged(explained)):
            self._report([item], 0, Hole(0, 0, 0, "missing"))
        for segment_id in self._awaited.hurt:
            if not self._is_missed(segment_id):
                self._miss(Damage(segment_id, 0, 0, 0, 0, "missing"), [])
        torn = [row.last_no for row in rows if row.verdict == TORN]
        self.verdict.torn_no = max([0, *torn, *(item.last_no for item in self.verdict.torn)])
        self._strand()
        self._leap()

    def _leapt(self, row: Settled) -> int:
        """The first number of a leap that is not missed: below stands what can be read by now."""
        older = [facts for facts in self._segments if facts.segment_id <= row.segment_id]
        read_no = self._awaited.read_until(row.segment_id)
        synced_no = max([read_no, *(facts.synced_no for facts in older)])
        self.verdict.leaps.append((row.first_no, row.last_no, synced_no))
        return max([row.first_no, read_no + 1, *(evident_no(facts) + 1 for facts in older)])

    def _leap(self) -> None:
        """Leap over what the segments that cannot be read may hold (V4).

        No segment holds 1 << SEGMENT_BATCHES_BITS batches, and a leap ends at as many times its id.
        So no number in a segment is above that of the segment behind it, whichever of them can be
        read now or could be when a later one was begun. Ids that are too high for that (an index
        has 40 bits for a number) leave what the last whole segment tells: older ones have numbers
        up to those in it, unless it was begun to write some again.
        """
        unread, base_id, base_no = list[SegmentFacts](), 0, 0
        for facts in reversed(self._segments):
            is_kept = any(hole.reason in KEPT for hole in facts.holes)
            if is_kept:
                unread.append(facts)
            if facts.header is not None and not facts.header.again:
                base_id, base_no = facts.segment_id, evident_no(facts)
                if is_kept:
                    base_id, base_no = facts.segment_id - 1, facts.header.prev_batch_no
                break
        if not unread:
            return
        newest_id = self._segments[-1].segment_id
        last_no = newest_id + 1 << SEGMENT_BATCHES_BITS
        if last_no > _LEAP_NO_MAX:
            last_no = base_no + (newest_id - base_id << SEGMENT_BATCHES_BITS)
        first_no = self.verdict.last_batch_no + 1
        last_no = max(min(last_no, _LEAP_NO_MAX), first_no)
        self.verdict.leap = Settled(newest_id, 0, first_no, last_no, LEAPT)
        self.verdict.unread = ranges.merged([*self.verdict.unread, (first_no, last_no)])
        missed = self._awaited.missed(self.verdict.leap, unread)
        self.verdict.awaited = [*missed, *self._awaited.read]

    def _miss(self, place: Damage, lost: list[Range]) -> None:
        """Damage to what an earlier start could not read: its row says that it was judged."""
        number, until = self._awaited.hurt[place.segment_id]
        first, last = (lost[0][0], lost[-1][1]) if lost else (number, number)
        place = place._replace(first_no=first, last_no=last)
        self.verdict.corrupt.append(place)
        if not self._is_missed(place.segment_id):
            self.verdict.missed[place] = Settled(place.segment_id, until, first, last, READ)

    def _is_missed(self, segment_id: int) -> bool:
        return any(item.segment_id == segment_id for item in self.verdict.missed)

    def _decide(self, index: int, segment_id: int, hole: Hole) -> list[Range]:
        """Put one hole where it belongs. Returns the missing numbers it explains."""
        first, last = self._cost(index, hole)
        lost = ranges.cut(self._missing, first, last)
        if hole.reason == "header" and hole.next_no and hole.length <= BATCH_HEADER_BYTES:
            hole = replace(hole, reason="empty")
        place = Damage(segment_id, hole.offset, hole.length, 0, 0, hole.reason)
        if hole.reason == "fenced":
            self.verdict.superseded.append(place)
            return []
        if hole.reason in KEPT:
            unread = ranges.without([(first, last)] if first <= last else [], self._good)
            self.verdict.unread = ranges.merged([*self.verdict.unread, *unread])
            numbers = (lost[0][0], lost[-1][1]) if lost else (0, 0)
            self.verdict.unreadable.append(place._replace(first_no=numbers[0], last_no=numbers[1]))
            # A foreign file does not hold the numbers that are missing: they stay to be explained.
            return [] if hole.reason == "foreign" else lost
        if segment_id in self._awaited.hurt:
            self._miss(place, lost)
        elif lost:
            self._report(lost, segment_id, hole)
        elif (segment_id, hole.offset) in self._places or ranges.cut(self._absent, first, last):
            self.verdict.settled.append(place)
        elif first <= last:
            self.verdict.superseded.append(place._replace(first_no=first, last_no=last))
        elif 0 < hole.next_no < self._first_no:
            self.verdict.superseded.append(place)
        elif 0 < hole.next_no <= self._proven(hole.next_no) and not self._is_again(
            index, hole.next_no
        ):
            # A sync covers the whole file: what stands before a synced batch was synced with it.
            self.verdict.corrupt.append(place)
        else:
            self.verdict.torn.append(place)
        return lost

    def _cost(self, index: int, hole: Hole) -> Range:
        """The numbers that stood in a hole: all between its neighbours; none where first > last."""
        if hole.batch_no:
            return hole.batch_no, hole.batch_no
        previous_no, next_no = hole.previous_no, hole.next_no
        if not previous_no:
            header = self._segments[index].header
            if header is not None:
                previous_no = header.prev_batch_no
            else:
                older = (evident_no(facts) for facts in self._segments[:index])
                previous_no = max([self._base_no, *older])
        if not next_no:
            # A segment that begins at an earlier number holds the same batches written again.
            newer = (start_no(facts) for facts in self._segments[index + 1 :])
            next_no = next((one for one in newer if one > previous_no), self._last_no + 1)
        return previous_no + 1, next_no - 1

    def _is_again(self, index: int, number: int) -> bool:
        """True where a later segment has that batch too: it may have been synced there alone."""
        return any(ranges.contains(one.numbers, number) for one in self._segments[index + 1 :])

    def _strand(self) -> None:
        """Find what only older segments hold of what a newer one, by its header, begins before.

        A failed sync makes the writer begin again, in a new segment, at the first batch that was
        not synced. Killed before it is through, the rest is read from the old segment.
        """
        newer: list[Range] = []
        begins_no = self._last_no + 1
        for facts in reversed(self._segments):
            alone = ranges.without(ranges.cut(facts.numbers, begins_no, self._last_no), newer)
            for first, last in alone:
                self.verdict.stranded.append(Settled(facts.segment_id, 0, first, last, STRANDED))
            begins_no = min(begins_no, start_no(facts) or begins_no)
            newer = ranges.merged([*newer, *facts.numbers])

    def _report(self, lost: list[Range], segment_id: int, hole: Hole) -> None:
        """Missing numbers: corrupt up to W, torn above it."""
        leapt = ranges.merged((first, last) for first, last, _ in self.verdict.leaps)
        inside = [piece for item in leapt for piece in ranges.cut(lost, *item)]
        for first, last in sorted([*inside, *ranges.without(lost, leapt)]):
            place = Damage(segment_id, hole.offset, hole.length, first, last, hole.reason)
            split = min(last, self._proven(first))
            if first <= split:
                self.verdict.corrupt.append(place._replace(last_no=split))
                first = split + 1
            if first <= last:
                self.verdict.torn.append(place._replace(first_no=first))

    def _proven(self, number: int) -> int:
        """W for that number."""
        if not any(first <= number <= last for first, last, _ in self.verdict.leaps):
            return self._synced_no
        return self.verdict.synced_up_to(number)
