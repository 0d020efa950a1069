"""The wire of OpenAI Responses. Sans-IO.

Owns: events to calls on a reply. Refuses: bytes (`body.py`).

- Calls are items of the output: of functions, of custom tools, and of tools that OpenAI runs; those
  get their result when their item is done, with info {"server": True}.
- Deltas name their item by `output_index`, and by `item_id` where items share one. What is done (a
  part, an item, the whole response) is taken at its word where no delta has said it.
- Of a call whose id or name came late the deltas may be the rest alone: OpenAI Agents makes events
  of Chat and keeps to itself what comes before it knows both. The item that is done has all of it.
- A refusal is text with info {"refusal": True}: the user reads it.
- An event of kind `provider` stands where the response begins and behind every item that is done:
  its id and the `sequence_number` there. A background response can be taken up again at OpenAI
  behind that number; what is recovered behind the event comes again then. Between items there is
  none, because it would cut the text in two.
- Done is `response.completed`, whose finish reason is `completed`, or `tool_calls` where functions
  are to be run, or `response.incomplete`, whose own reason it is.
  `response.failed` and `error` are failures; the SDK hands them on and raises nothing. What comes
  behind an `error` is kept, and the response has failed all the same.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from walld_client.adapters.wires.openai_output import Calls, Places, Repeats, Texts
from walld_client.adapters.wires.wire import (
    Failure,
    Fold,
    Sink,
    call_name,
    failure_of,
    finish_failure,
    finish_word,
    plain,
)

__all__ = ["ResponseEvent", "ResponsesFold"]

_CALLED_BY_THE_PROGRAM: Final = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "computer_call",
        "local_shell_call",
        "apply_patch_call",
        "shell_call",
    }
)
"""Calls whose result the program sends, in its next request; what else ends in `_call` is run by
the provider."""
_TEXT: Final = "response.output_text.delta"
_REFUSAL: Final = "response.refusal.delta"
_THOUGHTS: Final = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")
_DONE_TEXTS: Final = {
    "response.output_text.done": _TEXT,
    "response.refusal.done": _REFUSAL,
    "response.reasoning_text.done": _THOUGHTS[0],
    "response.reasoning_summary_text.done": _THOUGHTS[1],
}
_PARTS: Final = {
    "output_text": _TEXT,
    "refusal": _REFUSAL,
    "reasoning_text": _THOUGHTS[0],
    "summary_text": _THOUGHTS[1],
}
"""Of an item that is done, its texts by the deltas that would have brought them."""
_ABOUT: Final = frozenset({"type", "id", "call_id", "name", "arguments", "status"})
"""Of an item that is done: not its result."""


class ResponseEvent(msgspec.Struct):
    """One event, as far as it says something of the reply."""

    type: Any = None
    delta: Any = None
    text: Any = None
    refusal: Any = None
    arguments: Any = None
    input: Any = None
    output_index: Any = None
    item_id: Any = None
    content_index: Any = None
    summary_index: Any = None
    sequence_number: Any = None
    item: Any = None
    response: Any = None
    error: Any = None
    message: Any = None
    code: Any = None


class ResponsesFold(Fold):
    """One response."""

    def __init__(self) -> None:
        super().__init__()
        self._id: str | None = None
        self._places = Places()
        self._texts = Texts()
        self._calls = Calls()
        self._results: set[str] = set()
        """Calls whose result was said."""
        self._asks_for_tools = False

    def take(self, item: Any, sink: Sink) -> None:
        """An event of the body, or of the SDK."""
        kind = item.type
        if not isinstance(kind, str):
            kind = ""
        if kind.endswith(".delta"):
            self._delta(kind, item, sink)
        elif kind in _DONE_TEXTS:
            self._done(_DONE_TEXTS[kind], item, sink)
        elif kind.endswith(("_call_arguments.done", "_call_input.done")):
            self._arguments_done(item, sink)
        elif kind == "response.output_item.added":
            added = plain(item.item) or {}
            self._added(self._places.add(item.output_index, added.get("id")), added, sink)
        elif kind == "response.output_item.done":
            self._item_done(item, plain(item.item) or {}, sink)
        elif kind == "error":
            self._error(item)
        elif getattr(item, "response", None) is not None:
            self._response(kind, item, sink)
        elif type(item) is ResponseEvent and item.error:  # the SDK raises it and hands no object on
            self.failure = failure_of(item.error, "the provider reported an error")

    def _error(self, event: Any) -> None:
        """The SDK raises what has an `error`; of another one it hands on what comes behind it."""
        if raised := getattr(event, "error", None):
            self.failure = failure_of(raised, "the provider reported an error")
        elif self.complaint is None:
            said = {"message": event.message, "code": event.code}
            self.complaint = failure_of(said, "the provider reported an error")

    def _response(self, kind: str, event: Any, sink: Sink) -> None:
        response = plain(event.response) if isinstance(event.response, dict) else event.response
        if self._id is None:
            self._id = str(_of(response, "id") or "")
            about = {"wire": "openai-responses", "model": _of(response, "model")}
            sink.event("provider", {**about, **self._cursor(event)})
            self.model.say(sink.event, model=about["model"], request_id=self._id)
        if usage := _of(response, "usage"):
            self.model.usage = plain(usage)
        if kind in ("response.completed", "response.incomplete"):
            self._output_said(plain(_of(response, "output")) or (), sink)
        if kind == "response.completed":
            self._over(finish_word("completed", self._asks_for_tools), sink)
        elif kind == "response.incomplete":
            details = plain(_of(response, "incomplete_details")) or {}
            self._over(str(details.get("reason") or "incomplete"), sink)
        elif kind == "response.failed":
            error = _of(response, "error")
            self.failure = self.complaint or failure_of(error, "the response failed")
        elif kind == "response.cancelled":
            self.failure = self.complaint or Failure("the response was cancelled", "cancelled")

    def _over(self, reason: str, sink: Sink) -> None:
        self.failure = self.complaint or finish_failure(reason)
        if self.failure is None:
            sink.finish(reason)
            self.is_ended = True

    def _cursor(self, event: Any) -> dict[str, Any]:
        return {"id": self._id, "sequence_number": event.sequence_number}

    def _delta(self, kind: str, event: Any, sink: Sink) -> None:
        delta = event.delta
        if not delta or not isinstance(delta, str):
            return
        if kind == _TEXT:
            self._texts.add(self._part(kind, event), delta)
            sink.token(delta)
        elif kind in _THOUGHTS:
            self._texts.add(self._part(kind, event), delta)
            sink.reasoning(delta)
        elif kind == _REFUSAL:
            self._texts.add(self._part(kind, event), delta)
            sink.token(delta, refusal=True)
        elif (call_id := self._call_of(event)) is not None:
            # Arguments of a function or of an MCP tool, the input of a custom one, code, a command.
            self._calls.hear(call_id, delta)
            sink.tool_arguments(delta, call_id=call_id)

    def _part(self, kind: str, event: Any) -> tuple[str, Any, Any]:
        """Names a part of the output, of one kind."""
        index = getattr(event, "content_index", None)
        if index is None:
            index = getattr(event, "summary_index", None)
        return (kind, self._place(event), index)

    def _place(self, event: Any) -> Any:
        item_id = getattr(event, "item_id", None)
        return self._places.find(item_id, getattr(event, "output_index", None))

    def _call_of(self, event: Any) -> str | None:
        return self._calls.at(self._place(event))

    def _done(self, delta_kind: str, event: Any, sink: Sink) -> None:
        """A part that is done: said here where no delta has."""
        part = self._part(delta_kind, event)
        text = event.refusal if delta_kind == _REFUSAL else event.text
        if isinstance(text, str) and not Repeats(self._texts).has(*part, text):
            self._say(part, text, sink)

    def _arguments_done(self, event: Any, sink: Sink) -> None:
        call_id = self._call_of(event)
        whole = getattr(event, "arguments", None) or getattr(event, "input", None)
        if call_id is None or self._calls.has_heard(call_id):
            return
        if whole and isinstance(whole, str):
            self._calls.hear(call_id, whole)
            sink.tool_arguments(whole, call_id=call_id)

    def _added(self, place: Any, item: dict[str, Any], sink: Sink) -> None:
        kind = str(item.get("type"))
        if not kind.endswith("_call"):
            return
        given = str(item.get("call_id") or item.get("id") or f"{self._id}:{place}")
        name = call_name(item.get("name") or kind.removesuffix("_call"))
        call_id, about = self._calls.add(place, given, name)
        is_ours = kind in _CALLED_BY_THE_PROGRAM
        self._asks_for_tools = self._asks_for_tools or is_ours
        more = about if is_ours else {**about, "server": True}
        sink.tool(name, call_id=call_id, **more)

    def _item_done(self, event: Any, item: dict[str, Any], sink: Sink) -> None:
        place = self._places.find(item.get("id"), event.output_index)
        self._item_said(place, item, Repeats(self._texts), sink)
        sink.event("provider", self._cursor(event))

    def _output_said(self, output: Any, sink: Sink) -> None:
        """All of it, at the end: what of it has come in no other way is said here."""
        repeats, told = Repeats(self._texts), set[str]()
        for index, one in enumerate(output):
            item = one if isinstance(one, dict) else {}
            place = self._places.find(item.get("id"), index)
            self._item_said(place, item, repeats, sink, told)

    def _item_said(
        self,
        place: Any,
        item: dict[str, Any],
        repeats: Repeats,
        sink: Sink,
        told: set[str] | None = None,
    ) -> None:
        kind = str(item.get("type"))
        if kind in ("message", "reasoning"):
            self._texts_said(place, item, repeats, sink)
        elif kind.endswith("_call"):
            self._call_said(place, item, sink, told)
        elif kind.endswith("_call_output") and str(item.get("call_id")) not in self._results:
            self._results.add(str(item.get("call_id")))
            sink.tool_result(item.get("output"), call_id=item.get("call_id"), server=True)

    def _call_said(
        self, place: Any, item: dict[str, Any], sink: Sink, told: set[str] | None
    ) -> None:
        kind = str(item.get("type"))
        call_id = self._calls.known(place, item, told)
        if call_id is None:
            place = place if self._calls.at(place) is None else ("done", place, item.get("call_id"))
            self._added(place, item, sink)
            call_id = self._calls.known(place, item, told) or ""
        arguments = item.get("arguments") or item.get("input") or item.get("action")
        name = call_name(item.get("name") or kind.removesuffix("_call"))
        if arguments and self._calls.lacks(call_id, arguments):
            self._calls.hear_whole(call_id, arguments if isinstance(arguments, str) else "")
            sink.tool(name, arguments, call_id=call_id)
        elif self._calls.is_renamed(call_id, name):
            sink.tool(name, call_id=call_id)
        if kind not in _CALLED_BY_THE_PROGRAM and call_id not in self._results:
            self._results.add(call_id)
            _hosted_result(call_id, item, sink)

    def _texts_said(self, place: Any, item: dict[str, Any], repeats: Repeats, sink: Sink) -> None:
        """The texts of an item of which nothing has come yet."""
        for parts in (item.get("summary"), item.get("content")):
            for index, part in enumerate(parts or ()):
                have = part if isinstance(part, dict) else {}
                kind = _PARTS.get(str(have.get("type")))
                text = have.get("refusal") or have.get("text")
                if kind is None or not isinstance(text, str):
                    continue
                if not repeats.has(kind, place, index, text):
                    self._say((kind, place, index), text, sink)

    def _say(self, part: tuple[str, Any, Any], text: str, sink: Sink) -> None:
        """A text, as its delta would have said it."""
        if not text:
            return
        self._texts.add(part, text)
        if part[0] == _REFUSAL:
            sink.token(text, refusal=True)
        elif part[0] == _TEXT:
            sink.token(text)
        else:
            sink.reasoning(text)


def _of(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


def _hosted_result(call_id: str, item: dict[str, Any], sink: Sink) -> None:
    """What a call that the provider ran gave back: its output, or all its item says of it."""
    error = item.get("error")
    failed = bool(error) or item.get("status") == "failed"
    result = error or item.get("output")
    if result is None:
        result = {name: value for name, value in item.items() if name not in _ABOUT}
    sink.tool_result(result, call_id=call_id, failed=failed, server=True)
