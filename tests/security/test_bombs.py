"""Frames that are small to send and meant to be large to take: refused, and they cost no memory.

What each gets as an answer is in `clients/vectors/malformed.json` and is held by
`acceptance/daemon/test_malformed.py`; here the daemon's memory is looked at after each. How long
each took is printed and decides nothing.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import pytest
from agents.process import Obedient
from daemon_process import DaemonProcess, environment
from strangers import resident_bytes
from walld_client.wire import messages as wire
from wire_peer import Daemon, Healthy, Peer, text_of

from walld import limits

DEEP = 100_000
LONGEST = b"\xff\xff\xff\xff"
HEADS = {
    "nothing": b"",
    "a token": b"\x95\x03\x01\x01",
    "behind a token": b"\x9f\x03\x01\x01\xc4\x01a\xc0",
    "a start": b"\x99\x02\x01\x00",
    "a resume": b"\x96\x11",
    "a run": b"\x96\x05\x01\x01\x03",
    "a recover": b"\x97\x30\x01",
    "seen of a recover": b"\x97\x30\x01\xa3all\xc0\xc0",
}
NESTS = {
    "arrays": b"\x91",
    "maps": b"\x81\xa1k",
    "arrays of 16 bits": b"\xdc\x00\x01",
    "arrays that claim 2^32-1": b"\xdd" + LONGEST,
    "maps that claim 2^32-1": b"\xdf" + LONGEST,
}
LENGTHS = {
    "str": b"\xdb",
    "bin": b"\xc6",
    "array": b"\xdd",
    "map": b"\xdf",
    "ext": b"\xc9",
}
MANY = {
    "empty arrays": b"\xdd\x00\x0f\xff\x00" + b"\x90" * 0xFFF00,
    "empty strings": b"\xdd\x00\x0f\xff\x00" + b"\xa0" * 0xFFF00,
    "numbers": b"\xdd\x00\x0f\xff\x00" + b"\x01" * 0xFFF00,
    "empty maps": b"\xdd\x00\x0f\xff\x00" + b"\x80" * 0xFFF00,
}


def corpus() -> dict[str, bytes]:
    """Name -> body of a frame."""
    found = {}
    for head, start in HEADS.items():
        for name, opener in NESTS.items():
            found[f"{DEEP} {name} in {head}"] = start + opener * DEEP
        for name, code in LENGTHS.items():
            found[f"{name} of 2^32-1 in {head}"] = start + code + LONGEST + b"a"
        for name, body in MANY.items():
            found[f"{name} in {head}"] = (start + body)[: limits.FRAME_BYTES_MAX]
    return {name: body[: limits.FRAME_BYTES_MAX] for name, body in found.items()}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture(scope="module")
def healthy(daemon: Daemon) -> Iterator[Healthy]:
    """Somebody who goes on streaming."""
    with Healthy(daemon) as agent:
        yield agent


def answered(daemon: Daemon, role: str | None, body: bytes) -> float:
    """Seconds until the peer was answered or closed, for one frame."""
    with Peer(daemon, role) as peer:
        begun = time.perf_counter()
        with suppress(BrokenPipeError, ConnectionResetError):
            peer.socket.sendall(len(body).to_bytes(4, "big") + body)
        answer = peer.hear()
        took = time.perf_counter() - begun
        assert isinstance(answer, (wire.Refused, wire.Error)), answer
        closes = isinstance(answer, wire.Error) and not answer.id
        assert (peer.hear() is None) if closes else True
        return took


@pytest.mark.parametrize("role", ["agent", "query", None])
def test_every_bomb_is_refused_and_costs_no_more_than_any_frame(
    daemon: Daemon, healthy: Healthy, role: str | None
) -> None:
    """What an allocator keeps of the largest list a frame may be is no more behind all of them.

    A list has 8 bytes for each byte of the frame; whether its pages go back at once or serve the
    next one depends on what lies above them.
    """
    slowest, kept = (0.0, ""), (8 + 2) * limits.FRAME_BYTES_MAX
    answered(daemon, role, bytes(limits.FRAME_BYTES_MAX))  # what one frame of any kind costs
    first = resident_bytes(daemon.process.pid)
    for name, body in corpus().items():
        slowest = max(slowest, (answered(daemon, role, body), name))
        assert resident_bytes(daemon.process.pid) - first < kept, name
    healthy.say(f"{role} ")
    assert text_of(healthy.recovered()) == "".join(healthy.said)
    grown = (resident_bytes(daemon.process.pid) - first) >> 10
    print(f"\n{role}: +{grown} KiB, slowest {slowest[0] * 1000:.1f} ms ({slowest[1]})")


@pytest.mark.parametrize("role", ["agent", "query", None])
def test_a_bomb_again_and_again_finds_the_memory_of_the_last(
    daemon: Daemon, role: str | None
) -> None:
    body = b"\xdd\x00\x0f\xff\x00" + b"\x80" * 0xFFF00
    for _ in range(5):
        answered(daemon, role, body)
    before = resident_bytes(daemon.process.pid)
    for _ in range(40):
        answered(daemon, role, body)
    assert resident_bytes(daemon.process.pid) - before < 8 * limits.FRAME_BYTES_MAX


def test_lengths_of_frames_that_lie_are_refused_before_anything_is_taken(daemon: Daemon) -> None:
    before = resident_bytes(daemon.process.pid)
    for role in ("agent", "query", None):
        for length in (limits.FRAME_BYTES_MAX + 1, 2**31, 2**32 - 1):
            with Peer(daemon, role) as peer:
                peer.socket.sendall(length.to_bytes(4, "big"))
                error = peer.hear()
                assert isinstance(error, wire.Error)
                assert (error.code, error.got) == ("frame_too_long", str(length))
                assert peer.hear() is None
    assert resident_bytes(daemon.process.pid) - before < limits.MIB


def test_an_event_that_claims_more_seqs_than_it_has_text(daemon: Daemon) -> None:
    """A run of a million tokens of nothing: one frame, one item, a few bytes a token at most."""
    tokens = limits.FRAME_BYTES_MAX - 100
    with Peer(daemon, "agent") as peer:
        peer.send(wire.Start(1, 0, "bomb", "s"))
        peer.drain(1)
        before = resident_bytes(daemon.process.pid)
        peer.send(wire.Run(1, 1, 3, bytes(tokens), b""))
        peer.drain(2)
        assert resident_bytes(daemon.process.pid) - before < 8 * limits.FRAME_BYTES_MAX
        peer.send(wire.Token(1, tokens + 1, b"x"), wire.End(1, tokens + 2, True))
        peer.send(wire.Release(1, tokens + 3))
        peer.drain(3, "synced")


def test_live_streams_of_a_user_are_counted_over_his_connections(tmp_path: Path) -> None:
    """Starts cost memory until the limit, and none beyond it; whoever has begun goes on."""
    count, meta = 300, bytes(900 * limits.KIB)
    with Daemon(tmp_path) as own, Healthy(own) as healthy, ExitStack() as held:
        before, refused = resident_bytes(own.process.pid), 0
        for _ in range(3):
            peer = held.enter_context(Peer(own, "agent"))
            for number in range(1, count // 3 + 1):
                peer.send(wire.Start(number, 0, f"{peer}{number}", "s", meta=meta))
            peer.send(wire.Drain(1, "synced"))
            while isinstance(said := peer.hear(), wire.Refused):
                assert said.code == "too_many_streams"
                refused += 1
            assert said == wire.Drained(1, "synced")
        assert refused == count - -(-limits.LIVE_BYTES_PER_UID_MAX // len(meta))
        grown = resident_bytes(own.process.pid) - before
        print(f"\n{count} streams that begin with {len(meta) >> 10} KiB each: +{grown >> 20} MiB")
        assert grown < 2 * limits.LIVE_BYTES_PER_UID_MAX
        healthy.say("here")


def test_15_000_live_streams_of_a_user_are_no_crowd(tmp_path: Path) -> None:
    with Daemon(tmp_path) as own, ExitStack() as held:
        for _ in range(5):
            peer = held.enter_context(Peer(own, "agent"))
            for first in range(1, 3001, 500):
                some = range(first, first + 500)
                peer.send(*(wire.Start(at, 0, f"{peer}{at}", f"s{at}") for at in some))
                peer.send(*(wire.Token(at, 1, b"here") for at in some))
            peer.drain(1)


EXTREMES = (-(2**63), -1, 2**32, 2**63, 2**64 - 1)


@pytest.mark.parametrize("field", ["held_from", "synced", "next_seq"])
def test_numbers_of_a_resume_that_cannot_be_end_nothing(
    daemon: Daemon, healthy: Healthy, field: str
) -> None:
    """One frame ended the whole daemon: what it is told of a released reply was a number less."""
    for at, number in enumerate(EXTREMES):
        for released in (True, False):
            said = {"held_from": 0, "synced": -1, "next_seq": 5} | {field: number}
            start = wire.Start(1, 0, f"{field} {at}", "s")
            with Peer(daemon, "agent") as peer, suppress(OverflowError):
                peer.send(wire.Resume(start, **said, released=released))
                peer.send(wire.Drain(1, "synced"))
                until_drained(peer)
    healthy.say(f"{field} ")
    with Peer(daemon, "query") as asking:
        assert asking.ask(wire.Status(1))


def until_drained(peer: Peer) -> None:
    while not isinstance(said := peer.hear(), wire.Drained):
        assert isinstance(said, wire.Refused), said


CLAIMS_AND_GARBAGE = """
import os, socket, sys, threading
from walld_client.wire import framing, messages as wire
def connected():
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(sys.argv[1])
    return peer
