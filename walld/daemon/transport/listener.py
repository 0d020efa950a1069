"""The listening socket: inherited from the service manager, or bound to a path.

Owns: binding, modes, and removing a stale socket. Refuses: accepting (`acceptor.py`).

Invariant: a socket file is removed only with the data directory's lock held and a connect refused:
somebody who answers keeps it.
"""

from __future__ import annotations

import errno
import grp
import os
import socket
import stat
from contextlib import suppress

from walld.errors import ConfigError, UnsafePath

__all__ = ["adopt", "bind", "make_folder", "remove"]

_BACKLOG = 4096


def adopt(fd: int) -> socket.socket:
    """A listening socket the service manager opened. It is never unlinked."""
    listener = socket.socket(fileno=fd)
    listener.setblocking(False)
    return listener


def make_folder(path: str) -> None:
    """For its owner alone, where it is not there yet. Raises OSError, which names the path."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except FileExistsError:
        text = "there is something that is no directory: name another path"
        raise NotADirectoryError(errno.ENOTDIR, text, path) from None


def bind(path: str, mode: int, group: str | None) -> socket.socket:
    """Listen at `path`. Raises UnsafePath, ConfigError, OSError."""
    folder = os.path.dirname(path) or "."
    make_folder(folder)
    _check_folder(folder)
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    before = os.umask(0o177)  # nobody gets in between bind and chmod
    try:
        listener.bind(path)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen: {error.strerror or error}", path) from None
    finally:
        os.umask(before)
    try:
        if group is not None:
            os.chown(path, -1, _group_id(group))
        os.chmod(path, mode)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        os.unlink(path)
        raise
    return listener


def _group_id(group: str) -> int:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise ConfigError(f"socket_group {group!r}: no such group on this machine") from None


def _check_folder(folder: str) -> None:
    """Whoever can write the folder can put another socket in our place."""
    found = os.stat(folder)
    if found.st_uid not in (0, os.geteuid()):
        raise UnsafePath(f"{folder}: owned by uid {found.st_uid}, not by {os.geteuid()} or root")
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise UnsafePath(f"{folder}: mode {found.st_mode & 0o7777:04o} lets everybody write to it")


def _remove_stale(path: str) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise UnsafePath(f"{path}: there is something that is no socket; remove it yourself")
    if found.st_uid != os.geteuid():
        raise UnsafePath(f"{path}: a socket of uid {found.st_uid}, this is uid {os.geteuid()}")
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    probe.settimeout(1.0)
    try:
        probe.connect(path)
    except ConnectionRefusedError:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        text = f"there is a socket nobody answers at as walld would: {error.strerror or error}"
        raise OSError(error.errno, text, path) from None
    else:
        text = "another process answers at this socket: stop it, or give --socket another path"
        raise OSError(errno.EADDRINUSE, text, path)
    finally:
        probe.close()


def remove(path: str, listener: socket.socket, inode: int) -> None:
    """At the end: close, and remove the file where it is still ours."""
    listener.close()
    with suppress(OSError):  # removed underneath: nothing to clean up
        if os.lstat(path).st_ino == inode:
            os.unlink(path)
