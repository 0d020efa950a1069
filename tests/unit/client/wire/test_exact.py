"""Texts and numbers of a class of the program's own are what they are, wherever they are given."""

from __future__ import annotations

import enum
import json
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
import walld_client
from colours import Coloured, connect
from fake_daemon import FakeDaemon
from fake_ledger import FakeLedger
from walld_client.encoding import value_encoding
from walld_client.session.entries import json_text
from walld_client.wire import messages as wire
from walld_client.wire.exact import exact


class Markup(str):
    """As a library of templates has it."""

    __slots__ = ()

    def __str__(self) -> str:
        return "something else"

    def __add__(self, other: str) -> Markup:
        return Markup(f"{self!r} escaped {other}")


class Whole(int):
    __slots__ = ()


class Score(float):
    __slots__ = ()


class Raw(bytes):
    __slots__ = ()


class Word(str, enum.Enum):  # noqa: UP042 - as older programs write it
    ONE = "one"


VALUE: dict[str, Any] = {
    "text": Markup("hello"),
    "whole": Whole(3),
    "score": Score(1.5),
    "table": MappingProxyType({"in": [Markup("x")]}),
    "word": Word.ONE,
    Markup("key"): 1,
}
MEANT = {
    "text": "hello",
    "whole": 3,
    "score": 1.5,
    "table": {"in": ["x"]},
    "word": "one",
    "key": 1,
}


@pytest.mark.parametrize(
    "value", [Markup("a\ud83d"), Whole(2**70), Score(0.5), Raw(b"b"), Word.ONE]
)
def test_it_is_equal_and_of_no_subclass(value: Any) -> None:
    plain = exact(value)
    assert type(plain) in (str, int, float, bytes)
    assert plain == value


def test_another_value_is_none() -> None:
    with pytest.raises(TypeError, match="list is no text"):
        exact([])


def test_a_value_is_sent_as_it_is() -> None:
    assert json.loads(value_encoding.json_bytes(VALUE)) == MEANT
    assert json.loads(json_text(VALUE)) == MEANT
    encoded, _ = value_encoding.payload_bytes(VALUE, 1 << 20)
    assert msgspec.msgpack.decode(encoded) == MEANT
    odd = VALUE | {"half": "\ud83d"}
    assert json.loads(json_text(odd)) == MEANT | {"half": "\ud83d"}
    encoded, _ = value_encoding.payload_bytes(odd, 1 << 20)
    assert msgspec.msgpack.decode(encoded) == MEANT | {"half": "\ufffd"}


def test_a_reply_takes_them_wherever_it_takes_a_text(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    word = Markup
    reply = client.reply(
        word("S"), stream_id=word("r"), turn_id=word("t"), parent=word("p"), m=word("m")
    )
    reply.token(word("a"))
    reply.reasoning(word("b"))
    reply.tool(word("ls"), {"n": word("x")}, call_id=word("c"))
    reply.tool_arguments(word("{}"), call_id=word("c"))
    reply.tool_result(word("out"), call_id=word("c"))
    reply.event(word("k"), word("v"))
    reply.retry(word("why"))
    reply.move(word("S2"))
    reply.finish(word("stop"))
    reply.end(word("stop"))
    peer = daemon.agent()
    daemon.until(lambda: isinstance(peer.messages[-1], wire.Release))
    start, events = peer.events()[0], peer.events()[1:]
    assert (start.session_id, start.stream_id, start.turn_id) == ("S", "r", "t")
    assert msgspec.msgpack.decode(start.meta) == {"m": "m"}
    packed = msgspec.msgpack.encode
    assert events[:-1] == [
        wire.Token(1, 1, b"a"),
        wire.Reasoning(1, 2, b"b"),
        wire.Tool(1, 3, "c", "ls", b'{"n":"x"}'),
        wire.ToolArguments(1, 4, "c", b"{}"),
        wire.ToolResult(1, 5, "c", "ls", b"out"),
        wire.Custom(1, 6, "k", packed("v")),
        wire.Retry(1, 7, "why"),
        wire.Move(1, 8, "S2"),
        wire.Finish(1, 9, "stop"),
        wire.End(1, 10, True, "stop"),
    ]


@pytest.mark.parametrize("colour", ["sync", "aio"])
def test_a_session_keeps_what_was_said(path: str, ledger: FakeLedger, colour: str) -> None:
    client = connect(colour, path)
    session = client.session(Markup("S"))
    session.message(Markup("user"), Markup("hello"), id=Markup("e1"))
    session.append(Markup("a"), VALUE, parent=Markup("e1"), key=Markup("k"), expected_seq=Whole(1))
    said, other = ledger.sessions["S"]
    assert (said["id"], said["payload"]) == ("e1", {"role": "user", "content": "hello"})
    assert (other["type"], other["key"], other["payload"]) == ("a", "k", MEANT)
    assert next(one["id"] for one in session.events(after=Whole(0))) == "e1"
    assert client.session(Markup("S")).session_id == "S"
    client.let_go()


@pytest.mark.parametrize("colour", ["sync", "aio"])
def test_a_post_with_such_an_id_holds_up_none_behind_it(
    path: str, ledger: FakeLedger, colour: str
) -> None:
    """Once it was taken no post of this client, nor of its process, went on any more."""
    client: Coloured = connect(colour, path)
    client.session("S").append("a", {"n": 0}, wait=False)
    client.session(Markup("S")).append("a", {"n": 1}, id=Markup("mine"), wait=False)
    client.session("S").append("a", {"n": 2}, wait=False)
    assert client.session("S").append("a", {"n": 3}).seq == 4
    assert [event["payload"]["n"] for event in ledger.sessions["S"]] == [0, 1, 2, 3]
    client.let_go()
