"""Checkpoints: moves lines of sessions from the log into their files.

Owns: when a session's lines are due, the checkpoint itself, its snapshot. Refuses: which lines
there are (`engine/session_log.py`), those that a start finds in the log (`session_replay.py`), the
files (`ledger/`), folding (`open_sessions.py`).

Two steps, so that the background never waits for a sync: a checkpoint is begun, and once the log is
synced its lines go to the file. What a power cut leaves half written there stands in the log.

Invariants
- N4 A checkpoint is durable before the log lets go of its lines; repeated, it adds nothing.
- A bug met by one session's checkpoint costs no other: its lines stay in the log, or, where it is
  met by the snapshot alone, that is given up; the log names the session.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from walld import limits
from walld.daemon import event_loop
from walld.daemon.storage.disk_threads import in_slices
from walld.disk.base import NO_ROOM
from walld.errors import FormatError
from walld.escape import escaped_line
from walld.ledger.pending import runs_of
from walld.sessions.state.session_state import SessionState

if TYPE_CHECKING:
    from walld.daemon.session_store.handles import Files
    from walld.daemon.session_store.open_sessions import Sessions
    from walld.daemon.storage.flusher import Flusher
    from walld.engine.engine import Engine
    from walld.engine.session_log import SessionLog
    from walld.engine.stream import Stream
    from walld.ledger.pending import Pending
    from walld.ledger.repair_notes import Leap

__all__ = ["Checkpoints"]

_log = logging.getLogger("walld.checkpoints")
_LOOKED_AT_A_ROUND = 20
_FINISH_SECONDS = 3.0


class _Begun(NamedTuple):
    """A checkpoint whose lines are known. delta: what they do to the fold, behind seq `follows`."""

    ledger: SessionLog
    lines: list[Pending]
    streams: list[Stream]
    delta: bytes | None
    follows: int
    leaps: tuple[Leap, ...] = ()

    @property
    def is_synced(self) -> bool:
        """All its lines stand in the log, durably."""
        return all(one.is_synced for one in self.streams)


class Checkpoints:
    """The checkpoints of one daemon."""

    def __init__(self, engine: Engine, flusher: Flusher, files: Files, sessions: Sessions) -> None:
        self._engine = engine
        self._flusher = flusher
        self._files = files
        self._sessions = sessions
        self._begun: dict[tuple[int, str], _Begun] = {}
        self._older: list[tuple[int, str]] | None = None
        """Sessions of before this daemon whose turns nobody has looked at yet; None: not listed."""
        self._retry_at = 0.0
        """After an error of the disk nothing is written for a moment."""
        self._not_before: dict[tuple[int, str], float] = {}
        """Of a session that alone cannot be written: when that is tried again."""
        self._said: dict[tuple[int, str], str] = {}
        """Why sessions cannot be written, as the log has it."""
        self._list_at = 0.0
        self._place_at = 0.0

    # --- in turn --------------------------------------------------------------------------------

    async def round(self, now: float) -> None:
        """Begin what is due, write what is synced, close what is idle."""
        if self._older is None and now >= self._list_at:
            await self._try_to_list()
        ledgers = self._engine.session_logs
        for key, ledger in list(ledgers.open.items()):
            if self._may_begin(key) and self._is_due(ledger, now):
                self._begin(key, ledger)
            idle = now - ledger.touched > limits.CHECKPOINT_SECONDS
            if idle and not ledger.pending and not ledger.closing:
                ledgers.open.pop(key, None)
        for key, begun in list(self._begun.items()):
            waits_until = max(self._retry_at, self._not_before.get(key, 0.0))
            if begun.is_synced and now >= waits_until:
                await self._try_to_write(key, begun)
        await self._look_at_older()
        if now >= self._place_at:  # not as often as others are written: a bad sector takes long
            self._place_at = now + limits.CHECKPOINT_SECONDS
            for key in list(self._sessions.unplaced):
                await self._try_to_open(key)

    async def _try_to_write(self, key: tuple[int, str], begun: _Begun) -> None:
        """A session whose file fails, or is another's by now, holds up no other work."""
        self._not_before.pop(key, None)
        try:
            await self._write(key, begun)
        except (OSError, FormatError) as error:
            self._not_written(key, begun.ledger, error)
        except Exception:
            _log.exception("a bug: session %s stays in the log", _named(key))
            self._not_before[key] = event_loop.now() + limits.CHECKPOINT_SECONDS
        else:
            self._said.pop(key, None)
            begun.ledger.file_written()

    def _not_written(
        self, key: tuple[int, str], ledger: SessionLog, error: OSError | FormatError
    ) -> None:
        """Its lines stay. A full disk is the trouble of all, anything else its own. Said once."""
        if self._said.get(key) != str(error):
            _log.error("session %s stays in the log: %s", _named(key), error)
        self._said[key] = str(error)
        again_at = event_loop.now() + limits.DISK_RETRY_SECONDS
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            self._retry_at = again_at
        else:
            ledger.file_failed()
            self._not_before[key] = again_at

    def _is_due(self, ledger: SessionLog, now: float) -> bool:
        if not ledger.pending:
            return bool(ledger.closing)
        waited = 0.0 if ledger.since is None else now - ledger.since
        ledgers = self._engine.session_logs
        # Where memory gets short those go that hold it: the file of one line costs as many syncs.
        is_large = ledger.pending_bytes * len(ledgers.open) >= ledgers.pending_bytes
        return (
            ledger.since is None
            or bool(ledger.leaps)  # the file is to say so before more damage takes that line
            or waited >= limits.CHECKPOINT_SECONDS
            or ledger.pending_bytes >= limits.CHECKPOINT_BYTES
            or len(ledger.pending) >= limits.CHECKPOINT_LINES
            or (is_large and ledgers.pending_bytes > limits.LEDGER_BYTES_MAX // 2)
        )

    def _may_begin(self, key: tuple[int, str]) -> bool:
        return key not in self._begun and self._sessions.may_write(key)

    def _begin(self, key: tuple[int, str], ledger: SessionLog) -> None:
        lines = self._engine.session_logs.begin_checkpoint(ledger)
        # In the same step as the lines: it covers exactly those.
        delta, follows = None, ledger.snapped_seq
        if ledger.state is not None and ledger.state.last_seq > follows:
            ledger.snapped(ledger.state.last_seq)
            try:
                delta = ledger.state.take_delta()
            except Exception:  # the next one does not follow, and writes a base
                _log.exception("a bug: the snapshot of session %s is behind", _named(key))
        leaps = tuple(ledger.leaps)
        self._begun[key] = _Begun(ledger, lines, list(ledger.closing), delta, follows, leaps)
        self._engine.schedule.hurry_sync()

    async def _write(self, key: tuple[int, str], begun: _Begun) -> None:
        """OSError: the lines stay pending, and in the log, and are begun anew."""
        ledger, lines = begun.ledger, begun.lines
        del self._begun[key]
        if self._engine.session_logs.open.get(key) is not ledger:
            return  # deleted since it was begun: it must not be written again
        if lines:
            ledger.since = None  # due again at once, should this fail
            await self._files.thread.run(partial(self._put, *key, begun))
        if self._engine.session_logs.open.get(key) is not ledger:
            return  # deleted meanwhile: the files went, or go, behind this job
        ledger.leaps = ledger.leaps[len(begun.leaps) :]
        last_seq, now = lines[-1].seq if lines else 0, event_loop.now()
        self._engine.session_logs.checkpointed(ledger, last_seq, begun.streams, now)
        self._flusher.wake()

    def _put(self, uid: int, session_id: str, begun: _Begun) -> None:
        """For the thread: lines, then the snapshot, which nobody relies on."""
        if self._engine.session_logs.open.get((uid, session_id)) is not begun.ledger:
            return  # deleted since it was begun, and its files with it
        store, snapshots = self._files.ledgers, self._files.snapshots
        for leap in begun.leaps:
            store.note_leap(uid, session_id, leap)
        for first, lines in runs_of(begun.lines):
            store.append(uid, session_id, first, lines, allow_gap=True)
        try:
            self._snap(uid, session_id, begun)
        except IsADirectoryError as error:  # the lines are in their file: no reason to keep the log
            _log.error("session %s has no snapshot: %s", _named((uid, session_id)), error)
        except (OSError, FormatError):
            raise
        except Exception:
            text = "a bug: the snapshot of session %s is given up"
            _log.exception(text, _named((uid, session_id)))
            snapshots.remove(uid, session_id)

    def _snap(self, uid: int, session_id: str, begun: _Begun) -> None:
        """For the thread: the snapshot goes on, or begins with a base."""
        tail, snapshots = self._files.ledgers.tail(uid, session_id), self._files.snapshots
        if begun.delta is None or tail is None:
            return
        if not snapshots.add_increment(
            uid, session_id, tail.last_seq, tail.size, begun.delta, follows=begun.follows
        ):
            state = self._whole(uid, session_id, begun.delta, begun.follows)
            base = state.to_base()
            snapshots.write_base(uid, session_id, state.last_seq, tail.size, base)

    def _whole(self, uid: int, session_id: str, delta: bytes, follows: int) -> SessionState:
        """All of a session: of one without a snapshot the delta is that, and its lines, written
        just now, are not read again.
        """
        if follows:
            return self._sessions.fold(uid, session_id)
        state = SessionState()
        state.apply_delta(delta)
        return state

    async def finish(self) -> bool:
        """At the end, all being synced: what is pending goes to its file, what is there out of the
        log. True: there was some. What is left when the time is over is safe in the log.
        """
        until = event_loop.now() + _FINISH_SECONDS
        had = False
        # A second time for what came to a session whose checkpoint was begun already.
        for _ in range(2):
            for key, ledger in list(self._engine.session_logs.open.items()):
                if (ledger.pending or ledger.closing) and self._may_begin(key):
                    self._begin(key, ledger)
            had |= bool(self._begun)
            for key, begun in list(self._begun.items()):
                if event_loop.now() >= until:
                    text = "%d sessions stay in the log until the next start"
                    _log.info(text, len(self._begun))
                    return had
                await self._try_to_write(key, begun)
        return had

    async def write_at_once(self, key: tuple[int, str], ledger: SessionLog) -> None:
        """For a start: what it found goes into the file before anything comes behind it. Waits like
        any other where the file cannot be written, or the disk takes nothing.
        """
        if not self._may_begin(key):
            return
        self._begin(key, ledger)
        if not self._engine.batches.is_shut:  # else it has to wait for room as well
            await self._try_to_write(key, self._begun[key])

    # --- sessions of before ---------------------------------------------------------------------

    async def _try_to_list(self) -> None:
        """Sessions that an agent writes to now do not wait for those of before."""
        try:
            await self._list_older()
        except (OSError, FormatError) as error:
            if not self._list_at:
                _log.error("sessions of before cannot be listed: %s", error)
            self._list_at = event_loop.now() + limits.CHECKPOINT_SECONDS
        except Exception:
            _log.exception("a bug: sessions of before cannot be listed")
            self._list_at = event_loop.now() + limits.CHECKPOINT_SECONDS

    async def _list_older(self) -> None:
        failed: list[str] = []
        sweeping = self._files.ledgers.sweeping(self._files.artifacts.is_begun, failed)
        while await self._files.thread.run(lambda: list(islice(sweeping, 1))):
            pass  # it may wait for the disk, and whoever opens a session not for all the others
        for why in failed:
            _log.error("what a crash may have left of a session is not swept up: %s", why)
        rows = await in_slices(self._files.thread, self._files.ledgers.tree())
        older = [(row.uid, row.session_id) for row in rows if row.session_id is not None]
        # Those with lines in the log are last, and so the first to be looked at.
        self._older = older + list(self._engine.session_logs.open)
        for row in rows:
            if row.session_id is None:
                _log.error("a session cannot be read: %s", row.trouble)
            elif row.trouble:
                _log.error("session %s: %s", escaped_line(row.session_id), row.trouble)

    async def _look_at_older(self) -> None:
        """Whose turns were open when an earlier daemon ended: some sessions a round."""
        if self._older is None:
            return  # they cannot be listed yet
        for _ in range(min(len(self._older), _LOOKED_AT_A_ROUND)):
            await self._try_to_open(self._older.pop())
        self._sessions.has_older = bool(self._older)

    async def _try_to_open(self, key: tuple[int, str]) -> None:
        try:
            await self._sessions.open(*key)
        except (OSError, FormatError) as error:
            if self._said.get(key) != str(error):
                _log.error("session %s cannot be read: %s", _named(key), error)
            self._said[key] = str(error)
        except Exception:
            _log.exception("a bug: session %s cannot be opened", _named(key))

    @property
    def has_older(self) -> bool:
        """Some sessions of before this daemon are to be looked at as soon as may be."""
        return bool(self._older)


def _named(key: tuple[int, str]) -> str:
    return f"{escaped_line(key[1])} of uid {key[0]}"
