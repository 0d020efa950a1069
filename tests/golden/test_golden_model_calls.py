"""What is left of a reply that went is read for ever, as it was written.

If a test here fails, the code is wrong, never the file.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import make_session_model_calls
import pytest
from ledger_world import digest_of, verify

from walld.disk.real import RealDisk
from walld.ledger.store import LedgerStore
from walld.sessions.gate.model_calls import model_calls, total_usage
from walld.sessions.gate.resume import resume
from walld.sessions.state.call_account import arguments_hash
from walld.sessions.state.entries import events_of
from walld.sessions.views.explanation import explain
from walld.sessions.views.messages import messages
from walld.sessions.views.tree import tree

FILES = make_session_model_calls.SESSION_MODEL_CALLS
EXPIRED = make_session_model_calls.SESSION_EXPIRED
FACTS = make_session_model_calls.SESSION_MODEL_FACTS
UID, SESSION = make_session_model_calls.UID, make_session_model_calls.SESSION


@pytest.mark.parametrize(
    ("files", "digest"),
    [
        (FILES, "51a9af03c2a5117b122a71c75c1c1b0bb0dd9b1fb342221c38df8fc8cf5fd8cf"),
        (EXPIRED, "e59f68a274d26167b7e6f93025e103dfe17247a13027ca71a2c9981700e50ab8"),
        (FACTS, "d2ea4d03de04e194ac3c4a786f232cde68f5383ffbe370cc9c95ef54f31c10af"),
    ],
)
def test_the_files_are_those_that_were_written_then(files: Path, digest: str) -> None:
    """SHA-256 over names and bytes."""
    assert digest_of(files) == digest


def test_that_a_reply_went_for_its_age_is_told() -> None:
    with RealDisk(str(EXPIRED), read_only=True) as disk:
        events = events_of(LedgerStore(disk).read(UID, SESSION).lines)
    told = [(one.id, one.type, one.payload) for one in events]
    assert told == make_session_model_calls.EXPIRED
    (note,) = explain(events)["notes"]
    assert note == {
        "kind": "expired",
        "at_ms": events[1].at_ms,
        "turn": "t1",
        **make_session_model_calls.EXPIRED[1][2],
    }
    assert [one["bookkeeping"] for one in tree(events)["nodes"][1:]] == [True]


def test_what_is_known_of_the_model_is_read_as_it_was_meant() -> None:
    with RealDisk(str(FACTS), read_only=True) as disk:
        reading = LedgerStore(disk).read(UID, make_session_model_calls.FACTS_SESSION)
    assert (reading.breaks, reading.torn_bytes) == ([], 0)
    events = events_of(reading.lines)
    assert [(one.id, one.type, one.payload) for one in events] == make_session_model_calls.FACTS
    first, failed, cut = records = model_calls(events)
    told = {"turn": "t1", "model": "m-1", "provider": "p", "request_id": "req_7"}
    assert first.items() >= told.items()
    assert first["ended_at_ms"] - first["at_ms"] == 899
    assert (failed["status"], failed["error_class"]) == ("error", "rate_limit")
    assert (cut["status"], cut["turn"], cut["model"]) == ("partial", None, None)
    assert total_usage(records) == {"input_tokens": 12, "output_tokens": 3, "cost": 0.25}
    (call,) = resume(events)["calls"]
    assert (call["call_id"], call["outcome"]) == ("c1", "unknown")


def test_the_gate_and_messages_read_them_as_they_were_meant() -> None:
    with RealDisk(str(FILES), read_only=True) as disk:
        reading = LedgerStore(disk).read(UID, SESSION)
    assert (reading.breaks, reading.torn_bytes) == ([], 0)
    events = events_of(reading.lines)
    told = [(one.id, one.type, one.payload) for one in events]
    assert told == make_session_model_calls.EVENTS
    (path,) = FILES.rglob("events.jsonl")
    assert len(verify(path.read_bytes())) == 3
    calls = resume(events)["calls"]
    assert [(one["call_id"], one["outcome"], one["may"], one["why"]) for one in calls] == [
        ("c1", "unknown", "never", "may_have_run"),
        ("c3", "failed", "read_result", "settled"),
    ]
    said = messages(events)
    assert said is not None
    outcomes = [one["outcome"] for one in said[1]["tool_calls"]]
    assert outcomes == ["unknown", "pending", "failed"]


def test_the_hash_is_of_json_with_its_keys_in_order() -> None:
    hashed = make_session_model_calls.HASHED
    assert arguments_hash('{"to": "prod", "at": 1}') == hashed
    assert sha256(b'{"at":1,"to":"prod"}').hexdigest() == hashed
