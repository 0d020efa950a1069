"""Agents' connections: accepted, swept, and seen off.

Owns: the one selector over all agent sockets, whose own descriptor is what the event loop waits on,
so one task serves ten thousand connections on asyncio, uvloop and trio alike. Refuses: what an
event means (`engine/`), requests (`requests.py` gets query connections handed over).

Invariants
- I1 A sweep reads at most READ_BYTES_MAX from each ready connection and yields every millisecond:
  that is all the fairness there is. After a sweep that found little it rests, and the kernel's
  socket buffers are the batch; they survive the agent.
- I2 Only EOF or reset, seen by reading to the end, ends a connection, or broken framing; a failed
  send never does.
- I3 A process is lost when the kernel says it has exited and everything it sent is read.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint
from walld_client.wire import messages as wire
from walld_client.wire.framing import FRAME_BYTES_MAX, PROTOCOL_VERSION, encode

from walld import __version__, limits
from walld.daemon import peers
from walld.daemon.processes import Processes
from walld.engine.peer import Connection
from walld.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld.engine.engine import Engine
    from walld.engine.peer import Process

__all__ = ["Intake"]

_log = logging.getLogger("walld.intake")
_ACCEPTS_MAX = 32
_SEEING_OFF_TIMES = 50
_OVERFLOW_UID = 65534


class _Peer:
    """One accepted socket."""

    __slots__ = ("connection", "frame_since", "selector", "socket")

    def __init__(self, peer: socket.socket, connection: Connection) -> None:
        self.socket = peer
        self.connection = connection
        self.frame_since: float | None = None
        """Since when a frame is begun and not whole."""
        self.selector: select.epoll | None = None
        """Where it is watched: the door, the sweep, or nowhere while the log is being read."""

    def watch(self, selector: select.epoll | None) -> None:
        """Be watched there and no longer where it was."""
        if self.selector is not None:
            self.selector.unregister(self.socket.fileno())
        self.selector = selector
        if selector is not None:
            selector.register(self.socket.fileno(), select.EPOLLIN)


class Intake:
    """All agent connections of a daemon."""

    def __init__(
        self,
        engine: Engine,
        listeners: list[socket.socket],
        boot: str,
        peers_max: int,
        hand_over: Callable[[socket.socket, Connection, bytes], None],
        swept: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        """hand_over: takes a query connection's socket and what came behind its Hello.

        swept: called after each sweep, when something may have been queued. lost: called when a
        process's streams have become orphans.
        """
        self._swept = swept
        self._lost = lost
        self._engine = engine
        self._listeners = {listener.fileno(): listener for listener in listeners}
        self._peers_max = peers_max
        self._hand_over = hand_over
        self._epoll = select.epoll()
        self._door = select.epoll()
        """Listeners, and peers that have not said who they are."""
        self._peers: dict[int, _Peer] = {}
        self._of: dict[Connection, _Peer] = {}
        self._exits = select.epoll()
        """Processes that have exited."""
        self._epoll.register(self._exits.fileno(), select.EPOLLIN)
        self.processes = Processes(self._exits, boot)
        self._seeing_off = 0
        self._by_uid: dict[int, int] = {}
        self._posted: set[Connection] = set()
        self._names = 0
        self._kick = anyio.Event()
        self._swept_at = 0.0
        self.queries = 0
        self._is_open = False
        self._is_paused = False
        self._parked: list[tuple[_Peer, wire.Hello, bytes]] = []

    # --- the loop -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Sweep for ever."""
        self._swept_at = anyio.current_time()
        while True:
            await anyio.wait_readable(self._epoll.fileno())
            # What is read now came after the last sweep; after a long silence it has just come.
            woken = anyio.current_time()
            self._engine.since = max(self._swept_at, woken - limits.REST_SECONDS_MAX)
            begun = anyio.current_time()
            busy = await self.sweep()
            took = anyio.current_time() - begun
            if self._is_paused or not busy:
                rest = min(max(took, limits.REST_SECONDS_MIN), limits.REST_SECONDS_MAX)
                if self._is_paused:
                    rest = limits.REST_SECONDS_MAX
                with anyio.move_on_after(rest):
                    await self._kick.wait()
            self._kick = anyio.Event()

    async def run_door(self) -> None:
        """Let newcomers in, for ever: whoever only asks does not wait for a sweep to end."""
        for fd in self._listeners:
            self._door.register(fd, select.EPOLLIN)
        while True:
            await anyio.wait_readable(self._door.fileno())
            if not self.let_in():
                await anyio.sleep(limits.REST_SECONDS_MAX)  # no descriptor to be had

    def let_in(self) -> bool:
        """Accept, and read what newcomers say first. False where accepting failed."""
        fine = True
        swept, at_ms = self._engine.since, time.time_ns() // 1_000_000
        # As in a sweep; a sweep that has yielded goes on with its own mark.
        self._engine.since = max(self._swept_at, anyio.current_time() - limits.REST_SECONDS_MAX)
        for fd, _ in self._door.poll(0, _ACCEPTS_MAX):
            peer = self._peers.get(fd)
            if peer is not None:
                self._read(peer, at_ms)
            elif fd in self._listeners:
                fine = self._accept(self._listeners[fd])
        self._engine.since = swept
        self.send_posted()
        self._swept()
        return fine

    def _look_for_room(self) -> None:
        """Pause agents when the queue is full, until it is at half; a full disk pauses nobody.

        What is not read is not lost: it stays in the kernel's buffers, and its age counts. The door
        stays open, so that somebody can ask what is wrong.
        """
        full = self._engine.is_full or (self._is_paused and not self._engine.has_room)
        self._is_paused = full and not self._engine.disk_full

    def kick(self) -> None:
        """Somebody waits for what agents have sent: end the rest."""
        self._kick.set()

    async def sweep(self) -> bool:
        """Read every ready connection once. True where one of them gave much."""
        self._look_for_room()
        ready = self._epoll.poll(0, len(self._peers) + 64)
        busy = False
        at_ms = time.time_ns() // 1_000_000
        slice_end = time.perf_counter() + limits.SWEEP_SLICE_SECONDS
        for fd, _ in ready:
            peer = self._peers.get(fd)
            if peer is not None:
                if self._is_paused:
                    continue
                if self._read(peer, at_ms) > limits.BUSY_READ_BYTES:
                    busy = True
            elif fd == self._exits.fileno():
                self._notice_exits()
            if time.perf_counter() > slice_end:
                self.send_posted()
                await checkpoint()
                at_ms = time.time_ns() // 1_000_000
                slice_end = time.perf_counter() + limits.SWEEP_SLICE_SECONDS
        # Before the log is read nobody is lost: what a dead agent sent is still in its socket.
        while self._is_open and (process := self.processes.next_exited()) is not None:
            await self._exited(process)
        self.send_posted()
        self._swept_at = anyio.current_time()
        self._swept()
        await checkpoint()
        return busy

    def _read(self, peer: _Peer, at_ms: int) -> int:
        """One turn of one connection. Returns the bytes it gave."""
        try:
            data = peer.socket.recv(limits.READ_BYTES_MAX)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            data = b""  # reset: the same as the end, everything before it was read
        connection = peer.connection
        if not data:
            self._close(peer)
            return 0
        self._engine.counters.received_bytes += len(data)
        before = len(connection.tail)
        try:
            if connection.producer is None:
                self._first(peer, data, at_ms)
            else:
                self._engine.feed.take(connection, data, at_ms)
        except ProtocolError as error:
            self._refuse(peer, error)
            return 0
        if not connection.tail:
            peer.frame_since = None
        elif peer.frame_since is None or len(connection.tail) < before + len(data):
            peer.frame_since = anyio.current_time()
        return len(data)

    def _first(self, peer: _Peer, data: bytes, at_ms: int) -> None:
        """The first bytes of a connection: Hello decides what it is."""
        connection = peer.connection
        first = self._engine.feed.first(connection, data)
        if first is None:
            return
        hello, rest = first
        welcome = wire.Welcome(
            PROTOCOL_VERSION,
            __version__,
            self._engine.log_uuid,
            FRAME_BYTES_MAX,
            limits.TEXT_BYTES_MAX,
        )
        connection.post(encode(welcome))
        self._send(peer)
        if hello.role == "query":
            self._forget(peer)
            self.queries += 1
            self._by_uid[connection.uid] += 1
            self._hand_over(peer.socket, connection, rest)
            return
        if not self._is_open:
            # The log is being read: what the agent sends waits in the kernel, and it never blocks.
            peer.watch(None)
            self._parked.append((peer, hello, rest))
            return
        peer.watch(self._epoll)
        self._begin(peer, hello, rest, at_ms)

    def _begin(self, peer: _Peer, hello: wire.Hello, rest: bytes, at_ms: int) -> None:
        """An agent's events are taken from here on."""
        connection = peer.connection
        connection.producer = self._engine.registry.producer(connection.uid, hello.producer)
        connection.producer.connections += 1
        if hello.log == self._engine.log_uuid:
            self._engine.attest(hello.synced_no)
        if rest:
            self._engine.feed.take(connection, rest, at_ms)

    def open(self) -> None:
        """The log is read: agents may come in."""
        self._is_open = True
        self._engine.since = self._swept_at = anyio.current_time()
        for peer, hello, rest in self._parked:
            peer.watch(self._epoll)
            try:
                self._begin(peer, hello, rest, time.time_ns() // 1_000_000)
            except ProtocolError as error:
                self._refuse(peer, error)
        self._parked.clear()
        self._swept()

    # --- sending --------------------------------------------------------------------------------

    def send_posted(self) -> None:
        """Hand the kernel what waits for peers; what it does not take waits on."""
        for connection in list(self._posted):
            peer = self._of.get(connection)
            if peer is None:
                self._posted.discard(connection)
            else:
                self._send(peer)

    def _send(self, peer: _Peer) -> None:
        connection = peer.connection
        data = b"".join(connection.outbox)
        try:
            sent = peer.socket.send(data)
        except OSError:
            sent = 0  # I2: the reading side finds out what is wrong
        rest = data[sent:]
        connection.outbox = [rest] if rest else []
        connection.outbox_bytes = len(rest)
        if not rest:
            self._posted.discard(connection)

    async def acknowledge_all(self) -> None:
        """An Ack to each connection whose streams' watermarks moved."""
        slice_end = time.perf_counter() + limits.SWEEP_SLICE_SECONDS
        for peer in list(self._peers.values()):
            if not peer.connection.dirty or peer.connection.outbox_bytes:
                continue
            self._engine.acknowledge(peer.connection)
            self._send(peer)
            if time.perf_counter() > slice_end:
                await checkpoint()
                slice_end = time.perf_counter() + limits.SWEEP_SLICE_SECONDS
        self.send_posted()

    # --- coming ---------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> bool:
        """Some of those who wait. False where that failed for want of descriptors or memory."""
        for _ in range(_ACCEPTS_MAX):
            try:
                accepted, _address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return True
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    raise
                _log.error("cannot accept: %s; %d peers open", error.strerror, len(self._peers))
                return False
            accepted.setblocking(False)
            self._admit(accepted)
        return True

    def _admit(self, accepted: socket.socket) -> None:
        try:
            who = peers.credentials(accepted)
        except OSError:
            accepted.close()
            return
        here = self._by_uid.get(who.uid, 0)
        share = int(self._peers_max * limits.PEERS_UID_SHARE_MAX)
        error = None
        if who.uid == _OVERFLOW_UID and os.getuid() != _OVERFLOW_UID:
            text = "the uid of this peer cannot be told from others: run without a user namespace"
            error = wire.Error("foreign_uid", text, str(who.uid), "a mapped uid")
        elif len(self._peers) + self.queries >= self._peers_max:
            error = wire.Error(
                "too_many_peers", "no room", str(len(self._peers)), str(self._peers_max)
            )
        elif here >= share:
            error = wire.Error("too_many_peers", "no room for this uid", str(here), str(share))
        if error is not None:
            self._engine.counters.protocol_errors[error.code] += 1
            with suppress(OSError):  # it may be gone already
                accepted.send(encode(error))
            accepted.close()
            return
        process = self.processes.of_peer(accepted, who)
        self._names += 1
        connection = Connection(self._names, who.uid, process, self._posted)
        process.connections.add(connection)
        peer = _Peer(accepted, connection)
        self._peers[accepted.fileno()] = peer
        self._of[connection] = peer
        self._by_uid[who.uid] = here + 1
        peer.watch(self._door)

    # --- going ----------------------------------------------------------------------------------

    def _forget(self, peer: _Peer) -> None:
        """The socket is no longer intake's."""
        connection = peer.connection
        peer.watch(None)
        del self._peers[peer.socket.fileno()]
        del self._of[connection]
        self._posted.discard(connection)
        self._by_uid[connection.uid] -= 1
        connection.process.connections.discard(connection)

    def _close(self, peer: _Peer) -> None:
        """The end was read, or framing is lost."""
        connection, process = peer.connection, peer.connection.process
        self._forget(peer)
        peer.socket.close()
        producer = connection.producer
        if producer is not None:
            for stream in producer.streams.values():
                if stream.connection is connection:
                    stream.connection = None
            producer.connections -= 1
            self._engine.registry.forget_producer(producer)
        self.processes.leave(process, anyio.current_time())

    def _refuse(self, peer: _Peer, error: ProtocolError) -> None:
        """Framing is lost: say why and close. What came before is taken."""
        self._engine.counters.protocol_errors[error.code] += 1
        _log.warning(
            "connection %d of uid %d closed: %s", peer.connection.name, peer.connection.uid, error
        )
        peer.connection.post(encode(wire.Error(error.code, error.message, error.got, error.limit)))
        self._send(peer)
        self._close(peer)

    async def _exited(self, process: Process) -> None:
        """The kernel says a process has exited: read what it left, then its streams are orphans."""
        self._seeing_off += 1
        try:
            for connection in list(process.connections):
                peer = self._of.get(connection)
                if peer is None:
                    continue  # its end was read at the door meanwhile
                while connection in self._of and self._read(peer, time.time_ns() // 1_000_000):
                    await checkpoint()
                if connection in self._of:  # a fork that lives on holds the socket open
                    self._close(peer)
            self.processes.forget(process)
            self._lose(process)
        finally:
            self._seeing_off -= 1

    async def catch_up(self) -> None:
        """See off whoever has exited by now, also who was not let in yet.

        A supervisor that has waited for its agent asks for what it left: what the kernel still
        holds of the dead is read before "nothing" is said. Costs two looks at a selector.
        """
        if self._door.poll(0, 1):
            self.let_in()
        self._notice_exits()
        while (exited := self.processes.next_exited()) is not None:
            await self._exited(exited)
        for _ in range(_SEEING_OFF_TIMES):  # one that a sweep is at
            if not self._seeing_off:
                return
            await anyio.sleep(limits.REST_SECONDS_MIN)

    def _notice_exits(self) -> None:
        for fd, _ in self._exits.poll(0, 64):
            self.processes.noticed(fd)

    def _lose(self, process: Process) -> None:
        self._engine.lose(process, "agent_lost")
        self._lost()

    async def tick(self) -> None:
        """Once a second: frames that never get whole, graces that ran out, idle processes."""
        now = anyio.current_time()
        for peer in list(self._peers.values()):
            since = peer.frame_since
            if since is not None and now - since > limits.FRAME_SECONDS_MAX:
                got = f"{now - since:.0f} s"
                self._refuse(
                    peer,
                    ProtocolError(
                        "slow_frame", "a frame was not whole in time", got, limits.FRAME_SECONDS_MAX
                    ),
                )
        for process in self.processes.overdue(now):
            self._lose(process)
        self.processes.drop_idle(now)
        await checkpoint()

    def query_ended(self, connection: Connection) -> None:
        """A query connection that was handed over is closed."""
        self.queries -= 1
        self._by_uid[connection.uid] -= 1

    # --- the end --------------------------------------------------------------------------------

    @property
    def connections(self) -> int:
        """Open connections of agents and queries."""
        return len(self._peers) + self.queries

    async def read_to_end(self) -> None:
        """At shutdown: everything the kernel holds for us, also in connections not accepted yet."""
        before = -1
        while before != self._names:  # until nobody new came
            before = self._names
            for listener in self._listeners.values():
                self._accept(listener)
            await checkpoint()
        for fd in self._listeners:
            self._door.unregister(fd)
        self._listeners.clear()
        self.let_in()
        while await self.sweep():
            pass
        for peer in list(self._peers.values()):
            while peer.connection in self._of and self._read(peer, time.time_ns() // 1_000_000):
                await checkpoint()

    def close(self) -> None:
        """Close what is left. Clients see the end and hold what is not synced."""
        for peer in self._peers.values():
            peer.socket.close()
        self.processes.close()
        self._door.close()
        self._exits.close()
        self._epoll.close()
