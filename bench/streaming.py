"""Does a reader of a stream notice that walld is there?

A stream of 10,000 tokens at 60, 250 and 1,000 a second, from the bench through a pipe, to two
agents that run the same program, one with WALLD_ENABLED=0: they take turns, a tenth of the stream
each time. Between tokens: from the end of one token in the agent, recorded, to that of the next;
p50 and p95 of a block, the median of ten. There is no difference outside noise where walld makes it
later by less than the blocks without walld differ among themselves (their interquartile range).
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
from bench.numbers import median, quantile, spread
from bench.run import Run
from bench.table import Figure

__all__ = ["compared", "measure"]

_TOKENS = 10_000
_RATES = (60, 250, 1000)
_BLOCKS = 10
_LINE = json.dumps(
    {
        "id": "chatcmpl-7a1", "object": "chat.completion.chunk", "created": 1750000000,
        "choices": [{"index": 0, "delta": {"content": "walls "}, "finish_reason": None}],
    }
)  # fmt: skip


class _Agent:
    """One agent (`streamed.py`) and the provider's end of its stream."""

    def __init__(self, run: Run, daemon: Daemon, *, enabled: bool) -> None:
        self._tokens = 0
        self._enabled = enabled
        env = environment() | {"WALLD_ENABLED": "1" if enabled else "0"}
        command = [sys.executable, "-m", "bench.streamed", daemon.socket_path]
        with pinned(run.cores.agents):
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
            )
        self._hear()

    def _hear(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the agent ended with {self._process.wait()}")
        return line

    def stream(self, rate: float, tokens: int) -> list[int]:
        """ns between tokens of a block."""
        stdin = self._process.stdin
        assert stdin is not None
        line = _LINE.encode() + b"\n"
        begun = time.perf_counter()
        for at in range(tokens):
            time.sleep(max(0.0, begun + at / rate - time.perf_counter()))
            stdin.write(line)
            stdin.flush()
        stdin.write(b"\n")
        stdin.flush()
        self._tokens += tokens
        gaps: list[int] = json.loads(self._hear())
        return gaps

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


def compared(run: Run, rate: int, tokens: int, at: float, share: float) -> list[Figure]:
    """At one pace."""
    each = tokens // _BLOCKS
    with_walld: list[list[int]] = []
    without: list[list[int]] = []
    with _agents(run) as (on, off):
        for block in range(_BLOCKS):
            run.step(at + share * block / _BLOCKS, f"{rate}/s, block {block + 1} of {_BLOCKS}")
            for agent, kept in ((on, with_walld), (off, without))[:: 1 if block % 2 else -1]:
                kept.append(agent.stream(rate, each))
        missing = on.end() + off.end()
    figures = []
    for name, part in (("p50", 0.5), ("p95", 0.95)):
        on_ms = [quantile(gaps, part) / 1e6 for gaps in with_walld]
        off_ms = [quantile(gaps, part) / 1e6 for gaps in without]
        noise = quantile(off_ms, 0.75) - quantile(off_ms, 0.25)
        series = f"between tokens, {rate}/s, {name}"
        figures += [
            Figure("streaming", f"walld, {series}", median(on_ms), "ms", spread=spread(on_ms),
                   who="with walld", series=series),
            Figure("streaming", f"without, {series}", median(off_ms), "ms", spread=spread(off_ms),
                   who="without", series=series),
            Figure("streaming", f"later with walld, to noise, {rate}/s, {name}",
                   (median(on_ms) - median(off_ms)) / noise, "x", 1.0,
                   note=f"{rate}/s, {name}: {(median(on_ms) - median(off_ms)) * 1000:+.1f} us of "
                   f"{tokens:,} tokens each; noise (interquartile range of {_BLOCKS} blocks "
                   f"without walld) {noise * 1000:.1f} us"),
        ]  # fmt: skip
    return [*figures, Figure("streaming", f"tokens missing, {rate}/s", missing, "", 0)]


def measure(run: Run) -> list[Figure]:
    """At each pace."""
    figures = []
    for number, rate in enumerate(_RATES):
        # Whole: ten thousand at any pace. Quick: as many as come in two and a half seconds.
        tokens = int(run.pick(_TOKENS, min(_TOKENS, rate * 2.5)))
        figures += compared(run, rate, tokens, number / 3, 1 / 3)
    return figures
