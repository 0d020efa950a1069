"""A daemon of one's own and raw connections to it: what the tests of the protocol share.

Nothing here speaks by the client: bytes go out as a test says, answers come back as messages.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import fork_server
import msgspec
from walld_client.start import start_daemon
from walld_client.wire import framing
from walld_client.wire import messages as wire

__all__ = ["Daemon", "Healthy", "Peer", "logged", "recovered", "text_of"]

ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 60.0
"""Only how long a broken daemon may keep a test waiting; no test passes by it."""


def logged(path: Path, text: str) -> str:
    """Wait until a daemon's log has this: what is logged may come behind what is answered."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while text not in (found := path.read_text(errors="replace")):
        assert time.monotonic() < deadline, f"not logged in {path}: {text!r}\n{found[-4000:]}"
        time.sleep(0.01)
    return found


class Daemon:
    """A daemon of its own: `walld serve` on a fresh directory."""

    def __init__(self, home: Path, *, files_max: int | None = None) -> None:
        self.socket_path = str(home / "s")
        self.log_path = home / "log"
        self.process: fork_server.Process

        def launch(command: list[str], env: Mapping[str, str], stderr: int) -> fork_server.Process:
            self.process = fork_server.start(command, dict(env), stderr=stderr, files_max=files_max)
            return self.process

        start_daemon(
            home / "data",
            socket=self.socket_path,
            log=self.log_path,
            timeout=PATIENCE_SECONDS,
            wait_ready=False,
            command=[sys.executable, "-m", "walld"],
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'clients/python'}"},
            launch=launch,
        )

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def counted(self, code: str) -> int:
        """`walld_protocol_errors_total` of a code."""
        with Peer(self, "query") as peer:
            text = msgspec.msgpack.decode(peer.ask(wire.Metrics(1)), type=str)
        found = re.search(rf'^walld_protocol_errors_total{{code="{code}"}} (\S+)$', text, re.M)
        return int(float(found[1])) if found else 0

    def resident_bytes(self) -> int:
        """Memory of the daemon's process."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()

    def stop(self) -> None:
        """SIGTERM and wait; it must leave in order."""
        self.process.send_signal(signal.SIGTERM)
        try:
            assert self.process.wait(PATIENCE_SECONDS) == 0
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()

    def log_text(self) -> str:
        """What it has logged so far."""
        return self.log_path.read_text(errors="replace")

    def logged(self, text: str) -> str:
        """Wait until it has logged this; all it has logged."""
        return logged(self.log_path, text)


class Peer:
    """One raw connection. Says Hello unless its role is None."""

    def __init__(self, daemon: Daemon, role: str | None, producer: bytes | None = None) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Python's own timeout would make connect say EAGAIN where the backlog is full (unix(7)).
        patience = struct.pack("ll", int(PATIENCE_SECONDS), 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        self._buffer = b""
        self._decoder: msgspec.msgpack.Decoder[msgspec.Struct] = msgspec.msgpack.Decoder(
            wire.ToAgent | wire.Answer
        )
        try:
            self.socket.connect(daemon.socket_path)
            self.socket.settimeout(PATIENCE_SECONDS)
            if role is not None:
                self.send(wire.Hello(1, role, producer or os.urandom(16)))
                if not isinstance(self.hear(), wire.Welcome):
                    raise ConnectionError("no Welcome")
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *messages: msgspec.Struct) -> None:
        self.socket.sendall(b"".join(map(framing.encode, messages)))

    def hear(self) -> msgspec.Struct | None:
        """The next message that is no Ack; None at the end."""
        while True:
            bodies, _ = framing.split(self._buffer)
            if bodies:
                self._buffer = self._buffer[4 + len(bodies[0]) :]
                message = self._decoder.decode(bodies[0])
                if not isinstance(message, wire.Ack):
                    return message
                continue
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._buffer += data

    def ask(self, request: wire.FromQuery) -> bytes:
        """The answer's msgpack."""
        self.send(request)
        chunks: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            message = self.hear()
            if isinstance(message, wire.Error) and message.code == "behind":
                assert time.monotonic() < deadline, message
                time.sleep(0.05)
                self.send(request)  # as it says: what the dead have sent is being read
                continue
            assert isinstance(message, wire.Answer), message
            chunks.append(message.chunk)
            if message.last:
                return b"".join(chunks)

    def drain(self, number: int = 1, level: str = "written") -> None:
        """All that was sent is taken in and written."""
        self.send(wire.Drain(number, level))
        said = self.hear()
        assert said == wire.Drained(number, level), said


class Healthy(Peer):
    """An agent that goes on streaming while others misbehave."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.producer = os.urandom(16)
        super().__init__(daemon, "agent", self.producer)
        self.said: list[str] = []
        self.send(wire.Start(1, 0, "healthy", "healthy-session"))

    def say(self, text: str) -> None:
        """One more token, known written."""
        self.said.append(text)
        self.send(wire.Token(1, len(self.said), text.encode()))
        self.drain(len(self.said))

    def recovered(self) -> wire.Recovered:
        """What a reader gets of it."""
        return recovered(self.daemon, "healthy", [wire.Seen(self.producer, 1, len(self.said))])


def recovered(daemon: Daemon, stream_id: str, seen: list[wire.Seen]) -> wire.Recovered:
    """The reply of a stream, once the daemon has taken in what was `seen`."""
    with Peer(daemon, "query") as peer:
        answer = peer.ask(wire.Recover(1, "all", None, stream_id, seen))
    (reply,) = msgspec.msgpack.decode(answer, type=list[wire.Recovered])
    return reply


def text_of(reply: wire.Recovered) -> str:
    return b"".join(piece.text for piece in reply.segments if piece.kind == "text").decode()
