"""The streams of a link: by number, by id, by session.

Owns: who is known, and when a stream is forgotten. Refuses: sending, the lock (the caller holds
it).

A stream is forgotten once it is released and acknowledged. One that ended, is safe and was never
released stays known, so that `client.release(stream_id)` finds it later; of those whose Reply
object is gone the latest ENDED_STREAMS_MAX stay.
"""

from __future__ import annotations

from itertools import islice

from walld_client.limits import ENDED_STREAMS_MAX, SEEN_MAX
from walld_client.link.stream import Stream

__all__ = ["Registry"]


class Registry:
    """Streams of one link."""

    __slots__ = (
        "_by_id",
        "_by_session",
        "_ended",
        "_moved",
        "_released",
        "by_number",
        "forgotten_events",
    )

    def __init__(self) -> None:
        self.by_number: dict[int, Stream] = {}
        self.forgotten_events = 0
        """Events of streams that are no longer known."""
        self._by_id: dict[str, Stream] = {}
        self._by_session: dict[str, dict[int, Stream]] = {}
        self._moved: dict[str, dict[int, Stream]] = {}
        """Replies of turns that are in another session now, by that of their turn: their messages
        go there."""
        self._ended: dict[int, None] = {}
        self._released: dict[str, Stream] = {}

    def add(self, stream: Stream) -> None:
        """A new stream."""
        self.by_number[stream.number] = stream
        self._by_id[stream.stream_id] = stream
        self._by_session.setdefault(stream.session_id, {})[stream.number] = stream

    def named(self, stream_id: str) -> Stream | None:
        """The latest stream of that id."""
        return self._by_id.get(stream_id)

    def move(self, stream: Stream, session_id: str) -> None:
        """It belongs to another session from here on."""
        self._leave_session(stream)
        stream.session_id = session_id
        if stream.start.turn_id is not None:
            self._moved.setdefault(stream.start.session_id, {})[stream.number] = stream
        self._by_session.setdefault(session_id, {})[stream.number] = stream

    def refused(self, stream: Stream) -> None:
        """No daemon has it: its id is again that of the one before, which may be released by it."""
        if self._by_id.get(stream.stream_id) is stream:
            for other in self.by_number.values():
                if other.stream_id == stream.stream_id and not other.gone:
                    self._by_id[stream.stream_id] = other

    def release(self, stream: Stream) -> None:
        """What of a turn's reply is to be in its session goes there, where it began."""
        if stream.start.turn_id is not None:
            self._released[stream.start.session_id] = stream

    def released_last(self, session_id: str) -> Stream | None:
        """The last reply of a turn of that session that was released and is known. No lock."""
        return self._released.get(session_id)

    def tidy(self, stream: Stream) -> None:
        """Forget it, or note that it may be forgotten, if it has come that far."""
        if stream.number not in self.by_number:
            return
        if stream.is_settled() or (stream.gone and (stream.released or not stream.owned)):
            self._forget(stream)
        elif stream.terminal and not stream.owned and stream.synced >= stream.next_seq - 1:
            self._ended[stream.number] = None
            if len(self._ended) > ENDED_STREAMS_MAX:
                self._forget(self.by_number[next(iter(self._ended))])

    def asked(self, session_id: str | None, stream_id: str | None) -> list[Stream]:
        """Streams a request is about, the latest SEEN_MAX; of more, those that are not safe yet."""
        if stream_id is not None:
            stream = self._by_id.get(stream_id)
            return [] if stream is None else [stream]
        streams = self.by_number
        if session_id is not None:
            streams = self._by_session.get(session_id, {})
            streams = self._moved.get(session_id, {}) | streams
        found = reversed(streams.values())
        if len(streams) <= SEEN_MAX:
            return list(found)
        return list(islice((one for one in found if one.synced < one.next_seq - 1), SEEN_MAX))

    def of_session(self, session_id: str) -> list[Stream]:
        """All that are known of a session."""
        return list(self._by_session.get(session_id, {}).values())

    def events(self) -> int:
        """Events that were ever given a seq here."""
        return self.forgotten_events + sum(s.next_seq for s in self.by_number.values())

    def _forget(self, stream: Stream) -> None:
        self.forgotten_events += stream.next_seq
        del self.by_number[stream.number]
        self._ended.pop(stream.number, None)
        if self._by_id.get(stream.stream_id) is stream:
            del self._by_id[stream.stream_id]
        if self._released.get(stream.start.session_id) is stream:
            del self._released[stream.start.session_id]
        self._leave_session(stream)
        _drop(self._moved, stream.start.session_id, stream.number)

    def _leave_session(self, stream: Stream) -> None:
        _drop(self._by_session, stream.session_id, stream.number)


def _drop(streams: dict[str, dict[int, Stream]], session_id: str, number: int) -> None:
    found = streams.get(session_id, {})
    found.pop(number, None)
    if not found:
        streams.pop(session_id, None)
