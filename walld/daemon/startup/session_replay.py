"""Replays lines of sessions that a start finds in the log.

Owns: reading them, which of them count, and those that go between those of the file. Refuses: which
lines power tore (`ledger/pending.py`), when they go to their file (`checkpoints.py`).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from walld_client.wire import messages as wire

from walld.daemon import event_loop
from walld.disk.retrying import patiently
from walld.engine.session_log import LINE_KIND
from walld.errors import FormatError
from walld.escape import escaped_line
from walld.ledger.line import line_seq
from walld.ledger.pending import LEAPT, FoundLines, Pending, is_dense, join, runs_of
from walld.ledger.repair_notes import Leap
from walld.wal import records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from walld.daemon.session_store.handles import Files
    from walld.daemon.session_store.open_sessions import Sessions
    from walld.daemon.storage.read_errors import BadRecord
    from walld.daemon.storage.reply_reader import ReplyReader
    from walld.engine.engine import Engine
    from walld.engine.session_log import SessionLog
    from walld.engine.stream import Stream
    from walld.recovery.possibly_lost_sessions import LogDoubt
    from walld.recovery.startup_recovery import RecoveredStorage

__all__ = ["SessionReplay"]

T = TypeVar("T")

_log = logging.getLogger("walld.checkpoints")


class SessionReplay:
    """Of one start."""

    def __init__(
        self,
        engine: Engine,
        files: Files,
        reader: ReplyReader,
        sessions: Sessions,
        recovered: RecoveredStorage,
        doubt: LogDoubt | None,
    ) -> None:
        self._engine = engine
        self._files = files
        self._reader = reader
        self._sessions = sessions
        verdict = recovered.verdict
        self._synced_no = verdict.synced_no
        self._met_damage = bool(verdict.corrupt or verdict.unreadable) or recovered.met_damage
        self._doubt = doubt

    def by_session(self) -> dict[tuple[int, str], list[Stream]]:
        """The streams of each, in order of their numbers."""
        found: dict[tuple[int, str], list[Stream]] = {}
        for _, stream in sorted(self._engine.registry.by_no.items()):
            if stream.is_ledger:
                key = (stream.begin.uid, stream.begin.session_id)
                found.setdefault(key, []).append(stream)
        return found

    async def restore(self, key: tuple[int, str], streams: list[Stream]) -> SessionLog | None:
        """Its lines are pending again, up to where power tore them; None where they wait."""
        damaged: list[BadRecord] = []
        try:
            found = [await self._found(stream, damaged) for stream in streams]
        except OSError as error:  # that session alone waits for a start that can read them
            _log.error("session %s: its lines in the log: %s", _named(key), error)
            self._sessions.unread[key] = error
            return None
        for bad in damaged:
            _log.error("%s; lines of a session, its chain is broken there", bad.why)
        place = partial(self._place, key, streams, found, is_bad=self._met_damage or bool(damaged))
        try:
            return await place()
        except (OSError, FormatError) as error:  # whoever opens it tries again
            _log.error("session %s stays in the log: %s", _named(key), error)
            lines, _ = join(found, found[0].base, self._synced_no, met_damage=True)
            self._engine.session_logs.restored(key, streams, lines, event_loop.now())
            self._sessions.unplaced[key] = place
            return None

    async def _place(
        self,
        key: tuple[int, str],
        streams: list[Stream],
        found: list[FoundLines],
        *,
        is_bad: bool,
    ) -> SessionLog:
        """What goes between the lines of its file is there, and the rest pending. OSError,
        FormatError: nothing is known of the file, and all of it may be done again.
        """
        store = self._files.ledgers
        await self._run(partial(self._put_between, *key, found))
        tail = await self._run(partial(store.tail, *key, found[0].base))
        proven = await self._run(partial(self._sessions.proven, *key))
        last_seq = 0 if tail is None else tail.last_seq
        kept, cut = join(found, last_seq, self._synced_no, met_damage=is_bad, proven=proven)
        known = self._doubt.settled_by(key) if self._doubt is not None else ()
        ledger = self._engine.session_logs.restored(
            key,
            streams,
            kept,
            event_loop.now(),
            _leaps(found, last_seq, known),
            is_due=not is_dense(kept),
        )
        if cut:
            await self._keep_cut(key, cut)
        return ledger

    async def _run(self, job: Callable[[], T]) -> T:
        """On the thread. An append that failed may be repeated: its file is not synced again."""
        return await self._files.thread.run(partial(patiently, job))

    async def _found(self, stream: Stream, damaged: list[BadRecord]) -> FoundLines:
        items = await self._files.thread.run(self._reader.job(stream, damaged))
        lines = [
            Pending(stream.begin.number + item.event.seq, item.event.payload)
            for item in items
            if isinstance(item, records.Happened)
            and isinstance(item.event, wire.Custom)
            and item.event.kind == LINE_KIND
        ]
        first = next(stream.places(), None)
        batch_no = 0 if first is None else first.batch_no
        return FoundLines(stream.begin.number, batch_no, lines, stream.begin.meta == LEAPT)

    def _put_between(self, uid: int, session_id: str, found: list[FoundLines]) -> None:
        """Lines that an earlier start could not read go before those of the file that came since.

        For the thread. The snapshot is of the file without them, and goes first: behind a kill
        nothing is missing there any more, and it would be believed.
        """
        store = self._files.ledgers
        tail = store.tail(uid, session_id)
        late: list[Pending] = []
        for stream in found:  # as `join` does
            late = [one for one in late if one.seq <= stream.base]
            late += [one for one in stream.lines if tail is not None and one.seq < tail.last_seq]
        if tail is None or not late:
            return
        read = store.read(uid, session_id, late[0].seq - 1, until=tail.last_seq)
        # Where another line stands it is another session's, or the append says what it is.
        there = {line_seq(line): line for line in read.lines}
        late = [one for one in late if there.get(one.seq) != one.line]
        if late:
            self._files.snapshots.remove(uid, session_id)
        for first, lines in runs_of(late):
            store.append(uid, session_id, first, lines, allow_gap=True)

    async def _keep_cut(self, key: tuple[int, str], cut: list[Pending]) -> None:
        uid, session_id = key
        text = "session %s of uid %d: lines %d to %d stood behind a place that was torn or lost: %s"
        try:
            job = partial(self._files.ledgers.keep, uid, session_id, [one.line for one in cut])
            where = "they are in " + await self._files.thread.run(job)
        except OSError as error:  # no reason not to start: nobody was told that they are safe
            where = f"they could not be kept ({error})"
        _log.warning(text, escaped_line(session_id), uid, cut[0].seq, cut[-1].seq, where)


def _named(key: tuple[int, str]) -> str:
    return f"{escaped_line(key[1])} of uid {key[0]}"


def _leaps(found: list[FoundLines], before: int, unread: Iterable[str]) -> list[Leap]:
    """Leaps of an earlier daemon that are not in the file. before: its last seq."""
    leaps = []
    for stream in found:
        if stream.leapt and stream.lines and stream.base > before:
            leaps.append(Leap(before + 1, stream.base, sorted(unread)))
        before = max([before, *(one.seq for one in stream.lines)])
    return leaps
