"""What events take of memory, and how much of an event a view needs.

Owns: the sizes, and `shortened`. Refuses: how much is too much (the daemon), what a view tells.

Most of a long session is what was said and what tools gave. Views that judge calls and turns look
whether such a text is there, and tell none: for them its beginning is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getsizeof
from typing import Any, Final

import msgspec

from walld.sessions.state.events import Event

__all__ = ["TELLS_NO_TEXT", "beginning", "held_bytes", "shortened"]

_FOLD_BYTES: Final = 450
"""Of an event, beside itself: what views make of it on their way (about; a transcript of turns with
a call each makes twice that).
"""
TELLS_NO_TEXT: Final = frozenset(
    ("audit", "edit_target", "pending", "resume", "state", "trace", "tree")
)
"""Views that tell no words of messages and results, or their beginnings: an audit has those of
submissions and of edits, which are not shortened.
"""
_KEPT_CHARS: Final = 256
_TEXTS: Final = {
    "message": "content",
    "tool_finished": "result",
    "observation": "text",
}
"""By type of event, the field that holds what was said or given."""
_BLOCK_TEXTS: Final = ("text", "content", "thinking")


def held_bytes(event: Event) -> int:
    """About so much memory: of itself, and of what a fold makes of it. Its type, turn and parent
    are texts that other events have, too.
    """
    held = _FOLD_BYTES + getsizeof(event)
    walk: list[Any] = [event.payload, event.owner]
    walk += (event.id, event.cause, event.correlation, event.key)
    while walk:
        value = walk.pop()
        if value is None:
            continue
        held += getsizeof(value)
        if isinstance(value, dict):
            walk += value.values()
        elif isinstance(value, list):
            walk += value
    return held


def shortened(event: Event) -> Event:
    """The event with the beginnings of long texts that a view which tells none only looks for."""
    name = _TEXTS.get(event.type)
    told = None if name is None else event.payload.get(name)
    if name is None or not isinstance(told, (str, list)):
        return event
    return msgspec.structs.replace(event, payload=event.payload | {name: beginning(told)})


def beginning(content: object, chars: int = _KEPT_CHARS) -> object:
    """Of a text, and of those of a list of blocks; what else there is is left as it is."""
    if isinstance(content, str):
        return content if len(content) <= chars else content[:chars]
    return [_short_block(one, chars) for one in content] if isinstance(content, list) else content


def _short_block(block: object, chars: int) -> object:
    """Of a list of content; what a block names, and what a call is given, is left as it is."""
    if not isinstance(block, dict):
        return block
    texts = [name for name in _BLOCK_TEXTS if isinstance(block.get(name), str)]
    kept: dict[str, Any] = {name: beginning(block[name], chars) for name in texts}
    if isinstance(inner := block.get("content"), Sequence) and not isinstance(inner, str):
        kept["content"] = [_short_block(one, chars) for one in inner]
    return block | kept if kept else block
