"""File operations on segments, run in the daemon's threads.

Owns: creating, writing, syncing, reading and unlinking segments through a Disk. Refuses: deciding
any of it, watermarks, other threads' business.

Who calls what: the writer thread `create` and `write`; the syncer thread `sync`; the background
thread `read` and `unlink`; the event loop `read_cached`, which never waits. They share nothing but
the table of open files, whose entries are set once and removed by `unlink` after the last sync of
that file. Each segment is opened once and kept open from create to unlink: an I/O error between a
close and a reopen can be lost.
"""

from __future__ import annotations

import errno
import re
from functools import partial
from typing import TYPE_CHECKING

from walld.disk.retrying import patiently
from walld.wal.layout import (
    QUARANTINE_DIR,
    WAL_DIR,
    SegmentHeader,
    pack_segment_header,
    segment_name,
    segment_seed,
)

if TYPE_CHECKING:
    from walld.disk.base import Disk, File
    from walld.wal.encode import Batch

__all__ = ["SegmentFiles", "SegmentGone", "has_copies"]

_COPY = re.compile(r"\d{20}\.\d+\.\d+|batches-\d+-\d+|wal")
"""What `SegmentFiles.copy_aside` calls its copies, and notes of what left no bytes their files."""


def has_copies(disk: Disk) -> bool:
    """Some daemon has put aside what is left of damage to the log, and gone on without it.

    True also where that cannot be looked up: it may be so.
    """
    try:
        entries = disk.list_dir(QUARANTINE_DIR)
    except OSError:
        return True
    return any(_COPY.fullmatch(entry.name) for entry in entries)


class SegmentGone(OSError):
    """Our file is open and its name leads elsewhere: somebody removed or replaced it."""


