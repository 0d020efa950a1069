"""Beside agents that say as much as they can: how much longer do 63 others wait for their acks?

Each of the 63 says a token and asks to be told when it is written, all at once, round after round;
alone, then beside each kind of flood below. Rounds with and without it take turns, since the
machine is not the same from second to second. A flood runs at nice 10: whether it takes the
agents' own core from them is the scheduler's business.

And beside a crowd of another user, which root alone can start: 8 agents, alone and beside a crowd
from its first connection on, which is killed and begun anew in each round. It has a session of its
own, as another user's processes have, so that its many get no more of the agents' core than one.
Meanwhile one more of the agents' user comes, speaks, asks and appends. What they are refused, or is
not there, counts.

    python -m bench.faults.hostile SOCKET KIND [UID]

is the flood; with a UID the crowd, of that user.
"""

from __future__ import annotations

import hashlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import msgspec
from walld_client.encoding import event_frames
from walld_client.wire import framing
from walld_client.wire import messages as wire

from bench.daemon import Daemon, Peer, environment
from bench.machine import peak_bytes, pinned
from bench.report.numbers import median, quantile
from bench.report.table import Figure
from bench.run import Run

__all__ = ["CROWDS", "Honest", "crowd", "measure"]

_HONEST = 63
_MIB = 1 << 20
_SETTLE_SECONDS = 0.2
_DRAINS = 20
_NICE = 10
_LONG = 64 * 1024
_FILES_MAX = 1024
"""Of the daemon: what the dead leave in their sockets is this machine's memory, too."""
_AGENTS = 8
"""Beside a crowd."""
_AGENTS_UID, _CROWD_UID = 61001, 61002
_PHASE_SECONDS = 2.0
_PHASE_DRAINS = 2000
"""At least, of all agents together."""


def _drained(peers: list[Peer], seqs: range) -> list[float]:
    """Seconds until each was told, all of them asking at the same time."""
    took = []
    for seq in seqs:
        at = time.perf_counter()
        for peer in peers:
            peer.send(wire.Token(1, seq, b"honest "), wire.Drain(seq, "written"))
        for peer in peers:
            peer.hear(wire.Drained)
            took.append(time.perf_counter() - at)
    return took


def _rounds(run: Run, daemon: Daemon, kind: str, rounds: int) -> list[Figure]:
    """Alone and beside the flood, in turns."""
    command = [sys.executable, "-m", "bench.faults.hostile", daemon.socket_path, kind]
    alone: list[float] = []
    among: list[float] = []
    ratios: list[float] = []
    with ExitStack() as held:
        peers = [held.enter_context(daemon.agent()) for _ in range(_HONEST)]
        for at, peer in enumerate(peers):
            peer.send(wire.Start(1, 0, f"honest {at}", "honest"))
        asking = held.enter_context(Peer(daemon.socket_path, "query"))
        with pinned(run.cores.agents):
            hostile = subprocess.Popen(
                command, env=environment(), stdout=subprocess.PIPE, start_new_session=True
            )
        held.callback(hostile.wait)
        held.callback(os.killpg, hostile.pid, signal.SIGKILL)
        assert hostile.stdout is not None
        held.enter_context(hostile.stdout)
        before, most = daemon.resident_bytes(), 0
        hostile.stdout.readline()
        taken = daemon.metrics_by(asking)["walld_received_bytes_total"]
        begun = time.perf_counter()
        for number in range(rounds):
            first = 1 + number * 2 * _DRAINS
            os.killpg(hostile.pid, signal.SIGSTOP)
            time.sleep(_SETTLE_SECONDS)
            one = _drained(peers, range(first, first + _DRAINS))
            os.killpg(hostile.pid, signal.SIGCONT)
            time.sleep(_SETTLE_SECONDS)
            other = _drained(peers, range(first + _DRAINS, first + 2 * _DRAINS))
            most = max(most, daemon.resident_bytes())
            ratios.append(quantile(other, 0.99) / quantile(one, 0.99))
            alone += one
            among += other
            run.step((number + 1) / rounds, kind)
        taken = daemon.metrics_by(asking)["walld_received_bytes_total"] - taken
        pace = taken / _MIB / (time.perf_counter() - begun)
    name = f"beside {kind}"
    note = (
        f"{name}: p99 {quantile(alone, 0.99) * 1000:.1f} ms alone, "
        f"{quantile(among, 0.99) * 1000:.1f} ms beside it; of {len(alone):,} and {len(among):,}; "
        f"{pace:.0f} MiB/s were taken meanwhile, it was stopped half of the time"
    )
    return [
        Figure("hostile", f"{name}: an ack, p99, to alone", median(ratios), "x", 2.0,
               spread=(min(ratios), max(ratios)), note=note),
        Figure("hostile", f"{name}: resident memory", (most - before) / _MIB, "MiB more", 32.0),
    ]  # fmt: skip


