"""The blocks of an answer go back to Anthropic in the order in which they came, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from property.vendor_rules import check_anthropic, check_openai
from walld_client.recovered.provider import anthropic_messages, openai_messages

ASKED = {"role": "user", "content": "what is in a.txt?"}


def thought(word: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": f"I think {word}", "signature": f"SIG-{word}"}


def text(word: str) -> dict[str, Any]:
    return {"type": "text", "text": word}


def used(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "Read", "input": {"of": call_id}}


def listed(call_id: str) -> dict[str, Any]:
    function = {"name": "Read", "arguments": f'{{"of": "{call_id}"}}'}
    return {"id": call_id, "type": "function", "function": function}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": f"of {call_id}"}


def said(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks), **more}


REDACTED = {"type": "redacted_thinking", "data": "RED"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": "x"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "url": "u", "encrypted_content": "EN"}],
}


def shown(block: dict[str, Any]) -> str:
    told = block.get("signature") or block.get("text") or block.get("id") or block.get("data")
    return told or block["type"]


def sent(*told: dict[str, Any]) -> list[list[str]]:
    """What of the assistant's goes to Anthropic, a list a message, by the rules of both."""
    check_openai(openai_messages([ASKED, *told]))
    messages = anthropic_messages([ASKED, *told])
    check_anthropic(messages)
    return [[shown(one) for one in m["content"]] for m in messages if m["role"] == "assistant"]


INTERLEAVED = [thought("A"), text("I look."), thought("B"), used("c1")]
IN_ORDER = [["SIG-A", "I look.", "SIG-B", "c1"]]


@pytest.mark.parametrize("is_listed", [True, False])
def test_interleaved_thoughts_of_one_message(is_listed: bool) -> None:
    calls = {"tool_calls": [listed("c1")]} if is_listed else {}
    assert sent(said(*INTERLEAVED, **calls), result("c1")) == IN_ORDER


def test_an_answer_whose_blocks_are_a_message_each() -> None:
    told = [said(one) for one in INTERLEAVED]
    told[-1]["tool_calls"] = [listed("c1")]
    assert sent(*told, result("c1")) == IN_ORDER


def test_thoughts_before_each_of_two_calls() -> None:
    blocks = [thought("A"), used("c1"), thought("B"), used("c2")]
    for told in ([said(*blocks)], [said(*blocks, tool_calls=[listed("c1"), listed("c2")])]):
        assert sent(*told, result("c1"), result("c2")) == [["SIG-A", "c1", "SIG-B", "c2"]]


def test_calls_of_one_answer_that_are_a_message_each_are_one_message() -> None:
    """Else the second would begin with a call, without the thoughts before it."""
    of_m1 = {"_foreign": {"message": {"id": "m1"}}}
    first, second = said(used("c1"), **of_m1), said(used("c2"), **of_m1)
    thinks = said(thought("A"), **of_m1)
    whole = [["SIG-A", "c1", "c2"]]
    assert sent(thinks, first, second, result("c1"), result("c2")) == whole
    assert sent(thinks, first, result("c1"), second, result("c2")) == whole
    other = said(used("c2"), _foreign={"message": {"id": "m2"}})
    assert sent(thinks, first, result("c1"), other, result("c2")) == [["SIG-A", "c1"], ["c2"]]


def test_thoughts_before_text_behind_a_call_go_with_that_text() -> None:
    blocks = [thought("A"), used("c1"), thought("B"), text("and now")]
    assert sent(said(*blocks), result("c1")) == [["SIG-A", "c1"], ["SIG-B", "and now"]]


def test_redacted_thoughts_keep_their_place() -> None:
    blocks = [thought("A"), REDACTED, text("so"), REDACTED, used("c1")]
    assert sent(said(*blocks), result("c1")) == [["SIG-A", "RED", "so", "RED", "c1"]]


def test_no_message_ends_in_a_thought() -> None:
    """Anthropic refuses a request with one."""
    later = {"role": "user", "content": "and?"}
    cut = said(thought("A"), text("so"), thought("B"))
    assert sent(cut, later) == sent(cut) == [["SIG-A", "so"]]
    assert sent(said(thought("A")), later) == sent(said(thought("A"))) == []
    unanswered = said(thought("A"), text("so"), thought("B"), used("c9"))
    assert sent(unanswered, later) == [["SIG-A", "so"]]
    assert sent(said(text("x"), used("c1")), result("c1"), said(thought("B")), later) == [
        ["x", "c1"]
    ]


def test_what_the_provider_ran_goes_back_as_it_came() -> None:
    blocks = [thought("A"), SEARCH, FOUND, thought("B"), text("It rains.")]
    expected = [["SIG-A", "srvtoolu_1", "web_search_tool_result", "SIG-B", "It rains."]]
    assert sent(said(*blocks)) == expected
    assert sent(*(said(one) for one in blocks)) == expected
    (message,) = [m for m in anthropic_messages([ASKED, said(*blocks)]) if m["role"] != "user"]
    assert message["content"][1:3] == [SEARCH, FOUND]
    assert openai_messages([ASKED, said(*blocks)])[1]["content"] == "It rains."


def test_what_the_provider_ran_goes_with_its_result_or_not_at_all() -> None:
    assert sent(said(text("a"), SEARCH)) == [["a"]]
    assert sent(said(FOUND, text("a"))) == [["a"]]
    assert sent(said(FOUND, SEARCH, text("a"))) == [["a"]]
    assert sent(said(SEARCH, FOUND, text("a"), _wal_recovered=True)) == [["a"]]


def test_keys_that_a_writer_added_to_a_thought_do_not_go() -> None:
    mine = thought("A") | {"thinkingSignature": "SIG-A", "mine": 1}
    messages = anthropic_messages([ASKED, said(mine, text("a"))])
    assert messages[1]["content"][0] == thought("A")


def test_calls_of_pi_keep_their_place() -> None:
    one = {"type": "toolCall", "id": "c1", "name": "Read", "arguments": {"of": "c1"}}
    two = one | {"id": "c2"}
    blocks = [thought("A"), text("x"), one, thought("B"), two]
    told = said(*blocks, tool_calls=[listed("c1"), listed("c2")])
    expected = [["SIG-A", "x", "c1", "SIG-B", "c2"]]
    assert sent(told, result("c1"), result("c2")) == expected
