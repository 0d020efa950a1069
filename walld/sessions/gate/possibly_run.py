"""Calls that may have run, judged by what is lost or was left out of a fork.

Owns: which seqs are lost, and what of the rest proves that a call did not start among them.
Refuses: what may be done with such a call (`resume.py`).

A call starts behind its intent, in a turn that has not ended: a turn that ended before a loss
proves that it did not start there, and an intent that gives its id again, that it was settled. A
denial behind the loss, or behind the fork or import that names the call, settles it: who denies it
does not run it. So does an observation; one that was there before says nothing of a start
elsewhere. A settlement that says whether it ran does what an observation does. An approval does
not: who gave it may not know what is lost. Where lines are lost in a session that came from
elsewhere, one of them may have told of a start there: then nothing that was said before proves
anything. What an import has yet to bring counts as lost behind the end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final

import msgspec

from walld.sessions.gate.turn_history import History
from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.events import CAME_FROM, RESUME_POLICIES, UNKNOWN, Event, check_payload
from walld.sessions.state.tools import ToolState

__all__ = [
    "CAME_FROM",
    "FROM_LAX",
    "Lost",
    "as_ended",
    "calls_elsewhere",
    "elsewhere",
    "gave_no_result",
    "may_have_started",
    "observed_by_name",
    "settled_elsewhere",
    "settled_seq",
    "started_elsewhere",
    "unfinished_imports",
]

FROM_LAX: Final = (*RESUME_POLICIES, UNKNOWN)
"""Policies, from what may be done at once to what may not."""
_ENDS: Final = ("ran", "did_not_run")
"""Words of a settlement that say what became of the call."""
_TELLS: Final = CAME_FROM | {"observation", "tool_settled"}


class Lost:
    """What the events so far tell of what is not there; by seq.

    told: ids of intents whose call may have run in what this session came from, each with the seq
    of what last told of it. said: (turn, call_id) -> the last observation that names the call so.
    unfinished: of each import that began and has not ended the last entry it was to bring.
    """

    def __init__(self) -> None:
        self.told: dict[str, int] = {}
        self.said: dict[tuple[object, object], int] = {}
        self.unfinished: dict[str, None] = {}
        self._holes = _Holes()
        """Seqs that were given and whose events are not there."""
        self._missing = _Holes()
        """Where an import lacks lines of its source: lost as well."""
        self._seq = 0
        self._is_whole = False
        """It has its first line: it would say that it is a fork."""
        self._owned_seq: float = inf
        self._may_come_from = {"forked": False, "imported": False}

    def take(self, event: Event) -> None:
        """The next event."""
        self._is_whole |= event.seq == 1
        self.reach(event.seq - 1)
        self._seq = event.seq
        if event.owner is not None:
            self._owned_seq = min(self._owned_seq, event.seq)
        if event.type in CAME_FROM:
            self._may_come_from[event.type] = True
            if event.type == "imported" and event.payload.get("missing"):
                self._missing.add(event.seq, event.seq)
        elif event.type != "observation":
            return
        if check_payload(event.type, event.payload) is None:
            self._tell(event)

    def _tell(self, event: Event) -> None:
        payload = event.payload
        if event.type == "observation":
            self.said[payload.get("of_turn"), payload.get("of_call")] = event.seq
            return
        self.told.update(dict.fromkeys(payload.get("started", ()), event.seq))
        if event.type == "imported":
            if (begun := payload.get("begun")) is not None:
                self.unfinished[begun] = None
            self.unfinished.pop(payload.get("ended") or "", None)

    def reach(self, last_seq: int) -> None:
        """Seqs up to that were given."""
        if last_seq > self._seq:
            self._holes.add(self._seq + 1, last_seq)
            self._seq = last_seq

    def end(self, last_seq: int) -> None:
        """There are no more, and seqs up to that were given."""
        self.reach(max(last_seq, self._seq + 1) if self.unfinished else last_seq)

    def between(self, first_seq: int, last_seq: int) -> bool:
        """Some of it is lost behind the one and up to the other."""
        return self._holes.any(first_seq, last_seq) or self._missing.any(first_seq, last_seq)

    def may_have_run(self, tool: CallAccount, account: History) -> bool:
        """A call that gave no result, and of which nothing says what became of it."""
        settled = settled_seq(tool, self.said)
        if settled <= self.told.get(tool.begun.id, -1):
            return True
        turn = account.turns.get(tool.turn or "")
        ended = 0 if turn is None else turn.state.terminal_seq
        proofs = [seq for seq in (ended, tool.state.seqs.get("observed", 0)) if seq]
        told_before = self._told_before()
        for holes in (self._holes, self._missing):
            # The later a hole is, the less may have been in it.
            first = holes.first(tool.begun.seq, settled)
            may_tell = holes is self._holes and 0 < first <= told_before
            if may_tell or (first and not tool.again_seq and all(seq >= first for seq in proofs)):
                return True
        return False

    def _told_before(self) -> float:
        """Of starts elsewhere no lost line tells that stood behind the event of this seq.

        An import may come at any time. A fork is made before anybody works in it; where the first
        line is lost it may be one.
        """
        if self._may_come_from["imported"]:
            return inf
        if self._is_whole and not self._may_come_from["forked"]:
            return 0
        return self._owned_seq


class _Holes:
    """Runs of seqs, in order."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def add(self, first: int, last: int) -> None:
        self._firsts.append(first)
        self._lasts.append(last)

    def first(self, until: int, behind: int) -> int:
        """Where the first begins that ends there or later and begins behind the other; 0: none."""
        at = max(bisect_left(self._lasts, until), bisect_right(self._firsts, behind))
        return self._firsts[at] if at < len(self._firsts) else 0

    def any(self, behind: int, last: int) -> bool:
        """One ends behind the first and not behind the last."""
        at = bisect_right(self._lasts, behind)
        return at < len(self._lasts) and self._lasts[at] <= last


