"""What a program declares of its tools, in the info of each call that an adapter books.

Owns: what `tool_effects=` may be, and which info a call has by it. Refuses: the words themselves,
which are those of `turn.intent` (`session/turn_steps.py`); what the gate makes of them.

The info of a call's update takes the place of the one before, and none leaves that as it is. So
what is declared goes with each update, beside what the adapter said of the call last. A name that
comes in pieces is another tool's until it is whole: the declaration is that of the last name, or
none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from walld_client.adapters.wires.wire import Sink
from walld_client.argument_checks import checked_word, wrong
from walld_client.session.turn_steps import IDEMPOTENCY, RESUME_POLICIES, SIDE_EFFECTS

__all__ = ["Declared", "ToolEffects"]

Declared = Mapping[str, tuple[str, str] | Mapping[str, str]]
"""By the tool's name: (side_effect, resume_policy), or a dict of these two and `idempotency`."""
_WORDS: Final = {"side_effect": SIDE_EFFECTS, "resume_policy": RESUME_POLICIES}
_MAY_HAVE: Final = {"idempotency": IDEMPOTENCY}
_NOTHING: Final = dict.fromkeys(_WORDS)
"""Info of a call whose earlier name was a declared tool's."""


class ToolEffects:
    """The declarations of one adapter. Raises TypeError or ValueError where one cannot be meant."""

    __slots__ = ("_by_name",)

    def __init__(self, given: Declared | None = None) -> None:
        if not isinstance(given, Mapping | None):
            raise wrong("tool_effects", "a dict of tools by their names, or None", given)
        self._by_name = {name: _checked(name, one) for name, one in (given or {}).items()}

    def sink(self, sink: Sink) -> Sink:
        """Where the calls of one model call go to have what is declared of them."""
        return _Declaring(sink, self._by_name) if self._by_name else sink


def _checked(name: object, given: object) -> dict[str, Any]:
    if not isinstance(name, str):
        raise wrong("tool_effects", "a dict of tools by their names, each a str", name, " in it")
    where = f"tool_effects[{name!r}]"
    if isinstance(given, tuple | list) and len(given) == len(_WORDS):
        given = dict(zip(_WORDS, given, strict=True))
    allowed = _WORDS | _MAY_HAVE
    if not isinstance(given, Mapping) or not _WORDS.keys() <= given.keys() <= allowed.keys():
        wanted = "(side_effect, resume_policy), or a dict of these two and, if need be, idempotency"
        raise wrong(where, wanted, given)
    for field, word in given.items():
        checked_word(f"{where}: {field}", word, allowed[field])
    return dict(given)


class _Declaring:
    """A sink whose calls have it in their info."""

    __slots__ = (
        "_by_name",
        "_declared",
        "_said",
        "_tool",
        "event",
        "finish",
        "reasoning",
        "token",
        "tool_arguments",
        "tool_result",
    )

    def __init__(self, sink: Sink, by_name: Mapping[str, dict[str, Any]]) -> None:
        self.token = sink.token
        self.reasoning = sink.reasoning
        self.tool_arguments = sink.tool_arguments
        self.tool_result = sink.tool_result
        self.event = sink.event
        self.finish = sink.finish
        self._tool = sink.tool
        self._by_name = by_name
        self._said: dict[str | None, dict[str, Any]] = {}
        """By call id: the info that the adapter gave last."""
        self._declared: set[str | None] = set()
        """Calls whose info in the reply has a declaration."""

    def tool(
        self, name: str, arguments: object = None, *, call_id: str | None = None, **info: Any
    ) -> int:
        """As `Reply.tool`, with what is declared of a tool of that name."""
        declared = self._by_name.get(name)
        if call_id is not None:
            if info:
                self._said[call_id] = info
            if declared is not None:
                self._declared.add(call_id)
            elif call_id in self._declared:
                declared = _NOTHING
        if declared is not None:
            info = self._said.get(call_id, info) | declared
        return self._tool(name, arguments, call_id=call_id, **info)
