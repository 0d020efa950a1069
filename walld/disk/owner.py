"""One daemon per data directory: the lock, and the epoch that fences a frozen one.

Owns: the file LOCK (FORMAT.md): flock for as long as the daemon lives, and in it the owner epoch
and the log's uuid. Refuses: everything else in the directory.

The directory itself is flocked, too, where its file system can do that (NFS cannot): who removes
LOCK for a leftover of a crash, and starts a second daemon, would have two.

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from walld.disk.patient import patiently
from walld.errors import DirectoryTaken, FormatError

__all__ = [
    "EPOCH_MAX",
    "LOCK_BYTES",
    "LOCK_NAME",
    "Owner",
    "believes_segments",
    "holding",
    "lock_record",
    "parse_lock",
]

LOCK_NAME = "LOCK"
LOCK_BYTES = 128
_WRITTEN = b"written\n"
_WRITTEN_AT = 72
"""Where that line stands: the epoch before it has all its digits, whoever's it is."""
EPOCH_MAX = 1 << 27
"""No owner got there, nor did a segment: what says so is damaged, and the rest tells how far they
did. From there on no epoch would have stream numbers of its own."""
_NO_DEVICE = 0
"""Major number of what is on no block device of this machine (makedev(3)): NFS, FUSE, tmpfs."""
_LOCK = re.compile(rb"walld 1\nepoch ([0-9]{1,20})\nlog ([0-9a-f]{32})\n(written\n)?")


@contextmanager
def holding(root: str) -> Iterator[None]:
    """Keep daemons out for as long as it lasts, without becoming an owner: LOCK is not written.

    Raises DirectoryTaken, OSError.
    """
    path = os.path.join(root, LOCK_NAME)
    directory = _taken_root(root)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            _take(fd, path)
            yield
        finally:
            os.close(fd)
    finally:
        os.close(directory)


def _taken_root(root: str) -> int:
    """A descriptor of the directory; with it goes the hold."""
    fd = patiently(lambda: os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    try:
        _take(fd, root)
    except DirectoryTaken:
        os.close(fd)
        raise
    except OSError:
        return fd  # flock(2): not of this file system's directories; LOCK alone it is
    return fd


def _sync_dir(path: str) -> None:
    """By a descriptor of its own: one whose sync failed is not asked again."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
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
        known: Sequence[bytes] = (),
    ) -> None:
        """Take the directory. `log_uuid` names the log where LOCK does not, or `is_new` says so.

        known: the logs its segments say they are of, one each; see `believes_segments`. epoch: the
        highest the log itself tells of. LOCK is written in place (it is flocked), so power lost at
        its making can leave anything in it; what it cannot say the segments do.
        Raises DirectoryTaken, FormatError, OSError.
        """
        self.path = os.path.join(root, LOCK_NAME)
        self._root_fd = _taken_root(root)
        self._fd = self._direct = -1
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._fd = patiently(lambda: os.open(self.path, flags, 0o600))
            _take(self._fd, self.path)
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise FormatError(f"{self.path}: is no regular file: remove it")
            raw = patiently(lambda: os.pread(self._fd, LOCK_BYTES, 0))
            told = parse_lock(raw, self.path)
            self.had_log = told is not None and told[2]
            raised = told[0] if told and told[0] < EPOCH_MAX else 0
            self.epoch = max(epoch, raised) + 1
            self.log_uuid = told[1] if told else log_uuid
            self.is_other_log = False
            if is_new:
                self.log_uuid = log_uuid
            elif believes_segments(self.log_uuid, known):
                # Where that is no slip in LOCK, what it names was here and is not any more.
                self.is_other_log = self.had_log and not _is_slip(self.log_uuid, log_uuid)
                self.log_uuid = log_uuid
            record = lock_record(self.epoch, self.log_uuid, has_log=self.had_log)
            self._own = record[: record.index(b"log") + 36]
            """Stands in LOCK while it is ours; what follows may change, also while it is read."""
            self._marked = self.had_log
            patiently(lambda: self._write(record))  # each try writes it, and syncs what it wrote
            self._direct = self._opened_direct()
            patiently(lambda: _sync_dir(root))
        except BaseException:
            self.close()
            raise

    def _write(self, record: bytes) -> None:
        done = 0
        while done < len(record):
            done += os.pwrite(self._fd, record[done:], done)
        os.fsync(self._fd)

    def synced(self) -> None:
        """A segment is durable: from now on its absence is a loss, and LOCK says so. Once.

        Where that fails it is for the next owner to say: no second sync of this file. Who stands
        still between the look and the write may write behind a later owner: that line alone, at its
        place, true of the directory whoever owns it. Where an NFS client could send what it has of
        the page along with it, it goes past the cache.
        """
        if self._marked or not self.is_owner():
            return
        self._marked = True
        with suppress(OSError):
            self._write_line()
            os.fsync(self._fd)

    def _write_line(self) -> None:
        if self._direct >= 0:
            try:
                os.pwrite(self._direct, _WRITTEN, _WRITTEN_AT)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
            else:
                return
        os.pwrite(self._fd, _WRITTEN, _WRITTEN_AT)  # a disk of this machine, that wants blocks

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
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECT
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
        for fd in (self._direct, self._fd, self._root_fd):
            if fd >= 0:
                os.close(fd)


def believes_segments(told: bytes, known: Sequence[bytes]) -> bool:
    """True where it is not LOCK (told) that is right about the log, but its segments (known).

    LOCK has no checksum. It is believed against one segment, which may be another log's, unless the
    two differ in one digit alone; and against none where several agree.
    """
    if not known or told in known:
        return False
    return _is_slip(told, known[0]) or (len(known) > 1 and len(set(known)) == 1)


def _is_slip(one: bytes, other: bytes) -> bool:
    """They differ in one hex digit at most, as by one byte of LOCK."""
    return sum(a != b for a, b in zip(one.hex(), other.hex(), strict=True)) <= 1


def lock_record(epoch: int, log_uuid: bytes, *, has_log: bool = False) -> bytes:
    """What stands in LOCK (FORMAT.md)."""
    fixed = f"walld 1\nepoch {epoch:020}\nlog {log_uuid.hex()}\n".encode()
    assert len(fixed) == _WRITTEN_AT, fixed
    return (fixed + _WRITTEN * has_log).ljust(LOCK_BYTES)


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
