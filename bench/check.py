"""Has walld fallen behind? `python -m bench.check`: the ratios of `floors.json`, in 45 seconds.

Owns: a short look at what waits for walld (`waits`), at `peers` and at `ingest`, and comparing
the ratios with the floors. A floor is a ratio of walld to a rival, or to what the kernel alone
takes, in the same run, so it holds on any machine, and it leaves room for what a busy one does to
it. Exit 1 where a ratio is past its floor, or was not had in 45 seconds though its rival is here: a
walld that hangs has fallen too. A rival that is not here is named, and fails nothing. Refuses:
goals: those are in `python -m bench`, and a floor is below them where they are not met.

The measuring is done by a process of its own (`python -m bench.check FOLDER MEMORY`): when the time
is over, it and all it has started are killed. MEMORY: where `waits` works, a folder that no disk is
under; a sync is then the millisecond that it takes more, whatever others ask of the disk.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import waits
from bench.costs import ingest
from bench.daemon import environment
from bench.machine import choose_cores
from bench.peers import costs
from bench.peers.known import PEERS
from bench.progress import Progress
from bench.report.table import Figure
from bench.run import Run
from bench.supervisor import supervised

__all__ = ["FLOORS", "Verdict", "judged", "main", "measured"]

FLOORS = Path(__file__).parent / "floors.json"
"""Name of a figure: {"least": x} or {"most": x}; and "needs": the peer it is held against."""
SECONDS_MAX = 45.0
_MEMORY = "/dev/shm"
_PART_SECONDS = {"waits": 4.0, "peers": 11.0, "ingest": 10.0}
"""Of each part. One begins no further round when its time and that of those before it is over."""
_TOKEN_PEERS = ("walld", "send", "queue", "json", "redis-everysec")
_INGEST_PEERS = ["walld", "backlog", "wall", "redis"]
_FIGURES = "figures"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One floor. held: None where its rival is not here. line: for people."""

    held: bool | None
    line: str


def judged(figures: Mapping[str, float], floors: Mapping[str, Mapping[str, object]],
           missing: Mapping[str, str], why: str = "not measured") -> list[Verdict]:  # fmt: skip
    """Each floor with the ratio that was measured.

    missing: why a peer is not here, by key. why: a ratio was not had, of a peer that is here.
    """
    verdicts = []
    for name, floor in floors.items():
        least, most = floor.get("least"), floor.get("most")
        says = f"at least {least}" if most is None else f"at most {most}"
        peer = str(floor["needs"])
        if peer in missing:
            verdicts.append(Verdict(None, f"  -    {name}: not measured: {peer} {missing[peer]}"))
            continue
        if name not in figures:
            verdicts.append(Verdict(False, f"FELL   {name}: {why}, and {peer} is here"))
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


# --- measuring, in a process of its own ----------------------------------------------------------


def _waits(run: Run, _until: float) -> list[Figure]:
    return waits.ratios(waits.waited(run, 2.5))


def _peers(run: Run, until: float) -> list[Figure]:
    plan = costs.Plan(4, paced_seconds=0.35, flat_seconds=0.15, flat_calls=2000, until=until)
    return costs.ratios(costs.rounds_of(run, _TOKEN_PEERS, plan))


def _ingest(run: Run, until: float) -> list[Figure]:
    return ingest.ratios(ingest.taken_by(run, _INGEST_PEERS, 4, 0.25, until))


_PARTS: dict[str, Callable[[Run, float], list[Figure]]] = {
    "waits": _waits,
    "peers": _peers,
    "ingest": _ingest,
}


def _measure(folder: Path, memory: Path) -> None:
    """Each part; its ratios are in the file as soon as they are had."""
    progress = Progress(_PART_SECONDS)
    cores = choose_cores()
    os.sched_setaffinity(0, cores.agents)
    until = time.monotonic()
    for name, part in _PARTS.items():
        progress.begin(name)
        until += _PART_SECONDS[name]
        try:
            place = memory if name == "waits" else folder
            figures = part(Run(place / name[:2], cores, True, progress.step), until)
        except Exception:
            progress.close()
            traceback.print_exc()
            continue
        with (folder / _FIGURES).open("a") as file:
            file.writelines(json.dumps([one.name, one.value]) + "\n" for one in figures)
        progress.end()
    progress.close()


def measured(
    folder: Path, memory: Path, seconds: float = SECONDS_MAX
) -> tuple[dict[str, float], bool]:
    """(the ratios of a short run, whether it came to its end in that time)."""
    command = [sys.executable, "-m", "bench.check", str(folder), str(memory)]
    # Its line of progress is for the terminal itself.
    process = subprocess.Popen(command, env=environment(), process_group=0, stderr=sys.stderr)
    ended = False
    try:
        process.wait(seconds)
        ended = True
    except subprocess.TimeoutExpired:
        pass
    finally:
        if not ended:
            os.killpg(process.pid, signal.SIGKILL)  # it, its agents, its servers
            process.wait()
    file = folder / _FIGURES
    lines = file.read_text().splitlines() if file.exists() else []
    return dict(json.loads(line) for line in lines), ended


def _missing() -> dict[str, str]:
    """Why a peer is not here."""
    reasons = {key: PEERS[key]().why_not() for key in _TOKEN_PEERS}
    return {key: reason for key, reason in reasons.items() if reason is not None}


@contextmanager
def _folder(within: str | None = None) -> Iterator[Path]:
    """A new one, gone afterwards, where it may be: who was killed may still have a hand in it."""
    with tempfile.TemporaryDirectory(
        prefix="walldb", dir=within, ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


def main() -> int:
    """The exit code."""
    begun = time.monotonic()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    within = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with _folder() as folder, _folder(within) as memory:
        figures, ended = measured(folder, memory)
    why = "not measured" if ended else f"not measured in {SECONDS_MAX:.0f} s"
    verdicts = judged(figures, json.loads(FLOORS.read_text()), _missing(), why)
    for verdict in verdicts:
        print(verdict.line)
    held, fallen, absent = (
        sum(one.held is kind for one in verdicts) for kind in (True, False, None)
    )
    print(f"{held} held, {fallen} fell, {absent} not measured, {time.monotonic() - begun:.0f} s, "
          f"load {os.getloadavg()[0]:.1f}")  # fmt: skip
    return 1 if fallen else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _measure(*map(Path, sys.argv[1:]))
    else:
        sys.exit(supervised(main))
