"""Reads the headers of a log's segments: which log, and what each owner's epoch counts.

Owns: reading them, and up to which number the batches of an owner count. Refuses: what stands
behind them (`scan.py`), who is owner (`disk/lock.py`).

An owner looks at the epoch behind each write, so it acknowledges nothing of what it writes too
late; but the bytes are there, in a segment that the next owner had read before: from a machine that
was suspended, whose kernel writes back to the file server what was in its page cache. They have
the numbers that the next owner has given meanwhile. So a batch counts up to where the next owner
began: `prev_batch_no` of its first segment, which is above all that it found or could not read;
less what it found torn there, and has called so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walld.errors import NewerVersion
from walld.wal.layout import (
    BATCH_NO_MAX,
    SEGMENT_HEADER_BYTES,
    SEGMENT_VERSION,
    WAL_DIR,
    segment_name,
    segment_version,
    unpack_segment_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from walld.disk.base import Disk
    from walld.wal.layout import SegmentHeader

__all__ = ["check_versions", "counted", "good_headers"]


def good_headers(disk: Disk, ids: list[int]) -> Iterator[SegmentHeader]:
    """The headers that verify, newest first."""
    for segment_id in reversed(ids):
        try:
            file = disk.open(f"{WAL_DIR}/{segment_name(segment_id)}")
        except OSError:
            continue
        try:
            header = unpack_segment_header(file.read_at(SEGMENT_HEADER_BYTES, 0))
        except OSError:
            continue
        finally:
            file.close()
        if header is not None and header.segment_id == segment_id:
            yield header


def check_versions(disk: Disk, ids: list[int]) -> None:
    """NewerVersion where a segment is whole and of a later walld: who went on without what stands
    in it would count as lost what that walld still has.
    """
    for segment_id in ids:
        path = f"{WAL_DIR}/{segment_name(segment_id)}"
        try:
            file = disk.open(path)
        except OSError:
            continue  # what cannot be read is judged by who reads the log
        try:
            version = segment_version(file.read_at(SEGMENT_HEADER_BYTES, 0))
        except OSError:
            continue
        finally:
            file.close()
        if version is not None and version > SEGMENT_VERSION:
            text = f"a segment of version {version}, this walld reads {SEGMENT_VERSION}"
            raise NewerVersion(f"{path}: {text}: run the one that wrote it, or move it away")


def counted(headers: Iterable[SegmentHeader]) -> dict[int, int]:
    """Segment id -> the highest number of a batch in it that counts.

    A segment that writes batches again begins below those that its owner found, so it says nothing
    here.
    """
    most, found, epoch_most = BATCH_NO_MAX, dict[int, int](), BATCH_NO_MAX
    epoch: int | None = None
    for header in sorted(headers, key=lambda one: one.epoch, reverse=True):
        if header.epoch != epoch:
            epoch, epoch_most = header.epoch, most
        found[header.segment_id] = epoch_most
        if not header.again:
            most = min(most, header.prev_batch_no - header.passed)
    return found
