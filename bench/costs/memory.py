"""What does a live stream that says nothing keep in memory?

The slope of the daemon's own memory (RssAnon) over the number of live streams, each flushed some
fifty times, on 100 connections whatever their number: what a connection costs is not in it.
Measured once all is written and synced, so that nothing unflushed is left. With one stream it is
the whole of the daemon that is shown: a single one is less than daemons differ by.
"""

from __future__ import annotations

import time
from itertools import pairwise

from walld_client.encoding import event_frames
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from bench.daemon import Daemon, Peer
from bench.report.numbers import spread
from bench.report.table import Figure
from bench.run import Run

__all__ = ["measure", "resident"]

_CONNS = 100
_TOKENS_A_FLUSH = 15
_KIB = 1024


def _speak(peer: Peer, streams: int, first_seq: int) -> None:
    """One flush's worth on each of its streams."""
    out: list[bytes] = []
    for number in range(1, streams + 1):
        prefix = event_frames.text_prefix(event_frames.TOKEN, number)
        seqs = range(first_seq, first_seq + _TOKENS_A_FLUSH)
        out += [event_frames.plain_text(prefix, seq, b"abcde") for seq in seqs]
    peer.socket.sendall(b"".join(out))


def resident(run: Run, streams: int, flushes: int) -> int:
    """Memory of a daemon with so many live streams that fell silent."""
    with run.daemon() as daemon:
        peers = [daemon.agent() for _ in range(_CONNS)]
        shares = [len(range(at, streams, _CONNS)) for at in range(_CONNS)]
        for at, peer in enumerate(peers):
            starts = [
                wire.Start(k + 1, 0, f"m{at}-{k}", f"session-{at}") for k in range(shares[at])
            ]
            peer.socket.sendall(b"".join(map(encode, starts)))
        for flush in range(flushes):
            for at, peer in enumerate(peers):
                _speak(peer, shares[at], 1 + flush * _TOKENS_A_FLUSH)
            for peer in peers:
                peer.drain()
        memory = _at_rest(daemon)
        live = daemon.status()["streams_live"]
        assert live == streams, live
        for peer in peers:
            peer.socket.close()
    return memory


def _at_rest(daemon: Daemon) -> int:
    """The lowest of a few looks, once nothing is being done."""
    daemon.settle()
    looks = []
    for _ in range(5):
        time.sleep(0.2)
        looks.append(daemon.resident_bytes())
    return min(looks)


def measure(run: Run) -> list[Figure]:
    """Bytes a stream."""
    flushes = int(run.pick(50, 5))
    counts = (2_000, 6_000, 10_000) if not run.quick else (1_000, 3_000)
    sizes = {}
    for at, streams in enumerate(counts):
        run.step(at / len(counts), f"{streams:,} streams")
        sizes[streams] = resident(run, streams, flushes)
    one = resident(run, 1, flushes)
    first, last = counts[0], counts[-1]
    slope = (sizes[last] - sizes[first]) / (last - first) / _KIB
    steps = [(sizes[b] - sizes[a]) / (b - a) / _KIB for a, b in pairwise(counts)]
    note = f"{flushes} flushes of {_TOKENS_A_FLUSH} tokens a stream on {_CONNS} connections: "
    note += ", ".join(f"{n} streams {size / _KIB**2:.0f} MiB" for n, size in sizes.items())
    return [
        Figure("memory", "resident memory per idle live stream", slope, "KiB", 4.0,
               spread=spread(steps), note=note),
        Figure("memory", "resident memory of a daemon with one live stream", one / _KIB**2, "MiB"),
    ]  # fmt: skip
