"""Beside an agent that writes as fast as it can: how much longer do 63 others wait for their acks?

Each of the 63 says a token and asks to be told when it is written, all at once, round after round;
alone, then beside one that sends short tokens, then beside one that sends 64 KiB tokens. Rounds
with and without it take turns, since the machine is not the same from second to second.

    python -m bench.hostile SOCKET TEXT_BYTES

is the one that floods.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import ExitStack

from walld_client import frames
from walld_client.wire import messages as wire

from bench.daemon import Daemon, Peer, environment
from bench.machine import pinned
from bench.numbers import median, quantile
from bench.run import Run
from bench.table import Figure

__all__ = ["measure"]

_HONEST = 63
_MIB = 1 << 20
_SETTLE_SECONDS = 0.2
_DRAINS = 20


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


def _rounds(run: Run, daemon: Daemon, text_bytes: int, rounds: int) -> list[Figure]:
    """Alone and beside the flood, in turns."""
    command = [sys.executable, "-m", "bench.hostile", daemon.socket_path, str(text_bytes)]
    alone: list[float] = []
    among: list[float] = []
    ratios: list[float] = []
    with ExitStack() as held:
        peers = [held.enter_context(daemon.agent()) for _ in range(_HONEST)]
        for at, peer in enumerate(peers):
            peer.send(wire.Start(1, 0, f"honest {text_bytes} {at}", "honest"))
        with pinned(run.cores.agents):
            hostile = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE)
        held.callback(hostile.wait)
        held.callback(hostile.kill)
        assert hostile.stdout is not None
        held.enter_context(hostile.stdout)
        hostile.stdout.readline()
        before, most = daemon.resident_bytes(), 0
        taken, begun = daemon.metrics()["walld_received_bytes_total"], time.perf_counter()
        for number in range(rounds):
            first = 1 + number * 2 * _DRAINS
            hostile.send_signal(signal.SIGSTOP)
            time.sleep(_SETTLE_SECONDS)
            one = _drained(peers, range(first, first + _DRAINS))
            hostile.send_signal(signal.SIGCONT)
            time.sleep(_SETTLE_SECONDS)
            other = _drained(peers, range(first + _DRAINS, first + 2 * _DRAINS))
            most = max(most, daemon.resident_bytes())
            ratios.append(quantile(other, 0.99) / quantile(one, 0.99))
            alone += one
            among += other
            run.step((number + 1) / rounds, f"{text_bytes} bytes a token")
        taken = daemon.metrics()["walld_received_bytes_total"] - taken
        pace = taken / _MIB / (time.perf_counter() - begun)
    name = f"beside tokens of {text_bytes:,} bytes"
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
    """Short tokens, long tokens."""
    figures = []
    for text_bytes in (20, 64 * 1024):
        with run.daemon() as daemon:
            figures += _rounds(run, daemon, text_bytes, int(run.pick(10, 3)))
    return figures


def main(path: str, text_bytes: str) -> None:
    """Write for ever; what the daemon says is not read."""
    with Peer(path, "agent") as peer:
        peer.send(wire.Start(1, 0, "hostile", "hostile"))
        prefix, text, seq = frames.text_prefix(frames.TOKEN, 1), b"x" * int(text_bytes), 1
        print("begun", flush=True)
        while True:
            many = [frames.plain_text(prefix, seq + at, text) for at in range(64)]
            peer.socket.sendall(b"".join(many))
            seq += 64


if __name__ == "__main__":
    main(*sys.argv[1:])
