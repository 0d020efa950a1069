"""Agents that want each token synced: one connection and one reply each, the next token when that
is told.

    python -m bench.drainers SOCKET SECONDS AGENTS

Owns: tokens and drains as raw frames, and how many a second are told synced. Says so on stdout, as
JSON. Refuses: what it means.
"""

from __future__ import annotations

import json
import os
import selectors
import sys
import time

from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from bench.daemon import Daemon, Peer
from bench.numbers import quantile

__all__ = ["draining"]

_TEXT = b"walls " * 50
"""As much as a turn's submission says (`appenders.py`)."""


def draining(daemon: Daemon, seconds: float, agents: int) -> list[str]:
    """The command of this module, which gives way to whatever else is on its core."""
    command = ["nice", "-n", "10", sys.executable, "-m", "bench.drainers"]
    return [*command, daemon.socket_path, str(seconds), str(agents)]


def _frames(seq: int) -> bytes:
    return encode(wire.Token(1, seq, _TEXT)) + encode(wire.Drain(seq, "synced"))


def main(path: str, seconds: str, agents: str) -> None:
    """Each says a token, is told that it is synced, and says the next."""
    asking = selectors.EpollSelector()
    peers = [Peer(path, "agent") for _ in range(int(agents))]
    folder = os.urandom(4).hex()
    clock = time.perf_counter
    begun_at, seqs = [0.0] * len(peers), [1] * len(peers)
    took: list[float] = []
    begun = clock()
    until = begun + float(seconds)
    for at, peer in enumerate(peers):
        asking.register(peer.socket, selectors.EVENT_READ, at)
        begun_at[at] = clock()
        start = encode(wire.Start(1, 0, f"{folder}-{at}", f"s{at}"))
        peer.socket.sendall(start + _frames(1))
    waiting = len(peers)
    while waiting:
        for key, _ in asking.select():
            at = key.data
            peers[at].hear(wire.Drained)
            now = clock()
            took.append(now - begun_at[at])
            if now < until:
                begun_at[at] = now
                seqs[at] += 1
                peers[at].socket.sendall(_frames(seqs[at]))
            else:
                waiting -= 1
    spent = clock() - begun
    for peer in peers:
        peer.socket.close()
    said = {"answered": len(took), "seconds": spent, "p50_ms": quantile(took, 0.5) * 1000,
            "p99_ms": quantile(took, 0.99) * 1000}  # fmt: skip
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
