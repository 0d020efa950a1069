"""Probes of a mount: fsync, rename, flock and the like, each tried in a directory.

Owns: one probe a function: what it does, whether it came out, and the sentence about it. Refuses:
what follows for a durability class (`command.py`), and staying: the caller removes the folder.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from typing import NamedTuple

from walld import limits
from walld.disk.folded import looks_at_case
from walld.disk.lock import Owner
from walld.disk.lock_record import LOCK_NAME
from walld.disk.real import RealDisk
from walld.errors import DirectoryTaken, WalldError

__all__ = [
    "Latency",
    "Probe",
    "directory_sync",
    "exclusive",
    "failed",
    "latency",
    "lock",
    "names",
    "owned",
    "read_cached",
    "rename",
    "space",
]

PIECE = bytes(range(256)) * 16
ROUNDS_MAX = 500
ROUNDS_MIN = 5
LOCK_SECONDS_MAX = 20.0
_OF_THIS_PROCESS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
"""Descriptors, memory and processes that ran out say nothing of a mount."""
_TRY_LOCK = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(7)
"""


class Probe(NamedTuple):
    """is_good: None where it could not be found out. said: one sentence."""

    name: str
    is_good: bool | None
    said: str


def failed(name: str, error: Exception, text: str = "") -> Probe:
    """What an error says of the mount: nothing where this process has run out of something."""
    is_own = isinstance(error, OSError) and error.errno in _OF_THIS_PROCESS
    return Probe(name, None if is_own else False, f"{text}{error}")


class Latency(NamedTuple):
    """Microseconds of 4 KiB writes and of the fdatasync behind each."""

    rounds: int
    write_p50: float
    write_p99: float
    write_max: float
    sync_p50: float
    sync_p99: float
    sync_max: float


def owned(directory: str) -> Probe:
    """A daemon takes the directory itself for its own: by the rule by which it starts."""
    name = "directory"
    try:
        RealDisk(directory).close()
    except (OSError, WalldError) as error:
        return failed(name, error)
    return Probe(name, True, "nobody else may write there")


def directory_sync(disk: RealDisk) -> Probe:
    """A new name is synced in its directory, so that a file survives power loss by name."""
    name = "directory sync"
    try:
        disk.make_dir("names")
        file = disk.create("names/new")
        file.sync()
        file.close()
        disk.sync_dir("names")
        disk.unlink("names/new")
        disk.sync_dir("names")
    except OSError as error:
        return failed(name, error, "fsync of a directory fails: ")
    return Probe(name, True, "a new name is synced in its directory")


def rename(disk: RealDisk) -> Probe:
    """A rename over a file: who has the old one open keeps it, who opens it next has the new."""
    name = "rename"
    try:
        disk.replace("renamed", b"old")
        old = disk.open("renamed")
        try:
            disk.replace("renamed", b"new one")
            new = disk.open("renamed")
            seen = old.read_at(16, 0), new.read_at(16, 0)
            new.close()
        finally:
            old.close()
    except OSError as error:
        return failed(name, error, "a file cannot be replaced by rename: ")
    if seen != (b"old", b"new one"):
        return Probe(name, False, f"a rename mixed the old file and the new one: {seen}")
    return Probe(name, True, "a file is replaced as a whole")


def names(disk: RealDisk) -> Probe:
    """Whether it looks at case: walld runs on both, and says which."""
    name = "names"
    try:
        disk.create("named").close()
        is_case_seen = looks_at_case(disk.root, "named")
    except OSError as error:
        return failed(name, error, "a name cannot be looked up: ")
    if is_case_seen:
        return Probe(name, True, "the disk looks at case: Chat-1 is not chat-1")
    said = "the disk does not look at case: a capital in a file name is written as @ and its small"
    return Probe(name, True, f"{said} letter; earlier builds refuse it")


