"""Query connections: one task each, one answer after another.

Owns: a connection's frames, turns, and what becomes of a failure. Refuses: what a request means
(`recovery.py` of replies, `session_requests.py` of sessions), agents' events.
"""

from __future__ import annotations

import logging
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from walld_client.wire import messages as wire
from walld_client.wire.framing import FrameTooLong, encode, frame_bytes, split

from walld import limits
from walld.engine.illegal import explain
from walld.errors import FormatError, ProtocolError, Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from walld.daemon.connections import Connections
    from walld.engine.engine import Engine
    from walld.engine.peer import Connection

__all__ = ["Requests"]

_log = logging.getLogger("walld.requests")
_WAIT_SECONDS = 1.5
"""How long a request waits for a start to end."""
_SEND_SECONDS = 30.0
_ALWAYS = (wire.Status, wire.Metrics)
"""Answered also while the log is being read."""
_IN_TURN = (
    wire.Recover,
    wire.List,
    wire.HasPartial,
    wire.Events,
    wire.Project,
    wire.Sessions,
    wire.GetArtifact,
)
"""What takes turns. Not what waits for the disk; not what must be answered meanwhile."""
_READ_BYTES = 64 * 1024
_encoder = msgspec.msgpack.Encoder()


class Requests:
    """Answers queries for one daemon."""

    def __init__(
        self,
        engine: Engine,
        connections: Connections,
        answers: dict[type, Callable[[Connection, Any], Awaitable[Any]]],
        status: Callable[[], object],
        exposition: Callable[[], str],
        ready: anyio.Event,
    ) -> None:
        """answers: by type of request, what gives the answer; Refusal where it cannot."""
        self._engine = engine
        self._connections = connections
        self._status = status
        self._exposition = exposition
        self._ready = ready
        self._turns: dict[int, anyio.Semaphore] = {}
        """By uid of the peer: who asks without end waits for himself, not agents for him."""
        self._decode = msgspec.msgpack.Decoder(wire.FromQuery).decode
        self._answers = answers | {
            wire.Status: self._say_status,
            wire.Metrics: self._say_metrics,
        }

    async def serve(self, peer: socket.socket, connection: Connection, rest: bytes) -> None:
        """One query connection until it ends. Closes the socket."""
        buffer, since = bytearray(rest), anyio.current_time()
        try:
            while True:
                if len(buffer) >= frame_bytes(buffer):
                    # Looked at when a frame is whole, and not at each of its bytes that comes.
                    bodies, left = split(bytes(buffer))
                    buffer = bytearray(left)
                    if buffer:
                        since = anyio.current_time()
                    for body in bodies:
                        await self._answer(peer, connection, body)
                self._connections.collects(connection, len(buffer))
                if buffer:
                    with anyio.fail_after(self._left(since)):
                        data = await _receive(peer)
                else:
                    data = await _receive(peer)
                if not data:
                    return
                is_first = not buffer
                buffer += data
                if is_first and len(buffer) < frame_bytes(buffer):
                    since = anyio.current_time()
        except FrameTooLong as error:
            await self._close_with(
                peer, "frame_too_long", "a frame is longer than is taken", error.got, error.limit
            )
        except ProtocolError as error:
            await self._close_with(peer, error.code, error.message, error.got, error.limit)
        except TimeoutError:
            text = "a frame was not whole in time, or an answer not read"
            limit = f"{limits.FRAME_SECONDS_MAX:g} s, {_SEND_SECONDS:g} s"
            await self._close_with(peer, "slow_frame", text, f"{len(buffer)} bytes", limit)
        except OSError:
            pass  # the peer is gone
        finally:
            peer.close()
            self._connections.query_ended(connection)

    @staticmethod
    def _left(since: float) -> float:
        """Seconds until a frame that was begun then must be whole."""
        return max(0.0, since + limits.FRAME_SECONDS_MAX - anyio.current_time())

    async def _close_with(
        self, peer: socket.socket, code: str, message: str, got: object, limit: object
    ) -> None:
        self._engine.counters.protocol_errors[code] += 1
        with suppress(OSError, TimeoutError):  # it may be gone
            await _send(peer, encode(wire.Error(code, message, str(got), str(limit))))

    async def _answer(self, peer: socket.socket, connection: Connection, body: bytes) -> None:
        try:
            request = self._decode(body)
        except Exception as error:
            answer = explain(body, error, "query")
            assert isinstance(answer, wire.Error)
            if not answer.id:
                # Not by a name of its own: frame and exception would hold each other, and a MiB.
                raise ProtocolError(answer.code, answer.message, answer.got, answer.limit) from None
            self._engine.counters.protocol_errors[answer.code] += 1
            await _send(peer, encode(answer))
            return
        if isinstance(request, wire.Hello):
            raise ProtocolError("not_hello", "Hello came twice", "Hello", "a request")
        try:
            if not self._ready.is_set() and type(request) not in _ALWAYS:
                with anyio.move_on_after(_WAIT_SECONDS):
                    await self._ready.wait()
                if not self._ready.is_set():
                    raise Refusal("recovering", "the log is still being read; ask again")
            if isinstance(request, _IN_TURN):
                turns = self._turns.get(connection.uid)
                if turns is None:
                    turns = anyio.Semaphore(limits.REQUESTS_PER_UID_MAX, fast_acquire=True)
                    self._turns[connection.uid] = turns
                async with turns:
                    result = await self._answers[type(request)](connection, request)
            else:
                result = await self._answers[type(request)](connection, request)
        except Refusal as failed:
            if isinstance(request, wire.Recover):
                self._engine.counters.recoveries["unavailable"] += 1
            self._engine.counters.protocol_errors[failed.code] += 1
            no = wire.Error(failed.code, str(failed), failed.got, failed.limit, id=request.id)
            await _send(peer, encode(no))
            return
        except (OSError, FormatError) as error:
            if isinstance(request, wire.Recover):
                self._engine.counters.recoveries["unavailable"] += 1
            _log.error("request %s: %s", type(request).__name__, error)
            failure = wire.Error("unreadable", str(error), id=request.id)
            await _send(peer, encode(failure))
            return
        except Exception:
            # Our own bug, met by one question: everybody else's events must not pay for it.
            _log.exception("request %s failed", type(request).__name__)
            await _send(peer, encode(wire.Error("internal", "a bug; see the log", id=request.id)))
            return
        payload = _encoder.encode(result)
        for start in range(0, len(payload), limits.ANSWER_CHUNK_BYTES):
            stop = start + limits.ANSWER_CHUNK_BYTES
            chunk = wire.Answer(request.id, payload[start:stop], last=stop >= len(payload))
            await _send(peer, encode(chunk))

    # --- about the daemon -------------------------------------------------------------------------

    async def _say_status(self, _connection: Connection, _request: wire.Status) -> object:
        return self._status()

    async def _say_metrics(self, _connection: Connection, _request: wire.Metrics) -> str:
        return self._exposition()


async def _receive(peer: socket.socket) -> bytes:
    while True:
        try:
            return peer.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            await anyio.wait_readable(peer)


async def _send(peer: socket.socket, data: bytes) -> None:
    """All of it, or TimeoutError where the peer does not read."""
    sent = 0
    deadline = time.monotonic() + _SEND_SECONDS
    while True:
        try:
            sent += peer.send(data[sent:] if sent else data)
        except (BlockingIOError, InterruptedError):
            with anyio.fail_after(max(0.0, deadline - time.monotonic())):
                await anyio.wait_writable(peer)
            continue
        if sent == len(data):
            return
