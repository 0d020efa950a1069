"""The wire of Anthropic Messages. Sans-IO.

Owns: events to calls on a reply. Refuses: bytes (`body.py`).

- A block's first piece may stand in `content_block_start`; it is taken there. A call's whole input
  may too: deltas that come all the same say it from its beginning, as the SDK has it.
- `messages.stream()` of the SDK adds events of its own (`text`, `thinking`, `input_json`, ...) that
  say what the deltas have said: only the wire's own events are taken.
- A call without arguments comes without any delta: its block's end says that it is whole. A limit
  ends blocks too; the call before it is taken back, of which nobody knows what it would have had.
- A server's tool (`server_tool_use`, `mcp_tool_use`) is a call with info {"server": True}, and its
  `*_tool_result` block the result.
- Signatures and redacted thinking are kept as events: a program that resumes a message must send
  them back. They are no text.
- A block of a type that is not known, and each delta of one, is an event of kind `unknown_block`.
- Done is `message_stop`, and nothing else: a body that ends behind a stop_reason is cut. A
  stop_reason that says a failure (`network_error` of some gateways) is no end but one.
"""

from __future__ import annotations

from typing import Any

import msgspec
from walld_client.adapters.wires.call_names import CallNames
from walld_client.adapters.wires.wire import (
    LIMITS,
    Fold,
    Sink,
    call_name,
    failure_of,
    finish_failure,
    plain,
)

__all__ = ["EVENT_TYPES", "MessageEvent", "MessagesFold", "has_unknown_delta"]

EVENT_TYPES = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    }
)
"""What only this wire says; `ping` and `error` are others' words too."""
_DELTAS = frozenset(
    {"text_delta", "thinking_delta", "input_json_delta", "signature_delta", "citations_delta"}
)


class _Delta(msgspec.Struct):
    type: Any = None
    text: Any = None
    thinking: Any = None
    partial_json: Any = None
    signature: Any = None
    stop_reason: Any = None


class MessageEvent(msgspec.Struct):
    """One event, as far as it says something of the reply."""

    type: Any = None
    index: Any = None
    delta: _Delta | None = None
    """A dict where it is of a type that is not known (`body.py`)."""
    content_block: Any = None
    message: Any = None
    error: Any = None
    usage: Any = None


def has_unknown_delta(event: MessageEvent) -> bool:
    """Does it hold what no `_Delta` has a field for?"""
    delta = event.delta
    is_one = event.type == "content_block_delta" and delta is not None
    return is_one and delta.type not in _DELTAS  # type: ignore[union-attr]


class MessagesFold(Fold):
    """One message."""

    def __init__(self) -> None:
        super().__init__()
        self._names = CallNames()
        self._calls: dict[Any, str] = {}
        """Calls by the index of their block, the newest there."""
        self._begun_whole: dict[Any, str] = {}
        """Names of calls whose block began with an input, of which no delta has come."""
        self._unheard: dict[Any, str] = {}
        """Names of calls of whose arguments nothing has come, by the index of their block."""
        self._newest: tuple[Any, str] | None = None
        """The last block, where it was such a call, and is ended."""

    def take(self, item: Any, sink: Sink) -> None:
        """An event of the body, or of the SDK."""
        kind = item.type
        if kind == "content_block_delta":
            self._delta(item.index, item.delta, sink)
        elif kind == "content_block_start":
            if self._unheard:  # some servers have one index for all
                self._stop(item.index, sink)
            self._newest = None
            self._block(item.index, plain(item.content_block), sink)
        elif kind == "content_block_stop":
            if self._unheard:
                self._stop(item.index, sink)
        elif kind == "message_start":
            message = plain(item.message) or {}
            about = {"id": message.get("id"), "model": message.get("model")}
            sink.event("provider", {"wire": "anthropic-messages", **about})
            self.model.say(sink.event, model=about["model"], request_id=about["id"])
            self._used(plain(message.get("usage")))
        elif kind == "message_delta":
            self._used(plain(getattr(item, "usage", None)))
            reason = getattr(item.delta, "stop_reason", None)
            if reason and (failure := finish_failure(reason)) is not None:
                self.complaint = failure
            elif reason:
                self._over(str(reason), sink)
        elif kind == "message_stop":
            self.failure = self.complaint
            self.is_ended = self.failure is None
        elif kind == "error" or (type(item) is MessageEvent and item.error):
            self.failure = failure_of(item.error, "the provider reported an error")

    def _over(self, reason: str, sink: Sink) -> None:
        if reason not in LIMITS:
            for index in list(self._unheard):
                self._stop(index, sink)
        elif self._newest is not None:
            index, name = self._newest
            sink.tool(name, "", call_id=self._calls[index])
        sink.finish(reason)

    def _stop(self, index: Any, sink: Sink) -> None:
        name = self._unheard.pop(index, None)
        if name is not None:
            sink.tool_arguments("{}", call_id=self._calls[index])
            self._newest = index, name

    def _used(self, usage: Any) -> None:
        """Its numbers are totals; what it leaves out is as it was."""
        if isinstance(usage, dict):
            told = {name: value for name, value in usage.items() if value is not None}
            self.model.usage = {**(self.model.usage or {}), **told}

    def _delta(self, index: Any, delta: Any, sink: Sink) -> None:
        kind = "" if type(delta) is dict else delta.type
        if kind == "text_delta":
            if delta.text:
                sink.token(delta.text)
        elif kind == "thinking_delta":
            if delta.thinking:
                sink.reasoning(delta.thinking)
        elif kind == "input_json_delta":
            call_id = self._calls.get(index)
            if delta.partial_json and call_id is not None:
                if self._unheard:
                    self._unheard.pop(index, None)
                if self._begun_whole and (name := self._begun_whole.pop(index, None)) is not None:
                    sink.tool(name, "", call_id=call_id)
                sink.tool_arguments(delta.partial_json, call_id=call_id)
        elif kind == "signature_delta":
            if delta.signature:
                sink.event("signature", {"index": index, "signature": delta.signature})
        elif kind not in _DELTAS:
            sink.event("unknown_block", {"index": index, "delta": plain(delta)})

    def _block(self, index: Any, block: dict[str, Any], sink: Sink) -> None:
        kind = str(block.get("type"))
        if kind == "text":
            if text := block.get("text"):
                sink.token(text)
        elif kind == "thinking":
            if thinking := block.get("thinking"):
                sink.reasoning(thinking)
            if signature := block.get("signature"):
                sink.event("signature", {"index": index, "signature": signature})
        elif kind == "redacted_thinking":
            sink.event("redacted_thinking", {"index": index, "data": block.get("data")})
        elif kind.endswith("tool_use"):
            call_id, about = self._names.begin(str(block.get("id") or f"block:{index}"))
            self._calls[index] = call_id
            # Empty here as a rule, and then the deltas say it; some servers have it whole at once.
            arguments = block.get("input") or None
            is_ours = kind == "tool_use"
            name = call_name(block.get("name"))
            self._begun_whole.pop(index, None)
            (self._unheard if arguments is None else self._begun_whole)[index] = name
            more = about if is_ours else {**about, "server": True}
            sink.tool(name, arguments, call_id=call_id, **more)
        elif kind.endswith("tool_result"):
            content = block.get("content")
            failed = bool(block.get("is_error")) or (
                isinstance(content, dict) and str(content.get("type")).endswith("_error")
            )
            sink.tool_result(content, call_id=block.get("tool_use_id"), failed=failed, server=True)
        else:
            sink.event("unknown_block", {"index": index, "block": block})
