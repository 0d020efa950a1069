"""Bodies that are not quite of their wire: what they say of an answer is kept, the rest counted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from walld_client.adapters.frameworks.recording import Recording
from walld_client.adapters.wires.anthropic_messages import EVENT_TYPES

RESPONSE = {"id": "r", "object": "response", "model": "m", "output": []}


class Said:
    """A reply that remembers what it was told, without what is about the provider."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **named: Any) -> int:
            if args[:1] not in (("provider",), ("model_call",)):
                self.calls.append((name, *args, named) if named else (name, *args))
            return 0

        return call


def framed(event: dict[str, Any]) -> bytes:
    """An event of a body. Those of Anthropic have names, or they are none to its SDK."""
    kind = event.get("type")
    name = f"event: {kind}\n" if kind in EVENT_TYPES else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


def recorded(*payloads: object, closed: bool = True) -> list[Any]:
    """What is said of a body of these events, which is a model's; bytes are sent as they are."""
    said = Said()
    recording = Recording(opener=lambda: said, is_answer=True)  # type: ignore[arg-type,return-value]
    for payload in payloads:
        recording.chunk(payload if isinstance(payload, bytes) else framed(payload))  # type: ignore[arg-type]
    if closed:
        recording.closed()
    return said.calls


def chunk(delta: dict[str, Any], reason: str | None = None, index: Any = 0) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "finish_reason": reason}
    return {"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


STOP = chunk({}, "stop")
DONE = b"data: [DONE]\n\n"
CREATED = {"type": "response.created", "response": RESPONSE}
HELLO = {"type": "response.output_text.delta", "delta": "hello", "output_index": 0}
STARTED = {"type": "message_start", "message": {"id": "m", "model": "x"}}
TEXT = {
    "type": "content_block_delta",
    "index": 0,
    "delta": {"type": "text_delta", "text": "hello"},
}


# --- errors in the words of nobody ----------------------------------------------------------------

BOOM = {"type": "overloaded_error", "message": "boom"}
WIRES = {
    "chat": [chunk({"content": "hello"})],
    "responses": [CREATED, HELLO],
    "messages": [STARTED, TEXT],
}
ENDS = {
    "chat": b"data: " + json.dumps(STOP).encode() + b"\n\n" + DONE,
    "responses": b'data: {"type": "response.completed", "response": {"id": "r"}}\n\n',
    "messages": b'event: message_stop\ndata: {"type": "message_stop"}\n\n',
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "frame",
    [
        b"data: " + json.dumps({"error": BOOM}).encode(),
        b"event: error\ndata: " + json.dumps({"error": BOOM}).encode(),
        b"event: error\ndata: " + json.dumps({"type": "error", "error": BOOM}).encode(),
        b"event: error\ndata: " + json.dumps(BOOM).encode(),
    ],
)
def test_an_error_of_no_type_of_the_wire(wire: str, frame: bytes) -> None:
    said = recorded(*WIRES[wire], frame + b"\n\n")
    if wire == "messages" and not frame.startswith(b"event: "):
        assert said == [
            ("token", "hello"),
            ("cancel", "the program closed the stream before its end"),
        ]
        return  # an event without a name is none to the SDK
    kinds = {"kind": "overloaded_error", "detail": {"type": "overloaded_error"}}
    assert said == [("token", "hello"), ("error", "boom", kinds)]


@pytest.mark.parametrize("wire", WIRES)
def test_an_error_that_is_a_text(wire: str) -> None:
    said = recorded(*WIRES[wire], b"event: error\ndata: upstream died\n\n")
    about = {"kind": "provider_error", "detail": None}
    assert said == [("token", "hello"), ("error", "upstream died", about)]


def with_an_error(wire: str, data: str) -> list[bytes]:
    """The frames of a whole answer, with one that is an error in the middle."""
    frames = [framed(one) for one in WIRES[wire]]
    return [*frames, f"event: error\n{data}\n".encode(), frames[-1], ENDS[wire]]


FAILED = [("token", "hello"), ("error", "the provider reported an error")]


@pytest.mark.parametrize(
    "data", ["", "data:\n", "data\n", "data: null\n", "data: []\n", "data: 0\n"]
)
@pytest.mark.parametrize("wire", WIRES)
def test_an_error_that_says_nothing(wire: str, data: str) -> None:
    """What comes in one chunk behind it is not the program's, which has raised."""
    said = recorded(b"".join(with_an_error(wire, data)))
    assert [one[:2] for one in said] == FAILED


@pytest.mark.parametrize("data", ["", "data: null\n"])
@pytest.mark.parametrize("wire", WIRES)
def test_an_error_that_says_nothing_and_is_read_beyond(wire: str, data: str) -> None:
    """The SDK of openai raises on no data, and a program may pass over what it makes of `null`."""
    said = recorded(*with_an_error(wire, data))
    if data and wire != "messages":
        assert [one[:2] for one in said].count(("token", "hello")) == 2
        assert said[-1][0] == "end"
    else:
        assert [one[:2] for one in said] == FAILED


def test_an_error_that_is_a_text_and_comes_first() -> None:
    about = {"kind": "provider_error", "detail": None}
    said = recorded(b"event: error\ndata: upstream died\n\n")
    assert said == [("error", "upstream died", about)]


def test_an_error_in_the_chunk_that_brings_the_text_before_it() -> None:
    first = b"data: " + json.dumps(chunk({"content": "hello"})).encode() + b"\n\n"
    said = recorded(first + b"event: error\ndata: upstream died\n\n")
    assert said[0] == ("token", "hello")
    assert said[1][:2] == ("error", "upstream died")


@pytest.mark.parametrize("wire", WIRES)
def test_what_is_no_json_and_ends_the_reading(wire: str) -> None:
    """The SDKs raise there and close the body: that is no cancel of the program's."""
    said = recorded(*WIRES[wire], b'event: x\ndata: {"x":\n\n')
    assert said[:2] == [("token", "hello"), ("event", "unread", {"events": 1})]
    assert said[2][0] == "error"
    assert said[2][-1]["kind"] == "not_json"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("is_read_on", [False, True])
def test_what_comes_in_one_chunk_behind_what_is_no_json(wire: str, is_read_on: bool) -> None:
    """It is the program's once that reads on."""
    before = {"chat": [], "responses": [CREATED], "messages": [STARTED]}[wire]
    frames = b"".join(map(framed, WIRES[wire]))
    torn = b'event: x\ndata: {"x":\n\n'
    said = recorded(*before, torn + frames, *([b": on\n\n"] if is_read_on else []))
    assert (("token", "hello") in said) == is_read_on
    assert said[-1][0] == ("cancel" if is_read_on else "error")


def test_what_is_no_json_and_is_passed_over() -> None:
    said = recorded(
        chunk({"content": "a"}), b'data: {"x":\n\n', chunk({"content": "b"}), STOP, DONE
    )
    assert said == [
        ("token", "a"),
        ("token", "b"),
        ("finish", "stop"),
        ("event", "unread", {"events": 1}),
        ("end",),
    ]


# --- one part of an event that is odd -------------------------------------------------------------


@pytest.mark.parametrize(
    "about",
    [
        {"tool_calls": [None]},
        {"tool_calls": {}},
        {"tool_calls": "f"},
        {"tool_calls": [{"index": 0, "function": "f"}]},
        {"function_call": "x"},
        {"function_call": []},
    ],
)
def test_a_text_beside_something_odd(about: dict[str, Any]) -> None:
    said = recorded(chunk({"content": "hello", **about}), STOP, DONE)
    assert said == [
        ("token", "hello"),
        ("finish", "stop"),
        ("event", "unread", {"events": 1}),
        ("end",),
    ]


def test_a_call_beside_something_odd() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    said = recorded(chunk({"content": "hello", "tool_calls": [None, call]}, "tool_calls"), DONE)
    assert said == [
        ("token", "hello"),
        ("tool", "f", {"call_id": "a"}),
        ("tool_arguments", "{}", {"call_id": "a"}),
        ("finish", "tool_calls"),
        ("event", "unread", {"events": 1}),
        ("end",),
    ]


def test_an_index_of_another_kind() -> None:
    for index in ("0", 0.0, None):
        said = recorded(chunk({"content": "hello"}, index=index), STOP, DONE)
        assert said == [("token", "hello"), ("finish", "stop"), ("end",)]
    said = recorded(chunk({"content": "hello"}, index="1"), STOP)
    assert said[0] == ("event", "choice", {"index": 1, "content": "hello"})
    said = recorded(chunk({"content": "hello"}, index=[]), STOP, DONE)
    assert said[0] == ("token", "hello")
    assert said[2] == ("event", "unread", {"events": 1})


def test_choices_of_which_one_is_none() -> None:
    odd = {
        **chunk({"content": "hello"}),
        "choices": [None, *chunk({"content": "hello"})["choices"]],
    }
    said = recorded(chunk({"content": "a"}), odd, STOP, DONE)
    assert said[1] == ("token", "hello")
    assert said[3] == ("event", "unread", {"events": 1})


def test_content_in_parts() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "hel"},
        {"type": "text", "text": "lo"},
    ]
    said = recorded(chunk({"content": parts}), STOP, DONE)
    assert said[:3] == [("reasoning", "hm"), ("token", "hel"), ("token", "lo")]
    assert said[-1] == ("end",)
    said = recorded(chunk({"content": [None, {"type": "image_url"}, *parts[1:]]}), STOP, DONE)
    picture = ("event", "unknown_block", {"block": {"type": "image_url"}})
    assert said[:3] == [picture, ("token", "hel"), ("token", "lo")]
    assert ("event", "unread", {"events": 1}) in said


