"""Interrupts turns of dead processes and commits replies of ended turns.

Owns: interrupting a turn, and moving a reply's messages, or what is to be known of its calls, or
that it went for its age, into its session before it goes. Refuses: whose turn it is
(`engine/session_log.py`), folding replies (`reply_reader.py`), what entries their messages are
(`reply_messages.py`), their calls (`released_calls.py`) and their age (`expired_replies.py`),
opening (`open_sessions.py`).

Invariants
- N5 A turn is interrupted by the kernel's word alone: its owner has exited, or the boot is another.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import anyio
from anyio.lowlevel import checkpoint
from walld_client.recovered.entry_messages import entry_messages
from walld_client.recovered.partial import from_recovered
from walld_client.wire import messages as wire

from walld import limits
from walld.daemon import event_loop
from walld.daemon.session_store.expired_replies import expired_entries
from walld.daemon.session_store.interruption import interruption
from walld.daemon.session_store.released_calls import ReadReply, ReleasedCalls
from walld.daemon.session_store.reply_messages import ReplyMessages, placed
from walld.errors import FormatError, ProtocolError, Refusal
from walld.escape import escaped_line
from walld.sessions.state.entries import free_id
from walld.wal.layout import Flag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from walld_client.recovered.partial import PartialReply

    from walld.daemon.session_store.handles import Files
    from walld.daemon.session_store.open_sessions import Sessions
    from walld.daemon.storage.flusher import Flusher
    from walld.daemon.storage.reply_reader import Order, ReplyReader
    from walld.engine.engine import Engine
    from walld.engine.session_log import LostTurn, SessionLog
    from walld.engine.stream import Stream

__all__ = ["TurnWatcher"]

_log = logging.getLogger("walld.turns")
_NO_ROOM = ("ledger_full", "unwritable")
"""What the daemon's own entries are refused for, until files of sessions are written."""


class _Complete(NamedTuple):
    """A reply of a turn that has ended, and its session, open."""

    read: ReadReply
    ledger: SessionLog

    @property
    def reply(self) -> PartialReply:
        return self.read.reply


