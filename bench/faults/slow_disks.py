"""What does a slow disk cost: in writes, in what an agent waits, and in what a reader waits?

20 streams of 60 tokens a second, in replies of 60 tokens that are released when they are over, on
this machine's disk as it is, and where every write and every sync returns 5, 20 and 100 ms later (a
sleep in the thread that called, as a device or a server far away makes it wait). walld is held
against a file for each stream, written four times a second by a thread, and against
open-append-close of a line of JSON (`disk_users.py`). None of the rivals syncs; walld does.

- Writes and bytes a token, and a reply of 60 tokens: all that the three gave to files, from the
  first token until what was said is written.
- token(), or what stands for it: p50, p99 and p99.9. At 100 ms a call an agent says ten tokens a
  second, whatever comes from its model: the share of the pace that was kept.
- Behind: the longest that a token waited to be written; of walld the edge of the histogram's
  bucket.
- A reader of a stream that is being spoken, 200 times a second: recover() of walld, reading and
  parsing the file of a rival, which has no word on what is not in the file yet.

Rounds are interleaved: in each, every delay with every design. p50 and p99 of calls are the
medians of the rounds' own; the spread is the lowest and highest round.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from walld_client import connect

from bench.daemon import Daemon, environment, highest_lag
from bench.load.disk_users import REPLY_TOKENS, STREAMS, session_of
from bench.load.slow_disk import Tally
from bench.machine import pinned
from bench.report.numbers import median, quantile, spread
from bench.report.table import Figure
from bench.run import Run

__all__ = ["measure"]

_DELAYS_MS = (0, 5, 20, 100)
_NAMES = {
    "walld": "walld",
    "files": "a file a stream, by a thread",
    "append": "open-append-close JSON",
}
_ASK_SECONDS = 0.005
_REST_SECONDS = 0.5
_QUERY_GOAL_MS = 15.0


@dataclass(slots=True)
class _Told:
    """One design on one disk; a number a round."""

    numbers: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        self.numbers.setdefault(name, []).append(value)


def _readers(key: str, home: Path) -> tuple[Callable[[int], object], Callable[[], object]]:
    """(read back what a stream has said so far, close)."""
    if key == "walld":
        client = connect(socket=str(home / "s"), timeout=60.0)
        return lambda stream: client.recover(session_of(stream)), client.close

    def read(stream: int) -> object:
        try:
            lines = (home / session_of(stream)).read_bytes().splitlines()
        except FileNotFoundError:
            return None
        return "".join(json.loads(line)["text"] for line in lines)

    return read, lambda: None


@contextmanager
def _served(run: Run, key: str, home: Path, delay_ms: int) -> Iterator[Daemon | None]:
    """walld's daemon, with as slow a disk as its rivals' agents have."""
    if key != "walld":
        yield None
        return
    options = ["--write-ms", str(delay_ms), "--sync-ms", str(delay_ms)]
    options += ["--tally", str(home / "tally")]
    with Daemon(home, run.cores.daemon, *options, program="bench.load.slow_disk") as daemon:
        yield daemon


@contextmanager
def _agent(
    run: Run, key: str, home: Path, delay_ms: int, seconds: float
) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "bench.load.disk_users", key, str(home)]
    command += [str(delay_ms), str(seconds)]
    with pinned(run.cores.agents):
        agent = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
        )
    try:
        yield agent
    finally:
        agent.kill()
        agent.wait()
        for pipe in (agent.stdin, agent.stdout):
            if pipe is not None:
                pipe.close()


def _heard(agent: subprocess.Popen[bytes]) -> bytes:
    assert agent.stdout is not None
    line = agent.stdout.readline()
    if not line:
        raise RuntimeError(f"the agent ended with {agent.wait()}")
    return line


def _asked(key: str, home: Path, seconds: float) -> list[float]:
    """Seconds that readers waited."""
    read, close = _readers(key, home)
    took, chance = [], random.Random(3)
    try:
        read(0)  # connects
        until = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < until:
            read(chance.randrange(STREAMS))
            took.append(time.perf_counter() - begun)
            time.sleep(max(0.0, _ASK_SECONDS - took[-1]))
    finally:
        close()
    return took


def _rested(tally: Tally) -> None:
    """Until what a daemon's start gives to its disk is there: the reserve for a full one."""
    given, since = tally.given(), time.monotonic()
    while time.monotonic() < since + _REST_SECONDS:
        time.sleep(0.01)
        if tally.given() != given:
            given, since = tally.given(), time.monotonic()


