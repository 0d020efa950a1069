"""The rules of OpenAI's Chat and Anthropic's Messages for what is sent, read off their references.

Owns: judging a list of messages, by nothing that walld has. Refuses: making one.
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["check_anthropic", "check_openai", "check_sent"]

_ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]+")
_OPENAI_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_OPENAI_KEYS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}
_BLOCKS = {
    "user": ("text", "image", "document", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use", "server_tool_use"),
}
_KEYS = {
    "text": {"type", "text"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
    "tool_use": {"type", "id", "name", "input"},
    "tool_result": {"type", "tool_use_id", "content", "is_error"},
}


_PARTS = {
    "system": ("text",),
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "tool": ("text",),
}
"""What a list of content holds at OpenAI."""
_IN_RESULTS = ("text", "image", "document", "search_result", "tool_reference")
_SOURCES = {
    "base64": {"type", "media_type", "data"},
    "url": {"type", "url"},
    "file": {"type", "file_id"},
    "text": {"type", "media_type", "data"},
    "content": {"type", "content"},
}
_PICTURES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def check_sent(format: str, sent: list[dict[str, Any]]) -> int:  # noqa: A002
    """By the rules of that provider; no rule is broken by a list in plain form."""
    if format == "plain":
        assert all(one["role"] in ("system", "user", "assistant", "tool") for one in sent)
        return 0
    return check_openai(sent) if format == "openai" else check_anthropic(sent)


def check_openai(sent: list[dict[str, Any]]) -> int:
    """How many results there are."""
    ids, waiting, results, before = set[str](), list[str](), 0, None
    for message in sent:
        assert message.keys() <= _OPENAI_KEYS[message["role"]], "no key that the provider lacks"
        if message["role"] == "tool":
            assert waiting, "a result without its call"
            assert message["tool_call_id"] == waiting.pop(0), "results in the order of the calls"
            _check_parts("tool", message["content"])
            results += 1
            before = "tool"
            continue
        assert not waiting, f"calls without results: {waiting}"
        assert message["role"] != before, "no role twice in a row"
        before = message["role"]
        for call in message.get("tool_calls", ()):
            assert call["type"] == "function"
            assert _OPENAI_NAME.fullmatch(call["function"]["name"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            assert call["id"]
            assert call["id"] not in ids, "an id twice"
            ids.add(call["id"])
            waiting.append(call["id"])
        content = message["content"]
        assert content or waiting, "no empty message"
        assert content is None or isinstance(content, (str, list))
        _check_parts(message["role"], content)
    assert not waiting, f"calls without results: {waiting}"
    return results


def _check_parts(role: str, content: object) -> None:
    if isinstance(content, str):
        assert content.strip() or role == "assistant", "no blank message"
    for one in content if isinstance(content, list) else ():
        assert one["type"] in _PARTS[role], (role, one["type"])
        value = one[one["type"]]
        if one["type"] in ("text", "refusal"):
            assert isinstance(value, str), value
            assert value, "no empty text"
            assert one.keys() == {"type", one["type"]}, one.keys()
        elif one["type"] == "image_url":
            assert value.keys() <= {"url", "detail"}, value.keys()
            assert re.match(r"https?://|data:image/", value["url"]), value["url"][:40]
        else:
            assert isinstance(value, dict), value


def _check_source(block: dict[str, Any]) -> None:
    """Of a picture or a document."""
    source = block["source"]
    assert source.keys() == _SOURCES[source["type"]], source.keys()
    if block["type"] == "image":
        assert source["type"] in ("base64", "url", "file"), source["type"]
        assert source.get("media_type", _PICTURES[0]) in _PICTURES, source["media_type"]


def _check_result(content: object) -> None:
    """What a tool gave, as Anthropic takes it."""
    assert content is None or isinstance(content, (str, list)), content
    for one in content if isinstance(content, list) else ():
        assert one["type"] in _IN_RESULTS, one["type"]
        if one["type"] == "text":
            assert one["text"].strip(), "no blank text"
        elif one["type"] in ("image", "document"):
            _check_source(one)


def check_anthropic(sent: list[dict[str, Any]]) -> int:
    """How many results there are."""
    ids, waiting, results = set[str](), list[str](), 0
    for at, message in enumerate(sent):
        role = ("user", "assistant")[at % 2]
        assert message.keys() == {"role", "content"}
        assert message["role"] == role, "the user first, then in turns"
        assert message["content"], "no empty message"
        kinds = [one["type"] for one in message["content"]]
        served = _check_served(message["content"]) if role == "assistant" else set[str]()
        assert set(kinds) <= {*_BLOCKS[role], *served}, kinds
        for one in message["content"]:
            assert one.keys() <= _KEYS.get(one["type"], one.keys()), one.keys()
        assert kinds[-1] not in ("thinking", "redacted_thinking") or role == "user", "ends so"
        given = [one["tool_use_id"] for one in message["content"] if one["type"] == "tool_result"]
        assert given == waiting, "each call's result is in the next message"
        assert kinds[: len(given)] == ["tool_result"] * len(given), "results stand first"
        used = [one for one in message["content"] if one["type"] == "tool_use"]
        assert all(isinstance(one["input"], dict) and one["name"] for one in used)
        waiting = [one["id"] for one in used]
        assert all(_ANTHROPIC_ID.fullmatch(one) for one in waiting)
        assert len(set(waiting)) == len(waiting)
        assert not ids & set(waiting), "an id twice"
        ids |= set(waiting)
        results += len(given)
        for one in message["content"]:
            if one["type"] in ("image", "document"):
                _check_source(one)
            elif one["type"] == "tool_result":
                _check_result(one.get("content"))
        assert all(one["text"].strip() for one in message["content"] if one["type"] == "text")
        assert all(one["signature"] for one in message["content"] if one["type"] == "thinking")
    assert not waiting, f"calls without results: {waiting}"
    if sent and sent[-1]["role"] == "assistant" and sent[-1]["content"][-1]["type"] == "text":
        text = sent[-1]["content"][-1]["text"]
        assert text == text.rstrip(), "a last message that ends in white space is refused"
    return results


def _check_served(content: list[dict[str, Any]]) -> set[str]:
    """Types of results of what the provider ran: each stands behind its call, and each call has
    one.
    """
    kinds, open_calls = set[str](), set[str]()
    for one in content:
        kind = one["type"]
        if kind == "server_tool_use":
            assert one["id"] not in open_calls
            open_calls.add(one["id"])
        elif kind.endswith("_tool_result"):
            assert one["tool_use_id"] in open_calls, "a result without its call"
            open_calls.remove(one["tool_use_id"])
            kinds.add(kind)
    assert not open_calls, f"calls of the provider without results: {open_calls}"
    return kinds
