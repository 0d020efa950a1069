"""Query connections: one task each, one answer after another.

Owns: what a request means, who may ask for what, and reading one's own writes. Refuses: agents'
events, reading files itself (`reading.py`).

Invariants
- Q1 "Nothing" is said only when it is proven: the log has been scanned, and what the asking process
  has handed the kernel is taken in. Otherwise the answer is an Error (P11).
- Q2 Keys hold the uid of the peer's credentials: one user's replies do not exist for another. Root
  and the daemon's own user may name another uid.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from walld_client.paths import path_name
from walld_client.wire import messages as wire
from walld_client.wire.framing import FrameTooLong, encode, frame_bytes, split

from walld import limits
from walld.engine.illegal import explain
from walld.errors import FormatError, ProtocolError
from walld.wal.layout import Flag

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from walld.daemon.connections import Connections
    from walld.daemon.flusher import Flusher
    from walld.daemon.intake import Intake
    from walld.daemon.keeper import Keeper
    from walld.daemon.reading import Reader
    from walld.engine.engine import Engine
    from walld.engine.peer import Connection
    from walld.engine.stream import Stream

__all__ = ["Requests"]

_log = logging.getLogger("walld.requests")
_WAIT_SECONDS = 1.5
"""How long a request waits for a start to end, or for its own process's events."""
_SEND_SECONDS = 30.0
_ALWAYS = (wire.Status, wire.Metrics)
"""Answered also while the log is being read."""
_RECOVERING = (wire.Recover, wire.List, wire.HasPartial)
"""What takes turns. Not Resolve, which waits for the disk; not what must be answered meanwhile."""
_READ_BYTES = 64 * 1024
_encoder = msgspec.msgpack.Encoder()


class _Failed(Exception):
    """The request cannot be answered."""

    def __init__(self, code: str, message: str, got: object = "", limit: object = "") -> None:
        super().__init__(message)
        self.code, self.got, self.limit = code, str(got), str(limit)


