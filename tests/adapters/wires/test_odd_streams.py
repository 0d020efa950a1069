"""Bodies that the SDKs of openai and anthropic stop at, or read otherwise than the standard has it.

What is recorded is what the program got, however the network has cut the body.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import walld_client
from adapters.answers import WIRES, answer
from adapters.replay import Replay
from adapters.trial import wants

wants("httpx2", "openai", "anthropic")
anthropic, httpx2, openai = map(importlib.import_module, ("anthropic", "httpx2", "openai"))
response_hook = importlib.import_module("walld_client.adapters.httpx2").response_hook

MESSAGES: Any = [{"role": "user", "content": "hello"}]
Read = Callable[[str, str], tuple[str, str, str | None]]


@pytest.fixture
def read(walld: walld_client.Client, replay: Replay) -> Iterator[Read]:
    """(stream id, text, exception) of a program that reads a model's answer to its end."""
    ids: list[str] = []
    hook = response_hook(walld, "s", on_reply=ids.append)
    http = httpx2.Client(event_hooks={"response": [hook]})
    about = {"api_key": "x", "max_retries": 0, "http_client": http}

    def stream(wire: str, model: str) -> Iterator[str]:
        if wire == "messages":
            sdk = anthropic.Anthropic(base_url=replay.url, **about)
            made = {"model": model, "max_tokens": 9, "messages": MESSAGES, "stream": True}
            for event in sdk.messages.create(**made):
                if event.type == "content_block_delta" and event.delta.type == "text_delta":
                    yield event.delta.text
            return
        sdk = openai.OpenAI(base_url=replay.url + "/v1", **about)
        if wire == "responses":
            for event in sdk.responses.create(model=model, input="hello", stream=True):
                if event.type == "response.output_text.delta":
                    yield event.delta
        else:
            for chunk in sdk.chat.completions.create(model=model, messages=MESSAGES, stream=True):
                for choice in chunk.choices or ():
                    yield choice.delta.content or ""

    def until_the_end(wire: str, model: str) -> tuple[str, str, str | None]:
        text, raised = "", None
        try:
            for piece in stream(wire, model):
                text += piece
        except Exception as error:
            raised = type(error).__name__
        if raised is not None:
            gc.collect()  # a stream is closed with the frames of a program that raised in it
        return ids[-1], text, raised

    with http:
        yield until_the_end


ODD = {
    "no JSON": b'data: {"x":\n\n',
    "no JSON, named": b'event: x\ndata: {"x":\n\n',
    "a ping that is no JSON": b"event: ping\ndata: still here\n\n",
    "a name alone": b"event: ping\n\n",
    "an id alone": b"id: 7\n\n",
    "a retry time alone": b"retry: 3000\n\n",
    "data without a word": b"data:\n\n",
    "a comment": b": still here\n\n",
    "no UTF-8 in a comment": b": \xff\n\n",
    "no UTF-8 in an id": b"id: \xff\n",
    "no UTF-8 in a field of nobody's": b"\xff: 1\n\n",
    "no UTF-8 in a name": b"event: \xff\n",
    "no UTF-8 in data": b"data: \xff\n\n",
    "no UTF-8 behind an event": "data: ä\n: ".encode("latin-1") + b"\n\n",
    "a number": b"data: 5\n\n",
    "null": b"data: null\n\n",
    "a list, named": b"event: x\ndata: []\n\n",
    "a text, named": b'event: x\ndata: "x"\n\n',
    "an error without a name": b'data: {"error": {"message": "trying again"}}\n\n',
    "an empty name": b'event:\ndata: {"type": "x"}\n\n',
    "an error that is a name alone": b"event: error\n\n",
    "an error without a word": b"event: error\ndata:\n\n",
    "an error that is null": b"event: error\ndata: null\n\n",
    "an error that is a list": b"event: error\ndata: []\n\n",
    "an error that says no error": b'event: error\ndata: {"message": "slow down"}\n\n',
}


@pytest.mark.parametrize("cut", ["one chunk", "several"])
@pytest.mark.parametrize("where", ["first", "amid"])
@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("wire", WIRES)
def test_an_odd_event(
    walld: walld_client.Client,
    replay: Replay,
    read: Read,
    wire: str,
    what: str,
    where: str,
    cut: str,
) -> None:
    frames = [frame.body for frame in answer(wire, "text")]
    spoken = [at for at, frame in enumerate(answer(wire, "text")) if frame.said]
    frames.insert(0 if where == "first" else spoken[2], ODD[what])
    model = f"{what} {where} {cut}:ms5"
    replay.bodies[model] = b"".join(frames) if cut == "one chunk" else frames
    stream_id, text, raised = read(wire, model)
    reply = walld.recover(stream_id=stream_id)
    assert reply is not None
    assert reply.text == text
    assert reply.status == ("complete" if raised is None else "errored"), raised
    walld.release(stream_id)


