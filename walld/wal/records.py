"""What stands in a record: the items of one stream, as msgpack.

Owns: the item types and their bytes (FORMAT.md, "Items"). Refuses: framing, files, meaning.

A record body is a msgpack array of items: runs and events of one stream, in seq order. Items are
the same in the WAL and in a partial.
"""

from __future__ import annotations

import msgspec
from walld_client.wire import messages as wire

__all__ = [
    "Begin",
    "Happened",
    "Item",
    "Owner",
    "Text",
    "decode_items",
    "encode_item",
    "join_items",
]


class Owner(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The process that produces a stream, so that a later boot can ask the kernel about it.

    pid 0: it could not be seen (another pid namespace). pidfd_inode: unique for a boot on Linux
    >= 6.9, else 0. start_ticks: field 22 of /proc/<pid>/stat, else 0.
    """

    boot_id: str
    pid: int
    pidfd_inode: int
    start_ticks: int


class Begin(msgspec.Struct, array_like=True, tag=0, frozen=True, gc=False):
    """Who a stream is: its first item, and the first of whatever a carried record holds of it."""

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


class Text(msgspec.Struct, array_like=True, tag=1, frozen=True, gc=False):
    """A run of consecutive tokens (kind 3) or reasoning (kind 4).

    first_seq: of its first token. last_seq: of its last. lengths: one LEB128 varint per token.
    """

    first_seq: int
    last_seq: int
    at_ms: int
    kind: int
    lengths: bytes
    text: bytes


class Happened(msgspec.Struct, array_like=True, tag=2, frozen=True, gc=False):
    """Any other event, as the agent sent it (a Token or Reasoning only where it has `info`)."""

    at_ms: int
    event: wire.Event


Item = Begin | Text | Happened

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Item])


def encode_item(item: Item) -> bytes:
    """The bytes of one item."""
    return _encoder.encode(item)


def join_items(items: list[bytes]) -> bytes:
    """A record body: the msgpack array of items that are encoded already."""
    count = len(items)
    if count == 1:  # what most records are
        return b"\x91" + items[0]
    if count < 16:
        header = bytes((0x90 | count,))
    elif count < 65536:
        header = b"\xdc" + count.to_bytes(2, "big")
    else:
        header = b"\xdd" + count.to_bytes(4, "big")
    return header + b"".join(items)


def decode_items(body: bytes) -> list[Item]:
    """The items of a record body.

    Raises msgspec.DecodeError (also UnicodeDecodeError, RecursionError: msgspec lets both through).
    """
    return _decoder.decode(body)
