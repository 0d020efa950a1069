"""What is loaded or made when it is first used.

Owns: the lock under which a module is loaded late, and attributes that are made once. Refuses:
what is loaded.

A fork copies the lock of a module that another thread is loading, and no thread of the child
releases it: the child waits for ever when it uses that module. So a fork waits for `loading`. What
runs at exit, in a finalizer or in `close` loads nothing.
"""

from __future__ import annotations

import logging  # noqa: F401 - a fork takes the locks of what is imported first last, see below
import os
import threading
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, cast, overload

__all__ = ["first_use", "loading", "made"]

S = TypeVar("S")
T = TypeVar("T")

loading = threading.RLock()
"""Held by a thread that loads a module late. Reentrant: a signal handler may interrupt the load."""

# The hook that was registered last takes its lock first. A load may create a logger, so `logging`,
# whose hook takes its lock too, is imported above: a load and a fork take both in the same order.
os.register_at_fork(
    before=loading.acquire, after_in_parent=loading.release, after_in_child=loading.release
)


class first_use(Generic[S, T]):  # noqa: N801 - a decorator, as `property`
    """An attribute that its method makes when it is first asked for, once for all threads.

    It is kept in the object's `__dict__`, where it hides this one and may be set beforehand.
    """

    def __init__(self, make: Callable[[S], T]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, instance: None, owner: type[S]) -> Self: ...

    @overload
    def __get__(self, instance: S, owner: type[S]) -> T: ...

    def __get__(self, instance: S | None, owner: type[S]) -> T | Self:
        """Make it. A call and a signal handler in the midst of it get the same."""
        if instance is None:
            return self
        kept = instance.__dict__
        with loading:
            if self._name not in kept:
                kept.setdefault(self._name, self._make(instance))
            return cast("T", kept[self._name])


def made(instance: object, name: str) -> Any:
    """That attribute, or None where nobody has asked for it yet."""
    return instance.__dict__.get(name)
