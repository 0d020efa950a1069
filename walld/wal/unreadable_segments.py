"""Segments that cannot be read: how long a start waits, and what is said of them.

Owns: which segments earlier starts could not read, whether one that can be read by now is whole,
and how far the headers of a segment tell it went. Refuses: files, which numbers are missing
(`verdict.py`).

A start that leaps over the numbers of what it cannot read (V4) knows nothing of those numbers. So
it writes down which segments that was for, and how long they were; and until a later row says that
one was read, or left the log in its turn, its absence is a loss, and so is a hole in it. Not what a
kill leaves at the end of a file that has its length still: a write that was cut off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walld.wal import ranges
from walld.wal.layout import BATCH_HEADER_BYTES, SEGMENT_HEADER_BYTES, Settled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from walld.wal.ranges import Range
    from walld.wal.scan_report import Hole, Reason, SegmentFacts

__all__ = [
    "KEPT",
    "READ",
    "UNREAD",
    "UnreadableSegments",
    "base_no",
    "evident_no",
    "left",
    "start_no",
]

UNREAD, READ = 6, 7
"""Verdicts of `layout.Settled` rows."""
KEPT: frozenset[Reason] = frozenset({"unreadable", "version", "foreign"})
"""Neither torn nor corrupt (V3)."""


class UnreadableSegments:
    """What earlier starts could not read, among all segments of a log.

    read: rows about those that are whole by now. hurt: segment id -> (a number that it is missed
    for, how far it went for all that is known) of those that are not, or not there.
    """

    def __init__(self, segments: Sequence[SegmentFacts], good: list[Range]) -> None:
        told = [row for facts in segments for row in facts.settled]
        self.known = {row.segment_id: row for row in told if row.verdict == READ}
        rows = {row.segment_id: row for row in told if row.verdict == UNREAD}
        self.ids = rows.keys() | self.known.keys()
        self.read: list[Settled] = []
        self.hurt: dict[int, tuple[int, int]] = {}
        by_id = {facts.segment_id: facts for facts in segments}
        for segment_id in sorted(rows.keys() - self.known.keys()):
            row, facts = rows[segment_id], by_id.get(segment_id)
            if facts is not None and any(hole.reason in _MAY_PASS for hole in facts.holes):
                continue
            older = (one for one in segments if one.segment_id <= segment_id)
            until = max(map(evident_no, older), default=0)
            if facts is None or _is_hurt(facts, row.offset, good):
                no = min(max(row.first_no, until + 1), row.last_no)
                self.hurt[segment_id] = no, until
            else:
                self.read.append(Settled(segment_id, until, 0, 0, READ))

    def read_until(self, segment_id: int) -> int:
        """The highest number that segments up to that one are known to have held, all synced."""
        return max((row.offset for no, row in self.known.items() if no <= segment_id), default=0)

    def missed(self, leap: Settled, unread: Sequence[SegmentFacts]) -> list[Settled]:
        """Rows about segments that cannot be read now, and for which a start leaps."""
        return [
            Settled(facts.segment_id, facts.size, leap.first_no, leap.last_no, UNREAD)
            for facts in unread
            if facts.segment_id not in self.ids
            and any(hole.reason in _MAY_PASS for hole in facts.holes)
        ]


_MAY_PASS = KEPT - {"foreign"}


def left(segment_id: int) -> Settled:
    """The row about a segment that was never read and leaves the log, oldest as it is."""
    return Settled(segment_id, 0, 0, 0, READ)


def _is_hurt(facts: SegmentFacts, size: int, good: list[Range]) -> bool:
    """size: what it had when it could not be read, 0 where nobody could say."""
    return facts.size < size or any(_costs(hole, facts.size, good) for hole in facts.holes)


def _costs(hole: Hole, size: int, good: list[Range]) -> bool:
    if hole.batch_no and ranges.contains(good, hole.batch_no):
        return False  # it stands elsewhere
    is_end = hole.offset + hole.length == size and hole.offset > 0
    is_cut_off = hole.reason == "short" or hole.length < BATCH_HEADER_BYTES
    return not (is_end and is_cut_off)


def evident_no(facts: SegmentFacts) -> int:
    """The highest batch number that a segment gives evidence of."""
    before = facts.header.prev_batch_no if facts.header else 0
    settled = max((row.last_no for row in facts.settled), default=0)
    return max(facts.last_no, before, settled)


def start_no(facts: SegmentFacts) -> int:
    """The number of a segment's first batch, 0 where nothing tells it."""
    return facts.header.prev_batch_no + 1 if facts.header else facts.first_no


def base_no(
    segments: Sequence[SegmentFacts], settled: set[tuple[int, int]], first_no: int = 0
) -> int:
    """The number before the first that must be there: older ones went with their segments.

    settled: (segment id, offset) of holes of which an earlier start has said what they cost.
    first_no: what LOCK says of it, 0 where it does not. A segment before it that is still there, or
    that power brought back, is missed no more than if it had gone.
    The lowest beginning, not the oldest segment's: a later one may hold earlier batches again.
    """
    starts = [number for number in map(start_no, segments) if number]
    if first_no:
        return first_no - 1
    if not starts:
        return 0
    if segments[0].header is not None:
        return min(starts) - 1
    # The oldest header is lost, and how many batches behind it is not known: one if there was room.
    # None where what it held unsynced stands again in a later one: perhaps it never was synced.
    # That is the one that begins lowest: those between may have been taken along, as it was.
    holes = segments[0].holes
    headers = (facts.header for facts in segments if facts.header is not None)
    lowest = min(headers, key=lambda header: header.prev_batch_no, default=None)
    # Of a file that is shorter there was: what a start did not finish is renamed by the next one,
    # behind a row and before any segment goes.
    lengths = {one.reason: one.length for one in holes[:1]}
    room = lengths.get("segment header", 0) > SEGMENT_HEADER_BYTES or "residue" in lengths
    room = room and not (lowest is not None and lowest.again)
    # Nor where a start has judged it while the segments before it, and their numbers, were there.
    room = room and (segments[0].segment_id, holes[0].offset) not in settled
    return max(min(starts) - 1 - room, 0)
