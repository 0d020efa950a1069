"""How many token events a second does one core take, of walld and of what is used in its place?

8 connections, 5-byte tokens, encoded beforehand by a process on another core; from the first byte
sent to the moment all of it is written: walld by a Drain, Redis (`everysec`) and JetStream by their
answer to each event, and as the wall a process that takes walld's very bytes and writes them to a
file without looking at them. walld is given them twice: a frame a token, as an agent says them that
nothing holds up, and as its client sends them once they had to wait for the daemon, folded into
runs, which is what many at once come to. So are Redis and JetStream: a token a message, and as many
in one as a run of walld's has; a goal is of two who are given the same. Rounds are interleaved,
each in an order drawn by lot. CPU is the server's, all threads; on a machine whose cores are shared
it is the truer number, for the wall time is also the neighbours'. At the end each must have every
event it was sent.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from bench.daemon import Daemon, environment
from bench.machine import Used, pinned
from bench.peers.pouring import POURED, TOGETHER
from bench.peers.wall import EVENT
from bench.report.numbers import median, spread
from bench.report.table import Figure
from bench.run import Run

__all__ = ["measure", "ratios", "taken_by"]

_CONNS = 8
_EVENTS = {
    "walld": 2_000_000,
    "backlog": 8_000_000,
    "wall": 4_000_000,
    "redis": 400_000,
    "jetstream": 100_000,
    "redis-together": 2_000_000,
    "jetstream-together": 4_000_000,
}
"""About a second each, on a slow core."""
_OWN = {"walld": 1, "backlog": TOGETHER}
"""Events that are looked at together before they go out."""
_GOALS: dict[str, dict[str, float | None]] = {
    "walld": {"redis": 15.0, "jetstream": 40.0, "wall": 0.5},
    "backlog": {
        "redis-together": 15.0,
        "jetstream-together": 40.0,
        "redis": None,
        "jetstream": None,
        "wall": 0.5,
    },
}
"""None: not the same work, so nothing is promised."""


class _Server(Protocol):
    def used(self) -> Used: ...


@dataclass(slots=True)
class _Taken:
    """name: in the tables. count: events it has. rates: events/s. costs: us of CPU an event.

    event_bytes: of one, on its way in.
    """

    name: str
    server: _Server
    command: list[str]
    count: Callable[[], float]
    sent: float = 0.0
    event_bytes: float = len(EVENT)
    rates: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)

    def pour(self, run: Run) -> None:
        before = self.server.used()
        with pinned(run.cores.agents):
            done = subprocess.run(
                self.command, env=environment(), stdout=subprocess.PIPE, check=True
            )
        said: dict[str, float] = json.loads(done.stdout)
        cost = self.server.used().since(before)
        self.rates.append(said["events"] / said["seconds"])
        self.costs.append(cost.ran / said["events"] * 1e6)
        self.sent += said["events"]
        self.event_bytes = said["bytes"] / said["events"]


@contextmanager
def _taking(run: Run, key: str, events: int) -> Iterator[_Taken]:
    """A peer whose server runs on the daemon's core."""
    home = run.home()
    try:
        if key in _OWN:
            with Daemon(home, run.cores.daemon) as daemon:
                flood = [sys.executable, "-m", "bench.load.flood", daemon.socket_path]
                given = [events, _CONNS, 5, 1, _OWN[key]]
                token = 'walld_events_received_total{kind="token"}'
                yield _Taken(
                    "walld" if key == "walld" else "walld's backlog", daemon,
                    [*flood, *map(str, given)], lambda: daemon.metrics()[token],
                )  # fmt: skip
            return
        peer = POURED[key]()
        try:
            peer.start(home, run.cores.daemon)
            pour = [sys.executable, "-m", "bench.peers.pouring", key, str(home), str(events)]
            yield _Taken(
                peer.name, peer.server, [*pour, str(_CONNS)], lambda: peer.count(home)
            )  # fmt: skip
        finally:
            peer.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _why_not(key: str) -> str | None:
    return None if key in _OWN else POURED[key]().why_not()


def taken_by(
    run: Run, keys: list[str], rounds: int, share: float, until: float = math.inf
) -> dict[str, _Taken]:
    """By key, of those that can run here. share: of the events a round has.

    until: no further round begins then (time.monotonic), but there is one in any case. RuntimeError
    where one has not all that it was sent.
    """
    taken: dict[str, _Taken] = {}
    with ExitStack() as stack:
        for key in keys:
            reason = _why_not(key)
            if reason is not None:
                print(f"bench: {key} is left out: it {reason}", file=sys.stderr)
                continue
            try:
                entered = stack.enter_context(_taking(run, key, int(_EVENTS[key] * share)))
            except (RuntimeError, OSError) as error:
                if key in _OWN:
                    raise
                print(f"bench: {key} is left out: {error}", file=sys.stderr)
                continue
            taken[key] = entered
        chance = random.Random(8)
        for number in range(rounds):
            if number and time.monotonic() > until:
                break
            for at, one in enumerate(chance.sample(list(taken.values()), len(taken))):
                run.step((number + at / len(taken)) / rounds, f"{one.name}, round {number + 1}")
                one.pour(run)
                time.sleep(0.2)
        for key, one in taken.items():
            sent, there = one.sent / (len(one.rates) if key == "wall" else 1), one.count()
            if sent != there:
                raise RuntimeError(f"{one.name}: {sent:.0f} events sent, {there:.0f} there")
    return taken


def ratios(taken: dict[str, _Taken]) -> list[Figure]:
    """Events a second, walld's to the others'; and the CPU of an event, the other way round.

    To the wall, which moves bytes: of the same bytes.
    """
    figures = []
    pairs = [(own, key) for own, others in _GOALS.items() for key in others]
    for own, key in pairs:
        if own not in taken or key not in taken:
            continue
        ours, theirs = taken[own], taken[key]
        scale = ours.event_bytes / theirs.event_bytes if key == "wall" else 1.0
        for what, each in (
            ("events/s", zip(ours.rates, theirs.rates, strict=True)),
            ("events a second of CPU", zip(theirs.costs, ours.costs, strict=True)),
        ):
            values = [above / below * scale for above, below in each]
            unit = what.replace("events", "bytes") if key == "wall" else what
            name = f"{ours.name} to {theirs.name}, {unit}"
            figures.append(
                Figure("ingest", name, median(values), "x", _GOALS[own][key], False, spread(values))
            )
    return figures


def measure(run: Run) -> list[Figure]:
    """All of them."""
    keys = list(_EVENTS)
    taken = taken_by(run, keys, int(run.pick(7, 2)), run.pick(1.0, 0.5))
    figures = ratios(taken)
    for series, unit in (("events a second", "events/s"), ("CPU an event", "us")):
        figures += [
            Figure(
                "ingest", f"{one.name}, {series}", median(values), unit, spread=spread(values),
                who=one.name, series=series, outlives="all processes",
                promise="written to a file" if key == "wall" else "acknowledged when written",
            )
            for key, one in taken.items()
            for values in [one.rates if unit == "events/s" else one.costs]
        ]  # fmt: skip
    return figures
