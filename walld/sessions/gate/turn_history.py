"""The history of every turn, gathered from all events once, with the account of its calls.

Owns: `TurnHistory`, `History` and how they are gathered. Refuses: calls (`state/account.py`),
transitions (`turns.py`, `tools.py`), shapes of views (each has its own module).

Invariants: pure, linear, over all events by seq: turns and calls happened, whatever branch is
looked at. Events that could not be appended today (damage, an edited file) are listed as
malformed; a turn whose submission is lost is a turn without a message. A call whose id was given
again was closed before, though what closed it may be lost. What the fold of a journal took of a
call is told, also where it is malformed: a call that ran has run.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from walld.sessions.state.account import Calls, calls_in
from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.events import Event, Problem
from walld.sessions.state.session_state import SessionState
from walld.sessions.state.tools import TOOL_TYPES, named_call
from walld.sessions.state.turns import TURN_STATES, TurnState

__all__ = ["History", "TurnHistory", "calls_of", "history_of", "named_as"]

_NAMES_TURN = frozenset(("_turn", "_wal_recovered"))
_FORGET_EVENTS = 256
"""Between two times that what only a snapshot needs of their fold is let go of."""


class TurnHistory:
    """One turn. submitted: or, where that is malformed, the first that is known of it.

    said: its submission and messages, in order. spoken: the same, and what the model said that
    names no turn: behind its submission, while that was the newest and open. gone_answers: what is
    left of replies that ended, asked for nothing, and went to their program's own store.
    """

    __slots__ = ("ended", "gone_answers", "said", "spoken", "state", "submitted", "tools")

    def __init__(self, submitted: Event, state: TurnState, tools: list[CallAccount]) -> None:
        self.submitted = submitted
        self.state = state
        self.said: list[Event] = []
        self.spoken: list[Event] = []
        self.gone_answers: list[Event] = []
        self.tools = tools
        self.ended: Event | None = None

    @property
    def duration_ms(self) -> int | None:
        """From the submission to the end; None without one."""
        if self.ended is None:
            return None
        return max(self.ended.at_ms - self.submitted.at_ms, 0)


class History:
    """All of it. loose: messages of no turn. malformed: events and why each could not come.

    calls: all of them. tools: those with an intent, or a start, also those of a turn that no line
    that is left tells of. of_replies: those that no journal and no message of the session has: of
    replies that are not released, and what is left of those that went.
    """

    def __init__(self) -> None:
        self.turns: dict[str, TurnHistory] = {}
        self.calls = Calls()
        self.tools: list[CallAccount] = []
        self.of_replies: list[CallAccount] = []
        self.loose: list[Event] = []
        self.malformed: list[tuple[Event, Problem]] = []
        self.state = SessionState()
        self._tools_of: dict[str, list[CallAccount]] = {}

    @property
    def of_messages(self) -> list[CallAccount]:
        """Calls that messages of the session alone say, but for what the provider ran itself."""
        apart = set(map(id, self.of_replies))
        return [
            one
            for one in self.calls.calls
            if one.intent is None and not one.is_served and id(one) not in apart
        ]

    def take(self, event: Event) -> None:
        """The next event."""
        problem = self.state.check(event)
        if problem is not None:
            self.malformed.append((event, problem))
        self.state.apply(event)
        self.calls.take(event)
        turn_id = event.turn or ""
        if turn_id not in self.turns and (turn := self.state.journal.turn(turn_id)) is not None:
            tools = self._tools_of.setdefault(turn_id, [])
            self.turns[turn_id] = TurnHistory(event, turn, tools)
        if event.type in TOOL_TYPES:
            self._tool(event)
        elif problem is not None:
            return
        elif event.type == "message":
            told = self.turns.get(turn_id)
            (self.loose if told is None else told.said).append(event)
            if (spoken_in := told or self._spoken_in(event)) is not None:
                spoken_in.spoken.append(event)
        elif event.type == "model_call" and _is_answer(event):
            if (gone := self.turns.get(turn_id)) is not None:
                gone.gone_answers.append(event)
        elif event.type in TURN_STATES:
            self._turn(event)

    def _spoken_in(self, event: Event) -> TurnHistory | None:
        """The turn whose answer a message may be that names none. What was recovered is of the turn
        of its reply, or of none.
        """
        payload = event.payload
        if event.turn is not None or payload.get("role") != "assistant":
            return None
        if payload.keys() & _NAMES_TURN:
            return None
        turn = next(reversed(self.turns.values()), None)
        if turn is None or turn.ended is not None:
            return None
        is_behind = self.state.parents.is_above(turn.submitted.seq, event.seq)
        return turn if is_behind else None

    def _turn(self, event: Event) -> None:
        assert event.turn is not None, "check() wants one"
        turn = self.turns[event.turn]
        if event.type == "turn_submitted":
            turn.said.append(event)
            turn.spoken.append(event)
        if turn.state.terminal_seq == event.seq:
            turn.ended = event

    def _tool(self, event: Event) -> None:
        key = named_call(event)
        call = None if key is None else self.calls.newest(*key)
        if key is not None and call is not None and call.intent is event:
            self.tools.append(call)
            self._tools_of.setdefault(key[0], []).append(call)


def _is_answer(event: Event) -> bool:
    payload = event.payload  # an application's own may be called so
    return payload.get("answer") is True and isinstance(payload.get("stream"), str)


def history_of(
    events: Sequence[Event],
    said: Sequence[Event] = (),
    withdrawn: Sequence[Event] = (),
    gone: Container[str] = (),
) -> History:
    """What all events tell of turns and calls.

    gone: ids of entries whose messages were undone: in a turn whose own stands they are not spoken.
    said: messages of replies that are not released: their calls count, and they are no entries.
    withdrawn: the same of steps that were begun anew before they had ended.
    """
    history = History()
    for place, event in enumerate(events):
        history.take(event)
        if not place % _FORGET_EVENTS:
            history.state.forget_delta()
    calls = history.calls
    # By now: a reply that is read while it is released is told of twice.
    left = {id(one) for one in calls.calls if one.is_of_gone_reply}
    for event in (*said, *withdrawn):
        calls.take(event)
    for event in withdrawn:
        for one in calls_in(event.payload):
            calls.of_item[id(one)].is_withdrawn = True
    calls.end()
    for turn in history.turns.values() if gone else ():
        if turn.submitted.id not in gone:
            turn.spoken = [one for one in turn.spoken if one.id not in gone]
    loose = {id(one) for one in (*said, *withdrawn)}
    if left or loose:
        history.of_replies = [
            one
            for one in calls.calls
            if one.intent is None and (id(one) in left or id(one.said_in) in loose)
            if not (one.is_served and id(one.said_in) in loose)
        ]
    return history


def named_as(call: CallAccount) -> dict[str, Any]:
    """The call as `forked` and `imported` name it."""
    effect, policy = call.risk
    named = {"turn": call.turn, "call_id": call.call_id, "tool": call.state.tool}
    return named | {"side_effect": effect, "resume_policy": policy}


def calls_of(events: Sequence[Event]) -> dict[str, str]:
    """Id of each event that changed a call -> id of the intent, or start, that it began by."""
    calls, found = Calls(), {}
    for event in events:
        calls.take(event)
        key = named_call(event)
        call = None if key is None else calls.newest(*key)
        if call is not None and event.seq in call.seqs.values():
            found[event.id] = call.begun.id
    return found
