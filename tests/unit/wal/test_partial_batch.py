"""Records of a batch that does not verify: only bodies that speak for themselves are taken."""

from __future__ import annotations

import pytest
from wal_files import LOG, BytesFile, LogWriter

from walld.wal.encode import BatchEncoder
from walld.wal.layout import BATCH_HEADER_BYTES, Flag, segment_seed
from walld.wal.partial_batch import PartialBatch, doubtful_batch
from walld.wal.records import pack_body

ROWS = [(1, 0, 2, Flag.BEGIN, b"first"), (2, 5, 5, 0, b"second"), (3, 9, 9, Flag.RELEASED, b"")]


def written() -> tuple[LogWriter, int, int]:
    """A log of one batch of three records: the log, the batch's offset and length."""
    log = LogWriter()
    log.segment()
    builder = BatchEncoder()
    for no, first_seq, last_seq, flags, array in ROWS:
        body = pack_body(no, array) if array else b""
        builder.add(no, first_seq, last_seq, flags, body)
    place = log.put(builder.seal(1), 0)
    return log, place.offset, place.length


def read(content: bytes, offset: int) -> PartialBatch | None:
    return doubtful_batch(BytesFile("s", content), segment_seed(LOG, 1), offset)


def test_every_body_that_verifies() -> None:
    log, offset, _ = written()
    batch = read(bytes(log.files[1]), offset)
    assert batch is not None
    assert [body[4:] for _, body in batch.good] == [b"first", b"second"]
    assert (len(batch.claimed), batch.tombstones, batch.batch_no) == (3, 1, 1)


def test_any_flip_costs_at_most_what_it_hits() -> None:
    """No body comes out but one that was written, under the stream that it is of."""
    log, offset, length = written()
    content = bytes(log.files[1])
    for bit in range(BATCH_HEADER_BYTES * 8, length * 8):
        broken = bytearray(content)
        broken[offset + bit // 8] ^= 1 << bit % 8
        batch = read(bytes(broken), offset)
        if batch is not None:
            said = {(record.stream_no, body[4:]) for record, body in batch.good}
            assert said <= {(1, b"first"), (2, b"second")}, bit


@pytest.mark.parametrize("kept", range(60))
def test_a_file_that_ends_inside_gives_what_is_whole(kept: int) -> None:
    log, offset, length = written()
    batch = read(bytes(log.files[1])[: offset + min(kept, length)], offset)
    if batch is not None:
        assert {body[4:] for _, body in batch.good} <= {b"first", b"second"}


def test_a_bad_header_gives_nothing() -> None:
    log, offset, _ = written()
    log.flip(1, offset * 8 + 40)
    assert read(bytes(log.files[1]), offset) is None
    assert read(b"", 64) is None
