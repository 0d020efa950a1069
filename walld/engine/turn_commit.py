"""Commits released replies once what their session needs of them is in it.

Owns: which replies wait for that, their end, and the drains behind such a release. Refuses: making
messages of them (`daemon/session_store/turn_watcher.py`), entries (`session_log.py`).

A plain reply that is released is done with at once. One of a turn must not be: a crash that keeps
its tombstone and not its messages would lose both. Nor one that called tools or tells of its model,
where its session has a ledger: that keeps which calls there were. Power may take any part of what
was not synced, so the tombstone stands in the batch of these entries, with all before them synced,
or else waits until they are (B5). Who drains behind the release is told once it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walld import limits
from walld.engine.batch import Tombstone
from walld.wal.layout import Flag

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld_client.wire import messages as wire

    from walld.engine.engine import Engine
    from walld.engine.session_log import SessionLog
    from walld.engine.stream import Connection, Stream

__all__ = ["TurnCommit"]


class TurnCommit:
    """The released replies of one engine of which something is still to go to their session."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.streams: dict[int, Stream] = {}
        self._drains: list[tuple[set[int], Callable[[], None]]] = []
        """Numbers of streams that are not settled yet, and what is asked once they are."""
        self.moved: set[int] = set()
        """Numbers of those whose messages are taken, and not synced: the rest follows."""

    def is_awaited(self, stream: Stream) -> bool:
        """Once it is released, something of it may have to go to its session before it goes."""
        if stream.begin.turn_id is not None:
            return True
        return stream.may_have_calls and self._engine.session_logs.may_have(stream.begin.uid)

    def of(self, connection: Connection) -> set[int]:
        """Numbers of those that this connection's process has released."""
        producer = connection.producer
        if producer is None or not self.streams:
            return set()
        whose = (producer.uid, producer.id)
        return {
            no
            for no, stream in self.streams.items()
            if (stream.begin.uid, stream.begin.producer) == whose
        }

    def hold(self, numbers: set[int], ask: Callable[[], None]) -> None:
        """Ask once all of them are settled; what they said is to be written now."""
        self._drains.append((numbers, ask))
        self._engine.schedule.offered(self._engine.since)
        self._engine.schedule.hurry_flush()

    def move(
        self,
        stream: Stream,
        ledger: SessionLog,
        messages: list[wire.NewEntry],
        at_ms: int,
        now: float,
    ) -> bool:
        """These entries go to the ledger and it goes with them. False: once they are synced, `go`.

        Refusal: nothing was done.
        """
        was_synced = ledger.is_synced
        placed = self._engine.session_logs.append(ledger, messages, None, None, at_ms, now)
        lines = ledger.stream if any(one.is_new for one in placed) else None
        # All that waits there are these lines: what was before them is synced.
        if was_synced and (lines is None or lines.waiting_bytes <= limits.BATCH_BYTES_CUT // 2):
            self.go(stream, now, lines)
            return True
        self.moved.add(stream.no)
        return False

    def go(self, stream: Stream, now: float, together: Stream | None = None) -> None:
        """It is done with. together: holds its messages, where those are not synced yet.

        What it said is written by then: whoever drained is told that it is, and it must not be on
        its way in another shape.
        """
        engine = self._engine
        assert not stream.has_waiting, stream.no
        assert not stream.gone, stream.no
        stream.gone = True
        engine.registry.remove(stream)
        engine.orphans.pop(stream.no, None)
        kept = engine.partials.of_stream(stream)
        if kept is not None:
            facts = engine.partials.facts(*kept)
            engine.unwant(kept, stream.no)
            engine.segments.buried(facts.wal_until if facts is not None else 0, now)
        engine.registry.leaves(stream)
        tombstone = Tombstone(stream.no, stream.next_seq - 1, Flag.RELEASED, stream)
        if together is None:
            engine.batches.bury(tombstone)
            engine.schedule.hurry_flush()
        else:
            engine.batches.bury_with(tombstone, together)
        engine.handlers.end_unseen(stream.no, stream.begin)
        engine.schedule.offered(now)
        self.settled(stream)

    def settled(self, stream: Stream) -> None:
        """It is done with, in whatever way."""
        self.streams.pop(stream.no, None)
        self.moved.discard(stream.no)
        held, self._drains = self._drains, []
        for numbers, ask in held:
            numbers.discard(stream.no)
            if numbers:
                self._drains.append((numbers, ask))
            else:
                ask()
