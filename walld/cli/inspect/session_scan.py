"""Scans the sessions of a data directory: files, artifacts, lines in the log.

Owns: what is read of them. Refuses: locks and writing, ever; lines of the log (`log_lines.py`),
what is said about it (`fsck.py`) and done about it (`session_salvage.py`). Of a snapshot is taken
how far the file went when it was written; what else is in it is made of the events.

A line is in the log until it is in its session's file, durably, so what a file misses or has not
whole behind that is no damage while the log has it. Beside a daemon a file may be read in the
middle of a write: where it ends in no line it is read again until it stands still. And a session
may be deleted between a look at the log and one at its files: what is not whole is looked at again,
the log first, until that stands still (`steady`).
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from walld_client.paths import path_name

from walld.cli.inspect import directory_scan
from walld.errors import FormatError, NewerVersion
from walld.ledger.append_position import first_header
from walld.ledger.artifacts import ArtifactStore
from walld.ledger.intents import DELETE, Intent
from walld.ledger.line import chain_of, chain_text, line_chain, line_seq, read_line
from walld.ledger.names import ARTIFACTS_DIR, EVENTS_FILE, SESSIONS_DIR, is_temporary
from walld.ledger.scan import Break, Reading
from walld.ledger.snapshot import SnapshotStore
from walld.ledger.store import LedgerStore
from walld.sessions.state.artifacts import artifacts_of

if TYPE_CHECKING:
    from walld.cli.inspect.log_lines import Key, LogLines
    from walld.disk.base import Disk
    from walld.ledger.listing import SessionRow
    from walld.ledger.pending import Joined, Pending
    from walld.wal.records import Begin

__all__ = ["SessionFound", "has_lines", "let_go", "sessions", "steady", "temporary"]

_NAMES: Final = re.compile(rb'"(?:sha256|_artifact)"')


@dataclass(slots=True)
class SessionFound:
    """One session. state: clean | torn | corrupt. events: lines in its file. pending: in the log.

    cut: lines of the log that a start would leave out, behind a torn place. breaks: what is missing
    and in the log neither. trouble: why it cannot be read, or whose it is. artifacts_damaged: named
    by an event and missing, or changed. lines: of the file; from_log: of the log alone.
    """

    uid: int
    session_id: str | None
    path: str
    state: str = "clean"
    events: int = 0
    last_seq: int = 0
    pending: int = 0
    cut: int = 0
    torn_bytes: int = 0
    breaks: list[dict[str, Any]] = field(default_factory=list)
    artifacts: int = 0
    artifacts_damaged: list[dict[str, str]] = field(default_factory=list)
    trouble: str | None = None
    lines: list[bytes] = field(default_factory=list, repr=False)
    from_log: list[bytes] = field(default_factory=list, repr=False)
    newer: bool = False
    proven: int = 0


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


def steady(disk: Disk, log: LogLines, again: Callable[[], LogLines]) -> Iterator[SessionFound]:
    """The same as `sessions`, without their lines; each that is not whole was so when it and the
    log were looked at again, too: what is wrong with it, not how far it has got meanwhile.
    again: what the log has by then.
    """
    hurt: dict[str, SessionFound] = {}
    for tries in range(directory_scan.TAIL_TRIES):
        only = hurt.keys() if tries else None
        before, hurt = hurt, {}
        for found in sessions(disk, again() if tries else log, only):
            found.lines, found.from_log = [], []
            if found.state == "clean" or _same_hurt(found, before.get(found.path)):
                yield found
            else:
                hurt[found.path] = found
        if not hurt:
            return
        time.sleep(directory_scan.TAIL_WAIT_SECONDS)
    yield from hurt.values()


def _same_hurt(found: SessionFound, before: SessionFound | None) -> bool:
    """Also where a daemon has written to it between the two looks: else each would need another."""
    if before is None:
        return False
    hurts = [
        (
            *(one.state, one.session_id, one.trouble, one.torn_bytes, one.cut),
            *(one.breaks, one.artifacts_damaged),
        )
        for one in (found, before)
    ]
    return hurts[0] == hurts[1]


def sessions(
    disk: Disk, log: LogLines, only: Container[str] | None = None
) -> Iterator[SessionFound]:
    """Every session that has a file or lines in the log, but for those whose delete has begun.

    only: paths; others are passed over.
    """
    met: set[Key] = set()
    store = LedgerStore(disk)
    for row in _rows(store):
        path = f"{SESSIONS_DIR}/{row.uid}"
        if row.session_name:
            path += f"/{row.session_name}/{EVENTS_FILE}"
        if only is not None and path not in only:
            continue
        found = SessionFound(row.uid, row.session_id, path, trouble=row.trouble or None)
        if found.session_id is None:
            _name(disk, found, row.session_name, log.keys())
        if found.session_id is not None:
            met.add((row.uid, found.session_id))
            try:
                _read(disk, store, found, log)
            except FileNotFoundError:
                covers = SnapshotStore(disk).covers(row.uid, found.session_id)
                if not covers:
                    continue  # deleted since it was listed
                found.proven = covers
                _add_log(disk, found, log.joined((row.uid, found.session_id), 0, covers), covers)
        if not _is_going(store, found):
            yield found
    for uid, session_id in log.keys() - met:
        path = f"{SESSIONS_DIR}/{uid}/{path_name(session_id)}/{EVENTS_FILE}"
        if only is not None and path not in only:
            continue
        found = SessionFound(uid, session_id, path)
        _add_log(disk, found, log.joined((uid, session_id), 0), 0)
        if (found.pending or found.cut) and not _is_going(store, found):
            yield found


def _is_going(store: LedgerStore, found: SessionFound) -> bool:
    """Its delete has begun, and ends with the next start if with no daemon before."""
    whose = (found.uid, found.session_id)
    return any(one.erase and one.key == whose for one in _deletes(store))


def let_go(disk: Disk, log: LogLines, log_uuid: bytes | None) -> None:
    """Leave out lines of sessions whose files a delete has taken: the log is yet to let go of them,
    and the next start has it do so. Before the sessions are looked at.
    """
    for note in _deletes(LedgerStore(disk)):
        if log_uuid is not None and note.log == log_uuid.hex():
            log.done_with(note.key, note.until_no)


def _deletes(store: LedgerStore) -> list[Intent]:
    """Those that have begun. Where it cannot be read which, none: salvage tells of it."""
    try:
        notes = list(store.intents.notes())
    except OSError:
        return []
    return [one for one in notes if isinstance(one, Intent) and one.what == DELETE]


def _rows(store: LedgerStore) -> Iterator[SessionRow]:
    """None where the directory of all cannot be read, which `directory_scan.beside` tells of."""
    try:
        yield from store.tree()
    except OSError:
        return


def _name(disk: Disk, found: SessionFound, name: str, in_log: Iterable[Key]) -> None:
    """Whose file it is where its header does not say: by its name, or by lines of the log."""
    found.state = "corrupt"
    try:
        file = disk.open(found.path)
        try:
            first_header(file)
        finally:
            file.close()
    except NewerVersion:
        found.newer = True
        return
    except (OSError, FormatError):
        pass
    ids = [session_id for uid, session_id in in_log if uid == found.uid]
    ids += [name]
    found.session_id = next((one for one in ids if path_name(one) == name), None)


def _read(disk: Disk, store: LedgerStore, found: SessionFound, log: LogLines) -> None:
    assert found.session_id is not None
    # Before the file is: beside a daemon that is then at least as long.
    covers = SnapshotStore(disk).covers(found.uid, found.session_id)
    key = (found.uid, found.session_id)
    try:
        for _ in range(directory_scan.TAIL_TRIES):
            reading = store.read(*key)
            found.torn_bytes, torn = reading.torn_bytes, found.torn_bytes
            if not reading.torn_bytes or torn == reading.torn_bytes:
                break
            time.sleep(directory_scan.TAIL_WAIT_SECONDS)
        found.proven = store.proven(*key, covers)
        last_seq = line_seq(reading.lines[-1]) if reading.lines else 0
        joined = log.joined(key, last_seq, found.proven)
        if joined.kept:
            first = joined.kept[0]
            before = store.read(*key, until=first.seq - 1, pending=first)
        elif found.proven > last_seq:
            before = store.read(*key, until=found.proven)
        else:
            before = reading
    except FileNotFoundError:
        raise
    except (OSError, FormatError) as error:
        found.state, found.trouble = "corrupt", str(error)
        found.proven = max(found.proven, covers)
        _add_log(disk, found, log.joined(key, 0, sys.maxsize), 0)
        return
    found.events, found.lines = len(reading.lines), before.lines
    found.breaks = [_as_told(one) for one in before.breaks]
    if reading.torn_bytes or reading.breaks:  # a power cut left holes where the log has the lines
        found.state = "torn"
    if joined.kept:
        _add_behind(found, reading, joined.kept)
    if found.breaks:
        found.state = "corrupt"
    _add_log(disk, found, joined, covers, reading.size)


def _add_behind(found: SessionFound, reading: Reading, kept: list[Pending]) -> None:
    """From the first line of the log on, of which the file may have half: what it has of them, and
    others, but for what gives way to them (`append_position.py`): of two lines of a seq that of the
    log is the session's.
    """
    own = {one.seq: one.line for one in kept}
    next_strange = b""
    for line in reading.lines:
        seq = line_seq(line)
        if seq < kept[0].seq:
            continue
        if own.get(seq, line) == line and line_chain(line) != next_strange:
            found.lines.append(line)
            continue
        next_strange = chain_text(chain_of(line))
        found.breaks.append(_as_told(Break(reading.size, seq, seq - 1, "order")))
    for one in reading.breaks:
        behind = max(one.first_seq, kept[-1].seq + 1)
        if behind <= one.last_seq:
            found.breaks.append(_as_told(one._replace(first_seq=behind)))
        elif one.why == "order" and one.first_seq >= kept[0].seq:
            found.breaks.append(_as_told(one))


def _add_log(
    disk: Disk, found: SessionFound, joined: Joined, covers: int, size: int | None = None
) -> None:
    """What the log has beyond the file, of that size; None: there is none, or none to be read.

    covers: up to there lines were in the file.
    """
    kept, found.cut = joined.kept, len(joined.cut)
    if found.cut:
        found.state = _worst(found.state, "torn")
    has = set(found.lines)
    found.from_log = [one.line for one in kept if one.line not in has]
    found.pending = len(found.from_log)
    lines = sorted(map(line_seq, (*found.lines, *found.from_log)))
    found.last_seq = lines[-1] if lines else 0
    if kept or size is None:
        # A reading of the file has told what it misses before the first of the log, and behind all.
        told, until = (kept[0].seq - 1, kept[-1].seq) if size is not None else (0, found.last_seq)
        gaps = list(pairwise([told, *(seq for seq in lines if told < seq <= until)]))
        for last_seq, seq in [*gaps, (found.last_seq, covers + 1)]:
            if seq > last_seq + 1:
                found.breaks.append(_as_told(Break(size or 0, last_seq + 1, seq - 1, "missing")))
                found.state = "corrupt"
    _named(disk, found, [*found.lines, *found.from_log])


def _worst(*states: str) -> str:
    return max(states, key=("clean", "torn", "corrupt").index)


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
        for entry in directory_scan.entries(disk, folder):
            path = f"{folder}/{entry.name}"
            if entry.kind == "dir" and (folder.count("/") < 2 or entry.name == ARTIFACTS_DIR):
                folders.append(path)
            elif entry.kind == "file" and is_temporary(entry.name):
                yield path
