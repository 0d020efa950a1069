"""A blocking query connection, kept open between requests.

Owns: the blocking socket of a client's requests and the wait of at most `timeout`. Refuses: what a
request means (`client.py`), bytes to answers (`requests.py`).

Time limits are the kernel's (SO_RCVTIMEO): a limit of Python's own would cost a poll(2) before
each call, half as much again as the round trip itself.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec
from walld_client.errors import Refused, Unavailable
from walld_client.limits import BACKOFF_SECONDS_MIN
from walld_client.link import process
from walld_client.link.connection import NOSIGNAL
from walld_client.link.socket_path import check_server
from walld_client.query.requests import Conversation, Late, NotYet, Stale
from walld_client.query.sync_tokens import SyncTokens

__all__ = ["AGAIN_SECONDS_MIN", "Query", "unreachable"]

AGAIN_SECONDS_MIN = 2 * BACKOFF_SECONDS_MIN
"""A request is asked again while so much is left: the pause before, and as long for its answer."""
_READ_BYTES = 16 * 1024
_LONG_READ_BYTES = 256 * 1024


class Query:
    """The query connection of a client, made when it is first needed and kept."""

    __slots__ = (
        "__weakref__",
        "_conversation",
        "_lock",
        "_patience",
        "_seconds",
        "_socket",
        "_sync_tokens",
        "_timeout",
        "_was_there",
        "locate",
    )

    def __init__(
        self, locate: Callable[[], str], timeout: float, sync_tokens: SyncTokens | None = None
    ) -> None:
        self.locate = locate
        self._timeout = timeout
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._sync_tokens = sync_tokens or SyncTokens()
        self._conversation = Conversation(self._sync_tokens)
        self._patience = timeout
        """Of the kernel, for one call on the socket."""
        self._seconds = timeout
        """What the caller gave the request at hand: connecting takes some of it, too."""
        self._was_there = False
        process.register(self)

    def ask(
        self,
        make: Callable[[int], msgspec.Struct],
        timeout: float | None = None,
        *,
        again: bool = True,
    ) -> bytes:
        """Send the request that `make` builds for an id, and wait for its whole answer.

        Raises Unavailable (its cause is the OSError, where there is one) or Refused. A kept
        connection that turns out to be dead is made anew, once. again: the same request may be
        asked twice; where not, one that was sent and not answered is Unavailable. A daemon that
        cannot know yet has done nothing, and is asked again while there is time.
        """
        process.check_fork()
        seconds = self._timeout if timeout is None else timeout
        deadline = time.monotonic() + seconds
        if not self._lock.acquire(timeout=seconds):
            raise Unavailable(f"another request took all of {seconds} s")
        self._seconds = seconds
        try:
            try:
                return self._exchange(make, seconds, deadline, again)
            except Stale:  # once: a request that ends daemons must not end them all
                return self._exchange(make, seconds, deadline, again=False)
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the connection; the next request makes another."""
        process.check_fork()
        with self._lock:
            self._drop()

    def forked(self) -> None:
        """In the child of a fork: the connection is the parent's."""
        process.leave_to_parent(self._socket)
        self._socket = None
        self._lock = threading.Lock()

    def _exchange(
        self,
        make: Callable[[int], msgspec.Struct],
        seconds: float,
        deadline: float,
        again: bool,
    ) -> bytes:
        try:
            if self._socket is None:
                self._open(deadline)
                seconds = _left(deadline)
            if self._patience != seconds:
                self._wait_at_most(seconds)
            while True:
                self._send(self._conversation.request(make))
                try:
                    return self._answer(deadline)
                except NotYet:  # it has waited for as long as it holds a request back
                    if time.monotonic() + AGAIN_SECONDS_MIN > deadline:
                        raise
                    time.sleep(BACKOFF_SECONDS_MIN)
                    self._wait_at_most(_left(deadline))
                except Stale as error:
                    if again:
                        raise
                    text = f"{error}; whether it did what was asked is not known"
                    raise Unavailable(text) from error
        except (Refused, ValueError):
            if self._conversation.is_over:
                self._drop()
            raise  # an answer like any other, or nothing was sent: the connection is good
        except BaseException:
            self._drop()
            raise

    def _answer(self, deadline: float) -> bytes:
        read_bytes = _READ_BYTES
        while True:
            answer = self._conversation.feed(self._received(read_bytes, deadline))
            if answer is not None:
                return answer
            read_bytes = _LONG_READ_BYTES

    def _wait_at_most(self, seconds: float) -> None:
        """The kernel's limits of the connection at hand, where a request has its own."""
        assert self._socket is not None, "opened before"
        _limit(self._socket, socket.SO_SNDTIMEO, seconds)
        _limit(self._socket, socket.SO_RCVTIMEO, seconds)
        self._patience = seconds

    def _open(self, deadline: float) -> None:
        """Connect and be welcomed. One that ends before met a daemon on its way out: try again."""
        while True:
            try:
                self._greet(deadline)
                return
            except Stale:
                self._drop()
                if not self._was_there or time.monotonic() + BACKOFF_SECONDS_MIN > deadline:
                    raise
            time.sleep(BACKOFF_SECONDS_MIN)

    def _greet(self, deadline: float) -> None:
        connection = self._connected(deadline)
        self._socket = connection
        self._wait_at_most(_left(deadline))
        self._conversation = Conversation(self._sync_tokens)
        with suppress(Stale):  # who is not let in is told why before: that is read next
            self._send(self._conversation.hello())
        while self._conversation.welcome is None:
            self._conversation.feed(self._received(_READ_BYTES, deadline))
        self._was_there = True

    def _connected(self, deadline: float) -> socket.socket:
        """Connect; where a daemon was there before, give the next one time to come up."""
        while True:
            path = "(no socket)"
            try:
                path = self.locate()
                return _connect(path, _left(deadline))
            except OSError as error:
                left = deadline - time.monotonic() - BACKOFF_SECONDS_MIN
                if not self._was_there or left <= 0:
                    raise unreachable(path, error) from error
                time.sleep(BACKOFF_SECONDS_MIN)

    def _send(self, frame: bytes) -> None:
        assert self._socket is not None, "opened before"
        try:
            self._socket.sendall(frame, NOSIGNAL)
        except BlockingIOError as error:
            raise Unavailable(f"walld took no request within {self._seconds:.3g} s") from error
        except OSError as error:
            raise Stale(f"the connection to walld is gone: {error}") from error

    def _received(self, bytes_max: int, deadline: float) -> bytes:
        assert self._socket is not None, "opened before"
        try:
            received = self._socket.recv(bytes_max)
        except BlockingIOError as error:
            raise self._conversation.late(self._seconds) from error
        except OSError as error:
            raise Stale(f"the connection to walld is gone: {error}") from error
        if not received:
            raise Stale("walld closed the connection before it answered")
        if time.monotonic() > deadline:
            late = Late(f"no whole answer from walld within {self._seconds:.3g} s")
            raise self._conversation.said or late
        return received

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def unreachable(path: str, error: OSError) -> Unavailable:
    """What a request raises where there is no connection to be had."""
    what = f"no walld at {path}"
    if error.errno in (errno.EMFILE, errno.ENFILE):  # ours: whether one is there is not known
        what = f"this process has no descriptor left to ask walld at {path}"
    return Unavailable(
        f"{what}: {error.strerror or error} (errno {error.errno}, uid {os.geteuid()})"
    )


def _left(deadline: float) -> float:
    """Until then, at least a moment: none would be for ever."""
    return max(deadline - time.monotonic(), 0.001)


def _connect(path: str, seconds: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _limit(connection, socket.SO_SNDTIMEO, seconds)
        connection.connect(path)
        check_server(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _limit(connection: socket.socket, option: int, seconds: float) -> None:
    """A time limit of the kernel's own: struct timeval, two longs."""
    whole = int(seconds)
    micros = int((seconds - whole) * 1_000_000)
    if whole == micros == 0:
        micros = 1  # zero would mean: for ever
    connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", whole, micros))
