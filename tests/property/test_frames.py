"""Frames under any bytes: what is sent comes back, and anything else is a declared error."""

from __future__ import annotations

import struct
import sys
import tracemalloc
import types
import typing
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from walld_client.wire import framing
from walld_client.wire import messages as wire

from walld.engine.protocol_errors import explain, leading_integers

DECLARED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""All that a typed decode may raise. msgspec lets the last two through as they are."""
ROLES = {"agent": wire.FromAgent, "query": wire.FromQuery, "": wire.FromAgent}
DECODERS = {role: msgspec.msgpack.Decoder(union) for role, union in ROLES.items()}
U32 = st.integers(0, 2**32 - 1)
HALVES = st.text(st.characters() | st.characters(categories=["Cs"]), max_size=20)
"""Text in which lone surrogates may stand."""

often = settings(max_examples=50)  # `make search` has new ones each time


def surrogates_passed(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def values(kind: object) -> st.SearchStrategy[object]:
    """Any value of a field's type."""
    if kind == wire.RequestId:
        return st.integers(1, 2**64 - 1)
    if typing.get_origin(kind) is typing.Annotated:
        return values(typing.get_args(kind)[0])
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return messages(kind)
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return st.one_of([values(each) for each in typing.get_args(kind)])
    if typing.get_origin(kind) is list:
        return st.lists(values(typing.get_args(kind)[0]), max_size=3)
    if typing.get_origin(kind) is tuple:
        return st.tuples(*(values(each) for each in typing.get_args(kind)))
    simple: dict[object, st.SearchStrategy[object]] = {
        int: U32 | st.integers(-(2**63), 2**64 - 1),
        str: st.text(max_size=20),
        bytes: st.binary(max_size=300)
        | HALVES.map(lambda text: text.encode("utf-8", "surrogatepass")),
        bool: st.booleans(),
        type(None): st.none(),
    }
    return simple[kind]


def messages(struct: type[msgspec.Struct]) -> st.SearchStrategy[msgspec.Struct]:
    """Any message of one type."""
    named = vars(wire) | vars(sys.modules[struct.__module__])
    kinds = typing.get_type_hints(struct, named, include_extras=True)
    return st.builds(struct, **{name: values(kinds[name]) for name in struct.__struct_fields__})


FROM_AGENT = st.one_of([messages(each) for each in typing.get_args(wire.FromAgent)])
EVERY_SIDE = {
    "agent": wire.FromAgent,
    "query": wire.FromQuery,
    "to agent": wire.ToAgent,
    "to query": wire.ToQuery,
}


def cuts(data: bytes, places: list[int]) -> list[bytes]:
    """`data` in pieces."""
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(edges)]


def fed(pieces: list[bytes], limit: int = framing.FRAME_BYTES_MAX) -> tuple[list[bytes], object]:
    """The bodies that come out piece by piece, and what is left or the length that was refused."""
    bodies: list[bytes] = []
    rest = b""
    for piece in pieces:
        rest += piece
        while True:  # frame by frame, so that what stands before a bad length is taken
            try:
                whole, rest = framing.split(rest, limit)
            except framing.FrameTooLong as error:
                first = 4 + struct.unpack_from(">I", rest)[0]
                if first - 4 > limit:
                    return bodies, error.got
                whole, rest = [rest[4:first]], rest[first:]
                bodies += whole
                continue
            bodies += whole
            break
    return bodies, rest


@pytest.mark.parametrize("side", EVERY_SIDE)
@often
@given(data=st.data())
def test_what_is_sent_comes_back(side: str, data: st.DataObject) -> None:
    union = EVERY_SIDE[side]
    sent = data.draw(st.lists(st.one_of([messages(m) for m in typing.get_args(union)]), max_size=4))
    wire_bytes = b"".join(map(framing.encode, sent))
    bodies, rest = framing.split(wire_bytes)
    assert rest == b""
    assert [msgspec.msgpack.decode(body, type=union) for body in bodies] == sent


@often
@given(sent=st.lists(FROM_AGENT, max_size=4), places=st.lists(st.integers(0, 10**6), max_size=8))
def test_pieces_and_single_bytes_equal_the_whole(
    sent: list[msgspec.Struct], places: list[int]
) -> None:
    wire_bytes = b"".join(map(framing.encode, sent)) + b"\x00\x00"
    whole = fed([wire_bytes])
    assert whole == ([framing.encode(each)[4:] for each in sent], b"\x00\x00")
    assert fed(cuts(wire_bytes, places)) == whole
    assert fed([bytes((byte,)) for byte in wire_bytes]) == whole


@often
@given(noise=st.binary(max_size=200), places=st.lists(st.integers(0, 10**6), max_size=8))
def test_any_bytes_split_the_same_however_they_come(noise: bytes, places: list[int]) -> None:
    whole = fed([noise], limit=64)
    assert fed(cuts(noise, places), limit=64) == whole
    assert fed([bytes((byte,)) for byte in noise], limit=64) == whole
    assert all(len(body) <= 64 for body in whole[0])


