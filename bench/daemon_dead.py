"""What does a token cost the agent while there is no daemon?

One agent, one reply: token() at 60 a second and flat out, first with a daemon that listens, then
with the same killed (SIGKILL), whom another one on its data follows, round by round. The client
keeps what it may not send and tries to connect again beside it. At the end the last daemon must
have every token, and none may have been dropped.

p50 and p99 are the medians of the rounds' own, p99.9 is of all calls; a ratio is one within a
round.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product

from walld_client import connect
from walld_client.reply import Reply

from bench.daemon import PATIENCE_SECONDS, Daemon
from bench.numbers import median, quantile, spread
from bench.run import Run
from bench.table import Figure

__all__ = ["measure"]

_TEXT = "walls "
_RATE = 60
_SHARES = {"p50": 0.5, "p99": 0.99}
_PACES = ("60/s", "flat out")
_STATES = ("no daemon", "with one")


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
            for number in range(rounds):
                run.step(number / rounds, f"round {number + 1} of {rounds}")
                with Daemon(home, run.cores.daemon) as daemon:
                    reply.token(_TEXT)
                    assert reply.drain(PATIENCE_SECONDS), client.stats()
                    for pace in _PACES:
                        took["with one", pace].append(_spoken(reply, pace, counts[pace]))
                    daemon.kill()
                    for pace in _PACES:
                        took["no daemon", pace].append(_spoken(reply, pace, counts[pace]))
                said += 1 + 2 * sum(counts.values())
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
        for share, at in _SHARES.items():
            each = [quantile(one, at) for one in values]
            figures.append(
                Figure("daemon_dead", f"token(), {state}, {share}, {pace}", median(each), "us",
                       spread=spread(each))
            )  # fmt: skip
        calls = [us for one in values for us in one]
        figures.append(
            Figure("daemon_dead", f"token(), {state}, p99.9, {pace}", quantile(calls, 0.999), "us",
                   note=f"{pace}: p99.9 of {len(calls):,} calls")
        )  # fmt: skip
    for pace in _PACES:
        pairs = zip(took["no daemon", pace], took["with one", pace], strict=True)
        ratios = [median(dead) / median(alive) for dead, alive in pairs]
        figures.append(
            Figure("daemon_dead", f"token(), no daemon to with one, p50, {pace}", median(ratios),
                   "x", spread=spread(ratios))
        )  # fmt: skip
    return [*figures, Figure("daemon_dead", "tokens missing", missing, "", 0)]
