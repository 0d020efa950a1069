"""A program on the openai or the anthropic SDK, with walld in one of its ways.

Spec: base (URL), socket, wire, model, how (hook | tee | middleware), colour (sync | async),
retries, auto_release, release (once whole), helper (anthropic's messages.stream), leave (after so
many events), close (what was left), first (of a tee: the model whose stream comes before it into
the same reply, and is read whole), stall (bool: behind the answer it runs its tool, for ever),
session, tool_effects.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anthropic
import httpx2
import openai
import walld_client
from walld_client import aio
from walld_client.adapters import tee
from walld_client.adapters.anthropic import WalldMiddleware
from walld_client.adapters.httpx2 import async_response_hook, response_hook

TOOL = {"type": "object", "properties": {"city": {"type": "string"}}}


def chat_said(event: Any, calls: dict[Any, str], tell: Any) -> None:
    for choice in event.choices:
        delta = choice.delta
        if text := getattr(delta, "reasoning_content", None):
            tell("reasoning", text)
        if delta.content:
            tell("text", delta.content)
        for call in delta.tool_calls or []:
            if call.id:
                calls[call.index] = call.id
                tell("call", call.function.name, call.id)
            if call.function.arguments:
                tell("arguments", call.function.arguments, calls[call.index])


def responses_said(event: Any, calls: dict[Any, str], tell: Any) -> None:
    if event.type == "response.output_text.delta":
        tell("text", event.delta)
    elif event.type == "response.reasoning_summary_text.delta":
        tell("reasoning", event.delta)
    elif event.type == "response.output_item.added" and event.item.type == "function_call":
        calls[event.output_index] = event.item.call_id
        tell("call", event.item.name, event.item.call_id)
    elif event.type == "response.function_call_arguments.delta":
        tell("arguments", event.delta, calls[event.output_index])


def messages_said(event: Any, calls: dict[Any, str], tell: Any) -> None:
    if event.type == "content_block_start" and event.content_block.type == "tool_use":
        calls[event.index] = event.content_block.id
        tell("call", event.content_block.name, event.content_block.id)
    elif event.type == "content_block_delta":
        delta = event.delta
        if delta.type == "text_delta":
            tell("text", delta.text)
        elif delta.type == "thinking_delta":
            tell("reasoning", delta.thinking)
        elif delta.type == "input_json_delta" and delta.partial_json:
            tell("arguments", delta.partial_json, calls[event.index])


SAID = {"chat": chat_said, "responses": responses_said, "messages": messages_said}


def make(spec: dict[str, Any], walld: Any, begun: Callable[[str], None]) -> Any:
    """The SDK's client."""
    is_async = spec["colour"] == "async"
    about: dict[str, Any] = {"api_key": "x", "max_retries": spec.get("retries", 0)}
    session = spec.get("session", "s")
    options = {"on_reply": begun, "auto_release": spec.get("auto_release", False)}
    options |= {"tool_effects": spec.get("tool_effects")}
    if spec["how"] == "hook":
        if is_async:
            hook: Any = async_response_hook(walld, session, **options)
            about["http_client"] = httpx2.AsyncClient(event_hooks={"response": [hook]})
        else:
            hook = response_hook(walld, lambda: session, **options)
            about["http_client"] = httpx2.Client(event_hooks={"response": [hook]})
    if spec["wire"] == "messages":
        cls: Any = anthropic.AsyncAnthropic if is_async else anthropic.Anthropic
        made = cls(base_url=spec["base"], **about)
        if spec["how"] == "middleware":
            made = made.with_middleware(WalldMiddleware(walld, session, **options))
        return made
    cls = openai.AsyncOpenAI if is_async else openai.OpenAI
    return cls(base_url=spec["base"] + "/v1", **about)


