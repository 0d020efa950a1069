"""Standard streams that are closed, and errors that nobody expects: what the exit code says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from daemon_process import environment, until
from damaged_directory import DamagedDirectory

from walld.cli import main
from walld.cli.inspect import directory_scan, fsck
from walld.cli.progress import Progress

CLOSE = """
import os, sys
for fd in map(int, sys.argv[1].split(",")):
    os.close(fd)
os.execv(sys.executable, [sys.executable, "-m", "walld", *sys.argv[2:]])
"""


@pytest.fixture
def made(tmp_path: Path) -> DamagedDirectory:
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.close()
    return made


@pytest.mark.parametrize("closed", ["2", "1", "0", "0,2", "1,2", "0,1,2"])
def test_a_daemon_serves_and_ends_in_order(tmp_path: Path, closed: str) -> None:
    data, socket, log = tmp_path / "data", tmp_path / "s", tmp_path / "log"
    command = [sys.executable, "-c", CLOSE, closed, "serve", "--data", str(data)]
    with log.open("wb") as stderr:
        daemon = subprocess.Popen(
            [*command, "--socket", str(socket)],
            env=environment(),
            cwd=tmp_path,
            stderr=stderr,
        )
    try:
        until(lambda: socket.exists() or daemon.poll() is not None, "a socket")
        for fd in map(int, closed.split(",")):
            assert os.readlink(f"/proc/{daemon.pid}/fd/{fd}") == os.devnull, fd
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(20) == 0, log.read_text()
    finally:
        daemon.kill()
        daemon.wait()
    assert "Traceback" not in log.read_text()


def test_a_bar_needs_a_stderr(made: DamagedDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_scan, "PROGRESS_BYTES_MIN", 0)
    monkeypatch.setattr(sys, "stderr", None)
    with Progress("reading", 5) as bar:
        bar.reached(5)
    assert main(["fsck", str(made.path)]) == 0


def test_stderr_that_takes_nothing_changes_no_exit_code(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "walld", "fsck", str(tmp_path / "missing")],
            env=environment(),
            stderr=full,
            timeout=60,
            check=False,
        )
    assert done.returncode == 66


def _bug(*_: object, **__: object) -> None:
    raise ZeroDivisionError("planted\x1b[2J")


def _no_memory(*_: object, **__: object) -> None:
    raise MemoryError


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (_bug, "walld: a bug of walld, please report it: ZeroDivisionError: planted\\x1b[2J ("),
        (_no_memory, "walld: there is not enough memory\n"),
    ],
)
@pytest.mark.parametrize("command", ["fsck", "salvage", "recover"])
def test_what_nobody_expects_is_no_finding(
    made: DamagedDirectory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    fault: Callable[..., None],
    said: str,
) -> None:
    """1 of `fsck` is "torn", and Python's own of any error."""
    words = {
        "fsck": ["fsck", str(made.path)],
        "salvage": ["salvage", str(made.path), "--to", str(made.path.parent / "new")],
        "recover": ["recover", "chat", "--data", str(made.path)],
    }
    monkeypatch.setattr(fsck, "inspect", fault)
    monkeypatch.setattr("walld.cli.query.recover.run", fault)
    assert main(words[command]) == (1 if command == "recover" else 66)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(said)
    assert err.count("\n") == 1


def test_a_daemon_writes_the_whole_trace_into_its_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("walld.cli.serve.run", _bug)
    assert main(["serve"]) == 1
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