def measure(run: Run) -> list[Figure]:
    """Each kind of flood, a daemon each."""
    figures = []
    for kind in KINDS:
        with run.daemon(files_max=_FILES_MAX) as daemon:
            figures += _rounds(run, daemon, kind, int(run.pick(10, 3)))
    if os.geteuid():
        print("bench: no crowds of another user: only root may start them", file=sys.stderr)
        return figures
    for kind in CROWDS:
        with run.daemon("--socket-mode", "0666") as daemon:
            for folder in (daemon.home, *daemon.home.parents[:2]):
                folder.chmod(0o711)
            figures += _crowd_rounds(run, daemon, kind, int(run.pick(5, 2)))
    return figures


# --- beside a crowd of another user -------------------------------------------------------------


@contextmanager
def _as_user(uid: int) -> Iterator[None]:
    """Who connects within is this user: the kernel tells the daemon so."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


class Honest:
    """Agents of one user, and what went wrong for them."""

    def __init__(self, socket_path: str, held: ExitStack) -> None:
        self._path = socket_path
        with _as_user(_AGENTS_UID):
            self._peers = [held.enter_context(Peer(socket_path, "agent")) for _ in range(_AGENTS)]
        for at, peer in enumerate(self._peers):
            peer.send(wire.Start(1, 0, f"honest {at}", "honest"))
        self._said = self._visits = 0
        self.troubles: list[str] = []

    def drains(self, seconds: float, least: int = _PHASE_DRAINS) -> list[float]:
        """Rounds of all of them, for so long and so many; seconds of each drain."""
        took: list[float] = []
        until = time.perf_counter() + seconds
        while time.perf_counter() < until or len(took) < least:
            self._said += 1
            took += _drained(self._peers, range(self._said, self._said + 1))
        return took

    def visit(self) -> None:
        """One more agent comes, says something, asks for it, appends and goes."""
        self._visits += 1
        name = f"visit {self._visits}"
        try:
            with ExitStack() as held:
                with _as_user(_AGENTS_UID):
                    agent = held.enter_context(Peer(self._path, "agent"))
                    asking = held.enter_context(Peer(self._path, "query"))
                agent.send(wire.Start(1, 0, name, name), wire.Token(1, 1, b"hello"))
                agent.drain("synced")
                self._find(asking, name, b"hello")
                asking.ask(wire.Append(2, name, [wire.NewEntry("note", b'{"n": 1}', name)]))
                agent.send(wire.End(1, 2, clean=True), wire.Release(1, 3))
                agent.drain()
        except OSError as error:
            self.troubles.append(f"{name}: {error}")

    def look(self) -> None:
        """Is all there that they said?"""
        with _as_user(_AGENTS_UID):
            asking = Peer(self._path, "query")
        with asking:
            for at in range(_AGENTS):
                self._find(asking, f"honest {at}", b"honest " * self._said)

    def _find(self, asking: Peer, name: str, text: bytes) -> None:
        answer = asking.ask(wire.Recover(1, "all", None, name))
        replies = msgspec.msgpack.decode(answer, type=list[wire.Recovered])
        found = b"".join(part.text for reply in replies for part in reply.segments)
        if found != text or any(reply.gaps for reply in replies):
            self.troubles.append(f"{name}: {len(found)} of {len(text)} bytes")


@contextmanager
def crowd(socket_path: str, kind: str, cores: set[int] | None = None) -> Iterator[None]:
    """It is there, of a user of its own; afterwards it is killed."""
    command = [sys.executable, "-m", "bench.faults.hostile", socket_path, kind, str(_CROWD_UID)]
    with pinned(cores or os.sched_getaffinity(0)):
        begun = subprocess.Popen(
            command, env=environment(), stdout=subprocess.PIPE, start_new_session=True
        )
    assert begun.stdout is not None
    with begun.stdout:
        try:
            if not begun.stdout.readline():
                raise RuntimeError(f"no crowd of {kind}")
            yield
            if begun.poll() is not None:
                raise RuntimeError(f"the crowd of {kind} ended by itself: {begun.returncode}")
        finally:
            os.killpg(begun.pid, signal.SIGKILL)
            begun.wait()


def _crowd_rounds(run: Run, daemon: Daemon, kind: str, rounds: int) -> list[Figure]:
    alone: list[float] = []
    beside: list[float] = []
    ratios: list[float] = []
    with ExitStack() as held:
        honest = Honest(daemon.socket_path, held)
        for number in range(rounds):
            daemon.settle()
            one = honest.drains(_PHASE_SECONDS)
            with crowd(daemon.socket_path, kind, run.cores.agents):
                other = honest.drains(_PHASE_SECONDS)
                honest.visit()
            ratios.append(quantile(other, 0.99) / quantile(one, 0.99))
            alone += one
            beside += other
            run.step((number + 1) / rounds, kind)
        daemon.settle()
        honest.look()
    name = f"beside another user's {kind}"
    note = (
        f"{name}: p99 {quantile(alone, 0.99) * 1000:.1f} ms alone, "
        f"{quantile(beside, 0.99) * 1000:.1f} ms beside it; of {len(alone):,} and {len(beside):,}"
    )
    if honest.troubles:
        note += f"; {'; '.join(honest.troubles[:3])}"
    peak = peak_bytes(daemon.process.pid) / 1e6
    return [
        Figure("hostile", f"{name}: an ack, p99, to alone", median(ratios), "x", 2.0,
               spread=(min(ratios), max(ratios)), note=note),
        Figure("hostile", f"{name}: refused or lost", len(honest.troubles), "", 0.0),
        Figure("hostile", f"{name}: resident memory at its peak", peak, "MB", 200.0),
    ]  # fmt: skip


# --- the floods ---------------------------------------------------------------------------------


def _begun(path: str, name: str) -> Peer:
    peer = Peer(path, "agent")
    peer.send(wire.Start(1, 0, name, "hostile"))
    return peer


def _tokens(first: int, text: bytes, count: int = 64) -> bytes:
    prefix = event_frames.text_prefix(event_frames.TOKEN, 1)
    return b"".join(event_frames.plain_text(prefix, first + at, text) for at in range(count))


def _one(path: str, text_bytes: int) -> None:
    """One connection; what the daemon says is not read."""
    peer, text, seq = _begun(path, f"one {os.getpid()}"), b"x" * text_bytes, 1
    print("begun", flush=True)
    while True:
        peer.socket.sendall(_tokens(seq, text))
        seq += 64


def _many_connections(path: str) -> None:
    """One process, 60 connections, each as full as the kernel lets it be."""
    text = b"x" * _LONG
    peers = [_begun(path, f"many {at}") for at in range(60)]
    seqs, rests = [1] * 60, [b""] * 60
    for peer in peers:
        peer.socket.setblocking(False)
    print("begun", flush=True)
    while True:
        moved = False
        for at, peer in enumerate(peers):
            if not rests[at]:
                rests[at] = _tokens(seqs[at], text, 4)
                seqs[at] += 4
            with suppress(BlockingIOError):
                rests[at] = rests[at][peer.socket.send(rests[at]) :]
                moved = True
        if not moved:
            time.sleep(0.001)


def _short_replies(path: str) -> None:
    """20 processes; each begins, ends and releases replies as fast as it can."""
    for _ in range(19):
        if not os.fork():
            break
    with Peer(path, "agent") as peer:
        print("begun", flush=True)
        number = 1
        while True:
            many = []
            for at in range(number, number + 64):
                many += [
                    wire.Start(at, 0, f"r{os.getpid()}-{at}", "hostile"),
                    wire.Token(at, 1, b"hello"),
                    wire.End(at, 2, clean=True),
                    wire.Release(at, 3),
                ]
            peer.send(*many)
            number += 64


def _many_processes(path: str) -> None:
    """20 processes of one connection and 64 KiB tokens."""
    for _ in range(19):
        if not os.fork():
            break
    _one(path, _LONG)


def _forks(path: str) -> None:
    """Children that connect, say what the kernel takes, and go, four at a time."""
    for _ in range(3):
        if not os.fork():
            break
    print("begun", flush=True)
    said, number = _tokens(1, b"x" * 1000, 400), 0
    while True:
        number += 1
        if not os.fork():
            with suppress(OSError), socket.socket(socket.AF_UNIX) as child:
                child.connect(path)
                hello = wire.Hello(framing.PROTOCOL_VERSION, "agent", os.urandom(16))
                start = wire.Start(1, 0, f"child {os.getpid()} {number}", "hostile")
                child.sendall(framing.encode(hello) + framing.encode(start))
                child.setblocking(False)
                child.send(said)
            os._exit(0)
        os.wait()


def _asking(path: str, asked: Callable[[int], msgspec.Struct], processes: int = 3) -> None:
    """Processes of one connection each that send requests as fast as they are taken."""
    for _ in range(processes - 1):
        if not os.fork():
            break
    with Peer(path, "query") as peer:
        threading.Thread(target=_reads, args=(peer.socket,), daemon=True).start()
        print("begun", flush=True)
        number = 1
        while True:
            peer.send(*(asked(at) for at in range(number, number + 64)))
            number += 64


def _reads(peer: socket.socket) -> None:
    with suppress(OSError):
        while peer.recv(1 << 20):
            pass


def _entry(number: int) -> wire.Append:
    name = f"appends {os.getpid()}"
    entry = wire.NewEntry("note", b'{"text": "hello"}', f"{number}")
    return wire.Append(number, name, [entry], None, "written")


def _one_by_one(path: str, asked: Callable[[int], msgspec.Struct]) -> None:
    """One process of 200 connections, each of which asks again once it was answered."""
    with ExitStack() as held:
        peers = [held.enter_context(Peer(path, "query")) for _ in range(200)]
        waiting = {peer.socket.fileno(): peer for peer in peers}
        ready = select.epoll()
        for descriptor in waiting:
            ready.register(descriptor, select.EPOLLIN)
        print("begun", flush=True)
        for number, peer in enumerate(peers, 1):
            peer.send(asked(number))
        number = len(peers)
        while True:
            for descriptor, _ in ready.poll():
                waiting[descriptor].socket.recv(1 << 16)  # the whole of a short answer
                number += 1
                waiting[descriptor].send(asked(number))


KINDS: dict[str, Callable[[str], None]] = {
    "short tokens": lambda path: _one(path, 20),
    "64 KiB tokens": lambda path: _one(path, _LONG),
    "60 connections of one process": _many_connections,
    "20 processes of short replies": _short_replies,
    "children that speak and go": _forks,
    "20 processes": _many_processes,
    "3 processes that append": lambda path: _asking(path, _entry),
    "3 processes that ask": lambda path: _asking(path, wire.Status),
    "200 that append one by one": lambda path: _one_by_one(path, _entry),
    "200 that ask one by one": lambda path: _one_by_one(path, wire.Status),
}
"""How much is said, by how many."""

# --- the crowds ---------------------------------------------------------------------------------


def _connects(path: str) -> None:
    """20,000 of two processes, silent, held and let go of, again and again."""
    os.fork()
    print("begun", flush=True)
    while True:
        peers = []
        for _ in range(10_000):
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            while peer.connect_ex(path):
                time.sleep(0.001)  # the backlog is full
            peers.append(peer)
        for peer in peers:
            peer.close()


def _upload(number: int, digest: bytes, offset: int, chunk: bytes) -> wire.PutArtifact:
    size = len(chunk) if not offset else 1 << 25
    return wire.PutArtifact(number, f"uploads {os.getpid()}", digest, size, offset, chunk)


def _begun_frames(path: str) -> None:
    """64 agents and 64 who ask, each with all but a byte of a MiB; anew once they are closed."""
    chunk = bytes(_MIB - 4096)
    begun = {
        "agent": framing.encode(wire.Token(1, 1, chunk))[:-1],
        "query": framing.encode(_upload(1, b"a" * 32, 0, chunk))[:-1],
    }
    print("begun", flush=True)
    with ExitStack() as held:
        peers = [(Peer(path, role), role) for role in begun for _ in range(64)]
        rests = [begun[role] for _, role in peers]
        while True:
            for at, (peer, role) in enumerate(peers):
                peer.socket.setblocking(False)
                try:
                    if rests[at]:
                        rests[at] = rests[at][peer.socket.send(rests[at]) :]
                    is_over = not peer.socket.recv(1 << 16)
                except BlockingIOError:
                    continue
                except OSError:
                    is_over = True
                if is_over:
                    peer.socket.close()
                    with suppress(OSError):
                        peers[at] = held.enter_context(Peer(path, role)), role
                        rests[at] = begun[role]
            time.sleep(0.001)


def _live_streams(path: str) -> None:
    """10,000 of one process, all of which say on as fast as they are read."""
    with Peer(path, "agent") as peer:
        threading.Thread(target=_reads, args=(peer.socket,), daemon=True).start()
        print("begun", flush=True)
        for number in range(10_000):
            peer.send(wire.Start(number, 0, f"live {os.getpid()} {number}", "hostile"))
        for seq in range(1, 1 << 40):
            for first in range(0, 10_000, 100):
                peer.send(*(wire.Token(at, seq, b"a word ") for at in range(first, first + 100)))


def _uploads(path: str, *, is_refused: bool) -> None:
    """Four processes that upload a MiB each time, for ever."""
    _forked(4)
    with Peer(path, "query") as peer:
        print("begun", flush=True)
        for number in range(1, 1 << 40):
            chunk = os.urandom(32) + bytes(_MIB - 4096)
            digest = hashlib.sha256(chunk).digest()
            peer.send(_upload(number, digest, 7 if is_refused else 0, chunk))
            peer.socket.recv(1 << 16)


def _long_appends(path: str) -> None:
    """Eight processes that append 250 KB each time."""
    _forked(8)
    name, payload = f"long {os.getpid()}", b'{"text": "' + b"x" * 250_000 + b'"}'
    with Peer(path, "query") as peer:
        print("begun", flush=True)
        for number in range(1, 1 << 40):
            entry = wire.NewEntry("note", payload, f"{number}")
            peer.send(wire.Append(number, name, [entry], None, "written"))
            peer.socket.recv(1 << 16)


def _do_not_read(path: str) -> None:
    """100 that ask for a reply of 900 KB, again and again, and read nothing."""
    with ExitStack() as held:
        name = f"long {os.getpid()}"
        teller = held.enter_context(_begun(path, name))
        teller.send(wire.Token(1, 1, b"y" * 900_000))
        teller.drain()
        print("begun", flush=True)
        asked = framing.encode(wire.Recover(1, "all", None, name))
        peers = [held.enter_context(Peer(path, "query")) for _ in range(100)]
        for peer in peers:
            peer.socket.setblocking(False)
        while True:
            for at, peer in enumerate(peers):
                try:
                    peer.socket.send(asked)
                except BlockingIOError:
                    continue
                except OSError:
                    peer.socket.close()
                    with suppress(OSError):
                        peers[at] = held.enter_context(Peer(path, "query"))
                        peers[at].socket.setblocking(False)
            time.sleep(0.001)


def _forked(count: int) -> None:
    """So many processes, this one among them."""
    for _ in range(count - 1):
        if not os.fork():
            break


CROWDS: dict[str, Callable[[str], None]] = {
    "20,000 connects": _connects,
    "64 MiB of begun frames": _begun_frames,
    "10,000 live streams": _live_streams,
    "uploads": lambda path: _uploads(path, is_refused=False),
    "uploads that are refused": lambda path: _uploads(path, is_refused=True),
    "8 x 250 KB appends": _long_appends,
    "children that speak and go": _forks,
    "100 that do not read": _do_not_read,
    "20 floods": _many_processes,
    "20 processes of short replies": _short_replies,
}
"""Of another user."""

if __name__ == "__main__":
    if len(sys.argv) == 3:
        os.nice(_NICE)
        KINDS[sys.argv[2]](sys.argv[1])
    else:
        uid = int(sys.argv[3])
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        CROWDS[sys.argv[2]](sys.argv[1])
