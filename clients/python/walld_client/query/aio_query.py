"""A query connection for asyncio, kept open between requests.

Owns: the non-blocking socket of a client's requests, moved by the running loop. Refuses: what a
request means (`aio.py`), bytes to answers (`requests.py`), who has it now (`aio_pool.py`).

A cancelled request leaves its answer on the way, so its connection is closed. A connection belongs
to the loop it was made in; in another loop another one is made.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

import msgspec
from walld_client.errors import Refused, Unavailable
from walld_client.limits import BACKOFF_SECONDS_MIN
from walld_client.link import process
from walld_client.link.socket_path import check_server
from walld_client.query.query import AGAIN_SECONDS_MIN, unreachable
from walld_client.query.requests import Conversation, NotYet, Stale
from walld_client.query.sync_tokens import SyncTokens

__all__ = ["AsyncQuery"]

_READ_BYTES = 64 * 1024


class AsyncQuery:
    """The query connection of an asyncio client, made when it is first needed and kept."""

    def __init__(
        self, locate: Callable[[], str], timeout: float, sync_tokens: SyncTokens | None = None
    ) -> None:
        self._locate = locate
        self._timeout = timeout
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket: socket.socket | None = None
        self._sync_tokens = sync_tokens or SyncTokens()
        self._conversation = Conversation(self._sync_tokens)
        self._was_there = False
        self._deadline = 0.0
        """Of the request at hand, by its loop's clock."""
        process.register(self)

    async def ask(
        self,
        make: Callable[[int], msgspec.Struct],
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        again: bool = True,
    ) -> bytes:
        """Send the request that `make` builds for an id, and wait for its whole answer.

        Raises Unavailable (its cause is the OSError, where there is one) or Refused. A kept
        connection that turns out to be dead is made anew, once. again, and a daemon that still
        reads its log: as in query.py.
        """
        process.check_fork()
        seconds = self._timeout if timeout is None else timeout
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self.close()
            self._loop = loop
        self._conversation.said = None
        self._deadline = loop.time() + seconds
        try:
            async with asyncio.timeout(seconds):
                try:
                    return await self._exchange(loop, make, again)
                except Stale:  # as in query.py
                    return await self._exchange(loop, make, again=False)
        except TimeoutError as error:
            raise self.late(seconds) from error

    def late(self, seconds: float) -> Unavailable:
        """What to raise where no answer came in time."""
        return self._conversation.late(seconds)

    def close(self) -> None:
        """End the connection; the next request makes another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def forked(self) -> None:
        """In the child of a fork: the connection is the parent's, and so is the loop."""
        process.leave_to_parent(self._socket)
        self._socket = None
        self._loop = None

    async def _exchange(
        self, loop: asyncio.AbstractEventLoop, make: Callable[[int], msgspec.Struct], again: bool
    ) -> bytes:
        try:
            if self._socket is None:
                await self._open(loop)
            while True:
                await self._send(loop, self._conversation.request(make))
                try:
                    return await self._answer(loop)
                except NotYet:  # it has waited for as long as it holds a request back
                    if loop.time() + AGAIN_SECONDS_MIN > self._deadline:
                        raise
                    await asyncio.sleep(BACKOFF_SECONDS_MIN)
                except Stale as error:
                    if again:
                        raise
                    text = f"{error}; whether it did what was asked is not known"
                    raise Unavailable(text) from error
        except (Refused, ValueError):
            if self._conversation.is_over:
                self.close()
            raise  # an answer like any other, or nothing was sent: the connection is good
        except BaseException:
            self.close()
            raise

    async def _answer(self, loop: asyncio.AbstractEventLoop) -> bytes:
        while True:
            answer = self._conversation.feed(await self._received(loop))
            if answer is not None:
                return answer

    async def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Connect and be welcomed. One that ends before met a daemon on its way out: try again."""
        while True:
            try:
                await self._greet(loop)
                return
            except Stale:
                self.close()
                if not self._was_there:
                    raise
            await asyncio.sleep(BACKOFF_SECONDS_MIN)

    async def _greet(self, loop: asyncio.AbstractEventLoop) -> None:
        self._socket = await self._connected(loop)
        self._conversation = Conversation(self._sync_tokens)
        with suppress(Stale):  # who is not let in is told why before: that is read next
            await self._send(loop, self._conversation.hello())
        while self._conversation.welcome is None:
            self._conversation.feed(await self._received(loop))
        self._was_there = True

    async def _connected(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        """Connect; where a daemon was there before, give the next one time to come up."""
        while True:
            connection: socket.socket | None = None
            path = "(no socket)"
            try:
                path = self._locate()
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                connection.setblocking(False)
                await loop.sock_connect(connection, path)
                check_server(connection, path)
            except OSError as error:
                _close(connection)
                may_pass = self._was_there or isinstance(error, BlockingIOError)
                if not may_pass or loop.time() + AGAIN_SECONDS_MIN > self._deadline:
                    raise unreachable(path, error) from error
            except BaseException:
                _close(connection)
                raise
            else:
                return connection
            await asyncio.sleep(BACKOFF_SECONDS_MIN)

    async def _send(self, loop: asyncio.AbstractEventLoop, frame: bytes) -> None:
        assert self._socket is not None, "opened before"
        try:
            await loop.sock_sendall(self._socket, frame)
        except OSError as error:
            raise Stale(f"the connection to walld is gone: {error}") from error

    async def _received(self, loop: asyncio.AbstractEventLoop) -> bytes:
        assert self._socket is not None, "opened before"
        try:
            received = await loop.sock_recv(self._socket, _READ_BYTES)
        except OSError as error:
            raise Stale(f"the connection to walld is gone: {error}") from error
        if not received:
            raise Stale("walld closed the connection before it answered")
        return received


def _close(connection: socket.socket | None) -> None:
    if connection is not None:
        connection.close()