peer = connected()
start = wire.Start(1, 0, "claims", "s")
said = framing.encode(wire.Resume(start, 0, 2**32 - 1, 5))
peer.sendall(framing.encode(wire.Hello(1, "agent", os.urandom(16))) + framing.encode(start))
def garbage():
    while True:
        with connected() as other:
            other.sendall(b"\\xff" * 8)
threading.Thread(target=garbage, daemon=True).start()
print("begun", flush=True)
while True:
    peer.sendall(said * 500)
"""


def test_who_claims_losses_and_sends_garbage_fills_no_log(tmp_path: Path) -> None:
    """A line was written for each on the loop: 20 MB in 5 s, and an honest ack took 4 s."""
    since = time.monotonic()
    with Daemon(tmp_path) as own, Healthy(own) as healthy:
        hostile = subprocess.Popen(
            [sys.executable, "-c", CLAIMS_AND_GARBAGE, own.socket_path],
            env=environment(),
            stdout=subprocess.PIPE,
        )
        assert hostile.stdout is not None
        try:
            hostile.stdout.readline()
            begun, most = time.monotonic(), 0.0
            while time.monotonic() < begun + 3:
                at = time.monotonic()
                healthy.say(".")
                most = max(most, time.monotonic() - at)
        finally:
            hostile.kill()
            hostile.wait()
            hostile.stdout.close()
        print(f"\nbeside one that claims losses: at most {most * 1000:.0f} ms")
        with Peer(own, "query") as asking:
            metrics = msgspec.msgpack.decode(asking.ask(wire.Metrics(1)), type=str)
    seconds = time.monotonic() - since
    lines = (tmp_path / "log").read_text().splitlines()
    claimed = sum("lost_acked: " in line for line in lines)
    closed = sum("closed: " in line for line in lines)
    found = re.search(r"^walld_lost_acked_total (\S+)$", metrics, re.M)
    assert found is not None
    assert float(found[1]) >= 2**31 * claimed > 0, "all are counted"
    assert 0 < claimed <= limits.LOG_LINES_PER_SECOND_MAX * (seconds + 2)
    assert 0 < closed <= limits.LOG_LINES_PER_SECOND_MAX * (seconds + 2)


TWO = """
import os, socket, sys, time
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

