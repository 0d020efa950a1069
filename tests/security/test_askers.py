"""Those that ask without a pause, or for much, and those that do not read what they asked for.

How long the others were kept is printed; that they are served, and what memory it costs, decides.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from hashlib import sha256
from pathlib import Path

import pytest
from daemon_process import DaemonProcess, environment, until
from strangers import resident_bytes
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode
from wire_peer import Daemon, Healthy, Peer, text_of

from walld import limits

ASKS_FOR_EVER = """
import os, socket, sys, threading
from walld_client.wire import framing, messages as wire
os.fork()
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])
peer.sendall(framing.encode(wire.Hello(1, "query", os.urandom(16))))
def read():
    while peer.recv(1 << 20):
        pass
threading.Thread(target=read, daemon=True).start()
request = {"status": wire.Status, "metrics": wire.Metrics}[sys.argv[2]]
asked = b"".join(framing.encode(request(number)) for number in range(1, 5000))
print("begun", flush=True)
while True:
    peer.sendall(asked)
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon for one test."""
    with Daemon(tmp_path) as running:
        yield running


@pytest.mark.parametrize("request_name", ["status", "metrics"])
def test_who_asks_without_a_pause_and_reads(daemon: Daemon, request_name: str) -> None:
    """One token of an honest agent waited for half a minute, and the flush bound was breached."""
    with Healthy(daemon) as healthy:
        healthy.say("before")
        asking = subprocess.Popen(
            [sys.executable, "-c", ASKS_FOR_EVER, daemon.socket_path, request_name],
            env=environment(),
            stdout=subprocess.PIPE,
            process_group=0,
        )
        assert asking.stdout is not None
        try:
            asking.stdout.readline()
            time.sleep(0.5)
            begun, most = time.monotonic(), 0.0
            for _ in range(50):
                at = time.monotonic()
                healthy.say(".")
                most = max(most, time.monotonic() - at)
            took = time.monotonic() - begun
        finally:
            os.killpg(asking.pid, signal.SIGKILL)
            asking.wait()
            asking.stdout.close()
        print(f"\nbeside {request_name}: 50 drains in {took:.2f} s, at most {most * 1000:.0f} ms")
        assert most < limits.FLUSH_BOUND_MS_MAX / 1000
        assert text_of(healthy.recovered()) == "before" + "." * 50


def test_many_that_do_not_read_a_long_answer(daemon: Daemon) -> None:
    """Twice as long as each answer is what each of them cost: the user's bound is for them all."""
    content = b"long" * (4 * limits.MIB)
    digest = sha256(content).digest()
    with ExitStack() as held:
        sender = held.enter_context(Peer(daemon, "query"))
        for at in range(0, len(content), 512 * limits.KIB):
            chunk = content[at : at + 512 * limits.KIB]
            sender.ask(wire.PutArtifact(1, "s", digest, len(content), at, chunk))
        before, most = resident_bytes(daemon.process.pid), 0
        for _ in range(40):
            peer = held.enter_context(Peer(daemon, "query"))
            peer.send(wire.GetArtifact(1, "s", digest))
        until_at = time.monotonic() + 3
        with Healthy(daemon) as healthy:
            while time.monotonic() < until_at:
                healthy.say("x")
                most = max(most, resident_bytes(daemon.process.pid) - before)
        print(f"\n40 answers of 16 MiB that nobody reads: +{most >> 20} MiB")
        assert most < limits.IN_FLIGHT_BYTES_MAX + 6 * len(content)
        assert len(sender.ask(wire.GetArtifact(1, "s", digest))) > len(content), "who reads has it"


def test_many_that_ask_on_and_do_not_read(daemon: Daemon) -> None:
    """What they asked is in the kernel: the daemon has little of it at a time."""
    asked = b"".join(encode(wire.Metrics(number)) for number in range(1, 40_000))
    with ExitStack() as held:
        peers = [held.enter_context(Peer(daemon, "query")) for _ in range(200)]
        before = resident_bytes(daemon.process.pid)
        for peer in peers:
            peer.socket.settimeout(0)
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        rests = [asked] * len(peers)
        for _ in range(10):
            for at, peer in enumerate(peers):
                with suppress(BlockingIOError):
                    rests[at] = rests[at][peer.socket.send(rests[at]) :]
            time.sleep(0.1)
        with Healthy(daemon) as healthy:
            healthy.say("here")
        grown = resident_bytes(daemon.process.pid) - before
        print(f"\n200 that ask on and do not read: +{grown >> 20} MiB")
        assert grown < 200 * 200 * limits.KIB


def test_an_artifact_is_looked_at_once_at_a_time(
    make_daemon: Callable[..., DaemonProcess],
) -> None:
    """A hundred bytes have one read from end to end; others' sessions are not opened behind each
    of those.

    The disk takes its time for each read of it, so that looks can be counted while others ask.
    """
    slow = make_daemon()
    content = b"looked at"
    put = wire.PutArtifact(1, "s", sha256(content).digest(), len(content), 0, content)
    with Peer(slow.start(), "query") as sender:
        assert sender.ask(put)
    slow.terminate()
    (place,) = slow.data.rglob(sha256(content).hexdigest())
    slow.inject("pread64:delay_enter=300000", place)
    slow.start()
    with ExitStack() as held:
        peers = [held.enter_context(Peer(slow, "query")) for _ in range(30)]
        other = held.enter_context(Peer(slow, "query"))
        for peer in peers:
            peer.socket.sendall(encode(put) * 20)
        until(lambda: answers(peers), "they are at it")
        looks = []
        for number in range(3):
            answers(peers)
            other.ask(wire.Append(1, f"new {number}", [wire.NewEntry("n", b"{}", "a")]))
            looks.append(answers(peers))
        print(f"\nbeside 30 that ask so a new session waited for so many looks: {looks}")
        assert sorted(looks)[1] < len(peers) / 2, "behind each of them: once for each step of it"


def answers(peers: list[Peer]) -> int:
    """How many have come since they were counted last."""
    count = 0
    for peer in peers:
        peer.socket.settimeout(0)
        with suppress(BlockingIOError):
            while peer.hear():
                count += 1
    return count


LONG_LISTS = {
    "that name no producer": (b"\x93\xc4\x00\x05\x05", 200_000),
    "of one that never was": (b"\x93\xc4\x10" + b"q" * 16 + b"\x05\x05", 40_000),
}


@pytest.mark.parametrize("kind", LONG_LISTS)
def test_long_lists_of_what_was_said_cost_what_other_frames_do(daemon: Daemon, kind: str) -> None:
    """Five bytes of a frame were 60 of memory, of each connection for as long as it waited."""
    one, count = LONG_LISTS[kind]
    body = b"\x94\x31\x01\xa1s\xdd" + count.to_bytes(4, "big") + one * count
    with ExitStack() as held:
        peers = [held.enter_context(Peer(daemon, "query")) for _ in range(20)]
        before = resident_bytes(daemon.process.pid)
        for peer in peers:
            peer.socket.sendall(len(body).to_bytes(4, "big") + body)
        codes = [said.code for peer in peers if isinstance(said := peer.hear(), wire.Error)]
        grown = resident_bytes(daemon.process.pid) - before
        print(f"\n20 lists of {count:,} {kind}: +{grown >> 20} MiB, {set(codes)}")
        assert codes == ["bad_request"] * 20, "more than a frame of any client holds of them"
        assert grown < 20 * 4 * len(body)
        assert peers[0].ask(wire.Status(2))
