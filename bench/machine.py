"""The machine under the figures: what it is, and which of its cores does what.

Owns: facts for the JSON, pinning, and the CPU time the kernel counts for a process. Refuses:
judging a figure by them.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "Cores",
    "Used",
    "choose_cores",
    "facts",
    "peak_bytes",
    "pinned",
    "priority",
    "resident_bytes",
    "used",
]


class Cores(NamedTuple):
    """daemon: the one core walld gets. agents: what everything else of the bench shares."""

    daemon: set[int]
    agents: set[int]


class Used(NamedTuple):
    """CPU time of a process and all its threads so far, in seconds.

    ran: on a core. waited: ready to run while another process had its core; that much of a wall
    time is the neighbours'.
    """

    ran: float
    waited: float

    def since(self, earlier: Used) -> Used:
        """What was used between two looks."""
        return Used(self.ran - earlier.ran, self.waited - earlier.waited)


def choose_cores() -> Cores:
    """The last core for the daemon and another one for all else; one core is shared, if need be."""
    cores = sorted(os.sched_getaffinity(0))
    return Cores({cores[-1]}, {cores[0]})


@contextmanager
def pinned(cores: set[int]) -> Iterator[None]:
    """What is started within inherits these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def priority(nice: int) -> Iterator[None]:
    """This process and those it starts, as far as that is allowed (PermissionError).

    Where the kernel groups tasks by session (autogroup), a nice value counts within the session
    only; the session has one of its own, which is set back afterwards.
    """
    group = Path("/proc/self/autogroup")
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    with suppress(OSError):
        group.write_text(str(nice))
    try:
        yield
    finally:
        with suppress(OSError):
            group.write_text("0")


def used(pid: int) -> Used:
    """By /proc/PID/task/*/schedstat (nanoseconds), else by /proc/PID/stat (10 ms steps)."""
    ran = waited = 0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            fields = (task / "schedstat").read_text().split()
            ran += int(fields[0])
            waited += int(fields[1])
        if ran:
            return Used(ran / 1e9, waited / 1e9)
    except FileNotFoundError:
        pass
    text = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Used((int(text[11]) + int(text[12])) / os.sysconf("SC_CLK_TCK"), 0.0)


def resident_bytes(pid: int) -> int:
    """Anonymous memory of a process: its heap, without the code it shares with others."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/{pid}/status has no RssAnon")


def peak_bytes(pid: int) -> int:
    """The most memory that a process ever had in RAM, its code and files among it."""
    return int(_first_line(f"/proc/{pid}/status", "VmHWM:").split()[0]) * 1024


def _first_line(path: str, prefix: str) -> str:
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(prefix):
                return line.partition(":")[2].strip() or line.strip()
    except OSError:
        pass
    return ""


def _filesystem(folder: str) -> str:
    """Type of the filesystem that holds `folder`: the longest mount point above it."""
    best = ("", "unknown")
    path = os.path.realpath(folder)
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def facts(folder: str) -> dict[str, object]:
    """What one must know to compare two runs."""
    return {
        "cpu": _first_line("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {name: _version(name) for name in ("msgspec", "anyio", "uvloop")},
        "filesystem": _filesystem(folder),
        "load": os.getloadavg(),
    }
