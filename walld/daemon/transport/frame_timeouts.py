"""Closes connections of agents and newcomers whose frame begins and is never completed.

Owns: when a frame has had its time. Refuses: when it was begun (`socket_reader.py`), a query's
frames (`server.py`).

What the kernel has is what the peer has sent. Where a sweep over all agents lasts longer than a
frame may, the rest of an honest one stands there unread, and to close its connection would be
untrue and add to the load: it comes back and says all that is not synced again. So one that is over
its time has a turn at once, and is judged only where the kernel has nothing more of it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from anyio.lowlevel import checkpoint

from walld import limits
from walld.daemon import event_loop
from walld.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld.daemon.transport.connections import Connections, Peer
    from walld.daemon.transport.fair_queue import FairQueue

__all__ = ["FrameTimeouts"]


class FrameTimeouts:
    """Looks for frames that were begun too long ago."""

    def __init__(
        self, connections: Connections, fair_queue: FairQueue, turn: Callable[[Peer, int], int]
    ) -> None:
        """turn: a turn of a connection, within what it may give."""
        self._connections = connections
        self._fair_queue = fair_queue
        self._turn = turn

    async def look(self) -> None:
        """Once a second."""
        slice_end = time.perf_counter() + limits.SWEEP_SLICE_SECONDS
        for peer in [
            one for one in self._connections.by_fd.values() if one.frame_since is not None
        ]:
            if peer.connection in self._connections.by_connection:
                self._judge(peer)
            if time.perf_counter() > slice_end:
                await checkpoint()
                slice_end = time.perf_counter() + limits.SWEEP_SLICE_SECONDS

    def _judge(self, peer: Peer) -> None:
        now, since = event_loop.now(), peer.frame_since
        if since is None:
            return  # whole meanwhile
        if self._fair_queue.is_paused or peer.selector is None:
            peer.frame_since = now  # it is not read: the rest may have come long ago
            return
        if now - since <= limits.FRAME_SECONDS_MAX:
            return
        self._turn(peer, time.time_ns() // 1_000_000)
        is_open = peer.connection in self._connections.by_connection
        if is_open and peer.frame_since == since and not event_loop.unread_bytes(peer.socket):
            got, limit = f"{now - since:.0f} s", limits.FRAME_SECONDS_MAX
            late = ProtocolError("slow_frame", "a frame was not whole in time", got, limit)
            self._connections.refuse(peer, late)
