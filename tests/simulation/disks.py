"""What is wrong with the disk of a world, and when.

Owns: short writes, of files that hold what agents said; how long a verb takes, which fail for a
while, and behind which all ends. Refuses: what a crash or a failed sync leaves
(`walld/disk/medium.py`).
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import anyio

from walld.disk.medium import Storage
from walld.disk.simulated import SimulatedDisk, SimulatedFile

if TYPE_CHECKING:
    from .world import World

__all__ = ["Mood", "ShortDisk"]

_ROOM_BYTES = 1 << 40
_PLACES = ("wal/", "partials/", "sessions/")
"""Files that hold what was said."""


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
        if not self.share or not file.path.startswith((*_PLACES, "quarantine/")):
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


class Mood:
    """How the disk is now: slow, hung, full or failing."""

    def __init__(self, world: World) -> None:
        self._plan = world.plan
        self._random = world.random
        self._storage = world.storage
        self._murphy = world.murphy
        self._early = Random(f"early {world.plan.seed}")
        self.stalled_until = 0.0
        self.ambushed = ""
        """Verb just behind which everything ends."""
        self.takes_power = False
        """The next crash is a power cut."""
        self.has_room = True
        self._errors: dict[str, int] = {}
        self._error_until = 0.0

    def latency(self) -> float:
        """What a job takes now."""
        now = anyio.current_time()
        if now < self.stalled_until:
            return self.stalled_until - now
        mean = self._plan.disk_seconds
        return self._random.expovariate(1 / mean) if mean else 0.0

    def works_early(self) -> bool:
        """Whether the job at hand is done now, and told of later."""
        return self._plan.early > 0 and self._early.random() < self._plan.early

    def failing(self, verb: str, path: str) -> int:
        """The errno of a verb, 0 where it may go on (`Storage.fail`)."""
        if verb == self.ambushed and path.startswith(_PLACES):
            self.ambushed = ""
            self._storage.crash_at = self._storage.ops + self._murphy.randrange(1, 5)
        if not self.has_room and anyio.current_time() > self._error_until:
            self.calm()
        if not self._errors or not path.startswith(_PLACES):
            return 0
        if anyio.current_time() > self._error_until:
            self.calm()
            return 0
        return self._errors.get(verb, 0) if self._random.random() < 0.7 else 0

    def calm(self) -> None:
        """No more errors, and room."""
        self._errors.clear()
        if not self.has_room:
            self.has_room, self._storage.room = True, _ROOM_BYTES

    def fail(self, verb: str, number: int) -> None:
        """From here on, for a while, most such verbs fail with that errno."""
        self._errors[verb] = number
        self._error_until = anyio.current_time() + self._random.choice((0.0, 0.05, 1.0, 3.0))
