"""`walld fsck`: is this data directory whole? Exit 0 clean, 1 torn, 2 corrupt.

Owns: what is said about damage, and what it cost by stream and seq. Refuses: locks, writing,
mending; it may run beside a daemon. What a start has reported already (settled rows) is listed and
does not count again. Bytes that cannot be read at all count as corrupt: somebody must look.

Memory: one window of the log, a few numbers a stream that is not released and the beginning of each
partial, and that only where the log is damaged: then it is read a second time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial

from walld.cli.inspect import directory_scan, session_scan
from walld.cli.inspect.log_lines import LogLines
from walld.cli.inspect.missing_begins import MissingBegins, lost_beginnings
from walld.cli.inspect.session_damage import sessions_told
from walld.cli.inspect.session_scan import SessionFound
from walld.cli.show import as_json
from walld.disk.base import Disk
from walld.disk.real import RealDisk
from walld.disk.retrying import RetryingDisk
from walld.errors import FormatError
from walld.escape import escaped_line
from walld.recovery.quarantine import dirs_gone, log_is_gone, log_may_be_gone
from walld.wal.layout import WAL_DIR
from walld.wal.log_scan import LogScan
from walld.wal.lost_ranges import Coverage, Gap
from walld.wal.partial_batch import doubtful_at
from walld.wal.records import Begin, decode_body
from walld.wal.scan import ScannedBatch
from walld.wal.segment_files import SegmentFiles, has_copies
from walld.wal.verdict import Damage, Verdict

__all__ = [
    "CORRUPT",
    "TORN",
    "Finding",
    "Lost",
    "Report",
    "about",
    "inspect",
    "run",
]

TORN = 1
CORRUPT = 2
_WORDS = ("clean", "torn", "corrupt")
"""At their exit codes."""
LOST_SHOWN_MAX = 1000
"""Losses listed for one damage; the rest is counted."""


@dataclass(slots=True)
class Lost:
    """Seqs that are gone. session_id, stream_id: None where its Begin cannot be read."""

    stream_no: int
    first_seq: int
    last_seq: int
    uid: int | None = None
    session_id: str | None = None
    stream_id: str | None = None
    ledger_after: int | None = None
    """Of lines of a session, which are events of an internal stream: the seq before its first."""


@dataclass(slots=True)
class Finding:
    """One damage. segment 0: nowhere. open_streams: may have said more that was in it. reason: as
    in `wal/verdict.py`, or "beginning": of streams whose first segment is gone
    (`missing_begins.py`).

    records, records_verify: bodies of a batch whose directory can be read, and how many of them
    are whole; None where it cannot.
    """

    verdict: str
    segment: int
    offset: int
    length: int
    reason: str
    first_batch: int
    last_batch: int
    lost: list[Lost] = field(default_factory=list)
    lost_more: int = 0
    open_streams: int = 0
    records: int | None = None
    records_verify: int | None = None


@dataclass(slots=True)
class Report:
    """All that fsck has to say. met_damage: to the log, found now or copied aside by a daemon.

    synced_batch: by the log or by LOCK, which names the last one of an orderly end.
    """

    directory: str
    state: str = "clean"
    log: str | None = None
    segments: int = 0
    segment_bytes: int = 0
    last_batch: int = 0
    synced_batch: int = 0
    damage: list[Finding] = field(default_factory=list)
    settled: int = 0
    lock: str | None = None
    partials: int = 0
    partials_damaged: list[directory_scan.DamagedPartial] = field(default_factory=list)
    sessions: list[SessionFound] = field(default_factory=list)
    met_damage: bool = False
    quarantine_files: int = 0
    quarantine_bytes: int = 0
    residues: int = 0
    temporary: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run(options: argparse.Namespace) -> int:
    """Exit 0, 1 or 2."""
    with RealDisk(options.directory, read_only=True) as disk:
        report = inspect(RetryingDisk(directory_scan.named(disk)), options.directory)
    if options.json:
        print(as_json(asdict(report)))
    else:
        for line in _lines(report):
            print(line)
    return _WORDS.index(report.state)


def inspect(disk: Disk, directory: str) -> Report:
    """Look at everything. FormatError where there is nothing of walld, OSError as it comes."""
    directory_scan.check_directory(disk)
    report = Report(directory)
    worst = [0]
    lock = directory_scan.log_of(disk)
    report.lock = lock.trouble
    worst.append(_WORDS.index(lock.verdict))
    if log_is_gone(disk, lock.log_uuid, had_log=lock.had_log):
        report.notes.append(f"{WAL_DIR}/ holds no log, and there was one: a new one would begin")
        worst.append(CORRUPT)
    elif lock.trouble is not None and lock.unread is None and log_may_be_gone(disk):
        report.notes.append(f"{WAL_DIR}/ holds no log, and LOCK, which would tell of one, is lost")
        worst.append(CORRUPT)
    for name in dirs_gone(disk, had_dirs=lock.had_dirs):
        report.notes.append(f"{name}/ is gone, and was there: whatever stood in it is lost")
        worst.append(CORRUPT)
    report.notes += [lock.lost] if lock.lost is not None else []
    log = LogScan(disk, lock.log_uuid)
    lines, beginnings = LogLines(), MissingBegins()

    def take(segment_id: int, batch: ScannedBatch) -> None:
        lines.take(segment_id, batch)
        beginnings.take(segment_id, batch)

    directory_scan.scan(disk, log, "reading the log", take)
    verdict = log.verdict(lock.synced_no, directory_scan.first_no(disk, log.log_uuid))
    report.log = log.log_uuid.hex() if log.log_uuid else None
    report.segments = len(log.segments)
    report.segment_bytes = sum(facts.size for facts in log.segments)
    report.last_batch = verdict.last_batch_no
    report.synced_batch = max(verdict.synced_no, lock.synced_no)
    report.settled = len(verdict.settled)
    report.damage = list(_findings(verdict))
    worst += [TORN if item.verdict == "torn" else CORRUPT for item in report.damage]
    coverage = Coverage()
    if report.damage:
        again = log.again()
        directory_scan.scan(disk, again, "what is lost", coverage.take)
    kept: dict[int, int] = {}
    begins = _read_partials(disk, report, coverage, log.log_uuid, kept)
    worst += [CORRUPT] * bool(report.partials_damaged)
    names = _Names(disk, coverage, begins)
    directory_scan.join_parts(coverage, names.bytes, begins)
    report.met_damage = bool(verdict.corrupt or verdict.unreadable) or has_copies(disk)
    lines.judged(verdict.synced_no, met_damage=report.met_damage)
    session_scan.let_go(disk, lines, log.log_uuid)
    for found in session_scan.steady(disk, lines, partial(_lines_now, disk, lock)):
        report.sessions.append(found)
        worst.append(_WORDS.index(found.state))
    for finding in report.damage:
        _losses(disk, finding, log.log_uuid, report.sessions, coverage, names)
    if beginnings.absent(kept) and (gone := lost_beginnings(disk, log)):
        report.damage.append(_without_beginning(gone))
        worst.append(CORRUPT)
    worst += [CORRUPT] * _beside(disk, report)
    report.state = _WORDS[max(worst)]
    return report


def _lines_now(disk: Disk, lock: directory_scan.Lock) -> LogLines:
    """What the log has of sessions by now."""
    log, lines = LogScan(disk, lock.log_uuid), LogLines()
    directory_scan.scan(disk, log, "reading the log again", lines.take)
    verdict = log.verdict(lock.synced_no, directory_scan.first_no(disk, log.log_uuid))
    met_damage = bool(verdict.corrupt or verdict.unreadable) or has_copies(disk)
    lines.judged(verdict.synced_no, met_damage=met_damage)
    session_scan.let_go(disk, lines, log.log_uuid)
    return lines


def _findings(verdict: Verdict) -> Iterator[Finding]:
    for word, damages in (
        ("corrupt", verdict.corrupt),
        ("unreadable", verdict.unreadable),
        ("torn", verdict.torn),
    ):
        for damage in damages:
            yield _finding(word, damage)


def _finding(word: str, damage: Damage) -> Finding:
    segment, offset, length, first_no, last_no, reason = damage
    return Finding(word, segment, offset, length, reason, first_no, last_no)


def _without_beginning(gone: list[tuple[int, Gap]]) -> Finding:
    finding = Finding("corrupt", 0, 0, 0, "beginning", 0, 0)
    shown = gone[:LOST_SHOWN_MAX]
    finding.lost = [Lost(no, gap.first_seq, gap.last_seq) for no, gap in shown]
    finding.lost_more = len(gone) - len(shown)
    return finding


def _read_partials(
    disk: Disk, report: Report, coverage: Coverage, log_uuid: bytes | None, kept: dict[int, int]
) -> dict[int, Begin]:
    """Check every partial. Begins of those of a damaged log, by stream number.

    kept: last seq of each partial of this log, by stream number; it grows.
    """
    begins: dict[int, Begin] = {}
    for found in directory_scan.partials(disk):
        if isinstance(found, directory_scan.DamagedPartial):
            report.partials_damaged.append(found)
            continue
        report.partials += 1
        facts = found.facts
        if facts.log_uuid == log_uuid:
            kept[facts.stream_no] = facts.last_seq
        if report.damage and facts.log_uuid == log_uuid:
            coverage.has(facts.stream_no, facts.first_seq, facts.last_seq)
            begins[facts.stream_no] = found.begin
    return begins


def _beside(disk: Disk, report: Report) -> bool:
    """True where somebody must look at what lies there."""
    found = directory_scan.beside(disk)
    report.quarantine_files = found.quarantined
    report.quarantine_bytes = found.quarantined_bytes
    report.residues = found.residues
    report.temporary = [*found.temporary, *session_scan.temporary(disk)]
    report.notes += found.trouble
    return bool(found.trouble)


# --- what is lost ---------------------------------------------------------------------------------


class _Names:
    """Whose a stream is, by its Begin: read only for streams that have lost something."""

    def __init__(self, disk: Disk, coverage: Coverage, begins: dict[int, Begin]) -> None:
        self._disk = disk
        self._places = coverage.begins
        self._begins: dict[int, Begin | None] = dict(begins)

    def begin(self, no: int) -> Begin | None:
        """None where it is lost, or cannot be read."""
        if no not in self._begins:
            place = self._places.get(no)
            self._begins[no] = None if place is None else self._read(no, *place)
        return self._begins[no]

    def _read(self, no: int, segment_id: int, offset: int, length: int) -> Begin | None:
        try:
            items = decode_body(no, self.bytes(segment_id, offset, length))
        except (OSError, FormatError):
            return None
        return next((item for item in items if isinstance(item, Begin)), None)

    def bytes(self, segment_id: int, offset: int, length: int) -> bytes:
        """What stands in a segment. OSError."""
        file = self._disk.open(SegmentFiles.path(segment_id))
        try:
            return file.read_at(length, offset)
        finally:
            file.close()


def _losses(
    disk: Disk,
    finding: Finding,
    log_uuid: bytes | None,
    sessions: list[SessionFound],
    coverage: Coverage,
    names: _Names,
) -> None:
    """Fill in what one damage cost."""
    batch = None
    if finding.reason in ("payload", "short") and log_uuid is not None:
        # A good header and a bad payload: its directory may still add up.
        batch = doubtful_at(disk, log_uuid, finding.segment, finding.offset)
    claimed = []
    if batch is not None:
        finding.records = sum(record.body_bytes > 0 for record in batch.claimed)
        finding.records_verify = len(batch.good)
        claimed = [claim[:3] for claim in batch.claims]
    lost = coverage.lost(finding.first_batch, finding.last_batch, claimed)
    if finding.first_batch and finding.reason != "empty":  # no record stood in that
        finding.open_streams = coverage.open_before(finding.first_batch)
    for no, missing in lost.items():
        for first_seq, last_seq in missing:
            if len(finding.lost) >= LOST_SHOWN_MAX:
                finding.lost_more += 1
                continue
            one = Lost(no, first_seq, last_seq)
            begin = names.begin(no)
            if begin is not None and session_scan.has_lines(sessions, begin, first_seq, last_seq):
                continue
            if begin is not None:
                one.uid, one.session_id = begin.uid, begin.session_id
                one.stream_id = begin.stream_id
                one.ledger_after = None if begin.producer else begin.number
            finding.lost.append(one)


# --- said to a person -----------------------------------------------------------------------------


def _lines(report: Report) -> Iterator[str]:
    yield f"{escaped_line(report.directory)}: {report.state}"
    log = f"log {report.log}" if report.log else "no log"
    where = f"batches up to {report.last_batch}, synced up to {report.synced_batch}"
    yield f"  {log}: {report.segments} segments, {report.segment_bytes} bytes, {where}"
    for finding in report.damage:
        yield from about(finding)
    if report.settled:
        yield f"  settled: {report.settled} damaged places that an earlier start has reported"
    yield f"  partials: {report.partials} whole, {len(report.partials_damaged)} damaged"
    for damaged in report.partials_damaged:
        yield f"  corrupt: {escaped_line(damaged.path)}: {escaped_line(damaged.why)}"
    yield from sessions_told(report.sessions)
    if report.lock:
        yield f"  LOCK: {escaped_line(report.lock)}"
    for note in report.notes:
        yield f"  {escaped_line(note)}"
    if report.quarantine_files:
        yield f"  quarantine: {report.quarantine_files} files, {report.quarantine_bytes} bytes"
    if report.residues:
        yield f"  residues: {report.residues} segments cut short at their birth; nothing is in them"
    for name in report.temporary:
        yield f"  temporary file, never finished: {escaped_line(name)}"


def about(finding: Finding) -> Iterator[str]:
    """One damage, and below it what it cost."""
    where = "in no segment"
    if finding.segment:
        where = f"segment {finding.segment}, {finding.length} bytes at {finding.offset}"
    batches = "no batch that is known"
    if finding.first_batch:
        batches = f"batch {finding.first_batch}"
    if finding.last_batch > finding.first_batch:
        batches = f"batches {finding.first_batch} to {finding.last_batch}"
    yield f"  {finding.verdict}: {where} ({finding.reason}), {batches}"
    if finding.records is not None:
        text = f"{finding.records_verify} of its {finding.records} records verify"
        yield f"    {text}" + ("; walld salvage takes them" if finding.records_verify else "")
    for lost in finding.lost:
        whose = f"stream number {lost.stream_no} (its beginning is lost)"
        first_seq, last_seq = lost.first_seq, lost.last_seq
        if lost.ledger_after is not None:
            whose = f"lines of session {escaped_line(lost.session_id or '')}, uid {lost.uid}"
            first_seq, last_seq = first_seq + lost.ledger_after, last_seq + lost.ledger_after
        elif lost.stream_id is not None:
            stream, session = escaped_line(lost.stream_id), escaped_line(lost.session_id or "")
            whose = f"stream {stream} of session {session}, uid {lost.uid}"
        yield f"    lost: {whose}: seqs {first_seq} to {last_seq}"
    if finding.lost_more:
        yield f"    lost: {finding.lost_more} more such ranges"
    if finding.open_streams:
        text = "streams that have not ended may have said more that stood here"
        yield f"    open: {finding.open_streams} {text}"
