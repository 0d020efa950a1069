"""walld's own lines: what `walld session export` gives, or a session's file with its header.

Owns: an entry for each line, and one for each hole between them. Refuses: the chain and the crc,
which say what was in another session and are made anew; opening files.

Ids, parents and times stay. The turns in it belong to nobody until somebody advances them.

Invariant: what the file lost is not lost in silence. Where a parent is gone, an entry hangs on the
one before it, as in the session itself; where seqs are missing, or lines at the end are none, an
`imported` entry names them in their place, so that calls before it count as calls that may have
run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final, TypeGuard

import msgspec

from walld.errors import FormatError
from walld.foreign.entries import Draft, Imported, message
from walld.foreign.lines import Line, at_ms, each_line, rest, text_or_none
from walld.sessions.state.events import Event
from walld.sessions.state.session_state import SessionState

__all__ = ["read"]

VERSION: Final = 1
_LINKS: Final = ("turn", "cause", "correlation", "key")
_SEQ_MAX: Final = 2**32 - 1


def read(lines: Iterable[str | bytes]) -> Imported:
    """FormatError where a later walld wrote it."""
    reading = _Reading()
    version = None
    for line in each_line(lines, "walld"):
        reading.line = line
        if reading.draft.damaged(line):
            reading.is_doubtful = True
            continue
        assert line.value is not None
        if "walld" in line.value:
            version = _version(line.value["walld"])
            reading.given(line.value.get("last_seq"))
        else:
            reading.take(line.value)
    return reading.imported(version)


def _version(found: object) -> int:
    if found != VERSION:
        raise FormatError(f"walld: version {found!r:.40} of a session file, known is {VERSION}")
    return VERSION


class _Reading:
    """The lines so far. is_doubtful: behind the last event came a line that is none."""

    def __init__(self) -> None:
        self.draft = Draft("walld", SessionState())
        self.line = Line(0, "")
        self.is_doubtful = False
        self._newest: str | None = None
        self._seq = 0
        """Of the last event, as its line has it."""
        self._until = 0
        """The highest that the file says was given."""
        self._events: list[Event] = []
        self._number = 0
        """Of the newest of `_events`, or of the hole behind it."""
        self._missing: list[list[int]] = []

    def given(self, last_seq: object) -> None:
        """An export says how far its session went: it may have been cut."""
        if _is_seq(last_seq):
            self._until = max(self._until, last_seq)

    def take(self, value: dict[str, Any]) -> None:
        """The next line that is an object."""
        type_, payload, id_ = value.get("type"), value.get("payload"), text_or_none(value.get("id"))
        if not isinstance(type_, str) or not isinstance(payload, dict) or id_ is None:
            self.draft.keep(self.line, "unknown_shape", id=id_, at_ms=at_ms(value.get("at")))
            self.is_doubtful = True
            return
        self._count(value.get("seq"))
        if id_ not in self.draft:
            self._number += 1
            self._events.append(_event(self._number, value))
        parent = text_or_none(value.get("parent"))
        is_lost = parent is not None and parent not in self.draft
        if is_lost:
            parent = self._newest
        if self._missing and _keeps_what_is_lost(value, self.draft):
            value = value | {"payload": _replacing(value["payload"])}
        self._newest = _add(self.draft, self.line, value, parent, is_lost=is_lost)
        if is_lost:
            self.draft.orphans.append(self._newest)

    def imported(self, version: int | None) -> Imported:
        """What came of it."""
        until = max(self._until, self._seq + 1 if self.is_doubtful else 0)
        if until > self._seq:
            self._lose(self._seq + 1, until)
        return msgspec.structs.replace(
            self.draft.imported(version),
            events=self._events,
            last_seq=self._number,
            missing=self._missing,
        )

    def _count(self, seq: object) -> None:
        """What is missing before the next event. A second session in the file begins anew."""
        if not _is_seq(seq):
            seq = self._seq + 1
        if seq > self._seq + 1:
            self._lose(self._seq + 1, seq - 1)
        self._seq, self.is_doubtful = seq, False

    def _lose(self, first_seq: int, last_seq: int) -> None:
        self._number += 1
        self._missing.append([first_seq, last_seq])
        said = f"{first_seq}\0{last_seq}\0{self.line.text}".encode("utf-8", "surrogatepass")
        id_ = f"walld.missing.{blake2b(said, digest_size=9).hexdigest()}"
        if id_ not in self.draft:
            payload = {"missing": [[first_seq, last_seq]]}
            self.draft.add(self.line, "imported", payload, id=id_, leaf=False)


def _is_seq(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _SEQ_MAX


def _event(number: int, value: dict[str, Any]) -> Event:
    """What the line says, whether a session would take it today or not."""
    links: dict[str, Any] = {name: text_or_none(value.get(name)) for name in _LINKS}
    return Event(
        seq=number,
        id=value["id"],
        parent=text_or_none(value.get("parent")),
        at_ms=at_ms(value.get("at")),
        type=value["type"],
        leaf=value.get("leaf") is not False,
        payload=value["payload"],
        **links,
    )


def _keeps_what_is_lost(value: dict[str, Any], draft: Draft) -> bool:
    """A compaction from an entry on that damage took: in its session it keeps nothing then."""
    kept = value["payload"].get("first_kept")
    return value["type"] == "compaction" and isinstance(kept, str) and kept not in draft


def _replacing(payload: dict[str, Any]) -> dict[str, Any]:
    """The compaction that kept nothing."""
    return {"replacement": [message("user", payload.get("summary"))]} | rest(payload, "first_kept")


def _add(
    draft: Draft, line: Line, value: dict[str, Any], parent: str | None, *, is_lost: bool
) -> str:
    """The line as an entry below `parent`; its id. is_lost: that is not the one it names."""
    type_, payload, id_, at = value["type"], value["payload"], value["id"], at_ms(value.get("at"))
    target = payload.get("target")
    links = {name: text_or_none(value.get(name)) for name in _LINKS}
    if type_ == "leaf" and (target is None or (isinstance(target, str) and target in draft)):
        return draft.move_leaf(line, target, id=id_, parent=parent, at_ms=at, more=payload, **links)
    if type_ == "turn_submitted" and isinstance(payload.get("content"), (bool, int, float)):
        payload = payload | {"content": json.dumps(payload["content"])}  # an older walld took it
    kept = payload.get("first_kept")
    is_known = type_ == "compaction" and isinstance(kept, str) and kept in draft
    # An older walld took one of another branch: it kept nothing.
    if is_known and not draft.above(str(kept), parent or draft.leaf):
        payload = _replacing(payload)
    is_leaf = value.get("leaf") is not False
    is_root = parent is None and not is_lost and bool(draft.entries)
    return draft.add(
        line, type_, payload, id=id_, parent=parent, root=is_root, at_ms=at, leaf=is_leaf, **links
    )
