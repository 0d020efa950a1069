"""Resume: what a returning client still holds of each stream.

Owns: what becomes of such a stream: gone on with in the log or behind its partial, begun anew,
done with; and what its producer was told and nobody has. Refuses: what keeps a stream from
beginning (`admission.py`), the events behind it (`event_handlers.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from walld.engine.admission import check_producer, resume_problem
from walld.engine.event_handlers import begin_of
from walld.wal.layout import Flag

if TYPE_CHECKING:
    from walld.engine.core import Core
    from walld.engine.event_handlers import EventHandlers
    from walld.engine.partial_index import IndexedPartial
    from walld.engine.resolved_streams import ResolvedStreams
    from walld.engine.stream import Connection, Producer, Stream
    from walld.engine.turn_commit import TurnCommit

__all__ = ["ResumeHandler"]


@dataclass(eq=False, slots=True)
class ResumeHandler:
    """Of one engine."""

    _core: Core
    _turn_commit: TurnCommit
    _resolved: ResolvedStreams
    _handlers: EventHandlers

    def take_up(self, connection: Connection, resume: wire.Resume, at_ms: int) -> None:
        """One stream. What is said is counted with as it stands, so it is looked at first."""
        problem = resume_problem(resume)
        if problem is not None:
            self._handlers.refuse_start(connection, resume.start, problem)
            return
        start, producer = resume.start, connection.producer
        check_producer(connection, start)
        producer.said_max = max(producer.said_max, start.stream)
        stream = producer.streams.get(start.stream)
        if stream is not None:
            self._goes_on(connection, resume, stream)
            return
        is_over = self._is_over(producer, resume)
        kept = self._kept(connection, resume)
        if kept is not None:
            self._goes_on_behind(connection, resume, kept)
        elif is_over or resume.next_seq <= 0:
            producer.number_max = max(producer.number_max, start.stream)
            if resume.released and start.turn_id is None:
                begin = begin_of(connection, start, start.at_ms or at_ms)
                self._core.end_unseen(0, begin)
            self._tell_done(connection, resume)
        else:
            self._begins_anew(connection, resume, at_ms)

    def _is_over(self, producer: Producer, resume: wire.Resume) -> bool:
        """Released is done with, but for a turn's reply held whole, nothing of it known synced:
        have its messages reached their session? It is taken once more; they are added once.
        """
        is_whole = resume.start.turn_id is not None
        is_whole = is_whole and max(resume.held_from, resume.synced + 1) <= 0
        is_leaving = self._core.registry.is_leaving(producer, resume.start.stream)
        return resume.released and (not is_whole or is_leaving)

    def _kept(self, connection: Connection, resume: wire.Resume) -> IndexedPartial | None:
        """Its partial: its owner was taken for gone."""
        if resume.next_seq <= 0:
            return None
        if (connection.uid, resume.start.stream_id) in self._core.registry.by_key:
            return None
        return self._core.partials.own(connection, resume.start)

    def _lost(self, connection: Connection, resume: wire.Resume, first_seq: int) -> None:
        """What it was told is synced, from there on, is lost, and said so; of what it has let go of
        itself nothing is.
        """
        if not resume.released:
            self._missed(connection, resume, first_seq)

    def _missed(self, connection: Connection, resume: wire.Resume, first_seq: int) -> None:
        """But for what was let go of under an earlier daemon."""
        uid, start = connection.uid, resume.start
        whose = uid, connection.producer.id, start.stream
        first_seq = max(first_seq, self._resolved.before.get(whose, -1) + 1)
        self._core.lost_acked.count(uid, start.stream_id, first_seq, resume.synced)

    def _goes_on(self, connection: Connection, resume: wire.Resume, stream: Stream) -> None:
        core, stream_id = self._core, resume.start.stream_id
        core.produces(connection, stream)
        stream.attested(resume.synced)
        for first_seq, last_seq in core.damaged_seqs.pop(stream.no, ()):
            last_seq = min(last_seq, stream.next_seq - 1, resume.synced)
            core.lost_acked.count(connection.uid, stream_id, first_seq, last_seq)
        self._missed(connection, resume, stream.next_seq)
        connection.dirty.add(stream)
        self._say_dropped(connection, stream)
        self._let_go(connection, resume, stream)

    def _say_dropped(self, connection: Connection, stream: Stream) -> None:
        """What a full disk dropped of it was said on the connection before, where maybe nobody
        heard that. It comes again; but where a later one was taken it is a duplicate then, and an
        Ack covers it.
        """
        seq, stream.dropped_seq = stream.dropped_seq, -1
        if 0 <= seq < stream.next_seq:
            stream.dropped_seq = seq
            self._handlers.tell_dropped(connection, stream, seq, "event")

    def _goes_on_behind(
        self, connection: Connection, resume: wire.Resume, kept: IndexedPartial
    ) -> None:
        """Under its number, so that the partial and the new records are one reply."""
        self._lost(connection, resume, kept.held_seq + 1)
        stream = self._revive(connection, resume.start, kept)
        stream.attested(resume.synced)
        self._let_go(connection, resume, stream)

    def _let_go(self, connection: Connection, resume: wire.Resume, stream: Stream) -> None:
        """Released here, where it was while nobody listened: its Release comes behind all that is
        resumed, and its id may be that of a later one of those. One of which something is still to
        go to its session is by its own Release.
        """
        if resume.released and not self._turn_commit.is_awaited(stream):
            self._core.release(stream, Flag.RELEASED, self._core.since)
            self._tell_done(connection, resume)

    def _revive(self, connection: Connection, start: wire.Start, kept: IndexedPartial) -> Stream:
        stream = self._handlers.begin(connection, start, kept.begun_at_ms, kept.stream_no)
        self._core.goes_on_behind(connection, stream, kept.held_seq, kept.has_ended)
        stream.may_have_calls = True
        assert kept.whose is not None
        self._core.registry.move(stream, kept.whose.session_id)
        return stream

    def _begins_anew(self, connection: Connection, resume: wire.Resume, at_ms: int) -> None:
        """At once, whatever its number: one that waited would be done with once a higher began."""
        start, producer = resume.start, connection.producer
        resolved = self._resolved.take(connection, start.stream)
        if resolved is not None:
            begun = self._handlers.begin_again(connection, resolved, at_ms)
            if begun is not None:
                begun.may_release |= resume.synced >= begun.next_seq
            return
        self._lost(connection, resume, 0)
        self._handlers.begin_unless_refused(connection, start, at_ms, is_anew=True)
        begun = producer.streams.get(start.stream)
        if begun is not None:
            begun.is_anew = self._core.is_unread
            if not resume.released:
                begun.attested(resume.synced)
            self._moves(connection, resume, at_ms)

    def _moves(self, connection: Connection, resume: wire.Resume, at_ms: int) -> None:
        """To where it is, though what says so was lost and may not come again. It began where its
        Start says: its turn is there.
        """
        last_seq = max(resume.held_from - 1, resume.synced)
        if resume.moved_to is not None and last_seq > 0:  # else all Moves come, each in its place
            move = wire.Move(resume.start.stream, last_seq, resume.moved_to)
            self._handlers.offer(connection, move, at_ms)

    def _tell_done(self, connection: Connection, resume: wire.Resume) -> None:
        """A stream that is not here any more is acknowledged whole.

        Once all is synced, and not before: its release may have come a moment ago on an earlier
        connection, and a client that is told of it forgets it.
        """
        self._core.when("synced", partial(self._done, connection, resume), self._core.since)

    def _done(self, connection: Connection, resume: wire.Resume) -> None:
        last_seq, batches = resume.next_seq - 1, self._core.batches
        moved = [(resume.start.stream, last_seq, last_seq)]
        ack = wire.Ack(self._core.log_uuid, batches.written_no, batches.synced_no, moved)
        connection.post(encode(ack))
