"""Beside agents that say as much as they can: how much longer do 63 others wait for their acks?

Each of the 63 says a token and asks to be told when it is written, all at once, round after round;
alone, then beside each kind of flood below. Rounds with and without it take turns, since the
machine is not the same from second to second. A flood runs at nice 10: whether it takes the
agents' own core from them is the scheduler's business.

    python -m bench.faults.hostile SOCKET KIND

is the flood.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

import msgspec
from walld_client.encoding import event_frames
from walld_client.wire import framing
from walld_client.wire import messages as wire

from bench.daemon import Daemon, Peer, environment
from bench.machine import pinned
from bench.report.numbers import median, quantile
from bench.report.table import Figure
from bench.run import Run

__all__ = ["measure"]

_HONEST = 63
_MIB = 1 << 20
_SETTLE_SECONDS = 0.2
_DRAINS = 20
_NICE = 10
_LONG = 64 * 1024
_FILES_MAX = 1024
"""Of the daemon: what the dead leave in their sockets is this machine's memory, too."""


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
    return figures


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

if __name__ == "__main__":
    os.nice(_NICE)
    KINDS[sys.argv[2]](sys.argv[1])
