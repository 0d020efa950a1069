"""What a flush costs on NFS while nothing is wrong: RPCs and bytes on the wire.

Owns: three loads (large flushes; large ones, each waited for; small ones) and the budget: at most
one WRITE a flush, no COMMIT but where a sync takes several, and at most 1.1 times the log's bytes
where flushes are of 12 kB or more. Refuses: times (the guest is emulated).

What the daemon asks the file system for beside its writes (is LOCK still mine, is the segment still
there) is printed, not budgeted.
"""

from __future__ import annotations

import time
from typing import Final

from nfs.agents import HUSH, TALK, Pace, PacedAgent, named
from nfs.mountstats import Operation, difference, reading
from nfs.trial import Trial, staged

__all__ = ["run"]

_SECONDS: Final = 12.0
_WIRE_FACTOR_MAX: Final = 1.1
_LARGE_BYTES: Final = 12_000
_SETTLE_SECONDS: Final = 3.0


def run(name: str, options: str) -> list[str]:
    """Its figures."""
    with staged(name, options=options) as trial:
        daemon = trial.started()
        loads = (
            ("large flushes", named("l", 1500, 4000), Pace(tokens_per_second=40)),
            (
                "large, each waited for",
                named("w", 1500, 4000),
                Pace(tokens_per_second=40, drains_every=12, drain_seconds=5.0),
            ),
            ("small flushes", named("s", 1, 20), Pace(tokens_per_second=20)),
        )
        for title, agent_name, pace in loads:
            agent = trial.spawn(daemon, agent_name, pace)
            trial.until(lambda agent=agent: agent.board.is_told(), "a first ack")  # type: ignore[misc]
            _measure(trial, title, agent)
            _hush(trial, agent)
        trial.finish(releases=False)
        trial.end(daemon)
        return trial.figures


def _hush(trial: Trial, agent: PacedAgent) -> None:
    agent.reins.wish = HUSH
    trial.until(lambda: agent.reins.is_quiet and agent.is_all_synced, "all of it synced")
    time.sleep(_SETTLE_SECONDS)  # the batch that says how far the last sync has reached


def _measure(trial: Trial, title: str, agent: PacedAgent) -> None:
    daemon = trial.daemons[0]
    _hush(trial, agent)  # what it has said by now is no part of this
    before, counted = reading(trial.mount), trial.metrics(daemon)
    first = len(agent.reins.times())
    agent.reins.wish = TALK
    time.sleep(_SECONDS)
    agent.reins.wish = HUSH
    trial.until(lambda: agent.reins.is_quiet and agent.is_all_synced, "all of it synced")
    spent, now = difference(before, reading(trial.mount)), trial.metrics(daemon)
    flushes = now["walld_wal_writes_total"] - counted["walld_wal_writes_total"]
    written = now["walld_wal_write_bytes_total"] - counted["walld_wal_write_bytes_total"]
    name = "walld_wal_fsync_duration_seconds_count"
    syncs = now[name] - counted[name]
    calls = len(agent.reins.times()) - first
    none = Operation(0, 0, 0, 0)
    writes, commits = spent.get("WRITE", none), spent.get("COMMIT", none)
    factor = writes.bytes_sent / max(1.0, written)
    others = ", ".join(
        f"{one.asked} {kind}" for kind, one in sorted(spent.items()) if kind != "WRITE"
    )
    trial.figures.append(
        f"{title}: {calls} tokens, {flushes:.0f} flushes of {written / flushes:.0f} B, "
        f"{syncs:.0f} syncs: {writes.asked} WRITE, {commits.asked} COMMIT, "
        f"{writes.bytes_sent} B on the wire, {factor:.3f} times the log's {written:.0f}"
    )
    trial.figures.append(f"  and {others or 'nothing else'}")
    print("\n".join(trial.figures[-2:]), flush=True)
    assert flushes > 5, f"{flushes:.0f} flushes: nothing was measured"
    assert 0 < writes.asked <= flushes, f"{writes.asked} WRITE for {flushes:.0f} flushes"
    # What is more than one WRITE takes (wsize) is stored by a COMMIT behind them.
    several = max(0, writes.asked - syncs)
    assert commits.asked <= several, (
        f"{commits.asked} COMMIT for {writes.asked} WRITE, {syncs:.0f} syncs"
    )
    if written / flushes >= _LARGE_BYTES:
        assert factor <= _WIRE_FACTOR_MAX, f"{factor:.3f} times the log's bytes on the wire"
    else:
        assert "large" not in title, f"flushes of {written / flushes:.0f} B are no large ones"
