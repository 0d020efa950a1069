"""What does recording one token cost the agent, with walld and with what is used in its place?

One process an agent, one peer each, on a core of their own; the peers' servers share another. The
rounds are interleaved: in each, every peer in an order drawn by lot speaks for a while at 60 tokens
a second, then flat out, and nobody speaks meanwhile. Each quantile is the median of the rounds'
own, the spread their lowest and highest. There is a p99.9 only of 20,000 calls and more: 60 a
second are too few in any run that ends, so tails are p99 there. A ratio is one within a round;
where the rounds lie on both sides of its goal, it is not decidable. At the end each peer must be
able to read back what was said.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from bench.daemon import environment
from bench.machine import pinned
from bench.peers.known import PEERS, present
from bench.peers.peer import Peer
from bench.report.numbers import TAIL_CALLS_LEAST, crosses, interval, median, quantile, spread
from bench.report.table import Figure
from bench.run import Run

__all__ = ["Plan", "measure", "ratios", "rounds_of"]

_PACES = {"60/s": 60.0, "flat out": 0.0}
_SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
_CALLS_LEAST = {"p50": 1, "p99": 1, "p99.9": TAIL_CALLS_LEAST}
_TAILS = ("p99.9", "p99")
_GOALS: tuple[tuple[str, tuple[str, ...], float | None, bool], ...] = (
    ("send", ("p50",), 1.8, True),
    ("queue", _TAILS, 1.0, True),
    ("json", ("p50",), 6.0, False),
    ("json", ("p99",), None, False),
    ("redis-everysec", ("p50",), 15.0, False),
)
"""Peer, the first of these quantiles that both have, goal. With a goal at most: walld's cost to the
peer's; at least: the reverse."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long: rounds, seconds at the pace, and flat out the seconds or calls, what is less.

    until: no further round begins then (time.monotonic), but there is one in any case.
    """

    rounds: int
    paced_seconds: float
    flat_seconds: float
    flat_calls: int
    pause_seconds: float = 0.1
    until: float = math.inf


@dataclass(slots=True)
class _Told:
    """A peer, and ns of its calls, a list a round, by pace."""

    peer: Peer
    took: dict[str, list[list[int]]] = field(default_factory=lambda: {pace: [] for pace in _PACES})

    def each(self, pace: str, share: str) -> list[float]:
        return [quantile(one, _SHARES[share]) for one in self.took[pace]]

    def value(self, pace: str, share: str) -> float:
        return median(self.each(pace, share))

    def has(self, pace: str, share: str) -> bool:
        """Calls enough for that quantile."""
        return sum(map(len, self.took[pace])) >= _CALLS_LEAST[share]


class _Agent:
    """The process that speaks (`speaking.py`)."""

    def __init__(self, key: str, home: str, cores: set[int]) -> None:
        self._key = key
        command = [sys.executable, "-m", "bench.peers.speaking", key, home]
        with pinned(cores):
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env=environment(),
            )  # fmt: skip
        try:
            self._hear()
        except BaseException:
            self.kill()
            raise

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the agent of {self._key} ended with {self._process.wait()}")
        return json.loads(line)

    def speak(self, rate: float, seconds: float, calls: int) -> list[int]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{rate} {seconds} {calls}\n")
        self._process.stdin.flush()
        took: list[int] = self._hear()
        return took

    def end(self) -> None:
        """RuntimeError where not all of what was said can be read back."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        appended, there = self._hear()
        self._process.wait()
        if appended != there:
            raise RuntimeError(f"{self._key}: {appended} tokens appended, {there} read back")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def _speaking(run: Run, key: str, peer: Peer) -> Iterator[_Agent]:
    """An agent of a peer whose server runs; both gone afterwards."""
    home = run.home()
    try:
        peer.start(home, run.cores.daemon)
        agent = _Agent(key, str(home), run.cores.agents)
        try:
            yield agent
            agent.end()
        finally:
            agent.kill()
    finally:
        peer.stop()
        shutil.rmtree(home, ignore_errors=True)


def rounds_of(run: Run, keys: Iterable[str], plan: Plan) -> dict[str, _Told]:
    """By key, of those that can run here."""
    told: dict[str, _Told] = {}
    chance = random.Random(7)
    with ExitStack() as stack:
        agents = {}
        peers = present(keys)
        for at, (key, peer) in enumerate(peers.items()):
            run.step(0.15 * at / len(peers), f"starting {peer.name}")
            try:
                agents[key] = stack.enter_context(_speaking(run, key, peer))
            except (RuntimeError, OSError) as error:
                if key.startswith("walld"):
                    raise
                print(f"bench: {peer.name} is left out: {error}", file=sys.stderr)
                continue
            told[key] = _Told(peer)
        for number in range(plan.rounds):
            if number and time.monotonic() > plan.until:
                break
            order = chance.sample(list(told), len(told))
            for at, key in enumerate(order):
                done = (number + at / len(order)) / plan.rounds
                run.step(0.15 + 0.85 * done, f"round {number + 1}: {told[key].peer.name}")
                paced = int(60 * plan.paced_seconds)
                time.sleep(plan.pause_seconds)  # what the one before left to do is done
                told[key].took["60/s"].append(agents[key].speak(60, 1e6, paced))
                told[key].took["flat out"].append(
                    agents[key].speak(0, plan.flat_seconds, plan.flat_calls)
                )
    return told


def ratios(told: dict[str, _Told]) -> list[Figure]:
    """walld to those it is held against, as far as they are here."""
    figures = []
    for (key, shares, goal, most), pace in product(_GOALS, _PACES):
        if key in told:
            upper, lower = ("walld", key) if most else (key, "walld")
            share = next(
                one for one in shares if all(told[of].has(pace, one) for of in ("walld", key))
            )
            each = [
                above / below
                for above, below in zip(
                    told[upper].each(pace, share), told[lower].each(pace, share), strict=True
                )
            ]
            within = interval(each)
            name = f"{told[upper].peer.name} to {told[lower].peer.name}, {share}, {pace}"
            figures.append(Figure(
                "peers", name, median(each), "x", goal, most, within,
                undecided=goal is not None and crosses(within, goal, most),
            ))  # fmt: skip
    return figures


def _figures(told: dict[str, _Told]) -> list[Figure]:
    calls = {
        pace: sorted(sum(map(len, one.took[pace])) for one in told.values()) for pace in _PACES
    }
    note = "Calls of a peer, p99.9 where all its rounds have 20,000: " + "; ".join(
        f"{pace} {counts[0]:,}" + (f" to {counts[-1]:,}" if counts[0] < counts[-1] else "")
        for pace, counts in calls.items()
    )
    return [
        Figure(
            "peers", f"{one.peer.name}, {share}, {pace}", one.value(pace, share) / 1000, "us",
            spread=spread([ns / 1000 for ns in one.each(pace, share)]),
            who=one.peer.name, series=f"{share}, {pace}", outlives=one.peer.outlives,
            promise=one.peer.promise, note=note,
        )
        for pace in _PACES
        for share in _SHARES
        for one in told.values()
        if one.has(pace, share)
    ]  # fmt: skip


def measure(run: Run) -> list[Figure]:
    """All of them."""
    plan = Plan(2, 0.7, 0.15, 1500) if run.quick else Plan(5, 5.0, 1.0, 10_000, 0.3)
    told = rounds_of(run, PEERS, plan)
    return [*ratios(told), *_figures(told)]
