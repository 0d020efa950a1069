"""Notices query connections that hung up, and requests they left unfinished.

Owns: which connections that ask were hung up by the other side, and waiting for what those left.
Refuses: reading and answering them (`server.py`), agents' connections (`exited.py`).

What the kernel took of a request that changes something is done, whether anybody is left to hear
the answer or not: an entry that is appended without waiting is sent like a token, and its program
may be gone. So who asks, deletes or is told that a process is gone waits for such words first, as
for the events of the dead. Whether a connection was hung up is asked of the kernel, in one call for
all of them; it says so while there are still bytes to read.

Invariant: nobody waits for words of his own. A request of a connection that was hung up waits for
no other, or two that died would wait for each other.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

import anyio

from walld.daemon import event_loop

if TYPE_CHECKING:
    import socket

    from walld.engine.stream import Connection, Process

__all__ = ["QuerySocket", "QuerySockets"]

_WAIT_SECONDS = 1.0
"""How long anybody waits for what one who hung up has left, from then on: it is done also later,
but a disk that hangs keeps nobody from what is there (P7)."""
_LOOK_SECONDS = 0.002
"""Between two looks meanwhile."""


class QuerySocket:
    """One query connection."""

    __slots__ = (
        "connection",
        "goes_on",
        "gone_at",
        "is_done",
        "socket",
        "takes_no_answers",
        "waits_for",
    )

    def __init__(self, peer: socket.socket, connection: Connection) -> None:
        self.socket = peer
        self.connection = connection
        self.gone_at: float | None = None
        """Since when the other side is known to be closed; what it said may not all be read."""
        self.goes_on = False
        """What is read of it was there when it was looked for: the loop may have had no turn."""
        self.takes_no_answers = False
        """It hears no answer any more: only what changes something is worth doing."""
        self.waits_for: event_loop.Bell | None = None
        """Its appends are on their way to the disk. Set where it hangs up, too: a disk that hangs
        keeps nobody from what it sent behind them.
        """
        self.is_done = True
        """No append that was read of it is yet to be taken. What is taken is read by all, so that
        it waits for the disk concerns nobody else; nor does another request, which has its answer.
        """

    def has_recent_unfinished_work(self) -> bool:
        """It hung up just now, and something it said is left to do."""
        if self.gone_at is None or event_loop.now() > self.gone_at + _WAIT_SECONDS:
            return False
        return self.has_unfinished_work()

    def has_unfinished_work(self) -> bool:
        """It hung up, whenever that was, and something it said is left to do."""
        return not self.is_done or bool(event_loop.unread_bytes(self.socket))


class QuerySockets:
    """All query connections of a daemon."""

    def __init__(self) -> None:
        self._selector = select.epoll()
        self._by_fd: dict[int, QuerySocket] = {}
        self._gone: dict[Connection, QuerySocket] = {}
        """Those who have hung up."""

    def fileno(self) -> int:
        """Readable when one has hung up."""
        return self._selector.fileno()

    @property
    def are_gone(self) -> bool:
        """Some are known to have hung up, and not all they said may be done."""
        return bool(self._gone)

    def add(self, peer: socket.socket, connection: Connection) -> QuerySocket:
        """A query connection that the acceptor has handed over."""
        caller = QuerySocket(peer, connection)
        self._by_fd[peer.fileno()] = caller
        self._selector.register(peer.fileno(), 0)  # a hang-up is always told
        return caller

    def end(self, caller: QuerySocket) -> None:
        """All it said is done. The caller closes its socket behind this."""
        fd = caller.socket.fileno()
        if self._by_fd.pop(fd, None) is not None:
            self._selector.unregister(fd)
        self._gone.pop(caller.connection, None)

    def look(self) -> None:
        """Who has hung up by now?"""
        for fd, _ in self._selector.poll(0):
            caller = self._by_fd.pop(fd)
            self._selector.unregister(fd)
            caller.gone_at = event_loop.now()
            self._gone[caller.connection] = caller
            if caller.waits_for is not None:
                caller.waits_for.ring()

    def has_hung_up(self, connection: Connection) -> bool:
        """That connection is closed on the other side."""
        self.look()
        return connection in self._gone

    def has_unfinished_work(self, process: Process) -> bool:
        """Something is left to do of what that process said before it hung up."""
        self.look()
        return any(
            one.has_recent_unfinished_work()
            for one in self._gone.values()
            if one.connection.process is process
        )

    async def settled(self, uid: int | None, asking: Connection | None) -> bool:
        """Wait until what those of `uid` (None: of all) left who have hung up by now is done.

        asking: who waits, and has looked; no longer once it has hung up itself. None: nobody has.
        False where it took too long, or did for who asked before.
        """
        if asking is None:
            self.look()
        # Not those who hang up meanwhile: as one follows the other this would never end.
        waiting = [one for one in self._gone.values() if uid in (None, one.connection.uid)]
        while asking not in self._gone and any(map(self._has_recent_unfinished_work, waiting)):
            await anyio.sleep(_LOOK_SECONDS)
            self.look()
        return not any(self._is_gone(one) and one.has_unfinished_work() for one in waiting)

    def _is_gone(self, caller: QuerySocket) -> bool:
        return self._gone.get(caller.connection) is caller

    def _has_recent_unfinished_work(self, caller: QuerySocket) -> bool:
        return self._is_gone(caller) and caller.has_recent_unfinished_work()

    def close(self) -> None:
        """At the end of the daemon."""
        self._selector.close()
