"""Commits released replies once what their session needs of them is in it.

Owns: which replies wait for that, their end, and drains, which wait behind such a release. Refuses:
making messages of them (`daemon/session_store/turn_watcher.py`), entries (`session_log.py`).

A plain reply that is released is done with at once. One of a turn must not be: a crash that keeps
its tombstone and not its messages would lose both. Nor one that called tools or tells of its model,
where its session has a ledger: that keeps which calls there were. Power may take any part of what
was not synced, so the tombstone stands in the batch of these entries, with all before them synced,
or else waits until they are (B5). Who drains behind the release is told once it is written.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from walld import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from walld.engine.core import Core
    from walld.engine.session_log import SessionLog, SessionLogs
    from walld.engine.stream import Connection, Stream

__all__ = ["TurnCommit"]


class TurnCommit:
    """The released replies of one engine of which something is still to go to their session."""

    def __init__(self, core: Core, sessions: SessionLogs) -> None:
        self._core = core
        self._sessions = sessions
        self.streams: dict[int, Stream] = {}
        self._drains: list[tuple[set[int], Callable[[], None]]] = []
        """Numbers of streams that are not settled yet, and what is asked once they are."""
        self.moved: set[int] = set()
        """Numbers of those whose messages are taken, and not synced: the rest follows."""

    def is_awaited(self, stream: Stream) -> bool:
        """Once it is released, something of it may have to go to its session before it goes."""
        if stream.begin.turn_id is not None:
            return True
        return stream.may_have_calls and self._sessions.may_have(stream.begin.uid)

    def released(self, stream: Stream) -> None:
        """Its owner has: something of it is to go to its session first."""
        self.streams[stream.no] = stream

    def of(self, connection: Connection) -> set[int]:
        """Numbers of those that this connection's process has released."""
        if not self.streams:
            return set()
        whose = connection.uid, connection.producer.id
        begins = [(no, stream.begin) for no, stream in self.streams.items()]
        return {no for no, begin in begins if (begin.uid, begin.producer) == whose}

    def drain(self, connection: Connection, drain: wire.Drain) -> None:
        """An agent asks to be told when all it sent is at a level."""
        core = self._core
        if drain.level not in ("written", "synced"):
            core.counters.protocol_errors["bad_level"] += 1
            refused = wire.Refused(0, drain.id, "bad_level", drain.level[:40], "written, synced")
            connection.post(encode(refused))
            return
        answer = encode(wire.Drained(drain.id, drain.level))

        def tell() -> None:
            if connection.told_no != core.batches.written_no:
                # Once for all who asked since: there may be many of them, and many streams.
                connection.told_no = core.batches.written_no
                for stream in connection.producer.streams.values():
                    if stream.written_seq > stream.synced_seq:
                        connection.dirty.add(stream)  # news before its sync makes it so
            core.acknowledge(connection)
            connection.post(answer)

        def streams() -> Iterable[Stream]:
            return connection.producer.streams.values()

        core.askers.append((connection.uid, connection.process))
        ask = partial(core.when, drain.level, tell, core.since, streams)
        released = self.of(connection)
        if released:
            self.hold(released, ask)
        else:
            ask()

    def hold(self, numbers: set[int], ask: Callable[[], None]) -> None:
        """Ask once all of them are settled; what they said is to be written now."""
        self._drains.append((numbers, ask))
        self._core.schedule.offered(self._core.since)
        self._core.schedule.hurry_flush()

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
        placed = self._sessions.append(ledger, messages, None, None, at_ms, now)
        lines = ledger.stream if any(one.is_new for one in placed) else None
        # All that waits there are these lines: what was before them is synced.
        if was_synced and (lines is None or lines.waiting_bytes <= limits.BATCH_BYTES_CUT // 2):
            self.go(stream, now, lines)
            return True
        self.moved.add(stream.no)
        return False

    def go(self, stream: Stream, now: float, together: Stream | None = None) -> None:
        """It is done with. together: holds its messages, where those are not synced yet."""
        self._core.commit(stream, now, together)
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
