"""The open sessions of a daemon: folded once, read from file and memory.

Owns: opening a session (its fold, from snapshot, file and what is pending), reading its lines,
deleting it. Refuses: what an entry means (`engine/ledgers.py`, `sessions/`), the file growing
(`checkpoints.py`), turns and their replies (`turns.py`), requests (`session_requests.py`).
"""

from __future__ import annotations

import logging
import time
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import anyio
from walld_client.wire import messages as wire

from walld.engine.entries import events_of, line_event
from walld.engine.ledgers import Ledger
from walld.errors import FormatError
from walld.escape import escaped_line
from walld.ledger.line import chain_of, line_seq
from walld.sessions.state import SessionState
from walld.wal import records

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from walld.daemon.flusher import Flusher
    from walld.daemon.workers import Worker
    from walld.engine.engine import Engine
    from walld.engine.peer import Process
    from walld.ledger.artifacts import ArtifactStore
    from walld.ledger.pending import Pending
    from walld.ledger.scan import Break
    from walld.ledger.snapshot import SnapshotStore
    from walld.ledger.store import LedgerStore, Tail

__all__ = ["Files", "Folded", "Lines", "Sessions", "wall_ms"]

_log = logging.getLogger("walld.sessions")


class Lines(NamedTuple):
    """Lines of a session, and where its file is damaged."""

    lines: list[bytes]
    breaks: list[Break]


class Files(NamedTuple):
    """What is on disk of sessions, and the thread that alone touches it. views: one that folds."""

    ledgers: LedgerStore
    snapshots: SnapshotStore
    artifacts: ArtifactStore
    thread: Worker
    views: Worker


