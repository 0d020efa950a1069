"""Where each batch lies, and how many bytes of each segment are live.

Owns: batch_no -> (segment, file offset), the size and the live bytes of each segment, and the rule
for unlinking. Refuses: files (`wal/segment_files.py`), streams.

Invariants
- G1 Batch numbers are dense and for ever; the last segment alone grows, and begins behind all
  others. Of the segments a start found, two may share a range: after a failed sync the same batches
  stand in two, and where some of the one are damaged each holds what the other lacks.
- G2 Live bytes of a segment are the record bytes (entry and body) in it that a reply not released
  and not yet in a synced partial still needs.
- G3 A segment is unlinked only as the oldest, without live bytes, and when everything that ordered
  it (tombstones, carried copies) is synced: `unlink_after <= synced_no`. K6 to K8 keep it longer
  (`daemon/startup/deferred_recovery.py`: `holds_segments`, `has_left`, `before_unlink`).
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from walld.wal.layout import ENTRY_BYTES, SEGMENT_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from walld.engine.stream import Stream

__all__ = ["Segment", "Segments"]


@dataclass(slots=True, eq=False)
class Segment:
    """One WAL file. `first_batch` is the number of the first batch it holds or will hold."""

    segment_id: int
    first_batch: int
    created_at: float
    size: int = SEGMENT_HEADER_BYTES
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    """File offset of first_batch + i; 0 where that batch is not read from here."""
    live_bytes: int = 0
    unlink_after: int = 0
    released_since: float | None = None
    """Since when it holds bytes of a released reply."""
    last_release_at: float | None = None
    """When the last of them was released."""
    poisoned: bool = False
    unreadable: bool = False
    """It gave I/O errors at the start: set aside instead of unlinked."""
    nameless: bool = False
    """Neither its header nor a batch tells which log it is of: it proves no log."""
    undurable: bool = False
    """The start could not sync it: power may take all of it."""

    @property
    def last_batch(self) -> int:
        """Number of its last batch; first_batch - 1 where it has none."""
        return self.first_batch + len(self.offsets) - 1

    def holds(self, batch_no: int) -> bool:
        """True where that batch is read from here."""
        at = batch_no - self.first_batch
        return 0 <= at < len(self.offsets) and self.offsets[at] > 0

    def wait_for(self, batch_no: int) -> None:
        """It goes once that batch is synced, and not before."""
        self.unlink_after = max(self.unlink_after, batch_no)

    def note_release(self, now: float) -> None:
        """Bytes of a released reply stand in it: the clock of reclaim_seconds runs."""
        self.last_release_at = now
        if self.released_since is None:
            self.released_since = now

    @property
    def is_empty(self) -> bool:
        """True for a segment that is nothing but its header."""
        return not self.offsets


class Segments:
    """All segments, oldest first. The last one is written to."""

    def __init__(self) -> None:
        self._list: list[Segment] = []
        self._overlaps = False
        """Two of them share a range of numbers (G1): who has which must be looked up."""
        self.live_bytes = 0
        self.size = 0

    def __len__(self) -> int:
        return len(self._list)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._list)

    def between(self, first_batch: int, last_batch: int) -> list[Segment]:
        """Segments that hold any of these batches, and a new one that holds none yet."""
        return [
            segment
            for segment in self._list
            if segment.last_batch >= first_batch and segment.first_batch <= last_batch
        ]

    @property
    def oldest(self) -> Segment:
        """The one that goes next."""
        return self._list[0]

    @property
    def current(self) -> Segment:
        """The one that is written to."""
        return self._list[-1]

    def add(self, segment: Segment) -> None:
        """A newer segment."""
        if self._list:
            last = self._list[-1]
            assert segment.segment_id > last.segment_id, (segment.segment_id, last.segment_id)
            self._overlaps |= segment.first_batch <= max(s.last_batch for s in self._list)
        self._list.append(segment)
        self.size += segment.size
        self.live_bytes += segment.live_bytes

    def wrote(self, batch_no: int, offset: int, length: int) -> None:
        """A batch stands at `offset` of the current segment."""
        current = self._list[-1]
        assert batch_no == current.last_batch + 1, (batch_no, current.last_batch)
        current.offsets.append(offset)
        current.size = offset + length
        self.size += length

    def of_batch(self, batch_no: int) -> Segment | None:
        """The segment that holds a batch, None where it is gone or not written."""
        if self._overlaps:
            return next((segment for segment in self._list if segment.holds(batch_no)), None)
        at = bisect_right(self._list, batch_no, key=lambda segment: segment.first_batch) - 1
        if at < 0:
            return None
        segment = self._list[at]
        return segment if batch_no <= segment.last_batch else None

    def locate(self, batch_no: int) -> tuple[int, int] | None:
        """(segment id, file offset) of a batch's header, None where it is not in a file."""
        segment = self.of_batch(batch_no)
        if segment is None:
            return None
        return segment.segment_id, segment.offsets[batch_no - segment.first_batch]

    def lived(self, segment: Segment, body_bytes: int, records: int = 1) -> None:
        """Records with that many body bytes in all are in it and needed."""
        grown = body_bytes + records * ENTRY_BYTES
        segment.live_bytes += grown
        self.live_bytes += grown

    def died(self, batch_no: int, length: int, after: int, now: float | None) -> None:
        """A record of it is not needed once batch `after` is synced.

        now: when a release (not a carry) made it so, which starts the clock of reclaim_seconds.
        """
        segment = self.of_batch(batch_no)
        if segment is None:
            if now is not None and self._list:
                self._list[-1].note_release(now)  # it is being written again: there
            return
        segment.live_bytes -= length + ENTRY_BYTES
        self.live_bytes -= length + ENTRY_BYTES
        assert segment.live_bytes >= 0, (segment.segment_id, segment.live_bytes)
        segment.unlink_after = max(segment.unlink_after, after)
        if now is not None:
            segment.note_release(now)

    @property
    def first_batch(self) -> int:
        """The lowest number any of them may hold; above all numbers where there is none."""
        return min((segment.first_batch for segment in self._list), default=sys.maxsize)

    def begin_without(self, count: int) -> int:
        """The first batch that must be there, once that many of the oldest are gone.

        One of which nothing was read begins behind those before it, also where they go now: what is
        missing there may have been theirs. With none before it that tells where that is, it does
        not count.
        """
        is_told, begins = False, [self._list[-1].first_batch]
        for at, one in enumerate(self._list):
            is_told |= not one.nameless
            if at >= count and is_told:
                begins.append(one.first_batch)
        return min(begins)

    @property
    def overlaps(self) -> bool:
        """True where a batch's number alone does not say which segment it is read from."""
        return self._overlaps

    @property
    def released_since(self) -> float | None:
        """Since when any segment holds bytes of a released reply."""
        return min(
            (s.released_since for s in self._list if s.released_since is not None), default=None
        )

    def buried(self, wal_until: int, now: float) -> None:
        """A reply that was kept elsewhere is resolved: any segment up to then may hold of it."""
        for segment in self._list:
            if segment.first_batch <= wal_until:
                segment.note_release(now)

    def can_unlink(self, synced_no: int) -> Segment | None:
        """The oldest segment, where it is an old one, dead, and what ordered that is synced."""
        if len(self._list) < 2:
            return None
        oldest = self._list[0]
        if oldest.live_bytes or oldest.unlink_after > synced_no:
            return None
        return oldest

    def unlinked(self, segment: Segment) -> None:
        """The oldest segment's name is gone, durably."""
        assert segment is self._list[0]
        del self._list[0]
        self.size -= segment.size
        if self._overlaps:
            lasts = accumulate((one.last_batch for one in self._list), max)
            firsts = (one.first_batch for one in self._list[1:])
            self._overlaps = any(first <= last for first, last in zip(firsts, lasts, strict=False))

    def poison(self, synced_no: int) -> None:
        """A write or sync of unsynced batches failed: forget where they stood, in every segment.

        They come again elsewhere (P8). The files stay on disk until their turn to be
        unlinked, their unsynced tails unread.
        """
        for segment in self._list:
            if segment.last_batch > synced_no or segment is self._list[-1]:
                segment.poisoned = True
                del segment.offsets[max(0, synced_no - segment.first_batch + 1) :]
                # One that began behind what is synced holds nothing: it must not stand in the way.
                segment.first_batch = min(segment.first_batch, synced_no + 1)

    def recount(self, streams: Iterable[Stream]) -> None:
        """Live bytes from scratch: batches have moved to another segment."""
        self.live_bytes = 0
        for segment in self._list:
            segment.live_bytes = 0
            if segment.poisoned and segment.released_since is not None:
                # Released bytes that were not synced were written again along with the rest (P5).
                current = self._list[-1]
                current.last_release_at = max(
                    current.last_release_at or 0.0, segment.last_release_at or 0.0
                )
                if current.released_since is None:
                    current.released_since = segment.released_since
        for stream in streams:
            for place in stream.places():
                found = self.of_batch(place.batch_no)
                if found is not None:
                    self.lived(found, place.length)
