"""walld session import: another program's session file, or an archive, appended to a session.

Owns: what of a file goes into one request, and saying what was not understood. Refuses: formats
(`foreign/`), reading files (`import_source.py`), what is an archive's alone (`import_archive.py`),
what is too long for an entry (the client puts it beside the session).

A line that this session cannot take (it has too many small fields for an entry, or contradicts
what stands there already, be it another entry of its id) is kept as its text, like one that was not
understood: no line ends an import. Where the daemon refuses even that, the error names the file and
the line.

The same lines give the same ids and an id is appended once, so an import that was cut short, or of
a file that has grown, is simply repeated. Nobody works on the turns in it because of that. Of
walld's own lines the gate is told in the end what the session could not take of them
(`sessions/gate/imported.py`): it is no laxer here than where they came from. An `imported` entry
before the first new line and one behind the last say that it began and has ended: between them,
also where it was cut short, the gate is shut. Where the session is deleted meanwhile the import
ends, and says `begun` once more of what it had appended behind that.
"""

from __future__ import annotations

import argparse
import gc
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from io import BufferedReader
from itertools import chain
from typing import Any, TypeVar

import msgspec
from walld_client.errors import Refused
from walld_client.ids import new_entry_id
from walld_client.limits import APPEND_BYTES_MAX, PAYLOAD_BYTES_MAX
from walld_client.query.requests import decode_placed
from walld_client.session import artifacts
from walld_client.session.entries import in_pieces
from walld_client.steps import Steps
from walld_client.steps import run as run_steps
from walld_client.wire import messages as wire

from walld.cli.exit_codes import DONE, USAGE, complain
from walld.cli.session.compressed_file import unpacked
from walld.cli.session.follow import followed
from walld.cli.session.import_archive import archive_of, bring_artifacts
from walld.cli.session.import_source import copied, lines_of
from walld.cli.session_client import SessionClient
from walld.cli.show import as_json
from walld.errors import NotUnderstood, WalldError
from walld.escape import escaped_line
from walld.foreign.archive_text import Archive
from walld.foreign.detect import read
from walld.foreign.entries import Entries, Foreign, Imported, Packed, kept_line, packed
from walld.foreign.lines import line_of
from walld.foreign.order import NO_PARENTS
from walld.foreign.own import events_in
from walld.foreign.taken import misplaced, renamed, taken
from walld.sessions.gate.imported import settled_there, untold, untold_files
from walld.sessions.gate.possibly_run import as_ended, unfinished_imports
from walld.sessions.gate.turn_history import calls_of
from walld.sessions.state.entries import events_of, fitting
from walld.sessions.state.events import Event

__all__ = ["run"]

_T = TypeVar("_T")

_ENTRIES_MAX = 200
"""Of one request, which the daemon's loop takes in one step. Its payloads are half a frame at most,
so that ids have room.
"""
_OF_AN_ENTRY = frozenset(
    (
        *("bad_at", "bad_id", "bad_payload", "bad_type", "cycle", "duplicate_id", "id_length"),
        *("illegal_tool", "illegal_turn", "message_id_taken", "not_on_path", "payload_length"),
        *("unknown_parent", "unknown_target", "unknown_tool", "unknown_turn"),
    )
)
"""Codes of a refusal that say what is wrong with an entry, and not with the request."""
_LISTS = {"message_edit": "messages", "compaction": "replacement"}
"""Type -> the list of messages in it."""
_NAMED_MAX = 5
_SPOKEN = "codex.realtime_item"
"""Codex has them for its screen: to the model goes what a voice hands over, as a message."""
_ATTACHED = "claude.attachment"
"""What Claude Code says of itself, or of which the file has not what the model was given."""
_NOTES = {
    NO_PARENTS: "its lines name no parents: their order in the file was taken for the conversation",
}
_WAITS = 60
_WAIT_SECONDS = 0.5
"""A daemon whose memory for lines is full writes them to their files meanwhile."""


