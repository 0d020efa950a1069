"""How does what walld costs grow, as the work grows tenfold, and where does it stop being linear?

- Ingest: events a second, and the daemon's CPU an event, of a flood (`flood.py`) of 1, 100, 1,000
  and 10,000 streams that say their tokens in turns, on at most 8 connections; in the CPU are
  Starts, Ends and Releases, of 100 tokens a stream at 10,000.
- Memory: what 100, 1,000 and 10,000 idle live streams keep, above a daemon with as many connections
  and no stream (`memory.py`); one stream is less than a daemon varies by. Not when it is quick.
- Recover: a live reply of 10, 100, 1,000 and 10,000 tokens (`recover.py`).
- Restart: from listening to the first answer, on a log of 2.5, 25 and 250 MB (`restart.py`).
- Submits: a durable one's p50, and the daemon's CPU for it, of 1, 10 and 100 submitters with 5 ms
  more a sync (`appenders.py`).
- Sessions: an append at event 10, 100, 1,000, 10,000 and 100,000, and the first append to a session
  of that length after a restart, which opens it (`sessions.py`).

Sizes take turns in rounds. A figure grows as a power of its size, by least squares of the
logarithms: exponent 1 is linear, 0 is constant; its spread is that of the rounds' own. The note has
the exponent of each step from one size to the next, and how far the figure stays what it should be:
the size after which a step is steeper than that by more than 0.15, which is 1.4 times in ten.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from walld_client import connect
from walld_client.wire import messages as wire

from bench.costs.memory import resident
from bench.costs.sessions import appends, make_others, reopened
from bench.daemon import Daemon, Peer, environment
from bench.faults.recover import read, speak, timed
from bench.faults.restart import make_log, start_on
from bench.load.appenders import Log, appending, payloads
from bench.machine import pinned
from bench.report.numbers import exponent, median, reaches, spread
from bench.report.table import Figure
from bench.run import Run

__all__ = ["measure"]

_CONNS_MAX = 8
_ROOM = 0.15
_ORDERS = {0: "constant", 1: "linear"}
_SHORT_MOST = 100
"""Sessions up to this length are made anew for each ten appends."""


@dataclass(slots=True)
class _Series:
    """One figure by size. order: 0 where it should not grow, 1 where it may grow with the size.

    a_second: us of one, shown as so many a second.
    """

    name: str
    of: str
    unit: str
    order: int
    a_second: bool = False
    rounds: dict[float, list[float]] = field(default_factory=dict)

    def add(self, size: float, value: float) -> None:
        self.rounds.setdefault(size, []).append(value)

    def _sized(self, size: float) -> str:
        return f"{size:,} {self.of}" if size > 1 else f"{size:,} {self.of.removesuffix('s')}"

    def figures(self) -> list[Figure]:
        figures = [
            Figure("growth", f"{self.name}, {self._sized(size)}", median(shown), self.unit,
                   spread=spread(shown))
            for size, values in sorted(self.rounds.items())
            for shown in [[1e6 / us for us in values] if self.a_second else values]
        ]  # fmt: skip
        middles = [(size, median(values)) for size, values in sorted(self.rounds.items())]
        each = [
            exponent(list(zip(self.rounds, values, strict=True)))
            for values in zip(*self.rounds.values(), strict=True)
        ]
        steps = ", ".join(f"{exponent(pair):.2f}" for pair in pairwise(middles))
        end, last = reaches(middles, self.order + _ROOM), middles[-1][0]
        where = f"up to {self._sized(end)}" + (", the most asked" if end == last else "")
        note = f"{self.name}: at most {_ORDERS[self.order]} {where}; by step {steps}"
        return [
            *figures,
            Figure("growth", f"{self.name}: exponent{' of the time' * self.a_second}",
                   exponent(middles), "", spread=spread(each), note=note),
        ]  # fmt: skip


def _ingest(run: Run, sizes: Sequence[int], rounds: int, events: int, at: float) -> list[_Series]:
    costing = _Series("ingest, daemon's CPU an event", "streams", "us", 0)
    taking = _Series("ingest", "streams", "events/s", 0, a_second=True)
    for number in range(rounds):
        for streams in sizes:
            run.step(at, f"ingest of {streams:,} streams, round {number + 1}")
            conns = min(_CONNS_MAX, streams)
            with run.daemon() as daemon:
                command = [sys.executable, "-m", "bench.load.flood", daemon.socket_path]
                command += [str(events), str(conns), "5", str(streams // conns)]
                before = daemon.used()
                with pinned(run.cores.agents):
                    done = subprocess.run(
                        command, env=environment(), stdout=subprocess.PIPE, check=True
                    )
                cost = daemon.used().since(before)
            said = json.loads(done.stdout)
            costing.add(streams, cost.ran / said["events"] * 1e6)
            taking.add(streams, said["seconds"] / said["events"] * 1e6)
    return [taking, costing]


def _submits(run: Run, sizes: Sequence[int], rounds: int, at: float) -> list[_Series]:
    waiting = _Series("submit, p50, sync +5 ms", "submitters", "ms", 1)
    costing = _Series("submit, daemon's CPU", "submitters", "us", 0)
    for number in range(rounds):
        for submitters in sizes:
            run.step(at, f"{submitters} submitters, round {number + 1}")
            with run.daemon("--sync-ms", "5", program="bench.load.slow_disk") as daemon:
                before = daemon.used()
                command = appending(daemon, run.pick(1.5, 0.7), submitters, "submit")
                with pinned(run.cores.agents):
                    done = subprocess.run(
                        command, env=environment(), stdout=subprocess.PIPE, check=True
                    )
                cost = daemon.used().since(before)
            said = json.loads(done.stdout)
            waiting.add(submitters, said["p50_ms"])
            costing.add(submitters, cost.ran / said["answered"] * 1e6)
    return [waiting, costing]


def _memory(run: Run, sizes: Sequence[int], rounds: int, at: float) -> list[_Series]:
    series = _Series("memory of idle live streams", "streams", "KiB", 1)
    for number in range(rounds):
        run.step(at, f"memory, round {number + 1}")
        none = resident(run, 0, 0)
        for streams in sizes:
            series.add(streams, (resident(run, streams, 5) - none) / 1024)
    return [series]


def _recover(run: Run, sizes: Sequence[int], rounds: int, at: float) -> list[_Series]:
    series = _Series("recover a live reply, p50", "tokens", "us", 1)
    with run.daemon() as daemon, daemon.agent() as peer:
        for stream, tokens in enumerate(sizes, 1):
            run.step(at, f"a reply of {tokens:,} tokens")
            peer.send(wire.Start(stream, 0, os.urandom(8).hex(), f"live-{tokens}"))
            speak(peer, tokens, stream)
        daemon.settle()
        client = connect(socket=daemon.socket_path, timeout=30.0)
        try:
            client.recover("nobody")
            for _ in range(rounds):
                for tokens in sizes:
                    took = timed(partial(read, client, f"live-{tokens}", tokens), 40)
                    series.add(tokens, median(took) * 1e6)
        finally:
            client.close()
    return [series]


def _restart(run: Run, sizes: Sequence[float], rounds: int, at: float) -> list[_Series]:
    series = _Series("restart, listening to first answer", "MB", "s", 1)
    homes = {}
    for megabytes in sizes:
        run.step(at, f"a log of {megabytes} MB")
        homes[megabytes] = run.home()
    try:
        seqs = {mb: make_log(home / "data", int(mb * 1e6))[1] for mb, home in homes.items()}
        for number in range(rounds):
            for megabytes, home in homes.items():
                run.step(at, f"a start on {megabytes} MB, round {number + 1}")
                series.add(megabytes, start_on(run, home, seqs[megabytes])["answer"])
    finally:
        for home in homes.values():
            shutil.rmtree(home, ignore_errors=True)
    return [series]


def _sessions(run: Run, sizes: Sequence[int], rounds: int, at: float) -> list[_Series]:
    appending = _Series("append, p50", "events", "us", 0)
    opening = _Series("first append after a restart", "events", "ms", 1)
    home, chance = run.home(), random.Random(5)
    try:
        with Daemon(home, run.cores.daemon) as daemon, Peer(daemon.socket_path, "query") as peer:
            make_others(peer)
            logs = {events: Log(peer, f"of-{events}") for events in sizes}
            for events, log in logs.items():
                run.step(at, f"a session of {events:,} events")
                log.grow(payloads(), events)
            short = [events for events in sizes if events <= _SHORT_MOST]
            long = {events: logs[events] for events in sizes if events > _SHORT_MOST}
            for _ in range(rounds):
                for events, took in appends(run, peer, short, long, 100).items():
                    appending.add(events, median(took) * 1e6)
        for number in range(rounds):
            run.step(at, f"restart {number + 1}")
            order = chance.sample(sizes, len(sizes))
            # The first one that a daemon opens pays for what they share.
            names = ["other-0", *(logs[events].session_id for events in order)]
            for events, seconds in zip(order, reopened(run, home, names)[1:], strict=True):
                opening.add(events, seconds * 1000)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return [appending, opening]


def measure(run: Run) -> list[Figure]:
    """Each of them."""
    tens = [10, 100, 1_000, 10_000, 100_000]
    if run.quick:
        series = _ingest(run, [1, 100, 1_000], 1, 200_000, 0.0)
        series += _submits(run, [1, 10], 1, 0.3)
        series += _recover(run, tens[:3], 3, 0.4)
        series += _restart(run, [2.5, 25], 1, 0.5)
        series += _sessions(run, tens[:3], 2, 0.7)
    else:
        series = _ingest(run, [1, 100, 1_000, 10_000], 3, 1_000_000, 0.0)
        series += _submits(run, [1, 10, 100], 3, 0.2)
        series += _memory(run, [100, 1_000, 10_000], 2, 0.25)
        series += _recover(run, tens[:4], 5, 0.45)
        series += _restart(run, [2.5, 25, 250], 3, 0.5)
        series += _sessions(run, tens, 5, 0.7)
    return [figure for one in series for figure in one.figures()]
