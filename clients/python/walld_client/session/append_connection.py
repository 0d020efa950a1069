"""The connection of `append(wait=False)`: written to and never waited for.

Owns: what waits, what is on its way, the connection of both, and when the I/O thread looks after
them. Refuses: whose they are and who waits for them (`append_queue.py`), the lock (`lock.py`), the
thread (`io_thread.py`).

Once the kernel has an entry this process may die: the daemon does what it finds of a connection
whose other side is gone; but what it could not do just then, and what stood behind that, is here
alone until it is sent again. Until it is answered the entry stays here all the same, for the daemon
may die too; then it is doubtful, and sent again by its id on the next connection. While all is well
the I/O thread waits for a hang-up alone, and answers are read by whoever posts next.

Invariants
- Entries of a session are sent in the order they were posted, and what may have to be sent again
  stands before all of it that was posted since. So a connection that is left behind, which the
  daemon reads to its end, and the next one say the same, each in that order; by their ids the
  first of both counts.
- What is sent, waits and is not answered is bounded: in entries, and in bytes of payload.
- A session that cannot be written holds up no other (`append_order.py`). After _GIVE_UP_SECONDS
what
  waits of it is dropped, and what is posted to it from then on at its first attempt, until one is
  taken.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec
from walld_client.errors import Unavailable
from walld_client.limits import BACKOFF_SECONDS_MIN, OUTBOX_BYTES_MAX, OUTBOX_ENTRIES_MAX
from walld_client.link import poll, process
from walld_client.link.connection import NOSIGNAL
from walld_client.link.lock import Lock, Reentered
from walld_client.link.socket_path import check_server
from walld_client.query.query import unreachable
from walld_client.query.requests import Conversation
from walld_client.session.append_order import AppendOrder, PostedEntry, are_refused
from walld_client.wire import framing
from walld_client.wire.messages import OF_ITS_SESSION, OF_THIS_MOMENT, Answer, Error, ToQuery

__all__ = ["AppendConnection"]

_READ_BYTES = 64 * 1024
_CHUNK_BYTES = 64 * 1024
"""What waits goes to the kernel in such pieces: it counts its room in them, not in frames."""
_UNHEARD_MAX = 128
"""Answers that nobody has read: a daemon's socket holds twice as many, then it waits for us."""
_RETRY_SECONDS = 1.0
"""Between attempts to reach a daemon that is away: each may cost a moment."""
_HURRY_SECONDS = 0.1
"""The same while somebody waits: each sends all that waits again."""
_GIVE_UP_SECONDS = 1.0
"""How long a session may fail: an error that passes costs no entry."""
_FORGET_SECONDS = 60.0
"""A session that failed so long ago has that time again."""
_messages = msgspec.msgpack.Decoder(ToQuery)
_log = logging.getLogger("walld")


class _OfOneSession(Unavailable):
    """One session stands aside, or is given up: the rest need not wait for another attempt."""


