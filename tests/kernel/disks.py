"""`python -m kernel.disks`: a disk that is full, that fails, that does not answer.

    --count N    cycles, in turn of each kind
    --seed S     of the first

- full: a file system of a few MiB, nearly filled; writes are taken in part, then refused. Some of
  these daemons are killed while there is no room. Then there is room again.
- failing: blocks that the device cannot store, while the page cache took them: the loop device's
  image lies on a tmpfs without room. The first sync says so, a second one of the same file would
  not ("fsyncgate"). Then there is room again, all is said and synced, and the power is cut. Where
  the kernel has made the file system read-only for it, it is mounted again under the agents.
- stalled: a frozen file system; each write and sync waits for ten seconds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from . import mounts
from .board import Board
from .lives import Life
from .load import Habits
from .loop import Loop, options
from .spoiled import spoil as spoil_by_name

__all__ = ["cut", "fill", "main", "run"]

_CALL_SECONDS_MAX: Final = 2.0
"""What a busy machine may keep a call waiting; the stall is longer."""
_STALL_SECONDS: Final = 10.0
_HABITS: Final = Habits(levels=("written",), drains=0.1, streams=6, bursts=10, patience_seconds=2)
_SMALL: Final = {"DISK_RETRY_SECONDS": 0.05, "DISK_RETRY_SECONDS_MAX": 0.1}
_MIB: Final = 1 << 20
_FAILING_MIB: Final = {"ext4": 24, "xfs": 300, "btrfs": 128}
_FULL_ON: Final = {"tmpfs": 8, "ext4": 8, "btrfs": 114}
"""MiB of each; the smallest that mkfs makes."""

Spoil = Callable[[], None] | None


def _full(kind: str, loop: Loop, spoil: Spoil, seed: int, folder: Path) -> None:
    random = Random(f"full {seed}")
    with _little_room(kind, _FULL_ON[kind]) as root:
        data = root / "data"
        life = Life(loop, seed, folder, data, small=_SMALL, spoil=spoil)
        with life.lived():
            life.until_listens()
            life.until(lambda: life.daemon.status()["state"] != "recovering", "a start")
            ballast = root / "ballast"
            fill(ballast, leave=random.randrange(200_000))
            agent = life.spawn(_HABITS)
            life.spawn(_HABITS)
            life.until(
                lambda: life.daemon.status()["state"] == "disk_full" or agent.board.is_finished,
                "a full disk",
            )
            loop.tally.did(f"full {kind}, {life.daemon.status()['state']}")
            time.sleep(random.expovariate(1 / 0.05))
            if random.random() < 0.5:
                life.daemon.kill()
                life.died()
                loop.tally.did("kills on a full disk")
            ballast.unlink()
            mounts.sync_all(root)  # btrfs frees room as it commits, which it does each 30 s
            life.until_finished()
            _never_waited(life)
            life.end()


@contextmanager
def _little_room(kind: str, megabytes: int) -> Iterator[Path]:
    if kind == "tmpfs":
        with mounts.tmpfs(megabytes * 1024) as path:
            yield path
    else:
        with mounts.mounted(kind, megabytes) as mount:
            yield mount.path


def fill(path: Path, leave: int) -> None:
    """Take all room but so many bytes."""
    with path.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            free = os.statvfs(path.parent)
            size = free.f_bavail * free.f_frsize - leave
            if size <= 0 or file.write(bytes(min(size, _MIB))) == 0:
                return


def _failing(kind: str, loop: Loop, spoil: Spoil, seed: int, folder: Path) -> None:
    random = Random(f"failing {seed}")
    megabytes = _FAILING_MIB[kind]
    with (
        mounts.tmpfs((megabytes + 2) * 1024) as store,
        mounts.mounted(kind, megabytes, store) as mount,
    ):
        mount.page_by_page()
        life = Life(loop, seed, folder, mount.path / "data", small=_SMALL, spoil=spoil)
        with life.lived():
            life.until_listens()
            life.until(lambda: life.daemon.status()["state"] != "recovering", "a start")
            mount.trim()  # with nobody writing: what comes later finds its room in the image gone
            habits = Habits(levels=("written", "synced"), drains=0.2, patience_seconds=2)
            agent = life.spawn(habits)
            life.until(agent.board.is_told, "a first ack")
            for _ in range(5):  # what was trimmed is given back bit by bit
                fill(store / "ballast", leave=0)
                time.sleep(0.02)
            failed = False
            while not failed and len(life.agents) < 5:  # some of it may still find room
                board = life.spawn(habits).board
                life.until(partial(_in_trouble_or_finished, life, board), "trouble, or none")
                failed = _in_trouble(life)
            time.sleep(random.expovariate(1 / 0.1))
            (store / "ballast").unlink()
            life.until(lambda: mount.is_read_only() or _are_finished(life), "the end, or no disk")
            if mount.is_read_only():  # btrfs, where its own trees could not be written
                status = life.daemon.status()
                assert "Read-only file system" in status["trouble"], status
                loop.tally.did(f"mounts of {kind} that the kernel made read-only")
                life.lost_its_disk(partial(cut, mount))
            life.until_finished()
            loop.tally.did(f"{'syncs that failed' if failed else 'nothing'} on {kind}")
            _never_waited(life)
            life.end(partial(cut, mount))


def _in_trouble(life: Life) -> bool:
    return "disk trouble: " in life.logged(life.daemon.log)


def _are_finished(life: Life) -> bool:
    return all(agent.board.is_finished for agent in life.agents)


def _in_trouble_or_finished(life: Life, board: Board) -> bool:
    return _in_trouble(life) or board.is_finished


def cut(mount: mounts.LoopMount) -> None:
    """The power; then it is mounted again.

    btrfs has no shutdown: there an unmount writes what is dirty still, and only what the kernel
    dropped when a sync failed is gone.
    """
    if mount.kind in mounts.CUTTABLE:
        mount.cut_power()
    mount.unmount()
    mount.mount()


def _stalled(kind: str, loop: Loop, spoil: Spoil, seed: int, folder: Path) -> None:
    random = Random(f"stalled {seed}")
    with mounts.mounted(kind) as mount:
        life = Life(loop, seed, folder, mount.path / "data", spoil=spoil)
        with life.lived():
            life.until_listens()
            agent = life.spawn(_HABITS)
            life.until(lambda: agent.board.streams > 0, "a first word")
            # A start that meets a disk that hangs recovers, and is not degraded.
            life.until(lambda: life.daemon.status()["state"] == "ok", "a daemon that is ready")
            time.sleep(random.expovariate(1 / 0.05))
            mount.freeze()
            try:
                begun = time.monotonic()
                life.spawn(_HABITS)
                life.until(lambda: life.daemon.status()["state"] == "degraded", "it says so")
                assert life.daemon.replies() is not None, "queries are answered meanwhile"
                time.sleep(max(0.0, begun + _STALL_SECONDS - time.monotonic()))
            finally:
                mount.thaw()
            life.until_finished()
            loop.tally.did(f"stalls of {_STALL_SECONDS:.0f} s")
            _never_waited(life)
            life.end(partial(cut, mount))


def _never_waited(life: Life) -> None:
    """P7: agents never block."""
    slowest = max(agent.board.slowest_seconds for agent in life.agents)
    assert slowest < _CALL_SECONDS_MAX, f"a token took {slowest:.3f} s"


_Cycle = Callable[[str, Loop, Spoil, int, Path], None]
_KINDS: Final[dict[str, tuple[_Cycle, str]]] = {
    **{f"full on {kind}": (_full, kind) for kind in _FULL_ON},
    **{f"failing on {kind}": (_failing, kind) for kind in _FAILING_MIB},
    **{f"stalled on {kind}": (_stalled, kind) for kind in mounts.CUTTABLE},
}
"""What happens to the disk, and its file system."""
_STALLED_EVERY: Final = 40


def run(names: Sequence[str], count: int, seed: int, spoil: Spoil = None) -> Loop:
    """So many, in turn; a stall takes its time and has a turn now and then."""
    loop = Loop("disks")
    slow = [name for name in names if name.startswith("stalled")]
    quick = [name for name in names if name not in slow] or slow
    for number in range(seed, seed + count):
        name = quick[number % len(quick)]
        if number % _STALLED_EVERY == 0 and slow:
            name = slow[number // _STALLED_EVERY % len(slow)]
        make, kind = _KINDS[name]
        loop.cycle(number, partial(make, kind, loop, spoil, number))
    return loop


def _possible(names: Sequence[str]) -> list[str]:
    """Without those whose file system cannot be mounted here, which is printed."""
    reasons = {kind: mounts.why_not(kind) for kind in sorted({_KINDS[name][1] for name in names})}
    for kind, reason in reasons.items():
        if reason is not None:
            print(f"skipped, all on {kind}: {reason}", flush=True)
    return [name for name in names if reasons[_KINDS[name][1]] is None]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    chosen = options("disks", arguments, 200)
    names = _possible([name for name in _KINDS if chosen.kind in name])
    if not names:
        print("skipped: none of these can be here")
        return 0
    spoil = spoil_by_name(chosen.spoil)
    return run(names, chosen.count, chosen.seed, spoil).end(chosen.count)


if __name__ == "__main__":
    sys.exit(main())
