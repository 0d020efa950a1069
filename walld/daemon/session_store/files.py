"""Folds a session from its snapshot, file and pending lines, in the files' thread.

Owns: folding, reading, and saying once that a file is damaged. Refuses: the loop
(`open_sessions.py`), lines (`ledger/`), what they mean (`sessions/`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import chain as chained
from typing import TYPE_CHECKING, NamedTuple

from walld import limits
from walld.engine.session_log import SessionLog
from walld.errors import FormatError
from walld.escape import escaped_line
from walld.ledger.line import chain_of, line_seq
from walld.ledger.repair_notes import Leap
from walld.ledger.scan import Break
from walld.sessions.state.entries import line_event
from walld.sessions.state.session_state import SessionState

if TYPE_CHECKING:
    from walld.ledger.pending import Pending
    from walld.ledger.runs import Run
    from walld.ledger.scan import Reading
    from walld.ledger.snapshot import SnapshotStore
    from walld.ledger.store import LedgerStore
    from walld.recovery.possibly_lost_sessions import LogDoubt

__all__ = ["Folded", "Lines", "SessionFiles"]

_log = logging.getLogger("walld.sessions")
_LOOKED_AT_MAX = 1000


class Lines(NamedTuple):
    """Lines of a session, and where its file is damaged. until: seqs up to there were given.

    runs: where lines before those stand in the file, too many to be held.
    """

    lines: list[bytes]
    breaks: list[Break]
    until: int = 0
    runs: Sequence[Run] = ()

    @property
    def total(self) -> int:
        """Lines, of both forms."""
        return len(self.lines) + sum(run.total for run in self.runs)

    def last_seq(self, after: int) -> int:
        """Of the last of them; `after` where there is none."""
        if self.lines:
            return line_seq(self.lines[-1])
        return self.runs[-1].last_seq if self.runs else after


class Folded(NamedTuple):
    """A session's fold, from its files and what was pending."""

    state: SessionState
    snapped_seq: int
    chain: bytes
    was_written: bool
    is_late: bool
    """The file has all that was pending, and lines behind it."""
    possible_leap: Leap | None
    """Seqs that may have been given, too."""


