"""Begin, Move and End of the streams of a log, and records without a beginning.

Owns: reading the bodies that a start needs, out of segments that were scanned. Refuses: scanning
(`wal/scan.py`), the order of a start (`startup_recovery.py`).

Only of streams without a tombstone, and only where an entry's flags say that something stands in
them: a Begin, a Move, an end.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from walld_client.wire import messages as wire

from walld.errors import FormatError
from walld.wal import records
from walld.wal.index import OFFSET_BITS
from walld.wal.layout import QUARANTINE_DIR
from walld.wal.segment_files import SegmentFiles

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from walld.disk.base import Disk, File
    from walld.wal.index import LogIndex, StreamRecords
    from walld.wal.ranges import Range

__all__ = ["Bodies", "Found", "FoundSegment", "quarantine_stream", "read_heads"]

_log = logging.getLogger("walld.recovery")


@dataclass(slots=True)
class Found:
    """A stream that has no tombstone."""

    index: StreamRecords
    begin: records.Begin | None = None
    moved_to: str | None = None
    terminal: bool = False

    @property
    def is_reply(self) -> bool:
        """Not lines of a session, and not without a name."""
        return self.begin is not None and bool(self.begin.producer)

    def look_at(self, item: records.Item) -> None:
        """What an item says of its stream."""
        if isinstance(item, records.Begin):
            self.begin = item
        elif isinstance(item, records.Happened):
            if isinstance(item.event, wire.Move):
                self.moved_to = item.event.session_id
            elif isinstance(item.event, wire.End | wire.AppError):
                self.terminal = True


@dataclass(slots=True)
class FoundSegment:
    """A segment of an earlier daemon, as it can be read."""

    segment_id: int
    size: int = 0
    batches: list[tuple[int, int]] = field(default_factory=list)
    """(batch_no, file offset)"""
    first_no: int = 0
    """Where it begins for all that its header says, 0 where nothing tells."""
    unreadable: bool = False
    """Some of it gave I/O errors, or is damaged and could not be copied: set aside when its turn
    comes, never unlinked."""


class Bodies:
    """Record bodies by place, out of segments opened once. They must be closed."""

    def __init__(self, disk: Disk, segments: list[FoundSegment]) -> None:
        self._disk = disk
        self._batches = {
            no: (segment.segment_id, offset)
            for segment in segments
            for no, offset in segment.batches
        }
        self._files: dict[int, File] = {}

    def segment_of(self, place: int) -> int:
        """Its id."""
        return self._batches[place >> OFFSET_BITS][0]

    def read(self, place: int, length: int) -> bytes:
        """One, unchecked. OSError."""
        batch_no, offset = place >> OFFSET_BITS, place & (1 << OFFSET_BITS) - 1
        segment_id, batch_at = self._batches[batch_no]
        file = self._files.get(segment_id)
        if file is None:
            file = self._files[segment_id] = self._disk.open(SegmentFiles.path(segment_id))
        return file.read_at(length, batch_at + offset)

    def close(self) -> None:
        """Let go of the segments."""
        for file in self._files.values():
            file.close()


def read_heads(
    disk: Disk,
    index: LogIndex,
    bodies: Bodies,
    kept: Collection[int],
    uncopied: set[int],
    lost_to_power: Sequence[Range],
) -> dict[int, Found]:
    """Streams without a tombstone, and what their own records say of them.

    kept: numbers that have a partial. The beginning of a kept reply may be gone with its segment
    while later records of it are still there: its partial has it. uncopied: segments
    that hold what should be in quarantine and could not be put there, or what could not be read:
    they are set aside whole; it grows (K4). lost_to_power: `quarantine.lost_to_power`.
    """
    streams: dict[int, Found] = {}
    for no, found in index.streams():
        streams[no] = stream = Found(found)
        try:
            for place, length in found.telling:
                _look_into(stream, bodies.read(place, length), no)
        except OSError as error:
            # Nobody is told less of it than there is: it stays where it is, for another start.
            _log.error("stream %d: %s; it is not served, and its segments stay", no, error)
            uncopied.update(bodies.segment_of(place) for place in found.where)
            del streams[no]
            continue
        if stream.begin is None and no not in kept:
            number = found.where[0] >> OFFSET_BITS
            if any(first < number <= last for first, last in lost_to_power):
                _log.warning("stream %d: power took its beginning, never synced; it goes", no)
                continue
            # Its first record was lost to damage: nobody can ask for it.
            text = "stream %d: %d records up to seq %d without their beginning; kept in %s/"
            _log.error(text, no, len(found.where), found.last_seq, QUARANTINE_DIR)
            uncopied |= quarantine_stream(disk, bodies, no, found)
    return streams


def _look_into(found: Found, body: bytes, no: int) -> None:
    try:
        items = records.decode_body(no, body)
    except FormatError as error:
        # The batch was good, so a walld wrote this: another version, or a bug. Kept, and said.
        _log.error("stream %d: a record cannot be read: %s", no, error)
        return
    for item in items:
        found.look_at(item)


def quarantine_stream(disk: Disk, bodies: Bodies, no: int, found: StreamRecords) -> set[int]:
    """Keep the bytes of a stream that nobody can ask for.

    Returns the segments that hold them where that failed, on a full disk for one.
    """
    try:
        kept = b"".join(map(bodies.read, found.where, found.sizes))
        disk.replace(f"{QUARANTINE_DIR}/stream-{no}", kept)
    except OSError as error:
        _log.error("stream %d: cannot copy them to quarantine: %s", no, error)
        return {bodies.segment_of(place) for place in found.where}
    return set()
