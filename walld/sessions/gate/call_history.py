"""The history of every turn and tool call, gathered from all events once.

Owns: `TurnAccount`, `ToolAccount` and how they are gathered. Refuses: transitions (`turns.py`,
`tools.py`), shapes of views (each has its own module).

Invariants: pure, linear, over all events by seq: turns and calls happened, whatever branch is
looked at. Events that could not be appended today (damage, an edited file) are listed as
malformed; a turn whose submission is lost is a turn without a message. A call whose id was given
again was closed before, though what closed it may be lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from walld.sessions.state.artifacts import whole_text
from walld.sessions.state.events import CAME_FROM, UNKNOWN, Event, Problem, check_payload
from walld.sessions.state.session_state import SessionState
from walld.sessions.state.tools import TOOL_TYPES, ToolState, named_call, tool_state_of
from walld.sessions.state.turns import TURN_STATES, TurnState

__all__ = ["Account", "ToolAccount", "TurnAccount", "account_of", "calls_of", "named_as"]

_GOES_ON: Final = frozenset(("asked", "approved", "started"))
_SETTLES: Final = frozenset(("denied", "finished", "failed", "observed"))


class ToolAccount:
    """One call. at_ms: state -> when. decisions: what was decided and asked, as events say it.

    intent: or, where that is lost, its start. again_seq: where its id was given again, 0 where it
    was not. mixed: lines behind its intent are lost, and what is said behind those may be of
    another call of its id. is_undecided: the last word of a policy is none that is known, so it may
    be a no. words: what settled it.
    """

    __slots__ = (
        "again_seq",
        "at_ms",
        "call_id",
        "decisions",
        "intent",
        "is_undecided",
        "mixed",
        "observations",
        "result",
        "state",
        "turn",
        "words",
    )

    def __init__(self, intent: Event, state: ToolState) -> None:
        self.intent = intent
        self.turn = intent.turn
        self.call_id: str = intent.payload["call_id"]
        self.state = state
        self.again_seq = 0
        self.mixed = False
        self.is_undecided = False
        self.words: list[Event] = []
        self.at_ms: dict[str, int] = {}
        self.decisions: list[dict[str, Any]] = []
        self.result: Event | None = None
        self.observations: list[object] = []
        """Texts, or what names one that is long."""

    @property
    def closed(self) -> bool:
        """Somebody said what became of it, or its id was given again, which nobody does before."""
        return self.state.closed or self.again_seq > 0

    @property
    def outcome(self) -> str:
        """As of its state; unknown where what closed it is lost."""
        is_lost = self.again_seq > 0 and not self.state.closed
        return "unknown" if is_lost else self.state.outcome

    @property
    def risk(self) -> tuple[str, str]:
        """Side effect and resume policy of what may have run as it."""
        if self.mixed:
            return UNKNOWN, UNKNOWN
        return self.state.side_effect, self.state.resume_policy

    @property
    def ended_at_ms(self) -> int | None:
        """When the result came."""
        return None if self.result is None else self.result.at_ms

    @property
    def duration_ms(self) -> int | None:
        """From its start, or intent, to its result; None without one."""
        if self.result is None:
            return None
        return max(self.result.at_ms - self.at_ms.get("started", self.intent.at_ms), 0)


class TurnAccount:
    """One turn. submitted: or, where that is malformed, the first that is known of it.

    said: its submission and messages, in order.
    """

    __slots__ = ("ended", "said", "state", "submitted", "tools")

    def __init__(self, submitted: Event, state: TurnState, tools: list[ToolAccount]) -> None:
        self.submitted = submitted
        self.state = state
        self.said: list[Event] = []
        self.tools = tools
        self.ended: Event | None = None

    @property
    def duration_ms(self) -> int | None:
        """From the submission to the end; None without one."""
        if self.ended is None:
            return None
        return max(self.ended.at_ms - self.submitted.at_ms, 0)


class Account:
    """All of it. loose: messages of no turn. malformed: events and why each could not come.

    tools: also those of a turn that no line that is left tells of.
    """

    def __init__(self) -> None:
        self.turns: dict[str, TurnAccount] = {}
        self.tools: list[ToolAccount] = []
        self.loose: list[Event] = []
        self.malformed: list[tuple[Event, Problem]] = []
        self.state = SessionState()
        self.newest: dict[tuple[str, str], ToolAccount] = {}
        """The newest call of a turn and a call id."""
        self._hole = 0
        """Behind the newest place where lines are lost."""
        self._tools_of: dict[str, list[ToolAccount]] = {}

    def take(self, event: Event) -> None:
        """The next event."""
        self._note_losses(event)
        problem = self.state.check(event)
        if problem is not None:
            self.malformed.append((event, problem))
        self.state.apply(event)
        turn_id = event.turn or ""
        if turn_id not in self.turns and (turn := self.state.journal.turn(turn_id)) is not None:
            tools = self._tools_of.setdefault(turn_id, [])
            self.turns[turn_id] = TurnAccount(event, turn, tools)
        if event.type in TOOL_TYPES:
            self._tool(event, problem)
        elif problem is not None:
            return
        elif event.type == "message":
            told = self.turns.get(turn_id)
            (self.loose if told is None else told.said).append(event)
        elif event.type in TURN_STATES:
            self._turn(event)

    def _turn(self, event: Event) -> None:
        assert event.turn is not None, "check() wants one"
        turn = self.turns[event.turn]
        if event.type == "turn_submitted":
            turn.said.append(event)
        if turn.state.terminal_seq == event.seq:
            turn.ended = event

    def _note_losses(self, event: Event) -> None:
        if event.seq > self.state.last_seq + 1:
            self._hole = event.seq
        if event.type not in CAME_FROM or check_payload(event.type, event.payload) is not None:
            return
        if event.type == "imported" and event.payload.get("missing"):
            self._hole = event.seq
        mixed = set(event.payload.get("mixed", ()))
        for tool in self.tools if mixed else ():
            tool.mixed |= tool.intent.id in mixed

    def _tool(self, event: Event, problem: Problem | None) -> None:
        """What the fold took is told, also where it is malformed: a call that ran has run."""
        key = named_call(event)
        state = None if key is None else self.state.journal.tool(*key)
        if key is None or state is None:
            return
        reached = tool_state_of(event.type, event.payload)
        if min(state.seqs.values()) == event.seq:
            self._begin(key, ToolAccount(event, state))
        tool = self.newest[key]
        if problem is not None and (reached is None or state.seqs.get(reached) != event.seq):
            return
        if reached is not None:
            tool.at_ms[reached] = event.at_ms
            tool.mixed |= reached in _GOES_ON and tool.intent.seq < self._hole
            if reached in _SETTLES:
                tool.words.append(event)
        if event.type in ("tool_decision", "tool_approval"):
            tool.is_undecided = reached is None
            tool.decisions.append({"type": event.type, "at_ms": event.at_ms, **event.payload})
        elif event.type == "tool_finished":
            tool.result = event
        elif event.type == "observation":
            tool.observations.append(whole_text(event.payload, "text"))

    def _begin(self, key: tuple[str, str], tool: ToolAccount) -> None:
        if (before := self.newest.get(key)) is not None:
            before.again_seq = tool.intent.seq
        self.newest[key] = tool
        self.tools.append(tool)
        self._tools_of.setdefault(key[0], []).append(tool)


def account_of(events: Sequence[Event]) -> Account:
    """What all events tell of turns and tools."""
    account = Account()
    for event in events:
        account.take(event)
    return account


def named_as(tool: ToolAccount) -> dict[str, Any]:
    """The call as `forked` and `imported` name it."""
    effect, policy = tool.risk
    named = {"turn": tool.turn, "call_id": tool.call_id, "tool": tool.state.tool}
    return named | {"side_effect": effect, "resume_policy": policy}


def calls_of(events: Sequence[Event]) -> dict[str, str]:
    """Id of each event that changed a call -> id of the intent, or start, that it began by."""
    account, found = Account(), {}
    for event in events:
        account.take(event)
        key = named_call(event)
        tool = None if key is None else account.newest.get(key)
        if tool is not None and event.seq in tool.state.seqs.values():
            found[event.id] = tool.intent.id
    return found
