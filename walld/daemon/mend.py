"""What start-up does to storage: scan, judge, and give the engine back what it had.

Owns: the order of a start (ARCHITECTURE.md, "A start") and the index built from a scan. Refuses:
writing to an old segment (nothing ever does), serving anybody.

Where a restart spends its time is the loop over directory entries: two appends a record. Bodies are
decoded only where an entry's flags say that something stands in it: a Begin, a Move, an end.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from walld_client.wire import messages as wire

from walld.engine.stream import OFFSET_BITS, Place
from walld.errors import FormatError
from walld.partials.store import PARTIALS_DIR, PartialFacts, PartialStore
from walld.wal import records
from walld.wal.files import SegmentFiles
from walld.wal.layout import QUARANTINE_DIR, WAL_DIR, Flag, directory
from walld.wal.scan import LogScan, list_segments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walld.disk.base import Disk
    from walld.wal.scan import ScannedBatch
    from walld.wal.verdict import Damage, Verdict

__all__ = ["Found", "FoundSegment", "Mended", "mend"]

_log = logging.getLogger("walld.mend")
_DEAD = Flag.RELEASED | Flag.RESOLVED


class Found:
    """A stream as a scan finds it, until the end of the scan says what becomes of it."""

    __slots__ = (
        "begin",
        "carried",
        "dead",
        "firsts",
        "last_at_ms",
        "last_seq",
        "moved_to",
        "sizes",
        "terminal",
        "where",
    )

    def __init__(self) -> None:
        self.begin: records.Begin | None = None
        self.moved_to: str | None = None
        self.terminal = False
        self.dead = False
        self.last_seq = -1
        self.last_at_ms = 0
        self.where = array("Q")
        self.sizes = array("I")
        self.firsts = array("I")
        self.carried = False
        """Some of its records stand out of order in the log."""

    def places(self) -> Iterator[Place]:
        """Where its records stand, in seq order."""
        for where, size in zip(self.where, self.sizes, strict=True):
            yield Place(where >> OFFSET_BITS, where & (1 << OFFSET_BITS) - 1, size)


@dataclass(slots=True)
class FoundSegment:
    """A segment of an earlier daemon, as it can be read."""

    segment_id: int
    first_batch: int
    size: int = 0
    batches: list[tuple[int, int]] = field(default_factory=list)
    """(batch_no, file offset)"""
    unreadable: bool = False
    """Some of it gave I/O errors: set aside when its turn comes, never unlinked."""


@dataclass(slots=True)
class Mended:
    """All that a start found."""

    verdict: Verdict
    streams: dict[int, Found]
    segments: list[FoundSegment]
    last_segment_id: int
    partials: dict[tuple[int, str, str], PartialFacts]
    """By uid, session name and stream name."""
    last_stream_no: int
    scanned_bytes: int
    not_synced: list[int]
    """Segments whose sync failed: what they hold must be written again before it counts."""


class _Scan:
    """One pass over the log."""

    def __init__(self) -> None:
        self.streams: dict[int, Found] = {}
        self.segments: list[FoundSegment] = []
        self.last_no = 0

    def take(self, segment_id: int, batch: ScannedBatch) -> None:
        """One good batch."""
        if not self.segments or self.segments[-1].segment_id != segment_id:
            self.segments.append(FoundSegment(segment_id, batch.batch_no))
        self.segments[-1].batches.append((batch.batch_no, batch.offset))
        at = batch.bodies_at
        place = batch.batch_no << OFFSET_BITS | at
        known = self.streams.get
        for no, first_seq, last_seq, length, flags in directory.iter_unpack(batch.directory):
            found = known(no)
            if found is None or flags:
                self._special(batch, at, no, first_seq, last_seq, length, flags)
            else:
                found.where.append(place)
                found.sizes.append(length)
                found.firsts.append(first_seq)
                found.last_seq = last_seq
                found.last_at_ms = batch.at_ms
            place += length
            at += length

    def _special(
        self,
        batch: ScannedBatch,
        at: int,
        no: int,
        first_seq: int,
        last_seq: int,
        length: int,
        flags: int,
    ) -> None:
        """A record that begins, ends, moves, buries or replaces something."""
        found = self.streams.get(no)
        if found is None:
            found = self.streams[no] = Found()
            self.last_no = max(self.last_no, no)
        if flags & _DEAD:
            found.dead = True
            return
        position = len(found.firsts)
        if flags & Flag.CARRIED:
            # It stands for all records of its seqs, and where they stood in seq order.
            found.carried = True
            position = bisect_left(found.firsts, first_seq)
            after = bisect_right(found.firsts, last_seq)
            for words in (found.where, found.sizes, found.firsts):
                del words[position:after]
        found.where.insert(position, batch.batch_no << OFFSET_BITS | at)
        found.sizes.insert(position, length)
        found.firsts.insert(position, first_seq)
        found.last_seq = max(found.last_seq, last_seq)
        found.last_at_ms = max(found.last_at_ms, batch.at_ms)
        if flags & (Flag.BEGIN | Flag.MOVED | Flag.TERMINAL):
            self._look_into(found, batch.body(at, length), no)

    @staticmethod
    def _look_into(found: Found, body: bytes, no: int) -> None:
        try:
            items = records.decode_items(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            # The CRC was good, so a walld wrote this: another version, or a bug. Kept, and said.
            _log.error("stream %d: a record cannot be read: %s", no, error)
            return
        for item in items:
            if isinstance(item, records.Begin):
                found.begin = item
            elif isinstance(item, records.Happened):
                if isinstance(item.event, wire.Move):
                    found.moved_to = item.event.session_id
                elif isinstance(item.event, wire.End | wire.AppError):
                    found.terminal = True


def mend(disk: Disk, store: PartialStore, log_uuid: bytes) -> Mended:
    """Look at everything on disk. Only for the owner of the directory; blocks, raises OSError.

    A segment shorter than its header is the residue of a start that was killed: it is renamed, so
    that the next scan does not meet it again.
    """
    disk.make_dir(WAL_DIR)
    disk.make_dir(PARTIALS_DIR)
    disk.make_dir(QUARANTINE_DIR)
    store.sweep_temporary()
    ids = list_segments(disk)
    scan = _Scan()
    log = LogScan(disk, log_uuid)
    for segment_id, batch in log:
        scan.take(segment_id, batch)
    verdict = log.verdict()
    for facts in log.segments:
        if any(hole.reason == "residue" for hole in facts.holes):
            path = SegmentFiles.path(facts.segment_id)
            disk.rename(path, f"{path}.residue")
            disk.sync_dir(WAL_DIR)
    for damage in verdict.corrupt:
        _log.error("damage to synced bytes: %s", _described(damage))
        _quarantine(disk, damage)
    for damage in (*verdict.torn, *verdict.unreadable):
        _log.warning("log damage: %s", _described(damage))
    _quarantine_nameless(disk, scan)
    not_synced = _sync_old(disk, [facts.segment_id for facts in log.segments])
    _segments_without_batches(scan, log, verdict.last_batch_no)
    return Mended(
        verdict,
        scan.streams,
        scan.segments,
        max(ids, default=0),
        _partials(store),
        scan.last_no,
        sum(facts.size for facts in log.segments),
        not_synced,
    )


def _partials(store: PartialStore) -> dict[tuple[int, str, str], PartialFacts]:
    """Every partial's header; a damaged file is moved to quarantine, with a note."""
    found: dict[tuple[int, str, str], PartialFacts] = {}
    for uid, sessions in store.tree().items():
        for session, names in sessions.items():
            for name in names:
                try:
                    found[uid, session, name] = store.read_facts(uid, session, name)
                except FormatError as error:
                    path = f"{PARTIALS_DIR}/{uid}/{session}/{name}"
                    _log.error("%s; moved to %s", error, store.quarantine(path, str(error)))
    return found


