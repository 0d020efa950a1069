"""gptme: conversation.jsonl (a message a line) and events.jsonl (an event a line).

Owns: both, told apart line by line. Refuses: the branches directory beside them (each of its files
is a conversation.jsonl of its own).

An event log is compacted by its writer: it may begin with a checkpoint, which is the whole list of
messages. A later checkpoint says nothing new, unless lines before it were lost.

The shapes are those of its writer: github.com/gptme/gptme, `message.py` and
`logmanager/eventlog.py`. A message that is `ui_only` is none that a model is sent: its role here is
"ui", which no provider knows, and undo counts it as gptme does.

Files that a message has are sent with it and stand elsewhere: its `attachments` here.

A tool call stands in the assistant's text as `@tool(call_id): {...}`; its result is a system
message with that `call_id`. Only where both are there the result becomes a tool message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final

from walld.foreign.entries import Draft, Imported, message, tool_call
from walld.foreign.lines import Line, at_ms, each_line, json_text, rest, text_or_none

__all__ = ["read"]

_ROLES: Final = frozenset(("system", "user", "assistant"))
_CALL: Final = re.compile(r"^@([\w-]+)\(([\w.:-]+)\):\s*(?=\{)", re.MULTILINE)
_EDIT_BYTES_MAX: Final = 128 * 1024
"""A longer list is taken back and appended anew: the payload of an entry is bounded."""


def read(lines: Iterable[str | bytes]) -> Imported:
    """A conversation or an event log. Never raises."""
    log = _Log()
    for line in each_line(lines, "gptme"):
        if not log.draft.damaged(line):
            assert line.value is not None
            log.take(line, line.value)
    return log.draft.imported()


class _Log:
    """The messages as gptme has them after each line."""

    def __init__(self) -> None:
        self.draft = Draft("gptme")
        self.messages: list[bytes] = []
        """By their digests: whole they take as much memory as all that is made of them."""
        self.calls: set[str] = set()

    def take(self, line: Line, value: dict[str, Any]) -> None:
        if "payload" not in value:
            self.append(line, value)
            return
        payload = value["payload"]
        kind = value.get("type")
        if not isinstance(payload, dict):
            self.draft.keep(line, "unknown_shape")
        elif kind == "message_append" and isinstance(payload.get("message"), dict):
            self.append(line, payload["message"], rest(value, "payload"))
        elif kind in ("message_edit", "checkpoint") and _is_list(payload.get("messages")):
            self.replace(line, payload["messages"], value, known=kind == "checkpoint")
        elif kind == "undo":
            self.undo(line, payload.get("n", 1), value)
        else:
            self.draft.keep(line, "unknown_type" if isinstance(kind, str) else "unknown_shape")

    def append(self, line: Line, said: dict[str, Any], event: dict[str, Any] | None = None) -> None:
        made = self.converted(said, event)
        if made is None:
            self.draft.keep(line, "unknown_shape")
            return
        at = at_ms(said.get("timestamp")) or at_ms((event or {}).get("ts"))
        self.draft.add(line, "message", made, at_ms=at)
        self.messages.append(_digest(said))

    def replace(
        self, line: Line, said: list[dict[str, Any]], event: dict[str, Any], *, known: bool
    ) -> None:
        """The list is this now. known: it says so of what should be there already."""
        digests = [_digest(one) for one in said]
        if known and digests == self.messages:
            return
        made = [self.converted(one, None) for one in said]
        if any(one is None for one in made):
            self.draft.keep(line, "unknown_shape")
            return
        about = rest(event, "payload")
        if self.messages and len(line.text) <= _EDIT_BYTES_MAX:
            payload = {"messages": made, "_foreign": about}
            self.draft.add(line, "message_edit", payload, at_ms=at_ms(event.get("ts")))
            self.messages = digests
            return
        same = _same_start(self.messages, digests)
        if len(self.messages) > same:
            self.undo(line, len(self.messages) - same, event)
        for one in said[same:]:
            self.append(line, one, about)

    def undo(self, line: Line, n: object, event: dict[str, Any]) -> None:
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            self.draft.keep(line, "unknown_shape")
            return
        payload = {"n": n, "_foreign": rest(event, "payload")}
        self.draft.add(line, "undo", payload, at_ms=at_ms(event.get("ts")))
        del self.messages[max(0, len(self.messages) - n) :]

    def converted(
        self, said: dict[str, Any], event: dict[str, Any] | None
    ) -> dict[str, Any] | None:
        """A message in the plain shape, None for what is none."""
        role, content = text_or_none(said.get("role")), said.get("content")
        if role is None or role not in _ROLES or not isinstance(content, (str, list)):
            return None
        foreign = rest(said, "role", "content")
        if event:
            foreign["event"] = event
        made = self.placed(role, content, said, foreign)
        if attached := _attached(said):
            made["attachments"] = attached
        return made

    def placed(
        self, role: str, content: str | list[Any], said: dict[str, Any], foreign: dict[str, Any]
    ) -> dict[str, Any]:
        """In its role: a call's result is of the tool's, what is for the screen alone of none."""
        if said.get("ui_only") is True:
            return message("ui", content, foreign={"role": role} | foreign)
        if role == "assistant" and isinstance(content, str):
            calls = _calls(content)
            self.calls.update(call["id"] for call in calls)
            return message(role, content, tool_calls=calls, foreign=foreign)
        answered = text_or_none(said.get("call_id"))
        if role == "system" and answered in self.calls:
            foreign = {"role": role} | foreign
            return message("tool", content, tool_call_id=answered, foreign=foreign)
        return message(role, content, foreign=foreign)


def _attached(said: dict[str, Any]) -> list[dict[str, Any]]:
    """The files that went with it, by name: their bytes stay where gptme has them."""
    files, hashes = said.get("files"), said.get("file_hashes")
    hashes = hashes if isinstance(hashes, dict) else {}
    return [
        {"name": name} | ({"hash": hashes[name]} if name in hashes else {})
        for name in (files if isinstance(files, list) else [])
        if isinstance(name, str) and name
    ]


def _calls(text: str) -> list[dict[str, Any]]:
    """The calls an answer holds: those whose arguments are whole."""
    found = []
    for match in _CALL.finditer(text):
        try:
            arguments, end = json.JSONDecoder().raw_decode(text, match.end())
        except (ValueError, RecursionError):
            continue
        if isinstance(arguments, dict):
            found.append(tool_call(match[2], match[1], text[match.end() : end]))
    return found


def _is_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _digest(said: dict[str, Any]) -> bytes:
    """The same of the same message, whatever the order of its fields."""
    return blake2b(json_text(said, is_sorted=True), digest_size=16).digest()


def _same_start(before: Sequence[bytes], after: Sequence[bytes]) -> int:
    same = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            break
        same += 1
    return same
