"""Calls of servers whose ids, inputs or ends are odd: each is one call, said once."""

from __future__ import annotations

from typing import Any

import pytest
from unit.client.adapters.wires.test_adapters_odd_bodies import (
    CREATED,
    DONE,
    HELLO,
    STARTED,
    STOP,
    chunk,
    completed,
    done,
    recorded,
)
from walld_client.adapters.wires import wire
from walld_client.adapters.wires.call_names import CallNames

from walld.replies import verdict

ADDED = "response.output_item.added"
ARGUMENTS = "response.function_call_arguments.delta"
ARGUMENTS_DONE = "response.function_call_arguments.done"


def calling(index: int, call_id: str | None, name: str | None, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return chunk({"tool_calls": [{"index": index, "id": call_id, "function": function}]})


def calls(*events: object, closed: bool = True) -> dict[str, list[Any]]:
    """Name and arguments of each call, as a reader of the reply has them."""
    found: dict[str, list[Any]] = {}
    for said in recorded(*events, closed=closed):
        if said[0] == "tool":
            call = found.setdefault(said[-1]["call_id"], ["", ""])
            call[0] = said[1]
            call[1] = call[1] if len(said) < 4 or said[2] is None else said[2]
        elif said[0] == "tool_arguments":
            found[said[-1]["call_id"]][1] += said[1]
    return found


def test_an_id_that_is_drawn_anew_for_each_delta() -> None:
    deltas = [
        calling(0, "k1", "f", ""),
        calling(0, "k2", None, '{"a"'),
        calling(0, "k3", "", ":1}"),
    ]
    assert calls(*deltas, STOP, DONE) == {"k1": ["f", '{"a":1}']}


def test_an_id_that_comes_late() -> None:
    deltas = [calling(0, None, "f", '{"a"'), calling(0, "k", None, ":1"), calling(0, "k", "f", "}")]
    assert calls(*deltas, STOP, DONE) == {"c1:0": ["f", '{"a":1}']}


def test_two_calls_of_one_id() -> None:
    begun = [calling(0, "k", "f", '{"a"'), calling(1, "k", "f", '{"b"')]
    for ids in ("k", None):
        deltas = [*begun, calling(1, ids, None, ":2}"), calling(0, ids, None, ":1}")]
        assert calls(*deltas, STOP, DONE) == {"k": ["f", '{"a":1}'], "k#2": ["f", '{"b":2}']}


def test_two_calls_of_one_id_say_which_it_was() -> None:
    said = recorded(calling(0, "k", "f", ""), calling(1, "k", "g", ""), STOP, DONE)
    assert [one for one in said if one[0] == "tool"] == [
        ("tool", "f", {"call_id": "k"}),
        ("tool", "g", {"call_id": "k#2", "given_id": "k"}),
    ]


def test_a_name_that_a_provider_has_for_an_id_is_no_other_calls() -> None:
    names = CallNames()
    begun = [names.begin(one)[0] for one in ("k#2", "k", "k", "k", "k#2")]
    assert begun == ["k#2", "k", "k#3", "k#4", "k#2#2"]


def block(index: int, name: str, call_id: str = "k", **given: int) -> dict[str, Any]:
    about = {"type": "tool_use", "id": call_id, "name": name, "input": given}
    return {"type": "content_block_start", "index": index, "content_block": about}


def piece(index: int, text: str) -> dict[str, Any]:
    delta = {"type": "input_json_delta", "partial_json": text}
    return {"type": "content_block_delta", "index": index, "delta": delta}


@pytest.mark.parametrize("index", [0, 1])
def test_two_calls_of_one_id_of_anthropic(index: int) -> None:
    """Also where a proxy gives both blocks the index 0."""
    begun = [STARTED, block(0, "f"), piece(0, '{"a":1}'), block(index, "g"), piece(index, "{}")]
    assert calls(*begun) == {"k": ["f", '{"a":1}'], "k#2": ["g", "{}"]}


def test_two_calls_of_one_id_of_anthropic_of_which_one_begins_whole() -> None:
    begun = [STARTED, block(0, "f", a=1), block(0, "g"), piece(0, "{}")]
    assert calls(*begun) == {"k": ["f", {"a": 1}], "k#2": ["g", "{}"]}


def item(item_id: str | None, name: str, arguments: str = "") -> dict[str, Any]:
    about = {"type": "function_call", "call_id": "k", "name": name, "arguments": arguments}
    return about if item_id is None else {**about, "id": item_id}


@pytest.mark.parametrize("at_end", ["the same order", "another order", "nothing"])
@pytest.mark.parametrize("ids", ["own ids", "one id", "no ids"])
def test_two_calls_of_one_id_of_responses(ids: str, at_end: str) -> None:
    own = {"own ids": ("i", "j"), "one id": ("i", "i"), "no ids": (None, None)}[ids]
    events: list[dict[str, Any]] = [CREATED]
    output = []
    for index, (name, text) in enumerate((("f", '{"a":1}'), ("g", '{"b":2}'))):
        about = {"output_index": index} | ({} if own[index] is None else {"item_id": own[index]})
        events.append({"type": ADDED, **about, "item": item(own[index], name)})
        events.append({"type": ARGUMENTS, **about, "delta": text})
        events.append({"type": ARGUMENTS_DONE, **about, "arguments": text})
        output.append(item(own[index], name, text))
        events.append(done(index, output[-1]))
    if at_end == "another order":
        output.reverse()
    events.append(completed(*(() if at_end == "nothing" else output)))
    assert calls(*events, closed=False) == {"k": ["f", '{"a":1}'], "k#2": ["g", '{"b":2}']}


@pytest.mark.parametrize("index", [0, 1])
def test_two_calls_of_one_id_of_responses_that_nothing_but_their_items_tell(index: int) -> None:
    """A proxy may give both the index 0."""
    items = [item("i", "f", '{"a":1}'), item("j", "g", '{"b":2}')]
    for events in ([done(0, items[0]), done(index, items[1])], [completed(*items)]):
        made = calls(CREATED, *events, closed=False)
        assert made == {"k": ["f", '{"a":1}'], "k#2": ["g", '{"b":2}']}


def test_calls_that_all_have_the_index_0_and_take_turns() -> None:
    deltas = [calling(0, "k", "f", "1"), calling(0, "l", "g", "2"), calling(0, "k", None, "3")]
    assert calls(*deltas, STOP, DONE) == {"k": ["f", "13"], "l": ["g", "2"]}


def test_a_call_of_anthropic_that_begins_whole_and_is_streamed_all_the_same() -> None:
    block = {"type": "tool_use", "id": "k", "name": "f", "input": {"a": 1}}
    start = {"type": "content_block_start", "index": 0, "content_block": block}
    pieces = [
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": piece},
        }
        for piece in ("", '{"a":', "1}")
    ]
    stop = {"type": "content_block_stop", "index": 0}
    assert calls(STARTED, start, *pieces, stop) == {"k": ["f", '{"a":1}']}
    assert calls(STARTED, start, pieces[0], stop) == {"k": ["f", {"a": 1}]}


