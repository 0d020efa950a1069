"""What an adapter must never do to a program: openai and anthropic in this process.

The program sees the same chunks and the same exceptions at the same moments, whatever goes wrong
in walld: a session that cannot be told, a callback that raises, no daemon, walld switched off.
"""

from __future__ import annotations

import contextvars
import importlib
import json
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import walld_client
from adapters.answers import WIRES, answer, joined, told
from adapters.replay import Replay
from adapters.trial import kept, wants
from walld_client.adapters import tee

wants("httpx2", "openai", "anthropic")
anthropic, httpx2, openai = map(importlib.import_module, ("anthropic", "httpx2", "openai"))
middleware = importlib.import_module("walld_client.adapters.anthropic")
response_hook = importlib.import_module("walld_client.adapters.httpx2").response_hook

MESSAGES: Any = [{"role": "user", "content": "hello"}]


@pytest.fixture
def chat(replay: Replay) -> Iterator[Callable[..., Any]]:
    """openai's client with these response hooks."""
    made: list[Any] = []

    def make(*hooks: Callable[[Any], None]) -> Any:
        made.append(httpx2.Client(event_hooks={"response": list(hooks)}))
        base = replay.url + "/v1"
        return openai.OpenAI(base_url=base, api_key="x", max_retries=0, http_client=made[-1])

    yield make
    for http in made:
        http.close()


def ask(sdk: Any, model: str) -> Any:
    return sdk.chat.completions.create(model=model, messages=MESSAGES, stream=True)


def recovered(walld: walld_client.Client, stream_id: str) -> walld_client.PartialReply:
    reply = walld.recover(stream_id=stream_id)
    assert reply is not None
    return reply


# --- the program sees what it would have seen -----------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
def test_the_same_bytes_in_the_same_chunks_when_they_are_asked_for(
    walld: walld_client.Client, replay: Replay, wire: str
) -> None:
    path = {"chat": "chat/completions", "responses": "responses", "messages": "messages"}[wire]
    body = {"model": "text:frames:hold6", "messages": [], "stream": True}
    ids: list[str] = []
    hook = response_hook(walld, "s", on_reply=ids.append)
    frames = [frame.body for frame in answer(wire, "text")]
    with (
        httpx2.Client(event_hooks={"response": [hook]}) as http,
        http.stream("POST", f"{replay.url}/v1/{path}", json=body) as response,
    ):
        chunks = response.iter_raw()
        got = b""
        for count in range(1, 7):
            while len(got) < len(b"".join(frames[:count])):
                got += next(chunks)
            # Nothing was read ahead: what is recorded is what was handed on.
            if ids:
                state = kept(recovered(walld, ids[0]))
                assert state == joined(told(answer(wire, "text")[:count]))
        assert got == b"".join(frames[:6])
    assert recovered(walld, ids[0]).status == "cancelled"


def test_what_is_no_stream_is_left_alone(
    walld: walld_client.Client, chat: Callable[..., Any]
) -> None:
    """A JSON answer is not recorded, an error status neither."""
    ids: list[str] = []
    sdk = chat(response_hook(walld, "s", on_reply=ids.append))
    answered = sdk.chat.completions.create(model="text", messages=MESSAGES)
    assert answered.choices[0].message.content == "Once upon a time there was a log."
    with pytest.raises(openai.InternalServerError):
        ask(sdk, "text:busy9:none")
    assert ids == []


def test_a_body_of_another_wire_is_not_recorded(walld: walld_client.Client, replay: Replay) -> None:
    """No reply is opened for what is no model's."""
    event = {"id": "c", "object": "weather.chunk", "reports": [{"degrees": 4}]}
    replay.bodies["weather"] = b"data: " + json.dumps(event).encode() + b"\n\ndata: [DONE]\n\n"
    ids: list[str] = []
    hook = response_hook(walld, "s", on_reply=ids.append)
    with httpx2.Client(event_hooks={"response": [hook]}) as http:
        answered = http.post(f"{replay.url}/v1/reports", json={"model": "weather", "stream": True})
    assert answered.content == replay.bodies["weather"]
    assert ids == []


