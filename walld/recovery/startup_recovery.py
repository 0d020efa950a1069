"""Recovers storage at a start: scan, judge, and hand the result to the engine.

Owns: the order of a start (ARCHITECTURE.md, "A start") and the index built from a scan. Refuses:
what is done about damage (`quarantine.py`), what streams say of themselves (`stream_heads.py`),
serving anybody.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from walld.disk.lock_record import EPOCH_MAX, LockRecord
from walld.errors import FormatError
from walld.ledger.names import SESSIONS_DIR
from walld.partials.file import PartialFacts
from walld.partials.store import PARTIALS_DIR, PartialStore, Stray
from walld.partials.tombstone_file import GONE_PATH, done_with
from walld.recovery import quarantine
from walld.recovery.fragment_merge import FragmentMerge
from walld.recovery.partial_scan import find_partials
from walld.recovery.stream_heads import Bodies, Found, FoundSegment, quarantine_stream, read_heads
from walld.recovery.tail_fsync import resync
from walld.wal import ranges
from walld.wal.index import LogIndex
from walld.wal.layout import (
    BATCH_NO_MAX,
    EPOCH_STREAMS_BITS,
    QUARANTINE_DIR,
    SEGMENT_ID_MAX,
    STREAM_NO_MAX,
    WAL_DIR,
    BatchKind,
    Settled,
)
from walld.wal.log_scan import LogScan, list_segments
from walld.wal.segment_files import SegmentFiles, has_copies
from walld.wal.unreadable_segments import start_no
from walld.wal.verdict import RENEWED

if TYPE_CHECKING:
    from walld.disk.base import Disk
    from walld.wal.ranges import Range
    from walld.wal.verdict import Damage, Verdict

__all__ = ["Found", "FoundSegment", "NotSynced", "RecoveredStorage", "recover_storage"]

_log = logging.getLogger("walld.recovery")

_NO_LOCK = LockRecord(0, b"")
_NUMBERS_LEFT_MIN = 1 << 20
"""Of each kind, for a start to go on."""


@dataclass(slots=True)
class NotSynced:
    """What could not be made durable: it must be written again before it counts."""

    segment_ids: list[int]
    batches: set[int]
    tombstones: list[tuple[int, int, int]]
    """(stream number, last seq, flag)"""
    settled: list[Settled]
    """Rows of earlier starts."""

    def rows(self) -> list[Settled]:
        """What to write down once it stands elsewhere, so that these batches are not missed."""
        found = ranges.merged((number, number) for number in self.batches)
        return [*self.settled, *(Settled(0, 0, first, last, RENEWED) for first, last in found)]


@dataclass(slots=True)
class RecoveredStorage:
    """All that a start found."""

    verdict: Verdict
    streams: dict[int, Found]
    dead: set[int]
    """Numbers of streams with a tombstone."""
    segments: list[FoundSegment]
    last_segment_id: int
    partials: dict[tuple[int, str, str], PartialFacts]
    """By uid, session name and stream name."""
    held: dict[tuple[int, str, str], int]
    """The last seq that stands in a partial, where its header may say more than that."""
    unread: list[tuple[int, str, str]]
    """Partials that are there and could not be read, by the same names."""
    undurable: set[tuple[int, str, str]]
    """Partials that power may take: what the log has of those is kept once more."""
    last_stream_no: int
    """The highest number that a stream may have."""
    scanned_bytes: int
    not_synced: NotSynced
    lost: dict[int, list[Range]]
    """Seqs that damage to synced batches has cost, by stream number."""
    possible_last_seqs: dict[int, int]
    """The highest seq a reply may have reached, by stream number: its end may be lost."""
    unnoted: list[Damage]
    """What is left no byte of, and could not be noted in quarantine/."""
    unnoted_dirs: list[str]
    """What stood in these is gone as a whole, and that could not be noted there."""
    residues: list[int]
    """Segments without a header, which tell what power took until a row does."""
    all_read: bool
    """Nothing in partials/ was there that could not be read."""
    pieces: FragmentMerge
    """Of replies that stand under several numbers: what is to become of those."""
    met_damage: bool
    """An earlier daemon has copied damaged bytes of the log aside, and gone on without them."""
    doubt: str | None
    """Why "nothing there" cannot be proven; None where it can."""


def recover_storage(
    disk: Disk,
    store: PartialStore,
    log_uuid: bytes,
    epoch: int = 1,
    lock: LockRecord = _NO_LOCK,
) -> RecoveredStorage:
    """Look at everything on disk. Only for the owner of the directory; blocks. Raises OSError, and
    FormatError where no numbers are left: nothing may be acknowledged that no start would read.

    epoch: the owner's: it is in no number that was given before. lock: as it stood before:
    where a segment was durable one must be there, and so must the batch that it names, and the
    directories that it says were there.
    """
    unnoted_dirs = _gone_and_unnoted(disk, log_uuid, lock)
    quarantine.make_dirs(disk, unnoted_dirs)
    unsynced: list[Stray] = []
    store.sweep_temporary(unsynced)
    ids = list_segments(disk)
    index = LogIndex()
    log = LogScan(disk, log_uuid)
    segments = _scanned(log, index)
    verdict = log.verdict(lock.synced_no, lock.first_no)
    _check_left("segment", max(ids, default=0), SEGMENT_ID_MAX)
    _check_left("batch", verdict.reserved_no, BATCH_NO_MAX)
    uncopied = quarantine.report(SegmentFiles(disk, log_uuid), verdict)
    unnoted = [one for one in verdict.unsettled if one not in verdict.not_kept]
    if any(name != SESSIONS_DIR for name in unnoted_dirs):
        uncopied.add(0)  # what stood in no segment, as in `quarantine.report`
    found = find_partials(store, unsynced)
    partials = found.facts
    kept = found.held_seqs(log_uuid)
    gone, is_known = done_with(disk, log_uuid, index.dead, kept, is_all=not found.unreadable)
    dead = index.dead.keys() | {no for no in kept if ranges.contains(gone, no)}
    bodies = Bodies(disk, list(segments.values()))

    def set_aside(no: int) -> None:
        uncopied.update(quarantine_stream(disk, bodies, no, streams[no].index))

    try:
        unpromised = quarantine.lost_to_power(disk, log.segments, verdict)
        streams = read_heads(disk, index, bodies, kept, uncopied, unpromised)
        is_unread = bool(verdict.unreadable or verdict.unread or found.unreadable) or not is_known
        is_unread |= any(no not in streams for no, _ in index.streams())
        pieces = FragmentMerge(
            *(store, log_uuid, streams, found, bodies.read, set_aside),
            word="corrupt" if verdict.corrupt else "unknown",
            is_unread=is_unread,
            is_whole=not (is_unread or verdict.corrupt or quarantine.kept_aside(disk)),
            dead=dead,
        )
        pieces.end(index.ended())
        replies = pieces.parts, [*pieces.dead, *(no for no, _ in pieces.buried)]
        lost, tails = quarantine.streams_lost(disk, log, verdict, partials.values(), *replies)
        pieces.put_together(tails)
    finally:
        bodies.close()
    failed = resync(disk, log_uuid, _tails(log, segments, verdict))
    doubt = _doubt(disk, verdict, uncopied) or found.doubt
    if not is_known:
        doubt = doubt or f"{GONE_PATH} could not be read; a restart may read it"
    for name in (PARTIALS_DIR, SESSIONS_DIR):
        disk.expect(name)
    possible_last_seqs = {
        no: seq for no, seq in tails.items() if no in streams and streams[no].is_reply
    }
    if (
        possible_last_seqs
    ):  # known from what is damaged alone, until these replies are kept: no row before that
        verdict.unsettled = list(verdict.corrupt)
    return RecoveredStorage(
        verdict=verdict,
        streams=streams,
        dead=dead,
        segments=_with_empty_ones(segments, log, uncopied),
        last_segment_id=max(ids, default=0),
        partials=partials,
        held=found.held,
        unread=found.unread,
        undurable=found.undurable,
        last_stream_no=_last_stream_no(index, [*kept, *(last for _, last in gone)], epoch, doubt),
        scanned_bytes=sum(facts.size for facts in log.segments),
        not_synced=_not_synced(log, segments, failed, verdict, index),
        lost=lost,
        possible_last_seqs=possible_last_seqs,
        unnoted=unnoted,
        unnoted_dirs=unnoted_dirs,
        residues=_residues(log, uncopied),
        all_read=not found.unreadable,
        pieces=pieces,
        met_damage=has_copies(disk) or bool(uncopied),
        doubt=doubt,
    )


def _last_stream_no(index: LogIndex, kept: list[int], epoch: int, doubt: str | None) -> int:
    """The highest number that a stream may have. kept: numbers that stand elsewhere.

    In doubt a number may be that of a reply nobody sees now, and there may be nothing to tell how
    far they went. So they go on where no daemon before this one can have come: each begins at most
    here, and gives fewer than 1 << EPOCH_STREAMS_BITS.
    """
    last_no = max([index.last_no, *kept])
    if doubt is not None:
        last_no = max(last_no, min(epoch, EPOCH_MAX) << EPOCH_STREAMS_BITS)
    _check_left("stream", last_no, STREAM_NO_MAX)
    return last_no


def _check_left(what: str, last_no: int, most: int) -> None:
    """A daemon never gets there; a file that somebody has made may say so."""
    if last_no > most - _NUMBERS_LEFT_MIN:
        text = f"a {what} has the number {last_no}, and no number is left up to {most}; no walld "
        text += "wrote that: move it out of the directory (`walld dump` shows which it is)"
        raise FormatError(f"{WAL_DIR}/: {text}")


def _gone_and_unnoted(disk: Disk, log_uuid: bytes, lock: LockRecord) -> list[str]:
    """Say which directories were there and are gone, by LOCK. Returns those of which no note could
    be written: they are not made anew, so that a later start sees it too.
    """
    gone = quarantine.dirs_gone(disk, had_dirs=lock.had_dirs)
    # Of partials/ what is moved to quarantine/ says it.
    gone += [name for name in quarantine.displaced(disk) if name == SESSIONS_DIR]
    if quarantine.log_is_gone(disk, log_uuid, had_log=lock.had_log):
        gone.append(WAL_DIR)
    return [name for name in gone if not _noted_as_gone(disk, name)]


def _scanned(log: LogScan, index: LogIndex) -> dict[int, FoundSegment]:
    """The first look at the log: segments in which a batch can be read, by id."""
    segments: dict[int, FoundSegment] = {}
    for segment_id, batch in log:
        index.take(batch)
        segment = segments.get(segment_id)
        if segment is None:
            segment = segments[segment_id] = FoundSegment(segment_id)
        segment.batches.append((batch.batch_no, batch.offset))
    return segments


def _noted_as_gone(disk: Disk, name: str) -> bool:
    text = "%s/ is gone: whatever stood there is lost"
    if name == WAL_DIR:
        text = "%s/ holds no log, and there was one: whatever stood there is lost; a new log begins"
    _log.error(text, name)
    try:
        quarantine.note_gone(disk, name)
    except OSError as error:
        _log.error("cannot note it in quarantine: %s", error)
        return False
    return True


def _doubt(disk: Disk, verdict: Verdict, uncopied: set[int]) -> str | None:
    """Damaged bytes that nobody has looked at may have held any reply (P11)."""
    kept = quarantine.kept_aside(disk)
    unread = len(verdict.unreadable) + len(uncopied) + quarantine.strays(disk)
    told = [f"{kept} files in {QUARANTINE_DIR}/ tell of damage"] if kept else []
    if unread:
        told.append(f"{unread} parts of the log could not be read, or copied to {QUARANTINE_DIR}/")
    if not told:
        return None
    return (
        f"{', and '.join(told)}: see `walld fsck`; once they are moved away a restart can prove "
        "what is left"
    )


def _tails(
    log: LogScan, segments: dict[int, FoundSegment], verdict: Verdict
) -> dict[int, list[int]]:
    """Segment id -> offsets of the batches that no header calls synced; 0 is its own header."""
    tails: dict[int, list[int]] = {}
    for facts in log.segments:
        if any(hole.reason == "residue" for hole in facts.holes):
            continue  # there is nothing of it
        found = segments.get(facts.segment_id)
        batches = found.batches if found is not None else []
        all_of_it = sorted([*batches, *((no, offset) for no, offset, _ in facts.apart)])
        tail = [offset for no, offset in all_of_it if no > verdict.synced_up_to(no)]
        if facts.header is not None and len(tail) == len(all_of_it):
            tail.insert(0, 0)
        tails[facts.segment_id] = tail
    return tails


def _not_synced(
    log: LogScan,
    segments: dict[int, FoundSegment],
    failed: list[int],
    verdict: Verdict,
    index: LogIndex,
) -> NotSynced:
    """What stands in the tails of segments that could not be made durable."""
    unsynced: set[int] = set()
    settled: dict[Settled, None] = {}
    bad = set(failed)
    for facts in log.segments:
        if facts.segment_id not in bad:
            continue
        found = segments.get(facts.segment_id)
        if found is not None:
            unsynced.update(no for no, _ in found.batches if no > verdict.synced_up_to(no))
        apart = [no for no, _, kind in facts.apart if kind == BatchKind.SETTLED]
        own = {no for no in apart if no > verdict.synced_up_to(no)}
        if own:
            unsynced |= own
            settled.update(dict.fromkeys(facts.settled))
    return NotSynced(failed, unsynced, index.tombstones(unsynced), list(settled))


def _residues(log: LogScan, uncopied: set[int]) -> list[int]:
    """Segments that are shorter than their header, of a start that was killed or power took."""
    return [
        facts.segment_id
        for facts in log.segments
        if facts.segment_id not in uncopied and any(one.reason == "residue" for one in facts.holes)
    ]


def _with_empty_ones(
    found: dict[int, FoundSegment], log: LogScan, uncopied: set[int]
) -> list[FoundSegment]:
    """All segments in order: those with nothing to read are unlinked in their turn too."""
    ordered: list[FoundSegment] = []
    for facts in log.segments:
        if any(hole.reason in ("residue", "version", "foreign") for hole in facts.holes):
            continue
        segment = found.get(facts.segment_id)
        if segment is None:
            segment = FoundSegment(facts.segment_id)
        segment.size = facts.size
        segment.first_no = start_no(facts)
        segment.unreadable = any(hole.reason == "unreadable" for hole in facts.holes)
        segment.unreadable |= facts.segment_id in uncopied
        ordered.append(segment)
    return ordered
