"""Reads the sockets of exited processes to their end.

Owns: whose exit is known, and reading what the kernel still holds of them, within the shares of
everybody. Refuses: who has exited (`liveness.py`), how much may be read (`fair_queue.py`), what
follows from a loss (`engine/`).

All that the kernel took of a dead agent comes back (P1), and it can wait: nobody takes it out of
its socket. So the dead give what their part allows (`process_shares.py`) and nothing while the
queue is full. Read whatever the queue held, children that each said 200 KB and went made it grow by
108 MB in 4 s. What waits is bounded by the buffers of as many sockets as there may be connections.

Invariant: I3 of `socket_reader.py`.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint

from walld import limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld.daemon.transport.acceptor import Acceptor
    from walld.daemon.transport.connections import Connections, Peer
    from walld.daemon.transport.fair_queue import FairQueue
    from walld.daemon.transport.liveness import Liveness
    from walld.engine.producer import Connection, Process

__all__ = ["ExitedPeers"]

_WAIT_SECONDS = 1.5
"""How long a request waits for what the dead of its user have left."""
_LOOK_SECONDS = 0.002
"""Between two looks meanwhile."""


class ExitedPeers:
    """Sees off processes."""

    def __init__(
        self,
        connections: Connections,
        acceptor: Acceptor,
        liveness: Liveness,
        fair_queue: FairQueue,
        turn: Callable[[Peer, int], int],
        read: Callable[[Peer, int], int],
        unpark: Callable[[Peer], None],
        lose: Callable[[Process], None],
    ) -> None:
        """turn: a turn of a connection, within what it may give; read: whatever it may give.

        unpark: a connection that waits for earlier ones waits no longer. lose: all is read.
        """
        self._connections = connections
        self._liveness = liveness
        self._fair_queue = fair_queue
        self._query_sockets = connections.query_sockets
        self._news = select.epoll()
        """One look for all three: each request begins with it, and mostly there are none."""
        for watched in (acceptor, liveness, self._query_sockets):
            self._news.register(watched.fileno(), select.EPOLLIN)
        self._turn = turn
        self._read = read
        self._unpark = unpark
        self._lose = lose
        self._left: dict[Process, dict[Connection, int]] = {}
        """Who is not read out, in the order of their exits, and what each connection has given."""
        self._lock = anyio.Lock()
        self._given = 0
        """By all of them in this turn: those who live are read between two."""
        self._spent = set[int]()
        """Users whose dead have given their part in this turn: none of them gives anything more."""

    def are_none(self) -> bool:
        """Nobody has exited or hung up by now who is not seen off, and nobody is at the door."""
        news = self._news.poll(0, 1)
        return not (
            news or self._left or self._liveness.have_exited or self._query_sockets.are_gone
        )

    def close(self) -> None:
        """At the end of the daemon."""
        self._news.close()

    async def see_off(self) -> None:
        """Read on, a share of all of them together; who is read out is lost."""
        while (exited := self._liveness.next_exited()) is not None:
            self._left[exited] = {}
        if not self._left:
            return
        async with self._lock:
            self._given = 0
            self._spent.clear()
            for process, given in list(self._left.items()):
                if process.uid in self._spent or process not in self._left:
                    continue
                if await self._is_read_out(process, given):
                    del self._left[process]
                    self._liveness.forget(process)
                    self._lose(process)

    async def all_of(
        self, uid: int | None, kick: Callable[[], None], is_gone: Callable[[], bool]
    ) -> bool:
        """See off who has exited by now.

        is_gone: who asked has hung up, and waits no longer: its own process may be among them.
        False where those of `uid` (None: all) are not read out in time.
        """
        self._liveness.notice()
        await self.see_off()
        waiting = [process for process in self._left if uid in (None, process.uid)]
        if not waiting:
            return True
        with anyio.move_on_after(_WAIT_SECONDS):
            while not is_gone() and any(process in self._left for process in waiting):
                kick()
                await anyio.sleep(_LOOK_SECONDS)
                await self.see_off()
        return is_gone() or not any(process in self._left for process in waiting)

    async def _is_read_out(self, process: Process, given: dict[Connection, int]) -> bool:
        """Read its connections in the order they were made. False where that must wait."""
        here = self._connections.by_connection
        for connection in sorted(process.connections, key=lambda one: one.name):
            peer = here.get(connection)
            if peer is None:
                continue  # its end was read in a sweep meanwhile
            self._unpark(peer)
            while connection in here and given.get(connection, 0) <= limits.SOCKET_BYTES_MAX:
                waits = self._fair_queue.is_paused or self._fair_queue.has_spent_share(peer)
                if waits or self._given > limits.SHARE_BYTES:
                    return False
                count = self._turn(peer, time.time_ns() // 1_000_000)
                if not count and self._fair_queue.has_spent_share(peer):
                    self._spent.add(process.uid)
                    return False
                if not count:
                    break
                given[connection] = given.get(connection, 0) + count
                self._given += count
                await checkpoint()
            if connection in here:  # a fork that lives on holds the socket open
                self._connections.close(peer)
        return not self._query_sockets.has_unfinished_work(process)

    async def read_out(self, peer: Peer) -> None:
        """At the end of the daemon: all that the kernel holds, and no more than it can.

        Whoever lives, or its fork, may go on sending.
        """
        self._unpark(peer)
        here, given = self._connections.by_connection, 0
        while peer.connection in here and given <= limits.SOCKET_BYTES_MAX:
            count = self._read(peer, time.time_ns() // 1_000_000)
            if not count:
                return
            given += count
            await checkpoint()
