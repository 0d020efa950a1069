"""What an application says of its session is read for ever, as it was written.

If a test here fails, the code is wrong, never the file.
"""

from __future__ import annotations

import make_session_said
from ledger_world import digest_of, verify

from walld.disk.real import RealDisk
from walld.ledger.store import LedgerStore
from walld.sessions.state.entries import events_of
from walld.sessions.views.evaluation import evaluation
from walld.sessions.views.messages import messages
from walld.sessions.views.state_view import state_view
from walld.sessions.views.transcript import transcript

FILES = make_session_said.SESSION_SAID
UID, SESSION = make_session_said.UID, make_session_said.SESSION


def test_the_files_are_those_that_were_written_then() -> None:
    """SHA-256 over names and bytes."""
    assert (
        digest_of(FILES, verify)
        == "3d2c25102f276cdd63815304f6f050d8dae98186c0b2474128b272dbfc07d067"
    )


def test_it_says_what_it_said_then() -> None:
    with RealDisk(str(FILES), read_only=True) as disk:
        reading = LedgerStore(disk).read(UID, SESSION)
    assert (reading.breaks, reading.torn_bytes) == ([], 0)
    events = events_of(reading.lines)
    assert [(one.type, one.payload) for one in events] == make_session_said.EVENTS
    said = [one["content"] for one in messages(events) or () if "_wal_journal" not in one]
    assert said == ["look", "it rains"]
    state = state_view(events)
    assert state["session"] == {"cwd": "/work", "version": "3.1"}
    assert [one["content"] for one in state["queue"]] == ["then deploy"]
    assert (state["lifecycle"]["state"], state["lifecycle"]["seq"]) == ("paused", 13)
    assert [(one["name"], one["passed"]) for one in state["verifications"]] == [("tests", True)]
    (tool,) = [tool for part in transcript(events) for tool in part["tools"]]
    assert tool["progress"]["done"] == 1
    assert evaluation(events)["failure"] is None, "it is at work"
