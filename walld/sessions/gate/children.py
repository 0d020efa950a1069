"""Sub-agents: calls that are the work of another session, and what that session's gate says.

Owns: which children a view has to know of, and the reasons that are theirs. Refuses: reading other
sessions (the daemon), what a child said last (`views/child_view.py`), which call it is the work of
(`state/account.py`).

A call whose child is not done is judged by the child: to run it again is to go on there. Where
nobody could look, it is judged as any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from walld.sessions.gate.turn_history import history_of
from walld.sessions.gate.unreleased import said_before, said_in
from walld.sessions.state.account import Unreleased
from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.events import Child, Event, link_of

__all__ = [
    "ChildrenUnknown",
    "child_of",
    "child_reasons",
    "child_word",
    "open_children",
    "with_children",
]

_UNREAD: Final = "what became of it cannot be known now: {}"


class ChildrenUnknown(Exception):
    """What became of the children that these entries name has to be looked at first."""

    def __init__(self, entries: Sequence[Event]) -> None:
        super().__init__(f"{len(entries)} children")
        self.entries = entries


def open_children(events: Sequence[Event], replies: Sequence[Unreleased] = ()) -> list[Event]:
    """The `child` entries of calls that nobody said the end of, the newest of each, in order."""
    if not _may_wait(events):
        return []
    account = history_of(events, [*said_in(replies, events), *said_before(replies, events)])
    return [
        call.child
        for call in account.calls.calls
        if call.child is not None and not call.closed and call.superseded_by is None
    ]


def _may_wait(events: Iterable[Event]) -> bool:
    """Some call that is a child's work has no result behind that: most have, and need no fold."""
    waiting: set[tuple[object, object]] = set()
    for one in events:
        if one.type == "child" and (link := link_of(one.payload)) is not None:
            waiting.add((link.of.get("turn"), link.call_id))
        elif one.type == "tool_finished" and waiting:
            waiting.discard((one.turn, one.payload.get("call_id")))
    return bool(waiting)


def with_children(
    events: Sequence[Event],
    children: Mapping[str, Child | None],
    replies: Sequence[Unreleased] = (),
) -> Sequence[Event]:
    """The events, with what became of the child that each entry of these ids names; None where
    nobody could look. Raises ChildrenUnknown where there are others.
    """
    unknown = [one for one in open_children(events, replies) if one.id not in children]
    if unknown:
        raise ChildrenUnknown(unknown)
    if not children:
        return events
    return [
        msgspec.structs.replace(one, child=children[one.id])
        if one.type == "child" and children.get(one.id) is not None
        else one
        for one in events
    ]


def child_of(call: CallAccount) -> Child | None:
    """What became of the session whose work it is, where somebody looked."""
    return None if call.child is None else call.child.child


def child_word(call: CallAccount) -> str:
    """For the rules: nobody | ok | check | blocked | at_work. Whoever said no to the call, once it
    had started, said no to what its child would do.
    """
    child = child_of(call)
    if child is None or child.status is None or call.is_denied_late:
        return "nobody"
    is_at_work = any(one.get("code") == "at_work" for one in child.reasons)
    return "at_work" if is_at_work else child.status


def child_reasons(calls: Iterable[CallAccount]) -> list[dict[str, Any]]:
    """Those of the children of open calls, each with the call that it keeps from being run."""
    reasons: list[dict[str, Any]] = []
    for call in calls:
        if (child := child_of(call)) is None:
            continue
        told = {"turn": call.turn, "call_id": call.call_id, "session": call.child_session}
        where = f"session {call.child_session} (call {call.call_id}): "
        if child.unread is not None:
            text = where + _UNREAD.format(child.unread)
            unread = {"code": "child_unreadable", "message": text, "verdict": "check"}
            reasons.append(unread | told | {"of_child": None})
        for one in child.reasons:
            same = {name: one[name] for name in ("code", "verdict")}
            message = {"message": where + str(one["message"])}
            reasons.append(same | message | told | {"of_child": dict(one)})
    return reasons
