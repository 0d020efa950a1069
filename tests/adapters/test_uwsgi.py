"""Real uWSGI: workers that are forked in C behind the import of a program that has connected."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from daemon_process import PATIENCE_SECONDS, DaemonProcess, environment, until

from adapters.trial import PROGRAMS, wants

wants("uwsgi")

WORKERS = 4
WORDS = 40
"""As in `programs/uwsgi_forked.py`."""


class Connection(http.client.HTTPConnection):
    """To a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=2 * PATIENCE_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def asked(path: str, name: str) -> tuple[int, list[str]]:
    """The process that answered, and what walld had told it."""
    connection = Connection(path)
    try:
        connection.request("GET", f"/{name}")
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (name, answer.status, body)
        said = json.loads(body)
        return said["pid"], said["told"]
    finally:
        connection.close()


@contextmanager
def served(home: Path, daemon: DaemonProcess, options: list[str]) -> Iterator[str]:
    """uWSGI with the program; the path of its socket."""
    path, log = str(home / "http"), home / "uwsgi.log"
    command = [
        *(str(Path(sys.executable).parent / "uwsgi"), "--http-socket", path, "--need-app"),
        *("--virtualenv", sys.prefix, "--chdir", str(PROGRAMS), "--module", "uwsgi_forked"),
        *("--master", "--processes", str(WORKERS), "--listen", "16", "--die-on-term"),
        *("--disable-logging", *options),
    ]
    env = environment() | {"WALLD_SOCKET": daemon.socket_path}
    with log.open("wb") as file:
        server = subprocess.Popen(command, env=env, stdout=file, stderr=file)
    try:
        until(lambda: log.read_bytes().count(b"spawned uWSGI worker") == WORKERS, "workers")
        yield path
    finally:
        server.terminate()
        server.wait(PATIENCE_SECONDS)
    assert "Traceback" not in log.read_text(errors="replace"), log.read_text(errors="replace")[
        -4000:
    ]


@pytest.mark.parametrize(
    ("options", "restarts"),
    [([], 20), (["--enable-threads", "--threads", "2"], 5)],
    ids=["default", "threads"],
)
def test_no_word_of_a_worker_is_in_the_session_of_another(
    kept_by: DaemonProcess, tmp_path: Path, options: list[str], restarts: int
) -> None:
    daemon = kept_by
    told: dict[str, tuple[int, list[str]]] = {}
    errors: list[BaseException] = []
    over = threading.Event()

    def browse(browser: int) -> None:
        number = 0
        try:
            while not over.is_set():
                name = f"{tmp_path.name}-{browser}-{number}"
                told[name] = asked(path, name)
                number += 1
        except BaseException as error:
            errors.append(error)

    def went_on(seen: int) -> bool:
        return bool(errors) or len(told) >= seen + WORKERS

    with served(tmp_path, daemon, options) as path:
        browsers = [threading.Thread(target=browse, args=(at,)) for at in range(2 * WORKERS)]
        for browser in browsers:
            browser.start()
        try:
            for _ in range(restarts):
                seen = len(told)
                until(partial(went_on, seen), "answers")
                daemon.kill()
                daemon.start()
        finally:
            over.set()
            for browser in browsers:
                browser.join()
    assert not errors, errors
    assert len({pid for pid, _ in told.values()}) == WORKERS
    for name, (_, answers) in told.items():
        assert answers == [name, "None"] * 2, name
        replies = daemon.reader.recover_all(f"of {name}")
        text = "".join(f"{name}:{at} " for at in range(WORDS))
        assert [(one.stream_id, one.text, one.gaps) for one in replies] == [(name, text, [])]
    boot = daemon.reader.recover("boot")
    assert boot is not None
    assert (boot.text, boot.gaps) == ("boot", [])
    daemon.reader.resolve("boot")
    assert daemon.metrics()["walld_lost_acked_total"] == 0
