"""Nobody waits for a hostile neighbour: the same acks, at the same virtual time (SIM16).

The clock stands still while the loop computes, and runs while a thread has work: each has one job
at a time, and a disk of 200 MB/s writes and syncs what it is given. So what is seen here is whom
the daemon waits for, whose turn comes first, and how much of a neighbour's goes before what
somebody waits for. What computing costs the others is measured by `bench hostile`.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
import virtual_daemon
from inline_worker import InlineWorker
from virtual_daemon import Home, Peer, Virtual, living, run
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode
from walld_client.wire.ledger_messages import Append, NewEntry

from walld.daemon.transport import credentials
from walld.disk.real import RealFile

T = TypeVar("T")
Neighbour = Callable[["Crowd"], Awaitable[None]]

MOST_SECONDS = 0.050
AGENTS, DRAINS = 6, 6
JOB_SECONDS = 0.004
"""Of each job of each thread, and more of one that writes, or syncs what was written."""
BYTES_A_SECOND = 200e6


HOSTILE = b"\0hostile "
"""So the names of the crowd's sockets begin, in no directory: they are of another process."""


class Disk:
    """What its files were given. pending: and not synced."""

    written = 0
    pending = 0
    is_slow = False


class Thread(InlineWorker):
    """One job at a time."""

    def __init__(self) -> None:
        self._lock = anyio.Lock()

    async def run(self, job: Callable[[], T]) -> T:
        with anyio.CancelScope(shield=True):
            async with self._lock:
                before, pending = Disk.written, Disk.pending
                done = job()
                synced = max(pending - Disk.pending, 0)
                if Disk.is_slow:
                    moved = Disk.written - before + synced
                    await anyio.sleep(JOB_SECONDS + moved / BYTES_A_SECOND)
                return done


@pytest.fixture(autouse=True)
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    write, sync = RealFile.write_at, RealFile.sync

    def write_at(self: RealFile, data: bytes, offset: int) -> int:
        count = write(self, data, offset)
        Disk.written += count
        Disk.pending += count
        return count

    def synced(self: RealFile) -> None:
        sync(self)
        Disk.pending = 0

    monkeypatch.setattr(RealFile, "write_at", write_at)
    monkeypatch.setattr(RealFile, "sync", synced)
    monkeypatch.setattr(virtual_daemon, "Slow", Thread)


class Crowd:
    """Connections that mean no good. None of them ever reads."""

    def __init__(self, virtual: Virtual) -> None:
        self.peers: list[socket.socket] = []
        self._path = virtual.home.socket_path

    def joins(self, role: str = "agent", count: int = 1, raw: bytes = b"") -> list[socket.socket]:
        """So many more, which have said Hello, or that; fewer where the backlog is full."""
        for _ in range(count):
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            peer.setblocking(False)
            peer.bind(HOSTILE + os.urandom(8))
            try:
                peer.connect(self._path)
                peer.send(raw or hello(role))
            except OSError:
                peer.close()
            else:
                self.peers.append(peer)
        return self.peers

    def leaves(self) -> None:
        """All of them."""
        for peer in self.peers:
            peer.close()
        self.peers.clear()


