"""Selects the events of a session that a fork copies.

Owns: which events are copied, and how they hang together there. Refuses: the `forked` event
itself and the lines (the daemon), artifacts (they are not copied: the same bytes serve both).

Invariants: the source is not touched. The copies tell the same messages as the path they were
copied from, could each be appended in their order (but for `check_copy`, and but for copies of all
there is: those tell what the source tells, damaged or not), and are numbered from 1. What is left
of a reply that went comes along where it hangs on an entry that is copied.
Nobody owns them: who worked on a turn of the source does not work on its copy. An event of a call
is copied where it tells of the same call as in the source: a call id may be given again. A call
that ran, or may have run, behind the entry at which the source was forked is no call that never
started: the `forked` event behind the copies names its intent, or the call where that is not
copied.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

import msgspec

from walld.sessions.gate.pending import open_tools
from walld.sessions.gate.possibly_run import (
    calls_elsewhere,
    may_have_started,
    observed_by_name,
    started_elsewhere,
)
from walld.sessions.gate.turn_history import calls_of, history_of, named_as
from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.errors import BadArgument
from walld.sessions.state.events import CAME_FROM, Event, Problem, check_payload
from walld.sessions.state.labels import labels_of
from walld.sessions.state.path import NO_PLACE, path, places
from walld.sessions.state.session_state import SessionState
from walld.sessions.state.tools import named_call

__all__ = ["BEFORE_FIRST", "check_copy", "forked", "left_behind"]

BEFORE_FIRST: Final = ""
"""As `at`: before the first entry."""
_NOT_COPIED: Final = CAME_FROM | {"label", "leaf"}
"""Of a path: a move of the leaf leads elsewhere, labels follow at the end, what the source lacks is
told anew."""
_OF_A_CALL: Final = ("unknown_turn", "unknown_tool", "illegal_tool")
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
    copies = _Copies(calls_of(events))
    left = dict[str | None, list[Event]]()
    for event in events:
        if event.type == "model_call" and not event.leaf:
            left.setdefault(event.parent, []).append(event)
    for event in on_path:
        if event.type in _NOT_COPIED:
            copies.leave_out(event)
        else:
            copies.take(event)
        for beside in left.pop(event.id, ()):
            copies.take(beside)
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


def left_behind(
    events: Sequence[Event],
    copies: Sequence[Event],
    at: str | None = None,
    whole: bool = False,
    last_seq: int = 0,
) -> dict[str, list[Any]]:
    """What the `forked` event behind the copies tells of calls that may have run.

    started: ids of copied intents, by what was not copied or is lost. mixed: those between whose
    intent and start lines are lost, for the copies have no such place. calls: of which something
    stands on the path and no beginning is copied. last_seq: the highest that was given to the
    source, as far as is known.
    """
    account = history_of(events)
    doubtful = may_have_started(account, events, last_seq)
    here = {one.begun.id: one for one in history_of(copies).tools}
    is_news = _News(events, copies, doubtful)
    both = [(one, here[one.begun.id]) for one in account.tools if one.begun.id in here]
    mixed = (one for one, _ in both if one.mixed and (one.begun.id in doubtful or not one.closed))
    calls = [] if whole else [call.begun.payload for call in calls_elsewhere(events)]
    if not whole and at != BEFORE_FIRST:
        begun_by = calls_of(events)
        shown = {begun_by.get(name, name) for name in here}
        on_path = {begun_by.get(events[place].id) for place in path(places(events), at)} - shown
        as_of = events[-1].id if events else None
        calls += [
            named_as(one) | {"as_of": as_of}
            for one in open_tools(account, doubtful)
            if one.begun.id in on_path and (one.begun.id in doubtful or one.outcome == "unknown")
        ]
    started = [there.begun.id for there, own in both if is_news(there, own)]
    return {"started": started, "mixed": [one.begun.id for one in mixed], "calls": calls}


class _News:
    """Whether the copies do not say of a call that it may have run, and nothing in them settles
    that.
    """

    def __init__(
        self, events: Sequence[Event], copies: Sequence[Event], doubtful: Container[str]
    ) -> None:
        self._doubtful = doubtful
        self._told = started_elsewhere(events)
        self._ids = {event.seq: event.id for event in events}
        self._copied = {event.id for event in copies}
        self._said = observed_by_name(copies)

    def __call__(self, there: CallAccount, own: CallAccount) -> bool:
        if there.begun.id in self._doubtful:
            return own.closed or own.outcome != "unknown"
        by_name = self._said.get((own.turn, own.call_id), 0) > own.begun.seq
        if by_name or not _RAN.isdisjoint(own.state.seqs):
            return False
        if not _RAN.isdisjoint(there.state.seqs):
            return True
        denial = self._ids.get(there.state.seqs.get("denied", 0))
        return there.begun.id in self._told and denial not in self._copied


def check_copy(state: SessionState, event: Event) -> Problem | None:
    """Why a copy may not come next. What the source says of a call may, also where its turn, its
    intent or its end is lost or on another branch: the call ran all the same.
    """
    problem = state.check(event)
    is_of_a_call = problem is not None and problem.code in _OF_A_CALL
    return None if is_of_a_call and named_call(event) is not None else problem


class _Copies:
    """The new session while it is filled."""

    def __init__(self, begun_by: Mapping[str, str]) -> None:
        self._begun_by = begun_by
        """Of the source, as `calls_of` says."""
        self._newest: dict[tuple[str, str], str] = {}
        """The newest call here of a turn and a call id, by what it began by."""
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
        leads = event.type not in _NOT_COPIED and (event.leaf or event.type != "model_call")
        copy = msgspec.structs.replace(
            event,
            seq=self.state.last_seq + 1,
            parent=self.last if leads else event.parent,
            leaf=True if leads else event.leaf,
            owner=None,
        )
        copy = self._retargeted(copy)
        if not self._may_come(copy):
            self.leave_out(event)
            return
        self.state.apply(copy)
        self._note_call(copy)
        self.events.append(copy)
        if leads:
            self.last = copy.id
            self._behind |= dict.fromkeys(self._left_out, copy.id)
            self._left_out.clear()

    def _may_come(self, event: Event) -> bool:
        """Of a call's events those that are here of the same call as in the source."""
        key, begun_by = named_call(event), self._begun_by.get(event.id)
        if key is None or begun_by is None or "of_call" in event.payload:
            return self.state.check(event) is None
        tool = self.state.journal.tool(*key)
        if begun_by == event.id:
            is_new = event.type == "tool_intent" or tool is None or not tool.may_start
            return is_new and check_copy(self.state, event) is None
        if begun_by == self._newest.get(key):
            return self.state.check(event) is None
        is_new = tool is None or not tool.may_start
        return event.type == "tool_started" and is_new and check_copy(self.state, event) is None

    def _note_call(self, event: Event) -> None:
        key, begun_by = named_call(event), self._begun_by.get(event.id)
        if key is not None and begun_by is not None and "of_call" not in event.payload:
            self._newest[key] = begun_by

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
