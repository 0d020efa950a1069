"""Frames: a u32 big-endian length, then that many bytes of msgpack.

Owns: the length prefix and its limit. Sans-IO: bytes in, messages out. Refuses: sockets, clocks.
Invariant: `split` never allocates for a length it has not checked.
"""

from __future__ import annotations

import struct

import msgspec
from walld_client.wire.exact import exact

__all__ = [
    "FRAME_BYTES_MAX",
    "PROTOCOL_VERSION",
    "UNREADABLE",
    "FrameTooLong",
    "encode",
    "frame_bytes",
    "split",
]

PROTOCOL_VERSION = 1
FRAME_BYTES_MAX = 1024 * 1024
"""Longest message (without its length prefix) until Welcome says otherwise."""

_length = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder(enc_hook=exact)


class FrameTooLong(ValueError):
    """A length prefix above the limit: framing is lost and the connection must close."""

    def __init__(self, got: int, limit: int) -> None:
        super().__init__(f"frame of {got} bytes announced, at most {limit} are taken")
        self.got = got
        self.limit = limit


UNREADABLE = (FrameTooLong, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What `split` and a decoder raise for bytes that are no frames, or no messages."""


def encode(message: msgspec.Struct) -> bytes:
    """One frame: length prefix and message."""
    body = _encoder.encode(message)
    return _length.pack(len(body)) + body


def frame_bytes(buffer: bytes | bytearray) -> int:
    """How long the frame at the start of `buffer` is, prefix and all; 4 while that is not known.

    Raises FrameTooLong.
    """
    if len(buffer) < 4:
        return 4
    length: int = _length.unpack_from(buffer)[0]
    if length > FRAME_BYTES_MAX:
        raise FrameTooLong(length, FRAME_BYTES_MAX)
    return 4 + length


def split(buffer: bytes, limit: int = FRAME_BYTES_MAX) -> tuple[list[bytes], bytes]:
    """The whole messages at the start of `buffer`, and the bytes after them.

    Raises FrameTooLong at the first length above `limit`.
    """
    messages: list[bytes] = []
    position, end = 0, len(buffer)
    while end - position >= 4:
        length: int = _length.unpack_from(buffer, position)[0]
        if length > limit:
            raise FrameTooLong(length, limit)
        stop = position + 4 + length
        if stop > end:
            break
        messages.append(buffer[position + 4 : stop])
        position = stop
    return messages, buffer[position:]
