"""Released replies of turns: they go once their messages are in the session.

Owns: which replies wait for that, their end, and the drains behind such a release. Refuses: making
messages of them (`daemon/turns.py`), entries (`ledgers.py`).

A plain reply that is released is done with at once. One of a turn must not be: a crash between its
tombstone and its messages would lose both, so the tombstone lies behind them (B4), and who drains
behind the release is told once it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walld.engine.sealing import Tombstone
from walld.wal.layout import Flag

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld.engine.engine import Engine
    from walld.engine.peer import Connection
    from walld.engine.stream import Stream

__all__ = ["Settling"]


class Settling:
    """The released replies of turns of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.streams: dict[int, Stream] = {}
        self._drains: list[tuple[set[int], Callable[[], None]]] = []
        """Numbers of streams that are not settled yet, and what is asked once they are."""

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
        self._engine.commit.offered(self._engine.since)
        self._engine.commit.hurry_flush()

    def finish(self, stream: Stream, behind: Stream | None, now: float) -> None:
        """Its messages are in the ledger, in `behind`: now it may go.

        What it said is written by then: whoever drained is told that it is, and it must not be on
        its way in another shape. Its owner is told of the release once the messages are as safe as
        the tombstone, which stands in their batch or in a later one.
        """
        engine = self._engine
        assert not stream.has_waiting, stream.no
        assert not stream.gone, stream.no
        stream.gone = True
        engine.registry.remove(stream)
        engine.orphans.pop(stream.no, None)
        kept = engine.kept.by_no.get(stream.no)
        if kept is not None:
            engine.unwanted.append(kept)
        engine.registry.leaves(stream)
        tombstone = Tombstone(stream.no, stream.next_seq - 1, Flag.RELEASED, stream)
        engine.sealing.bury(tombstone, behind)
        engine.commit.offered(now)
        self.settled(stream)

    def settled(self, stream: Stream) -> None:
        """It is done with, in whatever way."""
        self.streams.pop(stream.no, None)
        held, self._drains = self._drains, []
        for numbers, ask in held:
            numbers.discard(stream.no)
            if numbers:
                self._drains.append((numbers, ask))
            else:
                ask()
