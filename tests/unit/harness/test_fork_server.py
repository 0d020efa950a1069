"""A forked program is what an executed one would be, and does not outlive its test process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import fork_server
import pytest
from daemon_process import environment, until

SHOWS = """
import json, os, random, resource, signal, socket, sys, threading
import walld_client.link.process
umask = os.umask(0)
here = socket.socket()  # the lowest number that is free
print(json.dumps({
    "argv": sys.argv, "env": dict(os.environ), "cwd": os.getcwd(), "umask": umask, "path": sys.path,
    "name": __name__, "files": list(resource.getrlimit(resource.RLIMIT_NOFILE)),
    "group": [os.getpgrp(), os.getsid(0)], "first free": here.fileno(),
    "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
    "mask": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
    "threads": threading.active_count(),
    "chance": [random.random(), walld_client.link.process.producer().hex()],
}))
sys.exit(7)
"""


def shown(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    assert done.returncode == 7, done
    assert done.stderr == b"", done
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_fork_is_as_an_execution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that differs is chance."""
    monkeypatch.chdir(tmp_path)
    other = fork_server.start([sys.executable, "-c", "import time; time.sleep(90)"], environment())
    command = [sys.executable, "-c", SHOWS, "one", "tw\udce4"]
    env = environment() | {"ONLY_HERE": "1", "HOME": str(tmp_path)}
    before = os.umask(0o027)
    try:
        forked = [shown(fork_server.run(command, env)) for _ in range(2)]
        executed = shown(subprocess.run(command, env=env, capture_output=True, check=False))
    finally:
        os.umask(before)
        other.kill()
        other.wait()
    assert forked[0].pop("chance") != forked[1].pop("chance")
    del executed["chance"]
    for one in forked:
        assert one == executed


@pytest.mark.parametrize("how", ["-m", "-c", "file"])
def test_a_program_is_named_as_for_python(tmp_path: Path, how: str) -> None:
    code = "import sys; print(__name__, sys.argv, sys.path[0], file=sys.stderr)"
    (tmp_path / "shows.py").write_text(code)
    command = {
        "-m": ["-m", "walld", "--help"],
        "-c": ["-c", code],
        "file": [str(tmp_path / "shows.py")],
    }
    words = [sys.executable, *command[how], "x"]
    forked = fork_server.run(words, environment())
    executed = subprocess.run(words, env=environment(), capture_output=True, check=True)
    assert (forked.stdout, forked.stderr) == (executed.stdout, executed.stderr)


def test_its_end_is_told() -> None:
    def ended(code: str) -> int:
        return fork_server.run([sys.executable, "-c", code], environment()).returncode

    assert ended("") == 0
    assert ended("raise SystemExit(3)") == 3
    assert ended("import os; os.kill(os.getpid(), 11)") == -signal.SIGSEGV
    failed = fork_server.run([sys.executable, "-c", "1 / 0"], environment())
    assert failed.returncode == 1
    assert b"ZeroDivisionError" in failed.stderr


def test_it_is_waited_for_and_killed() -> None:
    sleeps = [sys.executable, "-c", "import time; time.sleep(90)"]
    process = fork_server.start(sleeps, environment())
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert process.wait() == process.poll() == -signal.SIGKILL
    process.kill()  # it is gone: nothing happens
    assert not Path(f"/proc/{process.pid}").exists(), "nobody is left to wait for it"


def test_what_an_interpreter_reads_first_is_executed() -> None:
    code = "import os; print(open('/proc/self/cmdline').read().count('fork_' 'server'), end='')"
    command = [sys.executable, "-c", code]
    assert fork_server.run(command, environment()).stdout == b"1"
    assert fork_server.run(command, environment() | {"PYTHONHASHSEED": "7"}).stdout == b"0"


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "sys.exit()"])
def test_nothing_outlives_the_process_that_started_it(end: str) -> None:
    code = f"""
import os, sys, fork_server
from daemon_process import environment
sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
pids = [fork_server.start(sleeps, environment()).pid for _ in range(3)]
server = next(iter(fork_server._servers.values()))._process.pid
print(server, *pids, flush=True)
{end}
"""
    env = environment()
    env["PYTHONPATH"] += f":{Path(fork_server.__file__).parent}"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, check=False
    )
    pids = done.stdout.split()
    assert len(pids) == 4
    for pid in pids:
        until(lambda pid=pid: not Path(f"/proc/{int(pid)}").exists(), f"the end of {int(pid)}")
