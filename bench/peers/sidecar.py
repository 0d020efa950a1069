"""walld itself: token(), and token() with a wait until it is written, or synced.

Owns: the three, and the bare send that token() is held against: frames made beforehand, by the
socket's own send, to the same daemon.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import msgspec
from walld_client import Reply, connect
from walld_client.encoding import event_frames
from walld_client.wire import messages as wire

from bench.daemon import Daemon
from bench.daemon import Peer as Connection
from bench.peers.peer import Append

__all__ = ["Bare", "Sidecar"]

_SESSION = "bench"
_STREAM = "bench-stream"
_PATIENCE_SECONDS = 30.0
_FRAMES = 65_536
"""Made beforehand, more than a run asks for."""
_TEXT_BYTES = 6


class _Started:
    """The daemon of one peer."""

    def __init__(self) -> None:
        self._daemon: Daemon | None = None

    def why_not(self) -> str | None:
        return None

    def start(self, home: Path, cores: set[int]) -> None:
        self._daemon = Daemon(home, cores)

    def stop(self) -> None:
        if self._daemon is not None:
            self._daemon.stop()
            self._daemon = None


class Sidecar(_Started):
    """level None: token() alone; else the agent waits for "written" or "synced" after each."""

    def __init__(self, level: str | None = None) -> None:
        super().__init__()
        self._level = level
        self.name = "walld" if level is None else f"walld, waiting for {level}"
        self.outlives = {None: "the agent", "written": "all processes", "synced": "power"}[level]
        self.promise = {
            None: "the kernel has it, the agent keeps it until it is synced; "
            "outlives agent or daemon, both once written (0.25 s later), power once synced",
            "written": "write(2) returned",
            "synced": "fdatasync(2) returned",
        }[level]

    def speak(self, home: Path, work: Callable[[Append], None]) -> None:
        client = connect(socket=str(home / "s"), timeout=_PATIENCE_SECONDS)
        reply = client.reply(_SESSION, stream_id=_STREAM, auto_release=False)
        try:
            work(self._append(reply))
            if not reply.drain(_PATIENCE_SECONDS):
                raise RuntimeError(f"walld has not written all of it: {client.stats()}")
            dropped = client.stats().dropped
            if dropped:
                raise RuntimeError(f"walld's client dropped {dropped} events")
            reply.finish("stop")
        finally:
            client.close()

    def _append(self, reply: Reply) -> Append:
        if self._level is None:
            return reply.token
        level = self._level

        def append(text: str) -> None:
            reply.token(text)
            if not reply.drain(_PATIENCE_SECONDS, level=level):
                raise TimeoutError(f"not {level} after {_PATIENCE_SECONDS} s")

        return append

    def count(self, home: Path) -> int:
        return _tokens(home)


class Bare(_Started):
    """The floor: what the kernel asks for handing over as many bytes."""

    name = "bare send"
    outlives = "the agent"
    promise = "the kernel has it; nobody keeps a copy, so it goes with the daemon"

    def speak(self, home: Path, work: Callable[[Append], None]) -> None:
        prefix = event_frames.text_prefix(event_frames.TOKEN, 1)
        text = b"w" * _TEXT_BYTES
        made = iter([event_frames.plain_text(prefix, seq, text) for seq in range(1, _FRAMES + 1)])
        with Connection(str(home / "s"), "agent") as peer:
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
            peer.send(wire.Start(1, 0, _STREAM, _SESSION))
            send, patience = peer.socket.send, peer.socket.gettimeout()
            peer.socket.settimeout(None)  # with one, each send would be a poll and a send
            work(lambda _text: send(next(made)))
            peer.socket.settimeout(patience)
            peer.drain()

    def count(self, home: Path) -> int:
        return _tokens(home)


def _tokens(home: Path) -> int:
    """As many as the daemon has of the reply."""
    with Connection(str(home / "s"), "query") as peer:
        answer = peer.ask(wire.Recover(1, "all", None, _STREAM))
    (reply,) = msgspec.msgpack.decode(answer, type=list[wire.Recovered])
    return sum(
        piece.last_seq - piece.first_seq + 1 for piece in reply.segments if piece.kind == "text"
    )
