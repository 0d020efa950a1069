"""The tree of a session's entries, and the path from its root to one of them.

Owns: parents, the leaf, paths; by place in the list of events. Refuses: what stands on a path
(`messages.py`), accepting entries (`session_state.py`).

Invariants: a parent is an earlier entry, so there is no cycle. Where a parent was lost to damage,
the entry hangs on the one before it, so that the readable rest stays readable. Linear in the
number of events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from walld.sessions.state.errors import BadArgument
from walld.sessions.state.events import Event

__all__ = ["NO_PLACE", "Places", "path", "path_events", "places", "tail_path"]

NO_PLACE: Final = -1
"""Before the first entry."""
_ELSEWHERE: Final = -2
"""Of an entry that is not at hand."""


class Places(NamedTuple):
    """by_id: id -> place in the events. parents: by place. leaf: a place or NO_PLACE."""

    by_id: dict[str, int]
    parents: list[int]
    leaf: int


def places(events: Sequence[Event], *, is_whole: bool = True) -> Places:
    """Where each entry stands, and which is the leaf. not is_whole: entries before these are not at
    hand, and what is not found is `_ELSEWHERE`.
    """
    by_id: dict[str, int] = {}
    parents: list[int] = []
    leaf = NO_PLACE if is_whole else _ELSEWHERE
    for place, event in enumerate(events):
        missing = place - 1 if is_whole else _ELSEWHERE
        parents.append(NO_PLACE if event.parent is None else by_id.get(event.parent, missing))
        by_id.setdefault(event.id, place)
        if event.type == "leaf":
            target = event.payload.get("target", "")
            if target is None:
                leaf = NO_PLACE
            elif isinstance(target, str):
                leaf = by_id.get(target, leaf if is_whole else _ELSEWHERE)
        elif event.leaf and event.type != "label":
            leaf = place
    return Places(by_id, parents, leaf)


def path(found: Places, branch: str | None = None) -> list[int]:
    """Places from the root to the leaf, or to entry `branch`. Raises BadArgument."""
    place = found.leaf
    if branch is not None:
        if branch not in found.by_id:
            limit = "the id of an entry that is there"
            raise BadArgument("branch", branch, limit, "unknown_entry")
        place = found.by_id[branch]
    steps = []
    while place >= 0:
        steps.append(place)
        place = found.parents[place]
    steps.reverse()
    return steps


def path_events(events: Sequence[Event], branch: str | None = None) -> list[Event]:
    """The events from the root to the leaf, or to entry `branch`. Raises BadArgument."""
    return [events[place] for place in path(places(events), branch)]


def tail_path(
    events: Sequence[Event], branch: str | None = None
) -> tuple[list[Event], bool] | None:
    """As `path_events`, of the end of a session: what of the path is at hand, and whether that is
    all of it. None where its last entry is not at hand.
    """
    found = places(events, is_whole=False)
    last = found.leaf if branch is None else found.by_id.get(branch, _ELSEWHERE)
    if last == _ELSEWHERE:
        return None
    steps = path(found, branch)
    is_rooted = not steps or found.parents[steps[0]] == NO_PLACE
    return [events[place] for place in steps], is_rooted
