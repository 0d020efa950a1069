"""A session of version 1 is read for ever, and says what it said when it was written.

If a test here fails, the code is wrong, never the file.
"""

from __future__ import annotations

import json
from pathlib import Path

import make_session_v1
import pytest
from ledger_world import digest_of, verify

from walld.disk.real import RealDisk
from walld.ledger.line import read_line
from walld.ledger.snapshot import SnapshotStore
from walld.ledger.store import LedgerStore

FILES = make_session_v1.SESSION_V1
UID, SESSION = make_session_v1.UID, make_session_v1.SESSION


def test_the_files_are_those_that_were_written_then() -> None:
    """SHA-256 over names and bytes."""
    assert digest_of(FILES) == "d3d5a16c575402a99be5c2e4747c534b264d96cb71578706468267aed65f7016"


def test_the_session_reads_as_it_did() -> None:
    with RealDisk(str(FILES), read_only=True) as disk:
        reading = LedgerStore(disk).read(UID, SESSION)
        (row,) = LedgerStore(disk).tree()
    assert (reading.breaks, reading.torn_bytes) == ([], 0)
    assert (row.uid, row.session_id, row.last_seq) == (UID, SESSION, 5)
    found = [make_session_v1.shown(read_line(line)) for line in reading.lines]
    assert found == json.loads((FILES / "expected.json").read_text())
    assert [read_line(line).payload for line in reading.lines] == [
        payload for _, payload, _ in make_session_v1.EVENTS
    ]


def test_it_reads_without_walld() -> None:
    (path,) = FILES.rglob("events.jsonl")
    events = verify(path.read_bytes())
    assert [event["type"] for event in events] == [
        "turn_submitted", "message", "label", "my.app/note", "turn_completed"
    ]  # fmt: skip
    assert events[1]["payload"]["content"] == "half \ud83d a pair"
    assert [event["seq"] for event in events if event.get("leaf") is False] == [4]
    assert events[0]["at"] == "2026-11-22T13:20:11.124Z"


def test_the_snapshot_reads_as_it_did() -> None:
    (path,) = FILES.rglob("events.jsonl")
    with RealDisk(str(FILES), read_only=True) as disk:
        found = SnapshotStore(disk).read(UID, SESSION)
    size = path.stat().st_size
    assert found is not None
    assert found[:4] == (b"a base of some bytes", [b"three, four", b"five"], 5, size)


def test_version_1_is_still_written_as_it_was(tmp_path: Path) -> None:
    """Goes when a version 2 is written; the tests above stay."""
    make_session_v1.write(str(tmp_path / "again"))
    for path in (tmp_path / "again").rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (FILES / path.relative_to(tmp_path / "again")).read_bytes()
    assert len(list(FILES.rglob("*.jsonl"))) == 1


def test_they_are_never_written_again() -> None:
    with pytest.raises(FileExistsError):
        make_session_v1.main()
