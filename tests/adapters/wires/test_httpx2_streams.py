"""The hook on a response of httpx2: whose session it is, and a body that is what it was.

Everything that httpx2 and the SDKs ask of a response's stream is there with walld as without, and
a session is asked for while the request is the caller's own.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import importlib
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
import walld_client
from adapters.answers import WIRES, answer, told
from adapters.replay import Replay
from adapters.trial import wants
from walld_client.adapters import tee

wants("httpx2", "openai", "anthropic")
anthropic, httpx2, openai = map(importlib.import_module, ("anthropic", "httpx2", "openai"))
middleware = importlib.import_module("walld_client.adapters.anthropic")
hooks = importlib.import_module("walld_client.adapters.httpx2")

MESSAGES: Any = [{"role": "user", "content": "hello"}]
WHOLE = told(answer("chat", "text"))["text"]
BODY = {"model": "text", "messages": [], "stream": True}


@pytest.fixture
def off(monkeypatch: pytest.MonkeyPatch) -> walld_client.Client:
    monkeypatch.setenv("WALLD_ENABLED", "0")
    return walld_client.connect()


def seen_into(streams: list[Any]) -> Callable[[Any], None]:
    """A hook that looks at the response's stream."""

    def look(response: Any) -> None:
        streams.append(response.stream)

    return look


def path(replay: Replay) -> str:
    return f"{replay.url}/v1/chat/completions"


def sync_openai(replay: Replay, *given: Any) -> Any:
    http = httpx2.Client(event_hooks={"response": list(given)})
    return openai.OpenAI(base_url=replay.url + "/v1", api_key="x", max_retries=0, http_client=http)


def async_openai(replay: Replay, *given: Any) -> Any:
    http = httpx2.AsyncClient(event_hooks={"response": list(given)})
    return openai.AsyncOpenAI(
        base_url=replay.url + "/v1", api_key="x", max_retries=0, http_client=http
    )


def chat(sdk: Any, model: str = "text") -> Any:
    return sdk.chat.completions.create(model=model, messages=MESSAGES, stream=True)


def texts_of(walld: walld_client.Client, session: str) -> list[str]:
    return [one.text for one in walld.recover_all(session)]


# --- whose session it is --------------------------------------------------------------------------


def test_the_session_is_that_of_the_request_and_not_of_who_reads(
    walld: walld_client.Client, replay: Replay, request: pytest.FixtureRequest
) -> None:
    """Two users' streams made one after the other and read later; and one read with no session."""
    session: contextvars.ContextVar[str | None] = contextvars.ContextVar("session", default=None)
    sdk = sync_openai(replay, hooks.response_hook(walld, session.get))
    name = request.node.name
    made = []
    for user, model in (("a", "text"), ("b", "think"), ("c", "tool")):
        session.set(f"{name}-{user}")
        made.append(chat(sdk, model))
    session.set(None)
    for stream in made:
        list(stream)
    for user, model in (("a", "text"), ("b", "think"), ("c", "tool")):
        assert texts_of(walld, f"{name}-{user}") == [told(answer("chat", model))["text"]]
    sdk.close()


def test_a_session_of_a_task_whose_stream_another_task_reads(
    walld: walld_client.Client, replay: Replay
) -> None:
    session: contextvars.ContextVar[str | None] = contextvars.ContextVar("session", default=None)

    async def make(sdk: Any) -> Any:
        session.set("of the task")
        return await chat(sdk)

    async def main() -> None:
        async with async_openai(replay, hooks.async_response_hook(walld, session.get)) as sdk:
            stream = await asyncio.create_task(make(sdk))
            async for _ in stream:
                pass

    asyncio.run(main())
    assert texts_of(walld, "of the task") == [WHOLE]


def test_the_middleware_asks_at_the_call_too(walld: walld_client.Client, replay: Replay) -> None:
    session: contextvars.ContextVar[str | None] = contextvars.ContextVar("session", default=None)
    with anthropic.Anthropic(base_url=replay.url, api_key="x", max_retries=0) as plain:
        sdk = plain.with_middleware(middleware.WalldMiddleware(walld, session.get))
        session.set("of the call")
        stream = sdk.messages.create(model="text", max_tokens=9, messages=MESSAGES, stream=True)
        session.set(None)
        list(stream)
    assert texts_of(walld, "of the call") == [told(answer("messages", "text"))["text"]]


