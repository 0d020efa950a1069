"""Serves query connections: a task each, one answer after another.

Owns: a connection's frames, turns, and what becomes of a failure. Refuses: what a request means
(`replies.py` of replies, `sessions.py` of sessions), agents' events, who has hung up
(`query_sockets.py`).

Appends that come together are taken one after another, wait for one write together, and are
answered then. One that is read to its end is done also where its answer cannot be sent (P1).
"""

from __future__ import annotations

import logging
import os
import socket
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from walld_client.wire import messages as wire
from walld_client.wire.framing import FrameTooLong, encode, frame_bytes, split

from walld import limits
from walld.daemon import event_loop
from walld.daemon.api.paged_answers import PagedLines
from walld.daemon.api.rate_limit import RateLimit
from walld.daemon.api.response_buffers import ResponseBuffer, ResponseBuffers
from walld.engine.protocol_errors import explain
from walld.errors import FormatError, ProtocolError, Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from walld.daemon.api.replies import ReplyRequests
    from walld.daemon.api.sessions import SessionRequests, Taken
    from walld.daemon.transport.connections import Connections
    from walld.daemon.transport.query_sockets import QuerySocket
    from walld.engine.engine import Engine
    from walld.engine.stream import Connection

__all__ = ["QueryServer"]

_log = logging.getLogger("walld.requests")
_WAIT_SECONDS = 1.5
"""How long a request waits for a start to end."""
_ALWAYS = (wire.Status, wire.Metrics)
"""Answered also while the log is being read."""
_IN_TURN = (
    wire.Recover,
    wire.List,
    wire.HasPartial,
    wire.Events,
    wire.Project,
    wire.Sessions,
)
"""What takes turns. Not what waits for the disk; not what must be answered meanwhile."""
_WHOLE = (wire.GetArtifact, wire.PutArtifact)
"""What may read an artifact from end to end, whatever is asked: one at a time of each user."""
_CHANGES = (
    wire.Append,
    wire.Attest,
    wire.Delete,
    wire.DeleteAt,
    wire.Fork,
    wire.PutArtifact,
    wire.Resolve,
)
"""Done also where nobody hears the answer."""
_READ_BYTES = 64 * 1024
_FIRST_READ_BYTES = 8 * 1024
"""Of requests that follow one another: those are in memory while the first is answered."""
_SHOWN_MAX = limits.ID_BYTES_MAX + 200
"""Characters of each text of an Error: an id and what is said of it."""
_encoder = msgspec.msgpack.Encoder()


