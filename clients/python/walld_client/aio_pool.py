"""Query connections of an asyncio client, one for each request that is awaited at the same time.

Owns: which connection a request takes. Refuses: moving bytes (`aio_query.py`). As `pool.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec
from walld_client.aio_query import AsyncQuery
from walld_client.errors import Unavailable
from walld_client.limits import QUERIES_MAX

__all__ = ["AsyncPool"]


class AsyncPool:
    """The connections of an asyncio client; in another loop they are made anew."""

    def __init__(self, first: AsyncQuery, make: Callable[[], AsyncQuery], timeout: float) -> None:
        self._make = make
        self._timeout = timeout
        self._idle = deque([first])
        self._free = asyncio.Semaphore(QUERIES_MAX)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def ask(
        self,
        make: Callable[[int], msgspec.Struct],
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        again: bool = True,
    ) -> bytes:
        """The whole answer to a request, as `AsyncQuery.ask`."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self._free = asyncio.Semaphore(QUERIES_MAX)
        seconds = self._timeout if timeout is None else timeout
        query: AsyncQuery | None = None
        try:
            async with asyncio.timeout(seconds), self._free:
                query = self._idle.pop() if self._idle else self._make()
                try:
                    return await query.ask(make, timeout, again=again)
                finally:
                    self._idle.append(query)
        except TimeoutError as error:
            if query is not None:
                raise query.late(seconds) from error
            raise Unavailable(f"{QUERIES_MAX} other requests took all of {seconds} s") from error

    def close(self) -> None:
        """End what is idle."""
        for query in self._idle:
            query.close()