def test_a_done_with_a_space() -> None:
    said = recorded(chunk({"content": "hello"}), b"data: [DONE] \n\n")
    assert said == [("token", "hello"), ("end",)]


# --- a call whose name comes late, or in pieces ---------------------------------------------------


def named(*names: str | None) -> list[Any]:
    """What is said of a call whose deltas have these names."""
    chunks = [
        chunk({"tool_calls": [{"index": 0, "function": {"name": name, "arguments": str(at)}}]})
        for at, name in enumerate(names)
    ]
    chunks[0]["choices"][0]["delta"]["tool_calls"][0]["id"] = "a"
    said = recorded(*chunks, closed=False)
    assert "".join(one[1] for one in said if one[0] == "tool_arguments") == "01"[: len(names)]
    return [one[1] for one in said if one[0] == "tool"]


def test_the_name_of_a_call() -> None:
    assert named("get_weather", None) == ["get_weather"]
    assert named("get_weather", "get_weather") == ["get_weather"], "said again"
    assert named("get_weather", "") == ["get_weather"]
    assert named(None, "late") == ["unnamed", "late"]
    assert named("get_", "weather") == ["get_", "get_weather"], "a piece, as the SDK adds it up"
    assert named("get_", "get_weather") == ["get_", "get_weather"], "the whole of it so far"


