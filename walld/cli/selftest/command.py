"""`walld selftest DIR`: can the mount of this directory honour sent, written and synced?

Owns: the probes (owner, lock, names, renames, syncs, room), what they and the mount's options mean
for each class, and the table. Exit 0 all three are honoured, 1 not. Refuses: promising what cannot
be seen from here. Whether a device keeps what it acknowledges shows when power is lost, not before;
where the disk hangs this command hangs with it, as any program does.

Everything is tried in a folder of its own inside the directory, which is removed again.
"""

from __future__ import annotations

import argparse
import errno
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import NamedTuple

import walld_client

from walld import limits
from walld.cli.exit_codes import CANNOT, DONE
from walld.cli.selftest.mounts import Mount, Opinion, mount_of, opinion
from walld.cli.show import as_json
from walld.disk.folded import looks_at_case
from walld.disk.lock import Owner
from walld.disk.lock_record import LOCK_NAME
from walld.disk.real import RealDisk
from walld.errors import WalldError
from walld.escape import escaped_line

__all__ = ["Latency", "Probe", "Report", "run", "tried"]

NOT_PROVEN = "not proven"
_PIECE = bytes(range(256)) * 16
_ROUNDS_MAX = 500
_OF_THIS_PROCESS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
"""Descriptors, memory and processes that ran out say nothing of a mount."""
_FAST_SYNC_US = 100
_FAST = (
    "fdatasync takes less than 100 us at the median: the device may not flush for real, "
    "which cannot be known from here"
)
_LOCK_SECONDS_MAX = 20.0
_TAKEN = 7
_TRY_LOCK = f"""
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit({_TAKEN})
"""


class Probe(NamedTuple):
    """is_good: None where it could not be found out. said: one sentence."""

    name: str
    is_good: bool | None
    said: str


class Latency(NamedTuple):
    """Microseconds of the fdatasync behind each of so many 4 KiB writes."""

    rounds: int
    sync_p50: float
    sync_p99: float
    sync_max: float


class Report(NamedTuple):
    """What was found. classes: by name the verdict (yes, no, not proven) and its reason."""

    mount: Mount | None
    probes: list[Probe]
    latency: Latency | None
    classes: dict[str, tuple[str, str]]
    notes: list[str]


class _Wrong(Exception):
    """The mount does another thing than walld needs."""


def run(options: argparse.Namespace) -> int:
    """Exit 0 or 1. OSError: there is no such directory."""
    report = tried(options.directory, options.seconds)
    client = walld_client.check()
    if options.json:
        print(as_json(_plain(options.directory, report, client)))
    else:
        for line in _lines(options.directory, report, client):
            print(line)
    return DONE if all(verdict == "yes" for verdict, _ in report.classes.values()) else CANNOT


def tried(directory: str, seconds: float) -> Report:
    """Probes in order. seconds: at most so long for the latency of syncs. OSError: no directory."""
    mount = mount_of(directory)
    seen = opinion(mount)
    sent, synced = [_probe("directory", lambda: _owned(directory))], list[Probe]()
    latency: Latency | None = None

    def sync(disk: RealDisk) -> str:
        nonlocal latency
        latency = _latency(disk, time.monotonic() + seconds)
        return "what was written is synced"

    def write() -> str:
        with (
            tempfile.TemporaryDirectory(prefix="walld-selftest-", dir=directory) as folder,
            RealDisk(folder) as disk,
        ):
            sent.extend(_probe(name, partial(probe, disk)) for name, probe in _SENT.items())
            synced.extend(_probe(name, partial(probe, disk)) for name, probe in _SYNCED.items())
            if all(probe.is_good for probe in synced):
                synced.append(_probe("sync", partial(sync, disk)))
        return "files can be made and removed"

    sent.append(_probe("write", write))
    is_fast = latency is not None and latency.sync_p50 < _FAST_SYNC_US
    notes = seen.notes + [_FAST] * is_fast
    return Report(mount, sent + synced, latency, _classes(sent, synced, seen), notes)


# --- probes: each says what is good, or raises ----------------------------------------------------


def _probe(name: str, probe: Callable[[], str]) -> Probe:
    try:
        return Probe(name, True, probe())
    except _Wrong as wrong:
        return Probe(name, False, str(wrong))
    except (OSError, WalldError) as error:
        is_own = isinstance(error, OSError) and error.errno in _OF_THIS_PROCESS
        return Probe(name, None if is_own else False, str(error))


def _owned(directory: str) -> str:
    """By the rule by which a daemon starts."""
    RealDisk(directory).close()
    return "nobody else may write there"


def _exclusive(disk: RealDisk) -> str:
    """A segment is made once, by one process."""
    disk.create("once").close()
    try:
        disk.create("once").close()
    except FileExistsError:
        return "a name is made once (O_EXCL)"
    raise _Wrong("the same name could be made twice: O_EXCL does not hold")


def _space(disk: RealDisk) -> str:
    """For the reserve that lets a full disk take ends and releases."""
    free, needed = disk.free_bytes(), 2 * limits.RESERVE_BYTES
    if free < needed:
        raise _Wrong(f"{free} bytes are free, {needed} are needed for the reserve")
    return f"{free // limits.MIB} MiB are free"


def _names(disk: RealDisk) -> str:
    disk.create("named").close()
    if looks_at_case(disk.root, "named"):
        return "the disk looks at case: Chat-1 is not chat-1"
    said = "the disk does not look at case: a capital in a file name is written as @ and its small"
    return f"{said} letter; earlier builds refuse it"


