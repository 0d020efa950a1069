"""The client for asyncio programs: sends are plain calls, requests are awaited.

Owns: the awaiting. Refuses: everything else; sending, requests and their meaning are those of the
blocking client. Sending needs no await because it never waits.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from walld_client.aio_steps import run
from walld_client.argument_checks import SECONDS, Count, Path, Seconds, as_declared
from walld_client.client import ClientBase, is_enabled, is_named
from walld_client.errors import Unavailable
from walld_client.first_use import first_use, loading, made
from walld_client.ids import Entry
from walld_client.limits import BACKLOG_BYTES_MAX, CLOSE_SECONDS, TIMEOUT_SECONDS
from walld_client.link_registry import WORD_SECONDS
from walld_client.reply.aio_reply import Reply, settled, settler

if TYPE_CHECKING:
    from walld_client.query.aio_pool import AsyncPool
    from walld_client.query.aio_query import AsyncQuery
    from walld_client.recovered.partial import PartialReply
    from walld_client.session.aio_session import Session
    from walld_client.session.aio_turn import Turn
    from walld_client.session.append_queue import AppendQueue
    from walld_client.session.audit import AwaitedPresent, RepairStep, Report
    from walld_client.session.ledger_steps import SessionInfo
    from walld_client.session.store_repair import startup_awaited as startup
    from walld_client.steps import Steps

__all__ = ["Client", "Reply", "Session", "Turn", "connect", "startup"]

_T = TypeVar("_T")

if not TYPE_CHECKING:  # a type checker would take every name for one of this module

    def __getattr__(name: str) -> object:
        """A session, its turn or `startup` that is used for the first time."""
        if name not in ("Session", "Turn", "startup"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with loading():
            from walld_client.session.aio_session import Session
            from walld_client.session.aio_turn import Turn
            from walld_client.session.store_repair import startup_awaited as startup

        globals().update(Session=Session, Turn=Turn, startup=startup)
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class Client(ClientBase):
    """A connection to walld for asyncio programs."""

    def __init__(
        self,
        socket: str | os.PathLike[str] | None,
        data: str | os.PathLike[str] | None,
        timeout: float,
        backlog_bytes_max: int,
        redact: Callable[[str], str] | None,
        app: str | None,
    ) -> None:
        super().__init__(socket, data, timeout, backlog_bytes_max, redact, app)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = asyncio.Lock()

    @first_use
    def _query(self) -> AsyncQuery:
        return self._new_query()

    @first_use
    def _pool(self) -> AsyncPool:
        """What everything is asked on."""
        from walld_client.query.aio_pool import AsyncPool

        return AsyncPool(self._query, self._new_query, self._timeout)

    def reply(
        self,
        session_id: str,
        *,
        stream_id: str | None = None,
        turn_id: str | Entry | None = None,
        parent: str | Entry | None = None,
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
        """Every unreleased reply, in the order in which they began.

        Without an id, those of this application in all sessions.
        """
        return await self._replies("all", session_id, None)

    async def orphans(self, session_id: str | None = None) -> list[PartialReply]:
        """Unreleased replies of this application whose process is gone: the only ones to adopt."""
        return await self._replies("orphans", session_id, None)

    async def unsaved(self, session_id: str | None = None) -> list[PartialReply]:
        """Replies of this process that have ended, cancelled ones say, and are not released.

        Save each, then `release(stream_id)`. Raises Unavailable.
        """
        return [
            reply
            for stream_id in self._unsaved(session_id)
            for reply in await self._replies("all", None, stream_id)
        ]

    async def has_partial(self, session_id: str) -> bool | None:
        """Is there an unreleased reply of this session? None: cannot know."""
        ask = self._has_partial(session_id)
        try:
            return self._is_so(await self._pool.ask_in_turn(ask))
        except Unavailable as error:
            return self._kept_offline(error, session_id)

    async def resolve(self, stream_id: str, last_seq: int | None = None) -> bool:
        """Remove a reply whose owner is gone, once it is saved. False: there is none such.

        Raises Refused where it has grown beyond `last_seq` or its owner lives.
        """
        return self._is_so(await self._pool.ask_in_turn(self._resolve(stream_id, last_seq)))

    def session(self, session_id: str) -> Session:
        """The log of a session. Asks nothing."""
        with loading():
            from walld_client.session.aio_session import Session

        return Session(self._session(session_id), self._pool, self.reply)

    async def sessions(self, prefix: str | None = None) -> list[SessionInfo]:
        """Sessions that were written, whose id begins so."""
        return await self._asked(self._sessions(prefix))

    async def delete(self, session_id: str) -> bool:
        """Remove all there is of a session, replies and artifacts too. False: there was nothing; or
        the daemon was gone before it could answer, and the delete was asked for again.

        When it returns nothing of it can be read back; its bytes leave the disk behind that.
        """
        return await self._asked(self._delete(session_id))

    async def audit(
        self, session_id: str | None = None, *, present: AwaitedPresent = None
    ) -> Report:
        """What the log holds against your own store; without an id, of every session.

        present: the turn or message ids that your store holds, or a callable that says of a turn
        True, False, or None: cannot know. It may be async.
        """
        return await self._asked(self._audit(session_id, present))

    async def repair_plan(self, session_id: str, *, present: AwaitedPresent) -> list[RepairStep]:
        """Steps for your own store, in order; one whose `key` was done before is passed over."""
        return await self._asked(self._repair_plan(session_id, present))

    async def close(self, timeout: float = CLOSE_SECONDS) -> bool:  # noqa: ASYNC109
        """Wait for the kernel to take the rest, at most `timeout`; True if it has. Then let go.

        Another close() waits for this one, in its own time, and says the same. One that is
        cancelled in its wait has let go of nothing: the next does it.
        """
        SECONDS.of(timeout, "timeout")  # `as_declared` would hide that this is a coroutine function
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._closing = loop, asyncio.Lock()
        closing, deadline = self._closing, loop.time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                await closing.acquire()
        except TimeoutError:
            return bool(self._taken)
        try:
            if self._taken is None:
                self._taken = await self._handed_over(deadline)
                await self._let_go(deadline)
            return self._taken
        finally:
            closing.release()

    async def _handed_over(self, deadline: float) -> bool:
        loop = asyncio.get_running_loop()
        flushed: asyncio.Future[bool] = loop.create_future()
        settle = settler(flushed)
        done = self._link.flush(lambda: settle(True))
        if not done and self._link.reconnect.connections > 0:
            done = await settled(flushed, deadline - loop.time())
        if done:
            await self._hear_refusals(deadline)
        append_queue: AppendQueue | None = made(self, "_append_queue")
        if append_queue is not None:
            from walld_client.session.append_queue import delivered  # loaded with the append queue

            with suppress(Unavailable):
                left = max(0.0, deadline - loop.time())
                await run(self._pool, delivered(append_queue, left))
        pool: AsyncPool | None = made(self, "_pool")
        if pool is not None:
            pool.close()
        return (append_queue is None or append_queue.close()) and done

    async def _hear_refusals(self, deadline: float) -> None:
        """As `link_registry.flushed`."""
        loop = asyncio.get_running_loop()
        heard: asyncio.Future[bool] = loop.create_future()
        asked = self._link.ask_whether_begun(settler(heard))
        if asked is not None:
            await settled(heard, min(deadline - loop.time(), WORD_SECONDS))
            self._link.forget_drain(asked)

    async def _let_go(self, deadline: float) -> None:
        if self._parts():
            loop = asyncio.get_running_loop()
            closed: asyncio.Future[bool] = loop.create_future()
            tell = settler(closed)
            self._link.shut(lambda: tell(True))
            await settled(closed, max(deadline - loop.time(), 0.1))

    async def _asked(self, steps: Steps[_T]) -> _T:
        return await run(self._pool, self._after_posts(steps))

    def _new_query(self) -> AsyncQuery:
        with loading():
            from walld_client.query.aio_query import AsyncQuery

        return AsyncQuery(self._locate, self._timeout, self._sync_tokens)

    async def _replies(
        self, which: str, session_id: str | None, stream_id: str | None
    ) -> list[PartialReply]:
        ask = self._recover(which, session_id, stream_id)
        try:
            answer = await self._pool.ask_in_turn(ask)
        except Unavailable as error:
            self._proven_empty(error, session_id)
            return []
        return self._recovered(answer, every=is_named(which, session_id, stream_id))


@as_declared
def connect(
    socket: Path | None = None,
    *,
    data: Path | None = None,
    timeout: Seconds = TIMEOUT_SECONDS,
    backlog_bytes_max: Count = BACKLOG_BYTES_MAX,
    redact: Callable[[str], str] | None = None,
    app: str | None = None,
) -> Client:
    """A client for asyncio; the arguments are those of `walld_client.connect`."""
    if not is_enabled():
        from walld_client.aio_null import AsyncNullClient

        return AsyncNullClient()
    return Client(socket, data, timeout, backlog_bytes_max, redact, app)
