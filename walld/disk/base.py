"""The few verbs that touch storage, each with the promise it makes.

Owns: the contract. `real.py` keeps it on a kernel; a simulated disk keeps it in memory and can
crash. Refuses: threads (who runs a verb is the daemon's business), formats, policy.

Promises: `write_at` returned: survives the death of this process. `File.sync` returned: the file's
bytes survive power loss. `sync_dir` returned: the names in it do. Every verb raises OSError with
errno and path; none retries, none swallows.
"""

from __future__ import annotations

import errno
from typing import Final, NamedTuple, Protocol

__all__ = ["LINK_REFUSED", "NO_ROOM", "Disk", "Entry", "File"]

LINK_REFUSED: Final = frozenset(
    (errno.EPERM, errno.EMLINK, errno.EXDEV, errno.ENOTSUP, errno.ENOSYS, errno.EACCES)
)
"""FAT and some network mounts give no second names, each with its own errno; a file has a most."""
NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""What room made elsewhere on the disk may help: full, the user's quota, the longest file."""


class Entry(NamedTuple):
    """A directory entry: `kind` is "file", "dir" or "other"; size in bytes (0 unless a file).

    hollow: the file system says that it has given the file less room than that.
    """

    name: str
    kind: str
    size: int
    hollow: bool = False


class File(Protocol):
    """An open regular file."""

    path: str

    def write_at(self, data: bytes, offset: int) -> int:
        """pwrite(2) once. Returns the bytes taken, which may be fewer than given."""

    def read_at(self, length: int, offset: int) -> bytes:
        """Up to `length` bytes at `offset`; fewer only at the end of the file."""

    def read_cached(self, length: int, offset: int) -> bytes | None:
        """The same without ever waiting for a disk; None where some of it is not in memory."""

    def size(self) -> int:
        """Length in bytes."""

    def truncate(self, length: int) -> None:
        """Cut or extend to `length`, ftruncate(2)."""

    def sync(self) -> None:
        """fdatasync(2). After an error this file is never synced again (P8)."""

    def same_file(self) -> bool:
        """False where the path no longer leads to this file, or it has no name any more."""

    def close(self) -> None:
        """Give the descriptor back."""


class Disk(Protocol):
    """One data directory. Paths are relative to it, with `/`; none may lead out of it."""

    root: str

    def create(self, path: str) -> File:
        """A new file, read-write, mode 0600, O_EXCL and O_NOFOLLOW. FileExistsError if there."""

    def open(self, path: str) -> File:
        """An existing regular file, for reading only."""

    def reopen(self, path: str) -> File:
        """An existing regular file, read-write. SharedFile where it has another name, too."""

    def replace(self, path: str, data: bytes) -> None:
        """Whole file, atomically: a temporary one written and synced, renamed, directory synced."""

    def swap(self, path: str, data: bytes) -> None:
        """The same without the syncs: for what has a checksum and can be made again. After a power
        cut it is the old file, the new one, or neither.
        """

    def unlink(self, path: str) -> None:
        """Remove a file. FileNotFoundError where there is none."""

    def rename(self, path: str, new_path: str) -> None:
        """Another name within the data directory; what stood there is replaced."""

    def link(self, path: str, new_path: str) -> None:
        """linkat(2), a second name of a file: both lead to the same bytes, durable once synced.

        FileExistsError where the new name is taken. OSError where the file system has none or the
        file has too many (LINK_REFUSED): whoever wants a second file copies it then.
        """

    def make_dir(self, path: str) -> None:
        """A directory of mode 0700 and its missing parents, each parent synced. Fine if there."""

    def expect(self, name: str) -> None:
        """A directory of the root is there from now on; what is in one that was removed is not "not
        there" (ESTALE), and is not made with a new one. Only `make_dir` of just this name makes it.
        """

    def removed(self) -> list[str]:
        """Those that are expected and not there."""

    def remove_dir(self, path: str) -> bool:
        """Remove an empty directory; False where it is not empty or not there."""

    def sync_dir(self, path: str) -> None:
        """fsync(2) of the directory: the names in it survive power loss."""

    def list_dir(self, path: str) -> list[Entry]:
        """Its entries by name, links not followed; [] where it does not exist."""

    def is_removed(self) -> bool:
        """The directory has no name any more: nothing will ever be written in it again. False where
        that is not known.
        """

    def free_bytes(self) -> int:
        """What an unprivileged writer may still write, statvfs(3)."""
