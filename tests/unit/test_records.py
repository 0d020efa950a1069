"""Record bodies: items to bytes and back."""

from __future__ import annotations

import msgspec
import pytest
from walld_client.wire import messages as wire

from walld.wal.records import (
    Begin,
    Happened,
    Item,
    Owner,
    Text,
    decode_items,
    encode_item,
    join_items,
)

OWNER = Owner("boot", 42, 7, 9)
BEGIN = Begin(1000, bytes(16), 3, "stream", "session/1", None, None, b"\xc0", 5, OWNER)
ITEMS: list[Item] = [
    BEGIN,
    Text(1, 3, 6, 3, bytes([1, 2, 3]), b"abcdef"),
    Text(4, 4, 7, 4, bytes([3]), "\ud83d".encode("utf-8", "surrogatepass")),
    Happened(8, wire.Tool(3, 5, "call", "grep", b"{}")),
    Happened(9, wire.End(3, 6, True, "stop")),
    Happened(9, wire.Release(3, 7)),
]


def test_items_come_back_as_they_were() -> None:
    body = join_items([encode_item(item) for item in ITEMS])
    assert decode_items(body) == ITEMS


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 65_535, 65_536])
def test_any_number_of_items(count: int) -> None:
    body = join_items([b"\xc0"] * count)
    assert msgspec.msgpack.decode(body) == [None] * count


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x91\x91\x63", b"\x92" + encode_item(BEGIN)])
def test_damaged_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_items(body)


def test_every_event_fits_an_item() -> None:
    for event in (wire.Token(1, 1, b"x", b"\xc0"), wire.Move(1, 2, "s"), wire.Retry(1, 3)):
        assert decode_items(join_items([encode_item(Happened(1, event))])) == [Happened(1, event)]
