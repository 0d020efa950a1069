"""Blocks that are neither text nor a call with arguments: each is kept, in its place."""

from __future__ import annotations

from typing import Any

import pytest
from unit.client.adapters.wires.test_adapters_folds import block, call, chunk, delta, event, fold
from unit.client.adapters.wires.test_adapters_odd_bodies import recorded


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def ended(reason: str) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}}


def tool_use(index: int, **about: Any) -> dict[str, Any]:
    return block(index, type="tool_use", id=f"t{index}", name="now", **about)


# --- a call without arguments, once it was ended --------------------------------------------------

NOTHING = delta(0, type="input_json_delta", partial_json="")
WAYS: dict[str, list[dict[str, Any]]] = {
    "no delta": [tool_use(0, input={}), stop(0)],
    "an empty delta": [tool_use(0, input={}), NOTHING, stop(0)],
    "no input at all": [tool_use(0), stop(0)],
    "an input of null": [tool_use(0, input=None), NOTHING, NOTHING, stop(0)],
    "one of the provider's": [
        block(0, type="server_tool_use", id="t0", name="now", input={}),
        stop(0),
    ],
    "one of two": [tool_use(0, input={}), tool_use(1, input={}), stop(1), stop(0)],
}


@pytest.mark.parametrize("way", WAYS)
def test_a_call_of_anthropic_without_arguments_is_whole_once_its_block_is(way: str) -> None:
    said, _ = fold(WAYS[way])
    assert ("tool_arguments", "{}", {"call_id": "t0"}) in said
    before, _ = fold(WAYS[way][:-1])
    assert ("tool_arguments", "{}", {"call_id": "t0"}) not in before


def test_a_call_of_anthropic_that_a_limit_has_cut_before_its_arguments_is_not_whole() -> None:
    """Its block is ended all the same."""
    said, _ = fold([tool_use(0, input={}), stop(0), ended("max_tokens")])
    assert said[-2:] == [("tool", "now", "", {"call_id": "t0"}), ("finish", "max_tokens")]
    said, _ = fold([tool_use(0, input={}), stop(0), block(1, type="text", text="x"), stop(1)])
    assert ("tool", "now", "", {"call_id": "t0"}) not in said


def test_arguments_that_came_are_not_said_again() -> None:
    said, _ = fold(
        [
            tool_use(0, input={}),
            delta(0, type="input_json_delta", partial_json='{"a"'),
            stop(0),
            tool_use(1, input={"b": 1}),
            stop(1),
            ended("tool_use"),
        ]
    )
    assert [one for one in said if one[0] == "tool_arguments"] == [
        ("tool_arguments", '{"a"', {"call_id": "t0"})
    ]


@pytest.mark.parametrize("reason", ["tool_calls", "stop"])
def test_a_call_of_chat_without_arguments_is_whole_once_the_answer_is(reason: str) -> None:
    for one in (call(0, "a", "now", ""), call(0, "a", "now", None)):
        said, _ = fold([chunk(one), chunk({}, reason)])
        assert said[1:] == [
            ("tool_arguments", "{}", {"call_id": "a"}),
            ("finish", "tool_calls"),
        ]
    said, _ = fold([chunk(call(0, "a", "now", "")), chunk({}, "length")])
    assert said[1:] == [("finish", "length")], "nobody knows what it would have had"


def test_a_call_of_responses_without_arguments_is_whole_once_its_item_is() -> None:
    item = {"type": "function_call", "id": "i", "call_id": "c", "name": "now", "arguments": ""}
    added = event("output_item.added", output_index=0, item=item)
    done = event("output_item.done", output_index=0, item={**item, "status": "completed"})
    over = event("function_call_arguments.done", output_index=0, item_id="i", arguments="")
    for events in ([added, done], [added, over], [added, over, done], [done]):
        said, _ = fold(events)
        assert said.count(("tool_arguments", "{}", {"call_id": "c"})) == 1, events
    cut = event("output_item.done", output_index=0, item={**item, "status": "incomplete"})
    assert fold([added, cut])[0] == [("tool", "now", {"call_id": "c"})]


# --- blocks of another day ------------------------------------------------------------------------

CONTAINER = {"type": "container_upload", "file_id": "file_1"}


