"""A session, or one turn of it, as a sample for an evaluation.

Owns: the shape of the sample. Refuses: scoring, a target the ledger does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from walld.sessions.gate.turn_history import History, history_of
from walld.sessions.state.budget import last_budget
from walld.sessions.state.errors import BadArgument
from walld.sessions.state.events import Event
from walld.sessions.views.messages import messages
from walld.sessions.views.transcript import tool_view

__all__ = ["evaluation"]


def evaluation(events: Sequence[Event], turn: str | None = None) -> dict[str, Any]:
    """input: messages before the answer; output: the answer, None where there is none.

    turn: up to the last entry of that turn, with its tools alone; None: the leaf, and all of them.
    Raises BadArgument.
    """
    account = history_of(events)
    said = _said(events, account, turn)
    last = said[-1] if said else {}
    answered = last.get("role") == "assistant" and "_wal_journal" not in last
    turns = list(account.turns.values()) if turn is None else [account.turns[turn]]
    tools = [tool_view(tool) for one in turns for tool in one.tools]
    return {
        "input": said[:-1] if answered else said,
        "output": last.get("content") if answered else None,
        "partial": bool(answered and last.get("_partial")),
        "target": None,
        "state": turns[-1].state.state if turns else None,
        "reason": turns[-1].state.reason if turns else None,
        "tools": tools,
        "verifications": [
            event.payload
            for event in events
            if event.type == "verification" and (turn is None or event.turn == turn)
        ],
        "metadata": {
            "turns": [one.state.turn_id for one in turns],
            "outcomes": _counted([tool["outcome"] for tool in tools]),
            "duration_ms": sum(one.duration_ms or 0 for one in turns),
            "budget": last_budget(events),
        },
    }


def _said(events: Sequence[Event], account: History, turn: str | None) -> list[dict[str, Any]]:
    if turn is None:
        return messages(events) or []
    if turn not in account.turns:
        raise BadArgument("turn", turn, "the id of a turn that was submitted", "unknown_turn")
    told = account.turns[turn]
    last = told.said[-1] if told.said else told.submitted
    return messages(events, branch=last.id) or []


def _counted(words: list[str]) -> dict[str, int]:
    return {word: words.count(word) for word in sorted(set(words))}
