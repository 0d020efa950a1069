"""A Disk that refuses to write once another daemon owns the directory.

Owns: the look at the epoch before each verb that makes, moves, removes or opens a file to be
changed. Refuses: what follows (the daemon stops, `daemon/maintenance.py`), and the log's own writes
and syncs: there the look comes behind them, before anything is acknowledged (W4).

Invariants
- D4 Who is not the owner any more makes, moves and removes no file. A daemon that was frozen thaws
  in the middle of what it did, and its sessions, partials and segments are another one's by then.
  Between the look and the verb nothing can be promised: what was under way may be done.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from walld.errors import TakenOver

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld.disk.base import Disk, Entry, File

__all__ = ["FencedDisk"]


class FencedDisk:
    """The verbs of another disk; TakenOver of those that change something, or ask for room."""

    def __init__(self, disk: Disk, is_owner: Callable[[], bool]) -> None:
        self._disk = disk
        self._is_owner = is_owner
        self.root = disk.root

    def _look(self, path: str) -> None:
        if not self._is_owner():
            raise TakenOver(errno.ESTALE, "another daemon has raised the epoch", path)

    def create(self, path: str) -> File:
        """A new file, read-write. FileExistsError if there."""
        self._look(path)
        return self._disk.create(path)

    def reopen(self, path: str) -> File:
        """An existing regular file, read-write."""
        self._look(path)
        return self._disk.reopen(path)

    def replace(self, path: str, data: bytes) -> None:
        """Whole file, atomically and durably."""
        self._look(path)
        self._disk.replace(path, data)

    def swap(self, path: str, data: bytes) -> None:
        """The same without the syncs."""
        self._look(path)
        self._disk.swap(path, data)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        self._look(path)
        self._disk.unlink(path)

    def rename(self, path: str, new_path: str) -> None:
        """Another name; what stood there is replaced."""
        self._look(path)
        self._disk.rename(path, new_path)

    def link(self, path: str, new_path: str) -> None:
        """A second name."""
        self._look(path)
        self._disk.link(path, new_path)

    def make_dir(self, path: str) -> None:
        """A directory and its missing parents."""
        self._look(path)
        self._disk.make_dir(path)

    def remove_dir(self, path: str) -> bool:
        """Remove an empty directory; False where it is not empty or not there."""
        self._look(path)
        return self._disk.remove_dir(path)

    def free_bytes(self) -> int:
        """What may still be written: who waits for room may do nothing else, and for ever."""
        self._look("")
        return self._disk.free_bytes()

    # --- what changes nothing ---------------------------------------------------------------------

    def open(self, path: str) -> File:
        """An existing regular file, for reading only."""
        return self._disk.open(path)

    def expect(self, name: str) -> None:
        """A directory of the root is there from now on."""
        self._disk.expect(name)

    def removed(self) -> list[str]:
        """Those that are expected and not there."""
        return self._disk.removed()

    def sync_dir(self, path: str) -> None:
        """The names in it survive power loss."""
        self._disk.sync_dir(path)

    def list_dir(self, path: str) -> list[Entry]:
        """Its entries by name."""
        return self._disk.list_dir(path)

    def is_removed(self) -> bool:
        """Its own name does not lead to it any more."""
        return self._disk.is_removed()
