"""The order of the evidence: which reason is given, and when a reply is whole."""

from __future__ import annotations

import re

import pytest
from walld_client.wire.messages import RecoveredSegment

from walld.replies import verdict
from walld.replies.verdict import REASONS, Evidence, partial_reason


def text(value: str, step: int = 0) -> RecoveredSegment:
    return RecoveredSegment("text", step, 0, 1, 1, 0, value.encode())


def reasoning(value: str, step: int = 0) -> RecoveredSegment:
    return RecoveredSegment("reasoning", step, 0, 1, 1, 0, value.encode())


def tool(outcome: str, complete: bool = True, step: int = 0) -> RecoveredSegment:
    return RecoveredSegment(
        "tool", step, 0, 1, 1, 0, call_id="c", arguments_complete=complete, outcome=outcome
    )


def custom(step: int = 0) -> RecoveredSegment:
    return RecoveredSegment("custom", step, 0, 1, 1, 0, name="k", result=b"\xc0")


def judged(
    *segments: RecoveredSegment,
    ended_clean: bool = False,
    gap: bool = False,
    finish: str | None = "-",
    said_since_finish: bool = False,
    finish_expected: bool = False,
    step: int | None = None,
) -> str | None:
    """finish "-": none was seen. step: of the last message, by default that of the segments."""
    last = max([one.step for one in segments], default=0)
    return partial_reason(
        Evidence(
            ended_clean,
            gap,
            finish != "-",
            None if finish == "-" else finish,
            said_since_finish,
            finish_expected,
            segments,
            last if step is None else step,
        )
    )


WHOLE, CUT = text("All is done."), text("All is do")


def test_a_clean_end_is_whole_but_for_a_gap() -> None:
    assert judged(CUT, tool("unknown", complete=False), ended_clean=True) is None
    assert judged(ended_clean=True) is None
    assert judged(WHOLE, ended_clean=True, gap=True) == "gap"
    assert judged(CUT, ended_clean=True, finish="tool_calls") is None
    assert judged(CUT, ended_clean=True, finish="tool_limit_reached") is None


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", None),
        ("end_turn", None),
        ("STOP", None),
        ("stop_sequence", None),
        (None, None),
        ("tool_limit_reached", None),
        ("length", "provider_length"),
        ("max_tokens", "provider_length"),
        ("MAX_TOKENS", "provider_length"),
        ("max-output-tokens", "provider_length"),
        ("content_filter", "provider_filter"),
        ("content-filter", "provider_filter"),
        ("refusal", "provider_filter"),
        ("SAFETY", "provider_filter"),
        ("sensitive", "provider_filter"),
        ("error", "provider_error"),
        ("MALFORMED_FUNCTION_CALL", "provider_error"),
        ("malformed_tool_use", "provider_error"),
    ],
)
@pytest.mark.parametrize("ended_clean", [True, False])
def test_the_finish_of_the_provider_decides(
    finish: str | None, reason: str | None, ended_clean: bool
) -> None:
    assert judged(CUT, finish=finish, ended_clean=ended_clean) == reason
    assert judged(WHOLE, finish=finish, ended_clean=ended_clean) == reason


def test_a_gap_comes_before_everything() -> None:
    assert judged(CUT, gap=True, finish="length") == "gap"
    assert judged(WHOLE, gap=True, finish="stop") == "gap"


def test_a_finish_for_tools_means_the_run_was_to_go_on() -> None:
    for finish in ("tool_calls", "tool-calls", "tool_use", "function_call"):
        assert judged(WHOLE, tool("done"), finish=finish) == "provider_paused"
        assert judged(WHOLE, tool("unknown"), finish=finish) == "tool_open"
        assert judged(WHOLE, tool("unknown", complete=False), finish=finish) == "tool_arguments"


@pytest.mark.parametrize("finish", ["pause_turn", "PAUSE_TURN", "pause-turn", "compaction"])
def test_an_end_that_asks_to_be_continued_is_not_whole(finish: str) -> None:
    """Whatever the application says: only more of the model's answer makes it that."""
    assert judged(WHOLE, finish=finish) == "provider_paused"
    assert judged(WHOLE, finish=finish, ended_clean=True) == "provider_paused"
    assert judged(WHOLE, tool("unknown"), finish=finish, ended_clean=True) == "provider_paused"
    assert judged(WHOLE, finish=finish, ended_clean=True, gap=True) == "gap"
    assert judged(WHOLE, finish=finish, said_since_finish=True, ended_clean=True) is None
    assert judged(WHOLE, step=1, finish_expected=True, ended_clean=True) is None


def test_a_finish_that_is_not_final_is_outdated_by_what_is_said_after_it() -> None:
    for finish in ("length", "tool_calls", "error"):
        assert judged(WHOLE, finish=finish, said_since_finish=True) == "finish_missing"
        assert judged(WHOLE, finish=finish, said_since_finish=True, ended_clean=True) is None
    assert judged(CUT, finish="stop", said_since_finish=True) is None


def test_who_reports_finishes_has_not_reported_this_one() -> None:
    assert judged(WHOLE, finish_expected=True) == "finish_missing"
    assert judged(WHOLE, finish_expected=True, finish="stop") is None
    assert judged(WHOLE, finish_expected=True, ended_clean=True) is None


def test_calls_without_a_result() -> None:
    assert judged(WHOLE, tool("unknown")) == "tool_open"
    assert judged(WHOLE, tool("unknown", complete=False)) == "tool_arguments"
    assert judged(tool("unknown"), text("Done.", step=1)) == "tool_open"
    assert judged(tool("unknown", complete=False), tool("unknown")) == "tool_arguments"


def test_an_answer_that_has_not_begun() -> None:
    assert judged() == "answer_missing"
    assert judged(reasoning("Hm.")) == "answer_missing"
    assert judged(WHOLE, reasoning("Hm.")) == "answer_missing"
    assert judged(WHOLE, tool("done")) == "answer_missing"
    assert judged(WHOLE, tool("failed")) == "answer_missing"
    assert judged(WHOLE, tool("done"), text(" \n")) == "answer_missing"
    assert judged(WHOLE, step=1) == "answer_missing"
    assert judged(custom()) == "answer_missing"
    assert judged(WHOLE, step=1, finish_expected=True) == "answer_missing"


def test_the_text_is_asked_last_and_only_that_of_the_last_message() -> None:
    assert judged(WHOLE) is None
    assert judged(CUT) == "mid_sentence"
    assert judged(CUT, text("Done.", step=1)) is None
    assert judged(WHOLE, text("not do", step=1)) == "mid_sentence"
    assert judged(WHOLE, custom()) is None
    assert judged(text("All is"), custom(), text(" done.")) is None
    assert judged(tool("done"), WHOLE) is None
    assert judged(text("Look.\n```py\nx.")) == "code_fence_open"
    assert judged(text("```py\nx."), text("Done.", step=1)) is None
    assert judged(text("```py\nx."), custom(), text("\n```")) is None
    assert judged(text("# Title.")) == "mid_structure"


def test_the_reasons_are_the_table_of_the_docstring() -> None:
    assert verdict.__doc__
    assert tuple(re.findall(r"^\| `(\w+)` \|", verdict.__doc__, re.MULTILINE)) == REASONS
