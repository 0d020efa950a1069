"""Encodes and decodes records: the items of one stream, as msgpack.

Owns: the item types and their bytes, and the check of a body (FORMAT.md, "Items"). Refuses:
framing, files, meaning.

Items are runs and events of one stream, in seq order, as one msgpack array. In the WAL a CRC stands
before the array, seeded with the stream's number: a body is read long after its batch was, alone
and by its place, and must say by itself that it is whole and whose it is. A partial has a CRC of
its own.
"""

from __future__ import annotations

from typing import ClassVar
from zlib import crc32

import msgspec
from walld_client.wire import messages as wire

from walld.errors import FormatError

__all__ = [
    "BODY_CRC_BYTES",
    "Begin",
    "Happened",
    "Item",
    "Owner",
    "Text",
    "Thought",
    "check_body",
    "decode_begin",
    "decode_body",
    "decode_items",
    "encode_item",
    "join_items",
    "pack_body",
    "pack_items",
]

BODY_CRC_BYTES = 4


class Owner(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The process that produces a stream, so that a later boot can ask the kernel about it.

    pid 0: it could not be seen (another pid namespace). pidfd_inode: unique for a boot on Linux
    >= 6.9, else 0; with pid 0 the first 6 bytes of its producer, big-endian. start_ticks: field 22
    of /proc/<pid>/stat, else 0.
    """

    boot_id: str
    pid: int
    pidfd_inode: int
    start_ticks: int


class Begin(msgspec.Struct, array_like=True, tag=0, frozen=True, gc=False):
    """Who a stream is: its first item, and the first of whatever a carried record holds of it.

    app: None where its client named none, or the build that wrote the record had no such field.
    """

    uid: int
    producer: bytes
    number: int
    stream_id: str
    session_id: str
    turn_id: str | None
    parent: str | None
    meta: bytes | None
    at_ms: int
    owner: Owner
    app: str | None = None


class Text(msgspec.Struct, array_like=True, tag=1, frozen=True, gc=False):
    """A run of consecutive tokens.

    first_seq: of its first token. after_ms: when that came, from the Begin's at_ms; below zero
    where a client's clock was ahead. lengths: one LEB128 varint per token.
    """

    kind: ClassVar[int] = 3

    first_seq: int
    after_ms: int
    lengths: bytes
    text: bytes

    @property
    def last_seq(self) -> int:
        """Of its last token: the last byte of each varint is below 128."""
        lengths = self.lengths
        if lengths.isascii():
            return self.first_seq + len(lengths) - 1
        return self.first_seq + len(lengths.translate(None, _CONTINUED)) - 1


class Thought(Text, array_like=True, tag=3, frozen=True, gc=False):
    """A run of consecutive pieces of reasoning."""

    kind: ClassVar[int] = 4


class Happened(msgspec.Struct, array_like=True, tag=2, frozen=True, gc=False):
    """Any other event, as the agent sent it (a Token or Reasoning only where it has `info`)."""

    after_ms: int
    event: wire.Event


Item = Begin | Text | Thought | Happened

_CONTINUED = bytes(range(128, 256))
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Item])
_begin_decoder = msgspec.msgpack.Decoder(Begin)
_ARRAY_HEADER_BYTES = {0xDC: 3, 0xDD: 5}
_LENGTH_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Of bytes and texts, by their first byte; of ints the value's own."""
_ONE_ITEM = b"\x91"
"""The header of an array of one."""
_INT_BYTES = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}


def encode_item(item: Item) -> bytes:
    """The bytes of one item."""
    raw = _encoder.encode(item)
    if type(item) is Begin and item.app is None:  # as builds write it that know of no `app`
        return bytes((raw[0] - 1,)) + raw[1:-1]
    return raw


def join_items(items: list[bytes]) -> bytes:
    """The msgpack array of items that are encoded already."""
    count = len(items)
    if count < 16:
        header = bytes((0x90 | count,))
    elif count < 65536:
        header = b"\xdc" + count.to_bytes(2, "big")
    else:
        header = b"\xdd" + count.to_bytes(4, "big")
    return header + b"".join(items)


def decode_items(array: bytes) -> list[Item]:
    """The items of an array. Raises FormatError."""
    try:
        return _decoder.decode(array)
    except (ValueError, RecursionError) as error:  # more than DecodeError comes out of msgspec
        text = f"items of {len(array)} bytes cannot be read: {error}"
        raise FormatError(f"{text}; another version of walld may have written them") from None


def decode_begin(prefix: bytes) -> Begin | None:
    """The first item of an array of which these are the first bytes; None where it is no Begin, or
    not whole in them.
    """
    try:
        at = _ARRAY_HEADER_BYTES.get(prefix[0], 1)
        return _begin_decoder.decode(prefix[at : _end_of_value(prefix, at)])
    except (IndexError, ValueError, RecursionError):
        return None


def _end_of_value(data: bytes, at: int) -> int:
    """Behind the value that begins there: msgspec decodes whole arrays alone. IndexError where it
    goes beyond `data`, ValueError for a kind that stands in no Begin.
    """
    left = 1
    while left:
        first, at, left = data[at], at + 1, left - 1
        if 0x90 <= first <= 0x9F:
            left += first & 0x0F
        elif 0xA0 <= first <= 0xBF:
            at += first & 0x1F
        elif first in _LENGTH_BYTES:
            size = _LENGTH_BYTES[first]
            at += size + int.from_bytes(data[at : at + size], "big")
        elif first in _INT_BYTES:
            at += _INT_BYTES[first]
        elif not (first <= 0x7F or first >= 0xE0 or first == 0xC0):
            raise ValueError(f"0x{first:02x} is no value of a Begin")
    if at > len(data):
        raise IndexError(at)
    return at


def pack_items(stream_no: int, items: list[bytes]) -> bytes:
    """A record body for the WAL, of items that are encoded already."""
    if len(items) != 1:
        return pack_body(stream_no, join_items(items))
    (item,) = items  # what most records are, and a long one is copied once
    crc = crc32(item, crc32(_ONE_ITEM, stream_no & 0xFFFFFFFF))
    return b"".join((crc.to_bytes(BODY_CRC_BYTES, "little"), _ONE_ITEM, item))


def pack_body(stream_no: int, array: bytes) -> bytes:
    """The same, of the array of the items: that stands behind its CRC."""
    crc = crc32(array, stream_no & 0xFFFFFFFF)
    return crc.to_bytes(BODY_CRC_BYTES, "little") + array


def check_body(stream_no: int, body: bytes) -> bool:
    """True where the body is whole and this stream's."""
    crc = crc32(memoryview(body)[BODY_CRC_BYTES:], stream_no & 0xFFFFFFFF)
    return crc.to_bytes(BODY_CRC_BYTES, "little") == body[:BODY_CRC_BYTES]


def decode_body(stream_no: int, body: bytes) -> list[Item]:
    """The items of a record body that was read. Raises FormatError."""
    if not check_body(stream_no, body):
        raise FormatError(
            f"stream {stream_no}: a record of {len(body)} bytes does not verify: the disk gave back"
            " other bytes than were written; `walld dump` shows what stands there"
        )
    return decode_items(body[BODY_CRC_BYTES:])
