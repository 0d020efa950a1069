"""The sentence before a summary, which says to a provider that it is one.

Owns: its words, and which messages are summaries: those of a compaction (`_compaction`) and of a
branch that was left (`_branch_summary`), as the daemon's `sessions/views/messages.py` marks them.
A summary that brings a sentence of its own, as those of Claude Code and Codex do, has no mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from walld_client.recovered.blocks import text_block

__all__ = ["OF_ALL_BEFORE", "OF_A_BRANCH", "introduced"]

OF_ALL_BEFORE: Final = (
    "What was said in this conversation before is replaced by this summary of it:"
)
OF_A_BRANCH: Final = (
    "The conversation went on elsewhere and came back here; this is a summary of what was left:"
)
_SENTENCES: Final = {"_compaction": OF_ALL_BEFORE, "_branch_summary": OF_A_BRANCH}


def introduced(message: Mapping[str, Any], blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks of a message, with the sentence before them where it is a summary that says
    something.
    """
    sentence = next((said for mark, said in _SENTENCES.items() if message.get(mark)), None)
    if sentence is None or not blocks:
        return blocks
    first, *more = blocks
    if first["type"] != "text":
        return [text_block(sentence), *blocks]
    return [text_block(f"{sentence}\n\n{first['text']}"), *more]
