"""PartialReply to the messages that a provider takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from partial_reply import call, open_call, piece, reply


def test_no_orphan_goes_to_a_provider() -> None:
    got = reply(
        piece("text", 1, "a"),
        open_call(2),
        piece("tool_result", 3, call_id="c9", name="t", result=b"r", outcome="done"),
        piece("text", 4, "b"),
        open_call(6, call_id="c2", step=1),
        piece("text", 7, "c", step=2),
    )
    assert got.messages("openai") == [{"role": "assistant", "content": "a\n\nb\n\nc"}]
    assert got.messages("anthropic") == [
        {"role": "assistant", "content": [{"type": "text", "text": "a\n\nb\n\nc"}]}
    ]


@pytest.mark.parametrize(
    ("before", "behind", "told"),
    [
        ("Now", "I fix.", "Now\n\nI fix."),
        ("Now ", "I fix.", "Now I fix."),
        ("Now", "\nI fix.", "Now\nI fix."),
        ("", "I fix.", "I fix."),
        ("Now", "", "Now"),
    ],
)
def test_text_before_a_call_and_behind_it_is_not_glued(before: str, behind: str, told: str) -> None:
    got = reply(piece("text", 1, before), open_call(2), piece("text", 3, behind))
    assert [one["content"] for one in got.messages()] == [told]
    assert got.messages("openai") == [{"role": "assistant", "content": told}]
    assert got.text == before + behind, "what was said, as it was said"


def test_text_after_a_call_is_the_next_message() -> None:
    got = reply(call(1), call(2, call_id="c2"), piece("text", 3, "a"), call(4, call_id="c3"))
    assert [one["role"] for one in got.messages("openai")] == [
        "assistant",
        "tool",
        "tool",
        "assistant",
        "tool",
    ]
    assert [one["role"] for one in got.messages("anthropic")] == [
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert got.messages("openai")[0]["content"] is None


def test_calls_of_two_steps_are_two_messages() -> None:
    got = reply(call(1), call(2, call_id="c2", step=1))
    assert [one["role"] for one in got.messages("openai")] == ["assistant", "tool"] * 2


def test_a_failed_call_says_so_where_the_provider_has_a_word_for_it() -> None:
    blocks = reply(call(1, outcome="failed")).messages("anthropic")[1]["content"]
    assert blocks[0]["is_error"] is True


@pytest.mark.parametrize(
    ("arguments", "complete", "sent"),
    [
        (None, False, {}),
        (b"", False, {}),
        (b" ", False, {}),
        (b'{"a": [1]}', True, {"a": [1]}),
        (b'{"a": "\\ud83d"}', True, {"a": "\ufffd"}),
        (b'{"a": 1', False, {"input": '{"a": 1', "note": "cut: the rest of it was not recorded"}),
        (b"[1]", True, {"input": [1]}),
        (b'{"a": NaN}', False, {"input": '{"a": NaN}'}),
        (b"*** Begin Patch", False, {"input": "*** Begin Patch"}),
        (b"\xed\xa0\xbd", False, {"input": "\ufffd"}),
    ],
)
def test_arguments_a_provider_takes(
    arguments: bytes | None, complete: bool, sent: dict[str, Any]
) -> None:
    got = reply(call(1, arguments=arguments, arguments_complete=complete))
    openai = got.messages("openai")[0]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(openai) == sent
    assert got.messages("anthropic")[0]["content"][0]["input"] == sent


def test_a_call_whose_name_is_lost_is_not_sent() -> None:
    assert reply(call(1, name=None)).messages("openai") == []


@pytest.mark.parametrize(
    ("result", "is_json", "sent"),
    [
        (b"found", False, "found"),
        (b"", False, '""'),
        (b"\n", False, '"\\n"'),
        (b'{"n": "\xc3\xa9"}', True, '{"n": "é"}'),
        (b"null", True, "null"),
        (b'"text"', True, "text"),
    ],
)
def test_results_are_text_and_never_empty(result: bytes, is_json: bool, sent: str) -> None:
    got = reply(call(1, result=result, result_json=is_json))
    assert got.messages("openai")[1]["content"] == sent
    assert got.messages("anthropic")[1]["content"][0]["content"] == sent


def test_ids_and_names_are_such_as_providers_take() -> None:
    got = reply(
        call(1, call_id="0f9d4c2e-aaaa-bbbb-cccc-1234567890ab:12", name="fs.read file"),
        call(2, call_id="same"),
        call(3, call_id="same", step=1),
        call(4, call_id="", step=1),
        call(5, call_id="\ud83d", step=1, name="x" * 99),
    )
    calls = [one for m in got.messages("openai") for one in m.get("tool_calls", [])]
    ids = [one["id"] for one in calls]
    assert ids[1] == "same"
    assert len(set(ids)) == 5
    assert all(len(one) <= 40 and one.replace("_", "").isalnum() for one in ids)
    assert [one["function"]["name"] for one in calls] == [
        "fs_read_file",
        "search",
        "search",
        "search",
        "x" * 64,
    ]
    results = [one["tool_call_id"] for one in got.messages("openai") if one["role"] == "tool"]
    assert results == ids
    assert got.messages("openai") == got.messages("openai")


def test_a_last_message_does_not_end_in_white_space_for_anthropic() -> None:
    got = reply(piece("text", 1, "Hello \n"))
    assert got.messages("anthropic")[0]["content"] == [{"type": "text", "text": "Hello"}]
    assert got.messages("openai")[0]["content"] == "Hello \n"
    assert reply(piece("text", 1, " \n")).messages("anthropic") == []
    assert reply(piece("text", 1, " \n"), call(2)).messages("openai")[0]["content"] is None
