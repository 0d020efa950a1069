"""Finds streams whose first record went with a missing segment.

Owns: that proof. Refuses: holes (`wal/verdict.py`), words (`fsck.py`), writing, ever.

A segment goes when all that is live in it stands elsewhere: the Begin of every stream without a
tombstone is in the log, or its partial is there. Where records of one stand behind neither, and no
hole can have held its Begin, a segment was taken away. What a crash never synced goes so, too: it
counts where a record behind the Begin is known to be synced, for then the Begin was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walld.cli.inspect import directory_scan
from walld.wal.layout import Flag
from walld.wal.log_scan import LogScan, list_segments
from walld.wal.lost_ranges import Coverage

if TYPE_CHECKING:
    from walld.disk.base import Disk
    from walld.wal.lost_ranges import Gap
    from walld.wal.scan import ScannedBatch

__all__ = ["MissingBegins", "lost_beginnings"]

READ_TRIES = 5
"""Beside a daemon a stream may be carried, kept or released between two looks."""
_DEAD = Flag.RELEASED | Flag.RESOLVED


class MissingBegins:
    """Feed it each good batch. Memory: a number for each stream, one more without a Begin."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        """Streams with a Begin or a tombstone."""
        self._last_seqs: dict[int, int] = {}

    def take(self, _segment_id: int, batch: ScannedBatch) -> None:
        """One good batch's directory."""
        for record in batch.records:
            no = record.stream_no
            if record.flags & (_DEAD | Flag.BEGIN):
                self._known.add(no)
                self._last_seqs.pop(no, None)
            elif no not in self._known:
                self._last_seqs[no] = max(record.last_seq, self._last_seqs.get(no, 0))

    def absent(self, kept: dict[int, int]) -> list[int]:
        """Streams that have none. kept: last seq of each partial of this log."""
        found = self._last_seqs.items()
        return sorted(no for no, last_seq in found if kept.get(no, -1) < last_seq)


def lost_beginnings(disk: Disk, log: LogScan) -> list[tuple[int, Gap]]:
    """(stream number, its missing seqs), by another look at the whole directory."""
    for _ in range(READ_TRIES):
        before = list_segments(disk)
        log, coverage, beginnings = log.again(), Coverage(), MissingBegins()
        for segment_id, batch in log:
            coverage.take(segment_id, batch)
            beginnings.take(segment_id, batch)
        kept = {}
        for found in directory_scan.partials(disk):
            if (
                isinstance(found, directory_scan.FoundPartial)
                and found.facts.log_uuid == log.log_uuid
            ):
                kept[found.facts.stream_no] = found.facts.last_seq
        if set(list_segments(disk)) <= set(before):
            break
    else:
        return []
    verdict = log.verdict()
    if verdict.unreadable:
        return []  # it may stand there
    holes = [(one.first_no, one.last_no) for one in (*verdict.torn, *verdict.corrupt)]
    holes += [(row.first_no, row.last_no) for facts in log.segments for row in facts.settled]
    lost = []
    for no in beginnings.absent(kept):
        gaps = coverage.gaps(no)
        first = next(iter(gaps), None)
        if first is None or first.first_seq or first.before_no > verdict.synced_no:
            continue
        if not any(first.may_be_of(*hole) for hole in holes):
            lost += [(no, gap) for gap in gaps]
    return lost
