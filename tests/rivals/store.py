"""What each store has to offer to take part, and what is shared by those that are servers.

Owns: the protocol, a server as a process (started, killed by its pid, its log). Refuses: any store.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from .notes import Notes

__all__ = ["PATIENCE_SECONDS", "Found", "RefusedError", "Server", "Store", "Writer", "free_port"]

PATIENCE_SECONDS: Final = 20.0
"""How long something broken may keep a trial waiting; nothing is counted by it."""


class RefusedError(Exception):
    """The store does not start on what it finds, or does not read it."""


@dataclass
class Found:
    """All that can be read. records: in the store's order. broken: what it hands out as unreadable.

    said: its own words that something is missing or damaged.
    """

    records: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


class Writer(Protocol):
    """The writer's end, in a process of its own."""

    def append(self, seq: int, text: str) -> None:
        """Give it to the store. What the store acknowledges is noted; OSError: try again."""

    def finish(self) -> None:
        """All that was appended is acknowledged."""


class Store(Protocol):
    """One store in one class of durability, on one folder.

    name and setting: what the table calls it. acks: what its acknowledgement says. has_server: it
    is a process of its own, which can be killed alone.
    """

    name: str
    setting: str
    acks: str
    has_server: bool

    def start(self) -> None:
        """Its server runs and answers, and there is a place to write to. RefusedError."""

    def writer(self, stream: str, notes: Notes) -> Writer:
        """Called in the writer's process."""

    def kill(self) -> None:
        """SIGKILL to its server, if it has one and that lives."""

    def stop(self) -> None:
        """SIGTERM to its server, as a service manager ends it, and it has ended by itself."""

    def pid(self) -> int | None:
        """Of its server, while that lives."""

    def read(self) -> Found:
        """Everything, from a fresh start where it does not run. RefusedError."""

    def repair(self) -> bool:
        """What its manual says to do when it refuses; False: nothing, or it did not help."""

    def files(self) -> list[Path]:
        """Where the events lie."""


class Server:
    """One server process on one log file."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None
        self._from = 0

    def start(self, command: Sequence[str], answers: Callable[[], bool]) -> None:
        """Run it until it answers. RefusedError where it ends instead."""
        self._from = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            if answers():
                return
            if self.pid() is None or time.monotonic() > deadline:
                self.kill()
                raise RefusedError(self.said()[-400:])
            time.sleep(0.005)

    def pid(self) -> int | None:
        """While it lives."""
        if self.process is None or self.process.poll() is not None:
            return None
        return self.process.pid

    def kill(self) -> None:
        """SIGKILL, and it is gone."""
        if self.process is not None:
            if self.process.poll() is None:
                os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """SIGTERM, and it has ended by itself."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)
        self.process = None

    def said(self) -> str:
        """What it has logged since its last start."""
        return self.log.read_bytes()[self._from :].decode(errors="replace")


def free_port() -> int:
    """On loopback, free a moment ago."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
        return port
