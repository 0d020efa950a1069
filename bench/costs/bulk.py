"""How many token events a second does one daemon on one core take, when they come at once?

8 connections, 5-byte tokens, frames encoded beforehand by a process on another core; from the first
byte sent to the moment all of it is written. The daemon's CPU time is reported beside it: on a
machine whose cores are shared it is the truer number, for the wall time is also the neighbours'.
"""

from __future__ import annotations

import json
import subprocess
import sys

from bench.daemon import Daemon, environment
from bench.machine import pinned
from bench.report.numbers import median, spread
from bench.report.table import Figure
from bench.run import Run

__all__ = ["measure"]

_EVENTS = 4_000_000
_CONNS = 8
_GOAL = 2_000_000


def _flood(run: Run, daemon: Daemon, events: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.load.flood", daemon.socket_path]
    command += [str(events), str(_CONNS), "5"]
    before, counted = daemon.used(), daemon.metrics()
    with pinned(run.cores.agents):
        done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, check=True)
    said: dict[str, float] = json.loads(done.stdout)
    cost, now = daemon.used().since(before), daemon.metrics()
    name = 'walld_events_received_total{kind="token"}'
    said["lost"] = said["events"] - (now[name] - counted[name])
    said["cpu"], said["waited"] = cost.ran, cost.waited
    said["disk"] = now["walld_wal_write_bytes_total"] - counted["walld_wal_write_bytes_total"]
    return said


def measure(run: Run) -> list[Figure]:
    """Events a second, and what they cost."""
    rounds = int(run.pick(7, 2))
    events = int(run.pick(_EVENTS, _EVENTS // 4))
    floods = []
    with run.daemon() as daemon:
        for at in range(rounds):
            run.step(at / rounds, f"flood {at + 1} of {rounds}")
            floods.append(_flood(run, daemon, events))
    rates = [flood["events"] / flood["seconds"] for flood in floods]
    costs = [flood["cpu"] / flood["events"] * 1e6 for flood in floods]
    waits = [flood["waited"] / flood["seconds"] * 100 for flood in floods]
    lost = sum(flood["lost"] for flood in floods)
    disk = [flood["disk"] / flood["events"] for flood in floods]
    note = "limited by the typed decode of each frame, then by folding, on the one core"
    return [
        Figure("bulk", "token events a second, to written", median(rates), "events/s",
               _GOAL, most=False, spread=spread(rates), note=note),
        Figure("bulk", "daemon's CPU a million events", median(costs), "s",
               1e6 / _GOAL, spread=spread(costs),
               note="CPU: all threads, with Start, End and Release, until synced"),
        Figure("bulk", "daemon waited for its core", median(waits), "% of time",
               spread=spread(waits)),
        Figure("bulk", "events lost", lost, "", 0),
        Figure("bulk", "bytes on disk an event", median(disk), "B", spread=spread(disk)),
    ]  # fmt: skip
