"""Who allowed what, and until when, is read for ever, as it was written.

If a test here fails, the code is wrong, never the file.
"""

from __future__ import annotations

from pathlib import Path

import make_session_grants
import pytest
from ledger_world import digest_of, verify

from walld.disk.real import RealDisk
from walld.ledger.store import LedgerStore
from walld.sessions.gate.resume import resume
from walld.sessions.state.entries import events_of

FILES = make_session_grants.SESSION_GRANTS
NAMES = make_session_grants.SESSION_CALL_NAMES
UID, SESSION = make_session_grants.UID, make_session_grants.SESSION
EXPIRES_MS = 2_000_000_000_000


@pytest.mark.parametrize(
    ("files", "digest"),
    [
        (FILES, "ff23afc6e00b0f27d88479207ecea0b98cb55828720852f4afa77f2868266a46"),
        (NAMES, "acb5390cb37e05c52c37ed458face26b3a591b8d27acb4ccd74513993df25ed6"),
    ],
    ids=lambda one: one.name if isinstance(one, Path) else "",
)
def test_the_files_are_those_that_were_written_then(files: Path, digest: str) -> None:
    """SHA-256 over names and bytes."""
    assert digest_of(files) == digest


def test_the_gate_reads_them_as_they_were_meant() -> None:
    with RealDisk(str(FILES), read_only=True) as disk:
        reading = LedgerStore(disk).read(UID, SESSION)
    assert (reading.breaks, reading.torn_bytes) == ([], 0)
    events = events_of(reading.lines)
    assert [(one.type, one.payload) for one in events] == make_session_grants.EVENTS
    (path,) = FILES.rglob("events.jsonl")
    assert len(verify(path.read_bytes())) == 10
    for now_ms, first in ((EXPIRES_MS - 1, "never_started"), (EXPIRES_MS, "approval_stale")):
        calls = resume(events, now_ms=now_ms)["calls"]
        assert [(one["call_id"], one["why"]) for one in calls] == [
            ("c1", first),
            ("c2", "approval_stale"),
            ("c3", "safe"),
            ("c4", "settled"),
        ]
        assert calls[2]["side_effect"] == "network"
        assert (calls[3]["settled"], calls[3]["outcome"]) == ("ran", "done")


def test_a_settlement_is_of_the_call_that_it_names() -> None:
    """Five calls have that id; of the first of two of one message nobody said what became of it."""
    with RealDisk(str(NAMES), read_only=True) as disk:
        reading = LedgerStore(disk).read(UID, SESSION)
    assert (reading.breaks, reading.torn_bytes) == ([], 0)
    events = events_of(reading.lines)
    assert [(one.type, one.payload) for one in events] == make_session_grants.NAMED
    calls = sorted(resume(events)["calls"], key=lambda one: int(one["n"]))
    assert [(one["tool"], one["outcome"], one["settled"]) for one in calls] == [
        ("mail", "done", None),
        ("mail", "done", "ran"),
        ("mail", "unknown", None),
        ("put", "done", "ran"),
        ("put", "done", "ran"),
    ]
