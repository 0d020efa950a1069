"""The verdict on a reply: whole or partial, and why.

Owns: the order of the evidence and the closed set of reasons. Refuses: how a text ends
(`text_end.py`), where the evidence comes from (`fold.py`).

A reply is partial for the first of these that holds; for none of them it is taken as whole.

| reason | what says so |
|---|---|
| `gap` | events are missing by seq, in whatever state the reply is |
| `provider_length` | finish reason: the provider ran into a limit (`length`, `max_tokens`, ...) |
| `provider_filter` | finish reason: the provider cut it (`content_filter`, `refusal`, ...) |
| `provider_error` | finish reason: the provider failed (`error`, `malformed_function_call`, ...) |
| `provider_paused` | finish reason: its provider is to be asked for the rest (`pause_turn`, ...) |
| `tool_arguments` | a tool call has no result and its arguments are not whole JSON |
| `tool_open` | a tool call has no result |
| `answer_missing` | the last message ends in reasoning or a tool's result, or says nothing |
| `finish_missing` | the provider's finish was seen for an earlier message, not for the last |
| `code_fence_open` | a code fence is open in the last message |
| `mid_structure` | the last line is a heading, a rule, an empty list item or a table's head |
| `mid_sentence` | the text ends in a letter, a digit, or a sign that something must follow |

Where the provider has asked for tools (`tool_calls`, `tool_use`, ...) the run was to go on: that is
`provider_paused` too, behind `tool_open`.

Between the two halves stand two verdicts of "whole": a clean end by the application settles
everything after `provider_paused`, and so does the provider's own finish for any other reason
(`stop`, `end_turn`, one this table does not know). After a finish that is not final the reply is
judged afresh once more is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from walld_client.wire.messages import RecoveredSegment

from walld.replies import text_end

__all__ = ["REASONS", "Evidence", "asks_for_the_rest", "partial_reason"]

REASONS: Final = (
    "gap",
    "provider_length",
    "provider_filter",
    "provider_error",
    "provider_paused",
    "tool_arguments",
    "tool_open",
    "answer_missing",
    "finish_missing",
    "code_fence_open",
    "mid_structure",
    "mid_sentence",
)

_FinishClass = Literal[
    "final", "provider_length", "provider_filter", "provider_error", "provider_paused", "paused"
]
_NOT_WHOLE: Final = {"provider_length", "provider_filter", "provider_error", "provider_paused"}
"""Whatever the application says of it."""

_FINISH_CLASSES: Final[dict[str, _FinishClass]] = {
    **dict.fromkeys(
        (
            "length",
            "incomplete",
            "max_length",
            "max_tokens",
            "max_output_tokens",
            "max_completion_tokens",
            "model_context_window_exceeded",
            "model_length",
        ),
        "provider_length",
    ),
    **dict.fromkeys(
        (
            "blocklist",
            "content_filter",
            "content_filtered",
            "error_toxic",
            "guardrail_intervened",
            "image_prohibited_content",
            "image_recitation",
            "image_safety",
            "prohibited_content",
            "recitation",
            "refusal",
            "safety",
            "sensitive",
            "spii",
        ),
        "provider_filter",
    ),
    **dict.fromkeys(
        (
            "abort",
            "aborted",
            "error",
            "failed",
            "insufficient_system_resource",
            "malformed_function_call",
            "malformed_model_output",
            "malformed_response",
            "malformed_tool_use",
            "missing_thought_signature",
            "network_error",
            "timeout",
            "too_many_tool_calls",
            "unexpected_tool_call",
        ),
        "provider_error",
    ),
    **dict.fromkeys(("compaction", "pause_turn"), "provider_paused"),
    **dict.fromkeys(("function_call", "tool_call", "tool_calls", "tool_use"), "paused"),
}


class Evidence(NamedTuple):
    """What a fold saw that bears on whether the reply is whole.

    ended_clean: the application said so. gap: some seq is missing. finish_seen: for the last
    message, with finish_reason. said_since_finish: text, reasoning or a tool call came after it.
    finish_expected: the provider's finish was seen for an earlier message or attempt.
    segments: of the last attempt. step: of the last message.
    """

    ended_clean: bool
    gap: bool
    finish_seen: bool
    finish_reason: str | None
    said_since_finish: bool
    finish_expected: bool
    segments: Sequence[RecoveredSegment]
    step: int


def partial_reason(evidence: Evidence) -> str | None:
    """The first reason of the table that holds, or None for a whole reply."""
    if evidence.gap:
        return "gap"
    finish = _finish_class(evidence)
    if finish in _NOT_WHOLE:
        return finish
    if evidence.ended_clean or finish == "final":
        return None
    if reason := _tool_reason(evidence.segments):
        return reason
    if finish == "paused":
        return "provider_paused"
    return _message_reason(evidence)


def _finish_class(evidence: Evidence) -> _FinishClass | None:
    """What the finish says about the last message; None where none was seen, or is outdated."""
    if not evidence.finish_seen:
        return None
    found = _class_of(evidence.finish_reason)
    # An application's own footer after the final finish does not reopen the reply.
    return None if evidence.said_since_finish and found != "final" else found


def _class_of(finish_reason: str | None) -> _FinishClass:
    word = (finish_reason or "").strip().lower().replace("-", "_").replace(" ", "_")
    return _FINISH_CLASSES.get(word, "final")


def asks_for_the_rest(finish_reason: str | None) -> bool:
    """Is that the word of a provider which has not said all of its answer, and would on?"""
    return _class_of(finish_reason) == "provider_paused"


def _tool_reason(segments: Sequence[RecoveredSegment]) -> str | None:
    pending = [one for one in segments if one.kind == "tool" and one.outcome == "unknown"]
    if any(not one.arguments_complete for one in pending):
        return "tool_arguments"
    return "tool_open" if pending else None


def _message_reason(evidence: Evidence) -> str | None:
    message = [one for one in evidence.segments if one.step == evidence.step]
    said = [
        one
        for one in message
        if one.kind in {"reasoning", "tool", "tool_result"}
        or (one.kind == "text" and not text_end.is_blank(one.text))
    ]
    if not said or said[-1].kind != "text":
        return "answer_missing"
    if evidence.finish_expected or evidence.finish_seen:
        return "finish_missing"
    text = b"".join([one.text for one in message if one.kind == "text"])
    return "code_fence_open" if text_end.fence_open(text) else text_end.unfinished(text)