def test_nothing_that_goes_wrong_in_walld_reaches_the_program(
    walld: walld_client.Client, chat: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> Any:
        raise RuntimeError("not the program's fault")

    whole = told(answer("chat", "text"))["text"]
    secretive = walld_client.connect(walld.stats().socket, redact=broken)
    hooks = {
        "no session to be told": response_hook(walld, broken),
        "a session that is none": response_hook(walld, "x" * 5000),
        "a callback that raises": response_hook(walld, "s", on_reply=broken),
        "a redact that raises": response_hook(secretive, "s"),
    }
    for what, hook in hooks.items():
        caplog.clear()
        for model in ("text", "text:eof7"):
            stream = ask(chat(hook), model)
            texts = [one.choices[0].delta.content or "" for one in stream if one.choices]
            assert "".join(texts) == whole, what
        with pytest.raises(openai.APIConnectionError):
            list(ask(chat(hook), "text:frames:cut5"))
        with pytest.raises(openai.APIError, match="overloaded"):
            list(ask(chat(hook), "text:frames:err5"))
        assert [record.levelno >= logging.WARNING for record in caplog.records], what
    secretive.close()


def test_a_call_that_is_not_to_be_recorded(
    walld: walld_client.Client, chat: Callable[..., Any]
) -> None:
    """A session that is asked for at each call; None is "not this one"."""
    session: contextvars.ContextVar[str | None] = contextvars.ContextVar("session", default=None)
    ids: list[str] = []
    sdk = chat(response_hook(walld, session.get, on_reply=ids.append))
    list(ask(sdk, "text"))
    assert ids == []
    session.set("mine")
    list(ask(sdk, "text"))
    assert recovered(walld, ids[0]).session_id == "mine"


def test_a_reply_whose_callback_raises_is_recorded(
    walld: walld_client.Client, chat: Callable[..., Any]
) -> None:
    ids: list[str] = []

    def broken(stream_id: str) -> None:
        ids.append(stream_id)
        raise RuntimeError("no room for ids")

    list(ask(chat(response_hook(walld, "s", on_reply=broken)), "text"))
    found = recovered(walld, ids[0])
    assert (found.status, found.text) == ("complete", told(answer("chat", "text"))["text"])
    walld.release(ids[0])


def test_switched_off(chat: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The id is real, the stream is the SDK's own."""
    monkeypatch.setenv("WALLD_ENABLED", "0")
    off = walld_client.connect()
    ids: list[str] = []
    streams: list[Any] = []
    hook = response_hook(off, "s", on_reply=ids.append)
    sdk = chat(lambda response: streams.append(response.stream), hook)
    stream = ask(sdk, "text")
    texts = [one.choices[0].delta.content or "" for one in stream if one.choices]
    assert "".join(texts) == told(answer("chat", "text"))["text"]
    assert len(ids) == 1
    stream = ask(chat(), "text")
    assert tee(stream, off.reply("s")) is stream
    stream.close()


def test_without_a_daemon(chat: Callable[..., Any], tmp_path: Any) -> None:
    nobody = walld_client.connect(tmp_path / "nobody")
    stream = ask(chat(response_hook(nobody, "s")), "text")
    texts = [one.choices[0].delta.content or "" for one in stream if one.choices]
    assert "".join(texts) == told(answer("chat", "text"))["text"]
    nobody.close(0.0)


# --- anthropic's middleware -----------------------------------------------------------------------


def test_middleware_that_asks_twice(walld: walld_client.Client, replay: Replay) -> None:
    """An outer one that tries again on its own: each attempt is a reply of its own."""
    ids: list[str] = []

    def twice(request: Any, call_next: Any) -> Any:
        first = call_next(request)
        next(first.http_response.iter_raw())
        first.http_response.close()
        return call_next(request)

    with anthropic.Anthropic(base_url=replay.url, api_key="x", max_retries=0) as plain:
        sdk = plain.with_middleware(
            twice, middleware.WalldMiddleware(walld, "s", on_reply=ids.append)
        )
        stream = sdk.messages.create(model="text", max_tokens=9, messages=MESSAGES, stream=True)
        list(stream)
    first, second = (recovered(walld, one) for one in ids)
    assert (first.status, second.status) == ("cancelled", "complete")
    assert second.text == told(answer("messages", "text"))["text"]
    for one in ids:
        walld.release(one)


# --- what it costs --------------------------------------------------------------------------------


def test_a_piece_of_text_is_five_calls(walld: walld_client.Client) -> None:
    """A call costs some us where caches are cold, as they are between the pieces of a model."""
    about = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choice = {"index": 0, "delta": {"content": " word"}, "finish_reason": None}
    chunk = openai.types.chat.ChatCompletionChunk.model_validate({**about, "choices": [choice]})
    event = anthropic._models.construct_type(
        type_=anthropic.types.RawMessageStreamEvent,
        value={
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": " word"},
        },
    )
    for piece in (chunk, event):
        with walld.reply("s") as reply:
            stream = tee(iter([piece] * 40), reply)
            counts = []
            for _ in range(40):
                called: list[str] = []

                def note(frame: Any, what: str, _: Any, called: list[str] = called) -> None:
                    if what == "call":
                        called.append(frame.f_code.co_name)

                sys.setprofile(note)
                try:
                    next(stream)
                finally:
                    sys.setprofile(None)
                counts.append(called)
            least = min(counts, key=len)  # now and then what the daemon has said is heard too
            assert len(least) <= 5, least
            reply.end()
