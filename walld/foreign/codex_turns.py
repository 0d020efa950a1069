"""Turns of a Codex conversation: what a rollback counts, and what it takes away.

Owns: which of the messages that the model has begin a turn, and which are context that goes with
the turn behind it. Refuses: what a message is (`codex.py`).

A turn begins at each message of the user's role that is no context, and at each word of another
agent; what the screen shows of it counts for nothing. Context right before a turn goes with it, but
for what stands before the first one. So Codex counts, in a running session and when it reads its
rollout again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from walld.foreign.entries import message

__all__ = ["Said", "begins_as_summary", "kept_of", "said_of"]

_CONTEXT: Final = (
    "<environment_context>",
    "# agents.md instructions for ",
    "<user_instructions>",
    "<codex_internal_context",
    "<skill>",
    "<skills_instructions>",
    "<subagent_notification>",
    "<turn_aborted>",
    "<user_shell_command>",
    "<extension_context>",
    "<extension_contextual_user>",
    "<goal_context>",
    "<external_",
    "<hook_prompt",
    "warning: the maximum number of unified exec processes",
    "warning: apply_patch was requested via ",
    "warning: your account was flagged for potentially high-risk cyber activity",
)
"""How what Codex itself says in the user's role begins, in lower case."""
_DEVELOPER_CONTEXT: Final = (
    "<permissions instructions>",
    "<model_switch>",
    "<collaboration_mode>",
    "<multi_agent_mode>",
    "<realtime_conversation>",
    "<environments_instructions>",
    "<plugins_instructions>",
    "<skills_instructions>",
    "<apps_instructions>",
    "<personality_spec>",
    "<token_budget>",
    "<context_window>",
    "<context_window_guidance>",
    "<rollout_budget>",
)
_SUMMARY: Final = "another language model started to solve this problem and produced a summary"
"""How its summaries begin in the list of a compaction, in lower case."""
_LOOKED_AT: Final = 100
"""Characters, more than any of these has."""


class Said(NamedTuple):
    """A message as the model has it. begins: a turn. asked: what the user said, as a message."""

    begins: bool
    is_context: bool = False
    asked: dict[str, Any] | None = None


def said_of(
    item: dict[str, Any], made: dict[str, Any], metadata: object, *, is_agents: bool
) -> Said:
    """What Codex takes a message for. item: it as the rollout has it. metadata: of its line, where
    the writer may say itself whether a turn begins. is_agents: another agent said it.
    """
    role = made["role"]
    texts = [text.lstrip()[:_LOOKED_AT].lower() for text in _texts(made["content"])]
    if is_agents:
        said = Said(True)
    elif role == "user":
        is_context = any(text.startswith(_CONTEXT) for text in texts) and not _is_users(item)
        is_summary = any(begins_as_summary(text) for text in texts[:1])
        asked = None if is_context or is_summary else message("user", made["content"])
        said = Said(not is_context, is_context, asked)
    else:
        is_update = role == "developer" and any(one.startswith(_DEVELOPER_CONTEXT) for one in texts)
        said = Said(False, is_update)
    override = metadata.get("turn_boundary_override") if isinstance(metadata, dict) else None
    return said._replace(begins=override) if isinstance(override, bool) else said


def begins_as_summary(text: str) -> bool:
    """Whether a text begins with the sentence that Codex puts before its summaries."""
    return text.lstrip()[:_LOOKED_AT].lower().startswith(_SUMMARY)


def kept_of(said: Sequence[Said], turns: int) -> int:
    """How many messages stay when the last `turns` turns are taken away."""
    begins = [place for place, one in enumerate(said) if one.begins]
    if not begins or turns < 1:
        return len(said)
    kept = begins[max(len(begins) - turns, 0)]
    while kept > begins[0] and said[kept - 1].is_context:
        kept -= 1
    return kept


def _is_users(item: dict[str, Any]) -> bool:
    """The writer says of each piece where it is from, and one is the user's own."""
    about, content = item.get("internal_chat_message_metadata_passthrough"), item.get("content")
    kinds = about.get("content_item_kinds") if isinstance(about, dict) else None
    if not isinstance(kinds, list) or not isinstance(content, list) or len(kinds) != len(content):
        return False
    return any(isinstance(kind, str) and kind.startswith("user.") for kind in kinds)


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else []
    told = (block.get("text") for block in blocks if isinstance(block, dict))
    return [text for text in told if isinstance(text, str)]