def ask(spec: dict[str, Any], sdk: Any) -> Any:
    """The call, as the SDK makes it."""
    model = spec["model"]
    messages = [{"role": "user", "content": "hello"}]
    if spec["wire"] == "chat":
        return sdk.chat.completions.create(model=model, messages=messages, stream=True)
    if spec["wire"] == "responses":
        return sdk.responses.create(model=model, input="hello", stream=True)
    about: dict[str, Any] = {"model": model, "messages": messages, "max_tokens": 99}
    if spec.get("helper"):
        return sdk.messages.stream(**about)
    return sdk.messages.create(stream=True, **about)


def own_reply(spec: dict[str, Any], walld: Any) -> Any:
    """The program's own, where it tees."""
    if spec["how"] != "tee":
        return None
    return walld.reply(spec.get("session", "s"), auto_release=False)


def stall(spec: dict[str, Any], tell: Any) -> None:
    """The program runs the tool that it was asked for, and never comes back."""
    if spec.get("stall"):
        tell("running")
        time.sleep(99)


def run_sync(spec: dict[str, Any], tell: Any) -> None:
    walld = walld_client.connect(spec["socket"])
    ids: list[str] = []
    calls: dict[Any, str] = {}

    def begun(stream_id: str) -> None:
        ids.append(stream_id)
        tell("stream", stream_id)

    sdk = make(spec, walld, begun)
    reply = own_reply(spec, walld)
    try:
        if reply is not None:
            begun(reply.stream_id)
            if first := spec.get("first"):
                with suppress(openai.APIError, anthropic.APIError, httpx2.HTTPError):
                    list(tee(ask(spec | {"model": first}, sdk), reply))
        stream = ask(spec, sdk)
        if spec.get("helper"):
            stream = stream.__enter__()
        if reply is not None:
            stream = tee(stream, reply, tool_effects=spec.get("tool_effects"))
        for count, event in enumerate(stream, 1):
            SAID[spec["wire"]](event, calls, tell)
            if count == spec.get("leave"):
                if spec.get("close"):
                    stream.close()
                break
        stall(spec, tell)
        tell("done")
    except Exception as error:
        tell("raised", f"{type(error).__module__}.{type(error).__qualname__}", str(error))
        if reply is not None:
            reply.__exit__(type(error), error, None)
    else:
        if reply is not None:
            reply.end()
    finish(spec, walld, ids, tell)


async def run_async(spec: dict[str, Any], tell: Any) -> None:
    walld = aio.connect(spec["socket"])
    ids: list[str] = []
    calls: dict[Any, str] = {}

    def begun(stream_id: str) -> None:
        ids.append(stream_id)
        tell("stream", stream_id)

    sdk = make(spec, walld, begun)
    reply = own_reply(spec, walld)
    try:
        if reply is not None:
            begun(reply.stream_id)
            if first := spec.get("first"):
                with suppress(openai.APIError, anthropic.APIError, httpx2.HTTPError):
                    async for _ in tee(await ask(spec | {"model": first}, sdk), reply):
                        pass
        stream = ask(spec, sdk)
        stream = await (stream.__aenter__() if spec.get("helper") else stream)
        if reply is not None:
            stream = tee(stream, reply, tool_effects=spec.get("tool_effects"))
        count = 0
        async for event in stream:
            SAID[spec["wire"]](event, calls, tell)
            count += 1
            if count == spec.get("leave"):
                if spec.get("close"):
                    await stream.close()
                break
        stall(spec, tell)
        tell("done")
    except Exception as error:
        tell("raised", f"{type(error).__module__}.{type(error).__qualname__}", str(error))
        if reply is not None:
            reply.__exit__(type(error), error, None)
    else:
        if reply is not None:
            reply.end()
    finish(spec, walld, ids, tell)
    await walld.close()


def finish(spec: dict[str, Any], walld: Any, ids: list[str], tell: Any) -> None:
    tell("ids", ids)
    if spec.get("release"):
        for stream_id in ids:
            with suppress(ValueError):
                tell("released", walld.release(stream_id))


def run(spec: dict[str, Any], tell: Any) -> None:
    if spec["colour"] == "async":
        asyncio.run(run_async(spec, tell))
    else:
        run_sync(spec, tell)
