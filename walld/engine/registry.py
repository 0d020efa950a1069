"""The registry of streams, by every name they go by.

Owns: the tables by stream number, by (uid, stream_id), by (uid, session_id), and the producers.
Refuses: what an event may do (`event_handlers.py`), disk.

Invariant R1: a stream is in all tables or in none; one that is released is in none (P12: keys hold
the uid, so one user's streams do not exist for another). Those of ledgers have a number alone: no
producer, no stream id, and no reply to recover.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walld import limits
from walld.engine.stream import Producer

if TYPE_CHECKING:
    from walld.engine.stream import Process, Stream

__all__ = ["LiveReplies", "Registry"]


class LiveReplies:
    """The live replies of one user. bytes: of memory that they take for as long as they are."""

    __slots__ = ("bytes", "count")

    def __init__(self) -> None:
        self.bytes = self.count = 0

    def add(self, stream: Stream, sign: int) -> None:
        """One more (1) or less (-1). What it began with never changes."""
        begin = stream.begin
        ids = len(begin.stream_id) + len(begin.session_id)
        ids += len(begin.turn_id or "") + len(begin.parent or "") + len(begin.app or "")
        self.bytes += sign * (limits.LIVE_STREAM_BYTES + ids + len(begin.meta or b""))
        self.count += sign


class Registry:
    """Streams that are not released and whose records are in the WAL or on their way."""

    def __init__(self) -> None:
        self.by_no: dict[int, Stream] = {}
        self.by_key: dict[tuple[int, str], Stream] = {}
        self.by_session: dict[tuple[int, str], dict[int, Stream]] = {}
        self.producers: dict[tuple[int, bytes], Producer] = {}
        self.live: dict[int, LiveReplies] = {}
        """By uid: what its replies in these tables take."""
        self.lost: set[int] = set()
        """Numbers of those whose owner is gone: who asks how many there are looks at no stream."""
        self.last_no = 0
        """Highest stream number ever given."""
        self._leaving: dict[tuple[int, bytes, int], Stream] = {}
        """Replies of turns whose tombstone is not synced, by uid, producer and its number."""

    def found(self, last_no: int) -> None:
        """A start found all numbers up to there given."""
        self.last_no = max(self.last_no, last_no)

    def producer(self, uid: int, producer_id: bytes) -> Producer:
        """The producer of that name, made known where it is new."""
        key = (uid, producer_id)
        producer = self.producers.get(key)
        if producer is None:
            producer = self.producers[key] = Producer(uid, producer_id)
        return producer

    def forget_producer(self, producer: Producer) -> None:
        """Drop it where it has neither connections nor streams."""
        if not producer.streams and not producer.connections:
            self.producers.pop((producer.uid, producer.id), None)

    def add(self, stream: Stream) -> None:
        """A stream that has begun."""
        assert stream.key not in self.by_key, stream.key
        self.last_no = max(self.last_no, stream.no)
        self.by_no[stream.no] = stream
        if stream.is_ledger:
            return
        self.by_key[stream.key] = stream
        self.live.setdefault(stream.begin.uid, LiveReplies()).add(stream, 1)
        self.by_session.setdefault((stream.begin.uid, stream.session_id), {})[stream.no] = stream
        producer = self.producer(stream.begin.uid, stream.begin.producer)
        producer.streams[stream.begin.number] = stream
        producer.number_max = max(producer.number_max, stream.begin.number)
        if stream.owner is not None:
            stream.owner.streams[stream.no] = stream

    def remove(self, stream: Stream) -> None:
        """A stream that is released, resolved or kept as a partial."""
        del self.by_no[stream.no]
        if stream.is_ledger:
            return
        del self.by_key[stream.key]
        self.live[stream.begin.uid].add(stream, -1)
        self.lost.discard(stream.no)
        self._leave_session(stream)
        producer = self.producers.get((stream.begin.uid, stream.begin.producer))
        if producer is not None:
            producer.streams.pop(stream.begin.number, None)
            self.forget_producer(producer)
        if stream.owner is not None:
            stream.owner.streams.pop(stream.no, None)

    def leaves(self, stream: Stream) -> None:
        """Its tombstone is on its way: until `left` a resume of it is about that one."""
        if stream.begin.turn_id is not None:
            self._leaving[_sent_as(stream)] = stream

    def left(self, stream: Stream) -> None:
        """Its tombstone is synced."""
        if self._leaving.get(_sent_as(stream)) is stream:
            del self._leaving[_sent_as(stream)]

    def is_leaving(self, producer: Producer, number: int) -> bool:
        """The reply of that number is released here, and not yet durably."""
        return (producer.uid, producer.id, number) in self._leaving

    def move(self, stream: Stream, session_id: str) -> None:
        """The stream belongs to another session from here on."""
        self._leave_session(stream)
        stream.moved_to = session_id
        self.by_session.setdefault((stream.begin.uid, session_id), {})[stream.no] = stream

    def _leave_session(self, stream: Stream) -> None:
        key = (stream.begin.uid, stream.session_id)
        siblings = self.by_session[key]
        del siblings[stream.no]
        if not siblings:
            del self.by_session[key]

    def own(self, stream: Stream, process: Process) -> None:
        """`process` produces the stream: a returning owner is an owner, whatever was thought."""
        if stream.owner is not None:
            stream.owner.streams.pop(stream.no, None)
        stream.owner = process
        stream.lost_reason = None
        self.lost.discard(stream.no)
        process.streams[stream.no] = stream

    def disown(self, stream: Stream, reason: str) -> None:
        """Nobody produces the stream any more."""
        stream.lost_reason = reason
        stream.owner = None
        stream.connection = None
        if not stream.gone:
            self.lost.add(stream.no)

    @property
    def replies(self) -> list[Stream]:
        """All streams that are replies, in start order but for those that came back."""
        return [stream for stream in self.by_no.values() if not stream.is_ledger]

    def of_session(self, uid: int, session_id: str) -> list[Stream]:
        """Its streams in start order (stream numbers only grow: order is never by clock)."""
        found = self.by_session.get((uid, session_id))
        return [found[no] for no in sorted(found)] if found else []


def _sent_as(stream: Stream) -> tuple[int, bytes, int]:
    return stream.begin.uid, stream.begin.producer, stream.begin.number
