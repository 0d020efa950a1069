"""Replies that are not released, as the gate takes them.

Owns: what the gate has to know of such a reply, and its messages as words of the account. Refuses:
reading replies (the daemon), what is made of calls (`state/account.py`).

A reply of a turn stands where that was submitted: between a reply and the ledger there is no order,
and none is needed. So what is lost behind the submission may have been the intent of its call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from walld.sessions.state.events import Event

__all__ = ["UnreleasedReply", "said_before", "said_in"]


class UnreleasedReply(NamedTuple):
    """status: live | complete | cancelled | errored | crashed. messages: as their entries would be.
    earlier: calls of attempts before the last, of steps that had ended, as items of messages.
    has_ended: its program or its provider said so; where it did not, it was cut, however its text
    ends.

    unread: why some of it may not be known; None where all of it is.
    """

    stream_id: str
    turn: str | None
    status: str
    owner_alive: bool
    unread: str | None
    messages: list[dict[str, Any]]
    earlier: list[dict[str, Any]] = []  # noqa: RUF012 - nobody adds to it
    has_ended: bool = True

    def told(self) -> dict[str, Any]:
        """As the gate lists it."""
        return {
            "stream_id": self.stream_id,
            "turn": self.turn,
            "status": self.status,
            "owner_alive": self.owner_alive,
        }


def said_in(replies: Sequence[UnreleasedReply], events: Sequence[Event]) -> list[Event]:
    """Their messages, as if they were entries; ids are `stream:first seq`, as those would be."""
    return _as_entries(events, [(one, message) for one in replies for message in _told(one)])


def _told(reply: UnreleasedReply) -> list[dict[str, Any]]:
    if reply.has_ended or not reply.messages:
        return reply.messages
    return [*reply.messages[:-1], reply.messages[-1] | {"_partial": True}]


def said_before(replies: Sequence[UnreleasedReply], events: Sequence[Event]) -> list[Event]:
    """The same of their earlier calls, for behind those: where several fit an intent it is of the
    last attempt.
    """
    told = [(one, call) for one in replies for call in one.earlier]
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


def _as_entries(
    events: Sequence[Event], told: Sequence[tuple[UnreleasedReply, dict[str, Any]]]
) -> list[Event]:
    if not told:
        return []
    submitted = {one.turn: one.seq for one in events if one.type == "turn_submitted"}
    last_seq = events[-1].seq if events else 0
    return [
        Event(
            seq=submitted.get(reply.turn, last_seq),
            id=f"{reply.stream_id}:{message.get('_wal_seq')}",
            type="message",
            turn=reply.turn,
            payload=message,
        )
        for reply, message in told
    ]
