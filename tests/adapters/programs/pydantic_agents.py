"""A program on Pydantic AI: an agent with a tool, walld as a capability.

Spec: base (URL), socket, provider (chat | responses | messages), model, what (run | run streamed |
stream | iter), stall (bool: the tools never answer), leave (of a stream: after so many texts),
session, tool_effects.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import walld_client
from anthropic import AsyncAnthropic
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from walld_client.adapters.pydantic_ai import WalldCapability


def model_of(spec: dict[str, Any]) -> Any:
    if spec["provider"] == "messages":
        sdk = AsyncAnthropic(base_url=spec["base"], api_key="x", max_retries=0)
        return AnthropicModel(spec["model"], provider=AnthropicProvider(anthropic_client=sdk))
    provider = OpenAIProvider(base_url=spec["base"] + "/v1", api_key="x")
    made = OpenAIChatModel if spec["provider"] == "chat" else OpenAIResponsesModel
    return made(spec["model"], provider=provider)


def said(event: Any, tell: Any, ids: dict[int, str]) -> None:
    """What an event adds to the answer."""
    if event.event_kind == "part_start":
        part = event.part
        if part.part_kind == "text" and part.content:
            tell("text", part.content)
        elif part.part_kind == "thinking" and part.content:
            tell("reasoning", part.content)
        elif part.part_kind == "tool-call":
            ids[event.index] = part.tool_call_id
            tell("call", part.tool_name, part.tool_call_id)
            if part.args:
                tell("arguments", part.args, part.tool_call_id)
    elif event.event_kind == "part_delta":
        delta = event.delta
        if delta.part_delta_kind == "text" and delta.content_delta:
            tell("text", delta.content_delta)
        elif delta.part_delta_kind == "thinking" and delta.content_delta:
            tell("reasoning", delta.content_delta)
        elif delta.part_delta_kind == "tool_call" and delta.args_delta:
            tell("arguments", delta.args_delta, ids[event.index])


async def main(spec: dict[str, Any], tell: Any) -> None:
    ids: list[str] = []

    def begun(stream_id: str) -> None:
        ids.append(stream_id)
        tell("stream", stream_id)

    walld = walld_client.connect(spec["socket"])
    about = {
        "stream_runs": spec["what"] == "run streamed",
        "tool_effects": spec.get("tool_effects"),
    }
    capability = WalldCapability(walld, spec.get("session", "s"), on_reply=begun, **about)
    agent = Agent(model_of(spec), capabilities=[capability])

    @agent.tool_plain
    def weather(city: str) -> str:
        """The weather of a city."""
        if spec.get("stall"):
            tell("running", city)
            time.sleep(99)
        return f"4 degrees in {city}"

    try:
        if spec["what"] in ("run", "run streamed"):
            tell("answer", (await agent.run("hello")).output)
        elif spec["what"] == "stream":
            async with agent.run_stream("hello") as result:
                left = spec.get("leave", 99)
                async for text in result.stream_text(delta=True, debounce_by=None):
                    tell("text", text)
                    left -= 1
                    if left == 0:
                        break
        else:
            parts: dict[int, str] = {}
            async with agent.iter("hello") as run:
                async for node in run:
                    if not (Agent.is_model_request_node(node) or Agent.is_call_tools_node(node)):
                        continue
                    async with node.stream(run.ctx) as stream:
                        async for event in stream:
                            if spec.get("loud", True):
                                said(event, tell, parts)
            tell("answer", run.result.output)
        tell("done")
    except Exception as error:
        tell("raised", f"{type(error).__module__}.{type(error).__qualname__}", str(error))
    tell("ids", ids)


def run(spec: dict[str, Any], tell: Any) -> None:
    asyncio.run(main(spec, tell))
