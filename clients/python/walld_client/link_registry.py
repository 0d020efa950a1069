"""The links of this process: one a socket, shared by all clients.

Owns: which client uses which link, and what is done when the interpreter ends. Refuses: the links'
insides, which are loaded by the first who joins one.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from walld_client.limits import CLOSE_SECONDS
from walld_client.link import process

if TYPE_CHECKING:
    from walld_client.link.link import Link

__all__ = ["WORD_SECONDS", "at_exit", "flushed", "join", "part"]

WORD_SECONDS = 0.25
"""What who leaves waits at most to hear that a reply was refused."""
_mutex = process.Mutex()
_links: dict[str, Link] = {}
_users: dict[str, int] = {}
_last: list[Callable[[float], object]] = []


def join(socket: str | None, backlog_bytes_max: int) -> tuple[str, Link]:
    """The link to `socket` (None: wherever it is found), and its key for `part`.

    The first who joins sets the bound of its memory.
    """
    # Not above: the hook at exit is there before they are. `client.py` has loaded them by now.
    from walld_client.link.link import Link
    from walld_client.link.socket_path import find_socket

    process.check_fork()
    key = socket or ""
    with _mutex.lock:
        if key not in _links:
            # Two may lead to one daemon, by two paths.
            name = os.urandom(16) if _links else b""
            _links[key] = Link(partial(find_socket, socket), backlog_bytes_max, name)
            _users[key] = 0
        _users[key] += 1
        return key, _links[key]


def part(key: str, link: Link) -> bool:
    """A client is done with it. True for the last one, who must shut it."""
    process.check_fork()
    with _mutex.lock:
        if _links.get(key) is not link:
            return False
        _users[key] -= 1
        if _users[key]:
            return False
        del _links[key], _users[key]
        return True


def flushed(link: Link, timeout: float) -> bool:
    """Wait until the kernel has everything; at most `timeout`.

    Nobody is waited for who was never there: then what waits is lost with this process anyway.
    """
    told = threading.Event()
    deadline = time.monotonic() + timeout
    taken = link.flush(told.set)
    taken = taken or (link.reconnect.connections > 0 and process.io_thread().wait(told, timeout))
    if taken:
        heard = threading.Event()
        asked = link.ask_whether_begun(lambda _reached: heard.set())
        if asked is not None:
            process.io_thread().wait(
                heard, min(WORD_SECONDS, max(0.0, deadline - time.monotonic()))
            )
            link.forget_drain(asked)
    return taken


def at_exit(hand_over: Callable[[float], object]) -> None:
    """`hand_over(deadline)` is called when the interpreter ends, behind the flush of the links."""
    _last.append(hand_over)


def _at_exit() -> None:
    process.check_fork()
    deadline = time.monotonic() + CLOSE_SECONDS
    process.io_thread().end()  # what it had left to do is done here, by who waits for it
    for link in list(_links.values()):
        flushed(link, max(0.0, deadline - time.monotonic()))
    for hand_over in _last:
        hand_over(deadline)


atexit.register(_at_exit)
