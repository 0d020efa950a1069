"""The log of open sessions: appends, pending lines, checkpoints.

Owns: taking an entry in, its line made in the same step; the lines that are not
checkpointed; whose turns are open. Refuses: files and opening
(`daemon/session_store/open_sessions.py`), what an event means (`sessions/`), batches
(`batch_builder.py`).

A line is an item of an internal stream of the session (a Custom event of kind "line", seq counted
from the stream's Begin, whose number is the last seq before it), so that batching, syncing,
carrying and a start treat it as they treat a reply's events. A checkpoint ends that stream: its
lines are in the session's file, durably, and a tombstone says so. The next line begins another one.

Invariants
- N1 A seq is given once, in the step that makes the line; the bytes never change after that: the
  log and the file hold the same. A kill takes a line that is not written, and its seq with it: one
  that the daemon made by itself is not told before (`is_unwritten`); one of a process may be.
- N2 All entries of a request or none: `append` queues nothing before the last one is accepted.
- N3 A line is in `pending` until its file is synced: what is read is the file and `pending`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from walld_client.wire import messages as wire

from walld import limits
from walld.errors import Refusal
from walld.ledger.line import chain_of, header_line
from walld.ledger.pending import LEAPT, Pending
from walld.ledger.repair_notes import Leap
from walld.sessions.state.entries import entry_event, event_line
from walld.sessions.state.session_state import SessionState
from walld.wal import records
from walld.wal.layout import Flag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from walld.engine.core import Core
    from walld.engine.stream import Process, Stream
    from walld.sessions.state.events import Event

__all__ = ["LINE_KIND", "LostTurn", "SessionLog", "SessionLogs"]

LINE_KIND = "line"
_NOBODY = records.Owner("", 0, 0, 0)
_TURN_ENDS = ("turn_completed", "turn_interrupted")
_FROM_RESERVE = (*_TURN_ENDS, "turn_submitted", "turn_assistant_started")
"""What a full disk takes. A reply's beginning is one short line for each submit, and without it
nobody finds the turn by its stream."""


class LostTurn(NamedTuple):
    """A turn whose owner's process is gone."""

    uid: int
    session_id: str
    turn_id: str
    reason: str


class _Work(NamedTuple):
    """Who last advanced an open turn, and of which message that is."""

    process: Process
    message_id: str | None


class SessionLog:
    """One open session."""

    __slots__ = (
        "chain",
        "closing",
        "is_failing",
        "leaps",
        "made_seq",
        "pending",
        "pending_bytes",
        "possible_leap",
        "session_id",
        "since",
        "snapped_seq",
        "state",
        "stream",
        "touched",
        "uid",
    )

    def __init__(
        self, uid: int, session_id: str, state: SessionState | None, chain: bytes = b""
    ) -> None:
        """chain: of its last line."""
        self.uid = uid
        self.session_id = session_id
        self.state = state
        """None: it must be folded first."""
        self.snapped_seq = 0
        """Up to here a snapshot has been told, or is being told now."""
        self.chain = chain
        self.pending: list[Pending] = []
        self.pending_bytes = 0
        self.since: float | None = None
        """When the oldest of `pending` was taken."""
        self.stream: Stream | None = None
        """Takes the next line."""
        self.closing: list[Stream] = []
        """Streams that a checkpoint is at: they go once it is durable."""
        self.touched = 0.0
        self.possible_leap: Leap | None = None
        """Seqs that may have been given: what cannot be read of the log may hold its lines."""
        self.leaps: list[Leap] = []
        """Over seqs that are not known; to be noted beside the file, before the lines behind."""
        self.is_failing = False
        """Its file could not be written when that was tried last."""
        self.made_seq = 0
        """Of the newest line that the daemon made by itself."""

    @property
    def last_seq(self) -> int:
        """The highest that was given, or may have been."""
        possible_last_seq = 0 if self.possible_leap is None else self.possible_leap.last_seq
        return max(possible_last_seq, 0 if self.state is None else self.state.last_seq)

    @property
    def is_begun(self) -> bool:
        """Something was ever given in it, as far as is known."""
        if self.possible_leap is not None:
            return self.possible_leap.first_seq > 1
        return self.state is not None and self.state.last_seq > 0

    @property
    def is_unwritten(self) -> bool:
        """A line that the daemon made by itself is not written yet: a kill would take it."""
        for stream in (self.stream, *reversed(self.closing)):
            if stream is not None and stream.begin.number < self.made_seq:
                return stream.begin.number + stream.written_seq < self.made_seq
        return False

    @property
    def is_synced(self) -> bool:
        """All its lines stand in the log, durably, or in the file."""
        streams = self.closing if self.stream is None else [*self.closing, self.stream]
        return all(one.is_synced for one in streams)

    def touch(self, now: float) -> None:
        """Somebody has asked for it."""
        self.touched = now

    def folded(
        self, state: SessionState, chain: bytes, snapped_seq: int, possible_leap: Leap | None
    ) -> None:
        """All its lines are read: those of its file and those that wait."""
        self.state, self.chain = state, chain
        self.snapped_seq, self.possible_leap = snapped_seq, possible_leap

    def snapped(self, seq: int) -> None:
        """A snapshot of all up to there is on its way."""
        assert seq >= self.snapped_seq, (seq, self.snapped_seq)
        self.snapped_seq = seq

    def file_written(self) -> None:
        """Its file took what it was given."""
        self.is_failing = False

    def file_failed(self) -> None:
        """Its file could not be written."""
        self.is_failing = True

    @staticmethod
    def first_chain(uid: int, session_id: str) -> bytes:
        """What the first line of a session is chained to."""
        return chain_of(header_line(uid, session_id))


