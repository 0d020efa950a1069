"""Quarantine: copies damaged bytes aside and reports what they cost.

Owns: copies and notes in quarantine/, how long they speak against "nothing there" (P11), and which
seqs of which stream damage to synced batches has cost.
Refuses: what is damage (`wal/verdict.py`), how a reply with a gap is served.

Invariants
- K4 Nothing damaged goes or is skipped in silence (P9): its bytes are copied before their segment
  goes, and where no bytes are left a note says which batches were there; what it cost is said by
  stream and seqs, and is `lost_acked` to who was told of a sync.
- K5 Whoever reads a directory is told the same of it: a daemon, and the command line without one
  (`coverage_of`, `gap_word`, `tails_lost`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from walld.disk.lock_record import LOCK_NAME
from walld.disk.reserve import RESERVE_NAME
from walld.ledger.names import SESSIONS_DIR
from walld.partials.store import PARTIALS_DIR
from walld.recovery.other_logs import is_row
from walld.wal.layout import QUARANTINE_DIR, SEGMENT_HEADER_BYTES, WAL_DIR
from walld.wal.log_identity import is_there
from walld.wal.log_scan import LogScan, list_segments, not_segments
from walld.wal.lost_ranges import Coverage
from walld.wal.partial_batch import doubtful_at
from walld.wal.ranges import merged
from walld.wal.segment_files import SegmentFiles, has_copies
from walld.wal.verdict import CORRUPT, TORN

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from walld.disk.base import Disk
    from walld.partials.file import PartialFacts
    from walld.wal.partial_batch import Claim
    from walld.wal.ranges import Range
    from walld.wal.scan_report import SegmentFacts
    from walld.wal.verdict import Damage, Verdict

__all__ = [
    "AWAY",
    "coverage_of",
    "dirs_gone",
    "displaced",
    "gap_word",
    "is_cut",
    "is_spoiled",
    "keep",
    "kept_aside",
    "log_is_gone",
    "log_may_be_gone",
    "lost_to_power",
    "make_dirs",
    "missed",
    "note_gone",
    "rename_residue",
    "report",
    "strays",
    "streams_lost",
    "tails_lost",
]

AWAY = f"{QUARANTINE_DIR}.away"
"""What is to be in quarantine/ once that is made."""
_log = logging.getLogger("walld.recovery")
_SAID_MAX = 100
"""Streams named in the log; `walld fsck` names all."""


def report(files: SegmentFiles, verdict: Verdict) -> set[int]:
    """Say what is damaged, and copy it out of segments that will be unlinked in their turn.

    Returns the segments where that failed: they must be set aside whole (K4). 0: of batches that
    stood in none. What failed gets no settled row yet: a note is tried again
    (`deferred_recovery.py`), bytes that found no room are met by the next start
    (`Verdict.not_kept`).
    """
    failed: set[int] = set()
    for damage in verdict.corrupt:
        _log.error("damage to synced bytes: %s", _described(damage))
        try:
            keep(files, damage)
        except OSError as error:
            _log.error("cannot keep what is left of it in quarantine: %s", error)
            failed.add(damage.segment_id)
            verdict.unsettled.append(damage)
            if damage.segment_id and damage.length:
                verdict.not_kept.append(damage)
    for damage in (*verdict.torn, *verdict.unreadable):
        _log.warning("log damage: %s", _described(damage))
        if damage.reason != "segment header":
            continue
        if is_spoiled(files.disk, damage.segment_id, damage.length):
            try:
                files.copy_aside(damage.segment_id, damage.offset, damage.length)
            except OSError as error:
                _log.error("cannot copy it to quarantine: %s", error)
                failed.add(damage.segment_id)
    return failed


def keep(files: SegmentFiles, damage: Damage) -> None:
    """What is left of it goes to quarantine/, once; a note where that is not all. OSError."""
    if damage.segment_id and damage.length:
        files.copy_aside(damage.segment_id, damage.offset, damage.length)
        if not is_cut(files.disk, damage):
            return
    files.note_missing(damage.first_no, damage.last_no, damage.reason)


def is_cut(disk: Disk, damage: Damage) -> bool:
    """What is left of it ends its file: batches may have stood there that were cut off."""
    if not damage.first_no or damage.reason in ("payload", "missing"):
        return False
    try:
        file = disk.open(SegmentFiles.path(damage.segment_id))
        try:
            return damage.offset + damage.length >= file.size()
        finally:
            file.close()
    except OSError:
        return True


def lost_to_power(disk: Disk, segments: Sequence[SegmentFacts], verdict: Verdict) -> list[Range]:
    """From the first batch that a crash took to the last of that daemon, for each that did.

    None where anything else is, or was, wrong with the log. What the crash took was never synced,
    and nobody was told so: a reply that begins there is no more in doubt than one that stood in a
    torn tail alone, whatever of it stands behind. What a later daemon wrote began elsewhere.
    """
    rows = [(facts.header, row) for facts in segments for row in facts.settled]
    is_hurt = verdict.corrupt or verdict.unreadable or verdict.unread or has_copies(disk)
    if is_hurt or any(row.verdict == CORRUPT for _, row in rows):
        return []
    torn = [(one.first_no, verdict.last_batch_no) for one in verdict.torn]
    torn += [
        (row.first_no, header.prev_batch_no)
        for header, row in rows
        if row.verdict == TORN and header is not None
    ]
    return [(first, last) for first, last in torn if first]


def log_is_gone(disk: Disk, log_uuid: bytes | None, *, had_log: bool) -> bool:
    """Somebody took all of it away: "nothing there" is not proven. had_log: LOCK says so.

    From the first sync of a segment on there is always one that was synced. Without the word of
    LOCK, a wal/ that is missing where partials/ is there: a first start makes them in that order.
    """
    kinds = {entry.name: entry.kind for entry in disk.list_dir("")}
    if kinds.get(WAL_DIR) != "dir":
        return had_log or PARTIALS_DIR in kinds
    return had_log and (log_uuid is None or not is_there(disk, log_uuid))


def log_may_be_gone(disk: Disk) -> bool:
    """No segment is there, and walld was: where LOCK does not say either that none was durable yet,
    "nothing there" is not proven.

    A first start makes LOCK durable before any directory. What `walld salvage` has made, or a copy,
    has no LOCK, nor the reserve that a daemon has.
    """
    names = {entry.name for entry in disk.list_dir("")}
    made = PARTIALS_DIR if LOCK_NAME in names else RESERVE_NAME
    return made in names and not list_segments(disk)


def dirs_gone(disk: Disk, *, had_dirs: bool) -> list[str]:
    """Directories that somebody took away, with all replies or sessions that stood in them.

    had_dirs: LOCK says that they were there. An empty one proves nothing: it may have been.
    """
    names = {entry.name for entry in disk.list_dir("")} if had_dirs else set()
    return [name for name in (PARTIALS_DIR, SESSIONS_DIR) if had_dirs and name not in names]


def displaced(disk: Disk) -> list[str]:
    """Directories in whose place something else stands: a file, a link to where they are now."""
    kinds = {entry.name: entry.kind for entry in disk.list_dir("")}
    return [name for name in (PARTIALS_DIR, SESSIONS_DIR) if kinds.get(name, "dir") != "dir"]


def missed(disk: Disk) -> list[str]:
    """Directories that were removed beneath a daemon, or something else was put in their place."""
    return sorted({*disk.removed(), *displaced(disk)})


def make_dirs(disk: Disk, but: Container[str] = ()) -> None:
    """The directories there must be, durably, `but` some. What stands in the place of one is kept,
    in quarantine/. OSError.

    It was a directory once, or somebody's mistake: no reason not to start (P9).
    """
    kinds = _make_quarantine(disk)
    for name in (WAL_DIR, PARTIALS_DIR, SESSIONS_DIR):
        if name != WAL_DIR and name in but:
            continue
        if kinds.get(name, "dir") != "dir":
            _put_aside(disk, name, name)
        disk.make_dir(name)


def _make_quarantine(disk: Disk) -> dict[str, str]:
    """What else is in the data directory, and of what kind."""
    kinds = {entry.name: entry.kind for entry in disk.list_dir("")}
    is_away = AWAY in kinds  # killed here, or a salvage was
    if kinds.get(QUARANTINE_DIR, "dir") != "dir":
        disk.rename(QUARANTINE_DIR, AWAY)
        is_away = True
    disk.make_dir(QUARANTINE_DIR)
    if is_away:
        _put_aside(disk, AWAY, QUARANTINE_DIR)
    return kinds


def _put_aside(disk: Disk, path: str, name: str) -> None:
    """What stands in the place of a directory."""
    _log.error("%s: is no directory; moved to %s/", name, QUARANTINE_DIR)
    aside = f"not-a-directory.{name}"
    if name == SESSIONS_DIR:  # it speaks against no reply; of sessions the note does
        aside = f"{SESSIONS_DIR}+not-a-directory"
    disk.rename(path, f"{QUARANTINE_DIR}/{aside}")
    disk.sync_dir(QUARANTINE_DIR)
    disk.sync_dir("")


def rename_residue(disk: Disk, segment_id: int) -> None:
    """The residue of a segment gets another name; where that cannot be it is met again.

    Once a row says what it cost: it is all that tells so far why records behind it have no Begin.
    """
    path = SegmentFiles.path(segment_id)
    try:
        disk.rename(path, f"{path}.residue")
        disk.sync_dir(WAL_DIR)
    except OSError as error:
        _log.error("%s: cannot be renamed: %s", path, error.strerror or error)


def note_gone(disk: Disk, name: str) -> None:
    """Write down in quarantine/ that the log, or what stood in another directory, is gone as a
    whole. OSError.

    Where somebody has moved it there it says so itself, as long as it lies there.
    """
    what = "did not hold the log" if name == WAL_DIR else "was gone"
    _make_quarantine(disk)
    if any((one.name, one.kind) == (name, "dir") for one in disk.list_dir(QUARANTINE_DIR)):
        disk.sync_dir(QUARANTINE_DIR)
        return
    disk.replace(f"{QUARANTINE_DIR}/{name}", f"{name}/ {what} when walld started\n".encode())


def is_spoiled(disk: Disk, segment_id: int, length: int) -> bool:
    """Batches may have stood in a segment without a header, and no crash has left it so.

    A header is one write within one sector: power leaves all of it or zeros.
    """
    if length <= SEGMENT_HEADER_BYTES:
        return False
    try:
        file = disk.open(SegmentFiles.path(segment_id))
        try:
            return any(file.read_at(SEGMENT_HEADER_BYTES, 0))
        finally:
            file.close()
    except OSError:
        return True


def kept_aside(disk: Disk) -> int:
    """Files in quarantine/ that nobody has moved away: they may tell of any reply.

    Not counted: notes about another file, files never finished, what was a session's file, that
    sessions/ was gone, rows of other logs (`other_logs.py`). It counts as one where it cannot be
    listed.
    """
    try:
        names = [entry.name for entry in disk.list_dir(QUARANTINE_DIR)]
    except OSError as error:
        _log.error("%s/: cannot be listed: %s", QUARANTINE_DIR, error.strerror or error)
        return 1
    none = (".", f"{SESSIONS_DIR}+")
    kept = (name for name in names if name != SESSIONS_DIR and not name.startswith(none))
    kept = (name for name in kept if not is_row(name))
    return sum(not name.endswith(".note") for name in kept)


def strays(disk: Disk) -> int:
    """What is called like a segment and is none: each is said, and may have held any reply."""
    found = not_segments(disk)
    for path in found:
        _log.error("%s: is no segment: what it holds or has replaced is not known", path)
    return len(found)


def _described(damage: Damage) -> str:
    where = f"segment {damage.segment_id}, {damage.length} bytes at {damage.offset}"
    return f"{damage.reason}: {where}, batches {damage.first_no} to {damage.last_no}"


def gap_word(verdict: Verdict, *, met_damage: bool) -> str:
    """What a gap is put down to: what there is of damage, or else that it was dropped. Not of a
    reply that begins behind `torn_no`: what was torn is none of its.

    met_damage: that an earlier daemon met and went past is seen in quarantine/ alone.
    """
    if verdict.corrupt or met_damage:
        return "corrupt"
    if verdict.unreadable:
        return "unknown"
    return "torn" if verdict.torn_no else "dropped"


def coverage_of(
    log: LogScan,
    partials: Iterable[PartialFacts],
    parts: Iterable[list[int]],
    done: Iterable[int],
) -> Coverage:
    """What stands of each stream, in the log and in partials of it. Another look at the log.

    parts: numbers of each reply that stands under several. done: those of replies that have ended
    under a later one.
    """
    coverage = Coverage()
    for segment_id, batch in log.again():
        coverage.take(segment_id, batch)
    for facts in partials:
        if facts.log_uuid == log.log_uuid:
            coverage.has(facts.stream_no, facts.first_seq, facts.last_seq)
    for no in done:
        coverage.done_with(no)
    for numbers in parts:
        coverage.join(numbers)
    return coverage


def streams_lost(
    disk: Disk,
    log: LogScan,
    verdict: Verdict,
    partials: Iterable[PartialFacts],
    parts: Iterable[list[int]] = (),
    done: Iterable[int] = (),
) -> tuple[dict[int, list[Range]], dict[int, int]]:
    """Stream number -> seqs that damage to synced batches may have cost, and says so; and the
    highest seq a stream may have reached (`Coverage.tails_lost`).

    A second look at the log, and only where something is corrupt, or cannot be read. A hole does
    not tell what stood in it (`wal/lost_ranges.py`): what an agent itself had dropped just there is
    counted along.
    """
    if not (verdict.corrupt or verdict.unread):
        return {}, {}
    coverage = coverage_of(log, partials, parts, done)
    found: dict[int, list[Range]] = {}
    for damage in verdict.corrupt:
        claimed = [claim[:3] for claim in _claims(disk, log.log_uuid, damage)]
        for no, missing in coverage.lost(damage.first_no, damage.last_no, claimed).items():
            found[no] = merged([*found.get(no, ()), *missing])
    for no in list(found)[:_SAID_MAX]:
        seqs = ", ".join(f"{first} to {last}" for first, last in found[no])
        _log.error("stream %d: lost to damage of synced bytes: seqs %s", no, seqs)
    if len(found) > _SAID_MAX:
        _log.error("and of %d streams more: see `walld fsck`", len(found) - _SAID_MAX)
    return found, tails_lost(disk, log.log_uuid, verdict, coverage)


def tails_lost(
    disk: Disk, log_uuid: bytes | None, verdict: Verdict, coverage: Coverage
) -> dict[int, int]:
    """Stream number -> the highest seq it may have reached (`Coverage.tails_lost`).

    By batches that were synced and are lost, or that may stand in what cannot be read now. An empty
    one took nobody's.
    """
    claims = [one for damage in verdict.corrupt for one in _claims(disk, log_uuid, damage)]
    until_no = max((last for _, last in verdict.unread), default=0)
    for damage in verdict.corrupt:
        if damage.reason != "empty":
            until_no = max(until_no, damage.last_no)
    return coverage.tails_lost(until_no, claims)


def _claims(disk: Disk, log_uuid: bytes | None, damage: Damage) -> list[Claim]:
    """What a batch with a good header and a bad payload may still say was in it."""
    if damage.reason not in ("payload", "short") or log_uuid is None:
        return []
    batch = doubtful_at(disk, log_uuid, damage.segment_id, damage.offset)
    return [] if batch is None else batch.claims
