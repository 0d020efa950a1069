"""The ages of partials, counted in time that daemons were running.

Owns: the file `ages` (FORMAT.md, "Ages"), what counts as age, and what a step of the wall clock
does to it. Refuses: removing partials (`daemon/storage/partial_writer.py`), clocks: what they say
is an argument.

A wall clock is no measure of age: a machine without a battery for its clock, a restored VM or a bad
time server would make every partial old at once, and what is removed then is "nothing", proven. So
a partial's age is the running time that daemons have counted since one of them first saw it. It
grows at look after look, and of one look never by more than `LOOK_MS_MAX`, whatever any clock says.

Invariants
- X1 No partial is removed before daemons ran for its retention age behind the look that first saw
  it as it is now. What is not known (no file, a damaged one) makes ages shorter, never longer.
- X2 For a day of running time behind a step of the wall clock none is removed: an operator who sees
  the line has that long to look.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from walld.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from walld.disk.base import Disk

__all__ = ["AGES_PATH", "Ages", "Name", "read_ages", "write_ages"]

AGES_PATH: Final = "ages"
_BYTES_MAX: Final = 256 * 1024 * 1024
"""A million partials; what is longer no daemon wrote."""
LOOK_MS_MAX: Final = 20 * 60 * 1000
"""Twice the period of looks: a clock that leaps within a daemon counts as no more."""
STEP_MS_MIN: Final = 60 * 1000
"""What a time server corrects at a usual start, or slews in ten minutes, is below that."""
HOLD_MS: Final = 24 * 3600 * 1000
"""X2: running time behind a step in which nothing is removed for its age."""
_whole = re.compile(
    rb"(ages 1\nrunning ([0-9]{1,18})\nwall ([0-9]{1,18})\nheld_until ([0-9]{1,18})\n"
    rb"(?:[0-9]{1,18} [0-9]{1,18} [^\n]+\n)*)crc ([0-9a-f]{8})\n"
)
_version = re.compile(rb"ages ([0-9]{1,18})\n")

Name = tuple[int, str, str]
"""uid, session name, stream name."""


class _Seen(NamedTuple):
    """first_ms: running time at the look that saw it first. made_at_ms: the file's own, which tells
    a partial from an earlier one of that name.
    """

    first_ms: int
    made_at_ms: int


class Ages:
    """What one data directory's daemons know of the ages of its partials."""

    def __init__(self) -> None:
        self.running_ms = 0
        """How long daemons have run on this directory, as far as looks have counted it."""
        self._wall_ms = 0
        """The wall clock at the last look, 0 before the first."""
        self._held_until = 0
        """Running time before which nothing is removed, in ms (X2)."""
        self._seen: dict[Name, _Seen] = {}

    def stepped_ms(self, elapsed_ms: int | None, wall_ms: int, asleep_ms: int) -> int | None:
        """By how much the wall clock has stepped since the last look, None where it has not: as
        `look` tells it.
        """
        step = wall_ms - self._wall_ms - (elapsed_ms or 0) - asleep_ms
        is_known = self._wall_ms > 0 and (elapsed_ms is not None or step < 0)
        return step if is_known and abs(step) >= STEP_MS_MIN else None

    def look(
        self,
        made: Iterable[tuple[Name, int]],
        elapsed_ms: int | None,
        wall_ms: int,
        asleep_ms: int = 0,
    ) -> int | None:
        """Count the time since the last look, and see which partials there are.

        made: every partial and its `made_at_ms`. elapsed_ms: since the last look, by a monotonic
        clock that stands still while the machine sleeps; None for the first look of a daemon.
        asleep_ms: how long it slept since then, which is no running time and no step either.
        Returns by how much the wall clock has stepped, None where it has not: between two daemons
        only a step back can be told from a pause.
        """
        step = self.stepped_ms(elapsed_ms, wall_ms, asleep_ms)
        self._wall_ms = wall_ms
        self.running_ms += min(max(elapsed_ms or 0, 0), LOOK_MS_MAX)
        if step is not None:
            self._held_until = self.running_ms + HOLD_MS
        seen: dict[Name, _Seen] = {}
        for name, made_at_ms in made:
            was = self._seen.get(name)
            is_same = was is not None and was.made_at_ms == made_at_ms
            first = was if was is not None and is_same else _Seen(self.running_ms, made_at_ms)
            seen[name] = first
        self._seen = seen
        return step

    def past(self, retention_ms: float) -> list[Name]:
        """Partials of at least that age; none while a step of the clock holds all of them (X2)."""
        if self.running_ms < self._held_until:
            return []
        newest = self.running_ms - retention_ms
        return [name for name, seen in self._seen.items() if seen.first_ms <= newest]

    def encode(self) -> bytes:
        """The file. Its end is a checksum: a flipped digit would make a partial old."""
        head = f"ages 1\nrunning {self.running_ms}\nwall {self._wall_ms}\n"
        lines = [f"{head}held_until {self._held_until}\n".encode()]
        lines += [
            f"{seen.first_ms} {seen.made_at_ms} {uid}/{session}/{stream}\n".encode()
            for (uid, session, stream), seen in self._seen.items()
        ]
        body = b"".join(lines)
        return body + f"crc {crc32(body):08x}\n".encode()

    @classmethod
    def decode(cls, content: bytes) -> Ages:
        """FormatError where it is damaged, or of a later version."""
        found = _whole.fullmatch(content)
        if found is None or crc32(found[1]) != int(found[5], 16):
            version = _version.match(content)
            if version is not None and int(version[1]) != 1:
                raise FormatError(f"it is of version {int(version[1])}, this daemon reads 1")
            raise FormatError("its checksum does not match: it was damaged")
        ages = cls()
        ages.running_ms, ages._wall_ms = int(found[2]), int(found[3])
        ages._held_until = int(found[4])
        for line in found[1].splitlines()[4:]:
            first, made_at, path = line.decode().split(" ", 2)
            uid, session, stream = path.split("/")
            ages._seen[int(uid), session, stream] = _Seen(int(first), int(made_at))
        return ages


def read_ages(disk: Disk) -> Ages:
    """What is written down; of no file no ages. OSError, FormatError where it cannot be read."""
    try:
        file = disk.open(AGES_PATH)
    except FileNotFoundError:
        return Ages()
    try:
        if (size := file.size()) > _BYTES_MAX:
            raise FormatError(f"it has {size} bytes, limit {_BYTES_MAX}: it was damaged")
        return Ages.decode(file.read_at(size, 0))
    finally:
        file.close()


def write_ages(disk: Disk, ages: bytes) -> None:
    """Atomically, not synced: what a power cut takes makes ages shorter (X1)."""
    disk.swap(AGES_PATH, ages)
