"""A program on OpenAI Agents: an agent with a tool, walld as hooks.

Spec: base (URL), socket, provider (chat | responses), model, what (run | tee | hooks), where hooks
is a stream that is read without `tee`; stall (bool: the tools never answer); session, tool_effects.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import walld_client
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from walld_client.adapters.openai_agents import WalldHooks

set_tracing_disabled(True)


stalling: list[Any] = []
"""`tell`, where the tools never answer."""


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    if stalling:
        stalling[0]("running", city)
        time.sleep(99)
    return f"4 degrees in {city}"


def said(event: Any, tell: Any, ids: dict[int, str]) -> None:
    """What an event adds to the answer."""
    if event.type != "raw_response_event":
        return
    item = event.data
    if item.type == "response.output_text.delta":
        tell("text", item.delta)
    elif item.type in (
        "response.reasoning_summary_text.delta",
        "response.reasoning_text.delta",
    ):
        tell("reasoning", item.delta)
    elif item.type == "response.output_item.added" and item.item.type == "function_call":
        ids[item.output_index] = item.item.call_id
        tell("call", item.item.name, item.item.call_id)
    elif item.type == "response.function_call_arguments.delta" and item.delta:
        tell("arguments", item.delta, ids[item.output_index])


async def main(spec: dict[str, Any], tell: Any) -> None:
    ids: list[str] = []

    def begun(stream_id: str) -> None:
        ids.append(stream_id)
        tell("stream", stream_id)

    stalling.extend([tell] if spec.get("stall") else [])
    walld = walld_client.connect(spec["socket"])
    sdk = AsyncOpenAI(base_url=spec["base"] + "/v1", api_key="x", max_retries=0)
    made = OpenAIChatCompletionsModel if spec["provider"] == "chat" else OpenAIResponsesModel
    agent = Agent(name="a", model=made(spec["model"], sdk), tools=[weather])
    about = {"on_reply": begun, "tool_effects": spec.get("tool_effects")}
    hooks = WalldHooks(walld, spec.get("session", "s"), **about)
    try:
        if spec["what"] == "run":
            tell("answer", (await Runner.run(agent, "hello", hooks=hooks)).final_output)
        else:
            result = Runner.run_streamed(agent, "hello", hooks=hooks)
            parts: dict[int, str] = {}
            events = hooks.tee(result) if spec["what"] == "tee" else result.stream_events()
            async for event in events:
                if spec.get("loud", True):
                    said(event, tell, parts)
            tell("answer", result.final_output)
        tell("done")
    except Exception as error:
        tell("raised", f"{type(error).__module__}.{type(error).__qualname__}", str(error))
    tell("ids", ids)


def run(spec: dict[str, Any], tell: Any) -> None:
    asyncio.run(main(spec, tell))
