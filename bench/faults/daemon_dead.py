"""What does a token cost the agent while there is no daemon, or its disk is slow?

One agent, one reply: token() at 60 a second and flat out, first with a daemon that listens, then
with the same killed (SIGKILL), then with one on its data whose every write and sync takes 100 ms
more; so round by round. The client keeps what it may not send and tries to connect again beside it.
At the end the last daemon must have every token, and none may have been dropped.

Each quantile is the median of the rounds' own, a ratio is one within a round. There is a p99.9 only
of 20,000 calls and more.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product

from walld_client import connect
from walld_client.reply.reply import Reply

from bench.daemon import PATIENCE_SECONDS, Daemon
from bench.report.numbers import TAIL_CALLS_LEAST, median, quantile, spread
from bench.report.table import Figure
from bench.run import Run

__all__ = ["measure"]

_TEXT = "walls "
_RATE = 60
_SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
_PACES = ("60/s", "flat out")
_STATES = ("no daemon", "a disk of +100 ms", "with one")
_SLOW = ("--write-ms", "100", "--sync-ms", "100")


def _spoken(reply: Reply, pace: str, count: int) -> list[float]:
    """us of so many calls."""
    clock, took = time.perf_counter_ns, []
    for _ in range(count):
        if pace == "60/s":
            time.sleep(1 / _RATE)
        begun = clock()
        reply.token(_TEXT)
        took.append((clock() - begun) / 1000)
    return took


def _connected(reply: Reply) -> None:
    """The daemon that has come has all that was said."""
    reply.token(_TEXT)
    assert reply.drain(PATIENCE_SECONDS)


@contextmanager
def _quiet() -> Iterator[None]:
    """The client says that its daemon is gone: no news here."""
    log = logging.getLogger("walld")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def _rounds(run: Run) -> tuple[dict[tuple[str, str], list[list[float]]], int]:
    """(us of calls, a list a round, by state and pace; tokens missing)."""
    rounds, paced, flat = int(run.pick(5, 2)), int(run.pick(240, 60)), int(run.pick(4000, 1000))
    counts = {"60/s": paced, "flat out": flat}
    took: dict[tuple[str, str], list[list[float]]] = {at: [] for at in product(_STATES, _PACES)}
    home, said = run.home(), 0
    client = connect(socket=str(home / "s"), timeout=PATIENCE_SECONDS)
    try:
        with _quiet():
            reply = client.reply("dead")

            def speak(state: str) -> None:
                for pace in _PACES:
                    took[state, pace].append(_spoken(reply, pace, counts[pace]))

            for number in range(rounds):
                run.step(number / rounds, f"round {number + 1} of {rounds}")
                with Daemon(home, run.cores.daemon) as daemon:
                    _connected(reply)
                    speak("with one")
                    daemon.kill()
                    speak("no daemon")
                with Daemon(home, run.cores.daemon, *_SLOW, program="bench.load.slow_disk"):
                    _connected(reply)
                    speak("a disk of +100 ms")
                said += 2 + 3 * sum(counts.values())
            with Daemon(home, run.cores.daemon):
                assert reply.drain(PATIENCE_SECONDS), client.stats()
                found = client.recover("dead")
                there = 0 if found is None else found.text.count(_TEXT)
                reply.end()
    finally:
        client.close()
        shutil.rmtree(home, ignore_errors=True)
    return took, said - there + client.stats().dropped


def measure(run: Run) -> list[Figure]:
    """At both paces."""
    took, missing = _rounds(run)
    figures = []
    for pace, state in product(_PACES, _STATES):
        values = took[state, pace]
        calls = sum(map(len, values))
        for share, at in _SHARES.items():
            if share == "p99.9" and calls < TAIL_CALLS_LEAST:
                continue
            each = [quantile(one, at) for one in values]
            figures.append(
                Figure("daemon_dead", f"token(), {state}, {share}, {pace}", median(each), "us",
                       spread=spread(each), note=f"{pace}: of {calls:,} calls")
            )  # fmt: skip
    for pace, state in product(_PACES, _STATES[:-1]):
        pairs = zip(took[state, pace], took["with one", pace], strict=True)
        ratios = [median(worse) / median(alive) for worse, alive in pairs]
        figures.append(
            Figure("daemon_dead", f"token(), {state} to with one, p50, {pace}", median(ratios),
                   "x", spread=spread(ratios))
        )  # fmt: skip
    return [*figures, Figure("daemon_dead", "tokens missing", missing, "", 0)]