def test_a_session_that_cannot_be_told_is_asked_for_once(
    walld: walld_client.Client, replay: Replay, caplog: pytest.LogCaptureFixture
) -> None:
    asked = []

    def broken() -> str:
        asked.append(1)
        raise RuntimeError("no session here")

    sdk = sync_openai(replay, hooks.response_hook(walld, broken))
    assert "".join(one.choices[0].delta.content or "" for one in chat(sdk) if one.choices) == WHOLE
    assert len(asked) == 1
    (said,) = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert "a model call is not recorded" in said.message
    sdk.close()


# --- errors in words that are not the wire's ------------------------------------------------------

VENDOR = {"error": {"type": "overloaded_error", "message": "boom"}}
ODD_ERRORS = {
    "no type": (b"event: error\ndata: " + json.dumps(VENDOR).encode(), "overloaded_error"),
    "a text": (b"event: error\ndata: upstream died", "provider_error"),
    "no JSON": (b'event: message_stop\ndata: {"x":', "not_json"),
}


@pytest.mark.parametrize("what", ODD_ERRORS)
@pytest.mark.parametrize("wire", WIRES)
def test_what_the_sdk_raises_on_is_no_cancel_of_the_programs(
    walld: walld_client.Client, replay: Replay, wire: str, what: str
) -> None:
    """It closes the body then, as a program does that reads no further."""
    frame, kind = ODD_ERRORS[what]
    begun = b"".join(one.body for one in answer(wire, "text")[:5])
    model = f"{wire}, {what}"
    replay.bodies[model] = begun + frame + b"\n\n"
    ids: list[str] = []
    hook = hooks.response_hook(walld, "s", on_reply=ids.append)
    with httpx2.Client(event_hooks={"response": [hook]}) as http:
        sdk: Any
        if wire == "messages":
            sdk = anthropic.Anthropic(
                base_url=replay.url, api_key="x", max_retries=0, http_client=http
            )
            stream = sdk.messages.create(model=model, max_tokens=9, messages=MESSAGES, stream=True)
        else:
            base = replay.url + "/v1"
            sdk = openai.OpenAI(base_url=base, api_key="x", max_retries=0, http_client=http)
            made = {"model": model, "stream": True}
            stream = (
                sdk.responses.create(input="hello", **made)
                if wire == "responses"
                else sdk.chat.completions.create(messages=MESSAGES, **made)
            )
        with pytest.raises(Exception, match=r"."):
            list(stream)
    found = walld.recover(stream_id=ids[0])
    assert found is not None
    assert found.error is not None
    assert (found.status, found.error.kind) == ("errored", kind)
    assert found.text == told(answer(wire, "text")[:5])["text"]
    walld.release(ids[0])


@pytest.mark.parametrize("how", ["hook", "tee"])
def test_a_text_beside_something_odd_is_kept(
    walld: walld_client.Client, replay: Replay, how: str
) -> None:
    """As the SDK hands it on: it looks at none of this."""
    part = [{"type": "text", "text": "E"}]
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": {"content": "A", "tool_calls": [None]}},
        {"index": 0, "delta": {"content": "B", "function_call": "x"}},
        {"index": "0", "delta": {"content": "C"}},
        {"index": 0.0, "delta": {"content": "D"}},
        {"index": 0, "delta": {"content": part}},
        {"index": 0, "delta": {}, "finish_reason": "stop"},
    ]
    shape = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    events = [json.dumps({**shape, "choices": [one]}) for one in choices]
    replay.bodies["odd"] = "".join(f"data: {one}\n\n" for one in [*events, "[DONE]"]).encode()
    with walld.reply("s", auto_release=False) as reply:
        ids = [reply.stream_id]
        if how == "tee":
            list(tee(chat(sync_openai(replay), "odd"), reply))
        else:
            list(
                chat(
                    sync_openai(replay, hooks.response_hook(walld, "s", on_reply=ids.append)), "odd"
                )
            )
    found = walld.recover(stream_id=ids[-1])
    assert found is not None
    assert (found.status, found.text, found.finish_reason) == ("complete", "ABCDE", "stop")
    (unread,) = [one for one in found.segments if one.name == "unread"]
    assert unread.result == {"events": 2}
    assert all(one.kind != "tool" for one in found.segments)


