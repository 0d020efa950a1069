"""The disk verbs of `base.py` on Linux.

Owns: how a path becomes a file without leaving the directory, and the flags and modes of what is
made. Refuses: threads, retries, formats. EINTR is Python's.

Invariants
- D1 Every path is walked from the directory's own descriptor, one component at a time, links never
  followed; ".." and absolute paths are refused before the kernel sees them.
  A file that has another name is never written to.
- D2 Files are 0600 and directories 0700, whatever the umask.
- D3 A file whose sync failed is never synced again: the kernel forgets the failed pages, and the
  second fdatasync says all is well (P8).

Where the root itself is a link it is followed once, at the start: systemd's StateDirectory of a
dynamic user is one.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from walld.disk.atomic import ComposedDisk
from walld.disk.base import Entry
from walld.disk.root import DIR_MODE, NO_DEVICE, check_owner, make_root, sync_names
from walld.errors import SharedFile, UnsafePath

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

__all__ = ["RealDisk", "RealFile"]

FILE_MODE = 0o600
_FILE_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_WALK_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_PATH
_DIR_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_RDONLY


class RealFile:
    """An open regular file. `path` is relative to the data directory."""

    __slots__ = ("_disk", "_fd", "_poisoned", "path")

    def __init__(self, disk: RealDisk, path: str, fd: int) -> None:
        self.path = path
        self._disk = disk
        self._fd = fd
        self._poisoned = False

    def write_at(self, data: bytes, offset: int) -> int:
        """One pwrite(2): bytes taken, maybe fewer than given."""
        with _Naming(self.path):
            return os.pwrite(self._fd, data, offset)

    def read_at(self, length: int, offset: int) -> bytes:
        """Up to `length` bytes, fewer only at the end."""
        with _Naming(self.path):
            first = os.pread(self._fd, length, offset)
            if len(first) in (0, length):
                return first
            parts, taken = [first], len(first)
            while taken < length:
                part = os.pread(self._fd, length - taken, offset + taken)
                if not part:
                    break
                parts.append(part)
                taken += len(part)
            return b"".join(parts)

    def read_cached(self, length: int, offset: int) -> bytes | None:
        """`length` bytes out of the page cache; None where the kernel would have to wait.

        preadv2(2) with RWF_NOWAIT. File systems that cannot promise it (NFS) refuse: None as well.
        """
        data = bytearray(length)
        try:
            taken = os.preadv(self._fd, [data], offset, os.RWF_NOWAIT)
        except OSError:
            return None  # whoever reads it the slow way finds out whether that is an error
        return bytes(data) if taken == length else None

    def size(self) -> int:
        """Length in bytes."""
        with _Naming(self.path):
            return os.fstat(self._fd).st_size

    def truncate(self, length: int) -> None:
        """Cut or extend to `length`, ftruncate(2)."""
        with _Naming(self.path):
            os.ftruncate(self._fd, length)

    def sync(self) -> None:
        """fdatasync(2), never again once it failed (D3)."""
        assert not self._poisoned, f"{self.path}: a second sync after a failed one proves nothing"
        try:
            with _Naming(self.path):
                os.fdatasync(self._fd)
        except OSError:
            self._poisoned = True
            raise

    def same_file(self) -> bool:
        """False where the path leads elsewhere or nowhere: what is written would be lost.

        On a disk of this machine stats know: three calls behind each sync, where opening the file
        takes nine, each of which gives the interpreter up. An NFS client asks its server only when
        a file is opened (close-to-open, nfs(5)); a stat is answered from memory for half a minute.
        """
        with _Naming(self.path):
            mine = os.fstat(self._fd)
            if mine.st_nlink == 0:
                return False
            try:
                if os.major(mine.st_dev) != NO_DEVICE:
                    found = self._disk.stat(self.path)
                else:
                    with closing(self._disk.open(self.path)) as again:
                        found = os.fstat(again._fd)
            except (FileNotFoundError, NotADirectoryError):
                return False
        return (mine.st_dev, mine.st_ino) == (found.st_dev, found.st_ino)

    def close(self) -> None:
        """Give the descriptor back. Closing twice is fine."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with _Naming(self.path):
                os.close(fd)


