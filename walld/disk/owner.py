"""One daemon per data directory: the lock, and the epoch that fences a frozen one.

Owns: the file LOCK (FORMAT.md): flock for as long as the daemon lives, and in it the owner epoch
and the log's uuid. Refuses: everything else in the directory.

A new owner raises the epoch before it scans. An owner reads it again after each write and sync and
before it acknowledges: a daemon that was frozen, lost its lock to the lifting of its NFS lease and
thaws, sees another epoch and stops (DESIGN section 6).
"""

from __future__ import annotations

import fcntl
import os

from walld.errors import DirectoryTaken, FormatError

__all__ = ["LOCK_BYTES", "LOCK_NAME", "Owner"]

LOCK_NAME = "LOCK"
LOCK_BYTES = 128


class Owner:
    """The hold of one process on its data directory, until it exits."""

    def __init__(self, root: str, log_uuid: bytes, *, is_new: bool = False) -> None:
        """Take the directory. `log_uuid` names the log where there was none, or `is_new` says so.

        Raises DirectoryTaken, FormatError, OSError.
        """
        self.path = os.path.join(root, LOCK_NAME)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(self.path, flags, 0o600)
        try:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                text = "another walld owns this data directory: stop it, or give --data another one"
                raise DirectoryTaken(f"{self.path}: {text}") from None
            raw = os.pread(self._fd, LOCK_BYTES, 0)
            epoch, self.log_uuid = self._parse(raw) if raw.strip() else (0, log_uuid)
            self.epoch = epoch + 1
            if is_new:
                self.log_uuid = log_uuid
            self._record = (
                f"walld 1\nepoch {self.epoch}\nlog {self.log_uuid.hex()}\n".encode()
            ).ljust(LOCK_BYTES)
            os.pwrite(self._fd, self._record, 0)
            os.fsync(self._fd)
        except BaseException:
            os.close(self._fd)
            raise
        directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _parse(self, raw: bytes) -> tuple[int, bytes]:
        try:
            version, epoch, log = raw.decode("ascii").split("\n")[:3]
            if version != "walld 1" or epoch[:6] != "epoch " or log[:4] != "log ":
                raise ValueError
            uuid = bytes.fromhex(log[4:])
            if len(uuid) != 16:
                raise ValueError
            return int(epoch[6:]), uuid
        except (ValueError, UnicodeDecodeError):
            text = f"not a LOCK of version 1 ({len(raw)} bytes): restore it, or move it away"
            raise FormatError(f"{self.path}: {text}") from None

    def is_owner(self) -> bool:
        """False once another daemon has raised the epoch."""
        return os.pread(self._fd, LOCK_BYTES, 0) == self._record

    def close(self) -> None:
        """Give the directory up."""
        os.close(self._fd)
