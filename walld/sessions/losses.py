"""Calls that may have run by what is lost, or was left out of a fork, though nothing left says so.

Owns: which seqs are lost, and what of the rest proves that a call did not start among them.
Refuses: what may be done with such a call (`resume.py`).

A call starts behind its intent, in a turn that has not ended: a turn that ended before a loss
proves that it did not start there. A denial behind the loss, or behind the fork or import that
names the call, settles it: who denies it does not run it. So does an observation; one that was
there before says nothing of a start elsewhere. An approval does not: who gave it may not know what
is lost. In a fork of a damaged session it is not known where the loss lay: a call of it
that is open may have started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from walld.sessions.account import Account, ToolAccount
from walld.sessions.events import Event, check_payload
from walld.sessions.tools import ToolState

__all__ = [
    "CAME_FROM",
    "calls_elsewhere",
    "may_have_started",
    "observed_by_name",
    "settled_elsewhere",
    "settled_seq",
    "started_elsewhere",
]

CAME_FROM: Final = frozenset(("forked", "imported"))
"""Events that tell what a session lacks of the one it came from."""

_HAS_RESULT: Final = frozenset(("finished", "failed"))


class _Lost(NamedTuple):
    """Seqs that were given and whose events are not there."""

    first: int
    last: int


def may_have_started(account: Account, events: Sequence[Event], last_seq: int = 0) -> set[str]:
    """Ids of intents of calls that may have run, and of which nothing says what became of them.

    last_seq: the highest that was given, as far as is known.
    """
    lost, left_out = _lost(events, last_seq), started_elsewhere(events)
    copied, said = _copied_with_losses(events), observed_by_name(events)

    def may_have(tool: ToolAccount) -> bool:
        by_name = said.get((tool.turn, tool.call_id), 0)
        if settled_seq(tool, said) <= left_out.get(tool.intent.id, -1):
            return True
        if "observed" in tool.state.seqs:
            return False
        if any(by_name < one.first and _may_start_in(one, tool, account) for one in lost):
            return True
        return max(tool.intent.seq, by_name) <= copied and not _is_done(tool, account)

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
    """Ids of intents whose call may have run in what this session came from, each with the last
    seq that came from there.
    """
    found: dict[str, int] = {}
    for event in _sound(events):
        for one in event.payload.get("started", ()):
            found[one] = max(found.get(one, 0), _until(event))
    return found


def calls_elsewhere(events: Sequence[Event]) -> list[ToolAccount]:
    """Calls that may have run in what this session came from, and whose intents are not here.

    What was told of one last counts: more had happened there by then. An observation behind it that
    names the call settles it.
    """
    return [call for call in _elsewhere(events).values() if not call.state.closed]


def settled_elsewhere(events: Sequence[Event]) -> set[tuple[str | None, str]]:
    """(turn, call_id) of those of which an observation said what became of them."""
    return {(call.turn, call.call_id) for call in _elsewhere(events).values() if call.state.closed}


def _elsewhere(events: Sequence[Event]) -> dict[tuple[object, object], ToolAccount]:
    found: dict[tuple[object, object], ToolAccount] = {}
    for event in _sound(events):
        settled = found.get((event.payload.get("of_turn"), event.payload.get("of_call")))
        if settled is not None:
            settled.state.seqs["observed"] = event.seq
        for call in event.payload.get("calls", ()):
            names = (call["tool"], call["side_effect"], call["resume_policy"])
            state = ToolState("started", *names, {"intended": event.seq, "started": event.seq})
            intent = msgspec.structs.replace(event, turn=call["turn"], payload=call)
            found[call["turn"], call["call_id"]] = ToolAccount(intent, state)
    return found


def _sound(events: Sequence[Event]) -> list[Event]:
    """Events that tell what is left behind, and those that may tell what became of it."""
    return [
        event
        for event in events
        if (event.type in CAME_FROM or event.type == "observation")
        and check_payload(event.type, event.payload) is None
    ]


def _may_start_in(lost: _Lost, tool: ToolAccount, account: Account) -> bool:
    if tool.intent.seq > lost.last:
        return False
    turn = account.turns.get(tool.turn or "")
    ended = 0 if turn is None else turn.state.terminal_seq
    if 0 < ended < lost.first:
        return False
    return tool.state.seqs.get("denied", 0) < lost.first


def _is_done(tool: ToolAccount, account: Account) -> bool:
    turn = account.turns.get(tool.turn or "")
    return tool.state.closed or (turn is not None and turn.state.state == "completed")


def _lost(events: Sequence[Event], last_seq: int) -> list[_Lost]:
    found, before = [], 0
    for event in events:
        if event.seq > before + 1:
            found.append(_Lost(before + 1, event.seq - 1))
        before = event.seq
    if last_seq > before:
        found.append(_Lost(before + 1, last_seq))
    return found


def _copied_with_losses(events: Sequence[Event]) -> int:
    """The last seq that was copied from a damaged session, 0 where none was."""
    until = 0
    for event in events:
        if event.type in CAME_FROM and event.payload.get("missing"):
            until = max(until, _until(event))
    return until


def _until(event: Event) -> int:
    """The last seq that was copied with what the event tells of.

    Where it came with an import its `until` counts the lines of elsewhere.
    """
    copied = event.payload.get("until")
    return max(copied, event.seq) if isinstance(copied, int) else event.seq
