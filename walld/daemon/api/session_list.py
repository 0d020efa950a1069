"""Lists the sessions of a user.

Owns: what is told of each, out of its file and of what waits for that. Refuses: reading one
(`open_sessions.py`), the rows of the tree (`ledger/listing.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from walld_client.wire import messages as wire

from walld.daemon.storage.disk_threads import in_slices
from walld.sessions.state.entries import line_event

if TYPE_CHECKING:
    from walld.daemon.session_store.handles import Files
    from walld.daemon.session_store.open_sessions import Sessions
    from walld.engine.session_log import SessionLog, SessionLogs
    from walld.sessions.state.events import Event

__all__ = ["session_facts"]


class _Waiting(NamedTuple):
    """Lines of a session that waited for its file at one moment."""

    ledger: SessionLog
    last: Event
    bytes: int


async def session_facts(
    sessions: Sessions, ledgers: SessionLogs, files: Files, uid: int, prefix: str
) -> list[wire.SessionFacts]:
    """Sessions of a user whose ids begin so, by id.

    What waited before the files were read counts as what waits behind that: meanwhile it may have
    gone to a file that was looked for, and not there yet.
    """
    waited = _waiting(ledgers, uid, prefix)
    rows = await in_slices(files.thread, files.ledgers.tree())
    filed: dict[str, wire.SessionFacts] = {}
    for row in rows:
        session_id = row.shown_id
        is_going = (row.uid, session_id) in sessions.going
        if row.uid == uid and session_id.startswith(prefix) and not is_going:
            filed[session_id] = wire.SessionFacts(
                session_id, uid, row.last_seq, row.last_at_ms, row.bytes, row.shown_trouble
            )
    found = dict(filed)
    for ledger, last, size in [*waited, *_waiting(ledgers, uid, prefix)]:
        known = filed.get(ledger.session_id)
        if not ledgers.is_open(ledger) or (known is not None and known.last_seq >= last.seq):
            continue
        size += 0 if known is None else known.bytes
        trouble = "" if known is None else known.trouble
        found[ledger.session_id] = wire.SessionFacts(
            ledger.session_id, uid, last.seq, last.at_ms, size, trouble
        )
    return [found[session_id] for session_id in sorted(found)]


def _waiting(ledgers: SessionLogs, uid: int, prefix: str) -> list[_Waiting]:
    return [
        _Waiting(ledger, line_event(ledger.pending[-1].line), ledger.pending_bytes)
        for (owner, session_id), ledger in ledgers.open.items()
        if owner == uid and ledger.pending and session_id.startswith(prefix)
    ]
