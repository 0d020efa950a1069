"""Requests about replies: recover, list, has-partial, resolve.

Owns: what they mean, who may ask for what, and reading one's own writes. Refuses: connections
(`server.py`), agents' events, reading files itself (`reply_reader.py`).

Invariants
- Q1 "Nothing" is said only when it is proven: the log has been scanned, what the asking process has
  handed the kernel is taken in, and other living processes that the log names are back from the
  restart, or had their time for it. Otherwise the answer is an Error (P11).
- Q2 Keys hold the uid of the peer's credentials: one user's replies do not exist for another. Root
  and the daemon's own user may name another uid.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import anyio
from msgspec.structs import replace
from walld_client.paths import path_name
from walld_client.wire import messages as wire

from walld.daemon import event_loop
from walld.errors import FormatError, Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from walld.daemon.storage.flusher import Flusher
    from walld.daemon.storage.partial_writer import PartialWriter
    from walld.daemon.storage.reply_reader import Order, ReplyReader
    from walld.daemon.transport.socket_reader import SocketReader
    from walld.engine.engine import Engine
    from walld.engine.stream import Connection, Stream

__all__ = ["ReplyRequests"]

_WAIT_SECONDS = 1.5
"""How long a request waits for its own process's events."""
_RELEASED_WAIT_SECONDS = 0.2
"""How long it waits for what was released: that is a flush and a turn of the background."""


