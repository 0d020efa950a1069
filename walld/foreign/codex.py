"""Codex: rollout JSONL.

Owns: its lines {timestamp, type, payload}, and the older ones without a payload. Refuses: the
state database and the files of subagents beside it. The shapes are those of its writer, which is
public (github.com/openai/codex, `RolloutItem` and `ResponseItem`), and of rollouts it wrote, which
github.com/madshn/localpush has as fixtures.

What the model said and heard are the response items; the events repeat it for the screen and are
kept as they are. A rollout has no tree: a rollback takes turns back, as `undo` does. Behind a
compaction those are what the user said as far as its list has it, and its summary: Codex counts
them so, and gets nothing back that the list took the place of. A compaction of which it has the
summary alone keeps what the user said: Codex puts that before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from walld.foreign.entries import Draft, Imported, message, tool_call
from walld.foreign.lines import Line, as_text, at_ms, parsed, rest, text_or_none

__all__ = ["ITEM_TYPES", "LINE_TYPES", "read"]

LINE_TYPES: Final = frozenset(
    (
        "session_meta",
        "response_item",
        "event_msg",
        "turn_context",
        "compacted",
        "world_state",
        "inter_agent_communication",
        "inter_agent_communication_metadata",
        "token_usage_record",
        "retained_context",
        "security_risk_score",
        "realtime_item",
    )
)
_CALLS: Final = frozenset(("function_call", "custom_tool_call", "local_shell_call"))
_OUTPUTS: Final = frozenset(("function_call_output", "custom_tool_call_output"))
_OTHERS: Final = frozenset(
    (
        "reasoning",
        "web_search_call",
        "tool_search_call",
        "tool_search_output",
        "image_generation_call",
        "compaction",
        "compaction_summary",
        "context_compaction",
        "compaction_trigger",
        "configuration_update",
        "additional_tools",
        "agent_message",
        "ghost_snapshot",
    )
)
"""Items in no message: kept as "codex.<type>"."""
ITEM_TYPES: Final = frozenset({"message"} | _CALLS | _OUTPUTS | _OTHERS)
_CONTEXT: Final = (
    "<environment_context>",
    "# AGENTS.md instructions for ",
    "<user_instructions>",
    "<codex_internal_context",
    "<skill>",
    "<subagent_notification>",
    "<turn_aborted>",
    "<user_shell_command>",
)
"""How what Codex itself says in the user's role begins."""
_SUMMARY: Final = "Another language model started to solve this problem and produced a summary"
"""How its summaries begin in the list of a compaction."""


def read(lines: Iterable[str | bytes]) -> Imported:
    """A rollout. Never raises."""
    rollout = _Rollout()
    for line in parsed(lines, "codex"):
        if not rollout.draft.damaged(line):
            assert line.value is not None
            rollout.take(line, line.value)
    return rollout.draft.imported()


class _Turn(NamedTuple):
    """begins: where in `roles`. asked: what the user said; None for a summary."""

    begins: int
    asked: dict[str, Any] | None


