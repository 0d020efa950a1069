"""Finds the daemon's socket, and looks at who listens there.

Owns: the order of the candidates, the check of the one that lies in a shared directory, whether a
server is trusted, and the folder for the socket of a daemon that a program starts for itself.
Refuses: connecting.

A folder below the temporary directory could have been put there by another user before us, who
would then be told all our agents say. So it counts only if it is a directory (not a link), ours,
and closed to everybody else.

Any path may be swapped by whoever can write on the way to it. So before a word is said the kernel
tells who listens (unix(7), SO_PEERCRED: the uid of listen(2), of systemd for its sockets). Root and
this user are trusted; another uid where root or this user put a folder there for its daemon.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256

from walld_client.link.path_walk import OTHERS_WRITE, is_unmapped, walk

__all__ = [
    "SOCKET_PATH_BYTES_MAX",
    "check_length",
    "check_server",
    "find_socket",
    "is_private",
    "runtime_folder",
    "socket_candidates",
]

SOCKET_PATH_BYTES_MAX = 107
"""sun_path holds 108 bytes with its NUL."""
_UCRED = struct.Struct("3i")


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
            errno.EPERM,
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


def check_server(connection: socket.socket, path: str) -> None:
    """PermissionError where the server may be anybody's. Of a connection by `path`, before a word
    is said.
    """
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    _, server, _ = _UCRED.unpack(raw)
    uid = os.geteuid()
    if server in (uid, 0) or str(server) == os.environ.get("WALLD_SOCKET_UID"):
        return
    if not _is_folder_for(server, uid, path):
        raise PermissionError(
            errno.EPERM,
            f"uid {server} listens there, this process is uid {uid}, and others than root and "
            f"uid {uid} could have put its socket there: nothing was sent; name walld's socket, or "
            f"set WALLD_SOCKET_UID={server} where that uid is to be told all",
        )


def _is_folder_for(server: int, uid: int, path: str) -> bool:
    """The socket's folder is the server's alone, and but for root and `uid` nobody can change the
    way to it (nor make a folder there: a sticky one is no such way).
    """
    try:
        steps = list(walk(path))
    except (OSError, ValueError):
        return False
    folder = os.path.dirname(steps[-1].path)
    for where, found in steps[:-1]:
        is_link = stat.S_ISLNK(found.st_mode)
        if found.st_mode & OTHERS_WRITE and not is_link:
            return False
        if where == folder and not is_link:
            if found.st_uid != server:
                return False
        elif found.st_uid not in (uid, 0) and not is_unmapped(found.st_uid):
            return False
    return True


def runtime_folder(directory: str) -> str:
    """A folder of this user's alone, made here, for the socket `s` of the daemon of that data
    directory: always the same one, so another process finds it.

    Raises PermissionError where it is somebody else's, OSError where none can be.
    """
    uid = os.geteuid()
    name = sha256(os.fsencode(os.path.realpath(directory))).hexdigest()[:16]
    runtime, temporary = os.environ.get("XDG_RUNTIME_DIR", ""), os.environ.get("TMPDIR", "")
    own = os.path.join(runtime, "walld")  # below a folder that is this user's alone
    bases = [own] if os.path.isabs(runtime) else []
    bases += [f"{base}/walld-{uid}" for base in (temporary, "/tmp") if os.path.isabs(base)]
    for base in bases:
        folder = os.path.join(base, name)
        if not os.path.isdir(os.path.dirname(base)) or not _fits(os.path.join(folder, "s")):
            continue
        for path in (base, folder):
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)
            if path != own and not is_private(path, uid):
                text = f"not a directory that only uid {uid} can use: remove it or name a socket"
                raise PermissionError(errno.EPERM, text, path)
        return folder
    text = f"no folder for a socket can be made: name a socket; tried {', '.join(bases)}"
    raise FileNotFoundError(errno.ENOENT, text)


def check_length(path: str) -> None:
    """ValueError for a path that no socket can have."""
    if not _fits(path):
        raise ValueError(
            f"a socket's path has at most {SOCKET_PATH_BYTES_MAX} bytes, {path} has "
            f"{len(os.fsencode(path))}: name a shorter one"
        )


def _fits(path: str) -> bool:
    return len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX
