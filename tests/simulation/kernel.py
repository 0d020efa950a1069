"""What the operating system is to a simulated world: processes, sockets that fail, time, chance.

Owns: who connected (by the address a socket is bound to), who is alive (an eventfd each), the
clocks and the random numbers all code sees. Refuses: files (`walld/disk/`), what anybody does.

Sockets are the kernel's own: what one end has sent the other can read, also after the sender is
gone, exactly as in production. Everything runs in one thread, so the order is the seed's alone; a
thread that something else has left in this process goes on living on the real machine.
"""

from __future__ import annotations

import os
import random as real_random
import socket
import sys
import threading
import time as real_time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar

import anyio
from walld_client.link import reconnect

from walld.daemon.transport import credentials
from walld.wal.records import Owner

__all__ = ["Kernel", "SimulatedSocket"]

_T = TypeVar("_T")

_BEGUN_NS = 1_750_000_000 * 10**9
_STEP_SECONDS = 0.00005
"""What a look at the fine clock costs: it is what makes a sweep yield."""


class Kernel:
    """One machine, through all its boots."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.boot = "boot-1"
        self._boots = 1
        self._pids = 100
        self._alive: dict[int, int] = {}
        """pid: the eventfd that says it has exited."""
        self._of: dict[bytes, tuple[int, int]] = {}
        """Address of a socket: (pid, uid)."""
        self.running: tuple[int, int] = (1, 0)
        """(pid, uid) of the process whose code runs now."""
        self.send_faults = 0.0
        self.daemon_no = 0
        """Which daemon is there; 0 none."""
        self._ticks = 0.0

    # --- processes ------------------------------------------------------------------------------

    def spawn(self) -> int:
        """A new process. Returns its pid."""
        self._pids += 1
        self._alive[self._pids] = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return self._pids

    def exit(self, pid: int) -> None:
        """It is gone: whoever watches it is told."""
        fd = self._alive.pop(pid)
        os.eventfd_write(fd, 1)
        os.close(fd)

    def reboot(self) -> None:
        """Nothing that ran runs any more."""
        self._boots += 1
        self.boot = f"boot-{self._boots}"

    def close(self) -> None:
        """Give every descriptor back."""
        for pid in list(self._alive):
            self.exit(pid)

    def bound(self, connection: socket.socket) -> None:
        """Note whose socket this is."""
        connection.bind("")  # the kernel draws an address (unix(7), autobind)
        self._of[connection.getsockname()] = self.running

    # --- what the daemon asks a kernel ----------------------------------------------------------

    def _credentials(self, peer: socket.socket) -> credentials.PeerCredentials:
        pid, uid = self._of.get(peer.getpeername() or b"", (1, 0))
        return credentials.PeerCredentials(pid, uid, uid)

    def _pidfd(self, pid: int) -> int | None:
        fd = self._alive.get(pid)
        if fd is None and pid in (0, 1):
            return os.eventfd(0, os.EFD_CLOEXEC)
        if fd is None:  # exited since it connected
            return os.eventfd(1, os.EFD_CLOEXEC)
        return os.dup(fd)

    def _describe(self, pid: int, pidfd: int | None, boot: str) -> Owner:
        return Owner(boot, pid, 0 if pidfd is None else os.fstat(pidfd).st_ino, 0)

    def _find(self, owner: Owner) -> int | None:
        return self._pidfd(owner.pid) if owner.pid in self._alive else None

    # --- clocks ---------------------------------------------------------------------------------

    def _fine(self) -> float:
        self._ticks += _STEP_SECONDS
        return self._ticks

    def wall_ms(self) -> int:
        """The wall clock, as all code sees it."""
        return self._wall_ns() // 10**6

    def _wall_ns(self) -> int:
        return _BEGUN_NS + int(anyio.current_time() * 1e9)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """All code of this thread lives on this machine."""
        clocks = SimpleNamespace(
            monotonic=_here(anyio.current_time, real_time.monotonic),
            time=_here(lambda: self._wall_ns() / 1e9, real_time.time),
            time_ns=_here(self._wall_ns, real_time.time_ns),
            clock_gettime_ns=_here(
                lambda _clock: int(anyio.current_time() * 1e9), real_time.clock_gettime_ns
            ),
            CLOCK_BOOTTIME=real_time.CLOCK_BOOTTIME,
            perf_counter=_here(self._fine, real_time.perf_counter),
            sleep=_here(lambda _seconds: None, real_time.sleep),
        )
        sockets = SimpleNamespace(**{name: getattr(socket, name) for name in dir(socket)})
        sockets.socket = _here(lambda *args: SimulatedSocket(self, *args), socket.socket)
        uniform = _here(self.random.uniform, reconnect._chance.uniform)
        undo: list[tuple[Any, str, Any]] = []

        def put(holder: Any, name: str, value: Any) -> None:
            undo.append((holder, name, getattr(holder, name)))
            setattr(holder, name, value)

        for name, module in list(sys.modules.items()):
            ours = name.partition(".")[0] in ("walld", "walld_client")
            if ours and vars(module).get("time") is real_time:
                put(module, "time", clocks)
        put(reconnect, "socket", sockets)
        put(reconnect, "_chance", SimpleNamespace(uniform=uniform))
        put(os, "urandom", _here(self.random.randbytes, os.urandom))
        put(credentials, "credentials", self._credentials)
        put(credentials, "open_pidfd", lambda _peer, pid: self._pidfd(pid))
        put(credentials, "describe", self._describe)
        put(credentials, "find_process", self._find)
        put(credentials, "boot_id", lambda: self.boot)
        try:
            yield
        finally:
            while undo:
                holder, name, value = undo.pop()
                setattr(holder, name, value)


def _here(simulated: Callable[..., _T], real: Callable[..., _T]) -> Callable[..., _T]:
    """The one in this thread, the other in each other."""
    own = threading.get_ident()

    def call(*args: Any) -> _T:
        return simulated(*args) if threading.get_ident() == own else real(*args)

    return call


class SimulatedSocket(socket.socket):
    """An agent's socket: sends may be taken in part, refused for now, or end the connection."""

    def __init__(self, kernel: Kernel, *args: int) -> None:
        super().__init__(*args)
        self._kernel = kernel
        self.said = bytearray()
        """All that was taken, for a network that says things twice."""
        self.daemon_no = kernel.daemon_no
        self.is_cut = False
        kernel.bound(self)

    def shutdown(self, how: int, /) -> None:
        self.is_cut = True
        super().shutdown(how)

    def send(self, data: Any, flags: int = 0, /) -> int:
        kernel = self._kernel
        chance = kernel.random.random()
        if chance < kernel.send_faults:
            kind = kernel.random.randrange(3)
            if kind == 0:
                raise BlockingIOError
            part = bytes(data)[: kernel.random.randrange(len(data) + 1)]
            taken = super().send(part, flags) if part else 0
            self.said += part[:taken]
            if kind == 1 and taken:
                return taken
            self.shutdown(socket.SHUT_RDWR)
            raise ConnectionResetError
        taken = super().send(data, flags)
        self.said += bytes(data)[:taken]
        return taken


assert real_random.Random is Random
