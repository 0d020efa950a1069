"""A stream of openai or anthropic teed into a reply that is the program's, in this process."""

from __future__ import annotations

import asyncio
import copy
import gc
import importlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import walld_client
from adapters.answers import WIRES, answer, joined, told
from adapters.replay import Replay
from adapters.trial import kept, wants
from daemon_process import until
from walld_client.adapters import tee

wants("httpx2", "openai", "anthropic")
anthropic, httpx2, openai = map(importlib.import_module, ("anthropic", "httpx2", "openai"))

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


def test_two_streams_of_one_reply_are_two_steps(
    walld: walld_client.Client, chat: Callable[..., Any]
) -> None:
    sdk = chat()
    with walld.reply("s") as reply:
        list(tee(ask(sdk, "tool"), reply))
        reply.tool_result({"degrees": 4}, call_id="call_a")
        list(tee(ask(sdk, "text"), reply))
        found = recovered(walld, reply.stream_id)
        said = [(one.kind, one.step) for one in found.segments if one.kind != "custom"]
        assert said == [("text", 0), ("tool", 0), ("tool", 0), ("text", 1)]
        assert [one["role"] for one in found.messages("openai")][:2] == ["assistant", "tool"]
        reply.end()


def test_a_stream_that_was_cut_and_is_asked_for_again(
    walld: walld_client.Client, chat: Callable[..., Any]
) -> None:
    """Trap 10: a new attempt, and the text is there once, also where all of it had come."""
    sdk = chat()
    finished = next(at for at, one in enumerate(answer("chat", "text"), 1) if b"stop" in one.body)
    with walld.reply("s", auto_release=False) as reply:
        for place in (5, finished):
            with pytest.raises(openai.APIConnectionError):
                list(tee(ask(sdk, f"text:frames:cut{place}"), reply))
        list(tee(ask(sdk, "text"), reply))
        reply.end()
    found = recovered(walld, reply.stream_id)
    assert (found.attempts, found.status) == (3, "complete")
    assert found.text == told(answer("chat", "text"))["text"]
    reply.release()


def test_a_later_step_that_was_cut_and_is_asked_for_again(
    walld: walld_client.Client, chat: Callable[..., Any]
) -> None:
    """The steps before it stand, with their calls and results."""
    sdk = chat()
    with walld.reply("s", auto_release=False) as reply:
        list(tee(ask(sdk, "tool"), reply))
        for call_id in ("call_a", "call_b"):
            reply.tool_result(f"result of {call_id}", call_id=call_id)
        for model in ("text:frames:cut5", "text:eof4"):
            try:
                list(tee(ask(sdk, model), reply))
            except openai.APIConnectionError:
                assert "cut" in model
        list(tee(ask(sdk, "text"), reply))
        reply.end()
    found = recovered(walld, reply.stream_id)
    assert (found.attempts, found.status, found.partial) == (3, "complete", False)
    messages = found.messages("openai")
    assert [one["role"] for one in messages] == ["assistant", "tool", "tool", "assistant"]
    assert [one["content"] for one in messages] == [
        told(answer("chat", "tool"))["text"],
        "result of call_a",
        "result of call_b",
        told(answer("chat", "text"))["text"],
    ]
    reply.release()


LEAVINGS: dict[str, Callable[[walld_client.Reply], object]] = {
    "end": lambda reply: reply.end(),
    "the block": lambda reply: reply.__exit__(None, None, None),
    "nothing": lambda reply: None,
}


@pytest.mark.parametrize("leaving", LEAVINGS)
@pytest.mark.parametrize(("wire", "way"), [("chat", "eof5"), ("responses", "err8")])
def test_a_stream_that_failed_without_raising_and_is_left_at_that(
    walld: walld_client.Client, chat: Callable[..., Any], wire: str, way: str, leaving: str
) -> None:
    """Errored, whatever the program believes, and never released for it."""
    sdk, model = chat(), f"text:frames:{way}"
    reply = walld.reply("s")
    stream_id = reply.stream_id
    if wire == "chat":
        list(tee(ask(sdk, model), reply))
    else:
        list(tee(sdk.responses.create(model=model, input="hello", stream=True), reply))
    assert recovered(walld, stream_id).status == "live", "it may be asked for again"
    assert not LEAVINGS[leaving](reply)
    del reply
    gc.collect()
    until(lambda: recovered(walld, stream_id).status != "live", "its end")
    found = recovered(walld, stream_id)
    assert found.status == "errored"
    assert found.error is not None
    kinds = {"chat": "no_terminal_event", "responses": "server_error"}
    assert found.error.kind == kinds[wire]
    assert walld.release(stream_id)


