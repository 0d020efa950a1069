"""Headers, columns and names of segments."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walld import limits
from walld.wal import layout
from walld.wal.layout import BatchHeader, BatchKind, SegmentHeader

SEGMENT = SegmentHeader(bytes(range(16)), 7, 41, 3)
BATCH = BatchHeader(BatchKind.RECORDS, 0b01_00_10_11, 2, 40, 64, 42, 0xDEADBEEF)


def test_segment_header_round_trip() -> None:
    raw = layout.pack_segment_header(SEGMENT)
    assert len(raw) == layout.SEGMENT_HEADER_BYTES
    assert layout.unpack_segment_header(raw) == SEGMENT
    assert layout.segment_version(raw) == 1


def test_every_bit_of_a_segment_header_counts() -> None:
    raw = layout.pack_segment_header(SEGMENT)
    for bit in range(len(raw) * 8):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        assert layout.unpack_segment_header(bytes(damaged)) is None, bit


def test_a_batch_header_holds_at_its_place_only() -> None:
    seed = layout.segment_seed(SEGMENT.log_uuid, SEGMENT.segment_id)
    raw = layout.pack_batch_header(BATCH, seed, 4096)
    assert layout.unpack_batch_header(raw, seed, 4096) == BATCH
    assert layout.unpack_batch_header(raw, seed, 4100) is None
    other_segment = layout.segment_seed(SEGMENT.log_uuid, SEGMENT.segment_id + 1)
    assert layout.unpack_batch_header(raw, other_segment, 4096) is None
    other_log = layout.segment_seed(bytes(16), SEGMENT.segment_id)
    assert layout.unpack_batch_header(raw, other_log, 4096) is None


def test_every_bit_of_a_batch_header_counts() -> None:
    raw = layout.pack_batch_header(BATCH, 1, 64)
    for bit in range(len(raw) * 8):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        assert layout.unpack_batch_header(bytes(damaged), 1, 64) is None, bit


def test_a_batch_begins_with_bytes_that_no_text_holds() -> None:
    raw = layout.pack_batch_header(BATCH, 1, 64)
    assert raw[:2] == b"\xfe\xb1"
    with pytest.raises(UnicodeDecodeError):
        raw[:1].decode("utf-8", "surrogatepass")


@pytest.mark.parametrize(
    ("batch_no", "synced_no", "says"),
    [
        (1, 0, 0),
        (42, 41, 41),
        (70_000, 70_000 - 65_535, 70_000 - 65_535),
        (70_000, 70_000 - 65_536, 0),
        (70_000, 1, 0),
        (70_000, 0, 0),
        (2**64 - 1, 2**64 - 65_536, 2**64 - 65_536),
        (2**64 - 1, 2**64 - 65_537, 0),
    ],
)
def test_what_is_synced_is_said_as_far_back_as_it_can_be(
    batch_no: int, synced_no: int, says: int
) -> None:
    header = BATCH._replace(batch_no=batch_no, synced_no=synced_no)
    found = layout.unpack_batch_header(layout.pack_batch_header(header, 1, 64), 1, 64)
    assert found == header._replace(synced_no=says)


@given(st.integers(1, 2**64 - 1), st.integers(0, 200_000) | st.integers(0, 2**64 - 1))
def test_what_is_synced_is_never_overstated(batch_no: int, behind: int) -> None:
    synced_no = max(batch_no - 1 - behind, 0)
    header = BATCH._replace(batch_no=batch_no, synced_no=synced_no)
    found = layout.unpack_batch_header(layout.pack_batch_header(header, 1, 64), 1, 64)
    assert found is not None
    assert found.synced_no in (0, synced_no)


def test_a_batch_cannot_say_that_it_is_synced_itself() -> None:
    for synced_no in (42, 43):
        with pytest.raises(AssertionError):
            layout.pack_batch_header(BATCH._replace(synced_no=synced_no), 1, 64)


def test_more_behind_than_there_are_numbers_is_nothing_synced() -> None:
    """No writer writes it."""
    fixed = layout._batch.pack(layout.BATCH_MAGIC, 0, 0, 0, 9, 0, 3, 0)
    crc = crc32(fixed, crc32((64).to_bytes(8, "little"), 1))
    found = layout.unpack_batch_header(fixed + struct.pack("<I", crc), 1, 64)
    assert found is not None
    assert (found.batch_no, found.synced_no) == (3, 0)


@pytest.mark.parametrize(
    ("largest", "code"),
    [
        (0, 0),
        (255, 0),
        (256, 1),
        (65_535, 1),
        (65_536, 2),
        (2**32 - 1, 2),
        (2**32, 3),
        (2**64 - 1, 3),
    ],
)
def test_a_column_is_as_wide_as_its_largest_value(largest: int, code: int) -> None:
    assert layout.width_code(largest) == code
    packed = layout.pack_column([0, largest], code)
    assert packed == b"".join(value.to_bytes(1 << code, "little") for value in (0, largest))


def test_an_entry_is_the_sum_of_its_columns() -> None:
    assert layout.entry_bytes(0) == 5
    assert layout.entry_bytes(0b10_10_10_11) == layout.ENTRY_BYTES_MAX
    assert layout.entry_bytes(0b01_00_10_11) == 8 + 4 + 1 + 2 + 1


def test_a_batch_cannot_hold_more_records_than_its_header_counts() -> None:
    room = limits.BATCH_BYTES_CUT - layout.BATCH_HEADER_BYTES
    assert room // layout.entry_bytes(0) <= layout.RECORDS_MAX


@pytest.mark.parametrize("length", [0, 1, 27, 63])
def test_short_bytes_are_no_header(length: int) -> None:
    raw = layout.pack_segment_header(SEGMENT)[:length]
    assert layout.unpack_segment_header(raw) is None
    assert layout.segment_version(raw) is None
    if length < layout.BATCH_HEADER_BYTES:
        assert layout.unpack_batch_header(raw, 1, 64) is None


def test_zeros_are_never_valid() -> None:
    zeros = bytes(64)
    assert layout.unpack_segment_header(zeros) is None
    assert layout.unpack_batch_header(zeros, 0, 64) is None
    # A CRC of 0 over zeros with a chosen seed must not help: the magic is not there.
    for seed in range(300):
        assert layout.unpack_batch_header(zeros, seed, 64) is None


def test_a_later_version_is_told_from_damage() -> None:
    fixed = bytearray(layout.pack_segment_header(SEGMENT)[:-4])
    struct.pack_into("<H", fixed, 8, 2)
    later = bytes(fixed) + struct.pack("<I", crc32(fixed))
    assert layout.unpack_segment_header(later) is None
    assert layout.segment_version(later) == 2
    assert layout.segment_version(bytes(fixed) + b"\0\0\0\0") is None


def test_segment_names_sort_as_ids_do() -> None:
    ids = [1, 9, 10, 11, 99, layout.SEGMENT_ID_MAX]
    names = [layout.segment_name(item) for item in ids]
    assert names == sorted(names)
    assert [layout.parse_segment_name(item) for item in names] == ids


@pytest.mark.parametrize(
    "name",
    [
        "0" * 20 + ".wal",
        "1.wal",
        "0" * 19 + "1.wal.residue",
        "0" * 19 + "1.WAL",
        "0" * 19 + "1",
        ".nfs000000000000000b00000001",
        "٠" * 19 + "١.wal",
        "+" + "0" * 18 + "1.wal",
        "",
    ],
)
def test_other_names_are_no_segments(name: str) -> None:
    assert layout.parse_segment_name(name) is None
