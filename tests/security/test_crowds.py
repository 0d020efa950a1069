"""Too many peers, and one that writes as fast as it can: the others are served all the same."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from daemon_process import DaemonProcess, environment, until
from strangers import needs_root, resident_bytes
from walld_client.wire import messages as wire
from wire_peer import Daemon, Healthy, Peer, recovered, text_of

from bench.faults import hostile
from bench.machine import peak_bytes
from walld import limits

HONEST = 63

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the crowd is held by this process
CONNECTS = min(4000, hard - 300)
"""At a time."""
WAVES = 5

WRITES_FOR_EVER = """
import socket, sys
from walld_client.wire import framing, messages as wire
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])
peer.sendall(framing.encode(wire.Hello(1, "agent", b"h" * 16)))
peer.sendall(framing.encode(wire.Start(1, 0, "hostile", "hostile")))
text, seq = b"x" * int(sys.argv[2]), 1
print("begun", flush=True)
while True:
    many = (framing.encode(wire.Token(1, seq + at, text)) for at in range(64))
    peer.sendall(b"".join(many))
    seq += 64
"""

MANY_CONNECTIONS = """
import os, socket, sys, time
from contextlib import suppress
from walld_client.wire import framing, messages as wire
peers, text, seq = [], b"x" * 64 * 1024, 1
for at in range(60):
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(sys.argv[1])
    peer.sendall(framing.encode(wire.Hello(1, "agent", os.urandom(16))))
    peer.sendall(framing.encode(wire.Start(1, 0, f"many {at}", "hostile")))
    peer.setblocking(False)
    peers.append([peer, b""])
print("begun", flush=True)
while True:
    rest = b"".join(framing.encode(wire.Token(1, seq + at, text)) for at in range(4))
    seq += 4
    for one in peers:
        one[1] = rest
    while any(one[1] for one in peers):
        for one in peers:
            with suppress(BlockingIOError):
                one[1] = one[1][one[0].send(one[1]):] if one[1] else b""
        time.sleep(0.001)
"""

SHORT_REPLIES = """
import os, socket, sys
from walld_client.wire import framing, messages as wire
for _ in range(9):
    if not os.fork():
        break
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])
peer.sendall(framing.encode(wire.Hello(1, "agent", os.urandom(16))))
print("begun", flush=True)
number = 0
while True:
    many = []
    for number in range(number + 1, number + 65):
        many += [wire.Start(number, 0, f"{os.getpid()} {number}", "hostile")]
        many += [wire.End(number, 1, clean=True), wire.Release(number, 2)]
    peer.sendall(b"".join(map(framing.encode, many)))
"""

SPEAK_AND_GO = """
import os, socket, sys
from contextlib import suppress
from walld_client.wire import framing, messages as wire
said = b"".join(framing.encode(wire.Token(1, seq, b"x" * 1000)) for seq in range(1, 400))
print("begun", flush=True)
number = 0
while True:
    number += 1
    if not os.fork():
        with suppress(OSError):
            peer = socket.socket(socket.AF_UNIX)
            peer.connect(sys.argv[1])
            peer.sendall(framing.encode(wire.Hello(1, "agent", os.urandom(16))))
            peer.sendall(framing.encode(wire.Start(1, 0, f"child {number}", "hostile")))
            peer.setblocking(False)
            peer.send(said)
        os._exit(0)
    os.wait()
"""
FLOODS = {
    "many connections": MANY_CONNECTIONS,
    "short replies of ten processes": SHORT_REPLIES,
    "children that speak and go": SPEAK_AND_GO,
}


MANY_PROCESSES = """
import os, signal, socket, sys
from contextlib import suppress
from walld_client.wire import framing, messages as wire
for number in range(int(sys.argv[2])):
    if not os.fork():
        with suppress(OSError), socket.socket(socket.AF_UNIX) as peer:
            peer.connect(sys.argv[1])
            peer.sendall(framing.encode(wire.Hello(1, "agent", os.urandom(16))))
            peer.sendall(framing.encode(wire.Start(1, 0, f"process {number}", "hostile")))
            signal.pause()
        os._exit(0)
print("begun", flush=True)
signal.pause()
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path) as running:
        yield running


def descriptors(daemon: Daemon) -> int:
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


