"""One stream: folding as it arrives (S1, S3), and an index that stays small (S2)."""

from __future__ import annotations

import sys

import pytest

from walld import limits
from walld.engine.stream import (
    OFFSET_BITS,
    RUN_BYTES_CUT,
    WAITING_OVERHEAD_BYTES,
    Place,
    Stream,
    varint_lengths,
)
from walld.replies.merge import token_sizes
from walld.wal import records

OWNER = records.Owner("boot", 7, 0, 0)
BEGIN = records.Begin(1000, b"p" * 16, 1, "r", "s", None, None, None, 5, OWNER)


def take_tokens(stream: Stream, kind: int, first_seq: int, texts: list[bytes], at_ms: int) -> int:
    lengths = varint_lengths([len(text) for text in texts])
    return stream.take_run(kind, first_seq, len(texts), lengths, b"".join(texts), at_ms)


def fresh() -> Stream:
    """A stream that has begun and is flushed."""
    stream = Stream(1, BEGIN, None)
    stream.next_seq = 1
    return stream


def items(stream: Stream) -> list[records.Item]:
    stream.seal()
    return records.decode_items(records.join_items([w.item for w in stream.waiting]))


@pytest.mark.parametrize("length", [0, 1, 127, 128, 300, 16_383, 16_384, 1_000_000])
def test_lengths_are_leb128_whatever_they_are(length: int) -> None:
    assert token_sizes(varint_lengths([length, 2])) == [length, 2]


def test_consecutive_tokens_are_one_item() -> None:
    stream = fresh()
    take_tokens(stream, 3, 1, [b"He", b"l", b""], 10)
    take_tokens(stream, 3, 4, [b"lo"], 11)
    assert items(stream) == [records.Text(1, 10 - BEGIN.at_ms, b"\x02\x01\x00\x02", b"Hello")]
    assert stream.next_seq == 5


def test_reasoning_is_an_item_of_its_own_and_a_clock_may_go_backwards() -> None:
    stream = fresh()
    take_tokens(stream, 4, 1, [b"h", b"m"], BEGIN.at_ms - 3)
    assert items(stream) == [records.Thought(1, -3, b"\x01\x01", b"hm")]


def test_another_kind_and_a_gap_each_begin_another_item() -> None:
    """S1: what lies between two items is a gap."""
    stream = fresh()
    take_tokens(stream, 4, 1, [b"hm"], 10)
    take_tokens(stream, 3, 2, [b"a"], 11)
    take_tokens(stream, 3, 7, [b"b"], 12)
    assert [
        (i.kind, i.first_seq, i.last_seq) for i in items(stream) if isinstance(i, records.Text)
    ] == [
        (4, 1, 1),
        (3, 2, 2),
        (3, 7, 7),
    ]


def test_an_event_closes_the_run_before_it() -> None:
    stream = fresh()
    take_tokens(stream, 3, 1, [b"a"], 10)
    stream.take_item(2, 8, records.encode_item(BEGIN))
    take_tokens(stream, 3, 3, [b"b"], 12)
    stream.seal()
    assert [(w.first_seq, w.last_seq, w.flags) for w in stream.waiting] == [
        (1, 1, 0),
        (2, 2, 8),
        (3, 3, 0),
    ]


def test_a_run_is_cut_before_it_is_hard_to_place() -> None:
    stream = fresh()
    for seq in range(1, 10):
        take_tokens(stream, 3, seq, [b"x" * 1000], 10)
    sizes = [len(i.text) for i in items(stream) if isinstance(i, records.Text)]
    assert sum(sizes) == 9000
    assert max(sizes) < RUN_BYTES_CUT + 1000


def test_what_waits_is_sealed_or_open_never_both() -> None:
    """S3."""
    stream = fresh()
    assert not stream.has_waiting
    take_tokens(stream, 3, 1, [b"a"], 10)
    assert (stream.has_waiting, stream.waiting) == (True, [])
    stream.seal()
    stream.seal()
    assert (stream.has_waiting, len(stream.waiting)) == (True, 1)
    take_tokens(stream, 3, 2, [b"b"], 10)
    assert [len(w.item) > 0 for w in stream.waiting] == [True]
    assert [i.text for i in items(stream) if isinstance(i, records.Text)] == [b"a", b"b"]


def test_every_byte_is_counted_in_and_out() -> None:
    stream = fresh()
    grown = take_tokens(stream, 3, 1, [b"abc"], 10)
    assert grown == 1 + 3 + WAITING_OVERHEAD_BYTES
    assert take_tokens(stream, 3, 2, [b"d"], 10) == 2, "a run that goes on costs its bytes alone"
    grown += 2 + stream.take_item(3, 0, b"12345")
    assert stream.waiting_bytes == grown
    assert stream.drop_waiting() == grown
    assert (stream.waiting_bytes, stream.has_waiting) == (0, False)


def test_places_hold_the_largest_batch_and_come_back_as_they_were() -> None:
    stream = fresh()
    given = [Place(1, 48, 10), Place(2**40 - 1, limits.BATCH_BYTES_MAX - 1, 2**31), Place(7, 72, 0)]
    for place in given:
        stream.place(place)
    assert list(stream.places()) == given
    assert list(stream.places(1, 1)) == given[1:2]
    assert limits.BATCH_BYTES_MAX < 1 << OFFSET_BITS
    stream.replace_places(0, 2, Place(9, 100, 30))
    assert list(stream.places()) == [Place(9, 100, 30), Place(7, 72, 0)]
    assert stream.records == 2
    stream.forget_places()
    assert (list(stream.places()), stream.records) == ([], 0)


def test_an_idle_stream_stays_below_its_share_of_memory() -> None:
    """S2: 12 bytes a record up to the bound, in two arrays; nothing else grows with the text."""
    stream = fresh()
    for batch in range(1, limits.INDEX_ENTRIES_MAX + 1):
        stream.place(Place(batch, 48, 100))
    index = sys.getsizeof(stream.where) + sys.getsizeof(stream.sizes)
    assert stream.where.itemsize + stream.sizes.itemsize == 12
    assert index + sys.getsizeof(stream) < 2048 + 512
