"""Waiting, waking and the clock of the daemon's tasks, on asyncio, uvloop and trio.

Owns: the time, a bell that one task waits for, whether a socket has something to read and how much,
and how a thread has the loop call something.
Refuses: which loop runs (`settings.py`), threads (`disk_threads.py`).

anyio has all of it for any loop, and finds out at each call which one runs. A durable append asks
eighteen times for the time and waits seven times: that way it was a third of what the daemon spends
on one. Under trio, where the simulation and many tests run, it is anyio's.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

__all__ = ["Bell", "Readable", "call_soon", "known", "now", "unread_bytes"]

_UNREAD = struct.Struct("i")


class _Here(threading.local):
    """asyncio's loop of this thread, where that is known."""

    loop: asyncio.AbstractEventLoop | None = None


_here = _Here()


@contextmanager
def known() -> Iterator[None]:
    """Around all that a loop runs: which one it is, is found once.

    asyncio before Python 3.12 asks the kernel for the pid each time it is asked (cpython #100363):
    0.3 us, 25 times for a durable append.
    """
    _here.loop = _running()
    try:
        yield
    finally:
        _here.loop = None


def now() -> float:
    """Seconds on the loop's own clock, which no wall clock moves."""
    loop = _here.loop or _running()
    return anyio.current_time() if loop is None else loop.time()


def call_soon() -> Callable[[Callable[[], object]], object]:
    """What has the loop that runs here call something, from any thread."""
    loop = _here.loop or _running()
    if loop is not None:
        return loop.call_soon_threadsafe
    import trio

    return trio.lowlevel.current_trio_token().run_sync_soon


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def unread_bytes(peer: socket.socket) -> int:
    """How many bytes the kernel has of what the other side sent (FIONREAD, unix(7))."""
    told = fcntl.ioctl(peer.fileno(), termios.FIONREAD, _UNREAD.pack(0))
    return int(_UNREAD.unpack(told)[0])


class Bell:
    """Rung on the loop, as often as one likes; heard by the one task that waits for it.

    A ring that nobody waits for is heard by the next wait, unless it is cleared before.
    """

    __slots__ = ("_heard", "_is_rung")

    def __init__(self) -> None:
        self._is_rung = False
        self._heard: Callable[[], object] | None = None
        """Wakes the task that waits."""

    def ring(self) -> None:
        """Wake who waits."""
        self._is_rung = True
        if self._heard is not None:
            self._heard()

    def clear(self) -> None:
        """Who waits next waits for a ring that is yet to come."""
        self._is_rung = False

    async def wait(self, seconds: float | None = None) -> bool:
        """Until it is rung, which is cleared then: True. False where that takes longer."""
        if not self._is_rung:
            assert self._heard is None, "two tasks wait for one bell"
            try:
                await self._ring_or(seconds)
            finally:
                self._heard = None
        is_rung, self._is_rung = self._is_rung, False
        return is_rung

    async def _ring_or(self, seconds: float | None) -> None:
        loop = _here.loop or _running()
        if loop is None:
            event = anyio.Event()
            self._heard = event.set
            with anyio.move_on_after(seconds):
                await event.wait()
            return
        woken = loop.create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        self._heard = wake
        timer = None if seconds is None else loop.call_later(seconds, wake)
        try:
            await woken
        finally:
            if timer is not None:
                timer.cancel()


class Readable:
    """Tells the one task that reads a socket when there is something to read.

    It stays watched from one wait to the next, since to begin and end that is half of what a small
    question costs. Where more comes while nobody waits it is watched no longer, or the loop would
    turn for that alone; the next wait begins anew.
    """

    __slots__ = ("_bell", "_loop", "_socket", "_waits", "has_come")

    def __init__(self, peer: socket.socket) -> None:
        self._socket = peer
        self._bell = Bell()
        self._waits = False
        self.has_come = False
        """There may be something without a wait: it came while nobody waited, or who reads has said
        so. Until the next read or wait.
        """
        self._loop: asyncio.AbstractEventLoop | None = None
        """Which one watches it now."""

    async def wait(self) -> None:
        """Until there is something, or its end. There may be nothing all the same."""
        loop = self._loop or _running()
        if loop is None:
            await anyio.wait_readable(self._socket)
            return
        if self._loop is None:
            self._loop = loop
            loop.add_reader(self._socket.fileno(), self._came)
        self.has_come = False
        self._bell.clear()
        self._waits = True
        try:
            await self._bell.wait()
        finally:
            self._waits = False

    def _came(self) -> None:
        if self._waits:
            self._bell.ring()
        else:
            self.has_come = True
            self.close()

    def close(self) -> None:
        """Watch it no longer: before the socket is closed, and from then on."""
        if self._loop is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._loop = None