RAISED = {
    "cut": ("text:frames:cut5", "APIConnectionError"),
    "vendor": ("text:frames:err5", "APIError"),
}


@pytest.mark.parametrize("leaving", LEAVINGS)
@pytest.mark.parametrize("way", RAISED)
def test_a_stream_that_raised_and_is_left_at_that(
    walld: walld_client.Client, chat: Callable[..., Any], way: str, leaving: str
) -> None:
    """The program caught what the SDK raised: no answer is whole for that."""
    model, kind = RAISED[way]
    reply = walld.reply("s")
    stream_id = reply.stream_id
    with pytest.raises(openai.APIError):
        list(tee(ask(chat(), model), reply))
    assert recovered(walld, stream_id).status == "live", "it may be asked for again"
    assert not LEAVINGS[leaving](reply)
    del reply
    gc.collect()
    until(lambda: recovered(walld, stream_id).status != "live", "its end")
    found = recovered(walld, stream_id)
    assert (found.status, found.partial) == ("errored", True)
    assert found.error is not None
    assert found.error.kind == kind
    assert walld.release(stream_id)


def left_early(sdk: Any, reply: walld_client.Reply, way: str) -> None:
    """A stream of which the program takes no more than its beginning."""
    stream = tee(ask(sdk, "text:frames:hold5"), reply)
    if way != "unread":
        next(stream)
    if way == "closed":
        stream.close()


@pytest.mark.parametrize("way", ["unread", "broken off", "closed"])
def test_a_stream_that_is_left_early(
    walld: walld_client.Client, chat: Callable[..., Any], way: str
) -> None:
    """Cancelled where the program says nothing of it; `end()` is its word that it is enough."""
    with walld.reply("s", auto_release=False) as reply:
        left_early(chat(), reply, way)
    found = recovered(walld, reply.stream_id)
    assert (found.status, found.partial) == ("cancelled", True)
    assert found.lost_reason == "the stream was left before its end"
    reply.release()
    with walld.reply("s", auto_release=False) as reply:
        left_early(chat(), reply, way)
        assert reply.end() > 0
    assert recovered(walld, reply.stream_id).status == "complete"
    reply.release()
    with walld.reply("s", auto_release=False) as reply:
        left_early(chat(), reply, way)
        list(tee(ask(chat(), "text"), reply))
    assert recovered(walld, reply.stream_id).status == "complete", "asked for again"
    reply.release()
    with walld.reply("s", auto_release=False) as reply:
        left_early(chat(), reply, way)
        reply.retry("in my own words")
        reply.token("so be it")
    assert recovered(walld, reply.stream_id).status == "complete", "the program went on itself"
    reply.release()


def test_a_loop_that_stops_at_the_finish_reason_has_the_whole_answer(
    walld: walld_client.Client, chat: Callable[..., Any]
) -> None:
    with walld.reply("s", auto_release=False) as reply:
        for one in tee(ask(chat(), "text"), reply):
            if one.choices and one.choices[0].finish_reason:
                break
    found = recovered(walld, reply.stream_id)
    assert (found.status, found.partial) == ("complete", False)
    reply.release()


def test_a_stream_that_a_timeout_ends(walld: walld_client.Client, replay: Replay) -> None:
    """A timeout around the loop is the program's own, as its `break` is."""

    async def main() -> None:
        async with made("chat", replay, is_async=True) as sdk:
            for is_enough in (False, True):
                with walld.reply("s", auto_release=False) as reply:
                    stream = tee(await ask(sdk, "text:frames:hold5"), reply)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(None) as limit:
                            async for _ in stream:
                                limit.reschedule(0)  # it has passed, once something has come
                    if is_enough:
                        assert reply.end() > 0
                status = recovered(walld, reply.stream_id).status
                assert status == ("complete" if is_enough else "cancelled")
                reply.release()

    asyncio.run(main())


