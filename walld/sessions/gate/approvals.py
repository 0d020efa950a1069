"""Whether a person's word that a call may run still holds.

Owns: when a grant has expired, and what it was for. Refuses: who may grant (the application).

A grant is for what it names: its `scope` has fields of the intent, and a call of which one is
another was not allowed. `expires_at` is seconds since 1970; what is no such number has passed. A
scope that is no object is a note for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from walld.sessions.state.call_account import CallAccount, json_key
from walld.sessions.state.tools import tool_state_of

__all__ = ["is_stale", "was_granted_again"]


def is_stale(call: CallAccount, now_ms: int | None) -> bool:
    """Its newest grant has expired, or was for something else. now_ms: None: nothing expires."""
    grant = _grant(call)
    return _has_expired(grant, now_ms) or not _is_for(grant, call)


def was_granted_again(call: CallAccount) -> bool:
    """A person allowed it behind its start, or behind the words that may be one: they know that it
    may have run.
    """
    settled = call.settled
    if settled is None or settled.payload.get("word") != "granted":
        return False
    return settled.seq > call.seqs.get("started", 0)


def _grant(call: CallAccount) -> Mapping[str, Any]:
    """The payload of the newest word that allowed it."""
    said = [one for one in call.words if tool_state_of(one.type, one.payload) == "approved"]
    if call.settled is not None and call.settled.payload.get("word") == "granted":
        said.append(call.settled)
    return max(said, key=lambda one: one.seq).payload if said else {}


def _has_expired(grant: Mapping[str, Any], now_ms: int | None) -> bool:
    until = grant.get("expires_at")
    if until is None or now_ms is None:
        return False
    is_number = isinstance(until, (int, float)) and not isinstance(until, bool)
    return not is_number or now_ms >= until * 1000


def _is_for(grant: Mapping[str, Any], call: CallAccount) -> bool:
    scope = grant.get("scope")
    if not isinstance(scope, dict):
        return True
    intent = {} if call.intent is None else call.intent.payload
    return all(
        name in intent and json_key(intent[name]) == json_key(value)
        for name, value in scope.items()
    )
