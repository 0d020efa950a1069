"""A delete that had begun has ended in what `walld salvage` makes; `walld fsck` passes it over."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from damaged_directory import AT_MS, GONE, LOG, UID, DamagedDirectory, row, snapshot
from ledger_world import lines_of
from walld_client.wire import messages as wire

from walld.cli import main
from walld.disk.real import RealDisk, RealFile
from walld.ledger.artifacts import ArtifactStore
from walld.ledger.intents import DELETE, FORK, Intent, IntentStore
from walld.ledger.store import LedgerStore
from walld.wal.layout import Flag
from walld.wal.records import Begin, Happened

HELD = b"what the artifact holds"
DIGEST = sha256(HELD)
GOING, KEPT = "victim", "kept"
DELETED = Intent(DELETE, UID, GOING, erase=True, log=LOG.hex(), until_no=7)


pytestmark = pytest.mark.usefixtures("no_daemon_writes_it")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[DamagedDirectory]:
    directory = DamagedDirectory(tmp_path / "old")
    directory.segment()
    directory.disk.make_dir("sessions")
    yield directory
    directory.close()


def write(made: DamagedDirectory, session_id: str) -> None:
    """Four lines, an artifact, and what quarantine keeps of an earlier damage."""
    LedgerStore(made.disk).append(UID, session_id, 1, lines_of(4, uid=UID, session=session_id))
    put_artifact(made, session_id)
    kept = made.path / f"quarantine/sessions+{UID}+{session_id}+events.jsonl.0.5"
    kept.write_bytes(b"bytes")
    kept.with_name(kept.name + ".note").write_bytes(b"from")


def put_artifact(made: DamagedDirectory, session_id: str) -> None:
    ArtifactStore(made.disk).put(UID, session_id, DIGEST.digest(), len(HELD), 0, HELD)


def in_log(stream_no: int, lines: list[bytes]) -> tuple[Any, ...]:
    """A record with the first lines of the session that goes."""
    first = Begin(UID, b"", 0, "", GOING, None, None, None, AT_MS, GONE)
    events = [Happened(0, wire.Custom(0, seq, "line", line)) for seq, line in enumerate(lines, 1)]
    return row(stream_no, 0, len(lines), first, *events, flags=Flag.BEGIN)


def looked_at(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str], code: int = 0
) -> tuple[dict[str, Any], list[str], str]:
    """What salvage accounts for, the sessions that fsck names, and salvage's text."""
    before, to = snapshot(made.path), made.path.parent / "new"
    main(["fsck", str(made.path), "--json"])
    named = [one["session_id"] for one in json.loads(capsys.readouterr().out)["sessions"]]
    assert main(["salvage", str(made.path), "--to", str(to), "--json"]) == code
    account = json.loads(capsys.readouterr().out)
    assert main(["salvage", str(made.path), "--to", str(to.parent / "again")]) == code
    assert snapshot(made.path) == before
    return account, named, capsys.readouterr().out


def files_of(made: DamagedDirectory, session_id: str) -> list[str]:
    """Of a session, in the new directory."""
    new = made.path.parent / "new"
    return [str(path) for path in new.rglob("*") if session_id in str(path) and path.is_file()]


@pytest.mark.parametrize("left", ["whole", "without its events", "in the log too"])
def test_a_session_whose_delete_had_begun_is_not_taken(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str], left: str
) -> None:
    write(made, KEPT)
    write(made, GOING)
    IntentStore(made.disk).note(DELETED)
    if left == "without its events":
        (made.path / f"sessions/{UID}/{GOING}/events.jsonl").unlink()
    if left == "in the log too":
        made.batch(in_log(7, lines_of(5, uid=UID, session=GOING)))
    account, named, text = looked_at(made, capsys)
    assert named == [one["session_id"] for one in account["sessions"]] == [KEPT]
    assert account["deleted"] == [[UID, GOING]]
    assert f"not taken, its delete had begun: session {GOING}, uid {UID}" in text
    assert files_of(made, GOING) == []
    assert [path for path in account["quarantined"] if GOING in path] == []
    assert len(files_of(made, KEPT)) == 4
    with RealDisk(str(made.path.parent / "new"), read_only=True) as disk:
        store = LedgerStore(disk)
        store.deleted.load()
        assert store.deleted.since(0, UID, GOING), "nobody is told that it is lost"
        assert list(store.intents.notes()) == []


def test_lines_that_the_log_was_to_let_go_of_do_not_come_back(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files were gone, and a start died before the log had its tombstones."""
    made.batch(in_log(7, lines_of(4, uid=UID, session=GOING)))
    IntentStore(made.disk).note(Intent(DELETE, UID, GOING, log=LOG.hex(), until_no=7))
    account, named, _ = looked_at(made, capsys)
    assert (named, account["sessions"], account["deleted"]) == ([], [], [])
    assert files_of(made, GOING) == []


@pytest.mark.parametrize("log", ["of the same log", "of another log"])
def test_what_was_begun_behind_a_delete_is_taken(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str], log: str
) -> None:
    newer = lines_of(2, uid=UID, session=GOING, size=9)
    is_same = log == "of the same log"
    if is_same:
        made.batch(in_log(7, lines_of(4, uid=UID, session=GOING)))
    made.batch(in_log(8 if is_same else 7, newer))
    told = LOG.hex() if is_same else "ab" * 16
    IntentStore(made.disk).note(Intent(DELETE, UID, GOING, log=told, until_no=7))
    account, named, _ = looked_at(made, capsys)
    assert named == [one["session_id"] for one in account["sessions"]] == [GOING]
    (events,) = files_of(made, GOING)
    assert Path(events).read_bytes().endswith(b"".join(newer))
    assert Path(events).read_bytes().count(b"\n") == 3


def test_a_note_that_cannot_be_believed_is_told(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """A start serves such a session, and says so."""
    write(made, GOING)
    IntentStore(made.disk).note(DELETED)
    (note,) = made.path.glob("sessions/.*.delete")
    os.truncate(note, 20)
    account, named, text = looked_at(made, capsys, code=1)
    assert named == [one["session_id"] for one in account["sessions"]] == [GOING]
    assert note.name in text


def test_notes_that_cannot_be_read_are_told(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(made, GOING)
    IntentStore(made.disk).note(DELETED)
    opened = RealDisk.open

    def failing(disk: RealDisk, path: str) -> RealFile:
        if path.endswith(f".{DELETE}"):
            raise OSError(5, "planted", path)
        return opened(disk, path)

    monkeypatch.setattr(RealDisk, "open", failing)
    account, _, text = looked_at(made, capsys, code=1)
    assert [one["session_id"] for one in account["sessions"]] == [GOING]
    assert "which sessions are being deleted cannot be read" in text


def test_a_fork_that_had_not_come_to_be_is_not_there(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its artifacts come first: without events there is no session."""
    write(made, KEPT)
    IntentStore(made.disk).note(
        Intent(FORK, UID, GOING, log=LOG.hex(), artifacts=[DIGEST.hexdigest()])
    )
    put_artifact(made, GOING)
    account, named, _ = looked_at(made, capsys)
    assert named == [one["session_id"] for one in account["sessions"]] == [KEPT]
    assert files_of(made, GOING) == []
