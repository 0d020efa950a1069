"""Calls that may have run by what is lost, or was left out of a fork, though nothing left says so.

Owns: which seqs are lost, and what of the rest proves that a call did not start among them.
Refuses: what may be done with such a call (`resume.py`).

A call starts behind its intent, in a turn that has not ended: a turn that ended before a loss
proves that it did not start there, and an intent that gives its id again, that it was settled. A
denial behind the loss, or behind the fork or import that names the call, settles it: who denies it
does not run it. So does an observation; one that was there before says nothing of a start
elsewhere. An approval does not: who gave it may not know what is lost. Where lines are lost in a
session that came from elsewhere, one of them may have told of a start there: then nothing that was
said before proves anything. What an import has yet to bring counts as lost behind the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple

import msgspec

from walld.sessions.account import Account, ToolAccount
from walld.sessions.events import CAME_FROM, RESUME_POLICIES, UNKNOWN, Event, check_payload
from walld.sessions.tools import ToolState

__all__ = [
    "CAME_FROM",
    "FROM_LAX",
    "as_ended",
    "calls_elsewhere",
    "elsewhere",
    "lost_places",
    "may_have_started",
    "observed_by_name",
    "settled_elsewhere",
    "settled_seq",
    "started_elsewhere",
    "unfinished_imports",
]

FROM_LAX: Final = (*RESUME_POLICIES, UNKNOWN)
"""Policies, from what may be done at once to what may not."""

_HAS_RESULT: Final = frozenset(("finished", "failed"))


class _Lost(NamedTuple):
    """Seqs that were given and whose events are not there. may_tell: of starts elsewhere, one of
    them may.
    """

    first: int
    last: int
    may_tell: bool


def may_have_started(account: Account, events: Sequence[Event], last_seq: int = 0) -> set[str]:
    """Ids of intents of calls that may have run, and of which nothing says what became of them.

    last_seq: the highest that was given, as far as is known.
    """
    lost, left_out = _lost(events, last_seq), started_elsewhere(events)
    said = observed_by_name(events)

    def may_have(tool: ToolAccount) -> bool:
        settled = settled_seq(tool, said)
        if settled <= left_out.get(tool.intent.id, -1):
            return True
        return any(
            tool.intent.seq <= one.last
            and settled < one.first
            and (one.may_tell or _may_start_in(one, tool, account))
            for one in lost
        )

    return {
        tool.intent.id
        for tool in account.tools
        if _HAS_RESULT.isdisjoint(tool.state.seqs) and may_have(tool)
    }


def observed_by_name(events: Sequence[Event]) -> dict[tuple[object, object], int]:
    """(turn, call_id) -> seq of the last observation that names the call so (`of_turn`, `of_call`).

    For calls that no result can be of: the intent is not here, or the call id was given again.
    """
    return {
        (event.payload.get("of_turn"), event.payload.get("of_call")): event.seq
        for event in _sound(events)
        if event.type == "observation"
    }


def settled_seq(tool: ToolAccount, said: Mapping[tuple[object, object], int]) -> int:
    """Where somebody last said what became of a call that gave no result, 0 where nobody did.

    said: observations by name.
    """
    seqs = tool.state.seqs
    by_name = said.get((tool.turn, tool.call_id), 0)
    return max(seqs.get("denied", 0), seqs.get("observed", 0), by_name)


def started_elsewhere(events: Sequence[Event]) -> dict[str, int]:
    """Ids of intents whose call may have run in what this session came from, each with the seq of
    what last told of it.
    """
    found: dict[str, int] = {}
    for event in _sound(events):
        for one in event.payload.get("started", ()):
            found[one] = event.seq
    return found


def calls_elsewhere(events: Sequence[Event]) -> list[ToolAccount]:
    """Calls that may have run in what this session came from, and whose intents are not here.

    Of two of one call id that are open the stricter one counts. An observation behind what told of
    them that names the call settles both.
    """
    return [call for call in elsewhere(events) if not call.state.closed]


def settled_elsewhere(events: Sequence[Event]) -> set[tuple[str | None, str]]:
    """(turn, call_id) of those of which an observation said what became of them."""
    return {(call.turn, call.call_id) for call in elsewhere(events) if call.state.closed}


def elsewhere(events: Sequence[Event]) -> list[ToolAccount]:
    """Calls that this session was told of, the newest of a call id."""
    found: dict[tuple[object, object], ToolAccount] = {}
    for event in _sound(events):
        settled = found.get((event.payload.get("of_turn"), event.payload.get("of_call")))
        if settled is not None:
            settled.state.seqs["observed"] = event.seq
        for call in event.payload.get("calls", ()):
            key = call["turn"], call["call_id"]
            if (before := found.get(key)) is not None and not before.state.closed:
                call = max(before.intent.payload, call, key=_strictness)
            names = (call["tool"], call["side_effect"], call["resume_policy"])
            state = ToolState("started", *names, {"intended": event.seq, "started": event.seq})
            intent = msgspec.structs.replace(event, turn=call["turn"], payload=call)
            found[key] = ToolAccount(intent, state)
    return [*found.values()]


def _strictness(call: Mapping[str, Any]) -> int:
    return FROM_LAX.index(call["resume_policy"])


def _sound(events: Sequence[Event]) -> list[Event]:
    """Events that tell what is left behind, and those that may tell what became of it."""
    return [
        event
        for event in events
        if (event.type in CAME_FROM or event.type == "observation")
        and check_payload(event.type, event.payload) is None
    ]


def _may_start_in(lost: _Lost, tool: ToolAccount, account: Account) -> bool:
    """Nothing proves that it did not, or that it was settled behind."""
    turn = account.turns.get(tool.turn or "")
    ended = 0 if turn is None else turn.state.terminal_seq
    proofs = (ended, tool.state.seqs.get("observed", 0))
    return tool.again_seq == 0 and not any(0 < seq < lost.first for seq in proofs)


def _lost(events: Sequence[Event], last_seq: int) -> list[_Lost]:
    """A place where an import lacks lines of its source is lost as well."""
    told_before = _told_before(events)
    found, before = [], 0
    for event in events:
        if event.seq > before + 1:
            found.append(_Lost(before + 1, event.seq - 1, before < told_before))
        if event.type == "imported" and event.payload.get("missing"):
            found.append(_Lost(event.seq, event.seq, may_tell=False))
        before = event.seq
    if unfinished_imports(events):
        last_seq = max(last_seq, before + 1)
    if last_seq > before:
        found.append(_Lost(before + 1, last_seq, before < told_before))
    return found


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


def lost_places(events: Sequence[Event]) -> list[int]:
    """The last seq of each loss."""
    return [one.last for one in _lost(events, 0)]


def _told_before(events: Sequence[Event]) -> float:
    """Of starts elsewhere no lost line tells that stood behind the event of this seq.

    An import may come at any time. A fork is made before anybody works in it; where the first line
    is lost it may be one.
    """
    if any(event.type == "imported" for event in events):
        return inf
    if events and events[0].seq == 1 and all(event.type != "forked" for event in events):
        return 0
    return min((event.seq for event in events if event.owner is not None), default=inf)


def unfinished_imports(events: Sequence[Event]) -> list[str]:
    """Of each import that began and has not ended the id of the last entry it was to bring."""
    open_: dict[str, None] = {}
    for event in events:
        if event.type != "imported" or check_payload(event.type, event.payload) is not None:
            continue
        if (begun := event.payload.get("begun")) is not None:
            open_[begun] = None
        open_.pop(event.payload.get("ended") or "", None)
    return list(open_)
