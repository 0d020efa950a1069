"""A simulated disk that also takes less than it is given.

Owns: short writes, of files that hold what agents said. Refuses: everything else a disk does wrong
(`walld/disk/simulated.py`).
"""

from __future__ import annotations

from random import Random

from walld.disk.medium import Storage
from walld.disk.simulated import SimulatedDisk, SimulatedFile

__all__ = ["ShortDisk"]


class ShortDisk(SimulatedDisk):
    """share: of the writes that take a part of what they are given."""

    def __init__(self, storage: Storage, share: float, random: Random) -> None:
        super().__init__(storage)
        self.share = share
        self.random = random

    def create(self, path: str) -> SimulatedFile:
        return self._short(super().create(path))

    def open(self, path: str) -> SimulatedFile:
        return self._short(super().open(path))

    def _short(self, file: SimulatedFile) -> SimulatedFile:
        if not self.share or not file.path.startswith(("wal/", "partials/", "quarantine/")):
            return file
        return _ShortFile(self, self._storage, file.path, file._node)


class _ShortFile(SimulatedFile):
    """Its writes may take a part."""

    def write_at(self, data: bytes, offset: int) -> int:
        disk = self._disk
        assert isinstance(disk, ShortDisk)
        if len(data) > 1 and disk.random.random() < disk.share:
            data = data[: disk.random.randrange(1, len(data))]
        return super().write_at(data, offset)
