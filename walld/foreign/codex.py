"""Codex: rollout JSONL.

Owns: its lines {timestamp, type, payload}, and the older ones without a payload. Refuses: the
state database and the files of subagents beside it. The shapes are those of its writer, which is
public (github.com/openai/codex, `RolloutItem` and `ResponseItem`), and of rollouts it wrote, which
github.com/madshn/localpush has as fixtures.

What the model said and heard are the response items, and what other agents said to it; the events
repeat it for the screen and are kept as they are. A rollout has no tree: a rollback takes turns
back (`codex_turns.py`), as `undo` does, and gets nothing back that the list of a compaction took
the place of. A compaction of which it has the summary alone keeps what the user said: Codex puts
that before it. The words of another agent are the user's here: no provider knows a third side.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from walld.foreign.codex_turns import Said, begins_as_summary, kept_of, said_of
from walld.foreign.entries import Draft, Imported, message, tool_call
from walld.foreign.lines import Line, as_text, at_ms, parsed, rest, text_or_none
from walld.foreign.parts import base_of

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
        "ghost_snapshot",
    )
)
"""Items in no message: kept as "codex.<type>"."""
ITEM_TYPES: Final = frozenset({"message", "agent_message"} | _CALLS | _OUTPUTS | _OTHERS)


def read(lines: Iterable[str | bytes]) -> Imported:
    """A rollout. Never raises."""
    rollout = _Rollout()
    for line in parsed(lines, "codex"):
        rollout.count(line.value or {})
        if not rollout.draft.damaged(line):
            assert line.value is not None
            rollout.take(line, line.value)
    return rollout.draft.imported()


class _Rollout:
    """A rollout as far as it was read."""

    def __init__(self) -> None:
        self.draft = Draft("codex")
        self.said: list[Said] = []
        """The messages as the model has them."""
        self.model: str | None = None
        self.ordinal = 0
        """Of the next line. Rollouts since 0.150 say it in each; the others begin at 0."""

    def count(self, value: dict[str, Any]) -> None:
        """What is not here before the next line: what another file has, and what is nowhere."""
        base = base_of(value.get("payload")) if value.get("type") == "session_meta" else None
        if base is not None and self.ordinal < base.ends:
            held = {} if base.bytes is None else {"bytes": base.bytes}
            self.lack(base.ends, thread=base.of, **held)
        said = value.get("ordinal")
        if isinstance(said, int) and not isinstance(said, bool) and said > self.ordinal:
            self.lack(said)
        self.ordinal += 1

    def lack(self, ordinal: int, **where: object) -> None:
        self.draft.elsewhere.append({"ordinals": [self.ordinal, ordinal - 1]} | where)
        self.ordinal = ordinal

    def take(self, line: Line, value: dict[str, Any]) -> None:
        kind, payload = text_or_none(value.get("type")), value.get("payload")
        at = at_ms(value.get("timestamp"))
        if isinstance(payload, dict) and kind in LINE_TYPES:
            if kind == "response_item":
                self.item(line, payload, at, value.get("metadata"))
            elif kind == "event_msg":
                self.event(line, payload, at)
            elif kind == "inter_agent_communication":
                self.communication(line, payload, at)
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

    def item(self, line: Line, item: dict[str, Any], at: int, metadata: object = None) -> None:
        made = _message(item)
        kind = text_or_none(item.get("type"))
        id = text_or_none(item.get("id"))  # noqa: A001
        if made is not None:
            if id is not None and id in self.draft:
                self.draft.keep(line, "repeated_id", at_ms=at)
                return
            self.draft.add(line, "message", made, id=id, at_ms=at)
            self.said.append(_said(item, made, metadata))
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
            self.draft.add(line, "codex.event", event, at_ms=at)

    def communication(self, line: Line, told: dict[str, Any], at: int) -> None:
        """The word of another agent, for which there is no item."""
        made, id = _communicated(told), text_or_none(told.get("id"))  # noqa: A001
        if made is None or (id is not None and id in self.draft):
            self.draft.add(line, "codex.inter_agent_communication", told, at_ms=at)
            return
        self.draft.add(line, "message", made, id=id, at_ms=at)
        self.said.append(Said(True))

    def rolled_back(self, event: dict[str, Any]) -> int:
        """Take the last turns away; how many messages that were."""
        turns = event.get("num_turns")
        if not isinstance(turns, int) or isinstance(turns, bool):
            return 0
        kept = kept_of(self.said, turns)
        undone = len(self.said) - kept
        del self.said[kept:]
        return undone

    def compacted(self, line: Line, payload: dict[str, Any], at: int) -> None:
        history, summary = payload.get("replacement_history"), payload.get("message")
        foreign = rest(payload, "replacement_history")
        told: dict[str, Any] = {}
        if isinstance(history, list):
            made = [(one, _message(one) if isinstance(one, dict) else None) for one in history]
            replacement = [one for _, one in made if one is not None]
            if others := [item for item, one in made if one is None]:
                foreign["replacement_history"] = others
            said = [_said(item, one, None) for item, one in made if one is not None]
        elif isinstance(summary, str):
            asked = [one for one in self.said if one.asked is not None]
            replacement = [*(one.asked for one in asked if one.asked), message("user", summary)]
            if not begins_as_summary(summary):
                told["summary"] = summary
            said = [*asked, Said(True)]
        else:
            self.draft.keep(line, "unknown_shape", at_ms=at)
            return
        self.draft.add(
            line, "compaction", told | {"replacement": replacement, "_foreign": foreign}, at_ms=at
        )
        self.said = said

    def context(self, line: Line, kind: str, payload: dict[str, Any], at: int) -> None:
        self.draft.add(line, f"codex.{kind}", payload, at_ms=at)
        model = text_or_none(payload.get("model"))
        if kind == "turn_context" and model is not None and model != self.model:
            self.draft.add(line, "model_change", {"model": model}, at_ms=at)
            self.model = model


def _message(item: dict[str, Any]) -> dict[str, Any] | None:
    """An item as a message in the plain shape, None for what is in no message."""
    kind, call_id = text_or_none(item.get("type")), text_or_none(item.get("call_id"))
    # Others who write rollouts leave the type of a message out.
    if kind == "message" or (kind is None and {"role", "content"} <= item.keys()):
        role, content = text_or_none(item.get("role")), item.get("content")
        if role is None or not isinstance(content, (str, list)):
            return None
        foreign = rest(item, "role", "content")
        if (told := _communication(content)) is not None:
            return _communicated(told, {"role": role} | foreign)
        return message(role, content, foreign=foreign)
    if kind == "agent_message" and isinstance(item.get("content"), (str, list)):
        return message("user", item["content"], foreign=rest(item, "content"))
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


def _said(item: dict[str, Any], made: dict[str, Any], metadata: object) -> Said:
    is_agents = (
        item.get("type") == "agent_message" or _communication(item.get("content")) is not None
    )
    return said_of(item, made, metadata, is_agents=is_agents)


def _communication(content: object) -> dict[str, Any] | None:
    """What another agent said, where a message is that as JSON: so it was kept for some time."""
    if not isinstance(content, list) or len(content) != 1 or not isinstance(content[0], dict):
        return None
    text = content[0].get("text")
    if not isinstance(text, str) or not text.startswith("{") or '"trigger_turn"' not in text:
        return None
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_whole = isinstance(told, dict) and isinstance(told.get("trigger_turn"), bool)
    return told if is_whole and _communicated(told) is not None else None


def _communicated(
    told: dict[str, Any], foreign: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """The word of another agent as the model is sent it; None where it has none."""
    author, recipient = text_or_none(told.get("author")), text_or_none(told.get("recipient"))
    content, sealed = told.get("content"), text_or_none(told.get("encrypted_content"))
    if author is None or recipient is None or not isinstance(content, str):
        return None
    about = {"type": "inter_agent_communication"} | (foreign or {}) | rest(told, "content")
    if sealed is None:
        return message("user", content, foreign=about)
    kind = "NEW_TASK" if told.get("trigger_turn") is True else "MESSAGE"
    header = f"Message Type: {kind}\nTask name: {recipient}\nSender: {author}\nPayload:\n"
    blocks = [
        {"type": "input_text", "text": header},
        {"type": "encrypted_content", "encrypted_content": sealed},
    ]
    return message("user", blocks, foreign=about)
