"""Decides which log a segment belongs to when LOCK and headers are damaged.

Owns: that proof, and whether any segment of a log is there. Refuses: headers that verify
(`scan.py`), what is in the batches.

A batch's header verifies with no uuid but its log's. So the one that stands in a damaged header is
the right one if batches behind it verify with it, and so is the one that stood there before a
single bit flipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walld.wal.layout import (
    SEGMENT_HEADER_BYTES,
    WAL_DIR,
    segment_name,
    unpack_segment_header,
)
from walld.wal.log_scan import list_segments
from walld.wal.scan import SegmentScan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walld.disk.base import Disk

__all__ = ["is_there", "proven_uuid"]

_UUID_AT, _UUID_BYTES = 16, 16


def proven_uuid(disk: Disk, ids: list[int]) -> bytes | None:
    """The log of the newest segment whose batches prove it; None where none does."""
    for segment_id in reversed(ids):
        try:
            file = disk.open(f"{WAL_DIR}/{segment_name(segment_id)}")
        except OSError:
            continue
        try:
            for log_uuid in _candidates(file.read_at(SEGMENT_HEADER_BYTES, 0)):
                scan = SegmentScan(file, segment_id, log_uuid)
                next(iter(scan), None)
                if scan.facts.numbers:
                    return log_uuid
        except OSError:
            continue
        finally:
            file.close()
    return None


def is_there(disk: Disk, log_uuid: bytes) -> bool:
    """Some segment of that log is in wal/, by its header or its batches, or one that cannot be
    judged now. What was cut below its header, or is of another log, is none.
    """
    for segment_id in reversed(list_segments(disk)):
        try:
            file = disk.open(f"{WAL_DIR}/{segment_name(segment_id)}")
        except OSError:  # also one that went since it was listed: it is not the last
            return True
        try:
            scan = SegmentScan(file, segment_id, log_uuid)
            next(iter(scan), None)
        finally:
            file.close()
        facts = scan.facts
        if facts.header is not None or facts.first_no:
            return True
        if any(hole.reason in ("unreadable", "version") for hole in facts.holes):
            return True
    return False


def _candidates(start: bytes) -> Iterator[bytes]:
    if len(start) < SEGMENT_HEADER_BYTES:
        return
    yield start[_UUID_AT : _UUID_AT + _UUID_BYTES]
    for bit in range(_UUID_AT * 8, (_UUID_AT + _UUID_BYTES) * 8):
        flipped = int.from_bytes(start, "little") ^ 1 << bit
        header = unpack_segment_header(flipped.to_bytes(len(start), "little"))
        if header is not None:
            yield header.log_uuid