def judged(body: bytes, role: str) -> None:
    """A body is a message of its role, or gets an answer that its sender can read."""
    try:
        message = DECODERS[role].decode(body)
    except DECLARED as error:
        answer = explain(body, error, role)
        union = wire.ToQuery if role == "query" else wire.ToAgent
        back = msgspec.msgpack.decode(framing.encode(answer)[4:], type=union)
        assert back == answer
        assert len(framing.encode(answer)) < 600
        if isinstance(answer, wire.Refused):
            assert role == "agent"
            assert leading_integers(body)[1:] == [answer.stream, answer.seq]
        elif answer.id:
            assert role == "query"
            assert leading_integers(body)[1] == answer.id
    else:
        assert isinstance(message, typing.get_args(ROLES[role]))


@pytest.mark.parametrize("role", ROLES)
@often
@given(body=st.binary(max_size=100))
def test_any_body_is_a_message_or_gets_an_answer(role: str, body: bytes) -> None:
    judged(body, role)


@pytest.mark.parametrize("role", ROLES)
@often
@given(
    tag=st.integers(0, 70),
    rest=st.lists(
        st.binary(max_size=8).map(msgspec.msgpack.encode)
        | st.integers(-(2**63), 2**64 - 1).map(msgspec.msgpack.encode)
        | st.sampled_from(
            [b"\xc1", b"\xc0", b"\xa1\xff", b"\x91", b"\xdd\xff\xff\xff\xff", b"\xc6"]
        ),
        max_size=10,
    ),
    count=st.integers(0, 15),
)
def test_bodies_that_look_like_messages(role: str, tag: int, rest: list[bytes], count: int) -> None:
    judged(bytes((0x90 | count, tag)) + b"".join(rest), role)


@pytest.mark.parametrize("role", ROLES)
@often
@given(sent=FROM_AGENT, place=st.integers(0, 10**6), flip=st.integers(1, 255), cut=st.booleans())
def test_a_damaged_message_is_a_message_or_gets_an_answer(
    role: str, sent: msgspec.Struct, place: int, flip: int, cut: bool
) -> None:
    body = bytearray(framing.encode(sent)[4:])
    place %= len(body)
    body[place] ^= flip
    judged(bytes(body[:place] if cut else body), role)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("opener", [b"\x91", b"\x81\x00", b"\xdc\x00\x01", b"\xdd\xff\xff\xff\xff"])
@pytest.mark.parametrize(
    "head", [b"", b"\x9f", b"\x9f\x03\x01\x02", b"\x9f\x03\x01\x02\xc4\x01a\xc0", b"\x9f\x31\x07"]
)
def test_deep_nesting_is_refused_without_memory(role: str, opener: bytes, head: bytes) -> None:
    body = head + opener * 100_000
    with pytest.raises(DECLARED):
        DECODERS[role].decode(body)
    tracemalloc.start()
    judged(body, role)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 256 * 1024, "a copy for each level would take megabytes"


@often
@given(length=st.integers(framing.FRAME_BYTES_MAX + 1, 2**32 - 1), tail=st.binary(max_size=8))
def test_length_bombs_are_refused_before_they_cost_anything(length: int, tail: bytes) -> None:
    bomb = struct.pack(">I", length) + tail
    tracemalloc.start()
    with pytest.raises(framing.FrameTooLong) as caught:
        framing.split(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (caught.value.got, caught.value.limit) == (length, framing.FRAME_BYTES_MAX)
    assert peak < 64 * 1024


@pytest.mark.parametrize("width", [b"\xc6", b"\xdb", b"\xdd", b"\xdf", b"\xc9"])
@pytest.mark.parametrize("role", ROLES)
def test_lengths_within_a_body_allocate_nothing(role: str, width: bytes) -> None:
    for head in (b"\x94\x03\x01\x02", b"\x95\x0a\x01\x02", b"\x94\x31\x07\xa1s", b"\x92\x00"):
        body = head + width + b"\xff\xff\xff\xff" + b"a"
        tracemalloc.start()
        judged(body, role)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 256 * 1024


@often
@given(text=HALVES, places=st.lists(st.integers(0, 10**6), max_size=4))
def test_text_cut_anywhere_between_utf16_units_joins_up(text: str, places: list[int]) -> None:
    units = text.encode("utf-16-le", "surrogatepass")
    pieces = [
        units[2 * a : 2 * b].decode("utf-16-le", "surrogatepass")
        for a, b in pairwise(
            sorted({0, len(units) // 2, *(place % (len(units) // 2 + 1) for place in places)})
        )
    ]
    tokens = [wire.Token(1, seq, surrogates_passed(piece)) for seq, piece in enumerate(pieces, 1)]
    bodies, _ = framing.split(b"".join(map(framing.encode, tokens)))
    came = [msgspec.msgpack.decode(body, type=wire.FromAgent) for body in bodies]
    joined = "".join(token.text.decode("utf-8", "surrogatepass") for token in came)
    assert joined.encode("utf-16-le", "surrogatepass") == units
