"""A session in the words of others: OpenTelemetry's messages for generative models.

Owns: the shapes. Refuses: reading a session, choosing its messages (the daemon's projections do),
writing files. OpenTelemetry itself is not needed for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

__all__ = ["to_otel"]


_CALLING: Final = ("tool_calls", "tool_use", "toolUse", "function_call")
"""As others call the finish reason `tool_call`."""


def to_otel(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages as `gen_ai.input.messages` and `gen_ai.output.messages` have them.

    Parts: text, reasoning, tool_call, tool_call_response; blocks that are none of these keep their
    own type, and what was attached to a message, which is an attachment where it has none.
    finish_reason (of the assistant's messages) is what the message says, else what its parts show.
    """
    return [_otel(message) for message in messages]


def _otel(message: Mapping[str, Any]) -> dict[str, Any]:
    role = str(message.get("role", "user"))
    if role == "tool":
        return {"role": role, "parts": [_response(message)]}
    parts: list[dict[str, Any]] = []
    if reasoning := message.get("reasoning"):
        parts.append({"type": "reasoning", "content": reasoning})
    calls = [part for call in _list(message.get("tool_calls")) for part in _call(call)]
    called = [part.get("id") for part in calls]  # any value: nobody has checked it
    content = message.get("content")
    blocks = content if isinstance(content, list) else [content]
    for block in blocks if content not in (None, "") else []:
        part = _part(block)
        if part["type"] != "tool_call" or part["id"] not in called:
            parts.append(part)
    parts += calls
    for one in _list(message.get("attachments")):
        held = one if isinstance(one, Mapping) else {"content": one}
        parts.append({"type": "attachment", **held})
    made: dict[str, Any] = {"role": role, "parts": parts}
    if role == "assistant":
        made["finish_reason"] = _finish_reason(message, parts)
    return made


def _finish_reason(message: Mapping[str, Any], parts: list[dict[str, Any]]) -> str:
    said = message.get("finish_reason")
    if isinstance(said, str) and said:
        return "tool_call" if said in _CALLING else said
    if message.get("_partial"):
        return "error"
    return "tool_call" if parts and parts[-1]["type"] == "tool_call" else "stop"


def _response(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    texts = [block.get("text") for block in _list(content) if isinstance(block, Mapping)]
    if texts and len(texts) == len(_list(content)) and all(isinstance(one, str) for one in texts):
        content = "".join(str(one) for one in texts)
    return {
        "type": "tool_call_response",
        "id": message.get("tool_call_id"),
        "response": content,
    }


def _call(call: object) -> list[dict[str, Any]]:
    """A call in OpenAI's shape, or in the plain one of a recovered reply with its result."""
    if not isinstance(call, Mapping):
        return []
    function = call.get("function")
    named = function if isinstance(function, Mapping) else call
    parts = [_tool_call(call.get("id"), named.get("name"), named.get("arguments"))]
    if call.get("outcome") in ("done", "failed"):
        result = {"tool_call_id": call.get("id"), "content": call.get("result")}
        parts.append(_response(result))
    return parts


def _tool_call(id: object, name: object, arguments: object) -> dict[str, Any]:  # noqa: A002
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):  # cut or never JSON: as it was said
            arguments = json.loads(arguments)
    return {"type": "tool_call", "id": id, "name": name, "arguments": arguments}


def _part(block: object) -> dict[str, Any]:
    """One block of content."""
    if not isinstance(block, Mapping):
        return {"type": "text", "content": block if isinstance(block, str) else json.dumps(block)}
    kind = block.get("type")
    if kind in ("text", "input_text", "output_text") and isinstance(block.get("text"), str):
        return {"type": "text", "content": block["text"]}
    if kind in ("thinking", "reasoning"):
        return {"type": "reasoning", "content": _thought(block)}
    if kind in ("tool_use", "toolCall", "server_tool_use"):
        arguments = block.get("input", block.get("arguments"))
        return _tool_call(block.get("id"), block.get("name"), arguments)
    if kind == "tool_result":
        answered = {"tool_call_id": block.get("tool_use_id"), "content": block.get("content")}
        return _response(answered)
    return {**block, "type": kind if isinstance(kind, str) else "unknown"}


def _thought(block: Mapping[str, Any]) -> object:
    """What it says; where the provider gives a summary alone (OpenAI's Responses), that."""
    said = next((block[key] for key in ("thinking", "reasoning", "text") if key in block), "")
    if said:
        return said
    listed = [*_list(block.get("content")), *_list(block.get("summary"))]
    texts = [one.get("text") for one in listed if isinstance(one, Mapping)]
    return "\n\n".join(text for text in texts if isinstance(text, str))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
