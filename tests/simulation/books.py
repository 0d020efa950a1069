"""What was asked of sessions and what was promised of it, kept apart from all code under test.

Owns: every request as it was sent, its answer, who has died when, and the judgement of the lines a
daemon says a session has. Refuses: how lines are made, folded or stored: it knows entries, ids,
seqs and answers.

Invariants (numbers of docs/invariants.md): N1 a seq is given once, and a line never changes; N2 all
entries of a request or none; P4 what was acknowledged as synced is there, P2 what was acknowledged
as written as long as the machine has power; N5 a turn is interrupted where its owner is gone, once,
and nowhere else; a reply of a turn is a reply or in its session, never neither, never both at rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from walld_client.wire import messages as wire

from walld.errors import FormatError
from walld.ledger.line import Line, chain_of, header_line, read_line

from .oracle import POWER_SECONDS, Wrong

if TYPE_CHECKING:
    from .oracle import Oracle, Promise, Story

__all__ = ["Asking", "Books", "Must", "Session"]

Session = tuple[int, str]
_ENDS = ("turn_completed", "turn_interrupted")
_FIELDS = ("type", "payload", "turn", "cause", "correlation", "key", "leaf")


@dataclass(slots=True, eq=False)
class Asking:
    """One request as it was sent, by append (entries) or delete (none). Times are ticks."""

    session: Session
    pid: int
    entries: list[wire.NewEntry]
    level: str
    life: int
    asked: int
    ended: int | None = None
    """From here on it does nothing any more: it is answered, or its daemon is gone."""
    answered: int | None = None
    answered_at: float = 0.0
    placed: list[wire.Placed] = field(default_factory=list)
    lossy: bool = False
    """Acknowledged as written, and what went on since may have taken it."""


class Must(NamedTuple):
    """What holds of all sessions at one moment. there: placed entries with who asked for them."""

    there: dict[Session, list[Asking]]
    gone: dict[Session, set[str]]

    def still(self, later: Must) -> Must:
        """What held all the time from this moment to a later one."""
        there = {
            session: [one for one in asked if one in later.there[session]]
            for session, asked in self.there.items()
        }
        return Must(there, self.gone)


@dataclass(slots=True)
class _Turn:
    owner: int
    boot: str
    has_ended: bool = False
    interrupted: int = 0


class Books:
    """All requests of a run, and what may be asked of sessions now."""

    def __init__(self, oracle: Oracle, *, is_shaky: bool, hurts: bool) -> None:
        """is_shaky: syncs fail in this run, and with them goes what is only written. hurts: nothing
        is promised of when something written is synced.
        """
        self._stories = oracle.stories
        self._is_shaky = is_shaky
        self._hurts = hurts
        self._ticks = 0
        self.appends: dict[Session, list[Asking]] = {}
        self.deletes: dict[Session, list[Asking]] = {}
        self.marks: dict[Session, dict[str, bytes]] = {}
        """By id of an entry or a stream: bytes that stand in its text alone."""
        self.died: dict[int, int] = {}
        """By pid: when, in milliseconds of the wall clock."""
        self.boots: list[tuple[int, str]] = []
        self._asked: dict[tuple[Session, str], list[tuple[Asking, wire.NewEntry]]] = {}
        self._lines: dict[Session, dict[str, bytes]] = {}
        """Lines of entries that were acknowledged, as they were first seen."""
        self.checks = self.judged = 0

    # --- what happens ---------------------------------------------------------------------------

    def _tick(self) -> int:
        self._ticks += 1
        return self._ticks

    def asks(
        self, session: Session, pid: int, entries: list[wire.NewEntry], level: str, life: int
    ) -> Asking:
        """A request is sent. Without entries: the session is to be deleted."""
        asking = Asking(session, pid, entries, level, life, self._tick())
        held = self.appends if entries else self.deletes
        held.setdefault(session, []).append(asking)
        for entry in entries:
            self._asked.setdefault((session, entry.id), []).append((asking, entry))
        if not entries:
            self._lines.pop(session, None)
            for (uid, _), story in self._stories.items():
                if (uid, story.session_id) == session:
                    story.given_up = story.released = True
        return asking

    def answers(self, asking: Asking, placed: list[wire.Placed], now: float, life: int) -> None:
        """It is answered: done, and as safe as was asked for."""
        asking.answered = self._tick()
        asking.ended = asking.ended or asking.answered
        asking.answered_at, asking.placed = now, placed
        asking.lossy = life != asking.life and self._is_shaky and asking.level != "synced"
        if len(placed) != len(asking.entries):
            raise Wrong(f"{asking.session}: {len(placed)} of {len(asking.entries)} placed (N2)")
        for entry, one in zip(asking.entries, placed, strict=True):
            if one.is_new and one.id != entry.id:
                raise Wrong(f"{asking.session}: {entry.id} was placed as {one.id} (N1)")

    def refused(self, asking: Asking) -> None:
        """It is answered: it does nothing."""
        asking.ended = self._tick()

    def is_being_deleted(self, session: Session) -> bool:
        """Somebody has asked for it, and it may go on."""
        return any(one.ended is None for one in self.deletes.get(session, ()))

    def was_deleted(self, session: Session) -> bool:
        """Somebody has asked for it once."""
        return session in self.deletes

    def has_died(self, pid: int, wall_ms: int) -> None:
        """A process is gone."""
        self.died[pid] = wall_ms

    def has_booted(self, boot: str, wall_ms: int) -> None:
        """The machine has begun anew."""
        self.boots.append((wall_ms, boot))

    def daemon_gone(self) -> None:
        """What was asked of it and not answered has happened by now, or never will."""
        now = self._tick()
        for asking in self._all():
            asking.ended = asking.ended or now

    def crashed(self) -> None:
        """The daemon was killed. Where syncs fail the page cache may have lost what was written."""
        for asking in self._all() if self._is_shaky else ():
            asking.lossy |= asking.level != "synced"

    def power_was_cut(self, now: float) -> None:
        """Written and not synced may be gone: two bounds are promised, and time is counted."""
        for asking in self._all():
            asking.lossy |= self._may_power_take(asking, now)

    def _may_power_take(self, asking: Asking, now: float) -> bool:
        is_young = now - asking.answered_at < POWER_SECONDS
        return asking.level != "synced" and (is_young or self._hurts)

    def _all(self) -> list[Asking]:
        held = (*self.appends.values(), *self.deletes.values())
        return [asking for some in held for asking in some]

    # --- what must hold -------------------------------------------------------------------------

    def must_if_it_ended(self, now: float, *, power: bool) -> Must:
        """What would have to hold if the daemon, or with it the machine, were gone now."""
        return self.must(lambda one: power and self._may_power_take(one, now))

    def must(self, is_lost: Callable[[Asking], bool] = lambda _one: False) -> Must:
        """What must hold from now on, until somebody asks for something else.

        is_lost: but these.
        """
        there: dict[Session, list[Asking]] = {}
        gone: dict[Session, set[str]] = {}
        for session, asked in self.appends.items():
            deletes = self.deletes.get(session, [])
            there[session] = [
                one
                for one in asked
                if one.answered is not None
                and not one.lossy
                and not is_lost(one)
                and not any(d.ended is None or d.ended > one.asked for d in deletes)
            ]
            deleted = max((d.asked for d in deletes if d.answered is not None), default=0)
            last: dict[str, float] = {}
            for one in asked:
                ended = float("inf") if one.ended is None else one.ended
                for entry in one.entries:
                    last[entry.id] = max(last.get(entry.id, 0), ended)
            gone[session] = {ident for ident, ended in last.items() if ended < deleted}
        return Must(there, gone)

    def sessions(self) -> list[Session]:
        """All that anybody has named."""
        return sorted({*self.appends, *self.deletes})

    # --- judging --------------------------------------------------------------------------------

    def judge(
        self, session: Session, lines: list[bytes], where: str, must: Must, *, calm: bool
    ) -> None:
        """Judge the lines of a session. Raises Wrong. calm: trouble is over for long enough."""
        self.checks += 1
        where = f"{where}: session {session}"
        read = self._read(session, lines, where)
        by_id = {line.id: line for line in read}
        if len(by_id) != len(read):
            raise Wrong(f"{where}: an id is there twice (N1)")
        for line in read:
            self.check_origin(session, line, where)
        for ident in must.gone.get(session, ()):
            if ident in by_id:
                raise Wrong(f"{where}: {ident} was deleted and is back")
        self._check_requests(session, by_id, where)
        seen = self._lines.setdefault(session, {})
        for asking in must.there.get(session, ()):
            for one in asking.placed:
                self.judged += 1
                line_there = by_id.get(one.id)
                if line_there is None:
                    raise Wrong(f"{where}: {one.id} was acknowledged at {asking.level} (P4)")
                if line_there.seq != one.seq:
                    raise Wrong(f"{where}: {one.id} is at {line_there.seq}, was at {one.seq} (N1)")
                text = lines[one.seq - 1]
                if seen.setdefault(one.id, text) != text:
                    raise Wrong(f"{where}: line {one.seq} has changed: {text!r} (N1)")
        self._check_order(must.there.get(session, []), where)
        self._check_turns(read, where, calm)

    def _read(self, session: Session, lines: list[bytes], where: str) -> list[Line]:
        before, read = header_line(*session), []
        for seq, text in enumerate(lines, 1):
            try:
                line = read_line(text)
            except FormatError as error:
                raise Wrong(f"{where}: line {seq} cannot be read: {error}") from None
            if line.seq != seq:
                raise Wrong(f"{where}: seq {line.seq} stands where {seq} should (N1)")
            if line.chain != chain_of(before):
                raise Wrong(f"{where}: line {seq} is not chained to the one before (N1)")
            before = text
            read.append(line)
        return read

    def check_origin(self, session: Session, line: Line, where: str) -> None:
        """It was asked for, as it stands there; or it is the daemon's own."""
        asked = self._asked.get((session, line.id), [])
        if asked:
            entry = asked[0][1]
            for name in _FIELDS:
                if getattr(line, name) != getattr(entry, name):
                    raise Wrong(f"{where}: {line} was asked for as {entry} (SIM3)")
            pids = {asking.pid for asking, _ in asked}
            is_of_turn = line.type.startswith("turn_")
            if is_of_turn and (line.owner is None or line.owner["pid"] not in pids):
                raise Wrong(f"{where}: {line.id} is called {line.owner}'s, of {pids} (P12)")
        elif line.type == "message":
            story = self._stories.get((session[0], line.id.rpartition(":")[0]))
            if story is None or (session[0], story.session_id) != session:
                raise Wrong(f"{where}: nobody asked for {line} (SIM3)")
            if line.turn != story.turn_id or not story.released or not story.is_whole:
                raise Wrong(f"{where}: {line.id} is of a reply that was not released (SIM3)")
        elif line.type == "model_call":
            self._check_calls(session, line, where)
        elif line.type != "turn_interrupted":
            raise Wrong(f"{where}: nobody asked for {line} (SIM3)")

    def _check_calls(self, session: Session, line: Line, where: str) -> None:
        """What is left of a reply that went: calls that it said, of which no message was made."""
        told = json.loads(line.payload)
        story = self._stories.get((session[0], told["stream"]))
        if story is None or (session[0], story.session_id) != session:
            raise Wrong(f"{where}: nobody asked for {line} (SIM3)")
        if line.turn != story.turn_id or not (story.released or story.given_up):
            raise Wrong(f"{where}: {line.id} is of a reply that did not go (SIM3)")
        said = {seq for seq, (kind, _) in story.said.items() if kind == "tool"}
        if not {call["seq"] for call in told["calls"]} <= said:
            raise Wrong(f"{where}: {line.id} has calls that nobody made (SIM3)")

    def _check_requests(self, session: Session, by_id: dict[str, Line], where: str) -> None:
        """All entries of a request or none, one behind the other (N2)."""
        for asking in self.appends.get(session, ()):
            if len(asking.entries) < 2:
                continue
            seqs = [by_id[one.id].seq if one.id in by_id else 0 for one in asking.entries]
            if any(seqs) and seqs != list(range(seqs[0], seqs[0] + len(seqs))):
                raise Wrong(f"{where}: the entries of one request are at {seqs} (N2)")

    def _check_order(self, there: list[Asking], where: str) -> None:
        """What a process asked for after it had an answer stands behind that."""
        last: dict[int, Asking] = {}
        for asking in there:
            if not all(one.is_new for one in asking.placed):
                continue
            before = last.get(asking.pid)
            was_answered = before is not None and (before.answered or 0) < asking.asked
            if before is None or not was_answered:
                pass  # one of them may overtake the other
            elif before.placed[-1].seq >= asking.placed[0].seq:
                raise Wrong(f"{where}: {asking.placed} was asked behind {before.placed}")
            last[asking.pid] = asking

    # --- turns ----------------------------------------------------------------------------------

    def _check_turns(self, read: list[Line], where: str, calm: bool) -> None:
        turns: dict[str, _Turn] = {}
        for line in read:
            if line.turn is None or not line.type.startswith("turn_"):
                continue
            owner = line.owner or {}
            pid, boot = int(owner.get("pid", 0)), str(owner.get("boot", ""))
            turn = turns.get(line.turn)
            if line.type == "turn_submitted":
                turns[line.turn] = _Turn(pid, boot)
            elif turn is None:
                raise Wrong(f"{where}: {line} is of a turn that nobody submitted")
            elif not owner:
                self._check_interrupted(line, turn, where)
            elif line.type in _ENDS:
                turn.has_ended = True
            elif not turn.has_ended:
                turn.owner, turn.boot = pid, boot
        for turn_id, turn in turns.items():
            if calm and not turn.has_ended and turn.owner in self.died:
                raise Wrong(f"{where}: turn {turn_id} of {turn.owner}, which is gone, is open (N5)")

    def _check_interrupted(self, line: Line, turn: _Turn, where: str) -> None:
        """The daemon has interrupted a turn: it was open, its owner gone, and for that reason."""
        said = json.loads(line.payload)
        if said.get("by") != "daemon" or line.type != "turn_interrupted":
            raise Wrong(f"{where}: nobody asked for {line} (SIM3)")
        if turn.has_ended:
            raise Wrong(f"{where}: {line.turn} had ended and was interrupted (N5)")
        died_at = self.died.get(turn.owner)
        if died_at is None or died_at > line.at_ms:
            raise Wrong(f"{where}: {line.turn} of {turn.owner}, alive, was interrupted (N5)")
        boots = [boot for at, boot in self.boots if at <= line.at_ms]
        at_once = self.boots[len(boots) - 1][0] == line.at_ms  # in that millisecond
        wanted = {"agent_lost" if boot == turn.boot else "host_restart" for boot in boots[-2:]}
        if not at_once:
            wanted = {"agent_lost" if boots[-1] == turn.boot else "host_restart"}
        if said.get("reason") not in wanted:
            raise Wrong(f"{where}: {line.turn} interrupted for {said}, it is {wanted} (N5)")
        turn.has_ended = True

    # --- replies of turns -----------------------------------------------------------------------

    def check_replies(
        self,
        found: list[wire.Recovered],
        lines: dict[Session, list[bytes]],
        promises: dict[tuple[int, str], Promise],
        where: str,
        *,
        calm: bool,
    ) -> None:
        """Replies of turns: each is a reply, or in its session, whole. found: asked for before."""
        replies = {(reply.uid, reply.stream_id) for reply in found}
        for key, story in self._stories.items():
            session = story.uid, story.session_id
            promise = promises.get(key)
            if story.turn_id is None or promise is None or session not in lines:
                continue
            read = [read_line(text) for text in lines[session]]
            told = [line for line in read if line.id.rpartition(":")[0] == story.stream_id]
            if told:
                self._compare(story, told, f"{where}: {key}")
            if not story.is_whole or story.given_up or promise.floor < story.end_seq:
                continue
            if not told and key not in replies:
                raise Wrong(f"{where}: {key} is neither a reply nor in {session} (P4)")
            if calm and promise.is_done and not told:
                raise Wrong(f"{where}: {key} was released and is not in {session}")
            if calm and told and key in replies:
                raise Wrong(f"{where}: {key} is in {session} and a reply, too")

    def _compare(self, story: Story, told: list[Line], where: str) -> None:
        wanted = "".join(text for kind, text in story.said.values() if kind == "text")
        text = "".join(json.loads(line.payload)["content"] for line in told)
        if text != wanted:
            raise Wrong(f"{where} has become {text!r}, was {wanted!r} (SIM3)")
        if {line.turn for line in told} != {story.turn_id}:
            raise Wrong(f"{where} is of turn {told[0].turn}, was of {story.turn_id}")

    # --- the bytes of what was deleted ----------------------------------------------------------

    def not_erased(self, files: dict[str, bytes], prefixes: tuple[str, ...]) -> str:
        """Something deleted that a file whose path begins so still holds; "" for nothing."""
        held = [path for path in files if path.startswith(prefixes)]
        for session, idents in self.must().gone.items():
            marks = self.marks.get(session, {})
            # A turn that is submitted again has another id and the same words.
            asked = {ident for ident in marks if (session, ident) in self._asked}
            alive = {marks[ident] for ident in asked - idents}
            for ident in sorted(idents & marks.keys()):
                for path in held:
                    if marks[ident] in files[path] and marks[ident] not in alive:
                        return f"{ident} of {session} in {path}"
        return ""