def test_the_programs_own_word_comes_before_a_failure_that_is_remembered(
    walld: walld_client.Client, chat: Callable[..., Any]
) -> None:
    for say, status in (
        (lambda reply: reply.cancel("enough"), "cancelled"),
        (lambda reply: reply.error("mine", kind="own"), "errored"),
    ):
        with walld.reply("s") as reply:
            list(tee(ask(chat(), "text:eof4"), reply))
            say(reply)
        found = recovered(walld, reply.stream_id)
        assert found.status == status
        assert (found.error is None) or found.error.kind == "own"
        reply.release()


HELPERS: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "chat": (
        "get_final_completion",
        lambda sdk, model: sdk.chat.completions.stream(model=model, messages=MESSAGES),
    ),
    "responses": (
        "get_final_response",
        lambda sdk, model: sdk.responses.stream(model=model, input="hello"),
    ),
    "messages": (
        "get_final_message",
        lambda sdk, model: sdk.messages.stream(model=model, messages=MESSAGES, max_tokens=9),
    ),
}


def made(wire: str, replay: Replay, is_async: bool = False) -> Any:
    """The SDK's client of that wire."""
    if wire == "messages":
        cls: Any = anthropic.AsyncAnthropic if is_async else anthropic.Anthropic
        return cls(base_url=replay.url, api_key="x", max_retries=0)
    cls = openai.AsyncOpenAI if is_async else openai.OpenAI
    return cls(base_url=replay.url + "/v1", api_key="x", max_retries=0)


WAYS = [
    *((wire, way) for wire in WIRES for way in ("events", "entered before", "until_done", "final")),
    ("messages", "text_stream"),
]


@pytest.mark.parametrize(("wire", "way"), WAYS)
def test_a_helper_of_the_sdk(
    walld: walld_client.Client, replay: Replay, wire: str, way: str
) -> None:
    """`with tee(messages.stream(...), reply)`: what the program sees is the same, and is kept."""
    final, begin = HELPERS[wire]
    with made(wire, replay) as sdk:
        with begin(sdk, "tool") as plain:
            expected = [event.type for event in plain]
        with walld.reply("s") as reply:
            manager = begin(sdk, "tool")
            if way == "entered before":
                with manager as stream:
                    assert [event.type for event in tee(stream, reply)] == expected
            else:
                with tee(manager, reply) as stream:
                    if way == "events":
                        assert [event.type for event in stream] == expected
                    elif way == "until_done":
                        stream.until_done()
                    elif way == "text_stream":
                        assert next(stream.text_stream) == "I look"
                        assert list(stream.text_stream) == [" it up. "]
                        assert stream.get_final_text() == told(answer(wire, "tool"))["text"]
                    assert getattr(stream, final)() is not None
                    assert stream.response.is_closed if wire == "messages" else True
            assert kept(recovered(walld, reply.stream_id)) == joined(told(answer(wire, "tool")))
            assert reply.end() > 0


@pytest.mark.parametrize("wire", WIRES)
def test_a_helper_of_the_sdk_that_is_awaited(
    walld: walld_client.Client, replay: Replay, wire: str
) -> None:
    final, begin = HELPERS[wire]

    async def main() -> None:
        async with made(wire, replay, is_async=True) as sdk:
            for way in ("events", "until_done", "final", "text_stream"):
                with walld.reply("s") as reply:
                    async with tee(begin(sdk, "tool"), reply) as stream:
                        if way == "events":
                            assert [event.type async for event in stream]
                        elif way == "until_done":
                            await stream.until_done()
                        elif way == "text_stream" and wire == "messages":
                            texts = [text async for text in stream.text_stream]
                            assert "".join(texts) == told(answer(wire, "tool"))["text"]
                        assert await getattr(stream, final)() is not None
                    found = recovered(walld, reply.stream_id)
                    assert kept(found) == joined(told(answer(wire, "tool"))), way
                    assert reply.end() > 0

    asyncio.run(main())


def test_a_helper_that_is_cut_and_asked_again(walld: walld_client.Client, replay: Replay) -> None:
    with made("messages", replay) as sdk, walld.reply("s") as reply:
        begin = HELPERS["messages"][1]
        with (
            pytest.raises(httpx2.TransportError),
            tee(begin(sdk, "text:frames:cut5"), reply) as stream,
        ):
            stream.get_final_message()
        with tee(begin(sdk, "text"), reply) as stream:
            message = stream.get_final_message()
        found = recovered(walld, reply.stream_id)
        assert (found.attempts, found.text) == (2, message.content[0].text)
        reply.end()


