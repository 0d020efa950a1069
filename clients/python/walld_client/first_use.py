"""What is loaded or made when it is first used.

Owns: keeping forks out of a late load, and attributes that are made once. Refuses: what is loaded.

A fork copies the lock of a module that another thread is loading, and no thread of the child
releases it: the child waits for ever when it uses that module. So a fork waits for the load, but
not for ever: a signal handler that forks, or loads, may have interrupted what the load waits for.

What runs at exit, in a finalizer or in `close` loads nothing.
"""

from __future__ import annotations

import logging  # noqa: F401 - its fork hook comes before the one below
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Generic, Self, TypeVar, cast, overload

from walld_client.errors import Unavailable

__all__ = ["first_use", "loading", "made"]

S = TypeVar("S")
T = TypeVar("T")
_WAIT_SECONDS: Final = 10.0
"""For a load of milliseconds. Behind it all goes on as if there were no lock."""
_lock = threading.RLock()
_pid = os.getpid()


@contextmanager
def loading() -> Iterator[None]:
    """No fork meanwhile. Reentrant: a signal handler may interrupt a load.

    Unavailable where the kernel refuses to read the module, of a program at its limit of open files
    say: what was asked cannot be answered now, and may be later.
    """
    if os.getpid() != _pid:  # forked in C: no hook has run
        _after_fork_in_child()
    lock = _lock
    is_held = lock.acquire(timeout=_WAIT_SECONDS)
    try:
        yield
    except OSError as error:
        raise Unavailable(f"a module of walld_client cannot be loaded: {error}") from error
    finally:
        if is_held:
            lock.release()


def _before_fork() -> None:
    _lock.acquire(timeout=_WAIT_SECONDS)


def _after_fork_in_parent() -> None:
    try:
        _lock.release()
    except RuntimeError:  # it was not to be had
        return


def _after_fork_in_child() -> None:
    """Whoever has the parent's is not here."""
    global _lock, _pid
    _lock, _pid = threading.RLock(), os.getpid()


# Of these hooks the last registered takes its lock first. A load may create a logger: `logging` is
# imported above, so a fork takes this lock and then the one of `logging`, as a load does.
os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
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
        with loading():
            if self._name not in kept:
                kept.setdefault(self._name, self._make(instance))
            return cast("T", kept[self._name])


def made(instance: object, name: str) -> Any:
    """That attribute, or None where nobody has asked for it yet."""
    return instance.__dict__.get(name)
