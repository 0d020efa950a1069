"""The shape of a `chat.completion.chunk`, and of near ones. No I/O.

Owns: the Structs that a body is decoded into, and what is read of a chunk of which some part is of
another kind. Refuses: what a chunk means (`openai_chat.py`).

The strict decoder is the way of every chunk; `loosely` is for one that it refuses, because a server
sent `"tool_calls": [null]` beside a text: the text is the answer's.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Choice", "Chunk", "Delta", "index_of", "loosely"]


class _Function(msgspec.Struct):
    name: Any = None
    arguments: Any = None


class _ToolCall(msgspec.Struct):
    index: Any = None
    id: Any = None
    function: _Function | None = None


class Delta(msgspec.Struct):
    """What a chunk adds to one choice."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    audio: Any = None
    images: Any = None
    reasoning_details: Any = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None


class Choice(msgspec.Struct):
    """One of the answers that were asked for."""

    index: int | None = None
    delta: Delta | None = None
    finish_reason: Any = None


class Chunk(msgspec.Struct):
    """One `chat.completion.chunk`, as far as it says something of the reply."""

    id: Any = None
    model: Any = None
    choices: list[Choice] | None = None
    error: Any = None
    usage: Any = None


def loosely(value: object) -> tuple[Chunk | None, bool]:
    """`value` without what is of another kind, and whether anything was."""
    if not isinstance(value, dict):
        return None, True
    loose = _Loose()
    chunk = Chunk(
        id=value.get("id"),
        model=value.get("model"),
        choices=[loose.choice(one) for one in loose.each(value.get("choices"))],
        error=value.get("error"),
        usage=value.get("usage"),
    )
    return chunk, loose.is_odd


def index_of(value: object) -> int | None:
    """An index, also one that is no int: 0.0, "0"."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str):
        return int(value) if len(value) < 10 and value.isascii() and value.isdigit() else None
    return value if isinstance(value, int) else None


class _Loose:
    """Parts of one chunk."""

    def __init__(self) -> None:
        self.is_odd = False

    def each(self, value: object) -> list[dict[str, Any]]:
        """The objects of a list."""
        if value is None:
            return []
        given = value if isinstance(value, list) else [value]
        found = [one for one in given if isinstance(one, dict)]
        self.is_odd = self.is_odd or given is not value or len(found) != len(given)
        return found if given is value else []

    def choice(self, value: dict[str, Any]) -> Choice:
        """One of the choices; of which one is not known, the first."""
        index = index_of(value.get("index"))
        if index is None and value.get("index") is not None:
            self.is_odd = True
        delta = self._object(value.get("delta"))
        return Choice(
            index=index,
            delta=None if delta is None else self._delta(delta),
            finish_reason=value.get("finish_reason"),
        )

    def _delta(self, value: dict[str, Any]) -> Delta:
        texts = {name: value.get(name) for name in Delta.__struct_fields__[:7]}
        calls = [
            _ToolCall(one.get("index"), one.get("id"), self._function(one.get("function")))
            for one in self.each(value.get("tool_calls"))
        ]
        function = self._function(value.get("function_call"))
        return Delta(**texts, tool_calls=calls, function_call=function)

    def _function(self, value: object) -> _Function | None:
        have = self._object(value)
        return None if have is None else _Function(have.get("name"), have.get("arguments"))

    def _object(self, value: object) -> dict[str, Any] | None:
        if value is None or isinstance(value, dict):
            return value
        self.is_odd = True
        return None
