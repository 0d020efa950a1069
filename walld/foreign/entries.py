"""What an import appends, in order.

Owns: `Foreign`, `Imported`, and the rules every format shares: ids unique, parents earlier, what
was not understood kept and counted. Refuses: what a line means (the modules of the formats),
appending (the command line).

Invariant: the entries can be appended to a new session, each in its turn: what a session would
refuse, for its shape, its place or its depth, is kept as text like a line nobody understood.

- an id that an entry brings is kept; a second entry with it is kept as text, in no message
- a parent is an entry above; one that is not there means the leaf of that moment
- the same lines give the same ids, so an import that is repeated can append once
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, overload

import msgspec

from walld.foreign.lines import Line, json_of, json_text
from walld.limits import ID_BYTES_MAX, LEDGER_DEPTH_MAX
from walld.sessions.state.events import Event, check_payload
from walld.sessions.state.session_state import SessionState

__all__ = [
    "Draft",
    "Entries",
    "Foreign",
    "Imported",
    "Packed",
    "failed_attempt",
    "id_or_none",
    "kept_line",
    "message",
    "packed",
    "tool_call",
]

_TEXT_CHARS_MAX: Final = 8 * 1024 * 1024
"""Of a line that is kept; of a longer one its beginning."""
_BEGINNING_CHARS: Final = 4096
_TYPE_CHARS_MAX: Final = 80
_FAILED: Final = frozenset(("error", "aborted"))
"""How an answer ended that its writer does not send again, and whose calls it did not begin."""


class Foreign(msgspec.Struct, frozen=True):
    """One entry to append. parent None: the leaf of that moment. at_ms 0: not known.

    number: of the line that it was made of. found: that, where it is no whole line of the file: a
    record that was found in what is none, or what is none.
    """

    type: str
    payload: dict[str, Any]
    id: str
    parent: str | None = None
    turn: str | None = None
    key: str | None = None
    at_ms: int = 0
    leaf: bool = True
    cause: str | None = None
    correlation: str | None = None
    number: int = 0
    found: Line | None = None


class Packed(msgspec.Struct, frozen=True, gc=False):
    """The same with its payload as JSON: objects take several times what their text does."""

    type: str
    text: bytes
    id: str
    parent: str | None
    turn: str | None
    key: str | None
    at_ms: int
    leaf: bool
    cause: str | None
    correlation: str | None
    number: int
    found: Line | None

    @property
    def whole(self) -> Foreign:
        """With its payload as objects, made anew each time."""
        kind, text, *others = msgspec.structs.astuple(self)
        return Foreign(kind, json_of(text), *others)


def packed(one: Foreign) -> Packed:
    """The reverse of `whole`."""
    kind, payload, *others = msgspec.structs.astuple(one)
    return Packed(kind, json_text(payload), *others)


class Entries(Sequence[Foreign]):
    """Entries in their order, each made anew where it is asked for. packed: what they are kept
    as.
    """

    def __init__(self, held: Iterable[Packed] = ()) -> None:
        self.packed = list(held)

    def __len__(self) -> int:
        return len(self.packed)

    @overload
    def __getitem__(self, at: int) -> Foreign: ...
    @overload
    def __getitem__(self, at: slice) -> list[Foreign]: ...
    def __getitem__(self, at: int | slice) -> Foreign | list[Foreign]:
        if isinstance(at, slice):
            return [one.whole for one in self.packed[at]]
        return self.packed[at].whole

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entries) and self.packed == other.packed

    __hash__ = None  # type: ignore[assignment]


class Imported(msgspec.Struct, frozen=True):
    """A foreign file as entries.

    not_understood: lines that became no entry of a known type; reasons: how many for each reason.
    All are among the entries, as type "foreign.<format>". unknown_types: of those that are whole
    records of a type nobody knew, type -> how many. orphans: ids of entries whose parent is
    not above them; they hang on the entry before. version: of the file, where its format counts
    versions. notes: what else is to be said of how it was read, a word each (no_parents: the file
    names none, and its order was taken for the conversation). elsewhere: what of the conversation
    is not in it, and where that is as far as it says: {ordinals: [first, last], thread, bytes} of
    Codex, {messages, session, until} of Claude Code. Of walld's own lines alone:
    event_count, of those that `own.events_in` has; last_seq, the last number that one of them or a
    hole has; missing, the seqs that are gone.
    """

    entries: Entries
    not_understood: int
    reasons: dict[str, int]
    format: str
    version: int | None = None
    orphans: list[str] = []
    notes: list[str] = []
    elsewhere: list[dict[str, Any]] = []
    event_count: int = 0
    last_seq: int = 0
    missing: list[list[int]] = []
    unknown_types: dict[str, int] = {}


def message(
    role: str,
    content: object,
    *,
    tool_calls: Sequence[dict[str, Any]] = (),
    tool_call_id: str | None = None,
    name: str | None = None,
    failed: bool = False,
    finish_reason: object = None,
    attempt: str | None = None,
    foreign: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A message in the plain shape. Content that is neither text nor blocks becomes text.

    failed: of what a tool gave; a provider is told so. finish_reason: of an answer, in its words.
    attempt: the word by which its writer says that the answer failed: no model is sent it, and its
    calls did not run.
    """
    if content is None:
        content = ""
    if not isinstance(content, (str, list)):
        content = json.dumps(content, ensure_ascii=False)
    made: dict[str, Any] = {"role": role, "content": content}
    if tool_calls:
        made["tool_calls"] = list(tool_calls)
    if tool_call_id is not None:
        made["tool_call_id"] = tool_call_id
    if name is not None:
        made["name"] = name
    if failed:
        made["is_error"] = True
    if isinstance(finish_reason, str) and finish_reason:
        made["finish_reason"] = finish_reason
    if attempt is not None:
        made["_attempt"] = attempt
    if foreign:
        made["_foreign"] = foreign
    return made


