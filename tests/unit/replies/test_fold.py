"""Items to a reply: text, steps, ends, and the cases of replies and recovery."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from reply_items import BEGIN, REASONING, TOKEN, end, folded, happened, result, text, tool
from walld_client.wire import messages as wire

from walld.errors import FormatError
from walld.replies.merge import in_order, merge, token_sizes
from walld.wal.records import Happened, Text


def shape(reply: wire.Recovered) -> list[tuple[Any, ...]]:
    return [
        (one.kind, one.step, one.attempt, one.first_seq, one.last_seq, one.text)
        for one in reply.segments
    ]


def test_what_the_stream_is_comes_from_begin() -> None:
    reply = folded()
    assert (reply.stream_id, reply.session_id, reply.uid) == ("stream", "session", 1000)
    assert (reply.turn_id, reply.parent, reply.meta) == ("turn", "parent", b"\x80")
    assert (reply.started_at_ms, reply.last_event_at_ms) == (50, 50)
    assert (reply.last_seq, reply.events, reply.attempts) == (0, 0, 1)
    assert (reply.gaps, reply.segments) == ([], [])
    assert (reply.partial, reply.partial_reason) == (True, "answer_missing")


def test_consecutive_text_is_one_segment() -> None:
    reply = folded(text(1, "Hel", "lo "), text(3, "world."))
    assert shape(reply) == [("text", 0, 0, 1, 3, b"Hello world.")]
    assert reply.segments[0].at_ms == 100
    assert (reply.last_seq, reply.events, reply.last_event_at_ms) == (3, 3, 300)
    assert not reply.partial


def test_reasoning_and_text_stay_apart() -> None:
    reply = folded(text(1, "hm", kind=REASONING), text(2, "a."), text(3, "oh", kind=REASONING))
    assert [one[0] for one in shape(reply)] == ["reasoning", "text", "reasoning"]


def test_tokens_with_info_are_joined_only_to_their_like() -> None:
    def token(seq: int, value: bytes, info: bytes | None) -> Happened:
        return happened(wire.Token(1, seq, value, info))

    reply = folded(text(1, "a"), token(2, b"b", None), token(3, b"c", b"\x01"), text(4, "d"))
    assert [(one.text, one.info) for one in reply.segments] == [
        (b"ab", None),
        (b"c", b"\x01"),
        (b"d", None),
    ]
    reply = folded(*[happened(wire.Reasoning(1, n, b"r", b"\x01")) for n in (1, 2)])
    assert [(one.kind, one.text) for one in reply.segments] == [("reasoning", b"rr")]


def test_the_same_text_before_and_after_a_tool_stays_two_segments() -> None:
    reply = folded(text(1, "same"), tool(2, "c", "t"), result(3, "c", None), text(4, "same"))
    assert [(one[0], one[5]) for one in shape(reply)] == [
        ("text", b"same"),
        ("tool", b""),
        ("text", b"same"),
    ]
    reply = folded(tool(1, "c", "t"), text(2, "same"), result(3, "c", None), text(4, "same"))
    assert [one[0] for one in shape(reply)] == ["tool", "text", "text"]


def test_whatever_happens_to_a_call_parts_the_text_around_it() -> None:
    between = (happened(wire.ToolArguments(1, 3, "c", b"{}")), tool(3, "c", "t", b"{}"))
    for event in between:
        reply = folded(tool(1, "c", "t"), text(2, "a"), event, text(4, "b"))
        assert [one[0] for one in shape(reply)] == ["tool", "text", "text"]


def test_two_steps() -> None:
    reply = folded(
        text(1, "a", kind=REASONING),
        text(2, "b"),
        tool(3, "c1", "t", b"{}"),
        result(4, "c1", "t"),
        happened(wire.Step(1, 5)),
        text(6, "c", kind=REASONING),
        text(7, "d"),
    )
    assert [(one.kind, one.step) for one in reply.segments] == [
        ("reasoning", 0),
        ("text", 0),
        ("tool", 0),
        ("reasoning", 1),
        ("text", 1),
    ]
    assert reply.partial_reason == "mid_sentence"


def test_five_endings_read_differently() -> None:
    said = text(1, "It is so.")
    clean = folded(said, end(2, finish_reason="stop"))
    cancelled = folded(said, end(2, clean=False, reason="user"))
    detail = msgspec.msgpack.encode({"code": 401})
    errored = folded(said, happened(wire.AppError(1, 2, "no key", "auth", detail)))
    limited = folded(said, happened(wire.Finish(1, 2, "tool_limit_reached")))
    killed = folded(said)
    readings = [
        (one.status, one.lost_reason, one.finish_reason, one.error and one.error.kind)
        for one in (clean, cancelled, errored, limited, killed)
    ]
    assert readings == [
        ("complete", None, "stop", None),
        ("cancelled", "user", None, None),
        ("errored", None, None, "auth"),
        ("crashed", "process_gone", "tool_limit_reached", None),
        ("crashed", "process_gone", None, None),
    ]
    assert errored.error == wire.ReplyError("no key", "auth", detail)
    assert folded(said, happened(wire.AppError(1, 2, "x")), end(3)).status == "errored"


def test_the_first_terminal_wins_and_what_follows_only_counts() -> None:
    reply = folded(
        text(1, "a."),
        end(2, clean=False, reason="abandoned"),
        text(3, "late"),
        end(4),
        happened(wire.AppError(1, 5, "late")),
        tool(7, "c", "late"),
        happened(wire.Release(1, 8)),
    )
    assert shape(reply) == [("text", 0, 0, 1, 1, b"a.")]
    assert (reply.status, reply.lost_reason, reply.error) == ("cancelled", "abandoned", None)
    assert (reply.last_seq, reply.events, reply.last_event_at_ms) == (8, 7, 200)
    assert reply.gaps == [], "nothing of the reply is missing after its end"


def test_live_and_crashed() -> None:
    said = text(1, "a.")
    live = folded(said, live=True, owner_alive=True, lost_reason="unused")
    assert (live.status, live.owner_alive, live.lost_reason) == ("live", True, None)
    ended = folded(said, end(2), owner_alive=True)
    assert (ended.status, ended.owner_alive, ended.lost_reason) == ("complete", True, None)


def test_reasoning_only_and_tool_only() -> None:
    reply = folded(text(1, "hm", kind=REASONING))
    assert (reply.partial, reply.partial_reason) == (True, "answer_missing")
    reply = folded(tool(1, "c", "rm", b"{}"))
    assert [(one.kind, one.outcome) for one in reply.segments] == [("tool", "unknown")]
    assert reply.partial_reason == "tool_open"


def test_cancel_keeps_text_reasoning_and_an_open_tool() -> None:
    reply = folded(
        text(1, "a"),
        text(2, "b", kind=REASONING),
        tool(3, "c", "t", b"{"),
        end(4, clean=False, reason="user"),
        text(5, "late"),
        happened(wire.Release(1, 6)),
    )
    assert [one.kind for one in reply.segments] == ["text", "reasoning", "tool"]
    assert reply.segments[2].outcome == "unknown"
    assert reply.partial_reason == "tool_arguments"


def test_an_error_keeps_what_was_said() -> None:
    reply = folded(text(1, "a"), happened(wire.AppError(1, 2, "boom")))
    assert [one.text for one in reply.segments] == [b"a"]
    assert folded(happened(wire.AppError(1, 1, "boom"))).segments == []


def test_a_retry_keeps_the_attempt_before_apart() -> None:
    reply = folded(text(1, "Hel"), happened(wire.Retry(1, 2, "overloaded")), text(3, "Hello."))
    assert shape(reply) == [("text", 0, 0, 1, 1, b"Hel"), ("text", 0, 1, 3, 3, b"Hello.")]
    assert reply.attempts == 2
    assert not reply.partial


def test_a_retry_starts_again_at_step_0_and_forgets_open_calls() -> None:
    reply = folded(
        tool(1, "c", "t", b"{"),
        happened(wire.Step(1, 2)),
        text(3, "a"),
        happened(wire.Retry(1, 4)),
        tool(5, "c", "t"),
        result(6, None, "t"),
        result(7, None, "t"),
        text(8, "Done."),
    )
    assert [(one.kind, one.step, one.attempt, one.outcome) for one in reply.segments] == [
        ("tool", 0, 0, "unknown"),
        ("text", 1, 0, None),
        ("tool", 0, 1, "done"),
        ("tool_result", 0, 1, "done"),
        ("text", 0, 1, None),
    ]
    assert not reply.partial, "an open call of a finished attempt is no evidence"


def test_a_step_that_is_done_again_leaves_the_steps_before_it() -> None:
    """Their calls and results too, whatever came of the step in between."""
    again = wire.Retry(1, 7, "cut", True)
    reply = folded(
        tool(1, "c", "t", b"{}"),
        result(2, "c", None),
        happened(wire.Step(1, 3)),
        text(4, "Hel"),
        tool(5, "c", "t", b"[]"),
        tool(6, "d", "u", b"{}"),
        happened(again),
        text(8, "Hell"),
        happened(wire.Retry(1, 9, None, True)),
        text(10, "Hello."),
    )
    assert shape(reply) == [
        ("tool", 0, 2, 1, 2, b""),
        ("text", 1, 0, 4, 4, b"Hel"),
        ("tool", 1, 0, 5, 5, b""),
        ("tool", 1, 0, 6, 6, b""),
        ("text", 1, 1, 8, 8, b"Hell"),
        ("text", 1, 2, 10, 10, b"Hello."),
    ]
    assert (reply.attempts, reply.partial) == (3, False)


def test_where_steps_and_attempts_begin_is_told_with_what_was_said_there() -> None:
    """A step that is done again begins in both attempts; those before it in the last alone."""

    def step(seq: int, info: bytes | None = None) -> Happened:
        return happened(wire.Step(1, seq, info))

    reply = folded(
        text(1, "a"),
        step(2, b"\x01"),
        text(3, "b"),
        step(4),
        text(5, "c"),
        happened(wire.Retry(1, 6, "cut", True)),
        text(7, "c"),
    )
    told = [(one.attempt, one.step, one.seq, one.info) for one in reply.steps]
    assert told == [(0, 2, 4, None), (1, 1, 2, b"\x01"), (1, 2, 4, None)]
    assert [(one.attempt, one.seq, one.reason, one.step) for one in reply.retries] == [
        (1, 6, "cut", True)
    ]
    whole = folded(
        happened(wire.Retry(1, 1, "at once", True)),
        text(2, "a"),
        step(3, b"\x01"),
        happened(wire.Retry(1, 4)),
        text(5, "a"),
        step(6, b"\x02"),
    )
    told = [(one.attempt, one.step, one.seq, one.info) for one in whole.steps]
    assert told == [(1, 1, 3, b"\x01"), (2, 1, 6, b"\x02")]
    assert [(one.attempt, one.reason) for one in whole.retries] == [(1, "at once"), (2, None)]


def test_a_step_that_is_done_again_has_not_finished() -> None:
    finish = happened(wire.Finish(1, 2, "stop"))
    reply = folded(text(1, "a."), finish, happened(wire.Retry(1, 3, None, True)), text(4, "b."))
    assert (reply.finish_reason, reply.partial_reason) == (None, "finish_missing")


def test_calls_of_a_step_that_is_done_again_get_no_result() -> None:
    """Neither by id, which the earlier call has back, nor by name, nor as the only open one."""
    for name, call_id in (("t", None), (None, "c"), (None, None)):
        reply = folded(
            tool(1, "c", "t"),
            happened(wire.Step(1, 2)),
            happened(wire.Retry(1, 3, None, True)),
            happened(wire.Step(1, 4)),
            tool(5, "d", "t"),
            happened(wire.Retry(1, 6, None, True)),
            result(7, call_id, name),
        )
        assert [(one.call_id, one.attempt, one.outcome) for one in reply.segments] == [
            ("c", 2, "done"),
            ("d", 1, "unknown"),
        ], (name, call_id)
    reply = folded(
        tool(1, "c", "t"),
        result(2, "c", None),
        happened(wire.Step(1, 3)),
        tool(4, "c", "t"),
        happened(wire.Retry(1, 5, None, True)),
        result(6, "c", None, failed=True),
    )
    assert [(one.attempt, one.outcome) for one in reply.segments] == [
        (1, "failed"),
        (0, "unknown"),
    ]


def test_a_whole_retry_behind_one_of_a_step_takes_all() -> None:
    reply = folded(
        text(1, "a"),
        happened(wire.Step(1, 2)),
        text(3, "b"),
        happened(wire.Retry(1, 4, None, True)),
        text(5, "c"),
        happened(wire.Retry(1, 6)),
        text(7, "d."),
    )
    assert shape(reply) == [
        ("text", 0, 1, 1, 1, b"a"),
        ("text", 1, 0, 3, 3, b"b"),
        ("text", 1, 1, 5, 5, b"c"),
        ("text", 0, 2, 7, 7, b"d."),
    ]


def test_a_late_result_behind_a_whole_retry_is_of_the_newest_call_of_its_id() -> None:
    reply = folded(
        tool(1, "c", "t"),
        result(2, "c", None),
        happened(wire.Step(1, 3)),
        tool(4, "c", "t"),
        happened(wire.Retry(1, 5)),
        result(6, "c", None),
    )
    assert [(one.step, one.attempt, one.last_seq) for one in reply.segments] == [
        (0, 0, 2),
        (1, 0, 6),
    ]


def test_a_retry_from_before_it_had_a_step_is_of_the_whole_run() -> None:
    old = msgspec.msgpack.decode(b"\x94\x0b\x01\x02\xc0", type=wire.Retry)
    assert old == wire.Retry(1, 2, None, False)


def test_custom_events_stand_where_they_were_said() -> None:
    reply = folded(text(1, "a"), happened(wire.Custom(1, 2, "cost", b"\x05", 9)), text(3, "b"))
    assert [one.kind for one in reply.segments] == ["text", "custom", "text"]
    custom = reply.segments[1]
    assert (custom.name, custom.result, custom.truncated_from) == ("cost", b"\x05", 9)


def test_move_changes_the_session_and_nothing_else() -> None:
    reply = folded(text(1, "a"), happened(wire.Move(1, 2, "next")), text(3, "b"))
    assert reply.session_id == "next"
    assert shape(reply) == [("text", 0, 0, 1, 3, b"ab")]


def test_a_finish_belongs_to_its_message() -> None:
    finish = happened(wire.Finish(1, 2, "tool_calls"))
    assert folded(text(1, "a."), finish).partial_reason == "provider_paused"
    stepped = folded(text(1, "a."), finish, happened(wire.Step(1, 3)), text(4, "b."))
    assert (stepped.finish_reason, stepped.partial_reason) == (None, "finish_missing")
    whole = folded(text(1, "a."), happened(wire.Finish(1, 2, "stop")))
    assert (whole.status, whole.partial) == ("crashed", False)
    went_on = folded(text(1, "a"), happened(wire.Finish(1, 2, "length")), text(3, "b."), end(4))
    assert (went_on.status, went_on.partial) == ("complete", False)
    cut = folded(text(1, "a"), end(2, finish_reason="length"))
    assert (cut.status, cut.partial_reason) == ("complete", "provider_length")
    both = folded(text(1, "a"), happened(wire.Finish(1, 2, "stop")), end(3, finish_reason="x"))
    assert both.finish_reason == "x"


# --- seqs -----------------------------------------------------------------------------------------


def test_a_hole_is_a_gap_between_and_nothing_is_joined_over_it() -> None:
    asked = []

    def verdicts(first_seq: int, last_seq: int) -> str:
        asked.append((first_seq, last_seq))
        return "dropped"

    reply = folded(text(1, "a"), text(4, "b"), tool(7, "c", "t"), gap_verdicts=verdicts)
    assert shape(reply)[:4] == [
        ("text", 0, 0, 1, 1, b"a"),
        ("gap", 0, 0, 2, 3, b""),
        ("text", 0, 0, 4, 4, b"b"),
        ("gap", 0, 0, 5, 6, b""),
    ]
    assert asked == [(2, 3), (5, 6)]
    assert reply.gaps == [wire.Gap(2, 3, "dropped"), wire.Gap(5, 6, "dropped")]
    assert (reply.segments[1].verdict, reply.segments[1].at_ms) == ("dropped", 400)
    assert (reply.partial_reason, reply.events, reply.last_seq) == ("gap", 3, 7)


def test_a_hole_at_the_beginning_and_before_the_end() -> None:
    reply = folded(text(3, "a."), end(5))
    assert reply.gaps == [wire.Gap(1, 2, "unknown"), wire.Gap(4, 4, "unknown")]
    assert (reply.status, reply.partial_reason) == ("complete", "gap")


def test_start_and_begin_among_the_items_are_no_events() -> None:
    start = Happened(1, wire.Start(1, 0, "stream", "session"))
    assert folded(start, BEGIN, text(1, "a."), BEGIN) == folded(text(1, "a."))


def test_what_was_seen_is_dropped_also_inside_a_run() -> None:
    whole = folded(text(1, "a", "bb", "", "ccc", "d"))
    assert folded(text(1, "a", "bb"), text(1, "a", "bb", "", "ccc", "d", at_ms=100)) == whole
    cut = folded(text(1, "a", "bb", "", at_ms=100), text(2, "bb", "", "ccc", "d", at_ms=100))
    assert cut == whole
    assert folded(text(1, "a", "bb", "", "ccc", "d"), text(2, "bb")) == whole
    late = folded(text(4, "ccc", "d", at_ms=100), text(1, "a", "bb", ""))
    assert late == whole, "order is by seq"


def test_a_cut_reads_lengths_of_more_than_one_byte() -> None:
    tokens = ["x" * 300, "y" * 127, "z" * 128, "w"]
    run = text(1, *tokens)
    assert token_sizes(run.lengths) == [300, 127, 128, 1]
    for seen in range(1, 4):
        kept = in_order([text(1, *tokens[:seen]), run])[-1]
        assert isinstance(kept, Text)
        assert kept == text(seen + 1, *tokens[seen:], at_ms=100)


@pytest.mark.parametrize(
    "damaged",
    [
        Text(1, 0, b"\x01\x00", b"ab"),
        Text(1, 0, b"\x01\x05", b"ab"),
        Text(1, 0, b"\x01\x81\x01", b"ab"),
    ],
)
def test_lengths_that_do_not_fit_are_said_only_where_they_matter(damaged: Text) -> None:
    assert folded(damaged).segments[0].text == b"ab"
    with pytest.raises(FormatError, match=r"cannot be cut at 2: .* limit"):
        folded(text(1, "a"), damaged)


def test_a_run_as_it_came_is_a_run() -> None:
    run = happened(wire.Run(1, 1, TOKEN, b"\x01\x02", b"abb"))
    assert folded(run) == folded(text(1, "a", "bb"))
    assert merge([run]) == [text(1, "a", "bb")]
