"""Does a reader of a stream notice that walld is there?

A stream of 10,000 tokens at 60, 250 and 1,000 a second, from the bench through a pipe, to two
agents that run the same program, one with WALLD_ENABLED=0: they take turns, a twentieth of the
stream each time. Two things, p50 and p95 of a block, the median of all blocks:
- from the moment before the provider sends a token to the moment the agent has recorded it: how
  late a token is. The goal is no difference outside noise, which a call that does something meets
  only where nobody can resolve it (`paired.py`); so the figure is by how many us.
- between tokens, from one recorded to the next: what a reader sees. A call that makes each token
  as late as the one before changes nothing here, so nothing is judged by it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.daemon import Daemon, environment
from bench.machine import pinned
from bench.report.numbers import median, quantile, spread
from bench.report.paired import later
from bench.report.table import Figure
from bench.run import Run

__all__ = ["compared", "measure"]

_TOKENS = 10_000
_RATES = (60, 250, 1000)
_PROGRAM = ("-m", "bench.load.streamed")
_SEEN_US = 200.0
"""Later by this must not pass for noise: some ten times what the call takes."""
_SHARES = {"p50": 0.5, "p95": 0.95}
_LINE = json.dumps(
    {
        "id": "chatcmpl-7a1", "object": "chat.completion.chunk", "created": 0,
        "choices": [{"index": 0, "delta": {"content": "walls "}, "finish_reason": None}],
    }
) + "\n"  # fmt: skip
_HEAD, _TAIL = _LINE.encode().split(b"0", 1)
"""Around the moment it is sent: ns of a clock that all processes share."""


class _Agent:
    """One agent (`streamed.py`), the provider's end of its stream, and ns of each block."""

    def __init__(self, run: Run, daemon: Daemon, *, enabled: bool) -> None:
        self._tokens = 0
        self._enabled = enabled
        self.late: list[list[int]] = []
        self.gaps: list[list[int]] = []
        env = environment() | {"WALLD_ENABLED": "1" if enabled else "0"}
        command = [sys.executable, *_PROGRAM, daemon.socket_path]
        with pinned(run.cores.agents):
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
            )
        try:
            self._hear()
        except BaseException:
            self.kill()
            raise

    def _hear(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the agent ended with {self._process.wait()}")
        return line

    def stream(self, rate: float, tokens: int) -> None:
        """One block."""
        stdin, clock = self._process.stdin, time.perf_counter_ns
        assert stdin is not None
        begun = time.perf_counter()
        for at in range(tokens):
            time.sleep(max(0.0, begun + at / rate - time.perf_counter()))
            stdin.write(b"%b%d%b" % (_HEAD, clock(), _TAIL))
            stdin.flush()
        stdin.write(b"\n")
        stdin.flush()
        self._tokens += tokens
        late, gaps = json.loads(self._hear())
        self.late.append(late)
        self.gaps.append(gaps)

    def end(self) -> int:
        """Tokens that are missing; of the one that is switched off: none."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        there = int(self._hear())
        self._process.wait()
        return self._tokens - there if self._enabled else 0

    def kill(self) -> None:
        """Gone in any case."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def _agents(run: Run) -> Iterator[tuple[_Agent, _Agent]]:
    """With walld, and without."""
    with run.daemon() as daemon:
        on = _Agent(run, daemon, enabled=True)
        off = _Agent(run, daemon, enabled=False)
        try:
            yield on, off
        finally:
            on.kill()
            off.kill()


def compared(
    run: Run, rate: int, tokens: int, blocks: int, at: float = 0.0, share: float = 1.0
) -> list[Figure]:
    """At one pace, so many tokens of each. at, share: what part of the question it is."""
    with _agents(run) as (on, off):
        for block in range(blocks):
            run.step(at + share * block / blocks, f"{rate}/s, block {block + 1} of {blocks}")
            for agent in (on, off)[:: 1 if block % 2 else -1]:
                agent.stream(rate, tokens // blocks)
        missing = on.end() + off.end()
    figures = []
    for name, part in _SHARES.items():
        late_on, late_off = ([quantile(ns, part) / 1e3 for ns in one.late] for one in (on, off))
        gaps = ([quantile(ns, part) / 1e6 for ns in one.gaps] for one in (on, off))
        pace = f"{rate}/s, {name}"
        figures += _pair(f"sent to recorded, {pace}", "us", late_on, late_off)
        figures += _pair(f"between tokens, {pace}", "ms", *gaps)
        figures.append(
            later("streaming", f"later with walld, {pace}", "us", late_on, late_off, _SEEN_US)
        )
    return [*figures, Figure("streaming", f"tokens missing, {rate}/s", missing, "", 0)]


def _pair(series: str, unit: str, on: list[float], off: list[float]) -> list[Figure]:
    return [
        Figure("streaming", f"{short}, {series}", median(each), unit, spread=spread(each),
               who=who, series=series)
        for short, who, each in (("walld", "with walld", on), ("without", "without", off))
    ]  # fmt: skip


def measure(run: Run) -> list[Figure]:
    """At each pace."""
    figures = []
    for number, rate in enumerate(_RATES):
        # Whole: ten thousand at any pace. Quick: as many as come in three seconds.
        tokens = int(run.pick(_TOKENS, min(_TOKENS, rate * 3)))
        figures += compared(run, rate, tokens, int(run.pick(20, 8)), number / 3, 1 / 3)
    return figures
