"""The listening socket: inherited from the service manager, or bound to a path.

Owns: binding, modes, removing a stale socket, and whether agents still find it at its path.
Refuses: accepting (`acceptor.py`).

Invariant: a socket file is removed only with the data directory's lock held and a connect refused:
somebody who answers keeps it.

Who cleans up removes the file beneath a daemon (logind empties a user's runtime directory at the
last logout): the socket listens on, and nobody can connect to it. So the path is looked at.
"""

from __future__ import annotations

import errno
import grp
import logging
import os
import shlex
import socket
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from walld_client.link.path_walk import OTHERS_WRITE, Step, is_unmapped, walk

from walld.disk.root import check_owner
from walld.errors import ConfigError, UnsafePath, WalldError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SocketFile", "adopt", "bind", "make_folder", "make_socket_folder"]

_log = logging.getLogger("walld")
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


def make_socket_folder(path: str, group: str | None) -> None:
    """That of a socket at `path`, and those above, where they are not there yet.

    Raises ConfigError, and OSError, which names the path.
    """
    folder = _folder(path)
    try:
        os.makedirs(os.path.dirname(folder) or ".", exist_ok=True)
        _make_last_folder(folder, group)
    except FileExistsError:
        pass
    make_folder(folder)  # raises where there is something else


def _make_last_folder(folder: str, group: str | None) -> None:
    """For its owner alone; a group that may connect passes through it."""
    gid = None if group is None else _group_id(group)
    os.mkdir(folder, 0o700)
    if gid is not None:
        os.chown(folder, -1, gid)
        os.chmod(folder, 0o750)


def bind(path: str, mode: int, group: str | None) -> socket.socket:
    """Listen at `path`. Raises UnsafePath, ConfigError, OSError."""
    _check_way(_folder(path))  # before a folder is made where somebody's link leads
    make_socket_folder(path, group)
    return _bind(path, mode, group)


def _bind_anew(path: str, mode: int, group: str | None) -> socket.socket:
    """Beside whatever removed the file: of its folders the last one alone is made again.

    Who removes all of /run/user/1000 takes a while to make it again, and that is its own to make.
    """
    with suppress(FileExistsError):
        _make_last_folder(_folder(path), group)
    return _bind(path, mode, group)


def _folder(path: str) -> str:
    return os.path.dirname(path) or "."


def _bind(path: str, mode: int, group: str | None) -> socket.socket:
    _check_way(_folder(path))
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    # The file gets the socket's own mode, so nobody gets in between bind and chmod. Not by umask,
    # which is that of every thread: what others make meanwhile would have it.
    os.fchmod(listener.fileno(), 0o600)
    try:
        listener.bind(path)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen: {error.strerror or error}", path) from None
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


def _check_way(folder: str) -> None:
    """Whoever can replace a folder or a link on the way to the socket can put another in its place.

    As far as it is there: what is missing is made. Raises UnsafePath, OSError.
    """
    steps: list[Step] = []
    with suppress(FileNotFoundError, NotADirectoryError):
        for step in walk(folder):
            steps.append(step)  # noqa: PERF402 - what came before an error is looked at too
    for where, found in steps:
        is_hidden = where != steps[-1].path and is_unmapped(found.st_uid)
        if is_hidden and (found.st_mode & stat.S_ISVTX or not found.st_mode & OTHERS_WRITE):
            continue  # root's, outside of this user namespace, as far as can be told
        check_owner(
            where,
            found,
            harm="put a socket of their own in the place of walld's",
            instead="another --socket",
            sticky_will_do=True,
        )


