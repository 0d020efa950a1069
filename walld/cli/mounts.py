"""What the kernel says of the mount a directory lies on, and what follows for durability.

Owns: reading /proc/self/mountinfo, and which kinds and options of file systems cannot keep what
they acknowledge. Refuses: trying anything out (`probes.py`).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["Mount", "Opinion", "mount_of", "opinion", "parse_mounts"]

MOUNTINFO = "/proc/self/mountinfo"
_IN_MEMORY = ("tmpfs", "ramfs", "rootfs", "devtmpfs")
_NFS = ("nfs", "nfs4")
_ELSEWHERE = ("9p", "virtiofs", "cifs", "smb3", "ceph", "glusterfs", "lustre", "afs")
_PLAIN = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "jfs", "bcachefs", "nilfs2")


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


def parse_mounts(text: str) -> list[Mount]:
    """The mounts of a mountinfo file, in its order; lines of another shape are left out."""
    found = []
    for line in text.splitlines():
        before, dash, behind = line.partition(" - ")
        fields, tail = before.split(" "), behind.split(" ")
        if not dash or len(fields) < 6 or len(tail) < 3:
            continue
        options = {*fields[5].split(","), *tail[2].split(",")}
        found.append(Mount(_plain(fields[4]), tail[0], _plain(tail[1]), frozenset(options)))
    return found


def _plain(escaped: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), escaped)


def mount_of(directory: str, mountinfo: str = MOUNTINFO) -> Mount | None:
    """The mount that `directory` lies on; None where the kernel does not say."""
    try:
        text = Path(mountinfo).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    path = os.path.realpath(directory)
    best: Mount | None = None
    for mount in parse_mounts(text):
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        # Of two on one place the later one covers the earlier.
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


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
        return _of_nfs(options)
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