def failed_attempt(ended: object) -> str | None:
    """The word, where an answer that ended so is an attempt that failed."""
    return ended if isinstance(ended, str) and ended in _FAILED else None


def tool_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """A call in OpenAI's shape."""
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def kept_line(line: Line, reason: str) -> dict[str, Any]:
    """The payload of an entry that is its line and nothing else."""
    payload = {"reason": reason, "line_number": line.number, "line": line.text}
    if len(line.text) > _TEXT_CHARS_MAX:
        payload |= {"line": line.text[:_BEGINNING_CHARS], "line_chars": len(line.text)}
    return payload


class Draft:
    """The entries so far, and where the leaf would stand.

    state: of a session that takes the same, where entries have turns and calls.
    """

    def __init__(self, format: str, state: SessionState | None = None) -> None:  # noqa: A002
        self.format = format
        self.entries = Entries()
        self.leaf: str | None = None
        self.orphans: list[str] = []
        self.notes: list[str] = []
        self.elsewhere: list[dict[str, Any]] = []
        self._parents: dict[str, str | None] = {}
        self._reasons: Counter[str] = Counter()
        self._types: Counter[str] = Counter()
        self._state = state

    def __contains__(self, id: object) -> bool:  # noqa: A002
        return id in self._parents

    def add(
        self,
        line: Line,
        type: str,  # noqa: A002
        payload: dict[str, Any],
        *,
        id: object = None,  # noqa: A002
        parent: str | None = None,
        root: bool = False,
        at_ms: int = 0,
        leaf: bool = True,
        **links: str | None,
    ) -> str:
        """Append an entry; its id. root: it hangs on nothing, wherever the leaf is.

        links: its turn, cause, correlation, key.
        """
        if id_or_none(id) in self._parents:
            return self.keep(line, "repeated_id", at_ms=at_ms)
        if root and self.leaf is not None:
            back = self.leaf
            self.move_leaf(line, None)
            made = self._append(line, type, payload, id, None, at_ms, leaf, **links)
            if not leaf:
                self.move_leaf(line, back)
            return made
        return self._append(line, type, payload, id, parent, at_ms, leaf, **links)

    def keep(
        self,
        line: Line,
        reason: str,
        *,
        id: object = None,  # noqa: A002
        parent: str | None = None,
        at_ms: int = 0,
        leaf: bool = False,
    ) -> str:
        """Keep a line as it is, and count it. Not on the path, unless others may hang on it."""
        self._reasons[reason] += 1
        if reason == "unknown_type" and line.value is not None:
            self._types[_type_of(line.value)] += 1
        wanted = None if id_or_none(id) in self._parents else id
        payload = kept_line(line, reason)
        return self._append(line, f"foreign.{self.format}", payload, wanted, parent, at_ms, leaf)

    def damaged(self, line: Line) -> bool:
        """True for a line that is no object; it has been dealt with then."""
        if line.problem is not None:
            self.keep(line, line.problem)
        return line.problem is not None

    def move_leaf(
        self,
        line: Line,
        target: str | None,
        *,
        id: object = None,  # noqa: A002
        parent: str | None = None,
        at_ms: int = 0,
        more: dict[str, Any] | None = None,
        **links: str | None,
    ) -> str:
        """Go on from `target`, None for before the first entry. more: what else the move says."""
        assert target is None or target in self._parents, f"{target!r} is not there"
        wanted = None if id_or_none(id) in self._parents else id
        payload = (more or {}) | {"target": target}
        made = self._append(line, "leaf", payload, wanted, parent, at_ms, False, **links)
        if self.entries.packed[-1].type == "leaf":
            self.leaf = target
        return made

    def above(self, id: str, below: str | None) -> bool:  # noqa: A002
        """Whether an entry stands between the root and `below`, itself included."""
        return id in self.path(below)

    def path(self, at: str | None) -> Iterator[str]:
        """An entry, and those that it hangs on up to the root."""
        while at is not None:
            yield at
            at = self._parents[at]

    def between(self, head: str, tail: str) -> list[str]:
        """The entries from `head`, which stands above `tail`, down to it."""
        found = [tail]
        while found[-1] != head:
            above = self._parents[found[-1]]
            assert above is not None, f"{head!r} does not stand above {tail!r}"
            found.append(above)
        return found[::-1]

    def imported(self, version: int | None = None) -> Imported:
        """What came of it."""
        reasons = dict(sorted(self._reasons.items()))
        return Imported(
            self.entries,
            sum(reasons.values()),
            reasons,
            self.format,
            version,
            self.orphans,
            self.notes,
            self.elsewhere,
            unknown_types=dict(sorted(self._types.items())),
        )

    def _append(
        self,
        line: Line,
        type: str,  # noqa: A002
        payload: dict[str, Any],
        id: object,  # noqa: A002
        parent: str | None,
        at_ms: int,
        leaf: bool,
        **links: str | None,
    ) -> str:
        made = id_or_none(id) or self._drawn(line)
        assert made not in self._parents, f"{made!r} is taken"
        if parent not in self._parents:
            parent = None
        moves = type in {"label", "leaf"}  # it never becomes the leaf: nothing to say
        entry = self._packed(line, type, payload, made, parent, at_ms, leaf or moves, **links)
        reason = self._refused(entry, payload)
        if reason is not None:
            self._reasons[reason] += 1
            moves, leaf = False, leaf and not moves
            kind, payload = f"foreign.{self.format}", kept_line(line, reason)
            entry = self._packed(line, kind, payload, made, parent, at_ms, leaf)
        self._parents[made] = self.leaf if parent is None else parent
        if leaf and not moves:
            self.leaf = made
        if self._state is not None:
            event = _event(self._state, entry, payload)
            self._state.apply(msgspec.structs.replace(event, parent=self._state.parent_for(event)))
        self.entries.packed.append(entry)
        return made

    def _packed(
        self,
        line: Line,
        type: str,  # noqa: A002
        payload: dict[str, Any],
        id: str,  # noqa: A002
        parent: str | None,
        at_ms: int,
        leaf: bool,
        turn: str | None = None,
        key: str | None = None,
        cause: str | None = None,
        correlation: str | None = None,
    ) -> Packed:
        is_whole = line.number > 0 and not line.is_found and line.problem is None
        found = None if is_whole else msgspec.structs.replace(line, value=None)
        return Packed(
            *(type, json_text(payload), id, parent, turn, key, at_ms, leaf, cause, correlation),
            *(line.number, found),
        )

    def _refused(self, entry: Packed, payload: dict[str, Any]) -> str | None:
        """Why a session would not take the entry, None where it would."""
        if _is_deep(payload, entry.text):
            return "too_deep"
        for value in (entry.turn, entry.cause, entry.correlation, entry.key):
            if value is not None and id_or_none(value) is None:
                return "bad_id"
        if self._state is None:
            problem = check_payload(entry.type, payload)
        else:
            problem = self._state.check(_event(self._state, entry, payload))
        return None if problem is None else problem.code

    def _drawn(self, line: Line) -> str:
        """An id for an entry without one, out of its line alone."""
        n = 0
        while True:
            own = b"%d\0%d\0%b" % (line.number, n, line.encoded)
            drawn = f"{self.format}.{blake2b(own, digest_size=9).hexdigest()}"
            if drawn not in self._parents:
                return drawn
            n += 1


