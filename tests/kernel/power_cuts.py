"""`python -m kernel.power_cuts`: daemon and agent at work, the power goes, what is there?

    --count N    cuts (half of them on ext4, half on xfs)
    --seed S     of the first directory
    --full       `walld serve` as a process of its own

A directory lives through several cuts, each under a new daemon and new agents, so that what is
found once must be found again. Between the cut and the kill the daemon goes on for a moment with a
disk that fails: what it acknowledges in that time counts like everything else.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

from . import mounts
from .judge import Judge
from .loop import Loop, kept_offline, options
from .processes import Agent, Daemon, ForkedDaemon, RealDaemon
from .spoiled import spoil as spoil_by_name

__all__ = ["main", "run"]

_CUTS_A_DIRECTORY = 8
_SMALL: tuple[dict[str, int], ...] = (
    {},
    {"SEGMENT_BYTES_MAX": 4096, "INDEX_ENTRIES_MAX": 6, "UNSYNCED_BYTES_MAX": 16384},
)
_BOUNDS_MS = ("20", "50", "200", "3000")
_RECLAIM_SECONDS = ("0", "0.05", "30")


class _Directory:
    """One data directory on one mount, through its cuts."""

    def __init__(
        self,
        loop: Loop,
        mount: mounts.LoopMount,
        seed: int,
        *,
        full: bool,
        spoil: Callable[[], None] | None,
    ) -> None:
        self.loop = loop
        self.mount = mount
        self.seed = seed
        self.random = Random(f"power {mount.kind} {seed}")
        self.full = full
        self.spoil = spoil
        self.judge = Judge(loop.tally.counts)
        self.small = self.random.choice(_SMALL)

    def live(self, cuts: int, folder: Path) -> None:
        """So many cuts; the directory is gone afterwards, unless one of them has failed."""
        data = self.mount.path / "data"
        try:
            for number in range(cuts):
                self._cut(number, folder, data)
                self.loop.tally.did(f"cuts on {self.mount.kind}")
        except BaseException:
            with suppress(OSError):
                shutil.copytree(data, folder / "data", dirs_exist_ok=True)
            raise
        finally:
            shutil.rmtree(data, ignore_errors=True)
            self.mount.sync()  # else the next cut brings it back

    def _start(self, folder: Path, data: Path) -> Daemon:
        flags = {
            "flush_bound_ms": self.random.choice(_BOUNDS_MS),
            "reclaim_seconds": self.random.choice(_RECLAIM_SECONDS),
        }
        if self.full:
            return RealDaemon(folder, data, (), **flags)
        return ForkedDaemon(folder, data, small=self.small, spoil=self.spoil, **flags)

    def _cut(self, number: int, folder: Path, data: Path) -> None:
        daemon = self._start(folder, data)
        early = self.random.random() < 0.1
        names = [f"a{number}.{at}" for at in range(self.random.choice((1, 1, 2)))]
        agents: list[Agent] = []
        try:
            if not early:
                daemon.until_listens()
            if number and self.random.random() < 0.3:
                daemon.until_ready()
                self.judge.check(daemon.replies())
            agents += [Agent(folder, daemon.socket_path, name, self.seed) for name in names]
            self._load(daemon, agents, early)
            self.mount.cut_power()
            time.sleep(self.random.choice((0.0, 0.0, 0.002, 0.02)))
        finally:
            daemon.kill()
            for agent in agents:
                agent.kill()
            self.mount.unmount()
            self.mount.mount()
        for agent in agents:
            agent.check()
            self.judge.promised(agent.board, agent.name, "synced")
            self.judge.said(agent.board, agent.name)
        if (data / "wal").is_dir() or self.judge.expects_any():
            self.judge.check(kept_offline(data))

    def _load(self, daemon: Daemon, agents: list[Agent], early: bool) -> None:
        """A fraction of a second, counted from the first ack; sometimes less than a start takes."""
        seconds = self.random.expovariate(1 / (0.3 if self.full else 0.04))
        if not early:
            board = agents[0].board
            daemon.until(board.is_told, "a first ack")
        time.sleep(min(seconds, 1.5))


def run(
    count: int,
    seed: int,
    kinds: Sequence[str] = mounts.CUTTABLE,
    *,
    full: bool = False,
    spoil: Callable[[], None] | None = None,
) -> Loop:
    """So many cuts, in turn on each kind of file system."""
    loop = Loop("power_cuts", _CUTS_A_DIRECTORY * len(kinds))
    for kind, share in zip(kinds, _shares(count, len(kinds)), strict=True):
        with mounts.mounted(kind) as mount:
            for at in range(0, share, _CUTS_A_DIRECTORY):
                directory = _Directory(loop, mount, seed + at, full=full, spoil=spoil)
                cuts = min(_CUTS_A_DIRECTORY, share - at)
                loop.cycle(seed + at, partial(directory.live, cuts))
    return loop


def _shares(count: int, parts: int) -> list[int]:
    return [count * (at + 1) // parts - count * at // parts for at in range(parts)]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    chosen = options("power_cuts", arguments, 2000)
    usable = []
    for kind in mounts.CUTTABLE:
        reason = mounts.why_not(kind)
        if reason is None:
            usable.append(kind)
        else:
            print(f"skipped {kind}: {reason}")
    if not usable:
        return 0
    spoiled = spoil_by_name(chosen.spoil)
    return run(chosen.count, chosen.seed, usable, full=chosen.full, spoil=spoiled).end(chosen.count)


if __name__ == "__main__":
    sys.exit(main())
