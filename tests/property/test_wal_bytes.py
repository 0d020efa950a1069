"""Bytes of a log, all of them: any bytes, every truncation, every bit, every misplaced block."""

from __future__ import annotations

from unittest.mock import patch
from zlib import crc32

from hypothesis import given, settings
from hypothesis import strategies as st
from wal_files import LOG, BytesDisk, BytesFile, LogWriter, batch_of, small_log

from walld import limits
from walld.wal import layout, scan
from walld.wal.encode import Batch, BatchEncoder
from walld.wal.layout import SegmentHeader
from walld.wal.log_scan import LogScan
from walld.wal.scan import SegmentScan
from walld.wal.verdict import judge

Row = tuple[int, int, int, int, bytes]
SEED = layout.segment_seed(LOG, 1)
HEADER = layout.pack_segment_header(SegmentHeader(LOG, 1, 0, 1))
MAGIC = layout.BATCH_MAGIC.to_bytes(2, "little")


def header(
    kind: int,
    widths: int,
    records: int,
    behind: int,
    payload_bytes: int,
    batch_no: int,
    payload_crc: int,
    at: int,
) -> bytes:
    """A header that verifies at its place, whatever its fields say."""
    fixed = layout._batch.pack(
        layout.BATCH_MAGIC, kind, widths, records, behind, payload_bytes, batch_no, payload_crc
    )
    return fixed + crc32(fixed, crc32(at.to_bytes(8, "little"), SEED)).to_bytes(4, "little")


# Pieces that look like a log, so that the scan is led as far as it can be.
pieces = st.one_of(
    st.binary(max_size=80),
    st.sampled_from([HEADER, MAGIC, layout.SEGMENT_MAGIC, bytes(8), bytes(4096), MAGIC * 30]),
    st.builds(
        lambda number, body, at: batch_of(number, [body]).stamped(number - 1, SEED, at),
        st.integers(1, 5),
        st.binary(max_size=20),
        st.sampled_from([64, 68, 72, 100, 104, 112, 120, 8192]),
    ),
    st.builds(
        header,
        st.integers(0, 255) | st.sampled_from([0, 1]),
        st.integers(0, 255) | st.just(0),
        st.integers(0, 2**16 - 1) | st.integers(0, 3),
        st.integers(0, 2**16 - 1),
        st.integers(0, 2**32 - 1) | st.sampled_from([0, 4, 8, 40]),
        st.integers(0, 2**64 - 1) | st.integers(0, 5),
        st.integers(0, 2**32 - 1),
        st.sampled_from([64, 68, 92, 100, 104]),
    ),
)


@given(st.lists(pieces, max_size=6).map(b"".join), st.booleans(), st.sampled_from([None, LOG]))
@settings(max_examples=300)
def test_any_bytes_give_batches_and_holes(tail: bytes, headed: bool, log: bytes | None) -> None:
    content = (HEADER if headed else b"") + tail
    file = BytesFile("x", content)
    found = SegmentScan(file, 1, log)
    batches = list(found)
    spans = [(item.offset, layout.BATCH_HEADER_BYTES + len(item.payload)) for item in batches] + [
        (hole.offset, hole.length) for hole in found.facts.holes
    ]
    position = 0
    for offset, length in sorted(spans):
        # Batches of the log's own (settled rows, later kinds) are not given out: nor are they here.
        assert offset >= position
        position = offset + length
    assert position <= len(content)
    assert file.largest_read <= scan.WINDOW_BYTES
    judge([found.facts], attested_no=3)


@given(st.binary(max_size=300))
def test_any_bytes_in_a_middle_segment_leave_the_others_alone(content: bytes) -> None:
    log = small_log()
    log.segment()
    log.batch(b"x")
    log.files[2] = content
    found, verdict = log.read()
    assert {1, 2, 3, 8} <= set(found)
    assert verdict.corrupt
    assert log.read()[1] == verdict, "reading twice gives the same"


def test_a_log_cut_at_any_length_gives_its_whole_batches_and_is_torn_at_most() -> None:
    whole = small_log()
    content = bytes(whole.files[2])
    for length in range(len(content)):
        whole.files[2] = content[:length]
        found, verdict = whole.read()
        kept = [
            place
            for place in whole.places
            if place.segment_id == 1 or place.offset + place.length <= length
        ]
        assert {number: bytes(batch.payload) for number, batch in found.items()} == {
            place.batch_no: place.payload for place in kept
        }
        assert verdict.corrupt == [], length
        ends = {64, *(place.offset + place.length for place in whole.places[3:])}
        assert len(verdict.torn) == (0 if length in ends else 1), length


