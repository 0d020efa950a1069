"""A pool of query connections for asyncio: one for each request awaited at the same time.

Owns: which connection a request takes, and whose turn it is. Refuses: moving bytes
(`aio_query.py`). As `pool.py`.

A client may be used in several loops, one behind another or each in a thread of its own: those that
wait are a loop's, the connections are lent to one request at a time, whatever its loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec
from walld_client.errors import Unavailable
from walld_client.limits import QUERIES_MAX
from walld_client.query.aio_query import AsyncQuery
from walld_client.query.requests import Late

__all__ = ["AsyncPool"]


class _Waiting(NamedTuple):
    """Where requests of one loop wait. turn: of those that go one behind another."""

    free: asyncio.Semaphore
    turn: asyncio.Lock


class AsyncPool:
    """The connections of an asyncio client; in another loop they are made anew."""

    def __init__(self, first: AsyncQuery, make: Callable[[], AsyncQuery], timeout: float) -> None:
        self._make = make
        self._timeout = timeout
        self._idle = deque([first])
        self._waiting = WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiting]()

    async def ask(
        self,
        make: Callable[[int], msgspec.Struct],
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        again: bool = True,
    ) -> bytes:
        """The whole answer to a request, as `AsyncQuery.ask`."""
        seconds = self._timeout if timeout is None else timeout
        query: AsyncQuery | None = None
        try:
            async with asyncio.timeout(seconds), self._here().free:
                query = self._taken()
                try:
                    return await query.ask(make, timeout, again=again)
                finally:
                    self._idle.append(query)
        except TimeoutError as error:
            if query is not None:
                raise query.late(seconds) from error
            raise Unavailable(f"{QUERIES_MAX} other requests took all of {seconds} s") from error

    async def ask_in_turn(self, make: Callable[[int], msgspec.Struct]) -> bytes:
        """The same, behind those of this loop that were asked so before."""
        turn = self._here().turn
        deadline = asyncio.get_running_loop().time() + self._timeout
        try:
            async with asyncio.timeout_at(deadline):
                await turn.acquire()
        except TimeoutError as error:
            text = f"no answer from walld within {self._timeout} s: requests before it took that"
            raise Unavailable(text) from error
        try:
            left = deadline - asyncio.get_running_loop().time()
            return await self.ask(make, max(left, 0.0))
        except Late as error:  # it names what was left
            raise Late(f"no answer from walld within {self._timeout:.3g} s") from error
        finally:
            turn.release()

    def close(self) -> None:
        """End what is idle."""
        for query in list(self._idle):
            query.close()

    def _here(self) -> _Waiting:
        loop = asyncio.get_running_loop()
        waiting = self._waiting.get(loop)
        if waiting is None:
            # What somebody waited for holds on to its loop, so no loop would ever be forgotten.
            for other in self._waiting.keyrefs():
                gone = other()
                if gone is not None and gone.is_closed():
                    self._waiting.pop(gone, None)
            waiting = _Waiting(asyncio.Semaphore(QUERIES_MAX), asyncio.Lock())
            self._waiting[loop] = waiting
        return waiting

    def _taken(self) -> AsyncQuery:
        try:
            return self._idle.pop()
        except IndexError:  # asked before, it might be gone by then: another thread's loop took it
            return self._make()
