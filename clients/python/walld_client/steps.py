"""Calls that take several requests, written once for blocking and asyncio clients.

Owns: `Steps`, a generator that yields what it wants asked or done and gets the answers, and its
blocking runner. Refuses: sockets (`query.py`), and what is asked (`session_steps.py`).

A call of a session is a generator function. `blocking` and `aio_steps.awaited` make of it a method
that blocks or is awaited; its signature and its text are those of the function.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator
from functools import update_wrapper
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeVar

import msgspec
from walld_client.argument_checks import as_declared

__all__ = ["Answered", "Asked", "Asks", "Blocking", "Done", "Steps", "blocking", "run", "within"]

P = ParamSpec("P")
S = TypeVar("S")
_MOMENT_SECONDS = 0.001
"""The least a request is given."""
T = TypeVar("T")


class Asked(NamedTuple):
    """A request: `make` builds it for an id, the answer comes back as bytes.

    timeout: of its own, in seconds. again: asking twice does what asking once does.
    """

    make: Callable[[int], msgspec.Struct]
    timeout: float | None = None
    again: bool = True


class Done(NamedTuple):
    """Work that waits, mostly for files: an event loop has a thread do it.

    timeout: in seconds, of work that is told how long it may wait.
    """

    work: Callable[..., Any]
    timeout: float | None = None

    def done(self) -> Any:
        """Do it."""
        return self.work() if self.timeout is None else self.work(self.timeout)


class Answered(NamedTuple):
    """What a program's own callable gave, to be awaited. refuse: says that nobody can."""

    value: Awaitable[Any]
    refuse: Callable[[Any], Any]
    timeout: None = None

    def done(self) -> Any:
        """Without an event loop: an error."""
        return self.refuse(self.value)


Steps = Generator[Asked | Done | Answered, Any, T]
"""Yields what is to be asked, done or awaited, is sent what came of it, returns a T."""


class Asks(Protocol):
    """What the runner asks: a pool of query connections, or one that is switched off."""

    def ask(
        self,
        make: Callable[[int], msgspec.Struct],
        timeout: float | None = None,
        *,
        again: bool = True,
    ) -> bytes:
        """The whole answer to the request."""


class Blocking(Generic[S]):
    """Something whose methods are made by `blocking`."""

    __slots__ = ("_query", "_steps")

    def __init__(self, steps: S, query: Asks) -> None:
        self._steps = steps
        self._query = query


def run(query: Asks, steps: Steps[T]) -> T:
    """Take the steps one after another, waiting for each."""
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, Asked):
                    came = query.ask(step.make, step.timeout, again=step.again)
                else:
                    came = step.done()
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(came)
    except StopIteration as done:
        value: T = done.value
        return value


def within(seconds: float, steps: Steps[T]) -> Steps[T]:
    """The steps, all their requests together within that time."""
    until = time.monotonic() + seconds
    try:
        step = next(steps)
        while True:
            left = max(until - time.monotonic(), _MOMENT_SECONDS)
            if isinstance(step, Asked) or step.timeout is not None:
                step = step._replace(timeout=min(step.timeout or left, left))
            try:
                came = yield step
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(came)
    except StopIteration as done:
        value: T = done.value
        return value
    finally:
        steps.close()


def blocking(
    call: Callable[Concatenate[S, P], Steps[T]],
) -> Callable[Concatenate[Blocking[S], P], T]:
    """The call as a method that waits."""
    checked = as_declared(call)

    def waits(self: Blocking[S], /, *given: P.args, **named: P.kwargs) -> T:
        return run(self._query, checked(self._steps, *given, **named))

    return update_wrapper(waits, call)
