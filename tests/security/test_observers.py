"""What another user learns of replies by asking for numbers again and again: little.

He asks as fast as he can, by the socket and at the metrics port, while somebody says token after
token, each known written before the next.
"""

from __future__ import annotations

import ast
import os
import random
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from daemon_process import DaemonProcess, until
from strangers import as_user, needs_root
from wire_peer import Healthy

STRANGER = 61002
BYTES = 64 * 1024
EVENTS = 100
SECONDS = 4

OBSERVE = """
import time
path, port, way, seconds = sys.argv[2], int(sys.argv[3]), sys.argv[4], float(sys.argv[5])
def received(peer):
    length = peer.recv(4, socket.MSG_WAITALL)
    return peer.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
def framed(body):
    return len(body).to_bytes(4, "big") + body
def by_socket(tag):
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(path)
    peer.sendall(framed(b"\\x94\\x00\\x01\\xa5query\\xc4\\x10" + os.urandom(16)))
    received(peer)
    def ask():
        peer.sendall(framed(b"\\x92" + bytes([tag]) + b"\\x01"))
        return received(peer)
    return ask
def by_tcp():
    with socket.socket(socket.AF_INET) as peer:
        peer.connect(("127.0.0.1", port))
        peer.sendall(b"GET /metrics HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
        found = b""
        while data := peer.recv(65536):
            found += data
        return found.partition(b"\\r\\n\\r\\n")[2]
ask = {"tcp": by_tcp, "socket": None, "status": None}[way]
if ask is None:
    ask = by_socket({"socket": 52, "status": 51}[way])
seen, asked, begun = [], 0, time.monotonic()
while time.monotonic() < begun + seconds:
    page = ask().decode("utf-8", "replace")
    asked += 1
    if not seen or seen[-1] != page:
        seen.append(page)
print({"pages": seen, "asked": asked, "seconds": time.monotonic() - begun})
"""


@pytest.fixture
def open_to_all(make_daemon: Callable[..., DaemonProcess]) -> DaemonProcess:
    """A daemon that every user may connect to, and its metrics port."""
    daemon = make_daemon("--socket-mode", "0666", "--metrics", "127.0.0.1:0")
    os.chmod(daemon.folder, 0o711)
    return daemon.start()


def port_of(daemon: DaemonProcess) -> int:
    def found() -> int:
        match = re.search(r"metrics on 127\.0\.0\.1 port (\d+)", daemon.log_text())
        return int(match[1]) if match else 0

    return until(found, "a metrics port")


@contextmanager
def speaking(daemon: DaemonProcess) -> Iterator[Healthy]:
    """Somebody who says tokens of any length, one after the other, while this is open."""
    over = threading.Event()
    with Healthy(daemon) as healthy:  # type: ignore[arg-type]

        def speak() -> None:
            while not over.wait(0.01):
                healthy.say("x" * random.randrange(1, 200))

        thread = threading.Thread(target=speak)
        thread.start()
        try:
            yield healthy
        finally:
            over.set()
            thread.join()


def observed(daemon: DaemonProcess, way: str, seconds: float = SECONDS) -> dict[str, Any]:
    told = as_user(STRANGER, OBSERVE, daemon.socket_path, str(port_of(daemon)), way, str(seconds))
    found: dict[str, Any] = ast.literal_eval(told)
    return found


def numbers(page: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"^(walld\S*) (\S+)$", page, re.M)}


@needs_root
@pytest.mark.parametrize("way", ["socket", "tcp", "status"])
def test_times_are_no_finer_than_a_second(open_to_all: DaemonProcess, way: str) -> None:
    with speaking(open_to_all) as healthy:
        until(lambda: healthy.said, "the first token")
        before = len(healthy.said)
        found = observed(open_to_all, way)
        said = len(healthy.said) - before
    print(f"\n{way}: {said} tokens, asked {found['asked']} times, saw {len(found['pages'])} pages")
    assert said > 2 * SECONDS
    assert len(found["pages"]) <= found["seconds"] + 2


@needs_root
@pytest.mark.parametrize("way", ["socket", "tcp"])
def test_lengths_and_counts_are_no_finer_than_their_grain(
    open_to_all: DaemonProcess, way: str
) -> None:
    with speaking(open_to_all) as healthy:
        until(lambda: len(healthy.said) > 100, "some tokens", 60)
        pages = [numbers(page) for page in observed(open_to_all, way)["pages"]]
    exact = open_to_all.metrics()
    assert exact['walld_events_received_total{kind="token"}'] == len(healthy.said), "for root"
    assert pages
    for page in pages:
        assert page.keys() == exact.keys(), "under the same names"
        for name in ("received_bytes_total", "wal_write_bytes_total", "queue_bytes"):
            assert page[f"walld_{name}"] % BYTES in (0, 1), name
        tokens = page['walld_events_received_total{kind="token"}']
        assert tokens % EVENTS == 0 or tokens == 1
        assert tokens <= len(healthy.said)
        assert page["walld_queue_events"] % EVENTS == 0
        for name in exact:
            if "_seconds_sum" in name:
                assert page[name] == int(page[name]), name
        buckets = [page[one] for one in page if one.startswith("walld_flush_lag_seconds_bucket")]
        assert buckets == sorted(buckets)
        assert buckets[-1] == page["walld_flush_lag_seconds_count"] > 0


@needs_root
def test_the_status_too(open_to_all: DaemonProcess) -> None:
    with speaking(open_to_all):
        pages = observed(open_to_all, "status", 2)["pages"]
    exact = open_to_all.status()
    for page in pages:
        assert all(name in page for name in exact)
    assert exact["record_bytes_first"] % BYTES, "for root"


HOSTS = {
    "127.0.0.1": 200,
    "127.0.0.1:9464": 200,
    "[::1]:9464": 200,
    "192.168.7.1": 200,
    "localhost": 200,
    "LOCALHOST:9464": 200,
    "walld.localhost": 200,
    "rebound.example": 421,
    "rebound.example:9464": 421,
    "127.0.0.1.rebound.example": 421,
    "localhost.rebound.example": 421,
    "[rebound.example]": 421,
    "": 421,
}


@pytest.mark.parametrize("host", HOSTS)
def test_the_metrics_port_answers_to_names_of_its_own_alone(
    make_daemon: Callable[..., DaemonProcess], host: str
) -> None:
    """A page in somebody's browser may not read it by a name that it points here."""
    daemon = make_daemon("--metrics", "127.0.0.1:0").start()
    with socket.create_connection(("127.0.0.1", port_of(daemon)), timeout=10) as peer:
        peer.sendall(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        found = b""
        while data := peer.recv(65536):
            found += data
    assert int(found.split()[1]) == HOSTS[host], found[:300]
    assert (b"walld_flush_lag_seconds" in found) is (HOSTS[host] == 200)
