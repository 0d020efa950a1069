"""Do 10,000 live streams at 60 tokens a second fit on one core, and can one still ask?

Two shapes: a connection each, and 100 connections of 100 streams; and, as what is aimed at, 15,000
with a connection each (not when it is quick). The agents are one process on
another core. Where that core can send 600,000 times a second, every token is a send(2) of its own;
where it cannot, two or more share one, and the table says so. Meanwhile a client asks for a reply
that is not there, and for one that is being written. Nothing may be dropped: the daemon's counters
say so, and some streams are recovered afterwards and compared with what was sent.

A run lasts longer than it takes a stream's index to fill (128 flushes), so that folding old records
is part of what is measured; CPU is said for the whole and for the worst five seconds.
"""

from __future__ import annotations

import math
import os
import random
import resource
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from walld_client import connect

from bench.daemon import Daemon, highest_lag
from bench.load.offering import Offering, compiled, wrong_replies
from bench.machine import used
from bench.report.numbers import median, quantile
from bench.report.table import Figure
from bench.run import Run

__all__ = ["measure"]

_RATE = 60
_BOUND_SECONDS = 3.0
_WARM_SECONDS = 3.0
_ASK_SECONDS = 0.02
_SLICE_SECONDS = 5.0
_CHECKED = 40
_BURST_MAX = 8
_FILES_WANTED = 17_500
"""So many that a tenth of them, which one user leaves to others, is not of the 15,000."""
_BUSY_MOST = 0.9
"""Of the generator's core."""


@dataclass(slots=True)
class _Seen:
    """What was measured while the streams spoke."""

    nothing: list[float] = field(default_factory=list)
    live: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    """Connect, Hello, Welcome and the first answer."""
    shares: list[float] = field(default_factory=list)
    """Of its core, a slice each."""
    asker_waited: float = 0.0


def _ask(run: Run, daemon: Daemon, conns: int, seconds: float, label: str, share: float) -> _Seen:
    """Ask now and then, for so long."""
    seen = _Seen()
    client = connect(socket=daemon.socket_path, timeout=30.0)
    chance = random.Random(1)
    waited = used(os.getpid()).waited
    begun = sliced = time.perf_counter()
    cost = daemon.used()
    turn = 0
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(OSError):  # the asker must not queue behind the generator on their core
        os.setpriority(os.PRIO_PROCESS, 0, nice - 10)
    try:
        seen.first.append(_first(daemon))
        client.recover("nobody")  # connects
        while (now := time.perf_counter()) < begun + seconds:
            turn += 1
            name = f"c{chance.randrange(conns)}" if turn % 2 else f"none{turn}"
            reply = client.recover(name)
            took = time.perf_counter() - now
            assert (reply is not None) == bool(turn % 2), name
            (seen.live if turn % 2 else seen.nothing).append(took)
            if now - sliced >= _SLICE_SECONDS:
                later = daemon.used()
                seen.shares.append(later.since(cost).ran / (now - sliced))
                cost, sliced = later, now
                seen.first.append(_first(daemon))
                run.step(share + (now - begun) / seconds / 3, label)
            time.sleep(max(0.0, _ASK_SECONDS - took))
    finally:
        client.close()
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, nice)
    seen.asker_waited = used(os.getpid()).waited - waited
    return seen


def _first(daemon: Daemon) -> float:
    """Seconds from connect to an answer, on a connection of its own."""
    begun = time.perf_counter()
    client = connect(socket=daemon.socket_path, timeout=30.0)
    try:
        client.recover("nobody")
    finally:
        client.close()
    return time.perf_counter() - begun


def _discarded(metrics: dict[str, float]) -> float:
    return sum(v for name, v in metrics.items() if name.startswith("walld_events_discarded_total"))


def _burst(run: Run, program: Path | None, conns: int, per: int) -> tuple[int, float]:
    """(tokens in a send so that one core can offer the pace, sends a second it can do)."""
    with (
        run.daemon() as daemon,
        Offering(program, daemon.socket_path, conns, per, _RATE, run.cores.agents) as offering,
    ):
        offering.begin(run.pick(1.0, 0.5))
        said = offering.result()
        offering.end()
    able = said["taken"] / said["cpu_seconds"]
    return min(_BURST_MAX, math.ceil(_RATE * conns * per / (able * _BUSY_MOST))), able