@pytest.fixture(autouse=True)
def other_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The crowd is of a process of its own, and the honest are of this one."""
    with subprocess.Popen(["sleep", "600"]) as hostile:

        def named(peer: socket.socket) -> credentials.PeerCredentials:
            is_hostile = bytes(peer.getpeername() or b"").startswith(HOSTILE)
            pid = hostile.pid if is_hostile else os.getpid()
            return credentials.PeerCredentials(pid, os.getuid(), os.getgid())

        monkeypatch.setattr(credentials, "credentials", named)
        monkeypatch.setattr(credentials, "open_pidfd", lambda _peer, pid: os.pidfd_open(pid))
        yield
        hostile.kill()


def hello(role: str = "agent") -> bytes:
    return encode(wire.Hello(1, role, os.urandom(16)))


def say(peer: socket.socket, raw: bytes) -> bytes:
    """As much as it takes at once; the rest. Who is not heard any more says nothing."""
    try:
        return raw[peer.send(raw) :]
    except BlockingIOError:
        return raw
    except OSError:
        return b""


async def that_say_much_and_read_no_ack(crowd: Crowd) -> None:
    rest = {}
    for at, peer in enumerate(crowd.joins(count=8)):
        rest[peer] = encode(wire.Start(1, 0, f"much {at}", "hostile"))
    said = 0
    while True:
        said += 20
        more = b"".join(encode(wire.Token(1, said - n, b"x" * 500)) for n in range(19, -1, -1))
        for peer in crowd.peers:
            if len(rest[peer]) < 1 << 20:
                rest[peer] += more
            rest[peer] = say(peer, rest[peer])
        await anyio.sleep(0.001)


async def that_begin_and_release_without_end(crowd: Crowd) -> None:
    (peer,), number, rest = crowd.joins(), 0, b""
    while True:
        number += 1
        rest += encode(wire.Start(number, 0, f"r{number}", "hostile"))
        rest += encode(wire.End(number, 1, clean=True)) + encode(wire.Release(number, 2))
        rest = say(peer, rest)
        await anyio.sleep(0.0005)


async def that_drain_without_a_pause(crowd: Crowd) -> None:
    (peer,), number, rest = crowd.joins(), 0, b""
    while True:
        number += 1
        rest = say(peer, rest + encode(wire.Drain(number, "synced")))
        await anyio.sleep(0.0005)


async def that_send_a_byte_at_a_time(crowd: Crowd) -> None:
    frame = hello()
    crowd.joins(count=64, raw=frame[:5])
    for at in range(5, len(frame)):
        await anyio.sleep(0.1)
        for peer in crowd.peers:
            say(peer, frame[at : at + 1])


async def that_ask_for_much_and_do_not_read(crowd: Crowd) -> None:
    (teller,) = crowd.joins()
    say(teller, encode(wire.Start(1, 0, "long", "hostile")))
    for seq in range(1, 9):
        assert not say(teller, encode(wire.Token(1, seq, b"y" * 10_000)))
        await anyio.sleep(0.001)
    _, *askers = crowd.joins("query", 16)
    while True:
        for asker in askers:
            say(asker, encode(wire.Recover(1, "all", None, "long")))
        await anyio.sleep(0.001)


async def that_append_without_a_pause(crowd: Crowd) -> None:
    number = 0
    crowd.joins("query", 4)
    while True:
        for at, peer in enumerate(crowd.peers):
            number += 1
            entry = NewEntry("note", b'{"n":1}', f"e{number}")
            say(peer, encode(Append(number, f"hostile {at}", [entry])))
        await anyio.sleep(0.001)


async def that_come_and_go(crowd: Crowd) -> None:
    while True:
        crowd.joins(count=20)
        crowd.leaves()
        await anyio.sleep(0.001)


async def that_send_garbage(crowd: Crowd) -> None:
    while True:
        for raw in (b"\xff" * 64, b"\x00" * 64, hello() + b"\x05\x00\x00\x00\x91\xc1\xc1\xc1\xc1"):
            crowd.joins(raw=raw)
        crowd.leaves()
        await anyio.sleep(0.001)


async def waits(home: Home, neighbour: Neighbour | None) -> list[float]:
    """How long each drain took, in virtual seconds: of agents with a pace of their own."""
    found: dict[tuple[int, int], float] = {}

    async def honest(virtual: Virtual, at: int) -> None:
        with Peer(virtual) as peer:
            peer.send(wire.Start(1, 0, f"honest {at}", f"s{at}"))
            for number in range(1, DRAINS + 1):
                await anyio.sleep(0.037 + 0.011 * at)
                peer.send(wire.Token(1, number, b"a word "))
                begun = anyio.current_time()
                await peer.drain("synced" if number % 2 else "written")
                found[at, number] = anyio.current_time() - begun

    async with living(home) as virtual:
        Disk.is_slow = True
        crowd = Crowd(virtual)
        async with anyio.create_task_group() as hostile:
            if neighbour is not None:
                hostile.start_soon(neighbour, crowd)
                await anyio.sleep(0.2)
            async with anyio.create_task_group() as agents:
                for at in range(AGENTS):
                    agents.start_soon(honest, virtual, at)
            hostile.cancel_scope.cancel()
        crowd.leaves()
        Disk.is_slow = False
    return [found[key] for key in sorted(found)]


@pytest.mark.parametrize(
    "neighbour",
    [
        that_say_much_and_read_no_ack,
        that_begin_and_release_without_end,
        that_drain_without_a_pause,
        that_send_a_byte_at_a_time,
        that_ask_for_much_and_do_not_read,
        that_append_without_a_pause,
        that_come_and_go,
        that_send_garbage,
    ],
    ids=lambda neighbour: neighbour.__name__,
)
def test_no_ack_waits_longer_beside_neighbours(tmp_path: Path, neighbour: Neighbour) -> None:
    """SIM16."""
    taken: list[list[float]] = []

    async def main() -> None:
        for name, beside in (("alone", None), ("beside", neighbour)):
            path = tmp_path / name
            path.mkdir()
            taken.append(await waits(Home(path), beside))

    run(main)
    alone, beside = taken
    assert len(alone) == len(beside) == AGENTS * DRAINS
    later = max(two - one for one, two in zip(alone, beside, strict=True))
    print(f"\nalone at most {max(alone) * 1000:.0f} ms, beside at most {later * 1000:.0f} ms later")
    assert later <= MOST_SECONDS
