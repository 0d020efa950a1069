"""The life of a turn: submitted, worker_started, assistant_started, completed or interrupted.

Owns: `TurnState` and which event moves it where. Refuses: which turns there are
(`session_state.py`), whether an owner lives (the daemon), tools (`tools.py`).

Invariants: a turn only goes forward, and skipping is going forward. Both ends are terminal: a
second one is kept in the ledger, changes nothing and is counted as a collision.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final, NamedTuple

import msgspec

from walld.sessions.state.events import Event, Problem, unknown_turn

__all__ = [
    "TURN_STATES",
    "TurnMark",
    "TurnState",
    "check_retry",
    "check_turn",
    "content_hash",
    "take_turn",
]

TURN_STATES: Final = {
    "turn_submitted": "submitted",
    "turn_worker_started": "worker_started",
    "turn_assistant_started": "assistant_started",
    "turn_completed": "completed",
    "turn_interrupted": "interrupted",
}
"""Type of event -> the state it leads to."""

_text = json.JSONEncoder().encode
"""What `json.dumps` calls, once it has looked at its nine options."""
_RANKS: Final = {"submitted": 0, "worker_started": 1, "assistant_started": 2}
_ENDS: Final = ("completed", "interrupted")


class TurnState(msgspec.Struct, array_like=True):
    """A turn as far as it got.

    content_hash: what a resubmit of the same message is compared by. stream_ids: of its replies, in
    order, as keys, since a turn may have thousands and each is asked for. owner: of the process
    that last advanced it. terminal_seq: of its end, 0 while it has none. collisions: seqs of
    further ends. reason: of an interruption.
    """

    turn_id: str
    message_id: str | None
    state: str
    submitted_seq: int
    content_hash: bytes
    stream_ids: dict[str, None]
    owner: dict[str, Any] | None = None
    terminal_seq: int = 0
    collisions: list[int] = []
    retry_of: str | None = None
    reason: str | None = None

    @property
    def ended(self) -> bool:
        """Completed or interrupted."""
        return self.state in _ENDS

    def mark(self) -> TurnMark:
        """As it is now, for `go_back`, however many replies it has."""
        return TurnMark(msgspec.structs.replace(self), len(self.stream_ids), len(self.collisions))


class TurnMark(NamedTuple):
    """A turn before an event. turn: has the same tables as the turn itself, which only grow."""

    turn: TurnState
    streams: int
    collisions: int

    def go_back(self) -> TurnState:
        """The turn without what came since."""
        turn = self.turn
        while len(turn.stream_ids) > self.streams:
            turn.stream_ids.popitem()
        del turn.collisions[self.collisions :]
        return turn


def content_hash(payload: dict[str, Any]) -> bytes:
    """8 bytes that tell what was submitted: content and attachments, as canonical JSON.

    None at all for a value that nests too deep.
    """
    content, attachments = payload.get("content"), payload.get("attachments") or []
    if isinstance(content, str) and not attachments:
        # The same bytes, for most submissions: sorted keys cost an encoder made anew each time.
        text = f'{{"attachments":[],"content":{_text(content)}}}'
        return hashlib.sha256(text.encode("ascii")).digest()[:8]
    said = {"content": content, "attachments": attachments}
    try:
        text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    except RecursionError:
        return b""
    return hashlib.sha256(text.encode("ascii")).digest()[:8]


def check_retry(
    payload: dict[str, Any], hashed: bytes, retried: TurnState | None
) -> Problem | None:
    """A retry is a new turn on the same message: another one would be in no view."""
    if retried is None:
        return unknown_turn(payload["retry_of"], "retry_of")
    message_id, is_of = payload.get("message_id"), f"of turn {retried.turn_id}, its retry_of"
    if message_id is not None and message_id != retried.message_id:
        limit = f"{retried.message_id}, {is_of}"
        return Problem("message_id_taken", "message_id is another", message_id, limit)
    if retried.content_hash and hashed != retried.content_hash:
        text = "content or attachments are others"
        limit = f"hash {retried.content_hash.hex()}, {is_of}"
        return Problem("message_id_taken", text, f"hash {hashed.hex()}", limit)
    return None


def check_turn(turn: TurnState, event: Event) -> Problem | None:
    """Whether the event, not a submission, may come now."""
    state = TURN_STATES[event.type]
    if state in _ENDS:
        return None  # a second end is a collision, and is kept
    if turn.ended:
        return _illegal(turn, state, f"nothing after {turn.state}, submit with retry_of")
    again = state == turn.state == "assistant_started"
    if again and event.payload["stream_id"] not in turn.stream_ids:
        return None  # another reply of the same turn
    if _RANKS[state] <= _RANKS[turn.state]:
        later = [name for name, rank in _RANKS.items() if rank > _RANKS[turn.state]]
        return _illegal(turn, state, f"after {turn.state}: {', '.join((*later, *_ENDS))}")
    return None


def _illegal(turn: TurnState, got: str, limit: str) -> Problem:
    return Problem("illegal_turn", f"turn {turn.turn_id} does not go back", got, limit)


def take_turn(turn: TurnState, type: str, seq: int, facts: dict[str, Any], owner: Any) -> None:  # noqa: A002
    """What an event does to its turn; one that may not come does nothing."""
    state = TURN_STATES[type]
    if turn.ended:
        if state in _ENDS:
            turn.collisions.append(seq)
        return
    if state not in _ENDS and _RANKS[state] < _RANKS[turn.state]:
        return
    stream_id = facts.get("stream_id")
    if stream_id is not None:
        turn.stream_ids.setdefault(stream_id)
    if owner is not None:
        turn.owner = owner
    if state in _ENDS:
        turn.terminal_seq = seq
        turn.reason = facts.get("reason")
    turn.state = state
