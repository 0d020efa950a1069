"""One turn, found by its id or by the stream of a reply.

Owns: what is told of a turn. Refuses: its life (`turns.py`), its tools (`transcript.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from walld.sessions.gate.turn_history import history_of
from walld.sessions.state.events import Event
from walld.sessions.state.journal import Journal
from walld.sessions.state.turns import TurnState

__all__ = ["turn", "turn_in", "turn_view"]


def turn(
    events: Sequence[Event], turn_id: str | None = None, stream_id: str | None = None
) -> dict[str, Any] | None:
    """The turn of that id, or the first that the stream replies to; None where there is none."""
    return turn_in(history_of(events).state.journal, turn_id, stream_id)


def turn_in(
    journal: Journal, turn_id: str | None = None, stream_id: str | None = None
) -> dict[str, Any] | None:
    """The same out of a fold that is there: however long the session is, it costs one look."""
    found = journal.turn(turn_id)
    if found is None and stream_id is not None:
        found = journal.turn_of_stream(stream_id)
    return None if found is None else turn_view(found)


def turn_view(state: TurnState) -> dict[str, Any]:
    """As JSON values."""
    return {
        "turn_id": state.turn_id,
        "message_id": state.message_id,
        "state": state.state,
        "reason": state.reason,
        "retry_of": state.retry_of,
        "stream_ids": list(state.stream_ids),
        "submitted_seq": state.submitted_seq,
        "collisions": state.collisions.copy(),
    }
