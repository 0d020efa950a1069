"""The server is away for ten seconds, under load.

Owns: what must hold meanwhile (agents' calls return, the daemon answers and says degraded, nothing
is acknowledged as synced) and afterwards (all of it is, by itself, whole). Refuses: mounts that
give up (`tried.py`).
"""

from __future__ import annotations

import time
from typing import Final

from nfs.agents import Pace, named, percentile
from nfs.exports import Way
from nfs.trial import Trial, staged

__all__ = ["run"]

_AWAY_SECONDS: Final = 10.0
_CALL_SECONDS_MAX: Final = 2.0
"""What a busy machine may keep a call waiting; the outage is longer."""
_LATE_SECONDS: Final = 1.5
"""From the cut on, until acks that were on their way have been read."""


def run() -> list[str]:
    """Its figures."""
    with staged("outage") as trial:
        daemon = trial.started()
        paces = (Pace(4, 25, drains_every=20), Pace(2, 25, 20, "written"))
        agents = [
            trial.spawn(daemon, named(prefix, least, most), pace)
            for prefix, least, most, pace in (("a", 1, 20, paces[0]), ("b", 200, 400, paces[1]))
        ]
        trial.until(lambda: all(one.board.is_told() for one in agents), "first acks")
        time.sleep(5)
        _figures(trial, "before", [0, 0])
        first = [one.reins.calls for one in agents]
        way = Way()
        way.cut()
        try:
            _away(trial)
        finally:
            way.mend()
        _figures(trial, "server away", first)
        back = trial.until(lambda: daemon.status()["state"] == "ok", "a state that is ok")
        trial.figures.append(f"ok {back:.1f} s after the server was back")
        trial.finish()
        trial.end(daemon)
        return trial.figures


def _away(trial: Trial) -> None:
    daemon = trial.daemons[0]
    begun = time.monotonic()
    time.sleep(_LATE_SECONDS)
    synced = [one.synced for one in trial.agents]
    said = [one.said for one in trial.agents]
    degraded: float | None = None
    slowest = 0.0
    while time.monotonic() - begun < _AWAY_SECONDS:
        asked = time.monotonic()
        state = daemon.status()["state"]
        slowest = max(slowest, time.monotonic() - asked)
        if state == "degraded" and degraded is None:
            degraded = time.monotonic() - begun
        time.sleep(0.1)
    now = [one.synced for one in trial.agents]
    grown = sum(map(sum, (one.said for one in trial.agents))) - sum(map(sum, said))
    trial.figures.append(
        f"away: degraded after {degraded or 0:.1f} s, {grown} events said meanwhile, "
        f"Status answered within {slowest * 1000:.0f} ms"
    )
    assert now == synced, f"acknowledged as synced without a server: {synced} became {now}"
    assert degraded is not None, "the daemon never said that it is degraded"
    assert slowest < _CALL_SECONDS_MAX, f"Status took {slowest:.1f} s"
    assert grown > 0, "nobody talked"


def _figures(trial: Trial, title: str, first: list[int]) -> None:
    for agent, at in zip(trial.agents, first, strict=True):
        times = agent.reins.times(at)
        assert times, "no calls"
        late = agent.reins.drain_late_seconds
        trial.figures.append(
            f"token() {title}: {len(times)} calls, p50 {percentile(times, 0.5) * 1e6:.0f} us, "
            f"p99.9 {percentile(times, 0.999) * 1000:.1f} ms, max {times[-1] * 1000:.1f} ms; "
            f"drain() at most {late * 1000:.0f} ms beyond its time"
        )
        print(trial.figures[-1], flush=True)
        assert times[-1] < _CALL_SECONDS_MAX, f"a token took {times[-1]:.3f} s"
        assert late < _CALL_SECONDS_MAX, f"a drain came back {late:.3f} s late"
