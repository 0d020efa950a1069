"""Torn or corrupt: the histories a log can have, and what must be said of each (V1, V2, V3)."""

from __future__ import annotations

import pytest
from wal_files import LOG, BytesDisk, LogWriter, batch_of, small_log

from walld.wal.encode import settled_batches
from walld.wal.layout import BATCH_HEADER_BYTES, SEGMENT_HEADER_BYTES
from walld.wal.log_scan import LogScan
from walld.wal.scan_report import SegmentFacts
from walld.wal.verdict import Damage, Verdict, judge


def cut(log: LogWriter, segment_id: int, size: int) -> None:
    """What a kill leaves of a write."""
    file = log.files[segment_id]
    assert isinstance(file, bytearray)
    del file[size:]


def restart(log: LogWriter) -> Verdict:
    """What a start does: reads, opens a segment, writes down what it found."""
    _, verdict = log.read()
    log.segment(next_no=verdict.last_batch_no + 1)
    for batch in settled_batches(log.next_no, verdict.rows()):
        log.put(batch, verdict.synced_no)
    return verdict


def numbers(found: list[Damage]) -> list[tuple[int, int]]:
    return [(item.first_no, item.last_no) for item in found]


def test_a_clean_log() -> None:
    _, verdict = small_log().read()
    assert verdict == Verdict(last_batch_no=7, synced_no=6)
    assert verdict.is_clean
    assert verdict.rows() == []


def test_no_log_at_all() -> None:
    assert judge([]) == Verdict(0, 0)
    assert numbers(judge([], 9).corrupt) == [(1, 9)]


def test_a_torn_tail_is_torn_once_and_never_corrupt() -> None:
    log = small_log()
    cut(log, 2, len(log.files[2]) - 3)
    first = restart(log)
    assert (numbers(first.torn), first.corrupt, first.last_batch_no) == ([(7, 7)], [], 7)
    log.batch(b"the next one", synced_no=8)
    log.batch(b"and one that says all before it is synced")
    second = restart(log)
    assert (second.torn, second.corrupt) == ([], [])
    assert [(item.segment_id, item.reason) for item in second.settled] == [(2, "short")]
    assert second.is_clean


def test_without_the_settled_batch_the_same_log_looks_corrupt() -> None:
    log = small_log()
    cut(log, 2, len(log.files[2]) - 3)
    log.segment(next_no=8)
    log.batch(b"the next one")
    log.batch(b"and one that says all before it is synced")
    assert numbers(log.read()[1].corrupt) == [(7, 7)]


def test_a_tail_torn_in_its_header_is_torn_once() -> None:
    log = small_log()
    last = log.places[-1]
    cut(log, 2, last.offset + 20)
    first = restart(log)
    assert (numbers(first.torn), first.corrupt, first.last_batch_no) == ([(0, 0)], [], 6)
    log.batch(b"next")
    log.batch(b"next")
    second = restart(log)
    assert (second.torn, second.corrupt) == ([], [])
    assert len(second.settled) == 1


def test_numbers_that_were_torn_are_passed_and_no_others() -> None:
    log = small_log()
    assert log.read()[1].passed == 0
    cut(log, 2, log.places[-1].offset + 40)
    _, verdict = log.read()
    assert (numbers(verdict.torn), verdict.reserved_no, verdict.passed) == ([(7, 7)], 7, 1)
    log = LogWriter()
    log.segment()
    log.batch(b"the first")
    cut(log, 1, log.places[-1].offset + 10)
    _, verdict = log.read()
    assert (verdict.reserved_no, verdict.passed) == (0, 0), "a batch without a number"


def test_a_log_cut_between_batches_is_clean_but_for_a_client_that_knows_better() -> None:
    log = small_log()
    cut(log, 2, log.places[-2].offset)
    found, verdict = log.read()
    assert (sorted(found), verdict.is_clean, verdict.last_batch_no) == ([1, 2, 3, 4, 5], True, 5)
    _, verdict = log.read(attested_no=6)
    assert numbers(verdict.corrupt) == [(6, 6)]
    assert verdict.synced_no == 4, "what a client says never moves the log's own watermark"


def test_batches_lost_in_the_unsynced_part_are_torn() -> None:
    log = LogWriter()
    log.segment()
    for number in range(1, 7):
        log.batch(b"x" * 1000, synced_no=min(number - 1, 1))
    file = log.files[1]
    assert isinstance(file, bytearray)
    lost = log.places[2:4]
    file[lost[0].offset : lost[1].offset + lost[1].length] = bytes(lost[0].length + lost[1].length)
    found, verdict = log.read()
    assert sorted(found) == [1, 2, 5, 6]
    assert (numbers(verdict.torn), verdict.corrupt) == ([(3, 4)], [])


