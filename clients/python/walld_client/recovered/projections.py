"""A recovered reply as messages: plain for the application's own store, or for a provider.

Owns: which segments become which message, in each format. Refuses: reading the reply
(`partial.py`), calls in the providers' shapes (`calls.py`), inventing anything.

Only the last attempt is projected. Plain: one message a step, with everything the step holds.
Provider formats are safe to send:
- no reasoning, no orphan: a call goes with its result or not at all, and only where its name is
  known;
- no two equal roles in a row (but one `tool` message a call, as openai has it), no empty message,
  no key a provider does not know; text of steps without a call between becomes one message;
- calls as `calls.py` makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from walld_client.encoding import wtf8
from walld_client.recovered.calls import (
    ProviderCall,
    anthropic_results,
    openai_assistant,
    sendable_arguments,
    sendable_id,
)
from walld_client.recovered.segments import Segment

__all__ = ["anthropic_messages", "openai_messages", "plain_message"]

_BLANK_LINE = "\n\n"
_CONTENT = frozenset(("text", "reasoning", "tool", "tool_result"))


def plain_message(step: Sequence[Segment]) -> dict[str, Any] | None:
    """The message of one step, or None where the step has no content (custom events, gaps)."""
    if not any(segment.kind in _CONTENT for segment in step):
        return None
    message: dict[str, Any] = {"role": "assistant", "content": _parted(step)}
    if reasoning := _joined(step, "reasoning"):
        message["reasoning"] = reasoning
    calls = [
        {
            "id": segment.call_id,
            "name": segment.name,
            "arguments": segment.arguments,
            "arguments_complete": segment.arguments_complete,
            "outcome": segment.outcome,
            "result": segment.result,
        }
        for segment in step
        if segment.kind == "tool"
    ]
    if calls:
        message["tool_calls"] = calls
    orphans = [
        {
            "id": segment.call_id,
            "name": segment.name,
            "outcome": segment.outcome,
            "result": segment.result,
        }
        for segment in step
        if segment.kind == "tool_result"
    ]
    if orphans:
        message["tool_results"] = orphans
    return message


def openai_messages(segments: Iterable[Segment]) -> list[dict[str, Any]]:
    """Chat messages: assistant (with tool_calls), one tool message a result, assistant, ..."""
    sent: list[dict[str, Any]] = []
    for turn in _turns(segments):
        sent += openai_assistant(turn.text, turn.calls)
    return sent


def anthropic_messages(segments: Iterable[Segment]) -> list[dict[str, Any]]:
    """Messages of content blocks: assistant (text, tool_use ...), user (tool_result ...), ..."""
    sent: list[dict[str, Any]] = []
    for turn in _turns(segments):
        # The provider refuses a last message that ends in white space.
        text = turn.text if turn.calls else turn.text.rstrip()
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        blocks += [call.tool_use() for call in turn.calls]
        sent.append({"role": "assistant", "content": blocks})
        if turn.calls:
            sent.append(anthropic_results(turn.calls))
    return sent


class _Turn:
    """One assistant message of a provider: text, then calls."""

    def __init__(self) -> None:
        self.text = ""
        self.calls: list[ProviderCall] = []
        self.step = -1


def _turns(segments: Iterable[Segment]) -> list[_Turn]:
    """Text after a call, and a call of a later step, belong to the next message."""
    turns: list[_Turn] = []
    turn = _Turn()
    ids: set[str] = set()
    is_parted = False  # by a call that is not sent
    for segment in segments:
        arguments = _arguments(segment)
        if segment.kind != "text" and arguments is None:
            is_parted = is_parted or segment.kind == "tool"
            continue
        if turn.calls and (segment.kind == "text" or segment.step != turn.step):
            turns.append(turn)
            turn = _Turn()
        if arguments is None:
            if segment.step != turn.step and turn.text.strip() and segment.text.strip():
                turn.text += _BLANK_LINE
            elif is_parted:
                turn.text += _between(turn.text, segment.text)
            turn.text += segment.text
            is_parted = False
        else:
            call_id = sendable_id(segment.call_id or "", segment.first_seq, ids)
            call = ProviderCall(call_id, segment.name or "", arguments)
            call.answer(segment.result, segment.outcome == "failed")
            turn.calls.append(call)
        turn.step = segment.step
    turns.append(turn)
    for one in turns:
        one.text = wtf8.scrub(one.text) if one.text.strip() else ""
    return [one for one in turns if one.text or one.calls]


def _arguments(segment: Segment) -> dict[str, Any] | None:
    """The arguments of a call that may be sent; None for any other segment."""
    if segment.kind != "tool" or not segment.name or segment.outcome not in {"done", "failed"}:
        return None
    return sendable_arguments(segment.arguments)


def _parted(step: Sequence[Segment]) -> str:
    """The step's text, what stands behind a call apart from what stands before it."""
    texts: list[str] = []
    is_parted = False
    for segment in step:
        if segment.kind == "tool":
            is_parted = True
        elif segment.kind == "text" and segment.text:
            if is_parted and texts:
                texts.append(_between(texts[-1], segment.text))
            texts.append(segment.text)
            is_parted = False
    return wtf8.join("".join(texts))


def _between(before: str, behind: str) -> str:
    """A blank line where the last word before a call and the first behind it would read as one."""
    is_glued = before and behind and not (before[-1].isspace() or behind[0].isspace())
    return _BLANK_LINE if is_glued else ""


def _joined(step: Sequence[Segment], kind: str) -> str:
    return wtf8.join("".join([segment.text for segment in step if segment.kind == kind]))