class SessionFiles:
    """The files of all sessions of one daemon."""

    def __init__(self, store: LedgerStore, snapshots: SnapshotStore) -> None:
        self._store = store
        self._snapshots = snapshots
        self._looked_at: set[tuple[int, str, tuple[Break, ...]]] = set()
        """Damage that was said, and whose bytes are in quarantine."""
        self.doubt: LogDoubt | None = None
        """What of the log may hold lines of any session."""

    def fold(self, uid: int, session_id: str, pending: list[Pending]) -> Folded:
        """Out of snapshot, file and `pending`. NewerVersion."""
        state, offset = self._from_snapshot(uid, session_id)
        tail = self._store.tail(uid, session_id, state.last_seq)
        snapped_seq, lines = state.last_seq, iter(list[bytes]())
        if tail is not None and pending and tail.last_seq > pending[-1].seq:
            pending = []  # all of them are in it (`session_replay.py`): a tombstone is missing
        proven = self.proven(uid, session_id)
        until = pending[0].seq - 1 if pending else proven
        if tail is not None:
            # Of a file that ends before its snapshot does, the end is looked at all the same.
            after = min(state.last_seq, tail.last_seq)
            # What is pending may be half written there: of that the log is right.
            first = pending[0] if pending else None
            read = self._store.read(
                uid,
                session_id,
                after,
                from_offset=offset,
                until=until,
                pending=first,
                held_bytes_max=limits.ANSWER_HELD_BYTES_MAX,
            )
            self._noted(uid, session_id, read.breaks, also_end=not pending)
            lines = self._given(uid, session_id, read)
            if read.torn_bytes and not pending:
                text = "session %s of uid %d: %d bytes behind its last line are none"
                _log.error(text, escaped_line(session_id), uid, read.torn_bytes)
        elif until:
            self._noted(uid, session_id, [_all_gone(until)], also_end=False)
        last = b""
        for last in chained(lines, (one.line for one in pending)):
            event = line_event(last)
            if event.seq > state.last_seq:
                state.apply(event)
        chain = SessionLog.first_chain(uid, session_id) if tail is None else tail.chain
        if last:  # also where the snapshot knows it: a start finds it again
            chain = chain_of(last)
        state.lose(max(until, self._snapshots.covers(uid, session_id)))
        is_late = tail is not None and not pending
        was_written = tail is not None or bool(pending) or until > 0
        possible_leap = self._possible_leap(uid, session_id, state.last_seq)
        if pending and pending[-1].seq < state.last_seq:
            # The next line leaps over them: behind a hole that nobody has noted it would be torn.
            last_seq, unread = (state.last_seq, []) if possible_leap is None else possible_leap[1:]
            possible_leap = Leap(pending[-1].seq + 1, last_seq, unread)
        return Folded(state, snapped_seq, chain, was_written, is_late, possible_leap)

    def _given(self, uid: int, session_id: str, read: Reading) -> Iterator[bytes]:
        """The lines of a reading, in the job that read: nothing is written meanwhile."""
        for run in read.runs:
            behind: Run | None = run
            while behind is not None:
                page = self._store.page(uid, session_id, behind, limits.ANSWER_PAGE_BYTES)
                lines, behind = page
                yield from lines
        yield from read.lines

    def _possible_leap(self, uid: int, session_id: str, last_seq: int) -> Leap | None:
        """Seqs behind `last_seq` that what cannot be read of the log may hold."""
        doubt, key = self.doubt, (uid, session_id)
        if doubt is None:
            return None
        leaps = self._store.leaps(uid, session_id)
        noted = max((leap.last_seq for leap in leaps), default=0)
        if doubt.is_of(key, {name for leap in leaps for name in leap.unread}):
            last_seq = max(last_seq, noted)  # behind a leap stands a line that may be unread, too
            return Leap(last_seq + 1, last_seq + doubt.lines_max, sorted(doubt.names))
        if noted > last_seq:  # killed before there was a line
            return Leap(last_seq + 1, noted, sorted(doubt.names))
        return None

    def _from_snapshot(self, uid: int, session_id: str) -> tuple[SessionState, int | None]:
        """The fold so far, and where the lines behind it begin. Any doubt, and it begins anew.

        What it covers was in the file, durably: it knows events also where that has lost them.
        """
        found = self._snapshots.read(uid, session_id)
        if found is None:
            return SessionState(), None
        try:
            state = SessionState.from_base(found.base)
            for delta in found.deltas:
                state.apply_delta(delta)
        except FormatError as error:
            _log.warning("a snapshot is not used: %s", error)
            return SessionState(), None
        except Exception:
            text = "a bug: the snapshot of session %s of uid %d is not used"
            _log.exception(text, escaped_line(session_id), uid)
            return SessionState(), None
        if state.last_seq != found.covers_seq:
            return SessionState(), None
        return state, found.covers_offset

    def _noted(self, uid: int, session_id: str, breaks: list[Break], *, also_end: bool) -> None:
        """Damage is in the log and its bytes in quarantine, once.

        also_end: what stands behind the last line is no write that a crash interrupted.
        """
        seen = (uid, session_id, tuple(breaks))
        if not breaks or seen in self._looked_at:
            return
        if len(self._looked_at) >= _LOOKED_AT_MAX:
            self._looked_at.clear()
        self._looked_at.add(seen)
        for broken in breaks:
            _log.error("session %s of uid %d: %s", escaped_line(session_id), uid, broken)
        try:
            self._store.keep_damaged(uid, session_id, also_end=also_end)
        except FileNotFoundError:
            pass
        except (OSError, FormatError) as error:
            _log.error("its damaged bytes are not in quarantine: %s", error)

    def proven(self, uid: int, session_id: str) -> int:
        """The highest seq that the file, or its snapshot, says was in it."""
        covers = self._snapshots.covers(uid, session_id)
        return self._store.proven(uid, session_id, covers)

    def read(
        self,
        uid: int,
        session_id: str,
        after: int,
        limit: int,
        pending: list[Pending],
        until: int | None,
        possible_leap: Leap | None = None,
        held_bytes_max: int = 0,
    ) -> Lines:
        """What the file holds before the first that is pending: behind that it may be half written.

        until: what is known to have been given, None where nobody has the session open.
        possible_leap: what may have been, too. held_bytes_max: of more bytes than that the runs (0:
        never).
        """
        if until is None:
            until = self.proven(uid, session_id)
            possible_leap = self._possible_leap(uid, session_id, until)
        found = self._read(uid, session_id, after, limit, pending, until, held_bytes_max)
        if possible_leap is None or (limit and found.total == limit):
            return found
        may_be = Break(0, max(possible_leap.first_seq, after + 1), possible_leap.last_seq, "log")
        return found._replace(breaks=[*found.breaks, may_be], until=possible_leap.last_seq)

    def _read(
        self,
        uid: int,
        session_id: str,
        after: int,
        limit: int,
        pending: list[Pending],
        until: int,
        held_bytes_max: int,
    ) -> Lines:
        first = pending[0] if pending else None
        last_wanted = until if first is None else first.seq - 1
        if pending and last_wanted <= after:
            return Lines([], [], until)
        try:
            read = self._store.read(
                uid,
                session_id,
                after,
                limit,
                until=last_wanted,
                pending=first,
                held_bytes_max=held_bytes_max,
            )
        except FileNotFoundError:
            return Lines([], [_all_gone(last_wanted)] if last_wanted else [], until)
        if not after:
            self._noted(uid, session_id, read.breaks, also_end=not pending)
        return Lines(read.lines, read.breaks, until, read.runs)

    def exists(self, uid: int, session_id: str) -> bool:
        """Of a session without events a snapshot says that they were lost."""
        store = self._store
        return store.exists(uid, session_id) or self._snapshots.covers(uid, session_id) > 0


def _all_gone(until: int) -> Break:
    return Break(0, 1, until, "missing")
