"""The background: partials of orphans, carried records, unlinked segments, retention.

Owns: doing what the engine's state calls for when nothing is urgent. Refuses: hurry: until a
partial is synced the segment serves it and stays.

Invariants
- K1 A segment goes when it is the oldest, nothing in it is needed, and all that ordered this is
  synced (`segments.py`, G3); the directory is synced before the next one goes.
- K2 Carrying writes at most as many bytes as agents wrote: that budget, not the clock, wins (P5).
- K3 A partial is durable before its records die in the WAL, and its tombstone is written before the
  file goes.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint
from walld_client.paths import path_name
from walld_client.wire import messages as wire

from walld import limits
from walld.engine.kept import KeptFacts
from walld.engine.sealing import Carry
from walld.engine.stream import OFFSET_BITS
from walld.errors import FormatError
from walld.partials.store import PartialFacts, PartialStore
from walld.replies.merge import merge
from walld.wal import records
from walld.wal.layout import Flag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walld.daemon.committer import Committer
    from walld.daemon.reading import Reader
    from walld.daemon.workers import Worker
    from walld.engine.engine import Engine
    from walld.engine.segments import Segment
    from walld.engine.stream import Stream
    from walld.wal.files import SegmentFiles

__all__ = ["Keeper", "carried_flags"]

_log = logging.getLogger("walld.keeper")
_PERIOD_SECONDS = 1.0
"""It is woken by what it waits for; this is for what only the clock brings."""
_PAUSE_SECONDS = 0.02
"""Between two rounds: nothing here is urgent."""
_GIVE_WAY_TIMES = 50
_CARRY_BYTES_MAX = 128 * 1024
"""One carried record."""
_PASS_BYTES = limits.BATCH_BYTES_CUT
"""Carried between two flushes."""
_RETENTION_PERIOD_SECONDS = 600.0


def carried_flags(items: list[records.Item]) -> int:
    """What a scan must look into a record with these items for."""
    flags = 0
    for item in items:
        if isinstance(item, records.Begin):
            flags |= Flag.BEGIN
        elif isinstance(item, records.Happened):
            if isinstance(item.event, wire.Move):
                flags |= Flag.MOVED
            elif isinstance(item.event, wire.End | wire.AppError):
                flags |= Flag.TERMINAL
    return flags


def _seqs(item: records.Item) -> tuple[int, int]:
    """First and last seq of an item."""
    match item:
        case records.Begin():
            return 0, 0
        case records.Text():
            return item.first_seq, item.last_seq
        case records.Happened():
            return item.event.seq, item.event.seq


class Keeper:
    """The background task of a daemon."""

    def __init__(
        self,
        engine: Engine,
        committer: Committer,
        files: SegmentFiles,
        store: PartialStore,
        reader: Reader,
        background: Worker,
        reclaim_seconds: float,
        retention_seconds: float,
        release_hold_seconds: float,
    ) -> None:
        self._engine = engine
        self._committer = committer
        self._files = files
        self._store = store
        self._reader = reader
        self._background = background
        self._reclaim = reclaim_seconds
        self._retention = retention_seconds
        self._hold = release_hold_seconds
        self._evacuating: tuple[Segment, Iterator[Stream]] | None = None
        self._retained_at = 0.0
        self._wanted = anyio.Event()

    async def run(self) -> None:
        """Work for ever, a little at a time."""
        while True:
            with anyio.move_on_after(_PERIOD_SECONDS):
                await self._wanted.wait()
            self._wanted = anyio.Event()
            try:
                await self.work()
            except OSError as error:
                _log.error("background work: %s: %s", error.filename, error.strerror or error)
                await anyio.sleep(limits.DISK_RETRY_SECONDS)
            await anyio.sleep(_PAUSE_SECONDS)

    def wake(self) -> None:
        """Something is lost, written or synced: there may be work."""
        self._wanted.set()

    async def work(self) -> None:
        """One round."""
        for stream in list(self._engine.orphans.values()):
            await self._give_way()
            await self._keep(stream)
        while self._engine.unwanted:
            await self._remove(*self._engine.unwanted[-1])
            self._engine.unwanted.pop()
        await self._thin_out()
        await self._reclaim_oldest()
        await self._unlink()
        now = anyio.current_time()
        if now - self._retained_at > _RETENTION_PERIOD_SECONDS:
            self._retained_at = now
            await self._expire()

    async def _give_way(self) -> None:
        """Queries first: who sweeps up after a dead process is not to queue behind its files."""
        for _ in range(_GIVE_WAY_TIMES):
            if not self._reader.busy:
                return
            await anyio.sleep(_PAUSE_SECONDS)

    # --- partials -------------------------------------------------------------------------------

    async def _keep(self, stream: Stream) -> None:
        """Make the partial of an orphan; later, while something of it is not written."""
        if stream.gone or stream.lost_reason is None or stream.has_waiting or stream.carrying:
            return
        if stream.written_seq < stream.next_seq - 1 and stream.records:
            return
        if self._is_on_its_way(stream):
            return
        read, _ = self._reader.job(stream)
        begin, session_id, wal_until = (
            stream.begin,
            stream.session_id,
            self._engine.sealing.written_no,
        )
        has_ended = stream.terminal
        gap_word = self._engine.gap_word if stream.restored_seq >= 0 else "dropped"
        log_uuid, reason = self._engine.log_uuid, stream.lost_reason
        made_at_ms = time.time_ns() // 1_000_000
        was = tuple(stream.where)
        old = self._engine.kept.by_no.get(stream.no)

        def job() -> int:
            items = merge([begin, *read()])
            body = records.join_items([records.encode_item(item) for item in items])
            last_seq = _seqs(items[-1])[1]
            facts = PartialFacts(log_uuid, stream.no, made_at_ms, 0, last_seq, reason, gap_word)
            self._store.write(begin.uid, session_id, begin.stream_id, facts, body)
            return last_seq

        try:
            last_seq = await self._background.run(job)
        except FormatError as error:
            _log.error("stream %d cannot be kept as a partial yet: %s", stream.no, error)
            del self._engine.orphans[stream.no]
            return
        session, name = path_name(session_id), path_name(begin.stream_id)
        if old is not None and old[1] != session:
            await self._background.run(lambda: self._store.remove_named(*old))
            self._engine.kept.remove(old[0], old[2])
        moved_on = stream.has_waiting or stream.carrying or tuple(stream.where) != was
        moved_on = moved_on or self._is_on_its_way(stream)
        if stream.gone or stream.lost_reason is None or moved_on:
            # Resolved, or its owner is back, while the file was made: it must not outlive this.
            if stream.gone:
                await self._remove(begin.uid, session, name)
            return
        self._engine.keep(
            stream, session, name, KeptFacts(stream.no, last_seq, wal_until, has_ended)
        )

    def _is_on_its_way(self, stream: Stream) -> bool:
        """A record of it is in a batch that is not written: where it will stand is not known."""
        last = max(stream.where, default=0) >> OFFSET_BITS
        return last > self._engine.sealing.written_no

    async def _remove(self, uid: int, session: str, name: str) -> None:
        await self._background.run(lambda: self._store.remove_named(uid, session, name))
        self._engine.kept.remove(uid, name)

    async def facts(self, uid: int, session: str, name: str) -> KeptFacts:
        """What is known of a partial, from its header if need be. OSError, FormatError."""
        known = self._engine.kept.facts(uid, session, name)
        if known is None:
            read = await self._background.run(lambda: self._store.read_facts(uid, session, name))
            known = KeptFacts(read.stream_no, read.last_seq, 0)
        return known

    async def resolve_partial(self, uid: int, session: str, name: str) -> None:
        """Remove a partial, after a tombstone where the WAL may still hold records of it (K3)."""
        facts = await self.facts(uid, session, name)
        if facts.wal_until >= self._engine.segments.oldest.first_batch:
            now = anyio.current_time()
            self._engine.bury(facts, now)
            written = anyio.Event()
            self._engine.when("written", written.set, now)
            self._committer.wake()
            await written.wait()
        await self._remove(uid, session, name)

    async def _expire(self) -> None:
        """Partials past their retention age go; the one rule here that reads a wall clock."""
        before_ms = int((time.time() - self._retention) * 1000)
        for uid, session, name in self._engine.kept.all_names():

            def job(uid: int = uid, session: str = session, name: str = name) -> int:
                return self._store.read_facts(uid, session, name).made_at_ms

            try:
                made_at_ms = await self._background.run(job)
            except (OSError, FormatError) as error:
                _log.error("retention: partial %s/%s: %s", session, name, error)
                continue
            if made_at_ms < before_ms:
                _log.warning("partial of uid %d past its retention age removed", uid)
                with suppress(FileNotFoundError):  # resolved meanwhile
                    await self.resolve_partial(uid, session, name)

    # --- carrying -------------------------------------------------------------------------------

    async def _thin_out(self) -> None:
        """Fold the records of streams whose index has grown long."""
        crowded = self._engine.sealing.crowded
        for no, stream in list(crowded.items()):
            if stream.gone or stream.records <= limits.INDEX_ENTRIES_MAX:
                del crowded[no]
            elif not stream.carrying:
                at, count = _small_run(stream)
                if count < 2:
                    del crowded[no]
                elif sum(stream.sizes[at : at + count]) <= self._engine.carry_budget:
                    await self._carry(stream, at, count)

    async def _carry(self, stream: Stream, at: int, count: int) -> None:
        """Read records, merge them into one, and queue it."""
        read, _ = self._reader.job(stream, at, count)
        was = tuple(stream.where[at : at + count])
        stream.carrying = True

        def job() -> tuple[list[records.Item], bytes]:
            items = merge(read())
            return items, records.join_items([records.encode_item(item) for item in items])

        try:
            items, body = await self._background.run(job)
        except OSError:
            stream.carrying = False
            raise
        except FormatError as error:
            # Nobody tries again (it stays `carrying`): the segment stays, and the bytes with it.
            _log.error("stream %d: its records cannot be carried: %s", stream.no, error)
            return
        first_seq, last_seq = _seqs(items[0])[0], _seqs(items[-1])[1]
        flags = carried_flags(items)
        carry = Carry(stream, at, count, was, first_seq, last_seq, flags, body)
        self._engine.carry(carry, anyio.current_time())
        self._committer.wake()

    async def rescue(self, segment_ids: list[int]) -> None:
        """A start could not sync these: write again what is needed of them, whatever the budget.

        For a start, before agents come in: until it is done nothing may be called synced.
        """
        ranges = [
            (segment.first_batch << OFFSET_BITS, (segment.last_batch + 1) << OFFSET_BITS)
            for segment in self._engine.segments
            if segment.segment_id in segment_ids
        ]
        for stream in list(self._engine.registry.by_no.values()):
            for low, high in ranges:
                while any(low <= where < high for where in stream.where):
                    at, count = _run_within(stream, low, high)
                    await self._carry(stream, at, count)
                    await self._committer.flush()
                    if stream.carrying:
                        break  # it cannot be read: said, and kept where it is
        await self._committer.sync()

    async def _reclaim_oldest(self) -> None:
        """Make the oldest segment free of live bytes, where it is time to and the budget allows."""
        engine, segments = self._engine, self._engine.segments
        oldest = segments.oldest
        if oldest is segments.current and not await self._leave_current(oldest):
            return
        oldest = segments.oldest
        if not oldest.live_bytes or not self._is_due() or engine.sealing.has_carries:
            self._evacuating = None if not oldest.live_bytes else self._evacuating
            return
        if self._evacuating is None or self._evacuating[0] is not oldest:
            if oldest is not segments.current and self._is_late(segments.current.dead_since):
                # What is carried must not land behind bytes that are overdue themselves.
                await self._committer.roll()
            self._evacuating = (oldest, iter(list(engine.registry.by_no.values())))
        bound = (oldest.last_batch + 1) << OFFSET_BITS
        carried = 0
        for looked, stream in enumerate(self._evacuating[1]):
            if looked % 200 == 199:
                await checkpoint()
            if stream.gone or stream.carrying or not stream.where or min(stream.where) >= bound:
                continue
            at, count = _run_within(stream, 0, bound)
            size = sum(stream.sizes[at : at + count])
            if size > engine.carry_budget:
                return
            carried += size
            await self._carry(stream, at, count)
            if carried >= _PASS_BYTES:
                self.wake()
                return
        self._evacuating = None  # look again for what has more than one run, or was being carried

    def _is_due(self) -> bool:
        segments = self._engine.segments
        large = segments.size > 2 * segments.live_bytes + 2 * limits.SEGMENT_BYTES_MAX
        # Of any: the oldest may hold nothing but a quiet stream, and all others wait for it.
        late = self._is_late(segments.dead_since)
        return (large or late) and self._engine.carry_budget > 0

    def _is_late(self, dead_since: float | None) -> bool:
        return dead_since is not None and anyio.current_time() - dead_since > self._reclaim

    async def _leave_current(self, current: Segment) -> bool:
        """Roll where the only segment holds what must go. False where it may stay."""
        engine = self._engine
        if current.is_empty:
            return False
        idle = not (
            engine.segments.live_bytes
            or engine.sealing.waiting
            or engine.sealing.is_building
            or engine.orphans
        )
        if idle:
            if engine.sealing.synced_no < current.unlink_after:
                engine.commit.hurry_sync()
                self._committer.wake_syncer()
                return False
        elif (
            current.dead_since is None
            or not self._is_due()
            or engine.carry_budget < current.live_bytes
        ):
            return False
        await self._committer.roll()
        return True

    async def _unlink(self) -> None:
        """Remove segments nobody needs, one after the other (K1)."""
        engine = self._engine
        while True:
            segment = engine.segments.can_unlink(engine.sealing.synced_no)
            if segment is None or self._is_held(segment):
                return
            go = self._files.set_aside if segment.unreadable else self._files.unlink
            await self._background.run(partial(go, segment.segment_id))
            engine.segments.unlinked(segment)

    def _is_held(self, segment: Segment) -> bool:
        died = segment.died_at
        return bool(self._hold) and died is not None and anyio.current_time() - died < self._hold


def _small_run(stream: Stream) -> tuple[int, int]:
    """(at, count) of the neighbouring records that are cheapest to fold into one.

    The smallest sum of a fixed number of them is what is newest: folding what was folded before
    along with it each time would cost the square of a reply's length.
    """
    sizes = stream.sizes
    count = min(limits.INDEX_ENTRIES_MAX // 2, len(sizes))
    while count >= 2:
        total = sum(sizes[:count])
        best, best_at = total, 0
        for at in range(1, len(sizes) - count + 1):
            total += sizes[at + count - 1] - sizes[at - 1]
            if total < best:
                best, best_at = total, at
        if best <= _CARRY_BYTES_MAX:
            return best_at, count
        count //= 2
    return 0, 0


def _run_within(stream: Stream, low: int, high: int) -> tuple[int, int]:
    """(at, count) of the first neighbouring records that stand from `low` to `high` in the log."""
    at = next(position for position, where in enumerate(stream.where) if low <= where < high)
    count, size = 0, 0
    for where, length in zip(stream.where[at:], stream.sizes[at:], strict=True):
        if not low <= where < high or (count and size + length > _CARRY_BYTES_MAX):
            break
        count += 1
        size += length
    return at, count
