"""Messages of an application's store as a provider takes them.

Owns: what is sent of each message, in each format. Refuses: which messages there are
(`messages.py`), replies that are not in the ledger yet (the client's `projections.py`, by
the same rules), inventing anything.

Read: text or blocks as content; calls as `tool_calls` (with name and arguments, or with a
`function`) or as `tool_use` blocks; results within a call, as messages of role `tool`, or as
`tool_result` blocks. Safe to send:
- a call goes with its result or not at all, right before it, and only where its name is known and
  its arguments are a JSON object (or empty); a result without its call does not go;
- no two equal roles in a row (but one `tool` message a call, as openai has it): what would be is
  joined; no empty message; no key a provider does not know; other roles do not go;
- no reasoning, but blocks of thinking with the provider's signature, and none of a recovered reply;
- anthropic knows no system message: there it is a user's, in <system> tags;
- content that stands beside the session as an artifact is its preview and a note;
- ids and names as both providers take them: 1-40 and 1-64 of A-Z a-z 0-9 _ -, ids unique.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from walld_client import wtf8
from walld_client.segments import json_or_none

__all__ = ["anthropic_messages", "openai_messages"]

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_SYSTEM: Final = frozenset(("system", "developer"))
_THINKING: Final = frozenset(("thinking", "redacted_thinking"))
_TOOL_BLOCKS: Final = frozenset(("tool_use", "tool_result"))


class _Call:
    """A call while its result is looked for."""

    def __init__(self, call_id: str, name: str, arguments: dict[str, Any]) -> None:
        self.id = call_id
        self.name = _NOT_IN_NAME.sub("_", name)[:64]
        self.arguments = arguments
        self.result: object = None
        self.answered = self.failed = False

    def answer(self, result: object, failed: bool) -> None:
        self.result, self.failed, self.answered = result, failed, True

    @property
    def text(self) -> str:
        """The result as text; an empty one as JSON, since some providers refuse an empty one."""
        if isinstance(self.result, str) and self.result.strip():
            return wtf8.scrub(self.result)
        return json.dumps(wtf8.jsonable(self.result), ensure_ascii=False)


class _Said:
    """What one side said in a row: blocks, and of the assistant then calls."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.blocks: list[dict[str, Any]] = []
        self.thoughts: list[dict[str, Any]] = []
        self.calls: list[_Call] = []

    def join(self, later: _Said) -> None:
        self.blocks += later.blocks
        self.thoughts += later.thoughts
        self.calls += later.calls

    @property
    def text(self) -> str:
        return "\n\n".join(block["text"] for block in self.blocks if block["type"] == "text")

    @property
    def content(self) -> str | list[dict[str, Any]]:
        """Text where there is nothing else."""
        return self.text if all(block["type"] == "text" for block in self.blocks) else self.blocks


def openai_messages(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Chat messages: system, user, assistant (with tool_calls), one tool message a result ..."""
    sent: list[dict[str, Any]] = []
    for said in _told(messages):
        message: dict[str, Any] = {"role": said.role}
        message["content"] = said.content if said.role == "user" else said.text or None
        if said.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {
                        "name": call.name,
                        "arguments": json.dumps(call.arguments, ensure_ascii=False),
                    },
                }
                for call in said.calls
            ]
        sent.append(message)
        sent.extend(
            {"role": "tool", "tool_call_id": call.id, "content": call.text} for call in said.calls
        )
    return sent


def anthropic_messages(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages of content blocks: user, assistant (tool_use ...), user (tool_result ...) ..."""
    sent: list[dict[str, Any]] = []
    for said in _told(messages):
        role, blocks = said.role, said.blocks
        if role == "system":
            role, blocks = "user", [_text(f"<system>\n{said.text}\n</system>")]
        elif role == "assistant":
            blocks = [*said.thoughts, *([_text(said.text)] if said.text else [])]
            blocks += [
                {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
                for call in said.calls
            ]
        if sent and sent[-1]["role"] == role:
            sent[-1]["content"] += blocks
        else:
            sent.append({"role": role, "content": list(blocks)})
        if said.calls:
            sent.append({"role": "user", "content": [_result_block(call) for call in said.calls]})
    return sent


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _result_block(call: _Call) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call.id, "content": call.text}
    return block | ({"is_error": True} if call.failed else {})


def _told(messages: Iterable[dict[str, Any]]) -> list[_Said]:
    """What may be sent, no side twice in a row unless a result stands between."""
    told: list[_Said] = []
    for said in _read(messages):
        said.calls = [call for call in said.calls if call.answered]
        if not said.blocks and not said.calls:
            continue
        if told and told[-1].role == said.role and not told[-1].calls:
            told[-1].join(said)
        else:
            told.append(said)
    if told and told[-1].role == "assistant" and not told[-1].calls:
        # A provider refuses a last message that ends in white space.
        told[-1].blocks = [_text(told[-1].text.rstrip())]
    return told


def _read(messages: Iterable[dict[str, Any]]) -> list[_Said]:
    """Each message by itself, the results with their calls."""
    said: list[_Said] = []
    open_calls: dict[str, _Call] = {}
    taken: set[str] = set()
    for message in messages:
        role = message.get("role")
        role = "system" if role in _SYSTEM else role
        if role == "tool":
            _answer(open_calls, message, message.get("content"))
            continue
        if role not in ("user", "assistant", "system"):
            continue
        one = _Said(role)
        blocks = list(_blocks(message.get("content")))
        one.blocks = [block for block in blocks if block["type"] not in _THINKING | _TOOL_BLOCKS]
        if role == "assistant":
            one.blocks = [block for block in one.blocks if block["type"] == "text"]
            if not message.get("_wal_recovered"):
                one.thoughts = [block for block in blocks if _is_signed(block)]
            one.calls = _calls(message, blocks, open_calls, taken)
        else:
            for block in blocks:
                if block["type"] == "tool_result":
                    _answer(open_calls, block, block.get("content"))
        said.append(one)
    return said


def _blocks(content: object) -> Iterator[dict[str, Any]]:
    """Content as blocks that may be sent; empty text is none."""
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, str):
            block = _text(block)
        elif isinstance(block, dict) and isinstance(named := block.get("_artifact"), dict):
            block = _text(_stand_in(named))
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            continue
        if block["type"] == "text":
            text = block.get("text")
            if isinstance(text, str) and text.strip():
                yield _text(wtf8.scrub(text))
        else:
            safe = wtf8.jsonable(block)
            assert isinstance(safe, dict)
            yield safe


