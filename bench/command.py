"""`python -m bench [NAME...] [--quick]`: ask the questions, show the figures.

Owns: the command line, the results file. Refuses: an exit code for a goal that is missed: 1 means
that a question crashed, or that there is nothing to publish; 130 and 143 that Ctrl-C or SIGTERM
ended it (`supervisor`): what had been answered by then is kept.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from bench import publish
from bench.machine import choose_cores, facts, priority
from bench.peers.known import versions
from bench.progress import Progress
from bench.questions import QUESTIONS
from bench.report.charts import charts
from bench.report.table import Figure, as_json, markdown, render
from bench.run import Run
from bench.supervisor import STOPPED, Stopped, finishing, say_stopped, stopping

RESULTS = Path(__file__).parent / "results"


class Question(Protocol):
    """A module of this package."""

    def measure(self, run: Run) -> list[Figure]:
        """The answer."""


@dataclass(slots=True)
class _Answers:
    """figures: of the questions that were answered. took: seconds of each, and of those that were
    not. crashed: one did. stopped: the exit code of who was told to end."""

    figures: list[Figure] = field(default_factory=list)
    took: dict[str, float] = field(default_factory=dict)
    crashed: bool = False
    stopped: int = 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.split("\n")[0])
    parser.add_argument("name", nargs="*", help="of a question (all): " + ", ".join(QUESTIONS))
    parser.add_argument("--quick", action="store_true", help=f"rougher, in {_minutes()} minutes")
    parser.add_argument(
        "--priority",
        action="store_true",
        help="at nice -10, where that is allowed: for a machine that others use at the same time",
    )
    parser.add_argument(
        "--publish",
        action="store_true",
        help="into README, docs/performance.md and RESULTS.md too, with charts",
    )
    options = parser.parse_args(arguments)
    if options.publish and (options.quick or options.name):
        parser.error(
            "--publish replaces what the pages show of every question: it takes no names, and not "
            "--quick"
        )
    unknown = sorted(set(options.name) - set(QUESTIONS))
    if unknown:
        parser.error(f"no such question: {', '.join(unknown)}; there are {', '.join(QUESTIONS)}")
    return options


def _minutes() -> int:
    """Of all questions, quick."""
    return round(sum(asked.quick for asked in QUESTIONS.values()) / 60)


def _ask(names: list[str], folder: Path, quick: bool, answers: _Answers) -> None:
    progress = Progress(
        {name: QUESTIONS[name].quick if quick else QUESTIONS[name].whole for name in names}
    )
    cores = choose_cores()
    os.sched_setaffinity(0, cores.agents)
    for name in names:
        progress.begin(name)
        begun = time.monotonic()
        question = cast(Question, importlib.import_module(QUESTIONS[name].module))
        try:
            answers.figures += question.measure(Run(folder / name[:2], cores, quick, progress.step))
        except Exception as crash:
            if stopping():  # by the end of what it talked to
                raise Stopped from crash
            progress.close()
            print(f"bench: {name} crashed", file=sys.stderr)
            traceback.print_exc()
            answers.crashed = True
        finally:
            shutil.rmtree(folder / name[:2], ignore_errors=True)
            answers.took[name] = round(time.monotonic() - begun, 1)
        progress.end()
    progress.close()


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
    # Not mkdtemp: who is stopped between its making and its name knows what to remove.
    folder = Path(tempfile.gettempdir()) / f"walldb{secrets.token_hex(4)}"
    begun, at = time.monotonic(), time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    answers = _Answers()
    try:
        folder.mkdir(mode=0o700)
        machine, commit = facts(str(folder)), _commit()
        with priority(-10) if options.priority else nullcontext():
            _ask(names, folder, options.quick, answers)
        finishing()
    except BaseException:
        if not stopping():
            raise
        answers.stopped = STOPPED
        say_stopped(dict.fromkeys(figure.question for figure in answers.figures))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if answers.stopped and not answers.figures:
        return answers.stopped
    took = time.monotonic() - begun
    print(render(answers.figures))
    shown = ", ".join(f"{key} {value}" for key, value in machine.items() if value)
    print(f"{took:.0f} s on {shown}")
    report = {
        "at": at,
        "commit": commit,
        "quick": options.quick,
        "priority": options.priority,
        "seconds": answers.took,
        "machine": {**machine, "load_after": os.getloadavg()},
        "peers": versions(),
        "figures": as_json(answers.figures),
    }
    print(f"bench: written to {_write(report, answers.figures)}", file=sys.stderr)
    code = answers.stopped or int(answers.crashed)
    if options.publish:
        try:
            publish.publish(report)
        except ValueError as error:
            print(f"bench: {error}", file=sys.stderr)
            code = code or 1
    return code
