"""Answers whose words are no text of a chat, and their ends, as real SDKs read them."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any

import pytest
import walld_client
from adapters.answers import blocks
from adapters.replay import Replay
from adapters.trial import wants
from walld_client.adapters import tee

wants("httpx2", "openai", "anthropic")
anthropic, httpx2, openai = map(importlib.import_module, ("anthropic", "httpx2", "openai"))
response_hook = importlib.import_module("walld_client.adapters.httpx2").response_hook

MESSAGES: Any = [{"role": "user", "content": "weather?"}]


def data(*events: dict[str, Any]) -> list[bytes]:
    return [*(f"data: {json.dumps(one)}\n\n".encode() for one in events), b"data: [DONE]\n\n"]


def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    about = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**about, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def completion(text: str, reason: str | None = None) -> dict[str, Any]:
    about = {"id": "c", "object": "text_completion", "created": 1, "model": "m"}
    choice = {"index": 0, "text": text, "finish_reason": reason, "logprobs": None}
    return {**about, "choices": [choice]}


SPOKEN = [
    chunk({"role": "assistant", "content": None, "audio": {"id": "a", "transcript": "It rains "}}),
    chunk({"audio": {"transcript": "in Oslo."}}),
    chunk({"audio": {"data": "AAAA"}}),
]


def chat(sdk: Any, model: str) -> Any:
    return sdk.chat.completions.create(model=model, messages=MESSAGES, stream=True)


def legacy(sdk: Any, model: str) -> Any:
    return sdk.completions.create(model=model, prompt="x", stream=True)


def anthropics(sdk: Any, model: str) -> Any:
    return sdk.messages.create(model=model, messages=MESSAGES, max_tokens=9, stream=True)


CALL = {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": "x"}}
HALF = {"type": "text", "text": "Let me see"}
Ask = Callable[[Any, str], Any]
SCENES: dict[str, tuple[Ask, list[bytes], tuple[Any, ...]]] = {
    "audio": (chat, data(*SPOKEN, chunk({}, "stop")), ("complete", None, "It rains in Oslo.")),
    "audio, by its age": (
        chat,
        data(*SPOKEN, chunk({"audio": {"expires_at": 1790000000}})),
        ("complete", None, "It rains in Oslo."),
    ),
    "audio that is cut": (chat, data(*SPOKEN)[:-1], ("errored", None, "It rains in Oslo.")),
    "completion": (
        legacy,
        data(completion("Once "), completion("more."), completion("", "stop")),
        ("complete", None, "Once more."),
    ),
    "completion that is cut": (
        legacy,
        data(completion("Once "))[:-1],
        ("errored", "mid_sentence", "Once "),
    ),
    "pause": (
        anthropics,
        blocks("pause_turn", (HALF, []), (SEARCH, [])),
        ("complete", "provider_paused", "Let me see"),
    ),
    "a call alone": (anthropics, blocks("tool_use", (CALL, [])), ("complete", None, "")),
}


def client_of(ask: Ask, replay: Replay, **more: Any) -> Any:
    about = {"api_key": "x", "max_retries": 0, **more}
    if ask is anthropics:
        return anthropic.Anthropic(base_url=replay.url, **about)
    return openai.OpenAI(base_url=replay.url + "/v1", **about)


def told(walld: walld_client.Client, stream_id: str) -> walld_client.PartialReply:
    found = walld.recover(stream_id=stream_id)
    assert found is not None
    walld.release(stream_id)
    return found


@pytest.mark.parametrize("scene", SCENES)
def test_a_teed_stream_of_such_words(
    walld: walld_client.Client, replay: Replay, scene: str
) -> None:
    ask, replay.bodies[scene], expected = SCENES[scene]
    with client_of(ask, replay) as sdk, walld.reply("s") as reply:
        for _ in tee(ask(sdk, scene), reply):
            pass
    found = told(walld, reply.stream_id)
    assert (found.status, found.partial_reason, found.text) == expected


@pytest.mark.parametrize("scene", SCENES)
def test_a_body_of_such_words(walld: walld_client.Client, replay: Replay, scene: str) -> None:
    ask, replay.bodies[scene], expected = SCENES[scene]
    ids: list[str] = []
    hook = response_hook(walld, "s", on_reply=ids.append)
    with httpx2.Client(event_hooks={"response": [hook]}) as http:
        for _ in ask(client_of(ask, replay, http_client=http), scene):
            pass
    (stream_id,) = ids
    found = told(walld, stream_id)
    assert (found.status, found.partial_reason, found.text) == expected


def test_a_call_without_arguments_is_one_with_none(
    walld: walld_client.Client, replay: Replay
) -> None:
    replay.bodies["none"] = blocks("tool_use", (CALL, []))
    with client_of(anthropics, replay) as sdk, walld.reply("s") as reply:
        with tee(
            sdk.messages.stream(model="none", messages=MESSAGES, max_tokens=9), reply
        ) as stream:
            assert stream.get_final_message().content[0].input == {}
        reply.tool_result("noon", call_id="toolu_1")
    (call,) = [one for one in told(walld, reply.stream_id).segments if one.kind == "tool"]
    assert (call.arguments, call.arguments_complete, call.outcome) == ("{}", True, "done")


def test_a_paused_answer_that_goes_on_is_whole(walld: walld_client.Client, replay: Replay) -> None:
    replay.bodies["paused"] = blocks("pause_turn", (HALF, []))
    replay.bodies["goes on"] = blocks("end_turn", ({"type": "text", "text": "It rains."}, []))
    with client_of(anthropics, replay) as sdk, walld.reply("s") as reply:
        for model in ("paused", "goes on"):
            for _ in tee(anthropics(sdk, model), reply):
                pass
    found = told(walld, reply.stream_id)
    assert (found.status, found.partial) == ("complete", False)
