"""Pydantic AI: parts that are neither text nor a call with arguments are kept, in their place."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import pytest
import walld_client
from adapters.answers import blocks
from adapters.replay import Replay
from adapters.trial import wants

wants("pydantic-ai-slim")
pydantic_ai = importlib.import_module("pydantic_ai")
capability = importlib.import_module("walld_client.adapters.pydantic_ai").WalldCapability
program = importlib.import_module("adapters.programs.pydantic_agents")

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


def asked(walld: walld_client.Client, replay: Replay, name: str) -> list[walld_client.PartialReply]:
    """The replies of a streamed run."""
    ids: list[str] = []

    async def run() -> None:
        model = program.model_of({"provider": "messages", "base": replay.url, "model": name})
        recorded = capability(walld, "blocks", on_reply=ids.append)
        agent = pydantic_ai.Agent(model, capabilities=[recorded])

        @agent.tool_plain
        def now() -> str:
            return "noon"

        try:
            async with agent.run_stream("hello") as stream:
                async for _ in stream.stream_text(delta=True, debounce_by=None):
                    pass
        finally:
            await model.client.close()

    asyncio.run(run())
    found = [walld.recover(stream_id=stream_id) for stream_id in ids]
    return [one for one in found if one is not None]


@pytest.mark.parametrize("content", [(CALL,), (EMPTY,), (THOUGHTS, CALL)])
def test_a_call_without_arguments(walld: walld_client.Client, replay: Replay, content: Any) -> None:
    replay.bodies["none"] = blocks("tool_use", *content)
    replay.then["none"] = blocks("end_turn", TEXT)
    first, last = asked(walld, replay, "none")
    (call,) = [one for one in first.segments if one.kind == "tool"]
    assert (call.arguments, call.arguments_complete, call.result) == ("{}", True, "noon")
    assert last.text == "I look."


def test_what_must_be_sent_back_with_a_thought_is_kept(
    walld: walld_client.Client, replay: Replay
) -> None:
    replay.bodies["signed"] = blocks("end_turn", THOUGHTS, HIDDEN, TEXT)
    (reply,) = asked(walld, replay, "signed")
    told = [
        (one.name, one.result.get("signature")) if one.kind == "custom" else one.kind
        for one in reply.segments
        if one.name not in ("model_call", "tool_started")
    ]
    assert told == ["reasoning", ("signature", "SIG"), ("signature", "RED"), "text"]
