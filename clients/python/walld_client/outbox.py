"""Entries that are appended without waiting: on their way, or kept until they can be.

Owns: one connection that is written to and never waited for, what is on its way there, and what
could not be sent. Refuses: waiting for its own sake; `settle` waits for who reads next.

A post takes a system call or two. The one that opens the connection gives the daemon a moment to
say Welcome (BACKOFF_SECONDS_MIN), also in an event loop; where it is silent there is one such in a
second at most.

Nothing is dropped in silence: what was sent and not answered when the connection ends is kept as
doubtful and sent again by its id; what does not fit raises.
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

import msgspec
from walld_client import process
from walld_client.connection import NOSIGNAL
from walld_client.errors import Refused, Unavailable
from walld_client.limits import BACKOFF_SECONDS_MIN, OUTBOX_BYTES_MAX, OUTBOX_ENTRIES_MAX
from walld_client.requests import CANNOT_KNOW, Conversation
from walld_client.steps import Asked, Done, Steps
from walld_client.wire import framing
from walld_client.wire.messages import Answer, Append, Error, NewEntry, ToQuery

__all__ = ["Outbox", "Posted", "delivered"]

_READ_BYTES = 64 * 1024
_RETRY_SECONDS = 1.0
"""Between attempts to reach a daemon that is away: each may cost a moment."""
_messages = msgspec.msgpack.Decoder(ToQuery)
_log = logging.getLogger("walld")


class Posted:
    """An entry that was posted. doubtful: it was sent once, and nobody knows whether it arrived."""

    __slots__ = ("doubtful", "entry", "session_id")

    def __init__(self, session_id: str, entry: NewEntry) -> None:
        self.session_id = session_id
        self.entry = entry
        self.doubtful = False

    def request(self, request_id: int) -> Append:
        """The append of it alone."""
        return Append(request_id, self.session_id, [self.entry])


class Outbox:
    """What a client has posted, of all its sessions, in the order in which it was posted."""

    def __init__(self, locate: Callable[[], str], timeout: float) -> None:
        self._locate = locate
        self._timeout = timeout
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._rest = b""
        self._unsent = b""
        self._id = 0
        self._on_its_way: dict[int, Posted] = {}
        self._kept: deque[Posted] = deque()
        self._bytes = 0
        self._retry_at = 0.0
        process.register(self)

    def __len__(self) -> int:
        return len(self._on_its_way) + len(self._kept)

    def post(self, session_id: str, entry: NewEntry) -> None:
        """Send it, or keep it for later. Unavailable where so much waits that it does not fit."""
        self._enter()
        try:
            size = len(entry.payload)
            if len(self) >= OUTBOX_ENTRIES_MAX or self._bytes + size > OUTBOX_BYTES_MAX:
                self._pump()
            if len(self) >= OUTBOX_ENTRIES_MAX or self._bytes + size > OUTBOX_BYTES_MAX:
                raise Unavailable(
                    f"{len(self)} entries of {self._bytes} bytes wait for walld, limit"
                    f" {OUTBOX_ENTRIES_MAX} of {OUTBOX_BYTES_MAX}: this one is not appended"
                )
            self._bytes += size
            self._kept.append(Posted(session_id, entry))
            self._pump()
        finally:
            self._lock.release()

    def settle(self, timeout: float) -> list[Posted]:
        """Wait for what is on its way. What is then not known to be there is the caller's."""
        deadline = time.monotonic() + timeout
        self._enter()
        try:
            self._pump()
            while self._on_its_way and (left := deadline - time.monotonic()) > 0:
                self._wait(left)
                self._pump()
            if self._on_its_way:
                self._lose()
            taken = list(self._kept)
            self._kept.clear()
            self._bytes = 0
            return taken
        finally:
            self._lock.release()

    def put_back(self, posted: list[Posted]) -> None:
        """What could not be delivered either goes before what was posted since."""
        self._enter()
        try:
            self._kept.extendleft(reversed(posted))
            self._bytes += sum(len(one.entry.payload) for one in posted)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Let go of the connection. What is kept is lost with the client, and said so."""
        self._enter()
        try:
            self._lose()
            if self._kept:
                _log.warning("%d entries that were posted never reached walld", len(self._kept))
        finally:
            self._lock.release()

    def forked(self) -> None:
        """In the child of a fork: all of it is the parent's."""
        if self._socket is not None:
            os.close(self._socket.detach())
            self._socket = None
        self._lock = threading.Lock()
        self._on_its_way.clear()
        self._kept.clear()
        self._rest = self._unsent = b""
        self._bytes = 0

    # --- under the lock ---

    def _enter(self) -> None:
        if not self._lock.acquire(timeout=self._timeout):
            raise Unavailable(f"another call held what was posted for all of {self._timeout} s")

    def _pump(self) -> None:
        """Read what was answered and send what is kept, as far as it goes without waiting."""
        try:
            if self._socket is None:
                if not self._kept or time.monotonic() < self._retry_at:
                    return
                self._open()
            self._hear()
            while self._unsent or self._kept:
                if not self._unsent:
                    self._id += 1
                    posted = self._kept.popleft()
                    self._on_its_way[self._id] = posted
                    self._unsent = framing.encode(posted.request(self._id))
                assert self._socket is not None, "opened above"
                self._unsent = self._unsent[self._socket.send(self._unsent, NOSIGNAL) :]
        except BlockingIOError:
            return
        except (OSError, Unavailable) as error:
            _log.debug("what was posted waits: %s", error)
            self._lose()
            self._retry_at = time.monotonic() + _RETRY_SECONDS

    def _open(self) -> None:
        """Connect, and give Welcome a moment: nobody may send a request before it."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket = connection
        connection.settimeout(BACKOFF_SECONDS_MIN)
        connection.connect(self._locate())
        greeting = Conversation()
        connection.sendall(greeting.hello(), NOSIGNAL)
        while greeting.welcome is None:
            greeting.feed(connection.recv(_READ_BYTES))
        connection.setblocking(False)

    def _hear(self) -> None:
        assert self._socket is not None, "opened before"
        while self._on_its_way:
            try:
                received = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            if not received:
                raise Unavailable("walld closed the connection")
            try:
                bodies, self._rest = framing.split(self._rest + received)
                heard = [_messages.decode(body) for body in bodies]
            except (framing.FrameTooLong, msgspec.DecodeError, UnicodeDecodeError) as error:
                raise Unavailable(f"walld said what this client cannot read: {error}") from error
            for message in heard:
                self._heard(message)

    def _heard(self, message: msgspec.Struct) -> None:
        if isinstance(message, Error) and message.id == 0:
            raise Unavailable(f"walld ended the connection: {message.message}")
        if isinstance(message, Error) and message.code in CANNOT_KNOW:
            raise Unavailable(f"walld cannot take it now: {message.message}")
        if isinstance(message, Error):
            posted = self._on_its_way.pop(message.id, None)
            if posted is not None:
                self._bytes -= len(posted.entry.payload)
                _refused(posted, message.code, message.got, message.limit)
        elif isinstance(message, Answer) and message.last:
            posted = self._on_its_way.pop(message.id, None)
            if posted is not None:
                self._bytes -= len(posted.entry.payload)

    def _wait(self, seconds: float) -> None:
        if self._socket is None:
            return
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        poll.poll(seconds * 1000)

    def _lose(self) -> None:
        """The connection is over: what was on its way may have arrived."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        for posted in self._on_its_way.values():
            posted.doubtful = True
        self._kept.extendleft(reversed(self._on_its_way.values()))
        self._on_its_way.clear()
        self._rest = self._unsent = b""


def delivered(outbox: Outbox, timeout: float) -> Steps[None]:
    """Wait until all that was posted is there; ask for what was lost on the way, one by one."""
    if not len(outbox):
        return
    rest = yield Done(outbox.settle, timeout)
    for place, posted in enumerate(rest):
        try:
            yield Asked(posted.request, again=posted.entry.once)
        except Refused as error:
            _refused(posted, error.code, error.got, error.limit)
        except Unavailable:
            posted.doubtful = True
            outbox.put_back(rest[place:])
            raise


def _refused(posted: Posted, code: str, got: str, limit: str) -> None:
    """Nobody waits for the answer, so a refusal is told to the log."""
    if posted.doubtful and code == "duplicate_id":
        return  # it had arrived
    _log.warning(
        "an entry of type %r posted to session %r is not appended: code %s, got %s, limit %s",
        posted.entry.type,
        posted.session_id,
        code,
        got,
        limit,
    )
