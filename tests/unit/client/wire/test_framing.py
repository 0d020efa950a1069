"""The length prefix and its limit."""

from __future__ import annotations

import struct
import tracemalloc

import msgspec
import pytest
from walld_client.wire import framing
from walld_client.wire import messages as wire

from walld import limits


def test_the_limit_is_the_same_on_both_sides() -> None:
    assert framing.FRAME_BYTES_MAX == limits.FRAME_BYTES_MAX


def test_a_frame_is_a_big_endian_length_and_a_body() -> None:
    assert framing.encode(wire.Release(1, 2)) == b"\x00\x00\x00\x04\x93\x10\x01\x02"


def test_split_gives_whole_bodies_and_keeps_the_rest() -> None:
    frame = framing.encode(wire.Release(1, 2))
    assert framing.split(b"") == ([], b"")
    assert framing.split(frame[:3]) == ([], frame[:3])
    assert framing.split(frame[:4]) == ([], frame[:4])
    assert framing.split(frame[:-1]) == ([], frame[:-1])
    assert framing.split(frame) == ([frame[4:]], b"")
    assert framing.split(frame + frame + frame[:5]) == ([frame[4:]] * 2, frame[:5])


def test_an_empty_body_is_a_frame() -> None:
    assert framing.split(bytes(8)) == ([b"", b""], b"")


@pytest.mark.parametrize("length", [framing.FRAME_BYTES_MAX + 1, 2**31, 2**32 - 1])
def test_a_length_above_the_limit_is_refused_with_both_numbers(length: int) -> None:
    prefix = struct.pack(">I", length)
    with pytest.raises(framing.FrameTooLong) as caught:
        framing.split(prefix)
    assert (caught.value.got, caught.value.limit) == (length, framing.FRAME_BYTES_MAX)
    assert str(length) in str(caught.value)
    assert str(framing.FRAME_BYTES_MAX) in str(caught.value)


def test_the_longest_frame_passes_and_one_byte_more_does_not() -> None:
    body = bytes(framing.FRAME_BYTES_MAX)
    assert framing.split(struct.pack(">I", len(body)) + body) == ([body], b"")
    with pytest.raises(framing.FrameTooLong):
        framing.split(struct.pack(">I", len(body) + 1) + body + b"x")


def test_the_longest_text_fits_a_frame_with_the_longest_ids() -> None:
    event = wire.ToolResult(
        2**32 - 1,
        2**32 - 1,
        "i" * limits.ID_BYTES_MAX,
        "n" * limits.ID_BYTES_MAX,
        bytes(limits.TEXT_BYTES_MAX),
        info=bytes(1024),
        truncated_from=2**64 - 1,
    )
    assert len(framing.encode(event)) - 4 <= framing.FRAME_BYTES_MAX


def test_a_length_bomb_allocates_nothing() -> None:
    bombs = [struct.pack(">I", length) for length in (2**32 - 1, 2**31, 2**20 + 1)]
    peaks = []
    for _ in range(9):  # a thread that a test before left reads its pipe at one time or another
        tracemalloc.start()
        for bomb in bombs:
            with pytest.raises(framing.FrameTooLong):
                framing.split(bomb)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert min(peaks) < 64 * 1024


def test_frames_before_a_bad_length_are_lost_to_split_only() -> None:
    """`split` raises for the whole buffer: what came before it must be taken frame by frame."""
    frame = framing.encode(wire.Release(1, 2))
    with pytest.raises(framing.FrameTooLong):
        framing.split(frame + b"\xff\xff\xff\xff")
    assert framing.split(frame)[0] == [frame[4:]]


def test_what_encode_gives_decodes() -> None:
    token = wire.Token(1, 2, b"\xed\xa0\xbd", b"\x80")
    (body,), rest = framing.split(framing.encode(token))
    assert rest == b""
    assert msgspec.msgpack.decode(body, type=wire.FromAgent) == token
