"""A client of either colour, called as if it blocked: one script tests both."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import walld_client
import walld_client.aio

__all__ = ["Coloured", "connect"]


class Coloured:
    """Calls of an object, awaited where they are to be; sessions and turns come back coloured."""

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
            if type(came).__name__ in ("Session", "Turn"):
                return Coloured(came, self.loop)
            return came

        return call

    def finish(self) -> None:
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
