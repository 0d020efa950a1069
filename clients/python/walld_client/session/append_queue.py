"""The queue of `append(wait=False)`: whose entries they are, until they are answered.

Owns: whose they are, from the first that is posted to the end of the process, and waiting for them.
Refuses: the connection and the order of what is sent (`append_connection.py`).

A post takes a system call or two. The one that opens the connection gives the daemon a moment to
say Welcome (BACKOFF_SECONDS_MIN), also in an event loop.

Nothing is dropped in silence: what the kernel has is the daemon's to do, whether this process
lives or not; what it does not have is sent by the I/O thread, and at the end of the process waited
for within a bound, and counted in the log where that was too short; what does not fit raises.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial

from walld_client import link_registry
from walld_client.errors import Unavailable
from walld_client.limits import BACKOFF_SECONDS_MIN
from walld_client.link import poll, process
from walld_client.session.append_connection import AppendConnection
from walld_client.session.append_order import PostedEntry
from walld_client.steps import Done, Steps
from walld_client.wire.messages import NewEntry, Seen

__all__ = ["AppendQueue", "delivered", "hand_over_all"]

_LOOK_SECONDS = 0.05
"""Between two looks of who waits: another thread may have read what it waits for."""
_log = logging.getLogger("walld")
_connections: weakref.WeakSet[AppendConnection] = weakref.WeakSet()
"""All that may hold something when the process ends, also of clients that nobody has any more."""


class AppendQueue:
    """What a client has posted, of each session in the order in which it was posted.

    released: of a session, what the process has released up to now (`link.py`).
    """

    def __init__(
        self,
        locate: Callable[[], str],
        timeout: float,
        released: Callable[[str], Callable[[], list[Seen]]],
    ) -> None:
        self._locate = locate
        self.timeout = timeout
        """What a request waits for all that was posted before it."""
        self._released = released
        self._connection = self._made()
        self._never = 0
        """Entries that were given up by `close`."""
        self._closing = threading.RLock()
        process.register(self)

    def __len__(self) -> int:
        process.check_fork()
        return len(self._connection)

    def post(self, session_id: str, entry: NewEntry) -> None:
        """Send it, or keep it for later. Unavailable where so much waits that it does not fit."""
        process.check_fork()
        full = self._connection.post(PostedEntry(session_id, entry, self._released(session_id)))
        if full:
            raise Unavailable(full)

    def _made(self) -> AppendConnection:
        """Before anybody posts: made by the first post, two of two threads would each have one."""
        connection = AppendConnection(self._locate)
        _connections.add(connection)
        # The I/O thread holds on to it until all is sent.
        weakref.finalize(self, connection.let_go).atexit = False
        return connection

    def settle(self, timeout: float, session_id: str | None = None) -> None:
        """Wait until all that was posted, to that session, is answered. Unavailable where that
        takes longer.
        """
        process.check_fork()
        connection = self._connection
        is_done = _is_answered if session_id is None else partial(_is_answered_of, session_id)
        if not _waited(connection, is_done, timeout):
            raise connection.failure or Unavailable(
                f"{len(connection)} entries that were posted are not answered "
                f"within {timeout:.3g} s"
            )

    def close(self) -> bool:
        """Give the kernel what it takes at once, and let go: whoever closes has waited before. What
        is left is lost, and said so, also by a close in another loop that comes behind this one.
        """
        process.check_fork()
        with self._closing:  # the other one may be at it: only then it knows
            connection, self._connection = self._connection, self._made()
            _waited(connection, _is_handed_over, 0.0)
            _connections.discard(connection)
            self._never += _told(connection.close())
            return not self._never

    def forked(self) -> None:
        """In the child of a fork: all of it is the parent's."""
        self._connection = self._made()
        self._never = 0
        self._closing = threading.RLock()


def delivered(
    append_queue: AppendQueue, timeout: float, session_id: str | None = None
) -> Steps[None]:
    """Wait until all that was posted, to that session, is there."""
    if len(append_queue):
        yield Done(partial(append_queue.settle, session_id=session_id), timeout)


def hand_over_all(deadline: float) -> None:
    """At the end of the process: wait for the kernel to take what was posted, until then."""
    left = 0
    for connection in list(_connections):
        if not _waited(connection, _is_handed_over, deadline - time.monotonic()):
            left += connection.unsent
    _told(left)


link_registry.at_exit(hand_over_all)


def _told(never: int) -> int:
    if never:
        _log.warning("%d entries that were posted never reached walld", never)
    return never


def _is_answered(connection: AppendConnection) -> bool:
    return not len(connection)


def _is_answered_of(session_id: str, connection: AppendConnection) -> bool:
    return not connection.holds(session_id)


def _is_handed_over(connection: AppendConnection) -> bool:
    return not connection.unsent


def _waited(
    connection: AppendConnection, is_done: Callable[[AppendConnection], bool], seconds: float
) -> bool:
    """Pump until that is so. False where it takes too long, or no daemon was ever there."""
    deadline = time.monotonic() + seconds
    while not is_done(connection):
        fd, mask, _ = connection.go_on(hurry=True)
        if is_done(connection):
            return True
        left = deadline - time.monotonic()
        if left <= 0 or (fd < 0 and not connection.was_there):
            return False
        if fd < 0:
            time.sleep(min(left, BACKOFF_SECONDS_MIN))
        else:
            # Not under the lock: who posts meanwhile does not wait.
            poll.ready({fd: mask | poll.IN}, min(left, _LOOK_SECONDS))
    return True
