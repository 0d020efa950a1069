"""Batches: what stands where, and what must never be written."""

from __future__ import annotations

from zlib import crc32

import pytest

from walld import limits
from walld.wal import layout
from walld.wal.encode import Batch, BatchBuilder, settled_batches
from walld.wal.layout import BATCH_HEADER_BYTES, ENTRY_BYTES, Settled


def test_offsets_find_bodies_in_memory_and_in_the_file() -> None:
    builder = BatchBuilder()
    bodies = [b"a", b"", b"b" * 100, b"cc"]
    for index, body in enumerate(bodies):
        builder.add(index + 1, index, index + 5, index, body)
    batch = builder.seal(9, 1234)
    raw = batch.stamped(7, seed=5, offset=64)
    assert len(raw) == len(batch)
    assert len(raw) % layout.BATCH_ALIGNMENT == 0
    for offset, body in zip(batch.offsets, bodies, strict=True):
        assert raw[offset : offset + len(body)] == body
        assert batch.body(offset, len(body)) == body
    entries = list(layout.directory.iter_unpack(batch.payload[: 4 * ENTRY_BYTES]))
    assert entries == [(i + 1, i, i + 5, len(body), i) for i, body in enumerate(bodies)]


def test_the_header_says_what_the_batch_is() -> None:
    builder = BatchBuilder()
    builder.add(3, 0, 1, layout.Flag.BEGIN, b"body")
    batch = builder.seal(9, 1234)
    header = layout.unpack_batch_header(batch.stamped(7, 5, 64), 5, 64)
    assert header == (len(batch.payload), 9, 7, 1234, 1, 0, crc32(batch.payload))


def test_the_same_batch_can_be_stamped_for_another_place() -> None:
    builder = BatchBuilder()
    builder.add(1, 0, 0, 0, b"body")
    batch = builder.seal(9, 0)
    first, second = batch.stamped(1, 5, 64), batch.stamped(2, 6, 128)
    assert first[BATCH_HEADER_BYTES:] == second[BATCH_HEADER_BYTES:]
    assert layout.unpack_batch_header(second, 6, 128) is not None
    assert layout.unpack_batch_header(first, 6, 128) is None


def test_an_empty_batch_is_a_header() -> None:
    batch = BatchBuilder().seal(1, 0)
    assert len(batch) == BATCH_HEADER_BYTES
    assert batch.offsets == []


def test_the_cut_is_kept_and_a_larger_record_is_alone() -> None:
    builder = BatchBuilder()
    assert builder.has_room(limits.BATCH_BYTES_MAX)
    room = limits.BATCH_BYTES_CUT - BATCH_HEADER_BYTES - 2 * ENTRY_BYTES
    builder.add(1, 0, 0, 0, bytes(100))
    assert builder.has_room(room - 100)
    assert not builder.has_room(room - 99)
    builder.add(1, 1, 1, 0, bytes(room - 100))
    assert builder.size == limits.BATCH_BYTES_CUT
    assert len(builder.seal(1, 0)) == limits.BATCH_BYTES_CUT


def test_what_a_scan_would_refuse_is_never_written() -> None:
    with pytest.raises(AssertionError):
        Batch(1, 0, 1, bytes(limits.BATCH_BYTES_MAX), [])
    with pytest.raises(AssertionError):
        Batch(1, 0, 1, bytes(7), [])
    with pytest.raises(AssertionError):
        Batch(0, 0, 0, b"", [])
    Batch(1, 0, 1, bytes(limits.BATCH_BYTES_MAX - BATCH_HEADER_BYTES), [])


def test_settled_rows_fill_as_many_batches_as_they_need() -> None:
    rows = [Settled(1, 64 * i, i, i, 1 + i % 2) for i in range(10_000)]
    batches = settled_batches(5, 0, rows)
    assert [batch.batch_no for batch in batches] == list(range(5, 5 + len(batches)))
    assert all(len(batch) <= limits.BATCH_BYTES_CUT for batch in batches)
    payload = b"".join(batch.payload for batch in batches)
    assert [Settled(*row[:5]) for row in layout.settled.iter_unpack(payload)] == rows
    assert settled_batches(5, 0, []) == []
