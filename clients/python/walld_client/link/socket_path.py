"""Finds the daemon's socket.

Owns: the order of the candidates and the check of the one that lies in a shared directory.
Refuses: connecting.

A folder below the temporary directory could have been put there by another user before us, who
would then be told all our agents say. So it counts only if it is a directory (not a link), ours,
and closed to everybody else.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

__all__ = ["find_socket", "is_private", "socket_candidates"]


def socket_candidates(env: Mapping[str, str], uid: int) -> list[str]:
    """Where a socket may be, in this order, unless the program or WALLD_SOCKET names it."""
    candidates = []
    runtime = env.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime):
        candidates.append(os.path.join(runtime, "walld", "walld.sock"))
    candidates.append("/run/walld/walld.sock")
    temporary = env.get("TMPDIR", "")
    if not os.path.isabs(temporary):
        temporary = "/tmp"
    candidates.append(os.path.join(temporary, f"walld-{uid}", "walld.sock"))
    return candidates


def find_socket(given: str | None) -> str:
    """The socket to connect to now. Asked again at every attempt: a daemon may appear later.

    The first candidate that exists; else the first one whose folder could be made. Raises
    PermissionError where all there is lies in a folder that somebody else controls.
    """
    named = given or os.environ.get("WALLD_SOCKET")
    if named:
        return named
    uid = os.geteuid()
    candidates = socket_candidates(os.environ, uid)
    per_uid = candidates[-1]
    unsafe = False
    for path in candidates:
        if not os.path.lexists(path):
            continue
        if path != per_uid or is_private(os.path.dirname(path), uid):
            return path
        unsafe = True
    if unsafe:
        raise PermissionError(
            1,
            f"{os.path.dirname(per_uid)} is not a directory that only uid {uid} can use, its "
            "socket is not trusted; remove it or set WALLD_SOCKET",
        )
    for path in candidates:
        if os.path.isdir(os.path.dirname(os.path.dirname(path))):
            return path
    return candidates[0]


def is_private(folder: str, uid: int) -> bool:
    """A real directory of `uid` with no permission for anybody else."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == uid
        and not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    )
