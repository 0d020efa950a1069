"""The lock of a data directory, and the epoch that fences a frozen owner.

Owns: the file LOCK: flock for as long as the daemon lives, and when it says which epoch, log and
batch: who takes the newest segment away, or the oldest, leaves that word.
Refuses: what its bytes are (`lock_record.py`), everything else in the directory.

The directory itself is flocked, too, where its file system can do that (NFS cannot): who removes
LOCK for a leftover of a crash, and starts a second daemon, would have two.

A new owner raises the epoch before it scans the log; what says which log it is was read before
(`recovery/directory_lock.py`). An owner reads it again after each write and sync and before it
acknowledges: a daemon that was frozen, lost its lock to the lifting of its NFS lease and thaws,
sees a later epoch and stops (W4). Anything else that stands there is damage, for which nobody
stops: what is in memory alone would go along (P8).
"""

from __future__ import annotations

import errno
import fcntl
import logging
import mmap
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from walld.disk.folded import looks_at_case
from walld.disk.lock_record import (
    EPOCH_MAX,
    LOCK_BYTES,
    LOCK_NAME,
    WRITTEN_AT,
    LockRecord,
    believes_segments,
    is_lost,
    is_raised,
    lock_record,
    parse_lock,
    trouble_of,
)
from walld.disk.retrying import patiently
from walld.disk.root import NO_DEVICE, sync_names
from walld.errors import DirectoryTaken, FormatError

__all__ = ["Marks", "Owner", "holding"]

_log = logging.getLogger("walld")
_NOT_DIRECT = (errno.EINVAL, errno.EOPNOTSUPP)
_NO_ID = 2**64
"""Above that of any segment."""


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
        sync_names(fd, path)
    finally:
        os.close(fd)


