"""What a program says of a call beyond its result is read for ever, as it was written.

If a test here fails, the code is wrong, never the file.
"""

from __future__ import annotations

import make_session_facts
from ledger_world import digest_of, verify

from walld.disk.real import RealDisk
from walld.ledger.store import LedgerStore
from walld.sessions.gate.resume import resume
from walld.sessions.state.account import calls_of_events
from walld.sessions.state.entries import events_of

FILES = make_session_facts.SESSION_FACTS
UID, SESSION = make_session_facts.UID, make_session_facts.SESSION


def test_the_files_are_those_that_were_written_then() -> None:
    """SHA-256 over names and bytes."""
    assert digest_of(FILES) == "a0398f7fbf3dad9bceb1f5f8444aa0c6d808f31b2a8b30ef42ec7758e4857c0d"


def test_they_are_read_as_they_were_meant() -> None:
    with RealDisk(str(FILES), read_only=True) as disk:
        reading = LedgerStore(disk).read(UID, SESSION)
    assert (reading.breaks, reading.torn_bytes) == ([], 0)
    events = events_of(reading.lines)
    told = [(one.type, one.turn, one.cause, one.payload) for one in events]
    assert told == make_session_facts.EVENTS
    (path,) = FILES.rglob("events.jsonl")
    assert len(verify(path.read_bytes())) == 10
    calls = {one.call_id: one for one in calls_of_events(events).calls}
    assert calls["c1"].outcome == "timeout"
    assert calls["c2"].superseded_by is calls["k1"]
    gate = {one["call_id"]: one["why"] for one in resume(events)["calls"]}
    assert gate == {"k1": "may_have_run"}, "the place of c2 is taken"