# --- a body that is what it was -------------------------------------------------------------------


def test_how_long_it_took_is_still_known(
    walld: walld_client.Client, off: walld_client.Client, replay: Replay
) -> None:
    """httpx2 asks the stream for it, once the response is read."""
    given = {"on": (walld, "s"), "off": (off, "s"), "not this one": (walld, lambda: None)}
    for what, (client, session) in given.items():
        hook = hooks.response_hook(client, session)
        with httpx2.Client(event_hooks={"response": [hook]}) as http:
            response = http.post(path(replay), json=BODY)
            assert response.elapsed.total_seconds() > 0, what
            with http.stream("POST", path(replay), json=BODY) as response:
                list(response.iter_raw())
            assert response.elapsed.total_seconds() > 0, what

    async def main() -> None:
        hook = hooks.async_response_hook(walld, "s")
        async with httpx2.AsyncClient(event_hooks={"response": [hook]}) as http:
            response = await http.post(path(replay), json=BODY)
            assert response.elapsed.total_seconds() > 0

    asyncio.run(main())


def test_nothing_is_put_in_where_nothing_is_recorded(
    walld: walld_client.Client, off: walld_client.Client, replay: Replay
) -> None:
    for client, session in ((off, "s"), (walld, lambda: None)):
        streams: list[Any] = []
        look = seen_into(streams)
        hook = hooks.response_hook(client, session)
        with httpx2.Client(event_hooks={"response": [look, hook, look]}) as http:
            http.post(path(replay), json=BODY)
        assert streams[0] is streams[1]


def test_what_else_a_stream_has_is_reached_through_the_tee(
    walld: walld_client.Client, replay: Replay
) -> None:
    """anthropic's tracing keeps its observer on the body of a response."""

    def observed(response: Any) -> None:
        response.stream.stream_observer = "mine"

    seen: list[Any] = []
    given = [observed, hooks.response_hook(walld, "s"), seen_into(seen)]
    with httpx2.Client(event_hooks={"response": given}) as http:
        http.post(path(replay), json=BODY)
    assert seen[0].stream_observer == "mine"
    assert copy.copy(seen[0]).stream_observer == "mine"
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = seen[0].nothing_such


def test_a_body_that_is_no_stream_of_events_is_said_once(
    walld: walld_client.Client, replay: Replay, caplog: pytest.LogCaptureFixture
) -> None:
    """Some gateways send the events as another type; a JSON answer is nothing to speak of."""

    def retyped(response: Any) -> None:
        response.headers["content-type"] = "application/octet-stream; x=1"

    def untyped(response: Any) -> None:
        del response.headers["content-type"]

    hook = hooks.response_hook(walld, "s")
    with httpx2.Client(event_hooks={"response": [hook]}) as http:
        assert http.post(path(replay), json={**BODY, "stream": False}).json()["choices"]
    assert caplog.messages == []
    for _ in range(2):
        with httpx2.Client(event_hooks={"response": [retyped, hook]}) as http:
            http.post(path(replay), json=BODY)
        with httpx2.Client(event_hooks={"response": [untyped, hook]}) as http:
            http.post(path(replay), json=BODY)
    first, second = caplog.messages
    assert "application/octet-stream" in first
    assert "''" in second


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_stream_of_both_colours(
    walld: walld_client.Client, replay: Replay, colour: str, request: pytest.FixtureRequest
) -> None:
    """`httpx2.ByteStream`, as a hook or a middleware puts it there that has read the body."""
    session = request.node.name
    body = b"".join(frame.body for frame in answer("chat", "text"))

    def cached(response: Any) -> None:
        response.stream = httpx2.ByteStream(body)

    async def cached_async(response: Any) -> None:
        cached(response)

    async def main() -> str:
        hook = hooks.async_response_hook(walld, session)
        async with async_openai(replay, cached_async, hook) as sdk:
            stream = await chat(sdk)
            found = [one.choices[0].delta.content or "" async for one in stream if one.choices]
        return "".join(found)

    if colour == "async":
        assert asyncio.run(main()) == WHOLE
    else:
        with sync_openai(replay, cached, hooks.response_hook(walld, session)) as sdk:
            found = [one.choices[0].delta.content or "" for one in chat(sdk) if one.choices]
        assert "".join(found) == WHOLE
    assert texts_of(walld, session) == [WHOLE]
