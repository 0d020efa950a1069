"""The wire of OpenAI Chat Completions, and of the many servers that speak it. Sans-IO.

Owns: chunks to calls on a reply. Refuses: bytes (`body.py`).

- The first choice is the reply. Text of further ones (`n` > 1) is kept as events of kind `choice`,
  which never mix with it: {"index": i, and what the delta holds}.
- Calls interleave by `index`; only the first delta of a call has its id. One without any gets a
  name of its own, `<response id>:<index>`, also where the id comes late. Some servers give all
  calls the index 0: another id is another call there if it comes with a name, since some draw a
  new id for each delta.
- A call's name may come late or in pieces; said again it is the same name.
- `reasoning_content` and `reasoning` are not OpenAI's and come from others; where both come they
  say the same, so one is taken.
- Content may come as a list of parts: its texts are the answer's, its thoughts reasoning. Any
  other part, and pictures beside the content, are events of kind `unknown_block`.
- What is spoken comes as a transcript: text with info {"transcript": True}. The audio itself is not
  kept; where no word came with it an event of kind `audio_not_kept` says so. That it expires may be
  the last that is said of the answer.
- Of `reasoning_details`, which repeat the reasoning, what has to be sent back is kept, as events of
  kind `signature`.
- A call without arguments is whole once the answer is; of one that a limit has cut nobody knows.
- A part of a chunk that is of another kind than it should be costs that part: it is counted.
- A refusal is text with info {"refusal": True}: the user reads it.
- Done is `[DONE]`, or the end of a body in which every choice had its finish_reason. A chunk
  without choices (usage, a content filter's) says nothing of the reply. A finish_reason
  that says a failure (`error` of some gateways, `network_error`, `abort`) is no end but one, once
  the body ends.
- Usage comes in a chunk without choices, or beside the finish_reason; beside each text, as some
  servers have it, it is not looked at.
"""

from __future__ import annotations

from typing import Any, Final

from walld_client.adapters.wires.call_names import CallNames
from walld_client.adapters.wires.openai_chunk import Choice, Chunk, Delta, index_of
from walld_client.adapters.wires.wire import (
    EXTRA,
    LIMITS,
    Failure,
    Fold,
    Sink,
    call_name,
    failure_of,
    finish_failure,
    finish_word,
    held,
    plain,
)

__all__ = ["DONE", "ChatFold", "DerivedFold"]


class DerivedFold(Fold):
    """The events of openai's `chat.completions.stream()`: its chunks, and what it derives of them.

    Each chunk comes first (type `chunk`), then what it adds (`content.delta`, ...), which is the
    same again.
    """

    def __init__(self) -> None:
        super().__init__()
        self._chunks = ChatFold()
        self._chunks.model = self.model

    def take(self, item: Any, sink: Sink) -> None:
        """An event of the helper."""
        if item.type == "chunk":
            self._chunks.take(item.chunk, sink)

    @property
    def complaint(self) -> Failure | None:  # type: ignore[override]
        """As its chunks say."""
        return self._chunks.complaint

    def may_end_here(self) -> bool:
        """As its chunks say."""
        return self._chunks.may_end_here()

    def odd_events(self) -> int:
        """As its chunks say."""
        return self._chunks.odd_events()


DONE: Final = object()
"""Stands for the `[DONE]` of a body; no SDK hands it on."""
_LEGACY: Final = -1
"""The index of the one `function_call` of before there were tools."""


