"""Reads mount options of a directory and says what they mean for durability.

Owns: which mount that is, by the number that a descriptor of the directory has (by its path it may
be one that a later mount covers), reading /proc/self/mountinfo, and which kinds and options of file
systems cannot keep what they acknowledge. Refuses: trying anything out (`command.py`).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["Mount", "Opinion", "mount_of", "opinion", "parse_mounts"]

_MOUNTINFO = Path("/proc/self/mountinfo")
_FDINFO = Path("/proc/self/fdinfo")
_IN_MEMORY = ("tmpfs", "ramfs", "rootfs", "devtmpfs")
_NFS = ("nfs", "nfs4")
_ELSEWHERE = ("9p", "virtiofs", "cifs", "smb3", "ceph", "glusterfs", "lustre", "afs")
_PLAIN = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "jfs", "bcachefs", "nilfs2")

_LOCAL_LOCKS = {"nolock", "local_lock=all", "local_lock=flock"}
_LOCK_IS_LOCAL = (
    "the lock holds on this machine alone (`nolock` or `local_lock`): a daemon on another machine "
    "is not kept out; mount it without that"
)


class Mount(NamedTuple):
    """One line of mountinfo. options: of the mount and of its file system together."""

    point: str
    kind: str
    source: str
    options: frozenset[str]

    @property
    def is_read_only(self) -> bool:
        """Nothing can be written there."""
        return "ro" in self.options


class Opinion(NamedTuple):
    """synced: "yes", "no" or "not proven", as far as a mount can tell; why; notes beside it."""

    synced: str
    why: str
    notes: list[str]


def parse_mounts(table: bytes) -> dict[int, Mount]:
    """The mounts of a mountinfo file by number; lines of another shape are left out.

    Bytes, split at line feeds alone: the kernel escapes no other line separator of a path.
    """
    found = {}
    for line in table.split(b"\n"):
        before, dash, behind = line.partition(b" - ")
        fields, tail = before.split(b" "), behind.split(b" ")
        if not dash or len(fields) < 6 or len(tail) < 3 or not fields[0].isdigit():
            continue
        options = frozenset(os.fsdecode(fields[5] + b"," + tail[2]).split(","))
        point, source = _plain(fields[4]), _plain(tail[1])
        found[int(fields[0])] = Mount(point, os.fsdecode(tail[0]), source, options)
    return found


def _plain(escaped: bytes) -> str:
    return os.fsdecode(re.sub(rb"\\([0-3][0-7]{2})", lambda one: bytes([int(one[1], 8)]), escaped))


def mount_of(directory: str) -> Mount | None:
    """The mount that `directory` lies on; None where the kernel does not say. Raises OSError."""
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        told = re.search(rb"^mnt_id:\s*(\d+)$", (_FDINFO / str(fd)).read_bytes(), re.MULTILINE)
        mounts = parse_mounts(_MOUNTINFO.read_bytes())
    except FileNotFoundError:
        return None  # no /proc
    finally:
        os.close(fd)
    return None if told is None else mounts.get(int(told[1]))


def opinion(mount: Mount | None) -> Opinion:
    """What a power cut would leave there, as far as the mount's own facts say."""
    if mount is None:
        return Opinion("not proven", "the kernel does not say what is mounted there", [])
    kind, options = mount.kind, mount.options
    if mount.is_read_only:
        return Opinion("no", "the file system is mounted read-only", [])
    if kind in _IN_MEMORY:
        return Opinion("no", f"{kind} is memory: nothing survives power loss", [])
    if kind in _NFS:
        synced, why, notes = _of_nfs(options)
        return Opinion(synced, why, notes + [_LOCK_IS_LOCAL] * bool(options & _LOCAL_LOCKS))
    if kind == "overlay":
        if "volatile" in options:
            return Opinion("no", "overlay with `volatile`: the kernel leaves syncs out", [])
        note = "overlayfs: the file system below its upperdir decides; look at that one"
        return Opinion("not proven", "an overlay does not say what lies below it", [note])
    if {"nobarrier", "barrier=0"} & options:
        return Opinion("no", f"{kind} without barriers: the device is never told to flush", [])
    if kind.startswith("fuse") or kind in _ELSEWHERE:
        text = f"{kind}: what a sync means is decided by whoever serves it"
        return Opinion("not proven", text, [])
    notes = [] if kind in _PLAIN else [f"{kind} is no file system that walld was tried on"]
    return Opinion("yes", f"{kind}, read-write", notes)


def _of_nfs(options: frozenset[str]) -> Opinion:
    if options & {"soft", "softerr"}:
        text = "NFS soft mount: after a time-out the kernel drops data silently; mount it `hard`"
        return Opinion("no", text, [])
    if "hard" not in options:
        text = "NFS without `hard` in its options: whether a time-out drops data is not known"
        return Opinion("not proven", text, [])
    note = "an NFS export with `async` acknowledges before it has stored; that cannot be seen here"
    return Opinion("yes", "NFS hard mount", [note])
