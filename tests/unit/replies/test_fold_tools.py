"""Items to a reply: calls of tools, their arguments and their results."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reply_items import folded, happened, result, text, tool
from walld_client.wire import messages as wire

from walld.wal.records import Happened, Item


def test_a_tool_call_is_put_together() -> None:
    reply = folded(
        tool(1, "c", "search"),
        happened(wire.ToolArguments(1, 2, "c", b'{"q":')),
        happened(wire.ToolArguments(1, 3, "c", b'"x"}')),
        result(4, "c", None, b'{"n":1}', json=True, info=b"\x01"),
    )
    (call,) = reply.segments
    assert (call.call_id, call.name, call.arguments) == ("c", "search", b'{"q":"x"}')
    assert (call.arguments_complete, call.outcome) == (True, "done")
    assert (call.result, call.result_json, call.info) == (b'{"n":1}', True, b"\x01")
    assert (call.first_seq, call.last_seq, call.at_ms) == (1, 4, 100)


def test_a_tool_event_of_the_same_id_is_an_update() -> None:
    reply = folded(
        happened(wire.Tool(1, 1, "c", "search", b'{"q"', b"\x01", 9)),
        happened(wire.Tool(1, 2, "c", "find")),
        happened(wire.Tool(1, 3, "c", "find", b'{"q":1}', b"\x02")),
    )
    (call,) = reply.segments
    assert (call.name, call.arguments, call.arguments_complete) == ("find", b'{"q":1}', True)
    assert (call.info, call.truncated_from) == (b"\x02", 0)
    kept = folded(
        happened(wire.Tool(1, 1, "c", "search", b'{"q"', b"\x01", 9)), tool(2, "c", "search")
    ).segments[0]
    assert (kept.arguments, kept.truncated_from, kept.info) == (b'{"q"', 9, b"\x01")


def test_an_id_used_again_in_a_later_step_is_another_call() -> None:
    reply = folded(
        tool(1, "call_0", "a"),
        result(2, "call_0", None),
        happened(wire.Step(1, 3)),
        tool(4, "call_0", "b"),
        result(5, "call_0", None, failed=True),
    )
    assert [(one.name, one.step, one.outcome) for one in reply.segments] == [
        ("a", 0, "done"),
        ("b", 1, "failed"),
    ]


def step(seq: int) -> Happened:
    return happened(wire.Step(1, seq))


def finish(seq: int) -> Happened:
    return happened(wire.Finish(1, seq, "tool_calls"))


def delta(seq: int, call_id: str, piece: bytes) -> Happened:
    return happened(wire.ToolArguments(1, seq, call_id, piece))


def answered(seq: int) -> Happened:
    return result(seq, "c", None)


def calls_of(*items: Item) -> list[tuple[int, int, bytes | None, str | None]]:
    """First seq, step, arguments and outcome of each."""
    told = folded(*items).segments
    return [(one.first_seq, one.step, one.arguments, one.outcome) for one in told]


@pytest.mark.parametrize("parted", [step, finish, answered])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_id_that_comes_again_in_a_later_answer_is_another_call(
    parted: Callable[[int], Happened], is_streamed: bool
) -> None:
    """Servers that number calls anew in each answer; nobody said what the first one gave."""

    def said(seq: int, arguments: bytes) -> list[Happened]:
        if not is_streamed:
            return [tool(seq, "c", "sh", arguments)]
        cut = len(arguments) // 2
        pieces = [delta(seq + 1, "c", arguments[:cut]), delta(seq + 2, "c", arguments[cut:])]
        return [tool(seq, "c", "sh"), *pieces]

    found = calls_of(*said(1, b'{"a":1}'), parted(4), *said(5, b'{"a":2}'))
    found = [one for one in found if one[2] is not None]
    first, number = "done" if parted is answered else "unknown", int(parted is step)
    assert found == [(1, 0, b'{"a":1}', first), (5, number, b'{"a":2}', "unknown")]


def test_the_end_of_an_answer_ends_no_call_that_is_not_over() -> None:
    """A hand-written loop says the finish before the piece that came with it, or a call again."""
    piecewise = (tool(1, "c", "sh"), delta(2, "c", b'{"a":'), finish(3), delta(4, "c", b"1}"))
    assert calls_of(*piecewise) == [(1, 0, b'{"a":1}', "unknown")]
    again = tool(3, "c", "sh", b'{ "a": 1 }')
    assert calls_of(tool(1, "c", "sh", b'{"a":1}'), finish(2), again) == [
        (1, 0, b'{ "a": 1 }', "unknown")
    ]
    another = tool(3, "c", "ls", b'{"a":1}')
    assert len(calls_of(tool(1, "c", "sh", b'{"a":1}'), finish(2), another)) == 2


def test_pieces_alone_in_a_later_answer_are_of_a_call_whose_name_is_lost() -> None:
    for parted in (step, finish, answered):
        told = folded(tool(1, "c", "sh", b"{}"), parted(2), delta(3, "c", b'{"a":2}')).segments
        assert [(one.name, one.arguments) for one in told] == [("sh", b"{}"), (None, b'{"a":2}')]


def test_a_step_that_is_begun_anew_leaves_an_id_to_the_steps_before_it() -> None:
    begun_anew = (tool(1, "c", "sh", b"{}"), step(2), tool(3, "c", "sh"), answered(4))
    begun_anew += (tool(5, "c", "sh"), happened(wire.Retry(1, 6, step=True)), answered(7))
    told = folded(*begun_anew).segments
    assert [(one.first_seq, one.attempt, one.outcome) for one in told] == [
        (1, 1, "done"),
        (3, 0, "done"),
        (5, 0, "unknown"),
    ]


def test_of_two_open_calls_of_one_id_neither_is_certain() -> None:
    told = folded(tool(1, "c", "sh"), step(2), tool(3, "c", "sh"), result(4, None, None)).segments
    assert [one.kind for one in told] == ["tool", "tool", "tool_result"]


def test_a_result_without_id_goes_to_the_newest_open_call_of_that_name() -> None:
    calls = [tool(1, "c1", "t"), tool(2, "c2", "t"), tool(3, "c3", "u")]
    reply = folded(*calls, result(4, None, "t", b"second"), result(5, None, "t", b"first"))
    assert [(one.call_id, one.result) for one in reply.segments] == [
        ("c1", b"first"),
        ("c2", b"second"),
        ("c3", None),
    ]
    reply = folded(*calls, result(4, "c2", None, b"by id"), result(5, None, "t", b"by name"))
    assert [one.result for one in reply.segments] == [b"by name", b"by id", None]
    renamed = folded(tool(1, "c", "t"), tool(2, "c", "u"), result(3, None, "t"))
    assert [one.kind for one in renamed.segments] == ["tool", "tool_result"]


def test_a_result_with_neither_needs_a_single_open_call() -> None:
    one_open = folded(tool(1, "c1", "t"), result(2, "c1", None), tool(3, "c2", "u"),
                      result(4, None, None, b"x"))  # fmt: skip
    assert [one.result for one in one_open.segments] == [b"ok", b"x"]
    two_open = folded(tool(1, "c1", "t"), tool(2, "c2", "u"), result(3, None, None))
    assert [one.kind for one in two_open.segments] == ["tool", "tool", "tool_result"]


def test_an_orphan_result_is_its_own_segment() -> None:
    reply = folded(text(1, "a"), result(2, "nobody", "t", b"r", failed=True, truncated_from=7))
    orphan = reply.segments[1]
    assert (orphan.kind, orphan.call_id, orphan.name) == ("tool_result", "nobody", "t")
    assert (orphan.result, orphan.outcome, orphan.truncated_from) == (b"r", "failed", 7)


def test_a_later_result_of_the_same_call_replaces_the_earlier() -> None:
    reply = folded(tool(1, "c", "t"), result(2, "c", None, b"50 %"), result(3, "c", None, b"all"))
    assert [one.result for one in reply.segments] == [b"all"]


def test_arguments_of_a_call_that_was_lost_open_one_without_a_name() -> None:
    reply = folded(happened(wire.ToolArguments(1, 3, "c", b"{}")))
    assert [(one.kind, one.call_id, one.name) for one in reply.segments] == [
        ("gap", None, None),
        ("tool", "c", None),
    ]


@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        (None, False),
        (b"", False),
        (b"{}", True),
        (b' {"a": [1, 2.5, null, true, "x"]} ', True),
        (b'{"a": 1', False),
        (b'{"a": 1}}', False),
        (b'{"a": NaN}', False),
        (b'"text"', True),
        (b'{"a": "\\ud83d"}', True),
        ('{"a": "\ud83d"}'.encode("utf-8", "surrogatepass"), True),
        (b'{"a": "\xff"}', False),
        (b"[" * 100_000, False),
        (b"[" * 100_000 + b"]" * 100_000, False),
    ],
)
def test_whole_arguments(arguments: bytes | None, whole: bool) -> None:
    assert folded(tool(1, "c", "t", arguments)).segments[0].arguments_complete is whole


@pytest.mark.parametrize("has_finished", [False, True])
@pytest.mark.parametrize("of_step", [False, True])
def test_what_was_said_in_steps_that_had_ended_before_a_retry(
    has_finished: bool, of_step: bool
) -> None:
    """Calls of those may have run; of a step that was cut nobody ran one."""
    items = [tool(1, "c1", "x"), happened(wire.Step(1, 2)), tool(3, "c2", "x")]
    if has_finished:
        items.append(happened(wire.Finish(1, 4, "tool_calls")))
    items.append(happened(wire.Retry(1, 5, step=of_step)))
    ended: set[int] = set()
    reply = folded(*items, tool(6, "c3", "x"), ended_before_retry=ended)
    assert ended == (set() if of_step else {1}) | ({3} if has_finished else set())
    assert ended <= {one.first_seq for one in reply.segments if one.attempt == 0}
