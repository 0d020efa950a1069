"""A recovered reply as messages: plain for the application's own store, or for a provider.

Owns: which segments become which message, in each format. Refuses: reading the reply
(`partial.py`), inventing anything.

Only the last attempt is projected. Plain: one message a step, with everything the step holds.
Provider formats are safe to send:
- no reasoning, no orphan: a call goes with its result or not at all, and only where its name is
  known and its arguments are a JSON object (or empty);
- no two equal roles in a row (but one `tool` message a call, as openai has it), no empty message,
  no key a provider does not know; text of steps without a call between becomes one message;
- ids and names as both providers take them: 1-40 and 1-64 of A-Z a-z 0-9 _ -, ids unique.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from walld_client import wtf8
from walld_client.segments import Segment, json_or_none

__all__ = ["anthropic_messages", "openai_messages", "plain_message"]

_CONTENT = frozenset(("text", "reasoning", "tool", "tool_result"))
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")


def plain_message(step: Sequence[Segment]) -> dict[str, Any] | None:
    """The message of one step, or None where the step has no content (custom events, gaps)."""
    if not any(segment.kind in _CONTENT for segment in step):
        return None
    message: dict[str, Any] = {"role": "assistant", "content": _joined(step, "text")}
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
    messages: list[dict[str, Any]] = []
    for turn in _turns(segments):
        message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
        if turn.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {
                        "name": call.name,
                        "arguments": json.dumps(call.arguments, ensure_ascii=False),
                    },
                }
                for call in turn.calls
            ]
        messages.append(message)
        messages.extend(
            {"role": "tool", "tool_call_id": call.id, "content": call.result} for call in turn.calls
        )
    return messages


def anthropic_messages(segments: Iterable[Segment]) -> list[dict[str, Any]]:
    """Messages of content blocks: assistant (text, tool_use ...), user (tool_result ...), ..."""
    messages: list[dict[str, Any]] = []
    for turn in _turns(segments):
        # The provider refuses a last message that ends in white space.
        text = turn.text if turn.calls else turn.text.rstrip()
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        blocks.extend(
            {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
            for call in turn.calls
        )
        messages.append({"role": "assistant", "content": blocks})
        if turn.calls:
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": call.result}
                | ({"is_error": True} if call.failed else {})
                for call in turn.calls
            ]
            messages.append({"role": "user", "content": results})
    return messages


class _Call:
    """An answered call, ready to send."""

    def __init__(self, call_id: str, segment: Segment, arguments: dict[str, Any]) -> None:
        self.id = call_id
        self.name = _NOT_IN_NAME.sub("_", segment.name or "")[:64]
        self.arguments = arguments
        self.result = _result_text(segment.result)
        self.failed = segment.outcome == "failed"


class _Turn:
    """One assistant message of a provider: text, then calls."""

    def __init__(self) -> None:
        self.text = ""
        self.calls: list[_Call] = []
        self.step = -1


def _turns(segments: Iterable[Segment]) -> list[_Turn]:
    """Text after a call, and a call of a later step, belong to the next message."""
    turns: list[_Turn] = []
    turn = _Turn()
    ids: set[str] = set()
    for segment in segments:
        arguments = _sendable(segment)
        if segment.kind != "text" and arguments is None:
            continue
        if turn.calls and (segment.kind == "text" or segment.step != turn.step):
            turns.append(turn)
            turn = _Turn()
        if arguments is None:
            if segment.step != turn.step and turn.text.strip() and segment.text.strip():
                turn.text += "\n\n"
            turn.text += segment.text
        else:
            turn.calls.append(_Call(_call_id(segment, ids), segment, arguments))
        turn.step = segment.step
    turns.append(turn)
    for one in turns:
        one.text = wtf8.scrub(one.text) if one.text.strip() else ""
    return [one for one in turns if one.text or one.calls]


def _sendable(segment: Segment) -> dict[str, Any] | None:
    """The arguments of a call that may be sent; None for any other segment."""
    if segment.kind != "tool" or not segment.name or segment.outcome not in {"done", "failed"}:
        return None
    if not (segment.arguments or "").strip():
        return {}
    arguments = wtf8.jsonable(json_or_none(segment.arguments or ""))
    return arguments if isinstance(arguments, dict) else None


def _call_id(segment: Segment, taken: set[str]) -> str:
    """The call's own id where a provider takes it and it is still free, else one made of it."""
    call_id = segment.call_id or ""
    if not _ID.fullmatch(call_id) or call_id in taken:
        own = f"{segment.first_seq}:{call_id}".encode("utf-8", "surrogatepass")
        call_id = "call_" + hashlib.blake2b(own, digest_size=16).hexdigest()
    taken.add(call_id)
    return call_id


def _result_text(result: object) -> str:
    """A result as text; an empty one as JSON, since some providers refuse an empty message."""
    if isinstance(result, str) and result.strip():
        return wtf8.scrub(result)
    return json.dumps(wtf8.jsonable(result), ensure_ascii=False)


def _joined(step: Sequence[Segment], kind: str) -> str:
    return wtf8.join("".join([segment.text for segment in step if segment.kind == kind]))
