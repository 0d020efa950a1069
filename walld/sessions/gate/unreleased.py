"""Replies that are not released, as the gate takes them.

Owns: their messages and earlier calls as words of the account. Refuses: reading replies (the
daemon), what is made of calls (`state/account.py`).

A reply of a turn stands where that was submitted: between a reply and the ledger there is no order,
and none is needed. So what is lost behind the submission may have been the intent of its call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from walld.sessions.state.account import Unreleased
from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.events import Event

__all__ = ["reply_of", "said_at_ms", "said_before", "said_in"]


def said_in(replies: Sequence[Unreleased], events: Sequence[Event]) -> list[Event]:
    """Their messages, as if they were entries; ids are `stream:first seq`, as those would be."""
    return _as_entries(events, [(one, message) for one in replies for message in _told(one)])


def _told(reply: Unreleased) -> list[dict[str, Any]]:
    if reply.has_ended or not reply.messages:
        return reply.messages
    return [*reply.messages[:-1], reply.messages[-1] | {"_partial": True}]


def said_before(
    replies: Sequence[Unreleased], events: Sequence[Event], *, in_ended_steps: bool = True
) -> list[Event]:
    """The same of their earlier calls that may have run, for behind those: where several fit an
    intent it is of the last attempt. Not in_ended_steps: of those that nobody can have run.
    """
    told = [
        (one, call)
        for one in replies
        for call, has_ended in one.earlier
        if has_ended is in_ended_steps
    ]
    named = [
        (
            one,
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [call],
                "_wal_stream": one.stream_id,
            },
        )
        for one, call in told
    ]
    return _as_entries(events, named)


def reply_of(call: CallAccount, replies: Sequence[Unreleased]) -> Unreleased | None:
    """The one that says a call which nothing else has (`of_replies`); None of a reply that went."""
    if call.is_of_gone_reply:
        return None
    return next((one for one in replies if one.stream_id == call.stream), None)


def said_at_ms(call: CallAccount, replies: Sequence[Unreleased]) -> int | None:
    """When a reply that is not released said it, where it is one that says no more than that."""
    if call.intent is not None or call.said_at is None:
        return None
    stream, seq = call.said_at.get("stream"), call.said_at.get("seq")
    told = next((one for one in replies if one.stream_id == stream), None)
    return None if told is None else told.facts.get("said_at_ms", {}).get(seq)


def _as_entries(
    events: Sequence[Event], told: Sequence[tuple[Unreleased, dict[str, Any]]]
) -> list[Event]:
    if not told:
        return []
    begun = {one.turn: one for one in events if one.type == "turn_submitted"}
    last = (events[-1].seq, events[-1].at_ms) if events else (0, 0)
    places = {turn: (one.seq, one.at_ms) for turn, one in begun.items()}
    return [
        Event(
            seq=places.get(reply.turn, last)[0],
            at_ms=places.get(reply.turn, last)[1],
            id=f"{reply.stream_id}:{message.get('_wal_seq')}",
            type="message",
            turn=reply.turn,
            payload=message,
        )
        for reply, message in told
    ]
