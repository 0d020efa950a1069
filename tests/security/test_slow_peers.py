"""Peers that are slow on purpose, to send or to read: they wait for themselves alone.

How long the others were kept is printed and decides nothing; that they are served does.
"""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from daemon_process import DaemonProcess, until
from strangers import resident_bytes
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode
from wire_peer import Daemon, Healthy, Peer, text_of

from walld import limits

SLOW = 1000
HONEST = 8
FRAME = encode(wire.Token(1, 1, b"never" * 100))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon for one test."""
    with Daemon(tmp_path) as running:
        yield running


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)] * 1000


def begun(daemon: Daemon, role: str | None) -> socket.socket:
    """A connection that has begun a frame."""
    peer = Peer(daemon, role)
    peer.socket.setblocking(False)
    peer.socket.send(FRAME[:1])
    return peer.socket


def is_told_so(peer: socket.socket) -> bool:
    """It was closed, with the reason."""
    said = b""
    while True:
        try:
            data = peer.recv(65536)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True
        if not data:
            assert b"slow_frame" in said
            return True
        said += data


def test_a_thousand_peers_that_send_a_byte_a_second(daemon: Daemon) -> None:
    """Agents and newcomers alike: each is closed once its frame has taken 10 s, and meanwhile
    every honest agent is answered, time and again.
    """
    quiet = Healthy(daemon)
    quiet.say("before")
    honest = [Peer(daemon, "agent") for _ in range(HONEST)]
    for number, peer in enumerate(honest):
        peer.send(wire.Start(1, 0, f"h{number}", "s"))
        peer.drain(1)
    slow = [begun(daemon, ("agent", "query", None)[number % 3]) for number in range(SLOW)]
    began, took, rounds = time.monotonic(), [], 1
    while slow and time.monotonic() - began < 60:
        rounds += 1
        for peer in honest:
            at = time.perf_counter()
            peer.send(wire.Token(1, rounds - 1, b"x"))
            peer.drain(rounds)
            took.append(time.perf_counter() - at)
        for one in list(slow):
            try:
                one.send(FRAME[rounds - 1 : rounds])
            except (BrokenPipeError, ConnectionResetError):
                pass
            except BlockingIOError:
                continue
            if is_told_so(one):
                one.close()
                slow.remove(one)
        time.sleep(1)
    seconds = time.monotonic() - began
    assert slow == [], "each was closed"
    assert seconds >= limits.FRAME_SECONDS_MAX - 1, "and none before its time"
    assert daemon.counted("slow_frame") == SLOW
    # Silence between frames is no slowness: these have sent nothing for as long.
    quiet.say(", after")
    assert text_of(quiet.recovered()) == "before, after"
    for peer in (quiet, *honest):
        peer.socket.close()
    print(f"\n{SLOW} slow peers gone after {seconds:.1f} s; drains of the others: "
          f"{len(took)}, p99 {p99(took):.1f} ms")  # fmt: skip


def test_a_query_that_does_not_read_its_answers(daemon: Daemon) -> None:
    """It asks a thousand times for a megabyte: answers are made one at a time, as it reads."""
    with Peer(daemon, "agent") as agent, Peer(daemon, "query") as greedy:
        agent.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, os.urandom(900_000)))
        agent.drain(1)
        before = resident_bytes(daemon.process.pid)
        asked = b"".join(encode(wire.Recover(number, "all")) for number in range(1, 1001))
        greedy.socket.settimeout(0.5)
        with suppress(TimeoutError):
            greedy.socket.sendall(asked)
        for number in range(2, 10):
            agent.send(wire.Token(1, number, b"x"))
            agent.drain(number)
        time.sleep(0.5)
        assert resident_bytes(daemon.process.pid) - before < 16 * limits.MIB


def test_an_agent_that_never_reads_its_acks(
    make_daemon: Callable[..., DaemonProcess],
) -> None:
    """Thousands of streams, each acknowledged, and 800,000 drains, each of which would be answered
    with as much as it is: acks and answers stop at 64 KiB, its events do not.
    """
    daemon = make_daemon("--flush-bound-ms", "100").start()
    assert daemon.process is not None
    with Peer(daemon, "agent") as deaf, Healthy(daemon) as healthy:  # type: ignore[arg-type]
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        streams = range(1, 3001)
        deaf.send(*(wire.Start(number, 0, f"d{number}", "d") for number in streams))
        drains = encode(wire.Drain(2**40, "written")) * 100_000
        healthy.say("a")
        before = resident_bytes(daemon.process.pid)
        rounds = 8
        for seq in range(1, rounds + 1):
            deaf.send(*(wire.Token(number, seq, b"x") for number in streams))
            deaf.socket.sendall(drains)
            time.sleep(0.3)  # an ack of all of them each time
            healthy.say("a")
        grown = resident_bytes(daemon.process.pid) - before
        assert grown < 12 * limits.MIB, f"{grown >> 20} MiB of {rounds * len(drains) >> 20}"
        assert text_of(healthy.recovered()) == "a" * (rounds + 1)
        done = sum(reply.last_seq == rounds for reply in daemon.reader.recover_all("d"))
        assert done == len(streams), "not reading ends nothing"


def sockets_of(pid: int) -> int:
    """How many sockets a process has open: files come and go by the daemon's own work."""
    count = 0
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            count += str(fd.readlink()).startswith("socket:")
    return count


def test_the_descriptors_of_the_slow_come_back(daemon: Daemon) -> None:
    pid = daemon.process.pid
    with Healthy(daemon) as healthy:
        healthy.say("x")
        before = sockets_of(pid)
        peers = [Peer(daemon, role) for role in ("agent", "query", None) * 30]
        for peer in peers:
            peer.socket.sendall(FRAME[:3])
        until(lambda: sockets_of(pid) >= before + 90, "all of them in")
        for peer in peers:
            peer.socket.close()
        until(lambda: sockets_of(pid) <= before, "all of them gone")
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > SLOW


def test_frames_that_are_begun_and_left_hold_little_memory(daemon: Daemon) -> None:
    """400 peers, a MiB less a byte each: 64 agents may; the others are told so, and no newcomer is
    let do it.

    What queries begin waits in the kernel (`test_in_flight.py`).
    """
    before = resident_bytes(daemon.process.pid)
    begun_frame = limits.FRAME_BYTES_MAX.to_bytes(4, "big") + bytes(limits.FRAME_BYTES_MAX - 1)
    peers = []
    for number in range(400):
        peer = Peer(daemon, ("agent", None)[number % 2])
        peer.socket.settimeout(5)
        peers.append(peer)
        try:
            peer.socket.sendall(begun_frame)
        except (BrokenPipeError, ConnectionResetError):
            continue
    most = limits.BEGUN_FRAMES_PER_UID_MAX

    def closed() -> float:
        """Where all of this takes longer than a frame may, its time ends the first ones."""
        codes = ("too_many_begun", "slow_frame", "frame_too_long")
        return sum(map(daemon.counted, codes))

    until(lambda: closed() >= 400 - most, "the others closed")
    until(lambda: daemon.counted("frame_too_long") == 200, "each newcomer closed")
    grown = resident_bytes(daemon.process.pid) - before
    assert grown < 3 * most * limits.FRAME_BYTES_MAX, f"{grown >> 20} MiB"
    with Healthy(daemon) as healthy:
        healthy.say("still here")
    for peer in peers:
        peer.socket.close()
