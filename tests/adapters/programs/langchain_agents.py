"""A program on LangChain: a model that is streamed, or an agent with a tool, walld as a callback.

Spec: base (URL), socket, provider (openai | responses | anthropic), model, what (model | agent |
v3 | invoke), streaming, events (bool: model and agent are asked for `stream_events(version="v3")`),
colour (sync | async), attach (callback | environment), stall (bool: the tools never answer),
session, tool_effects.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import walld_client
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from walld_client.adapters.langchain import WalldCallback

stalling: list[Any] = []
"""`tell`, where the tools never answer."""


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    if stalling:
        stalling[0]("running", city)
        time.sleep(99)
    return f"4 degrees in {city}"


def said(chunk: Any, calls: dict[Any, str], tell: Any) -> None:
    """What a chunk of a model's stream adds."""
    for block in chunk.content_blocks:
        if block["type"] == "text" and block["text"]:
            tell("text", block["text"])
        elif block["type"] == "reasoning" and block.get("reasoning"):
            tell("reasoning", block["reasoning"])
        elif block["type"] == "tool_call_chunk":
            if block["id"]:
                calls[block["index"]] = block["id"]
                tell("call", block["name"], block["id"])
            if block["args"]:
                tell("arguments", block["args"], calls[block["index"]])


def said_in(event: Any, calls: dict[Any, str], tell: Any) -> None:
    """What a protocol event adds; an agent's has it in a message of its stream."""
    if "params" in event:
        if event["method"] != "messages":
            return
        event = event["params"]["data"][0]
    if event["event"] == "content-block-start" and event["content"]["type"] == "tool_call_chunk":
        calls[event["index"]] = event["content"]["id"]
        tell("call", event["content"]["name"], event["content"]["id"])
    elif event["event"] == "content-block-delta":
        delta = event["delta"]
        if delta["type"] == "tool-call-delta":
            tell("arguments", delta["args"], calls[event["index"]])
        else:
            kind = delta["type"].removesuffix("-delta")
            tell(kind, delta[kind])


async def as_events(
    asked: Any, question: Any, spec: dict[str, Any], config: Any, tell: Any
) -> None:
    """`stream_events(version="v3")` of a model or an agent."""
    calls: dict[Any, str] = {}
    if spec["colour"] == "async":
        async for event in await asked.astream_events(question, config=config, version="v3"):
            said_in(event, calls, tell)
    else:
        for event in asked.stream_events(question, config=config, version="v3"):
            said_in(event, calls, tell)


def model_of(spec: dict[str, Any]) -> Any:
    about: dict[str, Any] = {"model": spec["model"], "api_key": "x", "max_retries": 0}
    about["streaming"] = spec.get("streaming", True)
    if spec["provider"] == "anthropic":
        return ChatAnthropic(base_url=spec["base"], max_tokens=99, **about)
    if spec["provider"] == "responses":
        about["use_responses_api"] = True
    return ChatOpenAI(base_url=spec["base"] + "/v1", **about)


async def main(spec: dict[str, Any], tell: Any) -> None:
    ids: list[str] = []

    def begun(stream_id: str) -> None:
        ids.append(stream_id)
        tell("stream", stream_id)

    config: Any = {}
    walld = walld_client.connect(spec["socket"])
    if spec["attach"] == "environment":
        os.environ |= {"WALLD_LANGCHAIN": spec["session"], "WALLD_SOCKET": spec["socket"]}
        os.environ["WALLD_LANGCHAIN_TOOL_EFFECTS"] = spec.get("declared", "")
    else:
        about = {"on_reply": begun, "tool_effects": spec.get("tool_effects")}
        config = {"callbacks": [WalldCallback(walld, spec["session"], **about)]}
    stalling.extend([tell] if spec.get("stall") else [])
    model = model_of(spec)
    calls: dict[Any, str] = {}
    try:
        if spec["what"] == "invoke":
            tell("text", model.invoke("hello", config=config).text)
        elif spec["what"] == "v3":
            stream = model.stream_events("hello", config=config, version="v3")
            for piece in stream.text:
                tell("text", piece)
        elif spec["what"] == "agent":
            agent = create_agent(model, [weather])
            question: Any = {"messages": [{"role": "user", "content": "hello"}]}
            if spec.get("events"):
                await as_events(agent, question, spec, config, tell)
                done = None
            elif spec["colour"] == "async":
                done = await agent.ainvoke(question, config=config)
            else:
                done = agent.invoke(question, config=config)
            if done is not None:
                tell("answer", done["messages"][-1].text)
        elif spec.get("events"):
            await as_events(model, "hello", spec, config, tell)
        elif spec["colour"] == "async":
            async for chunk in model.astream("hello", config=config):
                said(chunk, calls, tell)
        else:
            for chunk in model.stream("hello", config=config):
                said(chunk, calls, tell)
        tell("done")
    except Exception as error:
        tell("raised", f"{type(error).__module__}.{type(error).__qualname__}", str(error))
    tell("ids", ids)


def run(spec: dict[str, Any], tell: Any) -> None:
    asyncio.run(main(spec, tell))
