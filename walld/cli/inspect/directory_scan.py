"""Scans a whole data directory: log, partials, LOCK, and what lies beside them.

Owns: what is read, in which order, beside a daemon or without one. Refuses: locks and writing,
ever; what is said about it (`fsck.py`) and done about it (`salvage.py`); what a hole means
(`wal/verdict.py`).

Segments are read before partials, as everywhere: a daemon moves replies in that direction only.
The newest segment of a live daemon may be read in the middle of a write: where it ends in a hole it
is read again until it stands still, so that what is being written is not called torn.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from walld.cli.progress import Progress
from walld.disk.folded import FoldedDisk, looks_at_case, strays_of
from walld.disk.lock_record import (
    LOCK_BYTES,
    LOCK_NAME,
    believes_segments,
    is_lost,
    parse_lock,
    trouble_of,
)
from walld.errors import FormatError, Misplaced
from walld.ledger.names import SESSIONS_DIR
from walld.partials.store import PARTIALS_DIR, PartialStore, Stray, path_of
from walld.partials.tombstone_file import GONE_PATH, read_gone
from walld.replies.fragments import ended_later, in_parts
from walld.wal.headers import good_headers
from walld.wal.layout import (
    QUARANTINE_DIR,
    WAL_DIR,
    segment_name,
)
from walld.wal.log_identity import proven_uuid
from walld.wal.log_scan import LogScan, list_segments, not_segments
from walld.wal.records import Begin, decode_body
from walld.wal.segment_files import SegmentFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from walld.disk.base import Disk, Entry
    from walld.partials.file import PartialFacts
    from walld.wal.lost_ranges import Coverage
    from walld.wal.ranges import Range
    from walld.wal.scan import ScannedBatch

__all__ = [
    "DamagedPartial",
    "FoundPartial",
    "Lock",
    "OtherFiles",
    "beside",
    "check_directory",
    "done_with",
    "entries",
    "first_no",
    "join_parts",
    "log_of",
    "named",
    "partials",
    "scan",
    "told_first",
]

PROGRESS_BYTES_MIN = 64 * 1024 * 1024
"""A log from this size on takes long enough for a bar."""
TAIL_TRIES = 20
TAIL_WAIT_SECONDS = 0.05


@dataclass(slots=True)
class Lock:
    """Which log it is. trouble: what is wrong with LOCK; a copy may have none, that is clean.

    had_log: it says that a segment was durable once; synced_no: and a batch, as it is read;
    had_dirs: and directories.
    lost: what is said where the log that it names is gone, and another one in its place.
    unread: why what it says is not known, though it is there.
    """

    log_uuid: bytes | None
    trouble: str | None = None
    verdict: Literal["clean", "torn", "corrupt"] = "clean"
    had_log: bool = False
    synced_no: int = 0
    lost: str | None = None
    had_dirs: bool = False
    unread: str | None = None


@dataclass(slots=True)
class FoundPartial:
    """A partial that verifies. path: in the data directory."""

    path: str
    uid: int
    session_name: str
    stream_name: str
    begin: Begin
    facts: PartialFacts


@dataclass(slots=True)
class DamagedPartial:
    """A partial that does not verify, or what stands in the way of some, and why.

    path: in the data directory.
    """

    path: str
    why: str
    is_misplaced: bool = False
    """It verifies, and is another's."""


@dataclass(slots=True)
class OtherFiles:
    """Files that are neither log nor partials."""

    quarantined: int = 0
    quarantined_bytes: int = 0
    residues: int = 0
    temporary: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    """What somebody must look at: it cannot be read, or it is no segment and is called like one."""


def check_directory(disk: Disk) -> None:
    """FormatError where walld has never been: a typo, or a volume that is not mounted."""
    kinds = {entry.name: entry.kind for entry in disk.list_dir("")}
    if "dir" not in (kinds.get(WAL_DIR), kinds.get(PARTIALS_DIR)):
        text = f"holds no data of walld (neither {WAL_DIR}/ nor {PARTIALS_DIR}/ is in it)"
        raise FormatError(f"{disk.root}: {text}")


