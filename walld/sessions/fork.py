"""What a new session gets of an old one.

Owns: which events are copied, and how they hang together there. Refuses: the `forked` event
itself and the lines (the daemon), artifacts (they are not copied: the same bytes serve both).

Invariants: the source is not touched. The copies tell the same messages as the path they were
copied from, could each be appended in their order (but for `check_copy`, and but for copies of all
there is: those tell what the source tells, damaged or not), and are numbered from 1.
Nobody owns them: who worked on a turn of the source does not work on its copy. A call that ran, or
may have run, behind the entry at which the source was forked is no call that never started: the
`forked` event names its intent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from walld.sessions.account import account_of
from walld.sessions.events import Event, Problem, check_payload
from walld.sessions.losses import may_have_started
from walld.sessions.path import NO_PLACE, path, places
from walld.sessions.refusals import BadArgument
from walld.sessions.state import SessionState
from walld.sessions.tree import labels_of

__all__ = ["BEFORE_FIRST", "check_copy", "forked", "started_behind"]

BEFORE_FIRST: Final = ""
"""As `at`: before the first entry."""
_NOT_COPIED: Final = frozenset(("label", "leaf"))
"""Of a path: a move of the leaf leads elsewhere, labels follow at the end."""
_WITHOUT_INTENT: Final = ("unknown_turn", "unknown_tool")
_RAN: Final = frozenset(("started", "finished", "failed", "observed"))


def forked(events: Sequence[Event], at: str | None = None, whole: bool = False) -> list[Event]:
    """Copies of the path to entry `at` (None: to the leaf), or of all events, with their labels.

    Raises BadArgument for an `at` that is not there. whole: nothing is left out, also what damage
    has left without that which it was about, and whoever wants `at` to be the leaf hangs the
    `forked` event there.
    """
    found = places(events)
    if at not in (None, BEFORE_FIRST) and at not in found.by_id:
        limit = "the id of an entry that is there"
        raise BadArgument("at", at, limit, "unknown_entry")
    if whole:
        return [
            msgspec.structs.replace(
                event,
                seq=place + 1,
                parent=None if (parent := found.parents[place]) == NO_PLACE else events[parent].id,
                owner=None,
            )
            for place, event in enumerate(events)
        ]
    if at == BEFORE_FIRST:
        return []
    on_path = [events[place] for place in path(found, at)]
    copies = _Copies()
    for event in on_path:
        if event.type in _NOT_COPIED:
            copies.leave_out(event)
        else:
            copies.take(event)
    named = labels_of(events)
    last_of = {
        event.payload["target"]: event
        for event in events
        if event.type == "label" and check_payload(event.type, event.payload) is None
    }
    for target, event in last_of.items():
        if target in named and target in copies.state.ids:
            copies.take(msgspec.structs.replace(event, parent=copies.state.leaf))
    return copies.events


def started_behind(
    events: Sequence[Event], copies: Sequence[Event], last_seq: int = 0
) -> list[str]:
    """Ids of copied intents whose call may have run, by what was not copied or is lost.

    last_seq: the highest that was given to the source, as far as is known.
    """
    account = account_of(events)
    doubtful = may_have_started(account, events, last_seq)
    ran = {
        tool.intent.id
        for tool in account.tools
        if tool.intent.id in doubtful or not _RAN.isdisjoint(tool.state.seqs)
    }
    return [
        tool.intent.id
        for tool in account_of(copies).tools
        if tool.intent.id in ran and _RAN.isdisjoint(tool.state.seqs)
    ]


def check_copy(state: SessionState, event: Event) -> Problem | None:
    """Why a copy may not come next. A start may, also where its intent is lost or on another
    branch: the call ran all the same.
    """
    problem = state.check(event)
    if problem is None or event.type != "tool_started" or problem.code not in _WITHOUT_INTENT:
        return problem
    return None


class _Copies:
    """The new session while it is filled."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.state = SessionState()
        self.last: str | None = None
        self._left_out: list[str] = []
        self._behind: dict[str, str] = {}
        """What was left out of the path -> the copy behind it: who keeps from there keeps this."""

    def leave_out(self, event: Event) -> None:
        """The next one of the path does not come along."""
        self._left_out.append(event.id)

    def take(self, event: Event) -> None:
        """A copy of the next one; one that could not be appended had no effect and stays out."""
        leads = event.type not in _NOT_COPIED
        copy = msgspec.structs.replace(
            event,
            seq=self.state.last_seq + 1,
            parent=self.last if leads else event.parent,
            leaf=True if leads else event.leaf,
            owner=None,
        )
        copy = self._retargeted(copy)
        if check_copy(self.state, copy) is not None:
            self.leave_out(event)
            return
        self.state.apply(copy)
        self.events.append(copy)
        if leads:
            self.last = copy.id
            self._behind |= dict.fromkeys(self._left_out, copy.id)
            self._left_out.clear()

    def _retargeted(self, event: Event) -> Event:
        """A summary of what is not copied still says what it says."""
        payload = event.payload
        if check_payload(event.type, payload) is not None:
            return event
        if event.type == "branch_summary" and payload["target"] is not None:
            if payload["target"] not in self.state.ids:  # no entry before it: of no branch here
                return msgspec.structs.replace(event, payload=payload | {"target": self.last})
        elif event.type == "compaction" and not self._knows(first := payload.get("first_kept")):
            if first in self._behind:
                kept = payload | {"first_kept": self._behind[first]}
                return msgspec.structs.replace(event, payload=kept)
            said = [{"role": "user", "content": payload.get("summary"), "_compaction": event.id}]
            kept = {"replacement": said} | payload
            kept.pop("first_kept")
            return msgspec.structs.replace(event, payload=kept)
        return event

    def _knows(self, name: str | None) -> bool:
        if name is None or name in self.state.ids:
            return True
        return self.state.journal.turn_id_of(name) is not None
