"""Calls of servers whose ids, inputs or ends are odd: each is one call, said once."""

from __future__ import annotations

from typing import Any

import pytest
from unit.test_adapters_odd_bodies import DONE, STARTED, STOP, chunk, recorded


def calling(index: int, call_id: str | None, name: str | None, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return chunk({"tool_calls": [{"index": index, "id": call_id, "function": function}]})


def calls(*events: object) -> dict[str, list[Any]]:
    """Name and arguments of each call, as a reader of the reply has them."""
    found: dict[str, list[Any]] = {}
    for said in recorded(*events):
        if said[0] == "tool":
            call = found.setdefault(said[-1]["call_id"], ["", ""])
            call[0] = said[1]
            call[1] = said[2] if len(said) == 4 else call[1]
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
        assert calls(*deltas, STOP, DONE) == {"k": ["f", '{"a":1}'], "c1:1": ["f", '{"b":2}']}


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
def test_a_finish_reason_that_is_an_error(end: list[bytes]) -> None:
    said = recorded(chunk({"content": "a"}), chunk({}, "error"), chunk({"content": "b"}), *end)
    about = {"kind": "finish_reason_error", "detail": None}
    assert said == [
        ("token", "a"),
        ("token", "b"),
        ("error", "the finish reason is 'error'", about),
    ]
