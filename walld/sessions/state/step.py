"""What the state keeps of an event, and the key it is found by.

Owns: `Step`, which facts of a payload it takes along. Refuses: what a step does
(`session_state.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from walld.sessions.state.events import KNOWN
from walld.sessions.state.tools import TOOL_TYPES
from walld.sessions.state.turns import TURN_STATES

if TYPE_CHECKING:
    from walld.sessions.state.events import Event

__all__ = ["Step", "facts_of", "key_name", "key_names"]

_FACTS: Final = (
    "message_id",
    "retry_of",
    "stream_id",
    "reason",
    "call_id",
    "tool",
    "side_effect",
    "resume_policy",
    "state",
    "verdict",
    "failed",
)
_FACTS_OF: Final = {
    kind: tuple(name for name in _FACTS if name in {field.name for field in KNOWN[kind]})
    for kind in (*TURN_STATES, *TOOL_TYPES)
}
"""Of a turn's or a tool's payload, what its state needs: fields that are checked, and no others."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What of an event the state needs.

    parent_seq: 0 for none. stays: it does not become the leaf. moves_to: where a move of the leaf
    leads, None before the first entry. type, turn, facts, hash, owner: only of turns, tools and
    keys.
    """

    id: str
    seq: int
    parent_seq: int
    stays: bool
    moves_to: str | msgspec.UnsetType | None
    type: str | None
    key: str | None
    turn: str | None
    facts: dict[str, Any]
    hash: bytes
    owner: dict[str, Any] | None


def facts_of(event: Event) -> dict[str, Any]:
    """What the state needs of a turn's or a tool's event."""
    payload = event.payload
    return {name: payload[name] for name in _FACTS_OF[event.type] if payload.get(name) is not None}


def key_name(key: str, type: str | None) -> str:  # noqa: A002
    """What a key is found by, of any type or of one. No type has a zero in it."""
    return f"{type or ''}\0{key}"


def key_names(step: Step) -> tuple[str, ...]:
    """All that the key of a step is found by."""
    if step.key is None:
        return ()
    return key_name(step.key, None), key_name(step.key, step.type)
