"""The engine's facade: take, write, sync, release, lose and keep.

Owns: the state of every stream and segment. Synchronous, on one thread, `now` is an argument.
Refuses: sockets, files, threads, clocks: the daemon asks the engine what to do, does it, and says
how it went.

Invariants: those of `stream.py` (S), `registry.py` (R), `segments.py` (G), `batch_builder.py` (B).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from walld import limits
from walld.engine.batch import Carry, SealedBatch, Tombstone
from walld.engine.batch_builder import BatchBuilder
from walld.engine.counters import Counters
from walld.engine.event_handlers import EventHandlers, buried_unwritten
from walld.engine.flush_schedule import FlushSchedule, Waiter
from walld.engine.frame_decoder import FrameDecoder
from walld.engine.lost_acked import LostAcked
from walld.engine.partial_index import IndexedPartial, PartialIndex
from walld.engine.registry import Registry
from walld.engine.resolved_streams import ResolvedStreams
from walld.engine.resume import ResumeHandler
from walld.engine.segments import Segments
from walld.engine.session_log import SessionLogs
from walld.engine.turn_commit import TurnCommit
from walld.wal.layout import Flag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from walld.engine.stream import Connection, Process, Stream
    from walld.wal.ranges import Range

__all__ = ["Engine"]


class Engine:
    """One data directory's state."""

    def __init__(
        self, schedule: FlushSchedule, log_uuid: bytes = bytes(16), epoch: int = 0
    ) -> None:
        self.schedule = schedule
        self.counters = Counters()
        self.registry = Registry()
        self.partials = PartialIndex()
        self.segments = Segments()
        self.batches = BatchBuilder(self.segments)
        self.handlers = EventHandlers(self)
        self.decoder = FrameDecoder(self)
        self.session_logs = SessionLogs(self)
        self.turn_commit = TurnCommit(self)
        self.lost_acked = LostAcked(self.counters)
        self.resolved = ResolvedStreams(self)
        self.resume = ResumeHandler(self)
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
        self.unwanted: dict[tuple[int, str, str], int] = {}
        """Partials of streams that came back and were released, by names; the stream's number."""
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

    def drain(self, connection: Connection, drain: wire.Drain) -> None:
        """An agent asks to be told when all it sent is at a level."""
        if drain.level not in ("written", "synced"):
            self.counters.protocol_errors["bad_level"] += 1
            refused = wire.Refused(0, drain.id, "bad_level", drain.level[:40], "written, synced")
            connection.post(encode(refused))
            return
        answer = encode(wire.Drained(drain.id, drain.level))

        def tell() -> None:
            producer = connection.producer
            if producer is not None and connection.told_no != self.batches.written_no:
                # Once for all who asked since: there may be many of them, and many streams.
                connection.told_no = self.batches.written_no
                for stream in producer.streams.values():
                    if stream.written_seq > stream.synced_seq:
                        connection.dirty.add(stream)  # news before its sync makes it so
            self.acknowledge(connection)
            connection.post(answer)

        def streams() -> Iterable[Stream]:
            return () if connection.producer is None else connection.producer.streams.values()

        self.askers.append((connection.uid, connection.process))
        ask = partial(self.when, drain.level, tell, self.since, streams)
        released = self.turn_commit.of(connection)
        if released:
            self.turn_commit.hold(released, ask)
        else:
            ask()

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
        """write(2) returned for a batch."""
        self.batches.now = now
        if sealed.batch.batch_no > self.batches.reached_no:  # not one that is written again
            self.agent_bytes += sealed.new_bytes
            self.carried_bytes += sealed.carried_bytes
            self.batches.carry_bytes -= sealed.carried_bytes
        self.batches.written(sealed, offset)
        self.counters.wal_writes += 1
        self.counters.wal_write_bytes += len(sealed.batch)
        if sealed.parts:
            self.schedule.written(now)

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
        """fdatasync(2) returned for everything up to a batch."""
        for stream in self.batches.synced(batch_no):
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
        assert not stream.gone
        stream.gone = True
        self.batches.dropped(stream.drop_waiting())
        self.registry.remove(stream)
        self.orphans.pop(stream.no, None)
        kept = self.partials.of_stream(stream)
        if kept is not None:
            facts = self.partials.facts(*kept)
            self.unwant(kept, stream.no)
            self.segments.buried(facts.wal_until if facts is not None else 0, now)
        tombstone = Tombstone(stream.no, stream.next_seq - 1, flag, stream)
        is_unwritten = stream.records == 0 and not stream.building and kept is None
        if is_unwritten and stream.is_anew:
            tombstone = buried_unwritten(*tombstone[:3], stream.begin, stream)
        elif is_unwritten:
            stream.written_seq = stream.synced_seq = stream.next_seq - 1
            self._moved(stream)
            return
        self.registry.leaves(stream)
        self.batches.bury(tombstone)
        self.handlers.end_unseen(stream.no, stream.begin)
        self.schedule.offered(now)

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

    def lose(self, process: Process, reason: str) -> None:
        """A process is gone and all it sent is read: its streams are orphans."""
        process.is_lost = True
        for stream in list(process.streams.values()):
            self.orphan(stream, reason)
        process.streams.clear()
        self.session_logs.lose(process, reason)

    def orphan(self, stream: Stream, reason: str) -> None:
        """The stream's owner is gone: keep it."""
        self.registry.disown(stream, reason)
        self.orphans[stream.no] = stream

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
        self.partials.remove(*names)
        self.unwanted[names] = stream_no

    def removed(self, names: tuple[int, str, str], stream_no: int) -> None:
        """Its file is gone. Nothing where that is another's by now."""
        if self.unwanted.get(names) == stream_no:
            del self.unwanted[names]

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
