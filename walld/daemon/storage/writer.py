"""Writes batches to the current segment, and rolls to a new one when the disk refuses.

Owns: which segment is written to and at what offset, when the next one begins, what follows when a
write or a sync fails, and the words for it (`trouble`). Refuses: what is in a batch
(`engine/batch_builder.py`), when there is one (`flusher.py`), when to sync (`syncer.py`).

Invariants
- W1 One writer: batches are written one at a time, in number order, at a tracked offset.
- W2 An error of a sync, or of a write that is not for want of room, poisons the segment: no second
  sync, no read-back; what is not synced is written again from memory into a new segment under its
  own numbers, and acknowledged only after ITS sync (P8). Failing again: kept, said, tried again.
- W3 A full disk: the write is taken back, the reserve makes room, and until it can be put aside
  again only ends and releases are written; tried again every second (P7).
- W4 Nothing is acknowledged by a daemon that is no longer the owner of its directory: each write
  and each sync ends with a look at the epoch (`check_owner`).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

import anyio

from walld import limits
from walld.daemon import event_loop
from walld.disk.base import NO_ROOM
from walld.engine.segments import Segment
from walld.errors import DirectoryTaken, TakenOver
from walld.wal.encode import settled_batches

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from walld.daemon.metrics import Metrics
    from walld.daemon.storage.disk_threads import Worker
    from walld.disk.lock import Owner
    from walld.disk.reserve import Reserve
    from walld.engine.batch import SealedBatch
    from walld.engine.engine import Engine
    from walld.wal.layout import Settled
    from walld.wal.segment_files import SegmentFiles
    from walld.wal.verdict import Verdict

    Follow = Callable[[int], "Following | None"]

__all__ = ["Following", "Writer"]

_log = logging.getLogger("walld.wal")


class Following(Protocol):
    """A sync that follows a write at once."""

    def start(self) -> None:
        """In the writer's thread: the write has returned."""

    def written(self) -> None:
        """On the loop: it has heard of the write, and who waits for a sync waits for this one."""


