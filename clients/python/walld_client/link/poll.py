"""Waiting for descriptors, with what the platform has.

Owns: the choice between poll(2) and select(2), made at each call: eventlet takes `select.poll` away
from a program while it runs. Refuses: whose descriptors they are, how long to wait.

select(2) knows neither a hang-up nor a descriptor of 1024 and more. So there a socket is readable
where poll would show its hang-up (a read tells), and one with a large number is looked at by its
owner every quarter of a second, as if it were ready: all of them are non-blocking.
"""

from __future__ import annotations

import errno
import os
import select
import time
from collections.abc import Mapping

__all__ = ["HANGUP", "IN", "OUT", "can_watch", "ready"]

IN = getattr(select, "POLLIN", 1)
OUT = getattr(select, "POLLOUT", 4)
HANGUP = (
    getattr(select, "POLLERR", 8) | getattr(select, "POLLHUP", 16) | getattr(select, "POLLNVAL", 32)
)
"""What poll() shows of a socket that is of no use any more; it is never asked for."""
_DESCRIPTORS_MAX = 1024
"""FD_SETSIZE: select(2) takes numbers below."""
_LOOK_SECONDS = 0.25


def can_watch(fd: int) -> bool:
    """What it shows is seen at once, not when it is looked at."""
    return fd < _DESCRIPTORS_MAX or hasattr(select, "poll")


def ready(watched: Mapping[int, int], seconds: float | None) -> dict[int, int]:
    """Wait for one of `watched` (descriptor -> IN, OUT, or 0: for a hang-up alone), at most so
    long; what was seen, by descriptor.
    """
    if not hasattr(select, "poll"):
        return _selected(watched, seconds)
    poller = select.poll()
    for fd, mask in watched.items():
        poller.register(fd, mask)
    return dict(poller.poll(None if seconds is None else max(0.0, seconds * 1000)))


def _selected(watched: Mapping[int, int], seconds: float | None) -> dict[int, int]:
    small = [fd for fd in watched if fd < _DESCRIPTORS_MAX]
    seen = {fd: mask | IN for fd, mask in watched.items() if fd >= _DESCRIPTORS_MAX}
    if seen:
        seconds = _LOOK_SECONDS if seconds is None else min(seconds, _LOOK_SECONDS)
    wait = None if seconds is None else max(0.0, seconds)
    if not small:
        time.sleep(0.0 if wait is None else wait)
        return seen
    out = [fd for fd in small if watched[fd] & OUT]
    try:
        readable, writable, _ = select.select(small, out, [], wait)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
        return seen | {fd: HANGUP for fd in small if not _is_open(fd)}  # poll's POLLNVAL
    for fd in readable:
        seen[fd] = IN
    for fd in writable:
        seen[fd] = seen.get(fd, 0) | OUT
    return seen


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
