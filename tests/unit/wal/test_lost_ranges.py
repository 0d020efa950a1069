"""Which seqs a hole cost: gaps between what stands, and which batches can have held them."""

from __future__ import annotations

import pytest
from wal_files import LOG, BytesDisk, BytesFile, LogWriter

from walld.recovery.quarantine import tails_lost
from walld.wal.encode import BatchEncoder
from walld.wal.layout import Flag
from walld.wal.lost_ranges import Coverage, Gap
from walld.wal.scan import SegmentScan


def coverage(*batches: list[tuple[int, int, int, int]]) -> Coverage:
    """Batches 1, 2, ... of (stream, first seq, last seq, flags), as a scan gives them."""
    log = LogWriter()
    segment = log.segment()
    for number, rows in enumerate(batches, 1):
        builder = BatchEncoder()
        for row in rows:
            builder.add(*row, b"body")
        log.put(builder.seal(number), number - 1)
    found = Coverage()
    for batch in SegmentScan(BytesFile("s", bytes(log.files[segment])), segment, LOG):
        found.take(segment, batch)
    return found


def test_a_gap_is_between_the_batches_that_hold_its_neighbours() -> None:
    found = coverage([(1, 0, 2, 0)], [], [(1, 5, 9, 0)], [(1, 10, 10, 0)])
    assert found.gaps(1) == [Gap(3, 4, 1, 3)]
    assert found.lost(2, 2) == {1: [(3, 4)]}
    assert found.lost(4, 4) == {}
    assert found.lost(0, 0) == {}, "a hole that cost no batch"


def test_what_is_written_again_or_carried_closes_its_gap() -> None:
    found = coverage([(1, 0, 2, 0)], [(1, 5, 9, 0)], [(1, 2, 6, Flag.CARRIED)])
    assert found.gaps(1) == []


def test_behind_a_carried_record_any_earlier_batch_may_be_the_one() -> None:
    found = coverage([], [(1, 8, 9, 0)], [(1, 0, 4, Flag.CARRIED)])
    assert found.gaps(1) == [Gap(5, 7, 3, 2)]
    assert found.lost(1, 1) == {1: [(5, 7)]}


def test_nobody_misses_what_was_released() -> None:
    found = coverage([(1, 0, 0, 0)], [(1, 5, 5, 0)], [(1, 5, 5, Flag.RELEASED)])
    assert (found.gaps(1), found.dead) == ([], {1})
    assert found.lost(1, 3, [(1, 0, 9)]) == {}


def test_a_partial_holds_the_beginning() -> None:
    found = coverage([(1, 6, 7, 0)])
    assert found.gaps(1) == [Gap(0, 5, 0, 1)]
    found.has(1, 0, 5)
    assert found.gaps(1) == []


def test_what_a_doubtful_directory_claims_counts_where_nothing_else_has_it() -> None:
    found = coverage([(1, 0, 2, 0)])
    assert found.lost(2, 2, [(1, 2, 4), (7, 0, 1)]) == {1: [(3, 4)], 7: [(0, 1)]}


def test_streams_that_had_not_ended() -> None:
    found = coverage([(1, 0, 0, 0), (2, 0, 0, Flag.TERMINAL), (3, 0, 0, 0)], [], [(3, 1, 1, 0)])
    assert (found.open_before(2), found.open_before(4)) == (1, 2)


@pytest.mark.parametrize("is_last", [False, True])
def test_an_empty_batch_takes_nobodys_end(*, is_last: bool) -> None:
    """It has a header and no more; at the end of a file more may have stood there."""
    log = LogWriter()
    log.segment()
    log.batch(b"a")
    empty = log.batch()
    if not is_last:
        log.batch(b"b", synced_no=2)
    log.segment()
    log.batch(synced_no=log.next_no - 1)
    log.flip(empty.segment_id, (empty.offset + 12) * 8)
    found, verdict = log.read()
    (damage,) = verdict.corrupt
    assert (damage.first_no, damage.last_no) == (2, 2)
    coverage = Coverage()
    coverage.take(1, found[1])
    found_lost = tails_lost(BytesDisk(log.files), LOG, verdict, coverage)
    assert found_lost == ({1: 2} if is_last else {})
