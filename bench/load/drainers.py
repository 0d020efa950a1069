"""Agents that want each token synced: one connection and one reply each, the next token when that
is told.

    python -m bench.load.drainers SOCKET SECONDS AGENTS

Owns: tokens and drains as raw frames, and how many a second are told synced. Says so on stdout, as
JSON. Refuses: what it means.
"""

from __future__ import annotations

import os
import sys

from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from bench.daemon import Daemon, Peer
from bench.load.appenders import taking_turns

__all__ = ["draining"]

_TEXT = b"walls " * 50
"""As much as a turn's submission says (`appenders.py`)."""


def draining(daemon: Daemon, seconds: float, agents: int) -> list[str]:
    """The command of this module, which gives way to whatever else is on its core."""
    command = ["nice", "-n", "10", sys.executable, "-m", "bench.load.drainers"]
    return [*command, daemon.socket_path, str(seconds), str(agents)]


def _frames(seq: int) -> bytes:
    return encode(wire.Token(1, seq, _TEXT)) + encode(wire.Drain(seq, "synced"))


def main(path: str, seconds: str, agents: str) -> None:
    """Each says a token, is told that it is synced, and says the next."""
    peers = [Peer(path, "agent") for _ in range(int(agents))]
    folder = os.urandom(4).hex()

    def said(at: int, seq: int) -> bytes:
        start = encode(wire.Start(1, 0, f"{folder}-{at}", f"s{at}")) if seq == 1 else b""
        return start + _frames(seq)

    print(taking_turns(peers, float(seconds), wire.Drained, said))


if __name__ == "__main__":
    main(*sys.argv[1:])
