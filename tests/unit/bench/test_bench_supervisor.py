"""Who is supervised ends at any moment with one line, and leaves no process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from daemon_process import PATIENCE_SECONDS, environment

STOPPED = "bench: stopped; answered by then: nothing\n"


@contextmanager
def supervised(*work: str) -> Iterator[subprocess.Popen[str]]:
    """These lines as the work."""
    lines = ["import os, signal, subprocess, sys, time", "from bench.supervisor import *"]
    lines += ["def work():", *(f"    {line}" for line in work), "sys.exit(supervised(work))"]
    process = subprocess.Popen(
        [sys.executable, "-c", "\n".join(lines)], env=environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()  # the worker ends with it
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize(
    ("work", "code"),
    [
        (["return 0"], 0),
        (["return 3"], 3),
        (["sys.exit(2)"], 2),
        (["raise ValueError"], 1),
        (["os.kill(os.getpid(), 9)"], 128 + 9),
    ],
)
def test_the_code_is_the_works(work: list[str], code: int) -> None:
    with supervised(*work) as process:
        process.communicate()
        assert process.returncode == code


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_one_line_and_its_code(number: signal.Signals) -> None:
    with supervised("print('go', flush=True)", "time.sleep(60)") as process:
        assert line(process) == "go"
        process.send_signal(number)
        assert process.communicate()[1] == STOPPED
        assert process.returncode == 128 + number


def test_an_exception_that_a_finalizer_swallows_comes_again() -> None:
    work = [
        "class Slow:",
        "    def __del__(self):",
        "        print('go', flush=True)",
        "        time.sleep(60)",
        "Slow()",
        "time.sleep(60)",
    ]
    with supervised(*work) as process:
        assert line(process) == "go"
        process.send_signal(signal.SIGINT)
        assert process.communicate()[1] == STOPPED
        assert process.returncode == 128 + signal.SIGINT


def test_what_is_left_behind_is_killed_and_says_nothing_of_it() -> None:
    """Neither a group nor a session of its own helps it."""
    child = "import sys, time; print('here', file=sys.stderr, flush=True); print('go', flush=True)"
    child += "\ntry: sys.stdin.read()\nfinally: print('I end', file=sys.stderr, flush=True)"
    child += "\ntime.sleep(60)"
    work = [
        f"command = [sys.executable, '-c', {child!r}]",
        "child = subprocess.Popen(command, start_new_session=True, stdin=subprocess.PIPE)",
        "print(child.pid, flush=True)",
        "time.sleep(60)",
    ]
    with supervised(*work) as process:
        pid = int(line(process))
        assert line(process) == "go"
        process.send_signal(signal.SIGINT)
        assert process.communicate()[1] in (STOPPED, "here\n" + STOPPED)
        assert process.returncode == 128 + signal.SIGINT
        assert gone(pid)


def test_what_a_child_says_is_heard() -> None:
    with supervised("return subprocess.call(['sh', '-c', 'echo lost >&2; exit 4'])") as process:
        assert process.communicate()[1] == "lost\n"
        assert process.returncode == 4


def test_what_is_being_written_is_written_whole() -> None:
    work = [
        "finishing()",
        "print('go', flush=True)",
        "sys.stdin.readline()",
        "print('whole', flush=True)",
        "return 0",
    ]
    with supervised(*work) as one:
        assert line(one) == "go"
        one.send_signal(signal.SIGINT)
        out, said = one.communicate("go on\n")
        assert out == "whole\n"
        assert said == "bench: SIGINT came at the end; all is done\n"
        assert one.returncode == 128 + signal.SIGINT


def test_a_signal_that_the_caller_had_ignored_stays_so() -> None:
    """As nohup and a script's background do it."""
    work = ["print('go', flush=True)", "time.sleep(3600)"]
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with supervised(*work) as process:
            assert line(process) == "go"
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            assert process.communicate()[1] == STOPPED
            assert process.returncode == 128 + signal.SIGTERM
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_worker_is_told_until_it_has_heard() -> None:
    """The first signal may come just before a call that blocks, whose end would be waited for."""
    work = [
        "ends = signal.getsignal(signal.SIGTERM)",
        "signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, ends) and None)",
        "print('go', flush=True)",
        "time.sleep(3600)",
    ]
    with supervised(*work) as process:
        assert line(process) == "go"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[1] == STOPPED
        assert process.returncode == 128 + signal.SIGINT


def test_a_worker_ends_with_its_supervisor() -> None:
    with supervised("print('go', flush=True)", "time.sleep(3600)") as process:
        assert line(process) == "go"
        process.kill()
        assert process.communicate(timeout=PATIENCE_SECONDS) == ("", STOPPED)  # it holds both
