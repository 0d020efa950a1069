"""Peer credentials and pidfds: who a peer is and whether it lives, from the kernel.

Owns: SO_PEERCRED, pidfds, boot id, start time. Refuses: what follows from a death
(`socket_reader.py`).

A pidfd names one process whatever becomes of its pid; its inode is unique for a boot since Linux
6.9 (pidfs). Before that the pid with its start time (field 22 of /proc/<pid>/stat) is as good.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from typing import NamedTuple

from walld.wal.records import Owner

__all__ = [
    "PeerCredentials",
    "boot_id",
    "credentials",
    "describe",
    "find_process",
    "is_gone",
    "open_pidfd",
    "pid_namespace",
    "process_state",
]

_SO_PEERPIDFD = 77
_UCRED = struct.Struct("3i")


class PeerCredentials(NamedTuple):
    """As of connect(2). pid 0: it cannot be seen from here."""

    pid: int
    uid: int
    gid: int


def boot_id() -> str:
    """What the kernel calls this boot; "" where it does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def credentials(peer: socket.socket) -> PeerCredentials:
    """The process that connected (unix(7), SO_PEERCRED)."""
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return PeerCredentials(*_UCRED.unpack(raw))


def open_pidfd(peer: socket.socket, pid: int) -> int | None:
    """A pidfd of the peer, None where it cannot be had. The caller closes it."""
    try:
        return peer.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        pass  # before Linux 6.5: by pid, which could have been given to another process since
    try:
        return os.pidfd_open(pid) if pid > 0 else None
    except OSError:
        return None


def _start_ticks(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command name is in parentheses and may hold anything, so count from the last one.
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def describe(pid: int, pidfd: int | None, boot: str) -> Owner:
    """The owner to store with a stream, so that a later daemon can ask for it again."""
    if pid <= 0:
        return Owner(boot, 0, 0, 0)
    inode = 0 if pidfd is None else os.fstat(pidfd).st_ino
    return Owner(boot, pid, inode, _start_ticks(pid))


def find_process(owner: Owner) -> int | None:
    """A pidfd of the very process that `owner` names, None where it is gone.

    The caller has compared the boot id, and closes the pidfd.
    """
    if owner.pid <= 0:
        return None
    try:
        pidfd = os.pidfd_open(owner.pid)
    except OSError:
        return None
    same_start = owner.start_ticks in (0, _start_ticks(owner.pid))
    if same_start and owner.pidfd_inode in (0, os.fstat(pidfd).st_ino) and not is_gone(pidfd):
        return pidfd
    os.close(pidfd)
    return None


def pid_namespace() -> int:
    """The inode of the one that pids are of here; 0 where the kernel does not say."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def process_state(pid: int, start_ticks: int) -> str:
    """Whether it is there: running, gone or unseen (something has that pid, and what is not known).

    One that has exited is gone, also where nobody has waited for it.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        state, ticks = fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        try:  # it may be hidden (hidepid)
            os.kill(pid, 0)
        except ProcessLookupError:
            return "gone"
        except (OSError, OverflowError):
            pass
        return "unseen"
    if state in (b"Z", b"X") or (start_ticks and ticks != start_ticks):
        return "gone"
    return "running" if start_ticks else "unseen"


def is_gone(pidfd: int) -> bool:
    """True where the process has exited (also as a zombie nobody has waited for)."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
