"""A client of either colour, called as if it blocked: one script tests both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import walld_client
import walld_client.aio

__all__ = ["Coloured", "connect"]


_COLOURED = ("Session", "Turn", "Reply")


class Coloured:
    """Calls of an object, awaited where they are to be; what they give that has such calls too
    comes back coloured. A block of a reply is entered and left by its own colour's door.
    """

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        self.inner = inner
        self.loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            came = found(*given, **named)
            if self.loop is not None and inspect.isawaitable(came):
                came = self.loop.run_until_complete(_awaited(came))
            if type(came).__name__ in _COLOURED:
                return Coloured(came, self.loop)
            return came

        return call

    def __enter__(self) -> Coloured:
        if self.loop is None:
            self.inner.__enter__()
        else:
            self.loop.run_until_complete(self.inner.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        if self.loop is None:
            self.inner.__exit__(*error)
        else:
            self.loop.run_until_complete(self.inner.__aexit__(*error))

    def gather(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """The calls of `inner` at the same time: in threads, or on the loop."""
        if self.loop is None:
            with ThreadPoolExecutor(len(calls)) as pool:
                return list(pool.map(lambda call: call(), calls))

        async def together() -> list[Any]:
            return await asyncio.gather(*(call() for call in calls))

        return self.loop.run_until_complete(together())

    def let_go(self) -> None:
        """The end of a client, and of its loop."""
        self.close(0.0)
        if self.loop is not None:
            self.loop.close()


async def _awaited(came: Any) -> Any:
    return await came


def connect(colour: str, path: str, **options: Any) -> Coloured:
    """A client: "sync" or "aio"."""
    if colour == "aio":
        return Coloured(walld_client.aio.connect(path, **options), asyncio.new_event_loop())
    return Coloured(walld_client.connect(path, **options), None)
