"""What waits for walld, beside what nobody can go below: a short look, for `check.py`.

Ratios, each of two that take turns, call by call: recover() of nothing, and of a reply of 2,000
tokens, to a round trip of a few bytes to a process that only echoes; a durable submit() to a write
and an fdatasync of a line and such a round trip; a scan of 8 MB of log to reading it and its
CRC-32. A sync takes 1 ms more for both, and should be in memory (`check.py`), or the ratio would be
the disk's: 3 where one costs nothing, 0.4 where it takes 5 ms. Owns: those turns, at most so long.
Refuses: what the gap is made of (`ladders.py`), goals, other disks (`recover.py`, `submits.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from walld_client import connect
from walld_client.wire import messages as wire

from bench.costs.ladders import scanning
from bench.costs.submits import echoing
from bench.faults.recover import read, speak
from bench.load.slow_disk import slowed
from bench.report.numbers import ratio, spread
from bench.report.table import Figure
from bench.run import Run

__all__ = ["NAMES", "Turns", "ratios", "waited"]

_BLOCKS = 5
_WARM_CALLS = 5
_SYNC_MS = 1
_CONTENT = "walls " * 50
_LINE = bytes(500) + b"\n"
"""About as long as the line of such a submit."""
_ANSWER = bytes(64)
_TOKENS = 2_000
_LOG_BYTES = 8_000_000
NAMES = (
    "recover() of nothing to a round trip, p50",
    f"recover() of {_TOKENS:,} tokens to a round trip, p50",
    "submit() to a write, an fdatasync and a round trip, p50",
    "a scan of the log to reading it and its CRC-32, p50",
)


@dataclass(slots=True)
class Turns:
    """Seconds of calls that took turns: walld's, and those of what is below it."""

    ours: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)

    def take(self, ours: Callable[[], object], bare: Callable[[], object], until: float) -> None:
        """Turns until then, and `_BLOCKS` in any case."""
        clock = time.perf_counter
        for _ in range(_WARM_CALLS):
            ours()
            bare()
        while len(self.bare) < _BLOCKS or clock() < until:
            begun = clock()
            ours()
            middle = clock()
            bare()
            self.ours.append(middle - begun)
            self.bare.append(clock() - middle)


def waited(run: Run, seconds: float) -> dict[str, Turns]:
    """By `NAMES`: what waits for the daemon in so many seconds, a scan in a fifth more."""
    sync = slowed(os.fdatasync, _SYNC_MS / 1000)
    nothing, long, submits, scans = Turns(), Turns(), Turns(), Turns()
    with (
        run.daemon("--sync-ms", str(_SYNC_MS), program="bench.load.slow_disk") as daemon,
        echoing(run) as own,
        daemon.agent() as peer,
    ):
        peer.send(wire.Start(1, 0, os.urandom(8).hex(), "long"))
        speak(peer, _TOKENS)
        client = connect(socket=daemon.socket_path, timeout=30.0)
        session = client.session("one")
        file = os.open(run.folder / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

        def there_and_back() -> None:
            own.send(_ANSWER)
            if not own.recv(1 << 16):
                raise RuntimeError("the process that echoes has ended")

        def synced() -> None:
            os.write(file, _LINE)
            sync(file)
            there_and_back()

        begun = time.perf_counter()
        try:
            run.step(0.2, "recover() of nothing")
            nothing.take(lambda: client.recover("nobody"), there_and_back, begun + 0.3 * seconds)
            run.step(0.4, "recover() of a long reply")
            long.take(lambda: read(client, "long", _TOKENS), there_and_back, begun + 0.5 * seconds)
            run.step(0.6, "submit()")
            submits.take(lambda: session.submit(_CONTENT), synced, begun + seconds)
        finally:
            os.close(file)
            client.close()
    run.step(0.9, "a scan")
    with scanning(run, _LOG_BYTES) as rungs:
        _, checked, scan = rungs.values()
        scans.take(scan, checked, time.perf_counter() + 0.2 * seconds)
    return dict(zip(NAMES, (nothing, long, submits, scans), strict=True))


def ratios(turns: dict[str, Turns]) -> list[Figure]:
    """walld's to what is below it, p50."""
    figures = []
    for name, one in turns.items():
        value, each = ratio(one.ours, one.bare, _BLOCKS)
        figures.append(Figure("waits", name, value, "x", spread=spread(each)))
    return figures