def test_damage_below_the_watermark_is_corrupt() -> None:
    log = small_log()
    log.flip(1, 8 * (log.places[1].offset + BATCH_HEADER_BYTES))
    _, verdict = log.read()
    assert verdict.corrupt == [
        Damage(1, log.places[1].offset, log.places[1].length, 2, 2, "payload")
    ]
    assert verdict.torn == []


def test_corruption_is_reported_once() -> None:
    log = small_log()
    log.flip(1, 8 * (log.places[1].offset + BATCH_HEADER_BYTES))
    assert len(restart(log).corrupt) == 1
    log.batch(b"x")
    log.batch(b"x")
    again = restart(log)
    assert (again.corrupt, len(again.settled)) == ([], 1)
    log.flip(1, 8 * (log.places[2].offset + 1))
    assert numbers(restart(log).corrupt) == [(3, 3)], "new damage is news"


def test_a_hole_over_the_watermark_is_split() -> None:
    log = LogWriter()
    log.segment()
    for number in range(1, 6):
        log.batch(b"x", synced_no=min(number - 1, 2))
    log.batch(b"x", synced_no=3)
    file = log.files[1]
    assert isinstance(file, bytearray)
    start, end = log.places[1].offset, log.places[5].offset
    file[start:end] = bytes(end - start)
    _, verdict = log.read()
    assert (numbers(verdict.corrupt), numbers(verdict.torn)) == ([(2, 3)], [(4, 5)])


def test_batches_written_again_elsewhere_cost_nothing() -> None:
    log = LogWriter()
    log.segment()
    log.batch(b"synced")
    again = [batch_of(2, [b"dropped by the kernel"]), batch_of(3, [b"kept by luck"])]
    for batch in again:
        log.put(batch, 1)
    log.flip(1, 8 * (log.places[1].offset + BATCH_HEADER_BYTES))
    log.segment(next_no=2)
    for batch in again:
        log.put(batch, 1)
    log.batch(b"goes on")
    found, verdict = log.read()
    assert sorted(found) == [1, 2, 3, 4]
    assert (verdict.is_clean, numbers(verdict.superseded)) == (True, [(2, 2)])


@pytest.mark.parametrize("gone", [2, 3])
def test_a_missing_segment_is_corrupt(gone: int) -> None:
    log = LogWriter()
    for _ in range(4):
        log.segment()
        log.batch(b"x")
        log.batch(b"x")
    del log.files[gone]
    assert numbers(log.read()[1].corrupt) == [(2 * gone - 1, 2 * gone)]
    assert log.read()[1].corrupt[0].reason == "missing"


def test_a_missing_newest_segment_is_seen_by_who_knows_of_a_batch_in_it() -> None:
    log = small_log()
    del log.files[2]
    assert log.read()[1].is_clean
    assert numbers(log.read(attested_no=6)[1].corrupt) == [(4, 6)]


def test_segments_that_were_unlinked_oldest_first_are_not_missed() -> None:
    log = LogWriter()
    for _ in range(4):
        log.segment()
        log.batch(b"x")
    del log.files[1], log.files[2]
    found, verdict = log.read()
    assert (sorted(found), verdict.is_clean) == ([3, 4], True)


@pytest.mark.parametrize(
    ("first_no", "lost"), [(0, []), (1, [(1, 2)]), (2, [(2, 2)]), (3, []), (5, [])]
)
def test_what_lock_says_must_be_there_is_missed_from_there_on(
    first_no: int, lost: list[tuple[int, int]]
) -> None:
    """The oldest segments were removed; a start says so once."""
    log = LogWriter()
    for _ in range(4):
        log.segment()
        log.batch(b"x")
    del log.files[1], log.files[2]
    _, verdict = log.read(first_no=first_no)
    assert (numbers(verdict.corrupt), verdict.torn) == (lost, [])
    log.segment()
    for batch in settled_batches(log.next_no, verdict.rows()):
        log.put(batch, verdict.synced_no)
    assert log.read(first_no=first_no)[1].is_clean


