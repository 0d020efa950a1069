"""Shutdown: from the signal to the last sync, and what it does not wait for.

Owns: that serving ends at a stop, and that a data directory which was removed ends it all. Refuses:
signals (`signals.py`), the end itself (`service.py`).

An end waits for a disk that fails, however long: it may have the only copy. It is not cut short by
anything, and tries again by itself. But in a directory that was removed, before the signal or while
it waits, nothing will ever be written: a script that stops a daemon and removes its directory does
not wait in between.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from walld.errors import WalldError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup

    from walld.daemon.ops.systemd import Notifier
    from walld.daemon.startup.first_segment import FirstSegment
    from walld.daemon.storage.disk_threads import Worker
    from walld.daemon.storage.syncer import Syncer
    from walld.daemon.transport.connections import Connections
    from walld.disk.base import Disk

__all__ = ["Shutdown"]

_log = logging.getLogger("walld")
_LOOK_SECONDS = 1.0


class Shutdown:
    """Of one daemon."""

    def __init__(
        self,
        disk: Disk,
        thread: Worker,
        connections: Connections,
        notifier: Notifier,
        syncer: Syncer,
        first_segment: FirstSegment,
        ready: anyio.Event,
    ) -> None:
        self._disk = disk
        self._thread = thread
        self._connections = connections
        self._notifier = notifier
        self._syncer = syncer
        self._first_segment = first_segment
        self._ready = ready

    async def run(
        self, stop: Callable[[], Awaitable[str]], serving: TaskGroup, life: TaskGroup
    ) -> None:
        """Cancel `serving` once `stop` has returned, with the word for why. Where the directory is
        gone, until the end is over, `life` ends with a WalldError.
        """
        _log.info("%s: stopping", await stop())
        life.start_soon(self._look)
        self._notifier.stopping("draining")
        if self._ready.is_set():
            await self._connections.query_sockets.settled(
                None, None
            )  # who is gone asks nobody again
        serving.cancel_scope.cancel()

    async def _look(self) -> None:
        # In the thread that the last job of an end goes to as well: the first look comes before it.
        while True:
            if await self._thread.run(self._disk.is_removed):
                break
            await anyio.sleep(_LOOK_SECONDS)
        self._syncer.stop_waiting()
        self._first_segment.stop_waiting()
        raise WalldError(f"{self._disk.root} was removed: what was not synced is lost")