def _lock(disk: RealDisk) -> str:
    """One owner a directory."""
    owner = Owner(disk.root, bytes(16))
    path = os.path.join(disk.root, LOCK_NAME)
    try:
        if not owner.reads_back():
            raise _Wrong("what was written into LOCK does not stand there")
        if (code := _lock_elsewhere(path)) != _TAKEN:
            raise _Wrong(f"another process took flock on a LOCK that is held ({code})")
    finally:
        owner.close()
    if code := _lock_elsewhere(path):
        raise _Wrong(f"flock on a LOCK that was given up is refused ({code})")
    return "a second owner is refused"


def _lock_elsewhere(path: str) -> int:
    command = [sys.executable, "-S", "-c", _TRY_LOCK, path]
    try:
        ran = subprocess.run(command, check=False, capture_output=True, timeout=_LOCK_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return -1
    return ran.returncode


def _directory_sync(disk: RealDisk) -> str:
    """A file survives power loss by name."""
    disk.make_dir("names")
    with closing(disk.create("names/new")) as file:
        file.sync()
    disk.sync_dir("names")
    disk.unlink("names/new")
    disk.sync_dir("names")
    return "a new name is synced in its directory"


def _rename(disk: RealDisk) -> str:
    """Who has the old file open keeps it, who opens it next has the new one."""
    disk.replace("renamed", b"old")
    with closing(disk.open("renamed")) as old:
        disk.replace("renamed", b"new one")
        with closing(disk.open("renamed")) as new:
            seen = old.read_at(16, 0), new.read_at(16, 0)
    if seen != (b"old", b"new one"):
        raise _Wrong(f"a rename mixed the old file and the new one: {seen}")
    return "a file is replaced as a whole"


def _latency(disk: RealDisk, until: float) -> Latency:
    """Write and fdatasync, again and again, until that monotonic time; once at least."""
    syncs: list[float] = []
    with closing(disk.create("latency")) as file:
        while len(syncs) < _ROUNDS_MAX and (not syncs or time.monotonic() < until):
            file.write_at(_PIECE, len(syncs) * len(_PIECE))
            begun = time.perf_counter()
            file.sync()
            syncs.append((time.perf_counter() - begun) * 1e6)
    syncs.sort()
    count = len(syncs)
    return Latency(count, syncs[count // 2], syncs[min(count * 99 // 100, count - 1)], syncs[-1])


_SENT: dict[str, Callable[[RealDisk], str]] = {
    "exclusive create": _exclusive,
    "space": _space,
    "names": _names,
    "lock": _lock,
}
_SYNCED: dict[str, Callable[[RealDisk], str]] = {
    "directory sync": _directory_sync,
    "rename": _rename,
}


# --- what it means --------------------------------------------------------------------------------


def _classes(sent: list[Probe], synced: list[Probe], seen: Opinion) -> dict[str, tuple[str, str]]:
    """Each class rests on the one before it."""
    owns = _worst(sent) or ("yes", "a daemon can own the directory; what the kernel has, it reads")
    writes = owns
    if owns[0] == "yes":
        writes = ("yes", "what write(2) has taken outlives the process that wrote it")
    syncs = _worst(sent + synced)
    if seen.synced == "no" or (seen.synced != "yes" and (syncs is None or syncs[0] != "no")):
        syncs = (seen.synced, seen.why)
    named = ("yes", f"{seen.why}; files, names and renames can be synced")
    return {"sent": owns, "written": writes, "synced": syncs or named}


def _worst(probes: list[Probe]) -> tuple[str, str] | None:
    """A verdict and its reason; None where all are good."""
    for is_good, verdict in ((False, "no"), (None, NOT_PROVEN)):
        for probe in probes:
            if probe.is_good is is_good:
                return verdict, f"{probe.name}: {probe.said}"
    return None


# --- how it is said -------------------------------------------------------------------------------


def _plain(directory: str, report: Report, client: str) -> dict[str, object]:
    mount = report.mount
    facts = {} if mount is None else mount._asdict() | {"options": sorted(mount.options)}
    return {
        "directory": directory,
        "classes": {
            name: {"verdict": verdict, "why": why}
            for name, (verdict, why) in report.classes.items()
        },
        "mount": facts | ({} if mount is None else {"read_only": mount.is_read_only}),
        "probes": [probe._asdict() for probe in report.probes],
        "latency": None if report.latency is None else report.latency._asdict(),
        "client": client,
        "notes": report.notes,
    }


def _lines(directory: str, report: Report, client: str) -> Iterator[str]:
    yield f"{escaped_line(directory)}:"
    for name, verdict, why in (
        ("CLASS", "HONOURED", "WHY"),
        *((name, *found) for name, found in report.classes.items()),
    ):
        yield f"  {name:<9}{verdict:<12}{escaped_line(why)}"
    yield ""
    if report.mount is not None:
        mount = report.mount
        yield f"  mount: {escaped_line(f'{mount.kind} of {mount.source} at {mount.point}')}"
    for probe in report.probes:
        word = {True: "yes", False: "no", None: "-"}[probe.is_good]
        yield f"  {probe.name}: {word}: {escaped_line(probe.said)}"
    if report.latency is not None:
        _, p50, p99, most = report.latency
        yield f"  fdatasync: p50 {p50:.0f} us, p99 {p99:.0f} us, max {most:.0f} us"
    yield f"  a client started here: {escaped_line(client)}"
    for note in report.notes:
        yield f"  note: {escaped_line(note)}"