def _sync_old(disk: Disk, segment_ids: list[int]) -> list[int]:
    """What a killed daemon wrote and did not sync becomes durable before anything builds on it.

    Returns the segments where that failed.
    """
    failed = []
    for segment_id in segment_ids:
        try:
            file = disk.open(SegmentFiles.path(segment_id))
        except OSError:
            continue  # gone, or what the scan called unreadable
        try:
            file.sync()
        except OSError as error:
            _log.error("segment %d: sync at start: %s", segment_id, error.strerror or error)
            failed.append(segment_id)
        finally:
            file.close()
    disk.sync_dir(WAL_DIR)
    return failed


def _quarantine_nameless(disk: Disk, scan: _Scan) -> None:
    """Streams whose first record was lost to damage: nobody can ask for them, so keep the bytes."""
    for no, found in scan.streams.items():
        if found.begin is None and not found.dead:
            _log.error(
                "stream %d: %d records up to seq %d without their beginning; kept in %s/",
                no,
                len(found.where),
                found.last_seq,
                QUARANTINE_DIR,
            )
            bodies = []
            for place in found.places():
                at = bisect_right(scan.segments, place.batch_no, key=lambda s: s.first_batch) - 1
                segment = scan.segments[at]
                offset = dict(segment.batches)[place.batch_no] + place.offset
                file = disk.open(SegmentFiles.path(segment.segment_id))
                try:
                    bodies.append(file.read_at(place.length, offset))
                finally:
                    file.close()
            disk.replace(f"{QUARANTINE_DIR}/stream-{no}", b"".join(bodies))


def _segments_without_batches(scan: _Scan, log: LogScan, last_batch_no: int) -> None:
    """Segments with nothing to read take part too: they are unlinked in their turn."""
    found = {segment.segment_id: segment for segment in scan.segments}
    ordered: list[FoundSegment] = []
    for facts in log.segments:
        if any(hole.reason in ("residue", "version", "foreign") for hole in facts.holes):
            continue
        segment = found.get(facts.segment_id)
        if segment is None:
            first = ordered[-1].batches[-1][0] + 1 if ordered and ordered[-1].batches else 1
            if facts.header is not None:
                first = facts.header.prev_batch_no + 1
            segment = FoundSegment(facts.segment_id, min(first, last_batch_no + 1))
        segment.size = facts.size
        segment.unreadable = any(hole.reason == "unreadable" for hole in facts.holes)
        ordered.append(segment)
    scan.segments = ordered


def _described(damage: Damage) -> str:
    where = f"segment {damage.segment_id}, {damage.length} bytes at {damage.offset}"
    return f"{damage.reason}: {where}, batches {damage.first_no} to {damage.last_no}"


def _quarantine(disk: Disk, damage: Damage) -> None:
    """Copy damaged bytes out of a segment, once: their segment will be unlinked in its turn."""
    if not damage.segment_id or not damage.length:
        return
    name = f"{damage.segment_id:020d}.{damage.offset}.{damage.length}"
    if any(entry.name == name for entry in disk.list_dir(QUARANTINE_DIR)):
        return
    try:
        file = disk.open(SegmentFiles.path(damage.segment_id))
        try:
            disk.replace(f"{QUARANTINE_DIR}/{name}", file.read_at(damage.length, damage.offset))
        finally:
            file.close()
    except OSError as error:
        _log.error("cannot copy damaged bytes to quarantine/%s: %s", name, error)
