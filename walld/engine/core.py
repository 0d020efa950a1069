"""The engine's core: what is queued, written, synced, released, orphaned and kept.

Owns: the state of every stream and segment; nothing else in `engine/` sets these. Refuses: what an
agent's message may do (`event_handlers.py`, `resume.py`), sessions (`session_log.py`), sockets,
files, threads, clocks: the daemon asks the engine what to do, does it, and says how it went.

Invariants: those of `stream.py` (S), `registry.py` (R), `segments.py` (G), `batch_builder.py` (B).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from walld import limits
from walld.engine.batch import Carry, SealedBatch, Tombstone
from walld.engine.batch_builder import BatchBuilder
from walld.engine.counters import Counters
from walld.engine.flush_schedule import FlushSchedule, Waiter
from walld.engine.lost_acked import LostAcked
from walld.engine.partial_index import IndexedPartial, PartialIndex
from walld.engine.registry import Registry
from walld.engine.segments import Segments
from walld.engine.stream import Stream
from walld.partials.life import Life
from walld.replies.fragments import epoch_of
from walld.wal import records
from walld.wal.layout import Flag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from walld.engine.stream import Connection, Process
    from walld.wal.ranges import Range

__all__ = ["Core"]

_KIND_NAME = {records.Text.kind: "token", records.Thought.kind: "reasoning"}


class Core:
    """One data directory's state."""

    def __init__(self, schedule: FlushSchedule, log_uuid: bytes, epoch: int) -> None:
        self.schedule = schedule
        self.counters = Counters()
        self.registry = Registry()
        self.partials = PartialIndex()
        self.segments = Segments()
        self.batches = BatchBuilder(self.segments)
        self.lost_acked = LostAcked(self.counters)
        self.log_uuid = log_uuid
        self.epoch = epoch
        self.disk_full = False
        self.gap_word = "dropped"
        """What missing seqs of restored streams are put down to: what the start found of damage."""
        self.returning_until = 0.0
        """Until then whoever produced a restored stream may be on the way back."""
        self.is_unread = False
        """Something could not be read by the start: of any reply a later one may find more."""
        self.damaged_seqs: dict[int, list[Range]] = {}
        """By stream number: what the start found missing before its end, through damage."""
        self.since = 0.0
        """End of the sweep before this one: what is read now may be that old."""
        self.orphans: dict[int, Stream] = {}
        """Streams to be kept as partials, by number."""
        self._flush_waiters: list[Waiter] = []
        self.askers: list[tuple[int | None, Process | None]] = []
        """Who has begun to wait for a flush since `daemon/transport/process_shares.py` looked: a
        uid, and a process. No process: a request; no uid: one that is nobody's alone."""
        self._sync_waiters: list[tuple[int, Waiter]] = []
        self.agent_bytes = 0
        """Record bytes written for the first time: what carrying may spend."""
        self.restored_bytes = 0
        """Live bytes found by the start: agents wrote them once, so they may be carried once."""
        self.carried_bytes = 0
        self.set_aside = 0
        """Damaged partials moved to quarantine since the start."""

    # --- what a start found ---------------------------------------------------------------------

    def found_damage(self, missing: dict[int, list[Range]], *, is_unread: bool) -> None:
        """missing: by stream number, before its end. is_unread: something could not be read."""
        self.damaged_seqs, self.is_unread = missing, is_unread

    def found_released(self, stream: Stream) -> None:
        """Another one has its id by now: its tombstone is lost."""
        stream.gone = True
        self.registry.remove(stream)
        self.orphans.pop(stream.no, None)

    def found_all(self) -> None:
        """The live bytes are counted: each may be carried once, since agents wrote it once."""
        self.restored_bytes = self.segments.live_bytes

    def restored(self, gap_word: str, now: float) -> None:
        """All that the start found is here. gap_word: what it puts missing seqs down to."""
        self.gap_word = gap_word
        self.returning_until = now + limits.RETURN_SECONDS

    # --- taking in ------------------------------------------------------------------------------

    def reads_since(self, at: float) -> None:
        """What is read from here on may have come then."""
        self.since = at

    def read(self, count: int) -> None:
        """So many bytes of agents were read."""
        self.counters.received_bytes += count

    def begin(
        self, begin: records.Begin, process: Process | None, no: int | None, since: float | None
    ) -> Stream:
        """A stream exists from here on, under a new number unless it has one. since: as `queued`
        has it.
        """
        no = self.registry.last_no + 1 if no is None else no
        # Lines of a session are written from the reserve, too, where the disk is full.
        stream = Stream(no, begin, process, terminal=process is None)
        self.registry.add(stream)
        grown = stream.take_item(0, Flag.BEGIN, records.encode_item(begin))
        self.queued(stream, grown, since)
        return stream

    def goes_on_behind(
        self, connection: Connection, stream: Stream, last_seq: int, ended: bool | None
    ) -> None:
        """All up to there is elsewhere, durably, or somebody has let go of it. ended: it had a
        terminal event, None where only its owner knows.
        """
        stream.next_seq = last_seq + 1
        stream.written_seq = stream.synced_seq = last_seq
        stream.terminal, stream.may_release = bool(ended), ended is None
        connection.dirty.add(stream)

    def take_tokens(
        self,
        stream: Stream,
        kind: int,
        seq: int,
        count: int,
        lengths: bytes,
        text: bytes,
        at_ms: int,
    ) -> None:
        """Tokens, or reasoning, that join their stream, as `Stream.take_run` has them."""
        self.counters.received[_KIND_NAME[kind]] += count
        grown = stream.take_run(kind, seq, count, lengths, text, at_ms)
        if stream.queued:  # and so the flush it waits for is known
            self.batches.queue_bytes += grown
        else:
            self.queued(stream, grown)

    def queued(self, stream: Stream, grown: int, since: float | None = None) -> None:
        """A stream has more to write. since: it came then, None for the sweep that is at work."""
        self.batches.queued(stream, grown)
        self.schedule.offered(self.since if since is None else since)

    def produces(self, connection: Connection, stream: Stream) -> None:
        """An event came on a live connection: whoever is behind it owns the stream."""
        stream.connection = connection
        if stream.owner is not connection.process:
            self.registry.own(stream, connection.process)
            self.orphans.pop(stream.no, None)

    def when(
        self,
        level: str,
        tell: Callable[[], None],
        now: float,
        streams: Callable[[], Iterable[Stream]] = tuple,
    ) -> None:
        """Call `tell` once all that is queued or being written now is at `level`.

        streams: whose events it is about, where not only about what ends and frees.
        """
        self._flush_waiters.append(Waiter(level, tell, streams))
        self.schedule.offered(now)
        self.schedule.hurry_flush()

    # --- writing --------------------------------------------------------------------------------

    def begin_flush(self) -> tuple[int, list[Waiter]]:
        """(how many of what waits belongs to this flush, who waits for it)."""
        waiters, self._flush_waiters = self._flush_waiters, []
        return self.batches.begin_flush(), waiters

    def written(self, sealed: SealedBatch, offset: int, now: float) -> None:
        """write(2) returned for a batch, at `offset` of the current segment."""
        batches, current = self.batches, self.segments.current
        batches.now = now
        if sealed.batch.batch_no > batches.reached_no:  # not one that is written again
            self.agent_bytes += sealed.new_bytes
            self.carried_bytes += sealed.carried_bytes
            batches.carry_bytes -= sealed.carried_bytes
        batches.written(sealed, offset)
        self.counters.wal_writes += 1
        self.counters.wal_write_bytes += len(sealed.batch)
        if sealed.parts:
            current.wait_for(sealed.batch.batch_no)
            self.schedule.written(now)
        live_bytes = live_records = 0
        for part in sealed.parts:
            stream = part.stream
            if part.length:
                # Also of a stream that is gone since: its tombstone takes it away again.
                live_bytes += part.length
                live_records += 1
            elif not part.is_tombstone:
                # Released while it was in the batch being built: it came dead, and is as due.
                current.note_release(now)
            if stream is None or (stream.gone and not part.is_tombstone):
                continue
            if part.last_seq > stream.written_seq:
                stream.written_seq = part.last_seq
        self.segments.lived(current, live_bytes, live_records)

    def flushed(self, waiters: list[Waiter]) -> None:
        """All of a flush is written."""
        for waiter in waiters:
            recorded_no = self.batches.recorded_no
            if waiter.level == "written" or recorded_no <= self.batches.synced_no:
                waiter.tell()
            else:
                self._sync_waiters.append((recorded_no, waiter))
                if recorded_no > self.batches.syncing_no:
                    self.schedule.hurry_sync()

    def not_flushed(self, waiters: list[Waiter], oldest: float | None) -> None:
        """Something of a flush was left for want of room: it waits on, and whoever waits for it."""
        held = [one for one in waiters if any(each.has_waiting for each in one.streams())]
        self.flushed([one for one in waiters if one not in held])
        self._flush_waiters[:0] = held
        self.schedule.flush_returned(oldest)

    def synced(self, batch_no: int) -> None:
        """fdatasync(2) returned for everything up to a batch.

        Told is also of a tombstone: of a resolved reply the last event may be long synced.
        """
        for sealed in self.batches.synced(batch_no):
            for part in sealed.parts:
                stream = part.stream
                if stream is None or (stream.gone and not part.is_tombstone):
                    continue
                if part.is_tombstone or part.last_seq > stream.synced_seq:
                    stream.synced_seq = part.last_seq
                    self._moved(stream)
        waiting = self._sync_waiters
        self._sync_waiters = [(no, waiter) for no, waiter in waiting if no > batch_no]
        for no, waiter in waiting:
            if no <= batch_no:
                waiter.tell()

    def _moved(self, stream: Stream) -> None:
        """A watermark moved: every open connection of its producer is told.

        Mostly that is one. After a reconnect the old one is read to its end while the new one is
        open already: whichever brought the last event, the producer listens on the new one.
        """
        if stream.gone:
            self.registry.left(stream)
        producer = self.registry.producers.get((stream.begin.uid, stream.begin.producer))
        if producer is not None:
            for connection in producer.connections:
                connection.dirty.add(stream)

    def recount(self) -> None:
        """Batches stand elsewhere than they did: count the live bytes of segments anew."""
        self.segments.recount([*self.registry.by_no.values(), *self.batches.buried])

    def acknowledge(self, connection: Connection) -> None:
        """Put what moved since the last Ack into the connection's outbox.

        It stays to be told while as much as a peer may leave unread waits already: dropped here,
        it would never be told, for nothing of it may ever move again.
        """
        if not connection.dirty or connection.outbox_bytes >= limits.ACK_BYTES_MAX:
            return
        moved = [
            (stream.begin.number, stream.written_seq, stream.synced_seq)
            for stream in connection.dirty
        ]
        connection.dirty.clear()
        written_no, synced_no = self.batches.written_no, self.batches.synced_no
        most = limits.ACK_STREAMS_MAX
        acks = [
            encode(wire.Ack(self.log_uuid, written_no, synced_no, moved[at : at + most]))
            for at in range(0, len(moved), most)
        ]
        connection.post_acks([*connection.untold.values(), *acks])
        connection.untold.clear()

    # --- the ends of a stream ---------------------------------------------------------------------

    def release(self, stream: Stream, flag: int, now: float) -> None:
        """Nobody needs the stream any more: released by its owner, or resolved by a reader. One
        that has no record yet is never written at all; of another a tombstone is.
        """
        self.batches.dropped(stream.drop_waiting())
        kept = self._ended(stream, now)
        tombstone = Tombstone(stream.no, stream.next_seq - 1, flag, stream)
        is_unwritten = stream.records == 0 and not stream.building and kept is None
        if is_unwritten and stream.is_anew:
            tombstone = _with_begin(tombstone, stream.begin)
        elif is_unwritten:
            stream.written_seq = stream.synced_seq = stream.next_seq - 1
            self._moved(stream)
            return
        self.batches.bury(tombstone)
        self._buried(stream, now)

    def commit(self, stream: Stream, now: float, together: Stream | None) -> None:
        """Its owner has released it, and its session has what it needs of it. together: holds that,
        where it is not synced yet.

        What it said is written by then: whoever drained is told that it is, and it must not be on
        its way in another shape.
        """
        assert not stream.has_waiting, stream.no
        self._ended(stream, now)
        tombstone = Tombstone(stream.no, stream.next_seq - 1, Flag.RELEASED, stream)
        if together is None:
            self.batches.bury(tombstone)
            self.schedule.hurry_flush()
        else:
            self.batches.bury_with(tombstone, together)
        self._buried(stream, now)

    def _ended(self, stream: Stream, now: float) -> tuple[int, str, str] | None:
        """It is in no table from here on. Returns the names of its partial, which is to go."""
        assert not stream.gone, stream.no
        stream.gone = True
        self.registry.remove(stream)
        self.orphans.pop(stream.no, None)
        kept = self.partials.of_stream(stream)
        if kept is not None:
            facts = self.partials.facts(*kept)
            self.unwant(kept, stream.no)
            self.segments.buried(facts.wal_until if facts is not None else 0, now)
        return kept

    def _buried(self, stream: Stream, now: float) -> None:
        """Its tombstone is on its way."""
        self.registry.leaves(stream)
        self.end_unseen(stream.no, stream.begin)
        self.schedule.offered(now)

    def end_unseen(self, no: int, begin: records.Begin) -> None:
        """What the start could not read may hold more of a reply that has ended, under any number:
        it is done with under one that is later than all (`recovery/fragment_merge.py`). no: it
        ended as that.
        """
        registry = self.registry
        if self.is_unread and epoch_of(no) < epoch_of(registry.last_no):
            registry.last_no += 1
            tombstone = Tombstone(registry.last_no, 0, Flag.RELEASED, None)
            self.batches.bury(_with_begin(tombstone, begin))

    def bury(self, kept: IndexedPartial, now: float) -> None:
        """A partial is resolved whose records may still be in the WAL."""
        self.batches.bury(Tombstone(kept.stream_no, kept.last_seq, Flag.RESOLVED, None))
        self.segments.buried(kept.wal_until, now)
        self.schedule.offered(now)

    def carry(self, carry: Carry, now: float) -> None:
        """Old records, merged, to be written again."""
        self.batches.carry(carry)
        self.schedule.offered(now)

    def forget_records(self, stream: Stream, at: int, count: int, was: tuple[int, ...]) -> None:
        """None of these records can be read any more: nothing holds their segment for them."""
        stream.carrying = False
        if stream.gone or tuple(stream.where[at : at + count]) != was:
            return
        for place in stream.places(at, count):
            self.segments.died(place.batch_no, place.length, 0, None)
        del stream.where[at : at + count]
        del stream.sizes[at : at + count]

    def orphan(self, stream: Stream, reason: str) -> None:
        """The stream's owner is gone: keep it."""
        self.registry.disown(stream, reason)
        self.orphans[stream.no] = stream

    def not_orphaned(self, stream: Stream) -> None:
        """It has gone meanwhile, or its owner is back."""
        self.orphans.pop(stream.no, None)

    def keep(self, stream: Stream, session: str, name: str, facts: IndexedPartial) -> None:
        """A partial of the stream is on disk, durably: the WAL no longer needs its records."""
        assert not stream.gone
        assert not stream.has_waiting
        # One on its way would count as live for ever once it is written.
        assert all(self.segments.of_batch(p.batch_no) is not None for p in stream.places())
        stream.gone = True
        self.orphans.pop(stream.no, None)
        self.registry.remove(stream)
        for place in stream.places():
            self.segments.died(place.batch_no, place.length, 0, None)
        stream.forget_places()
        self.partials.add(stream.begin.uid, session, name, facts)

    def keep_last(self, stream: Stream) -> None:
        """It was not kept now: where it is still to be, the others' turn is first."""
        if self.orphans.pop(stream.no, None) is not None:
            self.orphans[stream.no] = stream

    # --- partials that go -------------------------------------------------------------------------

    def unwant(self, names: tuple[int, str, str], stream_no: int) -> None:
        """Nobody is told of that partial any more, and its file is to go."""
        self.partials.move(names, Life.UNWANTED, stream_no)

    def removed(self, names: tuple[int, str, str], stream_no: int) -> None:
        """Its file is gone. Nothing where that is another's by now."""
        if self.partials.life(names) == (Life.UNWANTED, stream_no):
            self.partials.move(names, Life.NONE, stream_no)

    def put_aside(self, names: tuple[int, str, str]) -> None:
        """It was damaged, and is in quarantine."""
        self.partials.remove(*names)
        self.set_aside += 1

    # --- a disk that is full ----------------------------------------------------------------------

    def disk_filled(self) -> None:
        """P7: from here on only what ends and frees is written."""
        self.disk_full = self.batches.ends_only = True

    def disk_has_room(self) -> None:
        """Everything is written again."""
        self.disk_full = self.batches.ends_only = False

    # --- memory ---------------------------------------------------------------------------------

    @property
    def carry_budget(self) -> int:
        """Bytes that may be carried now: what agents wrote, less what was or will be carried."""
        granted = self.restored_bytes + self.agent_bytes
        return granted - self.carried_bytes - self.batches.carry_bytes

    @property
    def is_full(self) -> bool:
        """The queue is above the mark where intake stops reading."""
        return self.batches.queue_bytes > limits.QUEUE_BYTES_MAX * limits.QUEUE_HIGH_SHARE

    @property
    def is_dropping(self) -> bool:
        """The disk is full and so is the queue: tokens are dropped, ends are taken (P7)."""
        return self.disk_full and self.is_full

    @property
    def has_room(self) -> bool:
        """The queue is below the mark where intake goes on."""
        return self.batches.queue_bytes < limits.QUEUE_BYTES_MAX / 2


def _with_begin(tombstone: Tombstone, begin: records.Begin) -> Tombstone:
    """Of a stream of which no record says who it is."""
    body = records.pack_items(tombstone.no, [records.encode_item(begin)])
    return tombstone._replace(flag=tombstone.flag | Flag.BEGIN, body=body)
