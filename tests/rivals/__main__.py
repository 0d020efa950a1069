"""`python -m rivals`: each fault against each store in each class, and what was lost.

    --count N      trials of each pair
    --only TEXT    pairs with that in their name ("fault: store"); several times for several
    --seed S       of the first trial
    --rows FILE    a JSON line for each pair; from there `--table` makes the table again

On a terminal there is a bar. At the end the table, as Markdown. Exit 1 where walld broke a promise.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Sequence
from pathlib import Path
from random import Random

from .faults import FAULTS, Fault
from .judge import Counts
from .stores import CLASSES, Entry
from .table import Row, broken_promises, markdown, read_rows

__all__ = ["main"]

_BAR = 30


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rivals")
    parser.add_argument("--count", type=int, default=20, metavar="N")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--rows", type=Path, metavar="FILE")
    parser.add_argument("--table", action="store_true", help="of what is in --rows; runs nothing")
    return parser.parse_args(arguments)


def _pairs(only: Sequence[str]) -> list[tuple[Fault, Entry]]:
    """Those wanted and possible; the others are printed with their reason."""
    missing = {entry.name: entry.why_not() for entry in CLASSES}
    missing |= {fault.name: fault.why_not() for fault in FAULTS}
    chosen = []
    for fault in FAULTS:
        for entry in CLASSES:
            name = f"{fault.name}: {entry.name}"
            if only and not any(text in name for text in only):
                continue
            reason = missing[fault.name] or missing[entry.name]
            if reason:
                print(f"skipped {name}: {reason}")
            elif not fault.needs_server or _has_server(entry):
                chosen.append((fault, entry))
    return chosen


def _has_server(entry: Entry) -> bool:
    return entry.make(Path(), Path()).has_server


def _once(fault: Fault, entry: Entry, seed: int) -> Counts | None:
    """One trial in a folder of its own; None where the trial itself went wrong: it is kept then."""
    name = f"{fault.name}: {entry.name}"
    home = Path(tempfile.mkdtemp(prefix="walld-rivals-"))
    try:
        counts = fault.run(entry.make, home, Random(zlib.crc32(name.encode()) + seed))
    except Exception:
        print(f"\n{name}, seed {seed}: no result; kept: {home}", file=sys.stderr)
        traceback.print_exc(limit=-3)
        return None
    shutil.rmtree(home, ignore_errors=True)
    return counts


class _Progress:
    """A bar on a terminal, nothing elsewhere; lines are printed above it."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._is_shown = sys.stdout.isatty()

    def line(self, text: str) -> None:
        print(f"\r\x1b[K{text}" if self._is_shown else text, flush=True)

    def step(self, doing: str) -> None:
        self._done += 1
        if self._is_shown:
            full = _BAR * self._done // self._total
            bar = "#" * full + "." * (_BAR - full)
            print(f"\r\x1b[K[{bar}] {self._done} of {self._total} {doing}", end="", flush=True)

    def end(self) -> None:
        if self._is_shown:
            print("\r\x1b[K", end="", flush=True)


def _run(options: argparse.Namespace) -> tuple[list[Row], int]:
    """All rows, and how many trials gave no result."""
    pairs = _pairs(options.only)
    progress = _Progress(max(1, len(pairs) * options.count))
    rows = []
    without = 0
    for fault, entry in pairs:
        counts = Counts()
        begun = time.monotonic()
        for number in range(options.count):
            one = _once(fault, entry, options.seed + number)
            without += one is None
            if one is not None:
                counts.add(one)
            progress.step(f"{fault.name}: {entry.name}")
        row = Row(fault.name, entry.name, counts)
        rows.append(row)
        progress.line(f"{row.line()} ({time.monotonic() - begun:.0f} s)")
        if options.rows is not None:
            with options.rows.open("a") as file:
                print(row.json(), file=file, flush=True)
    progress.end()
    return rows, without


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = _options(arguments)
    without = 0
    if options.table:
        rows = read_rows(options.rows)
    else:
        rows, without = _run(options)
    print(markdown(rows))
    broken = broken_promises(rows)
    for line in broken:
        print(f"BROKEN {line}", file=sys.stderr)
    return 1 if broken or without else 0


if __name__ == "__main__":
    sys.exit(main())
