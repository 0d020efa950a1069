"""A daemon that does as it is told: the other end of a client's socket, scripted by a test.

It listens on a real Unix socket, keeps every frame it reads, connection by connection, and says
only what the test makes it say. It takes nothing while `reading` is off, so the kernel fills up.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from walld_client.client import ClientBase
from walld_client.reply.reply import ReplyBase
from walld_client.wire import framing
from walld_client.wire import messages as wire

_from_agent = msgspec.msgpack.Decoder(wire.FromAgent)
_from_query = msgspec.msgpack.Decoder(wire.FromQuery)
WAIT_SECONDS = 10.0


class Peer:
    """One connection: what it said, and the socket to answer on."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.messages: list[Any] = []
        self.bodies: list[bytes] = []
        self.ended = False
        self.role = ""

    def say(self, message: msgspec.Struct) -> None:
        self.socket.sendall(framing.encode(message))

    def events(self) -> list[Any]:
        """What is an event of a stream."""
        return [m for m in self.messages if hasattr(m, "seq")]

    def text(self, stream: int = 1) -> str:
        out = b""
        for event in self.events():
            if isinstance(event, wire.Token | wire.Run) and event.stream == stream:
                out += event.text
        return out.decode("utf-8", "surrogatepass")

    def seqs(self, stream: int = 1) -> list[int]:
        """Those of a stream's events, each of a folded run by itself."""
        seqs: list[int] = []
        for event in self.events():
            if event.stream == stream:
                count = 1
                if isinstance(event, wire.Run):
                    count = sum(1 for b in event.lengths if b < 0x80)
                seqs += range(event.seq, event.seq + count)
        return seqs


class FakeDaemon:
    """`path` is its socket. `answer(peer, request)` is called for each request."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.peers: list[Peer] = []
        self.answer: Callable[[Peer, Any], None] = lambda peer, request: None
        self.welcome = wire.Welcome(1, "fake", b"L" * 16, 1 << 20, (1 << 20) - 4096)
        self.greets = True
        self.reading = threading.Event()
        self.reading.set()
        self.parked = threading.Event()
        """Set once a connection's reader has seen that `reading` is off."""
        self._changed = threading.Condition()
        self._stopping = False
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []

    def start(self) -> FakeDaemon:
        self._stopping = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen(64)
        self._spawn(self._accept, self._listener)
        return self

    def stop(self) -> None:
        """Die: every connection ends, the socket file goes."""
        self._stopping = True
        self.reading.set()
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
            os.unlink(self.path)
        for peer in self.peers:
            with contextlib.suppress(OSError):
                peer.socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(WAIT_SECONDS)
        self._threads.clear()

    def agents(self) -> list[Peer]:
        return [peer for peer in self.peers if peer.role == "agent"]

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until something said makes `condition` true; its value."""
        deadline = time.monotonic() + WAIT_SECONDS
        with self._changed:
            while not (value := condition()):
                left = deadline - time.monotonic()
                assert left > 0, f"never came: {[p.messages[-3:] for p in self.peers]}"
                self._changed.wait(min(left, 0.05))
            return value

    def agent(self, nth: int = 0) -> Peer:
        """The nth agent connection, once it is there."""
        peer: Peer = self.until(lambda: len(self.agents()) > nth and self.agents()[nth])
        return peer

    def answers(self, value: Any) -> None:
        """From here on every request gets `value`."""
        encoded = msgspec.msgpack.encode(value)
        self.answer = lambda peer, request: peer.say(wire.Answer(request.id, encoded))

    def requests(self) -> list[Any]:
        return [m for p in self.peers for m in p.messages if hasattr(m, "id")]

    def has_text(self, text: str, nth: int = 0, stream: int = 1) -> Peer:
        peer = self.agent(nth)
        self.until(lambda: peer.text(stream) == text)
        return peer

    def fill(self, client: ClientBase, reply: ReplyBase) -> None:
        """Send until the daemon takes no more, the kernel is full and something waits."""
        self.parked.clear()
        self.reading.clear()
        sent = 0
        while True:
            lags = reply.token("0123456789" * 50) != reply.sent_seq
            if lags and self.parked.is_set():
                connection = client._link._socket
                assert connection is not None
                # Not select(2): it takes no descriptor above 1,023.
                waits = select.poll()
                waits.register(connection, select.POLLOUT)
                if not waits.poll(0):
                    return
            sent += 1
            assert sent < 1_000_000

    def _spawn(self, target: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=target, args=given, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _accept(self, listener: socket.socket) -> None:
        while not self._stopping:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            peer = Peer(connection)
            with self._changed:
                self.peers.append(peer)
            if self._stopping:  # `stop` may have been through its peers by now
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._spawn(self._serve, peer)

    def _serve(self, peer: Peer) -> None:
        buffer = b""
        with peer.socket:
            while True:
                if not self.reading.is_set():
                    self.parked.set()
                    self.reading.wait()
                try:
                    received = peer.socket.recv(1 << 16)
                except OSError:
                    received = b""
                if not received:
                    break
                bodies, buffer = framing.split(buffer + received)
                for body in bodies:
                    self._heard(peer, body)
        with self._changed:
            peer.ended = True
            self._changed.notify_all()

    def _heard(self, peer: Peer, body: bytes) -> None:
        decoder = _from_query if peer.role == "query" else _from_agent
        message = decoder.decode(body)
        with self._changed:
            peer.bodies.append(body)
            peer.messages.append(message)
            if isinstance(message, wire.Hello):
                peer.role = message.role
                if self.greets:
                    with contextlib.suppress(OSError):  # it may have said all and gone
                        peer.say(self.welcome)
            self._changed.notify_all()
        if peer.role == "query" and not isinstance(message, wire.Hello):
            with contextlib.suppress(OSError):
                self.answer(peer, message)


@contextlib.contextmanager
def fake_daemon(path: str) -> Iterator[FakeDaemon]:
    daemon = FakeDaemon(path).start()
    try:
        yield daemon
    finally:
        daemon.stop()


def soon(condition: Callable[[], object]) -> None:
    """Wait for another thread of this process; the bound only ends a test that has failed."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "never came"
        time.sleep(0.002)
