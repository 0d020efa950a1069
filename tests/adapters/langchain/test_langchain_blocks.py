"""LangChain: blocks that are neither text nor a call with arguments are kept, in their place."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest
import walld_client
from adapters.answers import blocks
from adapters.replay import Replay
from adapters.trial import wants

wants("langchain", "langchain-openai", "langchain-anthropic")
anthropic, openai = map(importlib.import_module, ("langchain_anthropic", "langchain_openai"))
callback = importlib.import_module("walld_client.adapters.langchain").WalldCallback

THOUGHTS = (
    {"type": "thinking", "thinking": "", "signature": ""},
    [
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": "SIG"},
    ],
)
HIDDEN = ({"type": "redacted_thinking", "data": "RED"}, [])
TEXT = ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "I look."}])
CALL = ({"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}}, [])
EMPTY = (CALL[0], [{"type": "input_json_delta", "partial_json": ""}])
each_way = pytest.mark.parametrize("way", ["invoke", "events"])


def asked(walld: walld_client.Client, one: Any, way: str) -> walld_client.PartialReply:
    ids: list[str] = []
    config = {"callbacks": [callback(walld, "blocks", on_reply=ids.append)]}
    if way == "invoke":
        one.invoke("hello", config=config)
    else:
        _ = one.stream_events("hello", config=config, version="v3").output
    (stream_id,) = ids
    reply = walld.recover(stream_id=stream_id)
    assert reply is not None
    return reply


def of_anthropic(replay: Replay, name: str) -> Any:
    about: dict[str, Any] = {"base_url": replay.url, "api_key": "x", "max_retries": 0}
    # Else it takes an answer for one of text alone.
    about |= {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048}
    return anthropic.ChatAnthropic(model=name, streaming=True, **about)


@each_way
@pytest.mark.parametrize("content", [(CALL,), (EMPTY,), (TEXT, EMPTY), (CALL, TEXT)])
def test_a_call_of_anthropic_without_arguments(
    walld: walld_client.Client, replay: Replay, content: Any, way: str
) -> None:
    replay.bodies["none"] = blocks("tool_use", *content)
    reply = asked(walld, of_anthropic(replay, "none"), way)
    (call,) = [one for one in reply.segments if one.kind == "tool"]
    assert (call.arguments, call.arguments_complete) == ("{}", True)


@each_way
@pytest.mark.parametrize(("reason", "arguments"), [("tool_calls", "{}"), ("length", "")])
def test_a_call_of_chat_without_arguments(
    walld: walld_client.Client, replay: Replay, way: str, reason: str, arguments: str
) -> None:
    function = {"name": "now", "arguments": ""}
    called = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function}]}
    about = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    replay.bodies[reason] = [
        f"data: {json.dumps({**about, 'choices': [{'index': 0, **one}]})}\n\n".encode()
        for one in (
            {"delta": called, "finish_reason": None},
            {"delta": {}, "finish_reason": reason},
        )
    ] + [b"data: [DONE]\n\n"]
    chat = openai.ChatOpenAI(
        model=reason, streaming=True, base_url=replay.url + "/v1", api_key="x", max_retries=0
    )
    reply = asked(walld, chat, way)
    (call,) = [one for one in reply.segments if one.kind == "tool"]
    assert (call.arguments or "", call.arguments_complete) == (arguments, arguments == "{}")


@each_way
def test_what_must_be_sent_back_with_a_thought_is_kept(
    walld: walld_client.Client, replay: Replay, way: str
) -> None:
    replay.bodies["signed"] = blocks("end_turn", THOUGHTS, HIDDEN, TEXT)
    reply = asked(walld, of_anthropic(replay, "signed"), way)
    told = [
        one.name if one.kind == "custom" else one.kind
        for one in reply.segments
        if one.name != "model_call"
    ]
    beside = ["signature", "redacted_thinking"]
    late = ["reasoning", "text", *beside]  # LangChain's events tell them at the end
    assert told == (["reasoning", *beside, "text"] if way == "invoke" else late)
    events = {one.name: one.result for one in reply.segments if one.kind == "custom"}
    assert events["signature"] == {"index": 0, "signature": "SIG"}
    assert events["redacted_thinking"] == {"index": 1, "data": "RED"}
