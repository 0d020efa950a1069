"""Bytes that look like a log: input read as steps, each with the checksums that make it believed.

A mutation of a real segment is almost always thrown out by a CRC. Here the input says what stands
in headers, directories and bodies, and the CRCs are put right behind it, so that all that comes
after a good CRC is reached too.
"""

from __future__ import annotations

from zlib import crc32

from walld.wal import layout
from walld.wal.encode import BatchEncoder
from walld.wal.layout import SegmentHeader
from walld.wal.records import pack_body

__all__ = ["LOG", "named", "seed", "segment"]

LOG = bytes.fromhex("00112233445566778899aabbccddeeff")
"""Of the golden files."""
SEED = layout.segment_seed(LOG, 1)
HEADER = layout.pack_segment_header(SegmentHeader(LOG, 1, 0, 1))


class _Input:
    """Bytes taken from the front; zeros behind the end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self, size: int = 1) -> int:
        self.at += size
        return int.from_bytes(self.data[self.at - size : self.at], "little")

    def bytes(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def __bool__(self) -> bool:
        return self.at < len(self.data)


def named(content: bytes) -> int:
    """The number of a segment as its header says; 1 where that is none."""
    number = int.from_bytes(content[32:40], "little")
    return number if 0 < number < 100 else 1


def segment(data: bytes) -> bytes:
    """A whole segment file, header and all, as the input says."""
    given, file, number = _Input(data), bytearray(HEADER), 0
    while given:
        step = given.number()
        if step % 4 == 0:
            file += given.bytes(given.number())
        elif step % 4 == 1:
            number += 1
            file += _records(given, number, len(file))
        elif step % 4 == 2:
            file += _anything(given, len(file))
        else:
            file += bytes(4 * given.number())
    return bytes(file)


def _records(given: _Input, number: int, offset: int) -> bytes:
    """A batch as walld writes them, its items from the input."""
    builder = BatchEncoder()
    for _ in range(given.number() % 4 + 1):
        stream_no, first_seq, span, flags = (given.number() for _ in range(4))
        array = given.bytes(given.number(2))
        body = pack_body(stream_no, array) if array else b""
        builder.add(stream_no, first_seq, first_seq + span, flags, body)
    return builder.seal(number).stamped(max(number - 1, 0), SEED, offset)


def _anything(given: _Input, offset: int) -> bytes:
    """A header that verifies at its place, whatever its fields say, and a payload with its CRC."""
    kind, widths, behind = given.number(), given.number(), given.number()
    records, batch_no, lie = given.number(2), given.number(8), given.number()
    payload = given.bytes(given.number())
    payload_bytes = len(payload) + (lie if lie < 16 else 0)
    fixed = layout._batch.pack(
        layout.BATCH_MAGIC, kind % 4, widths, records, behind, payload_bytes, batch_no,
        crc32(payload),
    )  # fmt: skip
    crc = crc32(fixed, crc32(offset.to_bytes(8, "little"), SEED))
    return fixed + crc.to_bytes(4, "little") + payload


def seed(*arrays: bytes) -> bytes:
    """The input from which `segment` makes a batch for each of these arrays of items."""
    steps = b""
    for number, array in enumerate(arrays, 1):
        steps += bytes((1, 0, number, 0, 4, 1 if number == 1 else 0))
        steps += len(array).to_bytes(2, "little") + array
    return steps