class SegmentFiles:
    """The files of wal/ that this daemon reads or writes."""

    def __init__(self, disk: Disk, log_uuid: bytes) -> None:
        self.disk = disk
        self.log_uuid = log_uuid
        self._files: dict[int, File] = {}
        self._unnamed: set[int] = set()
        """Segments whose directory entry is not synced yet."""

    @staticmethod
    def path(segment_id: int) -> str:
        """Where a segment lies in the data directory."""
        return f"{WAL_DIR}/{segment_name(segment_id)}"

    def adopt(self, segment_id: int) -> None:
        """Open a segment of an earlier daemon, for reading."""
        self._files[segment_id] = patiently(partial(self.disk.open, self.path(segment_id)))

    def create(
        self,
        segment_id: int,
        prev_batch_no: int,
        epoch: int,
        *,
        again: bool = False,
        passed: int = 0,
    ) -> None:
        """A new segment that is nothing but its header. It is not durable before `sync`.

        again: after an error. Somebody may have removed the directory of segments. passed: as in
        SegmentHeader.
        """
        if again:
            self.disk.make_dir(WAL_DIR)
        file = self.disk.create(self.path(segment_id))
        header = SegmentHeader(self.log_uuid, segment_id, prev_batch_no, epoch, passed, again)
        try:
            self._write_all(file, pack_segment_header(header), 0)
        except OSError:
            file.close()
            self.disk.unlink(self.path(segment_id))
            raise
        self._unnamed.add(segment_id)
        self._files[segment_id] = file

    def write(self, segment_id: int, batch: Batch, synced_no: int, offset: int) -> None:
        """One batch at its offset: one pwrite(2) unless the kernel takes less than it was given.

        After an OSError nothing of it counts; the caller truncates or leaves the segment.
        """
        data = batch.stamped(synced_no, segment_seed(self.log_uuid, segment_id), offset)
        self._write_all(self._files[segment_id], data, offset)

    @staticmethod
    def _write_all(file: File, data: bytes, offset: int) -> None:
        done = file.write_at(data, offset)
        while done < len(data):
            taken = file.write_at(data[done:], offset + done)
            if taken <= 0:
                raise OSError(errno.EIO, f"write took {done} of {len(data)} bytes", file.path)
            done += taken

    def cut(self, segment_id: int, size: int) -> None:
        """Take back a write that failed for want of room."""
        self._files[segment_id].truncate(size)

    def sync(self, segment_ids: list[int]) -> None:
        """Make segments durable, oldest first: their bytes, and the names of new ones.

        Raises SegmentGone where a name leads elsewhere: what was synced is not what a start finds.
        """
        for segment_id in segment_ids:
            file = self._files.get(segment_id)
            if file is None:
                continue  # dead and unlinked since it was listed
            file.sync()
            if segment_id in self._unnamed:
                self.disk.sync_dir(WAL_DIR)
                self._unnamed.discard(segment_id)
            if not file.same_file():
                raise SegmentGone(errno.ESTALE, "removed or replaced underneath", file.path)

    def is_durable(self, segment_id: int) -> bool:
        """It was synced since this daemon created it, if it did: power leaves its header."""
        return segment_id not in self._unnamed

    def read(self, segment_id: int, offset: int, length: int) -> bytes:
        """Part of a segment. Raises OSError (EIO) where the file is shorter than that."""
        file = self._files.get(segment_id)
        if file is None:
            raise OSError(errno.EIO, "the segment could not be opened", self.path(segment_id))
        data = patiently(partial(file.read_at, length, offset))
        if len(data) != length:
            path = self.path(segment_id)
            raise OSError(errno.EIO, f"{len(data)} of {length} bytes at {offset}", path)
        return data

    def read_cached(self, segment_id: int, offset: int, length: int) -> bytes | None:
        """The same out of the page cache, None where that is not possible without waiting."""
        file = self._files.get(segment_id)
        return None if file is None else file.read_cached(length, offset)

    def unlink(self, segment_id: int) -> None:
        """Close and remove a segment, durably: closed first, or NFS keeps it under another name."""
        file = self._files.pop(segment_id, None)
        if file is not None:
            file.close()
        try:
            self.disk.unlink(self.path(segment_id))
        except FileNotFoundError:
            return
        self.disk.sync_dir(WAL_DIR)

    def set_aside(self, segment_id: int) -> None:
        """Move a segment that could not be read to quarantine/ instead of unlinking it."""
        file = self._files.pop(segment_id, None)
        if file is not None:
            file.close()
        self.disk.make_dir(QUARANTINE_DIR)
        self.disk.rename(self.path(segment_id), f"{QUARANTINE_DIR}/{segment_name(segment_id)}")
        self.disk.sync_dir(QUARANTINE_DIR)
        self.disk.sync_dir(WAL_DIR)

    def copy_aside(self, segment_id: int, offset: int, length: int) -> None:
        """Copy damaged bytes to quarantine/, once, named by where they stood."""
        name = f"{segment_id:020d}.{offset}.{length}"
        if self._is_kept(name):
            return
        self.disk.make_dir(QUARANTINE_DIR)
        file = self.disk.open(self.path(segment_id))
        try:
            self.disk.replace(f"{QUARANTINE_DIR}/{name}", file.read_at(length, offset))
        finally:
            file.close()

    def note_missing(self, first_no: int, last_no: int, why: str) -> None:
        """Write down in quarantine/, once, that synced batches are nowhere: no bytes say it."""
        name = f"batches-{first_no}-{last_no}"
        if self._is_kept(name):
            return
        self.disk.make_dir(QUARANTINE_DIR)
        text = f"batches {first_no} to {last_no} were synced and are lost ({why})\n"
        self.disk.replace(f"{QUARANTINE_DIR}/{name}", text.encode())

    def _is_kept(self, name: str) -> bool:
        """It is there, durably: a process that was killed, or a sync that failed, may have left its
        name to the next power cut, and what it tells of goes once it is kept.
        """
        if all(entry.name != name for entry in self.disk.list_dir(QUARANTINE_DIR)):
            return False
        self.disk.sync_dir(QUARANTINE_DIR)
        return True

    def close(self) -> None:
        """Close every file."""
        while self._files:
            self._files.popitem()[1].close()
