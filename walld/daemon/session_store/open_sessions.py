"""The table of open sessions: folded once, read from file and memory.

Owns: opening a session (its fold, from snapshot, file and what is pending), reading its lines,
deleting it. Refuses: what an entry means (`engine/session_log.py`, `sessions/`), the file growing
(`checkpoints.py`), turns and their replies (`turn_watcher.py`), requests (`sessions.py`).
"""

from __future__ import annotations

import errno
import logging
import time
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio

from walld.daemon import event_loop
from walld.daemon.session_store.files import SessionFiles
from walld.daemon.session_store.session_fork import SessionFork
from walld.disk.base import NO_ROOM
from walld.engine.session_log import SessionLog
from walld.errors import Refusal
from walld.ledger.intents import DELETE, Intent
from walld.ledger.scan import Break
from walld.sessions.state.session_state import SessionState
from walld.wal import records

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from walld.daemon.session_store.files import Lines
    from walld.daemon.session_store.fork_contents import Forked
    from walld.daemon.session_store.handles import Files, Source
    from walld.daemon.storage.flusher import Flusher
    from walld.engine.engine import Engine
    from walld.engine.stream import Process
    from walld.ledger.pending import Pending
    from walld.ledger.repair_notes import Leap
    from walld.ledger.runs import Run
    from walld.recovery.possibly_lost_sessions import LogDoubt

__all__ = ["Sessions", "wall_ms"]

_log = logging.getLogger("walld.sessions")


