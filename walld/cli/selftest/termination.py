"""Clean-up on SIGINT, SIGTERM and SIGHUP, for commands that leave files behind.

Owns: that the first of them is raised as `Ended`, once, and where it waits. Refuses: what is
cleaned up.

What must not be cut in two (a folder that is made and its name, a child that is begun and its pid)
stands in `held`, what may be ended in `opened` inside it: then no signal falls between the two.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

__all__ = ["SIGNALS", "Ended", "ending", "held", "opened"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DIED_OF = 128
"""What a shell adds to a signal's number."""


class Ended(BaseException):
    """Told to end. code: the exit code that says by what."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.signal = number
        self.code = _DIED_OF + number


@contextmanager
def ending() -> Iterator[None]:
    """Raises `Ended` where a signal finds the main thread. One that was ignored stays so: nohup."""
    if threading.current_thread() is not threading.main_thread():  # which alone may set handlers
        yield
        return
    taken = [one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        for one in taken:  # nothing is to cut the cleaning up
            signal.signal(one, signal.SIG_IGN)
        raise Ended(number)

    before = {one: signal.signal(one, end) for one in taken}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def held() -> Iterator[Iterable[int]]:
    """A signal waits until this is over, or `opened`; what was blocked before."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def opened(before: Iterable[int]) -> Iterator[None]:
    """Within `held`, whose answer `before` is: here a signal is raised at once."""
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
