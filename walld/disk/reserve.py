"""Reserved disk space, so that a full disk still takes what must not wait.

Owns: the file `reserve`, 1 MiB in the data directory. Refuses: deciding what its room is for
(`writer.py`: ends, releases and what lets segments go).

Its bytes are written, not only asked for: fallocate(2) is not to be had on every file system. They
are the same each time, and no file system makes them smaller: zeros take no room on one that
compresses. One that is found is believed only where it holds its room: a daemon may have been
killed while it wrote it, and a copy may have left a hole in its place.

Several threads spend it (a note, LOCK, a full disk) and two make it, one at a time: else one would
call it made that another has just spent.
"""

from __future__ import annotations

import threading
from hashlib import shake_128
from typing import TYPE_CHECKING

from walld import limits
from walld.disk.base import NO_ROOM
from walld.errors import TakenOver

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld.disk.base import Disk, Entry

__all__ = ["RESERVE_NAME", "Reserve"]

RESERVE_NAME = "reserve"
_PIECE_BYTES = 256 * limits.KIB


class Reserve:
    """The reserve of one data directory. Blocks: for any thread but the loop's."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = threading.RLock()
        self.is_spent = False
        """It was given to the disk, and is not put aside again."""

    def make(self) -> bool:
        """Put it aside where there is twice its room; True where it is there afterwards."""
        with self._lock:
            is_there = self._make()
            self.is_spent = self.is_spent and not is_there
            return is_there

    def _make(self) -> bool:
        for entry in self._disk.list_dir(""):
            if entry.name == RESERVE_NAME:
                if _holds_its_room(entry):
                    return True
                if not self.spend():
                    return False
        if self._disk.free_bytes() < 2 * limits.RESERVE_BYTES:
            return False
        file = self._disk.create(RESERVE_NAME)
        try:
            for offset in range(0, limits.RESERVE_BYTES, _PIECE_BYTES):
                if file.write_at(_piece(offset), offset) < _PIECE_BYTES:
                    break
            else:
                file.sync()
                return True
        except OSError:
            pass  # as full as before: nothing is lost by not having it
        finally:
            file.close()
        self.spend()
        return False

    def spend(self) -> bool:
        """Give the room back to the disk; False where there was none, or it cannot be had.

        A full disk that has become read-only besides is no reason to end: the daemon's memory may
        hold the only copy (P8). That the directory is another daemon's by now is one: TakenOver.
        """
        with self._lock:
            try:
                self._disk.unlink(RESERVE_NAME)
            except TakenOver:
                raise  # who writes to a full disk tries for ever, and looks nowhere else (W4)
            except OSError:
                return False
            self.is_spent = True
            return True

    def lend(self, job: Callable[[], None]) -> None:
        """Do it, also where there is no room but this. OSError."""
        try:
            job()
        except OSError as error:
            if error.errno not in NO_ROOM or not self.spend():
                raise
            job()


def _holds_its_room(found: Entry) -> bool:
    """What is no file was put there by somebody else, and is left to `spend`."""
    if found.kind != "file":
        return True
    return found.size >= limits.RESERVE_BYTES and not found.hollow


def _piece(offset: int) -> bytes:
    """What stands there."""
    return shake_128(b"reserve %d" % offset).digest(_PIECE_BYTES)