def test_a_block_that_nobody_knows_stands_where_it_came() -> None:
    said, folded = fold(
        [
            block(0, type="text", text="a"),
            block(1, **CONTAINER),
            stop(1),
            block(2, type="compaction", content=""),
            delta(2, type="compaction_delta", content="so far"),
            stop(2),
            block(3, type="text", text="b"),
        ]
    )
    compaction = {"type": "compaction", "content": ""}
    more = {"type": "compaction_delta", "content": "so far"}
    assert said == [
        ("token", "a"),
        ("event", "unknown_block", {"index": 1, "block": CONTAINER}),
        ("event", "unknown_block", {"index": 2, "block": compaction}),
        ("event", "unknown_block", {"index": 2, "delta": more}),
        ("token", "b"),
    ]
    assert folded.odd_events() == 0, "nothing of it is passed over"


def test_an_item_that_nobody_knows_stands_where_it_came() -> None:
    item = {"type": "canvas", "id": "i", "strokes": [1, 2]}
    added = event("output_item.added", output_index=0, item={"type": "canvas", "id": "i"})
    done = event("output_item.done", output_index=0, item=item)
    whole = event("completed", response={"id": "r", "output": [item]})
    told = ("event", "unknown_block", {"block": item})
    for events in ([added, done, whole], [whole]):
        assert [one for one in fold(events)[0] if one[0] == "event"] == [told]


def test_a_part_that_nobody_knows_stands_where_it_came() -> None:
    """Of an item of Responses, of a content of Chat, beside the content."""
    part = {"type": "output_sketch", "url": "u"}
    item = {"type": "message", "id": "m", "content": [part]}
    said, _ = fold([event("output_item.done", output_index=0, item=item)])
    assert said == [("event", "unknown_block", {"block": part})]
    said, folded = fold([chunk({"content": [{"type": "text", "text": "a"}, part]})])
    assert said == [("token", "a"), ("event", "unknown_block", {"block": part})]
    assert folded.odd_events() == 0
    images = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]
    said, _ = fold([chunk({"content": "", "images": images})])
    assert said == [("event", "unknown_block", {"images": images})]


def test_what_must_be_sent_back_with_a_thought_is_kept() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
    said, _ = fold([event("output_item.done", output_index=0, item=item)])
    assert said == [("event", "signature", {"item_id": "rs_1", "signature": "gAAA"})]
    text = {"type": "reasoning.text", "text": "hm", "index": 0}
    signed = {"type": "reasoning.text", "signature": "sig", "index": 0}
    hidden = {"type": "reasoning.encrypted", "data": "gBBB", "index": 1}
    said, _ = fold(
        [
            chunk({"reasoning": "hm", "reasoning_details": [text]}),
            chunk({"content": "a", "reasoning_details": [signed, hidden]}),
        ]
    )
    assert said == [
        ("reasoning", "hm"),
        ("event", "signature", {"reasoning_details": [signed, hidden]}),
        ("token", "a"),
    ]


def test_interleaved_thoughts_keep_their_places() -> None:
    said, _ = fold(
        [
            block(0, type="thinking", thinking="", signature=""),
            delta(0, type="thinking_delta", thinking="one"),
            delta(0, type="signature_delta", signature="SIG-1"),
            block(1, type="text", text="I look."),
            block(2, type="redacted_thinking", data="RED"),
            block(3, type="thinking", thinking="two", signature="SIG-2"),
            tool_use(4, input={}),
            stop(4),
        ]
    )
    assert [one[:2] for one in said] == [
        ("reasoning", "one"),
        ("event", "signature"),
        ("token", "I look."),
        ("event", "redacted_thinking"),
        ("reasoning", "two"),
        ("event", "signature"),
        ("tool", "now"),
        ("tool_arguments", "{}"),
    ]


def test_a_body_of_such_blocks_is_whole() -> None:
    said = recorded(
        {"type": "message_start", "message": {"id": "m", "model": "x"}},
        block(0, **CONTAINER),
        stop(0),
        ended("end_turn"),
        {"type": "message_stop"},
    )
    assert said == [
        ("event", "unknown_block", {"index": 0, "block": CONTAINER}),
        ("finish", "end_turn"),
        ("end",),
    ]
