"""The state of an open session: enough to accept or refuse the next event.

Owns: ids, parents, the leaf, keys, turns and tools, event by event. Refuses: payloads beyond what
it needs of them (the projections read those), seqs and lines (the daemon gives them), disks.

Invariants: `check` decides and changes nothing; `apply` takes what was checked, or what stands in
the ledger anyway, and never refuses; where it raises all the same it has changed nothing (N2).
Of a payload it remembers what the check knows. `revert` takes the newest event back. A base, its
deltas in order and the events behind them give the state that all events give. Lines that were lost
to damage leave holes: an entry whose parent is lost hangs on the newest one before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from walld.errors import FormatError
from walld.sessions.state.events import (
    UNKNOWN,
    Event,
    Problem,
    check_new,
    check_payload,
    unknown_turn,
)
from walld.sessions.state.hash_index import Seqs
from walld.sessions.state.journal import Journal
from walld.sessions.state.parents import Parents
from walld.sessions.state.references import check_target
from walld.sessions.state.snapshot import Piece, decode_piece, encode_piece
from walld.sessions.state.step import Step, facts_of, key_name, key_names
from walld.sessions.state.tools import (
    TOOL_TYPES,
    ToolState,
    check_tool,
    named_call,
    settles,
    take_tool,
)
from walld.sessions.state.turns import (
    TURN_STATES,
    TurnMark,
    TurnState,
    check_retry,
    check_turn,
    content_hash,
    take_turn,
)

if TYPE_CHECKING:
    from walld_client.wire.messages import NewEntry

__all__ = ["SessionState", "Undo"]

_MISSING_MAX: Final = 1_000_000
_NEVER_LEAF: Final = frozenset(("label", "leaf"))


class Undo(NamedTuple):
    """What `revert` needs. newest: by each name of its key, 0 where it came once, None: never."""

    step: Step
    last_seq: int
    leaf: str | None
    turn: TurnMark | None
    tool: ToolState | None
    newest: tuple[int | None, ...]


class SessionState:
    """The state of one session; see the top."""

    __slots__ = (
        "_hashed",
        "_pending",
        "_sound",
        "_taken_seq",
        "ids",
        "journal",
        "keys",
        "last_seq",
        "leaf",
        "newest",
        "parents",
    )

    def __init__(self) -> None:
        self.last_seq = 0
        self.leaf: str | None = None
        self.ids = Seqs()
        self.parents = Parents()
        self.keys = Seqs()
        """The first seq of a key, and of a type and a key, by `key_name`."""
        self.newest = Seqs()
        """The newest one, of those that came again."""
        self.journal = Journal()
        self._pending: list[Step] = []
        """What is in no base and no delta."""
        self._taken_seq = 0
        """`last_seq` when the last of those was taken."""
        self._hashed: tuple[dict[str, Any], bytes] | None = None
        self._sound: Event | None = None
        """The event that was checked last, where its payload may be what it is."""

    # --- questions --------------------------------------------------------------------------------

    def parent_for(self, event: Event | NewEntry) -> str | None:
        """The parent that belongs into the line of the event, or of the entry that becomes one."""
        return self.leaf if event.parent is None else event.parent

    def seq_of_key(self, key: str, type: str | None = None) -> int | None:  # noqa: A002
        """The first event of that key, and of that type where one is given."""
        return self.keys.get(key_name(key, type))

    def seqs_of_key(self, key: str, type: str | None = None) -> tuple[int, int] | None:  # noqa: A002
        """The first and the newest event of that key, and of that type where one is given."""
        name = key_name(key, type)
        first = self.keys.get(name)
        return None if first is None else (first, self.newest.get(name) or first)

    def submitted(self, payload: dict[str, Any]) -> TurnState | None:
        """The turn that a submission repeats: the same message id, content and attachments."""
        message_id = payload.get("message_id")
        if payload.get("retry_of") is not None or not isinstance(message_id, str):
            return None  # whatever it is: the check comes behind this
        turn = self.journal.turn(self.journal.turn_id_of(message_id))
        return turn if turn is not None and turn.content_hash == content_hash(payload) else None

    def check(self, event: Event, *, is_new: bool = False) -> Problem | None:
        """Why it may not come next, None where it may. A parent that is None is the leaf.
        is_new: it comes now, and is no copy; what a former walld took is what it was.
        """
        if problem := (check_new if is_new else check_payload)(event.type, event.payload):
            return problem
        self._sound = event
        return (
            self._check_place(event)
            or check_target(event, self.parent_for(event), self.ids, self.parents, self.journal)
            or self._check_turn(event)
        )

    def _check_place(self, event: Event) -> Problem | None:
        if event.id in self.ids:
            limit = f"an id that is new: seq {self.ids[event.id]} has this one"
            return Problem("duplicate_id", "id is taken", event.id, limit)
        if not event.id:
            return Problem("bad_id", "id is empty", "''", "a text that is not empty")
        if event.parent == event.id:
            limit = "the id of an earlier entry"
            return Problem("cycle", "parent is the entry itself", event.id, limit)
        if event.parent is not None and event.parent not in self.ids:
            limit = "the id of an entry that is there"
            return Problem("unknown_parent", "parent names no entry", event.parent, limit)
        return None

    def _check_turn(self, event: Event) -> Problem | None:
        if event.type == "turn_submitted":
            return self._check_submitted(event)
        if event.type in TURN_STATES:
            turn = self.journal.turn(event.turn)
            return unknown_turn(event.turn) if turn is None else check_turn(turn, event)
        if event.type in TOOL_TYPES and event.payload.get("call_id") is not None:
            turn = self.journal.turn(event.turn)
            tool = self.journal.tool(event.turn or "", event.payload["call_id"])
            if turn is None and (tool is None or not settles(tool, event)):
                return unknown_turn(event.turn)
            return check_tool(tool, event, turn.state if turn is not None and turn.ended else None)
        return None

    def _check_submitted(self, event: Event) -> Problem | None:
        if not event.turn:
            return Problem("bad_payload", "turn of turn_submitted is missing", "nothing", "an id")
        if (turn := self.journal.turn(event.turn)) is not None:
            limit = f"a new turn id: this one is {turn.state}"
            return Problem("illegal_turn", f"turn {event.turn} is there", "submitted", limit)
        if not self._hash(event.payload):
            limit = "what the JSON encoder of Python takes"
            return Problem("bad_payload", "content nests too deep", "a deep value", limit)
        retry_of = event.payload.get("retry_of")
        if retry_of is not None:
            retried = self.journal.turn(retry_of)
            return check_retry(event.payload, self._hash(event.payload), retried)
        message_id = event.payload["message_id"]
        if (taken_by := self.journal.turn_id_of(message_id)) is not None:
            turn, hashed = self.journal.turn(taken_by), self._hash(event.payload)
            text, limit = "message_id is taken", f"an id that is new: turn {taken_by} has it"
            if turn is not None and turn.content_hash != hashed:
                hashes = f"hash {hashed.hex()}, not {turn.content_hash.hex()}"
                text = f"message_id was submitted with other content or attachments ({hashes})"
            return Problem("message_id_taken", text, message_id, f"{limit} (retry_of?)")
        return None

    # --- changes ----------------------------------------------------------------------------------

    def apply(self, event: Event) -> Undo:
        """Take an event in, its parent as its line says it."""
        step = self._step(event)
        undo = self._take(step)
        self._pending.append(step)
        return undo

    def forget_delta(self) -> None:
        """Whoever folds a view takes no snapshot: what a delta would have is let go of."""
        self._pending.clear()
        self._taken_seq = self.last_seq
        for one in (self.ids, self.keys, self.newest):
            one.forget_since()

    def revert(self, undo: Undo) -> None:
        """Take the newest event back: its line was not written. No delta may hold it."""
        step = undo.step
        assert self.last_seq == step.seq, f"{step.seq} is not the newest, {self.last_seq} is"
        newest = self._pending.pop() if self._pending else None
        assert newest is step, f"seq {step.seq} is in a snapshot already"
        del self.ids[step.id]
        self.parents.cut(undo.last_seq)
        self.last_seq, self.leaf = undo.last_seq, undo.leaf
        for name, before in zip(key_names(step), undo.newest, strict=True):
            if before is None:
                del self.keys[name]
            elif before:
                self.newest[name] = before
            else:
                del self.newest[name]
        self._put_back(undo)

    def _put_back(self, undo: Undo) -> None:
        """The turn or the call as it was."""
        step = undo.step
        if step.turn is None:
            return
        if step.type in TOOL_TYPES:
            self.journal.put_tool(step.turn, step.facts["call_id"], undo.tool)
        else:
            self.journal.put_back(step.turn, undo.turn)

    def lose(self, until: int) -> None:
        """Seqs up to that were given, and what they said is gone: the next is behind them."""
        missing = until - self.last_seq
        if missing > 0:
            _check_missing(missing)
            self.parents.add([0] * missing)
            self.last_seq = until

    def _step(self, event: Event) -> Step:
        seq, kind, payload = event.seq, event.type, event.payload
        parent = 0 if event.parent is None else (self.ids.get(event.parent) or self.last_seq)
        moves_to: str | msgspec.UnsetType | None = msgspec.UNSET
        turn: str | None = None
        facts: dict[str, Any] = {}
        hashed = b""
        sound = event is self._sound or check_payload(kind, payload) is None
        self._sound = None
        if (
            kind == "leaf"
            and sound
            and (payload["target"] is None or payload["target"] in self.ids)
        ):
            moves_to = payload["target"]
        if sound and (call := named_call(event)) is not None:
            turn, facts = call[0], facts_of(event) | {"call_id": call[1]}
        elif sound and kind in TURN_STATES and event.turn:
            turn, facts = event.turn, facts_of(event)
            if kind == "turn_submitted":
                hashed, self._hashed = self._hash(payload), None
        return Step(
            id=event.id,
            seq=seq,
            parent_seq=parent,
            stays=not event.leaf or kind in _NEVER_LEAF,
            moves_to=moves_to,
            type=kind if turn is not None or event.key is not None else None,
            key=event.key,
            turn=turn,
            facts=facts,
            hash=hashed,
            owner=event.owner if turn is not None else None,
        )

    def _hash(self, payload: dict[str, Any]) -> bytes:
        """Of a submission: checked first, and taken in right after that."""
        if self._hashed is None or self._hashed[0] is not payload:
            self._hashed = payload, content_hash(payload)
        return self._hashed[1]

    def _take(self, step: Step) -> Undo:
        names = key_names(step)
        keys, seqs = self.keys, self.newest
        newest = tuple([(seqs.get(name) or 0) if name in keys else None for name in names])
        undo = Undo(step, self.last_seq, self.leaf, *self._before(step), newest)
        seq = step.seq
        assert seq > self.last_seq, f"seq {seq} after {self.last_seq}"
        _check_missing(seq - self.last_seq - 1)
        try:  # first what may fail
            if step.turn is not None and step.type is not None:
                if step.type in TOOL_TYPES:
                    self._take_tool(step.turn, step.type, step)
                else:
                    self._take_turn(step.turn, step.type, step)
            if missing := seq - self.last_seq - 1:
                self.parents.add([0] * missing + [step.parent_seq])
            else:
                self.parents.add_one(step.parent_seq)
        except BaseException:
            self._put_back(undo)
            raise
        self.ids[step.id] = seq
        self.last_seq = seq
        if step.moves_to is not msgspec.UNSET:
            self.leaf = step.moves_to
        elif not step.stays:
            self.leaf = step.id
        for name, before in zip(names, newest, strict=True):
            (keys if before is None else seqs)[name] = seq
        return undo

    def _before(self, step: Step) -> tuple[TurnMark | None, ToolState | None]:
        if step.turn is None:
            return None, None
        if step.type in TOOL_TYPES:
            tool = self.journal.tool(step.turn, step.facts["call_id"])
            return None, None if tool is None else tool.copy()
        turn = self.journal.turn(step.turn)
        return None if turn is None else turn.mark(), None

    def _take_turn(self, turn_id: str, type: str, step: Step) -> None:  # noqa: A002
        turn = self.journal.turn(turn_id)
        if turn is not None:
            take_turn(turn, type, step.seq, step.facts, step.owner)
            self.journal.name(turn, step.facts.get("stream_id"))
            return
        facts = step.facts
        retry_of = facts.get("retry_of")
        retried = self.journal.turn(retry_of)
        message_id = facts.get("message_id") if retried is None else retried.message_id
        new = TurnState(turn_id, message_id, "submitted", step.seq, step.hash, {})
        new.retry_of = retry_of
        take_turn(new, type, step.seq, facts, step.owner)
        self.journal.put_turn(new)

    def _take_tool(self, turn_id: str, type: str, step: Step) -> None:  # noqa: A002
        facts = step.facts
        tool = self.journal.tool(turn_id, facts["call_id"])
        if type == "tool_intent":  # it stands there: the call before, if any, was closed
            names = (facts["tool"], facts["side_effect"], facts["resume_policy"])
            new = ToolState("intended", *names, {"intended": step.seq})
            self.journal.put_tool(turn_id, facts["call_id"], new)
        elif type == "tool_started" and (tool is None or not tool.may_start):
            # Another call ran: that its intent is lost makes it no safer.
            lost = ToolState("started", UNKNOWN, UNKNOWN, UNKNOWN, {"started": step.seq})
            self.journal.put_tool(turn_id, facts["call_id"], lost)
        elif tool is not None:
            take_tool(tool, type, step.seq, facts)

    # --- snapshots --------------------------------------------------------------------------------

    def to_base(self) -> bytes:
        """All of it. Deltas go on from here."""
        blocks = (
            self.ids.block(),
            self.parents.odd_behind(0),
            self.keys.block(),
            self.newest.block(),
        )
        base = encode_piece(0, self.last_seq, self.leaf, *blocks, self.journal.pack())
        self._pending.clear()
        self._taken_seq = self.last_seq
        return base

    @classmethod
    def from_base(cls, encoded: bytes) -> SessionState:
        """Raises FormatError where the bytes are no base."""
        base = decode_piece(encoded)
        self = cls()
        self._go_on(base)
        self.ids, self.keys, self.newest = Seqs(base.ids), Seqs(base.keys), Seqs(base.newest)
        self.journal = Journal(base.journal)
        return self

    def take_delta(self) -> bytes:
        """What came since the last base or delta."""
        pending, self._pending = self._pending, []
        after, self._taken_seq = self._taken_seq, self.last_seq
        turns, tools = set[str](), set[tuple[str, str]]()
        for step in pending:
            if step.turn is not None and step.type in TOOL_TYPES:
                tools.add((step.turn, step.facts["call_id"]))
            elif step.turn is not None:
                turns.add(step.turn)
        odd = self.parents.odd_behind(after)
        blocks = (self.ids.since(), odd, self.keys.since(), self.newest.since())
        journal = self.journal.changes(turns, tools)
        return encode_piece(after, self.last_seq, self.leaf, *blocks, journal)

    def apply_delta(self, encoded: bytes) -> None:
        """What `take_delta` gave, in the same order. Raises FormatError."""
        delta = decode_piece(encoded)
        self._go_on(delta)
        self.ids.add(delta.ids)
        self.keys.add(delta.keys)
        self.newest.add(delta.newest)
        try:
            self.journal.add(delta.journal)
        except UnicodeDecodeError as error:
            raise FormatError(f"snapshot has a turn that cannot be read: {error}") from None

    def _go_on(self, piece: Piece) -> None:
        """To the end of a piece, with the parents that it says."""
        after, last_seq, count = piece.after, piece.last_seq, len(piece.ids.hashes) // 8
        if after != self.last_seq:
            raise FormatError(f"delta begins at seq {after + 1}, limit {self.last_seq + 1}")
        if count > last_seq - after:
            raise FormatError(f"snapshot has {count} ids, limit {last_seq - after}")
        _check_missing(last_seq - after - count)
        self.parents.go_on(last_seq, piece.parents)
        self.last_seq, self.leaf, self._taken_seq = last_seq, piece.leaf, last_seq


def _check_missing(lines: int) -> None:
    """Memory is taken for seqs, also of lines that damage has cost: not for any number of them."""
    if lines > _MISSING_MAX:
        raise FormatError(f"{lines} lines are missing in a row, limit {_MISSING_MAX}")
