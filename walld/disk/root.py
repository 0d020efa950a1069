"""Makes and checks the data directory: owner, mode, kind.

Owns: making it with its missing parents, whose it is and who else may write there, and how what a
file server may have is told from a disk of this machine. Refuses: what is in it (`real.py`), who
holds it (`lock.py`).
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from walld.errors import UnsafePath

__all__ = ["DIR_MODE", "NO_DEVICE", "check_owner", "make_root", "sync_names"]

DIR_MODE: Final = 0o700
NO_DEVICE: Final = 0
"""Major number where there is no block device behind it (makedev(3)): NFS and FUSE, which a server
may have; also tmpfs and btrfs, which are treated alike.
"""
_NOT_OF_THIS_KIND: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def make_root(root: str) -> None:
    """The data directory and its missing parents, mode 0700, each new name synced."""
    parent = os.path.dirname(os.path.abspath(root))
    if not os.path.isdir(parent):
        make_root(parent)
    try:
        os.mkdir(root, DIR_MODE)
    except FileExistsError:
        return
    os.chmod(root, DIR_MODE)
    fd = os.open(parent, os.O_CLOEXEC | os.O_DIRECTORY | os.O_RDONLY)
    try:
        sync_names(fd, parent)
    finally:
        os.close(fd)


def sync_names(fd: int, path: str) -> None:
    """fsync(2) of a directory. Where its file system has no such thing (EINVAL from SMB, vboxsf)
    the error says which call it was, of what and where: by itself it says "Invalid argument".
    """
    try:
        os.fsync(fd)
    except OSError as error:
        error.filename = path
        if error.errno in _NOT_OF_THIS_KIND:
            error.strerror = (
                f"fsync(2) of a directory of {_file_system(fd)}: {os.strerror(error.errno)}; no "
                "name in it would be known to survive a loss of power: give a directory of "
                "another file system"
            )
        raise


def _file_system(fd: int) -> str:
    """Its kind and where it is mounted, by /proc, as far as that says so."""
    try:
        with open(f"/proc/self/fdinfo/{fd}") as info:
            number = next(line.split()[1] for line in info if line.startswith("mnt_id:"))
        with open("/proc/self/mountinfo") as mounts:
            for line in mounts:
                fields = line.split()
                if fields[0] == number:
                    return f"file system {fields[fields.index('-') + 1]}, mounted at {fields[4]}"
    except (OSError, ValueError, IndexError, StopIteration):
        pass
    return "a file system that /proc does not name"


def check_owner(root: str, found: os.stat_result) -> None:
    """UnsafePath where others may write in it. found: what it is."""
    uid = os.geteuid()
    if found.st_uid not in (uid, 0):
        raise UnsafePath(
            f"{root} belongs to uid {found.st_uid}, not to {uid} or root: "
            "chown it, or give another directory"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o022:
        raise UnsafePath(
            f"{root} has mode {mode:04o}, at most {mode & ~0o022:04o} is safe: others may plant "
            f"files there; chmod go-w {root}"
        )