class SessionLogs:
    """All open sessions of one engine."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.open: dict[tuple[int, str], SessionLog] = {}
        self.pending_bytes = 0
        self.lost_turns: dict[LostTurn, None] = {}
        """Turns to be interrupted, in the order they were lost."""
        self._users: set[int] | None = set()
        """Who has sessions, or had; None: that is not known."""
        self._turns: dict[tuple[int, str], dict[str, _Work]] = {}
        """By uid and session, open turns: who last advanced each."""
        self._newest: dict[tuple[int, str, str | None], dict[str, Process]] = {}
        """Of those, by their message, the ones behind which no other turn of it was submitted."""

    def may_have(self, uid: int) -> bool:
        """A session of the user may have a ledger. Of a user who has none no reply waits."""
        return self._users is None or uid in self._users

    def has(self, uids: set[int] | None) -> None:
        """These users have sessions, beside those that are known; None: any may."""
        self._users = None if uids is None or self._users is None else self._users | uids

    # --- appending ------------------------------------------------------------------------------

    def append(
        self,
        ledger: SessionLog,
        entries: list[wire.NewEntry],
        expected_seq: int | None,
        process: Process | None,
        at_ms: int,
        now: float,
        *,
        unowned: bool = False,
    ) -> list[wire.Placed]:
        """Take entries in, all or none. process: who says so, None for the daemon itself. Refusal.

        unowned: it works on none of these turns; whoever does goes on.

        What was there already (`once`, a message id that was submitted) is given back as it stands;
        without its id where only its key was known.
        """
        state = ledger.state
        assert state is not None
        assert self.is_open(ledger), "deleted or founded anew: nobody would read what it takes"
        if expected_seq is not None and expected_seq != ledger.last_seq:
            text = "the session has moved on: read what is new, then append again"
            raise Refusal("stale", text, expected_seq, ledger.last_seq)
        if process is not None:
            self._check_room(ledger, entries)
        if ledger.possible_leap is not None:
            state.lose(ledger.possible_leap.last_seq)
        owner = None if unowned or process is None else process.owner
        chain, undos = ledger.chain, []
        placed: list[wire.Placed] = []
        lines: list[Pending] = []
        turns: list[tuple[str, str]] = []
        try:
            for entry in entries:
                event = entry_event(state, entry, owner, at_ms)
                known = _known(state, entry, event, is_copy=unowned)
                if known is not None:
                    placed.append(known)
                    continue
                if process is not None and not unowned:
                    _check_cause(state, event)
                    if event.payload.get("retry_of"):
                        self._check_retry(ledger, event, process)
                line = event_line(event, entry.payload, chain)
                undos.append(state.apply(event))
                chain = chain_of(line)
                lines.append(Pending(event.seq, line))
                placed.append(wire.Placed(event.seq, event.id))
                if event.turn is not None and event.type.startswith("turn_"):
                    turns.append((event.turn, event.type))
        except BaseException:
            for undo in reversed(undos):  # N2
                state.revert(undo)
            raise
        if lines:
            ledger.chain = chain
            if process is None:
                ledger.made_seq = lines[-1].seq
            self._take(ledger, lines, at_ms, now)
            for turn_id, kind in turns:
                if kind == "turn_submitted":
                    self._pass_by(ledger, turn_id)
                if not unowned or kind in _TURN_ENDS:
                    self._advance(ledger, turn_id, kind, process)
        return placed

    def _check_retry(self, ledger: SessionLog, event: Event, process: Process) -> None:
        """One process at a time works on the newest turn of a message. Refusal.

        Behind `_known`: a request that is sent again is answered as the first one was. Not in the
        fold: older sessions have two open retries of a turn.
        """
        assert ledger.state is not None
        journal, retry_of = ledger.state.journal, event.payload["retry_of"]
        retried = journal.turn(retry_of)
        assert retried is not None, "it was checked"
        message = (ledger.uid, ledger.session_id, retried.message_id)
        for turn_id, worker in self._newest.get(message, {}).items():
            if worker is process or worker.has_exited:
                continue
            turn = journal.turn(turn_id)
            if turn is None or turn.ended:
                continue
            if turn.submitted_seq >= retried.submitted_seq:
                at = f"process {worker.owner.pid} of boot {worker.owner.boot_id}"
                got = f"turn {turn_id}, {turn.state}, {at}"
                limit = f"turn {retry_of}, worked on by nobody"
                raise Refusal("already_resumed", "another process works on it", got, limit)

    def is_open(self, ledger: SessionLog) -> bool:
        """It is the session still: to be asked behind whatever was awaited since it was opened."""
        return self.open.get((ledger.uid, ledger.session_id)) is ledger

    def leap(self, ledger: SessionLog, last_seq: int) -> None:
        """Up to there its lines are lost: the next one stands behind them, in a stream of its own.

        Its meta says so: no later start may take the hole before it for a torn place (H3).
        """
        assert ledger.state is not None
        unread = [] if ledger.possible_leap is None else ledger.possible_leap.unread
        ledger.possible_leap = Leap(ledger.state.last_seq + 1, last_seq, unread)
        if ledger.stream is not None:
            ledger.closing.append(ledger.stream)
            ledger.stream = None

    def _check_room(self, ledger: SessionLog, entries: list[wire.NewEntry]) -> None:
        """Memory is bounded (P10); a full disk takes what ends something alone (P7)."""
        size = sum([len(entry.payload) for entry in entries])
        self.check_waiting(ledger, size, ends=all(entry.type in _TURN_ENDS for entry in entries))
        self._core.batches.check_open()
        if self._core.disk_full and not all(one.type in _FROM_RESERVE for one in entries):
            text = "the disk is full: only turns and replies are begun and ended"
            raise Refusal("disk_full", text, "", "")

    def check_waiting(self, ledger: SessionLog, size: int = 0, *, ends: bool = True) -> None:
        """Memory is bounded (P10). size: of what comes; ends: what was begun while there was room.

        Without a size for what the daemon says by itself: the messages of a reply stay together,
        and one that is longer than all the room there is must not wait for ever. Refusal.
        """
        if ledger.is_failing:
            own, limit = ledger.pending_bytes + size, limits.LEDGER_FAILING_BYTES_MAX
            limit *= 2 if ends else 1
            if own > limit:
                text = "as much as may waits for the session's file, which cannot be written"
                raise Refusal("unwritable", text, own, limit)
        if self.pending_bytes + size > limits.LEDGER_BYTES_MAX:
            text = "lines that wait for their session's file fill the memory for them; try again"
            raise Refusal("ledger_full", text, self.pending_bytes + size, limits.LEDGER_BYTES_MAX)

    def _take(self, ledger: SessionLog, lines: list[Pending], at_ms: int, now: float) -> None:
        """Queue lines for the WAL."""
        stream = ledger.stream
        if stream is None:
            base, possible_leap, meta = lines[0].seq - 1, ledger.possible_leap, None
            if possible_leap is not None and possible_leap.last_seq == base:
                ledger.possible_leap, meta = None, LEAPT
                ledger.leaps.append(possible_leap)
            begin = records.Begin(
                ledger.uid, b"", base, "", ledger.session_id, None, None, meta, at_ms, _NOBODY
            )
            stream = ledger.stream = self._core.begin(begin, None, None, now)
        if ledger.since is None:
            ledger.since = now
        ledger.touched = now
        size = sum(len(pending.line) for pending in lines)
        ledger.pending += lines
        ledger.pending_bytes += size
        self.pending_bytes += size
        after_ms = at_ms - stream.begin.at_ms
        for seq, line in lines:
            own_seq = seq - stream.begin.number
            event = wire.Custom(0, own_seq, LINE_KIND, line)
            item = records.encode_item(records.Happened(after_ms, event))
            self._core.queued(stream, stream.take_item(own_seq, 0, item), now)

    # --- checkpoints ----------------------------------------------------------------------------

    def begin_checkpoint(self, ledger: SessionLog) -> list[Pending]:
        """What is to go to the session's file now; lines from here on begin another stream."""
        if ledger.stream is not None:
            ledger.closing.append(ledger.stream)
            ledger.stream = None
        ledger.since = None
        return list(ledger.pending)

    def checkpointed(
        self, ledger: SessionLog, last_seq: int, streams: list[Stream], now: float
    ) -> None:
        """Lines up to `last_seq` are in the file, durably: the log may let go of these streams.

        By seq and by name: what came since, or was let go of meanwhile, is not concerned.
        """
        left = [one for one in ledger.pending if one.seq > last_seq]
        size = sum(len(one.line) for one in ledger.pending) - sum(len(one.line) for one in left)
        ledger.pending = left
        ledger.pending_bytes -= size
        self.pending_bytes -= size
        for stream in streams:
            if stream in ledger.closing:
                ledger.closing.remove(stream)
                self._core.release(stream, Flag.RELEASED, now)

    def opened(self, ledger: SessionLog) -> None:
        """The session has that log from here on."""
        self.open[ledger.uid, ledger.session_id] = ledger
        self.has({ledger.uid})

    def closed(self, ledger: SessionLog) -> None:
        """Whoever wants it opens it anew: nothing is taken by this one any more."""
        del self.open[ledger.uid, ledger.session_id]

    def restored(
        self,
        key: tuple[int, str],
        streams: list[Stream],
        lines: list[Pending],
        now: float,
        leaps: Sequence[Leap] = (),
        *,
        is_due: bool = False,
    ) -> SessionLog:
        """The ledger of lines that a start found, in place of one that nobody has folded: whoever
        asks for it does. is_due: its file is to be written at once.
        """
        if (earlier := self.open.get(key)) is not None:
            self.pending_bytes -= earlier.pending_bytes
        ledger = SessionLog(*key, None)
        self.opened(ledger)
        ledger.closing, ledger.pending, ledger.leaps = streams, lines, list(leaps)
        ledger.pending_bytes = sum(len(one.line) for one in lines)
        self.pending_bytes += ledger.pending_bytes
        ledger.since = now if lines and not (leaps or is_due) else None
        return ledger

    def forget(self, ledger: SessionLog, now: float) -> None:
        """The session is deleted: nothing of it is written any more."""
        self.open.pop((ledger.uid, ledger.session_id), None)
        self.begin_checkpoint(ledger)
        last_seq = ledger.pending[-1].seq if ledger.pending else 0
        self.checkpointed(ledger, last_seq, list(ledger.closing), now)
        for turn_id in self.workers(ledger.uid, ledger.session_id):
            self._disown((ledger.uid, ledger.session_id, turn_id))

    # --- whose turns ----------------------------------------------------------------------------

    def _advance(
        self, ledger: SessionLog, turn_id: str, kind: str, process: Process | None
    ) -> None:
        assert ledger.state is not None
        key = (ledger.uid, ledger.session_id, turn_id)
        is_passed = self.is_owned(key) and key[2] not in self._newest_beside(key)
        self._disown(key)
        if process is not None and kind not in _TURN_ENDS:
            turn = ledger.state.journal.turn(turn_id)
            self.own(key, process, None if turn is None else turn.message_id)
            if is_passed and self.is_owned(key):
                self._pass(key)

    def own(self, key: tuple[int, str, str], process: Process, message_id: str | None) -> None:
        """The process advances this turn: it is interrupted when the process is gone."""
        if process.is_lost:  # while its request was on its way
            self.lost(key, "agent_lost")
            return
        self._turns.setdefault(key[:2], {})[key[2]] = _Work(process, message_id)
        self._newest.setdefault((*key[:2], message_id), {})[key[2]] = process
        process.turns.setdefault(key)

    def _pass_by(self, ledger: SessionLog, turn_id: str) -> None:
        """It was submitted: where it is a retry, no turn of its message before it is the newest."""
        assert ledger.state is not None
        newest = ledger.state.journal.turn(turn_id)
        if newest is None or newest.retry_of is None:
            return
        of_session = (ledger.uid, ledger.session_id)
        for other in list(self._newest.get((*of_session, newest.message_id), ())):
            turn = ledger.state.journal.turn(other)
            if turn is not None and turn.submitted_seq < newest.submitted_seq:
                self._pass((*of_session, other))

    def look_for_passed(self, ledger: SessionLog) -> None:
        """Among the open turns of a session that was folded just now."""
        assert ledger.state is not None
        turns = ledger.state.journal.open_turns()
        newest = {turn.message_id: turn.turn_id for turn in turns}
        for turn in turns:
            key = (ledger.uid, ledger.session_id, turn.turn_id)
            if self.is_owned(key) and newest[turn.message_id] != turn.turn_id:
                self._pass(key)

    def _newest_beside(self, key: tuple[int, str, str]) -> dict[str, Process]:
        """Of the message of a turn that somebody advances."""
        return self._newest.get((*key[:2], self._turns[key[:2]][key[2]].message_id), {})

    def _pass(self, key: tuple[int, str, str]) -> None:
        """Another turn of its message is newer, or it is nobody's any more."""
        newest = self._newest_beside(key)
        newest.pop(key[2], None)
        if not newest:
            self._newest.pop((*key[:2], self._turns[key[:2]][key[2]].message_id), None)

    def _disown(self, key: tuple[int, str, str]) -> None:
        if not self.is_owned(key):
            return
        self._pass(key)
        of_session = self._turns[key[:2]]
        of_session.pop(key[2]).process.turns.pop(key, None)
        if not of_session:
            del self._turns[key[:2]]

    def is_owned(self, key: tuple[int, str, str]) -> bool:
        """Some living process advances the turn."""
        return key[2] in self._turns.get(key[:2], ())

    def workers(self, uid: int, session_id: str) -> dict[str, Process]:
        """Of a session, its open turns and who advances each; no other's are looked at."""
        of_session = self._turns.get((uid, session_id), {})
        return {turn_id: work.process for turn_id, work in of_session.items()}

    def is_lost(self, key: tuple[int, str, str]) -> bool:
        """Its owner is gone, and the entry that says so is still to come."""
        return any(LostTurn(*key, why) in self.lost_turns for why in ("agent_lost", "host_restart"))

    def lost(self, key: tuple[int, str, str], reason: str) -> None:
        """The turn's owner is gone: it is to be interrupted."""
        self.lost_turns.setdefault(LostTurn(*key, reason))

    def lose(self, process: Process, reason: str) -> None:
        """The process is gone: its turns are to be interrupted."""
        for key in list(process.turns):
            self._disown(key)
            self.lost(key, reason)


