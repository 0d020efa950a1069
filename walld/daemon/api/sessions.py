"""Requests about sessions: append, read, views, fork, delete, artifacts.

Owns: what they mean and when they are answered. Refuses: connections (`server.py`), what an entry
means (`engine/session_log.py`), files (`open_sessions.py`).

Invariants: those of `replies.py` (Q1, Q2) hold here too; "never written" is nil, an empty session
an empty list; neither is known where lines may stand in what cannot be read of the log (Y1).
"""

from __future__ import annotations

import json
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import anyio
import msgspec
from walld_client.wire import messages as wire

from walld import limits
from walld.daemon import event_loop
from walld.daemon.api.artifacts import ArtifactRequests
from walld.daemon.api.child_sessions import ChildSessions, Looking
from walld.daemon.api.key_lookup import KeyLookup
from walld.daemon.api.named_processes import seen_now
from walld.daemon.api.paged_answers import PagedLines
from walld.daemon.api.session_list import session_facts
from walld.daemon.api.standings import ASKED_MAX, Standings
from walld.daemon.api.sync_tokens import SyncTokens
from walld.daemon.session_store.files import Lines
from walld.daemon.session_store.fork_contents import forked_session
from walld.daemon.session_store.handles import SourceGone
from walld.daemon.session_store.message_pages import MessagePages
from walld.daemon.session_store.reply_messages import unreleased
from walld.daemon.session_store.view_events import ViewEvents, written
from walld.errors import FormatError, Misplaced, ProtocolError, Refusal
from walld.ledger.line import line_seq
from walld.sessions.gate.children import ChildrenUnknown, with_children
from walld.sessions.gate.processes import processes_of
from walld.sessions.gate.workers import Worker
from walld.sessions.state.account import Unreleased
from walld.sessions.state.entries import check_id, line_event
from walld.sessions.views.audit import named_artifacts
from walld.sessions.views.event_memory import TELLS_NO_TEXT, shortened
from walld.sessions.views.projections import PROJECTIONS, check, project
from walld.sessions.views.turn_view import turn_in
from walld.sessions.views.view_json import view_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from walld.daemon.api.replies import ReplyRequests
    from walld.daemon.session_store.handles import Files, Source
    from walld.daemon.session_store.open_sessions import Sessions
    from walld.daemon.session_store.turn_watcher import TurnWatcher
    from walld.daemon.session_store.view_events import HeldEvents
    from walld.daemon.storage.partial_writer import PartialWriter
    from walld.engine.engine import Engine
    from walld.engine.session_log import SessionLog
    from walld.engine.stream import Connection, Process
    from walld.ledger.runs import Run
    from walld.sessions.state.events import Child, Event

__all__ = ["SessionRequests", "Taken"]

_log = logging.getLogger("walld.requests")
_Json: TypeAlias = "bytes | bytearray"
_WithBreaks: TypeAlias = "tuple[list[bytes] | _Json | None, _Json]"

_ROOM_SECONDS = 1.5
_ROOM_PAUSE_SECONDS = 0.01
_LEVELS = ("taken", "written", "synced")
_NAMED = ("parent", "turn", "cause", "correlation", "key")
"""Of an entry, what names another or is found by."""
_WRITTEN_SECONDS = 1.5
"""A reader waits so long for lines that the daemon made, and for replies that go to their session
first; a disk that takes none keeps nobody."""
_CHILDREN_TRIES = 4
"""Of a view, while new ones come as it is made."""
_OF_GATE = ("explain", "resume")
"""Views that look whether artifacts are there, and hear what hung up."""
_OF_CALLS = ("audit", "pending", *_OF_GATE)
"""Views that know of replies that are not released, and of who is at work."""
_OF_ENTRIES_ALONE = ("branches", "child", "edit_target", "find", "tree", "turn")
"""Views that say nothing of what became of calls."""
_WITHOUT_ENTRIES = ("pending", *_OF_GATE)
"""Of those the ones that tell of such replies alone, too."""
_WITH_PROCESSES = ("messages", *_WITHOUT_ENTRIES)
"""Views that know which processes of calls still run."""
_OF_TURNS = ("messages", "eval")
"""Views that have what such replies of turns say, as far as all of it can be read."""
_WITH_WORDS = (*_OF_TURNS, "explain", "transcript")
"""Views that have what such replies say; others have their calls alone."""
_WITH_DAMAGE = ("audit", "resume", "state")
"""Views that say where the session's file is damaged (P9)."""


