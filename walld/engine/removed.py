"""Replies that somebody else than their producers has let go of.

Owns: what is needed to go on with one of them: it was resolved, or its session deleted, while its
producer lives (one taken for gone, say) and may speak on. Refuses: letting go (`engine.py`).

What was let go of is no loss, whatever its producer was told of it; and what it says from there on
is new: it begins the reply anew, behind a gap, and nothing of it is thrown away unsaid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from walld_client.wire import messages as wire

from walld.wal.layout import Flag

if TYPE_CHECKING:
    from walld.engine.engine import Engine
    from walld.engine.peer import Connection
    from walld.engine.stream import Stream
    from walld.wal import records

__all__ = ["Removed"]

_KNOWN_MAX = 256
"""Of all users together; with the `meta` of each. The oldest are forgotten."""


class _Known(NamedTuple):
    """start: as its producer said it, in the session it was in. last_seq: the last it had."""

    start: wire.Start
    last_seq: int
    has_ended: bool


class Removed:
    """Those of one daemon, since its start."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[tuple[int, bytes, int], _Known] = {}
        """By uid, producer and its number."""

    def let_go(self, stream: Stream, now: float) -> None:
        """Of a reply in the log: it is resolved, or its session deleted."""
        self.add(stream.begin, stream.session_id, stream.next_seq - 1, ended=stream.terminal)
        self._engine.release(stream, Flag.RESOLVED, now)

    def add(self, begin: records.Begin, session_id: str, last_seq: int, *, ended: bool) -> None:
        """One that goes."""
        start = wire.Start(
            begin.number, 0, begin.stream_id, session_id, begin.turn_id, begin.parent, begin.meta,
            begin.at_ms,
        )  # fmt: skip
        key = begin.uid, begin.producer, begin.number
        self._known.pop(key, None)
        self._known[key] = _Known(start, last_seq, ended)
        if len(self._known) > _KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def go_on(self, connection: Connection, number: int, at_ms: int) -> Stream | None:
        """Its producer speaks on: the stream that takes what comes behind. None where it is none
        of these, or may not begin now.
        """
        producer = connection.producer
        assert producer is not None
        known = self._known.pop((connection.uid, producer.id, number), None)
        if known is None:
            return None
        self._engine.rules.resume(connection, known.start, at_ms)
        stream = producer.streams.get(number)
        if stream is not None:
            stream.next_seq = known.last_seq + 1
            stream.written_seq = stream.synced_seq = known.last_seq
            stream.terminal = known.has_ended
            connection.dirty.add(stream)
        return stream
