"""The client for asyncio programs: sends are plain calls, requests are awaited.

Owns: the awaiting. Refuses: everything else; sending, requests and their meaning are those of the
blocking client. Sending needs no await because it never waits.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from walld_client import shared
from walld_client.aio_query import AsyncQuery
from walld_client.client import ClientBase, is_enabled
from walld_client.errors import Unavailable
from walld_client.limits import BACKLOG_BYTES_MAX, CLOSE_SECONDS, TIMEOUT_SECONDS
from walld_client.partial import PartialReply, from_recovered
from walld_client.reply import ReplyBase, check_level
from walld_client.requests import decode_bool, decode_replies

__all__ = ["Client", "Reply", "connect"]


class Reply(ReplyBase):
    """A reply in an asyncio program: `async with` (or `with`), and a drain that is awaited."""

    __slots__ = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(exc_type, exc, traceback)

    async def drain(self, timeout: float = TIMEOUT_SECONDS, level: str = "written") -> bool:  # noqa: ASYNC109
        """Wait until all that was sent so far is at `level`. False: not within `timeout`."""
        check_level(level)
        reached: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        drain_id = self._link.drain(level, _settler(reached))
        try:
            async with asyncio.timeout(timeout):
                return await reached
        except TimeoutError:
            return False
        finally:
            self._link.forget_drain(drain_id)


class Client(ClientBase):
    """A connection to walld for asyncio programs."""

    def __init__(
        self,
        socket: str | os.PathLike[str] | None,
        data: str | os.PathLike[str] | None,
        timeout: float,
        backlog_bytes_max: int,
        redact: Callable[[str], str] | None,
    ) -> None:
        super().__init__(socket, data, timeout, backlog_bytes_max, redact)
        self._query = AsyncQuery(self._locate, timeout)

    def reply(
        self,
        session_id: str,
        *,
        stream_id: str | None = None,
        turn_id: str | None = None,
        parent: str | None = None,
        auto_release: bool = True,
        **meta: Any,
    ) -> Reply:
        """Open a reply. Use it as a context manager; `end()` it once your copy is saved."""
        stream = self._begin(session_id, stream_id, turn_id, parent, meta)
        return Reply(self._link, stream, self._redact, auto_release)

    async def recover(
        self, session_id: str | None = None, *, stream_id: str | None = None
    ) -> PartialReply | None:
        """The latest unreleased reply. None: there is nothing, proven.

        Raises Unavailable where that cannot be known.
        """
        replies = await self._replies("latest", session_id, stream_id)
        return replies[-1] if replies else None

    async def recover_all(self, session_id: str | None = None) -> list[PartialReply]:
        """Every unreleased reply, in the order in which they began."""
        return await self._replies("all", session_id, None)

    async def orphans(self, session_id: str | None = None) -> list[PartialReply]:
        """Unreleased replies whose process is gone: the only ones to adopt."""
        return await self._replies("orphans", session_id, None)

    async def has_partial(self, session_id: str) -> bool | None:
        """Is there an unreleased reply of this session? None: cannot know."""
        ask = self._has_partial(session_id)
        try:
            return decode_bool(await self._query.ask(ask))
        except Unavailable as error:
            return self._kept_offline(error, session_id)

    async def resolve(self, stream_id: str, last_seq: int | None = None) -> bool:
        """Remove a reply whose owner is gone, once it is saved. False: there is none such.

        Raises Refused where it has grown beyond `last_seq` or its owner lives.
        """
        return decode_bool(await self._query.ask(self._resolve(stream_id, last_seq)))

    async def close(self, timeout: float = CLOSE_SECONDS) -> bool:  # noqa: ASYNC109
        """Wait for the kernel to take the rest, at most `timeout`; True if it has. Then let go."""
        if self._closed:
            return True
        self._closed = True
        self._query.close()
        loop = asyncio.get_running_loop()
        flushed: asyncio.Future[bool] = loop.create_future()
        settle = _settler(flushed)
        done = self._link.flush(lambda: settle(True))
        if not done and self._link.dialing.connections > 0:
            done = await _within(timeout, flushed)
        if shared.part(self._key, self._link):
            closed: asyncio.Future[bool] = loop.create_future()
            tell = _settler(closed)
            self._link.shut(lambda: tell(True))
            await _within(CLOSE_SECONDS, closed)
        return done

    async def _replies(
        self, which: str, session_id: str | None, stream_id: str | None
    ) -> list[PartialReply]:
        ask = self._recover(which, session_id, stream_id)
        try:
            answer = await self._query.ask(ask)
        except Unavailable as error:
            self._proven_empty(error, session_id)
            return []
        return [from_recovered(one) for one in decode_replies(answer)]


def connect(
    socket: str | os.PathLike[str] | None = None,
    *,
    data: str | os.PathLike[str] | None = None,
    timeout: float = TIMEOUT_SECONDS,
    backlog_bytes_max: int = BACKLOG_BYTES_MAX,
    redact: Callable[[str], str] | None = None,
) -> Client:
    """A client for asyncio; the arguments are those of `walld_client.connect`."""
    if not is_enabled():
        from walld_client.aio_null import AsyncNullClient

        return AsyncNullClient()
    return Client(socket, data, timeout, backlog_bytes_max, redact)


def _settler(future: asyncio.Future[bool]) -> Callable[[bool], None]:
    """Settles the future from any thread; too late, or in a loop that is closed, does nothing."""
    loop = future.get_loop()

    def settle(value: bool) -> None:
        if not future.done():
            future.set_result(value)

    def done(value: bool) -> None:
        try:
            loop.call_soon_threadsafe(settle, value)
        except RuntimeError:  # the loop is closed: nobody waits
            return

    return done


async def _within(timeout: float, future: asyncio.Future[bool]) -> bool:  # noqa: ASYNC109
    try:
        async with asyncio.timeout(timeout):
            return await future
    except TimeoutError:
        return False
