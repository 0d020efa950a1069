"""Idle exit: a daemon that `walld run` started ends when nobody uses it and all is released.

Owns: looking whether anybody holds the file of users, and that nobody can once the end is decided.
Refuses: the end itself (`shutdown.py`); who holds the file (`cli/run_program.py`).

A user holds a shared flock(2) on the file, from before it asks whether a daemon answers until it
and its program are gone. The daemon takes the exclusive one to decide, and keeps it until its
process is gone, behind LOCK of the data directory: a newcomer is either seen by the decision, or
waits and finds nobody at the socket.
"""

from __future__ import annotations

import fcntl
import logging
import os
from functools import partial
from typing import TYPE_CHECKING

import anyio

from walld.daemon.storage.disk_threads import ThreadWorker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from walld.daemon.ops.status import DaemonStatus
    from walld.daemon.transport.acceptor import Acceptor
    from walld.daemon.transport.connections import Connections

__all__ = ["IdleExit"]

_log = logging.getLogger("walld")
LOOK_SECONDS = 0.2


class IdleExit:
    """Of one daemon. path: the file of users; None: it serves until a signal."""

    def __init__(
        self, path: str | None, acceptor: Acceptor, connections: Connections, state: DaemonStatus
    ) -> None:
        self._path = path
        self._acceptor = acceptor
        self._connections = connections
        self._status = state
        self._looks = 0
        self._is_held = True
        self._kept_by: str | None = None
        self._trouble = ""

    async def stop(self, signal: Callable[[], Awaitable[str]]) -> str:
        """Why to stop: what `signal` returns, or that nobody uses it."""
        if self._path is None:
            return await signal()
        why = ""

        async def first(wait: Callable[[], Awaitable[str]]) -> None:
            nonlocal why
            why = await wait()
            either.cancel_scope.cancel()

        async with anyio.create_task_group() as either:
            either.start_soon(first, signal)
            either.start_soon(first, self._unused)
        return why

    def status(self) -> dict[str, object] | None:
        """For `walld status`, of the last look. looks: how many there were. held: somebody holds
        the file. kept_by: "agents" or "replies", what else keeps the daemon; null: nothing does.
        """
        if self._path is None:
            return None
        now = {"path": self._path, "held": self._is_held, "looks": self._looks}
        return {**now, "kept_by": self._kept_by}

    async def _unused(self) -> str:
        assert self._path is not None
        worker = ThreadWorker()  # of its own: the file may be on a disk that hangs
        while True:
            await anyio.sleep(LOOK_SECONDS)
            if self._status.word == "recovering":
                continue
            fd = await worker.run(partial(self._taken, self._path))
            self._is_held = fd is None
            self._kept_by = self._unfinished()
            self._looks += 1
            if fd is None:
                continue
            if self._kept_by is None:
                return "unused"  # fd stays open: the kernel lets go of it when the process is gone
            os.close(fd)

    def _taken(self, path: str) -> int | None:
        """A descriptor with the exclusive lock; None where somebody holds the file, or may.

        In a thread.
        """
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                raise
        except BlockingIOError:
            return None
        except OSError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                _log.error("cannot tell whether anybody uses this daemon, so it stays: %s", error)
            return None
        return fd

    def _unfinished(self) -> str | None:
        """None where all that agents sent was read, and each reply is released.

        With the lock at hand: who held the file before may have connected: it waits to be
        accepted then, or is in the table. Nobody else comes.
        """
        if self._connections.by_fd or self._acceptor.ready(1):
            return "agents"
        now = self._status.gauges()
        return "replies" if now.streams_live or now.partials else None
