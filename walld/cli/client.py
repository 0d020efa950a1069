"""The command line's connection to a daemon: one query connection, one request at a time.

Owns: finding the socket and the wait. Refuses: meaning; answers are msgpack for the caller; who may
listen there (the client's `link/socket_path.py`).

Invariant: nothing here waits longer than its timeout in all, and every way of not getting an answer
is `Unavailable`, with the reason: never an empty answer.

The client library asks through a thread-safe connection of its own; this one also names another
user (`--uid`) and asks for status, which programs do not.
"""

from __future__ import annotations

import errno
import os
import socket
import time

import msgspec
from walld_client.errors import Unsupported
from walld_client.link.socket_path import check_server, is_private, socket_candidates
from walld_client.query.requests import is_unknown, verb_of
from walld_client.wire import framing
from walld_client.wire import messages as wire

from walld import __version__
from walld.errors import WalldError

__all__ = ["Daemon", "Declined", "Unavailable"]

_READ_BYTES = 256 * 1024


class Unavailable(WalldError):
    """No answer: nobody is there, or not in time."""


class Declined(WalldError):
    """The daemon understood the question and says no."""

    def __init__(self, error: wire.Error) -> None:
        both = f" (got {error.got}, limit {error.limit})" if error.got or error.limit else ""
        super().__init__(f"{error.message}{both}")
        self.code = error.code
        self.error = error


def _check_folder(path: str, uid: int) -> None:
    """Refuses the per-user folder in a shared temporary directory if somebody else made it."""
    folder = os.path.dirname(path)
    planted = os.path.lexists(folder) and not is_private(folder, uid)
    if planted and path == socket_candidates(os.environ, uid)[-1]:
        raise PermissionError(errno.EPERM, "its folder is not yours alone, it is not used")


def _connected(given: str | None, timeout: float) -> socket.socket:
    """A connection to the named socket, or to the first of the default ones that answers."""
    named = given or os.environ.get("WALLD_SOCKET")
    uid = os.geteuid()
    tried = []
    for path in [named] if named else socket_candidates(os.environ, uid):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout)
        try:
            if not named:
                _check_folder(path, uid)
            connection.connect(path)
            check_server(connection, path)
        except OSError as error:
            connection.close()
            tried.append(f"{path}: {error.strerror or error}")
            continue
        return connection
    raise Unavailable(f"no daemon answers ({'; '.join(tried)})")


class Daemon:
    """A query connection, ready for questions. Use as a context manager."""

    def __init__(self, socket_path: str | None = None, timeout: float = 2.0) -> None:
        self._path, self._timeout = socket_path, timeout
        self._id = 0
        self.new_directory = 0
        """When the daemon's directory was found empty, by the last answer: ms since 1970, or 0."""
        self._answers = msgspec.msgpack.Decoder(wire.ToQuery)
        self._connect()

    def _connect(self) -> None:
        self._deadline = time.monotonic() + self._timeout
        self._buffer = b""
        self._socket = _connected(self._path, self._timeout)
        try:
            self._say(
                wire.Hello(
                    version=framing.PROTOCOL_VERSION,
                    role="query",
                    producer=os.urandom(16),
                    client=f"walld-cli/{__version__}",
                )
            )
            welcome = self._hear()
            if isinstance(welcome, wire.Error):
                raise Declined(welcome)
            if not isinstance(welcome, wire.Welcome):
                raise Unavailable(f"expected a Welcome, got {type(welcome).__name__}")
            self.version = welcome.daemon
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def reconnect(self) -> None:
        """A connection without what the last question left on it. Raises Unavailable, Declined."""
        self._socket.close()
        self._connect()

    def next_id(self) -> int:
        """A number for the next request."""
        self._id += 1
        return self._id

    def ask(self, request: wire.FromQuery) -> bytes:
        """The answer's msgpack. Raises Unavailable, Declined or the client's Unsupported."""
        self._deadline = time.monotonic() + self._timeout
        self._say(request)
        chunks = []
        while True:
            message = self._hear()
            if isinstance(message, wire.Error) and message.id in (0, self._id):
                if message.code == "recovering":
                    raise Unavailable(f"the daemon is still reading its log: {message.message}")
                if is_unknown(message, int(request.__struct_config__.tag or 0)):
                    told = (message.code, message.got, message.limit)
                    raise Unsupported(verb_of(request), self.version, *told)
                raise Declined(message)
            if isinstance(message, wire.Answer) and message.id == self._id:
                chunks.append(message.chunk)
                if message.last:
                    self.new_directory = message.new_directory
                    return b"".join(chunks)

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._late()
        return left

    def _late(self) -> Unavailable:
        return Unavailable(f"no answer within {self._timeout:g} s (--timeout S waits longer)")

    def _say(self, message: msgspec.Struct) -> None:
        self._socket.settimeout(self._left())
        try:
            self._socket.sendall(framing.encode(message))
        except TimeoutError:
            raise self._late() from None
        except OSError:
            return  # it hung up; why, where it said so, is read next

    def _hear(self) -> wire.ToQuery:
        while True:
            length = int.from_bytes(self._buffer[:4], "big") if len(self._buffer) >= 4 else None
            if length is not None and length > framing.FRAME_BYTES_MAX:
                raise Unavailable(f"not a walld daemon: it announces a frame of {length} bytes")
            if length is not None and len(self._buffer) >= 4 + length:
                body, self._buffer = self._buffer[4 : 4 + length], self._buffer[4 + length :]
                try:
                    decoded: wire.ToQuery = self._answers.decode(body)
                    return decoded
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    raise Unavailable(f"not an answer this walld understands: {error}") from error
            self._socket.settimeout(self._left())
            try:
                received = self._socket.recv(_READ_BYTES)
            except TimeoutError:
                raise self._late() from None
            except OSError as error:
                raise Unavailable(f"the daemon hung up: {error.strerror}") from error
            if not received:
                raise Unavailable("the daemon hung up")
            self._buffer += received