def log_of(disk: Disk) -> Lock:
    """What LOCK says; the log's uuid by its own headers where LOCK does not: without it a damaged
    header hides a segment.

    LOCK carries no checksum: which of them is believed, `believes_segments` says, as for a daemon.
    """
    ids = list_segments(disk)
    known = [header.log_uuid for header in good_headers(disk, ids)]
    if not known and (proven := proven_uuid(disk, ids)) is not None:
        known = [proven]
    told = known[0] if known else None
    try:
        raw = _raw_lock(disk)
        found, trouble = parse_lock(raw, LOCK_NAME), trouble_of(raw)
    except FileNotFoundError:
        return Lock(told, "there is no LOCK")
    except OSError as error:
        trouble = f"LOCK cannot be read: {error.strerror}"
        return Lock(told, trouble, "corrupt", unread=trouble)
    except FormatError as error:
        return Lock(told, str(error), "corrupt", unread=str(error))
    if found is None:
        return Lock(told, trouble, "torn")
    verdict: Literal["clean", "torn"] = "clean" if trouble is None else "torn"
    says = Lock(found.log_uuid, trouble, verdict, found.had_log, found.synced_no)
    says.had_dirs = found.had_dirs
    if told is None or found.log_uuid in known:
        return says
    text = f"LOCK names the log {found.log_uuid.hex()}, no segment does: {told.hex()}"
    says.trouble, says.verdict = text, "corrupt"
    if believes_segments(found.log_uuid, known):
        says.log_uuid, says.synced_no = told, 0
        says.lost = f"{text}: that log is lost" if is_lost(found, told) else None
    else:
        says.trouble += "; where that is the right one remove LOCK"
    return says


def named(disk: Disk) -> Disk:
    """The disk, its names unfolded where some may not be: LOCK says so, or is not whole."""
    try:
        found = parse_lock(_raw_lock(disk), LOCK_NAME)
    except (OSError, FormatError):
        found = None
    if found is not None and not found.is_folded:
        return disk
    is_folded = not looks_at_case(disk.root, LOCK_NAME)
    strays = strays_of(disk, is_folded=is_folded)
    return FoldedDisk(disk, is_folded=is_folded, strays=strays) if is_folded or strays else disk


def first_no(disk: Disk, log_uuid: bytes | None) -> int:
    """The first batch of that log that must be there; 0 where LOCK does not say.

    Asked behind a scan: beside a daemon a segment may go at any time, and LOCK says so before.
    """
    try:
        return told_first(disk, log_uuid)
    except (OSError, FormatError):
        return 0


def told_first(disk: Disk, log_uuid: bytes | None) -> int:
    """The same for who must know that it was read: OSError, FormatError; 0 where no LOCK is."""
    try:
        found = parse_lock(_raw_lock(disk), LOCK_NAME)
    except FileNotFoundError:
        return 0
    return found.first_no if found is not None and found.log_uuid == log_uuid else 0


def _raw_lock(disk: Disk) -> bytes:
    file = disk.open(LOCK_NAME)
    try:
        return file.read_at(LOCK_BYTES, 0)
    finally:
        file.close()


def scan(disk: Disk, log: LogScan, what: str, take: Callable[[int, ScannedBatch], None]) -> None:
    """Read the whole log, with a bar; every good batch goes to `take`."""
    sizes = {entry.name: entry.size for entry in entries(disk, WAL_DIR)}
    total, before, current = sum(sizes.values()), 0, 0
    with Progress(what, total, PROGRESS_BYTES_MIN) as bar:
        for segment_id, batch in log:
            if segment_id != current:
                before += sizes.get(segment_name(current), 0) if current else 0
                current = segment_id
            bar.reached(before + batch.offset)
            take(segment_id, batch)
    _wait_for_tail(disk, log)


def _wait_for_tail(disk: Disk, log: LogScan) -> None:
    """Read the newest segment again where it ends in a hole, until it stands still."""
    for _ in range(TAIL_TRIES):
        facts = log.segments[-1] if log.segments else None
        if facts is None or not facts.holes:
            return
        last = facts.holes[-1]
        if last.offset + last.length < facts.size or last.reason in ("unreadable", "foreign"):
            return
        time.sleep(TAIL_WAIT_SECONDS)
        try:
            file = disk.open(SegmentFiles.path(facts.segment_id))
        except OSError:
            return
        try:
            again = log.scan(file, facts.segment_id)
            for _ in again:
                pass
        finally:
            file.close()
        if again.facts == facts:
            return
        log.segments[-1] = again.facts


