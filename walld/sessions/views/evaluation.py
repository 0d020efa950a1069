"""A session, or one turn of it, as a sample for an evaluation.

Owns: the shape of the sample. Refuses: scoring, a target the ledger does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from walld.sessions.gate.model_calls import model_calls, total_usage
from walld.sessions.gate.turn_history import History, history_of
from walld.sessions.gate.unreleased import reply_of, said_before, said_in
from walld.sessions.state.account import Unreleased
from walld.sessions.state.budget import last_budget
from walld.sessions.state.errors import BadArgument
from walld.sessions.state.events import Event
from walld.sessions.views.failure_layers import failure_of
from walld.sessions.views.messages import messages
from walld.sessions.views.transcript import tool_view

__all__ = ["evaluation"]


def evaluation(
    events: Sequence[Event], turn: str | None = None, unreleased: Sequence[Unreleased] = ()
) -> dict[str, Any]:
    """input: messages before the answer; output: the answer, None where there is none.

    turn: up to the last entry of that turn, with its tools alone; None: the leaf, and all of them.
    failure: of its last turn, layer, why and seq by the rules of `failure_layers.py`; None where it
    did not fail. unreleased: replies of its turns, which say what `messages` has of them. Raises
    BadArgument.
    """
    loose = [*said_in(unreleased, events), *said_before(unreleased, events)]
    account = history_of(events, loose)
    said = _said(events, account, turn, unreleased)
    last = said[-1] if said else {}
    answered = last.get("role") == "assistant" and "_wal_journal" not in last
    turns = list(account.turns.values()) if turn is None else [account.turns[turn]]
    of_messages, of_replies = (
        [tool for tool in listed if turn is None or tool.turn == turn]
        for listed in (account.of_messages, account.of_replies)
    )
    tools = [tool_view(tool) for one in turns for tool in one.tools]
    tools += [tool_view(tool) for tool in of_messages]
    tools += [tool_view(tool, reply_of(tool, unreleased)) for tool in of_replies]
    models = [one for one in model_calls(events, unreleased) if turn in (None, one["turn"])]
    return {
        "input": said[:-1] if answered else said,
        "output": last.get("content") if answered else None,
        "partial": bool(answered and (last.get("_partial") or last.get("_wal_cut"))),
        "target": None,
        "state": turns[-1].state.state if turns else None,
        "reason": turns[-1].state.reason if turns else None,
        "failure": failure_of(events, account, turn, unreleased),
        "tools": tools,
        "model_calls": models,
        "verifications": [
            event.payload
            for event in events
            if event.type == "verification" and (turn is None or event.turn == turn)
        ],
        "metadata": {
            "turns": [one.state.turn_id for one in turns],
            "outcomes": _counted([tool["outcome"] for tool in tools]),
            "duration_ms": sum(one.duration_ms or 0 for one in turns),
            "usage": total_usage(models),
            "budget": last_budget(events),
        },
    }


def _said(
    events: Sequence[Event], account: History, turn: str | None, unreleased: Sequence[Unreleased]
) -> list[dict[str, Any]]:
    if turn is None:
        return messages(events, unreleased=unreleased) or []
    if turn not in account.turns:
        raise BadArgument("turn", turn, "the id of a turn that was submitted", "unknown_turn")
    told = account.turns[turn]
    last = told.said[-1] if told.said else told.submitted
    return messages(events, branch=last.id, unreleased=unreleased) or []


def _counted(words: list[str]) -> dict[str, int]:
    return {word: words.count(word) for word in sorted(set(words))}