class Requests:
    """Answers queries for one daemon."""

    def __init__(
        self,
        engine: Engine,
        intake: Intake,
        connections: Connections,
        flusher: Flusher,
        reader: Reader,
        keeper: Keeper,
        status: Callable[[], dict[str, object]],
        exposition: Callable[[], str],
        doubt: Callable[[], str | None],
        ready: anyio.Event,
    ) -> None:
        """doubt: why "nothing there" cannot be said, None where it can."""
        self._engine = engine
        self._intake = intake
        self._connections = connections
        self._flusher = flusher
        self._reader = reader
        self._keeper = keeper
        self._status = status
        self._exposition = exposition
        self._doubt = doubt
        self._ready = ready
        self._turns: dict[int, anyio.Semaphore] = {}
        """By uid of the peer: who asks without end waits for himself, not agents for him."""
        self._decode = msgspec.msgpack.Decoder(wire.FromQuery).decode
        self._answers: dict[type, Callable[[Connection, Any], Awaitable[Any]]] = {
            wire.Recover: self._recover,
            wire.HasPartial: self._has_partial,
            wire.Resolve: self._resolve,
            wire.List: self._list,
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
                    buffer, since = bytearray(left), anyio.current_time()
                    for body in bodies:
                        await self._answer(peer, connection, body)
                self._connections.collects(connection, len(buffer))
                with anyio.fail_after(self._left(since) if buffer else None):
                    data = await _receive(peer)
                if not data:
                    return
                if not buffer:
                    since = anyio.current_time()
                buffer += data
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
                    raise _Failed("recovering", "the log is still being read; ask again")
            if isinstance(request, _RECOVERING):
                turns = self._turns.get(connection.uid)
                if turns is None:
                    turns = anyio.Semaphore(limits.REQUESTS_PER_UID_MAX, fast_acquire=True)
                    self._turns[connection.uid] = turns
                async with turns:
                    result = await self._answers[type(request)](connection, request)
            else:
                result = await self._answers[type(request)](connection, request)
        except _Failed as failed:
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

    # --- who may ask, and when ------------------------------------------------------------------

    @staticmethod
    def _uid(connection: Connection, uid: int | None) -> int:
        if uid is None or uid == connection.uid:
            return connection.uid
        if connection.uid not in (0, os.geteuid()):
            raise _Failed(
                "foreign_uid", "only root and the daemon's user see others", uid, connection.uid
            )
        return uid

    async def _taken(self, connection: Connection, seen: list[wire.Seen]) -> None:
        """Wait until what the asking process has sent is taken in, and what the dead left (Q1)."""
        await self._intake.catch_up()
        if not seen or all(self._has_taken(connection, item) for item in seen):
            return
        with anyio.move_on_after(_WAIT_SECONDS):
            while True:
                self._intake.kick()
                await anyio.sleep(0.001)
                if all(self._has_taken(connection, item) for item in seen):
                    return
        raise _Failed("behind", "not everything this process sent has arrived; ask again")

    def _has_taken(self, connection: Connection, seen: wire.Seen) -> bool:
        producer = self._engine.registry.producers.get((connection.uid, seen.producer))
        if producer is None:
            return False
        stream = producer.streams.get(seen.stream)
        if stream is None:
            return seen.stream <= producer.number_max or seen.stream in producer.refused
        return stream.next_seq > seen.seq

    # --- answers --------------------------------------------------------------------------------

    async def _recover(self, connection: Connection, request: wire.Recover) -> list[wire.Recovered]:
        if request.which not in ("latest", "all", "orphans"):
            raise _Failed(
                "bad_request", "no such choice", request.which[:40], "latest, all, orphans"
            )
        if request.which == "latest" and request.session_id is None and request.stream_id is None:
            raise _Failed("bad_request", "latest of what?", "neither", "session_id or stream_id")
        uid = self._uid(connection, request.uid)
        await self._taken(connection, request.seen)
        replies = await self._replies(uid, request)
        if not replies:
            self._prove_nothing()
        outcome = "found" if replies else "nothing"
        self._engine.counters.recoveries[outcome] += 1
        return replies

    async def _replies(self, uid: int, request: wire.Recover) -> list[wire.Recovered]:
        streams, names = self._candidates(uid, request.session_id, request.stream_id)
        if request.which == "orphans":
            streams = [stream for stream in streams if stream.lost_reason is not None]
        if request.which == "latest" and len(streams) + len(names) > 1:
            streams, names = await self._latest(uid, streams, names)
        try:
            found = await self._reader.replies(uid, streams, names)
        finally:
            await self._keeper.set_aside_damaged()
        # A stream that was kept while this was read may be there twice: once by its id.
        found.sort(key=lambda pair: pair[0])
        return list({reply.stream_id: reply for _, reply in found}.values())

    def _candidates(
        self, uid: int, session_id: str | None, stream_id: str | None
    ) -> tuple[list[Stream], list[tuple[str, str]]]:
        """Streams in the log, and names of partials that are not among them."""
        registry, kept = self._engine.registry, self._engine.kept
        if stream_id is not None:
            stream = registry.by_key.get((uid, stream_id))
            streams = [] if stream is None else [stream]
            where = kept.where(uid, stream_id)
            names = [] if where is None else [where]
        elif session_id is not None:
            streams = registry.of_session(uid, session_id)
            session = path_name(session_id)
            names = [(session, name) for name in kept.of_session(uid, session_id)]
        else:
            streams = [s for s in registry.by_no.values() if s.begin.uid == uid]
            names = [(session, name) for _, session, name in kept.all_names(uid)]
        own = {kept.by_no.get(stream.no) for stream in streams}
        names = [name for name in names if (uid, *name) not in own]
        if session_id is not None and stream_id is not None:
            session = path_name(session_id)
            streams = [stream for stream in streams if stream.session_id == session_id]
            names = [name for name in names if name[0] == session]
        return streams, names

    async def _latest(
        self, uid: int, streams: list[Stream], names: list[tuple[str, str]]
    ) -> tuple[list[Stream], list[tuple[str, str]]]:
        """The one that began last; stream numbers only grow."""
        kept = await self._reader.orders(uid, names) if names else []
        last_kept = max(kept, default=None)
        last = max(streams, key=lambda stream: stream.no, default=None)
        if last_kept is None or (last is not None and (True, last.no) > last_kept[0]):
            return ([] if last is None else [last]), []
        return [], [last_kept[1]]

    async def _has_partial(self, connection: Connection, request: wire.HasPartial) -> bool:
        await self._taken(connection, request.seen)
        key = (connection.uid, request.session_id)
        if key in self._engine.registry.by_session or self._engine.kept.of_session(*key):
            return True
        self._prove_nothing()
        return False

    def _prove_nothing(self) -> None:
        """Raises where damaged bytes may hold what was asked for (Q1)."""
        doubt = self._doubt()
        if doubt is not None:
            raise _Failed("unreadable", doubt)

    async def _resolve(self, connection: Connection, request: wire.Resolve) -> bool:
        uid = self._uid(connection, request.uid)
        await self._taken(connection, request.seen)
        stream = self._engine.registry.by_key.get((uid, request.stream_id))
        if stream is not None:
            if stream.lost_reason is None:
                raise _Failed("refused", "its owner is alive: only it may release", "alive", "gone")
            self._check_grown(stream.next_seq - 1, request.last_seq)
            now = anyio.current_time()
            written = anyio.Event()
            self._engine.release(stream, Flag.RESOLVED, now)
            self._engine.when("written", written.set, now)
            self._flusher.wake()
            await written.wait()
            return True
        where = self._engine.kept.where(uid, request.stream_id)
        if where is None:
            return False
        try:
            facts = await self._keeper.facts(uid, *where)
            self._check_grown(facts.last_seq, request.last_seq)
            await self._keeper.resolve_partial(uid, *where)
        except FileNotFoundError:
            return False  # somebody else resolved it meanwhile
        return True

    @staticmethod
    def _check_grown(last_seq: int, seen_seq: int | None) -> None:
        if seen_seq is not None and last_seq > seen_seq:
            text = "it has grown since you read it: recover it again"
            raise _Failed("refused", text, seen_seq, last_seq)

    async def _list(self, connection: Connection, request: wire.List) -> list[wire.Recovered]:
        uid = self._uid(connection, request.uid)
        await self._taken(connection, [])
        every = wire.Recover(request.id, "all", uid=uid)
        return [
            msgspec.structs.replace(reply, segments=[])
            for reply in await self._replies(uid, every)
            if reply.session_id.startswith(request.prefix)
        ]

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
