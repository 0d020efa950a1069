r"""Splits the body of a response into items for a fold. No I/O.

Owns: JSON to Structs, and which of the wires a body speaks. Refuses: what an item means (the
folds), where the bytes come from.

The wire is known by the first event and not by the URL: gateways have paths of their own. A body
that speaks none of them (an MCP server's, say) gives no items and has no fold: it is not recorded.
Only an error that comes first is told from a stranger's by the URL (`is_answer`).

An event that is named `error` is the provider's, whatever its data are: an object of no type, a
text, nothing. SDKs raise on it; openai's does not where data say nothing of an `error`: that is a
complaint, behind which the answer may go on. They raise on what is no JSON too, or no UTF-8
(`is_torn`), openai's also on an event without data; and JSON that is no object they hand on as it
is, at which programs raise. What comes in the same chunk behind that is taken once the program
reads on.

Two things the SDKs pass over, and so does this: anthropic's an event that has no name or is a ping,
whatever it says; openai's all that comes behind `[DONE]`, of whatever wire and name that is.

JSON is decoded by msgspec, which refuses half a character (`\ud83d` alone). The vendors send
those where an emoji is cut over two chunks; such an event is decoded once more by `json`, which
lets them through.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final

import msgspec
from walld_client.adapters.wires.anthropic_messages import (
    EVENT_TYPES,
    MessageEvent,
    MessagesFold,
    has_unknown_delta,
)
from walld_client.adapters.wires.openai_chat import DONE, ChatFold, DerivedFold
from walld_client.adapters.wires.openai_chunk import Chunk, loosely
from walld_client.adapters.wires.openai_completions import Completion, CompletionFold
from walld_client.adapters.wires.openai_responses import ResponseEvent, ResponsesFold
from walld_client.adapters.wires.sse import NO_TEXT, Event, SseParser
from walld_client.adapters.wires.wire import Failure, Fold, failure_of

__all__ = ["Body", "fold_for"]

_SHAPES: Final[dict[type[Fold], type[msgspec.Struct]]] = {
    ChatFold: Chunk,
    CompletionFold: Completion,
    ResponsesFold: ResponseEvent,
    MessagesFold: MessageEvent,
}


_DONE: Final = b"[DONE]"
_UNREAD: Final = (None, b"ping")
"""Names of the events of Messages that the SDK does not look at."""
_NAMELESS: Final = "the provider reported an error"


class _Hint(msgspec.Struct):
    """What tells the wires apart."""

    type: Any = None
    choices: Any = msgspec.UNSET
    object: Any = None
    error: Any = None
    completion: Any = None


def fold_for(item: Any, is_answer: bool = True) -> Fold | None:
    """The fold of the wire that speaks so, of an event of a body or of an SDK.

    is_answer: it is known that a model speaks, so that an error can be only its.
    """
    kind = getattr(item, "type", None)
    if isinstance(kind, str):
        if kind.startswith("response."):
            return ResponsesFold()
        if kind in EVENT_TYPES:
            return MessagesFold()
        if kind == "chunk" and getattr(item, "chunk", None) is not None:
            return DerivedFold()
    shape = getattr(item, "object", None)
    if shape == "chat.completion.chunk" or _are_of_a_chat(getattr(item, "choices", None)):
        return ChatFold()
    if shape == "text_completion" or _is_completion(item):
        return CompletionFold()
    if is_answer and kind == "error":
        return ResponsesFold()
    return ChatFold() if is_answer and getattr(item, "error", None) else None


def _are_of_a_chat(choices: Any) -> bool:
    """Chat's have deltas; those of the completions before it (`/v1/completions`) are texts."""
    if not isinstance(choices, list):
        return False
    return _holds(choices[0], "delta") if choices else True


def _is_completion(item: Any) -> bool:
    """A chunk that does not say that it is one, or Anthropic's."""
    choices = getattr(item, "choices", None)
    if isinstance(choices, list) and choices and _holds(choices[0], "text"):
        return True
    is_anthropics = getattr(item, "type", None) == "completion"
    return is_anthropics and isinstance(getattr(item, "completion", None), str)


def _holds(value: Any, name: str) -> bool:
    return name in value if isinstance(value, dict) else hasattr(value, name)