class _Rollout:
    """A rollout as far as it was read."""

    def __init__(self) -> None:
        self.draft = Draft("codex")
        self.roles: list[str] = []
        """Of the messages as the model has them."""
        self.turns: list[_Turn] = []
        """What a rollback counts."""
        self.newest: dict[str, Any] = {}
        """The last message of the user's role."""
        self.model: str | None = None

    def take(self, line: Line, value: dict[str, Any]) -> None:
        kind, payload = text_or_none(value.get("type")), value.get("payload")
        at = at_ms(value.get("timestamp"))
        if isinstance(payload, dict) and kind in LINE_TYPES:
            if kind == "response_item":
                self.item(line, payload, at)
            elif kind == "event_msg":
                self.event(line, payload, at)
            elif kind == "compacted":
                self.compacted(line, payload, at)
            else:
                assert kind is not None
                self.context(line, kind, payload, at)
        elif "payload" not in value and kind in ITEM_TYPES:
            self.item(line, value, at)
        elif "type" not in value and text_or_none(value.get("id")) and "timestamp" in value:
            self.draft.add(line, "codex.session_meta", value, at_ms=at)
        elif "record_type" in value:
            self.draft.add(line, "codex.state", value, at_ms=at)
        else:
            self.draft.keep(line, "unknown_shape" if kind is None else "unknown_type")

    def item(self, line: Line, item: dict[str, Any], at: int) -> None:
        made = _message(item)
        kind = text_or_none(item.get("type"))
        id = text_or_none(item.get("id"))  # noqa: A001
        if made is not None:
            if id is not None and id in self.draft:
                self.draft.keep(line, "repeated_id", at_ms=at)
                return
            self.draft.add(line, "message", made, id=id, at_ms=at)
            self.roles.append(made["role"])
            if made["role"] == "user":
                self.newest = made
        elif kind in _OTHERS:
            self.draft.add(line, f"codex.{kind}", item, id=id, at_ms=at)
        else:
            known = kind is None or kind in ITEM_TYPES
            self.draft.keep(line, "unknown_shape" if known else "unknown_type", at_ms=at)

    def event(self, line: Line, event: dict[str, Any], at: int) -> None:
        kind = event.get("type")
        if not isinstance(kind, str):
            self.draft.keep(line, "unknown_shape", at_ms=at)
        elif kind == "thread_rolled_back" and (undone := self.rolled_back(event)):
            self.draft.add(line, "undo", {"n": undone, "_foreign": event}, at_ms=at)
        else:
            if kind == "user_message" and "user" in self.roles:
                # The screen's copy of it comes behind the item: it alone says that a turn begins,
                # and not another piece of context with the user's role.
                begins = len(self.roles) - 1 - self.roles[::-1].index("user")
                self.turns.append(_Turn(begins, message("user", self.newest["content"])))
            self.draft.add(line, "codex.event", event, at_ms=at)

    def rolled_back(self, event: dict[str, Any]) -> int:
        """Take the last turns away; how many messages that were."""
        turns = event.get("num_turns")
        if not isinstance(turns, int) or isinstance(turns, bool) or turns < 1 or not self.turns:
            return 0
        turns = min(turns, len(self.turns))
        begins = self.turns[-turns].begins
        undone = len(self.roles) - begins
        del self.turns[-turns:]
        del self.roles[begins:]
        return max(undone, 0)

    def compacted(self, line: Line, payload: dict[str, Any], at: int) -> None:
        history, summary = payload.get("replacement_history"), payload.get("message")
        foreign = rest(payload, "replacement_history")
        if isinstance(history, list):
            made = [_message(item) for item in history if isinstance(item, dict)]
            replacement = [one for one in made if one is not None]
            others = [item for item in history if not isinstance(item, dict) or not _message(item)]
            if others:
                foreign["replacement_history"] = others
            turns = _turns(replacement)
        elif isinstance(summary, str):
            asked = [turn.asked for turn in self.turns if turn.asked is not None]
            replacement = [*asked, message("user", summary)]
            turns = [_Turn(*one) for one in enumerate([*asked, None])]
        else:
            self.draft.keep(line, "unknown_shape", at_ms=at)
            return
        self.draft.add(
            line, "compaction", {"replacement": replacement, "_foreign": foreign}, at_ms=at
        )
        self.roles = [one["role"] for one in replacement]
        self.turns = turns

    def context(self, line: Line, kind: str, payload: dict[str, Any], at: int) -> None:
        self.draft.add(line, f"codex.{kind}", payload, at_ms=at)
        model = text_or_none(payload.get("model"))
        if kind == "turn_context" and model is not None and model != self.model:
            self.draft.add(line, "model_change", {"model": model}, at_ms=at)
            self.model = model


def _turns(replacement: list[dict[str, Any]]) -> list[_Turn]:
    """Those that the list of a compaction has."""
    found: list[_Turn] = []
    for at, one in enumerate(replacement):
        texts = [text.lstrip() for text in _texts(one["content"])]
        if one["role"] != "user" or any(text.startswith(_CONTEXT) for text in texts):
            continue
        is_summary = bool(texts) and texts[0].startswith(_SUMMARY)
        found.append(_Turn(at, None if is_summary else message("user", one["content"])))
    return found


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else []
    told = (block.get("text") for block in blocks if isinstance(block, dict))
    return [text for text in told if isinstance(text, str)]


def _message(item: dict[str, Any]) -> dict[str, Any] | None:
    """An item as a message in the plain shape, None for what is in no message."""
    kind, call_id = text_or_none(item.get("type")), text_or_none(item.get("call_id"))
    if kind == "message":
        role, content = text_or_none(item.get("role")), item.get("content")
        if role is None or not isinstance(content, (str, list)):
            return None
        return message(role, content, foreign=rest(item, "role", "content"))
    if kind in _CALLS:
        name, arguments = item.get("name"), item.get("arguments")
        if kind == "local_shell_call":
            name, arguments = "local_shell", item.get("action")
            call_id = call_id or text_or_none(item.get("id"))
        elif kind == "custom_tool_call":
            arguments = json.dumps({"input": item.get("input")}, ensure_ascii=False)
        if call_id is None or not text_or_none(name):
            return None
        call = tool_call(call_id, str(name), as_text({} if arguments is None else arguments))
        return message("assistant", "", tool_calls=[call], foreign=rest(item, "arguments"))
    if kind in _OUTPUTS and call_id is not None:
        output, failed = item.get("output"), False
        foreign = rest(item, "call_id", "output")
        if isinstance(output, dict) and isinstance(output.get("content"), (str, list)):
            foreign["output"] = rest(output, "content")
            failed = output.get("success") is False
            output = output["content"]
        return message("tool", output, tool_call_id=call_id, failed=failed, foreign=foreign)
    return None