class Folded(NamedTuple):
    """A session's fold, from its files and what was pending."""

    state: SessionState
    snapped_seq: int
    chain: bytes
    was_written: bool
    is_late: bool
    """The file has all that was pending, and lines behind it."""


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
        self._boot = boot
        self._watch = watch
        self._opening: dict[tuple[int, str], anyio.Lock] = {}
        self.has_older = True
        """Nobody has looked yet at the turns of some sessions of before this daemon."""

    # --- opening --------------------------------------------------------------------------------

    async def open(self, uid: int, session_id: str, *, create: bool = False) -> Ledger | None:
        """The session, folded; None where it was never written, unless it is to be made."""
        ledgers, key = self._engine.ledgers, (uid, session_id)
        ledger = ledgers.open.get(key)
        if ledger is not None and ledger.state is not None:
            ledger.touched = anyio.current_time()
            return ledger
        async with self._locked(key):
            return await self._open(uid, session_id, create)

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

    async def _open(self, uid: int, session_id: str, create: bool) -> Ledger | None:
        ledgers, key = self._engine.ledgers, (uid, session_id)
        ledger = ledgers.open.get(key)
        if ledger is None or ledger.state is None:
            pending = [] if ledger is None else list(ledger.pending)
            streams = [] if ledger is None else list(ledger.closing)
            folded = await self.thread.run(partial(self.fold, uid, session_id, pending))
            if not folded.was_written and not create:
                return None
            if ledger is None:
                ledger = Ledger(uid, session_id, folded.state, folded.chain)
                ledgers.open[key] = ledger
            else:
                ledger.state, ledger.chain = folded.state, folded.chain
                if pending and folded.is_late:
                    now = anyio.current_time()
                    ledgers.checkpointed(ledger, pending[-1].seq, streams, now)
            ledger.snapped_seq = folded.snapped_seq
            self._look_at_turns(ledger)
        ledger.touched = anyio.current_time()
        return ledger

    def fold(self, uid: int, session_id: str, pending: list[Pending]) -> Folded:
        """Out of snapshot, file and `pending`. For the thread. NewerVersion."""
        tail = self._store.tail(uid, session_id)
        state, offset = self._from_snapshot(uid, session_id, tail)
        snapped_seq, lines = state.last_seq, []
        if tail is not None and pending and tail.last_seq > pending[-1].seq:
            pending = []  # checkpointed long ago: only their tombstone is missing
        if tail is not None:
            read = self._store.read(uid, session_id, state.last_seq, from_offset=offset)
            for broken in read.breaks:
                _log.error("session %s of uid %d: %s", escaped_line(session_id), uid, broken)
            # What is pending may be half written there: of that the log is right.
            first = pending[0].seq if pending else None
            lines += [one for one in read.lines if first is None or line_seq(one) < first]
            if read.torn_bytes and not pending:
                text = "session %s of uid %d: %d bytes behind its last line are none"
                _log.error(text, escaped_line(session_id), uid, read.torn_bytes)
        lines += [one.line for one in pending]
        chain = Ledger.first_chain(uid, session_id) if tail is None else tail.chain
        if lines:  # also where the snapshot knows them: a start finds them again
            chain = chain_of(lines[-1])
        for event in events_of(lines):
            if event.seq > state.last_seq:
                state.apply(event)
        is_late = tail is not None and not pending
        return Folded(state, snapped_seq, chain, tail is not None or bool(pending), is_late)

    def _from_snapshot(
        self, uid: int, session_id: str, tail: Tail | None
    ) -> tuple[SessionState, int | None]:
        """The fold so far, and where the lines behind it begin. Any doubt, and it begins anew."""
        found = self._snapshots.read(uid, session_id)
        if found is None or tail is None or found.covers_offset > tail.size:
            return SessionState(), None
        try:
            state = SessionState.from_base(found.base)
            for delta in found.deltas:
                state.apply_delta(delta)
        except FormatError as error:
            _log.warning("a snapshot is not used: %s", error)
            return SessionState(), None
        if state.last_seq != found.covers_seq or state.last_seq > tail.last_seq:
            return SessionState(), None
        return state, found.covers_offset

    # --- reading --------------------------------------------------------------------------------

    async def lines(
        self, uid: int, session_id: str, after: int = 0, limit: int = 0
    ) -> Lines | None:
        """Lines with seqs above `after`; None where the session was never written."""
        ledger = self._engine.ledgers.open.get((uid, session_id))
        if ledger is not None and ledger.state is None:
            ledger = await self.open(uid, session_id)
        pending = [] if ledger is None else list(ledger.pending)
        if not pending and not await self.exists(uid, session_id):
            return None
        last_wanted = pending[0].seq - 1 if pending else None
        job = partial(self._read, uid, session_id, after, limit, last_wanted)
        lines, breaks = await self.thread.run(job)
        last = line_seq(lines[-1]) if lines else after
        lines = lines + [one.line for one in pending if one.seq > last]
        return Lines(lines[:limit] if limit else lines, breaks)

    def _read(
        self, uid: int, session_id: str, after: int, limit: int, last_wanted: int | None
    ) -> Lines:
        """What the file holds up to `last_wanted`. Behind that it may be half written: those lines
        are pending. For the thread.
        """
        if last_wanted is not None:
            if last_wanted <= after:
                return Lines([], [])
            limit = min(limit or last_wanted, last_wanted - after)
        try:
            read = self._store.read(uid, session_id, after, limit)
        except FileNotFoundError:
            return Lines([], [])
        lines = read.lines
        if last_wanted is not None:
            lines = [line for line in lines if line_seq(line) <= last_wanted]
        return Lines(lines, read.breaks)

    async def last_seq(self, uid: int, session_id: str) -> int:
        """Of its last event, 0 where there is none. Reads one line of the file at most."""
        ledger = self._engine.ledgers.open.get((uid, session_id))
        if ledger is not None and ledger.pending:
            return ledger.pending[-1].seq
        if ledger is not None and ledger.state is not None:
            return ledger.state.last_seq
        tail = await self.thread.run(partial(self._store.tail, uid, session_id))
        return 0 if tail is None else tail.last_seq

    async def facts(self, uid: int, prefix: str) -> list[wire.SessionFacts]:
        """Sessions of a user whose ids begin so, by id."""
        rows = await self.thread.run(lambda: list(self._store.tree()))
        found: dict[str, wire.SessionFacts] = {}
        for row in rows:
            if row.session_id is None:
                _log.error("a session is left out of the list: %s", row.trouble)
            elif row.uid == uid and row.session_id.startswith(prefix):
                found[row.session_id] = wire.SessionFacts(
                    row.session_id, uid, row.last_seq, row.last_at_ms, row.bytes
                )
        for (owner, session_id), ledger in self._engine.ledgers.open.items():
            if owner == uid and ledger.pending and session_id.startswith(prefix):
                known = found.get(session_id)
                last = line_event(ledger.pending[-1].line)
                size = ledger.pending_bytes + (0 if known is None else known.bytes)
                found[session_id] = wire.SessionFacts(session_id, uid, last.seq, last.at_ms, size)
        return [found[session_id] for session_id in sorted(found)]

    async def delete(self, uid: int, session_id: str) -> bool:
        """Remove all files of a session and what is pending; whoever opens it begins anew.

        The files go once the log has let go durably: it would give lines back without those before.
        """
        async with self._locked((uid, session_id)):
            ledger = self._engine.ledgers.open.get((uid, session_id))
            if ledger is not None:
                self._engine.ledgers.forget(ledger, anyio.current_time())
            await self.until("synced")
            was_there = await self.thread.run(partial(self._remove, uid, session_id))
            return was_there or ledger is not None

    def _remove(self, uid: int, session_id: str) -> bool:
        self.artifacts.forget(uid, session_id)
        was_there = self._store.delete(uid, session_id)
        self._snapshots.remove(uid, session_id)
        return was_there

    async def create(self, uid: int, session_id: str, lines: list[bytes], source: str) -> bool:
        """A new session of these lines, all or none, durable at once. False: there is one.

        With the artifacts of the session `source` that they name. They take neither the log nor
        the loop: a long session may be copied while agents speak.
        """
        key = (uid, session_id)
        async with self._locked(key):
            ledger = self._engine.ledgers.open.get(key)
            if ledger is not None:
                if ledger.state is None or ledger.state.last_seq:
                    return False
                del self._engine.ledgers.open[key]  # whoever opens it waits, and folds the lines
            return await self.thread.run(partial(self._create, uid, session_id, lines, source))

    def _create(self, uid: int, session_id: str, lines: list[bytes], source: str) -> bool:
        """The artifacts first: no event may name one that is not there. For the thread."""
        if self._store.exists(uid, session_id):
            return False
        named = b"".join(lines)
        wanted = [one for one in self.artifacts.list(uid, source) if one.hex().encode() in named]
        made: list[bytes] = []
        try:
            self.artifacts.link(uid, source, session_id, wanted, made)
            self._store.append(uid, session_id, 1, lines)
        except BaseException:
            if not self._store.exists(uid, session_id):  # else it came to be, if not durably
                self.artifacts.remove(uid, session_id, made)
            raise
        return True

    async def exists(self, uid: int, session_id: str) -> bool:
        """True where anything was ever written to it."""
        ledger = self._engine.ledgers.open.get((uid, session_id))
        if ledger is not None and (ledger.pending or (ledger.state and ledger.state.last_seq)):
            return True
        return await self.thread.run(partial(self._store.exists, uid, session_id))

    async def until(self, level: str, now: float | None = None) -> None:
        """Wait until all that is taken now is at `level`: "taken", "written" or "synced"."""
        if level == "taken":
            return
        reached = anyio.Event()
        self._engine.askers.append(None)
        self._engine.when(level, reached.set, anyio.current_time() if now is None else now)
        self._flusher.wake()
        await reached.wait()

    # --- turns -----------------------------------------------------------------------------------

    def _look_at_turns(self, ledger: Ledger) -> None:
        """Open turns of a session that was folded just now: is their owner there?"""
        assert ledger.state is not None
        ledgers, now = self._engine.ledgers, anyio.current_time()
        for turn in ledger.state.journal.open_turns():
            key = (ledger.uid, ledger.session_id, turn.turn_id)
            if turn.owner is None or ledgers.is_owned(key):
                continue
            owner = records.Owner(
                turn.owner["boot"], turn.owner["pid"], turn.owner["inode"], turn.owner["start"]
            )
            process = self._watch(ledger.uid, owner, now)
            if process is not None:
                ledgers.own(key, process)
            else:
                ledgers.lost(key, "agent_lost" if owner.boot_id == self._boot else "host_restart")


def wall_ms() -> int:
    """The wall clock, which is a label of an entry and decides nothing."""
    return time.time_ns() // 1_000_000
