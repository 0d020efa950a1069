"""What a peer has to offer to be measured beside walld, and what is shared by those with a server.

Owns: the protocol, a server as a process (started, stopped by its pid, its log). Refuses: any peer.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.machine import Used, pinned, used

__all__ = ["Append", "Peer", "Pipe", "Pipelined", "Server", "found", "free_port", "importable"]

Append = Callable[[str], object]
"""Records one token. When it has returned, what the peer promises holds."""
PATIENCE_SECONDS = 30.0


class Peer(Protocol):
    """One way of recording what an agent streams.

    name: in the tables. outlives: what a token survives once the call has returned, in two words:
    "nothing", "the agent", "all processes", "power". promise: the same in a sentence.

    start() and stop() are called in the bench, the others in an agent's process of their own. The
    two meet in `home`, a folder that is the peer's alone.
    """

    name: str
    outlives: str
    promise: str

    def why_not(self) -> str | None:
        """Why it cannot run here; None where it can."""

    def start(self, home: Path, cores: set[int]) -> None:
        """Its server, where it has one, runs on these cores and answers."""

    def stop(self) -> None:
        """Its server is gone."""

    def speak(self, home: Path, work: Callable[[Append], None]) -> None:
        """Opens a session, calls work with the way to append to it, then closes what it opened."""

    def count(self, home: Path) -> int:
        """Tokens that can be read back of what was appended in `home`; after speak()."""


@dataclass(frozen=True, slots=True)
class Pipe:
    """A connection with its handshake done, and one message for it, encoded.

    lines: newlines in the answer to one; 0: there is one answer, when the sender has shut its side.
    window: messages that may be unanswered. tokens: of a message.
    """

    socket: socket.socket
    event: bytes
    lines: int
    window: int
    tokens: int = 1


class Pipelined(Protocol):
    """What takes events without an answer to each in between."""

    name: str
    server: Server

    def why_not(self) -> str | None:
        """Why it cannot run here; None where it can."""

    def start(self, home: Path, cores: set[int]) -> None:
        """Its server runs on these cores and answers."""

    def stop(self) -> None:
        """Its server is gone."""

    def count(self, home: Path) -> int:
        """Tokens that it has; the wall: of the last flood."""

    def pipe(self, home: Path, number: int) -> Pipe:
        """Connection `number`, to a stream of its own."""


def found(program: str) -> str | None:
    """Where a program is: beside this Python first, as packages of PyPI bring it."""
    beside = Path(sys.executable).parent / program
    if beside.exists():
        return str(beside)
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")


def importable(module: str, package: str) -> str | None:
    """Why a module is not there; None where it is."""
    try:
        __import__(module)
    except ImportError as error:
        return f"needs the Python package {package} (the extra `bench`): {error}"
    return None


def free_port() -> int:
    """On loopback, free a moment ago."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
        return port


class Server:
    """One server process and its log."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        command: Sequence[str],
        cores: set[int],
        log: Path,
        answers: Callable[[], bool],
        env: dict[str, str] | None = None,
    ) -> None:
        """Run it until it answers. RuntimeError with its last words where it ends instead."""
        with log.open("ab") as file, pinned(cores):
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=env
            )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                said = log.read_text(errors="replace")[-600:]
                raise RuntimeError(f"{command[0]} does not answer; it said: {said}")
            time.sleep(0.01)

    @property
    def pid(self) -> int:
        """While it runs."""
        assert self._process is not None
        return self._process.pid

    def used(self) -> Used:
        """Its CPU time so far, all threads."""
        return used(self.pid)

    def stop(self, gently: signal.Signals = signal.SIGTERM) -> None:
        """That signal, and SIGKILL where it takes more than ten seconds."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            os.kill(process.pid, gently)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        finally:  # who is interrupted here does not leave it behind
            process.kill()
            process.wait()
