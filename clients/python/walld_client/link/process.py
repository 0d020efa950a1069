"""Per-process state, made anew in the child of a fork.

Owns: the producer id, the numbers of streams, the I/O thread (the one there is), the fork hook,
and the check that stands in for it.
Refuses: knowing what a link or a query is; they register here and offer `forked()`.

Why a child starts anew: it shares the parent's socket. Left open, the parent's SIGKILL would give
the daemon no end of connection; written to, it would tear the parent's frames. So the child closes
its copy of the descriptor (close(2), never shutdown(2), which would end the parent's), draws a new
producer id and sends on a connection of its own.

Python's own forks run the hook. A fork in C (uWSGI with --master) does not: so every call of an
application asks first whether this is still the process (`check_fork`), before it takes a lock that
a thread of the parent may have had. A token asks the flag alone (`fork_flag.py`).
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import weakref
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

from walld_client.link.fork_flag import is_owner, own
from walld_client.link.io_thread import IOThread

__all__ = [
    "Forked",
    "Mutex",
    "check_fork",
    "io_thread",
    "leave_to_parent",
    "next_stream_number",
    "producer",
    "register",
]


class Forked(Protocol):
    """Something that must not go on as it was in the child of a fork."""

    def forked(self) -> None:
        """Runs in the child, before anything else does."""


_log = logging.getLogger("walld")
_getpid = os.getpid
_pid = _getpid()
_producer = b""
_numbers = count(1)
_io_thread = IOThread()
_settling = threading.RLock()
_registered: weakref.WeakSet[Forked] = weakref.WeakSet()


def producer() -> bytes:
    """16 random bytes that name this process to the daemon, drawn once."""
    global _producer
    if not _producer:
        _producer = os.urandom(16)
    return _producer


def next_stream_number() -> int:
    """Dense from 1 and never used again in this process, whatever the link."""
    return next(_numbers)


def io_thread() -> IOThread:
    """The process's one thread, started when a link first needs it."""
    return _io_thread


def register(thing: Forked) -> None:
    """`thing.forked()` runs in every child from here on, while it lives."""
    _registered.add(thing)


def check_fork() -> None:
    """First of all in each call that is not a token: is this a child whose fork ran no hook?

    The flag also knows a child that has its parent's pid, in a pid namespace of its own.
    """
    if is_owner[0] and _getpid() == _pid:
        return
    with _settling:  # the first call of each of several threads
        if not is_owner[0] or _getpid() != _pid:
            try:
                _after_fork()
            except RuntimeError:
                _log.exception("a fork ran no hook")


class Mutex:
    """A lock that is free in the child of a fork: the thread that may have it is not there.

    make: threading.RLock where a finalizer may come while its own thread has it, asyncio.Lock.
    """

    def __init__(self, make: Callable[[], Any] = threading.Lock) -> None:
        self._make = make
        self._lock = make()
        register(self)

    @property
    def lock(self) -> Any:
        """Asked for each time it is taken, and let go of as what it was then."""
        check_fork()
        return self._lock

    def forked(self) -> None:
        """In the child of a fork: another one."""
        self._lock = self._make()


def leave_to_parent(connection: socket.socket | None) -> None:
    """In the child of a fork: close our copy, if we know of one.

    socket.close() takes the descriptor away before it lets other threads go on. Where one of them
    forks just then, nothing here says which it was.
    """
    descriptor = -1 if connection is None else connection.detach()
    if descriptor >= 0:
        os.close(descriptor)


def _after_fork() -> None:
    """Each is told, whatever befalls another. What failed is raised at the end, and Python prints
    it: a handler of the log may wait for a lock of a thread that is not here.
    """
    global _pid, _producer, _numbers, _io_thread
    _producer = b""
    _numbers = count(1)
    parents, _io_thread = _io_thread, IOThread()
    errors: list[BaseException] = []
    for thing in [parents, *_registered]:
        try:
            thing.forked()
        except BaseException as error:
            errors.append(error)
    _pid = _getpid()
    own()
    if errors:
        text = f"walld did not leave all to the parent of this fork: {errors}"
        raise RuntimeError(text) from errors[0]


def _forked() -> None:
    global _settling
    _settling = threading.RLock()
    _after_fork()


os.register_at_fork(after_in_child=_forked)