class ChatFold(Fold):
    """One chat completion."""

    def __init__(self) -> None:
        super().__init__()
        self._id: str | None = None
        self._made = CallNames()
        self._calls: dict[int, str] = {}
        """Calls by index, the newest call last."""
        self._given: dict[int, str] = {}
        """The ids that the provider gave them."""
        self._names: dict[str, str] = {}
        """What each call is called so far."""
        self._unfinished: set[int] = set()
        """Choices that have spoken and are not done."""
        self._finished: set[int] = set()
        self._unheard: set[str] = set()
        """Calls of whose arguments nothing has come."""
        self._audio: dict[str, Any] = {}
        """What is said of the audio, while no word of it has come."""
        self._has_words = False
        self.has_one_reason = False
        """Whoever hands the chunks on gives one finish reason for all choices."""

    def take(self, item: Any, sink: Sink) -> None:
        """A chunk, or DONE."""
        if item is DONE:
            self.failure = self.complaint
            self.is_ended = self.failure is None
            if self.is_ended:
                self._said_all(sink)
            return
        if type(item) is Chunk and item.error:  # the SDKs raise it and hand no object on
            self.failure = failure_of(item.error, "the provider reported an error")
            return
        if self._id is None:
            self._id = item.id if isinstance(item.id, str) else ""
            sink.event("provider", {"wire": "openai-chat", "id": self._id, "model": item.model})
            self.model.say(sink.event, model=item.model, request_id=self._id)
        if not item.choices:
            self._used(item)
        for choice in item.choices or ():
            if type(choice) is Choice:
                index, delta, reason = choice.index or 0, choice.delta, choice.finish_reason
            else:  # attributes of LiteLLM's cost 0.8 us each
                more = getattr(choice, EXTRA, None)
                have = held(choice) if more else vars(choice)
                delta, reason = have.get("delta"), have.get("finish_reason")
                index = have.get("index") or 0
            if index:
                index = index_of(index) or 0
            if delta is not None:
                if index:
                    _aside(index, delta, sink)
                else:
                    self._said(delta, sink)
            if reason:
                self._used(item)
                self._unfinished.discard(index)
                self._finished.add(index)
                if not index:
                    self._over(str(reason), sink)
            elif index not in self._finished:
                self._unfinished.add(index)

    def _used(self, item: Any) -> None:
        if usage := getattr(item, "usage", None):
            self.model.usage = plain(usage)

    def _over(self, reason: str, sink: Sink) -> None:
        if (failure := finish_failure(reason)) is not None:
            self.complaint = failure
        else:
            cut = next(reversed(self._calls.values()), "") if reason in LIMITS else ""
            self._said_all(sink, cut)
            sink.finish(finish_word(reason, bool(self._calls)))

    def _said_all(self, sink: Sink, cut: str = "") -> None:
        """The answer is over. cut: the call that may not be whole."""
        for call_id in self._calls.values() if self._unheard else ():
            if call_id in self._unheard and call_id != cut:
                sink.tool_arguments("{}", call_id=call_id)
        self._unheard.clear()
        if self._audio:
            sink.event("audio_not_kept", self._audio)
            self._audio = {}

    def may_end_here(self) -> bool:
        """Some servers end the body without `[DONE]`; an SDK's stream always ends so."""
        is_over = self.has_one_reason or not self._unfinished
        return self.is_ended or bool(self._finished and is_over and self.complaint is None)

    def _said(self, delta: Any, sink: Sink) -> None:
        # As `_parts`, which is one call more: for nearly all chunks, from cold caches.
        if type(delta) is Delta:
            content, refusal, calls = delta.content, delta.refusal, delta.tool_calls
            reasoning, function = delta.reasoning_content or delta.reasoning, delta.function_call
            audio, images, details = delta.audio, delta.images, delta.reasoning_details
        else:
            more = getattr(delta, EXTRA, None)
            have = held(delta) if more else vars(delta)
            content, refusal = have.get("content"), have.get("refusal")
            reasoning = have.get("reasoning_content") or have.get("reasoning")
            calls, function = have.get("tool_calls"), have.get("function_call")
            audio, images = have.get("audio"), have.get("images")
            details = have.get("reasoning_details")
        if reasoning and isinstance(reasoning, str):
            sink.reasoning(reasoning)
        if details and (back := _sent_back(details)):
            sink.event("signature", {"reasoning_details": back})
        if audio is not None:
            self._spoken(audio, sink)
        if content:
            if isinstance(content, str):
                sink.token(content)
            else:
                self._in_parts(content, sink)
        if refusal and isinstance(refusal, str):
            sink.token(refusal, refusal=True)
        if images:
            sink.event("unknown_block", {"images": plain(images)})
        if calls:
            self._each_call(calls, sink)
        if function is not None:
            if hasattr(function, "arguments") or hasattr(function, "name"):
                self._function(_LEGACY, None, function, sink)
            else:
                self.odd += 1

    def _spoken(self, audio: Any, sink: Sink) -> None:
        about = plain(audio)
        if not isinstance(about, dict):
            self.odd += 1
            return
        words, data = about.get("transcript"), about.get("data")
        if words and isinstance(words, str):
            self._has_words, self._audio = True, {}
            sink.token(words, transcript=True)
        if not self._has_words:
            self._audio.setdefault("id", about.get("id"))
            chars = len(data) if isinstance(data, str) else 0
            self._audio["base64_chars"] = self._audio.get("base64_chars", 0) + chars
        if about.get("expires_at"):
            self._unfinished.discard(0)
            self._finished.add(0)
            self._said_all(sink)

    def _in_parts(self, content: Any, sink: Sink) -> None:
        """Content as a list: texts, and thoughts that are lists of texts again."""
        parts = [content] if isinstance(content, dict) else content
        is_odd = not isinstance(parts, list)
        for part in () if is_odd else parts:
            have = part if isinstance(part, dict) else {}
            thoughts = have.get("thinking")
            inner = [one.get("text") for one in thoughts or () if isinstance(one, dict)]
            if isinstance(text := have.get("text"), str):
                sink.token(text)
            elif isinstance(thoughts, str) or inner:
                thought = thoughts if isinstance(thoughts, str) else "".join(map(str, inner))
                sink.reasoning(thought)
            elif have:
                sink.event("unknown_block", {"block": have})
            else:
                is_odd = True
        self.odd += is_odd

    def _each_call(self, calls: Any, sink: Sink) -> None:
        is_odd = not isinstance(calls, list)
        for call in () if is_odd else calls:
            if call is None or isinstance(call, (str, int, float, list, dict)):
                is_odd = True
            else:
                self._called(call, sink)
        self.odd += is_odd

    def _called(self, call: Any, sink: Sink) -> None:
        called, index = call.id, call.index
        call_id = called if isinstance(called, str) and called else None
        if not isinstance(index, int) and (index := index_of(index)) is None:
            index = self._index_of(call_id)
        function = call.function
        if call_id is not None and index in self._calls and self._given.get(index) != call_id:
            index = self._another(index, call_id, getattr(function, "name", None), sink)
        if function is not None or call_id is not None:
            self._function(index, call_id, function, sink)

    def _index_of(self, call_id: str | None) -> int:
        """Where a server gives none: an id that is new is a new call, no id is the newest one's."""
        if call_id is None:
            return next(reversed(self._calls), 0)
        known = (at for at, one in self._given.items() if one == call_id)
        return next(known, max(self._calls, default=-1) + 1)

    def _another(self, index: int, call_id: str, name: object, sink: Sink) -> int:
        """Where the call of an id is that is not the one known at this index."""
        if index not in self._given:  # it comes late
            self._given[index] = call_id
            known = self._calls[index]
            sink.tool(call_name(self._names[known]), call_id=known, given_id=call_id)
            return index
        at = next((at for at, given in self._given.items() if given == call_id), None)
        if at is not None:
            return at
        if name:
            # What comes later without an id belongs to the newest call of that index.
            aside = len(self._calls) + 1000
            self._calls[aside] = self._calls.pop(index)
            self._given[aside] = self._given.pop(index)
        return index

    def _function(self, index: int, call_id: str | None, function: Any, sink: Sink) -> None:
        known = self._calls.get(index)
        name = getattr(function, "name", None)
        if known is None:
            known, about = self._made.begin(call_id or f"{self._id}:{index}")
            if call_id is not None:
                self._given[index] = call_id
            self._calls[index] = known
            self._names[known] = name if isinstance(name, str) else ""
            self._unheard.add(known)
            sink.tool(call_name(name), call_id=known, **about)
        elif name and name != self._names[known] and isinstance(name, str):
            had = self._names[known]  # a piece of it, or all of it that is known by now
            name = self._names[known] = name if name.startswith(had) else had + name
            sink.tool(name, call_id=known)
        arguments = getattr(function, "arguments", None)
        if arguments and isinstance(arguments, str):
            if self._unheard:
                self._unheard.discard(known)
            sink.tool_arguments(arguments, call_id=known)