def lock(root: str) -> Probe:
    """One owner a directory: a second one is refused, here and in another process."""
    name = "lock"
    try:
        owner = Owner(root, bytes(16))
    except (OSError, DirectoryTaken) as error:
        return failed(name, error, "LOCK cannot be taken: ")
    path = os.path.join(root, LOCK_NAME)
    try:
        try:
            trouble = _while_owned(owner, root, path)
        finally:
            owner.close()
        code = 0 if trouble else _try_lock(path)
    except OSError as error:
        return failed(name, error)
    if code:
        trouble = f"flock on a LOCK that was given up is refused ({code})"
    if trouble:
        return Probe(name, False, trouble)
    return Probe(name, True, "a second owner is refused, in this process and in another")


def _while_owned(owner: Owner, root: str, path: str) -> str:
    """What is wrong while somebody owns it; empty where nothing is."""
    try:
        Owner(root, bytes(16)).close()
    except DirectoryTaken:
        pass
    else:
        return "a second owner of the same directory was let in"
    if not owner.reads_back():
        return "what was written into LOCK does not stand there"
    code = _try_lock(path)
    return "" if code == 7 else f"another process took flock on a LOCK that is held ({code})"


def _try_lock(path: str) -> int:
    command = [sys.executable, "-S", "-c", _TRY_LOCK, path]
    try:
        ran = subprocess.run(command, check=False, capture_output=True, timeout=LOCK_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return -1
    return ran.returncode


def exclusive(disk: RealDisk) -> Probe:
    """O_EXCL: a segment is made once, by one process."""
    name = "exclusive create"
    try:
        disk.create("once").close()
    except OSError as error:
        return failed(name, error, "a file cannot be made: ")
    try:
        disk.create("once").close()
    except FileExistsError:
        return Probe(name, True, "a name is made once (O_EXCL)")
    except OSError as error:
        return failed(name, error, "making a name twice gives ")
    return Probe(name, False, "the same name could be made twice: O_EXCL does not hold")


def space(disk: RealDisk) -> Probe:
    """Room for the reserve that lets a full disk take ends and releases."""
    free, needed = disk.free_bytes(), 2 * limits.RESERVE_BYTES
    if free < needed:
        return Probe("space", False, f"{free} bytes are free, {needed} are needed for the reserve")
    return Probe("space", True, f"{free // limits.MIB} MiB are free")


def read_cached(disk: RealDisk) -> Probe:
    """What was just written can be read without waiting; where it cannot, a thread reads it."""
    name = "read without waiting"
    try:
        file = disk.create("cached")
        try:
            file.write_at(PIECE, 0)
            found = file.read_cached(len(PIECE), 0)
        finally:
            file.close()
    except OSError as error:
        return Probe(name, None, f"could not be tried: {error}")
    if found == PIECE:
        return Probe(name, True, "live replies are read out of the page cache")
    if found is None:
        return Probe(name, None, "not possible here: a thread reads live replies, more slowly")
    return Probe(name, False, "the page cache gave back other bytes than were written")


def latency(disk: RealDisk, until: float, deadline: float) -> Latency:
    """Write and fdatasync, again and again, until that monotonic time. Raises OSError.

    A few more where that is over, but none behind the deadline.
    """
    writes: list[float] = []
    syncs: list[float] = []
    file = disk.create("latency")
    try:
        while len(syncs) < ROUNDS_MAX and (len(syncs) < ROUNDS_MIN or time.monotonic() < until):
            begun = time.perf_counter()
            file.write_at(PIECE, len(syncs) * len(PIECE))
            written = time.perf_counter()
            file.sync()
            synced = time.perf_counter()
            writes.append((written - begun) * 1e6)
            syncs.append((synced - written) * 1e6)
            if time.monotonic() > (until if synced - begun > 1 else deadline):
                break
    finally:
        file.close()
    return Latency(len(syncs), *_spread(writes), *_spread(syncs))


def _spread(values: list[float]) -> tuple[float, float, float]:
    """p50, p99 and the highest."""
    ordered = sorted(values)
    count = len(ordered)
    return ordered[count // 2], ordered[min(count * 99 // 100, count - 1)], ordered[-1]
