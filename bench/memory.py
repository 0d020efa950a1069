"""What does a live stream that says nothing keep in memory?

The slope of the daemon's own memory (RssAnon) over the number of live streams, each flushed some
fifty times, on 100 connections whatever their number: what a connection costs is not in it.
Measured once all is written and synced, so that nothing unflushed is left.
"""

from __future__ import annotations

import time
from itertools import pairwise

from walld_client import frames
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from bench.daemon import Daemon, Peer
from bench.numbers import spread
from bench.run import Run
from bench.table import Figure

__all__ = ["measure"]

_CONNS = 100
_TOKENS_A_FLUSH = 15
_KIB = 1024


def _speak(peer: Peer, streams: int, first_seq: int) -> None:
    """One flush's worth on each of its streams."""
    out: list[bytes] = []
    for number in range(1, streams + 1):
        prefix = frames.text_prefix(frames.TOKEN, number)
        seqs = range(first_seq, first_seq + _TOKENS_A_FLUSH)
        out += [frames.plain_text(prefix, seq, b"abcde") for seq in seqs]
    peer.socket.sendall(b"".join(out))


def _resident(run: Run, streams: int, flushes: int) -> int:
    """Memory of a daemon with so many live streams that fell silent."""
    each = streams // _CONNS
    with run.daemon() as daemon:
        peers = [daemon.agent() for _ in range(_CONNS)]
        for at, peer in enumerate(peers):
            starts = [wire.Start(k + 1, 0, f"m{at}-{k}", f"session-{at}") for k in range(each)]
            peer.socket.sendall(b"".join(map(encode, starts)))
        for flush in range(flushes):
            for peer in peers:
                _speak(peer, each, 1 + flush * _TOKENS_A_FLUSH)
            for peer in peers:
                peer.drain()
            run.step(0.5, f"{streams} streams, flush {flush + 1} of {flushes}")
        resident = _at_rest(daemon)
        records = daemon.status()["streams_live"]
        assert records == each * _CONNS, records
        for peer in peers:
            peer.socket.close()
    return resident


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
    resident = {streams: _resident(run, streams, flushes) for streams in counts}
    first, last = counts[0], counts[-1]
    slope = (resident[last] - resident[first]) / (last - first) / _KIB
    steps = [(resident[b] - resident[a]) / (b - a) / _KIB for a, b in pairwise(counts)]
    note = f"{flushes} flushes of {_TOKENS_A_FLUSH} tokens a stream on {_CONNS} connections: "
    note += ", ".join(f"{n} streams {size / _KIB**2:.0f} MiB" for n, size in resident.items())
    return [
        Figure("memory", "resident memory per idle live stream", slope, "KiB", 4.0,
               spread=spread(steps), note=note)
    ]  # fmt: skip
