"""What breaks the protocol, and what a daemon must answer (`malformed.json`).

Owns: the cases. A case is played on a connection of its own: a good Hello of `role` (none where
`role` is null), the frames of `before`, then the bytes. `answer` is the Error or the Refused that
must come; `got` and `limit` are null where they are free text. `closes` says what the connection
does then; where it stays open, a Drain must still be answered. Stream ids are drawn by name, so one
daemon can be fed all cases once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from shape import encoded, in_parts
from walld_client.wire import framing
from walld_client.wire import messages as wire

from walld import limits

__all__ = ["malformed"]

PRODUCER = bytes(range(16))
U32_MAX = 2**32 - 1
Case = dict[str, Any]


def malformed() -> list[Case]:
    """The vectors of `malformed.json`."""
    return [*_framing(), *_hellos(), *_bodies(), *_undecodable_events(), *_requests(), *_rules()]


def _case(
    name: str,
    role: str | None,
    why: str,
    what: dict[str, Any],
    answer: dict[str, Any],
    *,
    closes: bool,
    before: list[bytes] | None = None,
) -> Case:
    return {
        "name": name,
        "role": role,
        "why": why,
        "before": [frame.hex() for frame in before or []],
        **what,
        "answer": answer,
        "closes": closes,
    }


def _framed(body: bytes) -> dict[str, Any]:
    return {"hex": (struct.pack(">I", len(body)) + body).hex()}


def _error(code: str, got: str | None = None, limit: str | None = None, id: int = 0) -> Case:  # noqa: A002
    return {"message": "Error", "code": code, "got": got, "limit": limit, "id": id}


def _refused(
    stream: int, seq: int, code: str, got: str | None = None, limit: str | None = None
) -> Case:
    answer = {"stream": stream, "seq": seq, "code": code, "got": got, "limit": limit}
    return {"message": "Refused", **answer}


def _framing() -> Iterator[Case]:
    limit = limits.FRAME_BYTES_MAX
    for name, length in (("by_one", limit + 1), ("twice", 2 * limit), ("u32_max", U32_MAX)):
        yield _case(
            f"too_long_{name}",
            "agent",
            "a length prefix above the limit is refused before a byte of the body came",
            {"hex": struct.pack(">I", length).hex()},
            _error("frame_too_long", str(length), str(limit)),
            closes=True,
        )
    yield _case(
        "too_long_first",
        None,
        "the same where not even Hello was said",
        {"hex": struct.pack(">I", U32_MAX).hex()},
        _error("frame_too_long", str(U32_MAX), str(limit)),
        closes=True,
    )
    yield _case(
        "too_long_query",
        "query",
        "the same from a query client",
        {"hex": struct.pack(">I", limit + 1).hex()},
        _error("frame_too_long", str(limit + 1), str(limit)),
        closes=True,
    )
    yield _case(
        "http",
        None,
        "another protocol: its first bytes read as a length",
        {"hex": b"GET / HTTP/1.1\r\n\r\n".hex()},
        _error("frame_too_long", str(0x47455420), str(limit)),
        closes=True,
    )


def _hellos() -> Iterator[Case]:
    def hello(name: str, why: str, message: wire.Hello, answer: Case) -> Case:
        what = {"hex": framing.encode(message).hex()}
        return _case(f"hello_{name}", None, why, what, answer, closes=True)

    two = _error("version", "2", "1")
    yield hello("version_2", "a later version", wire.Hello(2, "agent", PRODUCER), two)
    yield hello("version_0", "none", wire.Hello(0, "agent", PRODUCER), _error("version", "0", "1"))
    what = _framed(b"\x93\x00\x02\x80")
    why = "a later version whose Hello has another shape"
    yield _case("hello_version_2_other_shape", None, why, what, two, closes=True)
    answer = _error("bad_role", "admin", "agent or query")
    yield hello("role", "an unknown role", wire.Hello(1, "admin", PRODUCER), answer)
    answer = _error("malformed", "15 bytes", "16 bytes")
    yield hello("producer", "a short producer", wire.Hello(1, "agent", PRODUCER[:15]), answer)
    answer = _error("malformed", "1 bytes", "0 or 16 bytes")
    yield hello("log", "a short log", wire.Hello(1, "agent", PRODUCER, b"x"), answer)
    yield _case(
        "hello_cut",
        None,
        "a Hello without its last field",
        _framed(b"\x93\x00\x01\xa5agent"),
        _error("malformed"),
        closes=True,
    )
    for name, body in (
        ("token", b"\x94\x03\x01\x01\xc4\x01a"),
        ("undecodable_token", b"\x94\x03\x01\x01\xa1a"),
        ("request", b"\x92\x33\x01"),
        ("nothing", b""),
        ("noise", b"\xc1\xc1\xc1"),
    ):
        yield _case(
            f"not_hello_{name}",
            None,
            "the first frame is no Hello",
            _framed(body),
            _error("not_hello", None, "Hello"),
            closes=True,
        )
    for role in ("agent", "query"):
        yield _case(
            f"hello_twice_{role}",
            role,
            "a second Hello",
            {"hex": framing.encode(wire.Hello(1, role, PRODUCER)).hex()},
            _error("not_hello"),
            closes=True,
        )


def _bodies() -> Iterator[Case]:
    deep = 100_000
    for name, why, body in (
        ("empty", "a frame of no bytes", b""),
        ("reserved", "a byte that msgpack never uses", b"\xc1"),
        ("map", "a map", b"\x81\xa1a\x01"),
        ("text", "text", b"\xa5hello"),
        ("array_empty", "an array without a tag", b"\x90"),
        ("array_cut", "an array of 2^32-1 elements that are not there", b"\xdd\xff\xff\xff\xff"),
        ("tag_text", "a tag that is text", b"\x94\xa13\x01\x02\xc4\x01a"),
        ("tag_float", "a tag that is a float", b"\x94\xca\x40\x40\x00\x00\x01\x02\xc4\x01a"),
        ("tag_negative", "a negative tag", b"\x94\xff\x01\x02\xc4\x01a"),
        ("tag_beyond", "a tag beyond every range", b"\x93\xcd\x03\xe8\x01\x02"),
        ("tag_daemon", "an Ack, which only the daemon sends", b"\x95\x20\xc4\x00\x00\x00\x90"),
        ("tag_request", "a request on an agent's connection", b"\x92\x33\x01"),
        ("no_seq", "an event that ends before its seq", b"\x92\x03\x01"),
        ("stream_text", "an event whose stream is text", b"\x94\x03\xa11\x02\xc4\x01a"),
        ("drain_cut", "a Drain without a level", b"\x92\x12\x01"),
        ("drain_level", "a Drain whose level is a number is no event", b"\x93\x12\x01\x02"),
        ("resume_start", "a Resume without a Start", b"\x95\x11\x01\x00\x00\x01"),
    ):
        answer = _error("malformed")
        yield _case(f"body_{name}", "agent", why, _framed(body), answer, closes=True)
    yield _case(
        "body_deep",
        "agent",
        "100,000 arrays inside each other",
        in_parts(struct.pack(">I", deep), (b"\x91", deep)),
        _error("malformed"),
        closes=True,
    )


def _undecodable_events() -> Iterator[Case]:
    for name, why, body in (
        ("text_is_str", "text must be bin", b"\x94\x03\x01\x02\xa1a"),
        ("text_missing", "a Token without text", b"\x93\x03\x01\x02"),
        ("text_cut", "bin that is longer than the frame", b"\x94\x03\x01\x02\xc4\x05a"),
        ("text_length_bomb", "bin of 2^32-1", b"\x94\x03\x01\x02\xc6\xff\xff\xff\xffa"),
        ("trailing", "bytes behind the array", b"\x94\x03\x01\x02\xc4\x01a\x00"),
        ("array_longer", "an array of 2^32-1", b"\xdd\xff\xff\xff\xff\x03\x01\x02\xc4\x01a"),
        ("str_not_utf8", "a Custom whose kind is no UTF-8", b"\x95\x0a\x01\x02\xa1\xff\xc4\x00"),
        (
            "str_surrogate",
            "a Retry whose reason holds half an emoji: str cannot",
            b"\x94\x0b\x01\x02\xa3\xed\xa0\xbd",
        ),
        ("bool_is_int", "an End whose clean is a number", b"\x94\x0f\x01\x02\x01"),
        ("seq_wide", "its seq stands in 64 bits", b"\x93\x03\x01\xcf" + bytes(7) + b"\x02"),
        ("later_event", "an event of a later version", b"\x93\x13\x01\x02"),
        ("last_event_tag", "the last tag that events may get", b"\x94\x1f\x01\x02\x80"),
    ):
        answer = _refused(1, 2, "malformed_event")
        yield _case(f"event_{name}", "agent", why, _framed(body), answer, closes=False)
    head = b"\x96\x03\x01\x02\xc4\x01a\xc0"
    for name, why, tail in (
        ("deep_info", "100,000 arrays in a field that must be bin", head[1:-1]),
        ("deep_later_field", "100,000 arrays where a later version may have a field", head[1:]),
    ):
        body_bytes = 1 + len(tail) + 100_000
        start = struct.pack(">I", body_bytes) + b"\x96" + tail
        answer = _refused(1, 2, "malformed_event")
        what = in_parts(start, (b"\x91", 100_000))
        yield _case(f"event_{name}", "agent", why, what, answer, closes=False)


def _requests() -> Iterator[Case]:
    for name, why, body in (
        ("cut", "a HasPartial without a session", b"\x92\x31\x07"),
        ("type", "a HasPartial of nil", b"\x93\x31\x07\xc0"),
        ("later", "a request of a later version", b"\x92\x3f\x07"),
        (
            "seen_bomb",
            "2^32-1 elements that are not there",
            b"\x94\x31\x07\xa1s\xdd\xff\xff\xff\xff",
        ),
    ):
        answer = _error("bad_request", id=7)
        yield _case(f"request_{name}", "query", why, _framed(body), answer, closes=False)
    for name, why, body in (
        ("no_id", "a request without an id", b"\x91\x31"),
        ("id_text", "an id that is text", b"\x92\x31\xa17"),
        ("id_zero", "an intact Status whose id is 0", b"\x92\x33\x00"),
        ("id_negative", "an intact Status whose id is -1", b"\x92\x33\xff"),
        ("event", "an event on a query's connection", b"\x94\x03\x01\x02\xc4\x01a"),
        ("noise", "noise", b"\xc1"),
    ):
        answer = _error("malformed")
        yield _case(f"request_{name}", "query", why, _framed(body), answer, closes=True)


def _rules() -> Iterator[Case]:
    """Intact events that break a rule of their stream."""
    before: list[wire.Event]
    end, token = wire.End(1, 1, clean=True), wire.Token(1, 2, b"x")

    def rule(
        name: str, why: str, before: list[wire.Event], event: wire.FromAgent, answer: Case
    ) -> Case:
        frames = [framing.encode(each) for each in before]
        what = encoded(event)
        return _case(f"rule_{name}", "agent", why, what, answer, closes=False, before=frames)

    def start(name: str, number: int = 1) -> wire.Start:
        return wire.Start(number, 0, f"vector-{name}", "vectors")

    unknown = _refused(1, 2, "unknown_stream")
    yield rule("unknown_stream", "an event before its Start", [], token, unknown)
    yield rule(
        "after_terminal",
        "a token after End",
        [start("after_terminal"), end],
        token,
        _refused(1, 2, "after_terminal"),
    )
    yield rule(
        "second_terminal",
        "an error after End: the first terminal stands",
        [start("second_terminal"), end],
        wire.AppError(1, 2, "boom"),
        _refused(1, 2, "after_terminal"),
    )
    yield rule(
        "not_terminal",
        "Release before a terminal",
        [start("not_terminal")],
        wire.Release(1, 1),
        _refused(1, 1, "not_terminal"),
    )
    shared = _error("producer_shared", "number 1 again", "a number for each stream")
    for name, why, before in (
        ("number_again", "one number for two streams", [start("number_again")]),
        (
            "number_behind",
            "a number behind a later one, whose stream is done with",
            [start("number_behind"), end, wire.Release(1, 2), start("number_behind_later", 2)],
        ),
    ):
        what = encoded(start(f"{name}_other"))
        frames = [framing.encode(each) for each in before]
        yield _case(f"rule_{name}", "agent", why, what, shared, closes=True, before=frames)
    owned = _refused(2, 0, "stream_owned")
    again = start("id_again", 2)
    yield rule("id_again", "one id for two streams", [start("id_again")], again, owned)
    for name, event in (
        ("start_seq", wire.Start(1, 1, "vector-start_seq", "vectors")),
        ("stream_0", wire.Start(0, 0, "vector-stream_0", "vectors")),
        ("stream_beyond", wire.Start(2**32, 0, "vector-stream_beyond", "vectors")),
        ("seq_beyond", wire.Token(1, 2**32, b"x")),
        ("seq_negative", wire.Token(1, -1, b"x")),
    ):
        answer = _refused(event.stream, event.seq, "bad_seq")
        before = [start(name)] if isinstance(event, wire.Token) else []
        yield rule(name, "outside its range", before, event, answer)
    longer = "i" * (limits.ID_BYTES_MAX + 1)
    for name, event in (
        ("stream_id", wire.Start(1, 0, longer, "vectors")),
        ("session_id", wire.Start(1, 0, "vector-session_id", longer)),
        ("session_id_utf8", wire.Start(1, 0, "vector-session_id_utf8", "é" * 513)),
        ("session_id_empty", wire.Start(1, 0, "vector-session_id_empty", "")),
        ("turn_id", wire.Start(1, 0, "vector-turn_id", "vectors", longer)),
        ("parent", wire.Start(1, 0, "vector-parent", "vectors", None, longer)),
    ):
        answer = _refused(1, 0, "id_length")
        yield rule(f"long_{name}", "an id beyond its limit", [], event, answer)
    most = limits.TEXT_BYTES_MAX
    texts: tuple[tuple[str, wire.Event], ...] = (
        ("token", wire.Token(1, 1, b"a" * (most + 1))),
        ("arguments", wire.ToolArguments(1, 1, "c", b"a" * (most + 1))),
        ("payload", wire.Custom(1, 1, "k", b"a" * (most + 1))),
    )
    for name, long in texts:
        answer = _refused(1, 1, "text_length", str(most + 1), str(most))
        yield rule(f"long_{name}", "one byte too many", [start(f"long_{name}")], long, answer)
    for name, run in (
        ("short", wire.Run(1, 1, 3, b"\x01", b"ab")),
        ("long", wire.Run(1, 1, 3, b"\x03", b"ab")),
        ("none", wire.Run(1, 1, 3, b"", b"")),
        ("cut", wire.Run(1, 1, 3, b"\x01\x80", b"a")),
        ("wide", wire.Run(1, 1, 3, b"\x81\x80\x80\x80\x80\x00", b"a")),
        ("kind", wire.Run(1, 1, 5, b"\x01", b"a")),
    ):
        answer = _refused(1, 1, "malformed_event")
        yield rule(
            f"run_{name}", "a Run that contradicts itself", [start(f"run_{name}")], run, answer
        )
    yield rule(
        "drain_level",
        "no such level: the Drain's id stands for a seq",
        [],
        wire.Drain(9, "eternal"),
        _refused(0, 9, "bad_level"),
    )
