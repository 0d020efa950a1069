"""The connection of a process to its daemon: one socket for all streams.

Owns: the socket's life: connect, say hello and what is held, send, hear, lose, hang up. Refuses:
what an event is and when there is one (`link.py`), what is held (`backlog.py`), what the daemon
says (`ack_handler.py`), when to try again (`reconnect.py`).

States, all changed under the lock (`lock.py`; the caller of any method here holds it):

    no socket          nobody is connected; the I/O thread tries again when `reconnect` says so
    flowing            connected, and the kernel has all there is: a token goes straight to send()
    stalled            connected, the kernel is full or a resend is under way: events wait in the
                       ring, the I/O thread sends them in slices, so that no agent thread ever does
    broken             the connection ended; the I/O thread has not closed the socket yet

Invariant: `flowing` implies that nothing waits, so a token can never overtake an older event.

The short way of a token (`reply.py`) looks at `flowing` and calls `remember` and `send`: they are
slots, set whenever the state changes, so that it asks for nothing else.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from hashlib import sha256

from walld_client.limits import READ_BYTES_MAX, VERSION_BACKOFF_SECONDS
from walld_client.link import poll, process
from walld_client.link.ack_handler import AckHandler
from walld_client.link.backlog import Backlog
from walld_client.link.lock import Lock
from walld_client.link.reconnect import Reconnect
from walld_client.link.registry import Registry
from walld_client.link.stream import Stream
from walld_client.version import CLIENT_NAME
from walld_client.wire import framing, messages

__all__ = ["NOSIGNAL", "Connection"]

NOSIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
"""A program may have given SIGPIPE its default action back; a dead daemon must not kill it."""
_SLICE_BYTES = 64 * 1024
"""The I/O thread sends so much before it lets an agent thread have the lock."""
_LAST_READS_MAX = 64


class Connection(Lock):
    """One socket at a time, and all that must be sent on it."""

    __slots__ = (
        "_broken",
        "_flushers",
        "_locate",
        "_name",
        "_socket",
        "_stalled",
        "acks",
        "backlog",
        "flowing",
        "reconnect",
        "registry",
        "remember",
        "send",
    )

    def __init__(self, locate: Callable[[], str], backlog_bytes_max: int, name: bytes) -> None:
        super().__init__()
        self._locate = locate
        self._name = name
        self._socket: socket.socket | None = None
        self._start_anew(backlog_bytes_max)

    def _start_anew(self, backlog_bytes_max: int) -> None:
        self._broken = self._stalled = False
        self._flushers: list[Callable[[], None]] = []
        self.registry = Registry()
        self.backlog = Backlog(self.registry.by_number, backlog_bytes_max, self.registry.tidy)
        self.acks = AckHandler(self.registry)
        self.reconnect = Reconnect(self._locate, backlog_bytes_max)
        self.flowing = False
        self.send: Callable[[bytes | memoryview, int], int] = _no_socket
        self.remember = self.backlog.sent.append

    # --- how it is ---

    @property
    def producer(self) -> bytes:
        """What this link's streams are of, to a daemon: the process; and of a further link also
        which, for numbers of streams come in order from one producer. Its first bytes are the
        process's all the same: a daemon that cannot see that tells by them whose this link is.
        """
        own = process.producer()
        if not self._name:
            return own
        kept = len(own) // 2
        return own[:kept] + sha256(own + self._name).digest()[kept : len(own)]

    @property
    def has_socket(self) -> bool:
        """There is one, of use or not."""
        return self._socket is not None

    @property
    def connected(self) -> bool:
        """There is a connection, as far as is known."""
        return self._socket is not None and not self._broken

    @property
    def is_broken(self) -> bool:
        """It is lost, and not hung up yet."""
        return self._broken

    def is_pushing_next(self) -> bool:
        """What is sent next goes to a daemon, not into the ring."""
        return self.connected and not self._stalled

    def watched(self) -> tuple[int, int]:
        """What to poll: a hang-up; room, while something waits; words, while one is awaited."""
        assert self._socket is not None, "only a socket can be watched"
        mask = poll.OUT if self._stalled else 0
        if self.acks.drains:
            mask |= poll.IN
        return self._socket.fileno(), mask

    # --- its beginning ---

    def connect(self) -> None:
        """Try, and say hello and all that is held, as far as the kernel takes it at once."""
        connection = self.reconnect.dial()
        if isinstance(connection, OSError):
            if not self.backlog.is_clear():
                self.reconnect.tell(
                    f"it cannot be reached: {connection.strerror or connection} "
                    f"(errno {connection.errno})"
                )
            return
        self._socket = connection
        self.send = connection.send
        self._stalled = False
        self.acks.start()
        self.backlog.greeting.extend(self._greeting())
        self.pump(_SLICE_BYTES)

    def _greeting(self) -> list[bytes]:
        acks = self.acks
        hello = messages.Hello(
            framing.PROTOCOL_VERSION,
            "agent",
            self.producer,
            acks.log,
            acks.synced_no,
            CLIENT_NAME,
        )
        resumes = [
            messages.Resume(s.start, s.held_from, s.attested, s.next_seq, s.released, s.moved_to)
            for s in self.registry.by_number.values()
            if s.introduced and not s.gone
        ]
        return [framing.encode(hello), *map(framing.encode, resumes)]

    # --- sending ---

    def pump(self, bytes_max: int = 1 << 40) -> None:
        """Hand the kernel what waits, unless the I/O thread is at it."""
        if self._socket is None or self._broken or self._stalled:
            return
        try:
            self.backlog.pump(self._send_view, bytes_max)
        except BlockingIOError:
            self._stall()
        except OSError as error:
            self.lose(error)
        if self.connected and not self._stalled:
            if self.backlog.is_clear():
                self.flowing = True
                self._flushed()
            else:
                self._stall()

    def pump_slice(self) -> bool:
        """For the I/O thread: some of what waits. True where there is more, and room for it."""
        if not self._stalled or not self.connected:
            return False
        self._stalled = False
        try:
            self.backlog.pump(self._send_view, _SLICE_BYTES)
        except BlockingIOError:
            self._stalled = True
            return False
        except OSError as error:
            self.lose(error)
            return False
        if self.backlog.is_clear():
            self.flowing = True
            self._flushed()
            return False
        self._stalled = True
        return True

    def send_failed(self, stream: Stream, error: OSError) -> None:
        """send() took nothing of the token just remembered."""
        self.took_part(stream, 0)
        if not isinstance(error, BlockingIOError):
            self.lose(error)

    def took_part(self, stream: Stream, taken_bytes: int) -> None:
        """send() took that much of the token just remembered."""
        self.flowing = False
        self.backlog.unsend(stream, taken_bytes)
        self._stall()

    def hold_drain(self, drain_id: int) -> None:
        """Ask the daemon, behind all that waits now, to say when that is at its level."""
        self.flowing = False
        level = self.acks.drains[drain_id].level
        self.backlog.hold_control(framing.encode(messages.Drain(drain_id, level)))

    def tell_flushed(self, done: Callable[[], None]) -> bool:
        """True if the kernel has everything; else False, and `done` is called when it has."""
        if self.backlog.is_clear():
            return True
        self._flushers.append(done)
        return False

    def _flushed(self) -> None:
        for done in self._flushers:
            done()
        self._flushers.clear()

    def _stall(self) -> None:
        self._stalled = True
        process.io_thread().wake()

    def _send_view(self, view: memoryview) -> int:
        return self.send(view, NOSIGNAL)

    # --- hearing ---

    def hear(self) -> None:
        """One read of what the daemon said, without waiting."""
        assert self._socket is not None, "only a connection can be heard"
        try:
            received = self._socket.recv(READ_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError as error:
            self.lose(error)
            return
        if not received:
            self.lose(ConnectionResetError("walld closed the connection"))
            return
        self.acks.feed(received)
        if self.acks.fatal:
            self.lose(ConnectionAbortedError(self.acks.fatal))

    def notice(self, events: int) -> None:
        """What a poll of `watched` showed."""
        if self._socket is not None and not self._broken:
            if events & poll.IN:
                self.hear()
            if events & poll.HANGUP:
                self.lose(ConnectionResetError("walld hung up"))

    # --- its end ---

    def lose(self, error: OSError) -> None:
        """It is of no use any more: what is not synced waits for the next one."""
        if self._broken or self._socket is None:
            return
        self._broken = True
        self._take_back()

    def _take_back(self) -> None:
        """All that is not synced waits for the next connection. Twice is as good as once."""
        self._stalled = self.flowing = False
        self.send = _no_socket
        self.backlog.rewind()
        self.remember = self.backlog.sent.append
        self.backlog.drop_drains()
        for drain_id in self.acks.drains:
            self.hold_drain(drain_id)
        process.io_thread().wake()

    def interrupted(self) -> None:
        """An exception leaves a change half done: no token takes the short way before `mend`."""
        self.flowing = False
        super().interrupted()

    def mend(self) -> None:
        """Nobody knows what of a frame the kernel took, or which books were written: end the
        connection, count what is held, and send it again on the next one. (stream, seq) removes
        what is double; a frame that was in nobody's hands is a gap by its seq.
        """
        self._broken = self._socket is not None
        self.backlog.recount()
        self._take_back()

    def hang_up(self) -> None:
        """Read the daemon's last words and close. For the I/O thread's thread alone."""
        connection = self._socket
        if connection is not None:
            for _ in range(_LAST_READS_MAX):
                try:
                    received = connection.recv(READ_BYTES_MAX)
                except OSError:
                    break
                if not received:
                    break
                self.acks.feed(received)
            connection.close()
        self._socket = None
        self._broken = False
        code = self.acks.fatal
        if self.acks.welcomed and not code:
            self.reconnect.welcomed()
        self.reconnect.back_off(VERSION_BACKOFF_SECONDS if code == "version" else 0.0)

    def leave_to_parent(self) -> None:
        """In the child of a fork: close our copy of the socket, and begin anew with nothing."""
        process.leave_to_parent(self._socket)
        self._socket = None
        self.renew()
        self._start_anew(self.backlog.bytes_max)


def _no_socket(view: bytes | memoryview, flags: int) -> int:
    """Stands in for send() while there is no connection."""
    raise ConnectionResetError("there is no connection to walld")