@pytest.mark.parametrize("end", [[DONE], []])
@pytest.mark.parametrize(
    "reason",
    ["error", "ERROR", "network_error", "abort", "malformed_tool_use", "UNEXPECTED_TOOL_CALL"],
)
def test_a_finish_reason_that_is_an_error(reason: str, end: list[bytes]) -> None:
    said = recorded(chunk({"content": "a"}), chunk({}, reason), chunk({"content": "b"}), *end)
    about = {"kind": "finish_reason_error", "detail": None}
    assert said == [
        ("token", "a"),
        ("token", "b"),
        ("error", f"the finish reason is '{reason}'", about),
    ]


def test_a_finish_reason_that_is_an_error_on_the_other_wires() -> None:
    about = {"kind": "finish_reason_error", "detail": None}
    said = recorded(
        STARTED,
        {"type": "message_delta", "delta": {"stop_reason": "network_error"}},
        {"type": "message_stop"},
    )
    assert said[-1] == ("error", "the finish reason is 'network_error'", about)
    details = {"status": "incomplete", "incomplete_details": {"reason": "error"}}
    last = {"type": "response.incomplete", "response": {"id": "r", **details}}
    said = recorded(CREATED, HELLO, last)
    assert said[-1] == ("error", "the finish reason is 'error'", about)


def test_a_finish_reason_that_nobody_knows_is_an_end() -> None:
    said = recorded(chunk({"content": "a"}), chunk({}, "a word of its own"), DONE)
    assert said == [("token", "a"), ("finish", "a word of its own"), ("end",)]


def test_the_daemon_takes_the_same_reasons_for_errors() -> None:
    words = {word for word, kind in verdict._FINISH_CLASSES.items() if kind == "provider_error"}
    assert words == wire._FAILURES


@pytest.mark.parametrize("last", ["response.completed", "response.incomplete", None])
def test_what_comes_behind_an_error_of_responses(last: str | None) -> None:
    """The SDK hands it on too; the response has failed all the same."""
    error = {"type": "error", "code": "x", "message": "y", "sequence_number": 3}
    events: list[dict[str, Any]] = [CREATED, HELLO, error, HELLO]
    if last is not None:
        events.append({**completed(), "type": last})
    assert recorded(*events) == [
        ("token", "hello"),
        ("token", "hello"),
        ("error", "y", {"kind": "x", "detail": {"code": "x"}}),
    ]
