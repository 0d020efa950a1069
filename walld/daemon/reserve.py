"""Room kept aside, so that a full disk still takes what must not wait.

Owns: the file `reserve`, 1 MiB of zeros in the data directory. Refuses: deciding what its room is
for (`writer.py`: ends, releases and what lets segments go).

Zeros are written, not only asked for: fallocate(2) is not to be had on every file system.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from walld import limits
from walld.errors import TakenOver

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld.disk.base import Disk

__all__ = ["NO_ROOM", "RESERVE_NAME", "Reserve"]

RESERVE_NAME = "reserve"
_PIECE_BYTES = 256 * limits.KIB
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Reserve:
    """The reserve of one data directory. Blocks: for the writer's thread."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def make(self) -> bool:
        """Put it aside where there is twice its room; True where it is there afterwards."""
        if any(entry.name == RESERVE_NAME for entry in self._disk.list_dir("")):
            return True
        if self._disk.free_bytes() < 2 * limits.RESERVE_BYTES:
            return False
        file = self._disk.create(RESERVE_NAME)
        try:
            for offset in range(0, limits.RESERVE_BYTES, _PIECE_BYTES):
                if file.write_at(bytes(_PIECE_BYTES), offset) < _PIECE_BYTES:
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
        try:
            self._disk.unlink(RESERVE_NAME)
        except TakenOver:
            raise  # who writes to a full disk tries for ever, and looks nowhere else (W4)
        except OSError:
            return False
        return True

    def lend(self, job: Callable[[], None]) -> None:
        """Do it, also where there is no room but this. OSError."""
        try:
            job()
        except OSError as error:
            if error.errno not in NO_ROOM or not self.spend():
                raise
            job()
