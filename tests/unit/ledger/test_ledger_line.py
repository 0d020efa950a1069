"""The line of an event: its bytes, what is read back, and every way in which it can be wrong."""

from __future__ import annotations

import json
import zlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_world import AT_MS, SESSION, UID, lines_of, verify

from walld.errors import FormatError, NewerVersion
from walld.ledger.line import (
    AT_MS_MAX,
    Header,
    Line,
    are_whole,
    at_ms_of,
    at_text,
    chain_of,
    chain_text,
    header_line,
    line_chain,
    line_seq,
    make_line,
    read_header,
    read_line,
)

PREVIOUS = bytes(range(16))
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
MAYBE = st.none() | TEXT
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def test_the_fields_stand_in_order_and_defaults_are_left_out() -> None:
    owner = {"boot": "b", "pid": 1, "inode": 2, "start": 3}
    line = make_line(
        7, "k3", AT_MS, "turn_submitted", b'{"a": 1}', PREVIOUS, parent="k2", turn="t", cause="c",
        correlation="o", key="k", leaf=False, owner=owner,
    )  # fmt: skip
    assert list(json.loads(line)) == [
        "seq", "id", "parent", "at", "type", "turn", "cause", "correlation", "key", "leaf", "owner",
        "payload", "chain", "crc",
    ]  # fmt: skip
    assert line.startswith(b'{"seq":7,"id":"k3","parent":"k2","at":"2026-11-22T13:20:11.123Z",')
    assert b',"payload":{"a": 1},"chain":"AAECAwQFBgcICQoLDA0ODw","crc":"' in line
    short = make_line(1, "a", 0, "message", b"{}", PREVIOUS)
    assert list(json.loads(short)) == ["seq", "id", "at", "type", "payload", "chain", "crc"]


@given(
    seq=st.integers(1, 2**53),
    ident=TEXT.filter(bool),
    at_ms=st.integers(0, AT_MS_MAX),
    names=st.lists(MAYBE, min_size=5, max_size=5),
    leaf=st.booleans(),
    payload=st.dictionaries(TEXT, JSON, max_size=4),
    is_ascii=st.booleans(),
    indent=st.sampled_from([(",", ":"), (" , ", " : ")]),
)
def test_what_is_made_is_read(
    seq: int,
    ident: str,
    at_ms: int,
    names: list[str | None],
    leaf: bool,
    payload: dict[str, object],
    is_ascii: bool,
    indent: tuple[str, str],
) -> None:
    raw = json.dumps(payload, ensure_ascii=is_ascii, separators=indent).encode()
    parent, turn, cause, correlation, key = names
    line = make_line(
        seq, ident, at_ms, "message", raw, PREVIOUS,
        parent=parent, turn=turn, cause=cause, correlation=correlation, key=key, leaf=leaf,
    )  # fmt: skip
    assert line.count(b"\n") == 1
    assert json.loads(line)["payload"] == payload
    assert read_line(line) == Line(
        seq, ident, parent, at_ms, "message", turn, cause, correlation, key, leaf, None, raw,
        PREVIOUS,
    )  # fmt: skip


def test_half_a_surrogate_pair_survives() -> None:
    raw = rb'{"content":"\ud83d and \uDE00", "nested":{"seq":1,"payload":{},"crc":"00000000"}}'
    line = make_line(1, "a", 0, "message", raw, PREVIOUS)
    assert read_line(line).payload == raw
    assert json.loads(line)["payload"]["content"] == "\ud83d and \ude00"


def test_a_payload_with_a_newline_is_our_bug() -> None:
    for payload in (b'{"a":\n1}', b"[]", b""):
        with pytest.raises(AssertionError):
            make_line(1, "a", 0, "message", payload, PREVIOUS)