@pytest.mark.parametrize("flipped", [False, True])
def test_what_stands_before_the_first_that_must_be_there_was_given(*, flipped: bool) -> None:
    """V4: LOCK names a batch once a segment; what came behind that, and went, it knows as well."""
    log = LogWriter()
    log.segment(7, 9)
    if flipped:
        log.flip(7, 16)
    verdict = log.read(attested_no=4, first_no=9)[1]
    assert (verdict.reserved_no, verdict.synced_no, verdict.corrupt) == (8, 0, [])
    log.segment(next_no=verdict.reserved_no + 1)
    for batch in settled_batches(log.next_no, verdict.rows()):
        log.put(batch, verdict.synced_no)
    log.batch(b"x")
    log.batch(b"x")
    assert log.read(attested_no=9, first_no=9)[1].is_clean


def test_nor_is_what_went_missed_while_an_older_segment_is_there() -> None:
    """Killed between that word and the unlink; of the one behind it the header is lost."""
    log = LogWriter()
    log.segment()
    log.batch(b"x")
    log.segment(next_no=9)
    log.flip(2, 16)
    verdict = log.read(attested_no=1, first_no=9)[1]
    assert (verdict.reserved_no, verdict.corrupt) == (8, [])
    log.segment(next_no=9)
    for batch in settled_batches(9, verdict.rows()):
        log.put(batch, verdict.synced_no)
    log.batch(b"x")
    log.batch(b"x")
    assert log.read(attested_no=9, first_no=9)[1].is_clean


@pytest.mark.parametrize("at", [0, SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES + 70])
def test_a_segment_that_went_and_that_power_brought_back_may_be_damaged(at: int) -> None:
    """V1: the unlink was not durable, nor was the sync of what was written there once more."""
    log = LogWriter()
    log.segment()
    log.batch(b"x")
    log.batch(b"x")
    log.segment()
    log.batch(b"x", synced_no=2)
    log.flip(1, 8 * at)
    assert log.read(first_no=1)[1].corrupt
    verdict = log.read(first_no=3)[1]
    assert verdict.is_clean
    assert len(verdict.superseded) == 1


@pytest.mark.parametrize("length", [0, 10, 63])
def test_how_much_an_oldest_segment_held_lock_tells(length: int) -> None:
    log = LogWriter()
    for _ in range(2):
        log.segment()
        log.batch(b"x")
        log.batch(b"x")
    cut(log, 1, length)
    for first_no, lost in ((1, [(1, 2)]), (2, [(2, 2)]), (3, [])):
        assert numbers(log.read(first_no=first_no)[1].corrupt) == lost


def test_a_damaged_segment_header_is_corrupt_though_it_costs_no_batch() -> None:
    for segment_id in (1, 2):
        log = small_log()
        log.flip(segment_id, 100)
        found, verdict = log.read()
        assert sorted(found) == [1, 2, 3, 4, 5, 6, 7]
        assert verdict.corrupt == [Damage(segment_id, 0, 64, 0, 0, "segment header")]


@pytest.mark.parametrize("segment_id", [1, 2, 3])
def test_a_whole_segment_of_zeros_below_the_watermark_is_corrupt(segment_id: int) -> None:
    log = LogWriter()
    for _ in range(4):
        log.segment()
        log.batch(b"x")
        log.batch(b"x")
    log.files[segment_id] = bytes(len(log.files[segment_id]))
    _, verdict = log.read()
    last = 2 * segment_id
    # How many batches the oldest held is written nowhere else: at least one is reported.
    assert numbers(verdict.corrupt) == [(last if segment_id == 1 else last - 1, last)]


def test_a_power_cut_that_takes_the_start_of_an_unsynced_segment_is_torn() -> None:
    log = small_log()
    log.segment()
    for _ in range(9):
        log.batch(b"x" * 600, synced_no=7)
    file = log.files[3]
    assert isinstance(file, bytearray)
    file[:4096] = bytes(4096)
    lost = [place.batch_no for place in log.places if place.segment_id == 3 and place.offset < 4096]
    assert len(lost) > 2
    first = restart(log)
    assert (numbers(first.torn), first.corrupt) == ([(8, lost[-1])], [])
    log.batch(b"x")
    log.batch(b"x")
    assert restart(log).is_clean


@pytest.mark.parametrize("length", [0, 1, 63])
def test_residue_of_a_segment_is_torn(length: int) -> None:
    log = small_log()
    log.segment()
    cut(log, 3, length)
    first = restart(log)
    assert [(item.segment_id, item.reason) for item in first.torn] == [(3, "residue")]
    assert (first.corrupt, first.last_batch_no) == ([], 7)
    log.batch(b"x")
    log.batch(b"x")
    assert restart(log).is_clean


