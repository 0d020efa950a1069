"""Event frames: packed by hand, placed, folded."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from walld_client.encoding import event_frames
from walld_client.wire import framing
from walld_client.wire import messages as wire

decoder = msgspec.msgpack.Decoder(wire.FromAgent)


def decoded(frame: bytes) -> object:
    (body,), rest = framing.split(frame, 1 << 30)
    assert rest == b""
    return decoder.decode(body)


def token(number: int, seq: int, text: bytes, tag: int = event_frames.TOKEN) -> bytes:
    return event_frames.plain_text(event_frames.text_prefix(tag, number), seq, text)


@pytest.mark.parametrize("length", [0, 1, 255, 256, 1024, 65535, 65536, 70000])
@pytest.mark.parametrize("number", [1, 127, 128, 2**32 - 1])
def test_a_token_packed_by_hand_is_a_token(length: int, number: int) -> None:
    text = b"x" * length
    assert decoded(token(number, 7, text)) == wire.Token(number, 7, text)
    assert decoded(token(number, 7, text, event_frames.REASONING)) == wire.Reasoning(
        number, 7, text
    )


@pytest.mark.parametrize("length", [0, 1, 255, 256, 1024])
@pytest.mark.parametrize("call_id", ["c", "c" * 31, "c" * 32, "ü" * 200, "c" * 1024])
def test_arguments_packed_by_hand_are_arguments(length: int, call_id: str) -> None:
    text, packed = b"x" * length, msgspec.msgpack.encode(call_id)
    frame = event_frames.short_arguments(
        event_frames.text_prefix(event_frames.ARGUMENTS, 3, 1), 7, packed, text
    )
    event = wire.ToolArguments(event_frames.ID, event_frames.ID, call_id, text)
    assert frame == event_frames.place(event_frames.body_of(event), 3, 7)
    assert decoded(frame) == wire.ToolArguments(3, 7, call_id, text)


EVENTS: list[wire.Event] = [
    wire.Start(event_frames.ID, event_frames.ID, "s", "S", None, "p", b"\x80", 5),
    wire.Token(event_frames.ID, event_frames.ID, b"t", b"\x80"),
    wire.Run(event_frames.ID, event_frames.ID, 3, b"\x01\x01", b"ab"),
    wire.Tool(event_frames.ID, event_frames.ID, "c", "n", b"{}", None, 9),
    wire.Step(event_frames.ID, event_frames.ID),
    wire.End(event_frames.ID, event_frames.ID, True),
    wire.Release(event_frames.ID, event_frames.ID),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_ids_are_placed_and_found(event: wire.Event) -> None:
    frame = event_frames.place(event_frames.body_of(event), 3, 70000)
    assert decoded(frame) == msgspec.structs.replace(event, stream=3, seq=70000)
    assert event_frames.ids_of(frame)[1:] == (3, 70000)


def test_an_event_with_real_ids_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        event_frames.body_of(wire.Step(1, 1))


pieces = st.lists(
    st.tuples(
        st.integers(1, 3), st.sampled_from(["t", "r", "info", "step"]), st.binary(max_size=300)
    ),
    max_size=60,
)


def frames_of(said: list[tuple[int, str, bytes]]) -> list[bytes]:
    out, seqs = [], {1: 0, 2: 0, 3: 0}
    for number, kind, text in said:
        seqs[number] += 1
        seq = seqs[number]
        if kind == "t":
            out.append(token(number, seq, text))
        elif kind == "r":
            out.append(token(number, seq, text, event_frames.REASONING))
        elif kind == "info":
            out.append(
                event_frames.place(
                    event_frames.body_of(
                        wire.Token(event_frames.ID, event_frames.ID, text, b"\x80")
                    ),
                    number,
                    seq,
                )
            )
        else:
            out.append(
                event_frames.place(
                    event_frames.body_of(wire.Step(event_frames.ID, event_frames.ID)), number, seq
                )
            )
    return out


def unfolded(frame: bytes) -> list[tuple[int, int, str, bytes]]:
    event = decoded(frame)
    if not isinstance(event, wire.Run):
        return [(event.stream, event.seq, type(event).__name__, getattr(event, "text", b""))]  # type: ignore[attr-defined]
    out, at, length, shift = [], 0, 0, 0
    for byte in event.lengths:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            name = "Token" if event.kind == 3 else "Reasoning"
            out.append((event.stream, event.seq + len(out), name, event.text[at : at + length]))
            at, length, shift = at + length, 0, 0
    assert at == len(event.text)
    return out


@given(pieces)
def test_folding_changes_no_event_and_no_order_within_a_stream(
    said: list[tuple[int, str, bytes]],
) -> None:
    plain = frames_of(said)
    folded = event_frames.folded(plain)
    assert len(folded) <= len(plain)
    for number in (1, 2, 3):
        want = [one for frame in plain for one in unfolded(frame) if one[0] == number]
        got = [one for frame in folded for one in unfolded(frame) if one[0] == number]
        assert got == want
    for frame in folded:
        assert event_frames.count_of(frame) == len(unfolded(frame))
        assert event_frames.last_seq_of(frame) == unfolded(frame)[-1][1]


def test_interleaved_streams_fold_to_one_run_each() -> None:
    said = [(1 + i % 2, "t", b"x") for i in range(100)]
    assert len(event_frames.folded(frames_of(said))) == 2


def test_nothing_passes_a_drain() -> None:
    drain = framing.encode(wire.Drain(1, "written"))
    out = event_frames.folded([token(1, 1, b"a"), drain, token(1, 2, b"b"), token(1, 3, b"c")])
    assert [len(unfolded(f)) if f is not drain else "drain" for f in out] == [1, "drain", 2]


def test_a_long_text_stays_as_it_is() -> None:
    long = [token(1, 1, b"x" * 1025), token(1, 2, b"x" * 1025)]
    assert event_frames.folded(long) == long