def _known(
    state: SessionState, entry: wire.NewEntry, event: Event, *, is_copy: bool
) -> wire.Placed | None:
    """Where the entry stands already, None where it is new. Refusal where it may not come.

    is_copy: what follows names it by its own id, so the first turn of its message is another.
    """
    if entry.type == "turn_submitted" and not is_copy:
        turn = state.submitted(event.payload)
        if turn is not None:
            return wire.Placed(turn.submitted_seq, turn.turn_id, is_new=False)
    elif entry.once and entry.key is not None:
        seq = state.seq_of_key(entry.key, entry.type)
        if seq is not None:
            return wire.Placed(seq, "", is_new=False)
    if entry.once and entry.id in state.ids:
        return wire.Placed(state.ids[entry.id], entry.id, is_new=False)
    problem = state.check(event, is_new=not is_copy)
    if problem is not None:
        raise Refusal(problem.code, problem.message, problem.got, problem.limit)
    return None


def _check_cause(state: SessionState, event: Event) -> None:
    """What it says caused it is there, or a place `stream:seq` of a reply. Refusal.

    Not in the fold: older sessions, and copies, name what they like. Where lines are lost the cause
    may be one of them.
    """
    cause = event.cause
    if cause is None or cause in state.ids or len(state.ids) < state.last_seq:
        return
    stream_id, _, seq = cause.rpartition(":")
    if not (stream_id and seq.isdecimal()):
        limit = "the id of an entry that is there, or stream:seq of a reply"
        raise Refusal("unknown_cause", "cause names no entry", cause, limit)