def _shape(run: Run, conns: int, per: int, seconds: float, share: float) -> list[Figure]:
    program = compiled(run.folder)
    streams = conns * per
    label = f"{conns:,} connections x {per}"
    burst, able = _burst(run, program, conns, per)
    with (
        run.daemon() as daemon,
        Offering(
            program, daemon.socket_path, conns, per, _RATE, run.cores.agents, burst
        ) as offering,
    ):
        offering.begin(run.pick(_WARM_SECONDS, 1))
        warm = offering.result()
        before = daemon.metrics()
        cost, at = daemon.used(), time.perf_counter()
        offering.begin(seconds)
        seen = _ask(run, daemon, conns, seconds - 0.5, label, share)
        said = offering.result()
        spent, took = daemon.used().since(cost), time.perf_counter() - at
        daemon.settle()
        after = daemon.metrics()
        sent = warm["taken"] + said["taken"]
        wrong = wrong_replies(daemon, offering, _CHECKED)
        lost = sent - after['walld_events_received_total{kind="token"}']
        lost += _discarded(after) + after["walld_lost_acked_total"]
        disk = after["walld_wal_write_bytes_total"] - before["walld_wal_write_bytes_total"]
        offering.end()
    pace = said["taken"] / said["seconds"] / streams
    language = "C" if program else "Python"
    note = (
        f"{label}: {burst} tokens a send (one core does {able / 1000:,.0f} thousand sends/s in "
        f"{language}), generator at most "
        f"{said['late_seconds'] * 1000:.0f} ms late, {said['eagain']:.0f} times EAGAIN; "
        f"{len(seen.nothing) + len(seen.live)} queries, which waited "
        f"{seen.asker_waited * 1000:.0f} ms for their own core"
    )
    figures = [
        Figure("live_streams", f"{label}: tokens taken", pace, "/s a stream",
               _RATE * 0.98, most=False, note=note),
        Figure("live_streams", f"{label}: tokens dropped", lost, "", 0),
        Figure("live_streams", f"{label}: of {_CHECKED} recovered, wrong", wrong, "", 0),
        Figure("live_streams", f"{label}: flush lag, highest bucket",
               highest_lag(before, after), "s", _BOUND_SECONDS),
    ]  # fmt: skip
    for what, values in (("nothing there", seen.nothing), ("a live one", seen.live)):
        figures += [
            Figure("live_streams", f"{label}: {what}, p50", median(values) * 1000, "ms"),
            Figure("live_streams", f"{label}: {what}, p99", quantile(values, 0.99) * 1000, "ms",
                   15.0, spread=(min(values) * 1000, max(values) * 1000)),
        ]  # fmt: skip
    figures.append(
        Figure("live_streams", f"{label}: first answer of a new connection",
               median(seen.first) * 1000, "ms",
               spread=(min(seen.first) * 1000, max(seen.first) * 1000)),
    )  # fmt: skip
    shares = [share * 100 for share in seen.shares] or [spent.ran / took * 100]
    return [
        Figure("live_streams", f"{label}: tokens a send", burst, ""),
        *figures,
        Figure("live_streams", f"{label}: daemon's CPU", spent.ran / took * 100, "% of a core",
               spread=(min(shares), max(shares)) if len(shares) > 1 else None),
        Figure("live_streams", f"{label}: daemon waited for its core", spent.waited / took * 100,
               "% of time"),
        Figure("live_streams", f"{label}: bytes on disk a token", disk / said["taken"], "B", 8.0),
    ]  # fmt: skip


def measure(run: Run) -> list[Figure]:
    """All shapes."""
    seconds = run.pick(65, 4)
    figures = _shape(run, 10_000, 1, seconds, 0.0) + _shape(run, 100, 100, seconds, 0.33)
    if not run.quick:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files < _FILES_WANTED:
            print(f"bench: 15,000 live streams are left out: {files} open files, "
                  f"{_FILES_WANTED} wanted", file=sys.stderr)  # fmt: skip
        else:
            figures += _shape(run, 15_000, 1, seconds, 0.67)
    return figures
