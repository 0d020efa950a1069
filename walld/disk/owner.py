"""One daemon per data directory: the lock, and the epoch that fences a frozen one.

Owns: the file LOCK (FORMAT.md): flock for as long as the daemon lives, and in it the owner epoch
and the log's uuid. Refuses: everything else in the directory.

A new owner raises the epoch before it scans. An owner reads it again after each write and sync and
before it acknowledges: a daemon that was frozen, lost its lock to the lifting of its NFS lease and
thaws, sees another epoch and stops (DESIGN section 6).
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from walld.errors import DirectoryTaken, FormatError

__all__ = ["LOCK_BYTES", "LOCK_NAME", "Owner", "holding", "lock_record", "parse_lock"]

LOCK_NAME = "LOCK"
LOCK_BYTES = 128
_READ_TRIES = 3
_NO_DEVICE = 0
"""Major number of what is on no block device of this machine (makedev(3)): NFS, FUSE, tmpfs."""
_LOCK = re.compile(rb"walld 1\nepoch ([0-9]{1,20})\nlog ([0-9a-f]{32})\n(written\n)?")


@contextmanager
def holding(root: str) -> Iterator[None]:
    """Keep daemons out for as long as it lasts, without becoming an owner: LOCK is not written.

    Raises DirectoryTaken, OSError.
    """
    path = os.path.join(root, LOCK_NAME)
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        _take(fd, path)
        yield
    finally:
        os.close(fd)


def _take(fd: int, path: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = "another walld owns this data directory: stop it, or give --data another one"
        raise DirectoryTaken(f"{path}: {text}") from None


class Owner:
    """The hold of one process on its data directory, until it exits."""

    def __init__(
        self,
        root: str,
        log_uuid: bytes,
        *,
        epoch: int = 0,
        is_new: bool = False,
        known: frozenset[bytes] = frozenset(),
    ) -> None:
        """Take the directory. `log_uuid` names the log where LOCK does not, or `is_new` says so.

        known: the logs its segments say they are of; LOCK has no checksum, so where it names none
        of these it is LOCK that is damaged. epoch: the highest the log itself tells of. LOCK is
        written in place (it is flocked), so power lost at its making can leave anything in it; what
        it cannot say the segments do.
        Raises DirectoryTaken, FormatError, OSError.
        """
        self.path = os.path.join(root, LOCK_NAME)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(self.path, flags, 0o600)
        try:
            _take(self._fd, self.path)
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise FormatError(f"{self.path}: is no regular file: remove it")
            raw = self._read()
            told = parse_lock(raw, self.path)
            self.had_log = told is not None and told[2]
            self.epoch = max(epoch, told[0] if told else 0) + 1
            self.log_uuid = told[1] if told else log_uuid
            if is_new or (known and self.log_uuid not in known):
                self.log_uuid = log_uuid
            record = lock_record(self.epoch, self.log_uuid, has_log=self.had_log)
            self._own = record[: record.index(b"log") + 36]
            """Stands in LOCK while it is ours; what follows may change, also while it is read."""
            self._marked = self.had_log
            self._write(record)
            self._direct = self._opened_direct()
        except BaseException:
            os.close(self._fd)
            raise
        directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _read(self) -> bytes:
        """An error of the kernel is read again before it is believed."""
        for _ in range(_READ_TRIES - 1):
            with suppress(OSError):
                return os.pread(self._fd, LOCK_BYTES, 0)
        return os.pread(self._fd, LOCK_BYTES, 0)

    def _write(self, record: bytes) -> None:
        done = 0
        while done < len(record):
            done += os.pwrite(self._fd, record[done:], done)
        os.fsync(self._fd)

    def synced(self) -> None:
        """A segment is durable: from now on its absence is a loss, and LOCK says so. Once.

        Where that fails it is for the next owner to say: no second sync of this file.
        """
        if self._marked or not self.is_owner():
            return
        self._marked = True
        with suppress(OSError):
            self._write(lock_record(self.epoch, self.log_uuid, has_log=True))

    def is_owner(self) -> bool:
        """False once another daemon has raised the epoch.

        Where another machine may be the one that did, its file server is asked: from its own cache
        a client reads what it wrote there itself, however long ago it has lost the lock.
        """
        return self._read_back().startswith(self._own)

    def _read_back(self) -> bytes:
        if self._direct < 0:
            return os.pread(self._fd, LOCK_BYTES, 0)
        with mmap.mmap(-1, mmap.PAGESIZE) as page:  # O_DIRECT wants it aligned
            os.preadv(self._direct, [page], 0)
            return page[:LOCK_BYTES]

    def _opened_direct(self) -> int:
        """LOCK without the page cache; -1 where the kernel is the only one that has it, or cannot.

        tmpfs of older kernels and some of FUSE cannot, at open(2) or only at the first read: found
        out now, or each write would fail for it.
        """
        if os.major(os.fstat(self._fd).st_dev) != _NO_DEVICE:
            return -1
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECT
        direct = -1
        try:
            direct = os.open(self.path, flags)
            with mmap.mmap(-1, mmap.PAGESIZE) as page:
                os.preadv(direct, [page], 0)
        except OSError as error:
            if direct >= 0:
                os.close(direct)
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
            return -1
        return direct

    def close(self) -> None:
        """Give the directory up."""
        os.close(self._fd)
        if self._direct >= 0:
            os.close(self._direct)


def lock_record(epoch: int, log_uuid: bytes, *, has_log: bool = False) -> bytes:
    """What stands in LOCK (FORMAT.md)."""
    written = "written\n" if has_log else ""
    return f"walld 1\nepoch {epoch}\nlog {log_uuid.hex()}\n{written}".encode().ljust(LOCK_BYTES)


def parse_lock(raw: bytes, path: str) -> tuple[int, bytes, bool] | None:
    """Epoch, log uuid, and whether a segment was ever durable; None where no whole record stands
    there.

    FormatError where it is one of another version.
    """
    found = _LOCK.match(raw)
    if found is not None:
        return int(found[1]), bytes.fromhex(found[2].decode()), found[3] is not None
    version = re.match(rb"walld ([0-9]+)\n", raw)
    if version is not None and version[1] != b"1":
        text = f"a LOCK of version {int(version[1])}, this walld reads 1: run the one that wrote it"
        raise FormatError(f"{path}: {text}")
    return None