class Sessions:
    """The open sessions of one daemon."""

    def __init__(
        self,
        engine: Engine,
        flusher: Flusher,
        files: Files,
        boot: str,
        watch: Callable[[int, records.Owner, float], Process | None],
    ) -> None:
        """watch: the living process of an owner, None where it is gone."""
        self._engine = engine
        self._flusher = flusher
        self._store, self._snapshots, self.artifacts, self.thread, _ = files
        self._files = SessionFiles(self._store, self._snapshots)
        self._boot = boot
        self._watch = watch
        self.doubt_of: Callable[[int], str | None] = lambda _uid: None
        """Why "never written" is not known of any session of a uid; None where it is."""
        self._opening: dict[tuple[int, str], anyio.Lock] = {}
        self.unread: dict[tuple[int, str], OSError] = {}
        """Sessions of which the log holds lines that a start could not read, and why."""
        self.unplaced: dict[tuple[int, str], Callable[[], Awaitable[object]]] = {}
        """Those whose file failed as a start put lines between its own, and what does it again."""
        self.unread_notes: OSError | None = None
        """Which deletes and forks an earlier daemon did not end is not known; until it is."""
        self.going: dict[tuple[int, str], OSError] = {}
        """Sessions whose delete has begun, and why it could not end."""
        self.forks = SessionFork(files, self._files)
        self.has_older = True
        """Nobody has looked yet at the turns of some sessions of before this daemon."""

    # --- opening --------------------------------------------------------------------------------

    async def open(
        self, uid: int, session_id: str, *, create: bool = False, appends: bool = False
    ) -> SessionLog | None:
        """The session, folded; None where it was never written, unless it is to be made.

        appends: its next line may leap, and that is written down before there is one. OSError where
        it cannot be. It is so, too, for who would make it.
        """
        self._check_read(uid, session_id)
        ledgers, key = self._engine.session_logs, (uid, session_id)
        ledger, appends = ledgers.open.get(key), appends or create
        may_leap = appends and ledger is not None and ledger.possible_leap is not None
        if ledger is not None and ledger.state is not None and not may_leap:
            ledger.touch(event_loop.now())
            return ledger
        async with self._locked(key):
            self._check_whole(key)
            ledger = await self._open(uid, session_id, create)
            if appends and ledger is not None and ledger.possible_leap is not None:
                # Else a start that cannot read that line, either, would leap to where it stands.
                await self.thread.run(partial(self._store.note_leap, *key, ledger.possible_leap))
            return ledger

    def _check_read(self, uid: int, session_id: str) -> None:
        """What its file alone holds would be told as all of it, and its next seqs given again."""
        error = self.unread.get((uid, session_id), self.unread_notes)
        if error is not None:
            raise OSError(error.errno, f"its lines in the log: {error.strerror}", error.filename)

    def may_write(self, key: tuple[int, str]) -> bool:
        """It is known what belongs in its file; and it is no session whose delete has begun: a file
        that it is given now would be all of it to a later start (U1).
        """
        is_known = key not in self.unread and key not in self.unplaced
        return is_known and self.unread_notes is None

    async def _settled(self, uid: int, session_id: str) -> None:
        """It can be read, and no delete of it is half done: what is left then is no session."""
        key = uid, session_id
        if key in self.going:
            async with self._locked(key):
                pass
        self._check_read(uid, session_id)
        self._check_whole(key)

    def _check_whole(self, key: tuple[int, str]) -> None:
        if (error := self.going.get(key)) is not None:
            raise OSError(error.errno, f"its delete has begun: {error.strerror}", error.filename)

    @asynccontextmanager
    async def _locked(self, key: tuple[int, str]) -> AsyncIterator[None]:
        """Opening and deleting a session exclude each other; others are not waited for."""
        lock = self._opening.setdefault(key, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked() and self._opening.get(key) is lock:  # else it has passed on
                del self._opening[key]

    async def _open(self, uid: int, session_id: str, create: bool) -> SessionLog | None:
        ledgers, key = self._engine.session_logs, (uid, session_id)
        if (place := self.unplaced.get(key)) is not None:
            await place()
            del self.unplaced[key]
        ledger = ledgers.open.get(key)
        if ledger is None or ledger.state is None:
            pending = [] if ledger is None else list(ledger.pending)
            streams = [] if ledger is None else list(ledger.closing)
            folded = await self.thread.run(partial(self._files.fold, uid, session_id, pending))
            if not folded.was_written and not create:
                return None
            if ledger is None:
                ledger = SessionLog(uid, session_id, None)
                ledgers.opened(ledger)
            ledger.folded(folded.state, folded.chain, folded.snapped_seq, folded.possible_leap)
            if pending and folded.is_late:
                ledgers.checkpointed(ledger, pending[-1].seq, streams, event_loop.now())
            self._look_at_turns(ledger)
        ledger.touch(event_loop.now())
        return ledger

    # --- reading --------------------------------------------------------------------------------

    async def lines(
        self, uid: int, session_id: str, after: int = 0, limit: int = 0, held_bytes_max: int = 0
    ) -> Lines | None:
        """Lines with seqs above `after`; None where the session was never written.

        held_bytes_max: where its file has more bytes of them, their runs, for `page` (0: never).
        """
        await self._settled(uid, session_id)
        key = uid, session_id
        ledger = self._engine.session_logs.open.get(key)
        if ledger is not None and ledger.state is None:
            ledger = await self.open(uid, session_id)
        pending = [] if ledger is None else list(ledger.pending)
        leaps = [] if ledger is None else list(ledger.leaps)
        if not pending and not await self.exists(uid, session_id):
            return None
        possible_leap = ledger.possible_leap if ledger is not None else None
        until = None
        if ledger is not None and ledger.state is not None:
            until = ledger.state.last_seq if possible_leap is None else possible_leap.first_seq - 1
        read = partial(
            self._files.read, uid, session_id, after, limit, pending, until, possible_leap
        )
        found = await self.thread.run(partial(read, held_bytes_max))
        if ledger is not None and self._engine.session_logs.open.get(key) is not ledger:
            # Deleted meanwhile, or closed.
            return await self.lines(uid, session_id, after, limit, held_bytes_max)
        last = found.last_seq(after)
        behind = [one.line for one in pending if one.seq > last]
        if limit:
            del behind[max(0, limit - found.total) :]
        found = found._replace(lines=found.lines + behind)
        breaks = found.breaks + _leapt(leaps, pending, after, found.last_seq(after))
        return found._replace(breaks=breaks)

    async def page(
        self, uid: int, session_id: str, run: Run, bytes_max: int
    ) -> tuple[list[bytes], Run | None]:
        """The first lines of a run that `lines` gave, and the run behind them.

        FormatError, FileNotFoundError where they are not there any more.
        """
        return await self.thread.run(partial(self._store.page, uid, session_id, run, bytes_max))

    async def text(self, uid: int, session_id: str, offset: int) -> bytes:
        """Bytes of its file from `offset` on that nobody has looked at, up to the end of a line;
        b"" behind the last one.
        """
        try:
            return await self.thread.run(partial(self._store.text, uid, session_id, offset))
        except FileNotFoundError:
            return b""

    async def last_seq(self, uid: int, session_id: str) -> int:
        """Of its last event, 0 where there is none. Reads one line of the file at most."""
        await self._settled(uid, session_id)
        ledger = self._engine.session_logs.open.get((uid, session_id))
        if ledger is not None and ledger.pending:
            return ledger.pending[-1].seq
        if ledger is not None and ledger.state is not None and ledger.possible_leap is None:
            return ledger.state.last_seq
        tail = await self.thread.run(partial(self._store.tail, uid, session_id))
        return 0 if tail is None else tail.last_seq

    async def delete(
        self, uid: int, session_id: str, judge: Callable[[int], None] | None = None
    ) -> bool:
        """Remove all files of a session and what is pending; whoever opens it begins anew. Its
        replies were let go of before.

        The files go once the log has let go durably: it would give lines back without those before.
        Once it has begun it ends, by a later start if need be (U1). judge: raises where it must not
        begin; given the last seq (0: never written) in the step behind which nothing is appended.
        """
        self._check_read(uid, session_id)
        key = uid, session_id
        async with self._locked(key):
            if judge is not None and key not in self.going:
                folded = await self._open(uid, session_id, create=False)
                judge(0 if folded is None or folded.state is None else folded.state.last_seq)
            self.going[key] = InterruptedError(errno.EINTR, "not done", session_id)
            ledger = self._engine.session_logs.open.pop(
                key, None
            )  # nothing is appended from here on
            number = self._store.deleted.begin()
            replies = self._engine.resolved.of_session(*key)
            self.forks.goes(key)
            log, until_no = self._engine.log_uuid.hex(), self._engine.registry.last_no
            note = Intent(DELETE, uid, session_id, erase=True, log=log, until_no=until_no)
            try:
                await self.thread.run(partial(self._note_delete, note, ledger is not None))
            except BaseException:
                if ledger is not None:
                    self._engine.session_logs.opened(ledger)
                del self.going[key]
                raise
            try:
                if ledger is not None:
                    self._engine.session_logs.forget(ledger, event_loop.now())
                    self.unplaced.pop(key, None)
                await self.until("synced")
                is_open = ledger is not None
                remove = partial(self._remove, note, number, replies, is_open=is_open)
                was_there = await self.thread.run(remove)
            except OSError as error:
                self.going[key] = error
                raise
            del self.going[key]
            return was_there

    def _note_delete(self, note: Intent, is_open: bool) -> None:
        """For the thread. A disk that is full with its reserve spent takes no note, and a delete
        makes room: then whoever is not answered asks again.
        """
        if is_open or self._store.has_files(*note.key):
            try:
                self._store.intents.note(note)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise

    def _remove(
        self,
        note: Intent,
        number: int,
        replies: dict[tuple[int, bytes, int], int],
        *,
        is_open: bool,
    ) -> bool:
        self.artifacts.forget(*note.key)
        was_there = self._store.delete(*note.key) or is_open
        self._snapshots.remove(*note.key)
        if was_there or replies:
            try:
                self._store.deleted.ended(number, *note.key, replies)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
        self._store.intents.drop(note)
        return was_there

    async def create(self, uid: int, session_id: str, made: Forked, source: Source) -> bool:
        """A new session, all its lines or none, durable at once. False: there is one.

        With the artifacts of the session `source` that they name; Refusal where that was deleted
        meanwhile. They take neither the log nor the loop: a long session may be copied while agents
        speak.
        """
        self._check_read(uid, session_id)
        key = (uid, session_id)
        async with self._locked(key):
            self._check_whole(key)
            ledger = self._engine.session_logs.open.get(key)
            if ledger is not None:
                if ledger.state is None or ledger.is_begun:
                    return False
                self._engine.session_logs.closed(ledger)  # whoever opens it waits, and folds
            found = partial(self.forks.found, uid, session_id, made, source)
            self._engine.session_logs.has({uid})
            return await self.thread.run(found)

    def in_doubt(self, doubt: LogDoubt | None) -> None:
        """What a start could not read of the log, and lines may stand in."""
        self._files.doubt = doubt

    @property
    def doubt(self) -> LogDoubt | None:
        """The same: "never written" is not known then."""
        return self._files.doubt

    def check_known(self, uid: int, session_id: str) -> None:
        """Of a session that is not there, or of all whose ids begin so, where there is none.

        Refusal where it may have been written all the same.
        """
        if self._files.doubt is not None:
            raise Refusal("unreadable", self._files.doubt.why, session_id, "a log that can be read")
        if (doubt := self.doubt_of(uid)) is not None:
            raise Refusal("unreadable", f"it is not here; but {doubt}", session_id)

    async def exists(self, uid: int, session_id: str) -> bool:
        """True where anything was ever written to it."""
        await self._settled(uid, session_id)
        ledger = self._engine.session_logs.open.get((uid, session_id))
        if ledger is not None and (ledger.pending or ledger.is_begun):
            return True
        return await self.thread.run(partial(self._files.exists, uid, session_id))

    def fold(self, uid: int, session_id: str) -> SessionState:
        """What its file holds comes to, nothing being pending. For the thread."""
        return self._files.fold(uid, session_id, []).state

    def proven(self, uid: int, session_id: str) -> int:
        """Up to which seq its file went, as far as it or its snapshot says. For the thread."""
        return self._files.proven(uid, session_id)

    def wake(self) -> None:
        """An entry of the daemon's own was taken: it is written soon."""
        self._flusher.wake()

    async def until(self, level: str, now: float | None = None) -> None:
        """Wait until all that is taken now is at `level`: "taken", "written" or "synced"."""
        await self.reached(level, now).wait()

    def reached(
        self, level: str, now: float | None = None, uid: int | None = None
    ) -> event_loop.Bell:
        """Set once all that is taken now is at `level`. uid: the user who waits for it."""
        reached = event_loop.Bell()
        if level == "taken":
            reached.ring()
            return reached
        self._engine.askers.append((uid, None))
        self._engine.when(level, reached.ring, event_loop.now() if now is None else now)
        self._flusher.wake()
        return reached

    # --- turns -----------------------------------------------------------------------------------

    def _look_at_turns(self, ledger: SessionLog) -> None:
        """Open turns of a session that was folded just now: is their owner there?"""
        assert ledger.state is not None
        ledgers, now = self._engine.session_logs, event_loop.now()
        for turn in ledger.state.journal.open_turns():
            key = (ledger.uid, ledger.session_id, turn.turn_id)
            if turn.owner is None or ledgers.is_owned(key) or ledgers.is_lost(key):
                continue
            owner = records.Owner(
                turn.owner["boot"], turn.owner["pid"], turn.owner["inode"], turn.owner["start"]
            )
            process = self._watch(ledger.uid, owner, now)
            if process is not None:
                ledgers.own(key, process, turn.message_id)
            else:
                ledgers.lost(key, "agent_lost" if owner.boot_id == self._boot else "host_restart")
        ledgers.look_for_passed(ledger)


def _leapt(leaps: list[Leap], pending: list[Pending], after: int, last: int) -> list[Break]:
    """What the session has leapt over between lines that are pending: its file says so later."""
    first = pending[0].seq if pending else last
    return [
        Break(0, max(leap.first_seq, after + 1), leap.last_seq, "missing")
        for leap in leaps
        if first < leap.first_seq and after < leap.last_seq < last
    ]


def wall_ms() -> int:
    """The wall clock, which is a label of an entry and decides nothing."""
    return time.time_ns() // 1_000_000
