"""Segments read back: what is given out (C1, C2), what is a hole (C3), and what it is called."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest
from wal_files import LOG, BytesDisk, BytesFile, LogWriter, batch_of, small_log

from walld import limits
from walld.disk.base import Disk, Entry, File
from walld.wal import layout, scan
from walld.wal.encode import settled_batches
from walld.wal.layout import BATCH_HEADER_BYTES, BatchHeader, SegmentHeader, Settled
from walld.wal.scan import LogScan, SegmentScan, list_segments, read_batch


def one_segment(*bodies: bytes) -> LogWriter:
    log = LogWriter()
    log.segment()
    for body in bodies:
        log.batch(body)
    return log


def scanned(content: bytes | bytearray, log_uuid: bytes | None = LOG) -> SegmentScan:
    """Segment 1 with these bytes, scanned to its end."""
    found = SegmentScan(BytesFile("x", bytes(content)), 1, log_uuid)
    list(found)
    return found


def test_every_record_is_found_where_the_directory_says() -> None:
    log = small_log()
    found, verdict = log.read()
    assert verdict.is_clean
    for place in log.places:
        batch = found[place.batch_no]
        assert (batch.offset, bytes(batch.payload)) == (place.offset, place.payload)
        assert (batch.synced_no, batch.at_ms) == (place.batch_no - 1, 1000 + place.batch_no)
    at, bodies = found[1].bodies_at, []
    for _, _, _, length, _ in layout.directory.iter_unpack(found[1].directory):
        bodies.append(found[1].body(at, length))
        at += length
    assert bodies == [b"first", b"second body"]


def test_facts_of_a_clean_segment() -> None:
    log = small_log()
    facts = SegmentScan(BytesFile("x", bytes(log.files[2])), 2, LOG)
    list(facts)
    assert facts.facts.header == SegmentHeader(LOG, 2, 3, 1)
    assert facts.facts.numbers == [(4, 7)]
    assert (facts.facts.first_no, facts.facts.last_no, facts.facts.synced_no) == (4, 7, 6)
    assert facts.facts.holes == []


def test_a_bad_payload_is_skipped_by_its_length() -> None:
    log = one_segment(b"a" * 50, b"b" * 50, b"c" * 50)
    bad = log.places[1]
    log.flip(1, 8 * (bad.offset + bad.length - 1))
    found, _ = log.read()
    assert sorted(found) == [1, 3]
    (hole,) = scanned(log.files[1]).facts.holes
    assert (hole.offset, hole.length, hole.batch_no) == (bad.offset, bad.length, 2)
    assert (hole.reason, hole.previous_no, hole.next_no) == ("payload", 1, 3)


def test_a_bad_header_costs_one_batch() -> None:
    log = one_segment(b"a" * 50, b"b" * 50, b"c" * 50)
    bad = log.places[1]
    log.flip(1, 8 * bad.offset)
    assert sorted(log.read()[0]) == [1, 3]
    (hole,) = scanned(log.files[1]).facts.holes
    assert (hole.offset, hole.length, hole.batch_no) == (bad.offset, bad.length, 0)
    assert (hole.reason, hole.previous_no, hole.next_no) == ("header", 1, 3)


def test_zeros_in_the_middle_are_a_hole_and_no_end() -> None:
    log = one_segment(b"a" * 5000, b"b" * 5000, b"c" * 5000, b"d" * 5000)
    file = log.files[1]
    assert isinstance(file, bytearray)
    file[4096:8192] = bytes(4096)
    found, _ = log.read()
    assert sorted(found) == [3, 4]


def test_a_batch_in_a_body_is_not_taken_for_one() -> None:
    inner = batch_of(77, [b"forged"]).stamped(0, layout.segment_seed(LOG, 1), 64)
    log = one_segment(inner, b"last")
    log.flip(1, 8 * 64)
    assert sorted(log.read()[0]) == [2]


def test_a_batch_copied_elsewhere_does_not_verify() -> None:
    log = one_segment(b"a" * 50, b"b" * 50)
    first, second = log.places
    file = log.files[1]
    assert isinstance(file, bytearray)
    file[second.offset :] = file[first.offset : first.offset + first.length]
    found, _ = log.read()
    assert sorted(found) == [1]
    assert bytes(found[1].payload) == first.payload


def test_a_header_across_the_edge_of_a_window_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "WINDOW_BYTES", 512)
    for length in range(300, 420):
        log = one_segment(b"a" * length, b"b" * 40, b"c" * 40)
        log.flip(1, 8 * 64)
        assert sorted(log.read()[0]) == [2, 3], length


def test_memory_is_one_window_whatever_the_length_says() -> None:
    seed = layout.segment_seed(LOG, 1)
    huge = BatchHeader(2**32 - 8, 1, 0, 0, 2**32 - 1, 0, 0)
    content = layout.pack_segment_header(SegmentHeader(LOG, 1, 0, 1))
    content += layout.pack_batch_header(huge, seed, 64)
    file = BytesFile("x", content + bytes(1000))
    found = SegmentScan(file, 1, LOG)
    assert list(found) == []
    assert file.largest_read <= len(content) + 1000
    assert [hole.reason for hole in found.facts.holes] == ["header"]


@pytest.mark.parametrize(
    ("batch_no", "payload", "records", "flags"),
    [
        (0, b"", 0, 0),
        (1, bytes(4), 0, 0),
        (1, bytes(8), 1, 0),
        (1, layout.directory.pack(1, 0, 0, 9, 0) + bytes(8), 1, 0),
        (1, layout.directory.pack(1, 0, 0, 0, 0) + bytes(8), 1, 0),
        (1, layout.directory.pack(1, 0, 0, 2**32 - 1, 0) * 2, 2, 0),
        (1, bytes(48), 1, layout.BatchFlag.SETTLED),
    ],
)
def test_a_batch_that_contradicts_itself_is_a_hole(
    batch_no: int, payload: bytes, records: int, flags: int
) -> None:
    header = BatchHeader(len(payload), batch_no, 0, 0, records, flags, crc32(payload))
    content = layout.pack_segment_header(SegmentHeader(LOG, 1, 0, 1))
    content += layout.pack_batch_header(header, layout.segment_seed(LOG, 1), 64) + payload
    found = SegmentScan(BytesFile("x", content), 1, LOG)
    assert list(found) == []
    assert len(found.facts.holes) == 1
    assert found.facts.settled == []


def test_a_batch_of_a_later_kind_is_skipped_and_counts_as_there() -> None:
    payload = b"whatever it is.."
    header = BatchHeader(len(payload), 1, 0, 0, 5, 1 << 9, crc32(payload))
    content = layout.pack_segment_header(SegmentHeader(LOG, 1, 0, 1))
    content += layout.pack_batch_header(header, layout.segment_seed(LOG, 1), 64) + payload
    found = scanned(content)
    assert (found.facts.numbers, found.facts.skipped, found.facts.holes) == ([(1, 1)], 1, [])


def test_what_a_start_settled_is_facts_and_no_batch() -> None:
    log = LogWriter()
    log.segment()
    rows = [Settled(1, 64, 5, 6, 1)]
    for batch in settled_batches(1, 0, rows):
        log.put(batch, 0)
    found = SegmentScan(BytesFile("x", bytes(log.files[1])), 1, LOG)
    assert list(found) == []
    assert found.facts.settled == rows
    assert found.facts.numbers == [(1, 1)]


@pytest.mark.parametrize("length", [0, 1, 63])
def test_less_than_a_header_is_residue(length: int) -> None:
    content = layout.pack_segment_header(SegmentHeader(LOG, 1, 0, 1))[:length]
    (hole,) = scanned(content).facts.holes
    assert (hole.offset, hole.length, hole.reason) == (0, length, "residue")


def test_a_damaged_segment_header_costs_no_batch_where_the_log_is_known() -> None:
    log = one_segment(b"a", b"b")
    log.flip(1, 8 * 20)
    assert sorted(log.read()[0]) == [1, 2]
    facts = scanned(log.files[1]).facts
    assert [(hole.offset, hole.length, hole.reason) for hole in facts.holes] == [
        (0, 64, "segment header")
    ]
    lost = scanned(log.files[1], None).facts
    assert [(hole.length, hole.reason) for hole in lost.holes] == [
        (len(log.files[1]), "segment header")
    ]


def test_the_log_is_known_from_another_segment() -> None:
    log = small_log()
    log.flip(1, 8 * 20)
    found, _ = log.read(log_uuid=None)
    assert sorted(found) == [1, 2, 3, 4, 5, 6, 7]


def test_a_segment_under_another_name_or_of_another_log_is_foreign() -> None:
    log = small_log()
    content = bytes(log.files[1])
    renamed = SegmentScan(BytesFile("x", content), 2, LOG)
    assert list(renamed) == []
    assert [hole.reason for hole in renamed.facts.holes] == ["foreign"]
    other = SegmentScan(BytesFile("x", content), 1, bytes(16))
    assert list(other) == []
    assert [hole.reason for hole in other.facts.holes] == ["foreign"]


def test_a_later_version_is_kept_and_not_called_damage() -> None:
    log = one_segment(b"a")
    fixed = bytearray(log.files[1][:60])
    struct.pack_into("<H", fixed, 8, 2)
    content = bytes(fixed) + struct.pack("<I", crc32(fixed)) + bytes(log.files[1][64:])
    assert [hole.reason for hole in scanned(content).facts.holes] == ["version"]


@pytest.mark.parametrize(("errors", "whole"), [(1, True), (2, True), (3, False)])
def test_a_read_error_is_tried_three_times(errors: int, whole: bool) -> None:
    log = one_segment(b"a", b"b")
    found = SegmentScan(BytesFile("x", bytes(log.files[1]), errors), 1, LOG)
    numbers = [batch.batch_no for batch in found]
    assert numbers == ([1, 2] if whole else [])
    assert [hole.reason for hole in found.facts.holes] == ([] if whole else ["unreadable"])


def test_batches_before_a_read_error_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "WINDOW_BYTES", 128)
    log = one_segment(b"a" * 20, b"b" * 20, b"c" * 20)
    file = BytesFile("x", bytes(log.files[1]))
    found = SegmentScan(file, 1, LOG)
    numbers = []
    for batch in found:
        numbers.append(batch.batch_no)
        file.errors = 9
    assert numbers == [1]
    (hole,) = found.facts.holes
    assert (hole.offset, hole.reason) == (log.places[1].offset, "unreadable")


def test_a_file_that_shrinks_while_it_is_read_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "WINDOW_BYTES", 128)
    log = one_segment(b"a" * 20, b"b" * 20, b"c" * 20)

    class Shrinking(BytesFile):
        def size(self) -> int:
            return super().size() + 10_000_000

    found = SegmentScan(Shrinking("x", bytes(log.files[1])), 1, LOG)
    assert [batch.batch_no for batch in found] == [1, 2, 3]


def test_a_log_gives_the_first_copy_of_a_number_only() -> None:
    log = LogWriter()
    log.segment()
    log.batch(b"a")
    copy = batch_of(2, [b"b"])
    log.put(copy, 1)
    log.segment(next_no=2)
    log.put(copy, 1)
    log.batch(b"c")
    disk: Disk = BytesDisk(log.files)
    assert [(where, batch.batch_no) for where, batch in LogScan(disk, LOG)] == [
        (1, 1),
        (1, 2),
        (2, 3),
    ]


def test_a_segment_that_goes_while_the_log_is_read_takes_the_older_ones_with_it() -> None:
    log = small_log()
    log.segment()
    log.batch(b"live")
    disk = BytesDisk(log.files)
    found = LogScan(disk, LOG)
    for where, _ in found:
        if where == 1:
            disk.files = {3: log.files[3]}
    assert [facts.segment_id for facts in found.segments] == [3]
    assert found.verdict().is_clean


def test_names_that_are_no_segments_are_not_read() -> None:
    class Crowded(BytesDisk):
        def list_dir(self, path: str) -> list[Entry]:
            found = super().list_dir(path)
            return found + [item._replace(name=f"{item.name}.residue") for item in found]

    assert list_segments(Crowded(small_log().files)) == [1, 2]


def test_one_batch_by_its_place() -> None:
    log = small_log()
    file: File = BytesFile("x", bytes(log.files[2]))
    header = SegmentHeader(LOG, 2, 3, 1)
    for place in log.places[3:]:
        batch = read_batch(file, header, place.offset)
        assert batch is not None
        assert bytes(batch.payload) == place.payload
    assert read_batch(file, header, 72) is None
    assert read_batch(file, SegmentHeader(LOG, 1, 3, 1), 64) is None
    damaged = bytearray(log.files[2])
    damaged[64 + BATCH_HEADER_BYTES] ^= 1
    assert read_batch(BytesFile("x", bytes(damaged)), header, 64) is None


def test_the_largest_batch_fits_a_window() -> None:
    room = limits.BATCH_BYTES_MAX - BATCH_HEADER_BYTES - layout.ENTRY_BYTES
    log = one_segment(b"a", bytes(room), b"c")
    assert sorted(log.read()[0]) == [1, 2, 3]
