"""The calls of a plain message, in one shape whoever spoke of them.

Owns: that shape. Refuses: what became of calls (the daemon's `sessions/views/call_results.py`),
providers' shapes (`calls.py`).

A program appends them as its provider has them, a journal has arguments as they were given, a reply
as the text that came. Each has `id`, `name`, `arguments` (JSON text, of what was cut as far as it
came; the text of a tool that takes one; None where none were given or kept) and
`arguments_complete`, beside all that it was appended with: what goes in comes out.
"""

from __future__ import annotations

import json
from typing import Any

from walld_client.recovered.segments import json_or_none

__all__ = ["with_plain_calls"]


def with_plain_calls(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its `tool_calls` in that shape; itself where it has none."""
    listed = message.get("tool_calls")
    if not isinstance(listed, list):
        return message
    return message | {"tool_calls": [_plain(one) for one in listed]}


def _plain(item: object) -> object:
    if not isinstance(item, dict):
        return item
    function = item.get("function")
    told = function if isinstance(function, dict) else item
    arguments = told.get("arguments", told.get("input"))
    if isinstance(arguments, dict) and "_artifact" in arguments:
        return item  # they stand beside the session: whoever reads them calls this again
    if arguments is not None and not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    is_begun = isinstance(arguments, str) and arguments.lstrip().startswith("{")
    is_whole = not is_begun or json_or_none(str(arguments)) is not None
    return item | {
        "id": item.get("id", item.get("call_id")),
        "name": item.get("name", told.get("name")),
        "arguments": arguments,
        "arguments_complete": item.get("arguments_complete", is_whole),
    }
