"""Where batches stand (G1), what of a segment is needed (G2), and when one may go (G3)."""

from __future__ import annotations

import pytest

from walld.engine.segments import Segment, Segments
from walld.engine.stream import Place, Stream
from walld.wal.layout import ENTRY_BYTES, SEGMENT_HEADER_BYTES
from walld.wal.records import Begin, Owner

BEGIN = Begin(1000, b"p" * 16, 1, "r", "s", None, None, None, 5, Owner("boot", 7, 0, 0))


def two() -> Segments:
    """Batches 1 to 3 in segment 1, 4 and 5 in segment 4; 100 bytes each."""
    segments = Segments()
    segments.add(Segment(1, 1, 0.0))
    for batch_no in (1, 2, 3):
        segments.wrote(batch_no, segments.current.size, 100)
    segments.add(Segment(4, 4, 9.0))
    for batch_no in (4, 5):
        segments.wrote(batch_no, segments.current.size, 100)
    return segments


def test_a_batch_is_found_by_its_number_and_none_that_is_not_there() -> None:
    segments = two()
    assert segments.locate(1) == (1, SEGMENT_HEADER_BYTES)
    assert segments.locate(3) == (1, SEGMENT_HEADER_BYTES + 200)
    assert segments.locate(4) == (4, SEGMENT_HEADER_BYTES)
    assert [segments.locate(number) for number in (0, 6)] == [None, None]
    assert segments.size == 2 * SEGMENT_HEADER_BYTES + 500


def test_numbers_are_dense_and_the_last_segment_alone_grows() -> None:
    """G1."""
    segments = two()
    for wrong in (3, 5, 7):
        with pytest.raises(AssertionError):
            segments.wrote(wrong, segments.current.size, 100)
    with pytest.raises(AssertionError):
        segments.add(Segment(4, 6, 0.0))
    segments.wrote(6, segments.current.size, 100)
    assert [segment.last_batch for segment in segments] == [3, 6]
    assert not segments.overlaps


def test_two_segments_of_one_range_hold_what_each_has_a_place_for() -> None:
    """G1: a start read batch 5 out of the second of them, for in the first it was damaged."""
    segments = Segments()
    for segment_id, first_batch, offsets in ((1, 4, [64, 0, 300]), (2, 5, [64]), (3, 7, [64])):
        segments.add(Segment(segment_id, first_batch, 0.0))
        segments.current.offsets.extend(offsets)
    assert segments.overlaps
    assert [segments.locate(number) for number in range(3, 9)] == [
        None,
        (1, 64),
        (2, 64),
        (1, 300),
        (3, 64),
        None,
    ]
    assert segments.first_batch == 4
    segments.unlinked(segments.oldest)
    assert not segments.overlaps
    assert [segments.locate(number) for number in (4, 5, 6, 7)] == [None, (2, 64), None, (3, 64)]


def test_live_bytes_are_entry_and_body_of_what_is_needed() -> None:
    """G2."""
    segments = two()
    segments.lived(segments.oldest, 50)
    segments.lived(segments.oldest, 7)
    segments.lived(segments.current, 1)
    assert segments.oldest.live_bytes == 57 + 2 * ENTRY_BYTES
    assert segments.live_bytes == 58 + 3 * ENTRY_BYTES
    segments.died(2, 50, 5, now=3.0)
    segments.died(1, 7, 4, now=8.0)
    assert (segments.oldest.live_bytes, segments.live_bytes) == (0, 1 + ENTRY_BYTES)
    assert segments.oldest.unlink_after == 5, "the latest of what ordered it"
    assert segments.oldest.released_since == 3.0, "the first release starts the clock"


def test_a_carry_starts_no_clock() -> None:
    segments = two()
    segments.lived(segments.oldest, 50)
    segments.died(1, 50, 5, now=None)
    assert segments.oldest.released_since is None


def test_what_dies_twice_is_our_bug() -> None:
    segments = two()
    segments.lived(segments.oldest, 50)
    segments.died(1, 50, 5, now=None)
    with pytest.raises(AssertionError):
        segments.died(1, 50, 5, now=None)


def test_a_record_of_a_segment_that_is_gone_dies_without_a_trace() -> None:
    segments = two()
    segments.died(99, 50, 5, now=1.0)
    assert segments.live_bytes == 0


def test_only_the_oldest_goes_dead_and_with_its_orders_synced() -> None:
    """G3."""
    segments = two()
    oldest = segments.oldest
    segments.lived(oldest, 50)
    assert segments.can_unlink(synced_no=5) is None, "something in it is needed"
    segments.died(1, 50, 5, now=1.0)
    assert segments.can_unlink(synced_no=4) is None, "the tombstone is not synced"
    assert segments.can_unlink(synced_no=5) is oldest
    segments.unlinked(oldest)
    assert segments.can_unlink(synced_no=5) is None, "the last one is written to"
    assert segments.size == SEGMENT_HEADER_BYTES + 200
    assert segments.locate(3) is None


