"""What does a durable submit take, and how many a second are there, by what a sync takes?

On the disk as it is, and with 5 and 20 ms more a sync (quick: 5) for walld and for its rivals; one
submitter with 1 ms more, too:

- one submitter, by the client: p50, p99, and submits a second; in turns with what nobody can go
  below who syncs each event, a write and an fdatasync of a line of that length and a round trip of
  such bytes to a process that only echoes. One journal commits both files: below 1 means that the
  rival waits for what the daemon does behind its answer, too;
- 64 submitters at once, a connection and a session each, to a writer that syncs each line for
  itself: that many lines wait for its one file, whoever they are from. Rounds of the disks follow
  each other, in each the writer and then walld, which is a fresh daemon each time: whose turns are
  open when a round ends would leave the next one work;
- 64 agents at once, a reply each, that say a token and drain it to synced: what is durable without
  a session, its turns and keys. To the same writer.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
from walld_client import connect
from walld_client.wire import messages as wire

from bench.daemon import Daemon, Peer, ended, environment
from bench.load.appenders import appending, message
from bench.load.drainers import draining
from bench.load.slow_disk import slowed
from bench.machine import pinned
from bench.report.numbers import blocks, median, quantile, ratio, spread
from bench.report.table import Figure
from bench.run import Run

__all__ = ["echo", "echoing", "measure"]

_SLOW = "bench.load.slow_disk"
_SUBMITTERS = 64
_BLOCKS = 5
_CONTENT = "walls " * 50
_LINE = message(300)
_SHARE_OF_ONE = 0.25
"""Of the question's time that one submitter takes."""
_GOALS = {(1, 0): 2.0, (1, 1): 2.0, (1, 5): 2.0, (_SUBMITTERS, 5): 25.0}
"""(submitters, ms more a sync): to the rival's, a latency at most, a throughput at least."""


def _named(delay_ms: int) -> str:
    return f"sync +{delay_ms} ms" if delay_ms else "sync as it is"


def _sync(delay_ms: int) -> Callable[[int], None]:
    return slowed(os.fdatasync, delay_ms / 1000) if delay_ms else os.fdatasync


def echo(descriptor: str) -> None:
    """In a process of its own: give back what comes."""
    other = socket.socket(fileno=int(descriptor))
    while received := other.recv(1 << 16):
        other.send(received)


@contextmanager
def echoing(run: Run) -> Iterator[socket.socket]:
    """A socket whose other end echoes, on the daemon's core."""
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    program = f"from bench.costs.submits import echo; echo({other.fileno()})"
    with pinned(run.cores.daemon):
        process = subprocess.Popen(
            [sys.executable, "-c", program], env=environment(), pass_fds=[other.fileno()]
        )
    other.close()
    with own, ended(process):
        own.send(b"there?")
        own.recv(6)
        yield own


def _last_line(daemon: Daemon, session_id: str) -> bytes:
    with Peer(daemon.socket_path, "query") as peer:
        lines = msgspec.msgpack.decode(peer.ask(wire.Events(1, session_id)), type=list[bytes])
    return lines[-1]


# --- one submitter ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Turns:
    """Seconds of a submit, of a write and sync with a round trip, and of that write and sync."""

    ours: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    syncs: list[float] = field(default_factory=list)