@pytest.mark.parametrize("wire", WIRES)
def test_an_id_stays(walld: walld_client.Client, replay: Replay, read: Read, wire: str) -> None:
    """Behind it a comment is an event without data to the SDKs, at which openai's raises."""
    frames = [b"id: 7\n" + frame.body for frame in answer(wire, "text")]
    frames.insert(5, b": still here\n\n")
    replay.bodies["ids"] = frames
    stream_id, text, raised = read(wire, "ids")
    reply = walld.recover(stream_id=stream_id)
    assert reply is not None
    assert (reply.text, reply.status) == (text, "complete" if raised is None else "errored")
    assert (raised is None) == (wire == "messages")
    walld.release(stream_id)


@pytest.mark.parametrize("wire", WIRES)
def test_a_byte_order_mark(
    walld: walld_client.Client, replay: Replay, read: Read, wire: str
) -> None:
    """The SDKs do not take it off, and the first event is lost to the program."""
    frames = [frame.body for frame in answer(wire, "text")]
    if wire == "chat":
        frames = frames[2:]  # without the comment and the chunk that has no text
    replay.bodies["bom"] = [b"\xef\xbb\xbf" + frames[0], *frames[1:]]
    stream_id, text, raised = read(wire, "bom")
    reply = walld.recover(stream_id=stream_id)
    assert reply is not None
    assert raised is None
    assert (reply.text, reply.status) == (text, "complete")
    walld.release(stream_id)


@pytest.mark.parametrize("cut", ["one chunk", "several"])
@pytest.mark.parametrize("named", ["none", "but one", "but the end", "but a second end"])
def test_events_of_anthropic_without_a_name(
    walld: walld_client.Client, replay: Replay, read: Read, named: str, cut: str
) -> None:
    """Its SDK passes over them: what they say, also the end, the program does not get."""
    frames = [frame.body for frame in answer("messages", "text")]
    nameless = [frame[frame.index(b"data:") :] if frame else frame for frame in frames]
    spoken = [at for at, frame in enumerate(answer("messages", "text")) if frame.said]
    if named == "none":
        frames = nameless
    elif named == "but one":
        frames[spoken[1]] = nameless[spoken[1]]
    elif named == "but the end":
        frames[-1] = nameless[-1]
    else:
        frames.insert(spoken[2], nameless[-1])
    model = f"{named} {cut}"
    replay.bodies[model] = b"".join(frames) if cut == "one chunk" else frames
    stream_id, text, raised = read("messages", model)
    reply = walld.recover(stream_id=stream_id)
    assert reply is not None
    assert raised is None
    has_end = named in ("but one", "but a second end")
    assert (reply.text, reply.status) == (text, "complete" if has_end else "errored")
    assert has_end or (reply.error is not None and reply.error.kind == "no_terminal_event")
    walld.release(stream_id)


DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize("cut", ["one chunk", "several"])
@pytest.mark.parametrize("where", ["first", "amid", "before the end", "behind all"])
@pytest.mark.parametrize("done", [DONE, b"event: error\n" + DONE], ids=["done", "named"])
@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_behind_done_the_sdk_of_openai_reads_nothing(
    walld: walld_client.Client,
    replay: Replay,
    read: Read,
    wire: str,
    done: bytes,
    where: str,
    cut: str,
) -> None:
    frames = [frame.body for frame in answer(wire, "text") if frame.body != DONE]
    at = {"first": 0, "amid": 4, "before the end": len(frames) - 1, "behind all": len(frames)}
    frames.insert(at[where], done)
    model = f"{wire} {len(done)} {where} {cut}"
    replay.bodies[model] = b"".join(frames) if cut == "one chunk" else frames
    stream_id, text, raised = read(wire, model)
    reply = walld.recover(stream_id=stream_id)
    assert reply is not None
    assert (reply.text, raised) == (text, None)
    has_end = where == "behind all" or (wire == "chat" and where != "first")
    assert reply.status == ("complete" if has_end else "errored")
    walld.release(stream_id)


def test_a_hook_that_is_given_twice_records_once(
    walld: walld_client.Client, replay: Replay
) -> None:
    ids: list[str] = []
    hook = response_hook(walld, "s", on_reply=ids.append)
    with httpx2.Client(event_hooks={"response": [hook, hook]}) as http:
        sdk = openai.OpenAI(base_url=replay.url + "/v1", api_key="x", http_client=http)
        for _ in sdk.chat.completions.create(model="text", messages=MESSAGES, stream=True):
            pass
    assert len(ids) == 1
    walld.release(ids[0])