def test_a_middle_segment_cut_to_nothing_is_corrupt() -> None:
    log = LogWriter()
    for _ in range(3):
        log.segment()
        log.batch(b"x")
    cut(log, 2, 10)
    assert log.read()[1].corrupt == [Damage(2, 0, 10, 2, 2, "residue")]


@pytest.mark.parametrize("length", [0, 10, 63])
def test_an_oldest_segment_cut_below_its_header_is_corrupt(length: int) -> None:
    """No crash leaves it so behind a start: how much it held is not known, one batch is missed."""
    log = LogWriter()
    for _ in range(3):
        log.segment()
        log.batch(b"x")
    cut(log, 1, length)
    assert log.read()[1].corrupt == [Damage(1, 0, length, 1, 1, "residue")]
    first = restart(log)
    assert (numbers(first.corrupt), first.torn) == ([(1, 1)], [])
    assert restart(log).is_clean


def test_what_cannot_be_read_is_neither_torn_nor_corrupt_and_stays_so() -> None:
    log = LogWriter()
    for _ in range(3):
        log.segment()
        log.batch(b"x")
        log.batch(b"x")
    disk = BytesDisk(log.files)
    disk.unreadable.add(2)
    scan = LogScan(disk, LOG)
    assert [batch.batch_no for _, batch in scan] == [1, 2, 5, 6]
    verdict = scan.verdict()
    assert (verdict.torn, verdict.corrupt, verdict.rows()) == ([], [], [])
    assert numbers(verdict.unreadable) == [(3, 4)]
    assert not verdict.is_clean


def test_a_foreign_segment_does_not_explain_what_is_missing() -> None:
    log = LogWriter()
    for _ in range(3):
        log.segment()
        log.batch(b"x")
    log.files[2] = log.files[1]
    _, verdict = log.read()
    assert numbers(verdict.corrupt) == [(2, 2)]
    assert [item.reason for item in verdict.unreadable] == ["foreign"]


def test_segments_out_of_order_are_our_bug() -> None:
    with pytest.raises(AssertionError):
        judge([SegmentFacts(2), SegmentFacts(1)])


@pytest.mark.parametrize("rewritten", [0, 1, 2])
def test_a_rewrite_that_was_killed_strands_batches_and_unlinking_them_is_no_loss(
    rewritten: int,
) -> None:
    log = LogWriter()
    log.segment()
    log.batch(b"synced")
    again = [batch_of(2, [b"two"]), batch_of(3, [b"three"]), batch_of(4, [b"four"])]
    for batch in again:
        log.put(batch, 1)
    log.segment(next_no=2)
    for batch in again[:rewritten]:
        log.put(batch, 1)
    first = restart(log)
    assert first.is_clean
    assert first.last_batch_no == 4
    assert [row[2:4] for row in first.stranded] == [(2 + rewritten, 4)]
    log.batch(b"next")
    log.batch(b"next")
    assert log.read()[1].is_clean
    whole = log.files.pop(1)
    assert log.read()[1].is_clean
    log.files[1] = bytearray(whole)
    log.flip(1, 8 * (log.places[3].offset + BATCH_HEADER_BYTES))
    assert numbers(log.read()[1].corrupt) == [(4, 4)], "while it is there it must be whole"


def test_a_rewrite_over_two_segments_is_missed_from_its_own_beginning() -> None:
    log = LogWriter()
    log.segment()
    first = log.put(batch_of(1, [b"one"]), 0)
    log.segment()
    again = [batch_of(number, [b"x"]) for number in (2, 3)]
    for batch in again:
        log.put(batch, 0)
    log.segment(next_no=1)
    for batch in [batch_of(1, [b"one"]), *again]:
        log.put(batch, 0)
    log.batch(b"four")
    del log.files[1]
    rewritten = log.places[3]
    assert (rewritten.batch_no, rewritten.payload) == (1, first.payload)
    log.flip(3, 8 * (rewritten.offset + BATCH_HEADER_BYTES))
    assert numbers(log.read()[1].corrupt) == [(1, 1)]


def test_a_hole_is_not_cut_short_by_a_segment_that_holds_its_batches_again() -> None:
    log = LogWriter()
    log.segment()
    for number in range(1, 5):
        log.batch(b"x" * 40, synced_no=min(number - 1, 1))
    log.segment(next_no=2)
    log.put(batch_of(2, [b"x" * 40]), 1)
    restart(log)
    cut(log, 1, log.places[3].offset + 10)
    (hole,) = log.read()[1].torn
    assert (hole.segment_id, hole.first_no, hole.last_no) == (1, 4, 4)