def test_what_is_no_stream_is_refused_at_once(
    walld: walld_client.Client, chat: Callable[..., Any], replay: Replay
) -> None:
    with walld.reply("s") as reply:
        with pytest.raises(TypeError, match=r"stream=True.*got NoneType"):
            tee(None, reply)
        forgotten = made("chat", replay, is_async=True).chat.completions.create(
            model="text", messages=MESSAGES, stream=True
        )
        with pytest.raises(TypeError, match="await it first"):
            tee(forgotten, reply)
        forgotten.close()
        raw = chat().chat.completions.with_streaming_response
        manager = raw.create(model="text", messages=MESSAGES, stream=True)
        with pytest.raises(TypeError, match="got APIResponse"), tee(manager, reply):
            pass
        reply.cancel()


def test_an_answer_that_was_not_streamed_is_no_stream(
    walld: walld_client.Client, chat: Callable[..., Any], replay: Replay
) -> None:
    """A model of pydantic's can be iterated: over its fields."""
    whole = chat().chat.completions.create(model="text", messages=MESSAGES)
    response = chat().responses.create(model="text", input="hello")
    with made("messages", replay) as sdk:
        message = sdk.messages.create(model="text", messages=MESSAGES, max_tokens=9)
    with walld.reply("s") as reply:
        for answered in (whole, response, message, whole.model_dump(), whole.to_json()):
            with pytest.raises(TypeError, match=f"stream=True.*got {type(answered).__name__}"):
                tee(answered, reply)
        reply.cancel()


def test_a_tee_can_be_copied(walld: walld_client.Client, chat: Callable[..., Any]) -> None:
    with walld.reply("s") as reply, tee(ask(chat(), "text"), reply) as stream:
        twin = copy.copy(stream)
        first, *rest = twin
        assert (first.object, len(rest) > 3) == ("chat.completion.chunk", True)
        reply.end()
    assert not hasattr(copy.copy(stream), "nothing_such")


def test_a_tee_is_the_stream_it_wraps(walld: walld_client.Client, chat: Callable[..., Any]) -> None:
    with walld.reply("s") as reply, tee(ask(chat(), "text"), reply) as stream:
        assert isinstance(stream.response, httpx2.Response)
        first = next(stream)
        assert first.object == "chat.completion.chunk"
        stream.close()
        assert stream.response.is_closed
        reply.end()


def test_a_tee_keeps_no_reply_alive(walld: walld_client.Client, chat: Callable[..., Any]) -> None:
    """A Reply that is collected unended is a cancelled one, with a tee too."""
    reply = walld.reply("s")
    stream_id = reply.stream_id
    stream = tee(ask(chat(), "text"), reply)
    next(stream)
    stream.close()
    del stream, reply
    gc.collect()
    until(lambda: recovered(walld, stream_id).status == "cancelled", "an abandoned reply")
    walld.release(stream_id)


def test_a_stream_of_nothing_that_is_known(
    walld: walld_client.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Said at the first event, once, and in the reply."""
    with walld.reply("s") as reply:
        stream = tee(["a", 1, None], reply)
        assert next(stream) == "a"
        (said,) = caplog.messages
        assert "(str) has no shape that walld knows" in said
        assert list(stream) == [1, None]
        assert len(caplog.messages) == 1
        (segment,) = recovered(walld, reply.stream_id).segments
        assert (segment.name, segment.result) == ("unread", {"events": 3})
        reply.end()


@pytest.mark.parametrize("leaving", LEAVINGS)
def test_a_stream_of_nothing_that_is_known_makes_no_whole_reply(
    walld: walld_client.Client, leaving: str
) -> None:
    """Not a word of it is here: what is left is no answer."""
    reply = walld.reply("s")
    stream_id = reply.stream_id
    list(tee(["a", 1, None], reply))
    assert not LEAVINGS[leaving](reply)
    del reply
    gc.collect()
    until(lambda: recovered(walld, stream_id).status != "live", "its end")
    found = recovered(walld, stream_id)
    assert found.status == "errored"
    assert found.error is not None
    assert found.error.kind == "not_understood"
    walld.release(stream_id)


def test_a_stream_of_nothing_that_is_known_beside_what_the_program_says_itself(
    walld: walld_client.Client,
) -> None:
    with walld.reply("s") as reply:
        for one in tee(["a", "b"], reply):
            reply.token(one)
    found = recovered(walld, reply.stream_id)
    assert (found.status, found.text) == ("complete", "ab")
    reply.release()