class Taken(NamedTuple):
    """Where the entries of an append stand. receipt: for an answer that waits for a sync."""

    placed: list[wire.Placed]
    receipt: bytes


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `standing`, which is a view of many sessions."""

    sessions: list[str]


class SessionRequests:
    """Answers what is asked of sessions."""

    def __init__(
        self,
        engine: Engine,
        sessions: Sessions,
        turns: TurnWatcher,
        replies: ReplyRequests,
        partial_writer: PartialWriter,
        files: Files,
        wall_ms: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._sessions = sessions
        self._turns = turns
        self._replies = replies
        self._partial_writer = partial_writer
        self._files = files
        self._view_events = ViewEvents(sessions, files.views)
        self._key_lookup = KeyLookup(sessions, self._view_events, files.views)
        self._pages = MessagePages(sessions, self._view_events, files.views, seen_now)
        self._standings = Standings(
            engine, sessions, turns, replies, self._view_events, files, self._workers, wall_ms
        )
        self._artifacts = ArtifactRequests(files, replies)
        self._children = ChildSessions(self._view, self._begun, wall_ms)
        receipts = SyncTokens(engine, sessions, files.ledgers.deleted, wall_ms)
        self._receipt_of = receipts.of
        self._wall_ms = wall_ms
        self._views: dict[int, anyio.Lock] = {}
        """By uid of the peer."""
        self.answers: dict[type, Callable[[Connection, Any], Awaitable[Any]]] = {
            wire.Events: self._events,
            wire.Project: self._project,
            wire.Sessions: self._list,
            wire.Delete: self._delete,
            wire.DeleteAt: self._delete_at,
            wire.Fork: self._fork,
            **receipts.answers,
            **self._artifacts.answers,
        }

    # --- writing --------------------------------------------------------------------------------

    def reached(self, requests: list[wire.Append], uid: int) -> event_loop.Bell:
        """Set once these appends, which are taken, are where each of them waits for."""
        level = max((one.level for one in requests), key=_LEVELS.index)
        return self._sessions.reached(level, uid=uid)

    async def take(self, connection: Connection, request: wire.Append) -> Taken:
        """Put the entries of an append in their places, which nobody may be told yet."""
        if request.level not in _LEVELS:
            levels = ", ".join(_LEVELS)
            raise Refusal("bad_level", "there is no such level", request.level[:40], levels)
        check_id("session_id", request.session_id)
        count = len(request.entries)
        if count > limits.LEDGER_ENTRIES_MAX:
            text = "more entries than are taken at once"
            raise Refusal("entries_count", text, count, limits.LEDGER_ENTRIES_MAX)
        for entry in request.entries:
            check_id("id", entry.id)
            for name in _NAMED:
                if (ident := getattr(entry, name)) is not None:
                    check_id(name, ident)
        uid = connection.uid
        await self._replies.taken(connection, request.seen)
        until = event_loop.now() + _ROOM_SECONDS
        while True:
            no_room = await self._turns.settle(uid, request.session_id)
            ledger = await self._opened(uid, request)
            now = event_loop.now()
            self._artifacts.check_sent(request, uid)  # in the step of the append: no delete between
            try:
                if no_room is not None:
                    raise no_room  # what the session's replies say comes first
                placed = self._engine.session_logs.append(
                    ledger,
                    request.entries,
                    request.expected_seq,
                    connection.process,
                    self._wall_ms(),
                    now,
                    unowned=request.unowned,
                )
                break
            except Refusal as full:
                if full.code != "ledger_full" or now > until:
                    raise
            await anyio.sleep(_ROOM_PAUSE_SECONDS)  # a checkpoint is on its way, and makes room
        return Taken(placed, self._receipt_of(ledger) if request.level == "synced" else b"")

    async def _opened(self, uid: int, request: wire.Append) -> SessionLog:
        """Its session, for the step that follows: behind that a delete or a fork may take it away.

        So may one that comes while artifacts are looked for, and then it is looked for again.
        """
        while True:
            ledger = await self._sessions.open(uid, request.session_id, create=True)
            assert ledger is not None
            await self._artifacts.check_there(request, ledger)
            if self._engine.session_logs.is_open(ledger):
                return ledger

    async def named(
        self, connection: Connection, request: wire.Append, placed: list[wire.Placed]
    ) -> list[wire.Placed]:
        """What is told of an append that came as far as it waits for."""
        return [await self._named(connection.uid, request.session_id, one) for one in placed]

    async def _named(self, uid: int, session_id: str, placed: wire.Placed) -> wire.Placed:
        """With its id, also where it was found by its key; "" where that entry is lost to damage.

        The append is done: a failure told now would have the others appended a second time.
        """
        if placed.id:
            return placed
        try:
            found = await self._sessions.lines(uid, session_id, placed.seq - 1, 1)
        except (OSError, FormatError) as error:
            _log.error("the entry of a key cannot be read: %s", error)
            return placed
        if found is None or not found.lines or line_seq(found.lines[0]) != placed.seq:
            return placed
        return wire.Placed(placed.seq, line_event(found.lines[0]).id, is_new=False)

    async def _fork(self, connection: Connection, request: wire.Fork) -> list[wire.Placed]:
        uid = connection.uid
        check_id("new_id", request.new_id)
        await self._replies.taken(connection, request.seen)
        if (no_room := await self._turns.settle(uid, request.session_id)) is not None:
            raise no_room  # the copy would lack a reply
        with self._sessions.forks.source(uid, request.session_id) as source:
            found = await self._view_events.lines(uid, request.session_id)
            if found is None:
                self._sessions.check_known(uid, request.session_id)
                text, limit = "there is no such session", "a session that was written"
                raise Refusal("unknown_session", text, request.session_id, limit)
            await self._written(uid, request.session_id)
            most = limits.FORK_BYTES_MAX
            async with self._view_events.held(
                uid, request.session_id, found, bytes_max=most
            ) as held:
                arguments = held.events, request, uid, self._wall_ms(), found.until, held.hold
                try:
                    made = await self._files.views.run(partial(forked_session, *arguments))
                except ProtocolError as error:
                    raise Refusal(error.code, error.message, error.got, error.limit) from None
                held.events.clear()
                if not await self._sessions.exists(uid, request.new_id):
                    self._sessions.check_known(uid, request.new_id)
                if not await self._sessions.create(uid, request.new_id, made, source):
                    text = "new_id names a session that is there"
                    raise Refusal("session_exists", text, request.new_id, "a new id")
        last = line_event(made.lines[-1])
        return [wire.Placed(last.seq, last.id)]

    async def _delete(self, connection: Connection, request: wire.Delete) -> bool:
        uid = self._replies.uid_of(connection, request.uid)
        # What its process said before it asked is not to come behind the answer.
        await self._replies.taken(connection, request.seen)
        session_id = request.session_id
        self._check_gone_for_good(session_id)
        there = self._let_go(uid, session_id)
        for session, name in self._replies.kept_of(uid, session_id):
            try:
                await self._partial_writer.resolve_partial(uid, session, name)
            except (Misplaced, FileNotFoundError):
                pass  # of another session, and set aside now; resolved meanwhile
            except Refusal as refused:
                if refused.code != "refused":
                    raise
                # Its owner is back, and it goes with those in the log.
            there = True
        there |= self._let_go(uid, session_id)
        there |= await self._remove(uid, session_id)
        if not there:
            self._sessions.check_known(uid, session_id)
        return there

    async def _delete_at(self, connection: Connection, request: wire.DeleteAt) -> bool:
        uid, session_id = self._replies.uid_of(connection, request.uid), request.session_id
        await self._replies.taken(connection, request.seen)
        if (no_room := await self._turns.settle(uid, session_id)) is not None:
            raise no_room  # what its replies say comes first, and is behind last_seq
        self._check_gone_for_good(session_id)

        def judge(last_seq: int) -> None:
            if last_seq != request.last_seq:
                text = "nothing was deleted: the session's last event is another"
                raise Refusal("stale", text, request.last_seq, last_seq)
            if self._replies.has_unreleased(uid, session_id):
                text = "nothing was deleted: a reply of the session is not released"
                raise Refusal("unreleased", text, session_id, "replies that are released")
            self._let_go(uid, session_id)

        await self._remove(uid, session_id, judge)
        return True

    async def _remove(
        self, uid: int, session_id: str, judge: Callable[[int], None] | None = None
    ) -> bool:
        """Its files, and the word of where it stood."""
        try:
            return await self._sessions.delete(uid, session_id, judge)
        finally:  # not before: a word that is being found would be kept behind that
            self._standings.forget(uid, session_id)

    def _check_gone_for_good(self, session_id: str) -> None:
        """Refusal where what is deleted now may come back."""
        self._engine.batches.check_open()
        doubt = self._sessions.doubt
        if doubt is not None and doubt.may_return:
            raise Refusal("unreadable", f"nothing was deleted: {doubt.why}", session_id)

    def _let_go(self, uid: int, session_id: str) -> bool:
        """Of all its replies in the log; whoever still speaks on one begins it anew."""
        streams = self._engine.registry.of_session(uid, session_id)
        for stream in streams:
            self._engine.resolved.let_go(stream, event_loop.now())
            self._engine.turn_commit.settled(stream)
        return bool(streams)

    # --- reading --------------------------------------------------------------------------------

    async def _found(
        self, uid: int, session_id: str, after: int = 0, limit: int = 0, held_bytes_max: int = 0
    ) -> Lines | None:
        try:
            found = await self._sessions.lines(uid, session_id, after, limit, held_bytes_max)
        except FormatError as error:
            raise Refusal("unreadable", str(error)) from None
        if found is None:
            self._sessions.check_known(uid, session_id)
        return found

    async def _written(self, uid: int, session_id: str) -> None:
        """What was read just now holds no line of the daemon's own that a kill would take (N1)."""
        ledger = self._engine.session_logs.open.get((uid, session_id))
        if ledger is not None and ledger.is_unwritten:
            with anyio.move_on_after(_WRITTEN_SECONDS):
                await self._sessions.until("written")

    async def _events(
        self, connection: Connection, request: wire.Events
    ) -> list[bytes] | _WithBreaks | PagedLines | None:
        uid = self._replies.uid_of(connection, request.uid)
        await self._replies.taken(connection, request.seen)
        await self._turns.settle(uid, request.session_id, _WRITTEN_SECONDS)
        session_id, most = request.session_id, limits.ANSWER_HELD_BYTES_MAX
        found = await self._found(uid, session_id, request.after, request.limit, most)
        await self._written(uid, session_id)
        lines = None if found is None else found.lines
        told = _told(lines, found) if request.breaks else lines
        if found is None or not found.runs:
            return told
        breaks = bytes(told[1]) if isinstance(told, tuple) else None

        async def page(run: Run) -> tuple[list[bytes], Run | None]:
            return await self._sessions.page(uid, session_id, run, limits.ANSWER_PAGE_BYTES)

        return PagedLines(found, breaks, page)

    async def _project(
        self, connection: Connection, request: wire.Project
    ) -> _Json | _WithBreaks | None:
        told, found = await self._projected(connection, request)
        await self._written(self._replies.uid_of(connection, request.uid), request.session_id)
        return _told(told, found) if request.breaks else told

    async def _projected(
        self, connection: Connection, request: wire.Project
    ) -> tuple[_Json | None, Lines | None]:
        """The view, and what was read for it."""
        uid = self._replies.uid_of(connection, request.uid)
        await self._replies.taken(connection, request.seen)
        if request.name == "standing":
            return await self._standing(connection, uid, request), None
        await self._turns.settle(uid, request.session_id, _WRITTEN_SECONDS)
        try:
            arguments = msgspec.json.decode(request.arguments, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refusal("bad_argument", str(error), "", "a JSON object") from None
        if request.name in _OF_GATE:
            await self._replies.done(connection, uid)
        if request.name == "turn":
            return await self._turn(uid, request.session_id, arguments), None
        # One at a time of each user: the files' thread has others' sessions to open.
        async with self._views.setdefault(connection.uid, anyio.Lock()):
            try:
                check(request.name, arguments)  # also where there is no session to look at
                if request.name == "find":
                    found, lines = await self._key_lookup.find(uid, request.session_id, arguments)
                    if found is None:
                        self._sessions.check_known(uid, request.session_id)
                    return found, lines
                if request.name in _OF_CALLS:
                    await self._restored(uid, request.session_id)
                    if request.name in _WITHOUT_ENTRIES:
                        arguments["now_ms"] = self._wall_ms()
                    arguments["workers"] = self._workers(connection, uid, request.session_id)
                while True:
                    try:
                        looking = Looking((), [])
                        return await self._view(connection, uid, request, arguments, looking)
                    except SourceGone:
                        pass  # it may have been begun anew
            except ProtocolError as error:
                raise Refusal(error.code, error.message, error.got, error.limit) from None

    async def _standing(self, connection: Connection, uid: int, request: wire.Project) -> _Json:
        """Of sessions that the arguments name: a word costs as much as a look where nothing
        changed.
        """
        try:
            asked = msgspec.json.decode(request.arguments, type=_Asked).sessions
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Refusal("bad_argument", str(error), "", "sessions: a list of ids") from None
        if len(asked) > ASKED_MAX:
            text = "more sessions than are looked at for one question"
            raise Refusal("bad_argument", text, len(asked), ASKED_MAX)
        for one in asked:
            check_id("session_id", one)
        await self._replies.done(connection, uid)
        turn = self._views.setdefault(connection.uid, anyio.Lock())

        async def gate(session_id: str) -> Any:
            one = msgspec.structs.replace(request, session_id=session_id, name="resume")
            workers = await self._begun(connection, uid, session_id)
            arguments: dict[str, Any] = {"now_ms": self._wall_ms(), "workers": workers}
            try:
                told, _ = await self._view(connection, uid, one, arguments, Looking((), []))
            except SourceGone:
                return None
            return None if told is None else json.loads(told)

        return _dumps(await self._standings.words(connection, uid, asked, turn, gate))

    async def _turn(self, uid: int, session_id: str, arguments: dict[str, Any]) -> _Json | None:
        """Out of the fold: who looks up its turn reads no session from its beginning."""
        try:
            check("turn", arguments)
            ledger = await self._sessions.open(uid, session_id)
        except ProtocolError as error:
            raise Refusal(error.code, error.message, error.got, error.limit) from None
        except FormatError as error:
            raise Refusal("unreadable", str(error)) from None
        if ledger is None or ledger.state is None:
            self._sessions.check_known(uid, session_id)
            return None
        return _dumps(turn_in(ledger.state.journal, **arguments))

    async def _begun(self, connection: Connection, uid: int, session_id: str) -> list[Worker]:
        """Who is at work on a session, once it is as its programs have left it."""
        await self._turns.settle(uid, session_id, _WRITTEN_SECONDS)
        await self._restored(uid, session_id)
        return self._workers(connection, uid, session_id)

    async def _restored(self, uid: int, session_id: str) -> None:
        """It is open, so that who works on its turns is known behind a start, too."""
        try:
            await self._sessions.open(uid, session_id)
        except FormatError as error:
            raise Refusal("unreadable", str(error)) from None

    def _workers(self, connection: Connection, uid: int, session_id: str) -> list[Worker]:
        """Who has turns of the session, or replies in it that have not ended."""

        def worker(process: Process, turn: str | None, stream: str | None, at_ms: int) -> Worker:
            is_seen = process.visible or bool(process.connections or process.queries)
            is_asker = process is connection.process
            return Worker(turn, stream, process.owner.pid, at_ms, is_asker, is_seen)

        found = [
            worker(process, turn, None, 0)
            for turn, process in self._engine.session_logs.workers(uid, session_id).items()
            if not process.has_exited
        ]
        found += [
            worker(stream.owner, stream.begin.turn_id, stream.begin.stream_id, stream.begin.at_ms)
            for stream in self._engine.registry.of_session(uid, session_id)
            if not (stream.terminal or stream.gone)
            if stream.owner is not None and not stream.owner.has_exited
        ]
        return found

    async def _view(
        self,
        connection: Connection,
        uid: int,
        request: wire.Project,
        arguments: dict[str, Any],
        looking: Looking,
    ) -> tuple[_Json | None, Lines | None]:
        """The view, and what was read for it. SourceGone where that is not there any more.

        What became of its sub-agents' sessions is looked at while nothing of it is held: two long
        sessions are not folded at once.
        """
        children: dict[str, Child | None] = {}
        for _ in range(_CHILDREN_TRIES):
            try:
                return await self._view_with(uid, request, dict(arguments), children)
            except ChildrenUnknown as unknown:
                below = looking.below(request.session_id)
                for entry in unknown.entries:
                    children[entry.id] = await self._children.of(
                        connection, request, uid, entry, below, arguments.get("policy")
                    )
        text = "sub-agents begin faster than they are looked at: ask again"
        raise Refusal("behind", text, request.session_id, f"{_CHILDREN_TRIES} times")

    async def _view_with(
        self,
        uid: int,
        request: wire.Project,
        arguments: dict[str, Any],
        children: dict[str, Child | None],
    ) -> tuple[_Json | None, Lines | None]:
        """The same, with what became of children. Raises ChildrenUnknown where it needs others."""
        files = self._files
        # Before the session: what is moved there meanwhile is in both, and told once.
        replies, of_calls = list[Unreleased](), request.name in _OF_CALLS
        if of_calls or PROJECTIONS[request.name].with_unreleased:
            read = await self._replies.unreleased(
                uid,
                request.session_id,
                of_turns=request.name in _OF_TURNS,
                with_text=request.name in _WITH_WORDS,
            )
            if read:
                replies = await files.views.run(lambda: [unreleased(*one) for one in read])
        if of_calls:
            arguments["replies"], replies = replies, []
        if request.name == "messages" and arguments.get("last") is not None:
            told, found = await self._pages.page(
                uid, request.session_id, arguments, replies, children
            )
            if told is not None:
                return told, found
        with self._sessions.forks.source(uid, request.session_id) as source:
            most = limits.ANSWER_HELD_BYTES_MAX
            found = await self._found(uid, request.session_id, held_bytes_max=most)
            tells_replies = request.name == "transcript" or request.name in _WITHOUT_ENTRIES
            if found is None and not (tells_replies and (replies or arguments.get("replies"))):
                return None, None
            lines = Lines([], []) if found is None else found
            keep, most = None, limits.VIEW_BYTES_MAX
            if request.name in TELLS_NO_TEXT:
                keep, most = shortened, limits.JUDGED_BYTES_MAX
            async with self._view_events.held(
                uid, request.session_id, lines, keep, bytes_max=most
            ) as held:
                more = replies, children, source
                told = await self._told_of(uid, request, arguments, *more, lines, held)
            return told, found

    async def _told_of(
        self,
        uid: int,
        request: wire.Project,
        arguments: dict[str, Any],
        replies: Sequence[Unreleased],
        children: dict[str, Child | None],
        source: Source,
        found: Lines,
        held: HeldEvents,
    ) -> bytearray:
        """The view of these events."""
        files, events, missing = self._files, held.events, list[dict[str, Any]]()
        looks = request.name == "audit"
        if looks or (request.name in _OF_GATE and "missing_artifacts" not in arguments):
            for one in await files.views.run(partial(named_artifacts, events)):
                missing += await files.thread.run(
                    partial(self._artifacts.missing, uid, request.session_id, one)
                )
            if missing and source.is_gone:  # they went with it
                raise SourceGone
            if not looks:
                arguments["missing_artifacts"] = missing
        breaks = [broken._asdict() for broken in found.breaks]
        if looks or request.name in _WITHOUT_ENTRIES:
            arguments["last_seq"] = found.until
        if request.name in _WITH_PROCESSES:
            arguments["processes"] = await files.views.run(lambda: seen_now(processes_of(events)))
        if request.name in _OF_GATE:
            arguments |= {"breaks": breaks, "session": request.session_id}

        def job() -> bytearray:
            seen: Sequence[Event] = events
            if request.name not in _OF_ENTRIES_ALONE:
                seen = with_children(events, children, arguments.get("replies") or replies)
            told: Any = project(request.name, seen, arguments, replies)
            if request.name == "messages" and told is None:
                # None that can be read: nil is "never written".
                is_page = arguments.get("last") is not None
                told = {"messages": [], "before": None} if is_page else []
            if request.name == "state":
                told["last_seq"] = max(told["last_seq"], found.until)
            if request.name in _WITH_DAMAGE:
                told["chain_breaks"] = breaks
            if request.name == "audit":
                told["artifacts_missing"] = missing
            return written(told, held)

        return await files.views.run(job)

    async def _list(
        self, connection: Connection, request: wire.Sessions
    ) -> list[wire.SessionFacts]:
        uid = self._replies.uid_of(connection, request.uid)
        sessions, ledgers = self._sessions, self._engine.session_logs
        found = await session_facts(sessions, ledgers, self._files, uid, request.prefix)
        if not found:
            self._sessions.check_known(uid, request.prefix)
        return found


def _told(answer: list[bytes] | _Json | None, found: Lines | None) -> _WithBreaks:
    """With what is damaged of the lines that were read, without seams."""
    breaks = [] if found is None else [one._asdict() for one in found.breaks]
    for one in breaks:
        del one["seam"]
    return answer, _dumps(breaks)


def _dumps(value: object) -> bytearray:
    return view_json(value, limits.VIEW_BYTES_MAX)
