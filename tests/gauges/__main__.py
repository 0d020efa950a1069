"""`make gauges`: prints all measures beside what was recorded. Exit 1 where one is worse.

--record         write them into `values.json`, and a line for HEAD into `code_lines.jsonl`. What is
                 worse in sum is refused; names may change, since a module that moves gets another.
--record=worse   write them all the same: the commit says what the code buys with it.
"""

from __future__ import annotations

import argparse
import sys

from gauges import record
from gauges.measures import MEASURES, long_files, passed_now, product_lines, writes_now
from gauges.ratchet import Measure, compare, total
from gauges.source_tree import ROOT

__all__ = ["main"]


def main() -> int:
    """Print, compare, and record where that is asked for."""
    parser = argparse.ArgumentParser(prog="gauges")
    parser.add_argument("--record", nargs="?", const="better", choices=["better", "worse"])
    options = parser.parse_args()
    values = {name: measure() for name, measure in MEASURES.items()}
    before = record.recorded() if record.VALUES.exists() else {}
    for name, value in values.items():
        _print(name, value, before.get(name))
    _print_places()
    worse = [
        name for name, value in values.items() if name in before and _grew(before[name], value)
    ]
    if options.record == "better" and worse:
        print(f"\nnot recorded, there is more of: {'; '.join(worse)}", file=sys.stderr)
        print("RECORD=worse records it; say in the commit what it buys", file=sys.stderr)
        return 1
    if options.record:
        record.write(values)
        line = record.line_of(ROOT, "HEAD")
        lines = f" and the code lines of {line['commit']}"
        print(f"\nrecorded: values{lines if record.add_line(record.CODE_LINES, line) else ''}")
        return 0
    changes = [compare(name, before[name], values[name]) for name in values if name in before]
    for change in changes:
        for sentence in change.worse:
            print(f"worse   {sentence}")
        for sentence in change.better:
            print(f"better  {sentence}; record it: make gauges RECORD=1")
    return 1 if any(change.worse for change in changes) else 0


def _grew(before: Measure, now: Measure) -> bool:
    return total(now) > total(before)


def _print(name: str, value: Measure, before: Measure | None) -> None:
    was = "not recorded" if before is None else f"recorded {total(before)}"
    print(f"\n{name}: {total(value)} ({was})")
    match value:
        case dict():
            for key, inner in value.items():
                print(f"    {key}: {inner}")
        case list():
            for one in value:
                print(f"    {one if isinstance(one, str) else ', '.join(one)}")


def _print_places() -> None:
    print("\nthe engine is changed from outside at")
    for write in writes_now():
        print(f"    {write}")
    for what, by_whom in passed_now().items():
        for whose, passed in by_whom.items():
            print(f"\n{what}, {whose}: {len(passed.files)} files, {passed.hops} hops")
            print("    " + "\n    ".join(passed.files))
    print("\nfiles above 600 lines, no failure; is each one subject?")
    for path, lines in long_files().items():
        print(f"    {path}: {lines}")
    print("\ncode lines of the product")
    for room, lines in product_lines().items():
        print(f"    {room}: {lines}")


if __name__ == "__main__":
    sys.exit(main())
