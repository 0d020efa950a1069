"""Event frames as bytes: ids at fixed places, tokens packed by hand, runs folded.

Owns: bytes of a frame whose stream and seq are always msgpack uint32, so that they stand at the
same place in every event frame. Refuses: sockets, order, memory.

Why by hand: a token costs at most twice a bare send; one `Struct.pack` and one concatenation are
what fits into that. The result is ordinary msgpack (wire/messages.py decodes it).

    0       4    5    6   7        11  12      16
    length  9N   tag  ce  stream   ce  seq     the other fields
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec
from walld_client.limits import SHORT_TEXT_BYTES_MAX
from walld_client.wire.exact import exact
from walld_client.wire.messages import Event, Run

__all__ = [
    "ARGUMENTS",
    "CONTROL_TAGS",
    "DRAIN",
    "ENDING_TAGS",
    "GREETING_TAGS",
    "ID",
    "REASONING",
    "START",
    "TOKEN",
    "TOKEN_OVERHEAD_BYTES",
    "body_of",
    "count_of",
    "folded",
    "ids_of",
    "last_seq_of",
    "pack_token",
    "place",
    "plain_text",
    "short_arguments",
    "text_prefix",
]

HELLO, START, TOKEN, REASONING, RUN, ARGUMENTS, MOVE = 0, 2, 3, 4, 5, 7, 12
APP_ERROR, END, RELEASE, RESUME, DRAIN = 14, 15, 16, 17, 18
GREETING_TAGS = (HELLO, RESUME)
"""What a connection begins with: made anew for the next one, never held."""
CONTROL_TAGS = frozenset((*GREETING_TAGS, DRAIN))
"""Of one connection, never of a stream."""
ENDING_TAGS = frozenset((START, MOVE, APP_ERROR, END, RELEASE))
"""What a full ring does not drop: where a reply begins, belongs and ends."""

ID = 0xFFFFFFFF
"""Stands for stream and seq in a message until `place` puts the real ones in: the widest value
makes msgspec reserve five bytes for each."""

TOKEN_OVERHEAD_BYTES = 19
_BIN8 = 0xC4
_BIN16 = 0xC5
_UINT32 = 0xCE

pack_token = struct.Struct(">I8sIBH").pack
"""(text bytes + 15, text_prefix, seq, 0xC5, text bytes): all of a plain text frame but its text."""
_short_head = struct.Struct(">I8sI").pack
_bin8 = struct.Struct(">BB").pack
_bin16 = struct.Struct(">BH").pack
_long_token = struct.Struct(">I8sIBI").pack
_ids = struct.Struct(">5xBxIxI").unpack_from
_head = struct.Struct(">I2sBIBI").pack
_encoder = msgspec.msgpack.Encoder(enc_hook=exact)
_high_bytes = bytes(range(0x80, 0x100))


def text_prefix(tag: int, number: int, between: int = 0) -> bytes:
    """The eight bytes that all plain tokens (or reasoning, or arguments) of a stream share.

    between: fields between seq and text.
    """
    return bytes((0x94 + between, tag, _UINT32)) + number.to_bytes(4, "big") + bytes((_UINT32,))


def plain_text(prefix: bytes, seq: int, text: bytes) -> bytes:
    """A frame of a Token or Reasoning without info, of any length."""
    length = len(text)
    if length <= 0xFFFF:
        return pack_token(length + 15, prefix, seq, _BIN16, length) + text
    return _long_token(length + 17, prefix, seq, 0xC6, length) + text


def short_arguments(prefix: bytes, seq: int, call_id: bytes, delta: bytes) -> bytes:
    """A frame of at most SHORT_TEXT_BYTES_MAX of a call's arguments. call_id: packed.

    The very bytes that msgspec makes of it.
    """
    length = len(delta)
    packed = call_id + (_bin8(_BIN8, length) if length < 256 else _bin16(_BIN16, length)) + delta
    return _short_head(len(packed) + 12, prefix, seq) + packed


def body_of(event: Event) -> bytes:
    """The bytes of an event whose stream and seq are ID, ready for `place`."""
    body = _encoder.encode(event)
    assert body[2:3] == body[7:8] == b"\xce", "stream and seq must be ID until they are placed"
    return body


def place(body: bytes, number: int, seq: int) -> bytes:
    """The frame of `body` as event `seq` of stream `number`."""
    return _head(len(body), body[:2], _UINT32, number, _UINT32, seq) + body[12:]


def ids_of(frame: bytes) -> tuple[int, int, int]:
    """Tag, stream number and (first) seq of an event frame."""
    found: tuple[int, int, int] = _ids(frame)
    return found


def count_of(frame: bytes) -> int:
    """How many events a frame holds: one, or the tokens of a run."""
    if frame[5] != RUN:
        return 1
    width = 1 << (frame[17] - 0xC4)  # bin8, bin16, bin32 after the one byte of `kind`
    size = int.from_bytes(frame[18 : 18 + width], "big")
    lengths = frame[18 + width : 18 + width + size]
    return len(lengths.translate(None, _high_bytes))  # one byte below 0x80 ends each varint


def last_seq_of(frame: bytes) -> int:
    """The highest seq a frame holds."""
    return int.from_bytes(frame[12:16], "big") + count_of(frame) - 1


class _Run:
    """Tokens of one stream being folded."""

    __slots__ = ("frames", "next_seq", "number", "seq", "tag")

    def __init__(self, tag: int, number: int, seq: int, frame: bytes) -> None:
        self.tag = tag
        self.number = number
        self.seq = seq
        self.next_seq = seq + 1
        self.frames = [frame]

    def frame(self) -> bytes:
        if len(self.frames) == 1:
            return self.frames[0]
        texts = [frame[TOKEN_OVERHEAD_BYTES:] for frame in self.frames]
        lengths = b"".join([_varint(len(text)) for text in texts])
        run = Run(ID, ID, self.tag, lengths, b"".join(texts))
        return place(body_of(run), self.number, self.seq)


def folded(frames: Iterable[bytes]) -> list[bytes]:
    """The same events in fewer frames.

    Within a stream order is kept; a stream's token may pass another stream's event, because only
    (stream, seq) orders anything. A Drain is passed by nothing.
    """
    out: list[bytes | _Run] = []
    runs: dict[int, _Run] = {}
    for frame in frames:
        if frame[5] in CONTROL_TAGS:
            runs.clear()
            out.append(frame)
            continue
        tag, number, seq = _ids(frame)
        if not _folds(frame):
            runs.pop(number, None)
            out.append(frame)
        else:
            run = runs.get(number)
            if run is not None and run.tag == tag and run.next_seq == seq:
                run.frames.append(frame)
                run.next_seq = seq + 1
            else:
                run = runs[number] = _Run(tag, number, seq, frame)
                out.append(run)
    return [item if isinstance(item, bytes) else item.frame() for item in out]


def _folds(frame: bytes) -> bool:
    """A plain short token or reasoning. One with info has five elements and stays as it is."""
    return (
        frame[4] == 0x94
        and frame[5] in (TOKEN, REASONING)
        and frame[16] == _BIN16
        and len(frame) <= SHORT_TEXT_BYTES_MAX + TOKEN_OVERHEAD_BYTES
    )


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
