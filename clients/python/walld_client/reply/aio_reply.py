"""A reply in an asyncio program.

Owns: its drain that is awaited, and futures that other threads settle. Refuses: the rest of a reply
(`reply.py`): sends are plain calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from walld_client.limits import TIMEOUT_SECONDS
from walld_client.link import process
from walld_client.reply.reply import ReplyBase, check_drain, check_refused

__all__ = ["Reply", "settled", "settler"]

_ROUND_SECONDS = 0.01
"""Between two rounds of the I/O thread's work, where that thread cannot start."""


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
        """Wait until all that was sent so far is at `level`. False: not within `timeout`, or an
        event of it was refused. Refused: all of it was, its stream_id is in use.
        """
        check_drain(timeout, level)
        check_refused(self._stream)
        reached: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        drain_id = self._link.drain(level, settler(reached))
        try:
            is_reached = await settled(reached, timeout)
        finally:
            self._link.forget_drain(drain_id)
        check_refused(self._stream)
        return is_reached and self._stream.refusal is None


async def settled(future: asyncio.Future[bool], timeout: float) -> bool:  # noqa: ASYNC109
    """What the future is settled to; False: not within `timeout` seconds, as `IOThread.wait`."""
    io_thread = process.io_thread()
    try:
        async with asyncio.timeout(timeout):
            while io_thread.lacks_thread and not future.done():
                io_thread.work(0.0)
                await asyncio.sleep(_ROUND_SECONDS)
            return await future
    except TimeoutError:
        return False


def settler(future: asyncio.Future[bool]) -> Callable[[bool], None]:
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
