"""The log as it is read back: any bytes as a segment, a batch, a record, a partial.

Input: a byte for how the rest is meant: a whole file, what stands behind a good header, steps of
`shapes.py`, or a partial.
Oracle: a second scanner, written from FORMAT.md alone and in the simplest way, finds the same
batches; so none is made up and none that verifies is passed over. Batches and holes do not overlap.
Bodies are read or are a FormatError, and what is read is written again as it was meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from wal_files import BytesFile

from walld.errors import FormatError
from walld.partials.file import pack_partial, unpack_partial
from walld.wal import scan
from walld.wal.layout import segment_seed
from walld.wal.partial_batch import doubtful_batch
from walld.wal.records import (
    BODY_CRC_BYTES,
    check_body,
    decode_items,
    encode_item,
    join_items,
)
from walld.wal.scan import SegmentScan, whole_batch
from walld.wal.verdict import judge

from . import shapes

__all__ = ["items_read", "one"]

BATCH_BYTES_MAX = 2 * 1024 * 1024
BATCH_NO_MAX = 2**40 - 1
STREAM_NO_MAX = 2**63 + 2**36 - 1


class Found(NamedTuple):
    """A batch of records as the simple scanner sees it."""

    offset: int
    number: int
    payload: bytes
    records: list[tuple[int, int, int, int, int]]
    """stream_no, first_seq, last_seq, body bytes, flags"""


def one(data: bytes) -> None:
    """One input."""
    kind, raw = (data[0] % 4 if data else 0), data[1:]
    if kind == 3:
        _partial(raw)
    elif kind == 2:
        _segment(shapes.segment(raw))
    else:
        _segment(shapes.HEADER + raw if kind == 1 else raw)


def _segment(content: bytes) -> None:
    file = BytesFile("x", content)
    segment_id = shapes.named(content)
    found = SegmentScan(file, segment_id, shapes.LOG)
    batches = list(found)
    facts = found.facts
    assert file.largest_read <= scan.WINDOW_BYTES
    seed = segment_seed(shapes.LOG, segment_id)
    readable = not any(hole.reason in ("foreign", "version", "residue") for hole in facts.holes)
    expected = list(simply_scanned(content, seed)) if readable else []
    seen = [
        Found(
            batch.offset,
            batch.batch_no,
            bytes(batch.payload),
            [(r.stream_no, r.first_seq, r.last_seq, r.body_bytes, r.flags) for r in batch.records],
        )
        for batch in batches
    ]
    assert seen == expected, "the simple scanner finds others"
    spans = sorted(
        [(one.offset, 28 + len(one.payload)) for one in seen]
        + [(hole.offset, hole.length) for hole in facts.holes]
    )
    position = 0
    for offset, length in spans:
        assert offset >= position, "nothing is read twice"
        position = offset + length
    assert position <= len(content)
    for batch in batches:
        assert whole_batch(file, seed, batch.offset) is not None
        doubtful = doubtful_batch(file, seed, batch.offset)
        assert doubtful is not None
        assert doubtful.claimed == list(batch.records)
        for record in batch.records:
            body = batch.body(record.offset, record.body_bytes)
            if body and check_body(record.stream_no, body):
                items_read(body[BODY_CRC_BYTES:])
    first, again = judge([facts], attested_no=3), judge([facts], attested_no=3)
    assert first == again


def items_read(array: bytes) -> None:
    """Items are read, and written again they read the same; or it is a FormatError."""
    try:
        items = decode_items(array)
    except FormatError:
        return
    assert decode_items(join_items([encode_item(item) for item in items])) == items


def simply_scanned(content: bytes, seed: int) -> Iterator[Found]:
    """FORMAT.md in the simplest way: try each multiple of 4, believe what verifies, go past it."""
    at = 64
    while at + 28 <= len(content):
        head = content[at : at + 28]
        payload_bytes = int.from_bytes(head[8:12], "little")
        number = int.from_bytes(head[12:20], "little")
        length = 28 + payload_bytes
        crc = crc32(head[:24], crc32(at.to_bytes(8, "little"), seed))
        good = head[:2] == b"\xfe\xb1" and crc == int.from_bytes(head[24:28], "little")
        good = good and 0 < number <= BATCH_NO_MAX
        if not good or length > BATCH_BYTES_MAX or length % 4:
            at += 4
            continue
        if at + length > len(content):
            return  # it is cut off: what follows its header is its own
        payload = content[at + 28 : at + length]
        if crc32(payload) == int.from_bytes(head[20:24], "little") and head[2] == 0:
            records = _directory(payload, head[3], int.from_bytes(head[4:6], "little"))
            if records is not None:
                yield Found(at, number, payload, records)
        at += length


def _directory(
    payload: bytes, widths: int, count: int
) -> list[tuple[int, int, int, int, int]] | None:
    sizes = [1 << (widths >> shift & 3) for shift in (0, 2, 4, 6)]
    if 8 in sizes[1:] or count * (sum(sizes) + 1) > len(payload):
        return None
    columns, at = [], 0
    for size in (*sizes, 1):
        column = payload[at : at + size * count]
        at += size * count
        columns.append([int.from_bytes(column[n * size : (n + 1) * size], "little")
                        for n in range(count)])  # fmt: skip
    if not 0 <= len(payload) - at - sum(columns[3]) < 4:
        return None
    if max(columns[0], default=0) > STREAM_NO_MAX:
        return None
    return [(no, first, first + span, size, flags)
            for no, first, span, size, flags in zip(*columns, strict=True)]  # fmt: skip


def _partial(raw: bytes) -> None:
    try:
        partial = unpack_partial(raw, "x")
    except FormatError:
        return
    reason = partial.facts.lost_reason
    if reason is None or (reason.isprintable() and len(reason) <= 24):
        assert unpack_partial(pack_partial(*partial), "x") == partial, "and back again"
    items_read(partial.body)