def _type_of(value: dict[str, Any]) -> str:
    """Of a record, with that of its payload where it has one."""
    payload = value.get("payload")
    types = [value.get("type"), payload.get("type") if isinstance(payload, dict) else None]
    return ".".join(one[:_TYPE_CHARS_MAX] for one in types if isinstance(one, str)) or "none"


def id_or_none(id: object) -> str | None:  # noqa: A002
    """An id the ledger takes, None for anything else."""
    if not isinstance(id, str) or not id:
        return None
    try:
        return id if len(id.encode()) <= ID_BYTES_MAX else None
    except UnicodeEncodeError:
        return None


def _event(state: SessionState, entry: Packed, payload: dict[str, Any]) -> Event:
    return Event(
        seq=state.last_seq + 1,
        id=entry.id,
        parent=entry.parent,
        type=entry.type,
        turn=entry.turn,
        key=entry.key,
        leaf=entry.leaf,
        payload=payload,
    )


def _is_deep(payload: dict[str, Any], text: bytes) -> bool:
    """Whether it nests deeper than a session takes. text: it as JSON, which mostly tells."""
    if text.count(b"{") + text.count(b"[") <= LEDGER_DEPTH_MAX:
        return False
    level: list[Any] = [payload]
    for _ in range(LEDGER_DEPTH_MAX):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True
