"""Which session is the work of which call is read for ever, as it was written.

If a test here fails, the code is wrong, never the file.
"""

from __future__ import annotations

import make_session_children
from ledger_world import digest_of, verify

from walld.disk.real import RealDisk
from walld.ledger.store import LedgerStore
from walld.sessions.gate.children import open_children, with_children
from walld.sessions.gate.resume import resume
from walld.sessions.state.entries import events_of
from walld.sessions.state.events import Child, Event
from walld.sessions.views.child_view import child_view

FILES = make_session_children.SESSION_CHILDREN
UID = make_session_children.UID
PARENT, CHILD = make_session_children.PARENT, make_session_children.CHILD


def read(session: str) -> list[Event]:
    with RealDisk(str(FILES), read_only=True) as disk:
        reading = LedgerStore(disk).read(UID, session)
    assert (reading.breaks, reading.torn_bytes) == ([], 0)
    return events_of(reading.lines)


def test_the_files_are_those_that_were_written_then() -> None:
    """SHA-256 over names and bytes."""
    assert (
        digest_of(FILES, verify)
        == "fd5b701235f78e9edc7aa6c59eb923257ec5ae620ce591825c1bd954561aefaa"
    )


def test_the_call_has_what_the_child_said() -> None:
    for session, made in (
        (PARENT, make_session_children.OF_PARENT),
        (CHILD, make_session_children.OF_CHILD),
    ):
        told = [(one.id, one.type, one.turn, one.payload) for one in read(session)]
        assert told == made
    (entry,) = open_children(events := read(PARENT))
    assert entry.id == "e7", "the first one has its result"
    view = child_view(read(CHILD), PARENT, entry.payload["of"])
    assert view is not None
    assert (view["turn"], view["is_done"], view["result"]) == ("s2", True, "5 degrees")
    became = Child(view["turn"], view["is_done"], view["result"])
    gate = resume(with_children(events, {entry.id: became}))
    assert [one["outcome"] for one in gate["calls"]] == ["done", "done"]
    assert [one["child"] for one in gate["calls"]] == [CHILD, CHILD]
