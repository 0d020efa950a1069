"""A program that is forked in C, with the client of one build and the daemon of the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from builds import HERE, Build, Daemon, until
from forked_in_c import WORDS


@contextmanager
def program(build: Build, socket_path: str) -> Iterator[None]:
    """`forked_in_c.py` with this client, once all is said."""
    process = subprocess.Popen(
        [sys.executable, str(HERE / "forked_in_c.py"), socket_path],
        env=build.environment(),
        cwd=build.root,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def texts(build: Build, socket_path: str) -> dict[str, str]:
    """By session: what is kept."""
    told = build.answers(socket_path)
    return {one["session_id"]: one["text"] for one in told["replies"]}


def said(name: str) -> str:
    return "".join(f"{name}{at} " for at in range(WORDS))


def test_an_older_clients_processes_are_parted_before_a_word_is_mixed(
    old: Build, new: Build, tmp_path: Path, socket_path: str
) -> None:
    """They speak as one producer on one socket. The daemon takes the second Start for what it is;
    who was forked below such a client is not heard behind that, and the log says what to do.
    """
    log = tmp_path / "log"
    with Daemon(new, tmp_path / "data", socket_path, log), program(old, socket_path):
        kept = texts(new, socket_path)
        assert kept["parent"] == said("parent")
        assert kept["a"] == said("a")
        assert "b" not in kept
        word = "two processes speak as one producer"
        until(lambda: word in log.read_text(), f"a line of the log: {word}")


def test_with_this_client_an_older_daemon_hears_each(
    old: Build, new: Build, tmp_path: Path, socket_path: str
) -> None:
    with (
        Daemon(old, tmp_path / "data", socket_path, tmp_path / "log"),
        program(new, socket_path),
    ):
        assert texts(new, socket_path) == {name: said(name) for name in ("a", "b", "parent")}
