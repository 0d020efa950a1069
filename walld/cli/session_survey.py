"""Sessions of a data directory looked at: their files, their artifacts, their lines in the log.

Owns: what is read of them, and which lines of the log are a session's. Refuses: locks and writing,
ever; what is said about it (`fsck.py`) and done about it (`session_salvage.py`). Snapshots are not
looked at: they are made of the events, and thrown away where they do not fit.

A line is in the log until it is in its session's file, durably, so what a file misses or has not
whole behind that is no damage while the log has it. Beside a daemon a file may be read in the
middle of a write: where it ends in no line it is read again until it stands still.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from walld_client.paths import path_name
from walld_client.wire import messages as wire

from walld.cli import survey
from walld.errors import FormatError, NewerVersion
from walld.ledger.artifacts import ArtifactStore
from walld.ledger.line import line_seq, read_header, read_line
from walld.ledger.names import ARTIFACTS_DIR, EVENTS_FILE, SESSIONS_DIR, is_temporary
from walld.ledger.scan import Break
from walld.ledger.store import LedgerStore
from walld.sessions.artifacts import artifacts_of
from walld.wal.layout import Flag
from walld.wal.records import Begin, Happened, decode_body

if TYPE_CHECKING:
    from walld.disk.base import Disk
    from walld.wal.records import Item
    from walld.wal.scan import ScannedBatch

__all__ = ["LogLines", "SessionFound", "has_lines", "lines_in", "sessions", "temporary"]

_LINE: Final = b"line"
_NAMES: Final = re.compile(rb'"(?:sha256|_artifact)"')
_HEADER_BYTES: Final = 16 * 1024
Key = tuple[int, str]
"""Uid and session id."""


def lines_in(items: list[Item], begin: Begin) -> dict[int, bytes]:
    """The lines in the items of an internal stream, whole ones, by the ledger's seq."""
    found = {}
    for seq, line in _lines(items):
        if line_seq(line) == seq + begin.number:
            found[seq + begin.number] = line
    return found


def _lines(items: list[Item]) -> Iterator[tuple[int, bytes]]:
    for item in items:
        event = item.event if isinstance(item, Happened) else None
        if isinstance(event, wire.Custom) and event.kind == "line":
            yield event.seq, bytes(event.payload)


class LogLines:
    """Lines in the log that no tombstone covers. Feed it each good batch.

    Memory: those lines, which a daemon holds below `ledger_bytes_max`.
    """

    def __init__(self) -> None:
        self._begins: dict[int, Begin] = {}
        self._items: dict[int, list[Item]] = {}
        self._dead: set[int] = set()

    def take(self, _segment_id: int, batch: ScannedBatch) -> None:
        """One good batch."""
        for record in batch.records:
            no = record.stream_no
            if record.flags & (Flag.RELEASED | Flag.RESOLVED):
                self._dead.add(no)
                self._items.pop(no, None)
                self._begins.pop(no, None)
            if no in self._dead or not record.body_bytes:
                continue
            body = batch.body(record.offset, record.body_bytes)
            if not record.flags & Flag.BEGIN and _LINE not in bytes(body):
                continue
            try:
                items = decode_body(no, body)
            except FormatError:
                continue
            begin = next((item for item in items if isinstance(item, Begin)), None)
            if begin is not None and not begin.producer:
                self._begins[no] = begin
            # A record that was carried may stand before its Begin.
            if held := [item for item in items if next(_lines([item]), None)]:
                self._items.setdefault(no, []).extend(held)

    def by_session(self) -> dict[Key, dict[int, bytes]]:
        """Seq -> line, of each session."""
        found: dict[Key, dict[int, bytes]] = {}
        for no, begin in self._begins.items():
            lines = found.setdefault((begin.uid, begin.session_id), {})
            lines.update(lines_in(self._items.get(no, []), begin))
        return found


@dataclass(slots=True)
class SessionFound:
    """One session. state: clean | torn | corrupt. events: lines in its file. pending: in the log.

    breaks: what is missing and in the log neither. trouble: why it cannot be read, or whose it is.
    artifacts_damaged: named by an event and missing, or changed. lines: of the file, in order.
    """

    uid: int
    session_id: str | None
    path: str
    state: str = "clean"
    events: int = 0
    last_seq: int = 0
    pending: int = 0
    torn_bytes: int = 0
    breaks: list[dict[str, Any]] = field(default_factory=list)
    artifacts: int = 0
    artifacts_damaged: list[dict[str, str]] = field(default_factory=list)
    trouble: str | None = None
    lines: list[bytes] = field(default_factory=list, repr=False)
    newer: bool = False


def has_lines(found: list[SessionFound], begin: Begin, first_seq: int, last_seq: int) -> bool:
    """What the log lost of an internal stream is in the session's file, or elsewhere in the log."""
    if begin.producer:
        return False
    first_seq, last_seq = first_seq + begin.number, last_seq + begin.number
    return any(
        (one.uid, one.session_id) == (begin.uid, begin.session_id)
        and last_seq <= one.last_seq
        and all(last_seq < cut["first_seq"] or cut["last_seq"] < first_seq for cut in one.breaks)
        for one in found
    )


