"""A stream that goes on where one was cut adds to the reply; one that begins anew does not."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
import walld_client
from adapters.replay import Replay
from adapters.trial import wants
from walld_client.adapters import tee

from walld.replies.model_facts import step_records

wants("httpx2", "openai", "anthropic")
anthropic, openai = map(importlib.import_module, ("anthropic", "openai"))

WHOLE = "Hello world, all of it."
ABOUT = {
    "object": "response",
    "created_at": 1,
    "model": "m",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def message(text: str, item_id: str = "msg_1") -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    about = {"type": "message", "id": item_id, "role": "assistant", "status": "completed"}
    return about | {"content": content}


def events_of(response_id: str, pieces: list[str], item_id: str = "msg_1") -> list[dict[str, Any]]:
    """A response, each event with its number."""
    begun = ABOUT | {"id": response_id, "status": "in_progress", "output": []}
    at = {"item_id": item_id, "output_index": 0, "content_index": 0, "logprobs": []}
    done = message("".join(pieces), item_id)
    item = done | {"content": [], "status": "in_progress"}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        *({"type": "response.output_text.delta", "delta": one, **at} for one in pieces),
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {
            "type": "response.completed",
            "response": begun | {"status": "completed", "output": [done]},
        },
    ]
    return [one | {"sequence_number": number} for number, one in enumerate(events)]


def framed(events: list[dict[str, Any]]) -> list[bytes]:
    return [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events]


EVENTS = events_of("resp_1", ["Hello ", "world, ", "all ", "of it."])


@pytest.fixture
def sdk(replay: Replay) -> Iterator[Any]:
    with openai.OpenAI(base_url=replay.url + "/v1", api_key="x", max_retries=0) as made:
        yield made


def take(stream: Any) -> str:
    """What the program has of it, also where it breaks."""
    got = ""
    try:
        for one in stream:
            if one.type == "response.output_text.delta":
                got += one.delta
    except openai.APIError:
        got += "|"
    return got


def created(sdk: Any, model: str) -> Any:
    return sdk.responses.create(model=model, input="x", stream=True, background=True)


def recovered(walld: walld_client.Client, reply: walld_client.Reply) -> walld_client.PartialReply:
    found = walld.recover(stream_id=reply.stream_id)
    assert found is not None
    reply.release()
    return found


def end_of(found: walld_client.PartialReply) -> tuple[Any, ...]:
    steps = {one.step for one in found.segments if one.kind == "text"}
    return found.status, found.partial, found.attempts, steps, found.text


ONCE = ("complete", False, 1, {0}, WHOLE)


@pytest.mark.parametrize("cut", range(2, 6))
@pytest.mark.parametrize("way", ["cut", "eof"])
def test_a_response_that_is_taken_up_again_behind_the_last_event(
    walld: walld_client.Client, replay: Replay, sdk: Any, cut: int, way: str
) -> None:
    replay.bodies[f"{way}{cut}:{way}{cut}"] = framed(EVENTS)
    replay.responses["resp_1"] = framed(EVENTS)
    with walld.reply("s") as reply:
        take(tee(created(sdk, f"{way}{cut}:{way}{cut}"), reply))
        take(tee(sdk.responses.retrieve("resp_1", stream=True, starting_after=cut - 1), reply))
    found = recovered(walld, reply)
    assert end_of(found) == ONCE
    assert found.finish_reason == "completed"


def test_a_response_that_is_taken_up_again_twice_and_once_from_before(
    walld: walld_client.Client, replay: Replay, sdk: Any
) -> None:
    replay.bodies["twice:cut3"] = framed(EVENTS)
    replay.responses["resp_1"] = framed(EVENTS)
    with walld.reply("s") as reply:
        take(tee(created(sdk, "twice:cut3"), reply))
        again = tee(sdk.responses.retrieve("resp_1", stream=True, starting_after=2), reply)
        next(again)
        again.close()
        take(tee(sdk.responses.retrieve("resp_1", stream=True, starting_after=1), reply))
        take(tee(sdk.responses.retrieve("resp_1", stream=True, starting_after=5), reply))
    assert end_of(recovered(walld, reply)) == ONCE


def test_a_response_whose_rest_only_the_item_that_is_done_has(
    walld: walld_client.Client, replay: Replay, sdk: Any
) -> None:
    replay.bodies["rest:cut3"] = framed(EVENTS)
    replay.responses["resp_1"] = framed(EVENTS)
    with walld.reply("s") as reply:
        take(tee(created(sdk, "rest:cut3"), reply))
        take(tee(sdk.responses.retrieve("resp_1", stream=True, starting_after=5), reply))
    assert end_of(recovered(walld, reply)) == ONCE


def test_the_model_call_of_a_response_that_was_taken_up_again_is_complete(
    walld: walld_client.Client, replay: Replay, sdk: Any
) -> None:
    replay.bodies["facts:cut4"] = framed(EVENTS)
    replay.responses["resp_1"] = framed(EVENTS)
    with walld.reply("s") as reply:
        take(tee(created(sdk, "facts:cut4"), reply))
        take(tee(sdk.responses.retrieve("resp_1", stream=True, starting_after=3), reply))
    (record,) = step_records(recovered(walld, reply), set()).values()
    assert (record["status"], record.get("error_class")) == ("complete", None)


def test_the_same_response_from_its_beginning_is_another_attempt(
    walld: walld_client.Client, replay: Replay, sdk: Any
) -> None:
    """Some gateways have one id for all: what is said anew is kept anew."""
    replay.bodies["first:cut4"] = framed(EVENTS)
    replay.bodies["anew"] = framed(events_of("resp_1", ["Other ", "words."]))
    with walld.reply("s") as reply:
        take(tee(created(sdk, "first:cut4"), reply))
        take(tee(created(sdk, "anew"), reply))
    assert end_of(recovered(walld, reply)) == ("complete", False, 2, {0}, "Other words.")


def test_a_response_of_another_id_is_another_attempt_or_step(
    walld: walld_client.Client, replay: Replay, sdk: Any
) -> None:
    """Also where its numbers go on: some gateways count through."""
    other = [one | {"sequence_number": one["sequence_number"] + 20} for one in
             events_of("resp_2", ["Bye."], "msg_2")]  # fmt: skip
    replay.bodies["one:cut4"] = framed(EVENTS)
    replay.bodies["other"] = framed(other)
    replay.bodies["whole"] = framed(EVENTS)
    with walld.reply("s") as reply:
        take(tee(created(sdk, "one:cut4"), reply))
        take(tee(created(sdk, "other"), reply))
    assert end_of(recovered(walld, reply)) == ("complete", False, 2, {0}, "Bye.")
    with walld.reply("s") as reply:
        take(tee(created(sdk, "whole"), reply))
        take(tee(created(sdk, "other"), reply))
    assert end_of(recovered(walld, reply)) == ("complete", False, 1, {0, 1}, f"{WHOLE}Bye.")


def test_a_program_that_says_that_a_stream_continues_the_one_before(
    walld: walld_client.Client, replay: Replay
) -> None:
    """By the text so far at the end of its request, as Anthropic takes it."""

    def body(*texts: str) -> list[bytes]:
        usage = {"input_tokens": 1, "output_tokens": 1}
        begun = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": []}
        start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
        deltas = [{"type": "text_delta", "text": one} for one in texts]
        return framed([
            {"type": "message_start", "message": begun | {"stop_reason": None, "usage": usage}},
            start | {"content_block": {"type": "text", "text": ""}},
            *({"type": "content_block_delta", "index": 0, "delta": one} for one in deltas),
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
            {"type": "message_stop"},
        ])  # fmt: skip

    replay.bodies["begun:cut4"] = body("Hello ", "world, ", "never")
    replay.bodies["rest"] = body("all ", "of it.")
    asked: Any = {"max_tokens": 9, "messages": [{"role": "user", "content": "x"}], "stream": True}
    with anthropic.Anthropic(base_url=replay.url, api_key="x", max_retries=0) as sdk:
        for says, text in ((True, WHOLE), (False, "all of it.")):
            with walld.reply("s") as reply:
                with pytest.raises(Exception, match=r"."):
                    list(tee(sdk.messages.create(model="begun:cut4", **asked), reply))
                rest = sdk.messages.create(model="rest", **asked)
                list(tee(rest, reply, continues=says))
            found = recovered(walld, reply)
            assert end_of(found) == ("complete", False, 1 if says else 2, {0}, text)


def test_a_first_stream_that_is_said_to_continue_is_one_like_any(
    walld: walld_client.Client, replay: Replay, sdk: Any
) -> None:
    replay.bodies["alone"] = framed(EVENTS)
    with walld.reply("s") as reply:
        take(tee(created(sdk, "alone"), reply, continues=True))
    assert end_of(recovered(walld, reply)) == ONCE


def test_what_continues_is_true_or_false(walld: walld_client.Client) -> None:
    with walld.reply("s") as reply:
        with pytest.raises(TypeError, match=r"continues must be True or False, got str 'resp_1'"):
            tee([], reply, continues="resp_1")
        reply.cancel()


def test_a_continuation_that_is_cut_again_leaves_the_reply_errored(
    walld: walld_client.Client, replay: Replay, sdk: Any
) -> None:
    replay.bodies["short:cut3"] = framed(EVENTS)
    replay.responses["resp_1"] = framed(EVENTS[:5])
    with walld.reply("s") as reply:
        take(tee(created(sdk, "short:cut3"), reply))
        take(tee(sdk.responses.retrieve("resp_1", stream=True, starting_after=2), reply))
    found = recovered(walld, reply)
    assert end_of(found) == ("errored", True, 1, {0}, "Hello world, all ")
