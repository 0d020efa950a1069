"""Scans a log: all its segments, oldest first.

Owns: which segments there are, and which of their batches count: the first copy of each, and none
that was written too late (`headers.py`). Refuses: what is in a segment (`scan.py`), what a hole
means (`verdict.py`), writing anything.

What has left the log and is there again, out of somebody's copy, is read: it may be all there is.
That nothing below the first batch that LOCK names need be there does not say that nothing is: not
of a `wal/` from a backup, nor where an earlier start could not read a segment. Reading no such
batch was tried, and lost replies in four ways.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walld.wal import ranges
from walld.wal.headers import counted, good_headers
from walld.wal.layout import BATCH_NO_MAX, WAL_DIR, parse_segment_name, segment_name
from walld.wal.scan import ScannedBatch, SegmentScan
from walld.wal.scan_report import Hole, SegmentFacts
from walld.wal.verdict import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walld.disk.base import Disk, File

__all__ = ["LogScan", "list_segments", "not_segments"]


class LogScan:
    """All segments of a log, oldest first. Iterate it to the end, then ask `verdict`.

    Gives (segment id, batch) for every good batch that counts, the first copy of a number only.
    Pure reading: it takes no lock, and may run beside the daemon that writes the log.
    """

    def __init__(self, disk: Disk, log_uuid: bytes | None = None) -> None:
        self.segments: list[SegmentFacts] = []
        self.log_uuid = log_uuid
        self._disk = disk
        self._counted: dict[int, int] = {}

    def again(self) -> LogScan:
        """Another look at it."""
        return LogScan(self._disk, self.log_uuid)

    def __iter__(self) -> Iterator[tuple[int, ScannedBatch]]:
        ids = list_segments(self._disk)
        several = len(ids) > 1 or self.log_uuid is None
        headers = list(good_headers(self._disk, ids)) if several else []
        if self.log_uuid is None and headers:
            self.log_uuid = headers[0].log_uuid
        self._counted = counted(one for one in headers if one.log_uuid == self.log_uuid)
        seen: list[ranges.Range] = []
        for segment_id in ids:
            for batch in self._segment(segment_id):
                if seen and batch.batch_no <= seen[-1][1] and ranges.contains(seen, batch.batch_no):
                    continue
                ranges.add(seen, batch.batch_no)
                yield segment_id, batch

    def verdict(self, attested_no: int = 0, first_no: int = 0) -> Verdict:
        """What the holes mean. LOCK calls attested_no synced, and first_no the first there is."""
        return judge(self.segments, attested_no, first_no)

    def scan(self, file: File, segment_id: int) -> SegmentScan:
        """That of one segment of this log, as far as it counts."""
        counted_no = self._counted.get(segment_id, BATCH_NO_MAX)
        return SegmentScan(file, segment_id, self.log_uuid, counted_no)

    def _segment(self, segment_id: int) -> Iterator[ScannedBatch]:
        path = f"{WAL_DIR}/{segment_name(segment_id)}"
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            # Gone since it was listed. The daemon unlinks oldest-first: all before it are gone too.
            self.segments.clear()
            return
        except OSError:
            facts = SegmentFacts(segment_id, holes=[Hole(0, 0, 0, "unreadable")])
            self.segments.append(facts)
            return
        scan = self.scan(file, segment_id)
        self.segments.append(scan.facts)
        try:
            yield from scan
        finally:
            file.close()


def list_segments(disk: Disk) -> list[int]:
    """Ids of the segments that are there, ascending. Other names in wal/ mean nothing."""
    try:
        entries = disk.list_dir(WAL_DIR)
    except NotADirectoryError:  # none can be there: a start sets it aside
        return []
    ids = (parse_segment_name(entry.name) for entry in entries if entry.kind == "file")
    return sorted(number for number in ids if number is not None)


def not_segments(disk: Disk) -> list[str]:
    """What is called like a segment, or the log, and is none, by its path: nobody reads what it
    holds.
    """
    try:
        entries = disk.list_dir(WAL_DIR)
    except NotADirectoryError:
        return [WAL_DIR]
    return [
        f"{WAL_DIR}/{entry.name}"
        for entry in entries
        if entry.name.endswith(".wal")
        and (entry.kind != "file" or parse_segment_name(entry.name) is None)
    ]
