"""What a session that a file was imported into tells: its messages and its open calls."""

from __future__ import annotations

from typing import Any

import msgspec

from walld.foreign.entries import Imported
from walld.sessions.gate.resume import resume
from walld.sessions.state.events import Event
from walld.sessions.state.session_state import SessionState
from walld.sessions.views.messages import messages

__all__ = ["events_of", "open_calls", "told", "told_texts"]


def events_of(imported: Imported) -> list[Event]:
    """The entries as a new session has them."""
    state, events = SessionState(), list[Event]()
    for seq, one in enumerate(imported.entries, 1):
        event = Event(
            seq=seq,
            id=one.id,
            parent=one.parent,
            type=one.type,
            turn=one.turn,
            key=one.key,
            leaf=one.leaf,
            at_ms=one.at_ms,
            payload=one.payload,
        )
        assert state.check(event) is None, one
        events.append(msgspec.structs.replace(event, parent=state.parent_for(event)))
        state.apply(events[-1])
    return events


def told(imported: Imported, format: str = "openai") -> list[dict[str, Any]]:  # noqa: A002
    """Its messages."""
    return messages(events_of(imported), format) or []


def told_texts(imported: Imported, format: str = "openai") -> list[tuple[str, str]]:  # noqa: A002
    """(role, text) of each of its messages."""
    return [(one["role"], _text(one["content"])) for one in told(imported, format)]


def open_calls(imported: Imported) -> list[str]:
    """Ids of the calls that the gate asks about."""
    events = events_of(imported)
    return [call["call_id"] for call in resume(events, last_seq=len(events))["calls"]]


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    assert isinstance(content, list)
    return "".join(block.get("text", f"[{block.get('type')}]") for block in content)
