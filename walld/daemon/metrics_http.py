"""A small HTTP server for Prometheus scrapes, bounded in connections and CPU.

Owns: who is held at the port, and for how long. Refuses: HTTP (the standard library's server), and
what is answered (prometheus-client's application, of a registry of `metrics.py`).

TCP names no user: whoever reaches the port may be anybody of this machine, and is no reason for an
agent to find no room. So `SCRAPES_MAX` connections are held, a thread each; one more takes the
place of the oldest that says nothing, or reads nothing, so that those do not keep out who asks;
where all have asked it waits in the kernel until one has its page. Behind each page there is a
rest, so that who asks without end takes only a part of a core.

Nor is a port that somebody else has a reason not to start: it is tried again until it is free.
"""

from __future__ import annotations

import errno
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, BinaryIO, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from walld import limits

__all__ = ["MetricsServer", "of_this_host"]

_log = logging.getLogger("walld")
_REST_SHARE: Final = 4
"""The rest behind a page takes so many times as long as the page."""
_FULL_SECONDS: Final = 0.1
"""Before another accept(2) where there was no descriptor for one."""

_MADE: Final = "walld.made"
"""Key in a request's environ: what to call once its page is made, or cannot be."""

_BRACKETED: Final = re.compile(r"\[([^\[\]]*)\](?::\d*)?")
_PORT: Final = re.compile(r":\d*$")

Application = Callable[..., Iterable[bytes]]


class MetricsServer:
    """Listens from its making until `close`; where another process has the port, from when it is
    free. OSError where nobody could listen there: the host or the address is none of this machine.
    """

    def __init__(self, host: str, port: int, application: Application) -> None:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        kind = type("_Server", (_Server,), {"address_family": family})
        self._host = host
        self._make: Callable[[], _Server] = partial(kind, where, _Scrape)
        self._application = _Rested(application)
        self._server: _Server | None = None
        self._is_closing = threading.Event()
        self._turn = threading.Lock()
        """Of the thread that listens and the one that closes."""
        self.port = port
        self.trouble: str | None = None
        """Why nobody is answered now; None where all is well."""
        try:
            self._listen()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            self._failed(error)
            _log.error("%s; tried again every %g s", self.trouble, limits.METRICS_RETRY_SECONDS)
        self._thread = threading.Thread(target=self._run, name="walld-metrics", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        self._server = server = self._make()
        server.set_app(self._application)
        self.port = server.server_port
        self.trouble = None
        _log.info("metrics on %s port %d", self._host, self.port)

    def _failed(self, error: OSError) -> None:
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.trouble = f"metrics on {host}:{self.port}: {error.strerror}"

    def _run(self) -> None:
        while self._server is None:
            if self._is_closing.wait(limits.METRICS_RETRY_SECONDS):
                return
            with self._turn:
                if self._is_closing.is_set():
                    return
                try:
                    self._listen()
                except OSError as error:
                    self._failed(error)
        self._server.serve_forever()

    def close(self) -> None:
        """Nobody is answered any more."""
        with self._turn:
            self._is_closing.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        self._thread.join()


def of_this_host(application: Application, configured: str) -> Application:
    """The application, for requests whose Host is `configured`, of loopback, or an IP address.

    A page of somebody else's site may name this port by a name of its own that it points here (DNS
    rebinding), and so read what only this machine may; its browser still says that name.
    """

    def checked(asked: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        host = asked.get("HTTP_HOST")
        if host is None or _is_of_this_host(host, configured):
            return application(asked, start)
        told = f"Host {host!a} is not of this port: ask by IP address, localhost or {configured}"
        body = f"{told}, or give --metrics that name\n".encode()
        start("421 Misdirected Request", [("Content-Type", "text/plain; charset=utf-8")])
        return [body]

    return checked


def _is_of_this_host(host: str, configured: str) -> bool:
    bracketed = _BRACKETED.fullmatch(host)
    name = bracketed[1] if bracketed else _PORT.sub("", host)
    name = name.rstrip(".").lower()
    if name in (configured.rstrip(".").lower(), "localhost") or name.endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class _Rested:
    """An application that makes one page at a time, each with its rest."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._turn = threading.Lock()

    def __call__(self, asked: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        with self._turn:
            begun = time.perf_counter()
            try:
                return self._application(asked, start)
            finally:
                time.sleep((time.perf_counter() - begun) * _REST_SHARE)
                asked[_MADE]()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128  # a crowd is let in and seen off, and does not keep others waiting

    def __init__(self, *where: Any) -> None:
        self._idle: list[socket.socket] = []
        """Connections that wait for their peer, not for us; the oldest first."""
        self._lock = threading.Lock()
        self._room = threading.Semaphore(limits.SCRAPES_MAX)
        """A place each: a thread and a descriptor."""
        super().__init__(*where)

    def server_bind(self) -> None:
        """Without the name of the host, for which HTTPServer would ask a name server, and wait."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            accepted, address = super().get_request()
        except OSError:
            time.sleep(_FULL_SECONDS)
            raise
        accepted.settimeout(limits.SCRAPE_SECONDS_MAX)
        return accepted, address

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            with self._lock, suppress(IndexError, OSError):  # none, or it has hung up
                self._idle.pop(0).shutdown(socket.SHUT_RDWR)
            self._room.acquire()
        self.mark_idle(request)
        super().process_request(request, client_address)

    def mark_idle(self, request: socket.socket) -> None:
        """It waits for its request to come, or for its answer to be read."""
        with self._lock:
            self._idle.append(request)

    def mark_busy(self, request: socket.socket) -> None:
        """Its request has come, and it stands in line for a page; or it ends."""
        with self._lock, suppress(ValueError):  # it made room for a later one
            self._idle.remove(request)

    def shutdown_request(self, request: Any) -> None:
        self.mark_busy(request)
        super().shutdown_request(request)
        self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """It has hung up, or was seen off: nothing to say."""


class _Asked:
    """What a connection says, as lines: nothing beyond `SCRAPE_BYTES_MAX`."""

    def __init__(self, lines: BinaryIO) -> None:
        self._lines = lines
        self._left = limits.SCRAPE_BYTES_MAX

    def readline(self, most: int) -> bytes:
        line = self._lines.readline(min(most, self._left))
        self._left -= len(line)
        return line

    def close(self) -> None:
        self._lines.close()


class _Scrape(WSGIRequestHandler):
    def setup(self) -> None:
        super().setup()
        self.rfile: Any = _Asked(self.rfile)

    def get_environ(self) -> dict[str, Any]:
        """A whole request has come."""
        server: Any = self.server
        server.mark_busy(self.connection)
        return super().get_environ() | {_MADE: partial(server.mark_idle, self.connection)}

    def log_message(self, *_values: object) -> None:
        """Nothing: who asks is no event."""
