"""The lock of a link, in two halves: `with link.mutex, link`.

Owns: that one thread at a time changes anything, what becomes of a call that interrupts its own
thread in the middle of a change, and that a change which was cut short is mended before the next.
Refuses: what is changed.

A signal handler or a finalizer runs between two steps of whatever its thread is doing, also in the
middle of a send. With a plain lock its own call would wait for itself for ever; with a reentrant
one alone it would find the books half changed. So it is told (Reentered), and what it wanted to say
is put into `deferred` and said as soon as the call it interrupted is done.

An exception may cut a change short at any step: Ctrl-C, or whatever a signal handler raises. Then
nothing is believed of the books: whoever comes next has them made anew (`mend`), before all else.

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

    __slots__ = ("__weakref__", "deferred", "held", "mutex", "shaken")

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Nobody is inside: for the child of a fork, where the thread that was is not there."""
        self.mutex = threading.RLock()
        self.held = False
        """The thread that has the mutex is changing something."""
        self.shaken = False
        """A change was cut short."""
        self.deferred: deque[Callable[[], object]] = deque()

    def __enter__(self) -> None:
        """The second half; the caller has the mutex. Raises Reentered."""
        if self.held:
            if _times(self.mutex) > 1:
                raise Reentered
            # Had once: an exception of a signal handler met `__exit__` before its first step.
            self.shaken = True
        self.held = True
        if self.shaken:
            self.mend()
            self.shaken = False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.interrupted()
        self.held = False
        if self.deferred:
            self.run_deferred()

    def interrupted(self) -> None:
        """An exception leaves the middle of a change. The caller has the mutex."""
        self.shaken = True

    def mend(self) -> None:
        """Make anew what a change that was cut short may have left half done; may itself be cut
        short, and is done again then.
        """
        raise NotImplementedError

    def run_deferred(self) -> None:
        """Say what interrupted this thread's call. The caller has the mutex."""
        while self.deferred and not self.held:
            said = self.deferred.popleft()
            try:
                said()
            except Exception:
                _log.exception("a call from a signal handler or a finalizer failed")
