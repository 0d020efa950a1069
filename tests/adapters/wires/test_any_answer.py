"""Any answer, read with walld and without: the program sees the same, and walld has what it saw.

The bodies are those of `any_answers.py`, by a seed; the transport is in the process, so that a
body comes in the same pieces to each of the three: the program alone, with the hook, with `tee`.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import Any, NamedTuple

import pytest
import walld_client
from adapters.any_answers import body_of, pieces
from adapters.trial import wants
from walld_client.adapters import tee

wants("httpx2", "openai", "anthropic")
anthropic, httpx2, openai = map(importlib.import_module, ("anthropic", "httpx2", "openai"))
hooks = importlib.import_module("walld_client.adapters.httpx2")

ANSWERS = 60
LEFT = "left"
MESSAGES: Any = [{"role": "user", "content": "hello"}]
ENDS = ('"finish_reason": "', "data: [DONE]", "message_stop", "response.completed")
ENDS += ("response.incomplete",)


class Answer(NamedTuple):
    """parts: of the body. is_cut: the connection fails behind them. stop: at which event the
    program leaves."""

    wire: str
    parts: list[bytes]
    is_cut: bool
    stop: int | None


def answer_of(wire: str, random: Random) -> Answer:
    stop = random.randint(0, 8) if random.random() < 0.25 else None
    return Answer(wire, pieces(body_of(wire, random), random), random.random() < 0.15, stop)


class Body(httpx2.SyncByteStream, httpx2.AsyncByteStream):  # type: ignore[misc,name-defined]
    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def __iter__(self) -> Iterator[bytes]:
        yield from self.answer.parts
        if self.answer.is_cut:
            raise httpx2.ReadError("cut")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self:
            yield part
            await asyncio.sleep(0)


def asked_of(answer: Answer, kind: str, hook: Any) -> Any:
    """What the SDK gives for `stream=True`."""
    sent = {"content-type": "text/event-stream"}
    transport = httpx2.MockTransport(
        lambda request: httpx2.Response(200, headers=sent, stream=Body(answer))
    )
    http = getattr(httpx2, f"{kind}Client")(
        transport=transport, event_hooks={"response": [hook] if hook is not None else []}
    )
    about: Any = {"api_key": "x", "base_url": "http://here", "http_client": http, "max_retries": 0}
    asked: Any = {"model": "m", "stream": True}
    if answer.wire == "messages":
        sdk = getattr(anthropic, f"{kind}Anthropic")(**about)
        return sdk.messages.create(**asked, max_tokens=9, messages=MESSAGES)
    sdk = getattr(openai, f"{kind}OpenAI")(**about)
    if answer.wire == "responses":
        return sdk.responses.create(**asked, input="hello")
    return sdk.chat.completions.create(**asked, messages=MESSAGES)


def seen(answer: Answer, hook: Any = None, reply: Any = None) -> list[Any]:
    """All that the program is given, and the exception that ends it."""
    found: list[Any] = []
    stream = asked_of(answer, "", hook)
    try:
        for event in stream if reply is None else tee(stream, reply):
            found.append(event.model_dump(warnings=False))
            if len(found) - 1 == answer.stop:
                stream.close()
                return [*found, LEFT]
    except Exception as error:
        found.append((type(error), str(error)))
    return found


async def seen_async(answer: Answer, hook: Any = None, reply: Any = None) -> list[Any]:
    """As `seen`."""
    found: list[Any] = []
    stream = await asked_of(answer, "Async", hook)
    try:
        async for event in stream if reply is None else tee(stream, reply):
            found.append(event.model_dump(warnings=False))
            if len(found) - 1 == answer.stop:
                await stream.close()
                return [*found, LEFT]
    except Exception as error:
        found.append((type(error), str(error)))
    return found


# --- what was said, by what the program has of it -------------------------------------------------


def told(wire: str, events: list[Any]) -> tuple[str, str, list[str]]:
    """Text, reasoning, and the arguments of each call."""
    text = reasoning = ""
    calls: dict[int, str] = {}
    for event in events:
        if not isinstance(event, dict):
            continue
        more, thought, call, arguments = _READ[wire](event)
        text, reasoning = text + more, reasoning + thought
        if call is not None:
            calls[call] = calls.get(call, "") + arguments
    given = ["" if one == "{}" else one for one in calls.values()]
    return _joined(text), _joined(reasoning), given


Said = tuple[str, str, int | None, str]


def _of_chat(event: dict[str, Any]) -> Said:
    for choice in event["choices"]:
        delta = choice["delta"]
        for call in delta.get("tool_calls") or ():
            return "", "", call["index"], call["function"]["arguments"]
        return delta.get("content") or "", delta.get("reasoning_content") or "", None, ""
    return "", "", None, ""


def _of_messages(event: dict[str, Any]) -> Said:
    said = event.get("content_block") or event.get("delta") or {}
    index = event.get("index") if said.get("type") in ("tool_use", "input_json_delta") else None
    thought = said.get("thinking") or ""
    return said.get("text") or "", thought, index, said.get("partial_json") or ""


def _of_responses(event: dict[str, Any]) -> Said:
    kind, delta = event["type"].removeprefix("response."), event.get("delta") or ""
    if kind == "output_text.delta":
        return delta, "", None, ""
    if kind == "reasoning_summary_text.delta":
        return "", delta, None, ""
    is_call = kind == "output_item.added" and event["item"]["type"] == "function_call"
    if is_call or kind == "function_call_arguments.delta":
        return "", "", event["output_index"], delta
    return "", "", None, ""


_READ = {"chat": _of_chat, "messages": _of_messages, "responses": _of_responses}


def _joined(text: str) -> str:
    """Halves of a character that meet are one; one that stays alone is U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def kept(reply: walld_client.PartialReply | None) -> tuple[str, str, list[str]]:
    """As `told`, of a recovered reply."""
    segments = reply.segments if reply is not None else []
    text = "".join(one.text for one in segments if one.kind == "text")
    reasoning = "".join(one.text for one in segments if one.kind == "reasoning")
    given = [one.arguments for one in segments if one.kind == "tool"]
    calls = ["" if one in (None, "{}") else one for one in given]  # none at all, once it is over
    return _joined(text), _joined(reasoning), calls


