"""Syncs what a killed daemon wrote and did not sync, before anything builds on it.

Owns: writing the end of a log once more. Refuses: judging it (`wal/verdict.py`), what to do where
it fails (`compaction.py`).

Why a sync alone does not do: the daemon that was killed may have had a sync fail. The kernel has
then dropped those pages and calls them clean; a new process reads them, syncs the file, is told all
is well, and after a power cut there are zeros (fsyncgate, across a restart; found by simulation). A
sync counts only for what this process has written. So every batch that no later header calls synced
is written again, the same bytes at the same place, verified first: nothing in an old segment
changes, nothing is added to it, and what did not verify is left as it was.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

from walld.wal.layout import (
    SEGMENT_HEADER_BYTES,
    WAL_DIR,
    segment_seed,
    unpack_segment_header,
)
from walld.wal.scan import whole_batch
from walld.wal.segment_files import SegmentFiles

if TYPE_CHECKING:
    from walld.disk.base import Disk, File

__all__ = ["resync"]

_log = logging.getLogger("walld.recovery")


def resync(disk: Disk, log_uuid: bytes, tails: dict[int, list[int]]) -> list[int]:
    """Make every segment durable. Returns those where that failed.

    tails: the segments, each with the offsets of its batches that are not known to be synced; 0
    where its header is not either.
    """
    failed = []
    for segment_id, offsets in tails.items():
        try:
            _resync(disk, segment_seed(log_uuid, segment_id), segment_id, offsets)
        except FileNotFoundError:
            continue
        except OSError as error:
            _log.error("segment %d: sync at start: %s", segment_id, error.strerror or error)
            failed.append(segment_id)
    try:
        disk.sync_dir(WAL_DIR)
    except OSError as error:  # their names may go with power, and what was never called synced
        _log.error("%s/: sync at start: %s", WAL_DIR, error.strerror or error)
        return list(tails)
    return failed


def _resync(disk: Disk, seed: int, segment_id: int, offsets: list[int]) -> None:
    path = SegmentFiles.path(segment_id)
    file = disk.reopen(path) if offsets else disk.open(path)
    try:
        for offset in offsets:
            data = whole_batch(file, seed, offset) if offset else _header(file)
            if data is None:
                raise OSError(errno.EIO, f"what stood at {offset} does not verify any more", path)
            file.write_at(data, offset)
        file.sync()
    finally:
        file.close()


def _header(file: File) -> bytes | None:
    data = file.read_at(SEGMENT_HEADER_BYTES, 0)
    return data if unpack_segment_header(data) is not None else None