def _turns(run: Run, delay_ms: int, count: int) -> _Turns:
    turns = _Turns()
    sync = _sync(delay_ms)
    with (
        run.daemon("--sync-ms", str(delay_ms), program=_SLOW) as daemon,
        echoing(run) as own,
    ):
        client = connect(socket=daemon.socket_path)
        session = client.session("one")
        for _ in range(20 if not delay_ms else 3):
            session.submit(_CONTENT)
        line = _last_line(daemon, "one")
        answer = bytes(64)
        file = os.open(run.folder / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        clock = time.perf_counter
        try:
            for _ in range(count):
                begun = clock()
                session.submit(_CONTENT)
                turns.ours.append(clock() - begun)
                begun = clock()
                own.send(answer)
                own.recv(1 << 16)
                written = clock()
                os.write(file, line)
                sync(file)
                ended = clock()
                turns.bare.append(ended - begun)
                turns.syncs.append(ended - written)
        finally:
            os.close(file)
            client.close()
    return turns


def _one_figures(delay_ms: int, turns: _Turns) -> list[Figure]:
    disk = _named(delay_ms)
    value, each = ratio(turns.ours, turns.bare, _BLOCKS)
    note = (
        f"one submitter, {disk}: p99 of {len(turns.ours)}; a write, an fdatasync and a round trip "
        f"take {median(turns.bare) * 1e3:.2f} ms (p50), of which write and fdatasync "
        f"{median(turns.syncs) * 1e3:.2f} ms"
    )
    middles = [median(block) * 1e3 for block in blocks(turns.ours, _BLOCKS)]
    tails = [quantile(block, 0.99) * 1e3 for block in blocks(turns.ours, _BLOCKS)]
    rates = [len(block) / sum(block) for block in blocks(turns.ours, _BLOCKS)]
    return [
        Figure("submits", f"one submitter, {disk}: submit, p50", median(turns.ours) * 1e3, "ms",
               spread=spread(middles), note=note),
        Figure("submits", f"one submitter, {disk}: submit, p99", quantile(turns.ours, 0.99) * 1e3,
               "ms", spread=spread(tails)),
        Figure("submits", f"one submitter, {disk}: throughput", median(rates), "/s",
               spread=spread(rates)),
        Figure("submits", f"one submitter, {disk}: to write, fdatasync and a round trip, p50",
               value, "x", _GOALS.get((1, delay_ms)), spread=spread(each)),
    ]  # fmt: skip


# --- many submitters ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Crowd:
    """What rounds of many submitters, or of agents that drain, came to on one disk."""

    drains: bool = False
    alone: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    middles: list[float] = field(default_factory=list)
    tails: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    """ms of the daemon's CPU a submit."""

    def round(self, run: Run, delay_ms: int, seconds: float) -> None:
        self.alone.append(_alone(run, delay_ms, seconds / 2))
        with (
            run.daemon("--sync-ms", str(delay_ms), program=_SLOW) as daemon,
            pinned(run.cores.agents),
        ):
            before = daemon.used()
            command = draining(daemon, seconds, _SUBMITTERS)
            if not self.drains:
                command = appending(daemon, seconds, _SUBMITTERS, "submit")
            done = subprocess.run(
                command, env=environment(), stdout=subprocess.PIPE, check=True,
            )  # fmt: skip
            cost = daemon.used().since(before)
        said = json.loads(done.stdout)
        self.rates.append(said["answered"] / said["seconds"])
        self.middles.append(said["p50_ms"])
        self.tails.append(said["p99_ms"])
        self.costs.append(cost.ran / said["answered"] * 1e3)

    def figures(self, delay_ms: int) -> list[Figure]:
        whoever, what = ("agents", "token") if self.drains else ("submitters", "submit")
        who = f"{_SUBMITTERS} {whoever}, {_named(delay_ms)}"
        goal = None if self.drains else _GOALS.get((_SUBMITTERS, delay_ms))
        ratios = [ours / alone for ours, alone in zip(self.rates, self.alone, strict=True)]
        note = (
            f"{who}: one sync a line does {median(self.alone):,.0f} lines a second; the daemon "
            f"takes {median(self.costs):.3f} ms of its core a {what}"
        )
        return [
            Figure("submits", f"{who}: {what}, p50", median(self.middles), "ms",
                   spread=spread(self.middles), note=note),
            Figure("submits", f"{who}: {what}, p99", median(self.tails), "ms",
                   spread=spread(self.tails)),
            Figure("submits", f"{who}: throughput", median(self.rates), "/s",
                   spread=spread(self.rates)),
            Figure("submits", f"{who}: throughput to one sync an event", median(ratios), "x",
                   goal, most=False, spread=spread(ratios)),
        ]  # fmt: skip


def _alone(run: Run, delay_ms: int, seconds: float) -> float:
    """Lines a second of a writer that syncs each."""
    sync, count = _sync(delay_ms), 0
    file = os.open(run.folder / "alone", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    begun = time.perf_counter()
    while time.perf_counter() < begun + seconds:
        os.write(file, _LINE)
        sync(file)
        count += 1
    os.close(file)
    return count / (time.perf_counter() - begun)


def measure(run: Run) -> list[Figure]:
    """One, then many."""
    run.folder.mkdir(parents=True, exist_ok=True)
    figures = []
    counts = {0: 150, 5: 40} if run.quick else {0: 1000, 1: 500, 5: 250, 20: 125}
    for at, (delay_ms, count) in enumerate(counts.items()):
        run.step(at * _SHARE_OF_ONE / len(counts), f"one submitter, {_named(delay_ms)}")
        figures += _one_figures(delay_ms, _turns(run, delay_ms, count))
    delays = [delay_ms for delay_ms in counts if delay_ms != 1]
    crowds = {(one, drains): _Crowd(drains=drains) for drains in (False, True) for one in delays}
    rounds = int(run.pick(5, 1))
    for number in range(rounds):
        for at, ((delay_ms, drains), crowd) in enumerate(crowds.items()):
            done = (number + at / len(crowds)) / rounds
            whoever = "agents" if drains else "submitters"
            label = f"{_SUBMITTERS} {whoever}, {_named(delay_ms)}, round {number + 1}"
            run.step(_SHARE_OF_ONE + (1 - _SHARE_OF_ONE) * done, label)
            crowd.round(run, delay_ms, run.pick(1.6, 0.7))
    for (delay_ms, _), crowd in crowds.items():
        figures += crowd.figures(delay_ms)
    return figures
