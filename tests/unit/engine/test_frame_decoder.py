"""Bytes in, folded tokens out: the same whatever the kernel cuts them into."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from engine_world import World
from hypothesis import example, given, settings
from hypothesis import strategies as st
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from walld import limits
from walld.engine.frame_decoder import FrameDecoder
from walld.engine.stream import Connection, varint_lengths
from walld.errors import ProtocolError
from walld.wal import records

HELLO = wire.Hello(1, "agent", b"p" * 16)


def picture(world: World) -> tuple[Any, ...]:
    """All that the engine knows after some bytes."""
    streams = {
        no: (
            stream.next_seq,
            stream.terminal,
            stream.session_id,
            world.text(stream),
            [item for item in world.items(stream) if not isinstance(item, records.Text)],
        )
        for no, stream in world.engine.registry.by_no.items()
    }
    counters = world.engine.counters
    return (
        streams,
        dict(counters.received),
        dict(counters.discarded),
        dict(counters.protocol_errors),
    )


def fed(pieces: list[bytes]) -> tuple[tuple[Any, ...], list[type]]:
    world = World()
    agent = world.connect()
    for piece in pieces:
        world.engine.decoder.take(agent, piece, 5)
    assert not agent.tail
    return picture(world), [type(m) for m in world.heard(agent)]


CONVERSATION: list[msgspec.Struct] = [
    wire.Start(1, 0, "a", "s"),
    wire.Start(2, 0, "b", "s"),
    wire.Token(1, 1, b"one"),
    wire.Token(1, 2, b"two"),
    wire.Token(2, 1, b"x" * 200),
    wire.Token(1, 3, b""),
    wire.Reasoning(1, 4, b"hm"),
    wire.Reasoning(1, 5, b"hm"),
    wire.Token(1, 6, b"info", b"\x01"),
    wire.Token(1, 7, b"t"),
    wire.Tool(1, 8, "c", "t", b"{}"),
    wire.Token(1, 8, b"again"),
    wire.Token(1, 12, b"gap"),
    wire.Token(9, 1, b"nobody's"),
    wire.Run(2, 2, 3, b"\x01\x02", b"abb"),
    wire.Drain(1, "written"),
    wire.Token(2, 4, b"d"),
    wire.Token(2, 5, b"e"),
    wire.Token(2, 8, b"a gap in a run"),
    wire.Token(2, 7, b"too late"),
    wire.Token(2, 8, b"twice"),
    wire.Token(2, 9, b"j"),
    wire.End(1, 13, clean=True),
    wire.Token(1, 14, b"late"),
    wire.Release(1, 14),
    wire.Move(2, 10, "t"),
]


def test_whole_equals_byte_by_byte() -> None:
    raw = b"".join(map(encode, CONVERSATION))
    whole = fed([raw])
    assert fed([raw[at : at + 1] for at in range(len(raw))]) == whole
    assert whole[0][1]["token"] == 18, "each token of a run counts"


@settings(max_examples=60)
@given(st.data())
def test_wherever_it_is_cut(draw: st.DataObject) -> None:
    raw = b"".join(map(encode, CONVERSATION))
    cuts = draw.draw(st.lists(st.integers(0, len(raw)), max_size=8).map(sorted))
    pieces = [raw[a:b] for a, b in pairwise([0, *cuts, len(raw)])]
    assert fed(pieces) == fed([raw])


PIECES = st.lists(st.integers(0, 3) | st.just(150), min_size=1, max_size=6).map(
    lambda sizes: [b"abc"[at % 3 : at % 3 + 1] * size for at, size in enumerate(sizes)]
)
ADDS_UP = [b"x" * 130] * 126 + [b"x" * 258]
"""The bytes of these lengths give the sum of the lengths, though each length is two of them."""
SAID = st.tuples(
    st.integers(1, 2),
    st.sampled_from([3, 3, 3, 4, 0]),
    st.sampled_from([0, 0, 0, 0, -2, -1, 1]),
    PIECES,
    st.booleans(),
)
"""(stream, kind or 0 for its end, how far from the seq that is next, texts, told as a run)"""


@settings(max_examples=200)
@given(said=st.lists(SAID, min_size=3, max_size=12), at_once=st.booleans())
@example(said=[(1, 0, 0, [], False), (1, 3, 0, [b"late"], True)], at_once=True)
@example(said=[(1, 3, 0, ADDS_UP, True)], at_once=True)
def test_a_run_is_its_tokens(
    said: list[tuple[int, int, int, list[bytes], bool]], at_once: bool
) -> None:
    """Whether it follows what is known, reaches back, leaves a gap, or stands behind an end."""
    runs: list[wire.Message] = [wire.Start(1, 0, "a", "s"), wire.Start(2, 0, "b", "s")]
    tokens, following = list(runs), {1: 1, 2: 1}
    for stream, kind, jump, texts, is_run in said:
        seq = max(1, following[stream] + jump)
        one = wire.Token if kind == 3 else wire.Reasoning
        singles: list[wire.Message] = [one(stream, at, text) for at, text in enumerate(texts, seq)]
        if not kind:
            singles = [wire.End(stream, seq, clean=True)]
        following[stream] = max(following[stream], seq + len(singles))
        tokens += singles
        if is_run and kind:
            lengths = varint_lengths([len(text) for text in texts])
            singles = [wire.Run(stream, seq, kind, lengths, b"".join(texts))]
        runs += singles
    frames = [encode(message) for message in runs]
    folded, _ = fed([b"".join(frames)] if at_once else frames)
    single, _ = fed([encode(message) for message in tokens])
    assert folded[0] == single[0]
    if all(kind for _, kind, *_ in said):  # a run behind an end is refused once, not by token
        assert folded[1:] == single[1:]


def test_a_long_frame_in_many_reads() -> None:
    world = World()
    agent = world.connect()
    stream = world.begin(agent)
    text = os.urandom(limits.TEXT_BYTES_MAX)
    raw = encode(wire.Token(1, 1, text)) + encode(wire.Token(1, 2, b"tail"))
    for at in range(0, len(raw), limits.READ_BYTES_MAX):
        world.engine.decoder.take(agent, raw[at : at + limits.READ_BYTES_MAX], 5)
    assert world.text(stream) == text + b"tail"


def test_tokens_of_one_read_are_one_run() -> None:
    world = World()
    agent = world.connect()
    stream = world.begin(agent)
    world.say(agent, *(wire.Token(1, seq, b"ab") for seq in range(1, 100)))
    (run,) = [item for item in world.items(stream) if isinstance(item, records.Text)]
    assert (run.first_seq, run.last_seq, run.text) == (1, 99, b"ab" * 99)
    assert stream.connection is agent


def test_the_fast_way_stops_where_it_no_longer_holds() -> None:
    """A terminal, a full disk: the tokens behind it in the same read take the slow way."""
    world = World()
    agent = world.connect()
    stream = world.begin(agent)
    world.say(agent, wire.Token(1, 1, b"a"), wire.End(1, 2, clean=True), wire.Token(1, 3, b"b"))
    assert world.text(stream) == b"a"
    assert [type(m) for m in world.heard(agent)] == [wire.Refused]


def test_a_text_that_is_too_long_is_refused_alone_on_the_fast_way() -> None:
    world = World()
    agent = world.connect()
    stream = world.begin(agent)
    long = b"x" * (limits.TEXT_BYTES_MAX + 1)
    world.say(agent, wire.Token(1, 1, b"a"), wire.Token(1, 2, long), wire.Token(1, 3, b"c"))
    assert world.text(stream) == b"ac"
    (refused,) = world.heard(agent)
    assert isinstance(refused, wire.Refused)
    assert (refused.seq, refused.code, refused.got) == (2, "text_length", str(len(long)))


def test_one_bad_body_costs_one_event() -> None:
    world = World()
    agent = world.connect()
    stream = world.begin(agent)
    bad = msgspec.msgpack.encode([3, 1, 1, "text where bin belongs"])
    raw = encode(wire.Token(1, 1, b"a"))
    world.engine.decoder.take(agent, len(bad).to_bytes(4, "big") + bad + raw, 5)
    assert world.text(stream) == b"a"
    (refused,) = world.heard(agent)
    assert isinstance(refused, wire.Refused)
    assert (refused.stream, refused.seq, refused.code) == (1, 1, "malformed_event")


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        ((limits.FRAME_BYTES_MAX + 1).to_bytes(4, "big"), "frame_too_long"),
        (b"\xff\xff\xff\xff", "frame_too_long"),
        (b"\x00\x00\x00\x01\xc1", "malformed"),
        (encode(HELLO), "not_hello"),
    ],
)
def test_broken_framing_ends_it_and_what_came_before_is_taken(raw: bytes, code: str) -> None:
    world = World()
    agent = world.connect()
    stream = world.begin(agent)
    with pytest.raises(ProtocolError) as caught:
        world.engine.decoder.take(agent, encode(wire.Token(1, 1, b"kept")) + raw, 5)
    assert caught.value.code == code
    assert caught.value.got
    assert caught.value.limit
    assert world.text(stream) == b"kept"


def hello_in(pieces: list[bytes]) -> tuple[wire.Hello, bytes] | None:
    world = World()
    connection = Connection(1, 1000, world.process(), set())
    feed: FrameDecoder = world.engine.decoder
    found = None
    for piece in pieces:
        assert found is None
        found = feed.first(connection, piece)
    return found


def test_hello_comes_first_in_any_pieces() -> None:
    raw = encode(HELLO)
    assert hello_in([raw + b"rest"]) == (HELLO, b"rest")
    assert hello_in([raw[at : at + 1] for at in range(len(raw))]) == (HELLO, b"")
    assert hello_in([raw[:-1]]) is None
    assert hello_in([b""]) is None


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (encode(wire.Token(1, 1, b"x")), "not_hello"),
        (encode(wire.Hello(2, "agent", b"p" * 16)), "version"),
        (encode(wire.Hello(1, "boss", b"p" * 16)), "bad_role"),
        (encode(wire.Hello(1, "agent", b"short")), "malformed"),
        (b"GET / HTTP/1.1\r\n", "frame_too_long"),
    ],
)
def test_anything_else_is_told_why(raw: bytes, code: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        hello_in([raw])
    assert caught.value.code == code


def test_a_hello_has_room_for_a_long_name_and_is_no_place_to_collect() -> None:
    """What came was joined anew with each KiB: half a GB was copied for a MiB."""
    longest = wire.Hello(1, "agent", b"p" * 16, b"l" * 16, 2**64 - 1, "c" * (4 * limits.KIB - 64))
    raw = encode(longest)
    assert len(raw) <= 4 + limits.HELLO_BYTES_MAX
    assert hello_in([raw[:1000], raw[1000:]]) == (longest, b"")
    too_long = limits.HELLO_BYTES_MAX + 1
    with pytest.raises(ProtocolError) as caught:
        hello_in([too_long.to_bytes(4, "big")])
    assert (caught.value.code, caught.value.got) == ("frame_too_long", str(too_long))
    assert caught.value.limit == str(limits.HELLO_BYTES_MAX)
