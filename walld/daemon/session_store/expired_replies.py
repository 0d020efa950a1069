"""Keeps in a session that a reply of it went for its age.

Owns: the `reply_expired` entry, and that there is one of a reply however often its removal begins.
Refuses: when a reply goes (`partial_writer.py`), its calls (`released_calls.py`).

Invariant: of what it said only how much it was is kept: its bytes leave the disk (P5).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from walld_client.encoding import wtf8
from walld_client.wire import messages as wire

from walld.daemon.session_store.reply_messages import ids_of, started_at_ms
from walld.sessions.state.entries import line_event

if TYPE_CHECKING:
    from walld_client.recovered.partial import PartialReply

    from walld.daemon.session_store.open_sessions import Sessions
    from walld.engine.session_log import SessionLog

__all__ = ["expired_entries"]

_TYPE: Final = "reply_expired"


async def expired_entries(
    sessions: Sessions, ledger: SessionLog, reply: PartialReply
) -> list[wire.NewEntry]:
    """The one that says it, with an id that is free; none where it is there."""
    assert ledger.state is not None
    told, names = _told(reply), ids_of(reply, f"{reply.stream_id}:expired")
    while (seq := ledger.state.ids.get(name := next(names))) is not None:
        held = await sessions.lines(ledger.uid, ledger.session_id, seq - 1, 1)
        for line in [] if held is None else held.lines:
            event = line_event(line)
            if (event.type, event.turn, event.payload) == (_TYPE, reply.turn_id, told):
                return []
    payload = json.dumps(told, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    return [wire.NewEntry(_TYPE, payload, name, turn=reply.turn_id, leaf=False)]


def _told(reply: PartialReply) -> dict[str, Any]:
    """calls: of the last attempt, as its characters are."""
    told = {
        "stream": reply.stream_id,
        "started_at_ms": started_at_ms(reply),
        "last_event_at_ms": round(reply.last_event_at * 1000),
        "last_seq": reply.last_seq,
        "status": reply.status,
        "partial_reason": reply.partial_reason,
        "characters": len(reply.text),
        "calls": sum(
            one.kind == "tool" and one.attempt == reply.attempts - 1 for one in reply.segments
        ),
    }
    return {name: wtf8.jsonable(value) for name, value in told.items()}
