"""The calls of `steps.py` for asyncio programs.

Owns: the awaiting runner, and the thread that reads the application's files for it. Refuses:
everything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import update_wrapper
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

import msgspec
from walld_client.argument_checks import as_declared
from walld_client.steps import Answered, Asked, Steps

__all__ = ["AsyncAsks", "Awaited", "awaited", "run"]

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


class AsyncAsks(Protocol):
    """What the runner asks: a pool of query connections, or one that is switched off."""

    async def ask(
        self,
        make: Callable[[int], msgspec.Struct],
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        again: bool = True,
    ) -> bytes:
        """The whole answer to the request."""


class Awaited(Generic[S]):
    """Something whose methods are made by `awaited`."""

    __slots__ = ("_query", "_steps")

    def __init__(self, steps: S, query: AsyncAsks) -> None:
        self._steps = steps
        self._query = query


async def run(query: AsyncAsks, steps: Steps[T]) -> T:
    """Take the steps one after another, awaiting each."""
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, Asked):
                    came = await query.ask(step.make, step.timeout, again=step.again)
                elif isinstance(step, Answered):
                    came = await step.value
                else:
                    came = await asyncio.to_thread(step.done)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(came)
    except StopIteration as done:
        value: T = done.value
        return value
    finally:
        steps.close()


def awaited(
    call: Callable[Concatenate[S, P], Steps[T]],
) -> Callable[Concatenate[Awaited[S], P], Awaitable[T]]:
    """The call as a method that is awaited."""
    checked = as_declared(call)

    async def waits(self: Awaited[S], /, *given: P.args, **named: P.kwargs) -> T:
        return await run(self._query, checked(self._steps, *given, **named))

    return update_wrapper(waits, call)