class QueryServer:
    """Answers queries for one daemon."""

    def __init__(
        self,
        engine: Engine,
        connections: Connections,
        replies: ReplyRequests,
        sessions: SessionRequests,
        status: Callable[[bool], object],
        exposition: Callable[[bool], str],
        ready: anyio.Event,
        agents_wait: Callable[[], bool],
        other_users_wait: Callable[[int], bool],
        made_at_ms: Callable[[], int],
    ) -> None:
        """status, exposition: given whether who asks may see what others say, or coarse numbers.

        made_at_ms: when the directory was made, 0 where that is not known.
        """
        self._engine = engine
        self._connections = connections
        self._query_sockets = connections.query_sockets
        self._sessions = sessions
        self._status = status
        self._exposition = exposition
        self._ready = ready
        self._turns: dict[int, anyio.Semaphore] = {}
        """By uid of the peer: who asks without end waits for himself, not agents for him."""
        self._wholes: dict[int, anyio.Lock] = {}
        """By uid of the peer: the files' thread has others' sessions to open."""
        self._made_at_ms = made_at_ms
        self._rate_limit = RateLimit(agents_wait, other_users_wait)
        self._held = ResponseBuffers()
        self._decode = msgspec.msgpack.Decoder(wire.FromQuery).decode
        self._answers: dict[type, Callable[[Connection, Any], Awaitable[Any]]] = {
            **replies.answers,
            **sessions.answers,
            wire.Status: self._say_status,
            wire.Metrics: self._say_metrics,
        }
        """By type of request, what gives the answer; Refusal where it cannot."""

    async def serve(self, peer: socket.socket, connection: Connection, rest: bytes) -> None:
        """One query connection until it ends. Closes the socket."""
        caller = self._query_sockets.add(peer, connection)
        readable = event_loop.Readable(peer)
        buffer, since = bytearray(rest), event_loop.now()
        requests = self._held.requests_of(connection.uid)
        heard = 0
        try:
            while True:
                if len(buffer) >= frame_bytes(buffer):
                    # Looked at when a frame is whole, and not at each of its bytes that comes.
                    bodies, left = split(bytes(buffer))
                    buffer = bytearray(left)
                    if buffer:
                        since = event_loop.now()
                    await self._answer_all(caller, bodies)
                    del bodies, left
                    requests.free()
                announced = frame_bytes(buffer)
                if announced > _FIRST_READ_BYTES and await requests.reserve(announced):
                    since = event_loop.now()  # it was not read meanwhile
                if caller.takes_no_answers:
                    data = _what_is_there(peer) if heard <= limits.SOCKET_BYTES_MAX else b""
                    heard += len(data)
                elif buffer:
                    data = await self._receive(caller, readable, since=since)
                else:
                    data = await self._receive(caller, readable, _FIRST_READ_BYTES)
                if not data:
                    return
                is_first = not buffer
                buffer += data
                del data  # a connection that says nothing more holds nothing
                if is_first and len(buffer) < frame_bytes(buffer):
                    since = event_loop.now()
        except FrameTooLong as error:
            await self._close_with(
                caller, "frame_too_long", "a frame is longer than is taken", error.got, error.limit
            )
        except ProtocolError as error:
            await self._close_with(caller, error.code, error.message, error.got, error.limit)
        except TimeoutError:
            text, limit = "a frame was not whole in time", f"{limits.FRAME_SECONDS_MAX:g} s"
            await self._close_with(caller, "slow_frame", text, f"{len(buffer)} bytes", limit)
        except (OSError, _Over):
            pass  # the peer is gone, and all it said is read; or it was told to come again
        finally:
            requests.free()
            self._query_sockets.end(caller)
            readable.close()
            peer.close()
            self._connections.query_ended(connection)

    async def _receive(
        self,
        caller: QuerySocket,
        readable: event_loop.Readable,
        count: int = _READ_BYTES,
        since: float | None = None,
    ) -> bytes:
        """What comes next. since: when the frame was begun whose rest comes, maybe byte by byte.

        TimeoutError: that had its time, and the kernel has nothing more of it. What waits there
        for this connection's turn has come.
        """
        caller.goes_on = since is not None or readable.has_come
        if caller.goes_on:
            await self._rate_limit.wait(caller.connection.uid)
        else:
            await readable.wait()  # a read that finds nothing costs as much as one that finds it
        while True:
            try:
                data = caller.socket.recv(count)
                readable.has_come = len(data) == count  # all that was asked for: there may be more
                return data
            except (BlockingIOError, InterruptedError):
                caller.goes_on = False
            if since is None:
                await readable.wait()
            elif (left := since + limits.FRAME_SECONDS_MAX - event_loop.now()) > 0:
                with anyio.move_on_after(left):
                    await readable.wait()
            else:
                raise TimeoutError

    async def _close_with(
        self, caller: QuerySocket, code: str, message: str, got: object, limit: object
    ) -> None:
        self._engine.counters.refused(code)
        await self._tell(caller, _framed(wire.Error(code, message, str(got), str(limit))))

    async def _tell(
        self, caller: QuerySocket, data: bytes, held: ResponseBuffer | None = None
    ) -> None:
        """Send it; one that does not hear it is answered no more, and its words are done.

        held: the answer that it is a piece of.
        """
        if caller.takes_no_answers:
            return
        uid = caller.connection.uid
        try:
            with nullcontext(held) if held is not None else self._held.hold(uid, len(data)) as one:
                await _send(caller.socket, data, one)
        except TimeoutError:
            # It may live and read on: then it meets the end of the connection, and asks again.
            self._engine.counters.refused("slow_frame")
            caller.takes_no_answers = True
        except OSError:
            caller.takes_no_answers = True

    # --- requests ---------------------------------------------------------------------------------

    async def _answer_all(self, caller: QuerySocket, bodies: list[bytes]) -> None:
        """Requests that came together, in their order. None is left of `bodies`."""
        taken: list[tuple[wire.Append, Taken]] = []
        for at in range(1, len(bodies) + 1):
            caller.is_done = False  # it is read, and the loop may have its turn before it is taken
            waited_for = at == 1 and not caller.goes_on
            count = len(bodies[at - 1])
            await self._rate_limit.wait(caller.connection.uid, count, is_waited_for=waited_for)
            request, bodies[at - 1] = self._decoded(bodies[at - 1]), b""
            if isinstance(request, wire.Append):
                found = await self._outcome(caller, request, self._sessions.take)
                if not isinstance(found, wire.Error):
                    taken.append((request, found))
                    continue
            caller.is_done = at == len(bodies)
            await self._answer_taken(caller, taken)
            taken.clear()
            if isinstance(request, wire.Append):
                await self._refuse(caller, request, found)
            elif isinstance(request, wire.Error):
                await self._say(caller, request, request)
            elif not caller.takes_no_answers or isinstance(request, _CHANGES):
                # Not by a name of its own: a long answer goes once its bytes are made.
                await self._say(caller, request, await self._outcome(caller, request, self._answer))
        caller.is_done = True
        await self._answer_taken(caller, taken)

    def _decoded(self, body: bytes) -> Any:
        """The request; of what is none the Error that answers it, or ProtocolError."""
        try:
            request = self._decode(body)
        except Exception as error:
            answer = explain(body, error, "query")
            assert isinstance(answer, wire.Error)
            if not answer.id:
                # Not by a name of its own: frame and exception would hold each other, and a MiB.
                raise ProtocolError(answer.code, answer.message, answer.got, answer.limit) from None
            self._engine.counters.refused(answer.code)
            return answer
        if isinstance(request, wire.Hello):
            raise ProtocolError("not_hello", "Hello came twice", "Hello", "a request")
        return request

    async def _answer_taken(
        self, caller: QuerySocket, taken: list[tuple[wire.Append, Taken]]
    ) -> None:
        """Appends whose entries are in their places: they wait for the disk together."""
        if not taken:
            return
        caller.takes_no_answers |= caller.gone_at is not None
        if not caller.takes_no_answers:
            requests = [request for request, _ in taken]
            caller.waits_for = self._sessions.reached(requests, caller.connection.uid)
            await caller.waits_for.wait()
            caller.waits_for = None
            caller.takes_no_answers |= caller.gone_at is not None
        if caller.takes_no_answers:
            return
        for request, (placed, receipt) in taken:
            answer: Any = placed
            if not all(one.id for one in placed):  # found by its key, and told with its id
                named = partial(self._sessions.named, placed=placed)
                answer = await self._outcome(caller, request, named)
            await self._say(caller, request, answer, receipt)

    async def _refuse(self, caller: QuerySocket, request: wire.Append, why: wire.Error) -> None:
        """One in order that is to be asked again: what was sent behind it must not come before it.

        Who hears that closes at once, so it is asked before whether he is still there. Of one who
        has hung up nobody asks again, and what came behind it is better than nothing.
        """
        if self._query_sockets.has_hung_up(caller.connection):
            _log.warning("an append of a process that has hung up is refused: code %s", why.code)
            return
        await self._say(caller, request, why)
        if caller.takes_no_answers:
            return  # it has hung up just now
        if request.in_order and why.code in (*wire.OF_THIS_MOMENT, *wire.OF_ITS_SESSION):
            raise _Over

    async def _answer(self, connection: Connection, request: Any) -> object:
        answer, uid = self._answers[type(request)], connection.uid
        turns: anyio.Lock | anyio.Semaphore | None
        if isinstance(request, _WHOLE):
            turns = self._wholes.setdefault(uid, anyio.Lock(fast_acquire=True))
        elif not isinstance(request, _IN_TURN):
            return await answer(connection, request)
        elif (turns := self._turns.get(uid)) is None:
            turns = anyio.Semaphore(limits.REQUESTS_PER_UID_MAX, fast_acquire=True)
            self._turns[uid] = turns
        async with turns:
            if not isinstance(request, wire.PutArtifact):
                await self._held.wait_for_room(uid)
                await self._rate_limit.wait_to_answer(uid)
            return await answer(connection, request)

    async def _until_ready(self, caller: QuerySocket) -> None:
        with anyio.move_on_after(_WAIT_SECONDS):
            await self._ready.wait()
        if self._query_sockets.has_hung_up(caller.connection):
            await self._ready.wait()  # nobody asks again
        if not self._ready.is_set():
            raise Refusal("recovering", "the log is still being read; ask again")

    async def _outcome(
        self, caller: QuerySocket, request: Any, work: Callable[[Connection, Any], Awaitable[Any]]
    ) -> Any:
        """What comes of a request: the answer's value, or the Error that is told instead."""
        try:
            if not self._ready.is_set() and type(request) not in _ALWAYS:
                await self._until_ready(caller)
            return await work(caller.connection, request)
        except Refusal as failed:
            if isinstance(request, wire.Recover):
                self._engine.counters.recovered("unavailable")
            self._engine.counters.refused(failed.code)
            return wire.Error(failed.code, str(failed), failed.got, failed.limit, id=request.id)
        except (OSError, FormatError) as error:
            if isinstance(request, wire.Recover):
                self._engine.counters.recovered("unavailable")
            _log.error("request %s: %s", type(request).__name__, error)
            return wire.Error("unreadable", str(error), id=request.id)
        except Exception:
            # Our own bug, met by one question: everybody else's events must not pay for it.
            _log.exception("request %s failed", type(request).__name__)
            return _bug(request.id)

    async def _say(
        self, caller: QuerySocket, request: Any, answer: object, receipt: bytes = b""
    ) -> None:
        if caller.takes_no_answers:
            return
        if isinstance(answer, wire.Error):
            await self._tell(caller, _framed(answer))
            return
        if isinstance(answer, PagedLines):
            await self._say_paged(caller, request, answer)
            return
        try:
            payload = _encoder.encode(answer)
        except Exception:
            # As in `_outcome`: what one has asked for is not to end what all the others say.
            _log.exception("an answer cannot be written")
            await self._tell(caller, _framed(_bug(request.id)))
            return
        del answer  # it is as long
        size, most = len(payload), limits.ANSWER_CHUNK_BYTES
        self._rate_limit.answered(caller.connection.uid, size)
        # The whole of it, and the chunk that its reader is at.
        with self._held.hold(caller.connection.uid, size + min(size, most)) as held:
            for start in range(0, size, most):
                last = (receipt, self._new_directory(request)) if start + most >= size else ()
                await self._tell(caller, _chunk(request.id, payload, start, *last), held)

    async def _say_paged(self, caller: QuerySocket, request: Any, answer: PagedLines) -> None:
        """The same chunks, of an answer that is made behind what its reader has taken."""
        made, most = bytearray(), limits.ANSWER_CHUNK_BYTES

        async def next_piece(_connection: Connection, _request: Any) -> bytes:
            return await answer.piece()

        with self._held.hold(caller.connection.uid, answer.held_bytes) as held:
            while not caller.takes_no_answers:
                piece = await self._outcome(caller, request, next_piece)
                if isinstance(piece, wire.Error):
                    await self._tell(caller, _framed(piece))
                    return
                made += piece
                # What is as long as a chunk may be the last one.
                while len(made) > most or (made and not piece):
                    is_last = not piece and len(made) <= most
                    last = (b"", self._new_directory(request)) if is_last else ()
                    chunk = wire.Answer(request.id, bytes(made[:most]), is_last, *last)
                    del made[:most]
                    await self._tell(caller, encode(chunk), held)
                if not piece:
                    return

    def _new_directory(self, request: Any) -> int:
        return self._made_at_ms() if isinstance(request, _IN_TURN) else 0

    # --- about the daemon -------------------------------------------------------------------------

    async def _say_status(self, connection: Connection, _request: wire.Status) -> object:
        return self._status(_sees_all(connection))

    async def _say_metrics(self, connection: Connection, _request: wire.Metrics) -> str:
        return self._exposition(_sees_all(connection))


