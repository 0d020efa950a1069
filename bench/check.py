"""Has walld fallen behind? `python -m bench.check`: the ratios of `floors.json`, in 45 seconds.

Owns: a short run of the questions `peers` and `ingest`, and comparing its ratios with the floors. A
floor is a ratio of walld to a rival in the same run, so it holds on any machine, and it leaves room
for what a busy one does to it. Exit 1 where a ratio is past its floor or could not
be had though its rival is here; a rival that is not here is named, and fails nothing. Refuses:
goals: those are in `python -m bench`, and a floor is below them where they are not met.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import ingest
from bench.machine import choose_cores
from bench.peers import costs
from bench.peers.known import PEERS
from bench.progress import Progress
from bench.run import Run
from bench.table import Figure

__all__ = ["FLOORS", "Verdict", "judged", "main", "measured"]

FLOORS = Path(__file__).parent / "floors.json"
"""Name of a figure: {"least": x} or {"most": x}; and "needs": the peer it is held against."""
_TOKEN_PEERS = ("walld", "send", "queue", "json", "redis-everysec")
_INGEST_PEERS = ["walld", "backlog", "wall", "redis"]
_PLAN = costs.Plan(rounds=4, paced_seconds=0.35, flat_seconds=0.15, flat_calls=2000)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One floor. line: for people."""

    held: bool
    line: str


def judged(figures: Mapping[str, float], floors: Mapping[str, Mapping[str, object]],
           missing: Mapping[str, str]) -> list[Verdict]:  # fmt: skip
    """Each floor with the ratio that was measured. missing: why a peer is not here, by key."""
    verdicts = []
    for name, floor in floors.items():
        least, most = floor.get("least"), floor.get("most")
        says = f"at least {least}" if most is None else f"at most {most}"
        peer = str(floor["needs"])
        if peer in missing:
            verdicts.append(Verdict(True, f"  -    {name}: not measured: {peer} {missing[peer]}"))
            continue
        if name not in figures:
            verdicts.append(Verdict(False, f"FELL   {name}: not measured, and {peer} is here"))
            continue
        value = figures[name]
        held = True  # NaN holds neither
        if isinstance(least, int | float):
            held = value >= least
        if isinstance(most, int | float):
            held = held and value <= most
        verdicts.append(
            Verdict(held, f"{'held ' if held else 'FELL '}  {name}: {value:.3g}, {says}")
        )
    return verdicts


def measured(folder: Path) -> list[Figure]:
    """The ratios, from a short run."""
    progress = Progress({"peers": 25.0, "ingest": 15.0})
    cores = choose_cores()
    os.sched_setaffinity(0, cores.agents)
    run = Run(folder, cores, True, progress.step)
    progress.begin("peers")
    figures = costs.ratios(costs.rounds_of(run, _TOKEN_PEERS, _PLAN))
    progress.end()
    progress.begin("ingest")
    figures += ingest.ratios(ingest.taken_by(run, _INGEST_PEERS, 3, 0.3))
    progress.end()
    progress.close()
    return figures


def _missing() -> dict[str, str]:
    """Why a peer is not here."""
    reasons = {key: PEERS[key]().why_not() for key in _TOKEN_PEERS}
    return {key: reason for key, reason in reasons.items() if reason is not None}


def main() -> int:
    """The exit code."""
    begun = time.monotonic()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    folder = Path(tempfile.mkdtemp(prefix="walldb"))
    try:
        figures = {figure.name: figure.value for figure in measured(folder)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    verdicts = judged(figures, json.loads(FLOORS.read_text()), _missing())
    for verdict in verdicts:
        print(verdict.line)
    fallen = sum(not verdict.held for verdict in verdicts)
    print(f"{len(verdicts) - fallen} of {len(verdicts)} floors held, "
          f"{time.monotonic() - begun:.0f} s, load {os.getloadavg()[0]:.1f}")  # fmt: skip
    return 1 if fallen else 0


if __name__ == "__main__":
    sys.exit(main())
