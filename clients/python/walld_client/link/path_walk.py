"""The folders and links by which a path is reached, and whose they are.

Owns: the walk (path_resolution(7)), and which owner a user namespace does not show. Refuses: which
owners and modes will do: the daemon asks that of its socket (`walld/disk/root.py`), a client of its
server (`socket_path.py`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["OTHERS_WRITE", "UNMAPPED_UID", "Step", "has_all_uids", "is_unmapped", "walk"]

OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
UNMAPPED_UID: Final = 65534
"""What the kernel shows for a uid that this user namespace does not map; else it is nobody."""
_ALL_UIDS: Final = b"0 0 %d" % (2**32 - 1)
"""uid_map where there is no user namespace but the first."""
_LINKS_MAX: Final = 40


class Step(NamedTuple):
    """A folder or a link on the way, or what the path names at last. found: of itself (lstat)."""

    path: str
    found: os.stat_result


def walk(path: str) -> Iterator[Step]:
    """From "/" on, all that leads elsewhere when it is replaced: each folder, each link, and what
    the links name. OSError where the way ends.
    """
    here = "/"  # without a link in it
    yield Step(here, os.lstat(here))
    whole = path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    left = whole.split("/")[::-1]
    links = 0
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        if name == "..":
            here = os.path.dirname(here)
            continue
        there = os.path.join(here, name)
        found = os.lstat(there)
        yield Step(there, found)
        if not stat.S_ISLNK(found.st_mode):
            here = there
            continue
        links += 1
        if links > _LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(there)
        if os.path.isabs(target):
            here = "/"
        left += target.split("/")[::-1]


def has_all_uids() -> bool:
    """No user namespace hides a uid from this process."""
    try:
        with open("/proc/self/uid_map", "rb") as file:  # a codec may be out of reach behind setuid
            return b" ".join(file.read().split()) == _ALL_UIDS
    except OSError:
        return False


def is_unmapped(uid: int) -> bool:
    """It stands for whoever has no uid in this user namespace: root outside of it, or anybody."""
    return uid == UNMAPPED_UID and not has_all_uids()
