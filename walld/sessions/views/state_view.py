"""Where a session stands, in one view.

Owns: settings and the model of the path, counts, failures, denials. Refuses: the daemon's own
state of it (`session_state.py`), turns in detail (`transcript.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from walld.sessions.gate.pending import open_tools
from walld.sessions.gate.turn_history import history_of
from walld.sessions.state.budget import last_budget
from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.events import Event, check_payload
from walld.sessions.state.labels import labels_of
from walld.sessions.state.path import path_events
from walld.sessions.views.messages import messages
from walld.sessions.views.session_facts import (
    last_results,
    lifecycle,
    modified_files,
    queue,
    session_info,
    verifications,
)
from walld.sessions.views.turn_view import turn_view

__all__ = ["state_view"]


def state_view(events: Sequence[Event]) -> dict[str, Any]:
    """Leaf, settings and model are of the path; the rest is of all events, and what the application
    says of its session as `session_facts.py` reads it.
    """
    account = history_of(events)
    on_path = path_events(events)
    settings, model = _settings(on_path)
    failures: list[dict[str, Any]] = []
    denials: list[dict[str, Any]] = []
    for tool in account.tools:
        named = {"turn": tool.turn, "call_id": tool.call_id, "tool": tool.state.tool}
        if tool.outcome == "failed":
            failures.append(named)
        elif tool.is_denied and tool.outcome in ("denied", "unknown"):
            denials.append(named | _denied(tool))
    files, files_left_out = modified_files(events)
    forks = [event for event in events if event.type == "forked"]
    return {
        "last_seq": events[-1].seq if events else 0,
        "last_at_ms": events[-1].at_ms if events else 0,
        "leaf": account.state.leaf,
        "model": model,
        "settings": settings,
        "labels": labels_of(events),
        "turns": [turn_view(turn.state) for turn in account.turns.values()],
        "counts": {
            "events": len(events),
            "on_path": len(on_path),
            "messages": sum("_wal_journal" not in one for one in messages(events) or ()),
            "turns": len(account.turns),
            "tools": len(account.tools),
            "open_tools": len(open_tools(account)),
            "malformed": len(account.malformed),
            "types": dict(sorted(Counter(event.type for event in events).items())),
        },
        "failures": failures,
        "denials": denials,
        "budget": last_budget(events),
        "session": session_info(events),
        "lifecycle": lifecycle(events),
        "queue": queue(events),
        "verifications": verifications(events),
        "modified_files": files,
        "modified_files_left_out": files_left_out,
        "last_results": last_results(account),
        "forked_from": forks[0].payload if forks else None,
    }


def _denied(tool: CallAccount) -> dict[str, Any]:
    """started: it may have run before that; else nobody ran it."""
    by, reason = tool.denied_by()
    told = {"arguments": tool.arguments, "by": by, "reason": reason, "seq": tool.seqs["denied"]}
    return told | {"started": tool.is_denied_late}


def _settings(on_path: Sequence[Event]) -> tuple[dict[str, Any], str | None]:
    """The last value of each setting, and the last model that was chosen or, in a file that was
    imported, of which an answer says that it is its own; a null setting stays, as null.
    """
    settings: dict[str, Any] = {}
    model: str | None = None
    for event in on_path:
        if event.type == "message":
            model = _model_of(event.payload) or model
        elif event.type in ("setting", "model_change"):
            if check_payload(event.type, event.payload) is not None:
                continue
            if event.type == "setting":
                settings[event.payload["key"]] = event.payload["value"]
            else:
                model = event.payload["model"]
    return settings, model


def _model_of(payload: dict[str, Any]) -> str | None:
    """Of an answer, where pi, Claude Code or gptme keep it. What Claude Code says itself has a word
    in angle brackets there.
    """
    foreign = payload.get("_foreign")
    if payload.get("role") != "assistant" or not isinstance(foreign, dict):
        return None
    held = (foreign, foreign.get("message"), foreign.get("metadata"))
    model = next((one["model"] for one in held if isinstance(one, dict) and "model" in one), None)
    return model if isinstance(model, str) and model and not model.startswith("<") else None
