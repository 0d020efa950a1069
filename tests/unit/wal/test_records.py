"""Record bodies: items to bytes and back."""

from __future__ import annotations

from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from walld_client.wire import messages as wire

from walld.engine.stream import varint_lengths
from walld.errors import FormatError
from walld.wal.records import (
    BODY_CRC_BYTES,
    Begin,
    Happened,
    Item,
    Owner,
    Text,
    Thought,
    check_body,
    decode_body,
    decode_items,
    encode_item,
    join_items,
    pack_body,
)

OWNER = Owner("boot", 42, 7, 9)
BEGIN = Begin(1000, bytes(16), 3, "stream", "session/1", None, None, b"\xc0", 5, OWNER)
ITEMS: list[Item] = [
    BEGIN,
    Text(1, 6, bytes([1, 2, 3]), b"abcdef"),
    Thought(4, -7, bytes([3]), "\ud83d".encode("utf-8", "surrogatepass")),
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
    with pytest.raises(FormatError, match="another version of walld"):
        decode_items(body)


@pytest.mark.parametrize(
    "array",
    [
        b"\x91" * 5000,  # msgspec raises RecursionError here,
        b"\x91\x94\x02\x01\x96\x02\x01\x00\xa1\xff\xa1s\xc0",  # and UnicodeDecodeError here
    ],
)
def test_whatever_msgspec_raises_is_a_format_error(array: bytes) -> None:
    with pytest.raises(FormatError):
        decode_items(array)


def test_every_event_fits_an_item() -> None:
    for event in (wire.Token(1, 1, b"x", b"\xc0"), wire.Move(1, 2, "s"), wire.Retry(1, 3)):
        assert decode_items(join_items([encode_item(Happened(1, event))])) == [Happened(1, event)]


# --- bodies ---------------------------------------------------------------------------------------

ARRAY = join_items([encode_item(item) for item in ITEMS])


@pytest.mark.parametrize("stream_no", [1, 2**32 - 1, 2**32, 2**64 - 1])
def test_a_body_is_the_array_behind_its_crc(stream_no: int) -> None:
    body = pack_body(stream_no, ARRAY)
    assert body[BODY_CRC_BYTES:] == ARRAY
    crc = crc32(ARRAY, stream_no % 2**32)
    assert body[:BODY_CRC_BYTES] == crc.to_bytes(4, "little")
    assert check_body(stream_no, body)
    assert decode_body(stream_no, body) == ITEMS


def test_every_bit_of_a_body_counts() -> None:
    body = pack_body(7, ARRAY)
    for bit in range(len(body) * 8):
        damaged = bytearray(body)
        damaged[bit // 8] ^= 1 << bit % 8
        assert not check_body(7, bytes(damaged)), bit
        with pytest.raises(FormatError, match=r"stream 7: .* does not verify"):
            decode_body(7, bytes(damaged))


@given(st.integers(1, 2**32 - 1), st.integers(1, 2**32 - 1), st.binary(max_size=40))
def test_a_body_of_another_stream_is_refused(one: int, other: int, array: bytes) -> None:
    assert check_body(other, pack_body(one, array)) == (one == other)


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, -1])
def test_a_body_that_is_cut_is_refused(length: int) -> None:
    body = pack_body(7, ARRAY)[:length]
    assert not check_body(7, body)
    with pytest.raises(FormatError, match="does not verify"):
        decode_body(7, body)


def test_a_body_that_verifies_and_cannot_be_read_is_refused_too() -> None:
    with pytest.raises(FormatError, match="cannot be read"):
        decode_body(7, pack_body(7, b"\x91\x91\x63"))


# --- runs -----------------------------------------------------------------------------------------


def test_text_and_reasoning_are_two_items() -> None:
    text, thought = Text(1, 0, b"\x01", b"x"), Thought(1, 0, b"\x01", b"x")
    assert (text.kind, thought.kind) == (3, 4)
    assert text != thought
    assert decode_items(join_items([encode_item(text), encode_item(thought)])) == [text, thought]


@pytest.mark.parametrize("kind", [Text, Thought])
@pytest.mark.parametrize(
    ("sizes", "last_seq"),
    [
        ([5], 9),
        ([1, 0, 127], 11),
        ([128], 9),
        ([127, 128, 16_383, 16_384, 0], 13),
        ([1_000_000, 1_000_000], 10),
        ([300] * 1000, 1008),
    ],
)
def test_the_last_seq_of_a_run_is_that_of_its_last_length(
    kind: type[Text], sizes: list[int], last_seq: int
) -> None:
    assert kind(9, 0, varint_lengths(sizes), b"").last_seq == last_seq


@given(st.lists(st.integers(0, 2**28), min_size=1, max_size=50), st.integers(0, 2**32 - 51))
def test_a_run_has_one_seq_a_length(sizes: list[int], first_seq: int) -> None:
    run = Text(first_seq, 0, varint_lengths(sizes), b"")
    assert run.last_seq == first_seq + len(sizes) - 1
