"""The connection of a process to its daemon: one socket for all streams.

Owns: the socket, when it is made, ended and made again, and the lock under which everything
about its streams changes. Refuses: what an event means (`reply.py`), what is held (`backlog.py`),
what the daemon says (`hearing.py`), threads (`keeper.py`).

States, all changed under the lock (`with link.mutex, link`):

    socket None        nobody is connected; the keeper tries again when `dialing` says so
    flowing            connected, and the kernel has all there is: a token goes straight to send()
    stalled            connected, the kernel is full or a resend is under way: events wait in the
                       ring, the keeper sends them in slices, so that no agent thread ever does
    broken             the connection ended; the keeper has not closed the socket yet

Invariant: `flowing` implies that nothing waits, so a token can never overtake an older event.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

from walld_client import frames, process
from walld_client.backlog import Backlog
from walld_client.dialing import Dialing
from walld_client.hearing import Drain, Hearing
from walld_client.limits import (
    CHORES_EVERY_OTHERS,
    CHORES_EVERY_TOKENS,
    READ_BYTES_MAX,
    TRIM_FRAMES_MAX,
    VERSION_BACKOFF_SECONDS,
)
from walld_client.registry import Registry
from walld_client.stream import Stream
from walld_client.version import CLIENT_NAME
from walld_client.wire import framing, messages

__all__ = ["NOSIGNAL", "Link", "Reentered"]

NOSIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
"""A program may have given SIGPIPE its default action back; a dead daemon must not kill it."""
_log = logging.getLogger("walld")
_HANGUP = select.POLLHUP | select.POLLERR | select.POLLNVAL
_SLICE_BYTES = 64 * 1024
"""The keeper sends so much before it lets an agent thread have the lock."""
_LAST_READS_MAX = 64


class Reentered(RuntimeError):
    """The calling thread is inside the link: a signal handler or finalizer interrupted it."""

    def __init__(self) -> None:
        super().__init__(
            "a signal handler or finalizer interrupted walld in the same thread; sends are put off "
            "until it is done, but this call cannot be"
        )


class Link:
    """One connection, kept up for as long as there is something to deliver."""

    __slots__ = (
        "__weakref__",
        "_broken",
        "_closers",
        "_closing",
        "_flushers",
        "_locate",
        "_next_drain",
        "_socket",
        "_stalled",
        "_until_chores",
        "backlog",
        "deferred",
        "dialing",
        "flowing",
        "hearing",
        "held",
        "late_events",
        "left",
        "mutex",
        "registry",
        "remember",
        "send",
        "told_inherited",
    )

    def __init__(self, locate: Callable[[], str], backlog_bytes_max: int) -> None:
        self._locate = locate
        self._clear_state(backlog_bytes_max)
        process.register(self)

    def _clear_state(self, backlog_bytes_max: int) -> None:
        self.mutex = threading.RLock()
        self.held = False
        """The thread that has the mutex is changing something: see `__enter__`."""
        self.deferred: deque[Callable[[], object]] = deque()
        self.registry = Registry()
        self.backlog = Backlog(self.registry.by_number, backlog_bytes_max)
        self.hearing = Hearing(self.registry)
        self.dialing = Dialing(self._locate, backlog_bytes_max)
        self.flowing = False
        self.send: Callable[[bytes | memoryview, int], int] = _no_socket
        self.remember = self.backlog.sent.append
        self.left: deque[Stream] = deque()
        """Streams whose Reply object is gone, put here by finalizers, which may take no lock."""
        self.late_events = 0
        """Events after a terminal, or on a stream that is gone: not sent."""
        self._closers: list[Callable[[], None]] = []
        self._socket: socket.socket | None = None
        self._broken = False
        self._stalled = False
        self._closing = False
        self.told_inherited = False
        self._until_chores = CHORES_EVERY_OTHERS
        self._next_drain = 1
        self._flushers: list[Callable[[], None]] = []

    # --- the lock ---

    def __enter__(self) -> None:
        """Second half of the lock: `with link.mutex, link`. Raises Reentered.

        A signal handler or a finalizer runs between two steps of whatever its thread is doing, also
        in the middle of a send. With a plain lock its own call would wait for itself for ever; with
        a reentrant one alone it would find the books half changed. So it is told, and what it
        wanted to say is said (`defer`) as soon as the call it interrupted is done.
        """
        if self.held:
            raise Reentered
        self.held = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.held = False
        if self.deferred:
            self.play()

    def play(self) -> None:
        """Say what interrupted this thread's call. The caller has the mutex."""
        while self.deferred and not self.held:
            said = self.deferred.popleft()
            try:
                said()
            except Exception:
                _log.exception("a call from a signal handler or a finalizer failed")

    @property
    def connected(self) -> bool:
        """There is a connection, as far as is known."""
        return self._socket is not None and not self._broken

    # --- events ---

    def begin(self, start: messages.Start, careful: bool) -> Stream:
        """Open a stream: its Start (with ID for stream and seq) is on its way when this returns."""
        body = frames.body_of(start)
        process.keeper().keep(self)
        with self.mutex, self:
            number = process.next_stream_number()
            start = _numbered(start, number)
            stream = Stream(number, start, careful)
            if self._closing:
                stream.give_up()
                return stream
            self.registry.add(stream)
            self.put(stream, frames.place(body, number, 0))
            if self._socket is None:
                if self.dialing.is_due():
                    self._connect()
                process.keeper().wake()  # it has a socket to watch now, or a time to try again
            self.push()
        return stream

    def put(self, stream: Stream, frame: bytes) -> None:
        """The stream's next event, which leaves with the next `push`. The caller holds the lock."""
        self.flowing = False  # until push: nothing may overtake it, whatever interrupts us
        stream.next_seq += 1
        self.backlog.hold(stream, frame)

    def push(self) -> None:
        """Hand over what was put, unless the keeper is at it. The caller holds the lock."""
        if self._socket is not None and not self._broken and not self._stalled:
            self._pump(1 << 40)
        self._until_chores -= 1
        full = self.backlog.frames_bytes > self.backlog.bytes_max
        if full or self._until_chores <= 0:
            self.do_chores()

    def stumbled(self, stream: Stream, error: OSError) -> None:
        """send() took nothing of the token just remembered. The caller holds the lock."""
        self.took_part(stream, 0)
        if not isinstance(error, BlockingIOError):
            self.lose(error)

    def took_part(self, stream: Stream, taken_bytes: int) -> None:
        """send() took that much of the token just remembered. The caller holds the lock."""
        self.flowing = False
        self.backlog.unsend(stream, taken_bytes)
        self._stall()

    def is_pushing_next(self) -> bool:
        """The next push goes to a daemon, not into the ring. The caller holds the lock."""
        return self.connected and not self._stalled

    def sent_seq(self, stream: Stream) -> int:
        """Highest seq the kernel has taken, on the connection at hand."""
        with self.mutex:  # reading only
            return self.backlog.taken_seq(stream)

    def do_chores(self, stream: Stream | None = None) -> None:
        """What must be done now and then, in bounded steps. The caller holds the lock."""
        self._until_chores = CHORES_EVERY_OTHERS
        if stream is not None:
            stream.chores_seq = stream.next_seq + CHORES_EVERY_TOKENS
        if self.connected:
            self.hear()
        self.backlog.trim(TRIM_FRAMES_MAX)
        if self.backlog.make_room():
            self.dialing.tell("the memory for events is full, the oldest are dropped")
        elif self.hearing.welcomed and self.flowing and self.backlog.is_light():
            self.dialing.welcomed()
        self.bury_left()

    def bury_left(self) -> None:
        """End the replies whose objects are gone. The caller holds the lock."""
        while self.left:
            self._left(self.left.popleft())

    # --- waiting for the daemon ---

    def drain(self, level: str, done: Callable[[bool], None]) -> int:
        """Ask to be told when all that was sent so far is at `level`. Returns the drain's id."""
        process.keeper().keep(self)
        with self.mutex, self:
            drain_id = self._next_drain
            self._next_drain += 1
            self.hearing.drains[drain_id] = Drain(level, done)
            self._hold_drain(drain_id)
            self.push()
        process.keeper().wake()  # it listens for words from the daemon now
        return drain_id

    def forget_drain(self, drain_id: int) -> None:
        """Nobody waits for it any more."""
        with self.mutex, self:
            self.hearing.drains.pop(drain_id, None)

    def flush(self, done: Callable[[], None]) -> bool:
        """True if the kernel has everything; else False, and `done` is called when it has."""
        with self.mutex, self:
            if self.backlog.is_clear():
                return True
            self._flushers.append(done)
        process.keeper().wake()
        return False

    def shut(self, done: Callable[[], None]) -> None:
        """End the connection for good; `done` is called when its descriptor is closed."""
        with self.mutex, self:
            self._closing = True
            self.flowing = False
            for stream in self.registry.by_number.values():
                stream.give_up()
            for drain in self.hearing.drains.values():
                drain.done(False)
            self.hearing.drains.clear()
            if self._socket is not None:
                self._closers.append(done)
                done = _nothing
        done()
        process.keeper().wake()

    def hear(self) -> None:
        """One read of what the daemon said, without waiting. The caller holds the lock."""
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
        self.hearing.feed(received)
        if self.hearing.fatal:
            self.lose(ConnectionAbortedError(self.hearing.fatal))

    def lose(self, error: OSError) -> None:
        """The connection is of no use any more. The caller holds the lock."""
        if self._broken or self._socket is None:
            return
        self._broken = True
        self._stalled = self.flowing = False
        self.send = _no_socket
        self.backlog.rewind()
        self.remember = self.backlog.sent.append
        self.backlog.drop_drains()
        for drain_id in self.hearing.drains:
            self._hold_drain(drain_id)
        process.keeper().wake()

    # --- the keeper's side ---

    def wants(self) -> tuple[int, int, float | None]:
        """What to watch: a hang-up; room, while something waits; words, while one is awaited."""
        with self.mutex, self:
            if self._broken or self.left or self._closing:
                return -1, 0, 0.0
            if self._socket is None:
                return -1, 0, self.dialing.retry_at if self._is_needed() else None
            mask = select.POLLOUT if self._stalled else 0
            if self.hearing.drains:
                mask |= select.POLLIN
            return self._socket.fileno(), mask, None

    def attend(self, events: int) -> bool:
        """Close, connect, send what waits: whatever is due."""
        with self.mutex, self:
            if self._socket is not None and not self._broken:
                if events & select.POLLIN:
                    self.hear()
                if events & _HANGUP:
                    self.lose(ConnectionResetError("walld hung up"))
            if self._broken or self._closing:
                self._hang_up()
            if self._closing:
                closers, self._closers = self._closers, []
                for done in closers:
                    done()
                return False
            self.bury_left()
            if self._socket is None and self._is_needed() and self.dialing.is_due():
                self._connect()
        while self._pump_slice():
            time.sleep(0)  # an agent thread that waits for the lock goes first
        return True

    def forked(self) -> None:
        """In the child of a fork: everything here was the parent's."""
        streams = list(self.registry.by_number.values())
        descriptor = -1 if self._socket is None else self._socket.detach()
        if descriptor >= 0:
            os.close(descriptor)
        self._clear_state(self.backlog.bytes_max)
        for stream in streams:
            stream.give_up()
            stream.inherited = True

    # --- within ---

    def _hold_drain(self, drain_id: int) -> None:
        self.flowing = False
        level = self.hearing.drains[drain_id].level
        self.backlog.hold_control(framing.encode(messages.Drain(drain_id, level)))

    def _stall(self) -> None:
        self._stalled = True
        process.keeper().wake()

    def _pump(self, bytes_max: int) -> None:
        try:
            self.backlog.pump(self._send_view, bytes_max)
        except BlockingIOError:
            self._stall()
        except OSError as error:
            self.lose(error)
        except BaseException:
            # A signal's exception: nobody knows how much of the frame the kernel took.
            self.lose(ConnectionAbortedError("interrupted in send"))
            raise
        if self.connected and not self._stalled:
            if self.backlog.is_clear():
                self.flowing = True
                self._flushed()
            else:
                self._stall()

    def _pump_slice(self) -> bool:
        """Send a slice of what waits. True where there is more, and room for it."""
        with self.mutex, self:
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

    def _send_view(self, view: memoryview) -> int:
        return self.send(view, NOSIGNAL)

    def _flushed(self) -> None:
        for done in self._flushers:
            done()
        self._flushers.clear()

    def _is_needed(self) -> bool:
        return bool(self.registry.by_number) or self.backlog.holds_any()

    def _connect(self) -> None:
        connection = self.dialing.dial()
        if isinstance(connection, OSError):
            if not self.backlog.is_clear():
                self.dialing.tell(
                    f"it cannot be reached: {connection.strerror or connection} "
                    f"(errno {connection.errno})"
                )
            return
        self._socket = connection
        self.send = connection.send
        self._stalled = False
        self.hearing.start()
        self.backlog.greeting.extend(self._greeting())
        self._pump(_SLICE_BYTES)

    def _greeting(self) -> list[bytes]:
        hearing = self.hearing
        hello = messages.Hello(
            framing.PROTOCOL_VERSION,
            "agent",
            process.producer(),
            hearing.log,
            hearing.synced_no,
            CLIENT_NAME,
        )
        resumes = [
            messages.Resume(s.start, s.held_from, s.synced, s.next_seq, s.released)
            for s in self.registry.by_number.values()
            if s.introduced and not s.gone
        ]
        return [framing.encode(hello), *map(framing.encode, resumes)]

    def _hang_up(self) -> None:
        """Read the daemon's last words and close."""
        connection = self._socket
        if connection is not None:
            for _ in range(_LAST_READS_MAX):
                try:
                    received = connection.recv(READ_BYTES_MAX)
                except OSError:
                    break
                if not received:
                    break
                self.hearing.feed(received)
            connection.close()
        self._socket = None
        self._broken = False
        code = self.hearing.fatal
        if self.hearing.welcomed and not code:
            self.dialing.welcomed()
        self.dialing.back_off(VERSION_BACKOFF_SECONDS if code == "version" else 0.0)

    def _left(self, stream: Stream) -> None:
        """A Reply object is gone. One that never ended was abandoned."""
        stream.owned = False
        if not stream.terminal and not stream.gone:
            stream.terminal = stream.careful = True
            end = messages.End(frames.ID, frames.ID, False, None, "abandoned")
            self.put(stream, frames.place(frames.body_of(end), stream.number, stream.next_seq))
            self.push()
        self.registry.tidy(stream)


def _numbered(start: messages.Start, number: int) -> messages.Start:
    return messages.Start(
        number,
        0,
        start.stream_id,
        start.session_id,
        start.turn_id,
        start.parent,
        start.meta,
        start.at_ms,
    )


def _nothing() -> None:
    """Stands in for a callback that is somebody else's to call."""


def _no_socket(view: bytes | memoryview, flags: int) -> int:
    """Stands in for send() while there is no connection."""
    raise ConnectionResetError("there is no connection to walld")
