"""The background: what nobody waits for, one thing at a time.

Owns: the round in which the daemon's background work takes turns, and when the next one begins.
Refuses: the work itself (`keeper.py`: partials; `checkpoints.py`, `turns.py`: sessions;
`reclaimer.py`: room in the log), and hurry: until a partial is synced the segment serves it.

    turns of the dead are interrupted; replies of turns go to their sessions
    partials nobody wants are removed; each orphan is kept, queries first
    sessions whose lines have waited are checkpointed
    long indexes are folded; the oldest segment is emptied, a piece a round; the dead are unlinked
    every ten minutes partials past their retention age go

One task does all of it, so no two of these ever see each other's work half done.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from walld import limits
from walld.errors import FormatError

if TYPE_CHECKING:
    from walld.daemon.checkpoints import Checkpoints
    from walld.daemon.keeper import Keeper
    from walld.daemon.reading import Reader
    from walld.daemon.reclaimer import Reclaimer
    from walld.daemon.turns import Turns
    from walld.engine.engine import Engine

__all__ = ["Background"]

_log = logging.getLogger("walld.background")
_PERIOD_SECONDS = 1.0
"""It is woken by what it waits for; this is for what only the clock brings."""
_PAUSE_SECONDS = 0.02
"""Between two rounds: nothing here is urgent."""
_GIVE_WAY_TIMES = 50
_RETENTION_PERIOD_SECONDS = 600.0


class Background:
    """The background task of a daemon."""

    def __init__(
        self,
        engine: Engine,
        keeper: Keeper,
        reclaimer: Reclaimer,
        reader: Reader,
        checkpoints: Checkpoints,
        turns: Turns,
    ) -> None:
        self._engine = engine
        self._keeper = keeper
        self._reclaimer = reclaimer
        self._reader = reader
        self._checkpoints = checkpoints
        self._turns = turns
        self._retained_at = 0.0
        self._wanted = anyio.Event()

    def wake(self) -> None:
        """Something is lost, written or synced: there may be work."""
        self._wanted.set()

    async def run(self) -> None:
        """Work for ever, a little at a time."""
        while True:
            with anyio.move_on_after(_PERIOD_SECONDS):
                await self._wanted.wait()
            self._wanted = anyio.Event()
            try:
                await self._round()
            except (OSError, FormatError) as error:
                _log.error("background work: %s", error)
                await anyio.sleep(limits.DISK_RETRY_SECONDS)
            await anyio.sleep(_PAUSE_SECONDS)

    async def _round(self) -> None:
        await self._turns.interrupt_lost()
        await self._turns.settle()
        # First what goes: a reply that is kept next may have the name of one that goes.
        await self._keeper.remove_unwanted()
        for stream in list(self._engine.orphans.values()):
            await self._give_way()
            await self._keeper.keep(stream)
        await self._checkpoints.round(anyio.current_time())
        if self._checkpoints.has_older:
            self.wake()
        await self._reclaimer.thin_out()
        if await self._reclaimer.empty_oldest():
            self.wake()
        await self._reclaimer.unlink()
        now = anyio.current_time()
        if now - self._retained_at > _RETENTION_PERIOD_SECONDS:
            self._retained_at = now
            await self._keeper.expire()

    async def _give_way(self) -> None:
        """Queries first: who sweeps up after a dead process is not to queue behind its files."""
        for _ in range(_GIVE_WAY_TIMES):
            if not self._reader.busy:
                return
            await anyio.sleep(_PAUSE_SECONDS)
