"""The link of a process to its daemon: takes streams and events, connected or not.

Owns: what is done under the lock for an application: streams begun, events put in order, chores,
waiting for the daemon's word; and for the I/O thread: what is due when. Refuses: what an event
means (`reply.py`), the socket and its states (`connection.py`), the lock (`lock.py`), threads
(`io_thread.py`).

A link is kept up for as long as there is something to deliver. An agent thread that gives it an
event sends at most that one; a backlog is the I/O thread's.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial

from walld_client.encoding import event_frames
from walld_client.limits import (
    CHORES_EVERY_OTHERS,
    CHORES_EVERY_TOKENS,
    SHORT_FRAME_BYTES_MAX,
    TRIM_FRAMES_MAX,
)
from walld_client.link import process
from walld_client.link.ack_handler import Drain
from walld_client.link.connection import NOSIGNAL, Connection
from walld_client.link.lock import Reentered
from walld_client.link.stream import Stream
from walld_client.wire import messages

__all__ = ["Link"]


class Link(Connection):
    """One connection, made again whenever it is lost, and what is said on it."""

    __slots__ = (
        "_closers",
        "_closing",
        "_next_drain",
        "_until_chores",
        "late_events",
        "told_inherited",
        "unowned",
    )

    def __init__(self, locate: Callable[[], str], backlog_bytes_max: int, name: bytes) -> None:
        super().__init__(locate, backlog_bytes_max, name)
        self._clear()
        process.register(self)

    def _clear(self) -> None:
        self.unowned: deque[Stream] = deque()
        """Streams whose Reply object is gone, put here by finalizers, which may take no lock."""
        self.late_events = 0
        """Events after a terminal, or on a stream that is gone: not sent."""
        self.told_inherited = False
        self._closers: list[Callable[[], None]] = []
        self._closing = False
        self._until_chores = CHORES_EVERY_OTHERS
        self._next_drain = 1

    # --- events ---

    def begin(self, start: messages.Start, long_way_only: bool) -> Stream:
        """Open a stream: its Start (with ID for stream and seq) is on its way when this returns."""
        process.check_fork()
        body = event_frames.body_of(start)
        process.io_thread().keep(self)
        with self.mutex, self:
            number = process.next_stream_number()
            start = _numbered(start, number)
            stream = Stream(number, start, long_way_only)
            if self._closing:
                stream.stop_sending()
                return stream
            self.registry.add(stream)
            self.put(stream, event_frames.place(body, number, 0))
            if not self.has_socket:
                if self.reconnect.is_due():
                    self.connect()
                process.io_thread().wake()  # it has a socket to watch now, or a time to try again
            self.push()
        return stream

    def catch_up(self) -> None:
        """One read of what the daemon has said by now. The caller holds the lock."""
        if self.connected:
            self.hear()

    def put(self, stream: Stream, frame: bytes) -> None:
        """The stream's next event, which leaves with the next `push`. The caller holds the lock."""
        self.flowing = False  # until push: nothing may overtake it, whatever interrupts us
        stream.next_seq += 1
        self.backlog.hold(stream, frame)

    def push(self) -> None:
        """Hand over what was put, unless the I/O thread is at it. The caller holds the lock."""
        self.pump()
        self._until_chores -= 1
        full = self.backlog.frames_bytes > self.backlog.bytes_max
        if full or self._until_chores <= 0:
            self.do_chores()

    def give(self, stream: Stream, frame: bytes) -> None:
        """Put and push one event; where nothing waits a short one goes the short way of a token
        (`reply.py`), which writes no books. The caller holds the lock.
        """
        if not self.flowing or len(frame) > SHORT_FRAME_BYTES_MAX:
            self.put(stream, frame)
            self.push()
            return
        stream.next_seq += 1
        try:
            self.remember(frame)
            taken = self.send(frame, NOSIGNAL)
        except OSError as error:
            self.send_failed(stream, error)
            return
        if taken != len(frame):
            self.took_part(stream, taken)
        elif stream.next_seq > stream.chores_seq:
            self.do_chores(stream)

    def sent_seq(self, stream: Stream) -> int:
        """Highest seq the kernel has taken, on the connection at hand."""
        process.check_fork()
        with self.mutex:  # reading only
            return self.backlog.taken_seq(stream)

    def due_seqs(self, session_id: str | None, stream_id: str | None) -> list[tuple[int, int]]:
        """(number, seq): how far a daemon must have come with the streams a request is about.

        What is synced needs no word: the daemon had it, and one that has let go of it since, for
        somebody who deleted its session, would be waited for in vain.
        What waits for a connection is sent at once, not when the next attempt would be due.
        """
        process.check_fork()
        if not self.registry.by_number:
            return []
        with self.mutex:  # reading only: also for a signal handler that finds its thread inside
            streams = self.registry.asked(session_id, stream_id)
            streams = [one for one in streams if not one.gone and one.due > one.synced]
            due = [(stream.number, stream.due) for stream in streams]
            if due and self._hurry():
                process.io_thread().wake()
        return due

    def released(self, session_id: str) -> Callable[[], list[messages.Seen]]:
        """For an entry that is posted now. Called when the entry is sent, the result says which of
        the session's replies released by now a daemon may still have to take in before it. The
        last one stands for all: they leave in the order of their releases.

        Neither this nor the result takes the lock: who sends the entry has another, and a signal
        handler that posts one waits for that while the call it interrupted has this.
        """
        stream = self.registry.released_last(session_id)
        return list if stream is None else partial(self._due_of, stream)

    def _due_of(self, stream: Stream) -> list[messages.Seen]:
        """Not what waits for the kernel: where this process dies that never comes, and the entry
        would wait. All of it for a daemon that is new to both, which is given it first of all.
        """
        seq = stream.due
        if self.connected:
            seq = min(seq, self.backlog.taken_seq(stream))
        if stream.gone or seq <= stream.synced:
            return []
        return [messages.Seen(self.producer, stream.number, seq)]

    def leaving(self, session_id: str) -> Callable[[], None]:
        """To be called once the session is deleted, with what was said of it up to here."""
        process.check_fork()
        with self.mutex:  # reading only
            said = [(one, one.next_seq - 1) for one in self.registry.of_session(session_id)]
            ended = [stream for stream, _ in said if stream.terminal]
        return partial(self._deleted, said, ended)

    def _deleted(self, said: list[tuple[Stream, int]], ended: list[Stream]) -> None:
        """No daemon is given any of that again, a restarted one neither; what had not ended may
        still go on, behind it.
        """
        try:
            with self.mutex, self:
                for stream, seq in said:
                    stream.synced = max(stream.synced, seq)
                    stream.deleted = seq
                for stream in ended:
                    stream.released = True
                    stream.stop_sending()
                    self.registry.tidy(stream)
        except Reentered:
            self.deferred.append(partial(self._deleted, said, ended))

    # --- chores ---

    def do_chores(self, stream: Stream | None = None) -> None:
        """What must be done now and then, in bounded steps. The caller holds the lock."""
        self._until_chores = CHORES_EVERY_OTHERS
        if process.io_thread().lacks_thread:
            process.io_thread().keep(self)
        if stream is not None:
            stream.chores_seq = stream.next_seq + CHORES_EVERY_TOKENS
        if self.connected:
            self.hear()
        self.backlog.trim(TRIM_FRAMES_MAX)
        if self.backlog.make_room():
            self.reconnect.tell("the memory for events is full, the oldest are dropped")
        elif self.acks.welcomed and self.flowing and self.backlog.is_light():
            self.reconnect.welcomed()
        self.end_unowned()

    def end_unowned(self) -> None:
        """End the replies whose objects are gone. The caller holds the lock."""
        while self.unowned:
            self.disown(self.unowned.popleft())

    def disown(self, stream: Stream) -> None:
        """A Reply object is gone. One that never ended was abandoned. The caller holds the lock."""
        stream.owned = False
        if not stream.terminal and not stream.gone:
            stream.terminal = stream.long_way_only = True
            end: messages.Event = messages.End(
                event_frames.ID, event_frames.ID, False, None, "abandoned"
            )
            if stream.failure is not None:
                end = stream.failure
            self.put(
                stream,
                event_frames.place(event_frames.body_of(end), stream.number, stream.next_seq),
            )
            self.push()
        self.registry.tidy(stream)

    # --- waiting for the daemon ---

    def drain(self, level: str, done: Callable[[bool], None]) -> int:
        """Ask to be told when all that was sent so far is at `level`. Returns the drain's id."""
        process.check_fork()
        process.io_thread().keep(self)
        with self.mutex, self:
            drain_id = self._next_drain
            self._next_drain += 1
            self.acks.drains[drain_id] = Drain(level, done)
            self.hold_drain(drain_id)
            self._hurry()
            self.push()
        process.io_thread().wake()  # it listens for words from the daemon now
        return drain_id

    def forget_drain(self, drain_id: int) -> None:
        """Nobody waits for it any more."""
        with self.mutex, self:
            self.acks.drains.pop(drain_id, None)

    def flush(self, done: Callable[[], None]) -> bool:
        """True if the kernel has everything; else False, and `done` is called when it has.

        Who flushes is about to leave, maybe sooner than the next attempt would be due: one is
        made here, so `reconnect.connections` says whether anybody has ever been there.
        """
        process.check_fork()
        with self.mutex, self:
            if self.tell_flushed(done):
                return True
            if self._hurry() and not self.has_socket and not self._closing:
                self.connect()
        process.io_thread().wake()
        return False

    def ask_whether_begun(self, done: Callable[[bool], None]) -> int | None:
        """Who leaves may have begun replies that a daemon refuses: where it has not said a word to
        one, ask it for one; `done` is called when all it had to say is heard. None: no need.
        """
        with self.mutex, self:
            self.catch_up()
            streams = self.registry.by_number.values()
            if not self.connected or not any(stream.is_unheard for stream in streams):
                return None
        return self.drain("written", done)

    def _hurry(self) -> bool:
        """Somebody waits for what is held: the next attempt is due. False: one is there."""
        if self.connected:
            return False
        self.reconnect.hurry()
        return True

    def shut(self, done: Callable[[], None]) -> None:
        """End the connection for good; `done` is called when its descriptor is closed."""
        process.check_fork()
        with self.mutex, self:
            self._closing = True
            self.flowing = False
            for stream in self.registry.by_number.values():
                stream.stop_sending()
            for drain in self.acks.drains.values():
                drain.done(False)
            self.acks.drains.clear()
            if self.has_socket:
                self._closers.append(done)
                done = _nothing
        done()
        process.io_thread().wake()

    # --- the I/O thread's side ---

    def wants(self) -> tuple[int, int, float | None]:
        """What to watch, and the time to attend to it at the latest (`io_thread.py`)."""
        with self.mutex, self:
            if self.is_broken or self.unowned or self._closing:
                return -1, 0, 0.0
            if not self.has_socket:
                return -1, 0, self.reconnect.retry_at if self._is_needed() else None
            return *self.watched(), None

    def attend(self, events: int) -> bool:
        """Close, connect, send what waits: whatever is due."""
        with self.mutex, self:
            self.notice(events)
            if self.is_broken or self._closing:
                self.hang_up()
            if self._closing:
                closers, self._closers = self._closers, []
                for done in closers:
                    done()
                return False
            self.end_unowned()
            if not self.has_socket and self._is_needed() and self.reconnect.is_due():
                self.connect()
        while self._send_slice():
            time.sleep(0)  # an agent thread that waits for the lock goes first
        return True

    def _send_slice(self) -> bool:
        with self.mutex, self:
            return self.pump_slice()

    def _is_needed(self) -> bool:
        return bool(self.registry.by_number) or self.backlog.holds_any()

    def forked(self) -> None:
        """In the child of a fork: everything here was the parent's."""
        streams = list(self.registry.by_number.values())
        self.leave_to_parent()
        self._clear()
        for stream in streams:
            stream.stop_sending()
            stream.inherited = True


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
        start.app,
    )


def _nothing() -> None:
    """Stands in for a callback that is somebody else's to call."""
