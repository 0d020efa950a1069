"""Bounds what one agent may send between two flushes, so that none delays the others.

Owns: who has given its share and is not read until the flush that takes it has begun; when nobody
is read, because the queue is full; since when what is read next may have waited. Refuses: reading
(`socket_reader.py`), when to flush (`engine/flush_schedule.py`), what a process may give
(`process_shares.py`).

Whoever waits for a flush waits for all that is in it. Without shares one agent that writes as fast
as it can fills the whole queue, the flush of that takes as long as its disk needs for 48 MiB, and
then the others are not read either until half of it is written: 63 agents that drained after each
token beside one that sent 64 KiB tokens waited 1.6 s (p99) instead of 5 ms.

A share is so large that only a flood reaches it: 100 streams of 60 tokens a second on one
connection give 36 KiB in a linger of 250 ms. What is over stays in the kernel's buffer and in the
client, as with a full queue. Many connections have a share each, so where others wait, or much has
come, each process has a part as well (`process_shares.py`). While much is written and not synced no
new shares are given, so that the room for that (`UNSYNCED_BYTES_MAX`), too, is there for those who
say little.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from walld import limits
from walld.daemon import event_loop
from walld.daemon.transport.process_shares import ProcessShares

if TYPE_CHECKING:
    import select

    from walld.daemon.transport.connections import Connections, Peer
    from walld.engine.engine import Engine

__all__ = ["FairQueue"]

_STUCK_SECONDS = 1.0
"""A flush that lasts so long waits for a disk that hangs or fails."""


class FairQueue:
    """Who may be read now."""

    def __init__(self, engine: Engine, connections: Connections) -> None:
        self._engine = engine
        self._connections = connections
        self.process_shares = ProcessShares(engine)
        self._given: dict[int, int] = {}
        """Bytes since the last flush began, by descriptor, of those who give much at a time."""
        self._share_spent: dict[Peer, select.epoll] = {}
        """Whoever has given its share, and where it is watched otherwise."""
        self._shares_withheld = False
        """A flush gave no new shares, because too much was not synced."""
        self.is_paused = False
        """Nobody is read: the queue is full."""
        self._flush_since = math.inf
        """When the flush under way began."""
        self._held_since = math.inf
        self._waited_since = math.inf
        """Since when something may have waited that is read again now; for one sweep."""
        self._let_go_at = -math.inf

    def look_for_room(self) -> None:
        """Pause agents when the queue is full, until it is at half; a full disk pauses nobody.

        What is not read is not lost: it stays in the kernel's buffers, and its age counts.
        Newcomers are let in all the same, so that somebody can ask what is wrong.
        """
        was_paused = self.is_paused
        full = self._engine.is_full or (was_paused and not self._engine.has_room)
        self.is_paused = full and not self._engine.disk_full
        if self.is_paused:
            self._hold()
        elif was_paused:
            self._let_go()
        self.process_shares.is_stuck = self._is_stuck
        self.process_shares.look(event_loop.now())

    def turn_bytes(self, peer: Peer) -> int:
        """How much of it may be read in this turn; 0: nothing, until a flush has begun."""
        connection = peer.connection
        if connection.has_stopped_reading and not connection.process.has_exited:
            self._spend_share(peer)  # until it reads what it is told: `tick` looks again
            return 0
        count = self.process_shares.turn_bytes(connection.process)
        if not count:
            self._spend_share(peer)
            self._engine.schedule.hurry_flush()
        return count

    def waited_since(self, swept_at: float) -> float:
        """Since when what the sweep at hand reads may have waited here. swept_at: the last one.

        Who is let go and has something is read at once: after a silence it has just come.
        """
        since, self._waited_since = self._waited_since, math.inf
        idle = event_loop.now() - max(self._let_go_at, swept_at)
        return since if idle <= 2 * limits.REST_SECONDS_MAX else math.inf

    def gave(self, peer: Peer, count: int) -> None:
        """It gave so many bytes in its turn: more than a few."""
        engine = self._engine
        descriptor = peer.socket.fileno()
        given = self._given[descriptor] = self._given.get(descriptor, 0) + count
        if given < limits.SHARE_BYTES or engine.disk_full or engine.schedule.oldest is None:
            return  # the last: nothing of it waits for a flush, so none would let it go on
        self._spend_share(peer)
        engine.schedule.hurry_flush()

    def _spend_share(self, peer: Peer) -> None:
        if peer.selector is not None:
            self._share_spent[peer] = peer.selector
            peer.watch(None)
        self._hold()

    def unwatch(self, peer: Peer) -> None:
        """Its process has exited: `exited.py` reads it, no sweep does."""
        self._share_spent.pop(peer, None)
        peer.watch(None)

    def begun(self) -> None:
        """A flush has begun: whoever gave its share may give another one.

        Who asked for it is looked at here, too: where no agent speaks no sweep would.
        """
        self._flush_since = event_loop.now()
        self.process_shares.look(self._flush_since)
        self._renew()

    def _renew(self) -> None:
        self._shares_withheld = (
            self._engine.batches.unsynced_bytes >= limits.UNSYNCED_BYTES_MAX // 2
        )
        self.process_shares.renew(withheld=self._shares_withheld)
        if not self._shares_withheld:
            self._give()

    def _give(self) -> None:
        self._given.clear()
        spent, self._share_spent = self._share_spent, {}
        for peer, selector in spent.items():
            if peer.connection in self._connections.by_connection:
                peer.watch(selector)
        if not self.is_paused:
            self._let_go()

    def flushed(self) -> None:
        """A flush has ended. It took what was given while it lasted, too.

        If that was all, no other is due that would let on who has given its share meanwhile.
        """
        self._flush_since = math.inf
        if self._engine.schedule.oldest is None:
            self._renew()

    def synced(self) -> None:
        """A sync has ended: what was not to be given for want of it is given now."""
        if self._shares_withheld:
            self._renew()

    def tick(self) -> None:
        """Once a second. Behind a disk that is full, or takes no write, nobody gains by holding.

        What is held is the agent's alone until it is read: a share each second is safe from its
        death then, as far as the queue goes.
        """
        idle = self._engine.schedule.oldest is None
        if self._engine.disk_full or self._is_stuck or (idle and not self._shares_withheld):
            self.process_shares.renew(withheld=False)
            if self._share_spent:
                self._give()

    @property
    def _is_stuck(self) -> bool:
        return event_loop.now() - self._flush_since > _STUCK_SECONDS

    def _hold(self) -> None:
        self._held_since = min(self._held_since, event_loop.now())

    def _let_go(self) -> None:
        if self._held_since < math.inf:
            self._waited_since = min(self._waited_since, self._held_since)
            self._let_go_at = event_loop.now()
        self._held_since = math.inf

    @property
    def has_spent(self) -> bool:
        """Somebody has given all it may until a flush has begun."""
        return bool(self._share_spent)

    @staticmethod
    def is_held(peer: Peer) -> bool:
        """It has given its share. Of an agent that was let in."""
        return peer.selector is None
