"""What programs ask of a stream before they read it: its class, its colour, its attributes."""

from __future__ import annotations

import asyncio
import collections.abc
import copy
import importlib
from typing import Any

import pytest
import walld_client
from adapters.replay import Replay
from adapters.trial import wants
from walld_client.adapters import tee

wants("httpx2", "openai", "anthropic")
anthropic, httpx2, openai = map(importlib.import_module, ("anthropic", "httpx2", "openai"))
hooks = importlib.import_module("walld_client.adapters.httpx2")

MESSAGES: Any = [{"role": "user", "content": "hello"}]
ASKED: Any = {"model": "text", "messages": MESSAGES}
METHODS = ("iter", "next", "aiter", "anext", "enter", "exit", "aenter", "aexit", "await", "len")


def asked_of(stream: Any) -> list[Any]:
    """What programs and instrumentation look at to find out what they have."""
    abcs: list[type] = [getattr(collections.abc, name) for name in collections.abc.__all__]
    return [
        stream.__class__,
        [name for name in METHODS if hasattr(stream, f"__{name}__")],
        [one for one in abcs if isinstance(stream, one)],
        asyncio.iscoroutine(stream),
    ]


def test_a_teed_stream_is_of_its_class_and_colour(
    walld: walld_client.Client, replay: Replay
) -> None:
    chat = openai.OpenAI(base_url=replay.url + "/v1", api_key="x")
    messages = anthropic.Anthropic(base_url=replay.url, api_key="x")
    about: Any = {**ASKED, "max_tokens": 9}
    managers = {
        "chat": lambda: chat.chat.completions.stream(**ASKED),
        "responses": lambda: chat.responses.stream(model="text", input="hello"),
        "messages": lambda: messages.messages.stream(**about),
    }
    with chat, messages, walld.reply("s") as reply:
        for stream in (
            chat.chat.completions.create(**ASKED, stream=True),
            chat.responses.create(model="text", input="hello", stream=True),
            messages.messages.create(**about, stream=True),
        ):
            teed = tee(stream, reply)
            assert isinstance(teed, (openai.Stream, anthropic.Stream))
            assert asked_of(teed) == asked_of(stream)
            assert asked_of(copy.copy(teed)) == asked_of(stream)
            with teed as entered:
                assert entered is teed
        for begin in managers.values():
            manager = begin()
            assert asked_of(tee(manager, reply)) == asked_of(manager)
            with begin() as stream, tee(manager, reply) as teed:
                assert asked_of(teed) == asked_of(stream)
        reply.cancel()


def test_a_teed_stream_that_is_awaited_is_of_its_class_and_colour(
    walld: walld_client.Client, replay: Replay
) -> None:
    async def main() -> None:
        chat = openai.AsyncOpenAI(base_url=replay.url + "/v1", api_key="x")
        messages = anthropic.AsyncAnthropic(base_url=replay.url, api_key="x")
        about: Any = {**ASKED, "max_tokens": 9}
        async with chat, messages:
            with walld.reply("s") as reply:
                for stream in (
                    await chat.chat.completions.create(**ASKED, stream=True),
                    await messages.messages.create(**about, stream=True),
                ):
                    teed = tee(stream, reply)
                    assert isinstance(teed, (openai.AsyncStream, anthropic.AsyncStream))
                    assert asked_of(teed) == asked_of(stream)
                    async with teed as entered:
                        assert entered is teed
                manager = messages.messages.stream(**about)
                assert asked_of(tee(manager, reply)) == asked_of(manager)
                plain = messages.messages.stream(**about)
                async with plain as stream, tee(manager, reply) as teed:
                    assert asked_of(teed) == asked_of(stream)
                reply.cancel()

    asyncio.run(main())


def test_a_teed_helper_that_is_read_to_its_end_is_what_that_gives(
    walld: walld_client.Client, replay: Replay
) -> None:
    with openai.OpenAI(base_url=replay.url + "/v1", api_key="x") as sdk:
        with sdk.responses.stream(model="text", input="hello") as stream:
            assert stream.until_done() is stream
        manager = sdk.responses.stream(model="text", input="hello")
        with walld.reply("s") as reply, tee(manager, reply) as stream:
            assert stream.until_done() is stream
            reply.end()

    async def main() -> None:
        async with openai.AsyncOpenAI(base_url=replay.url + "/v1", api_key="x") as sdk:
            manager = sdk.responses.stream(model="text", input="hello")
            with walld.reply("s") as reply:
                async with tee(manager, reply) as stream:
                    assert await stream.until_done() is stream
                reply.end()

    asyncio.run(main())


def test_what_is_set_on_a_teed_stream_is_set_on_the_stream(
    walld: walld_client.Client, replay: Replay
) -> None:
    """Instrumentation replaces what a stream reads from."""
    with openai.OpenAI(base_url=replay.url + "/v1", api_key="x") as sdk:
        stream = sdk.chat.completions.create(**ASKED, stream=True)
        with walld.reply("s") as reply:
            teed = tee(stream, reply)
            first, *_ = stream._iterator
            teed._iterator = iter([first])
            teed.mark = 1
            assert (stream.mark, list(teed)) == (1, [first])
            del teed.mark
            assert not hasattr(stream, "mark")
            reply.cancel()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_hooked_body_is_of_its_class(
    walld: walld_client.Client, replay: Replay, is_async: bool
) -> None:
    streams: list[Any] = []

    def look(response: Any) -> None:
        streams.append(response.stream)

    async def look_async(response: Any) -> None:
        look(response)

    body = {"model": "text", "messages": [], "stream": True}
    url = f"{replay.url}/v1/chat/completions"
    if is_async:
        hook = hooks.async_response_hook(walld, "s")

        async def main() -> None:
            seen = {"response": [look_async, hook, look_async]}
            async with httpx2.AsyncClient(event_hooks=seen) as http:
                await http.post(url, json=body)

        asyncio.run(main())
    else:
        seen = {"response": [look, hooks.response_hook(walld, "s"), look]}
        with httpx2.Client(event_hooks=seen) as http:
            http.post(url, json=body)
    plain, teed = streams
    assert type(teed) is not type(plain)
    assert asked_of(teed) == asked_of(plain)
