"""The metrics port: whoever is there takes few connections, none for long, and keeps nobody out."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from walld import limits
from walld.daemon.scrapes import Scrapes

GET = b"GET /metrics HTTP/1.1\r\nHost: walld\r\n\r\n"
BODY = b"walld 1\n" * 200_000
"""More than a socket takes at once."""


@pytest.fixture
def served() -> Iterator[Scrapes]:
    scrapes = Scrapes("127.0.0.1", 0, lambda: ("text/x", BODY))
    yield scrapes
    scrapes.close()


def connected(served: Scrapes) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", served.port), timeout=10)
    peer.settimeout(10)
    return peer


def read_all(peer: socket.socket) -> bytes:
    found = b""
    while received := peer.recv(65536):
        found += received
    return found


def asked(served: Scrapes, request: bytes) -> tuple[bytes, bytes]:
    """Head and body of the answer."""
    with connected(served) as peer:
        peer.sendall(request)
        head, _, body = read_all(peer).partition(b"\r\n\r\n")
    return head, body


@pytest.mark.parametrize(
    ("request_bytes", "status", "body"),
    [
        (GET, b"200 OK", BODY),
        (b"GET / HTTP/1.0\n\n", b"200 OK", BODY),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"200 OK", b""),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"405 Method Not Allowed", b""),
        (b"\x00\xff\r\n\r\n", b"400 Bad Request", b""),
        (b"x" * (limits.SCRAPE_BYTES_MAX + 1), b"431 Request Header Fields Too Large", b""),
    ],
)
def test_what_is_answered(
    served: Scrapes, request_bytes: bytes, status: bytes, body: bytes
) -> None:
    head, found = asked(served, request_bytes)
    assert head.split(b"\r\n")[0] == b"HTTP/1.1 " + status
    assert found == body
    if status == b"200 OK":
        assert f"Content-Length: {len(BODY)}".encode() in head
        assert b"Content-Type: text/x" in head


def test_a_request_in_pieces_is_one(served: Scrapes) -> None:
    with connected(served) as peer:
        for byte in GET:
            peer.sendall(bytes([byte]))
        assert read_all(peer).endswith(BODY)


def test_hundreds_that_say_nothing_take_few_descriptors_and_keep_nobody_out(
    served: Scrapes,
) -> None:
    with ExitStack() as stack:
        before, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
        crowd = [stack.enter_context(connected(served)) for _ in range(200)]
        for peer in crowd[::2]:
            peer.send(b"G")
        _, body = asked(served, GET)
        held = len(os.listdir("/proc/self/fd")) - before - len(crowd)
        assert body == BODY
        assert held <= limits.SCRAPES_MAX
        assert threading.active_count() == threads


def test_who_does_not_ask_or_does_not_read_is_seen_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCRAPE_SECONDS_MAX", 0.2)
    body = bytes(32 * limits.MIB)
    scrapes = Scrapes("127.0.0.1", 0, lambda: ("text/x", body))
    try:
        with connected(scrapes) as silent, connected(scrapes) as deaf:
            deaf.sendall(GET)
            begun = time.monotonic()
            assert silent.recv(1) == b""
            assert time.monotonic() - begun < 5
            time.sleep(0.5)
            assert len(read_all(deaf)) < len(body)
    finally:
        scrapes.close()


def test_a_page_that_fails_is_the_next_one_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pages: Iterator[RuntimeError | bytes] = iter(
        [RuntimeError("changed while it was read"), b"whole"]
    )

    def page() -> tuple[str, bytes]:
        found = next(pages)
        if isinstance(found, RuntimeError):
            raise found
        return "text/x", found

    scrapes = Scrapes("127.0.0.1", 0, page)
    try:
        assert asked(scrapes, GET)[0].startswith(b"HTTP/1.1 500")
        assert asked(scrapes, GET)[1] == b"whole"
    finally:
        scrapes.close()
    assert "changed while it was read" in caplog.text


def test_a_port_that_is_taken_is_an_error(served: Scrapes) -> None:
    with pytest.raises(OSError, match="in use"):
        Scrapes("127.0.0.1", served.port, lambda: ("", b""))
