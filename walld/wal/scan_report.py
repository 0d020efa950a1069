"""The report of a segment scan: good batches and holes, without a verdict.

Owns: their form. Refuses: finding them (`scan.py`), what they mean (`verdict.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from walld.wal.layout import SegmentHeader, Settled
    from walld.wal.ranges import Range

__all__ = ["Hole", "Reason", "SegmentFacts"]

Reason = Literal[
    "residue",  # a segment shorter than its header
    "segment header",  # its CRC does not match
    "header",  # no batch header where one had to be, up to the next that verifies
    "empty",  # the same, of so few bytes between two batches that no record stood there
    "payload",  # a good header, a payload that does not match it
    "short",  # a good header, a payload that runs past the end of the file
    "unreadable",  # the kernel gave an error three times
    "version",  # a whole segment header of a version this walld does not read
    "foreign",  # a segment of another log, or under another segment's name
    "missing",  # numbers that stand in no segment and no hole
    "fenced",  # what an owner wrote that had been replaced: its numbers are the next one's
]


@dataclass(slots=True)
class Hole:
    """Bytes of a segment that no batch was read from.

    batch_no: 0 where the header is lost too. previous_no, next_no: numbers of the nearest batch
    headers before and behind it in the segment, 0 where there is none.
    """

    offset: int
    length: int
    batch_no: int
    reason: Reason
    previous_no: int = 0
    next_no: int = 0


@dataclass(slots=True)
class SegmentFacts:
    """What was found in one segment. `numbers`: its good batches (a set of `ranges`).

    synced_no: the highest in any good batch header. last_no: the highest batch number in one.
    """

    segment_id: int
    size: int = 0
    header: SegmentHeader | None = None
    numbers: list[Range] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    apart: list[tuple[int, int, int]] = field(default_factory=list)
    """(batch_no, offset, kind) of good batches without records of streams: no scan gives them. A
    kind that this version does not know counts as good."""
    synced_no: int = 0
    first_no: int = 0
    last_no: int = 0