class Writer:
    """Writes the batches of one engine."""

    def __init__(
        self,
        engine: Engine,
        files: SegmentFiles,
        reserve: Reserve,
        owner: Owner,
        metrics: Metrics,
        thread: Worker,
        replaced: Callable[[], None],
    ) -> None:
        """replaced: called when what is not synced stands in a new segment, to be synced there."""
        self._engine = engine
        self._files = files
        self._reserve = reserve
        self._owner = owner
        self._metrics = metrics
        self._thread = thread
        self._replaced = replaced
        self._lock = anyio.Lock(fast_acquire=True)
        self.trouble: str | None = None
        """What keeps the disk from taking writes or syncs, None while all is well."""
        self.generation = 0
        """Raised when batches move to a new segment: a sync begun before says nothing of them."""
        self._taken = ""
        """By another daemon: it was seen, and nothing is written any more (W4)."""
        self._is_moving = False
        """What is not synced has begun to move. A stop may cut that short: then it begins anew."""
        self._pause_seconds = 0.0
        self._last_id = 0
        self._synced_no_max: int | None = None
        self.starved: Callable[[], Awaitable[None]] | None = None
        """Awaited where a full disk has no reserve to live on either; a start sets it."""

    # --- segments -------------------------------------------------------------------------------

    async def begin(self, last_segment_id: int, verdict: Verdict) -> None:
        """A start's own segment. What the scan found stands first in it, so that it is said once.

        Until `rows_synced` is called no header says more of what is synced than the log did. A disk
        that takes nothing yet is no reason not to start: it is tried again every second. On a full
        one the reserve has the room for it: what is there can be read, and turns can end (W3).
        """
        # No id below the epoch (`directory_lock.py`): names are there where nothing else can be
        # read.
        self._last_id = max(last_segment_id, self._owner.epoch - 1)
        while True:
            try:
                first_batch = self._engine.batches.written_no + 1
                await self._open_segment(first_batch, passed=verdict.passed)
                break
            except OSError as error:
                self._trouble_begins(f"write of a new segment: {error.strerror or error}")
                if error.errno in NO_ROOM:
                    await self._live_on_the_reserve()
                else:
                    await self.pause(limits.DISK_RETRY_SECONDS)
        if not self._engine.disk_full:
            if self.trouble is not None:
                self._trouble_over()
            try:
                await self._thread.run(self._reserve.make)
            except OSError as error:
                self._trouble_begins(f"write of the reserve: {error.strerror or error}")
        self._synced_no_max = verdict.synced_no

    async def write_rows(self, rows: list[Settled]) -> None:
        """Write down what a start has found or done about older batches."""
        for batch in settled_batches(self._engine.batches.next_batch, rows):
            await self.write(self._engine.batches.adopt(batch))

    async def rows_synced(self) -> None:
        """All of that is synced: headers and LOCK may say how far it reaches, and from where on."""
        self._owner.first_no = self._owner.first_no or self._engine.segments.begin_without(0)
        synced_no = self._engine.batches.synced_no
        await self._thread.run(lambda: self._owner.begun(synced_no))
        self._synced_no_max = None

    async def roll(self) -> None:
        """End the current segment; the next batch goes to a new one."""
        async with self._lock:
            current = self._engine.segments.current
            if not current.is_empty:
                await self._open_segment(self._engine.batches.written_no + 1)

    async def _open_segment(
        self, first_batch: int, *, again: bool = False, passed: int = 0
    ) -> None:
        """A new segment to write to. Raises OSError; the id is used up all the same."""
        epoch = self._owner.epoch
        while True:
            segment_id = self._last_id = self._last_id + 1
            create = partial(
                self._files.create, segment_id, first_batch - 1, epoch, again=again, passed=passed
            )
            try:
                await self._thread.run(create)
                break
            except FileExistsError:  # something else has that name: the next one
                continue
            except TakenOver as error:  # no trouble of the disk, which would be tried again (W4)
                raise DirectoryTaken(f"{self._owner.path}: {error.strerror}") from None
        now = event_loop.now()
        self._engine.segments.add(Segment(segment_id, first_batch, now))

    def _is_full(self, length: int) -> bool:
        current = self._engine.segments.current
        old = event_loop.now() - current.created_at > limits.SEGMENT_SECONDS_MAX
        large = current.size + length > limits.SEGMENT_BYTES_MAX
        return not current.is_empty and (old or large)

    # --- writing --------------------------------------------------------------------------------

    async def write(self, sealed: SealedBatch, follow: Follow | None = None) -> float:
        """One batch, however often it takes. Returns the seconds of the call that did it.

        follow: of the batch's number, a sync that is to begin as soon as it is written.
        """
        async with self._lock:
            while True:
                if self._is_moving:
                    await self._replace_segments()
                if sealed.batch.batch_no <= self._engine.batches.written_no:
                    return 0.0  # one that is written again, and was with the others just now
                try:
                    if self._is_full(len(sealed.batch)):
                        await self._open_segment(sealed.batch.batch_no)
                    return await self._write_once(sealed, follow)
                except OSError as error:
                    await self._write_failed(error)

    async def _write_once(self, sealed: SealedBatch, follow: Follow | None = None) -> float:
        if self._taken:  # who has waited for the lock may not have heard that all of it ends
            raise DirectoryTaken(self._taken)
        engine = self._engine
        segment = engine.segments.current
        offset, synced_no = segment.size, engine.batches.synced_no
        if self._synced_no_max is not None:
            synced_no = min(synced_no, self._synced_no_max)
        following = None if follow is None else follow(sealed.batch.batch_no)

        def job() -> None:
            self._files.write(segment.segment_id, sealed.batch, synced_no, offset)
            self.check_owner()
            if following is not None:
                following.start()  # from here: the loop would hear of the write first

        took = await self._thread.timed(job)
        self._metrics.wal_write_duration.observe(took)
        engine.batches.told_synced(synced_no)
        engine.written(sealed, offset, event_loop.now())
        if following is not None:
            following.written()
        return took

    async def tell_synced(self) -> None:
        """Nothing was written behind the last sync: an empty batch says how far it reached."""
        batches = self._engine.batches
        if batches.told_synced_no >= batches.synced_no or batches.written_no != batches.synced_no:
            return
        if self._synced_no_max is not None or not self._engine.segments.live_bytes:
            return
        if not batches.waiting and not batches.is_building:
            await self.write(batches.finish_empty())

    def check_owner(self) -> None:
        """W4, in the thread that has written or synced. Raises DirectoryTaken."""
        if not self._owner.is_owner():
            self._taken = f"{self._owner.path}: another daemon raised the epoch; stopping"
            raise DirectoryTaken(self._taken)

    def has_synced(self, segment_id: int, batch_no: int) -> None:
        """In the syncer's thread, behind each sync: its newest segment, and a batch in it."""
        self.check_owner()
        if self._synced_no_max is None:  # before that older segments may have what is not
            self._owner.synced(segment_id, batch_no)

    def record_log_begin(self, first_no: int) -> None:
        """In the syncer's thread: what is before that batch goes next. OSError: it stays."""
        self.check_owner()
        self._owner.begins(first_no)

    def report_first_no_later(self, first_no: int) -> None:
        """The same where there was no room to say so."""
        self._owner.report_first_no_later(first_no)

    @property
    def unreported_no(self) -> int:
        """What is to be said of that once there is room; 0: nothing."""
        return self._owner.unreported_no

    # --- a disk that fails ----------------------------------------------------------------------

    async def sync_failed(self, what: str, number: int | None, generation: int) -> None:
        """W2: what is not synced moves, unless it has moved since that sync began.

        number: its errno. A file server may take a write and find at the sync that it has no room
        for it (W3): the reserve is spent on what moves.
        """
        self._trouble_begins(what)
        async with self._lock:
            if generation == self.generation or self._is_moving:
                if number in NO_ROOM:
                    await self._live_on_the_reserve()
                await self._replace_segments()

    async def _write_failed(self, error: OSError) -> None:
        """W2, W3: say so, make room for another try, wait a second."""
        segment = self._engine.segments.current
        self._trouble_begins(f"write to segment {segment.segment_id}: {error.strerror or error}")
        if error.errno not in NO_ROOM:
            await self._replace_segments()
            # A new segment can be made and its first write fail again: not as fast as that goes.
            await self.pause(limits.DISK_RETRY_SECONDS)
            return
        try:
            await self._thread.run(lambda: self._files.cut(segment.segment_id, segment.size))
        except OSError as failed:
            _log.error("segment %d: cannot take a write back: %s", segment.segment_id, failed)
        await self._live_on_the_reserve()

    async def _replace_segments(self) -> None:
        """W2: a new segment with everything not synced in it, however often it takes."""
        while not await self._write_again():
            pass
        self._engine.schedule.written(event_loop.now())
        self._replaced()

    async def _write_again(self) -> bool:
        """From memory, under its own numbers. False where it failed once more."""
        engine = self._engine
        self._is_moving = True
        self.generation += 1  # also of a try that failed: a sync of its segment counts no more
        engine.segments.poison(engine.batches.synced_no)
        again = engine.batches.batches_to_rewrite()
        try:
            await self._open_segment(engine.batches.synced_no + 1, again=True)
            for sealed in again:
                await self._write_once(sealed)
        except OSError as error:
            self._trouble_begins(f"write to a new segment: {error.strerror or error}")
            if error.errno in NO_ROOM:
                await self._live_on_the_reserve()
            else:
                await self.pause(limits.DISK_RETRY_SECONDS)
            return False
        finally:
            engine.recount()
        self._is_moving = False
        _log.warning("segment %d: %d batches written again", self._last_id, len(again))
        return True

    async def pause(self, least: float = 0.0) -> None:
        """Between two tries at a new segment: longer each time until something is synced."""
        seconds = max(least, self._pause_seconds)
        longer = max(2 * seconds, limits.DISK_RETRY_SECONDS)
        self._pause_seconds = min(longer, limits.DISK_RETRY_SECONDS_MAX)
        await anyio.sleep(seconds)

    async def _live_on_the_reserve(self) -> None:
        """W3: its room is for ends and releases; where it is spent too, wait a second."""
        self._engine.disk_filled()
        if not await self._thread.run(self._reserve.spend):
            if self.starved is not None:
                await self.starved()
            await anyio.sleep(limits.DISK_RETRY_SECONDS)

    async def has_room_again(self) -> bool:
        """A disk that was full has room again once the reserve can be put aside."""
        async with self._lock:  # a sync that fails meanwhile spends it behind that
            try:
                if not await self._thread.run(self._reserve.make) or self._reserve.is_spent:
                    return False
            except TakenOver:
                raise  # as in `_open_segment`
            except OSError as error:
                self._trouble_begins(f"write of the reserve: {error.strerror or error}")
                return False
            self._engine.disk_has_room()
            self._trouble_over()
            return True

    # --- the words for it -----------------------------------------------------------------------

    def synced(self) -> None:
        """A sync has returned: no trouble is left, unless the disk is full."""
        self._pause_seconds = 0.0
        if self.trouble is not None and not self._engine.disk_full:
            self._trouble_over()

    def _trouble_begins(self, what: str) -> None:
        if self.trouble != what:
            _log.error("disk trouble: %s; everything not synced is held in memory", what)
        self.trouble = what

    def _trouble_over(self) -> None:
        _log.warning("disk trouble is over: %s", self.trouble)
        self.trouble = None