def test_every_bit_and_every_length_of_a_line_counts() -> None:
    (line,) = lines_of(1)
    for at in range(len(line) * 8):
        changed = bytearray(line)
        changed[at // 8] ^= 1 << at % 8
        assert line_seq(bytes(changed)) == 0, at
        assert not are_whole([line, bytes(changed), line]), at
        with pytest.raises(FormatError):
            read_line(bytes(changed))
    for length in range(len(line)):
        assert line_seq(line[:length]) == 0
        assert not are_whole([line[:length]])
        with pytest.raises(FormatError, match="crc is"):
            read_line(line[:length])
    assert are_whole([line, line])


def test_a_line_whose_crc_is_right_and_whose_fields_are_not() -> None:
    (line,) = lines_of(1)
    body = line[: line.rindex(b',"crc":')]
    for old, new in [
        (b'"at":"2', b'"at":"x'),
        (b'"payload":', b'"paylord":'),
        (b'"type":"message"', b'"type":7'),
        (b'"chain":"', b'"chain":"='),
        (b'"chain":"', b'"chaim":"'),
    ]:
        changed = body.replace(old, new, 1)
        whole = b'%b,"crc":"%08x"}\n' % (changed, zlib.crc32(changed))
        with pytest.raises(FormatError, match="a line: "):
            read_line(whole)


@pytest.mark.parametrize("change", [(b',"chain":"', b',"chaim":"'), (b'","crc":"', b'!,"crc":"')])
def test_what_stands_in_the_place_of_chain_is_none_by_any_other_name(
    change: tuple[bytes, bytes],
) -> None:
    before, line = lines_of(2)
    assert line_chain(line) == chain_text(chain_of(before))
    changed = line.replace(*change, 1).rpartition(b',"crc":"')[0]
    whole = b'%b,"crc":"%08x"}\n' % (changed, zlib.crc32(changed))
    assert line_seq(whole) == 2
    assert line_chain(whole) == b""
    with pytest.raises(FormatError, match="a line: fields is"):
        read_line(whole)


@given(st.integers(0, AT_MS_MAX))
def test_times(at_ms: int) -> None:
    text = at_text(at_ms)
    assert at_ms_of(text) == at_ms
    parsed = datetime.fromisoformat(text)
    assert parsed.tzinfo == UTC
    assert round(parsed.timestamp() * 1000) == at_ms


@pytest.mark.parametrize(
    "text",
    ["", "2026-11-22T13:20:11Z", "2026-11-22 13:20:11.123Z", "2026-11-22T13:20:11.123+01:00",
     "2026-13-22T13:20:11.123Z", "1969-12-31T23:59:59.999Z", "2026-11-22T13:20:11.12\u0663Z"],
)  # fmt: skip
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(FormatError, match="at is"):
        at_ms_of(text)


def test_header() -> None:
    assert header_line(UID, SESSION) == b'{"walld":1,"uid":1000,"session":"chat/7"}\n'
    for session in ("", "é\n\0", "../..", "\u2028", "x" * 1024):
        assert read_header(header_line(3, session)) == Header(1, 3, session)
    with pytest.raises(NewerVersion, match=r"version 2.*knows up to 1"):
        read_header(b'{"walld":2,"what":"ever"}\n', "here")
    for line in (b"", b"{}\n", b'{"walld":0}\n', b'{"walld":1', b'{"walld":"1"}\n', b"\xff\n"):
        with pytest.raises(FormatError, match="here: "):
            read_header(line, "here")


def test_a_session_verifies_without_walld() -> None:
    lines = lines_of(5)
    events = verify(header_line(UID, SESSION) + b"".join(lines))
    assert [event["id"] for event in events] == ["e1", "e2", "e3", "e4", "e5"]
    assert read_line(lines[1]).chain == chain_of(lines[0])


def test_a_line_with_two_seqs_is_none() -> None:
    """Whoever looks for a line goes by the first, JSON by the last."""
    body = make_line(5, "a", 0, "message", b"{}", PREVIOUS).replace(b'"type"', b'"seq":1,"type"')
    body = body.rpartition(b',"crc"')[0]
    line = b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))
    with pytest.raises(FormatError, match="a second seq is 1, expected 5"):
        read_line(line)