def test_every_flipped_bit_is_noticed_and_everything_else_is_read() -> None:
    log = small_log()
    for segment_id, content in log.files.items():
        for bit in range(len(content) * 8):
            log.flip(segment_id, bit)
            found, verdict = log.read()
            log.flip(segment_id, bit)
            hit = [
                place
                for place in log.places
                if place.segment_id == segment_id
                and place.offset <= bit // 8 < place.offset + place.length
            ]
            assert {number: bytes(batch.payload) for number, batch in found.items()} == {
                place.batch_no: place.payload for place in log.places if place not in hit
            }, (segment_id, bit)
            damage = verdict.corrupt + verdict.torn
            assert len(damage) == 1, (segment_id, bit)
            assert damage[0].offset <= bit // 8 < damage[0].offset + damage[0].length
            is_last = bool(hit) and hit[0].batch_no == 7
            assert bool(verdict.torn) == is_last, (segment_id, bit)


def test_a_client_that_was_told_makes_the_last_batch_provable_too() -> None:
    log = small_log()
    place = log.places[-1]
    for bit in range(place.offset * 8, (place.offset + place.length) * 8):
        log.flip(2, bit)
        assert [item.first_no for item in log.read(attested_no=7)[1].corrupt] == [7], bit
        log.flip(2, bit)


def test_a_block_copied_to_any_other_place_never_verifies() -> None:
    log = small_log()
    sources = [(place, bytes(log.files[place.segment_id])) for place in log.places]
    for place, content in sources:
        block = content[place.offset : place.offset + place.length]
        for segment_id, target in log.files.items():
            for offset in range(64, len(target), layout.BATCH_ALIGNMENT):
                if (segment_id, offset) == (place.segment_id, place.offset):
                    continue
                damaged = bytearray(target)
                damaged[offset : offset + len(block)] = block
                facts = SegmentScan(BytesFile("x", bytes(damaged)), segment_id, LOG)
                for batch in facts:
                    assert batch.offset != offset or batch.batch_no != place.batch_no


bodies = st.lists(st.binary(max_size=60), max_size=6)


@given(st.lists(st.lists(bodies, max_size=4), min_size=1, max_size=4))
def test_what_is_written_is_read(segments: list[list[list[bytes]]]) -> None:
    log = LogWriter()
    for batches in segments:
        log.segment()
        for each in batches:
            log.batch(*each)
    wanted = [expected for batches in segments for expected in batches]
    scanned = LogScan(BytesDisk(log.files), LOG)
    for (_, batch), expected in zip(scanned, wanted, strict=True):
        assert [batch.body(one.offset, one.body_bytes) for one in batch.records] == expected
    assert scanned.verdict().is_clean


numbers = st.one_of(
    st.integers(0, 3),
    st.sampled_from([255, 256, 65_535, 65_536, 2**32 - 1]),
    st.integers(0, 2**32 - 1),
)
rows = st.tuples(
    st.one_of(numbers, st.sampled_from([2**32, layout.STREAM_NO_MAX])).map(
        lambda number: number or 1
    ),
    numbers,
    numbers,
    st.integers(0, 255),
    st.one_of(st.binary(max_size=20), st.sampled_from([bytes(255), bytes(256), bytes(70_000)])),
).map(lambda row: (row[0], min(row[1], row[2]), max(row[1], row[2]), row[3], row[4]))
"""stream_no, first_seq, last_seq, flags, body"""


@given(st.lists(rows, max_size=8))
def test_any_directory_is_read_as_it_was_written(given_rows: list[Row]) -> None:
    builder = BatchEncoder()
    for row in given_rows:
        builder.add(*row)
    log = LogWriter()
    log.segment()
    log.put(builder.seal(1), 0)
    (batch,) = log.read()[0].values()
    assert [
        (one.stream_no, one.first_seq, one.last_seq, one.flags, batch.body(*one[3:5]))
        for one in batch.records
    ] == given_rows


@given(st.lists(rows, max_size=30), st.integers(40, 600))
def test_what_fits_is_known_exactly(given_rows: list[Row], cut: int) -> None:
    """With a low cut, so that it is met; a record that is too large for it is alone."""
    taken: list[Row] = []
    builder = BatchEncoder()
    with patch.object(limits, "BATCH_BYTES_CUT", cut):
        for row in given_rows:
            with_it = len(built([*taken, row]))
            no, first_seq, last_seq, _, body = row
            fits = builder.fits(no, first_seq, last_seq, len(body))
            assert fits == (not taken or with_it <= cut)
            if fits:
                builder.add(*row)
                taken.append(row)
        made = builder.seal(1)
    assert (made.payload, made.widths) == (built(taken).payload, built(taken).widths)
    assert len(taken) < 2 or len(made) <= cut


def built(given_rows: list[Row]) -> Batch:
    """A batch of these records, whatever its size."""
    builder = BatchEncoder()
    for row in given_rows:
        builder.add(*row)
    return builder.seal(1)
