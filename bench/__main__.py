"""`python -m bench [NAME...] [--quick]`: ask the questions, show the figures.

Owns: the command line, the order of the questions, the results file. Refuses: an exit code for a
goal that is missed: 1 means that a question crashed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Protocol, cast

from bench import publish
from bench.charts import charts
from bench.machine import choose_cores, facts, priority
from bench.peers.known import versions
from bench.progress import Progress
from bench.run import Run
from bench.table import Figure, as_json, markdown, render

RESULTS = Path(__file__).parent / "results"
QUESTIONS = {
    "agent_cost": (75.0, 9.0),
    "adapters": (15.0, 3.0),
    "checkpoints": (15.0, 2.0),
    "bulk": (20.0, 2.0),
    "live_streams": (170.0, 25.0),
    "memory": (45.0, 8.0),
    "writes": (125.0, 20.0),
    "recover": (20.0, 6.0),
    "restart": (30.0, 2.0),
    "hostile": (180.0, 50.0),
    "stall": (75.0, 12.0),
    "sessions": (60.0, 15.0),
    "submits": (75.0, 9.0),
    "ladders": (40.0, 10.0),
    "loss": (80.0, 11.0),
    "slow_disks": (85.0, 5.0),
    "growth": (80.0, 7.0),
    "peers": (600.0, 60.0),
    "ingest": (60.0, 15.0),
    "streaming": (450.0, 30.0),
}
"""Name of the module and the seconds it is thought to take, whole and quick."""


class Question(Protocol):
    """A module of this package."""

    def measure(self, run: Run) -> list[Figure]:
        """The answer."""


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.split("\n")[0])
    parser.add_argument("name", nargs="*", help="of a question (all): " + ", ".join(QUESTIONS))
    parser.add_argument("--quick", action="store_true", help="rougher, in about a minute")
    parser.add_argument(
        "--priority",
        action="store_true",
        help="at nice -10, where that is allowed: for a machine that others use at the same time",
    )
    parser.add_argument(
        "--publish",
        action="store_true",
        help="into README and RESULTS.md too, with charts: asks " + ", ".join(publish.QUESTIONS),
    )
    options = parser.parse_args(arguments)
    if options.publish and not options.name:
        options.name = list(publish.QUESTIONS)
    unknown = sorted(set(options.name) - set(QUESTIONS))
    if unknown:
        parser.error(f"no such question: {', '.join(unknown)}; there are {', '.join(QUESTIONS)}")
    return options


def _ask(
    names: list[str], folder: Path, quick: bool
) -> tuple[list[Figure], dict[str, float], bool]:
    """(the figures, seconds a question took, True where none crashed)."""
    figures: list[Figure] = []
    took: dict[str, float] = {}
    whole = True
    progress = Progress({name: QUESTIONS[name][quick] for name in names})
    cores = choose_cores()
    os.sched_setaffinity(0, cores.agents)
    for name in names:
        progress.begin(name)
        begun = time.monotonic()
        question = cast(Question, importlib.import_module(f"bench.{name}"))
        try:
            figures += question.measure(Run(folder / name[:2], cores, quick, progress.step))
        except Exception:
            progress.close()
            print(f"bench: {name} crashed", file=sys.stderr)
            traceback.print_exc()
            whole = False
        finally:
            shutil.rmtree(folder / name[:2], ignore_errors=True)
        took[name] = round(time.monotonic() - begun, 1)
        progress.end()
    progress.close()
    return figures, took, whole


def _commit() -> str:
    """What was measured; with a plus where files are changed. Empty outside a clone."""
    try:
        name, changed = (
            subprocess.run(
                ["git", "-C", str(RESULTS.parent), *words],
                check=False, capture_output=True, text=True,
            ).stdout.strip()
            for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "-uno"])
        )  # fmt: skip
    except OSError:
        return ""
    return name + ("+" if changed else "")


def _write(report: dict[str, Any], figures: list[Figure]) -> Path:
    """The results as JSON, with the table and the charts in a folder of the same name."""
    folder = RESULTS / str(report["at"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text(markdown(figures))
    for name, text in charts(report).items():
        (folder / name).write_text(text)
    path = RESULTS / f"{report['at']}.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    return path


def main(arguments: list[str] | None = None) -> int:
    """The exit code."""
    options = _options(arguments)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    names = [name for name in QUESTIONS if not options.name or name in options.name]
    folder = Path(tempfile.mkdtemp(prefix="walldb"))
    begun, at = time.monotonic(), time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    machine, commit = facts(str(folder)), _commit()
    try:
        with priority(-10) if options.priority else nullcontext():
            figures, seconds, whole = _ask(names, folder, options.quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    took = time.monotonic() - begun
    print(render(figures))
    shown = ", ".join(f"{key} {value}" for key, value in machine.items() if value)
    print(f"{took:.0f} s on {shown}")
    report = {
        "at": at,
        "commit": commit,
        "quick": options.quick,
        "priority": options.priority,
        "seconds": seconds,
        "machine": {**machine, "load_after": os.getloadavg()},
        "peers": versions(),
        "figures": as_json(figures),
    }
    print(f"bench: written to {_write(report, figures)}", file=sys.stderr)
    if options.publish and whole:
        publish.publish(report)
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
