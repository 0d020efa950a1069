"""Makes and checks the data directory: owner, mode, kind; and the folders of a socket.

Owns: making it with its missing parents, whose it is and who else may write there, and how what a
file server may have is told from a disk of this machine. Refuses: what is in it (`real.py`), who
holds it (`lock.py`).
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from contextlib import suppress
from typing import Final

from walld_client.link.path_walk import OTHERS_WRITE, UNMAPPED_UID, is_unmapped

from walld.errors import UnsafePath

__all__ = ["DIR_MODE", "NO_DEVICE", "check_owner", "make_root", "sync_names"]

DIR_MODE: Final = 0o700
NO_DEVICE: Final = 0
"""Major number where there is no block device behind it (makedev(3)): NFS and FUSE, which a server
may have; also tmpfs and btrfs, which are treated alike.
"""
_NOT_OF_THIS_KIND: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def make_root(root: str) -> None:
    """The data directory and its missing parents, mode 0700, each new name synced. OSError."""
    parent = os.path.dirname(os.path.abspath(root))
    if not os.path.isdir(parent):
        make_root(parent)
    try:
        os.mkdir(root, DIR_MODE)
    except FileExistsError:
        if os.path.isdir(root):
            return
        text = "there is something that is no directory: name another path"
        raise NotADirectoryError(errno.ENOTDIR, text, root) from None
    try:
        os.chmod(root, DIR_MODE)
        fd = os.open(parent, os.O_CLOEXEC | os.O_DIRECTORY | os.O_RDONLY)
        try:
            sync_names(fd, parent)
        finally:
            os.close(fd)
    except OSError:
        with suppress(OSError):
            os.rmdir(root)  # the next try would find it, and sync nothing
        raise


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


def check_owner(
    path: str,
    found: os.stat_result,
    *,
    harm: str = "plant files there",
    instead: str = "another directory",
    sticky_will_do: bool = False,
) -> None:
    """UnsafePath where others may write in it, or lead the link that it is elsewhere.

    found: what it is. sticky_will_do: who writes in it takes nothing away that is ours.
    """
    uid = os.geteuid()
    mode = stat.S_IMODE(found.st_mode)
    is_link = stat.S_ISLNK(found.st_mode)
    named = shlex.quote(path)
    if found.st_uid not in (uid, 0):
        what = "is a link that " if is_link else ""
        hidden = " (not mapped in this user namespace)" if is_unmapped(found.st_uid) else ""
        hidden = hidden or (" (nobody)" if found.st_uid == UNMAPPED_UID else "")
        raise UnsafePath(
            f"{path} {what}belongs to uid {found.st_uid}{hidden}, not to {uid} or root, mode "
            f"{mode:04o}: chown{' -h' if is_link else ''} {uid} {named}, or give {instead}"
        )
    if is_link or not mode & OTHERS_WRITE or (sticky_will_do and mode & stat.S_ISVTX):
        return
    raise UnsafePath(
        f"{path} of uid {found.st_uid} has mode {mode:04o}, at most {mode & ~OTHERS_WRITE:04o} is "
        f"safe: others may {harm}; chmod go-w {named}, or give {instead}"
    )