def _round(run: Run, key: str, delay_ms: int, told: _Told) -> None:
    seconds, home = run.pick(2.2, 0.9), run.home()
    try:
        with (
            _served(run, key, home, delay_ms) as daemon,
            _agent(run, key, home, delay_ms, seconds) as agent,
        ):
            _heard(agent)
            tally = Tally(home / "tally")
            if daemon is not None:
                _rested(tally)
            before, lags = tally.given(), daemon.metrics() if daemon else {}
            assert agent.stdin is not None
            agent.stdin.write(b"\n")
            agent.stdin.flush()
            asked = _asked(key, home, seconds - 0.1)
            said = json.loads(_heard(agent))
            given = tally.given().since(before)
            behind = highest_lag(lags, daemon.metrics()) if daemon else said["behind"]
    finally:
        shutil.rmtree(home, ignore_errors=True)
    for name in ("p50_us", "p99_us", "p999_us", "missing", "tokens"):
        told.add(name, said[name])
    told.add("pace", said["tokens"] / said["due"] * 100)
    told.add("writes", given.writes / said["tokens"])
    told.add("bytes", given.bytes / said["tokens"])
    told.add("syncs", given.syncs)
    told.add("behind", behind)
    told.add("asked", quantile(asked, 0.99) * 1000)


def _disk(delay_ms: int) -> str:
    return f"+{delay_ms} ms" if delay_ms else "disk as it is"


def _named(key: str, delay_ms: int) -> str:
    return f"{_disk(delay_ms)}, {_NAMES[key]}"


def _figures(key: str, delay_ms: int, told: _Told) -> list[Figure]:
    who = _named(key, delay_ms)
    of = told.numbers
    note = (
        f"{who}: {sum(of['tokens']):,.0f} tokens, {median(of['writes']) * REPLY_TOKENS:.3g} writes "
        f"and {median(of['bytes']) * REPLY_TOKENS:,.0f} bytes a reply of {REPLY_TOKENS} tokens"
    )
    if key == "walld":
        note += f"; {median(of['syncs']):.0f} syncs a round"

    def figure(
        what: str, name: str, unit: str, factor: float = 1.0, goal: float | None = None
    ) -> Figure:
        values = [value * factor for value in of[name]]
        return Figure("slow_disks", f"{who}: {what}", median(values), unit, goal,
                      spread=spread(values), note=note, who=_NAMES[key],
                      series=f"{what}, {_disk(delay_ms)}")  # fmt: skip

    return [
        figure("writes a token", "writes", ""),
        figure("writes a reply", "writes", "", REPLY_TOKENS),
        figure("bytes a token", "bytes", "B"),
        figure("token, p50", "p50_us", "us"),
        figure("token, p99", "p99_us", "us"),
        figure("token, p99.9", "p999_us", "us"),
        figure("of the pace kept", "pace", "%"),
        figure("a token behind, at most", "behind", "s"),
        figure("a reader, p99", "asked", "ms", goal=_QUERY_GOAL_MS if key == "walld" else None),
    ]


def measure(run: Run) -> list[Figure]:
    """Each delay, each design."""
    delays = (20,) if run.quick else _DELAYS_MS
    told = {(delay_ms, key): _Told() for delay_ms in delays for key in _NAMES}
    rounds = int(run.pick(3, 1))
    for number in range(rounds):
        for at, ((delay_ms, key), one) in enumerate(told.items()):
            label = f"{_named(key, delay_ms)}, round {number + 1}"
            run.step((number + at / len(told)) / rounds, label)
            _round(run, key, delay_ms, one)
    figures = []
    for (delay_ms, key), one in told.items():
        figures += _figures(key, delay_ms, one)
    missing = sum(sum(one.numbers["missing"]) for one in told.values())
    return [*figures, Figure("slow_disks", "tokens missing, of all", missing, "", 0)]
