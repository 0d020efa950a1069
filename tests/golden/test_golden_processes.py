"""The process that a call runs in is read for ever, as it was written.

If a test here fails, the code is wrong, never the file.
"""

from __future__ import annotations

import make_session_processes
from ledger_world import digest_of, verify

from walld.disk.real import RealDisk
from walld.ledger.store import LedgerStore
from walld.sessions.gate.processes import NamedProcess, processes_of
from walld.sessions.gate.resume import resume
from walld.sessions.state.entries import events_of

FILES = make_session_processes.SESSION_PROCESSES
UID, SESSION = make_session_processes.UID, make_session_processes.SESSION
NAMED = NamedProcess(4711, 1_234_567, make_session_processes.BOOT, make_session_processes.NAMESPACE)


def test_the_files_are_those_that_were_written_then() -> None:
    """SHA-256 over names and bytes."""
    assert digest_of(FILES) == "563ee0a25a3535d411570a4edf314b1ed085480cad69964088017bad66d0bbb7"


def test_the_gate_reads_them_as_they_were_meant() -> None:
    with RealDisk(str(FILES), read_only=True) as disk:
        reading = LedgerStore(disk).read(UID, SESSION)
    assert (reading.breaks, reading.torn_bytes) == ([], 0)
    events = events_of(reading.lines)
    assert [(one.type, one.payload) for one in events] == make_session_processes.EVENTS
    (path,) = FILES.rglob("events.jsonl")
    assert len(verify(path.read_bytes())) == 7
    assert processes_of(events) == [NAMED, NamedProcess(4712, 0, "", 0)]
    for seen, why in (
        ({NAMED: "running"}, "still_runs"),
        ({NAMED: "gone"}, "look_first"),
        ({}, "cannot_see"),
    ):
        calls = resume(events, processes=seen)["calls"]
        assert [one["why"] for one in calls] == [why, "cannot_see", "look_first"]