class RealDisk(ComposedDisk):
    """One data directory.

    It is made if it is not there. It must belong to this user or root and be writable by its owner
    alone: else UnsafePath. read_only: for reading beside a daemon or after one; nothing is made or
    checked, and every verb that writes raises PermissionError.
    """

    def __init__(self, root: str, *, read_only: bool = False) -> None:
        super().__init__()
        self.root = root
        self._read_only = read_only
        if not read_only:
            make_root(root)
        flags = os.O_CLOEXEC | os.O_DIRECTORY | os.O_RDONLY
        self._fd = os.open(root, flags)
        try:
            if not read_only:
                check_owner(root, os.fstat(self._fd))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the directory. Open files stay open."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def create(self, path: str) -> RealFile:
        """A new file, read-write. FileExistsError if there."""
        self._refuse_if_read_only(path)
        flags = _FILE_FLAGS | os.O_RDWR | os.O_CREAT | os.O_EXCL
        with self._parent_of(path) as (parent, name):
            fd = os.open(name, flags, FILE_MODE, dir_fd=parent)
            try:
                os.fchmod(fd, FILE_MODE)
            except BaseException:
                os.close(fd)
                raise
        return RealFile(self, path, fd)

    def open(self, path: str) -> RealFile:
        """An existing regular file, for reading. Never waits: a planted fifo is refused."""
        return self._open(path, os.O_RDONLY)

    def reopen(self, path: str) -> RealFile:
        """An existing regular file, read-write. SharedFile where it has another name."""
        self._refuse_if_read_only(path)
        file = self._open(path, os.O_RDWR)
        if os.fstat(file._fd).st_nlink > 1:
            file.close()
            raise SharedFile(errno.EMLINK, os.strerror(errno.EMLINK), path)
        return file

    def _open(self, path: str, access: int) -> RealFile:
        flags = _FILE_FLAGS | access | os.O_NONBLOCK | os.O_NOCTTY
        with self._parent_of(path) as (parent, name):
            fd = os.open(name, flags, dir_fd=parent)
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                raise OSError(errno.EINVAL, "not a regular file", path)
        return RealFile(self, path, fd)

    def stat(self, path: str) -> os.stat_result:
        """What is there, a link as one; NotADirectoryError where the way leads over a link (D1).

        By its whole path, which half as many calls take: a link that is put there meanwhile may be
        followed, and nothing is opened.
        """
        parts = _parts(path)
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            try:
                found = os.stat(folder, dir_fd=self._fd, follow_symlinks=False)
            except FileNotFoundError:
                self._check_expected(parts[:depth])
                raise
            if not stat.S_ISDIR(found.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
        return os.stat(path, dir_fd=self._fd, follow_symlinks=False)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        self._refuse_if_read_only(path)
        with self._parent_of(path) as (parent, name):
            os.unlink(name, dir_fd=parent)

    def rename(self, path: str, new_path: str) -> None:
        """Give a file another name; what stood there is replaced."""
        self._refuse_if_read_only(path)
        with self._parent_of(path) as (parent, name), self._parent_of(new_path) as target:
            os.rename(name, target[1], src_dir_fd=parent, dst_dir_fd=target[0])

    def link(self, path: str, new_path: str) -> None:
        """A second name of a file; of a planted symbolic link, which nobody opens, that link's."""
        self._refuse_if_read_only(path)
        with self._parent_of(path) as (parent, name), self._parent_of(new_path) as target:
            os.link(name, target[1], src_dir_fd=parent, dst_dir_fd=target[0], follow_symlinks=False)

    def make_one_dir(self, path: str) -> bool:
        """True where the directory is new. What is there must be a directory, and no link."""
        self._refuse_if_read_only(path)
        with self._parent_of(path) as (parent, name):
            try:
                os.mkdir(name, DIR_MODE, dir_fd=parent)
            except FileExistsError:
                os.close(os.open(name, _WALK_FLAGS, dir_fd=parent))
                return False
            os.chmod(name, DIR_MODE, dir_fd=parent)
        return True

    def remove_dir(self, path: str) -> bool:
        """Remove an empty directory; False where it is not empty or not there."""
        self._refuse_if_read_only(path)
        try:
            with self._parent_of(path) as (parent, name):
                os.rmdir(name, dir_fd=parent)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        self._durable_dirs.discard(path)
        return True

    def sync_dir(self, path: str) -> None:
        """fsync(2) of a directory. "" is the data directory itself."""
        self._refuse_if_read_only(path)
        with self._directory(path) as fd:
            sync_names(fd, path or self.root)

    def list_dir(self, path: str) -> list[Entry]:
        """Entries by name; [] where there is no such directory. "" is the data directory."""
        try:
            with self._directory(path) as fd, _Naming(path), os.scandir(fd) as found:
                entries = [_entry(item) for item in found]
        except FileNotFoundError:
            return []
        return sorted(entry for entry in entries if entry is not None)

    def is_removed(self) -> bool:
        """Nothing will ever be written in it again. False where that is not known."""
        try:
            return os.fstat(self._fd).st_nlink == 0
        except OSError as error:
            return error.errno == errno.ESTALE  # removed on its file server

    def free_bytes(self) -> int:
        """What an unprivileged writer may still write."""
        with _Naming(self.root):
            found = os.fstatvfs(self._fd)
        return found.f_bavail * found.f_frsize

    @contextmanager
    def _parent_of(self, path: str) -> Iterator[tuple[int, str]]:
        """A descriptor of the directory that holds `path`, and its last component."""
        parts = _parts(path)
        if not parts:
            raise UnsafePath(f"path {path!r} names nothing in {self.root}")
        with _Naming(path):
            fd = self._walk(parts[:-1])
            try:
                yield fd, parts[-1]
            finally:
                os.close(fd)

    @contextmanager
    def _directory(self, path: str) -> Iterator[int]:
        """A descriptor of the directory `path` that can be listed and synced."""
        parts = _parts(path)
        with _Naming(path):
            parent = self._walk(parts[:-1])
            try:
                fd = os.open(parts[-1] if parts else ".", _DIR_FLAGS, dir_fd=parent)
            except FileNotFoundError:
                self._check_expected(parts)
                raise
            finally:
                os.close(parent)
        try:
            yield fd
        finally:
            os.close(fd)

    def _walk(self, parts: list[str]) -> int:
        """A descriptor of the directory these components lead to (D1)."""
        fd = os.open(".", _WALK_FLAGS, dir_fd=self._fd)
        for at, part in enumerate(parts, 1):
            try:
                inner = os.open(part, _WALK_FLAGS, dir_fd=fd)
            except FileNotFoundError:
                self._check_expected(parts[:at])
                raise
            finally:
                os.close(fd)
            fd = inner
        return fd

    def _check_expected(self, parts: list[str]) -> None:
        """What is not there was removed, or is in nothing that was."""
        if len(parts) == 1 and parts[0] in self._expected:
            raise OSError(errno.ESTALE, f"{parts[0]}/ was removed beneath walld")

    def _refuse_if_read_only(self, path: str) -> None:
        if self._read_only:
            raise PermissionError(errno.EPERM, "the data directory is open for reading only", path)


class _Naming:
    """An OSError from inside says which path it was about, not which descriptor."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        if isinstance(error, OSError):
            error.filename = self._path


def _parts(path: str) -> list[str]:
    """The components of a relative path; [] for the data directory itself."""
    if not path:
        return []
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise UnsafePath(f"path {path!r} is not plain names joined by single slashes")
    return parts


def _entry(item: os.DirEntry[str]) -> Entry | None:
    """None where it was removed while the directory was read."""
    try:
        found = item.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISREG(found.st_mode):
        return Entry(item.name, "file", found.st_size, found.st_blocks * 512 < found.st_size)
    return Entry(item.name, "dir" if stat.S_ISDIR(found.st_mode) else "other", 0)
