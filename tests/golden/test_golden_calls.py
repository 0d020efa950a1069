"""What messages say of calls since they have an account is read for ever, as it was written.

If a test here fails, the code is wrong, never the file.
"""

from __future__ import annotations

import make_session_calls
from ledger_world import digest_of, verify

from walld.disk.real import RealDisk
from walld.ledger.store import LedgerStore
from walld.sessions.gate.resume import resume
from walld.sessions.state.entries import events_of
from walld.sessions.views.messages import messages

FILES = make_session_calls.SESSION_CALLS
UID, SESSION = make_session_calls.UID, make_session_calls.SESSION


def test_the_files_are_those_that_were_written_then() -> None:
    """SHA-256 over names and bytes."""
    assert digest_of(FILES) == "437819364e16440f09435bb7f9f65ec0133323710786165cbb693c5b91ccd945"


def test_the_session_reads_as_it_was_written() -> None:
    with RealDisk(str(FILES), read_only=True) as disk:
        reading = LedgerStore(disk).read(UID, SESSION)
    assert (reading.breaks, reading.torn_bytes) == ([], 0)
    events = events_of(reading.lines)
    assert [(one.type, one.payload) for one in events] == make_session_calls.EVENTS
    (path,) = FILES.rglob("events.jsonl")
    assert len(verify(path.read_bytes())) == 3


def test_its_call_stands_where_the_model_said_it() -> None:
    with RealDisk(str(FILES), read_only=True) as disk:
        events = events_of(LedgerStore(disk).read(UID, SESSION).lines)
    sent = messages(events, "openai") or []
    assert [one["role"] for one in sent] == ["user", "assistant", "tool", "assistant"]
    assert [sent[1]["content"], sent[3]["content"]] == ["I look.", "There are 4."]
    assert sent[2]["content"] == "4 files"
    assert resume(events)["status"] == "ok"
