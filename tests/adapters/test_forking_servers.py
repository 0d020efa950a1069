"""Real servers that fork their workers behind the import of a program that has connected.

uWSGI forks in C, where no hook of Python runs; gunicorn with --preload forks in Python.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from daemon_process import PATIENCE_SECONDS, DaemonProcess, environment, until

from adapters.trial import PROGRAMS, wants

wants("uwsgi", "gunicorn")

WORKERS = 4
WORDS = 40
"""As in `programs/wsgi_preloaded.py`."""


@dataclass(frozen=True)
class Server:
    """One kind. spawned: how its log names a worker that is there."""

    command: tuple[str, ...]
    bind: str
    spawned: str
    threads: int = 1


UWSGI = Server(
    (
        *("uwsgi", "--need-app", "--virtualenv", sys.prefix, "--chdir", str(PROGRAMS)),
        *("--module", "wsgi_preloaded", "--master", "--processes", str(WORKERS)),
        *("--listen", "16", "--die-on-term", "--disable-logging", "--http-socket"),
    ),
    "{}",
    r"pawned uWSGI worker \d+ \((?:new )?pid: (\d+)",
)
THREADS = Server(
    (UWSGI.command[0], "--enable-threads", "--threads", "2", *UWSGI.command[1:]),
    UWSGI.bind,
    UWSGI.spawned,
    threads=2,
)
GUNICORN = Server(
    (
        *("gunicorn", "--preload", "--chdir", str(PROGRAMS), "--workers", str(WORKERS)),
        *("--timeout", str(int(PATIENCE_SECONDS)), "wsgi_preloaded:application", "--bind"),
    ),
    "unix:{}",
    r"Booting worker with pid: (\d+)",
)


class Connection(http.client.HTTPConnection):
    """To a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=2 * PATIENCE_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Browsers:
    """Ask, each for a name of its own after another, until they are stopped."""

    def __init__(self, path: str, prefix: str) -> None:
        self._path, self._prefix = path, prefix
        self.told: dict[str, tuple[int, list[str]]] = {}
        """By name: the process that answered, and what walld had told it."""
        self.cut: list[str] = []
        """Names whose process was killed meanwhile."""
        self.errors: list[BaseException] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._browse, args=(at,)) for at in range(8)]

    def __enter__(self) -> Browsers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _browse(self, browser: int) -> None:
        number = 0
        try:
            while not self._over.is_set():
                self._ask(f"{self._prefix}-{browser}-{number}")
                number += 1
        except BaseException as error:
            self.errors.append(error)

    def _ask(self, name: str) -> None:
        connection = Connection(self._path)
        try:
            connection.request("GET", f"/{name}")
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200, (name, answer.status, body)
            said = json.loads(body)
            self.told[name] = said["pid"], said["told"]
        except (ConnectionError, http.client.IncompleteRead):
            self.cut.append(name)
        finally:
            connection.close()

    def answered(self) -> set[int]:
        """The workers that have."""
        assert not self.errors, self.errors
        return {pid for pid, _ in list(self.told.values())}

    def worker(self, seen: int, killed: set[int]) -> int | None:
        """One that lives, and has answered behind the first `seen` answers."""
        assert not self.errors, self.errors
        later = list(self.told.values())[seen:]
        return next((pid for pid, _ in reversed(later) if pid not in killed), None)


def spawned(home: Path, server: Server) -> set[int]:
    """The workers that there were up to now."""
    found = re.findall(server.spawned, (home / "server.log").read_text(errors="replace"))
    return {int(pid) for pid in found}


@contextmanager
def served(home: Path, daemon: DaemonProcess, server: Server) -> Iterator[str]:
    """The server with the program; the path of its socket."""
    path, log = str(home / "http"), home / "server.log"
    binary, *options = server.command
    command = [str(Path(sys.executable).parent / binary), *options, server.bind.format(path)]
    env = environment() | {"WALLD_SOCKET": daemon.socket_path}
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=env, stdout=file, stderr=file)
    try:
        until(lambda: len(spawned(home, server)) == WORKERS, "workers")
        yield path
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()  # one that stays would keep the next one from the reply `boot`
    said = log.read_text(errors="replace")
    assert "Traceback" not in said, said[-4000:]


@pytest.mark.parametrize(
    ("server", "restarts"),
    [(UWSGI, 20), (THREADS, 5), (GUNICORN, 10)],
    ids=["uwsgi", "uwsgi with threads", "gunicorn"],
)
def test_no_word_of_a_worker_is_in_the_session_of_another(
    kept_by: DaemonProcess, tmp_path: Path, server: Server, restarts: int
) -> None:
    """The daemon and a worker are killed at once, again and again; each starts anew."""
    daemon = kept_by
    killed: set[int] = set()
    with (
        served(tmp_path, daemon, server) as path,
        Browsers(path, tmp_path.name) as browsers,
    ):
        for _ in range(restarts):
            seen = len(browsers.told)
            until(lambda seen=seen: browsers.worker(seen + WORKERS, killed), "answers")
            worker = browsers.worker(seen, killed)
            assert worker is not None
            killed.add(worker)
            daemon.kill()
            os.kill(worker, signal.SIGKILL)
            daemon.start()
        # A worker that uWSGI has just made is not told to end: each has to have answered before.
        until(lambda: len(spawned(tmp_path, server)) == WORKERS + restarts, "new workers")
        until(lambda: spawned(tmp_path, server) - killed <= browsers.answered(), "their answers")
    assert not browsers.errors, browsers.errors
    assert len(browsers.cut) <= restarts * server.threads
    assert len(killed) == restarts
    for name, (_, told) in browsers.told.items():
        assert told == [name, "None"] * 2, name
        replies = daemon.reader.recover_all(f"of {name}")
        assert [(one.stream_id, one.text, one.gaps) for one in replies] == [(name, said(name), [])]
    for name in browsers.cut:
        for one in daemon.reader.recover_all(f"of {name}"):
            assert (one.stream_id, one.gaps) == (name, [])
            assert said(name).startswith(one.text), name
    boot = daemon.reader.recover("boot")
    assert boot is not None
    assert (boot.text, boot.gaps) == ("boot", [])
    daemon.reader.resolve("boot")
    assert daemon.metrics()["walld_lost_acked_total"] == 0


def said(name: str) -> str:
    """All the words of a reply."""
    return "".join(f"{name}:{at} " for at in range(WORDS))