# --- Responses of a server that leaves events out ------------------------------------------------

MESSAGE = {
    "type": "message",
    "id": "m",
    "role": "assistant",
    "content": [
        {"type": "output_text", "text": "hello", "annotations": []},
        {"type": "refusal", "refusal": "No."},
    ],
}
THOUGHT = {
    "type": "reasoning",
    "id": "t",
    "summary": [{"type": "summary_text", "text": "in short"}],
    "content": [{"type": "reasoning_text", "text": "hm"}],
}
CALL = {"type": "function_call", "id": "i", "call_id": "c", "name": "f", "arguments": "{}"}
WHOLE_ITEMS = [
    ("reasoning", "in short"),
    ("reasoning", "hm"),
    ("token", "hello"),
    ("token", "No.", {"refusal": True}),
    ("tool", "f", {"call_id": "c"}),
    ("tool", "f", "{}", {"call_id": "c"}),
]


def done(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def completed(*items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.completed", "response": {**RESPONSE, "output": list(items)}}


def test_only_items_that_are_done() -> None:
    items = [THOUGHT, MESSAGE, CALL]
    said = recorded(
        CREATED, *(done(at, one) for at, one in enumerate(items)), completed(*items), closed=False
    )
    assert said == [*WHOLE_ITEMS, ("finish", "tool_calls"), ("end",)]


def test_only_the_response_that_is_completed() -> None:
    said = recorded(CREATED, completed(THOUGHT, MESSAGE, CALL), closed=False)
    assert said == [*WHOLE_ITEMS, ("finish", "tool_calls"), ("end",)]
    said = recorded(completed(MESSAGE), closed=False)
    assert said == [*WHOLE_ITEMS[2:4], ("finish", "completed"), ("end",)]


@pytest.mark.parametrize("has_index", [True, False])
def test_what_was_said_is_not_said_again(has_index: bool) -> None:
    """In deltas, or as a part that is done; also where a server gives no indices with them."""
    at = {"output_index": 0, "content_index": 0} if has_index else {}
    delta = {"type": "response.output_text.delta", "delta": "hello", **at}
    part = {"type": "response.output_text.done", "text": "hello", **at}
    message = {**MESSAGE, "content": MESSAGE["content"][:1]}
    for events in ([delta], [delta, part], [part]):
        said = recorded(CREATED, *events, done(0, message), completed(message), closed=False)
        assert said == [("token", "hello"), ("finish", "completed"), ("end",)]


def test_arguments_that_only_come_whole() -> None:
    added = {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {**CALL, "arguments": ""},
    }
    whole = {
        "type": "response.function_call_arguments.done",
        "output_index": 0,
        "arguments": '{"x": 1}',
    }
    delta = {
        "type": "response.function_call_arguments.delta",
        "output_index": 0,
        "delta": '{"x": 1}',
    }
    item = done(0, {**CALL, "arguments": '{"x": 1}'})
    for events in ([whole], [delta, whole], [whole, item], [delta, whole, item]):
        said = recorded(CREATED, added, *events, closed=False)
        assert said == [
            ("tool", "f", {"call_id": "c"}),
            ("tool_arguments", '{"x": 1}', {"call_id": "c"}),
        ]
