"""Reads replies from a data directory without asking a daemon, also while one runs.

Owns: joining what segments and partials hold of a stream. Refuses: locks and writing, ever; what
items mean (`replies/fold.py`); what a hole in the log means (`wal/verdict.py`).

Invariants: pure reading, so asking changes nothing. "Nothing there" is said only where every byte
that could speak against it was read: `Found.doubts` says what was not. A daemon may move a reply
while it is read: segments are read before partials, and all again where a segment came meanwhile;
what is read twice is told apart by (stream, seq).

A torn tail is no doubt: what it held was never acknowledged as synced, and a daemon that starts on
this directory would say the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from walld_client.wire import messages as wire

from walld.cli.inspect.directory_scan import (
    check_directory,
    done_with,
    log_of,
    named,
    told_first,
)
from walld.daemon.transport import credentials
from walld.disk.base import Disk
from walld.disk.real import RealDisk
from walld.disk.retrying import RetryingDisk
from walld.errors import FormatError
from walld.partials.file import Partial, PartialFacts
from walld.partials.store import PARTIALS_DIR, PartialStore, Stray, path_of
from walld.recovery.other_logs import ALL_USERS, row_name, rows
from walld.recovery.quarantine import (
    coverage_of,
    dirs_gone,
    gap_word,
    is_spoiled,
    kept_aside,
    log_is_gone,
    log_may_be_gone,
    lost_to_power,
    tails_lost,
)
from walld.replies.fold import fold, worst_word
from walld.replies.fragments import counted_from, ended_later, epoch_of, in_parts
from walld.wal import ranges
from walld.wal.layout import QUARANTINE_DIR, WAL_DIR, Flag
from walld.wal.log_scan import LogScan, list_segments, not_segments
from walld.wal.records import BODY_CRC_BYTES, Begin, Happened, Item, Text, decode_items
from walld.wal.segment_files import has_copies
from walld.wal.verdict import Verdict

__all__ = ["Found", "find"]

READ_TRIES = 5
"""A daemon under load may open a segment while the others are read; this often is not load."""


@dataclass(slots=True)
class Found:
    """Every reply that is not released, in start order, and why there might be more."""

    replies: list[wire.Recovered] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Stream:
    """Arrays of items that were read of one stream. kept: what the header of its partial says.

    possible_last_seq: it may have got there. opening: the array in the log that begins it.
    first_no: the batch of its first record in the log, 0 where there is none.
    begin: of its partial. before: of a reply that stands under several numbers, what earlier ones
    hold of it.
    """

    arrays: list[bytes] = field(default_factory=list)
    kept: PartialFacts | None = None
    possible_last_seq: int = 0
    opening: bytes | None = None
    begin: Begin | None = None
    before: list[Item] = field(default_factory=list)
    first_no: int = 0
    in_parts: bool = False

    @property
    def is_in_log(self) -> bool:
        """Not in a partial alone."""
        return self.in_parts or len(self.arrays) > (self.kept is not None)


def find(data: str, uid: int | None = None) -> Found:
    """All replies of all users in the data directory. OSError where it cannot be read at all.

    uid: what clients of others alone know of is no doubt.
    """
    with RealDisk(data, read_only=True) as real:
        disk = RetryingDisk(named(real))
        check_directory(disk)
        for _ in range(READ_TRIES):
            before = list_segments(disk)
            found = _Reading(disk).found()
            told = rows(disk) if uid is None else rows(disk) & {uid, ALL_USERS}
            found.doubts += [
                f"{QUARANTINE_DIR}/{row_name(one)}: there is, or was, another log than this"
                for one in sorted(told, key=str)
            ]
            if set(list_segments(disk)) <= set(before):
                break
        else:
            found.doubts.append("the daemon opened segments faster than they could be read")
    return found


class _Reading:
    """One reading of a directory."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._streams: dict[int, _Stream] = {}
        self._apart: list[_Stream] = []
        """Partials of another log: their stream numbers mean nothing in this one."""
        self._gone: set[int] = set()
        self._ended: dict[int, bytes] = {}
        """Arrays that begin those, where their reply may stand under an earlier number, too."""
        self._kept: list[PartialFacts] = []
        self._gone_before: list[ranges.Range] = []
        self._doubts: list[str] = []
        self._gap_word = "dropped"
        self._verdict = Verdict(0, 0)
        self._lost_to_power: list[ranges.Range] = []
        self._is_whole = False
        self._boot_id = credentials.boot_id()

    def found(self) -> Found:
        """Segments first, then partials, then the replies they tell."""
        log = self._read_log()
        self._read_partials(log.log_uuid)
        parts = self._join_parts()
        self._fear_for_tails(log, parts)
        if kept := kept_aside(self._disk):
            # As a daemon has it: they stand against "nothing there" until somebody moves them away.
            self._doubts.append(f"{kept} files in {QUARANTINE_DIR}/ tell of damage")
        self._is_whole = not self._doubts
        apart: list[wire.Recovered] = []
        for stream in self._apart:
            apart += self._folded(stream, "a partial")
        # Of another log nothing but a clock tells the order; in one log the numbers do (P11).
        apart.sort(key=lambda reply: (reply.started_at_ms, reply.uid, reply.stream_id))
        replies: list[wire.Recovered] = []
        for stream_no in sorted(self._streams.keys() - self._gone):
            replies += self._folded(self._streams[stream_no], f"stream {stream_no} of the log")
        return Found(apart + replies, self._doubts)

    def _read_log(self) -> LogScan:
        lock = log_of(self._disk)
        if log_is_gone(self._disk, lock.log_uuid, had_log=lock.had_log):
            self._doubts.append(f"{WAL_DIR}/ holds no log, and there was one")
        elif lock.trouble is not None and lock.unread is None and log_may_be_gone(self._disk):
            self._doubts.append(
                f"{WAL_DIR}/ holds no log, and LOCK, which would tell of one, is lost"
            )
        if PARTIALS_DIR in dirs_gone(self._disk, had_dirs=lock.had_dirs):
            self._doubts.append(f"{PARTIALS_DIR}/ is gone, and was there")
        self._doubts += [lock.lost] if lock.lost is not None else []
        self._doubts += [lock.unread] if lock.unread is not None else []
        scan = LogScan(self._disk, lock.log_uuid)
        for _, batch in scan:
            for record in batch.records:
                stream_no = record.stream_no
                body = batch.body(record.offset, record.body_bytes)[BODY_CRC_BYTES:]
                if record.flags & (Flag.RELEASED | Flag.RESOLVED):
                    self._end(stream_no, body if record.flags & Flag.BEGIN else None)
                elif stream_no not in self._gone and record.body_bytes:
                    stream = self._streams.setdefault(stream_no, _Stream(first_no=batch.batch_no))
                    stream.arrays.append(body)
                    if record.flags & Flag.BEGIN:
                        stream.opening = body
        self._doubts += [f"{path}: is no segment" for path in not_segments(self._disk)]
        first_no = 0
        if lock.unread is None:
            try:
                first_no = told_first(self._disk, scan.log_uuid)
            except (OSError, FormatError) as error:
                self._doubts.append(f"LOCK cannot be read again: {error}")
        verdict = scan.verdict(lock.synced_no, first_no)
        self._gap_word = gap_word(verdict, met_damage=has_copies(self._disk))
        self._verdict = verdict
        self._lost_to_power = lost_to_power(self._disk, scan.segments, verdict)
        # A file whose very header is lost may have held anything, also where it cost no number.
        headless = [
            damage
            for damage in verdict.torn
            if damage.reason == "segment header"
            and is_spoiled(self._disk, damage.segment_id, damage.length)
        ]
        for name, damages in (
            ("corrupt", verdict.corrupt),
            ("unreadable", verdict.unreadable),
            ("torn", headless),
        ):
            for damage in damages:
                where = f"segment {damage.segment_id} at {damage.offset}, {damage.length} bytes"
                self._doubts.append(f"{name}: {where} ({damage.reason})")
        return scan

    def _end(self, stream_no: int, opening: bytes | None) -> None:
        """It has a tombstone, which may be all that says whose."""
        self._gone.add(stream_no)
        stream = self._streams.pop(stream_no, None)
        if stream is not None:
            opening = stream.opening or opening
        if opening is not None and epoch_of(stream_no):
            self._ended[stream_no] = opening

    def _read_partials(self, log_uuid: bytes | None) -> None:
        store, strays = PartialStore(self._disk), list[Stray]()
        self._gone_before, doubt = done_with(self._disk, log_uuid)
        self._doubts += [doubt] if doubt is not None else []
        try:
            tree = store.tree(strays)
        except OSError as error:
            self._doubts.append(f"{PARTIALS_DIR}: {error}")
            tree = {}
        for uid, sessions in tree.items():
            for session_name, stream_names in sessions.items():
                for stream_name in stream_names:
                    try:
                        partial, items = store.read_reply(uid, session_name, stream_name)
                    except FileNotFoundError:
                        continue  # resolved since it was listed
                    except (FormatError, OSError) as error:
                        path = path_of(uid, session_name, stream_name)
                        self._doubts.append(f"{path}: {error}")
                        continue
                    self._add_partial(partial, items[0], log_uuid)
        self._doubts += [f"{stray.path}: {stray.why}" for stray in strays]

    def _add_partial(self, partial: Partial, begin: Item, log_uuid: bytes | None) -> None:
        facts = partial.facts
        assert isinstance(begin, Begin), facts
        if facts.log_uuid != log_uuid:
            self._apart.append(_Stream([partial.body], facts))
        elif facts.stream_no not in self._gone and not ranges.contains(
            self._gone_before, facts.stream_no
        ):
            stream = self._streams.setdefault(facts.stream_no, _Stream())
            stream.arrays.insert(0, partial.body)
            stream.kept, stream.begin = facts, begin
            self._kept.append(facts)

    def _join_parts(self) -> list[list[int]]:
        """Replies that stand under several numbers become one, as a start has it; those numbers."""
        begins = _begins({no: stream.opening for no, stream in self._streams.items()})
        kept = {no: one.begin for no, one in self._streams.items() if one.begin is not None}
        for no in ended_later({**kept, **begins}, _begins(self._ended)):
            del self._streams[no]
            begins.pop(no, None)
            kept.pop(no, None)
            self._gone.add(no)
        parts = in_parts(begins, kept)
        begins = {**kept, **begins}
        for *earlier, last in parts:
            goes_on = self._streams[last]
            goes_on.in_parts = True
            for no in earlier:
                part = self._streams.pop(no)
                try:
                    items = [item for array in part.arrays for item in decode_items(array)]
                except FormatError as error:
                    self._doubts.append(f"stream {no} of the log, which goes on as {last}: {error}")
                    continue
                goes_on.before += counted_from(begins[last], begins[no], items)
                if part.kept is not None and goes_on.kept is None:
                    goes_on.kept = part.kept
        return parts

    def _fear_for_tails(self, log: LogScan, parts: list[list[int]]) -> None:
        """Ends of replies that may have stood in batches that were synced and are lost."""
        if self._verdict.corrupt or self._verdict.unread:
            coverage = coverage_of(log, self._kept, parts, self._gone)
            tails = tails_lost(self._disk, log.log_uuid, self._verdict, coverage)
            for stream_no, seq in tails.items():
                if stream_no in self._streams:
                    self._streams[stream_no].possible_last_seq = seq

    def _folded(self, stream: _Stream, where: str) -> list[wire.Recovered]:
        """The reply, in a list; none and a doubt where these bytes do not tell one."""
        items: list[Item] = list(stream.before)
        try:
            for array in stream.arrays:
                items += decode_items(array)
        except FormatError as error:
            self._doubts.append(f"{where}: {error}")
        begin = next((item for item in items if isinstance(item, Begin)), None)
        if begin is None:
            if any(first < stream.first_no <= last for first, last in self._lost_to_power):
                return []
            self._doubts.append(f"{where}: {len(items)} items and no word on whose they are")
            return []
        if not begin.producer:
            return []  # lines of a session on their way to its file: no reply
        try:
            return [self._reply(begin, items, stream)]
        except FormatError as error:
            self._doubts.append(f"{where}: {error}")
            return []

    def _reply(self, begin: Begin, items: list[Item], stream: _Stream) -> wire.Recovered:
        owner_alive = self._is_alive(begin)
        another_boot = begin.owner.boot_id != self._boot_id
        reason, word, known_seq = None, self._gap_word, stream.possible_last_seq
        kept = stream.kept
        if word == "torn" and stream.first_no > self._verdict.torn_no:
            word = "dropped"
        if kept is not None:
            reason = kept.lost_reason
            if kept.gap_word == "corrupt" or not stream.possible_last_seq:
                word = kept.gap_word
            if not (self._is_whole and kept.gap_word == "unknown" and stream.is_in_log):
                known_seq = max(known_seq, kept.last_seq)
        if stream.in_parts:  # as a start that puts it together has it
            word = worst_word([word, "corrupt" if self._verdict.corrupt else "unknown"])
        return fold(
            begin,
            (item for item in items if isinstance(item, (Text, Happened))),
            owner_alive=owner_alive,
            live=owner_alive,
            lost_reason=reason or ("host_restart" if another_boot else "agent_lost"),
            gap_verdicts=lambda _first, _last: word,
            known_seq=known_seq,
        )

    def _is_alive(self, begin: Begin) -> bool:
        if begin.owner.boot_id != self._boot_id:
            return False
        pidfd = credentials.find_process(begin.owner)
        if pidfd is None:
            return False
        os.close(pidfd)
        return True


def _begins(openings: Mapping[int, bytes | None]) -> dict[int, Begin]:
    """What those arrays say of whose the streams are, by number."""
    found: dict[int, Begin] = {}
    for no, array in openings.items():
        with suppress(FormatError):  # said when it is folded
            items = decode_items(array) if array is not None else []
            for item in items:
                if isinstance(item, Begin):
                    found[no] = item
    return found
