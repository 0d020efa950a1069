"""What waits for walld's daemon, beside what nobody can go below: a short look, for `check.py`.

Two ratios, each of two that take turns, call by call: recover() of nothing to a round trip of as
many bytes to a process that only echoes; a durable submit() to a write and an fdatasync of a line
and such a round trip. A sync takes 1 ms more for both, or the ratio would be the disk's: 3 where
one costs nothing, 0.4 where it takes 5 ms. Owns: those turns, at most so long. Refuses: what the
gap is made of (`ladders.py`), goals, other disks (`recover.py`, `submits.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from walld_client import connect

from bench.numbers import ratio, spread
from bench.run import Run
from bench.slow_disk import slowed
from bench.submits import echoing
from bench.table import Figure

__all__ = ["Turns", "ratios", "waited"]

_BLOCKS = 5
_WARM_CALLS = 5
_SYNC_MS = 1
_CONTENT = "walls " * 50
_LINE = bytes(500) + b"\n"
"""About as long as the line of such a submit."""
_ANSWER = bytes(64)


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


def waited(run: Run, seconds: float) -> tuple[Turns, Turns]:
    """(of recover() of nothing, of submit()), half of that time each."""
    nothing, submits = Turns(), Turns()
    sync = slowed(os.fdatasync, _SYNC_MS / 1000)
    with (
        run.daemon("--sync-ms", str(_SYNC_MS), program="bench.slow_disk") as daemon,
        echoing(run) as own,
    ):
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

        try:
            run.step(0.2, "recover() of nothing")
            begun = time.perf_counter()
            nothing.take(lambda: client.recover("nobody"), there_and_back, begun + seconds / 2)
            run.step(0.6, "submit()")
            begun = time.perf_counter()
            submits.take(lambda: session.submit(_CONTENT), synced, begun + seconds / 2)
        finally:
            os.close(file)
            client.close()
    return nothing, submits


def ratios(nothing: Turns, submits: Turns) -> list[Figure]:
    """walld's to what is below it, p50."""
    figures = []
    for name, turns in (
        ("recover() of nothing to a round trip, p50", nothing),
        ("submit() to a write, an fdatasync and a round trip, p50", submits),
    ):
        value, each = ratio(turns.ours, turns.bare, _BLOCKS)
        figures.append(Figure("waits", name, value, "x", spread=spread(each)))
    return figures