def _take(fd: int, path: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = "another walld owns this data directory: stop it, or give --data another one"
        raise DirectoryTaken(f"{path}: {text}") from None


def _write_whole(fd: int, data: bytes, offset: int) -> None:
    """pwrite(2) may take less. OSError where it takes nothing."""
    while data:
        count = os.pwrite(fd, data, offset)
        if not count:
            raise OSError(errno.EIO, "pwrite(2) took nothing")
        data, offset = data[count:], offset + count


class Marks:
    """What LOCK is to say of the log, and when; who has the file writes, one thread at a time.

    What could not be written is for the next owner, but for what must be said before a segment
    goes: no second sync of this file without writing all of the lines again.
    """

    epoch: int
    log_uuid: bytes
    first_no: int
    """The first batch that must be there; 0 where LOCK did not say, until a start knows."""
    damage: str | None = None
    """What is wrong with LOCK, and stays so until the next start."""
    is_case_blind = False
    """The disk finds a name by other letters, too (`folded.py`)."""
    is_folded = False
    """LOCK says that folded names may be there."""

    def __init__(self, told: LockRecord) -> None:
        """told: what LOCK says from now on; epoch and log are the owner's."""
        self.epoch, self.log_uuid = told.epoch, told.log_uuid
        self.first_no = told.first_no
        self._synced_no = told.synced_no
        self._is_unreported = False
        self._marked_id = -1
        """The newest segment of which a batch is named; 0 where none is, and one is durable."""

    def synced(self, segment_id: int, batch_no: int) -> None:
        """A segment and that batch in it are durable: from now on their absence is a loss.

        LOCK says so once a segment, before anything in it is acknowledged: who takes the newest one
        away, or all of it but its header, leaves that word. batch_no: 0 of one that has none yet.
        """
        marked_id = segment_id if batch_no else 0
        if marked_id > self._marked_id:
            self._marked_id = marked_id
            self._mark(batch_no)

    def begun(self, batch_no: int) -> None:
        """A start has made everything up to that batch durable, what was never synced before too:
        LOCK says so before anybody is told.
        """
        if batch_no > self._synced_no:
            self._mark(batch_no)

    def ended(self, batch_no: int) -> None:
        """The last batch of an orderly end is durable: no word of it may go unnoticed."""
        if self._marked_id > 0:
            self._mark(batch_no)

    def begins(self, first_no: int) -> None:
        """Segments with what is before that batch are about to go: LOCK says so first, or they
        would be missed. OSError: they stay.
        """
        if first_no > self.first_no or self._is_unreported:
            self._write_lines(self._lines(first_no))
            self.first_no, self._is_unreported = first_no, False

    def report_first_no_later(self, first_no: int) -> None:
        """They go though it could not be said: it is, with whatever is written next."""
        self.first_no, self._is_unreported = first_no, True

    @property
    def unreported_no(self) -> int:
        """The first batch that must be there, where that could not be said; 0: it was."""
        return self.first_no if self._is_unreported else 0

    def _mark(self, batch_no: int) -> None:
        if self._marked_id == _NO_ID:
            return
        self._synced_no = max(self._synced_no, batch_no)
        try:
            self._write_lines(self._lines(self.first_no))
        except OSError:
            self._marked_id = _NO_ID

    def _lines(self, first_no: int) -> bytes:
        # Segments come behind the directories of a start.
        told = LockRecord(self.epoch, self.log_uuid, True, self._synced_no, first_no, True)
        return lock_record(told)[WRITTEN_AT:]

    def _write_lines(self, lines: bytes) -> None:
        """At WRITTEN_AT, and synced. OSError."""
        raise NotImplementedError


class Owner(Marks):
    """The hold of one process on its data directory, until it exits."""

    def __init__(
        self,
        root: str,
        log_uuid: bytes,
        *,
        epoch: int = 0,
        is_new: bool = False,
        known: Sequence[bytes] = (),
        lost: Callable[[], None] = lambda: None,
        was_here: bool = False,
        has_folded: Callable[[], bool] = lambda: False,
        writing: AbstractContextManager[object] | None = None,
    ) -> None:
        """Take the directory. `log_uuid` names the log where LOCK does not, or `is_new` says so.

        known: the logs its segments say they are of, one each; see `believes_segments`. epoch: the
        highest the log itself tells of. LOCK is written in place (it is flocked), so power lost at
        its making can leave anything in it; what it cannot say the segments do. lost: called where
        those are of another log, before nothing names the one that LOCK did any more. was_here: a
        log may have been, so that a LOCK which is not whole counts as one that told of it.
        has_folded: folded names are there; asked where no LOCK says whether. writing: a lock, for
        whoever has several threads that look.
        Raises DirectoryTaken, FormatError, OSError.
        """
        self.path = os.path.join(root, LOCK_NAME)
        self._root_fd = _taken_root(root)
        self._fd = self._direct = -1
        self._is_direct_refused = False
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._fd = patiently(lambda: os.open(self.path, flags, 0o600))
            _take(self._fd, self.path)
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise FormatError(f"{self.path}: is no regular file: remove it")
            raw = patiently(lambda: os.pread(self._fd, LOCK_BYTES, 0))
            found = parse_lock(raw, self.path)
            told = found or LockRecord(0, log_uuid, is_folded=has_folded())
            # By the letters of LOCK, which is there.
            self.is_case_blind = not patiently(lambda: looks_at_case(root, LOCK_NAME))
            self.trouble = trouble_of(raw) if raw else None  # it was never written
            if was_here and (self.trouble is not None or not raw):
                told = told._replace(had_log=True)
            epoch = max(epoch, told.epoch if told.epoch < EPOCH_MAX else 0) + 1
            is_other = is_new or believes_segments(told.log_uuid, known)
            if is_other and not is_new and is_lost(told, log_uuid):
                lost()
            if is_other and told.log_uuid != log_uuid:
                told = told._replace(synced_no=0, first_no=0)
            self.lock_before = told
            """As LOCK was when the directory was taken; but no batch of another log."""
            own = told._replace(epoch=epoch, log_uuid=log_uuid if is_other else told.log_uuid)
            own = own._replace(is_folded=told.is_folded or self.is_case_blind)
            self.is_folded = own.is_folded
            super().__init__(own)
            record = lock_record(own)
            self._own = record[:WRITTEN_AT]
            """Stands in LOCK while it is ours; what follows may change, also while it is read."""
            self._lines_there = record[WRITTEN_AT:]
            self._writing = nullcontext() if writing is None else writing
            patiently(lambda: self._write(record))  # each try writes it, and syncs what it wrote
            self._direct = self._opened_direct()
            patiently(lambda: _sync_dir(root))
        except BaseException as error:
            self.close()
            if isinstance(error, OSError) and error.filename is None:
                error.filename = self.path  # a call on a descriptor does not say of what
            raise

    def says_unfolded(self) -> None:
        """No folded name is there any more, durably, nor will one be: any version may have it.

        For a start, on a disk that looks at case.
        """
        assert self.is_folded, self.path
        assert not self.is_case_blind, self.path
        if not self.is_owner():
            return
        with self._writing:
            own = lock_record(LockRecord(self.epoch, self.log_uuid))[:WRITTEN_AT]
            self._write(own + self._lines_there)
            self._own, self.is_folded = own, False

    def _write(self, record: bytes) -> None:
        _write_whole(self._fd, record, 0)
        os.fsync(self._fd)

    def _write_lines(self, lines: bytes) -> None:
        """Who stands still between the look and the write may write behind a later owner: those
        lines alone, at their place, true of the log whoever owns it. Where an NFS client could send
        what it has of the page along with them, they go past the cache.
        """
        if not self.is_owner():
            return
        with self._writing:
            self._put_lines(lines)
            os.fsync(self._fd)
            self._lines_there = lines

    def _put_lines(self, lines: bytes) -> None:
        if self._direct >= 0:
            try:
                _write_whole(self._direct, lines, WRITTEN_AT)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
            else:
                return
        _write_whole(self._fd, lines, WRITTEN_AT)  # a disk of this machine, that wants blocks

    def is_owner(self) -> bool:
        """False once another daemon has raised the epoch.

        Where another machine may be the one that did, its file server is asked: from its own cache
        a client reads what it wrote there itself, however long ago it has lost the lock.
        """
        return self.reads_back() or self._is_damaged()

    def reads_back(self) -> bool:
        """What it wrote stands there."""
        return self._read_back().startswith(self._own)

    def _is_damaged(self) -> bool:
        """What stands there is no later owner's: said once, and written anew where that can be.

        A next owner that is just writing may be read half written: it has not read the log yet, so
        what was written before this look is there for it, and the next look sees it whole.
        """
        with self._writing:
            raw = self._read_back()
            if raw.startswith(self._own):
                return True  # by another thread meanwhile
            is_alone = self._is_alone()
            if is_raised(raw, self.epoch) and not (is_alone and self._is_digit(raw)):
                return False
            why = "another machine may be writing it: a restart writes it anew"
            if is_alone:
                try:
                    self._write(self._own + self._lines_there)
                except OSError as error:
                    why = f"cannot be written anew: {error.strerror}"
                else:
                    _log.error("%s: was damaged beneath this daemon; written anew", self.path)
                    self.damage = None
                    return True
            damage = f"{LOCK_NAME} was damaged beneath this daemon, and {why}"
            if damage != self.damage:
                _log.error("%s: was damaged beneath this daemon, and %s", self.path, why)
            self.damage = damage
            return True

    def _is_alone(self) -> bool:
        """Nobody else can be writing LOCK: it is on a disk of this machine, and ours.

        On a file server it may be another one's at any time, also between a look and a write, which
        would take its epoch back: there a record that is not ours is never written over.
        """
        if os.major(os.fstat(self._fd).st_dev) == NO_DEVICE:
            return False
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held already, or it says so
        except OSError:
            return False
        return True

    def _is_digit(self, raw: bytes) -> bool:
        """It is an epoch's digit that is damaged: the CRC of the lines is of ours, a later owner
        writes its own. Only where nobody else can have written: a frozen owner's lines may stand
        behind a later one's epoch.
        """
        lines = self._lines_there
        return b"synced " in lines and raw[WRITTEN_AT:] == lines

    def _read_back(self) -> bytes:
        try:
            raw = self._read_direct() if self._direct >= 0 else None
            return os.pread(self._fd, LOCK_BYTES, 0) if raw is None else raw
        except OSError as error:
            why = f"read of {LOCK_NAME}: {error.strerror}"
            raise OSError(error.errno, why, self.path) from error

    def _read_direct(self) -> bytes | None:
        """Past the page cache; None where that is refused, which a start's probe cannot exclude:
        what is no whole block, or not where the disk wants it in memory, some refuse by chance.
        """
        with mmap.mmap(-1, mmap.PAGESIZE) as page:  # O_DIRECT wants it aligned
            try:
                os.preadv(self._direct, [page], 0)
            except OSError as error:
                if error.errno not in _NOT_DIRECT:
                    raise
                if not self._is_direct_refused:
                    self._is_direct_refused = True
                    text = "a read past the page cache (O_DIRECT) is refused here (%s), though one"
                    text += " at the start was not: read through it where that is so"
                    _log.warning(f"%s: {text}", self.path, error.strerror)
                return None
            return page[:LOCK_BYTES]

    def _opened_direct(self) -> int:
        """LOCK without the page cache; -1 where the kernel is the only one that has it, or cannot.

        tmpfs of older kernels and some of FUSE cannot, at open(2) or only at the first read: found
        out now, or each write would fail for it.
        """
        if os.major(os.fstat(self._fd).st_dev) != NO_DEVICE:
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
            if error.errno not in _NOT_DIRECT:
                raise
            return -1
        return direct

    def close(self) -> None:
        """Give the directory up."""
        for fd in (self._direct, self._fd, self._root_fd):
            if fd >= 0:
                os.close(fd)
