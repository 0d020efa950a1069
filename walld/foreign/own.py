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
from walld.foreign.entries import Draft, Imported, id_or_none, message
from walld.foreign.lines import Line, at_ms, each_line, rest, text_or_none
from walld.sessions.state.events import Event
from walld.sessions.state.session_state import SessionState
from walld.sessions.views.event_memory import shortened

__all__ = ["events_in", "read"]

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
            reading.places.is_doubtful = True
            continue
        assert line.value is not None
        if "walld" in line.value:
            version = _version(line.value["walld"])
            reading.places.given(line.value.get("last_seq"))
        else:
            reading.take(line.value)
    return reading.imported(version)


def events_in(lines: Iterable[str | bytes]) -> list[Event]:
    """What stood in a file that `read` took, whether a session would take it today or not: in its
    order, with a number left out for each hole. Of long texts the beginnings, as the gates of
    source and copy, which are compared, tell none.
    """
    places, ids, found = _Places(), set[str](), list[Event]()
    for line in each_line(lines, "walld"):
        value = line.value
        if value is not None and "walld" in value:
            places.given(value.get("last_seq"))
            continue
        id_ = None if value is None else id_or_none(value.get("id"))
        if value is not None and _is_event(value):
            places.hole_before(value.get("seq"))
            if id_ not in ids:  # of one that is too long for an id each is another
                found.append(shortened(_event(places.next_number(), value)))
        else:
            places.is_doubtful = True
        if id_ is not None:
            ids.add(id_)
    return found


def _version(found: object) -> int:
    if found != VERSION:
        raise FormatError(f"walld: version {found!r:.40} of a session file, known is {VERSION}")
    return VERSION


def _is_event(value: dict[str, Any]) -> bool:
    shape = value.get("type"), value.get("payload"), text_or_none(value.get("id"))
    return isinstance(shape[0], str) and isinstance(shape[1], dict) and shape[2] is not None


class _Places:
    """Which seqs are there. number: of the newest event, or of the hole behind it. is_doubtful:
    behind the last event came a line that is none.
    """

    def __init__(self) -> None:
        self.number = 0
        self.is_doubtful = False
        self._seq = 0
        """Of the last event, as its line has it."""
        self._until = 0
        """The highest that the file says was given."""

    def given(self, last_seq: object) -> None:
        """An export says how far its session went: it may have been cut."""
        if _is_seq(last_seq):
            self._until = max(self._until, last_seq)

    def next_number(self) -> int:
        """That of the next event."""
        self.number += 1
        return self.number

    def hole_before(self, seq: object) -> list[int] | None:
        """First and last seq that are missing before the next event. A second session in the file
        begins anew.
        """
        if not _is_seq(seq):
            seq = self._seq + 1
        hole = self._hole(seq - 1)
        self._seq, self.is_doubtful = seq, False
        return hole

    def hole_behind(self) -> list[int] | None:
        """The same behind the last one."""
        return self._hole(max(self._until, self._seq + 1 if self.is_doubtful else 0))

    def _hole(self, last_seq: int) -> list[int] | None:
        if last_seq <= self._seq:
            return None
        self.number += 1
        return [self._seq + 1, last_seq]


class _Reading:
    """The lines so far."""

    def __init__(self) -> None:
        self.draft = Draft("walld", SessionState())
        self.line = Line(0, "")
        self.places = _Places()
        self._newest: str | None = None
        self._count = 0
        self._missing: list[list[int]] = []

    def take(self, value: dict[str, Any]) -> None:
        """The next line that is an object."""
        id_ = text_or_none(value.get("id"))
        if id_ is None or not _is_event(value):
            self.draft.keep(self.line, "unknown_shape", id=id_, at_ms=at_ms(value.get("at")))
            self.places.is_doubtful = True
            return
        self._lose(self.places.hole_before(value.get("seq")))
        if id_ not in self.draft:
            self.places.next_number()
            self._count += 1
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
        self._lose(self.places.hole_behind())
        return msgspec.structs.replace(
            self.draft.imported(version),
            event_count=self._count,
            last_seq=self.places.number,
            missing=self._missing,
        )

    def _lose(self, hole: list[int] | None) -> None:
        if hole is None:
            return
        self._missing.append(hole)
        said = f"{hole[0]}\0{hole[1]}\0{self.line.text}".encode("utf-8", "surrogatepass")
        id_ = f"walld.missing.{blake2b(said, digest_size=9).hexdigest()}"
        if id_ not in self.draft:
            self.draft.add(self.line, "imported", {"missing": [hole]}, id=id_, leaf=False)


def _is_seq(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _SEQ_MAX


def _event(number: int, value: dict[str, Any]) -> Event:
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
