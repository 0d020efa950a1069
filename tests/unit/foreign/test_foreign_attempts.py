"""Answers of which their writer says that they failed: attempts, which no model is sent again."""

from __future__ import annotations

import pytest
import test_foreign_claude as claude_lines
import test_foreign_pi as pi_lines
from imported_session import open_calls, told, told_texts

from walld.foreign import claude, pi
from walld.foreign.entries import Imported

CALL = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "rm -r build"}}
PROVIDERS = ("openai", "anthropic")


def answer(stop: str, *blocks: object) -> dict[str, object]:
    return {"role": "assistant", "content": list(blocks), "stopReason": stop, "model": "m"}


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


def pi_session(*messages: dict[str, object]) -> Imported:
    parent, lines = None, [pi_lines.header()]
    for number, message in enumerate(messages):
        lines.append(pi_lines.entry(f"e{number}", parent, message=message))
        parent = f"e{number}"
    return pi.read(pi_lines.lines(*lines))


def result(call_id: str, said: str) -> dict[str, object]:
    named = {"role": "toolResult", "toolCallId": call_id, "toolName": "bash"}
    return named | {"content": [text(said)], "isError": False}


@pytest.mark.parametrize("format", PROVIDERS)
@pytest.mark.parametrize("stop", ["error", "aborted"])
def test_an_attempt_and_the_answer_in_its_place_are_not_one(stop: str, format: str):  # noqa: A002
    imported = pi_session(
        pi_lines.user("Say hello."),
        answer(stop, text("Hel")),
        answer(stop, text("Hell")),
        answer("stop", text("Hello.")),
    )
    assert told_texts(imported, format) == [("user", "Say hello."), ("assistant", "Hello.")]
    assert [text for _, text in told_texts(imported, "plain")] == [
        "Say hello.",
        "Hel",
        "Hell",
        "Hello.",
    ]


@pytest.mark.parametrize("format", PROVIDERS)
def test_an_attempt_at_the_end_is_in_no_request(format: str):  # noqa: A002
    imported = pi_session(pi_lines.user("Now in French."), answer("aborted", text("Bonj")))
    assert told_texts(imported, format) == [("user", "Now in French.")]


@pytest.mark.parametrize("format", PROVIDERS)
def test_calls_of_an_attempt_did_not_run(format: str):  # noqa: A002
    imported = pi_session(pi_lines.user("Clean up."), answer("error", text("Right away."), CALL))
    assert open_calls(imported) == []
    assert told_texts(imported, format) == [("user", "Clean up.")]
    (said,) = told(imported, "plain")[1]["tool_calls"]
    assert (said["outcome"], said["synthetic"]) == ("not_run", "not_run")


@pytest.mark.parametrize("format", PROVIDERS)
def test_a_call_id_given_again_by_the_retry_is_the_retrys(format: str):  # noqa: A002
    imported = pi_session(
        pi_lines.user("Clean up."),
        answer("error", CALL),
        answer("toolUse", CALL),
        result("c1", "removed"),
        answer("stop", text("Done.")),
    )
    assert open_calls(imported) == []
    attempt, again = (one["tool_calls"][0] for one in told(imported, "plain")[1:3])
    assert (attempt["outcome"], again["outcome"]) == ("not_run", "done")
    shown = str(told(imported, format))
    assert shown.count("rm -r build") == 1
    assert shown.count("removed") == 1


@pytest.mark.parametrize("format", PROVIDERS)
def test_a_call_that_ran_all_the_same_says_so(format: str):  # noqa: A002
    """Its result stands in the file: the writer had begun it before the answer broke."""
    imported = pi_session(
        pi_lines.user("Clean up."),
        answer("error", CALL),
        result("c1", "removed"),
        pi_lines.user("And now?"),
    )
    assert open_calls(imported) == []
    assert told(imported, "plain")[1]["tool_calls"][0]["outcome"] == "done"
    assert {role for role, _ in told_texts(imported, format)} == {"user"}


def test_the_only_answer_that_thought_and_failed_leaves_the_question():
    thought = {"type": "thinking", "thinking": "hm", "thinkingSignature": "s"}
    imported = pi_session(pi_lines.user("Why?"), answer("error", thought))
    for format in PROVIDERS:  # noqa: A001
        assert told_texts(imported, format) == [("user", "Why?")]


@pytest.mark.parametrize("stop", ["error", "aborted"])
@pytest.mark.parametrize("format", PROVIDERS)
def test_an_answer_of_several_lines_failed_as_a_whole(stop: str, format: str):  # noqa: A002
    first = claude_lines.assistant("a", "u", "m1", claude_lines.TEXT)
    said = {"id": "m1", "role": "assistant", "model": "m", "stop_reason": stop}
    lines = [
        claude_lines.user("u", None, "hi"),
        first,
        claude_lines.line(
            "assistant", "b", "a", message=said | {"content": [claude_lines.call("t")]}
        ),
        claude_lines.assistant("c", "b", "m2", {"type": "text", "text": "whole"}),
    ]
    imported = claude.read(lines)
    assert open_calls(imported) == []
    assert told_texts(imported, format) == [("user", "hi"), ("assistant", "whole")]


def test_what_ended_otherwise_is_an_answer():
    """Cut at its longest, stopped by a filter, or ended for a call: the model is sent it."""
    for stop in ("length", "stop", "toolUse", "sensitive", "endTurn"):
        imported = pi_session(pi_lines.user("hi"), answer(stop, text("half")))
        assert told_texts(imported)[-1] == ("assistant", "half")
