"""One copy of the tree, made wrong in one place and run until the simulation objects.

Owns: the copy, the patch, the order in which plans are tried, and what came of it. Refuses: which
bugs there are (`mutants/`), how many at a time (`__main__.py`).

`python -m zoo.cage FOLDER SEEDS LAST PLAN...`, with FOLDER in front of PYTHONPATH, is the inside:
it runs the first LAST plans of the order against the copy and says how that ended as one JSON line.
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
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import walld_client
from simulation import __main__ as simulation
from simulation import world
from simulation.plan import Plan

import walld

from .mutants import MUTANTS, Mutant

__all__ = ["FIRST", "Fate", "make_copy", "order", "patched", "run"]

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PLACES = {"walld": "walld", "clients/python/walld_client": "walld_client"}
"""What is copied, and where to."""
HANG_SECONDS = 30.0
"""Of processor time for one plan, which takes one or two: more is a hang, and is called so."""
STUCK_SECONDS = 120.0
"""Of real time, for a run that waits for what never comes."""
FIRST = tuple(plan for plan, _ in Counter(mutant.plan for mutant in MUTANTS).most_common())
"""The plans of all mutants, those of many first: for one whose own plan kills it no more."""


class Fate(NamedTuple):
    """How a copy ended. plan: what killed it, None where it lived. tried: plans up to there."""

    plan: str | None
    why: str
    tried: int
    seconds: float


def order(own: Sequence[str], seeds: int) -> Iterator[Plan]:
    """Plans in the order they are tried: these, what kills others, seeds from 0, a crash at every
    verb.
    """
    yield from map(simulation.parse, own)
    yield from (simulation.parse(plan) for plan in FIRST if plan not in own)
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


def run(folder: Path, own: Sequence[str], seeds: int, last: int | None = None) -> Fate:
    """Try plans of the order on the copy until one of them fails, in a process of its own."""
    path = [str(folder), str(TESTS), *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path), "PYTHONHASHSEED": "0"}
    what = [str(folder), str(seeds), str(-1 if last is None else last), *own]
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "zoo.cage", *what],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - begun
    lines = done.stdout.splitlines()
    if not lines:  # a patch that is no program, which proves nothing
        raise RuntimeError(f"the simulation did not run: {done.stderr[-2000:]}")
    plan, why, tried = json.loads(lines[-1])
    return Fate(plan, why, tried, seconds)


# --- inside -----------------------------------------------------------------------------------


def _inside(folder: str, seeds: int, last: int, own: Sequence[str]) -> None:
    for module in (walld, walld_client):
        assert str(module.__file__).startswith(folder), f"{module.__file__} is not the copy"
    out, sys.stdout = sys.stdout, io.StringIO()
    tried, name = 0, ""

    def say(plan: str | None, why: str) -> None:
        out.write(json.dumps((plan, why, tried)) + "\n")
        out.flush()
        os._exit(0)

    def hung(_number: int, _frame: object) -> None:
        say(name, "hung")

    signal.signal(signal.SIGPROF, hung)
    signal.signal(signal.SIGALRM, hung)
    try:
        for plan in islice(order(own, seeds), None if last < 0 else last):
            tried += 1
            name = simulation.command(plan).partition("SEED=")[2]
            signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
            signal.setitimer(signal.ITIMER_REAL, STUCK_SECONDS)
            world.run(plan)
    except BaseException as error:
        inner = _innermost(error)
        if isinstance(inner, NameError | ImportError):
            raise  # the patch lacks a name: nobody could have made that mistake
        say(name, _reason(inner))
    say(None, "")


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _reason(error: BaseException) -> str:
    """In one line, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}"[:160] + where


if __name__ == "__main__":
    _inside(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