def join_parts(
    coverage: Coverage, read: Callable[[int, int, int], bytes], kept: Mapping[int, Begin]
) -> dict[int, dict[int, Begin]]:
    """Find the replies that stand under several numbers, and make each one stream of `coverage`;
    what has ended under a later number is done with.

    Last number -> Begins of all. read: (segment, offset, length): bytes. kept: Begins of partials.
    """
    begins = _begins(coverage.begins, read)
    for no in ended_later({**kept, **begins}, _begins(coverage.ended, read)):
        coverage.done_with(no)
    begins = {no: begin for no, begin in begins.items() if no not in coverage.dead}
    kept = {no: begin for no, begin in kept.items() if no not in coverage.dead}
    found = {}
    for numbers in in_parts(begins, kept):
        coverage.join(numbers)
        found[numbers[-1]] = {no: begins.get(no) or kept[no] for no in numbers}
    return found


def _begins(
    places: Mapping[int, tuple[int, int, int]], read: Callable[[int, int, int], bytes]
) -> dict[int, Begin]:
    found: dict[int, Begin] = {}
    for no, place in places.items():
        try:
            items = decode_body(no, read(*place))
        except (OSError, FormatError):
            continue  # it is met again by whoever takes the stream
        for item in items:
            if isinstance(item, Begin):
                found[no] = item
    return found


def partials(disk: Disk) -> Iterator[FoundPartial | DamagedPartial]:
    """Every partial, read whole, one at a time; or what is wrong with it."""
    store, strays = PartialStore(disk), list[Stray]()
    try:
        tree = store.tree(strays)
    except OSError as error:
        yield DamagedPartial(PARTIALS_DIR, f"cannot be read: {error.strerror}")
        return
    for uid, sessions in tree.items():
        for session_name, stream_names in sessions.items():
            for stream_name in stream_names:
                path = path_of(uid, session_name, stream_name)
                try:
                    partial, items = store.read_reply(uid, session_name, stream_name)
                except FileNotFoundError:
                    continue  # resolved since it was listed
                except FormatError as error:
                    why = str(error).removeprefix(f"{path}: ")
                    yield DamagedPartial(path, why, isinstance(error, Misplaced))
                    continue
                except OSError as error:
                    yield DamagedPartial(path, f"cannot be read: {error.strerror}")
                    continue
                begin = items[0]
                assert isinstance(begin, Begin), path
                yield FoundPartial(path, uid, session_name, stream_name, begin, partial.facts)
    for stray in strays:
        yield DamagedPartial(
            stray.path, f"cannot be read: {stray.why}" if stray.may_pass else stray.why
        )


def done_with(disk: Disk, log_uuid: bytes | None) -> tuple[list[Range], str | None]:
    """Numbers of streams that are done with, beside their tombstones; why that is not known."""
    try:
        return read_gone(disk, log_uuid), None
    except (OSError, FormatError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        return [], f"{GONE_PATH}: {why}: what was resolved may be among what is there"


def beside(disk: Disk) -> OtherFiles:
    """What else lies there."""
    found = OtherFiles()
    for folder in (QUARANTINE_DIR, SESSIONS_DIR):
        try:
            disk.list_dir(folder)
        except OSError as error:
            found.trouble.append(f"{folder}/ cannot be read: {error.strerror}")
    for entry in entries(disk, QUARANTINE_DIR):
        if not _is_temporary(entry.name):
            found.quarantined += not entry.name.endswith(".note")
            found.quarantined_bytes += entry.size
    _, trouble = done_with(disk, None)
    found.trouble += [trouble] if trouble is not None else []
    found.residues = sum(one.name.endswith(".residue") for one in entries(disk, WAL_DIR))
    found.trouble += [f"{path}: is no segment, and nobody reads it" for path in not_segments(disk)]
    folders = ["", WAL_DIR, QUARANTINE_DIR, PARTIALS_DIR]
    for depth in (1, 2):
        folders += [
            f"{folder}/{entry.name}"
            for folder in folders
            if folder.startswith(PARTIALS_DIR) and folder.count("/") == depth - 1
            for entry in entries(disk, folder)
            if entry.kind == "dir"
        ]
    for folder in folders:
        names = [entry.name for entry in entries(disk, folder) if entry.kind == "file"]
        at = f"{folder}/" if folder else ""
        found.temporary += [at + name for name in names if _is_temporary(name)]
    return found


def entries(disk: Disk, folder: str) -> list[Entry]:
    """What is in a directory; nothing of one that cannot be read, which is told of elsewhere."""
    try:
        return disk.list_dir(folder)
    except OSError:
        return []


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")
