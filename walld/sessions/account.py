"""What happened in each turn and to each tool call, gathered from all events once.

Owns: `TurnAccount`, `ToolAccount` and how they are gathered. Refuses: transitions (`turns.py`,
`tools.py`), shapes of views (each has its own module).

Invariants: pure, linear, over all events by seq: turns and calls happened, whatever branch is
looked at. Events that could not be appended today (damage, an edited file) are listed as
malformed; a turn whose submission is lost is a turn without a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from walld.sessions.artifacts import whole_text
from walld.sessions.events import Event, Problem
from walld.sessions.state import SessionState
from walld.sessions.tools import TOOL_TYPES, ToolState, tool_state_of
from walld.sessions.turns import TURN_STATES, TurnState

__all__ = ["Account", "ToolAccount", "TurnAccount", "account_of"]


class ToolAccount:
    """One call. at_ms: state -> when. decisions: what was decided and asked, as events say it.

    intent: or, where that is lost, its start.
    """

    __slots__ = (
        "at_ms",
        "call_id",
        "decisions",
        "intent",
        "observations",
        "result",
        "state",
        "turn",
    )

    def __init__(self, intent: Event, state: ToolState) -> None:
        self.intent = intent
        self.turn = intent.turn
        self.call_id: str = intent.payload["call_id"]
        self.state = state
        self.at_ms: dict[str, int] = {}
        self.decisions: list[dict[str, Any]] = []
        self.result: Event | None = None
        self.observations: list[object] = []
        """Texts, or what names one that is long."""

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
        self._newest: dict[tuple[str, str], ToolAccount] = {}
        self._tools_of: dict[str, list[ToolAccount]] = {}

    def take(self, event: Event) -> None:
        """The next event."""
        problem = self.state.check(event)
        if problem is not None:
            self.malformed.append((event, problem))
        self.state.apply(event)
        turn_id = event.turn or ""
        if turn_id not in self.turns and (turn := self.state.journal.turn(turn_id)) is not None:
            tools = self._tools_of.setdefault(turn_id, [])
            self.turns[turn_id] = TurnAccount(event, turn, tools)
        if event.type in TOOL_TYPES:
            self._tool(event, turn_id, problem)
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

    def _tool(self, event: Event, turn_id: str, problem: Problem | None) -> None:
        """What the fold took is told, also where it is malformed: a call that ran has run."""
        call_id = event.payload.get("call_id")
        if not isinstance(call_id, str):
            return
        key = (turn_id, call_id)
        state = self.state.journal.tool(*key)
        if state is None:
            return
        reached = tool_state_of(event.type, event.payload)
        if min(state.seqs.values()) == event.seq:
            tool = self._newest[key] = ToolAccount(event, state)
            self.tools.append(tool)
            self._tools_of.setdefault(turn_id, []).append(tool)
        elif event.type == "tool_intent":
            return
        tool = self._newest[key]
        if problem is not None and (reached is None or state.seqs.get(reached) != event.seq):
            return
        if reached is not None:
            tool.at_ms[reached] = event.at_ms
        if event.type in ("tool_decision", "tool_approval"):
            tool.decisions.append({"type": event.type, "at_ms": event.at_ms, **event.payload})
        elif event.type == "tool_finished":
            tool.result = event
        elif event.type == "observation":
            tool.observations.append(whole_text(event.payload, "text"))


def account_of(events: Sequence[Event]) -> Account:
    """What all events tell of turns and tools."""
    account = Account()
    for event in events:
        account.take(event)
    return account
