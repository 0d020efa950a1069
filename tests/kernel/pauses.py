"""`python -m kernel.pauses`: a daemon that stands still, runs out of memory, or loses the time.

    --count N    cycles, in turn of each kind
    --seed S     of the first

- stopped: SIGSTOP for one to five seconds, then SIGCONT. Agents go on meanwhile.
- memory: the kernel kills the daemon for want of it, in a cgroup with little; another one comes.
- clock: the daemon's wall clock jumps an hour back and a day ahead while it serves. Every deadline
  is of the other clock.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from .lives import Life
from .load import Habits
from .loop import Loop, options
from .processes import Daemon, ForkedDaemon, RealDaemon

__all__ = ["main", "run", "why_not"]

_CALL_SECONDS_MAX: Final = 1.0
"""What a busy machine may keep a call waiting; a daemon stands still for longer."""
_HABITS: Final = Habits(levels=("written",), drains=0.1, bursts=10, patience_seconds=2)
_CGROUPS: Final = Path("/sys/fs/cgroup/memory")
_FAKETIME: Final = ("libfaketime.so.1", "faketime/libfaketime.so.1")
_LIBRARIES: Final = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib")


def _stopped(loop: Loop, seed: int, folder: Path) -> None:
    random = Random(f"stopped {seed}")
    life = Life(loop, seed, folder)
    with life.lived():
        life.until_listens()
        agent = life.spawn(_HABITS)
        life.until(lambda: agent.board.streams > 0, "a first word")
        time.sleep(random.expovariate(1 / 0.05))
        life.daemon.signal(signal.SIGSTOP)
        late = life.spawn(_HABITS)
        time.sleep(random.uniform(1.0, 5.0))
        assert late.board.streams > 0, "it speaks to a daemon that stands still"
        life.daemon.signal(signal.SIGCONT)
        life.until_finished()
        loop.tally.did("stops and continuations")
        _never_waited(life)
        life.end()


class _Cramped(Life):
    """Its first daemon has little memory."""

    def first_daemon(self) -> Daemon:
        mib = Random(f"memory {self.seed}").uniform(4.0, 16.0)
        cgroup = self.cgroup = _CGROUPS / f"walld-{os.getpid()}-{self.seed}"
        cgroup.mkdir()
        (cgroup / "memory.limit_in_bytes").write_text(str(int(mib * (1 << 20))))

        def enter() -> None:
            (cgroup / "cgroup.procs").write_text(str(os.getpid()))

        return ForkedDaemon(self.folder, self.data, small=None, spoil=enter, **self.flags)

    def out_of_memory(self) -> int:
        """How often the kernel has killed in it."""
        text = (self.cgroup / "memory.oom_control").read_text()
        return int(text.partition("oom_kill ")[2].split()[0])


def _memory(loop: Loop, seed: int, folder: Path) -> None:
    life = _Cramped(loop, seed, folder)
    try:
        with life.lived():
            life.until_listens()
            life.spawn(Habits(levels=("written",), streams=8, bursts=20))
            life.spawn()
            life.until_finished()
            killed = life.out_of_memory()
            assert bool(killed) == bool(life.deaths), "nothing else ends it"
            loop.tally.did("kills for want of memory" if killed else "runs with memory enough")
            life.end()
    finally:
        life.cgroup.rmdir()


class _Timeless(Life):
    """Its first daemon reads its wall clock from a file."""

    def first_daemon(self) -> Daemon:
        self.clock = self.folder / "clock"
        self.jump("+0")
        wrapper = (
            "env",
            f"LD_PRELOAD={_library()}",
            f"FAKETIME_TIMESTAMP_FILE={self.clock}",
            "FAKETIME_NO_CACHE=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        )
        return RealDaemon(self.folder, self.data, wrapper, **self.flags)

    def jump(self, to: str) -> None:
        new = self.clock.with_suffix(".new")
        new.write_text(to + "\n")
        new.replace(self.clock)


def _clock(loop: Loop, seed: int, folder: Path) -> None:
    random = Random(f"clock {seed}")
    life = _Timeless(loop, seed, folder)
    with life.lived():
        life.until_listens()
        life.spawn(Habits(bursts=20, drains=0.2))
        life.spawn(_HABITS)
        for jump in ("-1h", "+1d", "+0", "-1d"):
            time.sleep(random.expovariate(1 / 0.1))
            life.jump(jump)
            loop.tally.did("jumps of the clock")
        life.until_finished()
        _never_waited(life)
        life.end()


def _never_waited(life: Life) -> None:
    """P7: agents never block."""
    slowest = max(agent.board.slowest_seconds for agent in life.agents)
    assert slowest < _CALL_SECONDS_MAX, f"a token took {slowest:.3f} s"


def _library() -> str | None:
    places = (f"{folder}/{name}" for folder in _LIBRARIES for name in _FAKETIME)
    return next((place for place in places if os.path.exists(place)), None)


def why_not(kind: str) -> str | None:
    """Why that cannot be done here; None where it can."""
    if kind == "memory":
        try:
            with _a_cgroup():
                return None
        except OSError as error:
            return f"needs a memory cgroup (v1) it may make: {error}"
    if kind == "clock" and _library() is None:
        return "needs libfaketime (Debian: apt-get install faketime)"
    return None


@contextmanager
def _a_cgroup() -> Iterator[None]:
    path = _CGROUPS / f"walld-{os.getpid()}"
    path.mkdir()
    try:
        (path / "memory.limit_in_bytes").write_text(str(1 << 30))
        yield
    finally:
        path.rmdir()


_KINDS: Final[dict[str, Callable[[Loop, int, Path], None]]] = {
    "stopped": _stopped,
    "memory": _memory,
    "clock": _clock,
}


def run(count: int, seed: int, kinds: Sequence[str]) -> Loop:
    """So many, in turn."""
    loop = Loop("pauses")
    for number in range(seed, seed + count):
        loop.cycle(number, partial(_KINDS[kinds[number % len(kinds)]], loop, number))
    return loop


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    chosen = options("pauses", arguments, 60)
    usable = []
    for kind in _KINDS:
        reason = why_not(kind) if chosen.kind in kind else "not asked for"
        if reason is None:
            usable.append(kind)
        else:
            print(f"skipped {kind}: {reason}")
    return run(chosen.count, chosen.seed, usable).end(chosen.count) if usable else 0


if __name__ == "__main__":
    sys.exit(main())
