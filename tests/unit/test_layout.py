"""Headers, entries and names of segments."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest

from walld.wal import layout
from walld.wal.layout import BatchHeader, SegmentHeader

SEGMENT = SegmentHeader(bytes(range(16)), 7, 41, 3)
BATCH = BatchHeader(64, 42, 40, 1_700_000_000_123, 2, 0, 0xDEADBEEF)


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
    assert layout.unpack_batch_header(raw, seed, 4104) is None
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


@pytest.mark.parametrize("length", [0, 1, 47, 63])
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
    ids = [1, 9, 10, 11, 99, 2**63]
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
