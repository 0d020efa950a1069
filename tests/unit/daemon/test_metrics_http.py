"""The metrics port: whoever is there takes few connections, and keeps nobody out."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from daemon_process import until

from walld import limits
from walld.daemon.metrics_http import MetricsServer, of_this_host

GET = b"GET /metrics HTTP/1.1\r\nHost: walld\r\n\r\n"
BODY = b"walld 1\n" * 200_000
"""More than a socket takes at once."""


def paged(body: bytes) -> Callable[..., list[bytes]]:
    def application(environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/x"), ("Content-Length", str(len(body)))])
        return [body]

    return application


@pytest.fixture
def served() -> Iterator[MetricsServer]:
    scrapes = MetricsServer("127.0.0.1", 0, paged(BODY))
    yield scrapes
    scrapes.close()


def connected(served: MetricsServer) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", served.port), timeout=10)
    peer.settimeout(10)
    return peer


def read_all(peer: socket.socket) -> bytes:
    found = b""
    while received := peer.recv(65536):
        found += received
    return found


def asked(served: MetricsServer, request: bytes) -> tuple[bytes, bytes]:
    """Head and body of the answer."""
    with connected(served) as peer:
        peer.sendall(request)
        head, _, body = read_all(peer).partition(b"\r\n\r\n")
    return head, body


def test_who_asks_has_the_page(served: MetricsServer) -> None:
    head, found = asked(served, GET)
    assert head.split(b"\r\n")[0].endswith(b" 200 OK")
    assert found == BODY


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("box.internal:9464", 200), ("BOX.internal.", 200), ("10.0.0.7:9464", 200)),
        *(("[fe80::1]:9464", 200), ("localhost", 200), ("other.internal", 421), ("a b", 421)),
        *(("box.internal:9464.rebound.example", 421), ("xlocalhost", 421), ("[10.0.0.7", 421)),
    ],
)
def test_a_name_that_is_not_of_this_port_is_told_so(host: str, status: int) -> None:
    """The one that was configured, loopback's and addresses are."""
    begun: list[str] = []

    def start(line: str, _headers: object) -> None:
        begun.append(line)

    application = of_this_host(paged(b"page"), "box.internal")
    body = b"".join(application({"HTTP_HOST": host}, start))
    assert int(begun[0].split()[0]) == status
    assert body == b"page" if status == 200 else host.encode() in body and b"box.internal" in body


def test_what_is_no_request_is_told_so_and_the_next_one_answered(served: MetricsServer) -> None:
    assert b" 400 " in asked(served, b"\x00\xff a b c\r\n\r\n")[0].split(b"\r\n")[0] + b" "
    assert asked(served, GET)[1] == BODY


def test_no_more_is_read_than_a_request_may_have(served: MetricsServer) -> None:
    with connected(served) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * limits.SCRAPE_BYTES_MAX)
        peer.settimeout(limits.SCRAPE_SECONDS_MAX / 2)
        assert peer.recv(5) == b"HTTP/"


def test_hundreds_that_say_nothing_take_few_descriptors_and_keep_nobody_out(
    served: MetricsServer,
) -> None:
    with ExitStack() as stack:
        before, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
        crowd = [stack.enter_context(connected(served)) for _ in range(200)]
        for peer in crowd[::2]:
            peer.send(b"G")
        assert asked(served, GET)[1] == BODY

        def held() -> int:
            return len(os.listdir("/proc/self/fd")) - before - len(crowd)

        until(lambda: held() <= limits.SCRAPES_MAX, "those who made room are gone")
        assert threading.active_count() <= threads + limits.SCRAPES_MAX


def test_hundreds_that_ask_and_hang_up_take_few_descriptors_and_keep_nobody_out() -> None:
    """Each stands in line for a page that nobody reads."""
    page_seconds = 0.005

    def application(*request: Any) -> list[bytes]:
        time.sleep(page_seconds)
        return paged(b"page")(*request)

    scrapes = MetricsServer("127.0.0.1", 0, application)
    try:
        before, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
        for _ in range(100):
            with connected(scrapes) as peer:
                peer.sendall(GET)
            # Some threads may be on their way out.
            assert len(os.listdir("/proc/self/fd")) <= before + 2 * limits.SCRAPES_MAX
            assert threading.active_count() <= threads + 2 * limits.SCRAPES_MAX
        assert asked(scrapes, GET)[1] == b"page"
    finally:
        scrapes.close()


def test_who_has_asked_makes_room_for_none_before_its_page_is_made() -> None:
    is_asked, may_go_on = threading.Event(), threading.Event()

    def application(*request: Any) -> list[bytes]:
        is_asked.set()
        assert may_go_on.wait(10)
        return paged(b"page")(*request)

    scrapes = MetricsServer("127.0.0.1", 0, application)
    try:
        with connected(scrapes) as peer, ExitStack() as stack:
            peer.sendall(GET)
            assert is_asked.wait(10)
            crowd = [stack.enter_context(connected(scrapes)) for _ in range(40)]
            assert crowd[0].recv(1) == b"", "it was seen off"
            may_go_on.set()
            assert read_all(peer).endswith(b"page")
    finally:
        scrapes.close()


def test_who_does_not_ask_or_does_not_read_is_seen_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCRAPE_SECONDS_MAX", 0.2)
    body = bytes(32 * limits.MIB)
    scrapes = MetricsServer("127.0.0.1", 0, paged(body))
    try:
        with connected(scrapes) as silent, connected(scrapes) as deaf:
            deaf.sendall(GET)
            assert silent.recv(1) == b""
            time.sleep(0.5)
            assert len(read_all(deaf)) < len(body)
    finally:
        scrapes.close()


def test_a_page_that_fails_is_the_next_one_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fails = iter([True, False])

    def application(*request: Any) -> list[bytes]:
        if next(fails):
            raise RuntimeError("changed while it was read")
        return paged(b"whole")(*request)

    scrapes = MetricsServer("127.0.0.1", 0, application)
    try:
        assert b" 500 " in asked(scrapes, GET)[0]
        assert asked(scrapes, GET)[1] == b"whole"
    finally:
        scrapes.close()
    assert "changed while it was read" in capsys.readouterr().err


def test_a_port_that_is_taken_is_served_once_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "METRICS_RETRY_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        scrapes = MetricsServer("127.0.0.1", taken.getsockname()[1], paged(b"page"))
        assert scrapes.trouble == f"metrics on 127.0.0.1:{scrapes.port}: Address already in use"
    try:
        until(lambda: scrapes.trouble is None, "a port that is free")
        assert asked(scrapes, GET)[1] == b"page"
    finally:
        scrapes.close()


def test_it_is_closed_while_it_waits_for_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds in (0.0, 60.0):
        monkeypatch.setattr(limits, "METRICS_RETRY_SECONDS", seconds)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            scrapes = MetricsServer("127.0.0.1", taken.getsockname()[1], paged(b""))
            scrapes.close()
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", scrapes.port)) != 0


def test_an_address_of_no_interface_is_an_error() -> None:
    with pytest.raises(OSError, match="Cannot assign"):
        MetricsServer("192.0.2.1", 0, paged(b""))
