"""The wire of OpenAI Responses. Sans-IO.

Owns: events to calls on a reply. Refuses: bytes (`body.py`).

- Calls are items of the output: of functions, of custom tools, and of tools that OpenAI runs; those
  get their result when their item is done, with info {"server": True}.
- Deltas name their item by `output_index`, and by `item_id` where items share one. What is done (a
  part, an item, the whole response) is taken at its word where no delta has said it, or not all of
  it. A rest that would stand in the wrong place is an event of kind `unheard`, with the whole text.
- An item or a part of a type that is not known is an event of kind `unknown_block`. What has to be
  sent back with a thought (`encrypted_content`) is one of kind `signature`.
- What is spoken comes as a transcript: text with info {"transcript": True}; audio without a word is
  an event of kind `audio_not_kept`.
- A call without arguments is whole once its arguments, or its item, are done.
- Of a call whose id or name came late the deltas may be the rest alone: OpenAI Agents makes events
  of Chat and keeps to itself what comes before it knows both. The item that is done has all of it.
- A refusal is text with info {"refusal": True}: the user reads it.
- An event of kind `provider` stands where the response begins and behind every item that is done:
  its id and the `sequence_number` there. A background response can be taken up again at OpenAI
  behind that number; what is recovered behind the event comes again then. Between items there is
  none, because it would cut the text in two. A stream that does so goes on where its fold is the
  same (`goes_on`): what it says again, by the numbers, is said once.
- Done is `response.completed`, whose finish reason is `completed`, or `tool_calls` where functions
  are to be run, or `response.incomplete`, whose own reason it is.
  `response.failed` and `error` are failures; the SDK hands them on and raises nothing. What comes
  behind an `error` is kept, and the response has failed all the same.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from walld_client.adapters.wires.openai_output import Calls, Places, Repeats, Texts, Unsaid
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
_TRANSCRIPT: Final = "response.audio.transcript.delta"
_TRANSCRIPTS: Final = frozenset(
    {_TRANSCRIPT, "response.audio_transcript.delta", "response.output_audio_transcript.delta"}
)
_AUDIO: Final = frozenset({"response.audio.delta", "response.output_audio.delta"})
_DONE_TEXTS: Final = {
    "response.output_text.done": _TEXT,
    "response.refusal.done": _REFUSAL,
    "response.reasoning_text.done": _THOUGHTS[0],
    "response.reasoning_summary_text.done": _THOUGHTS[1],
    **{one.removesuffix("delta") + "done": _TRANSCRIPT for one in _TRANSCRIPTS},
}
_PARTS: Final = {
    "output_text": _TEXT,
    "refusal": _REFUSAL,
    "reasoning_text": _THOUGHTS[0],
    "summary_text": _THOUGHTS[1],
    "output_audio": _TRANSCRIPT,
}
"""Of an item that is done, its texts by the deltas that would have brought them."""
_CALLED: Final = {
    _TEXT: "text",
    _REFUSAL: "refusal",
    _TRANSCRIPT: "transcript",
    **dict.fromkeys(_THOUGHTS, "reasoning"),
}
"""What those texts are, in events."""
_JSON_CALLS: Final = frozenset({"function_call", "mcp_call"})
"""Calls whose arguments are JSON: none at all are none of these."""
_ABOUT: Final = frozenset({"type", "id", "call_id", "name", "arguments", "status"})
"""Of an item that is done: not its result."""


class ResponseEvent(msgspec.Struct):
    """One event, as far as it says something of the reply."""

    type: Any = None
    delta: Any = None
    text: Any = None
    refusal: Any = None
    transcript: Any = None
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
        self._number = self._again_to = -1
        """The highest sequence number so far; that up to which a stream that goes on says again."""
        self._is_resumed = False
        self.is_in_background = False
        """It says of itself that it can be taken up again."""
        self._beside: set[Any] = set()
        """What was said in an event, and is told again: items, parts."""
        self._audio_chars = 0
        self._has_words = False

    @property
    def response_id(self) -> str | None:
        """By which it can be asked for; None before it was told."""
        return self._id or None

    def goes_on(self, event: Any) -> bool:
        """Is this, with which another stream begins, behind what this response has said?

        It says so by the response's id, or, where an event has none, by that of an item that has
        begun, or by its number. Its own beginning is none: what is said anew may be something else.
        """
        kind, number = event.type, getattr(event, "sequence_number", None)
        if kind == "response.created" or type(number) is not int or number < 1 or not self._id:
            return False
        response = getattr(event, "response", None)
        if response is not None:
            return bool(_of(response, "id") == self._id)
        item_id = getattr(event, "item_id", None) or _of(getattr(event, "item", None), "id")
        if self.is_ended:  # some gateways have no beginning, and few ids
            return number > 1 and self._places.has(item_id)
        return number > self._number or self._places.has(item_id)

    def resume(self) -> None:
        """What comes is of another stream, which goes on with this response."""
        self.failure = self.complaint = None
        self._again_to, self._is_resumed = self._number, True
        self.model.is_again = True

    def take(self, item: Any, sink: Sink) -> None:
        """An event of the body, or of the SDK."""
        number = getattr(item, "sequence_number", None)
        if type(number) is int:
            if number <= self._again_to:
                return
            if self._is_resumed:
                self._is_resumed = False
                if number > self._number + 1:
                    missing = [self._number + 1, number - 1]
                    sink.event("unheard", {"sequence_numbers": missing})
            self._number = max(self._number, number)
        kind = item.type
        if not isinstance(kind, str):
            kind = ""
        if kind.endswith(".delta"):
            self._delta(kind, item, sink)
        elif kind in _DONE_TEXTS:
            self._done(_DONE_TEXTS[kind], item, sink)
        elif kind.endswith(("_call_arguments.done", "_call_input.done")):
            self._arguments_done(kind, item, sink)
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
        self.is_in_background = self.is_in_background or _of(response, "background") is True
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
        if self._audio_chars and not self._has_words:
            sink.event("audio_not_kept", {"base64_chars": self._audio_chars})
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
        elif kind in _TRANSCRIPTS:
            self._say(self._part(_TRANSCRIPT, event), delta, sink)
        elif kind in _AUDIO:
            self._audio_chars += len(delta)
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
        name = {_REFUSAL: "refusal", _TRANSCRIPT: "transcript"}.get(delta_kind, "text")
        text = getattr(event, name, None)
        if isinstance(text, str):
            self._say_unsaid(part, Repeats(self._texts).unsaid(*part, text), sink)

    def _arguments_done(self, kind: str, event: Any, sink: Sink) -> None:
        call_id = self._call_of(event)
        whole = getattr(event, "arguments", None) or getattr(event, "input", None)
        if call_id is None:
            return
        if not whole and kind.endswith("_arguments.done"):
            self._has_none(call_id, sink)
        elif whole and isinstance(whole, str):
            is_heard = self._calls.has_heard(call_id)
            rest = self._calls.rest(call_id, whole) if is_heard else whole
            if rest:
                self._calls.hear(call_id, rest)
                sink.tool_arguments(rest, call_id=call_id)

    def _has_none(self, call_id: str, sink: Sink) -> None:
        """A call is done, and has no arguments."""
        if not self._calls.has_heard(call_id):
            self._calls.hear(call_id, "")
            sink.tool_arguments("{}", call_id=call_id)

    def _added(self, place: Any, item: dict[str, Any], sink: Sink) -> None:
        kind = str(item.get("type"))
        if not kind.endswith("_call"):
            return
        given = str(item.get("call_id") or item.get("id") or f"{self._id}:{place}")
        name = call_name(item.get("name") or kind.removesuffix("_call"))
        call_id, about = self._calls.add(place, given, name)
        self._texts.newest = None
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
        elif item and not kind.endswith("_call_output"):
            self._say_beside("unknown_block", _own(item, place), {"block": item}, sink)
        if kind == "reasoning" and isinstance(signature := item.get("encrypted_content"), str):
            about = {"item_id": item.get("id"), "signature": signature}
            self._say_beside("signature", _own(item, place), about, sink)

    def _say_beside(self, kind: str, of: Any, about: dict[str, Any], sink: Sink) -> None:
        """An event, once, however often its item is told."""
        if (kind, of) not in self._beside:
            self._beside.add((kind, of))
            self._texts.newest = None
            sink.event(kind, about)

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
        rest = self._calls.rest(call_id, arguments) if isinstance(arguments, str) else ""
        is_done = item.get("status") in (None, "completed")
        if rest:
            self._calls.hear(call_id, rest)
            sink.tool_arguments(rest, call_id=call_id)
        elif not arguments and kind in _JSON_CALLS and is_done:
            self._has_none(call_id, sink)
        elif arguments and self._calls.lacks(call_id, arguments):
            self._calls.hear_whole(call_id, arguments if isinstance(arguments, str) else "")
            sink.tool(name, arguments, call_id=call_id)
        elif self._calls.is_renamed(call_id, name):
            sink.tool(name, call_id=call_id)
        if kind not in _CALLED_BY_THE_PROGRAM and call_id not in self._results:
            self._results.add(call_id)
            _hosted_result(call_id, item, sink)

    def _texts_said(self, place: Any, item: dict[str, Any], repeats: Repeats, sink: Sink) -> None:
        """The texts of an item of which nothing, or not all, has come yet."""
        for parts in (item.get("summary"), item.get("content")):
            for index, part in enumerate(parts or ()):
                have = part if isinstance(part, dict) else {}
                kind = _PARTS.get(str(have.get("type")))
                text = have.get("refusal") or have.get("text") or have.get("transcript")
                if kind is None and have:
                    of = _own(item, place), index
                    self._say_beside("unknown_block", of, {"block": have}, sink)
                elif kind is not None and isinstance(text, str):
                    unsaid = repeats.unsaid(kind, place, index, text)
                    self._say_unsaid((kind, place, index), unsaid, sink)

    def _say_unsaid(self, part: tuple[str, Any, Any], unsaid: Unsaid, sink: Sink) -> None:
        if unsaid.is_next:
            self._say(part, unsaid.text, sink)
        else:
            kind, item, at = part
            about = {"kind": _CALLED[kind], "item": item, "part": at, "text": unsaid.text}
            self._say_beside("unheard", (part, unsaid.text), about, sink)

    def _say(self, part: tuple[str, Any, Any], text: str, sink: Sink) -> None:
        """A text, as its delta would have said it."""
        if not text:
            return
        self._texts.add(part, text)
        if part[0] == _REFUSAL:
            sink.token(text, refusal=True)
        elif part[0] == _TEXT:
            sink.token(text)
        elif part[0] == _TRANSCRIPT:
            self._has_words = True
            sink.token(text, transcript=True)
        else:
            sink.reasoning(text)


def _own(item: dict[str, Any], place: Any) -> Any:
    """What an item is known by when it is told again."""
    given = item.get("id")
    return given if isinstance(given, str) and given else place


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
