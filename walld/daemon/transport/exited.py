"""Reads the sockets of exited processes to their end.

Owns: whose exit is known, and reading what the kernel still holds of them, within the shares of
everybody. Refuses: who has exited (`liveness.py`), how much may be read (`fair_queue.py`), what
follows from a loss (`engine/`).

All that the kernel took of a dead agent comes back (P1), and it can wait: nobody takes it out of
its socket. So the dead give what their part allows (`process_shares.py`) and nothing while the
queue is full. Read whatever the queue held, children that each said 200 KB and went made it grow by
108 MB in 4 s. What waits is bounded by the buffers of as many sockets as there may be connections.

No sweep watches them: each is ready until it is read out, and children that speak and go leave
thousands. Watched, all of them were tried and held again for each flush, 23,000 times in 330.

Invariant: I3 of `socket_reader.py`.
"""

from __future__ import annotations

import select
import time
from collections import deque
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
    from walld.engine.stream import Connection, Process

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
        self._left: dict[int, deque[tuple[Process, dict[Connection, int]]]] = {}
        """Who is not read out, by uid, and what each connection has given."""
        self._lock = anyio.Lock()
        self._given = 0
        """By all of them in this turn: those who live are read between two."""
        self._spent = set[int]()
        """Users whose dead have given their part in this turn: none of them gives anything more."""

    def are_none(self) -> bool:
        """Nobody has exited or hung up by now who is not seen off, and no newcomer waits."""
        news = self._news.poll(0, 1)
        return not (
            news or self._left or self._liveness.have_exited or self._query_sockets.are_gone
        )

    def close(self) -> None:
        """At the end of the daemon."""
        self._news.close()

    @property
    def are_left(self) -> bool:
        """Some are not read out, and nothing wakes the loop for them."""
        return bool(self._left)

    @property
    def are_cut_short(self) -> bool:
        """They gave as much as goes in one turn: the next one need not wait for anything."""
        return bool(self._left) and self._given > limits.SHARE_BYTES

    async def see_off(self) -> None:
        """Read on, a share of all of them together; who is read out is lost."""
        while (exited := self._liveness.next_exited()) is not None:
            for connection in exited.connections:
                peer = self._connections.by_connection.get(connection)
                if peer is not None:
                    self._fair_queue.unwatch(peer)
            self._left.setdefault(exited.uid, deque()).append((exited, {}))
        if not self._left:
            return
        async with self._lock:
            self._given = 0
            self._spent.clear()
            for uid, left in list(self._left.items()):
                await self._see_off_of(uid, left)
                if self._is_over:
                    break

    @property
    def _is_over(self) -> bool:
        """Nobody more is read in this turn."""
        return self._fair_queue.is_paused or self._given > limits.SHARE_BYTES

    async def _see_off_of(
        self, uid: int, left: deque[tuple[Process, dict[Connection, int]]]
    ) -> None:
        for _ in range(len(left)):
            if self._is_over or uid in self._spent:
                break
            process, given = left[0]
            if await self._is_read_out(process, given):
                left.popleft()
                self._liveness.forget(process)
                self._lose(process)
            elif not (self._is_over or uid in self._spent):
                left.rotate(-1)  # it waits for what it had asked, and nobody behind it does
        del self._left[uid]
        if left:
            self._left[uid] = left  # behind the other users

    async def all_of(
        self, uid: int | None, kick: Callable[[], None], is_gone: Callable[[], bool]
    ) -> bool:
        """See off who has exited by now.

        is_gone: who asked has hung up, and waits no longer: its own process may be among them.
        False where those of `uid` (None: all) are not read out in time.
        """
        self._liveness.notice()
        await self.see_off()
        lefts = [left for one, left in self._left.items() if uid in (None, one)]
        waiting = [process for left in lefts for process, _ in left]
        if not waiting:
            return True
        with anyio.move_on_after(_WAIT_SECONDS):
            while not is_gone() and not all(process.is_lost for process in waiting):
                kick()
                await anyio.sleep(_LOOK_SECONDS)
                await self.see_off()
        return is_gone() or all(process.is_lost for process in waiting)

    async def _is_read_out(self, process: Process, given: dict[Connection, int]) -> bool:
        """Read its connections in the order they were made. False where that must wait."""
        here = self._connections.by_connection
        for connection in sorted(process.connections, key=lambda one: one.name):
            peer = here.get(connection)
            if peer is None:
                continue  # its end was read in a sweep meanwhile
            self._unpark(peer)
            while connection in here and given.get(connection, 0) <= limits.SOCKET_BYTES_MAX:
                if self._is_over:
                    return False
                if not self._fair_queue.turn_bytes(peer):
                    self._spent.add(process.uid)
                    return False
                count = self._turn(peer, time.time_ns() // 1_000_000)
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
