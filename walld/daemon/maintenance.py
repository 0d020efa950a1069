"""Background maintenance: partials, checkpoints, compaction and retention, one step at a time.

Owns: the round in which the daemon's background work takes turns, and when the next one begins.
Refuses: the work itself (`partial_writer.py`: partials; `checkpoints.py`, `turn_watcher.py`:
sessions; `deferred_recovery.py`: damage; `compaction.py`: room in the log), and hurry: until a
partial is synced the segment serves it.

    once a second: is the directory still ours? A daemon that writes nothing is to notice, too (W4)
    turns of the dead are interrupted; replies of turns go to their sessions
    partials nobody wants are removed; orphans are kept, queries first, for a second a round
    sessions whose lines have waited are checkpointed
    what a start found damaged is noted and settled, where that had to wait
    what a start could neither sync nor read again is written anew, once it can be read
    long indexes are folded; the oldest segment is emptied, a piece a round; the dead are unlinked
    every ten minutes partials past their retention age go

One task does all of it, so no two of these ever see each other's work half done.

Invariant: a step that fails is tried again a little later, and keeps none behind it from its turn
(P5): it is said once, and in the status for as long as it lasts.
"""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from walld import limits
from walld.daemon import event_loop
from walld.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from walld.daemon.session_store.checkpoints import Checkpoints
    from walld.daemon.session_store.turn_watcher import TurnWatcher
    from walld.daemon.startup.deferred_recovery import DeferredRecovery
    from walld.daemon.startup.finish_intents import IntentFinisher
    from walld.daemon.storage.compaction import Compaction
    from walld.daemon.storage.partial_writer import PartialWriter
    from walld.daemon.storage.reply_reader import ReplyReader
    from walld.engine.engine import Engine

__all__ = ["Maintenance"]

_log = logging.getLogger("walld.maintenance")
_PERIOD_SECONDS = 1.0
"""It is woken by what it waits for; this is for what only the clock brings."""
_PAUSE_SECONDS = 0.02
"""Between two rounds: nothing here is urgent."""
_EPOCH = "the epoch is read"
_GIVE_WAY_SECONDS = 1.0
"""In a round: what stands behind the orphans in it does not wait for each of them (P5). None while
the oldest segment is emptied, piece by piece: one a round is kept beside the queries then.
"""
_RETENTION_PERIOD_SECONDS = 600.0
"""Between two looks at the ages of partials; `partials/ages.py` counts twice that at most."""


class Maintenance:
    """The background task of a daemon."""

    def __init__(
        self,
        engine: Engine,
        partial_writer: PartialWriter,
        compaction: Compaction,
        reader: ReplyReader,
        checkpoints: Checkpoints,
        intent_finisher: IntentFinisher,
        turns: TurnWatcher,
        deferred_recovery: DeferredRecovery,
        look: Callable[[], Awaitable[None]],
    ) -> None:
        """look: DirectoryTaken where the directory is another daemon's by now."""
        self._engine = engine
        self._partial_writer = partial_writer
        self._compaction = compaction
        self._reader = reader
        self._checkpoints = checkpoints
        self._intent_finisher = intent_finisher
        self._turns = turns
        self._deferred_recovery = deferred_recovery
        self._look_at_epoch = look
        self._retained_at = -math.inf
        self._is_emptying = False
        """There is more in the oldest segment to be carried: what is released stands there too."""
        self._wanted = event_loop.Bell()
        self._failing: dict[str, str] = {}
        """Step -> why its last try failed."""
        self._not_before: dict[str, float] = {}

    @property
    def trouble(self) -> str | None:
        """What it cannot do now; None where all is well."""
        return next((f"{step}: {why}" for step, why in list(self._failing.items())), None)

    def wake(self) -> None:
        """Something is lost, written or synced: there may be work."""
        self._wanted.ring()

    async def run(self) -> None:
        """Work for ever, a little at a time."""
        while True:
            await self._wanted.wait(_PERIOD_SECONDS)
            await self._round()
            await anyio.sleep(_PAUSE_SECONDS)

    async def _round(self) -> None:
        for step, work in (
            (_EPOCH, self._look),
            ("turns are interrupted", self._turns.interrupt_lost),
            ("replies go to their sessions", self._turns.settle),
            # First what goes: a reply that is kept next may have the name of one that goes.
            ("partials are removed", self._partial_writer.remove_unwanted),
            ("replies are kept", self._keep_orphans),
            ("sessions are written", self._checkpoint),
            ("damage is settled", self._deferred_recovery.finish),
            ("what is not synced is written again", self._compaction.rescue_rest),
            ("long indexes are folded", self._compaction.thin_out),
            ("the oldest segment is emptied", self._empty_oldest),
            ("segments are unlinked", self._compaction.unlink),
            ("old partials go", self._expire),
        ):
            await self._try(step, work)

    async def _try(self, step: str, work: Callable[[], Awaitable[object]]) -> None:
        if event_loop.now() < self._not_before.get(step, 0.0):
            return
        try:
            await work()
        except (OSError, FormatError) as error:
            if self._failing.get(step) != str(error):
                _log.error("background work, %s: %s; tried again from time to time", step, error)
            self._failing[step] = str(error)
            self._not_before[step] = event_loop.now() + limits.DISK_RETRY_SECONDS
        else:
            if self._failing.pop(step, None) is not None:
                _log.info("background work, %s: goes on", step)

    async def _look(self) -> None:
        await self._look_at_epoch()
        self._not_before[_EPOCH] = event_loop.now() + _PERIOD_SECONDS

    async def look_last(self) -> None:
        """For an end, which may have had nothing to write. DirectoryTaken."""
        with suppress(OSError):  # who cannot read LOCK has not read that it is another one's
            await self._look_at_epoch()

    async def _keep_orphans(self) -> None:
        """Each, queries first; beside those as many as a round has time for, one at least."""
        gave_way = False
        until = event_loop.now() + _GIVE_WAY_SECONDS * (not self._is_emptying)
        for stream in list(self._engine.orphans.values()):
            gave_way |= await self._give_way(until)
            try:
                await self._partial_writer.keep(stream)
            except OSError:
                self._engine.keep_last(stream)  # it may be this one alone
                raise
            if gave_way and event_loop.now() >= until:
                self._engine.keep_last(stream)  # no round is to end with it again
                self.wake()
                return

    async def _checkpoint(self) -> None:
        now = event_loop.now()
        await self._intent_finisher.round(now)
        await self._checkpoints.round(now)
        if self._checkpoints.has_older:
            self.wake()

    async def _empty_oldest(self) -> None:
        self._is_emptying = False  # also where it fails
        self._is_emptying = await self._compaction.empty_oldest()
        if self._is_emptying:
            self.wake()

    async def _expire(self) -> None:
        now = event_loop.now()
        is_due = now - self._retained_at > _RETENTION_PERIOD_SECONDS
        if is_due or self._partial_writer.clock_has_stepped:
            await self._partial_writer.expire()
            self._retained_at = now

    async def _give_way(self, until: float) -> bool:
        """Queries first: who sweeps up after a dead process is not to queue behind its files. True
        where there was one.
        """
        gave_way = False
        while self._reader.busy:
            gave_way = True
            if event_loop.now() >= until:
                break
            await anyio.sleep(_PAUSE_SECONDS)
        return gave_way
