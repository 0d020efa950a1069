"""One copy of the tree, made wrong in one place and run until the simulation objects.

Owns: the copy, the patch, the order in which plans are tried, and what came of it. Refuses: which
bugs there are (`mutants.py`), how many at a time (`__main__.py`).

`python -m zoo.cage FOLDER FIRST LAST SEEDS`, with FOLDER in front of PYTHONPATH, is the inside: it
runs plans FIRST to LAST of the order against the copy and says how that ended as one JSON line.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import walld_client
from simulation import __main__ as simulation
from simulation import world
from simulation.plan import Plan

import walld

from .mutants import Mutant

__all__ = ["FIRST", "Fate", "make_copy", "order", "patched", "run"]

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PLACES = {"walld": "walld", "clients/python/walld_client": "walld_client"}
"""What is copied, and where to."""
HANG_SECONDS = 60.0
"""Of real time for one plan; the longest takes a few. More is a hang, and is called so."""
FIRST: tuple[str, ...] = tuple(map(str, [1385, 333, 1097, 1087, 693, 241, 389, 1029, 1649, 83, 533, 509, 664, 961, 1568, 653, 723, 1939, 1975, 50, 321, 1142, 1925, 1628, 140, 1916, 105, 1615, 1632, 724, 1299, 1315, 197, 740, 932, 939, 1043, 1430, 489, 1276, 1523, 1819, 351, 469, 595, 846, 309, 683, 182, 703, 1735, 419, 438, 945, 1622, 1775, 360, 431, 822, 1314, 1790, 234, 293, 510, 662, 1214, 1389, 1482, 1527, 1551, 1594, 1991, 156, 200, 252, 567, 1400, 1411, 1690, 1843, 719, 1635, 432, 1046, 1096, 1297, 46, 513, 734]))
"""Plans that kill many, tried before all others; found by running every mutant on every plan."""


class Fate(NamedTuple):
    """How a copy ended. plan: what killed it, None where it lived. tried: plans up to there."""

    plan: str | None
    why: str
    tried: int
    seconds: float


def order(seeds: int) -> Iterator[Plan]:
    """Plans in the order they are tried: the deadly ones, seeds from 0, a crash at every verb."""
    yield from map(simulation.parse, FIRST)
    yield from map(Plan.of, range(seeds))
    yield from simulation.sweep_plans()


def patched(mutant: Mutant, root: Path = ROOT) -> str:
    """The text of its file with the bug in it. ValueError where it does not fit any more."""
    text = (root / mutant.path).read_text()
    if text.count(mutant.old) != 1:
        raise ValueError(
            f"{mutant.name}: {mutant.path} has what it replaces {text.count(mutant.old)} times"
        )
    return text.replace(mutant.old, mutant.new)


def make_copy(folder: Path, mutant: Mutant | None) -> None:
    """The two packages below `folder`, with the bug in them unless it is None."""
    for source, target in PLACES.items():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / source, folder / target, ignore=ignored)
    if mutant is not None:
        for source, target in PLACES.items():
            if mutant.path.startswith(source + "/"):
                (folder / target / mutant.path[len(source) + 1 :]).write_text(patched(mutant))


def run(folder: Path, seeds: int, first: int = 0, last: int | None = None) -> Fate:
    """Try plans of the order on the copy until one of them fails, in a process of its own."""
    path = [str(folder), str(TESTS), *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path), "PYTHONHASHSEED": "0"}
    what = [str(folder), str(first), str(-1 if last is None else last), str(seeds)]
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "zoo.cage", *what],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - begun
    lines = done.stdout.splitlines()
    if not lines:  # it does not even start: that is a broken patch and no proof of anything
        raise RuntimeError(f"the simulation did not run: {done.stderr[-2000:]}")
    plan, why, tried = json.loads(lines[-1])
    return Fate(plan, why, tried, seconds)


# --- inside -----------------------------------------------------------------------------------


def _inside(folder: str, first: int, last: int, seeds: int) -> None:
    for module in (walld, walld_client):
        assert str(module.__file__).startswith(folder), f"{module.__file__} is not the copy"
    out, sys.stdout = sys.stdout, io.StringIO()
    tried, name = first, ""

    def say(plan: str | None, why: str) -> None:
        out.write(json.dumps((plan, why, tried)) + "\n")
        out.flush()
        os._exit(0)

    def hung(_number: int, _frame: object) -> None:
        say(name, f"hung: not over after {HANG_SECONDS:.0f} s")

    signal.signal(signal.SIGALRM, hung)
    signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
    try:
        for plan in islice(order(seeds), first, None if last < 0 else last):
            tried += 1
            name = simulation.command(plan).partition("SEED=")[2]
            signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
            world.run(plan)
    except BaseException as error:
        say(name, _reason(error))
    say(None, "")


def _reason(error: BaseException) -> str:
    """The innermost exception in one line, and where it was raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}"[:160] + where


if __name__ == "__main__":
    _inside(sys.argv[1], *map(int, sys.argv[2:]))
