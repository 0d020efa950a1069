"""The faults: what is done to a store that is written to flat out.

Owns: each of them, from the start of the store to the counts. Refuses: knowing any store.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from kernel import mounts

from . import events
from .judge import Counts
from .tracing import failing_sync
from .trial import MakeStore, Trial, trial

__all__ = ["FAULTS", "Fault"]

Run = Callable[[MakeStore, Path, Random], Counts]

_LOAD_SECONDS: Final = 0.15
_CUT_SECONDS: Final = (0.1, 1.6)
"""Longer, because some stores sync once a second."""
_LONG_EVERY: Final = 5
_LONG_SECONDS: Final = 8.0
_LONG_PAUSE_SECONDS: Final = 0.002
"""Of so many cuts one comes this late, to see how far back a loss can reach."""
_FAILING_MIB: Final = 48
_FULL_KB: Final = 24 * 1024
_FULL_LEAVE: Final = 1_500_000
_FULL_SECONDS_MAX: Final = 3.0
_STUCK_SECONDS: Final = 10.0
"""A store that takes nothing so long after there is room again is started again."""


@dataclass(frozen=True)
class Fault:
    """needs_server: there is nothing to do it to where the store lives in its writer.

    why_not: why it cannot be done on this machine.
    """

    name: str
    run: Run
    needs_server: bool = False
    why_not: Callable[[], str | None] = lambda: None


def _no_fault(make: MakeStore, home: Path, random: Random) -> Counts:
    """The control: what is counted elsewhere is the fault's, not the adapter's.

    Nobody is killed: behind a slow sync Redis keeps what it has acknowledged in its own memory, for
    up to 2 s (`appendfsync everysec`), and a SIGKILL then is a fault like another.
    """
    with trial(make, home, _folder(home), random) as one:
        one.store.start()
        writer = one.write()
        writer.until(random.randrange(20, 200))
        writer.stop()
        writer.kill()
        one.store.stop()
        return one.count()


# --- kills ----------------------------------------------------------------------------------------


def _writer_killed(make: MakeStore, home: Path, random: Random) -> Counts:
    with trial(make, home, _folder(home), random) as one:
        one.store.start()
        writer = one.write()
        _load(writer.until, random)
        writer.kill()
        return one.count()


def _server_killed(make: MakeStore, home: Path, random: Random) -> Counts:
    """Its writer lives, and goes on with the next server."""
    with trial(make, home, _folder(home), random) as one:
        one.store.start()
        writer = one.write()
        _load(writer.until, random)
        one.store.kill()
        time.sleep(random.choice((0.0, 0.02, 0.2)))
        one.store.start()
        writer.until(writer.notes.acked + 1)
        time.sleep(random.expovariate(1 / 0.05))
        writer.stop()
        return one.count()


def _both_killed(make: MakeStore, home: Path, random: Random) -> Counts:
    with trial(make, home, _folder(home), random) as one:
        one.store.start()
        writer = one.write()
        _load(writer.until, random)
        for kill in random.sample((one.store.kill, writer.kill), 2):
            kill()
        return one.count()


def _torn(make: MakeStore, home: Path, random: Random) -> Counts:
    """Killed in the middle of long writes; then another writer goes on where it ended."""
    with trial(make, home, _folder(home), random) as one:
        one.store.start()
        writer = one.write(events.LARGE)
        writer.until(1)
        time.sleep(random.expovariate(1 / 0.05))
        one.kill_all()
        one.store.start()
        second = one.write(events.LARGE)
        second.until(5)
        second.stop()
        second.kill()
        one.store.kill()
        return one.count()


# --- the power ------------------------------------------------------------------------------------


def _power_cut(kind: str, make: MakeStore, home: Path, random: Random) -> Counts:
    with _mount(kind) as mount, trial(make, home, mount.path, random) as one:
        _settled(mount, one)
        is_long = random.randrange(_LONG_EVERY) == 0
        writer = one.write(pause_seconds=_LONG_PAUSE_SECONDS if is_long else 0.0)
        writer.until(1)
        time.sleep(_LONG_SECONDS if is_long else random.uniform(*_CUT_SECONDS))
        _cut(mount, one)
        return _counted(one)


def _sync_fails(make: MakeStore, home: Path, random: Random) -> Counts:
    """One sync says EIO, then the power goes."""
    with _mount("ext4") as mount, trial(make, home, mount.path, random) as one:
        _settled(mount, one)
        writer = one.write(waits=True)
        with failing_sync(one.store.pid() or writer.pid, home / "strace.log") as failed:
            writer.go()
            writer.until(1, or_error=True)
            _wait(failed, 2 * _CUT_SECONDS[1])
            time.sleep(random.choice((0.0, 0.002, 0.02, 0.2)))
            _cut(mount, one)
        return _counted(one)


def _device_fails(make: MakeStore, home: Path, random: Random) -> Counts:
    """The device cannot store some blocks, for a while; the page cache took them ("fsyncgate").

    Who syncs hears of it once, and a second sync of the same pages says that all is well. Then all
    is well, more is said, and the power goes.
    """
    with (
        mounts.tmpfs((_FAILING_MIB + 2) * 1024) as store,
        mounts.mounted("ext4", _FAILING_MIB, store) as mount,
        trial(make, home, mount.path, random) as one,
    ):
        mount.page_by_page()
        _settled(mount, one)
        mount.trim()  # with nobody writing: what comes later finds its room in the image gone
        writer = one.write()
        writer.until(1)
        ballast = store / "ballast"
        for _ in range(3):  # what was trimmed is given back bit by bit
            _fill(ballast, leave=0)
            time.sleep(0.02)
        _wait(lambda: bool(writer.notes.errors), random.uniform(0.3, 1.0))
        ballast.unlink()
        one.revive()
        before = writer.notes.acked
        _wait(lambda: writer.notes.acked > before, _STUCK_SECONDS)
        time.sleep(random.uniform(0.0, 0.5))
        _cut(mount, one)
        return _counted(one)


def _settled(mount: mounts.LoopMount, one: Trial) -> None:
    """A store that has been there for a while: what its start made is on the disk."""
    one.store.start()
    mount.sync()


def _cut(mount: mounts.LoopMount, one: Trial) -> None:
    """From now on nothing reaches the device; a moment later nobody runs; then it is back."""
    one.struck()
    mount.cut_power()
    time.sleep(one.random.choice((0.0, 0.002, 0.02)))
    one.kill_all()
    mount.unmount()
    mount.mount()


def _counted(one: Trial) -> Counts:
    """What lies on a mount is read while that is there, and its reader is gone before it goes."""
    try:
        return one.count()
    finally:
        one.kill_all()


@contextmanager
def _mount(kind: str) -> Iterator[mounts.LoopMount]:
    megabytes = 128 if kind == "ext4" else None
    with mounts.mounted(kind, megabytes) as mount:
        yield mount


# --- room, and bits -------------------------------------------------------------------------------


def _disk_full(make: MakeStore, home: Path, random: Random) -> Counts:
    """No room while it is written to, then room again; a server that has ended is started again."""
    with mounts.tmpfs(_FULL_KB) as root, trial(make, home, root, random) as one:
        one.store.start()
        ballast = root / "ballast"
        _fill(ballast, leave=_FULL_LEAVE + random.randrange(500_000))
        writer = one.write()
        writer.until(1)
        _wait(lambda: _room(root) < 8192 or bool(writer.notes.errors), _FULL_SECONDS_MAX)
        time.sleep(random.uniform(0.05, 0.3))
        ballast.unlink()
        one.revive()
        before = writer.notes.acked
        if not _wait(lambda: writer.notes.acked > before, _STUCK_SECONDS):
            one.revive(is_stuck=True)
        writer.until(before + 1)
        time.sleep(random.expovariate(1 / 0.1))
        one.revive()
        writer.stop()
        one.kill_all()
        return _counted(one)


def _room(root: Path) -> int:
    free = os.statvfs(root)
    return free.f_bavail * free.f_frsize


def _fill(path: Path, leave: int) -> None:
    """Take all room but so many bytes."""
    with path.open("ab", buffering=0) as file, suppress(OSError):
        while (size := _room(path.parent) - leave) > 0:
            if file.write(bytes(min(size, 1 << 20))) == 0:
                return


def _bit_flipped(make: MakeStore, home: Path, random: Random) -> Counts:
    """One bit, in the middle half of what was acknowledged, synced and left alone."""
    with trial(make, home, _folder(home), random) as one:
        one.store.start()
        writer = one.write()
        writer.until(random.randrange(100, 1000))
        writer.stop()
        one.kill_all()
        _flip(one.store.files(), random)
        return one.count()


def _flip(files: Sequence[Path], random: Random) -> None:
    """Zeros at the end of a file are room, not data."""
    used = [(path, len(path.read_bytes().rstrip(b"\0"))) for path in files]
    whole = sum(length for _, length in used)
    assert whole > 0, f"nothing lies in {files}"
    at = random.randrange(whole // 4, whole * 3 // 4)
    for path, length in used:
        if at < length:
            content = bytearray(path.read_bytes())
            content[at] ^= 1 << random.randrange(8)
            path.write_bytes(content)
            return
        at -= length


# --- shared ---------------------------------------------------------------------------------------


def _folder(home: Path) -> Path:
    folder = home / "kept"
    folder.mkdir()
    return folder


def _load(until: Callable[[int], None], random: Random) -> None:
    """A while of writing, counted from the first acknowledgement."""
    until(1)
    time.sleep(random.expovariate(1 / _LOAD_SECONDS))


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    """Until it is so, and no longer than that. Whether it is."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def _no_strace() -> str | None:
    if shutil.which("strace") is None:
        return "needs strace (Debian: apt-get install strace)"
    return mounts.why_not("ext4")


FAULTS: Final = (
    Fault("no fault", _no_fault),
    Fault("writer killed", _writer_killed),
    Fault("server killed, writer lives", _server_killed, needs_server=True),
    Fault("all killed", _both_killed),
    Fault("all killed in long writes, then another writer", _torn),
    Fault("power cut, ext4", partial(_power_cut, "ext4"), why_not=lambda: mounts.why_not("ext4")),
    Fault("power cut, xfs", partial(_power_cut, "xfs"), why_not=lambda: mounts.why_not("xfs")),
    Fault("one sync fails, power cut", _sync_fails, why_not=_no_strace),
    Fault(
        "device fails for a while, power cut",
        _device_fails,
        why_not=lambda: mounts.why_not("ext4"),
    ),
    Fault("disk full, then room", _disk_full, why_not=lambda: mounts.why_not("ext4")),
    Fault("one bit flipped", _bit_flipped),
)