def _lost(events: Sequence[Event]) -> Lost:
    lost = Lost()
    for event in events:
        lost.take(event)
    return lost


def may_have_started(account: History, events: Sequence[Event], last_seq: int) -> set[str]:
    """Ids of intents of calls that may have run, and of which nothing says what became of them;
    where the intent may be lost, of the messages that say them.

    last_seq: the highest that was given, as far as is known.
    """
    lost = _lost(events)
    lost.end(last_seq)
    return {
        tool.begun.id
        for tool in account.calls.calls
        if (tool.intent is not None or tool.is_promised)  # its intent may be lost
        if gave_no_result(tool) and lost.may_have_run(tool, account)
    }


def gave_no_result(tool: CallAccount) -> bool:
    """Nothing that is there is a result of it."""
    return not tool.has_result


def observed_by_name(events: Sequence[Event]) -> dict[tuple[object, object], int]:
    """(turn, call_id) -> seq of the last observation that names the call so (`of_turn`, `of_call`).

    For calls that no result can be of: the intent is not here, or the call id was given again.
    """
    return _lost(events).said


def settled_seq(tool: CallAccount, said: Mapping[tuple[object, object], int]) -> int:
    """Where somebody last said what became of a call that gave no result, 0 where nobody did.

    said: observations by name.
    """
    return max(tool.settled_seq, said.get((tool.turn, tool.call_id), 0))


def started_elsewhere(events: Sequence[Event]) -> dict[str, int]:
    """Ids of intents whose call may have run in what this session came from, each with the seq of
    what last told of it.
    """
    return _lost(events).told


def calls_elsewhere(events: Sequence[Event]) -> list[CallAccount]:
    """Calls that may have run in what this session came from, and whose intents are not here.

    Of two of one call id that are open the stricter one counts. An observation behind what told of
    them that names the call settles both, a settlement that names what told the one.
    """
    return [call for call in elsewhere(events) if not call.state.closed]


def settled_elsewhere(events: Sequence[Event]) -> set[tuple[str | None, str]]:
    """(turn, call_id) of those of which an observation said what became of them."""
    return {(call.turn, call.call_id) for call in elsewhere(events) if call.state.closed}


def elsewhere(events: Sequence[Event]) -> list[CallAccount]:
    """Calls that this session was told of, the newest of a call id."""
    found: dict[tuple[object, object], CallAccount] = {}
    for event in _sound(events):
        if event.type == "observation":
            settled = found.get((event.payload.get("of_turn"), event.payload.get("of_call")))
            if settled is not None:
                settled.state.seqs["observed"] = event.seq
            continue
        if event.type == "tool_settled":
            of = event.payload["of"]
            settled = found.get((of.get("turn"), of["call_id"]))
            is_named = settled is not None and settled.begun.id == of.get("entry")
            if settled is not None and is_named and event.payload["word"] in _ENDS:
                settled.state.seqs["observed"] = event.seq
            continue
        for call in event.payload.get("calls", ()):
            key = call["turn"], call["call_id"]
            if (before := found.get(key)) is not None and not before.state.closed:
                call = max(before.begun.payload, call, key=_strictness)
            names = (call["tool"], call["side_effect"], call["resume_policy"])
            state = ToolState("started", *names, {"intended": event.seq, "started": event.seq})
            told = msgspec.structs.replace(event, turn=call["turn"], payload=call)
            found[key] = CallAccount(call["turn"], call["call_id"], told, state)
    return [*found.values()]


def _strictness(call: Mapping[str, Any]) -> int:
    return FROM_LAX.index(call["resume_policy"])


def _sound(events: Sequence[Event]) -> list[Event]:
    """Events that tell what is left behind, and those that may tell what became of it."""
    return [
        event
        for event in events
        if event.type in _TELLS and check_payload(event.type, event.payload) is None
    ]


def as_ended(copy: Sequence[Event]) -> list[Event]:
    """The copy when no import of it is under way: what is doubted for that alone is untold."""
    events = list(copy)
    for last in unfinished_imports(copy):
        said = {"payload": {"ended": last}, "type": "imported", "id": f"{last}:ended"}
        links = dict.fromkeys(("turn", "cause", "correlation", "key"))
        newest = events[-1]
        events.append(
            msgspec.structs.replace(
                newest, seq=newest.seq + 1, leaf=False, owner=None, **said, **links
            )
        )
    return events


def unfinished_imports(events: Sequence[Event]) -> list[str]:
    """Of each import that began and has not ended the id of the last entry it was to bring."""
    return list(_lost(events).unfinished)