class Body:
    """One response's body."""

    __slots__ = (
        "_decoder",
        "_held",
        "_is_messages",
        "_parser",
        "_shape",
        "_stops_all",
        "complaint",
        "fold",
        "is_answer",
        "is_over",
        "is_torn",
        "unread",
    )

    def __init__(self, is_answer: bool = False, is_messages: bool = False) -> None:
        """is_answer: the URL says that one of the wires is spoken here; is_messages: that it
        is Anthropic's.
        """
        self.is_answer = is_answer
        self._is_messages = is_messages
        """As it is known so far."""
        self.is_over = False
        """`[DONE]` was seen, behind which nothing is read."""
        self._parser = SseParser()
        self._decoder: msgspec.json.Decoder[Any] | None = None
        self._shape: type[msgspec.Struct] = _Hint
        self.fold: Fold | None = None
        """Known from the first event on that is the wire's own."""
        self.unread = 0
        """Events that are no JSON object of the wire's shape, or not quite: the reply goes on
        without them, or without that part of them."""
        self.is_torn = False
        """One of the last chunk was no JSON object: most readers read no further."""
        self._held: list[Event] = []
        """What came behind it."""
        self._stops_all = False
        """There was something in the last chunk at which the SDK of Messages stops too."""
        self.complaint: Failure | None = None
        """The provider's. Nobody knows whether it goes on; if it does not, that was why."""

    def feed(self, chunk: bytes) -> list[Any]:
        """The items that `chunk` completes. ValueError for a body that is no answer (`sse.py`)."""
        if self.is_over:
            return []
        items = self.rest() if self._held else []
        self.is_torn = self._stops_all = False
        events = self._parser.feed(chunk)
        for at, (name, payload) in enumerate(events):
            item = self._read(name, payload)
            if self.is_torn and self.fold is not None:
                # An item here: it was torn before the wire was known.
                self._held = events[at + (item is None) :]
                break
            if item is not None:
                items.append(item)
            if self.is_over:
                break
        return items

    def rest(self) -> list[Any]:
        """The items that came behind what was torn: the program has read on."""
        held, self._held = self._held, []
        found: list[Any] = []
        for name, payload in held:
            if not self.is_over and (item := self._read(name, payload)) is not None:
                found.append(item)
        return found

    def _read(self, name: bytes | None, payload: bytes) -> Any:
        if self._is_messages:
            if name in _UNREAD:
                return None
        elif payload.startswith(_DONE):  # as the SDK has it, whatever follows
            self.is_over = True
            return DONE if type(self.fold) in (ChatFold, CompletionFold) else None
        if name == b"error":
            return self._error(payload)
        if not payload:
            if name == NO_TEXT[0]:
                self.unread += 1
                self._stops_all = True
            self.is_torn = self.is_torn or name == NO_TEXT[0] or not self._is_messages
            return None
        item = self._item(payload, name)
        if name not in _UNREAD:
            self._stops_all = self._stops_all or self.is_torn
        return item

    def _item(self, payload: bytes, name: bytes | None = b"error") -> Any:
        if self._decoder is None and not self._recognise(payload, name):
            return None
        try:
            item = self._decoder.decode(payload)  # type: ignore[union-attr]
        except (msgspec.MsgspecError, UnicodeError):
            return self._lenient(payload)
        if type(item) is MessageEvent and has_unknown_delta(item):
            item.delta = json.loads(payload)["delta"]
        return item

    def _error(self, payload: bytes) -> Any:
        """The provider's error, as an event of the wire."""
        error: Any = payload.decode(errors="replace")
        with suppress(ValueError, RecursionError):
            error = json.loads(payload)
        if isinstance(error, dict):
            if type(self.fold) is ResponsesFold and error.get("type") == "error":
                return self._item(payload)
            if not error.get("error") and not self._is_messages:
                self.complaint = failure_of(error, _NAMELESS)
                self._stops_all = True
                return None
            error = error.get("error") or error
        elif payload and not error and not self._is_messages:
            self.complaint = Failure(_NAMELESS, "provider_error")
            self.is_torn = self._stops_all = True
            return None
        error = error or {"message": _NAMELESS}  # without data it is one by its name
        return self._item(json.dumps({"type": "error", "error": error}).encode())

    def _recognise(self, payload: bytes, name: bytes | None) -> bool:
        value = self._object(payload)
        if value is None:
            return False
        fold = fold_for(msgspec.convert(value, _Hint), self.is_answer)
        if fold is None:
            return False
        if type(fold) is MessagesFold:
            self._is_messages = True
            self.is_torn = self._stops_all
            if name in _UNREAD:
                return False
        self.fold = fold
        self._shape = _SHAPES[type(fold)]
        self._decoder = msgspec.json.Decoder(self._shape)
        return True

    def _lenient(self, payload: bytes) -> Any:
        """What the decoder refused: by `json`, and of Chat without the part that is odd."""
        value = self._object(payload)
        if value is None:
            return None
        try:
            return msgspec.convert(value, self._shape)
        except msgspec.MsgspecError:
            item, is_odd = loosely(value) if self._shape is Chunk else (None, True)
            self.unread += is_odd
            return item

    def _object(self, payload: bytes) -> dict[str, Any] | None:
        """None for what is no JSON object, which is counted."""
        value: Any = None
        with suppress(ValueError, RecursionError):
            value = json.loads(payload)
        if isinstance(value, dict):
            return value
        self.unread += 1
        self.is_torn = True
        return None
