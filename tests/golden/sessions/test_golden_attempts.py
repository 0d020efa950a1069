"""That an answer is an attempt that failed is read for ever, as it was written.

If a test here fails, the code is wrong, never the file.
"""

from __future__ import annotations

from hashlib import sha256

import make_session_attempts
from ledger_world import verify

from walld.disk.real import RealDisk
from walld.ledger.store import LedgerStore
from walld.sessions.gate.resume import resume
from walld.sessions.state.entries import events_of
from walld.sessions.views.messages import messages

FILES = make_session_attempts.SESSION_ATTEMPTS


def test_the_file_is_the_one_that_was_written_then() -> None:
    """SHA-256 over its bytes."""
    (path,) = [path for path in FILES.rglob("*") if path.is_file()]
    verify(path.read_bytes())
    whole = sha256(path.read_bytes()).hexdigest()
    assert whole == "8bcaf9df425556e58def18e89371472751e7a7f76ab7a1196173b08e3a8f22c3"


def test_an_attempt_is_sent_to_nobody_and_its_call_did_not_run() -> None:
    with RealDisk(str(FILES), read_only=True) as disk:
        reading = LedgerStore(disk).read(make_session_attempts.UID, make_session_attempts.SESSION)
    events = events_of(reading.lines)
    assert [one.payload for one in events] == make_session_attempts.MESSAGES
    sent = messages(events, "openai") or []
    assert [one["content"] for one in sent] == ["clean up", "There is nothing to clean up."]
    assert resume(events)["calls"] == []
    told = messages(events) or []
    assert [one["outcome"] for one in told[1]["tool_calls"]] == ["not_run"]
