"""Nobody reads the daemon's log: a pager, a log shipper that hangs, journald on a hung disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from daemon_process import BACKENDS, DaemonProcess, MakeDaemon, environment, until

SMALL: Final = 2000
OF_SMALL_QUEUE: Final = f"""
import sys
from walld import limits
limits.LOG_QUEUE_BYTES_MAX = {SMALL}
from walld.cli import main
sys.exit(main(sys.argv[1:]))
"""


class Pipe:
    """Where a daemon logs to: full, until somebody reads."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)
        self.filled = 0
        with suppress(BlockingIOError):
            while True:
                self.filled += os.write(self.writer, b"x")
        os.set_blocking(self.writer, True)
        self._read = b""
        self._thread = threading.Thread(target=self._drain)

    def _drain(self) -> None:
        while data := os.read(self.reader, 65536):
            self._read += data

    def flow(self) -> None:
        """Somebody reads."""
        self._thread.start()

    @property
    def text(self) -> str:
        """What has been read of the daemon's."""
        return self._read[self.filled :].decode()

    def close(self) -> None:
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self.reader)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def started(daemon: DaemonProcess, pipe: Pipe, *command: str) -> DaemonProcess:
    words = [sys.executable, *(command or ("-m", "walld")), "serve", *daemon.options]
    daemon.process = subprocess.Popen(
        [*words, "--data", str(daemon.data), "--socket", daemon.socket_path],
        env=environment(),
        stderr=pipe.writer,
    )
    os.close(pipe.writer)
    until(daemon.is_ready, "a daemon that answers")
    return daemon


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_serves_and_ends_all_the_same(make_daemon: MakeDaemon, pipe: Pipe, backend: str) -> None:
    daemon = started(make_daemon(backend=backend), pipe)
    reply = daemon.reader.reply("s")
    reply.token("word")
    assert reply.drain(30, level="synced")
    assert daemon.terminate() == 0


def test_what_found_no_room_is_counted_and_said_once_it_is_read(
    make_daemon: MakeDaemon, pipe: Pipe
) -> None:
    daemon = started(make_daemon(), pipe, "-c", OF_SMALL_QUEUE)
    assert daemon.process is not None

    def dropped() -> int:
        daemon.process.send_signal(signal.SIGUSR1)  # a line each, 20 a second
        return int(daemon.status()["log_lines_dropped"])

    until(lambda: dropped() > 10, "lines that find no room")
    before = dropped()
    pipe.flow()
    until(lambda: "lines were dropped" in pipe.text, "a line about them")
    assert daemon.terminate() == 0
    until(lambda: "SIGTERM: stopping" in pipe.text, "the last line")
    lines = pipe.text.splitlines()
    assert "listening on" in lines[0], "the oldest are kept"
    assert sum(map(len, lines[: [" walld.logs: " in line for line in lines].index(True)])) < SMALL
    (said,) = [line for line in lines if "dropped" in line]
    _, level, name, number, *rest = said.split(" ")
    assert (level, name) == ("warning", "walld.logs:")
    assert " ".join(rest) == "lines were dropped here: the log was not read"
    assert before <= int(number) <= before + 2
    times = [line.split(" ")[0] for line in lines]
    assert times == sorted(times), "this one, too"


def test_a_log_whose_reader_has_gone_holds_nothing_up(make_daemon: MakeDaemon) -> None:
    pipe = Pipe()
    daemon = started(make_daemon(), pipe)
    os.close(pipe.reader)
    assert daemon.status()["state"] == "ok"
    assert daemon.terminate() == 0


def test_the_last_lines_are_there_when_it_has_ended(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """Through the queue, which the end waits for; an error that ends a start, too."""
    daemon = make_daemon().start()
    assert daemon.terminate() == 0
    assert daemon.log_text().endswith("walld: SIGTERM: stopping\n")
    (tmp_path / "file").touch()
    refused = daemon.cli("serve", "--data", str(tmp_path / "file"), "--socket", daemon.socket_path)
    assert refused.returncode == 1
    (line,) = refused.stderr.decode().splitlines()
    assert " critical walld: " in line
