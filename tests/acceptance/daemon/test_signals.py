"""Signals that mean nothing to walld end no daemon: whoever sends one has taken it for another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from daemon_process import DaemonProcess, MakeDaemon, environment, until

from walld import limits

IGNORED = ("SIGUSR1", "SIGUSR2", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGIO", "SIGPWR")


def sent(daemon: DaemonProcess, name: str) -> None:
    assert daemon.process is not None
    daemon.process.send_signal(signal.Signals[name])


def test_each_is_ignored_with_a_line(daemon_on_each: DaemonProcess) -> None:
    daemon = daemon_on_each
    for name in IGNORED:
        sent(daemon, name)
        daemon.logged(f"{name}: ignored")
    sent(daemon, "SIGHUP")
    assert daemon.status()["state"] == "ok"
    assert daemon.terminate() == 0
    assert "SIGTERM: stopping" in daemon.log_text()


def test_a_flood_of_them_fills_no_log_and_keeps_no_stop_out(daemon: DaemonProcess) -> None:
    begun = time.monotonic()
    for _ in range(20_000):
        sent(daemon, "SIGUSR1")
    assert daemon.status()["state"] == "ok"
    assert daemon.terminate() == 0
    seconds = int(time.monotonic() - begun) + 2  # a second of the clock was begun at each end
    said = daemon.log_text().count("SIGUSR1: ignored")
    assert 0 < said <= seconds * limits.LOG_LINES_PER_SECOND_MAX


def test_one_that_was_ignored_already_is_not_spoken_of(make_daemon: MakeDaemon) -> None:
    """Whoever starts walld so (`trap '' USR1`) has said what it means."""
    daemon = make_daemon()
    command = [
        "sh",
        "-c",
        "trap '' USR1; exec \"$@\"",
        "sh",
        sys.executable,
        "-m",
        "walld",
        "serve",
    ]
    with daemon.log_path.open("wb") as log:
        daemon.process = subprocess.Popen(
            [*command, "--data", str(daemon.data), "--socket", daemon.socket_path],
            env=environment(),
            stderr=log,
        )
    until(daemon.is_ready, "a daemon that answers")
    sent(daemon, "SIGUSR1")
    sent(daemon, "SIGUSR2")  # the higher number is taken behind the lower one
    daemon.logged("SIGUSR2: ignored")
    assert "SIGUSR1" not in daemon.log_text()
    assert daemon.process is not None
    with open(f"/proc/{daemon.process.pid}/status") as status:
        masks = dict(line.split(":\t") for line in status)
    assert int(masks["SigIgn"], 16) >> (signal.SIGUSR1 - 1) & 1
    assert not int(masks["SigBlk"], 16) >> (signal.SIGUSR1 - 1) & 1
    assert daemon.terminate() == 0


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_what_stops_it_is_not_ignored(make_daemon: MakeDaemon, name: str) -> None:
    daemon = make_daemon().start()
    sent(daemon, "SIGUSR1")
    sent(daemon, name)
    assert daemon.ended() == 0
    assert f"{name}: stopping" in daemon.log_text()
    assert os.path.exists(daemon.data / "LOCK")


WHILE_IT_IS_IMPORTED = """
import os, signal, sys
class Sends:  # what is imported first of all that is not there before `main`
    def find_spec(self, name, path=None, target=None):
        if name == "walld.cli.entry_point":
            for one in sys.argv.pop().split(","):
                os.kill(os.getpid(), signal.Signals[one])
sys.meta_path.insert(0, Sends())
from walld.cli import main
sys.exit(main())
"""


def test_none_ends_it_while_it_is_imported(make_daemon: MakeDaemon) -> None:
    """They wait until its log is there."""
    daemon = make_daemon()
    command = [sys.executable, "-c", WHILE_IT_IS_IMPORTED, "serve", "--data", str(daemon.data)]
    with daemon.log_path.open("wb") as log:
        daemon.process = subprocess.Popen(
            [*command, "--socket", daemon.socket_path, ",".join(IGNORED)],
            env=environment(),
            stderr=log,
        )
    until(lambda: daemon.is_ready() or daemon.process.poll() is not None, "it, or its end")  # type: ignore[union-attr]
    assert daemon.process.poll() is None
    for name in IGNORED:
        daemon.logged(f"{name}: ignored")
    assert daemon.terminate() == 0
