"""What a reply says of the model's calls: the checks of a program's words, the record of a step."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
import pytest
import walld_client
from partial_reply import call, piece, reply
from walld_client.encoding.model_words import (
    ERROR_CLASSES,
    error_class_of,
    facts_in,
    tools_hash,
)
from walld_client.reply.model_checks import checked_facts
from walld_client.wire import messages as wire

from walld.replies.model_facts import step_records, tells


def said(first_seq: int, *, step: int = 0, attempt: int = 0, **facts: Any) -> Any:
    packed = msgspec.msgpack.encode(facts)
    return piece("custom", first_seq, name="model_call", result=packed, step=step, attempt=attempt)


def failed(kind: str | None, message: str = "it broke", detail: Any = None) -> dict[str, Any]:
    about = None if detail is None else msgspec.msgpack.encode(detail)
    return {"status": "errored", "error": wire.ReplyError(message, kind, about)}


# --- what a program may say -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({}, ValueError, "model_call needs one of .*, got none"),
        ({"model": ""}, ValueError, "model must be 1 to 256 characters, got ''"),
        ({"provider": "p" * 257}, ValueError, "provider must be 1 to 256 characters, got 'ppp"),
        ({"request_id": 7}, TypeError, "request_id must be a str or None, got int 7"),
        ({"status": "done"}, ValueError, "status must be one of complete, .*, got 'done'"),
        ({"error_class": "oops"}, ValueError, "error_class must be one of provider, .* got 'oops'"),
        ({"error_class": ["x"]}, ValueError, "error_class must be one of"),
        ({"usage": [1]}, TypeError, "usage must be a dict of numbers or None, got list"),
        ({"usage": {"in": "7"}}, ValueError, r"usage\['in'\] must be a number from 0, got '7'"),
        ({"usage": {"in": True}}, ValueError, r"usage\['in'\] must be a number from 0, got True"),
        ({"usage": {"in": -1}}, ValueError, r"usage\['in'\] must be a number from 0, got -1"),
        ({"usage": {"in": float("nan")}}, ValueError, "must be a number from 0, got nan"),
        ({"usage": {7: 1}}, ValueError, "usage must have texts of .* as names, got 7"),
        ({"usage": dict.fromkeys(map(str, range(33)), 1)}, ValueError, "at most 32 numbers, got 3"),
    ],
)
def test_what_is_wrong_is_named_with_its_value(
    given: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        checked_facts(given | {"tools_hash": None})


def test_what_is_right_goes_as_it_is() -> None:
    given = {"model": "m", "usage": {"input_tokens": 7, "cost": 0.5}, "status": "error"}
    assert checked_facts(given | {"provider": None}) == given
    for word in ERROR_CLASSES:
        assert checked_facts({"error_class": word}) == {"error_class": word}


def test_a_payload_of_an_application_is_read_for_what_fits() -> None:
    odd = {"model": 7, "provider": "p", "usage": {"in": 1, "text": "secret"}, "prompt": "secret"}
    assert facts_in(odd | {"status": ["x"], "error_class": "oops"}) == {
        "provider": "p",
        "usage": {"in": 1},
    }
    for payload in (None, "text", 7, [1], {}, {"usage": {}}, {"usage": "much"}):
        assert facts_in(payload) == {}


def test_equal_tools_have_one_hash() -> None:
    tools = [{"name": "é", "input": {"b": 1, "a": [None, 0.5]}}]
    again = [{"input": {"a": [None, 0.5], "b": 1}, "name": "é"}]
    text = '[{"input":{"a":[null,0.5],"b":1},"name":"é"}]'
    assert tools_hash(tools) == tools_hash(again) == sha256(text.encode()).hexdigest()
    assert tools_hash([*tools, {}]) != tools_hash([{}, *tools]), "their order counts"
    assert walld_client.tools_hash is tools_hash
    with pytest.raises(ValueError, match="JSON"):
        tools_hash([float("nan")])


@pytest.mark.parametrize(
    ("kinds", "word"),
    [
        (("rate_limit_error",), "rate_limit"),
        (("RateLimitError", "APIError"), "rate_limit"),
        (("insufficient_quota",), "rate_limit"),
        (("BadRequestError", "context_length_exceeded"), "context_length"),
        (("content_filter",), "content_filter"),
        (("APITimeoutError",), "timeout"),
        (("ReadTimeout",), "timeout"),
        (("CancelledError",), "cancelled"),
        (("OutputParserException",), "invalid_output"),
        (("malformed_response",), "invalid_output"),
        (("overloaded_error",), "provider"),
        (("InternalServerError",), "provider"),
        (("no_terminal_event",), "provider"),
        (("APIConnectionError",), "provider"),
        (("ValueError", None, 7), "other"),
        ((), "other"),
    ],
)
def test_the_class_of_an_error(kinds: tuple[object, ...], word: str) -> None:
    assert error_class_of(*kinds) == word
    assert error_class_of(word) == word


def test_a_message_says_only_that_a_prompt_was_too_long() -> None:
    told = "prompt is too long: 200001 tokens > 200000 maximum"
    assert error_class_of("invalid_request_error", message=told) == "context_length"
    assert error_class_of("ValueError", message="a rate limit of the server") == "other"


# --- the record of a step -------------------------------------------------------------------------


def test_a_step_without_a_word_of_its_model_has_none() -> None:
    assert step_records(reply(piece("text", 1, "Hi"), call(2)), set()) == {}
    stopped = reply(piece("text", 1, "Hi"), status="cancelled")
    assert step_records(stopped, set()) == {}


def test_later_words_add_to_earlier_ones() -> None:
    told = reply(
        said(1, model="m", provider="p", usage={"in": 5, "out": 1}),
        piece("text", 2, "Hi"),
        said(4, model="m-1", usage={"out": 9}),
        status="complete",
        partial_reason=None,
        finish_reason="stop",
    )
    assert step_records(told, set()) == {
        1: {"at_ms": 1500, "ended_at_ms": 4500, "status": "complete", "finish_reason": "stop"}
        | {"model": "m-1", "provider": "p", "usage": {"in": 5, "out": 9}}
    }


def test_each_step_has_its_own_and_the_reply_ends_the_last() -> None:
    told = reply(
        piece("text", 1, "I look."),
        said(2, model="a"),
        said(4, step=1, model="b"),
        **failed("RateLimitError"),
    )
    assert step_records(told, set()) == {
        1: {"at_ms": 1500, "status": "complete", "model": "a"},
        4: {"at_ms": 4500, "status": "error", "model": "b", "error_class": "rate_limit"}
        | {"error_kind": "RateLimitError"},
    }


def test_what_the_program_says_of_its_end_counts() -> None:
    told = reply(said(1, status="complete"), **failed("ValueError"))
    (record,) = step_records(told, set()).values()
    assert (record["status"], record.get("error_class")) == ("complete", None)
    told = reply(said(1, error_class="timeout"), **failed("ValueError"))
    (record,) = step_records(told, set()).values()
    assert (record["status"], record["error_class"]) == ("error", "timeout")


@pytest.mark.parametrize(
    ("ending", "status", "word"),
    [
        ({"status": "complete", "partial_reason": None}, "complete", None),
        ({"status": "complete", "partial_reason": "provider_length"}, "partial", None),
        ({"status": "complete", "partial_reason": "provider_filter"}, "partial", "content_filter"),
        ({"status": "cancelled"}, "cancelled", "cancelled"),
        ({"status": "cancelled", "finish_reason": "tool_use"}, "complete", None),
        ({"status": "crashed"}, "partial", None),
        ({"status": "live"}, "partial", None),
        (failed("TimeoutError"), "error", "timeout"),
        (failed(None), "error", "other"),
        (failed("BadRequestError", detail={"code": "context_length_exceeded"}), "error", "c"),
        (failed("ValueError") | {"finish_reason": "tool_use"}, "complete", None),
    ],
)
def test_how_it_ended(ending: dict[str, Any], status: str, word: str | None) -> None:
    (record,) = step_records(reply(said(1, model="m"), **ending), set()).values()
    assert record["status"] == status
    assert record.get("error_class") == ("context_length" if word == "c" else word)


def test_a_reply_that_failed_before_it_said_anything_has_one() -> None:
    told = reply(last_seq=1, **failed("RateLimitError"))
    assert step_records(told, set())[1]["error_class"] == "rate_limit"
    told = reply(piece("text", 1, "x"), last_seq=3, attempts=2, **failed("RateLimitError"))
    assert step_records(told, set()).keys() == {3}


def test_attempts_that_were_begun_anew_have_their_own() -> None:
    told = reply(
        said(1, model="a"),
        said(3, model="b", step=1),
        said(5, model="c", attempt=1),
        attempts=2,
        status="complete",
        partial_reason=None,
    )
    found = step_records(told, set())
    assert [one["status"] for one in found.values()] == ["complete", "partial", "complete"]
    assert step_records(told, {1, 3})[3]["status"] == "complete"


def test_what_it_was_begun_with_and_numbers_beside_texts_are_known_too() -> None:
    packed = msgspec.msgpack.encode
    told = reply(
        piece("text", 1, "Hi", info=packed({"usage": {"out": 2}, "model": "no"})),
        piece("custom", 2, name="usage", result=packed({"in": 5, "text": "secret"})),
        piece("text", 3, "x", step=1, info=packed({"usage": "much"})),
        said(4, step=1, model="other"),
        meta=packed({"model": "m", "provider": "p", "status": "complete", "usage": {"in": 9}}),
        status="complete",
        partial_reason=None,
    )
    found = step_records(told, set())
    assert [(one["model"], one["provider"], one.get("usage")) for one in found.values()] == [
        ("m", "p", {"out": 2, "in": 5}),
        ("other", "p", None),
    ]
    assert step_records(reply(piece("text", 1, "x"), meta=packed("m")), set()) == {}
    assert [tells(one) for one in (said(1), piece("text", 1), piece("text", 1, info=b"x"))] == [
        True,
        False,
        False,
    ]


def test_a_long_word_of_a_foreign_client_is_cut_to_1_kib() -> None:
    """An entry that is too long can never be made: the reply could be neither resolved nor aged."""
    (record,) = step_records(reply(piece("text", 1, "x"), **failed("é" * 150_000)), set()).values()
    assert record["error_kind"] == "é" * 512
    told = reply(said(1, model="m"), finish_reason="é\ud800" * 100_000)
    (record,) = step_records(told, set()).values()
    assert record["finish_reason"] == "é\ud800" * 204 + "é"
