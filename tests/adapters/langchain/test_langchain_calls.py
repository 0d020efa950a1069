"""LangChain: calls, refusals and ends of every shape that a program gets of it are kept."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import walld_client
from adapters.replay import Replay
from adapters.trial import kept, wants
from walld_client import PartialReply

wants("langchain", "langchain-openai")
httpx2, messages, models, openai, runnables, tools = map(
    importlib.import_module,
    (
        "httpx2",
        "langchain_core.messages",
        "langchain_core.language_models.fake_chat_models",
        "langchain_openai",
        "langchain_core.runnables",
        "langchain_core.tools",
    ),
)
callback = importlib.import_module("walld_client.adapters.langchain").WalldCallback


@pytest.fixture
def model(replay: Replay) -> Iterator[Callable[..., Any]]:
    """ChatOpenAI on the replay server, as this model."""
    about: dict[str, Any] = {"base_url": replay.url + "/v1", "api_key": "x", "max_retries": 0}
    with httpx2.Client() as http:
        yield lambda name, **more: openai.ChatOpenAI(
            model=name, streaming=True, http_client=http, **about, **more
        )


each_way = pytest.mark.parametrize("way", ["invoke", "events"])


def asked(walld: walld_client.Client, one: Any, way: str = "invoke") -> tuple[Any, PartialReply]:
    """What the program got of a model, as a message or as events, and the reply."""
    ids: list[str] = []
    config = {"callbacks": [callback(walld, "calls", on_reply=ids.append)]}
    if way == "invoke":
        done = one.invoke("hello", config=config)
    else:
        done = one.stream_events("hello", config=config, version="v3").output
    (reply,) = [walld.recover(stream_id=stream_id) for stream_id in ids]
    assert reply is not None
    return done, reply


def sent(delta: dict[str, Any], reason: str | None = None) -> bytes:
    """A chunk of Chat."""
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    about = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: " + json.dumps({**about, "choices": [choice]}).encode() + b"\n\n"


def part(index: int, name: str | None, arguments: str, **about: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({} if name is None else {"name": name})
    return {"index": index, "function": function, **about}


CHUNKS = {
    "no id": [
        sent({"tool_calls": [part(0, "f", '{"a"')]}),
        sent({"tool_calls": [part(0, None, ": 1}")]}),
        sent({"tool_calls": [part(1, "g", "{}")]}),
        sent({}, "tool_calls"),
    ],
    "an empty id": [
        sent({"tool_calls": [part(0, "f", '{"a"', id="")]}),
        sent({"tool_calls": [part(0, None, ": 1}", id="")]}),
        sent({"tool_calls": [part(1, "g", "{}", id="")]}),
        sent({}, "stop"),
    ],
    "interleaved": [
        sent({"tool_calls": [part(0, "f", "", id="x"), part(1, "g", "", id="y")]}),
        sent({"tool_calls": [part(1, None, "{}"), part(0, None, '{"a"')]}),
        sent({"tool_calls": [part(0, None, ": 1}")]}),
        sent({}, "tool_calls"),
    ],
    "at once": [
        sent({"role": "assistant", "content": "hm", "tool_calls": [part(0, "f", '{"a": 1}')]}),
        sent({"content": "hm", "tool_calls": [part(1, "g", "{}")]}),
        sent({}, "tool_calls"),
    ],
}


ODD = {
    "a late id": [
        sent({"tool_calls": [part(0, "f", '{"a"')]}),
        sent({"tool_calls": [part(0, None, ": ", id="x")]}),
        sent({"tool_calls": [part(0, None, "1}")]}),
    ],
    "a late name": [
        sent({"tool_calls": [part(0, None, '{"a"', id="x")]}),
        sent({"tool_calls": [part(0, "f", ": 1}")]}),
    ],
    "a late id and name": [
        sent({"tool_calls": [part(0, None, '{"a"')]}),
        sent({"tool_calls": [part(0, "f", ": 1}", id="x")]}),
    ],
    "a name in pieces": [
        sent({"tool_calls": [part(0, "get_", "", id="x")]}),
        sent({"tool_calls": [part(0, "weather", '{"a": 1}')]}),
    ],
    "a name again": [
        sent({"tool_calls": [part(0, "f", '{"a"', id="x")]}),
        sent({"tool_calls": [part(0, "f", ": 1}", id="x")]}),
    ],
}
"""Of one call, as some servers have it."""


@each_way
@pytest.mark.parametrize("shape", ODD)
def test_an_odd_call_in_pieces(
    walld: walld_client.Client, model: Callable[..., Any], replay: Replay, shape: str, way: str
) -> None:
    """One call, by its index, with its name whole."""
    body = [*ODD[shape], sent({}, "tool_calls"), b"data: [DONE]\n\n"]
    replay.bodies[shape] = b"".join(body)
    _, reply = asked(walld, model(shape), way)
    name = "get_weather" if shape == "a name in pieces" else "f"
    assert list(kept(reply)["calls"].values()) == [[name, '{"a": 1}']]
    assert (reply.status, reply.finish_reason) == ("complete", "tool_calls")


def test_the_result_of_a_call_whose_id_came_late(
    walld: walld_client.Client, model: Callable[..., Any], replay: Replay
) -> None:
    """LangChain knows it by that id, and the reply by the name that it had got before."""
    body = [*ODD["a late id"], sent({}, "tool_calls"), b"data: [DONE]\n\n"]
    replay.bodies["late"] = b"".join(body)
    tool = tools.StructuredTool.from_function(lambda a: a + 1, name="f", description="adds")
    chain = model("late") | runnables.RunnableLambda(lambda said: tool.invoke(said.tool_calls[0]))
    done, reply = asked(walld, chain)
    assert (done.tool_call_id, done.content) == ("x", "2")
    (call,) = [one for one in reply.segments if one.kind == "tool"]
    assert (call.name, call.arguments, call.result) == ("f", '{"a": 1}', "2")
    assert reply.status == "complete"


@each_way
@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_two_calls_of_one_id(
    walld: walld_client.Client, model: Callable[..., Any], wire: str, way: str
) -> None:
    """They stay two, each with its result, whichever comes first."""
    ids: list[str] = []
    config = {"callbacks": [callback(walld, "twins", on_reply=ids.append)]}
    one = model("twins", use_responses_api=wire == "responses")
    is_done = {"Oslo": asyncio.Event(), "Rome": asyncio.Event()}

    async def weather(city: str) -> str:
        if city == "Oslo":
            await is_done["Rome"].wait()
        return f"4 degrees in {city}"

    about = {"name": "weather", "description": "of a city"}
    tool = tools.StructuredTool.from_function(coroutine=weather, **about)

    async def answered(call: Any) -> None:
        await tool.ainvoke(call)
        is_done[call["args"]["city"]].set()

    async def use(said: Any) -> None:
        await asyncio.gather(*[answered(call) for call in said.tool_calls])

    def ask(_: Any) -> Any:
        if way == "invoke":
            return one.invoke("hello")
        return one.stream_events("hello", version="v3").output

    chain = runnables.RunnableLambda(ask) | runnables.RunnableLambda(use)
    asyncio.run(chain.ainvoke("hello", config=config))
    reply = walld.recover(stream_id=ids[0])
    assert reply is not None
    calls = [one for one in reply.segments if one.kind == "tool"]
    assert [(one.call_id, one.info, one.arguments, one.result) for one in calls] == [
        ("call_a", None, '{"city": "Oslo"}', "4 degrees in Oslo"),
        ("call_a#2", {"given_id": "call_a"}, '{"city": "Rome"}', "4 degrees in Rome"),
    ]
    assert reply.status == "complete"


def test_two_calls_of_one_id_in_an_answer_that_came_whole(walld: walld_client.Client) -> None:
    calls = [{"name": one, "args": {"of": one}, "type": "tool_call", "id": "x"} for one in "fg"]
    said = messages.AIMessage("hm", tool_calls=calls)
    whole = models.GenericFakeChatModel(messages=iter([said]), disable_streaming=True)
    _, reply = asked(walld, whole)
    assert kept(reply)["calls"] == {"x": ["f", '{"of":"f"}'], "x#2": ["g", '{"of":"g"}']}


@each_way
@pytest.mark.parametrize("shape", CHUNKS)
def test_calls_in_pieces(
    walld: walld_client.Client, model: Callable[..., Any], replay: Replay, shape: str, way: str
) -> None:
    """What the program gets is kept, with or without an id."""
    replay.bodies[shape] = b"".join(CHUNKS[shape]) + b"data: [DONE]\n\n"
    done, reply = asked(walld, model(shape), way)
    assert reply.text == done.text
    assert [(one["name"], one["args"]) for one in done.tool_calls] == [("f", {"a": 1}), ("g", {})]
    calls = kept(reply)["calls"]
    assert list(calls.values()) == [["f", '{"a": 1}'], ["g", "{}"]]
    assert (reply.status, reply.finish_reason) == ("complete", "tool_calls")


@pytest.mark.parametrize("way", ["invoke", "events", "whole"])
def test_a_finish_reason_that_is_an_error(
    walld: walld_client.Client, model: Callable[..., Any], replay: Replay, way: str
) -> None:
    """Some gateways have it where the model broke; it is no end."""
    if way == "whole":
        message = messages.AIMessage("half", response_metadata={"finish_reason": "error"})
        done, reply = asked(walld, models.FakeMessagesListChatModel(responses=[message]))
    else:
        replay.bodies["broken"] = (
            sent({"content": "half"}) + sent({}, "error") + b"data: [DONE]\n\n"
        )
        done, reply = asked(walld, model("broken"), way)
    assert reply.text == done.text == "half"
    assert (reply.status, reply.finish_reason) == ("errored", None)
    assert reply.error is not None
    assert reply.error.kind == "finish_reason_error"


@each_way
def test_the_function_call_of_before_there_were_tools(
    walld: walld_client.Client, model: Callable[..., Any], replay: Replay, way: str
) -> None:
    pieces = [{"name": "f", "arguments": ""}, {"arguments": '{"a":'}, {"arguments": "1}"}]
    body = b"".join(sent({"function_call": one}) for one in pieces)
    replay.bodies["legacy"] = body + sent({}, "function_call") + b"data: [DONE]\n\n"
    done, reply = asked(walld, model("legacy"), way)
    assert done.additional_kwargs["function_call"] == {"name": "f", "arguments": '{"a":1}'}
    assert list(kept(reply)["calls"].values()) == [["f", '{"a":1}']]


def responses(*events: dict[str, Any]) -> bytes:
    """A stream of Responses with these in it."""
    about = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": []}
    about |= {"tools": [], "parallel_tool_calls": True, "tool_choice": "auto"}
    whole = [
        {"type": "response.created", "response": {**about, "status": "in_progress"}},
        *events,
        {"type": "response.completed", "response": {**about, "status": "completed"}},
    ]
    return b"".join(
        f"event: {one['type']}\n".encode()
        + b"data: "
        + json.dumps({"sequence_number": number, **one}).encode()
        + b"\n\n"
        for number, one in enumerate(whole)
    )


@each_way
def test_a_custom_tool_of_responses(
    walld: walld_client.Client, model: Callable[..., Any], replay: Replay, way: str
) -> None:
    item = {"type": "custom_tool_call", "id": "ct", "call_id": "c9", "name": "sql"}
    at = {"item_id": "ct", "output_index": 1}
    text = {"item_id": "i", "output_index": 0, "content_index": 0}
    replay.bodies["custom"] = responses(
        {"type": "response.output_text.delta", "delta": "hm", "logprobs": [], **text},
        {"type": "response.output_item.added", "output_index": 1, "item": {**item, "input": ""}},
        {"type": "response.custom_tool_call_input.delta", "delta": "SELECT", **at},
        {"type": "response.output_item.done", "output_index": 1, "item": {**item, "input": "SEL"}},
    )
    done, reply = asked(walld, model("custom", use_responses_api=True), way)
    calls = [(one["name"], one["id"]) for one in done.tool_calls]
    assert calls == ([("sql", "c9")] if way == "invoke" else [])  # events have no kind for it
    (call,) = kept(reply)["calls"].items()
    assert (call[0], call[1][0], json.loads(call[1][1])) == ("c9", "sql", {"__arg1": "SEL"})
    assert reply.text == "hm"
    assert reply.finish_reason == "tool_calls"


@each_way
@pytest.mark.parametrize("version", ["responses/v1", "v0", "v1"])
def test_a_refusal_of_responses(
    walld: walld_client.Client, model: Callable[..., Any], replay: Replay, version: str, way: str
) -> None:
    at = {"item_id": "i", "output_index": 0, "content_index": 0}
    replay.bodies["refusal"] = responses(
        {"type": "response.refusal.delta", "delta": "No.", **at},
        {"type": "response.refusal.done", "refusal": "No.", **at},
    )
    one = model("refusal", use_responses_api=True, output_version=version)
    _, reply = asked(walld, one, way)
    assert reply.text == "No."


@pytest.mark.parametrize("about", [{"id": ""}, {"id": "x"}])
def test_calls_of_an_answer_that_came_whole(
    walld: walld_client.Client, about: dict[str, Any]
) -> None:
    """One that LangChain could not read is kept as it was written."""
    call = {"name": "f", "args": {"a": 1}, "type": "tool_call", **about}
    unread = {"name": "g", "args": '{"a', "error": None, "type": "invalid_tool_call", "id": None}
    said = messages.AIMessage("hm", tool_calls=[call], invalid_tool_calls=[unread])
    whole = models.GenericFakeChatModel(messages=iter([said]), disable_streaming=True)
    _, reply = asked(walld, whole)
    assert reply.text == "hm"
    assert list(kept(reply)["calls"].values()) == [["f", '{"a":1}'], ["g", '{"a']]
