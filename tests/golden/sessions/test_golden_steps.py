"""What a step of a reply was told is read for ever, as it was written.

If a test here fails, the code is wrong, never the file.
"""

from __future__ import annotations

import make_session_steps
from ledger_world import digest_of, verify

from walld.disk.real import RealDisk
from walld.ledger.store import LedgerStore
from walld.sessions.state.entries import events_of
from walld.sessions.views.messages import messages

FILES = make_session_steps.SESSION_STEPS
UID, SESSION = make_session_steps.UID, make_session_steps.SESSION


def test_the_files_are_those_that_were_written_then() -> None:
    """SHA-256 over names and bytes."""
    assert (
        digest_of(FILES, verify)
        == "f0c34c477373103b1a83ac039fc47702664797bd74b2d88e88da6c71b2de2518"
    )


def test_it_says_what_it_said_then() -> None:
    with RealDisk(str(FILES), read_only=True) as disk:
        reading = LedgerStore(disk).read(UID, SESSION)
    assert (reading.breaks, reading.torn_bytes) == ([], 0)
    events = events_of(reading.lines)
    assert [(one.type, one.payload) for one in events] == make_session_steps.EVENTS
    told = [one.get("_wal_info") for one in messages(events) or ()]
    assert told == [None, None, {"model": "m-2", "tries": [1, None, 2.5]}]
    sent = messages(events, "openai") or []
    assert [one["content"] for one in sent] == ["look", "I look.\n\nThere are 4."]
