"""Daemons that are wrong on purpose: a loop that does not see them proves nothing.

Owns: each wrong, as something a forked daemon runs in itself before it starts. `--spoil NAME` of a
loop starts such daemons; it must fail then. A directory that is not synced is none of them: on ext4
and xfs the sync of a new file brings its name along, so that no cut shows it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from walld.disk.real import RealFile
from walld.wal.segment_files import SegmentFiles

__all__ = ["SPOILED", "spoil"]


def _no_sync() -> None:
    """What is called synced is only written."""
    _replace(RealFile, "sync", lambda _file: None)


def _sync_again() -> None:
    """A sync that fails is tried once more on the same file, and believed."""
    sync = RealFile.sync

    def twice(file: RealFile) -> None:
        try:
            sync(file)
        except OSError:
            os.fdatasync(file._fd)

    _replace(RealFile, "sync", twice)


def _no_write() -> None:
    """What is called written is only in memory."""
    _replace(SegmentFiles, "write", lambda *_: None)


def _half_write() -> None:
    """Of each batch the second half is missing, every fourth time."""
    write: Any = SegmentFiles.write
    count = 0

    def half(files: SegmentFiles, segment_id: int, *rest: Any) -> None:
        nonlocal count
        count += 1
        write(files, segment_id, *rest)
        if count % 4 == 0:
            files.cut(segment_id, rest[-1] + len(rest[0]) // 2)

    _replace(SegmentFiles, "write", half)


def _replace(holder: type, name: str, value: object) -> None:
    setattr(holder, name, value)


SPOILED: dict[str, Callable[[], None]] = {
    "no_sync": _no_sync,
    "sync_again": _sync_again,
    "no_write": _no_write,
    "half_write": _half_write,
}


def spoil(name: str) -> Callable[[], None] | None:
    """By name; None for "", a daemon as it is."""
    return SPOILED[name] if name else None
