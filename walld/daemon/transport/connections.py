"""The table of agents' connections: owner, output buffer, close.

Owns: the table of open sockets, by descriptor, by connection, and counted by uid; acks and answers
on their way out. Refuses: who may come in (`acceptor.py`), reading (`socket_reader.py`), what is
said (`engine/`).

A query's socket leaves the table when it is handed over to its own task; until that says that it
has ended it counts, since it is a descriptor of the same user all the same.

Invariants
- I2 Only EOF or reset, seen by reading to the end, ends a connection, or broken framing; a failed
  send never does.
"""

from __future__ import annotations

import logging
import select
import time
from typing import TYPE_CHECKING

from anyio.lowlevel import checkpoint
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from walld import limits
from walld.daemon import event_loop
from walld.daemon.transport.query_sockets import QuerySockets
from walld.engine.stream import NOBODY, Connection
from walld.errors import ProtocolError

if TYPE_CHECKING:
    import socket

    from walld.daemon.transport.liveness import Liveness
    from walld.engine.engine import Engine
    from walld.engine.stream import Process

__all__ = ["Connections", "Peer"]

_log = logging.getLogger("walld.transport")


class Peer:
    """One accepted socket."""

    __slots__ = ("connection", "frame_since", "selector", "socket")

    def __init__(self, peer: socket.socket, connection: Connection) -> None:
        self.socket = peer
        self.connection = connection
        self.frame_since: float | None = None
        """Since when a frame is begun and not whole."""
        self.selector: select.epoll | None = None
        """Where it is watched: by the acceptor or by the sweep. None: nowhere, because the log is
        being read, or it has given its share, or an earlier connection of its producer is read
        first.
        """

    def watch(self, selector: select.epoll | None) -> None:
        """Be watched there and no longer where it was."""
        if self.selector is not None:
            self.selector.unregister(self.socket.fileno())
        self.selector = selector
        if selector is not None:
            selector.register(self.socket.fileno(), select.EPOLLIN)


class Connections:
    """All connections of a daemon."""

    def __init__(self, engine: Engine, liveness: Liveness) -> None:
        self._engine = engine
        self._liveness = liveness
        self.by_fd: dict[int, Peer] = {}
        self.by_connection: dict[Connection, Peer] = {}
        self._by_uid: dict[int, int] = {}
        self._posted: set[Connection] = set()
        self.query_sockets = QuerySockets()
        """Those that were handed over."""
        self._queries = 0
        self._collecting: dict[int, set[Connection]] = {}
        """By uid: agents that have begun a long frame that is not whole (memory is held for it)."""
        self.admitted = 0
        """How many there ever were: the name of the latest."""

    def __len__(self) -> int:
        """Open connections of agents and queries."""
        return len(self.by_fd) + self._queries

    def of_uid(self, uid: int) -> int:
        """How many of them are of that user."""
        return self._by_uid.get(uid, 0)

    # --- coming and going -----------------------------------------------------------------------

    def add(self, accepted: socket.socket, uid: int, process: Process) -> Peer:
        """A newcomer of that process."""
        self.admitted += 1
        connection = Connection(self.admitted, uid, process, self._posted)
        process.connections.add(connection)
        peer = Peer(accepted, connection)
        self.by_fd[accepted.fileno()] = peer
        self.by_connection[connection] = peer
        self._by_uid[uid] = self.of_uid(uid) + 1
        return peer

    def hand_over(self, peer: Peer) -> None:
        """It is a query's: its socket is somebody else's until `query_ended`."""
        self._forget(peer)
        self._queries += 1
        self._by_uid[peer.connection.uid] += 1
        peer.connection.process.query_began()

    def collects(self, connection: Connection, begun_bytes: int) -> None:
        """So many bytes of a frame that is not whole are held. ProtocolError: too many do that.

        Each may hold a frame's length for ten seconds; what is short costs nothing worth counting.
        """
        many = self._collecting.setdefault(connection.uid, set())
        if begun_bytes <= limits.BEGUN_BYTES_FREE:
            many.discard(connection)
        elif connection not in many:
            most = limits.BEGUN_FRAMES_PER_UID_MAX
            if len(many) >= most:
                text = "too many of this uid have begun a long frame"
                raise ProtocolError("too_many_begun", text, len(many) + 1, most)
            many.add(connection)

    def query_ended(self, connection: Connection) -> None:
        """A query connection that was handed over is closed."""
        self._queries -= 1
        self._by_uid[connection.uid] -= 1
        process = connection.process
        process.query_ended()
        if not process.is_lost:
            self._liveness.leave(process, event_loop.now())

    def _forget(self, peer: Peer) -> None:
        connection = peer.connection
        peer.watch(None)
        del self.by_fd[peer.socket.fileno()]
        del self.by_connection[connection]
        self._posted.discard(connection)
        self._by_uid[connection.uid] -= 1
        self.collects(connection, 0)
        connection.process.connections.discard(connection)

    def close(self, peer: Peer) -> None:
        """The end was read, or framing is lost."""
        connection, process = peer.connection, peer.connection.process
        self._forget(peer)
        peer.socket.close()
        producer = connection.producer
        if producer is not NOBODY:
            # Its streams, which may be many, know it until another one brings their events.
            connection.forget()
            producer.connections.remove(connection)
            self._engine.registry.forget_producer(producer)
        self._liveness.leave(process, event_loop.now())

    def refuse(self, peer: Peer, error: ProtocolError) -> None:
        """Framing is lost: say why and close. What came before is taken."""
        self._engine.counters.refused(error.code)
        _log.warning(
            "connection %d of uid %d closed: %s", peer.connection.name, peer.connection.uid, error
        )
        peer.connection.post(encode(wire.Error(error.code, error.message, error.got, error.limit)))
        self.send(peer)
        self.close(peer)

    def close_sockets(self) -> None:
        """At the end of the daemon. Clients see it and hold what is not synced."""
        for peer in self.by_fd.values():
            peer.socket.close()
        self.query_sockets.close()

    # --- sending --------------------------------------------------------------------------------

    def send_posted(self) -> None:
        """Hand the kernel what waits for peers; what it does not take waits on."""
        for connection in list(self._posted):
            peer = self.by_connection.get(connection)
            if peer is None:
                self._posted.discard(connection)
            else:
                self.send(peer)

    def send(self, peer: Peer) -> None:
        """Hand the kernel what waits for one."""
        connection = peer.connection
        data = b"".join(connection.outbox)
        try:
            sent = peer.socket.send(data)
        except OSError as error:
            sent = 0  # I2: the reading side finds out what is wrong
            if isinstance(error, BrokenPipeError | ConnectionResetError):
                sent = len(data)  # nobody will ever read it
        rest = data[sent:]
        connection.outbox = [rest] if rest else []
        connection.outbox_bytes = len(rest)
        if not rest:
            connection.outbox_bytes_max = limits.ACK_BYTES_MAX
            self._posted.discard(connection)

    async def acknowledge_all(self) -> None:
        """An Ack to each connection whose streams' watermarks moved."""
        slice_end = time.perf_counter() + limits.SWEEP_SLICE_SECONDS
        for peer in list(self.by_fd.values()):
            if not peer.connection.dirty or peer.connection.outbox_bytes:
                continue
            self._engine.acknowledge(peer.connection)
            self.send(peer)
            if time.perf_counter() > slice_end:
                await checkpoint()
                slice_end = time.perf_counter() + limits.SWEEP_SLICE_SECONDS
        self.send_posted()