def _stand_in(named: dict[str, Any]) -> str:
    """What is said of an artifact: how it begins, and that this is not all of it."""
    name, size, preview = (named.get(field) for field in ("name", "size", "preview"))
    told = f" {name}" if isinstance(name, str) and name else ""
    told += f", {size} bytes" if isinstance(size, int) else ""
    if isinstance(preview, str) and preview.strip():
        return f"{preview}\n[artifact{told}: only its beginning is shown]"
    return f"[artifact{told}: not shown]"


def _is_signed(block: dict[str, Any]) -> bool:
    if block["type"] == "redacted_thinking":
        return bool(block.get("data"))
    return block["type"] == "thinking" and bool(block.get("signature"))


def _calls(
    message: dict[str, Any],
    blocks: list[dict[str, Any]],
    open_calls: dict[str, _Call],
    taken: set[str],
) -> list[_Call]:
    """The calls of a message that can be sent once they have a result."""
    listed = message.get("tool_calls")
    found = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    found += [block for block in blocks if block["type"] == "tool_use"]
    calls = []
    for one in found:
        function = one.get("function")
        told = function if isinstance(function, dict) else one
        given, name = one.get("id"), told.get("name")
        arguments = _arguments(told.get("input" if one.get("type") == "tool_use" else "arguments"))
        if not isinstance(given, str) or not isinstance(name, str) or not name:
            continue
        open_calls.pop(given, None)  # counted anew: a result that follows is not the old call's
        if arguments is None:
            continue
        call = _Call(_call_id(given, taken), name, arguments)
        calls.append(call)
        if one.get("outcome") in ("done", "failed"):
            call.answer(one.get("result"), one["outcome"] == "failed")
        else:
            open_calls[given] = call
    return calls


def _arguments(given: object) -> dict[str, Any] | None:
    """A call's arguments as a JSON object, None where they are none."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}
    value = wtf8.jsonable(json_or_none(given) if isinstance(given, str) else given)
    return value if isinstance(value, dict) else None


def _call_id(given: str, taken: set[str]) -> str:
    """The call's own id where a provider takes it and it is still free, else one made of it."""
    call_id = given
    if not _ID.fullmatch(call_id) or call_id in taken:
        own = f"{len(taken)}:{given}".encode("utf-8", "surrogatepass")
        call_id = "call_" + hashlib.blake2b(own, digest_size=16).hexdigest()
    taken.add(call_id)
    return call_id


def _answer(open_calls: dict[str, _Call], told: dict[str, Any], content: object) -> None:
    """A result to the open call it names; one that names none is an orphan."""
    for name in ("tool_call_id", "tool_use_id", "call_id", "id"):
        given = told.get(name)
        if isinstance(given, str) and given in open_calls:
            failed = told.get("is_error") is True or told.get("outcome") == "failed"
            open_calls.pop(given).answer(_plain(content), failed)
            return


def _plain(content: object) -> object:
    """Blocks of text as text."""
    is_artifact = isinstance(content, dict) and isinstance(content.get("_artifact"), dict)
    blocks = list(_blocks(content)) if isinstance(content, list) or is_artifact else []
    if blocks and all(block["type"] == "text" for block in blocks):
        return "\n".join(block["text"] for block in blocks)
    return content
