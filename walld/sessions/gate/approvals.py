"""Whether a person's word that a call may run still holds.

Owns: when a grant has expired, and what it was for. Refuses: who may grant (the application).

A grant is for what it names: its `scope` has fields of the intent, or of what said the call where
it has none, and a call of which one is another was not allowed. `expires_at` is seconds since 1970;
what is no such number has passed. A scope that is no object is a note for people. It is for that
call wherever it is run next: the equal call of a retry takes it over, once, and the first start
behind it uses it up. A policy's yes renews no grant.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, TypeGuard

from walld.sessions.state.account import UNDECLARED
from walld.sessions.state.call_account import CallAccount, arguments_hash, json_key
from walld.sessions.state.events import FINER_EFFECTS, Event

__all__ = ["is_stale", "next_expiry", "takes_over", "was_granted_again"]


def is_stale(call: CallAccount, now_ms: int | None) -> bool:
    """Its newest grant has expired, or was for something else. now_ms: None: nothing expires."""
    grant = {} if call.grant is None else call.grant.payload
    return _has_expired(grant, now_ms) or not _is_for(grant, call)


def was_granted_again(call: CallAccount) -> bool:
    """A person allowed it behind its start, or behind the words that may be one: they know that it
    may have run.
    """
    settled = call.settled
    if settled is None or settled.payload.get("word") != "granted":
        return False
    return settled.seq > max(call.seqs.get("started", 0), call.used_seq)


def takes_over(call: CallAccount, doubtful: Container[str], now_ms: int | None) -> bool:
    """It is intended, and what a person allowed of an equal call before it holds of this one.

    doubtful: ids of entries of calls that may have started: those may have used up their grants.
    """
    allowed = call.grant_of
    if allowed is None or allowed.grant is None or call.stage != "intended":
        return False
    grant = allowed.grant.payload
    is_used = allowed.begun.id in doubtful
    return not is_used and not _has_expired(grant, now_ms) and _is_for(grant, call)


def next_expiry(events: Sequence[Event], now_ms: int) -> float | None:
    """When the next of all grants expires, in ms since 1970; None where none does any more. Until
    then the clock changes nothing of what the gate says.
    """
    given = [
        event.payload.get("expires_at")
        for event in events
        if event.type in ("tool_approval", "tool_settled")
    ]
    return min(
        (one * 1000 for one in given if _is_number(one) and one * 1000 > now_ms), default=None
    )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _has_expired(grant: Mapping[str, Any], now_ms: int | None) -> bool:
    until = grant.get("expires_at")
    if until is None or now_ms is None:
        return False
    return not _is_number(until) or now_ms >= until * 1000


def _is_for(grant: Mapping[str, Any], call: CallAccount) -> bool:
    scope = grant.get("scope")
    if not isinstance(scope, dict):
        return True
    told = _said_of(call) if call.intent is None else call.intent.payload
    kept = call.arguments_hash
    return all(
        arguments_hash(value) == kept
        if name == "arguments" and call.arguments is None and kept is not None
        else name in told and json_key(told[name]) == json_key(value)
        for name, value in scope.items()
    )


def _said_of(call: CallAccount) -> dict[str, object]:
    """What an intent would have, of a call that was only said."""
    side_effect = call.effect if call.effect in FINER_EFFECTS else call.state.side_effect
    said = {
        "call_id": call.call_id,
        "tool": call.name,
        "arguments": call.arguments,
        "side_effect": side_effect,
        "resume_policy": call.state.resume_policy,
        "idempotency": call.idempotency,
        "key": call.key,
    }
    unknown = (None, UNDECLARED)
    return {name: value for name, value in said.items() if value not in unknown}
