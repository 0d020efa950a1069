"""A Disk that retries errors which may pass.

Owns: which errors may pass, how often a verb is tried, and of which verbs that is sound. Refuses:
what follows from an error that lasts.

Reads, listings and whole files written anew may be tried again: nothing is built on a try that
failed. Never a sync of the same file (P8), nor a write in place: those raise at once. A directory
is made, and its name synced, as often: a start that ended for that would be followed by one that
does the very same.
"""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld.disk.base import Disk, Entry, File

__all__ = ["MAY_PASS", "READ_TRIES", "RetryingDisk", "patiently"]

T = TypeVar("T")

READ_TRIES: Final = 3
"""An error of the kernel is no damage: tried again this often before it is believed."""
MAY_PASS: Final = frozenset(
    (
        errno.EIO,
        errno.ESTALE,
        errno.EINTR,
        errno.EAGAIN,
        errno.ENFILE,
        errno.EMFILE,
        errno.ENOMEM,
    )
)


def patiently(job: Callable[[], T]) -> T:
    """What the job gives, at the last try whatever it raises."""
    for _ in range(READ_TRIES - 1):
        try:
            return job()
        except OSError as error:
            if error.errno not in MAY_PASS:
                raise
    return job()


class RetryingDisk:
    """The verbs of another disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.root = disk.root
        # As they are.
        self.create = disk.create
        self.swap = disk.swap
        self.unlink = disk.unlink
        self.rename = disk.rename
        self.link = disk.link
        self.expect = disk.expect
        self.removed = disk.removed
        self.remove_dir = disk.remove_dir
        self.sync_dir = disk.sync_dir
        self.is_removed = disk.is_removed
        self.free_bytes = disk.free_bytes

    def open(self, path: str) -> _RetryingFile:
        """An existing regular file, for reading only."""
        return _RetryingFile(patiently(partial(self._disk.open, path)))

    def reopen(self, path: str) -> _RetryingFile:
        """An existing regular file, read-write."""
        return _RetryingFile(patiently(partial(self._disk.reopen, path)))

    def list_dir(self, path: str) -> list[Entry]:
        """Its entries by name; [] where it does not exist."""
        return patiently(partial(self._disk.list_dir, path))

    def make_dir(self, path: str) -> None:
        """A directory and its missing parents, each parent synced."""
        patiently(partial(self._disk.make_dir, path))

    def replace(self, path: str, data: bytes) -> None:
        """Whole file, atomically and durably: each try writes a file of its own."""
        patiently(partial(self._disk.replace, path, data))


class _RetryingFile:
    """The verbs of another open file."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.path = file.path
        self.write_at = file.write_at
        self.read_cached = file.read_cached
        self.truncate = file.truncate
        self.sync = file.sync
        self.same_file = file.same_file
        self.close = file.close

    def read_at(self, length: int, offset: int) -> bytes:
        """Up to `length` bytes at `offset`; fewer only at the end of the file."""
        return patiently(partial(self._file.read_at, length, offset))

    def size(self) -> int:
        """Length in bytes."""
        return patiently(self._file.size)
