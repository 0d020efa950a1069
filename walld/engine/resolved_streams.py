"""Streams that were resolved or deleted while their producers live.

Owns: what is needed to go on with one of them: it was resolved, or its session deleted, while its
producer lives (one taken for gone, say) and may speak on. Refuses: its tombstone (`core.py`), going
on with it (`event_handlers.py`), what of it the next daemon is told (`ledger/deleted.py`).

What was let go of is no loss, whatever its producer was told of it; and what it says from there on
is new: it begins the reply anew, behind a gap, and nothing of it is thrown away unsaid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from walld_client.wire import messages as wire

from walld.wal.layout import Flag

if TYPE_CHECKING:
    from walld.engine.core import Core
    from walld.engine.stream import Connection, Stream
    from walld.engine.turn_commit import TurnCommit
    from walld.wal import records

__all__ = ["ResolvedStream", "ResolvedStreams"]

_BYTES_MAX = 1024 * 1024
"""Of a user: what is known of his, with their ids and `meta`. The oldest are forgotten."""
_BYTES_EACH = 512


class ResolvedStream(NamedTuple):
    """One of them.

    start: as its producer said it. moved_to: the session it was in, None where it never moved.
    last_seq: the last it had. ended: it had a terminal event; None where only its owner knows.
    passed_seq: the last that came and was not kept.
    """

    start: wire.Start
    moved_to: str | None
    last_seq: int
    ended: bool | None
    passed_seq: int

    @property
    def bytes(self) -> int:
        """What it takes, about."""
        start = self.start
        texts = (
            start.stream_id, start.session_id, start.turn_id, start.parent, start.meta,
            start.app, self.moved_to,
        )  # fmt: skip
        return _BYTES_EACH + sum(len(one) for one in texts if one is not None)


class _OfUser:
    """In the order in which they went. known: by producer and its number."""

    __slots__ = ("bytes", "known")

    def __init__(self) -> None:
        self.known: dict[tuple[bytes, int], ResolvedStream] = {}
        self.bytes = 0

    def pop(self, key: tuple[bytes, int]) -> ResolvedStream | None:
        found = self.known.pop(key, None)
        if found is not None:
            self.bytes -= found.bytes
        return found


class ResolvedStreams:
    """Those of one daemon, since its start."""

    def __init__(self, core: Core, turn_commit: TurnCommit) -> None:
        self._core = core
        self._turn_commit = turn_commit
        self._users: dict[int, _OfUser] = {}
        self.before: dict[tuple[int, bytes, int], int] = {}

    def found(self, before: dict[tuple[int, bytes, int], int]) -> None:
        """What went with sessions that earlier daemons deleted: the last seq of each reply, by uid,
        producer and its number.
        """
        self.before = before

    def of_session(self, uid: int, session_id: str) -> dict[tuple[int, bytes, int], int]:
        """The same of those that were let go of since, for the next daemon."""
        user = self._users.get(uid)
        return {
            (uid, *key): known.last_seq
            for key, known in (() if user is None else user.known.items())
            if (known.moved_to or known.start.session_id) == session_id
        }

    def let_go(self, stream: Stream, now: float) -> None:
        """Of a reply in the log: it is resolved, or its session deleted."""
        if stream.no not in self._turn_commit.streams:  # its owner has released that
            ended = True if stream.terminal else None if stream.may_release else False
            last_seq, passed_seq = stream.next_seq - 1, stream.passed_seq
            self.add(stream.begin, stream.session_id, last_seq, ended, passed_seq)
        self._core.release(stream, Flag.RESOLVED, now)

    def add(
        self, begin: records.Begin, session: str, last_seq: int, ended: bool | None, passed_seq: int
    ) -> None:
        """One that goes out of a session. ended: it had a terminal event, None where only its owner
        knows.
        """
        start = wire.Start(
            begin.number, 0, begin.stream_id, begin.session_id, begin.turn_id, begin.parent,
            begin.meta, begin.at_ms, begin.app,
        )  # fmt: skip
        moved_to = None if session == begin.session_id else session
        known = ResolvedStream(start, moved_to, last_seq, ended, passed_seq)
        key = begin.producer, begin.number
        user = self._users.setdefault(begin.uid, _OfUser())
        user.pop(key)
        user.known[key] = known
        user.bytes += known.bytes
        while user.bytes > _BYTES_MAX:
            user.pop(next(iter(user.known)))

    def awaits(self, uid: int, producer: bytes, seen: wire.Seen) -> bool:
        """What its producer has said of one of these, up to there, begins it anew once it comes."""
        user = self._users.get(uid)
        known = None if user is None else user.known.get((producer, seen.stream))
        return known is not None and max(known.last_seq, known.passed_seq) < seen.seq

    def take(self, connection: Connection, number: int) -> ResolvedStream | None:
        """What its producer, who speaks on, goes on with; None: it is none of these."""
        user = self._users.get(connection.uid)
        return None if user is None else user.pop((connection.producer.id, number))
