"""Reads everything readable of a damaged data directory, stream by stream.

Owns: which bytes count as a stream's: records of good batches, bodies that verify by themselves in
batches that do not, the partial. Refuses: writing anywhere (`salvage.py`), joining items
(`replies/merge.py`), what a hole means (`wal/verdict.py`).

A tombstone is believed in a good batch only: in a bad one it may be a flipped bit, and a reply too
many is a smaller mistake than one too few.

Memory: 12 bytes a record, as a start takes, and the largest reply.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from walld.cli.inspect import directory_scan
from walld.disk.base import Disk, File
from walld.errors import FormatError
from walld.partials.file import Partial, PartialFacts, read_partial
from walld.partials.names import own_names, place_of
from walld.recovery.quarantine import kept_aside, tails_lost
from walld.replies.fragments import counted_from
from walld.wal import ranges
from walld.wal.index import OFFSET_BITS, LogIndex
from walld.wal.layout import segment_seed
from walld.wal.log_scan import LogScan
from walld.wal.lost_ranges import Coverage
from walld.wal.partial_batch import doubtful_batch
from walld.wal.records import Begin, Item, decode_body, decode_items
from walld.wal.scan import ScannedBatch
from walld.wal.segment_files import SegmentFiles
from walld.wal.verdict import CORRUPT, TORN, Verdict

if TYPE_CHECKING:
    from walld.wal.index import StreamRecords

__all__ = ["SalvageReader", "SalvagedStream"]

_Place = tuple[int, int, int]
"""Segment, offset in its file, length."""


@dataclass(slots=True)
class SalvagedStream:
    """What there is of one stream. bodies: its records as they stand, unread ones too.

    facts: of its partial. doubtful: records out of batches that do not verify. in_parts: it stands
    under several numbers. unread: why some of it could not be read.
    """

    stream_no: int
    items: list[Item] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    facts: PartialFacts | None = None
    segments: set[int] = field(default_factory=set)
    doubtful: int = 0
    in_parts: bool = False
    unread: list[str] = field(default_factory=list)

    kept_seq: int = 0
    """How far its partial says that it got."""

    def goes_on_from(self, part: SalvagedStream, items: list[Item]) -> None:
        """What an earlier number holds of the reply, with its items counted from this Begin."""
        self.in_parts = True
        self.items += items
        self.bodies += part.bodies
        self.facts = self.facts or part.facts
        self.kept_seq = max(self.kept_seq, part.kept_seq)
        self.segments |= part.segments
        self.doubtful += part.doubtful
        self.unread += part.unread

    @property
    def begin(self) -> Begin | None:
        """Who it is; None where that is lost."""
        return next((item for item in self.items if isinstance(item, Begin)), None)


class SalvageReader:
    """One reading of a directory. FormatError where there is nothing of walld."""

    def __init__(self, disk: Disk) -> None:
        directory_scan.check_directory(disk)
        self._disk = disk
        self._index = LogIndex()
        self._coverage = Coverage()
        self._batches: dict[int, tuple[int, int]] = {}
        self._files: dict[int, File] = {}
        self._doubtful: dict[int, list[_Place]] = {}
        self.tombstones_doubted = 0
        """Entries of bad batches that claim to be tombstones, and are not believed."""
        lock = directory_scan.log_of(disk)
        log = LogScan(disk, lock.log_uuid)
        directory_scan.scan(disk, log, "reading the log", self._take)
        self.log_uuid = log.log_uuid
        self.verdict = log.verdict(lock.synced_no, directory_scan.first_no(disk, log.log_uuid))
        self._words = _words(log, self.verdict)
        if self.log_uuid is not None:
            for segment_id, offset in _bad_batches(log):
                self._doubt(self.log_uuid, segment_id, offset)
        self._kept: dict[int, str] = {}
        self._kept_begins: dict[int, Begin] = {}
        self.apart: list[str] = []
        """Partials of another log, whose stream numbers mean nothing in this one."""
        self.released: list[str] = []
        """Partials of replies that were released since."""
        self.damaged: list[directory_scan.DamagedPartial] = []
        self._gone, doubt = directory_scan.done_with(disk, self.log_uuid)
        self.doubts = [why for why in (doubt, lock.unread) if why is not None]
        """Why what is there may be more, or less, than there should be."""
        for found in directory_scan.partials(disk):
            self._keep(found)
        for misplaced in [one for one in self.damaged if one.is_misplaced]:
            if self._take_misplaced(misplaced.path):
                self.damaged.remove(misplaced)
        self._parts = directory_scan.join_parts(self._coverage, self._bytes, self._kept_begins)
        for no in self._kept.keys() & self._coverage.dead:
            self.released.append(self._kept.pop(no))
        self._possible_last_seqs = tails_lost(disk, self.log_uuid, self.verdict, self._coverage)
        lost = self.verdict.corrupt or self.verdict.unreadable or self.verdict.unread
        self._is_whole = not (lost or self.damaged or self.doubts or kept_aside(disk))
        """What is not here never was, for all that a start would know."""

    def _take(self, segment_id: int, batch: ScannedBatch) -> None:
        self._index.take(batch)
        self._coverage.take(segment_id, batch)
        self._batches[batch.batch_no] = segment_id, batch.offset
        with suppress(OSError):
            self._file(segment_id)  # kept open: beside a daemon its name may go, its bytes stay

    def _doubt(self, log_uuid: bytes, segment_id: int, offset: int) -> None:
        """Note the records of a bad batch that verify by themselves."""
        with suppress(OSError):
            seed = segment_seed(log_uuid, segment_id)
            batch = doubtful_batch(self._file(segment_id), seed, offset)
            if batch is None:
                return
            self.tombstones_doubted += batch.tombstones
            self._coverage.doubted(segment_id, offset, batch)
            for record, _ in batch.good:
                if record.stream_no not in self._coverage.dead:
                    place = segment_id, offset + record.offset, record.body_bytes
                    self._doubtful.setdefault(record.stream_no, []).append(place)

    def _keep(self, found: directory_scan.FoundPartial | directory_scan.DamagedPartial) -> None:
        if isinstance(found, directory_scan.DamagedPartial):
            self.damaged.append(found)
            return
        no = found.facts.stream_no
        if found.facts.log_uuid != self.log_uuid:
            self.apart.append(found.path)
        elif no in self._coverage.dead or ranges.contains(self._gone, no):
            self.released.append(found.path)
        else:
            self._kept[no], self._kept_begins[no] = found.path, found.begin
            self._coverage.has(no, found.facts.first_seq, found.facts.last_seq)

    def _take_misplaced(self, path: str) -> bool:
        """One that stands under another's names is taken where nothing stands under its own."""
        try:
            partial, items = self._read_partial(path)
        except (OSError, FormatError):
            return False
        no = partial.facts.stream_no
        names = own_names(items)
        if names is None or names[0] != partial.uid or partial.facts.log_uuid != self.log_uuid:
            return False
        is_hurt = partial.facts.gap_word == "corrupt"  # damage may have taken its Move
        if partial.place != place_of(*names[1:]) and not is_hurt:
            return False
        if no in self._kept or no in self._coverage.dead or ranges.contains(self._gone, no):
            return False
        self._kept[no] = path
        if isinstance(items[0], Begin):
            self._kept_begins[no] = items[0]
        self._coverage.has(no, partial.facts.first_seq, partial.facts.last_seq)
        return True

    def _read_partial(self, path: str) -> tuple[Partial, list[Item]]:
        """Whosever it is: `directory_scan.partials` has looked at its names."""
        file = self._disk.open(path)
        try:
            partial = read_partial(file, path)
        finally:
            file.close()
        return partial, decode_items(partial.body)

    @property
    def count(self) -> int:
        """Streams that are not released, but for those that only a bad batch tells of."""
        return self._coverage.count

    def streams(self) -> Iterator[SalvagedStream]:
        """Every stream that is not released, in the order they began to be written."""
        goes_on = {no for last, begins in self._parts.items() for no in begins if no != last}
        gone = self._coverage.dead
        held: dict[int, StreamRecords] = {}
        if goes_on:
            held = {no: found for no, found in self._index.streams() if no in goes_on}
        met = set(goes_on)
        for no, found in self._index.streams():
            if no not in goes_on and no not in gone:
                met.add(no)
                yield self._whole(no, found, held)
        for no in sorted({*self._doubtful, *self._kept} - met - gone):
            yield self._whole(no, None, held)

    def _whole(
        self, no: int, records: StreamRecords | None, held: dict[int, StreamRecords]
    ) -> SalvagedStream:
        """A stream, and what earlier numbers hold of its reply."""
        found = self._gathered(no, self._places(records))
        begins = self._parts.get(no, {})
        for earlier in sorted(begins.keys() - {no}):
            part = self._gathered(earlier, self._places(held.get(earlier)))
            items = counted_from(begins[no], begins[earlier], part.items)
            found.goes_on_from(part, items)
        return found

    def _places(self, records: StreamRecords | None) -> list[_Place]:
        if records is None:
            return []
        pairs = zip(records.where, records.sizes, strict=True)
        return [(*self._place(where), size) for where, size in pairs]

    def _place(self, where: int) -> tuple[int, int]:
        segment_id, batch_at = self._batches[where >> OFFSET_BITS]
        return segment_id, batch_at + (where & (1 << OFFSET_BITS) - 1)

    def _gathered(self, no: int, places: list[_Place]) -> SalvagedStream:
        found = SalvagedStream(no)
        kept = self._kept.get(no)
        if kept is not None:
            try:
                partial, items = self._read_partial(kept)
                found.items += items
                found.facts = partial.facts
                if not (places and self._is_whole and partial.facts.gap_word == "unknown"):
                    found.kept_seq = partial.facts.last_seq
            except FileNotFoundError:
                pass  # resolved since it was listed
            except (OSError, FormatError) as error:
                found.unread.append(str(error))
        for place in places:
            self._read(found, place)
        doubted = self._doubtful.get(no, ())
        for place in doubted:
            self._read(found, place)
        found.doubtful = len(doubted)
        return found

    def _read(self, found: SalvagedStream, place: _Place) -> None:
        segment_id, offset, length = place
        if not length:
            return
        where = f"segment {segment_id}, {length} bytes at {offset}"
        try:
            body = self._bytes(*place)
        except OSError as error:
            found.unread.append(f"{where}: {error.strerror}")
            return
        found.bodies.append(body)
        found.segments.add(segment_id)
        try:
            found.items += decode_body(found.stream_no, body)
        except FormatError as error:
            found.unread.append(f"{where}: {error}")

    def _bytes(self, segment_id: int, offset: int, length: int) -> bytes:
        return self._file(segment_id).read_at(length, offset)

    def _file(self, segment_id: int) -> File:
        file = self._files.get(segment_id)
        if file is None:
            file = self._files[segment_id] = self._disk.open(SegmentFiles.path(segment_id))
        return file

    def possible_last_seq(self, stream_no: int) -> int:
        """The highest seq it may have reached, by the log; 0 where its end is there."""
        return self._possible_last_seqs.get(stream_no, 0)

    def gap_word(self, stream_no: int) -> str | None:
        """What missing seqs of it are put down to by the log; None where the log lost nothing."""
        words = {
            word
            for gap in self._coverage.gaps(stream_no)
            for word, first_no, last_no in self._words
            if gap.may_be_of(first_no, last_no)
        }
        if stream_no in self._possible_last_seqs:
            words.add("corrupt" if self.verdict.corrupt else "unknown")
        return next((word for word in ("corrupt", "unknown", "torn") if word in words), None)

    def close(self) -> None:
        """Close every file."""
        while self._files:
            self._files.popitem()[1].close()


def _bad_batches(log: LogScan) -> list[tuple[int, int]]:
    """(segment, offset) of batches with a good header that were read nowhere."""
    good = ranges.merged(item for facts in log.segments for item in facts.numbers)
    return [
        (facts.segment_id, hole.offset)
        for facts in log.segments
        for hole in facts.holes
        if hole.reason in ("payload", "short") and not ranges.contains(good, hole.batch_no)
    ]


def _words(log: LogScan, verdict: Verdict) -> list[tuple[str, int, int]]:
    """(word, first batch, last batch) of what is missing: found now, or by an earlier start."""
    found = [("corrupt", item.first_no, item.last_no) for item in verdict.corrupt if item.first_no]
    found += [("torn", item.first_no, item.last_no) for item in verdict.torn if item.first_no]
    found += [("unknown", first_no, last_no) for first_no, last_no in verdict.unread]
    for facts in log.segments:
        for item in facts.settled:
            word = {TORN: "torn", CORRUPT: "corrupt"}.get(item.verdict)
            if item.first_no and word is not None:
                found.append((word, item.first_no, item.last_no))
    return found
