"""Which process owns a data directory and where it listens, as the kernel has it.

Owns: reading /proc. Refuses: asking that process anything, and a guess: where /proc does not tell
(another user's process, another namespace, another machine) there is no answer.
"""

from __future__ import annotations

import os

__all__ = ["listening_paths", "owner_pid"]

_ACCEPTS = 0x10000
"""Among the flags of a socket in /proc/net/unix: it listens."""


def owner_pid(directory: str) -> int | None:
    """The process that holds the lock of the directory. None: nobody, or it cannot be known."""
    try:
        lock = os.stat(os.path.join(directory, "LOCK"))
        rows = _lines("/proc/locks")
    except OSError:
        return None
    device = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}"
    for row in rows:
        words = row.split()  # who waits for a lock has "->" behind the number
        if words[1:2] == ["FLOCK"] and words[5] == f"{device}:{lock.st_ino}":
            return int(words[4])
    return None


def listening_paths(pid: int) -> list[str]:
    """Of the Unix sockets at which the process listens. Empty, too, where it cannot be known."""
    own = f"/proc/{pid}"
    try:
        folder = os.readlink(f"{own}/cwd")
        files = {os.readlink(f"{own}/fd/{number}") for number in os.listdir(f"{own}/fd")}
        rows = _lines("/proc/net/unix")[1:]
    except OSError:
        return []
    paths = []
    for row in rows:
        words = row.split(maxsplit=7)
        is_here = len(words) == 8 and f"socket:[{words[6]}]" in files
        if is_here and int(words[3], 16) & _ACCEPTS:
            paths.append(os.path.join(folder, words[7]))
    return paths


def _lines(path: str) -> list[str]:
    with open(path, errors="surrogateescape") as file:
        return file.read().splitlines()