class _Over(Exception):
    """A connection is ended behind the Error that says why."""


def _sees_all(connection: Connection) -> bool:
    return connection.uid in (0, os.geteuid())


def _bug(request_id: int) -> wire.Error:
    return wire.Error("internal", "a bug; see the log", id=request_id)


def _chunk(
    request_id: int, payload: bytes, start: int, receipt: bytes = b"", new_directory: int = 0
) -> bytes:
    """The frame of one chunk. What it is made of is not held while its reader takes it.

    receipt, new_directory: of the last chunk.
    """
    stop = start + limits.ANSWER_CHUNK_BYTES
    is_last = stop >= len(payload)
    return encode(wire.Answer(request_id, payload[start:stop], is_last, receipt, new_directory))


def _framed(error: wire.Error) -> bytes:
    """What is wrong may be a text that no wire takes, half of a character of somebody's id, or be
    as long as a frame.
    """
    texts = (error.message[:_SHOWN_MAX], error.got[:_SHOWN_MAX], error.limit[:_SHOWN_MAX])
    message, got, limit = (text.encode("utf-8", "backslashreplace").decode() for text in texts)
    return encode(wire.Error(error.code, message, got, limit, error.id))


def _what_is_there(peer: socket.socket) -> bytes:
    """What the kernel holds of one that is not answered any more; b"" where that is all."""
    try:
        return peer.recv(_READ_BYTES)
    except (BlockingIOError, InterruptedError):
        return b""


async def _send(peer: socket.socket, data: bytes, held: ResponseBuffer) -> None:
    """All of it, or TimeoutError where the peer does not read."""
    sent = 0
    while True:
        try:
            sent += peer.send(data[sent:] if sent else data)
        except (BlockingIOError, InterruptedError):
            await held.moves(peer)
            continue
        if sent == len(data):
            return
