"""`python -m zoo`: every planted bug must be found by the simulation.

    python -m zoo                        all of them, as many at a time as there are cores
    python -m zoo --only sync            those with that word in their name
    python -m zoo --plans 200            no more than so many plans a bug

A line for each: its name, the plan that found it (`make sim SEED=...` shows it on a patched tree),
the seconds that took. Its own plan is tried first (`mutants/`); where that kills it no more, the
line has the one to write there. At the end the tree as it is goes through every plan that killed,
and must pass: a simulation that fails for every tree proves nothing. Exit 1 where a bug survives.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

from . import cage
from .mutants import MUTANTS, Mutant

__all__ = ["main"]

_BAR = 30


def _try(mutant: Mutant | None, own: Sequence[str], seeds: int, last: int | None) -> cage.Fate:
    with tempfile.TemporaryDirectory(prefix="walld-zoo-") as folder:
        cage.make_copy(Path(folder), mutant)
        return cage.run(Path(folder), own, seeds, last)


class _Progress:
    """A bar on a terminal, nothing elsewhere; lines are printed above it."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._is_shown = sys.stdout.isatty()
        self._draw()

    def line(self, text: str) -> None:
        """One more is done."""
        self._done += 1
        print(f"\r\x1b[K{text}" if self._is_shown else text, flush=True)
        self._draw()

    def _draw(self) -> None:
        if self._is_shown:
            full = _BAR * self._done // max(1, self._total)
            bar = "#" * full + "." * (_BAR - full)
            print(f"\r[{bar}] {self._done} of {self._total}", end="", flush=True)

    def end(self) -> None:
        """The bar goes."""
        if self._is_shown:
            print("\r\x1b[K", end="", flush=True)


def _hunt(
    mutants: list[Mutant], jobs: int, seeds: int, plans: int | None
) -> tuple[list[str], list[str]]:
    """All of them. (names of those that survived, plans that killed the others)."""
    survivors: list[str] = []
    killers: set[str] = set()
    progress = _Progress(len(mutants))
    with ThreadPoolExecutor(jobs) as pool:
        waiting: dict[Future[cage.Fate], Mutant] = {}
        for mutant in mutants:
            waiting[pool.submit(_try, mutant, (mutant.plan,), seeds, plans)] = mutant
        for future in as_completed(waiting):
            mutant = waiting[future]
            try:
                fate = future.result()
            except (RuntimeError, ValueError) as error:
                survivors.append(mutant.name)
                progress.line(f"{mutant.name}: {error}")
                continue
            if fate.plan is None:
                survivors.append(mutant.name)
                word = f"SURVIVED {fate.tried} plans"
            else:
                killers.add(fate.plan)
                word = f"killed by {fate.plan}"
                if fate.tried > 1:
                    word += f" ({mutant.plan} did not)"
            line = f"{mutant.name:<66} {mutant.promise:<4} {word:<34} {fate.seconds:6.1f} s"
            progress.line(f"{line}  {fate.why}".rstrip())
    progress.end()
    return survivors, sorted(killers)


def _control(jobs: int, plans: list[str]) -> list[cage.Fate]:
    """The tree as it is on these plans. What failed, which must be nothing."""
    parts = [part for part in (plans[at::jobs] for at in range(jobs)) if part]
    with ThreadPoolExecutor(jobs) as pool:
        fates = pool.map(lambda part: _try(None, part, 0, len(part)), parts)
        return [fate for fate in fates if fate.plan is not None]


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="zoo")
    parser.add_argument("--only", metavar="TEXT", default="", help="those with it in their name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seeds", type=int, default=2000, help="before the sweep")
    parser.add_argument("--plans", type=int, metavar="N", help="give a bug up after so many")
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if options.only in mutant.name]
    if not chosen:
        parser.error(f"no mutant has {options.only!r} in its name")
    begun = time.monotonic()
    survivors, killers = _hunt(chosen, options.jobs, options.seeds, options.plans)
    failed = _control(options.jobs, killers)
    for fate in failed:
        print(f"the tree without a bug fails too: {fate.plan}: {fate.why}")
    for name in survivors:
        print(f"survived: {name}")
    killed = len(chosen) - len(survivors)
    passed = "fails some of them" if failed else "passes them"
    print(
        f"{killed} of {len(chosen)} planted bugs found by {len(killers)} plans; the tree without "
        f"them {passed}; {time.monotonic() - begun:.0f} s"
    )
    return 1 if survivors or failed else 0


if __name__ == "__main__":
    sys.exit(main())
