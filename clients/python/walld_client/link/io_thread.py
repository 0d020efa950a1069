"""The I/O thread of a process: parked in poll(2), woken for trouble only.

Owns: the thread, the pipe that wakes it, and how long it sleeps. Refuses: what to do on a socket;
a link says what it waits for (`wants`) and does its own work (`attend`).

While all is well it waits for a hang-up alone (no POLLIN, no POLLOUT, no time limit): the kernel
wakes a poller only for the events it asked for, so neither tokens nor acks wake it. It is there
because an agent that is silent in a long tool call must still notice that the daemon died, and
hand what it held to the next one.

Only this thread closes a link's socket: a descriptor closed while another thread polls it could
be somebody else's file by then.

A program at its limit of open files has no pipe to be had, one at its limit of threads no thread.
Neither is the program's trouble: without a pipe the thread looks by itself, four times a second;
without a thread each further call of `keep` tries again (`link.py`, in its chores), and whoever
waits for the daemon does its work meanwhile (`wait`, `work`).

It ends before the interpreter does (`end`): a thread that wakes meanwhile is ended by
pthread_exit(3), which loads a library for it, and at the limit of open files that aborts the
program. From then on it is as where the kernel refused the thread.

Invariant: one thread at a time does this work.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from typing import Protocol

from walld_client.link import poll

__all__ = ["Attended", "IOThread"]

_log = logging.getLogger("walld")
_UNWOKEN_SECONDS = 0.25
"""How long it sleeps at most while nothing can wake it."""
_END_SECONDS = _UNWOKEN_SECONDS + 0.05
"""What `end` waits for it at most."""
_PIPE_BYTES = 1 << 20
"""More than a pipe holds."""


class Attended(Protocol):
    """What the thread looks after."""

    def wants(self) -> tuple[int, int, float | None]:
        """Descriptor (-1: none), poll events, and the monotonic time to attend it at the latest."""

    def attend(self, events: int) -> bool:
        """Do what is due. False: it needs no keeping any more."""


class IOThread:
    """Runs `attend` of each kept thing when its socket or its time says so."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[Attended] = []
        self._thread: threading.Thread | None = None
        self._pipe: tuple[int, int] | None = None
        self._working = threading.Lock()
        self.lacks_thread = False
        """The kernel refused one: people were told, and whoever calls `keep` next tries again. Or
        it was ended."""
        self._ended = False

    def keep(self, thing: Attended) -> None:
        """Look after `thing` until its `attend` says that there is no need. Never raises."""
        with self._lock:
            if thing in self._kept and self._thread is not None:
                return
            if thing not in self._kept:
                self._kept.append(thing)
            if self._thread is None and not self._ended:
                self._start()
        self.wake()

    def _start(self) -> None:
        """The caller has the lock."""
        thread = threading.Thread(target=self._run, name="walld", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no thread to be had, or the interpreter is ending
            if not self.lacks_thread:
                self.lacks_thread = True
                _log.warning(
                    "walld cannot start its thread: %s; until it can, which is tried again, "
                    "nothing is resent after a daemon's death",
                    error,
                )
            return
        self._thread = thread
        self.lacks_thread = False

    def end(self) -> None:
        """For good: the interpreter is about to end. One that is at something which takes longer
        is left to it.
        """
        with self._lock:
            self._ended = self.lacks_thread = True
            thread = self._thread
        if thread is not None:
            self.wake()
            thread.join(_END_SECONDS)

    def wait(self, told: threading.Event, timeout: float) -> bool:
        """Wait until `told` is set; False: not within `timeout` seconds. Where there is no thread
        to be had the caller does its work meanwhile: nobody else would ever set it.
        """
        deadline = time.monotonic() + timeout
        while self.lacks_thread and not told.is_set():
            left = deadline - time.monotonic()
            if left <= 0.0:
                return False
            self.work(min(left, _UNWOKEN_SECONDS))
        return told.wait(max(0.0, deadline - time.monotonic()))

    def work(self, seconds: float) -> None:
        """One round of the thread's work in the caller's, `seconds` at most; none where another
        thread does it all that time.
        """
        if not self._working.acquire(timeout=seconds):
            return
        try:
            self._round(seconds)
        finally:
            self._working.release()

    def wake(self) -> None:
        """Make the thread look. Takes no lock: also legal in a finalizer or a signal handler."""
        if self._pipe is not None:
            try:
                os.write(self._pipe[1], b"\0")
            except OSError:  # full: it is being woken already
                return

    def forked(self) -> None:
        """In the child: the thread is not here; its pipe is the parent's."""
        if self._pipe is not None:
            for fd in self._pipe:
                os.close(fd)
            self._pipe = None

    def _run(self) -> None:
        with self._working:
            while True:
                with self._lock:
                    if self._ended or not self._kept:
                        self._thread = None
                        return
                self._round(None)

    def _round(self, seconds: float | None) -> None:
        """Sleep until something is due, `seconds` at most, and attend to it."""
        with self._lock:
            kept = list(self._kept)
        try:
            events = self._sleep(kept, seconds)
        except Exception:
            # Our own bug, as in `_attended`: without this thread nothing is ever resent.
            _log.exception("walld's thread failed, it goes on")
            time.sleep(1.0)
            return
        for thing, seen in events:
            if not self._attended(thing, seen):
                with self._lock:
                    self._kept.remove(thing)

    def _reader(self) -> int:
        """The end of the pipe to wait for; -1 while there is none to be had. For the thread alone.

        It is there before anything is asked what it wants: what changes later wakes the thread.
        """
        if self._pipe is None:
            try:
                reader, writer = os.pipe()
            except OSError:  # the link that has no socket for the same reason says so
                return -1
            if not poll.can_watch(reader):
                os.close(reader)
                os.close(writer)
                return -1
            os.set_blocking(reader, False)
            os.set_blocking(writer, False)
            self._pipe = reader, writer
        return self._pipe[0]

    def _sleep(self, kept: list[Attended], seconds: float | None) -> list[tuple[Attended, int]]:
        """Wait, `seconds` at most, then what each kept thing's socket showed (0: nothing)."""
        reader = self._reader()
        if self._ended and seconds is None:
            return []  # maybe said before there was a pipe
        watched = {reader: poll.IN} if reader >= 0 else {}
        due = None if reader >= 0 else time.monotonic() + _UNWOKEN_SECONDS
        fds: list[int] = []
        for thing in kept:
            fd, mask, at = thing.wants()
            fds.append(fd)
            if fd >= 0:
                watched[fd] = mask
            if at is not None:
                due = at if due is None else min(due, at)
        wait = None if due is None else max(0.0, due - time.monotonic() + 0.0005)
        if seconds is not None:
            wait = seconds if wait is None else min(wait, seconds)
        ready = poll.ready(watched, wait)
        if reader in ready:
            with suppress(BlockingIOError):  # a number that select(2) cannot look at
                os.read(reader, _PIPE_BYTES)  # once: eventlet's waits where nothing is left
        return [(thing, ready.get(fd, 0)) for thing, fd in zip(kept, fds, strict=True)]

    def _attended(self, thing: Attended, events: int) -> bool:
        try:
            return thing.attend(events)
        except Exception:
            # Our own bug. The agent goes on; its events stay in the ring.
            _log.exception("walld's thread failed, it goes on")
            time.sleep(1.0)
            return True
