"""The index of a log: whole columns at once, and carried records in their place."""

from __future__ import annotations

from wal_files import LogWriter

from walld.wal.encode import BatchEncoder
from walld.wal.index import OFFSET_BITS, LogIndex, StreamRecords
from walld.wal.layout import BATCH_HEADER_BYTES, Flag, entry_bytes
from walld.wal.scan import ScannedBatch

Record = tuple[int, int, int, int, bytes]
"""stream_no, first_seq, last_seq, flags, body"""


def batch(number: int, *records: Record) -> tuple[ScannedBatch, list[int]]:
    """As a scan gives it, and the places of its records."""
    builder = BatchEncoder()
    for stream_no, first_seq, last_seq, flags, body in records:
        builder.add(stream_no, first_seq, last_seq, flags, body)
    made = builder.seal(number)
    log = LogWriter()
    log.segment(next_no=number)
    log.put(made, 0)
    (scanned,) = log.read()[0].values()
    return scanned, [number << OFFSET_BITS | offset for offset in made.offsets]


def indexed(*batches: ScannedBatch) -> tuple[LogIndex, dict[int, StreamRecords]]:
    index = LogIndex()
    for one in batches:
        index.take(one)
    return index, dict(index.streams())


def test_each_stream_has_its_records_and_their_places() -> None:
    first, (a0, b0, a1) = batch(
        1, (7, 0, 3, Flag.BEGIN, b"aaa"), (9, 0, 0, 1, b"b"), (7, 4, 5, 0, b"aa")
    )
    second, (b1,) = batch(3, (9, 1, 8, 0, b"bbbb"))
    index, streams = indexed(first, second)
    assert list(streams) == [7, 9]
    assert list(streams[7].where) == [a0, a1]
    assert list(streams[7].sizes) == [3, 2]
    assert streams[7].last_seq == 5
    assert streams[7].telling == [(a0, 3)]
    assert list(streams[9].where) == [b0, b1]
    assert streams[9].last_seq == 8
    assert not streams[9].carried
    assert index.last_no == 9
    assert a0 & (1 << OFFSET_BITS) - 1 == BATCH_HEADER_BYTES + 3 * entry_bytes(0)


def test_a_tombstone_ends_a_stream_whatever_comes_with_it() -> None:
    one, _ = batch(1, (7, 0, 3, Flag.BEGIN, b"aaa"), (8, 0, 0, Flag.BEGIN, b"b"))
    two, _ = batch(2, (7, 4, 4, Flag.RELEASED, b""), (8, 1, 1, Flag.RESOLVED, b""))
    index, streams = indexed(one, two)
    assert streams == {}
    assert set(index.dead) == {7, 8}
    assert index.tombstones({2}) == [(7, 4, Flag.RELEASED), (8, 1, Flag.RESOLVED)]
    assert index.tombstones({1}) == []
    assert index.last_no == 8


def test_a_carried_record_stands_where_those_stood_that_it_replaces() -> None:
    one, _ = batch(1, (7, 0, 3, Flag.BEGIN, b"aaa"), (7, 4, 9, 0, b"bb"))
    two, (tail,) = batch(2, (7, 10, 12, 0, b"c"))
    three, (merged,) = batch(3, (7, 0, 9, Flag.CARRIED | Flag.BEGIN, b"aaabb"))
    four, (newest,) = batch(4, (7, 13, 13, Flag.TERMINAL, b"d"))
    _, streams = indexed(one, two, three, four)
    assert list(streams[7].where) == [merged, tail, newest]
    assert list(streams[7].sizes) == [5, 1, 1]
    assert streams[7].telling == [(merged, 5), (newest, 1)], "the old beginning may be gone"
    assert streams[7].last_seq == 13
    assert streams[7].carried


def test_a_carried_record_at_the_end_does_not_shorten_its_stream() -> None:
    one, _ = batch(1, (7, 0, 3, Flag.BEGIN, b"aaa"))
    two, (tail,) = batch(2, (7, 4, 20, 0, b"c"))
    three, (merged,) = batch(3, (7, 0, 3, Flag.CARRIED | Flag.BEGIN, b"aaa"))
    _, streams = indexed(one, two, three)
    assert list(streams[7].where) == [merged, tail]
    assert streams[7].last_seq == 20


def test_carried_twice_and_in_parts() -> None:
    one, _ = batch(1, *[(7, seq, seq, Flag.BEGIN if not seq else 0, b"x") for seq in range(6)])
    two, _ = batch(2, (7, 0, 1, Flag.CARRIED | Flag.BEGIN, b"xx"), (7, 2, 3, Flag.CARRIED, b"xx"))
    three, (whole,) = batch(3, (7, 0, 3, Flag.CARRIED | Flag.BEGIN, b"xxxx"))
    _, streams = indexed(one, two, three)
    assert streams[7].where[0] == whole
    assert list(streams[7].sizes) == [4, 1, 1]
    assert streams[7].last_seq == 5


def test_batches_of_other_widths_are_one_index() -> None:
    large, long = 2**40, b"x" * 70_000
    one, (a0,) = batch(1, (7, 0, 3, Flag.BEGIN, b"aaa"))
    two, (b0, a1) = batch(2, (large, 0, 0, Flag.BEGIN, long), (7, 4, 2**32 - 1, 0, b"a"))
    three, (b1,) = batch(3, (large, 1, 300, Flag.TERMINAL, b"y" * 300))
    index, streams = indexed(one, two, three)
    assert list(streams) == [7, large]
    assert (list(streams[7].where), list(streams[7].sizes)) == ([a0, a1], [3, 1])
    assert streams[7].last_seq == 2**32 - 1
    assert (list(streams[large].where), list(streams[large].sizes)) == ([b0, b1], [70_000, 300])
    assert streams[large].last_seq == 300
    assert streams[large].telling == [(b0, 70_000), (b1, 300)]
    assert index.last_no == large


def test_nothing_and_an_empty_batch() -> None:
    empty, _ = batch(1)
    index, streams = indexed(empty)
    assert (streams, index.last_no) == ({}, 0)


def test_what_a_rewrite_left_in_two_segments_is_told_in_order() -> None:
    """After a failed sync the older of two segments may hold the last batches and no others."""
    four, (end, other) = batch(4, (7, 13, 18, Flag.TERMINAL, b"end"), (9, 0, 0, Flag.BEGIN, b"o"))
    one, (beginning,) = batch(1, (7, 0, 5, Flag.BEGIN, b"begin"))
    two, (middle,) = batch(2, (7, 6, 12, Flag.MOVED, b"middle"))
    _, streams = indexed(four, one, two)
    assert list(streams) == [7, 9]
    assert list(streams[7].where) == [beginning, middle, end]
    assert list(streams[7].sizes) == [5, 6, 3]
    assert streams[7].last_seq == 18
    assert streams[7].telling == [(beginning, 5), (middle, 6), (end, 3)]
    assert list(streams[9].where) == [other]


def test_a_carried_record_replaces_also_what_a_scan_gives_behind_it() -> None:
    five, (merged, tail) = batch(
        5, (7, 0, 12, Flag.CARRIED | Flag.BEGIN, b"merged"), (7, 13, 18, 0, b"tail")
    )
    one, _ = batch(1, (7, 0, 5, Flag.BEGIN, b"begin"))
    two, _ = batch(2, (7, 6, 12, 0, b"middle"))
    _, streams = indexed(five, one, two)
    assert list(streams[7].where) == [merged, tail]
    assert streams[7].last_seq == 18
    assert streams[7].telling == [(merged, 6)]
