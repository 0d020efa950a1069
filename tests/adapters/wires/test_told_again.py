"""Answers that say something twice, or only at the end, or whose ids are odd, read by the SDKs.

What is kept is what the SDK has when it is over: the output of its last event, its final message.
"""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest
import walld_client
from adapters.answers import WIRES
from adapters.replay import Replay
from adapters.trial import wants
from walld_client.adapters import tee

wants("httpx2", "openai", "anthropic")
anthropic, httpx2, openai = map(importlib.import_module, ("anthropic", "httpx2", "openai"))
response_hook = importlib.import_module("walld_client.adapters.httpx2").response_hook


def message(item_id: str, *texts: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    about = {"type": "message", "role": "assistant", "status": "completed"}
    return {**about, "id": item_id, "content": content}


def call(call_id: str) -> dict[str, Any]:
    about = {"type": "function_call", "id": f"i-{call_id}", "call_id": call_id, "name": "f"}
    return {**about, "arguments": json.dumps({"of": call_id}), "status": "completed"}


def response(*output: dict[str, Any]) -> dict[str, Any]:
    made = {"id": "r", "object": "response", "created_at": 1, "model": "m", "error": None}
    more = {"tools": [], "parallel_tool_calls": True, "tool_choice": "auto"}
    return {**made, **more, "status": "completed", "output": list(output)}


def delta(text: str) -> dict[str, Any]:
    at = {"item_id": "m1", "output_index": 0, "content_index": 0, "logprobs": []}
    return {"type": "response.output_text.delta", "delta": text, **at}


def done(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": 0, "item": item}


def added(one: dict[str, Any]) -> dict[str, Any]:
    item = {**one, "arguments": "", "status": "in_progress"}
    return {"type": "response.output_item.added", "output_index": 0, "item": item}


def arguments(one: dict[str, Any]) -> dict[str, Any]:
    kind = "response.function_call_arguments.delta"
    return {"type": kind, "item_id": one["id"], "output_index": 0, "delta": one["arguments"]}


BOTH = [call("a"), call("b")]
TWO_PARTS = message("m1", "a", "b")
SCENES: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "a call only at the end": ([delta("a")], [message("m1", "a"), call("c")]),
    "a message only at the end": ([delta("a")], [message("m1", "a"), message("m2", "b")]),
    "a part only in its item": ([delta("a"), done(TWO_PARTS)], [TWO_PARTS]),
    "all of it at the end": ([], [message("m1", "a"), call("c")]),
    "all of it twice": ([delta("a"), done(message("m1", "a"))], [message("m1", "a")]),
    "one index for all": ([*map(added, BOTH), *map(arguments, BOTH)], BOTH),
}


@pytest.mark.parametrize("scene", SCENES)
def test_what_the_sdk_has_in_the_end(
    walld: walld_client.Client, replay: Replay, scene: str
) -> None:
    events, output = SCENES[scene]
    created = {"type": "response.created", "response": {**response(), "status": "in_progress"}}
    completed = {"type": "response.completed", "response": response(*output)}
    replay.bodies[scene] = [
        f"event: {one['type']}\ndata: {json.dumps({'sequence_number': at, **one})}\n\n".encode()
        for at, one in enumerate([created, *events, completed])
    ]
    ids: list[str] = []
    hook = response_hook(walld, "s", on_reply=ids.append)
    with httpx2.Client(event_hooks={"response": [hook]}) as http:
        sdk = openai.OpenAI(base_url=replay.url + "/v1", api_key="x", http_client=http)
        *_, last = sdk.responses.create(model=scene, input="hello", stream=True)
    has = last.response.output
    reply = walld.recover(stream_id=ids[0])
    assert reply is not None
    assert reply.text == "".join(part.text for one in has for part in getattr(one, "content", ()))
    asked = [(one.call_id, one.arguments) for one in has if one.type == "function_call"]
    tools = [one for one in reply.segments if one.kind == "tool"]
    assert [(one.call_id, one.arguments) for one in tools] == asked
    assert reply.finish_reason == ("tool_calls" if asked else "completed")
    assert reply.status == "complete"
    walld.release(ids[0])


def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    about = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**about, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def piece(index: int, call_id: str | None, name: str | None, said: str) -> dict[str, Any]:
    function = {"name": name, "arguments": said}
    one = {"index": index, "id": call_id, "type": "function", "function": function}
    return chunk({"role": "assistant", "tool_calls": [one]})


CALLS = {
    "an id for each delta": [
        piece(0, "k1", "f", ""),
        piece(0, "k2", None, '{"a"'),
        piece(0, "k3", None, ":1}"),
    ],
    "two calls of one id": [piece(0, "k", "f", '{"a":1}'), piece(1, "k", "f", '{"a":2}')],
}


@pytest.mark.parametrize("scene", CALLS)
def test_calls_of_openai_as_the_sdk_adds_them_up(
    walld: walld_client.Client, replay: Replay, scene: str
) -> None:
    frames = [*CALLS[scene], chunk({}, "tool_calls")]
    replay.bodies[scene] = [b"data: " + json.dumps(one).encode() + b"\n\n" for one in frames]
    replay.bodies[scene] += [b"data: [DONE]\n\n"]
    ids: list[str] = []
    hook = response_hook(walld, "s", on_reply=ids.append)
    with httpx2.Client(event_hooks={"response": [hook]}) as http:
        sdk = openai.OpenAI(base_url=replay.url + "/v1", api_key="x", http_client=http)
        with sdk.chat.completions.stream(model=scene, messages=[]) as stream:
            has = stream.get_final_completion().choices[0].message.tool_calls
    reply = walld.recover(stream_id=ids[0])
    assert reply is not None
    tools = [one for one in reply.segments if one.kind == "tool"]
    assert [one.arguments for one in tools] == [one.function.arguments for one in has]
    assert [one.name for one in tools] == [one.function.name for one in has]
    walld.release(ids[0])


@pytest.mark.parametrize("wire", WIRES)
def test_results_of_two_calls_of_one_id(
    walld: walld_client.Client, replay: Replay, wire: str
) -> None:
    """The program knows them by the provider's id: they are of the calls in their order."""
    reply = walld.reply("one id")
    with httpx2.Client() as http:
        about = {"api_key": "x", "max_retries": 0, "http_client": http}
        if wire == "messages":
            sdk = anthropic.Anthropic(base_url=replay.url, **about)
            stream = sdk.messages.create(model="twins", max_tokens=9, messages=[], stream=True)
        else:
            sdk = openai.OpenAI(base_url=replay.url + "/v1", **about)
            if wire == "chat":
                stream = sdk.chat.completions.create(model="twins", messages=[], stream=True)
            else:
                stream = sdk.responses.create(model="twins", input="", stream=True)
        for _ in tee(stream, reply):
            pass
    reply.tool_result("of Oslo", call_id="call_a")
    reply.tool_result("of Rome", call_id="call_a")
    found = walld.recover(stream_id=reply.stream_id)
    assert found is not None
    tools = [one for one in found.segments if one.kind == "tool"]
    has = [(one.call_id, one.info, json.loads(one.arguments or ""), one.result) for one in tools]
    assert has == [
        ("call_a", None, {"city": "Oslo"}, "of Oslo"),
        ("call_a#2", {"given_id": "call_a"}, {"city": "Rome"}, "of Rome"),
    ]
    reply.end()
    reply.release()


def test_an_input_of_anthropic_that_is_given_whole_and_in_deltas(
    walld: walld_client.Client, replay: Replay
) -> None:
    usage = {"input_tokens": 1, "output_tokens": 1}
    begun = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
    block = {"type": "tool_use", "id": "k", "name": "f", "input": {"a": 1}}
    deltas = [{"type": "input_json_delta", "partial_json": one} for one in ('{"a":', "1}")]
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**begun, "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": one} for one in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage},
        {"type": "message_stop"},
    ]
    replay.bodies["twice"] = [
        f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events
    ]
    ids: list[str] = []
    hook = response_hook(walld, "s", on_reply=ids.append)
    with httpx2.Client(event_hooks={"response": [hook]}) as http:
        sdk = anthropic.Anthropic(base_url=replay.url, api_key="x", http_client=http)
        with sdk.messages.stream(model="twice", max_tokens=9, messages=[]) as stream:
            (has,) = stream.get_final_message().content
    reply = walld.recover(stream_id=ids[0])
    assert reply is not None
    (tool,) = [one for one in reply.segments if one.kind == "tool"]
    assert json.loads(tool.arguments or "") == has.input
    assert reply.status == "complete"
    walld.release(ids[0])
