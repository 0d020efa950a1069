"""`python lanes.py STEPS.toml`: runs the steps of a table in lanes, and says what each took.

Owns: what a table of steps may say, the processes of a step from their start to their end, the
table that is printed last. Refuses: what a step does (the Makefile), which steps there are
(`steps.toml`).

A step's output comes whole when the step has ended, that of red steps at the very end, named. A
step is red when it fails or takes longer than its share; after twice its share it is ended. All
lanes run to their end.

Every step runs below a process of this file that adopts what the step leaves behind
(PR_SET_CHILD_SUBREAPER) and ends it: when the step is over, when it is told to, and when the
runner is gone, whatever killed that. The last of these it knows from its stdin, a pipe whose other
end only the runner holds.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

FIRST: Final = "first"
LANES: Final = (FIRST, "waits", "computes")
"""FIRST runs alone, then the others side by side; YIELDING gets what the other leaves."""
YIELDING: Final = "computes"
_NICE: Final = 10
_END_SECONDS: Final = 5.0
_FACTOR_MAX: Final = 2
"""A step that takes so many of its shares is ended."""
_PR_SET_CHILD_SUBREAPER: Final = 36


class BadTable(Exception):
    """A table of steps says what it must not."""


class Step(NamedTuple):
    """minutes: its share."""

    name: str
    lane: str
    command: str
    minutes: float


class Result(NamedTuple):
    """word: "passed", or why it is red. passed, failed: tests by its output, None if uncounted."""

    step: Step
    minutes: float
    word: str
    passed: int | None
    failed: int | None

    @property
    def red(self) -> bool:
        return self.word != "passed"


def steps_of(path: Path, key: str = "step") -> list[Step]:
    """The steps that a file lists."""
    steps = []
    for row in tomllib.loads(path.read_text())[key]:
        if set(row) != set(Step._fields):
            raise BadTable(f"{path}: {row}: a step has {', '.join(Step._fields)}")
        steps.append(Step(**row))
        if steps[-1].lane not in LANES:
            raise BadTable(f"{path}: {row['name']}: lane {row['lane']!r} is none of {LANES}")
    names = [step.name for step in steps]
    if len(set(names)) < len(names):
        raise BadTable(f"{path}: a name stands twice: {names}")
    return steps


def minutes_max_of(path: Path) -> float:
    """Minutes that all steps of the file may take together; without a word any."""
    return float(tomllib.loads(path.read_text()).get("minutes_max", "inf"))


def counts(text: str) -> tuple[int | None, int | None]:
    """Tests that passed and failed, by the closing lines of pytest and of Node's runner."""
    passed = failed = 0
    closing = re.findall(r"^.*\b\d+ (?:passed|failed|errors?)\b.* in [\d.]+s.*$", text, re.M)
    for line in closing:
        passed += sum(map(int, re.findall(r"(\d+) passed", line)))
        failed += sum(map(int, re.findall(r"(\d+) (?:failed|errors?)\b", line)))
    of_node = re.findall(r"^\S* ?(pass|fail) (\d+)$", text, re.M)
    passed += sum(int(number) for word, number in of_node if word == "pass")
    failed += sum(int(number) for word, number in of_node if word == "fail")
    return (passed, failed) if closing or of_node else (None, None)


# --- the runner -----------------------------------------------------------------------------------


class Runner:
    """Runs steps, each below a supervisor; prints what they print when they are through."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self._folder = Path(tempfile.mkdtemp(prefix="walld-ci-"))
        self._lock = threading.Lock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._stopped = False

    def run(self, steps: Sequence[Step]) -> None:
        """FIRST, then the others side by side; back when every step has ended."""
        try:
            for names in ((FIRST,), LANES[1:]):
                lanes = [[step for step in steps if step.lane == name] for name in names]
                threads = [threading.Thread(target=self._run_lane, args=(lane,)) for lane in lanes]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        except BaseException:
            self._stop()
            raise
        finally:
            for result in self.results:
                if result.red:
                    self._show(result)
            shutil.rmtree(self._folder, ignore_errors=True)

    def _stop(self) -> None:
        """Every step is ended and counted as red; none is begun."""
        with self._lock:
            self._stopped = True
            running = list(self._running.values())
        for process in running:
            _end(process)
        while self._running:
            time.sleep(0.05)

    def _run_lane(self, steps: Sequence[Step]) -> None:
        for step in steps:
            with self._lock:
                if self._stopped:
                    return
                process = self._start(step)
                self._running[step.name] = process
                print(f"{step.name}: begins", flush=True)
            try:
                self._follow(process, step)
            finally:
                with self._lock:
                    del self._running[step.name]

    def _follow(self, process: subprocess.Popen[bytes], step: Step) -> None:
        """Until its end; its result is kept, and what it printed is shown unless it is red."""
        begun = time.monotonic()
        word = self._wait(process, step, begun)
        minutes = (time.monotonic() - begun) / 60
        text = self._output(step).read_text(errors="replace")
        result = Result(step, minutes, word, *counts(text))
        with self._lock:
            self.results.append(result)
            if result.red:
                print(f"{_line(result)}; what it printed comes at the end", flush=True)
            else:
                self._show(result)

    def _start(self, step: Step) -> subprocess.Popen[bytes]:
        # What make hands on is meant for a make that knows of the one above it.
        env = {name: value for name, value in os.environ.items() if name not in _MAKES}
        nice = str(_NICE if step.lane == YIELDING else 0)
        with self._output(step).open("wb") as output:
            return subprocess.Popen(
                [sys.executable, __file__, "--supervise", nice, step.command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
            )

    def _wait(self, process: subprocess.Popen[bytes], step: Step, begun: float) -> str:
        """Its word."""
        seconds_max = _FACTOR_MAX * step.minutes * 60
        try:
            code = process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            _end(process)
            process.wait()
            return f"ENDED at {_FACTOR_MAX} times its share"
        if self._stopped:
            return "ENDED with the runner"
        if code:
            return f"FAILED ({code})"
        return "passed" if time.monotonic() - begun <= step.minutes * 60 else "OVER its share"

    def _output(self, step: Step) -> Path:
        return self._folder / step.name

    def _show(self, result: Result) -> None:
        print(f"\n=== {_line(result)}; it printed:", flush=True)
        with self._output(result.step).open("rb") as output:
            shutil.copyfileobj(output, sys.stdout.buffer)
        print(f"=== end of {result.step.name}", flush=True)


_MAKES: Final = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Its supervisor sees the end of its stdin."""
    assert process.stdin is not None
    process.stdin.close()