@pytest.mark.parametrize("again", [True, False])
def test_a_lost_header_of_what_was_written_again_is_not_corrupt(again: bool) -> None:
    """V1: a sync of segment 2 failed, 3 has its batches again, and power took 2, never synced.

    Where 3 was begun for want of room, 2 was whole: its loss is damage.
    """
    log = LogWriter()
    log.segment(2, next_no=5)
    log.batch(b"first")
    log.batch(b"second")
    log.segment(3, next_no=5 if again else 7, again=again)
    for _ in range(4):
        log.batch(b"and on")
    log.files[2] = bytes(64) + bytes(log.files[2][64:]) if again else bytes(len(log.files[2]))
    _, verdict = log.read()
    assert bool(verdict.corrupt) is not again
    assert verdict.torn or not again


def test_a_lost_header_that_was_judged_stays_so_when_it_is_the_oldest() -> None:
    """V1: power took a segment that was never synced; a start said so; those before it are gone."""
    log = LogWriter()
    log.segment()
    log.batch(b"one")
    log.batch(b"two")
    log.segment()
    log.batch(b"x" * 1000, synced_no=2)
    log.files[2] = bytearray(len(log.files[2]))
    first = restart(log)
    assert (first.corrupt, first.last_batch_no) == ([], 2)
    assert [place[:3] for place in first.torn] == [(2, 0, len(log.files[2]))]
    log.segment()
    log.batch(b"and on", synced_no=3)
    del log.files[1]
    _, verdict = log.read()
    assert (verdict.corrupt, verdict.torn) == ([], [])


def test_lost_headers_that_no_number_stands_below_are_judged_once() -> None:
    """V1: power took three segments, none of them synced, and left the fourth, which goes on.

    What the three held nothing tells, so no number is missed. The start after the next one, which
    finds the third alone, must not miss one either.
    """
    log = LogWriter()
    for _ in range(4):
        log.segment()
        log.batch(b"x" * 100, synced_no=0)
    log.files[1] = bytearray()
    for lost in (2, 3):
        log.files[lost] = bytearray(len(log.files[lost]))
    first = restart(log)
    assert (first.corrupt, first.superseded) == ([], [])
    assert [place.segment_id for place in first.torn] == [1, 2, 3]
    del log.files[1]  # a start renames the residue of one
    log.batch(b"and on")
    assert log.read()[1].is_clean
    del log.files[2]
    assert log.read()[1].is_clean


def test_a_lost_header_whose_batches_stand_elsewhere_is_judged_once() -> None:
    """V1: 2 was full, 3 went on; their sync failed, 4 has it all again; power took two headers."""
    log = LogWriter()
    log.segment()
    for _ in range(3):
        log.batch(b"x" * 100)
    again = [batch_of(number, [b"x" * 100]) for number in (4, 5, 6, 7)]
    log.segment()
    for batch in again[:3]:
        log.put(batch, 3)
    log.segment()
    log.put(again[3], 3)
    log.segment(next_no=4, again=True)
    for batch in again:
        log.put(batch, 3)
    log.files[2] = bytearray(len(log.files[2]))
    log.files[4] = bytes(SEGMENT_HEADER_BYTES) + bytes(log.files[4][SEGMENT_HEADER_BYTES:])
    first = restart(log)
    assert (first.corrupt, numbers(first.superseded)) == ([], [(4, 6)])
    log.batch(b"and on")
    assert log.read()[1].is_clean
    del log.files[1]
    assert log.read()[1].is_clean


@pytest.mark.parametrize("again_no", [35, 46])
def test_a_lost_header_of_what_was_written_again_behind_another_segment(again_no: int) -> None:
    """V1: segment 5 was full, 9 went on; then the sync of both failed, and 10 has all of it again.

    Where 10 has the batch of 9 alone, 5 was synced: its loss is damage.
    """
    log = LogWriter()
    log.segment(5, next_no=35)
    for _ in range(11):
        log.batch(b"x", synced_no=34)
    log.segment(9)
    log.batch(b"x", synced_no=34)
    log.segment(10, next_no=again_no, again=True)
    while log.next_no <= 46:
        log.batch(b"x", synced_no=again_no - 1)
    log.files[5] = bytearray(len(log.files[5]))
    _, verdict = log.read()
    assert numbers(verdict.corrupt) == ([] if again_no == 35 else [(45, 45)])
