"""Tool calls with their results, as providers take them.

Owns: ids, names, arguments and results of calls in each provider's shape. Refuses: which calls are
sent, and the text between them: of a recovered reply (`projections.py`), of a session
(`provider.py`).

Ids and names are what every provider takes: 1-40 and 1-64 of A-Z a-z 0-9 _ -, ids unique.
Arguments are a JSON object: what is none is the `input` of one. An empty result is JSON, since
some providers refuse an empty message. A picture in a result goes to Anthropic, which takes none
in that of a call that failed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from walld_client.encoding import wtf8
from walld_client.recovered.segments import json_or_none

__all__ = [
    "CallsOfId",
    "ProviderCall",
    "anthropic_results",
    "openai_assistant",
    "sendable_arguments",
    "sendable_id",
]

_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_CUT = "cut: the rest of it was not recorded"
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_Call = TypeVar("_Call")
_Result = TypeVar("_Result")


class CallsOfId(Generic[_Call, _Result]):
    """Which results are of which calls of one id, as both are met.

    A result is of the newest call that has none. Of several calls of a turn that were said before
    the first of their results, the newest have them in order. What is left over is an orphan.
    """

    def __init__(self) -> None:
        self._turn: object = None
        self._calls: list[_Call] = []
        """Those said one behind the other, the newest last."""
        self._results: list[_Result] = []
        self._left: list[_Call] = []
        """Earlier ones that have none."""
        self._pairs: list[tuple[_Call, _Result]] = []

    def say(self, call: _Call, turn: object) -> None:
        """The next call; turn: where it is known."""
        if self._results or turn != self._turn:
            self._left += self._calls[: len(self._calls) - len(self._results)]
            self._pairs += self._of_newest()
            self._calls, self._results, self._turn = [], [], turn
        self._calls.append(call)

    def answer(self, result: _Result) -> None:
        """The next result."""
        if len(self._results) < len(self._calls):
            self._results.append(result)
        elif self._left:
            self._pairs.append((self._left.pop(), result))

    def pairs(self) -> list[tuple[_Call, _Result]]:
        """Those so far."""
        return [*self._pairs, *self._of_newest()]

    def _of_newest(self) -> list[tuple[_Call, _Result]]:
        newest = self._calls[len(self._calls) - len(self._results) :]
        return list(zip(newest, self._results, strict=True))


class ProviderCall:
    """A call on its way to a provider; it goes once it is `answered`. at: how many characters of
    its message's text stand before it, None where nobody knows; behind: where what stands behind it
    begins, if not there. block: of the message, that it is.
    """

    __slots__ = (
        "answered",
        "arguments",
        "at",
        "behind",
        "block",
        "blocks",
        "failed",
        "id",
        "name",
        "result",
    )

    def __init__(self, call_id: str, name: str, arguments: dict[str, Any]) -> None:
        self.id = call_id
        self.name = _NOT_IN_NAME.sub("_", name)[:64]
        self.arguments = arguments
        self.at: int | None = None
        self.behind: int | None = None
        self.block: dict[str, Any] | None = None
        self.result = ""
        self.blocks: Sequence[dict[str, Any]] = ()
        self.answered = self.failed = False

    def answer(self, result: object, failed: bool, blocks: Sequence[dict[str, Any]] = ()) -> None:
        """What it gave, as text. blocks: for a provider that takes pictures, where it has some."""
        self.blocks = () if failed else blocks
        if isinstance(result, str) and result.strip():
            self.result = wtf8.scrub(result)
        else:
            self.result = json.dumps(wtf8.jsonable(result), ensure_ascii=False)
        self.failed, self.answered = failed, True

    def tool_use(self) -> dict[str, Any]:
        """The call as a block of anthropic's."""
        return {"type": "tool_use", "id": self.id, "name": self.name, "input": self.arguments}


def sendable_arguments(given: object) -> dict[str, Any]:
    """A call's arguments as a JSON object, an empty one for none.

    What is no object, the text of a custom tool of OpenAI's, say, is the `input` of one; with a
    `note` where it is an object that was cut.
    """
    text = given.strip() if isinstance(given, str) else None
    if given is None or text in ("", "null"):
        return {}
    parsed = given if text is None else json_or_none(text)
    value = wtf8.jsonable(given if parsed is None else parsed)
    if isinstance(value, dict):
        return value
    is_cut = text is not None and text.startswith("{") and not text.endswith("}")
    return {"input": value} | ({"note": _CUT} if is_cut else {})


def sendable_id(given: str, place: int, taken: set[str]) -> str:
    """The call's own id where a provider takes it and it is still free, else one made of it and of
    its place. It is among `taken` from here on.
    """
    call_id = given
    if not _ID.fullmatch(call_id) or call_id in taken:
        own = f"{place}:{given}".encode("utf-8", "surrogatepass")
        call_id = "call_" + hashlib.blake2b(own, digest_size=16).hexdigest()
    taken.add(call_id)
    return call_id


def openai_assistant(text: str, calls: Sequence[ProviderCall]) -> list[dict[str, Any]]:
    """A message of the assistant's, and one `tool` message for each of its calls."""
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": json.dumps(call.arguments, ensure_ascii=False),
                },
            }
            for call in calls
        ]
    results = [{"role": "tool", "tool_call_id": call.id, "content": call.result} for call in calls]
    return [message, *results]


def anthropic_results(calls: Sequence[ProviderCall]) -> dict[str, Any]:
    """The user's message that brings the results of calls."""
    blocks = [
        {"type": "tool_result", "tool_use_id": call.id, "content": list(call.blocks) or call.result}
        | ({"is_error": True} if call.failed else {})
        for call in calls
    ]
    return {"role": "user", "content": blocks}
