"""Segments read back: what is given out (C1, C2), what is a hole (C3), and what it is called."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from zlib import crc32

import pytest
from wal_files import LOG, BytesDisk, BytesFile, LogWriter, batch_of, small_log

from walld import limits
from walld.disk.base import Disk, Entry
from walld.disk.real import RealDisk
from walld.disk.retrying import RetryingDisk
from walld.wal import layout, scan
from walld.wal.encode import BatchEncoder, settled_batches
from walld.wal.layout import BATCH_HEADER_BYTES, BatchHeader, BatchKind, SegmentHeader, Settled
from walld.wal.log_scan import LogScan, list_segments
from walld.wal.scan import Record, SegmentScan


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
        assert batch.synced_no == place.batch_no - 1
    bodies = [found[1].body(one.offset, one.body_bytes) for one in found[1].records]
    assert bodies == [b"first", b"second body"]


BOUNDARIES = [0, 255, 256, 65_535, 65_536, 2**32 - 1]


@pytest.mark.parametrize(
    ("stream_no", "first_seq", "last_seq", "size"),
    [
        *[(max(number, 1), 0, 1, 3) for number in [*BOUNDARIES, 2**32, layout.STREAM_NO_MAX]],
        *[(1, number, number, 3) for number in BOUNDARIES],
        *[(1, 0, number, 3) for number in BOUNDARIES],
        *[(1, 2**32 - 1 - number, 2**32 - 1, 3) for number in BOUNDARIES],
        *[(1, 0, 1, number) for number in BOUNDARIES[:-1]],
        (layout.STREAM_NO_MAX, 2**31, 2**32 - 1, 65_536),
    ],
)
@pytest.mark.parametrize("company", [0, 1, 2])
def test_every_width_of_every_column_is_read_as_it_was_written(
    stream_no: int, first_seq: int, last_seq: int, size: int, company: int
) -> None:
    """Alone and among small ones, before and behind: one large value widens a column for all."""
    rows = [(1, 0, 0, 1, b"a"), (2, 3, 4, 0, b"")][:company]
    rows.insert(company // 2, (stream_no, first_seq, last_seq, 255, bytes(size)))
    builder = BatchEncoder()
    for row in rows:
        builder.add(*row)
    batch = builder.seal(1)
    log = LogWriter()
    log.segment()
    log.put(batch, 0)
    log.batch(b"next")
    found, verdict = log.read()
    assert verdict.is_clean
    assert sorted(found) == [1, 2]
    records = list(found[1].records)
    assert records == [
        Record(no, first, last, offset, len(body), flags)
        for (no, first, last, flags, body), offset in zip(rows, batch.offsets, strict=True)
    ]
    assert [found[1].body(one.offset, one.body_bytes) for one in records] == [r[4] for r in rows]
    entry, widths = 1, 0
    for at, value in enumerate((stream_no, first_seq, last_seq - first_seq, size)):
        code = sum(value > top for top in (255, 65_535, 2**32 - 1))
        entry += (1, 2, 4, 8)[code]
        widths |= code << 2 * at
    assert batch.widths == widths
    exact = BATCH_HEADER_BYTES + entry * len(rows) + sum(len(row[4]) for row in rows)
    assert 0 <= len(batch) - exact < layout.BATCH_ALIGNMENT


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


def test_a_segment_of_any_length_is_read_as_far_as_one_can_be(tmp_path: Path) -> None:
    """A disk made it a TiB: what is behind is one hole, and no start walks over it."""
    log = small_log()
    path = tmp_path / "wal" / layout.segment_name(2)
    path.parent.mkdir()
    path.write_bytes(bytes(log.files[2]))
    os.truncate(path, 1 << 40)
    with RealDisk(str(tmp_path), read_only=True) as disk:
        segment = SegmentScan(disk.open(f"wal/{path.name}"), 2, LOG)
        assert [batch.batch_no for batch in segment] == [4, 5, 6, 7]
    (hole,) = segment.facts.holes
    size = len(log.files[2])
    assert (hole.offset, hole.length, hole.reason) == (size, (1 << 40) - size, "header")


def test_memory_is_one_window_whatever_the_length_says() -> None:
    seed = layout.segment_seed(LOG, 1)
    huge = BatchHeader(BatchKind.RECORDS, 0, 2**16 - 1, 0, 2**32 - 4, 1, 0)
    content = layout.pack_segment_header(SegmentHeader(LOG, 1, 0, 1))
    content += layout.pack_batch_header(huge, seed, 64)
    file = BytesFile("x", content + bytes(1000))
    found = SegmentScan(file, 1, LOG)
    assert list(found) == []
    assert file.largest_read <= len(content) + 1000
    assert [hole.reason for hole in found.facts.holes] == ["header"]


@pytest.mark.parametrize(
    ("batch_no", "payload", "records", "kind", "widths"),
    [
        (0, b"", 0, BatchKind.RECORDS, 0),
        (1, bytes(2), 0, BatchKind.RECORDS, 0),
        (1, bytes(4), 0, BatchKind.RECORDS, 0),
        (1, bytes(4), 1, BatchKind.RECORDS, 0),
        (1, b"\1\0\0\4\0" + bytes(3), 1, BatchKind.RECORDS, 0),
        (1, b"\1\0\0\0\0" + bytes(7), 1, BatchKind.RECORDS, 0),
        (1, b"\1\1" + bytes(4) + b"\xff" * 8 + bytes(2), 2, BatchKind.RECORDS, 0b10_00_00_00),
        (1, bytes(44), 1, BatchKind.SETTLED, 0),
        (1, bytes(40), 2, BatchKind.SETTLED, 0),
        # An entry of 12 bytes that adds up, but no seq or length has 8.
        (1, b"\1" + bytes(11), 1, BatchKind.RECORDS, 0b00_00_11_00),
        (1, b"\1" + bytes(11), 1, BatchKind.RECORDS, 0b00_11_00_00),
        (1, b"\1" + bytes(11), 1, BatchKind.RECORDS, 0b11_00_00_00),
        # Numbers that nobody gets to: of a batch, in a settled row, of a stream.
        (layout.BATCH_NO_MAX + 1, b"\1\0\0\0\0" + bytes(3), 1, BatchKind.RECORDS, 0),
        (1, layout.settled.pack(1, 64, 1, layout.BATCH_NO_MAX + 1, 1, 0), 1, BatchKind.SETTLED, 0),
        (1, (layout.STREAM_NO_MAX + 1).to_bytes(8, "little") + bytes(4), 1, BatchKind.RECORDS, 3),
    ],
)
def test_a_batch_that_contradicts_itself_is_a_hole(
    batch_no: int, payload: bytes, records: int, kind: int, widths: int
) -> None:
    # Packed here: no BatchHeader of batch 0 can be, for want of a number before it.
    fixed = layout._batch.pack(
        layout.BATCH_MAGIC, kind, widths, records, 0, len(payload), batch_no, crc32(payload)
    )
    seed = layout.segment_seed(LOG, 1)
    crc = crc32(fixed, crc32((64).to_bytes(8, "little"), seed))
    assert scanned_batches(fixed + struct.pack("<I", crc) + payload) == ([], 1)


def scanned_batches(raw: bytes) -> tuple[list[int], int]:
    """Numbers of good batches in a segment with these bytes, and how many holes."""
    content = layout.pack_segment_header(SegmentHeader(LOG, 1, 0, 1)) + raw
    found = SegmentScan(BytesFile("x", content), 1, LOG)
    numbers = [batch.batch_no for batch in found]
    assert found.facts.settled == []
    return numbers, len(found.facts.holes)


def test_an_entry_of_that_size_is_read_where_the_stream_number_has_eight_bytes() -> None:
    """The counterpart of the above: the same bytes are good under a width that may be."""
    payload = layout.STREAM_NO_MAX.to_bytes(8, "little") + bytes(4)
    header = BatchHeader(BatchKind.RECORDS, 0b11, 1, 0, len(payload), 1, crc32(payload))
    raw = layout.pack_batch_header(header, layout.segment_seed(LOG, 1), 64) + payload
    assert scanned_batches(raw) == ([1], 0)


def test_a_batch_of_a_later_kind_is_skipped_and_counts_as_there() -> None:
    payload = b"whatever it is.."
    header = BatchHeader(9, 0, 5, 0, len(payload), 1, crc32(payload))
    content = layout.pack_segment_header(SegmentHeader(LOG, 1, 0, 1))
    content += layout.pack_batch_header(header, layout.segment_seed(LOG, 1), 64) + payload
    found = scanned(content)
    assert (found.facts.numbers, found.facts.holes) == ([(1, 1)], [])
    assert found.facts.apart == [(1, 64, 9)]


def test_what_a_start_settled_is_facts_and_no_batch() -> None:
    log = LogWriter()
    log.segment()
    rows = [Settled(1, 64, 5, 6, 1)]
    for batch in settled_batches(1, rows):
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
def test_a_read_error_is_tried_three_times(
    monkeypatch: pytest.MonkeyPatch, errors: int, whole: bool
) -> None:
    log = one_segment(b"a", b"b")
    disk = BytesDisk(log.files)
    file = BytesFile("x", bytes(log.files[1]), errors)
    monkeypatch.setattr(disk, "open", lambda _path: file)
    found = SegmentScan(RetryingDisk(disk).open("x"), 1, LOG)
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


def test_the_largest_batch_fits_a_window() -> None:
    # One entry: stream 1, seqs 0..1, and a length of 4 bytes.
    room = limits.BATCH_BYTES_MAX - BATCH_HEADER_BYTES - (1 + 1 + 1 + 4 + 1)
    log = one_segment(b"a", bytes(room), b"c")
    assert log.places[1].length == limits.BATCH_BYTES_MAX
    assert sorted(log.read()[0]) == [1, 2, 3]