class TurnWatcher:
    """The turns of one daemon's sessions, where their owners do not act themselves."""

    def __init__(
        self,
        engine: Engine,
        flusher: Flusher,
        files: Files,
        reader: ReplyReader,
        sessions: Sessions,
        wall_ms: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._flusher = flusher
        self._reader = reader
        self._sessions = sessions
        self._of = ReplyMessages(files, sessions)
        self._calls = ReleasedCalls(sessions)
        self._wall_ms = wall_ms
        self._moving = defaultdict[int, anyio.Lock](anyio.Lock)
        """By uid: no two of a user's replies are looked at and moved at once."""
        self._interrupt_at: dict[tuple[int, str], float] = {}
        """By uid and session: lost turns could not be interrupted, and when that is tried again."""
        self._again_at: dict[int, float] = {}
        """By stream number: replies that could not be moved, and when that is tried again."""
        self._without_room: dict[int, SessionLog] = {}
        """By stream number: replies for whose entries there was no room, and in which session."""

    async def interrupt_lost(self) -> None:
        """Turns whose owner is gone are interrupted, once; one that cannot be holds up no other."""
        for turn in list(self._engine.session_logs.lost_turns):
            await self._try_to_interrupt(turn)
            await checkpoint()  # one process may have had thousands

    async def _try_to_interrupt(self, turn: LostTurn) -> None:
        lost, key = self._engine.session_logs.lost_turns, (turn.uid, turn.session_id)
        if self._interrupt_at.get(key, 0.0) > event_loop.now():
            return
        try:
            await self._interrupt(turn)
        except Refusal as error:
            if error.code in _NO_ROOM:
                return
            _log.error("turn %s stays open: %s", escaped_line(turn.turn_id), error)
        except (OSError, FormatError) as error:
            if key not in self._interrupt_at:
                _log.error("turn %s stays open: %s", escaped_line(turn.turn_id), error)
            ledger = self._engine.session_logs.open.get(key)
            if ledger is not None and ledger.state is not None:  # that it leaps cannot be noted now
                self._interrupt_at[key] = event_loop.now() + limits.DISK_RETRY_SECONDS
                return  # else whoever opens it meets the turn again
        except Exception:  # a bug met by one session costs no other
            where = escaped_line(turn.session_id)
            text = "a bug: turn %s of session %s stays open"
            _log.exception(text, escaped_line(turn.turn_id), where)
        lost.pop(turn, None)
        self._interrupt_at.pop(key, None)

    async def _interrupt(self, turn: LostTurn) -> None:
        ledger = await self._sessions.open(turn.uid, turn.session_id, appends=True)
        state = None if ledger is None else ledger.state
        if ledger is None or state is None:
            return
        known = state.journal.turn(turn.turn_id)
        key = (turn.uid, turn.session_id, turn.turn_id)
        if known is None or known.ended or self._engine.session_logs.is_owned(key):
            return
        wanted = f"{turn.turn_id}:{turn.reason}:{state.last_seq + 1}"
        self._append(ledger, [interruption(turn.turn_id, turn.reason, free_id(state, wanted))])

    def _append(self, ledger: SessionLog, entries: list[wire.NewEntry]) -> list[wire.Placed]:
        """The daemon's own entries. Refusal."""
        self._engine.session_logs.check_waiting(ledger)
        now = event_loop.now()
        placed = self._engine.session_logs.append(ledger, entries, None, None, self._wall_ms(), now)
        self._flusher.wake()
        return placed

    # --- replies of turns -----------------------------------------------------------------------

    async def settle(
        self, uid: int | None = None, session_id: str | None = None, seconds: float = math.inf
    ) -> Refusal | None:
        """Replies that ended and were released: messages, or calls, to the session, then they go.

        Of one session for who asks about it, so that what it is told is behind what it has said;
        and behind the end of whoever worked on it. seconds: so long it waits for what is not
        written yet; who appends waits on, for no entry may take the place of an answer before it.
        So he must not go on, either, where one finds no room: why is given back.
        """
        until, no_room, full = anyio.current_time() + seconds, None, set[tuple[int, str]]()
        self._forget_gone()
        if uid is not None and session_id is not None:
            await self._see_off(uid, session_id)
        for stream in list(self._engine.turn_commit.streams.values()):
            if stream.no in self._engine.turn_commit.moved:
                continue
            whose = stream.begin.uid, stream.session_ids
            if session_id is not None and (whose[0] != uid or session_id not in whose[1]):
                continue
            if not full.isdisjoint((whose[0], one) for one in whose[1]):
                continue  # none before the one that waits for room
            if self._again_at.get(stream.no, 0.0) > event_loop.now():
                continue
            if stream.has_waiting and session_id is not None:
                with anyio.CancelScope(deadline=until):
                    await self._sessions.until("written")
            if stream.has_waiting:
                continue  # its flush is on its way, and wakes the background
            async with self._moving[stream.begin.uid]:
                if stream.no not in self._engine.turn_commit.streams:
                    continue
                try:
                    self._check_room(stream)
                    await self._settle(stream)
                except Refusal as error:
                    self._not_settled(stream, error)
                    if (ledger := self._without_room.get(stream.no)) is not None:
                        no_room = error
                        full.add((ledger.uid, ledger.session_id))
                except (OSError, FormatError, ProtocolError, ValueError) as error:
                    self._not_settled(stream, error)
                except Exception as error:
                    _log.exception("a bug: a reply of a turn cannot be moved")
                    self._not_settled(stream, error)
                else:
                    self._again_at.pop(stream.no, None)
        return no_room

    def _forget_gone(self) -> None:
        """What is known of replies that were resolved, or went with their session, meanwhile."""
        streams = self._engine.turn_commit.streams
        for no in [no for no in self._without_room if no not in streams]:
            del self._without_room[no]

    def _check_room(self, stream: Stream) -> None:
        """Where there was none for it before: without a look at what it says. Refusal."""
        ledger = self._without_room.pop(stream.no, None)
        if ledger is not None and self._engine.session_logs.is_open(ledger):
            self._check_waiting(stream, ledger)

    def _check_waiting(self, stream: Stream, ledger: SessionLog) -> None:
        try:
            self._engine.session_logs.check_waiting(ledger)
        except Refusal:
            self._without_room[stream.no] = ledger
            raise

    def _not_settled(self, stream: Stream, error: Exception) -> None:
        """It stays a complete reply that was not released; its owner was told nothing."""
        if stream.no in self._without_room:
            return  # with the next look: who appends behind it must not be first
        if isinstance(error, OSError) or getattr(error, "code", "") == "disk_full":
            if stream.no not in self._again_at:
                _log.warning("reply of a turn is moved to its session later: %s", error)
            self._again_at[stream.no] = event_loop.now() + limits.DISK_RETRY_SECONDS
            return
        self._engine.turn_commit.settled(stream)
        self._again_at.pop(stream.no, None)
        _log.error("reply of a turn cannot be moved to its session: %s", error)

    async def _see_off(self, uid: int, session_id: str) -> None:
        """Turns of one session whose owner is gone by now, also while no daemon ran."""
        if self._sessions.has_older:
            with suppress(OSError, FormatError):  # whoever reads it is told
                await self._sessions.open(uid, session_id)
        for turn in list(self._engine.session_logs.lost_turns):
            if (turn.uid, turn.session_id) == (uid, session_id):
                await self._try_to_interrupt(turn)

    async def finish_moved(self) -> None:
        """For a start: replies all of which is in their session, and whose tombstone came too
        late, go now.
        """
        for stream in list(self._engine.registry.replies):
            if stream.begin.turn_id is None or not stream.terminal:
                continue
            try:
                found = await self._complete(stream)
                is_there = found is not None and await self._is_there(stream, found)
            except (OSError, FormatError, ProtocolError, Refusal, ValueError) as error:
                _log.error("reply of a turn cannot be looked at: %s", error)
                continue
            except Exception:
                _log.exception("a bug: a reply of a turn cannot be looked at")
                continue
            if is_there:
                self._engine.turn_commit.go(stream, event_loop.now())

    async def _is_there(self, stream: Stream, found: _Complete) -> bool:
        """All messages of a reply are in its session, and what that is to know of its other calls:
        power may have taken the end of its entries.
        """
        turn_id = stream.begin.turn_id
        told = [
            (one, (await self._of.fitted(turn_id, one))[0]) for one in entry_messages(found.reply)
        ]
        named = await self._of.named(found.ledger, found.reply, told)
        if not told or not all(there for _, there in named):
            return False
        return not await self._calls.entries(found.ledger, found.read, is_moved=True)

    async def _settle(self, stream: Stream) -> None:
        found = await self._complete(stream)
        if found is None and stream.begin.turn_id is None:
            await self._go_with_calls(stream)
            return
        if found is None:
            names = (stream.begin.turn_id or "", stream.begin.session_id, stream.begin.stream_id)
            shown = tuple(escaped_line(one) for one in names)
            if await self._may_have_lost_its_turn(stream):
                text = "turn %s of session %s may have been lost: %s stays a reply"
                raise FormatError(text % shown)
            if stream.restored_seq >= 0 and not stream.gone:
                text = "turn %s is of no session: if %s was one its files are gone; reply %s goes"
                _log.warning(text, *shown)
            await self._go_with_calls(stream)
            return
        uid, session_id, reply = stream.begin.uid, found.ledger.session_id, found.reply
        is_older = stream.is_anew or stream.restored_seq >= 0
        if reply.gaps and is_older and self._engine.is_unread:
            raise Refusal("unreadable", "some of it could not be read: a later start may find that")
        told, turn_id = entry_messages(reply), stream.begin.turn_id
        if told and reply.finish_reason is not None:
            told[-1]["finish_reason"] = reply.finish_reason  # the reply goes, its word stays
        with self._sessions.forks.source(uid, session_id) as session:
            if not self._engine.session_logs.is_open(found.ledger):
                return  # deleted, or closed: the next look opens it again
            held = [(one, await self._of.put(session, turn_id, one)) for one in told]
            entries = await self._of.named(found.ledger, reply, held)
            calls = await self._calls.entries(found.ledger, found.read, is_moved=True) or []
            if session.is_gone:
                return  # the next look lets the reply go
        messages = [
            wire.NewEntry("message", payload, name, turn=turn_id, once=is_there)
            for (name, is_there), (_, payload) in zip(entries, held, strict=True)
        ]
        ledger = await self._sessions.open(uid, session_id, appends=True)
        if ledger is None or ledger.state is None or stream.gone:
            return
        turn = ledger.state.journal.turn(turn_id)
        if turn is None:
            return  # deleted and begun anew meanwhile: the next look lets the reply go
        if any(one.id in ledger.state.ids and not one.once for one in (*messages, *calls)):
            return  # taken by another entry meanwhile: the next look finds another id
        self._move(stream, ledger, placed(messages, ledger.state, turn, reply.parent) + calls)

    def _move(self, stream: Stream, ledger: SessionLog, entries: list[wire.NewEntry]) -> None:
        self._check_waiting(stream, ledger)
        now = event_loop.now()
        if not self._engine.turn_commit.move(stream, ledger, entries, self._wall_ms(), now):
            self._engine.when("synced", partial(self._go, stream), now)
        self._flusher.wake()

    # --- calls of replies that leave no messages --------------------------------------------------

    async def _go_with_calls(self, stream: Stream) -> None:
        """It leaves no messages. What its session is to know of its calls goes there first."""
        read = await self._read(stream) if await self._ledgers_of(stream) else None
        found = (
            None
            if read is None
            else await self._left_of(read, stream.session_ids, stream.begin.uid)
        )
        if found is None:
            self._let_go(stream)
            return
        ledger, entries = found
        if not stream.gone and self._may_take(ledger, entries):  # else the next look finds others
            self._move(stream, ledger, entries)

    async def keep_calls(self, uid: int, stream_id: str) -> None:
        """A reply is to be resolved: first what its session is to know of its calls is there,
        durably. Nothing where there is no such reply, or none that can be read. OSError, Refusal.
        """
        stream = self._engine.registry.by_key.get((uid, stream_id))
        where = self._engine.partials.where(uid, stream_id)
        if stream is None and where is not None:
            await self.keep_calls_of_partial(uid, *where)
        elif stream is None or not self._engine.turn_commit.is_awaited(stream):
            return
        elif await self._ledgers_of(stream):
            await self._keep(uid, await self._read(stream), stream.session_ids)

    async def keep_of_expired(self, uid: int, session: str, name: str) -> None:
        """The same of a partial that goes for its age, and that it was there."""
        await self.keep_calls_of_partial(uid, session, name, has_expired=True)

    async def keep_calls_of_partial(
        self, uid: int, session: str, name: str, *, has_expired: bool = False
    ) -> None:
        """The same, by the names of its file."""
        if not self._engine.session_logs.may_have(uid):
            return
        ended = dict[str, set[int]]()
        try:
            read = _last_of(await self._reader.replies(uid, [], [(session, name)], ended), ended)
        except FormatError as error:  # who asks for it to go knows it by name
            _log.error("calls of a reply that is resolved are not known: %s", error)
            return
        session_ids = () if read is None else (read.reply.session_id,)
        await self._keep(uid, read, session_ids, has_expired=has_expired)

    async def _keep(
        self,
        uid: int,
        read: ReadReply | None,
        session_ids: Iterable[str],
        *,
        has_expired: bool = False,
    ) -> None:
        async with self._moving[uid]:
            found = (
                None
                if read is None
                else await self._left_of(read, session_ids, uid, has_expired=has_expired)
            )
            if found is None:
                return
            ledger, entries = found
            if not self._may_take(ledger, entries):
                text, limit = "its session has changed meanwhile: resolve it again", "unchanged"
                raise Refusal("behind", text, ledger.session_id, limit)
            self._append(ledger, entries)
        if not ledger.is_synced:
            await self._sessions.until("synced")

    def _may_take(self, ledger: SessionLog, entries: list[wire.NewEntry]) -> bool:
        """It is the session still, and nobody has taken these ids."""
        if ledger.state is None or not self._engine.session_logs.is_open(ledger):
            return False
        return not any(one.id in ledger.state.ids for one in entries)

    async def _left_of(
        self,
        read: ReadReply,
        session_ids: Iterable[str],
        uid: int,
        *,
        has_expired: bool = False,
    ) -> tuple[SessionLog, list[wire.NewEntry]] | None:
        """Where its calls are to be known, and the entries that are not there yet. None: it has
        none, or no session with a ledger. has_expired: one of them says so.
        """
        turn_id, ledger = read.reply.turn_id, None
        for session_id in dict.fromkeys(session_ids):
            there = await self._sessions.open(uid, session_id, appends=True)
            if there is None or there.state is None:
                continue
            if ledger is None or there.state.journal.turn(turn_id) is not None:
                ledger = there
        entries = (
            None
            if ledger is None
            else await self._calls.entries(ledger, read, is_moved=False, has_expired=has_expired)
        )
        if ledger is not None and has_expired:
            expired = await expired_entries(self._sessions, ledger, read.reply)
            entries = [*(entries or ()), *expired]
        return None if ledger is None or entries is None else (ledger, entries)

    async def _complete(self, stream: Stream) -> _Complete | None:
        """A reply that is complete, or was released though its end is lost, with its session; None
        where that does not know its turn.
        """
        turn_id = stream.begin.turn_id
        if turn_id is None:
            return None
        for ledger in await self._ledgers_of(stream):
            if ledger.state and ledger.state.journal.turn(turn_id):
                read = await self._read(stream)
                return None if read is None or not _is_whole(read) else _Complete(read, ledger)
        return None

    async def _ledgers_of(self, stream: Stream) -> list[SessionLog]:
        """Where its turn may be: one that was moved to another session has it where it began."""
        found = [await self._sessions.open(stream.begin.uid, one) for one in stream.session_ids]
        return [one for one in found if one is not None]

    async def _read(self, stream: Stream) -> ReadReply | None:
        ended = dict[str, set[int]]()
        return _last_of(await self._reader.replies(stream.begin.uid, [stream], [], ended), ended)

    async def _may_have_lost_its_turn(self, stream: Stream) -> bool:
        """It is complete, and that no session knows its turn may be damage: then it is not let go.

        A Delete ends what is there of its session. So one that a start found was of no session that
        was deleted; and where lines are missing, its turn's may be among them. Where there is no
        session at all the turn was the application's own, or somebody removed the session's files.
        """
        ledgers = await self._ledgers_of(stream)
        missing = any(
            one.state is not None and one.state.last_seq > len(one.state.ids) for one in ledgers
        )
        was_there = bool(ledgers) and stream.restored_seq >= 0
        if not missing and not was_there:
            return False
        read = await self._read(stream)
        return read is not None and _is_whole(read)

    def _go(self, stream: Stream) -> None:
        """Its messages are synced."""
        if stream.gone:  # resolved meanwhile
            self._engine.turn_commit.settled(stream)
        elif stream.no in self._engine.turn_commit.moved:
            self._engine.turn_commit.go(stream, event_loop.now())
            self._flusher.wake()

    def _let_go(self, stream: Stream) -> None:
        if not stream.gone:
            self._engine.release(stream, Flag.RELEASED, event_loop.now())
        self._engine.turn_commit.settled(stream)
        self._flusher.wake()


def _last_of(
    found: list[tuple[Order, wire.Recovered]], ended: dict[str, set[int]]
) -> ReadReply | None:
    if not found:
        return None
    told = found[-1][1]
    return ReadReply(from_recovered(told), ended.get(told.stream_id, set()))


def _is_whole(read: ReadReply) -> bool:
    return read.reply.status not in ("errored", "cancelled")
