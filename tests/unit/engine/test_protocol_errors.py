"""What is answered to bytes that are no message of their sender."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest
from walld_client.wire import messages as wire
from walld_client.wire.framing import PROTOCOL_VERSION

from walld.engine.protocol_errors import (
    CLOSING_CODES,
    REFUSED_CODES,
    REQUEST_CODES,
    check_hello,
    explain,
    leading_integers,
)

AGENT = msgspec.msgpack.Decoder(wire.FromAgent)
QUERY = msgspec.msgpack.Decoder(wire.FromQuery)
ENCODE = msgspec.msgpack.Encoder().encode


def answer(body: bytes, role: str = "agent") -> wire.Refused | wire.Error:
    """What the intake would answer: the typed decode fails first, and its error is explained."""
    with pytest.raises(
        (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
    ) as caught:  # what the decoder is known to raise
        (QUERY if role == "query" else AGENT).decode(body)
    return explain(body, caught.value, role)


@pytest.mark.parametrize(
    ("body", "integers"),
    [
        (b"", []),
        (b"\x90", []),
        (b"\x80", []),
        (b"\xc1", []),
        (b"\xdc", []),
        (b"\xdc\x00", []),
        (b"\xdd\x00\x00\x00", []),
        (b"\xdd\x00\x00\x00\x00\x01", []),
        (b"\x93\x03\x01\x02", [3, 1, 2]),
        (b"\x92\x03\x01\x02", [3, 1]),
        (b"\x94\x03\x01\x02\xc1", [3, 1, 2]),
        (b"\xdc\x00\x04\x03\x01\x02", [3, 1, 2]),
        (b"\xdd\xff\xff\xff\xff\x03\x01\x02", [3, 1, 2]),
        (b"\x93\xcc\x03\xcd\x01\x00\xce\x00\x01\x00\x00", [3, 256, 65536]),
        (b"\x93\xcf" + b"\xff" * 8 + b"\xff\xe0", [2**64 - 1, -1, -32]),
        (b"\x93\xd0\x80\xd1\x80\x00\xd2\x80\x00\x00\x00", [-128, -(2**15), -(2**31)]),
        (b"\x93\xd3\x80\x00\x00\x00\x00\x00\x00\x00\x7f\x00", [-(2**63), 127, 0]),
        (b"\x93\x03\xcd\x01", [3]),
        (b"\x93\x03\xcf\x01", [3]),
        (b"\x93\x03\xc3\x02", [3]),
        (b"\x93\x03\xca\x00\x00\x00\x00\x01", [3]),
        (b"\x93\xa1a\x01\x02", []),
    ],
)
def test_leading_integers(body: bytes, integers: list[int]) -> None:
    assert leading_integers(body) == integers


def test_leading_integers_agree_with_msgspec_on_every_width() -> None:
    edges = [0, 1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**64 - 1]
    edges += [-1, -32, -33, -128, -129, -(2**15), -(2**15) - 1, -(2**31), -(2**31) - 1, -(2**63)]
    for a in edges:
        for b in edges:
            assert leading_integers(ENCODE([a, b, 7, 8])) == [a, b, 7]


@pytest.mark.parametrize(
    ("body", "layout"),
    [
        (b"\x94\x03\x01\x02\xa1a", "Token(stream, seq, text, info)"),
        (b"\x93\x03\x01\x02", "Token(stream, seq, text, info)"),
        (b"\x94\x03\x01\x02\xc4\xffa", "Token(stream, seq, text, info)"),
        (b"\x94\x03\x01\x02\xc4\x01a\x00", "Token(stream, seq, text, info)"),
        (b"\x96\x03\x01\x02\xc4\x01a\xc0" + b"\x91" * 100_000, "Token(stream, seq, text, info)"),
        (b"\x94\x0a\x01\x02\xa1\xff\xc4\x00", "Custom(stream, seq, kind, payload, truncated_from)"),
        (b"\x95\x0a\x01\x02\xa1\xff\xc4\x00", "Custom(stream, seq, kind, payload, truncated_from)"),
        (b"\x93\x13\x01\x02", "an event of tag 2 to 16"),
        (b"\x93\x1f\x01\x02", "an event of tag 2 to 16"),
    ],
)
def test_a_body_that_shows_its_seq_loses_that_event_only(body: bytes, layout: str) -> None:
    refused = answer(body)
    assert isinstance(refused, wire.Refused)
    assert (refused.stream, refused.seq, refused.code) == (1, 2, "malformed_event")
    assert refused.got.startswith(f"tag {leading_integers(body)[0]}: ")
    assert refused.limit == layout


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"GET / HTTP/1.1\r\n",
        b"\x91" * 100_000,
        b"\x81\xa1a\x01",
        b"\x92\x03\x01",  # no seq
        b"\x93\x03\xa11\x02",  # the stream is text
        b"\x93\x12\x01\x02",  # Drain(1, level=2): its third element is no seq
        b"\x95\x11\x01\x02\x03\x04",  # Resume whose start is a number
        b"\x93\x20\x01\x02",  # an Ack, which only the daemon sends
        b"\x93\x30\x01\xa3all",  # a request on an agent's connection
        b"\x93\x40\x01\x02",  # beyond every range
    ],
)
def test_a_body_that_shows_no_event_closes(body: bytes) -> None:
    error = answer(body)
    assert isinstance(error, wire.Error)
    assert (error.code, error.id) == ("malformed", 0)
    assert error.got
    assert error.limit


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (b"\x92\x31\x07", "HasPartial(id, session_id, seen)"),
        (b"\x93\x31\x07\xc0", "HasPartial(id, session_id, seen)"),
        (b"\x92\x3f\x07", "a request of tag 48 to 62, 81"),
        (b"\x92\x50\x07", "a request of tag 48 to 62, 81"),
        (b"\x92\x7f\x07", "a request of tag 48 to 62, 81"),
    ],
)
def test_a_bad_request_is_answered_by_its_id(body: bytes, limit: str) -> None:
    error = answer(body, "query")
    assert isinstance(error, wire.Error)
    assert (error.code, error.id, error.limit) == ("bad_request", 7, limit)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x91\x31",
        b"\x92\x31\xa17",
        b"\x92\x31\x00",  # id 0 would read as a closing error
        b"\x92\x31\xff",
        b"\x94\x03\x01\x02\xc4\x01a",  # an event on a query's connection
    ],
)
def test_a_request_without_an_id_closes(body: bytes) -> None:
    error = answer(body, "query")
    assert isinstance(error, wire.Error)
    assert (error.code, error.id) == ("malformed", 0)


@pytest.mark.parametrize(
    ("body", "code", "got", "limit"),
    [
        (b"\x92\x00\x02", "version", "2", "1"),
        (b"\x91\x00", "malformed", None, None),
        (b"\x92\x00\x01", "malformed", None, None),
        (b"\x94\x00\x01\xa5agent\xa1x", "malformed", None, None),
        (b"\x94\x03\x01\x02\xa1a", "not_hello", None, "Hello"),
        (b"\x92\x31\x07", "not_hello", None, "Hello"),
        (b"", "not_hello", None, "Hello"),
    ],
)
def test_before_hello(body: bytes, code: str, got: str | None, limit: str | None) -> None:
    error = answer(body, "")
    assert isinstance(error, wire.Error)
    assert (error.code, error.id) == (code, 0)
    assert got is None or error.got == got
    assert limit is None or error.limit == limit


def hello(**changes: object) -> wire.Hello:
    fields: dict[str, object] = {"version": 1, "role": "agent", "producer": bytes(16)}
    return wire.Hello(**(fields | changes))  # type: ignore[arg-type]


def test_a_good_hello_passes() -> None:
    assert PROTOCOL_VERSION == 1
    assert check_hello(hello()) is None
    assert check_hello(hello(role="query", log=bytes(16), synced_no=9)) is None


@pytest.mark.parametrize(
    ("message", "code", "got", "limit"),
    [
        (wire.Token(1, 1, b"a"), "not_hello", "Token", "Hello"),
        (wire.Status(1), "not_hello", "Status", "Hello"),
        (hello(version=0), "version", "0", "1"),
        (hello(version=2, role="x"), "version", "2", "1"),
        (hello(role="root\x1b"), "bad_role", "root?", "agent or query"),
        (hello(producer=b"abc"), "malformed", "3 bytes", "16 bytes"),
        (hello(log=b"abc"), "malformed", "3 bytes", "0 or 16 bytes"),
    ],
)
def test_a_bad_hello(message: msgspec.Struct, code: str, got: str, limit: str) -> None:
    error = check_hello(message)
    assert error is not None
    assert (error.code, error.got, error.limit, error.id) == (code, got, limit, 0)


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    "error", [UnprintableError(), ValueError("\ud83d\n\x1b[31m" + "x" * 10_000), RecursionError()]
)
@pytest.mark.parametrize("role", ["agent", "query", ""])
@pytest.mark.parametrize("body", [b"", b"\x93\x03\x01\x02", b"\x92\x31\x05", b"\x92\x00\x02"])
def test_any_error_gives_an_answer_that_fits_a_line(
    error: Exception, role: str, body: bytes
) -> None:
    said = explain(body, error, role)
    assert isinstance(msgspec.msgpack.decode(ENCODE(said)), list)
    assert len(said.got) < 200
    assert said.got.isprintable()


def test_payload_text_never_gets_into_an_answer() -> None:
    secret = "sk-canary"
    said = answer(ENCODE([3, 1, 2, secret]))
    assert secret not in str(said)
    said = answer(ENCODE([10, 1, 2, secret.encode(), secret.encode()]))
    assert secret not in str(said)


def test_a_long_body_is_not_copied() -> None:
    body = b"\x96\x03\x01\x02\xc4\x01a\xc0" + b"\x91" * (1024 * 1024)
    error = RecursionError("deep")
    tracemalloc.start()
    explain(body, error)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 * 1024


def test_every_code_given_is_in_its_table() -> None:
    assert not CLOSING_CODES & REFUSED_CODES
    assert answer(b"\x93\x03\x01\x02").code in REFUSED_CODES
    assert answer(b"\x92\x31\x07", "query").code in REQUEST_CODES
    assert answer(b"").code in CLOSING_CODES