def check(
    walld: walld_client.Client, answer: Answer, alone: list[Any], hooked: str, teed: str
) -> None:
    """hooked, teed: the sessions. What has no terminal event is errored, whatever befell it."""
    wanted, reply = told(answer.wire, alone), walld.recover(teed)
    assert kept(reply) == wanted
    if alone[-1:] == [LEFT]:
        return  # the hook has all of the piece that the program read a part of
    reply = walld.recover(hooked)
    assert kept(reply) == wanted
    body = b"".join(answer.parts).decode("utf-8", "replace")
    if reply is None or any(end in body for end in ENDS):
        return
    assert reply.status == "errored"
    has_raised = any(isinstance(one, tuple) for one in alone)
    if not has_raised and "response.failed" not in body:
        assert reply.error is not None
        assert reply.error.kind == "no_terminal_event"


@pytest.mark.parametrize("wire", ["chat", "messages", "responses"])
def test_any_answer(walld: walld_client.Client, wire: str) -> None:
    for seed in range(ANSWERS):
        answer = answer_of(wire, Random(f"{wire} {seed}"))
        alone, name = seen(answer), f"{wire} {seed}"
        assert repr(seen(answer, hooks.response_hook(walld, name))) == repr(alone), name
        with walld.reply(f"{name} teed", auto_release=False) as reply:
            assert repr(seen(answer, reply=reply)) == repr(alone), name
        check(walld, answer, alone, name, f"{name} teed")


@pytest.mark.parametrize("wire", ["chat", "messages", "responses"])
def test_any_answer_that_is_awaited(walld: walld_client.Client, wire: str) -> None:
    async def all_of_them() -> None:
        for seed in range(ANSWERS):
            answer, name = answer_of(wire, Random(f"{wire} {seed} later")), f"later {wire} {seed}"
            alone = await seen_async(answer)
            hook = hooks.async_response_hook(walld, name)
            assert repr(await seen_async(answer, hook)) == repr(alone), name
            with walld.reply(f"{name} teed", auto_release=False) as reply:
                assert repr(await seen_async(answer, reply=reply)) == repr(alone), name
            check(walld, answer, alone, name, f"{name} teed")

    asyncio.run(all_of_them())
