"""A daemon to measure: `walld serve` on a fresh directory, pinned to its core.

Owns: starting, asking and stopping it. Refuses: measuring.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import AnyStr, Self

import msgspec
from walld_client.start import start_daemon
from walld_client.wire import framing
from walld_client.wire import messages as wire

from bench.machine import Used, pinned, resident_bytes, used
from walld.wal.layout import BATCH_HEADER_BYTES

__all__ = ["PATIENCE_SECONDS", "Daemon", "Peer", "ended", "environment", "highest_lag"]

ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 120.0
"""How long a broken daemon may hold a run up."""


def environment() -> dict[str, str]:
    """For child processes: this tree's packages, and none of the caller's own walld settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WALLD_")}
    return kept | {"PYTHONPATH": f"{ROOT}:{ROOT / 'clients/python'}"}


def highest_lag(before: dict[str, float], after: dict[str, float]) -> float:
    """Upper edge of the highest bucket of flush lag that grew."""
    edges = []
    for name, value in after.items():
        found = re.fullmatch(r'walld_flush_lag_seconds_bucket\{le="(.*)"\}', name)
        if found is not None:
            edges.append((float(found[1]), value - before.get(name, 0.0)))
    edges.sort()
    total = edges[-1][1]
    return next(edge for edge, count in edges if count == total)


class Peer:
    """One raw connection that waits for its answers."""

    def __init__(self, socket_path: str, role: str) -> None:
        self.producer = os.urandom(16)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Python's own timeout would make connect say EAGAIN where the backlog is full (unix(7)).
        patience = struct.pack("ll", int(PATIENCE_SECONDS), 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        self._buffer = b""
        self._bodies: deque[bytes] = deque()
        self._decoder: msgspec.msgpack.Decoder[msgspec.Struct] = msgspec.msgpack.Decoder(
            wire.ToAgent | wire.Answer
        )
        self._asked = 0
        try:
            self.socket.connect(socket_path)
            self.socket.settimeout(PATIENCE_SECONDS)
            self.send(wire.Hello(framing.PROTOCOL_VERSION, role, self.producer, client="bench"))
            self.hear(wire.Welcome)
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *messages: msgspec.Struct) -> None:
        """Blocks until the kernel has all of it."""
        self.socket.sendall(b"".join(map(framing.encode, messages)))

    def hear(self, kind: type[msgspec.Struct]) -> msgspec.Struct:
        """The next message that is no Ack, which must be of this kind."""
        while True:
            if not self._bodies:
                received = self.socket.recv(1 << 18)
                if not received:
                    raise ConnectionError("the daemon closed the connection")
                bodies, self._buffer = framing.split(self._buffer + received)
                self._bodies.extend(bodies)
                continue
            message = self._decoder.decode(self._bodies.popleft())
            if isinstance(message, wire.Ack):
                continue
            if not isinstance(message, kind):
                raise ConnectionError(f"expected {kind.__name__}, the daemon said {message}")
            return message

    def drain(self, level: str = "written") -> None:
        """Wait until all that was sent is at `level`."""
        self._asked += 1
        self.send(wire.Drain(self._asked, level))
        self.hear(wire.Drained)

    def ask(self, request: wire.FromQuery) -> bytes:
        """The answer's msgpack."""
        self.send(request)
        chunks = []
        while True:
            answer = self.hear(wire.Answer)
            assert isinstance(answer, wire.Answer)
            chunks.append(answer.chunk)
            if answer.last:
                return b"".join(chunks)


class Daemon:
    """One daemon, its process and its directory."""

    def __init__(
        self,
        home: Path,
        cores: set[int],
        *options: str,
        wait: bool = True,
        program: str = "walld",
        files_max: int | None = None,
    ) -> None:
        """home: its folder, made where it is missing. wait: until it has said Welcome.

        program: a module whose command line is walld's. files_max: descriptors it may have.
        """
        home.mkdir(exist_ok=True)
        self.home = home
        self.data = home / "data"
        self.socket_path = str(home / "s")
        if len(self.socket_path) > 100:
            raise OSError(f"{self.socket_path} is too long for a socket: set TMPDIR to a short one")
        command = [sys.executable, "-m", program]
        if files_max is not None:
            command = ["sh", "-c", f'ulimit -n {files_max}; exec "$@"', "sh", *command]
        self.started = time.perf_counter()
        self.process: subprocess.Popen[bytes]

        def launch(
            whole: list[str], env: Mapping[str, str], stderr: int
        ) -> subprocess.Popen[bytes]:
            with pinned(cores):
                self.process = subprocess.Popen(whole, env=env, stderr=stderr)
            return self.process

        self._daemon = start_daemon(
            self.data,
            socket=self.socket_path,
            log=home / "log",
            options=options,
            timeout=PATIENCE_SECONDS,
            command=command,
            env=environment(),
            wait_ready=False,
            wait=wait,
            launch=launch,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait(self) -> None:
        """Until it says Welcome, looked at every 5 ms: how long a start took is measured by it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                with Peer(self.socket_path, "query"):
                    return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"no daemon: {(self.home / 'log').read_text()}") from None
                time.sleep(0.005)

    def agent(self) -> Peer:
        """A connection that sends events."""
        return Peer(self.socket_path, "agent")

    def status(self) -> dict[str, float]:
        """Its numbers of this moment."""
        with Peer(self.socket_path, "query") as peer:
            answer: dict[str, float] = msgspec.msgpack.decode(peer.ask(wire.Status(1)))
        return answer

    def metrics(self) -> dict[str, float]:
        """Every sample by its name with labels, as a scrape would have it."""
        with Peer(self.socket_path, "query") as peer:
            return self.metrics_by(peer)

    @staticmethod
    def metrics_by(peer: Peer) -> dict[str, float]:
        """The same on a query connection that is there: a crowd may leave no room for another."""
        text = msgspec.msgpack.decode(peer.ask(wire.Metrics(1)), type=str)
        found = re.findall(r"^(walld_\S+) (\S+)$", text, re.M)
        return {name: float(value) for name, value in found}

    def settle(self) -> None:
        """Until nothing waits to be written and all that is written is synced."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            now = self.status()
            # What stays is at most the empty batch that says how far the last sync reached.
            if not now["queue_events"] and now["unsynced_bytes"] <= BATCH_HEADER_BYTES:
                return
            time.sleep(0.1)
        raise RuntimeError(f"the daemon does not come to rest: {self.status()}")

    def used(self) -> Used:
        """Its CPU time so far."""
        return used(self.process.pid)

    def resident_bytes(self) -> int:
        """Its own memory."""
        return resident_bytes(self.process.pid)

    def kill(self) -> None:
        """SIGKILL."""
        self._daemon.kill()

    def stop(self) -> None:
        """SIGTERM; SIGKILL where that takes too long."""
        try:
            self._daemon.stop()
        finally:  # who is interrupted here does not leave it behind
            self._daemon.kill()


@contextmanager
def ended(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """Killed, unless it has ended by then."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
