"""The HTTP server for scrapes: one thread, few connections, none for long.

Owns: the TCP socket, a request's first line, and how long and how much anybody there may take.
Refuses: what is answered (`metrics.py`).

TCP names no user: whoever reaches the port may be anybody of this machine, and is no reason for an
agent to find no room. So a connection has `SCRAPE_SECONDS_MAX` to ask and to read the answer,
`SCRAPES_MAX` are held, and one more takes the place of the oldest: those who say nothing do not
keep out who asks. A page comes with a rest of some times what it took to make, so that who asks
without end takes a part of the daemon's core and not half of it.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from walld import limits

__all__ = ["Scrapes"]

_log = logging.getLogger("walld")
_READ_BYTES: Final = 4096
_REST_SHARE: Final = 4
"""Rest with a page, in times of what it took."""
_FULL_SECONDS: Final = 0.1
"""Before another accept(2) where there was no descriptor for one."""


class _Scraper:
    """One connection. answer: what is left to send, None while it has not asked."""

    __slots__ = ("answer", "asked", "end_at", "socket")

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.end_at = time.monotonic() + limits.SCRAPE_SECONDS_MAX
        self.asked = b""
        self.answer: memoryview | None = None


class Scrapes:
    """Listens from its making until `close`. OSError where it cannot.

    page: content type and body of an answer; called in the thread.
    """

    def __init__(self, host: str, port: int, page: Callable[[], tuple[str, bytes]]) -> None:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        self._listener = socket.create_server((host, port), family=family)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._page = page
        self._woken, self._waker = socket.socketpair()
        self._scrapers: list[_Scraper] = []
        """The oldest first."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="walld-scrapes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Nobody is answered any more."""
        self._waker.close()
        self._thread.join()
        for scraper in list(self._scrapers):
            self._end(scraper)
        self._selector.close()
        self._listener.close()
        self._woken.close()

    def _run(self) -> None:
        while True:
            left = self._scrapers[0].end_at - time.monotonic() if self._scrapers else None
            for key, _ in self._selector.select(left):
                if key.fileobj is self._woken:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif key.data.socket.fileno() >= 0:  # else it made room for a later one
                    self._go_on(key.data)
            now = time.monotonic()
            for scraper in [one for one in self._scrapers if one.end_at <= now]:
                self._end(scraper)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:  # no descriptor, no memory
            time.sleep(_FULL_SECONDS)
            return
        accepted.setblocking(False)
        if len(self._scrapers) >= limits.SCRAPES_MAX:
            self._end(self._scrapers[0])
        scraper = _Scraper(accepted)
        self._scrapers.append(scraper)
        self._selector.register(accepted, selectors.EVENT_READ, scraper)
        self._go_on(scraper)  # who asks at once is answered before anybody else takes the place

    def _end(self, scraper: _Scraper) -> None:
        self._scrapers.remove(scraper)
        self._selector.unregister(scraper.socket)
        scraper.socket.close()

    def _go_on(self, scraper: _Scraper) -> None:
        try:
            if scraper.answer is None:
                self._hear(scraper)
            if scraper.answer is not None:
                self._say(scraper)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # it is gone
            self._end(scraper)

    def _hear(self, scraper: _Scraper) -> None:
        answer: bytes | None = None
        heard = scraper.socket.recv(_READ_BYTES)
        if not heard:
            raise ConnectionResetError
        scraper.asked += heard
        head = scraper.asked.replace(b"\r\n", b"\n")
        if b"\n\n" in head:
            answer = self._answer(head.partition(b"\n")[0])
        elif len(scraper.asked) > limits.SCRAPE_BYTES_MAX:
            answer = _response("431 Request Header Fields Too Large")
        if answer is not None:
            scraper.answer = memoryview(answer)
            self._selector.modify(scraper.socket, selectors.EVENT_WRITE, scraper)

    def _answer(self, line: bytes) -> bytes:
        """To a request of that first line."""
        words = line.split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/"):
            return _response("400 Bad Request")
        if words[0] not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed")
        begun = time.perf_counter()
        try:
            kind, body = self._page()
        except Exception:  # the next one is asked for all the same
            _log.exception("the metrics could not be read")
            return _response("500 Internal Server Error")
        time.sleep((time.perf_counter() - begun) * _REST_SHARE)
        head = _response("200 OK", kind, len(body))
        return head + body if words[0] == b"GET" else head

    def _say(self, scraper: _Scraper) -> None:
        assert scraper.answer is not None, "asked before"
        while scraper.answer:
            scraper.answer = scraper.answer[scraper.socket.send(scraper.answer) :]
        with suppress(OSError):
            scraper.socket.shutdown(socket.SHUT_WR)
        self._end(scraper)


def _response(status: str, kind: str = "text/plain", length: int = 0) -> bytes:
    text = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n"
    return f"{text}Connection: close\r\n\r\n".encode()
