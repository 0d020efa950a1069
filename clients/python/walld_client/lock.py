"""The lock of a link, in two halves: `with link.mutex, link`.

Owns: that one thread at a time changes anything, and what becomes of a call that interrupts its own
thread in the middle of a change. Refuses: what is changed.

A signal handler or a finalizer runs between two steps of whatever its thread is doing, also in the
middle of a send. With a plain lock its own call would wait for itself for ever; with a reentrant
one alone it would find the books half changed. So it is told (Reentered), and what it wanted to say
is put into `deferred` and said as soon as the call it interrupted is done.

Who only reads may do with the first half. The short way of a token spells the second out
(`reply.py`), so `mutex`, `held` and `deferred` are slots of the link itself.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType

__all__ = ["Lock", "Reentered"]

_log = logging.getLogger("walld")


class Reentered(RuntimeError):
    """The calling thread is inside the link: a signal handler or finalizer interrupted it."""

    def __init__(self) -> None:
        super().__init__(
            "a signal handler or finalizer interrupted walld in the same thread; sends are put off "
            "until it is done, but this call cannot be"
        )


def _times(mutex: threading.RLock) -> int:
    """How often the calling thread has it: its repr is all that says so before Python 3.14."""
    return int(repr(mutex).partition(" count=")[2].partition(" ")[0])


class Lock:
    """What is locked derives from this."""

    __slots__ = ("__weakref__", "deferred", "held", "mutex")

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Nobody is inside: for the child of a fork, where the thread that was is not there."""
        self.mutex = threading.RLock()
        self.held = False
        """The thread that has the mutex is changing something."""
        self.deferred: deque[Callable[[], object]] = deque()

    def __enter__(self) -> None:
        """The second half; the caller has the mutex. Raises Reentered."""
        if self.held and _times(self.mutex) > 1:
            raise Reentered
        # Held, and had once: an exception of a signal handler met `__exit__` before its first step.
        self.held = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.held = False
        if self.deferred:
            self.play()

    def play(self) -> None:
        """Say what interrupted this thread's call. The caller has the mutex."""
        while self.deferred and not self.held:
            said = self.deferred.popleft()
            try:
                said()
            except Exception:
                _log.exception("a call from a signal handler or a finalizer failed")
