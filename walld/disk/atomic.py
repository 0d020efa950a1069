"""Compound disk verbs: replace a file as a whole, make a directory with its parents.

Owns: the order of their steps, which is what makes them atomic and durable. Refuses: how a single
step is done (`real.py`, `simulated.py`): both disks go through these, so a crash between two steps
is simulated on the very code that runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from walld.disk.base import Entry, File

__all__ = ["ComposedDisk"]


class ComposedDisk(ABC):
    """What a disk can do once it has the single verbs."""

    def __init__(self) -> None:
        self._durable_dirs: set[str] = set()
        """Directories whose name in their parent this process has synced."""
        self._expected: set[str] = set()

    @abstractmethod
    def create(self, path: str) -> File:
        """A new file, read-write."""

    @abstractmethod
    def unlink(self, path: str) -> None:
        """Remove a file."""

    @abstractmethod
    def rename(self, path: str, new_path: str) -> None:
        """Give a file another name."""

    @abstractmethod
    def make_one_dir(self, path: str) -> bool:
        """mkdir(2); False where it is there already."""

    @abstractmethod
    def list_dir(self, path: str) -> list[Entry]:
        """Its entries by name."""

    @abstractmethod
    def sync_dir(self, path: str) -> None:
        """fsync(2) of a directory."""

    def replace(self, path: str, data: bytes) -> None:
        """Whole file, atomically and durably. Its temporary name is `.<name>.tmp`."""
        self._put(path, data, is_synced=True)
        self.sync_dir(path.rpartition("/")[0])

    def swap(self, path: str, data: bytes) -> None:
        """Whole file, atomically for whoever reads it; a power cut may leave anything."""
        self._put(path, data, is_synced=False)

    def _put(self, path: str, data: bytes, *, is_synced: bool) -> None:
        head, _, name = path.rpartition("/")
        temporary = f"{head}/.{name}.tmp" if head else f".{name}.tmp"
        with suppress(FileNotFoundError):
            self.unlink(temporary)
        file = self.create(temporary)
        try:
            try:
                _write_whole(file, data)
                if is_synced:
                    file.sync()
            finally:
                file.close()
            self.rename(temporary, path)
        except BaseException:
            with suppress(OSError):
                self.unlink(temporary)
            raise

    def make_dir(self, path: str) -> None:
        """A directory and its missing parents, each new name synced in its parent.

        A name that was there may come from a process killed before its sync, so the first time it
        is met its parent is synced too.
        """
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            current = "/".join(parts[:depth])
            if depth < len(parts) and current in self._expected:
                continue
            if self.make_one_dir(current) or current not in self._durable_dirs:
                self.sync_dir("/".join(parts[: depth - 1]))
                self._durable_dirs.add(current)

    def expect(self, name: str) -> None:
        """A directory of the root is there from now on, or was removed."""
        self._expected.add(name)

    def removed(self) -> list[str]:
        """Those that are expected and not there."""
        return sorted(self._expected.difference(entry.name for entry in self.list_dir("")))


def _write_whole(file: File, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += file.write_at(data[written:] if written else data, written)
