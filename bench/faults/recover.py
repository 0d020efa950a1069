"""How long does it take to be told "nothing there", and to read a long reply back?

Through the client's kept query connection, page cache warm, up to the text of the PartialReply. The
long reply has 10,000 tokens: once live and flushed some 700 times (60 tokens a second; the daemon
folds old records meanwhile), once an orphan whose process is gone, kept as a partial. First with
nothing else there, then among 10,000 other live streams.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

from walld_client import Client, connect
from walld_client.encoding import event_frames
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from bench.daemon import Daemon, Peer, environment
from bench.report.numbers import median, quantile, spread
from bench.report.table import Figure
from bench.run import Run

__all__ = ["measure", "read", "speak", "timed"]

_TOKENS = 10_000
_TOKENS_A_FLUSH = 15
_TEXT = b"abcde"
_BLOCKS = 5


def speak(peer: Peer, tokens: int, stream: int = 1) -> None:
    """Tokens on a stream that has begun, flushed every 15."""
    prefix = event_frames.text_prefix(event_frames.TOKEN, stream)
    for first in range(1, tokens + 1, _TOKENS_A_FLUSH):
        stop = min(first + _TOKENS_A_FLUSH, tokens + 1)
        texts = [event_frames.plain_text(prefix, seq, _TEXT) for seq in range(first, stop)]
        peer.socket.sendall(b"".join(texts))
        peer.drain()
    peer.drain("synced")


def orphan(socket_path: str) -> None:
    """In a process of its own: say a long reply and be gone."""
    with Peer(socket_path, "agent") as peer:
        peer.send(wire.Start(1, 0, "orphan", "orphan"))
        speak(peer, _TOKENS)


def _make_orphan(daemon: Daemon) -> None:
    program = f"from bench.faults.recover import orphan; orphan({daemon.socket_path!r})"
    subprocess.run([sys.executable, "-c", program], env=environment(), check=True)
    deadline = time.monotonic() + 60
    while not daemon.metrics()["walld_partials"] or daemon.status()["streams_live"] > 1:
        if time.monotonic() > deadline:
            raise RuntimeError("the orphan was not made a partial")
        time.sleep(0.05)
    while not any((daemon.data / "partials").rglob("*orphan*")):
        if time.monotonic() > deadline:
            raise RuntimeError("the orphan has no partial")
        time.sleep(0.05)


def _crowd(daemon: Daemon, streams: int) -> list[Peer]:
    """Other live streams, each with a little text, on 100 connections."""
    peers = [daemon.agent() for _ in range(100)]
    each = streams // len(peers)
    for at, peer in enumerate(peers):
        out = [encode(wire.Start(k, 0, f"x{at}-{k}", f"crowd{at}-{k}")) for k in range(1, each + 1)]
        out += [
            event_frames.plain_text(event_frames.text_prefix(3, k), 1, _TEXT)
            for k in range(1, each + 1)
        ]
        peer.socket.sendall(b"".join(out))
    for peer in peers:
        peer.drain()
    return peers


def timed(action: Callable[[], object], calls: int) -> list[float]:
    """Seconds of each of so many."""
    clock = time.perf_counter
    took = []
    for _ in range(calls):
        begun = clock()
        action()
        took.append(clock() - begun)
    return took


def read(client: Client, session: str, tokens: int = _TOKENS) -> None:
    """The reply of that session, which must have said so many."""
    reply = client.recover(session)
    assert reply is not None, session
    assert len(reply.text) == tokens * len(_TEXT), (session, len(reply.text))


def _figure(name: str, took: list[float], unit: str, factor: float, goal: float) -> Figure:
    size = max(1, len(took) // _BLOCKS)
    medians = [median(took[at : at + size]) * factor for at in range(0, size * _BLOCKS, size)]
    tail = quantile(took, 0.99) * factor
    note = f"{name}: p99 {tail:,.1f} {unit} of {len(took)} calls"
    return Figure("recover", f"{name}, p50", median(took) * factor, unit, goal,
                  spread=spread(medians), note=note)  # fmt: skip


def _round(run: Run, client: Client, among: str, at: float) -> list[Figure]:
    nothings, reads = int(run.pick(4000, 1000)), int(run.pick(300, 50))
    run.step(at, f"nothing there{among}")
    nothing = timed(lambda: client.recover("nobody"), nothings)
    run.step(at + 0.1, f"a live reply{among}")
    live = timed(lambda: read(client, "live"), reads)
    run.step(at + 0.2, f"a partial{among}")
    kept = timed(lambda: read(client, "orphan"), reads)
    return [
        _figure(f"nothing there{among}", nothing, "us", 1e6, 50.0),
        _figure(f"10,000 tokens, live{among}", live, "ms", 1e3, 3.0),
        _figure(f"10,000 tokens, partial{among}", kept, "ms", 1e3, 3.0),
    ]


def measure(run: Run) -> list[Figure]:
    """Alone and in company."""
    crowd = int(run.pick(10_000, 1_000))
    with run.daemon() as daemon, daemon.agent() as peer:
        run.step(0.0, "a long reply, flushed 700 times")
        peer.send(wire.Start(1, 0, os.urandom(8).hex(), "live"))
        speak(peer, _TOKENS)
        run.step(0.2, "an orphan")
        _make_orphan(daemon)
        daemon.settle()
        client = connect(socket=daemon.socket_path, timeout=30.0)
        try:
            client.recover("nobody")
            figures = _round(run, client, "", 0.3)
            peers = _crowd(daemon, crowd)
            daemon.settle()
            figures += _round(run, client, f" among {crowd:,}", 0.7)
            for other in peers:
                other.socket.close()
        finally:
            client.close()
    return figures