def _sent_back(details: Any) -> list[Any]:
    """Of what repeats the reasoning, that without which the provider does not take it back."""
    given = plain(details)
    found = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    return [one for one in found if one.get("signature") or one.get("data")]


def _parts(delta: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Content, reasoning, refusal, tool_calls and audio; SDKs' objects may be without."""
    if type(delta) is Delta:
        reasoning = delta.reasoning_content or delta.reasoning
        return delta.content, reasoning, delta.refusal, delta.tool_calls, delta.audio
    have = held(delta).get
    reasoning = have("reasoning_content") or have("reasoning")
    return have("content"), reasoning, have("refusal"), have("tool_calls"), have("audio")


def _aside(index: int, delta: Any, sink: Sink) -> None:
    """What a further choice says, halves of a character as bytes (UTF-8, surrogates passed)."""
    said: dict[str, Any] = {}
    content, reasoning, refusal, calls, audio = _parts(delta)
    spoken = plain(audio)
    words = spoken.get("transcript") if isinstance(spoken, dict) else None
    texts = {"content": content, "reasoning": reasoning, "refusal": refusal, "transcript": words}
    for name, text in texts.items():
        if text and isinstance(text, str):
            said[name] = _packable(text)
    for call in calls or ():
        function = call.function
        one = {
            "index": call.index,
            "id": call.id,
            "name": getattr(function, "name", None),
            "arguments": getattr(function, "arguments", None),
        }
        said.setdefault("tool_calls", []).append(
            {key: _packable(value) for key, value in one.items() if value is not None}
        )
    if said:
        sink.event("choice", {"index": index, **said})


def _packable(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")
    return value