class ReplyRequests:
    """Answers what is asked of replies."""

    def __init__(
        self,
        engine: Engine,
        socket_reader: SocketReader,
        flusher: Flusher,
        reader: ReplyReader,
        partial_writer: PartialWriter,
        doubt: Callable[[int], str | None],
        keep_calls: Callable[[int, str], Awaitable[None]],
    ) -> None:
        """doubt: why "nothing there" cannot be said to a uid, None where it can. keep_calls: so
        that the session of a reply knows its calls when that is resolved.
        """
        self._engine = engine
        self._socket_reader = socket_reader
        self._flusher = flusher
        self._reader = reader
        self._partial_writer = partial_writer
        self._doubt = doubt
        self._keep_calls = keep_calls
        self.answers: dict[type, Callable[[Connection, Any], Awaitable[Any]]] = {
            wire.Recover: self._recover,
            wire.HasPartial: self._has_partial,
            wire.Resolve: self._resolve,
            wire.List: self._list,
        }

    # --- who may ask, and when ------------------------------------------------------------------

    @staticmethod
    def uid_of(connection: Connection, uid: int | None) -> int:
        """Whose: the peer's own, or the one it names where it may (Q2)."""
        if uid is None or uid == connection.uid:
            return connection.uid
        if connection.uid not in (0, os.geteuid()):
            raise Refusal(
                "foreign_uid", "only root and the daemon's user see others", uid, connection.uid
            )
        return uid

    async def taken(self, connection: Connection, seen: list[wire.Seen]) -> None:
        """Wait until what the asking process has sent is taken in, and what the dead left (Q1)."""
        sees_all = connection.uid in (0, os.geteuid())
        if not await self._socket_reader.catch_up(None if sees_all else connection.uid, connection):
            text = "not everything that processes which are gone have sent is read; ask again"
            raise Refusal("behind", text)
        if not seen:
            return
        # Each is looked at until it is there, and then no more: a crowd of them may be named.
        left = (item for item in seen if not self._has_taken(connection, item))
        item = next(left, None)
        if item is None:
            return
        with anyio.move_on_after(_WAIT_SECONDS):
            while item is not None:
                await self._socket_reader.more()
                if self._has_taken(connection, item):
                    item = next(left, None)
            return
        if not self._socket_reader.query_sockets.has_hung_up(connection):
            raise Refusal("behind", "not everything this process sent has arrived; ask again")

    async def done(self, connection: Connection, uid: int) -> None:
        """Refuse where something is left to do of what callers of `uid` said who have hung up.

        Others are answered without it when it takes long. For who asks whether a call may have
        started: its start may be among it.
        """
        if not await self._socket_reader.query_sockets.settled(uid, connection):
            text = "not everything that processes which are gone have asked is done; ask again"
            raise Refusal("behind", text)

    def _has_taken(self, connection: Connection, seen: wire.Seen) -> bool:
        producer = self._engine.registry.producers.get((connection.uid, seen.producer))
        if producer is None:  # nobody comes back for whom nobody asks again: his rest was read
            return self._socket_reader.query_sockets.has_hung_up(connection)
        stream = producer.streams.get(seen.stream)
        if stream is None:
            if self._engine.resolved.awaits(connection.uid, seen.producer, seen):
                return False
            # Not by `number_max`: a stream of the log may have a higher number than one that only
            # its producer holds, and will resume.
            return seen.stream <= producer.said_max or seen.stream in producer.refused
        return max(stream.next_seq - 1, stream.passed_seq) >= seen.seq

    async def _let_go(self, uid: int, session_id: str | None) -> None:
        """Wait for released replies of turns, which go once their messages are in the session: what
        a process has released is not told to it any more. A disk that takes nothing, or takes long,
        keeps nobody from what there is.
        """
        engine = self._engine

        def waits() -> bool:
            return any(
                stream.begin.uid == uid and session_id in (None, *stream.session_ids)
                for no, stream in engine.turn_commit.streams.items()
                if no not in engine.turn_commit.moved and not self._is_released(stream)
            )

        if engine.disk_full or not waits():
            return
        engine.schedule.hurry_flush()
        with anyio.move_on_after(_RELEASED_WAIT_SECONDS):
            while waits():
                self._flusher.wake()
                await anyio.sleep(0.001)

    # --- answers --------------------------------------------------------------------------------

    async def _recover(self, connection: Connection, request: wire.Recover) -> list[wire.Recovered]:
        if request.which not in ("latest", "all", "orphans"):
            raise Refusal(
                "bad_request", "no such choice", request.which[:40], "latest, all, orphans"
            )
        if request.which == "latest" and request.session_id is None and request.stream_id is None:
            raise Refusal("bad_request", "latest of what?", "neither", "session_id or stream_id")
        uid = self.uid_of(connection, request.uid)
        await self.taken(connection, request.seen)
        await self._let_go(uid, request.session_id)
        replies = await self._replies(uid, request)
        if not replies:
            self._prove_nothing(connection, uid)
        outcome = "found" if replies else "nothing"
        self._engine.counters.recovered(outcome)
        return replies

    async def unreleased(
        self, uid: int, session_id: str, *, of_turns: bool, with_text: bool
    ) -> list[tuple[wire.Recovered, set[int], dict[int, Any] | None]]:
        """The unreleased replies of a session, in order of their beginning, each with what of its
        earlier attempts was said in steps that had ended (`fold`). of_turns: those of turns alone,
        and without those of which some words cannot be read now: the rest may say the contrary.
        with_text: else long ones have none. Each is told with what was made of it before, where its
        fold is kept (`reply_reader.py`).

        Raises Refusal where one of them cannot be read: who is told less takes it for all.
        """
        ended: dict[str, set[int]] = {}
        made: dict[str, dict[int, Any]] = {}

        async def read() -> list[tuple[Order, wire.Recovered]]:
            streams, names = self._candidates(uid, session_id, None)
            if of_turns:
                streams = [one for one in streams if one.begin.turn_id is not None]
            if not (streams or names):
                return []
            return await self._read(uid, streams, names, ended, made, with_text=with_text)

        try:
            try:
                found = await read()
            except FormatError:  # set aside now
                found = await read()
        except OSError as error:
            text = f"a reply of the session cannot be read: {error.strerror}; ask again"
            raise Refusal("unreadable", text, session_id) from error
        found.sort(key=lambda pair: pair[0])
        doubt = self._doubt(uid)
        told = {
            one.stream_id: one if doubt is None else replace(one, doubt=doubt)
            for _, one in found
            if not of_turns or (one.turn_id is not None and not _waits_for_words(one))
        }
        return [
            (one, ended.get(one.stream_id, set()), made.get(one.stream_id)) for one in told.values()
        ]

    def fingerprint(self, uid: int, session_id: str) -> tuple[object, ...]:
        """Another where `unreleased` may give something else, and the same where it gives the same:
        how far each reply got, and whether its owner lives.
        """
        streams, names = self._candidates(uid, session_id, None)
        return (
            self._doubt(uid),
            *((s.no, s.next_seq, s.terminal, s.lost_reason, s.damaged) for s in streams),
            *((name, self._engine.partials.facts(uid, *name)) for name in sorted(names)),
        )

    async def _replies(self, uid: int, request: wire.Recover) -> list[wire.Recovered]:
        streams, names = self._candidates(uid, request.session_id, request.stream_id)
        streams = [stream for stream in streams if not self._is_released(stream)]
        if request.which == "orphans":
            streams = [stream for stream in streams if stream.lost_reason is not None]
        if request.which == "latest":
            found = await self._read_latest(uid, streams, names)
        else:
            found = await self._read(uid, streams, names)
        # A stream that was kept while this was read may be there twice: once by its id.
        found.sort(key=lambda pair: pair[0])
        told = {(one.session_id, one.stream_id): one for _, one in found}
        if request.stream_id is None and (doubt := self._doubt(uid)) is not None:
            return [replace(one, doubt=doubt) for one in told.values()]
        return list(told.values())

    async def _read(
        self,
        uid: int,
        streams: list[Stream],
        names: list[tuple[str, str]],
        ended_before_retry: dict[str, set[int]] | None = None,
        made: dict[str, dict[int, Any]] | None = None,
        *,
        with_text: bool = True,
    ) -> list[tuple[Order, wire.Recovered]]:
        try:
            return await self._reader.replies(
                uid, streams, names, ended_before_retry, made, with_text=with_text
            )
        finally:
            await self._partial_writer.set_aside_damaged()

    async def _read_latest(
        self, uid: int, streams: list[Stream], names: list[tuple[str, str]]
    ) -> list[tuple[Order, wire.Recovered]]:
        """The one that began last. One that is let go while it is looked for is no proof that there
        is nothing: then it is the one before it.
        """
        while len(streams) + len(names) > 1:
            of, named = await self._latest(uid, streams, names)
            if found := await self._read(uid, of, named):
                return found
            streams = [one for one in streams if one not in of]
            names = [one for one in names if one not in named]
        return await self._read(uid, streams, names)

    def _candidates(
        self, uid: int, session_id: str | None, stream_id: str | None
    ) -> tuple[list[Stream], list[tuple[str, str]]]:
        """Streams in the log, and names of partials that are not among them."""
        registry, kept = self._engine.registry, self._engine.partials
        if stream_id is not None:
            stream = registry.by_key.get((uid, stream_id))
            streams = [] if stream is None else [stream]
            names = kept.places(uid, stream_id)
        elif session_id is not None:
            streams = registry.of_session(uid, session_id)
            names = self.kept_of(uid, session_id)
        else:
            streams = [s for s in registry.replies if s.begin.uid == uid]
            names = [(session, name) for _, session, name in kept.all_names(uid)]
        names = [name for name in names if not self._is_in_log(uid, name)]
        own = set()
        if any(kept.facts(uid, *name) is None for name in names):
            # Not read yet by whoever keeps the rest of it, which the log serves
            # (`partial_writer.py`).
            own = {(path_name(one.session_id), path_name(one.begin.stream_id)) for one in streams}
        names = [name for name in names if name not in own]
        # In its session already: what is still there of it waits for a sync.
        streams = [stream for stream in streams if not self._is_moved(stream)]
        if session_id is not None and stream_id is not None:
            session = path_name(session_id)
            streams = [stream for stream in streams if stream.session_id == session_id]
            names = [name for name in names if name[0] == session]
        return streams, names

    def _is_moved(self, stream: Stream) -> bool:
        return stream.no in self._engine.turn_commit.moved

    def _is_released(self, stream: Stream) -> bool:
        """Of no turn: of what is to become of it nothing is left to be told."""
        return stream.begin.turn_id is None and stream.no in self._engine.turn_commit.streams

    def kept_of(self, uid: int, session_id: str) -> list[tuple[str, str]]:
        """(session name, stream name) of the partials of a session, as far as they are no part of a
        reply in the log, which may have moved to another since.
        """
        session = path_name(session_id)
        names = [(session, name) for name in self._engine.partials.of_session(uid, session_id)]
        return [name for name in names if not self._is_in_log(uid, name)]

    def _is_in_log(self, uid: int, name: tuple[str, str]) -> bool:
        facts = self._engine.partials.facts(uid, *name)
        return facts is not None and facts.stream_no in self._engine.registry.by_no

    async def _latest(
        self, uid: int, streams: list[Stream], names: list[tuple[str, str]]
    ) -> tuple[list[Stream], list[tuple[str, str]]]:
        """The one that began last; stream numbers only grow."""
        kept = await self._reader.orders(uid, names) if names else []
        last_kept = max(kept, default=None)
        last = max(streams, key=lambda stream: stream.no, default=None)
        if last_kept is None or (last is not None and (True, last.no) > last_kept[0]):
            return ([] if last is None else [last]), []
        return [], [last_kept[1]]

    async def _has_partial(self, connection: Connection, request: wire.HasPartial) -> bool:
        await self.taken(connection, request.seen)
        await self._let_go(connection.uid, request.session_id)
        if self.has_unreleased(connection.uid, request.session_id):
            return True
        self._prove_nothing(connection, connection.uid)
        return False

    def has_unreleased(self, uid: int, session_id: str) -> bool:
        """Something was said in the session that is neither released nor resolved."""
        streams = self._engine.registry.of_session(uid, session_id)
        gone = (self._is_moved(one) or self._is_released(one) for one in streams)
        return not all(gone) or bool(self.kept_of(uid, session_id))

    def _prove_nothing(self, connection: Connection, uid: int) -> None:
        """Raises where damaged bytes may hold what was asked for, or a process that said it while
        no daemon was there (Q1).
        """
        doubt = self._doubt(uid)
        if doubt is not None:
            raise Refusal("unreadable", f"it is not among what can be read; but {doubt}")
        engine = self._engine
        if event_loop.now() < engine.returning_until and any(
            stream.connection is None  # its owner's greeting resumes all that it holds
            and stream.owner is not None
            and stream.owner.visible
            and stream.owner is not connection.process  # which names what it said itself
            and stream.begin.uid == uid
            and stream.no not in engine.turn_commit.streams
            for stream in engine.registry.replies
        ):
            text = "not every process that has replies here has come back since the restart"
            raise Refusal("behind", f"{text}; ask again")

    async def _resolve(self, connection: Connection, request: wire.Resolve) -> bool:
        uid = self.uid_of(connection, request.uid)
        await self.taken(connection, request.seen)
        if self._orphan(uid, request) is not None:
            self._engine.batches.check_open()
        await self._keep_calls(uid, request.stream_id)
        if (stream := self._orphan(uid, request)) is not None:
            self._engine.batches.check_open()
            now = event_loop.now()
            written = event_loop.Bell()
            self._engine.resolved.let_go(stream, now)
            self._engine.when("written", written.ring, now)
            self._flusher.wake()
            await written.wait()
            return True
        where = self._engine.partials.where(uid, request.stream_id)
        if where is None:
            return False
        try:
            facts = await self._partial_writer.facts(uid, *where)
            self._check_grown(facts.last_seq, request.last_seq)
            await self._partial_writer.resolve_partial(uid, *where)
        except FileNotFoundError:
            return False  # somebody else resolved it meanwhile
        return True

    def _orphan(self, uid: int, request: wire.Resolve) -> Stream | None:
        """The reply in the log that is to be resolved. Refusal where it may not be."""
        stream = self._engine.registry.by_key.get((uid, request.stream_id))
        if stream is not None:
            if stream.lost_reason is None:
                raise Refusal("refused", "its owner is alive: only it may release", "alive", "gone")
            self._check_grown(stream.next_seq - 1, request.last_seq)
        return stream

    @staticmethod
    def _check_grown(last_seq: int, seen_seq: int | None) -> None:
        if seen_seq is not None and last_seq > seen_seq:
            text = "it has grown since you read it: recover it again"
            raise Refusal("refused", text, seen_seq, last_seq)

    async def _list(self, connection: Connection, request: wire.List) -> list[wire.Recovered]:
        uid = self.uid_of(connection, request.uid)
        await self.taken(connection, [])
        await self._let_go(uid, None)
        every = wire.Recover(request.id, "all", uid=uid)
        found = [
            replace(reply, segments=[])
            for reply in await self._replies(uid, every)
            if reply.session_id.startswith(request.prefix)
        ]
        if not found:
            self._prove_nothing(connection, uid)
        return found


def _waits_for_words(reply: wire.Recovered) -> bool:
    """What its client dropped never comes; what the disk does not give now may."""
    return any(gap.verdict != "dropped" for gap in reply.gaps)
