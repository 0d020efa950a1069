"""Accepts connections and reads the first frame: who is let in, as what.

Owns: accepting, the bounds on how many may be here, Hello and Welcome, and whose way leads where:
a query to its own task, an agent to the sweep. Refuses: making the sockets it listens on
(`listener.py`), asking the kernel who somebody is (`credentials.py`), an agent's events
(`socket_reader.py`).

Newcomers have a selector of their own, so whoever only asks does not wait for ten thousand agents
to be read. Until the log is read agents are parked behind their Hello: what they send waits in the
kernel, and they never block.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from anyio.lowlevel import checkpoint
from walld_client.link.path_walk import UNMAPPED_UID, has_all_uids
from walld_client.wire import messages as wire
from walld_client.wire.framing import FRAME_BYTES_MAX, PROTOCOL_VERSION, encode

from walld import __version__, limits
from walld.daemon.transport import credentials

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld.daemon.transport.connections import Connections, Peer
    from walld.daemon.transport.liveness import Liveness
    from walld.engine.engine import Engine
    from walld.engine.stream import Connection

__all__ = ["ACCEPTS_MAX", "Acceptor", "Newcomer"]

_log = logging.getLogger("walld.transport")
ACCEPTS_MAX = 8
_BACKLOG_MAX = 1 << 16
"""No listener has more who wait, as kernels are set up: a flood of newcomers holds up no end."""


class Newcomer(NamedTuple):
    """An agent that has said who it is. rest: what came behind its Hello."""

    peer: Peer
    hello: wire.Hello
    rest: bytes


class Acceptor:
    """Lets newcomers in."""

    def __init__(
        self,
        engine: Engine,
        connections: Connections,
        liveness: Liveness,
        listeners: list[socket.socket],
        peers_max: int,
        hand_over: Callable[[socket.socket, Connection, bytes], None],
        heard: Callable[[int, bytes], bool],
    ) -> None:
        """hand_over: takes a query connection's socket and what came behind its Hello. heard: is
        told which log a client of a uid knows; where it returns True, an agent waits until `open`.
        """
        self._engine = engine
        self._connections = connections
        self._liveness = liveness
        self._listeners = {listener.fileno(): listener for listener in listeners}
        self._peers_max = peers_max
        self._hand_over = hand_over
        self._heard = heard
        self._selector = select.epoll()
        """Listeners, and peers that have not said who they are."""
        self._parked: list[Newcomer] = []
        """Agents that wait until `open`."""
        self.is_open = False
        """The log is read: agents may come in."""

    def fileno(self) -> int:
        """Readable when somebody is there."""
        return self._selector.fileno()

    def listen(self) -> None:
        """From here on `ready` says who waits."""
        for fd in self._listeners:
            self._selector.register(fd, select.EPOLLIN)

    def ready(self, most: int = ACCEPTS_MAX) -> list[int]:
        """Descriptors of listeners where somebody waits, and of newcomers who speak."""
        return [fd for fd, _ in self._selector.poll(0, most)]

    async def listen_at(self, listener: socket.socket, instead: socket.socket) -> None:
        """Listen there instead of at `instead`, whose file is gone: that is closed once those who
        have connected to it are let in.
        """
        self._listeners[listener.fileno()] = listener
        self._selector.register(listener, select.EPOLLIN)
        await self._accept_all(instead.fileno())
        del self._listeners[instead.fileno()]
        self._selector.unregister(instead)
        instead.close()

    # --- accepting ------------------------------------------------------------------------------

    def accept(self, fd: int, most: int = ACCEPTS_MAX) -> bool:
        """Accept at most so many of those who wait. False: no descriptor or memory for it."""
        listener = self._listeners[fd]
        for _ in range(most):
            try:
                accepted, _address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return True
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    raise
                here = len(self._connections.by_fd)
                _log.error("cannot accept: %s; %d peers open", error.strerror, here)
                return False
            accepted.setblocking(False)
            self._admit(accepted)
        return True

    async def _accept_all(self, fd: int) -> None:
        """Everybody who has connected to that listener, behind those who are refused, too."""
        waits = select.poll()
        waits.register(fd, select.POLLIN)
        for _ in range(_BACKLOG_MAX // ACCEPTS_MAX):
            if not waits.poll(0) or not self.accept(fd):
                return
            await checkpoint()

    def _admit(self, accepted: socket.socket) -> None:
        try:
            who = credentials.credentials(accepted)
        except OSError:
            accepted.close()
            return
        error = self._check(who.uid)
        if error is not None:
            self._engine.counters.refused(error.code)
            with suppress(OSError):  # it may be gone already
                accepted.send(encode(error))
            accepted.close()
            return
        process = self._liveness.of_peer(accepted, who)
        self._connections.add(accepted, who.uid, process).watch(self._selector)

    def _check(self, uid: int) -> wire.Error | None:
        """Why somebody of that user may not come in now, None where nothing speaks against it."""
        # A process has a descriptor besides those of its connections, also when it has none left.
        connections, liveness = self._connections, self._liveness
        here = connections.of_uid(uid) + liveness.of_uid(uid)
        all_here = len(connections) + len(liveness)
        share = int(self._peers_max * limits.PEERS_UID_SHARE_MAX)
        if uid == UNMAPPED_UID and os.getuid() != UNMAPPED_UID:
            return wire.Error("foreign_uid", _who_is_nobody(), str(uid), "a uid of its own")
        if all_here >= self._peers_max:
            return wire.Error("too_many_peers", "no room", str(all_here), str(self._peers_max))
        if here >= share:
            return wire.Error("too_many_peers", "no room for this uid", str(here), str(share))
        return None

    # --- first words ----------------------------------------------------------------------------

    def first(self, peer: Peer, data: bytes) -> Newcomer | None:
        """The first bytes of a connection: Hello decides what it is.

        Returns an agent that may begin now, None for all others. Raises ProtocolError.
        """
        connection = peer.connection
        first = self._engine.decoder.first(connection, data)
        if first is None:
            return None
        hello, rest = first
        process = self._liveness.known_as(connection.process, hello.producer)
        connection.belongs(process)
        welcome = wire.Welcome(
            PROTOCOL_VERSION,
            __version__,
            self._engine.log_uuid,
            FRAME_BYTES_MAX,
            limits.TEXT_BYTES_MAX,
        )
        connection.post(encode(welcome))
        self._connections.send(peer)
        is_news = self._heard(connection.uid, hello.log)
        if hello.role == "query":
            self._connections.hand_over(peer)
            self._hand_over(peer.socket, connection, rest)
            return None
        newcomer = Newcomer(peer, hello, rest)
        if is_news or not self.is_open:
            peer.watch(None)
            self._parked.append(newcomer)
            return None
        return newcomer

    def open(self) -> list[Newcomer]:
        """The log is read, and what was heard is noted. Returns the agents that have waited."""
        self.is_open = True
        waited, self._parked = self._parked, []
        return waited

    # --- the end --------------------------------------------------------------------------------

    async def shut(self) -> None:
        """Everybody who has connected so far is let in, and nobody after them."""
        for fd in self._listeners:
            await self._accept_all(fd)
        for fd in self._listeners:
            self._selector.unregister(fd)
        self._listeners.clear()

    def close(self) -> None:
        """Nobody is watched any more."""
        self._selector.close()


def _who_is_nobody() -> str:
    """Why a peer of uid 65534 is refused, and what to do about it."""
    if has_all_uids():
        return (
            "this process runs as uid 65534 (nobody), which services of any kind share: run it "
            "as a user of its own"
        )
    return (
        "the uid of this peer cannot be told from others: it is not mapped in the user namespace "
        "that walld runs in (or is nobody there); map it, or run walld outside of that namespace"
    )
