"""A pool of query connections: one for each request that waits at the same time.

Owns: which connection a request takes. Refuses: moving bytes (`query.py`).

Submits of many threads must be able to share one sync, so none may wait behind another's answer.
The connection that was used last is used first: a program with one thread has one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import msgspec
from walld_client.errors import Unavailable
from walld_client.limits import QUERIES_MAX
from walld_client.link import process
from walld_client.query.query import Query

__all__ = ["Pool"]


class Pool:
    """The connections of a client that blocks."""

    def __init__(self, first: Query, make: Callable[[], Query], timeout: float) -> None:
        self._make = make
        self._timeout = timeout
        self._idle = deque([first])
        self._free = threading.Semaphore(QUERIES_MAX)
        process.register(self)

    def ask(
        self,
        make: Callable[[int], msgspec.Struct],
        timeout: float | None = None,
        *,
        again: bool = True,
    ) -> bytes:
        """The whole answer to a request, as `Query.ask`."""
        process.check_fork()
        seconds = self._timeout if timeout is None else timeout
        if not self._free.acquire(timeout=seconds):
            raise Unavailable(f"{QUERIES_MAX} other requests took all of {seconds} s")
        try:
            query = self._taken()
            try:
                return query.ask(make, timeout, again=again)
            finally:
                self._idle.append(query)
        finally:
            self._free.release()

    def close(self) -> None:
        """End what is idle."""
        for query in list(self._idle):
            query.close()

    def forked(self) -> None:
        """In the child of a fork: the threads that hold the others are not there."""
        self._free = threading.Semaphore(QUERIES_MAX)

    def _taken(self) -> Query:
        try:
            return self._idle.pop()
        except IndexError:
            return self._make()
