"""What the adapters tell of a model's call, in one vocabulary."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import walld_client
from walld_client.adapters.frameworks.model_call import Board
from walld_client.adapters.frameworks.recording import Opener, Recording
from walld_client.adapters.wires.model_said import ModelSaid, hash_of_tools, usage_of
from walld_client.adapters.wires.wire import Failure


class Reply:
    """A reply that remembers its events, and in which order it was told the rest."""

    stream_id = "r"

    def __init__(self) -> None:
        self.said: list[Any] = []
        self._stream = SimpleNamespace(is_whole=None)

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **named: Any) -> int:
            self.said.append(args if name == "event" else name)
            return 1

        return call

    def facts(self) -> list[dict[str, Any]]:
        events = [one for one in self.said if isinstance(one, tuple)]
        return [one[1] for one in events if one[0] == "model_call"]


def body(*events: Any) -> bytes:
    named = [(one.get("type", ""), json.dumps(one)) for one in events]
    return "".join(f"event: {name}\ndata: {told}\n\n" for name, told in named).encode()


CHAT = {"object": "chat.completion.chunk", "id": "c1", "model": "m"}
TEXT = CHAT | {"choices": [{"index": 0, "delta": {"content": "Hi"}}], "usage": {"prompt_tokens": 1}}
DONE = CHAT | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
USED = CHAT | {
    "choices": [],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    | {"prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": None},
}
FIRST = {"model": "m", "request_id": "c1"}


def recorded(*events: Any, about: dict[str, Any] | None = None, end: bytes = b"") -> Reply:
    reply = Reply()
    recording = Recording(opener=lambda: reply, is_answer=True, about=lambda: about or {})  # type: ignore[arg-type,return-value]
    recording.chunk(body(*events) + end)
    recording.ended()
    return reply


def test_chat_says_its_model_before_its_text_and_its_usage_once_at_the_end() -> None:
    reply = recorded(TEXT, TEXT, DONE, USED, end=b"data: [DONE]\n\n")
    used = {"input_tokens": 7, "output_tokens": 2, "cache_read_tokens": 3}
    assert reply.facts() == [FIRST, {"usage": used}]
    assert reply.said[1] == ("model_call", FIRST)
    assert reply.said[2:4] == ["token", "token"], "nothing cuts the text"


def test_usage_beside_the_finish_reason() -> None:
    reply = recorded(TEXT, DONE | {"usage": {"prompt_tokens": 5}}, end=b"data: [DONE]\n\n")
    assert reply.facts()[-1] == {"usage": {"input_tokens": 5}}


def test_what_the_request_says_goes_before_what_the_answer_says() -> None:
    reply = recorded(TEXT, DONE, about={"request_id": "req_7", "provider": "openai"})
    assert reply.facts()[0] == {"model": "m", "request_id": "req_7", "provider": "openai"}


def test_an_answer_that_is_cut_or_failed() -> None:
    assert recorded(TEXT).facts()[-1] == {"status": "error", "error_class": "provider"}
    failed = {"error": {"message": "x", "type": "rate_limit_error"}}
    assert recorded(TEXT, failed).facts()[-1]["error_class"] == "rate_limit"
    reply = Reply()
    recording = Recording(opener=lambda: reply, is_answer=True)  # type: ignore[arg-type,return-value]
    recording.chunk(body(TEXT))
    recording.closed()
    assert reply.facts()[-1] == {"status": "cancelled"}


def test_messages_adds_what_its_end_says_to_what_its_beginning_said() -> None:
    used = {"input_tokens": 7, "output_tokens": 1, "cache_creation_input_tokens": 4}
    message = {"id": "msg_1", "model": "m", "usage": used}
    reply = recorded(
        {"type": "message_start", "message": message},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
        | {"usage": {"output_tokens": 9, "input_tokens": None}},
        {"type": "message_stop"},
    )
    total = {"input_tokens": 7, "output_tokens": 9, "cache_write_tokens": 4}
    assert reply.facts() == [
        {"model": "m", "request_id": "msg_1"},
        {"usage": total},
    ]


def test_responses() -> None:
    response = {"id": "resp_1", "model": "m"}
    used = {"input_tokens": 7, "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 1}}
    reply = recorded(
        {"type": "response.created", "response": response},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Hi"},
        {"type": "response.completed", "response": response | {"usage": used, "output": []}},
    )
    total = {"input_tokens": 7, "output_tokens": 2, "reasoning_tokens": 1}
    assert reply.facts() == [
        {"model": "m", "request_id": "resp_1"},
        {"usage": total},
    ]


def test_a_frameworks_call_says_what_it_knows_first_and_how_it_ended_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replies: list[Reply] = []

    def opened(*_: Any, **__: Any) -> Reply:
        replies.append(Reply())
        return replies[-1]

    opener = Opener(walld_client.Client.__new__(walld_client.Client), "s")
    monkeypatch.setattr(opener, "open_in", opened)
    board = Board(opener)
    call = board.begin("run", about={"model": "m", "provider": None})
    call.token("Hi")
    call.said.usage = {"input_tokens": 3, "input_token_details": {"cache_read": 2}}
    call.done()
    again = call.again()
    again.token("Hi")
    again.fail(Failure("slow down", "rate_limit_error"))
    board.begin("run").fail()
    first, second = replies
    assert first.facts() == [
        {"model": "m"},
        {"usage": {"input_tokens": 3, "cache_read_tokens": 2}},
    ]
    assert second.facts() == [{"model": "m"}, {"status": "error", "error_class": "rate_limit"}]
    assert (first.said[1], first.said[-1]) == ("token", "end")


@pytest.mark.parametrize(
    "value", [None, 7, "much", [], {}, {"total_tokens": 5}, {"input_tokens": "x"}]
)
def test_usage_without_a_known_number_is_none(value: object) -> None:
    assert usage_of(value) == {}


def test_tools_that_are_no_json_have_no_hash() -> None:
    assert hash_of_tools([]) is hash_of_tools(None) is hash_of_tools([object()]) is None
    assert hash_of_tools([{"name": "a"}]) == walld_client.tools_hash([{"name": "a"}])


def test_the_first_word_counts() -> None:
    events: list[Any] = []
    said = ModelSaid(model="m")
    said.know(model="other", request_id=7)
    said.say(lambda *one: events.append(one) or 1, model="third", provider="p")
    said.say(lambda *one: events.append(one) or 1, model="fourth")
    assert events == [("model_call", {"model": "m", "provider": "p"})]
