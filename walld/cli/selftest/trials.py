"""Runs all probes of `walld selftest` in order and reports each.

Owns: the order of the probes, the short ones first, the time each has, the folder they leave
nothing of, and the process they run in. Refuses: waiting for that process (`watchdog.py`), what
the answers mean (`command.py`).

Only this process touches the directory: a disk that hangs keeps it, whatever signal it gets, and
nobody else.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection

from walld.cli.selftest import probes
from walld.cli.selftest.mounts import mount_of
from walld.cli.selftest.probes import Probe
from walld.cli.selftest.termination import SIGNALS, Ended, ending, held, opened
from walld.cli.selftest.torn_write import Kills, kill_writers
from walld.disk.real import RealDisk
from walld.errors import WalldError

__all__ = ["PROBES", "SYNC", "WRITERS", "Tell", "main", "try_all"]

SYNC, WRITERS = "sync", "killed writers"
_REMOVAL = "removal"
PROBES: dict[str, Callable[[RealDisk], Probe]] = {
    "exclusive create": probes.exclusive,
    "space": probes.space,
    "directory sync": probes.directory_sync,
    "rename": probes.rename,
    "names": probes.names,
    "read without waiting": probes.read_cached,
    "lock": lambda disk: probes.lock(disk.root),
}
_SHARE = {"latency": 0.25, "kills": 0.9}
"""At which share of the time each of the two long probes ends."""

Tell = Callable[[str, object], None]
"""("step", a name) before it is tried; "mount", "probe", "latency", "kills", "note" and what it is.

("error", an OSError): the directory is not there. ("bug", a traceback). ("done", None): all of it.
"""


def main() -> None:
    """The process: descriptor to tell on, directory, folder, begun, seconds, deadline."""
    fd, directory, folder, *numbers = sys.argv[1:]
    begun, seconds, deadline = (float(number) for number in numbers)
    told = Connection(int(fd), readable=False)

    def tell(kind: str, value: object) -> None:
        told.send((kind, value))

    try:
        with ending():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # who started this had them held
            try_all(directory, folder, begun, seconds, deadline, tell)
    except (Ended, BrokenPipeError):
        return  # nobody wants to know any more
    except OSError as error:
        tell("error", error)
    except Exception:
        tell("bug", traceback.format_exc())


def try_all(
    directory: str, folder: str, begun: float, seconds: float, deadline: float, tell: Tell
) -> None:
    """All of it; what the deadline leaves no time for is not told. OSError: no such directory."""
    tell("step", "mount")
    tell("mount", mount_of(directory))
    tell("step", "directory")
    tell("probe", probes.owned(directory))
    with held() as before:
        tell("step", "write")
        try:
            os.mkdir(folder, 0o700)
        except OSError as error:
            tell("probe", probes.failed("write", error, "nothing can be made there: "))
            tell("done", None)
            return
        try:
            with opened(before):
                _try_in(folder, begun, seconds, deadline, tell)
            tell("step", _REMOVAL)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            if os.path.lexists(folder):
                tell("note", f"{folder} could not be removed: remove it")
    tell("done", None)


def _try_in(folder: str, begun: float, seconds: float, deadline: float, tell: Tell) -> None:
    def is_time() -> bool:
        return time.monotonic() < deadline

    try:
        with RealDisk(folder) as disk:
            for name, probe in PROBES.items():
                if not is_time():
                    return
                tell("step", name)
                tell("probe", probe(disk))
            if not is_time():
                return
            tell("step", SYNC)
            try:
                tell("latency", probes.latency(disk, begun + seconds * _SHARE["latency"], deadline))
            except OSError as error:
                tell("probe", probes.failed(SYNC, error, "fdatasync or write fails: "))
                return
            with suppress(OSError):
                disk.unlink("latency")
    except BrokenPipeError:
        raise
    except (OSError, WalldError) as error:
        tell("probe", probes.failed("write", error))
        return
    if is_time():
        tell("step", WRITERS)
        _kill(folder, begun + seconds * _SHARE["kills"], tell)


def _kill(folder: str, until: float, tell: Tell) -> None:
    """Writers killed in slices, each told with those before it."""
    total = Kills()
    while total.trouble is None and (not total.kills or time.monotonic() < until):
        part = kill_writers(folder, min(until, time.monotonic() + 0.5))
        for name in ("kills", "torn", "batches", "lost", "corrupt"):
            setattr(total, name, getattr(total, name) + getattr(part, name))
        total.trouble = part.trouble
        tell("kills", total)