def run(asking: SessionClient, options: argparse.Namespace) -> int:
    """Append the file's entries. Few of its many objects are rings: nobody looks for those."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return _run(asking, options)
    finally:
        if was_on:
            gc.enable()


def _run(asking: SessionClient, options: argparse.Namespace) -> int:
    with ExitStack() as closing:
        file = closing.enter_context(open(options.file, "rb"))
        archive = archive_of(file, options.file)
        session_id: str | None = options.session or (archive and archive.session_id)
        if session_id is None:
            complain("import: --session ID is missing, and only an archive says of which it is")
            return USAGE
        if archive is not None:
            bring_artifacts(asking, session_id, archive, file, options.file)
        lines, packer = _lines(file, archive, options, closing)
        imported = _read(lines, options)
        split = _in_pieces(imported.entries)
        work = _Import(asking, session_id, options.file, imported, lines)
        if archive is None and file.seekable():
            work.check_follow(options)
        new = work.append(split)  # a line that is kept as its text is read again
        doubted = work.end(imported)
    count = len(split)
    told = {
        "session": session_id,
        "format": imported.format,
        "version": imported.version,
        "entries": count,
        "new": new,
        "not_understood": sum(work.reasons.values()),
        "reasons": dict(sorted(work.reasons.items())),
        "unknown_types": imported.unknown_types,
        "orphans": imported.orphans,
        "missing": imported.missing or imported.elsewhere,
        "doubted": doubted,
        "notes": imported.notes,
    }
    if options.json:
        print(as_json(told))
        return DONE
    line = f"{escaped_line(session_id)}: {new} entries from {imported.format}"
    if packer is not None:
        line += f" ({packer})"
    if new < count:
        line += f", {count - new} were there already"
    print(line)
    _tell_kept(work.reasons, imported)
    if orphans := imported.orphans:
        shown = ", ".join(orphans[:_NAMED_MAX]) + (", ..." if len(orphans) > _NAMED_MAX else "")
        print(
            f"  put behind the entry before: {len(orphans)} entries whose parent is not above them"
            f" ({escaped_line(shown)})"
        )
    for note in imported.notes:
        print(f"  {_NOTES[note]}")
    if imported.missing:
        shown = ", ".join(f"{first} to {last}" for first, last in imported.missing[:_NAMED_MAX])
        shown += ", ..." if len(imported.missing) > _NAMED_MAX else ""
        print(f"  missing in the file: seqs {shown}; calls before may have run, and count as such")
    for part in imported.elsewhere:
        print(f"  missing in the file: {escaped_line(_where(part))}")
    if doubted:
        print(
            f"  {doubted} calls of it may have run or wait, and no entry here says so: kept as such"
        )
    return DONE


def _lines(
    file: BufferedReader, archive: Archive | None, options: argparse.Namespace, closing: ExitStack
) -> tuple[Sequence[bytes], str | None]:
    """Of the file, and what it was compressed with."""
    if archive is not None:
        return archive.lines, None
    plain, packer = unpacked(file, options.file)
    if options.follow:
        return copied(followed(plain, options.file), closing), packer
    return lines_of(plain, options.file, closing), packer


def _read(lines: Sequence[bytes], options: argparse.Namespace) -> Imported:
    try:
        return read(lines, options.format)
    except NotUnderstood as error:
        raise NotUnderstood(f"{options.file}: {error}") from None


def _tell_kept(reasons: Mapping[str, int], imported: Imported) -> None:
    """What is among the entries as its text alone, and what was said and is in no message."""
    kept = f"kept as foreign.{imported.format}"
    types = imported.unknown_types
    for reason, count in sorted(reasons.items()):
        if reason == "unknown_type":
            count -= sum(types.values())
        if count > 0:
            print(f"  not understood: {count} lines ({escaped_line(reason)}), {kept}")
    if types:
        shown = ", ".join(f"{one} {count}" for one, count in list(types.items())[:_NAMED_MAX])
        shown += ", ..." if len(types) > _NAMED_MAX else ""
        print(f"  of types that walld does not know, {kept}: {escaped_line(shown)}")
    spoken = sum(one.type == _SPOKEN for one in imported.entries.packed)
    if spoken:
        print(f"  spoken, and in no message: {spoken} entries ({_SPOKEN})")
    attached = Counter(
        _attached_type(one.whole.payload)
        for one in imported.entries.packed
        if one.type == _ATTACHED
    )
    if attached:
        shown = ", ".join(f"{one} {count}" for one, count in attached.most_common(_NAMED_MAX))
        shown += ", ..." if len(attached) > _NAMED_MAX else ""
        print(f"  attached, and in no message: {escaped_line(shown)} ({_ATTACHED})")


def _attached_type(line: dict[str, Any]) -> str:
    held = line.get("attachment")
    kind = held.get("type") if isinstance(held, dict) else None
    return kind if isinstance(kind, str) else "of no type"


def _in_pieces(entries: Entries) -> Entries:
    split: list[Packed] = []
    for one in entries.packed:
        split += map(packed, _split(one.whole)) if one.type in _LISTS else (one,)
    return Entries(split)


def _where(part: dict[str, Any]) -> str:
    """A part that is missing, and what can be done."""
    if "ordinals" in part:
        first, last = part["ordinals"]
        much, where = f"lines {first} to {last}", "nowhere that it says"
        if "thread" in part:
            where = f"in the file of thread {part['thread']}"
    else:
        much = f"{part['messages']} messages" if "messages" in part else "the messages"
        much, where = f"{much} up to {part['until']}", f"in the file of session {part['session']}"
    is_known = "thread" in part or "session" in part
    return f"{much}, {where}" + ("; --follow takes them from beside it" if is_known else "")


def _split(one: Foreign) -> list[Foreign]:
    """An entry whose list of messages is too long for it as several that go on with the list.

    The last has its id: what hangs on it hangs on all of them.
    """
    name = _LISTS[one.type]
    listed = one.payload.get(name)
    pieces = in_pieces(listed) if isinstance(listed, list) else []
    if len(pieces) < 2:
        return [one]
    made: list[Foreign] = []
    for at, piece in enumerate(pieces):
        is_last = at == len(pieces) - 1
        payload = {name: piece, "append": True} if made else one.payload | {name: piece}
        ident = one.id if is_last else fitting(f"{one.id}:{at}")
        parent = made[-1].id if made else one.parent
        made.append(msgspec.structs.replace(one, payload=payload, id=ident, parent=parent))
    return made


_Travelling = tuple[Packed, wire.NewEntry]


class _OneAtATime:
    """Questions of two threads over the one connection, each with its answer."""

    def __init__(self, asking: SessionClient) -> None:
        self._asking = asking
        self._lock = threading.Lock()

    def ask(
        self,
        make: Callable[[int], msgspec.Struct],
        timeout: float | None = None,
        *,
        again: bool = True,
    ) -> bytes:
        with self._lock:
            return self._asking.ask(make, timeout, again=again)

    def run(self, steps: Steps[_T]) -> _T:
        return run_steps(self, steps)


class _Import:
    """The entries on their way. reasons: why lines were kept as their text, and how many."""

    def __init__(
        self,
        asking: SessionClient,
        session_id: str,
        file: str,
        imported: Imported,
        lines: Sequence[bytes],
    ) -> None:
        self._reading, self._asking = asking, _OneAtATime(asking)
        self._session_id = session_id
        self._file, self._lines = file, lines
        self._format = imported.format
        self._kind = f"foreign.{imported.format}"
        """Type of a line that is kept as its text."""
        self._names: dict[str, str] = {}
        """Of entries whose ids other words have here: what they are called."""
        self._doubles: frozenset[str] = frozenset()
        self._misplaced: frozenset[str] = frozenset()
        """Words that would be of another call here."""
        self._first = imported.entries.packed[0].id if imported.entries else ""
        self._source: list[Event] = []
        """What stood in a file of walld's own lines, where that is not what the session has now."""
        self.reasons = Counter(imported.reasons)
        self._unfinished: list[str] = []
        """Imports that this one ends: all they were to bring is in its file."""
        self._last_seq = 0
        """Of the session, as far as this import knows."""
        self._new_count = 0
        self._is_plain = not (imported.reasons or imported.orphans or imported.missing)
        """Each of walld's own lines is an entry as it stands, and its session was empty."""

    def check_follow(self, options: argparse.Namespace) -> None:
        """WalldError where an import of the file took, or left, what stands beside it, and this one
        does not: that would stand behind its own words, or those would stand there twice.
        """
        there = {event.id for event in self._events()}
        if not there or self._first in there:
            return
        turned = argparse.Namespace(**vars(options) | {"follow": not options.follow})
        with open(options.file, "rb") as file, ExitStack() as closing:
            other = _read(_lines(file, None, turned, closing)[0], turned).entries.packed
        if not other or other[0].id not in there:
            return  # an import begins with the first
        had, do = ("without", "without it") if options.follow else ("with", "with it")
        raise WalldError(
            f"session {self._session_id} has {options.file} by an import {had} --follow: import it"
            f" {do} again, or into another session (--session OTHER)"
        )

    def append(self, split: Entries) -> int:
        """How many of them were not there."""
        events = self._events()
        there = {event.id: event for event in events}
        self._last_seq = events[-1].seq if events else 0
        self._names = taken(split, self._format, there) if there else {}
        self._doubles = frozenset(self._names.values())
        if self._names:
            split = Entries(packed(renamed(one, self._names)) for one in split)
        given = {one.id: one for one in split.packed}
        # `once` would look at an entry's key and not at its id: several may have one key.
        wanted = Entries(one for name, one in given.items() if name not in there)
        self._is_plain &= not events and len(given) == len(split.packed)
        if not self._is_plain and (calls := calls_of(self._events_there())):
            self._misplaced = misplaced(wanted, events, calls)
        self.reasons.update(
            str(there[name].payload.get("reason"))
            for name, one in given.items()
            if name in there and there[name].type == self._kind != one.type
        )
        self._unfinished = [last for last in unfinished_imports(events) if last in given]
        begun: list[Packed] = []
        if wanted and (last := self._last_of(split)) not in self._unfinished:
            self._unfinished.append(last)
            begun.append(_word({"begun": last}))
        return self._sent(chain(begun, wanted.packed)) - len(begun)

    def _sent(self, wanted: Iterable[Packed]) -> int:
        """How many were new. While the daemon writes some the next are made ready."""
        new = 0
        with ThreadPoolExecutor(1) as thread:
            under_way: tuple[list[_Travelling], Future[int]] | None = None
            for piece in self._pieces(wanted):
                new += self._arrived(under_way)
                entries = [entry for _, entry in piece]
                under_way = piece, thread.submit(self._count, entries)
            return new + self._arrived(under_way)

    def _arrived(self, under_way: tuple[list[_Travelling], Future[int]] | None) -> int:
        if under_way is None:
            return 0
        piece, told = under_way
        try:
            return told.result()
        except Refused:
            return self._new(piece)

    def _last_of(self, split: Entries) -> str:
        """The last entry that the file still has where it has grown: its end may be torn now."""
        entries = split.packed
        whole = (one for one in reversed(entries) if one.type not in (self._kind, "imported"))
        return next(whole, entries[-1]).id

    def end(self, imported: Imported) -> int:
        """Tell the gate what this session could not take of its own kind of lines, and that this
        was all. How many calls it was told of.
        """
        lacks, wanted = self._untold(imported)
        wanted += [_word({"ended": last}) for last in self._unfinished]
        for piece in self._pieces(wanted):
            self._count([entry for _, entry in piece])
        return sum(map(len, lacks.values()))

    def _events_there(self) -> list[Event]:
        """Of the file, as its entries are called here."""
        if self._format == "walld" and not self._source:
            self._source = [renamed(one, self._names) for one in events_in(self._lines)]
        return self._source

    def _events(self) -> list[Event]:
        return events_of(self._reading.lines(self._session_id) or ())

    def _untold(self, imported: Imported) -> tuple[dict[str, list[Any]], list[Packed]]:
        if self._is_plain and self._last_seq == self._new_count:
            return {}, []  # it has what the source has, as that stands there, and nothing else
        source, last_seq = self._events_there(), imported.last_seq
        if not source:
            return {}, []
        events = as_ended(self._events())
        lacks = untold(source, last_seq, events)
        as_of = {"as_of": source[-1].id}
        wanted = [
            _word({name: piece} | as_of)
            for name, listed in lacks.items()
            for piece in in_pieces(listed)
        ]
        wanted += [_word(said, "observation") for said in settled_there(source, last_seq, events)]
        if (files := untold_files(source, events)) is not None:
            wanted.append(_word({"fingerprint": files}, "lifecycle"))
        return lacks, wanted

    def _pieces(self, wanted: Iterable[Packed]) -> Iterator[list[_Travelling]]:
        piece: list[_Travelling] = []
        size = 0
        for one in wanted:
            entry = self._travelling(one)
            full = size + len(entry.payload) > APPEND_BYTES_MAX // 2
            if piece and (full or len(piece) == _ENTRIES_MAX):
                yield piece
                piece, size = [], 0
            piece.append((one, entry))
            size += len(entry.payload)
        if piece:
            yield piece

    def _travelling(self, one: Packed) -> wire.NewEntry:
        if one.id in self._doubles:
            return self._kept(one, "duplicate_id")
        if one.id in self._misplaced:
            return self._kept(one, "other_call")
        try:
            return self._fitted(one)
        except ValueError:
            return self._kept(one, "too_large")

    def _fitted(self, one: Packed) -> wire.NewEntry:
        text = one.text
        if len(text) > PAYLOAD_BYTES_MAX:
            self._is_plain = False
            beside = artifacts.fitted(self._session_id, one.whole.payload, one.type)
            text = self._asking.run(beside)
        return _entry(one, text)

    def _kept(self, one: Packed, reason: str) -> wire.NewEntry:
        """The line of an entry that cannot be, in its place."""
        self.reasons[reason] += 1
        self._is_plain = False
        line = one.found or line_of(self._lines[one.number - 1], one.number)
        assert line is not None, f"line {one.number} is blank: the file changed"
        payload = kept_line(line, reason)
        leaf = one.leaf and one.type not in ("label", "leaf")
        return self._fitted(
            packed(Foreign(self._kind, payload, one.id, one.parent, at_ms=one.at_ms, leaf=leaf))
        )

    def _new(self, piece: list[_Travelling]) -> int:
        """Appended at once; where one of them is refused, one by one, that one as its text."""
        entries = [entry for _, entry in piece]
        try:
            return self._count(entries)
        except Refused as refused:
            if refused.code not in _OF_AN_ENTRY:
                raise
            if len(piece) > 1:
                return sum(self._new([one]) for one in piece)
            ((one, entry),) = piece
            if entry.type == self._kind:
                raise self._named(one, refused) from None
            reason = refused.code
        try:
            return self._count([self._kept(one, reason)])
        except Refused as refused:
            raise self._named(one, refused) from None

    def _count(self, entries: list[wire.NewEntry]) -> int:
        placed = _append(self._asking, self._session_id, entries)
        new = [one.seq for one in placed if one.is_new]
        if new and new[0] <= self._last_seq:
            raise self._deleted()
        self._last_seq = max([self._last_seq, *new])
        self._new_count += len(new)
        return len(new)

    def _deleted(self) -> WalldError:
        """Its seqs begin anew: what came before is gone, and the gate is to know it."""
        begun = [self._fitted(_word({"begun": last})) for last in self._unfinished]
        _append(self._asking, self._session_id, begun)
        return WalldError(
            f"session {self._session_id} was deleted while {self._file} was imported, and has only"
            " what came behind that: delete it and import again"
        )

    def _named(self, one: Packed, refused: Refused) -> WalldError:
        return WalldError(f"{self._file}, line {one.number} (entry {one.id}): {refused}")


def _word(payload: dict[str, Any], type_: str = "imported") -> Packed:
    """Of the import itself."""
    return packed(Foreign(type_, payload, new_entry_id(), leaf=False))


def _entry(one: Packed, payload: bytes) -> wire.NewEntry:
    return wire.NewEntry(
        one.type,
        payload,
        one.id,
        one.parent,
        one.turn,
        one.cause,
        one.correlation,
        one.key,
        one.leaf,
        once=one.key is None,
        at_ms=one.at_ms,
    )


def _append(asking: _OneAtATime, session_id: str, piece: list[wire.NewEntry]) -> list[wire.Placed]:
    """One request; it waits while the daemon has no room for lines."""

    def made(number: int) -> wire.Append:
        return wire.Append(number, session_id, piece, unowned=True)

    for _ in range(_WAITS):
        try:
            return decode_placed(asking.ask(made))
        except Refused as refused:
            if refused.code != "ledger_full":
                raise
        time.sleep(_WAIT_SECONDS)
    waited = f"{_WAITS * _WAIT_SECONDS:g} s"
    raise WalldError(f"session {session_id}: no room for {len(piece)} entries within {waited}")