def test_a_dead_segment_behind_a_live_one_waits() -> None:
    """G3: strictly oldest first, so that a tombstone never goes before what it buries."""
    segments = two()
    segments.add(Segment(5, 6, 0.0))
    segments.lived(segments.oldest, 1)
    assert segments.can_unlink(synced_no=5) is None
    with pytest.raises(AssertionError):
        segments.unlinked(list(segments)[1])


def test_a_poisoned_segment_keeps_only_what_was_synced() -> None:
    segments = two()
    segments.poison(synced_no=4)
    assert segments.current.poisoned
    assert segments.locate(4) == (4, SEGMENT_HEADER_BYTES)
    assert segments.locate(5) is None
    segments.add(Segment(5, 5, 0.0))
    segments.wrote(5, SEGMENT_HEADER_BYTES, 100)
    assert segments.locate(5) == (5, SEGMENT_HEADER_BYTES)


def test_a_poisoned_segment_of_which_nothing_was_synced_gives_up_all() -> None:
    segments = two()
    segments.poison(synced_no=3)
    segments.add(Segment(5, 4, 0.0))
    segments.wrote(4, SEGMENT_HEADER_BYTES, 100)
    assert segments.locate(4) == (5, SEGMENT_HEADER_BYTES)


def test_between_names_the_segments_a_sync_must_reach() -> None:
    segments = two()
    assert [s.segment_id for s in segments.between(2, 3)] == [1]
    assert [s.segment_id for s in segments.between(3, 4)] == [1, 4]
    assert [s.segment_id for s in segments.between(4, 5)] == [4]
    assert segments.between(6, 5) == []


def test_a_recount_goes_by_where_batches_stand_now() -> None:
    segments = two()
    stream = Stream(1, BEGIN, None)
    stream.place(Place(3, 48, 30))
    stream.place(Place(5, 48, 40))
    segments.lived(segments.oldest, 999)
    segments.recount([stream])
    assert [s.live_bytes for s in segments] == [30 + ENTRY_BYTES, 40 + ENTRY_BYTES]
    segments.poison(synced_no=4)
    segments.recount([stream])
    assert [s.live_bytes for s in segments] == [30 + ENTRY_BYTES, 0]
    assert segments.live_bytes == 30 + ENTRY_BYTES


def test_poisoned_right_after_a_roll() -> None:
    """The segment that failed is empty and those before it hold what is not synced."""
    segments = two()
    segments.add(Segment(5, 6, 0.0))
    segments.poison(synced_no=2)
    segments.add(Segment(6, 3, 0.0))
    for batch_no in (3, 4, 5, 6):
        segments.wrote(batch_no, segments.current.size, 100)
    assert [segments.locate(number) for number in (2, 3, 6)] == [
        (1, SEGMENT_HEADER_BYTES + 100),
        (6, SEGMENT_HEADER_BYTES),
        (6, SEGMENT_HEADER_BYTES + 300),
    ]


def test_what_is_released_while_it_is_written_again_is_as_due() -> None:
    """P5: its batch stands nowhere at that moment; the segment it goes to must know."""
    segments = Segments()
    segments.add(Segment(1, 1, 0.0))
    segments.wrote(1, 64, 100)
    segments.poison(0)
    segments.add(Segment(2, 1, 0.0))
    segments.died(1, 50, 2, 7.0)
    assert segments.current.released_since == 7.0


def test_released_bytes_that_are_written_again_are_due_where_they_stand_then() -> None:
    """P5: they were due in the segment that was poisoned, which goes on without them."""
    segments = two()
    segments.current.last_release_at, segments.current.released_since = 5.0, 4.0
    segments.poison(3)
    segments.add(Segment(6, 4, 9.0))
    segments.recount([])
    assert (segments.current.last_release_at, segments.current.released_since) == (5.0, 4.0)


def nameless(segments: Segments, segment_id: int, first_batch: int) -> None:
    """A segment of which nothing was read, as a start adds it."""
    segments.add(Segment(segment_id, first_batch, 0.0, nameless=True))


def test_one_of_which_nothing_was_read_begins_behind_those_before_it() -> None:
    """They may have lost what is missing there: it is not forgotten when they go."""
    segments = Segments()
    segments.add(Segment(1, 4, 0.0))
    segments.current.offsets.extend([64, 100])
    nameless(segments, 2, 6)
    segments.add(Segment(3, 1000, 0.0))
    assert [segments.begin_without(count) for count in (0, 1, 2)] == [4, 6, 1000]
    segments.unlinked(segments.oldest)
    assert segments.begin_without(1) == 1000


def test_with_none_before_it_that_tells_it_does_not_count() -> None:
    """It may begin anywhere: what went before it would be missed."""
    segments = Segments()
    nameless(segments, 1, 1)
    nameless(segments, 2, 1)
    segments.add(Segment(3, 1000, 0.0))
    assert [segments.begin_without(count) for count in (0, 1, 2)] == [1000, 1000, 1000]