def sessions(disk: Disk, in_log: dict[Key, dict[int, bytes]]) -> Iterator[SessionFound]:
    """Every session that has a file or lines in the log."""
    met = set()
    store = LedgerStore(disk)
    for row in store.tree():
        path = f"{SESSIONS_DIR}/{row.uid}/{row.session_name}/{EVENTS_FILE}"
        found = SessionFound(row.uid, row.session_id, path, trouble=row.trouble or None)
        if found.session_id is None:
            _name(disk, found, row.session_name, in_log)
        if found.session_id is not None:
            met.add((row.uid, found.session_id))
            try:
                _read(disk, store, found, in_log.get((row.uid, found.session_id), {}))
            except FileNotFoundError:
                continue  # deleted since it was listed
        yield found
    for (uid, session_id), lines in in_log.items():
        if (uid, session_id) not in met and lines:
            path = f"{SESSIONS_DIR}/{uid}/{path_name(session_id)}/{EVENTS_FILE}"
            found = SessionFound(uid, session_id, path, pending=len(lines), last_seq=max(lines))
            _named(disk, found, [lines[seq] for seq in sorted(lines)])
            yield found


def _name(disk: Disk, found: SessionFound, name: str, in_log: dict[Key, dict[int, bytes]]) -> None:
    """Whose file it is where its header does not say: by its name, or by lines of the log."""
    found.state = "corrupt"
    try:
        file = disk.open(found.path)
        try:
            first = file.read_at(_HEADER_BYTES, 0)
        finally:
            file.close()
        read_header(first[: first.find(b"\n") + 1], found.path)
    except NewerVersion:
        found.newer = True
        return
    except (OSError, FormatError):
        pass
    ids = [session_id for uid, session_id in in_log if uid == found.uid]
    ids += [name]
    found.session_id = next((one for one in ids if path_name(one) == name), None)


def _read(disk: Disk, store: LedgerStore, found: SessionFound, pending: dict[int, bytes]) -> None:
    assert found.session_id is not None
    try:
        for _ in range(survey.TAIL_TRIES):
            reading = store.read(found.uid, found.session_id)
            found.torn_bytes, torn = reading.torn_bytes, found.torn_bytes
            if not reading.torn_bytes or torn == reading.torn_bytes:
                break
            time.sleep(survey.TAIL_WAIT_SECONDS)
    except FileNotFoundError:
        raise
    except (OSError, FormatError) as error:
        found.state, found.trouble = "corrupt", str(error)
        return
    found.lines = reading.lines
    found.events = len(reading.lines)
    has = {line_seq(line) for line in reading.lines}
    found.pending = len(pending.keys() - has)
    found.last_seq = max(has | pending.keys(), default=0)
    worst = ["clean", "torn" if reading.torn_bytes else "clean", found.state]
    for one in reading.breaks:
        missing = range(one.first_seq, one.last_seq + 1)
        if one.why in ("damaged", "missing") and missing and all(seq in pending for seq in missing):
            worst.append("torn")  # a power cut left holes where the log still has the lines
            continue
        found.breaks.append(_as_told(one))
        worst.append("corrupt")
    behind = max(has, default=0) + 1
    for seq in sorted(seq for seq in pending if seq >= behind):
        if seq > behind:
            found.breaks.append(_as_told(Break(reading.size, behind, seq - 1, "missing")))
            worst.append("corrupt")
        behind = seq + 1
    found.state = max(worst, key=("clean", "torn", "corrupt").index)
    _named(disk, found, [*reading.lines, *(pending[seq] for seq in sorted(pending))])


def _as_told(one: Break) -> dict[str, Any]:
    return {
        "offset": one.offset,
        "first_seq": one.first_seq,
        "last_seq": one.last_seq,
        "why": one.why,
    }


def _named(disk: Disk, found: SessionFound, lines: list[bytes]) -> None:
    """Look at every artifact that a line names."""
    assert found.session_id is not None
    store = ArtifactStore(disk)
    digests: dict[str, None] = {}
    for line in lines:
        if _NAMES.search(line):
            digests |= dict.fromkeys(_digests(line))
    for digest in digests:
        try:
            store.read(found.uid, found.session_id, bytes.fromhex(digest))
        except FileNotFoundError:
            found.artifacts_damaged.append({"sha256": digest, "why": "missing"})
        except (OSError, FormatError) as error:
            why = "changed" if isinstance(error, FormatError) else str(error)
            found.artifacts_damaged.append({"sha256": digest, "why": why})
    found.artifacts = len(digests)
    if found.artifacts_damaged:
        found.state = "corrupt"


def _digests(line: bytes) -> Iterator[str]:
    """Artifacts that one event names: itself, what it was sent with, what stands for content."""
    try:
        read = read_line(line)
        payload = json.loads(read.payload)
    except (FormatError, ValueError, RecursionError):
        return
    for digest, _ in artifacts_of(read.type, payload):
        yield digest


def temporary(disk: Disk) -> Iterator[str]:
    """Files that were never finished."""
    folders = [SESSIONS_DIR]
    for folder in folders:
        for entry in disk.list_dir(folder):
            path = f"{folder}/{entry.name}"
            if entry.kind == "dir" and (folder.count("/") < 2 or entry.name == ARTIFACTS_DIR):
                folders.append(path)
            elif entry.kind == "file" and is_temporary(entry.name):
                yield path
