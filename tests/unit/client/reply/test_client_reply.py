"""What each call of a reply puts on the wire, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import walld_client
from fake_daemon import FakeDaemon
from walld_client.wire import messages as wire

TEXT_MAX = 1024 * 1024 - 4096


def said(daemon: FakeDaemon, last_seq: int, stream: int = 1) -> list[Any]:
    """The events of a stream after its start, once `last_seq` is there."""
    peer = daemon.agent()

    def mine() -> list[Any]:
        return [e for e in peer.events() if e.stream == stream]

    daemon.until(lambda: mine() and mine()[-1].seq >= last_seq)
    assert [e.seq for e in mine()] == list(range(len(mine())))
    return mine()[1:]


def test_each_call_is_its_event_and_returns_its_seq(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S", stream_id="r")
    seqs = [
        reply.token("t"),
        reply.token("i", index=3),
        reply.reasoning("r"),
        reply.tool("ls", {"path": "."}, call_id="c1", vendor="x"),
        reply.tool_arguments('{"a', call_id="c2"),
        reply.tool_result("out", call_id="c1"),
        reply.tool_result({"n": 1}, name="orphan", failed=True),
        reply.step(),
        reply.event("app.thing", {"x": [1]}),
        reply.retry("overloaded"),
        reply.retry("cut", step=True),
        reply.move("S2"),
        reply.finish("stop"),
        reply.end("stop"),
    ]
    assert seqs == list(range(1, 15))
    assert (reply.session_id, reply.stream_id) == ("S2", "r")
    packed = msgspec.msgpack.encode
    assert said(daemon, 15) == [
        wire.Token(1, 1, b"t"),
        wire.Token(1, 2, b"i", packed({"index": 3})),
        wire.Reasoning(1, 3, b"r"),
        wire.Tool(1, 4, "c1", "ls", b'{"path":"."}', packed({"vendor": "x"})),
        wire.ToolArguments(1, 5, "c2", b'{"a'),
        wire.ToolResult(1, 6, "c1", "ls", b"out"),
        wire.ToolResult(1, 7, None, "orphan", b'{"n":1}', True, True),
        wire.Step(1, 8),
        wire.Custom(1, 9, "app.thing", packed({"x": [1]})),
        wire.Retry(1, 10, "overloaded"),
        wire.Retry(1, 11, "cut", True),
        wire.Move(1, 12, "S2"),
        wire.Finish(1, 13, "stop"),
        wire.End(1, 14, True, "stop"),
        wire.Release(1, 15),
    ]


@pytest.mark.parametrize("way", ["short", "long"])
def test_a_text_is_the_same_event_by_the_short_way_and_the_long_one(
    daemon: FakeDaemon, path: str, way: str
) -> None:
    """A client that redacts goes the long one alone."""
    redact = None if way == "short" else (lambda text: text)
    client = walld_client.connect(socket=path, redact=redact)
    reply = client.reply("S")
    wanted: list[wire.Event] = []
    for text in ("", "a", "é" * 512, "x" * 1024, "x" * 1025, "é" * 512 + "x", "\ud83d", "\ude00"):
        for call_id in ("c1", "c2", "c2"):
            raw, seq = text.encode("utf-8", "surrogatepass"), len(wanted) + 1
            assert reply.token(text) == seq
            assert reply.reasoning(text) == seq + 1
            assert reply.tool_arguments(text, call_id=call_id) == seq + 2
            wanted += [wire.Token(1, seq, raw), wire.Reasoning(1, seq + 1, raw)]
            wanted.append(wire.ToolArguments(1, seq + 2, call_id, raw))
    assert said(daemon, len(wanted)) == wanted
    client.close()


def test_a_call_is_the_one_whose_id_is_given_whatever_class_it_is_of(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    class Folded(str):
        """Equal in any case."""

        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            return isinstance(other, str) and self.lower() == other.lower()

        def __ne__(self, other: object) -> bool:
            return not self == other

    reply = client.reply("S")
    for call_id in (Folded("C"), "c", Folded("C"), "C", "c"):
        reply.tool_arguments("{", call_id=call_id)
    assert [event.call_id for event in said(daemon, 5)] == ["C", "c", "C", "C", "c"]


def test_a_failure_that_is_remembered_is_said_where_the_reply_is_left(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    """As `adapters.tee` does it; one more try takes it back."""
    left: list[Callable[[walld_client.Reply], object]] = [
        lambda reply: reply.end("stop"),
        lambda reply: reply.__exit__(None, None, None),
    ]
    for number, leave in enumerate(left, 1):
        reply = client.reply("S")
        reply._fail_at_end("boom", kind="k", detail=[1])
        assert leave(reply) in (0, None)
        packed = msgspec.msgpack.encode([1])
        assert said(daemon, 1, number) == [wire.AppError(number, 1, "boom", "k", packed)]
    reply = client.reply("S")
    reply._fail_at_end("boom")
    reply.retry(step=True)
    assert reply.end() == 2
    assert said(daemon, 3, 3)[1:] == [wire.End(3, 2, True), wire.Release(3, 3)]


def test_end_and_release_leave_in_one_write(
    daemon: FakeDaemon, client: walld_client.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = client.reply("S")
    sends: list[int] = []
    send = client._link.send
    client._link.send = lambda view, flags: sends.append(len(view)) or send(view, flags)  # type: ignore[func-returns-value]
    reply.end()
    assert len(sends) == 1
    said(daemon, 2)


# --- tools ---


def test_a_call_without_an_id_gets_one_of_stream_and_seq(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S", stream_id="r")
    reply.token("x")
    reply.tool("ls")
    reply.tool("ls", call_id="")
    reply.tool_result("newest first", name="ls")
    reply.tool_result("then the other", name="ls")
    reply.tool_result("then nobody's", name="ls")
    events = said(daemon, 6)
    assert [e.call_id for e in events[1:]] == ["r:2", "r:3", "r:3", "r:2", None]


def test_results_by_an_id_that_several_calls_were_given(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    """By name where one is of that name, in order otherwise; then by the id as it is."""
    reply = client.reply("S")
    reply.tool("f", call_id="k")
    reply.tool("g", call_id="k#2", given_id="k")
    reply.tool("g", call_id="k#3", given_id="k")
    reply.tool_result("x", call_id="k", name="g")
    reply.tool_result("x", call_id="k")
    reply.tool_result("x", call_id="k")
    reply.tool_result("x", call_id="k")
    events = said(daemon, 7)
    assert [(e.call_id, e.name) for e in events if isinstance(e, wire.ToolResult)] == [
        ("k#2", "g"),
        ("k", "f"),
        ("k#3", "g"),
        ("k", None),
    ]


def test_a_result_without_any_name_goes_to_the_one_open_call_or_to_none(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    reply.tool("a", call_id="1")
    reply.tool_result("x")
    reply.tool("a", call_id="2")
    reply.tool("b", call_id="3")
    reply.tool_result("x")
    events = said(daemon, 5)
    assert [(e.call_id, e.name) for e in events if isinstance(e, wire.ToolResult)] == [
        ("1", "a"),
        (None, None),
    ]


def test_arguments_of_any_kind_are_json_and_a_str_stays_as_it_is(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    reply.tool("t", '{"half', call_id="1")
    reply.tool("t", {"o": object, "s": "\ud83d"}, call_id="2")
    reply.tool("t", call_id="3")
    events = said(daemon, 3)
    assert events[0].arguments == b'{"half'
    assert json.loads(events[1].arguments)["s"] == "\ufffd"
    assert events[2].arguments is None


# --- text ---


def test_halves_of_an_emoji_survive_the_trip(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    reply.token("\ud83d")
    reply.token("\ude00")
    events = said(daemon, 2)
    whole = b"".join(e.text for e in events).decode("utf-8", "surrogatepass")
    assert whole.encode("utf-16", "surrogatepass").decode("utf-16") == "😀"


@pytest.mark.parametrize("length", [0, 1, 1024, 1025, 65535, 65536, TEXT_MAX])
def test_a_text_that_fits_is_one_event(
    daemon: FakeDaemon, client: walld_client.Client, length: int
) -> None:
    reply = client.reply("S")
    assert reply.token("x" * length) == 1
    assert said(daemon, 1)[0].text == b"x" * length


def test_a_longer_text_is_split_between_characters(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    text = "é😀x" * 400_000
    reply = client.reply("S")
    last = reply.token(text)
    assert last == 3
    assert reply.reasoning(text, n=1) == 6
    events = said(daemon, 6)
    for event in events:
        assert len(event.text) <= TEXT_MAX
        event.text.decode()
    assert b"".join(e.text for e in events[:3]).decode() == text
    assert b"".join(e.text for e in events[3:]).decode() == text


def test_welcome_sets_the_limit(daemon: FakeDaemon, client: walld_client.Client) -> None:
    daemon.welcome = wire.Welcome(1, "fake", b"L" * 16, 1 << 20, 2000)
    reply = client.reply("S")
    daemon.until(lambda: daemon.agents() and daemon.agent().messages)
    while client._link.acks.text_bytes_max != 2000:
        assert reply.durable_seq == -1
    assert reply.token("x" * 5000) == 3


def test_other_payloads_are_cut_and_say_how_long_they_were(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    long = "é" * TEXT_MAX
    reply = client.reply("S")
    reply.tool("t", long, call_id="1")
    reply.tool_result(long, call_id="1")
    reply.event("k", long)
    reply.tool("n" * 5000, call_id="2")
    reply.error("m" * 100_000, kind="k" * 5000, detail={"d": "x" * 100_000})
    tool, result, event, named, error = said(daemon, 5)
    assert (len(tool.arguments), tool.truncated_from) == (TEXT_MAX, 2 * TEXT_MAX)
    assert (len(result.result), result.truncated_from) == (TEXT_MAX, 2 * TEXT_MAX)
    assert event.truncated_from > 2 * TEXT_MAX >= len(event.payload)
    assert len(named.name) == 1024
    assert (len(error.message), len(error.kind)) == (64 * 1024, 1024)
    assert len(error.detail) < 64 * 1024


def test_redact_sees_every_text_before_it_leaves(daemon: FakeDaemon, path: str) -> None:
    client = walld_client.connect(path, redact=lambda text: text.replace("key", "***"))
    reply = client.reply("S")
    reply.token("a key")
    reply.reasoning("key")
    reply.tool("t", {"k": "key"}, call_id="1")
    reply.tool_arguments("key", call_id="1")
    reply.tool_result("key", call_id="1")
    reply.error("key")
    peer = daemon.agent()
    daemon.until(lambda: isinstance(peer.messages[-1], wire.AppError))
    assert peer.text() == "a ***"
    assert b"key" not in b"".join(peer.bodies)
    client.close()


def test_redact_sees_what_json_and_reasons_hold(daemon: FakeDaemon, path: str) -> None:
    """A secret with a newline or a quote stands otherwise in JSON than it is."""
    secret = '-----BEGIN KEY-----\nMII"x\\y'
    client = walld_client.connect(path, redact=lambda text: text.replace(secret, "***"))
    reply = client.reply("S")
    reply.tool("t", {"a": [secret, 1, {"b": f"say {secret}"}]}, call_id="c")
    reply.tool("t", json.dumps({"a": secret}), call_id="d")
    reply.tool_result({"key": secret}, call_id="c")
    reply.retry(f"because {secret}")
    reply.finish(secret)
    reply.error(f"no {secret}", detail={"headers": [secret]})
    peer = daemon.agent()
    daemon.until(lambda: peer.messages and isinstance(peer.messages[-1], wire.AppError))
    sent = b"".join(msgspec.msgpack.encode(message) for message in peer.messages)
    assert b"BEGIN" not in sent
    assert sent.count(b"***") == 8
    client.close(0.0)


def test_a_redact_that_gives_no_text_is_a_mistake(daemon: FakeDaemon, path: str) -> None:
    client = walld_client.connect(path, redact=lambda text: None)  # type: ignore[arg-type, return-value]
    reply = client.reply("S")
    with pytest.raises(TypeError, match="redact must give back a str, got NoneType"):
        reply.token("x")
    assert reply.end("stop") == 1, "it ends, without the word"
    client.close(0.0)


def test_what_redact_raises_is_raised_and_nothing_is_sent(daemon: FakeDaemon, path: str) -> None:
    def redact(text: str) -> str:
        raise RuntimeError("broken")

    client = walld_client.connect(path, redact=redact)
    reply = client.reply("S")
    with pytest.raises(RuntimeError):
        reply.token("secret")
    assert reply.sent_seq == 0
    client.close()


def test_a_redact_that_raises_hides_no_exception_of_the_application(
    daemon: FakeDaemon, path: str
) -> None:
    def redact(text: str) -> str:
        raise RuntimeError("broken")

    client = walld_client.connect(path, redact=redact)
    with pytest.raises(KeyError, match="SECRET"), client.reply("S"):
        raise KeyError("SECRET")
    peer = daemon.agent()
    daemon.until(lambda: isinstance(peer.messages[-1], wire.AppError))
    error = peer.messages[-1]
    assert isinstance(error, wire.AppError)
    assert (error.kind, error.message) == ("KeyError", "")
    client.close()


@pytest.mark.parametrize("bad", [None, 5, b"x"])
def test_a_text_that_is_none_is_a_mistake(
    daemon: FakeDaemon, client: walld_client.Client, bad: Any
) -> None:
    reply = client.reply("S")
    with pytest.raises(TypeError, match="must be a str"):
        reply.token(bad)
    assert reply.token("x") == 1


# --- ids ---


@pytest.mark.parametrize(
    "given",
    [
        {"session_id": ""},
        {"session_id": "S", "stream_id": "x" * 1025},
        {"session_id": "S", "turn_id": "\ud83d"},
        {"session_id": "S", "parent": ""},
    ],
)
def test_a_bad_id_is_refused_before_anything_is_sent(
    daemon: FakeDaemon, client: walld_client.Client, given: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match=list(given)[-1]):
        client.reply(**given)
    assert client.stats().streams == 0


def test_bad_ids_in_calls(daemon: FakeDaemon, client: walld_client.Client) -> None:
    reply = client.reply("S")
    for call in (
        lambda: reply.move(""),
        lambda: reply.tool("t", call_id="x" * 1025),
        lambda: reply.tool_arguments("x", call_id=""),
        lambda: reply.tool_result("x", call_id="\udc00"),
    ):
        with pytest.raises(ValueError, match="_id"):
            call()
    assert reply.token("x") == 1


def test_what_is_known_of_the_model_is_an_event_and_a_wrong_word_is_nothing(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    for given, text in (
        ({}, "needs one of model, provider"),
        ({"status": "done"}, "status must be one of complete, partial, cancelled, error, got 'do"),
        ({"usage": {"input_tokens": "7"}}, r"usage\['input_tokens'\] must be a number from 0"),
    ):
        with pytest.raises(ValueError, match=text):
            reply.model_call(**given)  # type: ignore[arg-type]
    assert reply.model_call(model="m", usage={"input_tokens": 7}, error_class="timeout") == 1
    assert reply.model_call(model="\ud83d") == 2
    about = {"model": "m", "usage": {"input_tokens": 7}, "error_class": "timeout"}
    assert said(daemon, 2)[0] == wire.Custom(1, 1, "model_call", msgspec.msgpack.encode(about))
