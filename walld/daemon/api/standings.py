"""Says in a word where each of many sessions stands, at the cost of what changed since.

Owns: the words that were found, and for how long each holds. Refuses: what the words mean
(`sessions/gate/standing.py`), the gate's whole answer (`sessions.py`), who may ask.

A word is of the gate, which folds all of a session. So it is kept with what it was made of: how far
the session went, what its replies had said, who was at work, which processes its calls named and
were seen, until when its grants held. All of that is looked at again at each ask, without a line
being read: by the open session, or where nobody has it open by the length of its file, which only
grows. Nothing is done for it where events are appended.

The fold of an open session alone would not do: it knows of no call that messages say.

Invariants
- Q6 A word is told again only where all that it was made of is as it was; liveness and the clock
  are asked at each ask. Bytes of artifacts are not read for it: one that is changed is found by the
  gate; one that is gone is found once, and looked for again until it is there.
- Of a session that has begun a sub-agent whose work is not done no word is kept: what becomes of
  that is told elsewhere.
- An ask takes ASK_SECONDS and one session more at most: the rest is asked again.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio

from walld import limits
from walld.daemon import event_loop
from walld.daemon.api.named_processes import seen_now
from walld.daemon.session_store.files import Lines
from walld.daemon.session_store.reply_messages import unreleased
from walld.errors import FormatError, ProtocolError, Refusal
from walld.sessions.gate.approvals import next_expiry
from walld.sessions.gate.children import open_children
from walld.sessions.gate.processes import NamedProcess, processes_of
from walld.sessions.gate.resume import resume
from walld.sessions.gate.standing import standing
from walld.sessions.gate.workers import Worker
from walld.sessions.state.account import Unreleased
from walld.sessions.views.audit import named_artifacts
from walld.sessions.views.event_memory import shortened
from walld.sessions.views.messages import undone

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from walld.daemon.api.replies import ReplyRequests
    from walld.daemon.session_store.handles import Files
    from walld.daemon.session_store.open_sessions import Sessions
    from walld.daemon.session_store.turn_watcher import TurnWatcher
    from walld.daemon.session_store.view_events import HeldEvents, ViewEvents
    from walld.engine.engine import Engine
    from walld.engine.stream import Connection

    _Gate = Callable[[str], Awaitable[Mapping[str, Any] | None]]

__all__ = ["ASKED_MAX", "Standings"]

_log = logging.getLogger("walld.requests")
ASKED_MAX: Final = 64
"""Sessions of one ask."""
ASK_SECONDS: Final = 0.25
_WRITTEN_SECONDS: Final = 1.5
"""As long as any view waits for lines that the daemon made."""


class _Made(NamedTuple):
    """What a word was made of. last_seq: of the open session, None where nobody had it open.
    bytes: of its file, None where lines waited for that. replies, workers: as the gate was given
    them.
    """

    last_seq: int | None
    bytes: int | None
    replies: tuple[object, ...]
    workers: tuple[Worker, ...]

    def goes_as_far(self, before: _Made) -> bool:
        """No line came since: a seq is given once, and a file only grows."""
        if self.last_seq is not None and before.last_seq is not None:
            return self.last_seq == before.last_seq
        return self.bytes is not None and self.bytes == before.bytes


class _Word(NamedTuple):
    """processes: those whose being there the gate looked at. It holds from since_ms until until_ms,
    None: as long as nothing else changes.
    """

    word: str
    made: _Made
    processes: dict[NamedProcess, str]
    since_ms: int
    until_ms: float | None


class Standings:
    """Those of one daemon's sessions. workers: who is at work on one, as who asks sees it."""

    def __init__(
        self,
        engine: Engine,
        sessions: Sessions,
        turns: TurnWatcher,
        replies: ReplyRequests,
        view_events: ViewEvents,
        files: Files,
        workers: Callable[[Connection, int, str], list[Worker]],
        wall_ms: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._sessions = sessions
        self._turns = turns
        self._replies = replies
        self._view_events = view_events
        self._files = files
        self._workers = workers
        self._wall_ms = wall_ms
        self._words: OrderedDict[tuple[int, str], _Word] = OrderedDict()
        """The one that was asked for last stands last."""

    def forget(self, uid: int, session_id: str) -> None:
        """It is deleted: one that is begun anew may be as long."""
        self._words.pop((uid, session_id), None)

    async def words(
        self,
        connection: Connection,
        uid: int,
        session_ids: Sequence[str],
        turn: anyio.Lock,
        gate: _Gate,
    ) -> dict[str, str | None]:
        """Session id -> live | waits | blocked | cut | done; None where that cannot be known now.

        Of the first of them, and of as many more as there is time for. turn: of who asks, given to
        others between two sessions. gate: all that it says of one now, its sub-agents looked at;
        None where it is gone. OSError where the files cannot be looked at.
        """
        until = event_loop.now() + ASK_SECONDS
        length = self._files.ledgers.length
        lengths = await self._files.thread.run(lambda: [length(uid, one) for one in session_ids])
        kept = [self._words.get((uid, one)) for one in session_ids]
        named = {one for word in kept if word is not None for one in word.processes}
        seen = await self._files.views.run(partial(seen_now, named)) if named else {}
        told: dict[str, str | None] = {}
        for session_id, size in zip(session_ids, lengths, strict=True):
            if told and event_loop.now() > until:
                break
            try:
                await self._turns.settle(uid, session_id, _WRITTEN_SECONDS)
                if self._sessions.has_older:  # who works on its turns is not known yet
                    await self._sessions.open(uid, session_id)
                made = self._made(connection, uid, session_id, size)
                word = self._kept(uid, session_id, made, seen)
                if word is None:
                    async with turn:
                        word = await self._find(uid, session_id, made, gate)
            except (Refusal, ProtocolError, FormatError, OSError) as error:
                _log.info("where a session stands is not known: %s", error)
                word = None
            except Exception:  # a bug met by one session costs no other
                _log.exception("where session %r stands is not known", session_id)
                word = None
            told[session_id] = word
        return told

    def _made(self, connection: Connection, uid: int, session_id: str, size: int) -> _Made:
        """What a word would be made of now. size: of its file, looked at before."""
        ledger = self._engine.session_logs.open.get((uid, session_id))
        return _Made(
            None if ledger is None or ledger.state is None else ledger.last_seq,
            size if ledger is None or not ledger.pending else None,
            self._replies.fingerprint(uid, session_id),
            tuple(self._workers(connection, uid, session_id)),
        )

    def _kept(
        self, uid: int, session_id: str, made: _Made, seen: dict[NamedProcess, str]
    ) -> str | None:
        """The word that was found before, where it holds still (Q6)."""
        found = self._words.get((uid, session_id))
        if found is None:
            return None
        now_ms = self._wall_ms()
        holds = (
            made.goes_as_far(found.made)
            and (made.replies, made.workers) == (found.made.replies, found.made.workers)
            and found.since_ms <= now_ms
            and (found.until_ms is None or now_ms < found.until_ms)
            and all(seen.get(one) == state for one, state in found.processes.items())
        )
        if not holds:
            del self._words[uid, session_id]
            return None
        self._keep(uid, session_id, found._replace(made=made))  # how long its file is may be new
        return found.word

    async def _find(self, uid: int, session_id: str, made: _Made, gate: _Gate) -> str | None:
        """The gate's word now, kept for the next ask. None of a session that is not there."""
        files, replies = self._files, list[Unreleased]()
        # Before the session: what is moved there meanwhile is in both, and told once.
        read = await self._replies.unreleased(uid, session_id, of_turns=False, with_text=False)
        if read:
            replies = await files.views.run(lambda: [unreleased(*one) for one in read])
        # One that came meanwhile and goes again would leave its word to a session without it.
        is_as_made = self._replies.fingerprint(uid, session_id) == made.replies
        is_as_made &= len(read) == len(made.replies) - 1
        with self._sessions.forks.source(uid, session_id) as source:
            lines = await self._view_events.lines(uid, session_id)
            if lines is None and not replies:
                return None
            lines = Lines([], []) if lines is None else lines
            most = limits.JUDGED_BYTES_MAX
            async with self._view_events.held(
                uid, session_id, lines, shortened, bytes_max=most
            ) as held:
                judge = partial(self._judged, session_id, held, made, replies)
                found = await files.views.run(judge)
                missing = list[dict[str, Any]]()
                if isinstance(found, list):
                    gone = partial(self._gone, uid, session_id, found)
                    missing = await files.thread.run(gone)
                    found = await files.views.run(partial(judge, missing))
            assert not isinstance(found, list)
            if found is not None and is_as_made and not missing and not source.is_gone:
                self._keep(uid, session_id, found)
        if found is None:
            told = await gate(session_id)
            return None if told is None else standing(told)
        return found.word

    def _judged(
        self,
        session_id: str,
        held: HeldEvents,
        made: _Made,
        replies: list[Unreleased],
        missing: list[dict[str, Any]] | None = None,
    ) -> _Word | list[dict[str, Any]] | None:
        """The word; or, where nobody has looked for them, the artifacts that the events name; None
        where it takes a look at other sessions. For the views' thread.
        """
        events, lines, now_ms = held.events, held.found, self._wall_ms()
        if open_children(events, replies):
            return None
        if missing is None and (named := named_artifacts(events)):
            return named
        processes = seen_now(processes_of(events))
        gate = resume(
            events,
            missing_artifacts=missing or (),
            breaks=[one._asdict() for one in lines.breaks],
            last_seq=lines.until,
            replies=replies,
            workers=made.workers,
            now_ms=now_ms,
            processes=processes,
            session=session_id,
            gone=undone(events),
        )
        return _Word(standing(gate), made, processes, now_ms, next_expiry(events, now_ms))

    def _keep(self, uid: int, session_id: str, word: _Word) -> None:
        self._words[uid, session_id] = word
        self._words.move_to_end((uid, session_id))
        while len(self._words) > limits.STANDINGS_MAX:
            self._words.popitem(last=False)

    def _gone(self, uid: int, session_id: str, named: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Artifacts that entries name and that are not there. For the thread."""
        exists = self._files.artifacts.exists
        return [
            one | {"why": "missing"}
            for one in named
            if not exists(uid, session_id, bytes.fromhex(one["sha256"]))
        ]
