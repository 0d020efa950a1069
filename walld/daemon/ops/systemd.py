"""Talks to the service manager: sd_notify, the watchdog, inherited sockets.

Owns: the datagrams of sd_notify(3) and the checks of sd_listen_fds(3), by hand: the protocol is one
datagram and three variables. Refuses: deciding when the daemon is ready or well.

Invariants: nothing here waits and nothing raises for the manager's sake; a line that could not be
sent goes with the next one, the newest of each key. The variables are taken out of the environment,
so that no child can speak for the daemon.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
import stat
from collections.abc import MutableMapping
from typing import Final

from walld.errors import ConfigError
from walld.escape import escaped_line

__all__ = ["Notifier", "listen_fds"]

LISTEN_FD_FIRST: Final = 3
STATUS_CHARACTERS_MAX: Final = 500
WATCHDOG_USEC_MAX: Final = 1000 * 365 * 86_400 * 1_000_000
"""A thousand years: no more than every event loop can sleep."""
_DIGITS_MAX: Final = 1000
_SHOWN_MAX: Final = 40

_log = logging.getLogger("walld.systemd")


class Notifier:
    """The service manager's end, or nothing where there is none.

    watchdog_seconds: it wants to hear from us this often; None where it does not.
    """

    def __init__(self, address: str | None = None, watchdog_seconds: float | None = None) -> None:
        self.watchdog_seconds = watchdog_seconds
        self._unsent: dict[str, str] = {}
        self._warned = False
        self._socket: socket.socket | None = None
        self._address = address or ""
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        elif self._address and not self._address.startswith("/"):
            _log.warning("NOTIFY_SOCKET %s is no Unix socket: not used", address)
            self._address = ""
        if self._address:
            self._socket = socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
            )

    @classmethod
    def from_environment(cls, env: MutableMapping[str, str], pid: int) -> Notifier:
        """Reads and removes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID."""
        address = env.pop("NOTIFY_SOCKET", None)
        usec = _number(env.pop("WATCHDOG_USEC", ""))
        watched = env.pop("WATCHDOG_PID", "")
        if watched not in ("", str(pid)) or not usec:
            return cls(address)
        if usec > WATCHDOG_USEC_MAX:
            _log.warning("WATCHDOG_USEC %s is above %d: not used", _shown(usec), WATCHDOG_USEC_MAX)
            return cls(address)
        return cls(address, usec / 1e6)

    def ready(self, status: str) -> None:
        """Agents can connect."""
        self._send(READY="1", STATUS=status)

    def status(self, status: str) -> None:
        """One line for `systemctl status`."""
        self._send(STATUS=status)

    def stopping(self, status: str = "stopping") -> None:
        """SIGTERM was taken."""
        self._send(STOPPING="1", STATUS=status)

    def watchdog(self) -> None:
        """The event loop is alive."""
        self._send(WATCHDOG="1")

    def extend(self, seconds: float) -> None:
        """Starting or stopping needs at least this much longer, from now."""
        self._send(EXTEND_TIMEOUT_USEC=str(int(seconds * 1e6)))

    def close(self) -> None:
        """No more lines."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, **lines: str) -> None:
        if self._socket is None:
            return
        if "STATUS" in lines:
            lines["STATUS"] = escaped_line(lines["STATUS"][:STATUS_CHARACTERS_MAX])
        self._unsent.update(lines)
        message = "\n".join(f"{key}={value}" for key, value in self._unsent.items())
        try:
            self._socket.sendto(message.encode(), self._address)
        except OSError as error:
            if not self._warned:  # once: the manager may be gone for good
                self._warned = True
                _log.warning("the service manager does not take notices: %s", error.strerror)
            return
        self._unsent.clear()
        self._warned = False


def listen_fds(env: MutableMapping[str, str], pid: int) -> list[int]:
    """Listening Unix stream sockets that the service manager opened for this process.

    Removes LISTEN_FDS, LISTEN_PID and LISTEN_FDNAMES; makes the descriptors close on exec and not
    block. Raises ConfigError for a descriptor that is anything else: to ignore it would leave
    agents waiting at a socket nobody serves.
    """
    count = _number(env.pop("LISTEN_FDS", ""))
    for_pid = env.pop("LISTEN_PID", "")
    names = env.pop("LISTEN_FDNAMES", "").split(":")
    if count is None or for_pid != str(pid):
        return []
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - LISTEN_FD_FIRST
    if count > most >= 0:  # no limit is -1
        raise ConfigError(
            f"LISTEN_FDS is {_shown(count)}, and this process can have {most} of them: "
            "it is the number of sockets that the service manager has opened"
        )
    fds = []
    for position, fd in enumerate(range(LISTEN_FD_FIRST, LISTEN_FD_FIRST + count)):
        name = names[position] if position < len(names) and names[position] else "unnamed"
        _check_listening(fd, name)
        os.set_inheritable(fd, False)
        os.set_blocking(fd, False)
        fds.append(fd)
    return fds


def _number(text: str) -> int | None:
    """None where it is no number; one that is too long to be read is beyond every bound."""
    if not text.isdecimal():
        return None
    return int(text) if len(text) <= _DIGITS_MAX else 10**_DIGITS_MAX


def _shown(number: int) -> str:
    text = str(number)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def _check_listening(fd: int, name: str) -> None:
    where = f"LISTEN_FDS: descriptor {fd} ({escaped_line(name)})"
    try:
        is_socket = stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError as error:
        raise ConfigError(f"{where} is not open: {error.strerror}") from error
    if not is_socket:
        raise ConfigError(f"{where} is no socket; ListenStream= with a path is taken")
    listener = socket.socket(fileno=fd)
    try:
        family, kind = listener.family, listener.type & ~socket.SOCK_NONBLOCK
        listening = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    finally:
        listener.detach()
    if family != socket.AF_UNIX or kind != socket.SOCK_STREAM or not listening:
        raise ConfigError(
            f"{where} is a {socket.AddressFamily(family).name} {socket.SocketKind(kind).name} "
            f"socket{'' if listening else ' that does not listen'}; "
            "a listening AF_UNIX SOCK_STREAM is taken"
        )
