"""That a reply which went was an answer is read for ever, as it was written.

If a test here fails, the code is wrong, never the file.
"""

from __future__ import annotations

import make_session_answers
from ledger_world import digest_of, verify
from msgspec.structs import replace

from walld.disk.real import RealDisk
from walld.ledger.store import LedgerStore
from walld.sessions.gate.pending import pending
from walld.sessions.gate.resume import resume
from walld.sessions.state.entries import events_of
from walld.sessions.views.audit import audit

FILES = make_session_answers.SESSION_ANSWERS
UID, SESSION = make_session_answers.UID, make_session_answers.SESSION


def test_the_files_are_those_that_were_written_then() -> None:
    """SHA-256 over names and bytes."""
    assert (
        digest_of(FILES, verify)
        == "ad44d2bcfc81fad8208194bdd62a899f1e3f892d888fba025dacfe4425782780"
    )


def test_it_says_what_it_said_then() -> None:
    with RealDisk(str(FILES), read_only=True) as disk:
        reading = LedgerStore(disk).read(UID, SESSION)
    assert (reading.breaks, reading.torn_bytes) == ([], 0)
    events = events_of(reading.lines)
    told = [(one.type, one.turn, one.payload) for one in events]
    assert told == make_session_answers.EVENTS
    assert [one["answered"] for one in audit(events)["turns"]] == [True, True, False]
    (call,) = resume(events)["calls"]
    assert call["since_ms"] == make_session_answers.AT_MS + 5
    answered = events[:8]
    assert (resume(answered)["boundary"], pending(answered)) == ("answered", [])


def test_of_two_replies_of_a_turn_the_last_one_answers() -> None:
    with RealDisk(str(FILES), read_only=True) as disk:
        events = events_of(LedgerStore(disk).read(UID, SESSION).lines)
    later = replace(events[5], seq=7, id="e", payload={"stream_id": "s3"})
    begun = [*events[:6], later, *(replace(one, seq=one.seq + 1) for one in events[6:])]
    assert [one["answered"] for one in audit(begun)["turns"]] == [True, False, False]
