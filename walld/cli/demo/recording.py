"""A recorded model stream, as the calls that an agent makes for it.

Owns: reading server-sent events of the Messages API. Refuses: pace, sockets. Pure but for `load`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from walld_client import Reply

__all__ = ["Call", "calls", "load", "text_of"]


class Call(NamedTuple):
    """One call on a Reply: "reasoning" | "token" | "tool" | "tool_arguments" | "finish" | "end"."""

    verb: str
    text: str
    call_id: str = ""

    def make(self, reply: Reply) -> None:
        """What an integration does with it."""
        if self.verb == "token":
            reply.token(self.text)
        elif self.verb == "reasoning":
            reply.reasoning(self.text)
        elif self.verb == "tool":
            reply.tool(self.text, call_id=self.call_id)
        elif self.verb == "tool_arguments":
            reply.tool_arguments(self.text, call_id=self.call_id)
        elif self.verb == "finish":
            reply.finish(self.text)
        else:
            reply.end()


def load() -> list[Call]:
    """The recording that ships with walld. Call i has seq i + 1."""
    return list(calls(resources.files(__package__).joinpath("reply.sse").read_text("utf-8")))


def calls(recorded: str) -> Iterator[Call]:
    """Server-sent events to calls; events an integration has no use for are left out."""
    tool_of_block: dict[int, str] = {}
    for line in recorded.splitlines():
        if not line.startswith("data: "):
            continue
        event = json.loads(line[len("data: ") :])
        kind = event["type"]
        if kind == "content_block_start" and event["content_block"]["type"] == "tool_use":
            block = event["content_block"]
            tool_of_block[event["index"]] = block["id"]
            yield Call("tool", block["name"], block["id"])
        elif kind == "content_block_delta":
            yield from _delta(event["delta"], tool_of_block.get(event["index"], ""))
        elif kind == "message_delta":
            yield Call("finish", event["delta"]["stop_reason"])
        elif kind == "message_stop":
            yield Call("end", "")


def _delta(delta: dict[str, str], call_id: str) -> Iterator[Call]:
    if delta["type"] == "text_delta":
        yield Call("token", delta["text"])
    elif delta["type"] == "thinking_delta":
        yield Call("reasoning", delta["thinking"])
    elif delta["type"] == "input_json_delta":
        yield Call("tool_arguments", delta["partial_json"], call_id)


def text_of(made: list[Call], verb: str) -> str:
    """What calls of one verb said."""
    return "".join(call.text for call in made if call.verb == verb)
