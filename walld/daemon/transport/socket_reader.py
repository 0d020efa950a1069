"""Reads agents' sockets in turn, a bounded share of each.

Owns: whose turn it is: sweeps over all agents, newcomers in between; and how old what is read may
be. Refuses: who may come in (`acceptor.py`), the sockets and what is sent on them
(`connections.py`), what the dead have left (`exited.py`), who is too slow (`frame_timeouts.py`),
what an event means (`engine/`).

One selector holds all agent sockets, and the event loop waits on its descriptor, so one task serves
ten thousand connections on asyncio, uvloop and trio alike.

Invariants
- I1 A sweep reads at most READ_BYTES_MAX from each ready connection, and SHARE_BYTES between two
  flushes (`fair_queue.py`), less where reading is tight (`process_shares.py`); it yields every
  millisecond. After a sweep that found little it rests, and the kernel's socket buffers are the
  batch; they survive the agent.
- I5 While an agent waits for a flush newcomers come one a turn of the loop, in slices with a rest
  behind each.
- I3 A process is lost when the kernel says it has exited and everything it sent is read
  (`exited.py`).
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint

from walld import limits
from walld.daemon import event_loop
from walld.daemon.transport.acceptor import ACCEPTS_MAX
from walld.daemon.transport.exited import ExitedPeers
from walld.daemon.transport.frame_timeouts import FrameTimeouts
from walld.engine.stream import NOBODY
from walld.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld.daemon.transport.acceptor import Acceptor, Newcomer
    from walld.daemon.transport.connections import Connections, Peer
    from walld.daemon.transport.fair_queue import FairQueue
    from walld.daemon.transport.liveness import Liveness
    from walld.engine.engine import Engine
    from walld.engine.stream import Connection, Process

__all__ = ["SocketReader"]

_TURNS_AT_ONCE = 16
"""Of an earlier connection, before its successor has to wait: 256 KiB, mostly all there is."""
_REST_SHARE = 4
"""No rest is longer than this part of the bound: what came in it has the others to be written."""
_LETTING_IN_TIMES = 800
"""So many looks at the acceptor let in more than wait in any backlog."""


class SocketReader:
    """Reads all agents of a daemon."""

    def __init__(
        self,
        engine: Engine,
        connections: Connections,
        acceptor: Acceptor,
        liveness: Liveness,
        fair_queue: FairQueue,
        swept: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        """swept: called after each sweep, when something may have been queued.

        lost: called when a process's streams have become orphans.
        """
        self._engine = engine
        self._connections = connections
        self.query_sockets = connections.query_sockets
        self._acceptor = acceptor
        self._liveness = liveness
        self._fair_queue = fair_queue
        self._swept = swept
        self._lost = lost
        self._epoll = select.epoll()
        """Agents, and the processes that have exited."""
        self._epoll.register(liveness.fileno(), select.EPOLLIN)
        self._kick = anyio.Event()
        self._awaited = dict[event_loop.Bell, None]()
        self._waiting_newcomers: list[tuple[Newcomer, dict[Connection, int]]] = []
        """Who waits for earlier connections of the same producer to be read."""
        self._swept_at = 0.0
        self._rest_max = min(limits.REST_SECONDS_MAX, engine.schedule.bound / _REST_SHARE)
        self._frame_timeouts = FrameTimeouts(connections, fair_queue, self._turn)
        self.exited_peers = ExitedPeers(
            connections,
            acceptor,
            liveness,
            fair_queue,
            self._turn,
            self._read,
            self._unpark,
            self._lose,
        )

    # --- turns ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Sweep for ever."""
        self._swept_at = event_loop.now()
        while True:
            await self._wait()
            begun = event_loop.now()
            busy = await self.sweep()
            took = event_loop.now() - begun
            # Who waits beside a flood that is held waits for its flush, and for no rest besides.
            is_flood = self._fair_queue.has_spent or self.exited_peers.are_left
            busy = busy or (self._fair_queue.process_shares.is_awaited and is_flood)
            if self._fair_queue.is_paused or not busy:
                # Who waits for each flush is late by each rest: it is no longer than the sweep was.
                least = (
                    0.0 if self._fair_queue.process_shares.is_awaited else limits.REST_SECONDS_MIN
                )
                rest = min(max(took, least), self._rest_max)
                if self._fair_queue.is_paused:
                    rest = self._rest_max
                elif self._awaited:  # what they wait for may come at any time
                    rest = limits.SWEEP_SLICE_SECONDS
                with anyio.move_on_after(rest):
                    await self._kick.wait()
            self._kick = anyio.Event()

    async def _wait(self) -> None:
        """Until somebody has sent something. What the dead have left is there, and is no news."""
        if not self.exited_peers.are_left:
            await anyio.wait_readable(self._epoll.fileno())
        elif not self.exited_peers.are_cut_short:
            with anyio.move_on_after(limits.REST_SECONDS_MIN):
                await anyio.wait_readable(self._epoll.fileno())

    def kick(self) -> None:
        """Somebody waits for what agents have sent: end the rest."""
        self._kick.set()

    async def more(self) -> None:
        """Wait until more of what agents have sent is taken."""
        bell = event_loop.Bell()
        self._awaited[bell] = None
        self.kick()
        try:
            await bell.wait()
        finally:
            self._awaited.pop(bell, None)

    def _took(self) -> None:
        for bell in self._awaited:
            bell.ring()
        self._awaited.clear()

    def _since(self) -> float:
        """What is read now came after the last sweep; after a long silence it has just come."""
        return max(self._swept_at, event_loop.now() - self._rest_max)

    async def sweep(self) -> bool:
        """Read every ready connection once. True where one of them gave much."""
        fair_queue = self._fair_queue
        fair_queue.look_for_room()
        self._engine.reads_since(min(self._since(), fair_queue.waited_since(self._swept_at)))
        by_fd, exits = self._connections.by_fd, self._liveness.fileno()
        ready = self._epoll.poll(0, len(by_fd) + 64)
        busy = False
        at_ms = time.time_ns() // 1_000_000
        slice_end = time.perf_counter() + limits.SWEEP_SLICE_SECONDS
        for fd, _ in ready:
            peer = by_fd.get(fd)
            if peer is not None:
                if fair_queue.is_paused:
                    continue
                if (count := self._turn(peer, at_ms)) >= limits.BUSY_READ_BYTES:
                    busy = True
                    fair_queue.gave(peer, count)
            elif fd == exits:
                self._liveness.notice()
            if time.perf_counter() > slice_end:
                self._connections.send_posted()
                await checkpoint()
                fair_queue.process_shares.look(event_loop.now())
                at_ms = time.time_ns() // 1_000_000
                slice_end = time.perf_counter() + limits.SWEEP_SLICE_SECONDS
        # Before the log is read nobody is lost: what a dead agent sent is still in its socket.
        if self._acceptor.is_open:
            await self.exited_peers.see_off()
            busy = busy or self.exited_peers.are_cut_short
        if self._waiting_newcomers:
            self._begin_waiting()
        self._connections.send_posted()
        self._swept_at = event_loop.now()
        self._swept()
        await checkpoint()
        return busy

    # --- newcomers ------------------------------------------------------------------------------

    async def accept_newcomers(self) -> None:
        """Let newcomers in, for ever: whoever only asks does not wait for a sweep to end.

        While an agent waits they come one by one, and there is a rest behind each slice of them:
        `rate_limit.py`, which does so with requests, says why.
        """
        self._acceptor.listen()
        until = 0.0
        while True:
            await anyio.wait_readable(self._acceptor.fileno())
            waits = self._fair_queue.process_shares.agents_wait()
            if not self.let_in(1 if waits else ACCEPTS_MAX):
                await anyio.sleep(limits.REST_SECONDS_MAX)  # no descriptor to be had
            elif waits and time.perf_counter() >= until:
                await anyio.sleep(limits.ASKING_REST_SECONDS)
                until = time.perf_counter() + limits.ASKING_SLICE_SECONDS

    def let_in(self, most: int = ACCEPTS_MAX) -> bool:
        """Accept, and read what newcomers say first. False where accepting failed.

        most: of those who are there.
        """
        fine = True
        swept, at_ms = self._engine.since, time.time_ns() // 1_000_000
        # As in a sweep; a sweep that has yielded goes on with its own mark.
        self._engine.reads_since(self._since())
        for fd in self._acceptor.ready(most):
            peer = self._connections.by_fd.get(fd)
            if peer is not None:
                self._read(peer, at_ms)
            else:
                fine = self._acceptor.accept(fd, most)
        self._engine.reads_since(swept)
        self._connections.send_posted()
        self._swept()
        return fine

    def open(self) -> None:
        """The log is read: agents may come in."""
        self._swept_at = event_loop.now()
        self._engine.reads_since(self._swept_at)
        self.begin_parked()

    def begin_parked(self) -> None:
        """Begin with the agents that the acceptor has parked."""
        for newcomer in self._acceptor.open():
            self._let(self._begin, newcomer)
        self._swept()

    def _begin(self, newcomer: Newcomer, at_ms: int) -> None:
        """An agent's events are taken from here on, or once its earlier connections are read.

        What a client sent on an earlier connection it sent before it made this one: that is taken
        first, or what it said there of a stream could come after that stream's release here.
        """
        peer, hello, _ = newcomer
        key = peer.connection.uid, hello.producer
        waiting = [
            one.peer.connection
            for one, _ in self._waiting_newcomers
            if (one.peer.connection.uid, one.hello.producer) == key
        ]
        older = dict.fromkeys((*self._engine.registry.producer(*key).connections, *waiting), 0)
        if len(older) >= (most := limits.CONNECTIONS_PER_PRODUCER_MAX):
            raise ProtocolError("too_many_peers", "no room for this producer", len(older), most)
        if any(self._are_read(older, at_ms) for _ in range(_TURNS_AT_ONCE)):
            self._take_in(newcomer, at_ms)
            return
        peer.watch(None)
        self._waiting_newcomers.append((newcomer, older))

    def _are_read(self, older: dict[Connection, int], at_ms: int) -> bool:
        """One turn for each of these connections; True once what they held is taken.

        older: bytes each has given since. One that never runs dry is not waited for beyond what a
        socket can have held.
        """
        parked = {newcomer.peer.connection for newcomer, _ in self._waiting_newcomers}
        for connection, given in list(older.items()):
            if connection in parked:
                continue  # it waits itself, for one that is older still
            left = self._connections.by_connection.get(connection)
            waits = self._fair_queue.is_paused or (
                left is not None and self._fair_queue.is_held(left)
            )
            count = 0 if left is None or waits else self._turn(left, at_ms)
            if left is not None and count >= limits.BUSY_READ_BYTES:
                self._fair_queue.gave(left, count)
            elif left is not None and connection in self._connections.by_connection:
                waits = waits or self._fair_queue.is_held(left)
            older[connection] = given + count
            done = left is None or (not count and not waits)
            if done or older[connection] > limits.SOCKET_BYTES_MAX:
                del older[connection]
        return not older

    def _begin_waiting(self) -> None:
        """Begin with those whose earlier connections are read by now."""
        at_ms = time.time_ns() // 1_000_000
        waiting, self._waiting_newcomers = self._waiting_newcomers, []
        for newcomer, older in waiting:
            if self._are_read(older, at_ms):
                self._let(self._take_in, newcomer)
            else:
                self._waiting_newcomers.append((newcomer, older))

    def _let(self, step: Callable[[Newcomer, int], None], newcomer: Newcomer) -> None:
        """`step` of one whose turn it is: what it said is no error of whoever finds that out."""
        try:
            step(newcomer, time.time_ns() // 1_000_000)
        except ProtocolError as error:
            self._connections.refuse(newcomer.peer, error)

    def _take_in(self, newcomer: Newcomer, at_ms: int) -> None:
        peer, hello, rest = newcomer
        peer.watch(None if peer.connection.process.has_exited else self._epoll)
        connection, registry = peer.connection, self._engine.registry
        connection.producer = registry.producer(connection.uid, hello.producer)
        connection.producer.connections.append(connection)
        if hello.log == self._engine.log_uuid:
            self._engine.lost_acked.attest(hello.synced_no, self._engine.batches.reached_no)
        if rest:
            self._engine.decoder.take(connection, rest, at_ms)
            self._took()

    # --- reading --------------------------------------------------------------------------------

    def _turn(self, peer: Peer, at_ms: int) -> int:
        """One turn of one connection, no more than it may give now. Returns the bytes it gave."""
        parts, connection = self._fair_queue.process_shares, peer.connection
        if not parts.is_tight and not connection.outbox_bytes:
            return self._read(peer, at_ms)
        most = self._fair_queue.turn_bytes(peer)
        if not most:
            return 0
        decoder = self._engine.decoder
        slow, folds = decoder.slow, decoder.folds
        count = self._read(peer, at_ms, most)
        parts.gave(connection.process, count, decoder.slow - slow, decoder.folds - folds)
        return count

    def _read(self, peer: Peer, at_ms: int, most: int = limits.READ_BYTES_MAX) -> int:
        """At most so many bytes of one connection. Returns how many it gave."""
        try:
            # Of a newcomer enough for a Hello: what follows is read in turns, as everybody's.
            let_in = peer.connection.producer is not NOBODY
            data = peer.socket.recv(most if let_in else limits.DOOR_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            data = b""  # reset: the same as the end, everything before it was read
        connection = peer.connection
        if not data:
            self._connections.close(peer)
            return 0
        self._engine.read(len(data))
        before = len(connection.tail)
        try:
            if connection.producer is not NOBODY:
                self._engine.decoder.take(connection, data, at_ms)
                self._took()
            elif (newcomer := self._acceptor.first(peer, data)) is not None:
                self._begin(newcomer, at_ms)
            if max(before, len(connection.tail)) > limits.BEGUN_BYTES_FREE:
                self._connections.collects(connection, len(connection.tail))
        except ProtocolError as error:
            self._connections.refuse(peer, error)
            return 0
        if not connection.tail:
            peer.frame_since = None
        elif peer.frame_since is None or len(connection.tail) < before + len(data):
            peer.frame_since = event_loop.now()
        return len(data)

    def _unpark(self, peer: Peer) -> None:
        """Its earlier connections are read out: what it said behind its Hello is taken."""
        for entry in [one for one in self._waiting_newcomers if one[0].peer is peer]:
            self._waiting_newcomers.remove(entry)
            self._let(self._take_in, entry[0])

    # --- those who are gone ---------------------------------------------------------------------

    async def catch_up(self, uid: int | None, asking: Connection) -> bool:
        """See off whoever of that user (None: of all) has exited or hung up by now, let in or not.

        A supervisor that has waited for its agent asks for what it left: what the kernel still
        holds of the dead is read before "nothing" is said. False where they left more than could
        be read in time. Who asks waits no longer than he is there.
        """
        if self.exited_peers.are_none() or self.query_sockets.has_hung_up(asking):
            return True
        for _ in range(_LETTING_IN_TIMES):
            if not self._acceptor.ready(1) or not self.let_in():
                break
            await checkpoint()
        if not await self.exited_peers.all_of(
            uid, self.kick, lambda: self.query_sockets.has_hung_up(asking)
        ):
            return False
        await self.query_sockets.settled(uid, asking)
        return True

    def _lose(self, process: Process) -> None:
        self._engine.lose(process, "agent_lost")
        self._lost()

    async def tick(self) -> None:
        """Once a second: frames that never get whole, graces that ran out, idle processes."""
        self._fair_queue.tick()
        if self._acceptor.is_open:
            await self.exited_peers.see_off()
            self.query_sockets.look()
        if self._waiting_newcomers:  # that a connection has run dry wakes nobody
            self._begin_waiting()
        await self._frame_timeouts.look()
        now = event_loop.now()
        for process in self._liveness.overdue(now):
            self._lose(process)
        self._liveness.drop_idle(now)
        await checkpoint()

    # --- the end --------------------------------------------------------------------------------

    async def read_to_end(self) -> None:
        """At shutdown: everything the kernel holds for us, also in connections not accepted yet."""
        await self._acceptor.shut()
        self.let_in()
        while await self.sweep():
            pass
        for peer in sorted(self._connections.by_fd.values(), key=lambda one: one.connection.name):
            await self.exited_peers.read_out(peer)

    def close(self) -> None:
        """Close what is left. Clients see the end and hold what is not synced."""
        self._connections.close_sockets()
        self._liveness.close()
        self._acceptor.close()
        self.exited_peers.close()
        self._epoll.close()
