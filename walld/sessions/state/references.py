"""References from an event to an earlier entry: label, move, edit, compaction.

Owns: which field of which type names an entry, and where that may stand. Refuses: the entry's own
place (`session_state.py`), what the event does (`messages.py`, `path.py`).

Invariant: an edit and a compaction change what stands on the path they stand on themselves. What
they name on another branch they would not change, and a compaction would keep nothing: refused.
"""

from __future__ import annotations

from typing import Final

from walld.sessions.state.events import Event, Problem
from walld.sessions.state.hash_index import Seqs
from walld.sessions.state.journal import Journal
from walld.sessions.state.parents import Parents

__all__ = ["check_target", "is_above"]

_TARGETS: Final = {
    "label": "target",
    "branch_summary": "target",
    "leaf": "target",
    "message_edit": "target",
    "compaction": "first_kept",
}
"""Type -> the field that names an earlier entry."""
_OF_A_PATH: Final = frozenset(("message_edit", "compaction"))
"""These may name a message as well, and only what is above them."""


def check_target(
    event: Event, parent: str | None, ids: Seqs, parents: Parents, journal: Journal
) -> Problem | None:
    """Whether what the event names is there. parent: of the event."""
    name = _TARGETS.get(event.type)
    target = None if name is None else event.payload.get(name)
    if name is None or target is None:
        return None
    seq = ids.get(target)
    if seq is None and event.type in _OF_A_PATH:
        turn = journal.turn(journal.turn_id_of(target))
        seq = None if turn is None else turn.submitted_seq
    field = f"{name} of {event.type}"
    if seq is None:
        limit = "the id of an entry that is there"
        return Problem("unknown_target", f"{field} names no entry", str(target), limit)
    if event.type in _OF_A_PATH and not is_above(seq, parent, ids, parents):
        limit = f"what stands on the path to {parent or 'the beginning'}"
        return Problem("not_on_path", f"{field} is not on the path", str(target), limit)
    return None


def is_above(seq: int, entry_id: str | None, ids: Seqs, parents: Parents) -> bool:
    """Whether the entry of that seq stands on the path to the other. A parent is earlier."""
    return parents.is_above(seq, 0 if entry_id is None else ids.get(entry_id) or 0)
