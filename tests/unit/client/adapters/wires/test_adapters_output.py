"""Responses whose output is told more than once, or only at its end: each of it is said once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from unit.client.adapters.wires.test_adapters_odd_bodies import CREATED, completed, done, recorded

ADDED = "response.output_item.added"
ARGUMENTS = "response.function_call_arguments.delta"


def message(item_id: str, *texts: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "id": item_id, "role": "assistant", "content": content}


def call(call_id: str, arguments: str, item_id: str = "") -> dict[str, Any]:
    about = {"id": item_id or f"i-{call_id}", "call_id": call_id, "name": "f"}
    return {"type": "function_call", **about, "arguments": arguments}


def delta(text: str, item: int = 0, part: int = 0, **about: Any) -> dict[str, Any]:
    at = {"output_index": item, "content_index": part}
    return {"type": "response.output_text.delta", "delta": text, **at, **about}


def said(*events: dict[str, Any]) -> list[Any]:
    """Texts and calls, without the end."""
    made = recorded(CREATED, *events, closed=False)
    assert made[-1] == ("end",)
    return [one for one in made if one[0] in ("token", "reasoning", "tool", "tool_arguments")]


SPOKEN = [("token", "a")]


def whole(call_id: str, arguments: str) -> list[Any]:
    about = {"call_id": call_id}
    return [("tool", "f", about), ("tool", "f", arguments, about)]


def test_a_call_that_only_the_response_has() -> None:
    made = recorded(CREATED, delta("a"), completed(message("m", "a"), call("c", "{}")))
    assert made == [*SPOKEN, *whole("c", "{}"), ("finish", "tool_calls"), ("end",)]


def test_a_message_that_only_the_response_has() -> None:
    made = said(delta("a"), completed(message("m", "a"), message("n", "b")))
    assert made == [("token", "a"), ("token", "b")]


def test_a_part_that_only_the_item_has() -> None:
    item = message("m", "a", "b")
    assert said(delta("a"), done(0, item), completed(item)) == [("token", "a"), ("token", "b")]


def test_a_response_that_was_cut_short_has_more_than_its_deltas() -> None:
    incomplete = {**completed(message("m", "a", "b")), "type": "response.incomplete"}
    assert said(delta("a"), incomplete) == [("token", "a"), ("token", "b")]


@pytest.mark.parametrize("item_done", [True, False])
def test_an_order_of_its_own_at_the_end_says_nothing_again(item_done: bool) -> None:
    """A thought that no delta has said stands before all others in the end."""
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    items = [message("", "a"), message("", "b")]
    events: list[dict[str, Any]] = []
    for at, one in enumerate(items):
        events.append(delta(one["content"][0]["text"], at))
        events += [done(at, one)] * item_done
    made = said(*events, completed(thought, *items))
    assert made == [("token", "a"), ("token", "b"), ("reasoning", "hm")]


def test_ids_that_are_drawn_again_at_the_end() -> None:
    begun = {"type": ADDED, "output_index": 0, "item": {**call("c", ""), "arguments": ""}}
    events = [{"type": ARGUMENTS, "output_index": 0, "delta": one} for one in ('{"x"', ":1}")]
    made = said(begun, *events, completed(message("m", "a"), call("other", '{"x":1}')))
    assert [one for one in made if one[0] == "tool"] == [("tool", "f", {"call_id": "c"})]
    assert made[-1] == ("token", "a")


def test_messages_that_all_have_the_index_0() -> None:
    made = said(delta("a"), delta("b"), completed(message("m", "a"), message("n", "b")))
    assert made == [("token", "a"), ("token", "b")]


def test_a_text_that_is_trimmed_at_the_end_is_the_same() -> None:
    assert said(delta(" a "), completed(message("m", "a"))) == [("token", " a ")]
    assert said(delta(" a ", 1), completed(message("m", "a"))) == [("token", " a ")]


def test_half_a_character_in_each_delta_is_the_whole_one_at_the_end() -> None:
    made = said(delta("\ud83d"), delta("\ude00"), completed(message("m", "x"), message("n", "😀")))
    assert [one[1] for one in made] == ["\ud83d", "\ude00"]


def test_items_that_share_an_index_are_told_apart_by_their_ids() -> None:
    begun = [
        {"type": ADDED, "output_index": 0, "item": {**call(one, ""), "arguments": ""}}
        for one in "cd"
    ]
    deltas = [
        {"type": ARGUMENTS, "output_index": 0, "item_id": f"i-{one}", "delta": json.dumps(one)}
        for one in "cd"
    ]
    made = said(*begun, *deltas, completed(call("c", '"c"'), call("d", '"d"')))
    assert made == [
        ("tool", "f", {"call_id": "c"}),
        ("tool", "f", {"call_id": "d"}),
        ("tool_arguments", '"c"', {"call_id": "c"}),
        ("tool_arguments", '"d"', {"call_id": "d"}),
    ]


def test_items_that_share_an_id_are_told_apart_by_their_index() -> None:
    """OpenAI Agents makes events of Responses of a Chat stream, with one id for all."""
    begun = [
        {"type": ADDED, "output_index": at, "item": {**call(one, "", "fake"), "arguments": ""}}
        for at, one in enumerate("cd")
    ]
    deltas = [
        {"type": ARGUMENTS, "output_index": at, "item_id": "fake", "delta": json.dumps(one)}
        for at, one in enumerate("cd")
    ]
    made = said(*begun, *deltas, completed(call("c", '"c"', "fake"), call("d", '"d"', "fake")))
    assert [one for one in made if one[0] == "tool_arguments"] == [
        ("tool_arguments", '"c"', {"call_id": "c"}),
        ("tool_arguments", '"d"', {"call_id": "d"}),
    ]
    assert len(made) == 4


def test_the_result_of_a_hosted_call_is_said_once() -> None:
    item = {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"q": "x"}}
    made = recorded(CREATED, done(0, item), completed(item), closed=False)
    assert [one[0] for one in made].count("tool_result") == 1


# --- done, and longer than what was heard ---------------------------------------------------------

LONG = message("m", "Hello world.")
TEXT_DONE = {"type": "response.output_text.done", "output_index": 0, "content_index": 0}


@pytest.mark.parametrize(
    "events",
    [
        [done(0, LONG), completed()],
        [completed(LONG)],
        [done(0, LONG), completed(LONG)],
        [TEXT_DONE | {"text": "Hello world."}, done(0, LONG), completed(LONG)],
        [TEXT_DONE | {"text": "Hello wor"}, completed(LONG)],
    ],
)
def test_a_text_that_is_done_is_as_long_as_it_says(events: list[dict[str, Any]]) -> None:
    heard = said(delta("Hello "), *events)
    assert "".join(one[1] for one in heard) == "Hello world."


def test_a_thought_that_is_done_is_as_long_as_it_says() -> None:
    summary = {
        "type": "reasoning",
        "id": "r",
        "summary": [{"type": "summary_text", "text": "Hm, so"}],
    }
    piece = {"type": "response.reasoning_summary_text.delta", "delta": "Hm", "output_index": 0}
    heard = said(piece | {"summary_index": 0}, done(0, summary), completed())
    assert heard == [("reasoning", "Hm"), ("reasoning", ", so")]


def test_the_rest_of_a_text_behind_which_something_else_was_said_stands_beside() -> None:
    """In the text it would stand in the wrong place."""
    output = (message("m", "Hello world."), message("n", "Bye."))
    made = recorded(CREATED, delta("Hello "), delta("Bye.", 1), completed(*output), closed=False)
    beside = {"kind": "text", "item": 0, "part": 0, "text": "Hello world."}
    assert made == [
        ("token", "Hello "),
        ("token", "Bye."),
        ("event", "unheard", beside),
        ("finish", "completed"),
        ("end",),
    ]


def test_a_text_that_is_done_and_of_which_not_the_beginning_was_heard_stands_beside() -> None:
    made = recorded(CREATED, delta("world."), done(0, LONG), closed=False)
    beside = {"kind": "text", "item": 0, "part": 0, "text": "Hello world."}
    assert [one for one in made if one[0] == "event"] == [("event", "unheard", beside)]


def test_arguments_that_are_done_are_as_long_as_they_say() -> None:
    one = call("c", '{"a": 1}')
    added = {"type": ADDED, "output_index": 0, "item": one | {"arguments": ""}}
    piece = {"type": ARGUMENTS, "output_index": 0, "delta": '{"a"'}
    over = {"type": "response.function_call_arguments.done", "output_index": 0}
    begun = [("tool", "f", {"call_id": "c"}), ("tool_arguments", '{"a"', {"call_id": "c"})]
    rest = ("tool_arguments", ": 1}", {"call_id": "c"})
    for events in ([done(0, one)], [over | {"arguments": '{"a": 1}'}, done(0, one)]):
        assert said(added, piece, *events, completed()) == [*begun, rest]