def _line(result: Result) -> str:
    step = result.step
    return f"{step.name}: {result.word}, {result.minutes:.1f} of {step.minutes:g} minutes"


def table(results: Iterable[Result]) -> str:
    """Step by step, lane by lane."""
    rows: list[tuple[str, ...]] = [("lane", "step", "minutes", "share", "passed", "failed", "")]
    for one in sorted(results, key=lambda result: LANES.index(result.step.lane)):
        shown = ["" if number is None else str(number) for number in (one.passed, one.failed)]
        share = f"{one.step.minutes:g}"
        rows.append((one.step.lane, one.step.name, f"{one.minutes:.1f}", share, *shown, one.word))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if 2 <= at <= 5 else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def run(steps: Sequence[Step]) -> list[Result]:
    """Run them and print the table; SystemExit, behind the table, where a signal came."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    runner = Runner()
    begun = time.monotonic()
    try:
        runner.run(steps)
    finally:
        print(f"\n{(time.monotonic() - begun) / 60:.1f} minutes in all")
        print(table(runner.results), flush=True)
    return runner.results


def _leave(number: int, _frame: object) -> None:
    # The steps are being ended: another signal must not leave some of them behind.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


# --- the supervisor of a step ---------------------------------------------------------------------


def supervise(command: str, nice: int) -> int:
    """The exit code of a command of bash; nothing that it started lives when this returns.

    Signals are taken one by one here and nowhere else: a handler could come between a start and
    what would end it.
    """
    ends = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ends | {signal.SIGCHLD})
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if nice:
        give_way(nice)
    child = os.posix_spawnp(
        "bash",
        ["bash", "-c", command],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)],
        setsigmask=before,
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores them
    )
    threading.Thread(target=_end_with_the_runner, daemon=True).start()
    code = None
    while code is None:
        number = signal.sigwait(ends | {signal.SIGCHLD})
        code = _reaped().get(child) if number == signal.SIGCHLD else 128 + number
    _end_descendants()
    return code % 256


def _reaped() -> dict[int, int]:
    """Exit codes of the children, own and adopted, that have ended since this was last asked."""
    codes = {}
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            codes[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    return codes


def give_way(nice: int) -> None:
    """Also to other sessions: where autogroup is on, each session has a nice of its own."""
    os.nice(nice)
    try:
        Path("/proc/self/autogroup").write_text(str(nice))
    except OSError as error:
        # A kernel without autogroup has no such file, and nice is all that counts there.
        if not isinstance(error, FileNotFoundError):
            print(f"/proc/self/autogroup: {error}: this step does not give way", flush=True)


def _end_with_the_runner() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _end_descendants() -> None:
    """SIGTERM, and SIGKILL for what lives a while later or is started meanwhile."""
    late = time.monotonic() + _END_SECONDS
    told = set[int]()
    while living := _descendants():
        if not told:
            print("left behind:", *(f"{pid} ({name})" for pid, name in living.items()), flush=True)
        for pid in living:
            if time.monotonic() > late:
                _send(pid, signal.SIGKILL)
            elif pid not in told:
                told.add(pid)
                _send(pid, signal.SIGTERM)
        time.sleep(0.05)


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _descendants() -> dict[int, str]:
    """Living processes below this one, by pid."""
    _reaped()
    children: dict[int, list[tuple[int, str]]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        name = text[text.index("(") + 1 : text.rindex(")")]
        state, parent = text[text.rindex(")") + 1 :].split()[:2]
        if state != "Z":
            children.setdefault(int(parent), []).append((int(path.parent.name), name))
    found: dict[int, str] = {}
    todo = [os.getpid()]
    while todo:
        for pid, name in children.get(todo.pop(), ()):
            found[pid] = name
            todo.append(pid)
    return found


def main() -> int:
    match sys.argv[1:]:
        case ["--supervise", nice, command]:
            return supervise(command, int(nice))
        case [path]:
            steps, limit, begun = steps_of(Path(path)), minutes_max_of(Path(path)), time.monotonic()
            passed = [result for result in run(steps) if not result.red]
            minutes = (time.monotonic() - begun) / 60
            if minutes > limit:
                print(f"OVER: all of it took {minutes:.1f} minutes, at most {limit:g} are allowed")
            return int(len(passed) < len(steps) or minutes > limit)
    print("usage: lanes.py STEPS.toml", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