def _shut_out(path: str, gid: int) -> str | None:
    """Says of the first folder that a group cannot pass through on its way to the socket.

    Not of one through which another group may: there are users of both, and access control lists.
    """
    with suppress(OSError):
        for where, found in walk(_folder(path)):
            mode = found.st_mode
            may_pass = mode & stat.S_IXGRP or (mode & stat.S_IXOTH and found.st_gid != gid)
            if stat.S_ISDIR(mode) and not may_pass:
                return (
                    f"socket {path}: its group {gid} cannot pass through {where} of uid "
                    f"{found.st_uid}, gid {found.st_gid}, mode {stat.S_IMODE(mode):04o}: chgrp "
                    f"{gid} {shlex.quote(where)} && chmod g+x {shlex.quote(where)}, or give "
                    "another --socket"
                )
    return None


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


def _identity(path: str) -> tuple[int, int] | None:
    """Of the file at `path`; None where none can be seen. A socket that listens keeps the number of
    its file from being given to another, also once it is removed.
    """
    try:
        found = os.lstat(path)
    except (OSError, ValueError):  # that of an abstract socket is no path
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISSOCK(found.st_mode) else None


class SocketFile:
    """The path of a listening socket, by which agents find it. Used by one thread at a time."""

    def __init__(
        self,
        path: str,
        listener: socket.socket,
        bind_anew: Callable[[], socket.socket] | None,
        group: str | None = None,
    ) -> None:
        """bind_anew: None where the service manager opened the socket. group: who may connect."""
        self._path = path
        # Once: to look it up may ask a server of the network.
        self._gid = None if group is None else _group_id(group)
        self._bind_anew = bind_anew
        self._file = _identity(path)
        self.listener = listener
        self.trouble: str | None = None
        """Why some or all cannot connect by the path now; None where all is well."""
        self.bound_anew = 0
        """How often its file was removed, and made again."""

    @classmethod
    def bound(cls, path: str, mode: int, group: str | None) -> SocketFile:
        """A socket of our own at `path`. Raises UnsafePath, ConfigError, OSError."""
        listener = bind(path, mode, group)
        return cls(path, listener, lambda: _bind_anew(path, mode, group), group)

    @classmethod
    def passed(cls, fd: int) -> SocketFile:
        """One that the service manager opened."""
        listener = adopt(fd)
        path = os.fsdecode(listener.getsockname())
        is_file = path != "" and not path.startswith("\0")  # else abstract, or bound to nothing
        try:
            if is_file:
                _check_way(_folder(path))
        except UnsafePath as unsafe:  # the manager's unit says where, and it is open already
            _log.warning("the service manager's socket %s: %s", path, unsafe)
        except OSError:  # not to be seen from here
            pass
        return cls(path, listener, None)

    def look(self) -> socket.socket | None:
        """A listener in the place of the one so far, whose file is gone; None where it stays."""
        found = _identity(self._path)
        if self._bind_anew is None:
            # What was never seen may well be there, in another mount namespace.
            is_there = self._file in (None, found)
            why = "it is the service manager's: restart its unit"
            self._say(None if is_there else self._removed(why))
            return None
        if found is not None and found == self._file:
            self._say(None if self._gid is None else _shut_out(self._path, self._gid))
            return None
        try:
            self.listener = listener = self._bind_anew()
        except (WalldError, OSError) as error:
            self._say(self._removed(f"it cannot be bound anew: {error}"))
            return None
        self._file = _identity(self._path)
        self.trouble = None
        self.bound_anew += 1
        _log.warning("socket %s: its file was removed; bound anew", self._path)
        return listener

    def _removed(self, why: str) -> str:
        return f"socket {self._path}: its file was removed or replaced: {why}"

    def _say(self, trouble: str | None) -> None:
        before, self.trouble = self.trouble, trouble
        if before != trouble:
            if trouble is None:
                _log.info("socket %s: its file is there again, and its way open", self._path)
            else:
                _log.error("%s", trouble)

    def close(self) -> None:
        """At the end: close, and remove the file where it is still ours."""
        self.listener.close()
        if self._bind_anew is None or self._file is None:
            return
        with suppress(OSError):  # removed underneath: nothing to clean up
            if _identity(self._path) == self._file:
                os.unlink(self._path)
