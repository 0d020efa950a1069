"""How many files of this tree an acknowledged append passes, and a token until `written` is told.

A real daemon and a real agent, on a real socket, each with `traced.py` around it. What counts is
passed each time: a tick that falls into one window changes nothing. In the agent a window is the
call; in the daemon it ends with the last bytes that it sent within that.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from daemon_process import DaemonProcess, environment

__all__ = ["Passed", "Step", "measure", "passed"]

_COUNT = 12
_TRACED = Path(__file__).with_name("traced.py")
_SECONDS_MAX = 120


class Step(NamedTuple):
    """A call into a file, or "send"."""

    at_ns: int
    thread: int
    what: str


class Passed(NamedTuple):
    """What was passed."""

    files: list[str]
    """Each time."""
    hops: int
    """From one file to another within a thread, in the window that had the fewest."""


def passed(
    steps: Sequence[Step], windows: Iterable[tuple[int, int]], *, until_send: bool
) -> Passed:
    """Files of the steps that are in every window; until_send: up to the last send in each."""
    seen = []
    hops = []
    for begun, ended in windows:
        within = [step for step in steps if begun <= step.at_ns <= ended]
        if until_send:
            sends = [at for at, step in enumerate(within) if step.what == "send"]
            assert sends, "the daemon sent nothing in a window"
            within = within[: sends[-1]]
        calls = [step for step in within if step.what != "send"]
        seen.append({step.what for step in calls})
        by_thread = sorted(calls, key=lambda step: step.thread)  # stable: in order within each
        hops.append(sum(a.thread == b.thread and a.what != b.what for a, b in pairwise(by_thread)))
    return Passed(sorted(set.intersection(*seen)), min(hops))


def measure() -> dict[str, dict[str, Passed]]:
    """By what was said ("append", "token") and by whose files ("client", "daemon")."""
    with TemporaryDirectory(prefix="gauges-") as name:
        home = Path(name)
        with _daemon(home) as daemon:
            agent = [sys.executable, "-m", "gauges.speaker", daemon.socket_path, str(_COUNT)]
            command = [*_wrapper(home / "agent.steps"), *agent]
            around = environment()
            around["PYTHONPATH"] += f":{Path(__file__).parents[1]}"
            said = subprocess.run(
                command, env=around, stdout=subprocess.PIPE, timeout=_SECONDS_MAX, check=True
            ).stdout
            assert daemon.terminate() == 0, daemon.log_text()
        of_agent, of_daemon = _steps(home / "agent.steps"), _steps(home / "daemon.steps")
    windows: dict[str, list[tuple[int, int]]] = {}
    for line in said.splitlines():
        what, begun, ended = json.loads(line)
        windows.setdefault(what, []).append((begun, ended))
    of: dict[str, Callable[[list[tuple[int, int]]], Passed]] = {
        "client": partial(passed, of_agent, until_send=False),
        "daemon": partial(passed, of_daemon, until_send=True),
    }
    return {
        what: {whose: count(times) for whose, count in of.items()}
        for what, times in windows.items()
    }


@contextmanager
def _daemon(home: Path) -> Iterator[DaemonProcess]:
    """One that runs under `traced.py`, with the command line it is always started by."""
    daemon = DaemonProcess(home)
    daemon.wrapper = _wrapper(home / "daemon.steps")
    daemon.is_executed = True
    try:
        yield daemon.start()
    finally:
        if daemon.process is not None:
            daemon.terminate()
        daemon.close()


def _wrapper(out: Path) -> list[str]:
    return [sys.executable, "-P", str(_TRACED), str(out)]


def _steps(path: Path) -> list[Step]:
    return [Step(*json.loads(line)) for line in path.read_text().splitlines()]
