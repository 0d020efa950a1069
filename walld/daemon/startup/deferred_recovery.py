"""Deferred recovery: finishes in the background what a start found damaged.

Owns: notes that a start had no room for, tried again; and the settled rows of corrupt batches,
written once nothing is known from those batches alone; and those of segments that leave unread;
what else is written down before a segment goes.
Refuses: what is damage (`wal/verdict.py`), how it is kept (`quarantine.py`).

A reply that had not ended before a corrupt batch may have lost its end in it. That is told by where
the hole stands, until the reply is kept with that word, released, or its producer is back and goes
on. A row before that would let a later start call the rest whole.

Invariants
- K6 No segment goes and no row says "reported" before what proves the loss stands elsewhere: a note
  in quarantine/, and a partial of each reply whose end is feared lost. A reply that says nothing
  more holds the log for _HOLD_RECLAIMS times as long as released bytes stay in it, and on a full
  disk for no time: then its word is only in memory until it is kept (P5, P7).
- K7 Where a start could not read all of partials/, and where a partial cannot be removed, no
  tombstone goes before its stream is written down as done with (`partials/tombstone_file.py`): its
  partial may be there. It holds the log until it is; and so does a partial whose turn to be removed
  comes.
- K8 A segment that this start could not read stays in the log as long as in K6, and so does all
  behind it: a start that can read it by then has lost nothing, no tombstone either. Not where there
  is no room, nor once the log has LOG_HELD_BYTES_MAX: it is moved to quarantine/ then.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from walld import limits
from walld.daemon import event_loop
from walld.disk.base import NO_ROOM
from walld.ledger.names import SESSIONS_DIR
from walld.partials.life import Life
from walld.partials.tombstone_file import GONE_PATH, write_down
from walld.recovery import quarantine
from walld.recovery.possibly_lost_sessions import with_all_gone
from walld.wal.unreadable_segments import left

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from walld.daemon.session_store.open_sessions import Sessions
    from walld.daemon.storage.disk_threads import Worker
    from walld.daemon.storage.writer import Writer
    from walld.disk.reserve import Reserve
    from walld.engine.engine import Engine
    from walld.engine.segments import Segment
    from walld.recovery.startup_recovery import RecoveredStorage
    from walld.wal.segment_files import SegmentFiles
    from walld.wal.verdict import Damage, Verdict

__all__ = ["DeferredRecovery"]

_log = logging.getLogger("walld.recovery")
_HOLD_RECLAIMS = 20
_LOOK_SECONDS = 1.0
_ROWS_MAX = 1000
"""In one batch: between two the flusher may have numbered its own."""


class DeferredRecovery:
    """Of one start."""

    def __init__(
        self,
        engine: Engine,
        writer: Writer,
        files: SegmentFiles,
        reserve: Reserve,
        thread: Worker,
        syncing: Worker,
        written: Callable[[], None],
        reclaim_seconds: float,
        sessions: Sessions,
    ) -> None:
        """written: called when rows are, so that they are synced like anything else.

        syncing: the syncer's thread, which alone writes to LOCK.
        """
        self._engine = engine
        self._writer = writer
        self._files = files
        self._reserve = reserve
        self._thread = thread
        self._syncing = syncing
        self._written = written
        self._sessions = sessions
        self._hold_seconds = _HOLD_RECLAIMS * reclaim_seconds
        self._verdict: Verdict | None = None
        self._unnoted: list[Damage] = []
        self._unnoted_dirs: list[str] = []
        self._possible_last_seqs: Iterable[int] = ()
        self._has_pieces = False
        self._left: set[int] = set()
        self._written_down: set[int] = set()
        self._settled_no = 0
        self._hold_until = 0.0
        self._look_at = 0.0

    async def begin(self, recovered: RecoveredStorage) -> None:
        """Before a new segment is opened: a note that found no room gets that of the reserve."""
        self._verdict, self._possible_last_seqs = (
            recovered.verdict,
            recovered.possible_last_seqs.keys(),
        )
        self._has_pieces = bool(recovered.pieces.apart)
        self._unnoted, self._unnoted_dirs = recovered.unnoted, recovered.unnoted_dirs
        self._hold_until = event_loop.now() + self._hold_seconds
        if recovered.verdict.unreadable:
            text = "what cannot be read stays in the log for %.0f s: start again where it can be"
            _log.warning(text, self._hold_seconds)
        if not recovered.all_read:
            self._engine.batches.watch_tombstones([(0, no) for no in recovered.dead])
        if not self._is_unnoted:
            return
        try:
            await self._thread.run(partial(self._reserve.lend, self._note))
        except OSError as error:
            _log.error("what is lost cannot be noted yet: %s; no segment goes before it is", error)

    @property
    def holds_segments(self) -> bool:
        """K6: what stands in the log is all that tells of some loss, or K7 of an end."""
        partials = self._engine.partials
        if not partials.unremoved.issuperset(partials.unkept(Life.UNWANTED).values()):
            return True
        if self._is_unnoted or self._are_feared() or self._may_be_joined():
            return True
        if self._engine.disk_full:
            return False  # rows need room, and only segments that go give it
        rest = self._verdict is not None and bool(self._verdict.late_rows())
        return rest or self._engine.batches.synced_no < self._settled_no

    async def before_unlink(self) -> None:
        """K7, in the background. OSError: the segment stays, and it is tried again."""
        batches, files = self._engine.batches, self._files
        until = batches.synced_no
        unremoved = self._engine.partials.unremoved - self._written_down
        numbers = [*unremoved, *(no for batch, no in batches.tombs or () if batch <= until)]
        if not numbers:
            return
        note = partial(write_down, files.disk, files.log_uuid, numbers)
        try:
            await self._thread.run(partial(self._reserve.lend, note))
        except OSError as error:
            _log.error("%s: %s; no segment goes before it is written", GONE_PATH, error)
            raise
        self._written_down |= unremoved
        batches.tombstones_known(until)

    async def tell_first(self, batch_no: int) -> None:
        """In the background: LOCK says that the log begins there, before the oldest segment goes.

        OSError: it stays. But not where a file system that writes in place nowhere (btrfs) has no
        room left for it, nor for batches: until LOCK can be told a start would miss what went,
        which is better than to stay full.
        """
        try:
            await self._tell(batch_no)
        except OSError as error:
            if error.errno not in NO_ROOM or not self._engine.disk_full:
                raise
            self._writer.report_first_no_later(batch_no)
            _log.error("LOCK: %s; a segment goes all the same, and a start would miss it", error)

    async def _tell(self, batch_no: int) -> None:
        tell = partial(self._writer.record_log_begin, batch_no)
        await self._syncing.run(partial(self._reserve.lend, tell))

    async def finish(self) -> None:
        """A round of the background: whatever can be done of it now. OSError: tried again."""
        if event_loop.now() >= self._look_at:
            self._look_at = event_loop.now() + _LOOK_SECONDS
            await self._look()
        if self._is_unnoted:
            await self._thread.run(partial(self._reserve.lend, self._note))
        if unreported_no := self._writer.unreported_no:
            await self._tell(unreported_no)
        verdict, engine = self._verdict, self._engine
        if verdict is None or engine.disk_full or self._are_feared():
            return
        # What was kept is durable by now, and what producers have said since is written.
        while (rows := verdict.late_rows()[:_ROWS_MAX]) and not engine.batches.is_building:
            self._settled_no = engine.batches.next_batch
            await self._writer.write_rows(rows)
            late = [one for one in verdict.unsettled if one not in verdict.not_kept]
            verdict.unsettled = [*late[len(rows) :], *verdict.not_kept]
            engine.schedule.written(event_loop.now())
            self._written()

    async def _look(self) -> None:
        """Did somebody remove a directory beneath this daemon? Said at once; noted, then made."""
        for name in await self._thread.run(partial(quarantine.missed, self._files.disk)):
            if name in self._unnoted_dirs:
                continue
            _log.error("%s/ was removed: whatever stood there is lost", name)
            self._unnoted_dirs.append(name)
            if name == SESSIONS_DIR:
                self._sessions.in_doubt(with_all_gone(self._sessions.doubt))
            else:
                self._engine.partials.lose()

    async def has_left(self, segment: Segment) -> bool:
        """May a segment that could not be read go? Once a row says so: no later start misses it.

        Not while a start may come that reads it (K8).
        On a full disk it goes without a row: then a start says that it is gone, though it is in
        quarantine/.
        """
        engine = self._engine
        if segment.segment_id in self._left or engine.disk_full:
            return True
        if self._may_be_read(segment):
            return False
        if not engine.batches.is_building:
            segment.wait_for(engine.batches.next_batch)
            self._left.add(segment.segment_id)
            await self._writer.write_rows([left(segment.segment_id)])
            engine.schedule.written(event_loop.now())
            self._written()
        return False

    def _may_be_read(self, segment: Segment) -> bool:
        """K8. Not one that was read, and of which damaged bytes could not be copied aside."""
        unread = self._verdict.unreadable if self._verdict is not None else ()
        is_unread = any(one.segment_id == segment.segment_id for one in unread)
        is_small = self._engine.segments.size < limits.LOG_HELD_BYTES_MAX
        return is_unread and is_small and event_loop.now() <= self._hold_until

    @property
    def _is_unnoted(self) -> bool:
        return bool(self._unnoted_dirs or self._unnoted)

    def _are_feared(self) -> bool:
        """Some reply's end is known to be lost from the hole alone."""
        if self._engine.disk_full or event_loop.now() > self._hold_until:
            return False
        streams = map(self._engine.registry.by_no.get, self._possible_last_seqs)
        return any(
            stream is not None and not stream.gone and stream.possible_last_seq > stream.written_seq
            for stream in streams
        )

    def _may_be_joined(self) -> bool:
        """Pieces of replies stand in the log, and more of them may be in what could not be read:
        whose that is only these pieces tell.
        """
        is_time = not self._engine.disk_full and event_loop.now() <= self._hold_until
        return self._has_pieces and is_time

    def _note(self) -> None:
        """In a thread. OSError where something is left."""
        while self._unnoted_dirs:
            name, disk = self._unnoted_dirs[-1], self._files.disk
            quarantine.note_gone(disk, name)
            quarantine.make_dirs(
                disk, self._unnoted_dirs[:-1]
            )  # not before: no start would miss it
            self._unnoted_dirs.pop()
        while self._unnoted:
            quarantine.keep(self._files, self._unnoted[-1])
            self._unnoted.pop()