hello = encode(wire.Hello(1, "agent", os.urandom(16)))
one, two = (socket.socket(socket.AF_UNIX) for _ in "12")
for each in (one, two):
    each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    each.connect(sys.argv[1])
one.setblocking(False)
begin = hello + encode(wire.Start(1, 0, "long", "s"))
tokens = [encode(wire.Token(1, n, b"x" * 400)) for n in range(1, 4000)]
said = one.send(begin + b"".join(tokens))
two.send(hello + bytes.fromhex(sys.argv[2]))
print((said - len(begin)) // len(tokens[0]), flush=True)
time.sleep(float(sys.argv[3]))
"""


@pytest.mark.parametrize("ends", ["its peer exits", "the daemon is stopped"])
def test_a_bomb_behind_a_hello_that_waits_for_an_earlier_connection(
    make_daemon: Callable[..., DaemonProcess], make_agent: Callable[..., Obedient], ends: str
) -> None:
    """Whoever has read that takes it: the connection goes, and nobody else has lost a word."""
    daemon = make_daemon("--flush-linger-ms", "2500").start()
    agent = make_agent(daemon)
    agent.do('r = client.reply("s", stream_id="good"); r.token("of another")')
    daemon.freeze()
    is_stopped = ends == "the daemon is stopped"
    words = [sys.executable, "-c", TWO, daemon.socket_path, "7fffffff" + "7a" * 50]
    with subprocess.Popen(
        [*words, "60" if is_stopped else "0"], env=environment(), stdout=subprocess.PIPE
    ) as hostile:
        assert hostile.stdout is not None
        whole = int(hostile.stdout.readline())
        agent.kill()
        if is_stopped:
            assert daemon.process is not None
            daemon.process.send_signal(signal.SIGTERM)
            daemon.thaw()
            assert daemon.ended() == 0
            daemon.start()
        else:
            daemon.thaw()
        assert daemon.orphan("good").text == "of another"
        hostile.kill()
    assert daemon.orphan("long").text.startswith("x" * 400 * (whole - 200))
    daemon.logged("a frame is longer than is taken")
