"""The rows of the track record, as the files in `docs/data/` have them.

Owns: their columns, what each cell may be, which tests a cell names. Refuses: what the page says of
them (`page.py`).
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = [
    "BUGS",
    "COUNTED",
    "GOALS",
    "KINDS",
    "ROOT",
    "RUNS",
    "WAYS",
    "Bug",
    "Goal",
    "Run",
    "bugs",
    "goals",
    "named_tests",
    "runs",
]

ROOT: Final = Path(__file__).parents[2]
BUGS: Final = ROOT / "docs/data/track_record_bugs.csv"
RUNS: Final = ROOT / "docs/data/track_record_runs.csv"
GOALS: Final = ROOT / "docs/data/track_record_goals.csv"

WAYS: Final = {
    "hostile reader": "reading as somebody who means harm, with programs that try it",
    "reading": "reading the code, a change or a page beside another",
    "fault or kill": "a call that fails, a damaged or removed file, a full disk, SIGKILL",
    "use": "programs as users and operators have them, SDK by SDK",
    "random input": "fuzzing, laws of any input, each argument with values of another kind",
    "simulation": "simulated worlds and the daemon on a clock that jumps",
    "failed test": "a test of something else that failed, most of them on a busy machine",
    "load": "measuring time and memory",
}
"""How a bug was found -> what that is."""

KINDS: Final = (
    "simulation",
    "the real kernel",
    "planted bugs",
    "random input and damage, by script or by hand",
    "all of .ci/run",
    "fuzz",
    "NFS",
    "bits and lengths of a log",
    "adapters and the Node client",
)

COUNTED: Final = {
    "worlds": "simulated worlds",
    "crashes": "worlds that crash at one call to the disk",
    "pairs": "worlds that crash at two",
    "states": "states that a crash may leave on disk, judged",
    "flips": "bits and lengths of a log of 64 KiB",
    "planted": "planted bugs, in the last run",
    "kills": "SIGKILLs under load",
    "cuts": "power cuts, on ext4 and xfs",
    "kill_points": "kills at a call",
    "errnos": "errnos at a call",
    "disks": "disks that are full, fail or hang",
    "pauses": "stops, clock jumps, want of memory",
    "soaks": "soaks, 45 minutes each",
    "events": "acknowledged events compared, on the real kernel and NFS",
    "fuzz": "executions of fuzz targets",
    "cases": "random and damaged inputs beside fuzz",
    "tests": "tests, run by run",
    "venvs": "venvs of SDKs, where tests were not counted",
}
"""What a run counts -> what that is."""


@dataclass(frozen=True)
class Bug:
    """A bug that was found."""

    bug: str
    found_by: str
    """As it was written then; "the same" is that of the row above."""
    held_by: str
    """The tests that would find it now."""
    way: str
    """One of WAYS."""


@dataclass(frozen=True)
class Run:
    """A run that was counted: its first five cells are never edited."""

    what: str
    command: str
    commit: str
    seeds_or_cases: str
    failed: str
    kind: str
    """One of KINDS."""
    counts: str
    """`worlds=300 states=12`: each a name of COUNTED, and how many there were."""
    broken: str
    """How many of them broke a promise; what the harness had wrong is not among them."""

    def counted(self) -> dict[str, int]:
        """Name of COUNTED -> how many. ValueError for what is no such list."""
        found = re.findall(r"(\w+)=(\d+)(?: |$)", self.counts)
        if " ".join(f"{name}={number}" for name, number in found) != self.counts:
            raise ValueError(f"counts {self.counts!r}: wanted name=number, one space between two")
        return {name: int(number) for name, number in found}


@dataclass(frozen=True)
class Goal:
    """What was aimed at, and what had been reached when that was last written."""

    of: str
    """"all runs", or "each run of .ci/run"."""
    figure: str
    aimed_at: str
    reached: str
    aims: str
    """`kill_points: on 3 file systems; errnos: 50,000`: names of COUNTED, or empty."""

    def aimed(self) -> dict[str, str]:
        """Name of COUNTED -> what was aimed at."""
        return dict(one.split(": ", 1) for one in self.aims.split("; ") if one)


def bugs() -> list[Bug]:
    """All of them, the oldest first."""
    return [Bug(*row) for row in _rows(BUGS, "bug", "found by", "held by", "way")]


def runs() -> list[Run]:
    """All of them, the oldest first."""
    heading = ("what", "command", "commit", "seeds or cases", "failed", "kind", "counts", "broken")
    return [Run(*row) for row in _rows(RUNS, *heading)]


def goals() -> list[Goal]:
    """All of them."""
    return [Goal(*row) for row in _rows(GOALS, "of", "figure", "aimed at", "reached", "aims")]


def named_tests(cell: str) -> list[tuple[str, str]]:
    """(file, function or ""); one that begins with `::` is of the file before it."""
    named: list[tuple[str, str]] = []
    for path, function in re.findall(r"`([\w/]+\.py)?(?:::(\w+))?`", cell):
        if path or function:
            named.append((path or named[-1][0], function))
    return named


def _rows(path: Path, *heading: str) -> list[list[str]]:
    """ValueError for another heading, or a row that has more or fewer cells."""
    with path.open(newline="", encoding="utf-8") as file:
        first, *rows = csv.reader(file)
    if tuple(first) != heading:
        raise ValueError(f"{path.name} has the columns {first}, wanted {list(heading)}")
    for number, row in enumerate(rows, 2):
        if len(row) != len(heading):
            raise ValueError(f"{path.name}, row {number}: {len(row)} cells, wanted {len(heading)}")
    return rows