class AppendConnection(Lock):
    """What one append queue holds."""

    def __init__(self, locate: Callable[[], str]) -> None:
        super().__init__()
        self._locate = locate
        self._socket: socket.socket | None = None
        self._greeting: Conversation | None = None
        """While Welcome is awaited: nobody may send a request before it."""
        self._rest = b""
        self._id = 0
        self._on_its_way: dict[int, PostedEntry] = {}
        """By request id; also what the kernel has not taken of `_unsent`."""
        self._unsent = memoryview(b"")
        self._ends: deque[int] = deque()
        """Of each frame in `_unsent`: how much is left of that when the kernel has it."""
        self._kept = AppendOrder()
        self._bytes = 0
        self._failing: dict[str, float] = {}
        """Sessions of which an entry could not be taken, and none was since; from when on."""
        self._retry_at = 0.0
        self._hurry_at = 0.0
        """The same where somebody waits."""
        self._watched: tuple[int, int, float | None] = (-1, 0, None)
        """What the I/O thread watches and until when, as it was told last."""
        self._is_kept = False
        self._is_left = False
        self.was_there = False
        """A daemon has answered here."""
        self._failure: Exception = Unavailable("nothing was posted")
        process.register(self)

    def __len__(self) -> int:
        return len(self._on_its_way) + len(self._kept)

    def holds(self, session_id: str) -> bool:
        """Something that was posted to that session is not answered."""
        with self.mutex, self:
            open_ones = (*self._on_its_way.values(), *self._kept)
            return any(one.session_id == session_id for one in open_ones)

    @property
    def unsent(self) -> int:
        """Entries that the kernel does not have."""
        return len(self._kept) + len(self._ends)

    @property
    def failure(self) -> Unavailable | None:
        """Why there is no connection, None where there is one."""
        if self._socket is not None:
            return None
        why = Unavailable(str(self._failure))
        why.__cause__ = self._failure.__cause__
        return why

    # --- for the append queue -------------------------------------------------------------------

    def post(self, posted: PostedEntry) -> str:
        """Send it, or keep it for later. Returns why it was not taken, "" where it was."""
        try:
            with self.mutex, self:
                full = self._hold(posted)
        except Reentered:  # said as soon as the call is done that this one interrupted
            self.deferred.append(partial(self._post_late, posted))
            return ""
        if not full:
            self._look_after()
        return full

    def _post_late(self, posted: PostedEntry) -> None:
        full = self.post(posted)
        if full:  # its call has returned: there is nobody to raise it to
            _log.warning("an entry posted by a signal handler is lost: %s", full)

    def go_on(self, *, hurry: bool = False) -> tuple[int, int, float | None]:
        """Hear and send what can be. Returns what to poll until there is more to do."""
        with self.mutex, self:
            if hurry:
                self._retry_at = min(self._retry_at, self._hurry_at)
                self._kept.hurry()
            self._pump()
            watched = self._watching()
        self._look_after()
        return watched

    def let_go(self) -> None:
        """Nobody posts any more; what there is goes on. Takes no lock: legal in a finalizer."""
        self._is_left = True
        process.io_thread().wake()

    def close(self) -> int:
        """End the connection. Returns how many entries no daemon will ever see."""
        with self.mutex, self:
            never = self.unsent
            self._is_left = True
            self._lose()
            self._kept.clear()
            self._bytes = 0
        process.io_thread().wake()
        return never

    def forked(self) -> None:
        """In the child of a fork: all of it is the parent's."""
        process.leave_to_parent(self._socket)
        self._socket = None
        self.renew()
        self._lose()
        self._kept.clear()

    def _look_after(self) -> None:
        """Have the I/O thread know what to watch, where that is something else than it was."""
        if not self._is_kept:
            self._is_kept = True
            process.io_thread().keep(self)
        elif self._watching() != self._watched:
            process.io_thread().wake()

    # --- for the I/O thread ---------------------------------------------------------------------

    def wants(self) -> tuple[int, int, float | None]:
        """What to watch, and the time to attend to it at the latest (`io_thread.py`)."""
        with self.mutex, self:
            self._watched = self._watching()
            if self._is_left and not len(self):
                return -1, 0, 0.0
            return self._watched

    def attend(self, events: int) -> bool:
        """Read, send, connect: whatever is due."""
        with self.mutex, self:
            if events & poll.HANGUP and self._is_hung_up():
                self._fail(ConnectionResetError("walld hung up"))
            self._pump()
            if self._is_left and not len(self):
                self._lose()
                return False
        return True

    # --- under the lock -------------------------------------------------------------------------

    def _is_hung_up(self) -> bool:
        """Asked again: what the I/O thread saw may be of the connection before this one."""
        if self._socket is None:
            return False
        seen = poll.ready({self._socket.fileno(): 0}, 0.0)
        return any(events & poll.HANGUP for events in seen.values())

    def mend(self) -> None:
        """Nobody knows what of a frame the kernel took, or which books were written."""
        self._lose()

    def _hold(self, posted: PostedEntry) -> str:
        size = len(posted.entry.payload)
        for _ in range(2):
            if len(self) < OUTBOX_ENTRIES_MAX and self._bytes + size <= OUTBOX_BYTES_MAX:
                self._bytes += size
                self._kept.add(posted)
                self._pump()
                return ""
            self._pump()
        return (
            f"{len(self)} entries of {self._bytes} bytes wait for walld, limit"
            f" {OUTBOX_ENTRIES_MAX} of {OUTBOX_BYTES_MAX}: this one is not appended"
        )

    def _watching(self) -> tuple[int, int, float | None]:
        at = self._kept.next_at()
        if self._socket is None:
            return -1, 0, None if at is None else max(at, self._retry_at)
        if self._greeting is not None:
            return self._socket.fileno(), poll.IN, None
        if self._ends or (at is not None and at <= time.monotonic()):
            return self._socket.fileno(), poll.IN | poll.OUT, None
        many = len(self._on_its_way) > (0 if self._is_left else _UNHEARD_MAX)
        return self._socket.fileno(), poll.IN if many else 0, at

    def _pump(self) -> None:
        """Read what was answered and send what is kept, as far as it goes without waiting."""
        try:
            if self._socket is None:
                at = self._kept.next_at()
                if at is None or time.monotonic() < max(at, self._retry_at):
                    return
                self._open()
            self._hear()
            if self._greeting is None:
                self._send()
        except (OSError, Unavailable) as error:
            self._fail(error)

    def _open(self) -> None:
        """Connect, and give Welcome a moment; where that is not enough it is heard later."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket = connection
        connection.setblocking(False)
        # Clamped by the kernel: what it has survives this process.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, OUTBOX_BYTES_MAX)
        path = "(no socket)"
        try:
            path = self._locate()
            connection.connect(path)
            check_server(connection, path)
        except OSError as error:
            raise unreachable(path, error) from error
        self._greeting = Conversation()
        connection.send(self._greeting.hello(), NOSIGNAL)
        poll.ready({connection.fileno(): poll.IN}, BACKOFF_SECONDS_MIN)

    def _send(self) -> None:
        assert self._socket is not None, "opened before"
        while self._ends or self._encode():
            try:
                taken = self._socket.send(self._unsent, NOSIGNAL)
            except BlockingIOError:
                return
            self._unsent = self._unsent[taken:]
            while self._ends and len(self._unsent) <= self._ends[0]:
                self._ends.popleft()

    def _encode(self) -> bool:
        """What is to go next, as bytes to send. False where nothing is."""
        frames: list[bytes] = []
        size, now = 0, time.monotonic()
        while size < _CHUNK_BYTES and (queue := self._kept.queue(now)):
            self._id += 1
            frame = framing.encode(queue[0].request(self._id))
            self._on_its_way[self._id] = queue[0]
            queue.popleft()
            frames.append(frame)
            size += len(frame)
        self._unsent = memoryview(b"".join(frames))
        for frame in frames:
            size -= len(frame)
            self._ends.append(size)
        return bool(frames)

    def _hear(self) -> None:
        assert self._socket is not None, "opened before"
        while self._on_its_way or self._greeting is not None:
            try:
                received = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            if not received:
                raise Unavailable("walld closed the connection")
            try:
                bodies, self._rest = framing.split(self._rest + received)
                heard = [_messages.decode(body) for body in bodies]
            except framing.UNREADABLE as error:
                raise Unavailable(f"walld said what this client cannot read: {error}") from error
            for message in heard:
                self._heard(message)

    def _heard(self, message: msgspec.Struct) -> None:
        if isinstance(message, Error) and message.id == 0:
            raise Unavailable(f"walld ended the connection: {message.message}")
        if isinstance(message, Error) and message.code in (*OF_THIS_MOMENT, *OF_ITS_SESSION):
            self._not_taken(message)
        elif isinstance(message, Error):
            posted = self._answered(message.id)
            if posted is not None:
                posted.is_refused(message)
        elif isinstance(message, Answer) and message.last:
            self._answered(message.id)
        elif self._greeting is not None:
            self._greeting = None
            self.was_there = True

    def _answered(self, request_id: int) -> PostedEntry | None:
        posted = self._on_its_way.pop(request_id, None)
        if posted is not None:
            self._bytes -= len(posted.entry.payload)
            self._failing.pop(posted.session_id, None)
            self._kept.resume(posted.session_id)
        return posted

    def _not_taken(self, error: Error) -> None:
        """It says nothing of the entry, and the daemon hangs up behind it. Raises."""
        posted, now = self._on_its_way.get(error.id), time.monotonic()
        if posted is None or error.code in OF_THIS_MOMENT:
            raise Unavailable(f"walld cannot take it now: {error.message}")
        session_id = posted.session_id
        since = self._failing.setdefault(session_id, now)
        if now > since + _FORGET_SECONDS:
            since = self._failing[session_id] = now
        self._lose()
        self._kept.set_aside(session_id, now + _RETRY_SECONDS, now + _HURRY_SECONDS)
        if now < since + _GIVE_UP_SECONDS:
            raise _OfOneSession(f"walld cannot take it now: {error.message}")
        # Said before they are gone: who waits for all of them looks in no lock.
        are_refused([one for one in self._kept if one.session_id == session_id], error)
        self._kept.drop(session_id)
        self._bytes = sum(len(one.entry.payload) for one in self._kept)
        raise _OfOneSession(f"walld cannot write session {session_id!r}: {error.message}")

    def _fail(self, error: Exception) -> None:
        """There is no connection, for now. What was answered before its end is heard."""
        _log.debug("what was posted waits: %s", error)
        if self._socket is not None and isinstance(error, OSError):
            try:
                self._hear()
            except (OSError, Unavailable) as last:
                _log.debug("walld's last words: %s", last)
                error = last
        self._failure = error
        now, is_next = time.monotonic(), isinstance(error, _OfOneSession)
        self._retry_at = 0.0 if is_next else now + _RETRY_SECONDS
        self._hurry_at = 0.0 if is_next else now + _HURRY_SECONDS
        self._lose()

    def _lose(self) -> None:
        """There is no connection: what was on its way may have arrived. Twice is once."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        waiting = list(self._on_its_way.values())
        for posted in waiting[: len(waiting) - len(self._ends)]:
            posted.doubtful = True
        self._kept.put_back(waiting)
        self._on_its_way.clear()
        self._ends.clear()
        self._unsent = memoryview(b"")
        self._greeting, self._rest = None, b""
        self._bytes = sum(len(posted.entry.payload) for posted in self._kept)