def knocked(path: str) -> socket.socket:
    """Connected, as far as the backlog lets one, and silent."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    with suppress(BlockingIOError):
        peer.connect(path)
    return peer


def knock_again(crowd: list[socket.socket], daemon: Daemon) -> int:
    """Who found the backlog full tries once more. How many have an answer: none said a word, so
    that is a refusal.
    """
    answered = 0
    for peer in crowd:
        with suppress(OSError):  # it is connected
            peer.connect(daemon.socket_path)
        with suppress(OSError):  # nothing yet, or not connected
            peer.recv(1, socket.MSG_PEEK)
            answered += 1
    return answered


def test_thousands_of_connects_at_once(daemon: Daemon) -> None:
    """20,000 in all, held open and silent, then closed, then again: who is there goes on, and
    nothing is left.
    """
    with Healthy(daemon) as healthy:
        healthy.say("before")
        fds, memory = descriptors(daemon), resident_bytes(daemon.process.pid)
        for wave in range(WAVES):
            crowd = []
            for number in range(CONNECTS):
                crowd.append(knocked(daemon.socket_path))
                if number % 200 == 0:
                    healthy.say(".")
            with Peer(daemon, "query") as asking:
                assert asking.ask(wire.HasPartial(1, "healthy-session")) == b"\xc3"
            for peer in crowd:
                peer.close()
            healthy.say(f" wave {wave} is over")
        until(lambda: descriptors(daemon) <= fds, "every descriptor back")
        assert resident_bytes(daemon.process.pid) - memory < 32 * limits.MIB
        assert text_of(healthy.recovered()) == "".join(healthy.said)


def test_a_flood_beyond_what_there_is_room_for(tmp_path: Path) -> None:
    """A daemon of few descriptors: the crowd is turned away, who is in stays and is served."""
    daemon = Daemon(tmp_path, files_max=limits.PEERS_RESERVE_FDS + 40)
    crowd: list[socket.socket] = []
    try:
        with Healthy(daemon) as healthy:
            healthy.say("before")
            for number in range(CONNECTS):
                crowd.append(knocked(daemon.socket_path))
                if number % 400 == 0:
                    healthy.say(".")
            until(lambda: healthy.say(",") or descriptors(daemon) > 40, "a full house")
            until(lambda: knock_again(crowd, daemon) > 100, "and the rest turned away")
            healthy.say(" after")
            assert descriptors(daemon) < limits.PEERS_RESERVE_FDS + 40, "and a reserve of its own"
            for peer in crowd:
                peer.close()
            until(lambda: daemon.counted("too_many_peers") > 100, "counted, too")
            assert text_of(healthy.recovered()) == "".join(healthy.said)
    finally:
        for peer in crowd:
            peer.close()
        daemon.stop()


def is_known(daemon: Daemon) -> bool:
    """False while more that is dead is to be read than a request waits for ("behind"), or the dead
    still hold all the places.
    """
    try:
        with Peer(daemon, "query") as asking:
            asking.send(wire.HasPartial(1, "honest"))
            answer = asking.hear()
    except ConnectionError:
        return False
    assert isinstance(answer, wire.Answer) or answer.code == "behind", answer
    return isinstance(answer, wire.Answer)


def drained(peers: list[Peer], rounds: int, first: int) -> list[float]:
    """Rounds of a token and a drain by each, all at the same time; seconds until each answer."""
    took = []
    for number in range(first, first + rounds):
        at = time.perf_counter()
        for peer in peers:
            peer.send(wire.Token(1, number, b"honest "), wire.Drain(number, "written"))
        for peer in peers:
            assert peer.hear() == wire.Drained(number, "written")
            took.append(time.perf_counter() - at)
    return took


@pytest.mark.parametrize("text_bytes", [20, 64 * 1024])
def test_one_that_writes_as_fast_as_it_can_among_honest_ones(
    daemon: Daemon, text_bytes: int
) -> None:
    """All that the honest say is acknowledged, and memory stays: a flood has its share.

    How much longer their acks take is printed: it decides nothing.
    """
    beside_a_flood(daemon, f"{text_bytes} bytes a token", WRITES_FOR_EVER, str(text_bytes))


@pytest.mark.parametrize("flood", FLOODS)
def test_many_that_say_as_much_as_they_can_among_honest_ones(tmp_path: Path, flood: str) -> None:
    """The same beside many connections, many replies and many processes.

    What children leave in their sockets is the kernel's memory: a daemon of few descriptors.
    """
    daemon = Daemon(tmp_path, files_max=limits.PEERS_RESERVE_FDS + 300)
    try:
        beside_a_flood(daemon, flood, FLOODS[flood])
    finally:
        daemon.stop()


def beside_a_flood(daemon: Daemon, name: str, program: str, *arguments: str) -> None:
    with ExitStack() as held:
        peers = [held.enter_context(Peer(daemon, "agent")) for _ in range(HONEST)]
        acknowledged_beside(daemon, peers, name, [program, daemon.socket_path, *arguments])


def acknowledged_beside(daemon: Daemon, peers: list[Peer], name: str, flood: list[str]) -> None:
    for number, peer in enumerate(peers):
        peer.send(wire.Start(1, 0, f"honest {number}", "honest"))
        peer.drain(100_000)
    alone = drained(peers, 20, 1)
    before = resident_bytes(daemon.process.pid)
    hostile = subprocess.Popen(
        [sys.executable, "-c", *flood],
        env=environment(),
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert hostile.stdout is not None
    try:
        hostile.stdout.readline()
        among = drained(peers, 20, 21)
        most = resident_bytes(daemon.process.pid)
        time.sleep(1)
        most = max(most, resident_bytes(daemon.process.pid))
        among += drained(peers, 5, 41)
    finally:
        os.killpg(hostile.pid, signal.SIGKILL)
        hostile.wait()
        hostile.stdout.close()
    most = max(most, resident_bytes(daemon.process.pid))
    assert most - before < limits.UNSYNCED_BYTES_MAX + 24 * limits.MIB
    until(lambda: is_known(daemon), "what the flood had left is read", 60)
    for number in range(len(peers)):
        reply = recovered(daemon, f"honest {number}", [])
        assert (text_of(reply), reply.gaps, reply.last_seq) == ("honest " * 45, [], 45)
    first, second = (sorted(one)[int(len(one) * 0.99)] * 1000 for one in (alone, among))
    print(f"\n{name}: p99 of a drain {first:.1f} ms alone, {second:.1f} ms "
          f"among, ratio {second / first:.1f}; +{(most - before) >> 20} MiB")  # fmt: skip


def test_processes_take_no_descriptor_that_the_daemon_needs(tmp_path: Path) -> None:
    """Each has one besides its connection's: 400 of them left none for the log, and an honest ack
    took 26 s.
    """
    files_max = 600
    with Daemon(tmp_path, files_max=files_max) as daemon, Healthy(daemon) as healthy:
        crowd = subprocess.Popen(
            [sys.executable, "-c", MANY_PROCESSES, daemon.socket_path, "400"],
            env=environment(),
            stdout=subprocess.PIPE,
            process_group=0,
        )
        assert crowd.stdout is not None
        try:
            crowd.stdout.readline()
            until(
                lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd")) > files_max // 2,
                "a crowd",
            )
            for _ in range(20):
                healthy.say(".")
                time.sleep(0.05)
            taken = len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
        finally:
            os.killpg(crowd.pid, signal.SIGKILL)
            crowd.wait()
            crowd.stdout.close()
        assert taken < files_max - limits.PEERS_RESERVE_FDS + 100
        healthy.drain(100, "synced")
    assert "Too many open files" not in (tmp_path / "log").read_text()


@needs_root
@pytest.mark.parametrize("kind", hostile.CROWDS)
def test_a_crowd_of_another_user_costs_agents_nothing(tmp_path: Path, kind: str) -> None:
    """Nothing of theirs is refused or lost, and memory is bounded. Times: `bench hostile`."""
    daemon = DaemonProcess(tmp_path, "--socket-mode", "0666")
    daemon.is_executed = True  # its peak of memory is its own
    os.chmod(daemon.folder, 0o711)
    try:
        daemon.start()
        assert daemon.process is not None
        with ExitStack() as held:
            honest = hostile.Honest(daemon.socket_path, held)
            with hostile.crowd(daemon.socket_path, kind):
                honest.drains(0.3, least=80)
                honest.visit()
            honest.drains(0.0, least=8)
            honest.look()
        assert honest.troubles == []
        assert peak_bytes(daemon.process.pid) <= 200_000_000
    finally:
        daemon.close()
