"""Batches: what stands where, and what must never be written."""

from __future__ import annotations

from zlib import crc32

import pytest

from walld import limits
from walld.wal import layout
from walld.wal.encode import Batch, BatchEncoder, settled_batches
from walld.wal.layout import BATCH_HEADER_BYTES, Settled


def test_offsets_find_bodies_in_memory_and_in_the_file() -> None:
    builder = BatchEncoder()
    bodies = [b"a", b"", b"b" * 100, b"cc"]
    for index, body in enumerate(bodies):
        builder.add(index + 1, index, index + 5, index, body)
    batch = builder.seal(9)
    raw = batch.stamped(7, seed=5, offset=64)
    assert len(raw) == len(batch)
    assert len(raw) % layout.BATCH_ALIGNMENT == 0
    for offset, body in zip(batch.offsets, bodies, strict=True):
        assert raw[offset : offset + len(body)] == body
        assert batch.body(offset, len(body)) == body
    header = layout.unpack_batch_header(raw, 5, 64)
    assert header is not None
    columns = layout.unpack_directory(header, memoryview(batch.payload))
    assert columns is not None
    assert list(columns.stream_no) == [1, 2, 3, 4]
    assert list(columns.first_seq) == list(columns.flags) == [0, 1, 2, 3]
    assert list(columns.span) == [5, 5, 5, 5]
    assert list(columns.body_bytes) == [1, 0, 100, 2]


def test_the_bytes_of_a_batch() -> None:
    """Worked out by hand: the columns one behind the other, flags, bodies, padding."""
    builder = BatchEncoder()
    builder.add(0x0102, 7, 9, layout.Flag.BEGIN, b"abc")
    builder.add(5, 0x010203, 0x010203, 0, b"")
    batch = builder.seal(9)
    assert batch.widths == 0b00_00_10_01
    assert batch.payload == (
        b"\x02\x01\x05\x00\x07\x00\x00\x00\x03\x02\x01\x00\x02\x00\x03\x00\x01\x00abc\x00\x00\x00"
    )
    assert batch.offsets == [28 + 18, 28 + 21]
    fixed = bytes.fromhex("feb1 00 09 0200 0200 18000000 0900000000000000")
    fixed += crc32(batch.payload).to_bytes(4, "little")
    crc = crc32(fixed, crc32((64).to_bytes(8, "little"), 5))
    assert batch.stamped(7, 5, 64) == fixed + crc.to_bytes(4, "little") + batch.payload


def test_the_header_says_what_the_batch_is() -> None:
    builder = BatchEncoder()
    builder.add(3, 0, 1, layout.Flag.BEGIN, b"body")
    batch = builder.seal(9)
    header = layout.unpack_batch_header(batch.stamped(7, 5, 64), 5, 64)
    size, crc = len(batch.payload), crc32(batch.payload)
    assert header == (layout.BatchKind.RECORDS, 0, 1, 7, size, 9, crc)


def test_the_same_batch_can_be_stamped_for_another_place() -> None:
    builder = BatchEncoder()
    builder.add(1, 0, 0, 0, b"body")
    batch = builder.seal(9)
    first, second = batch.stamped(1, 5, 64), batch.stamped(2, 6, 128)
    assert first[BATCH_HEADER_BYTES:] == second[BATCH_HEADER_BYTES:]
    assert layout.unpack_batch_header(second, 6, 128) is not None
    assert layout.unpack_batch_header(first, 6, 128) is None


def test_an_empty_batch_is_a_header() -> None:
    batch = BatchEncoder().seal(1)
    assert len(batch) == BATCH_HEADER_BYTES
    assert batch.offsets == []


def test_the_cut_is_kept_and_a_larger_record_is_alone() -> None:
    builder = BatchEncoder()
    assert builder.fits(1, 0, 0, limits.BATCH_BYTES_MAX)
    # A body this long makes its column 4 bytes wide, for both records.
    room = limits.BATCH_BYTES_CUT - BATCH_HEADER_BYTES - 2 * (1 + 1 + 1 + 4 + 1)
    builder.add(1, 0, 0, 0, bytes(100))
    assert builder.fits(1, 1, 1, room - 100)
    assert not builder.fits(1, 1, 1, room - 99)
    assert not builder.fits(256, 1, 1, room - 100), "wider for both"
    builder.add(1, 1, 1, 0, bytes(room - 100))
    assert len(builder) == 2
    assert len(builder.seal(1)) == limits.BATCH_BYTES_CUT


def test_what_one_record_widens_is_counted_for_all() -> None:
    """The last of many is the one with a large number: each entry before it grows too."""
    builder = BatchEncoder()
    count = 0
    while builder.fits(1, 0, 0, 100):
        builder.add(1, 0, 0, 0, bytes(100))
        count += 1
    narrow = BATCH_HEADER_BYTES + count * (layout.entry_bytes(0) + 100)
    assert limits.BATCH_BYTES_CUT - 105 < narrow <= limits.BATCH_BYTES_CUT
    wide = BatchEncoder()
    for _ in range(count - 50):
        wide.add(1, 0, 0, 0, bytes(100))
    assert wide.fits(1, 0, 0, 0)
    assert not wide.fits(2**32, 0, 0, 0)


def test_what_a_scan_would_refuse_is_never_written() -> None:
    with pytest.raises(AssertionError):
        Batch(1, 1, bytes(limits.BATCH_BYTES_MAX), [])
    with pytest.raises(AssertionError):
        Batch(1, 1, bytes(7), [])
    with pytest.raises(AssertionError):
        Batch(0, 0, b"", [])
    with pytest.raises(AssertionError):
        Batch(1, layout.RECORDS_MAX + 1, b"", [])
    Batch(1, layout.RECORDS_MAX, bytes(limits.BATCH_BYTES_MAX - BATCH_HEADER_BYTES), [])


def test_settled_rows_fill_as_many_batches_as_they_need() -> None:
    rows = [Settled(1, 64 * i, i, i, 1 + i % 2) for i in range(10_000)]
    batches = settled_batches(5, rows)
    assert [batch.batch_no for batch in batches] == list(range(5, 5 + len(batches)))
    assert all(batch.kind == layout.BatchKind.SETTLED for batch in batches)
    assert all(len(batch) <= limits.BATCH_BYTES_CUT for batch in batches)
    payload = b"".join(batch.payload for batch in batches)
    assert [Settled(*row[:5]) for row in layout.settled.iter_unpack(payload)] == rows
    assert settled_batches(5, []) == []
