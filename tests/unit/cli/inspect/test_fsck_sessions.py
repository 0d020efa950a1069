"""Sessions: what `walld fsck` says of them, `walld salvage` takes of them, `walld dump` shows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from damaged_directory import AT_MS, GONE, UID, DamagedDirectory, flip, row, snapshot, two_replies
from ledger_world import newer
from walld_client.wire import messages as wire

from walld.cli import main
from walld.cli.inspect import directory_scan
from walld.disk.real import RealDisk
from walld.ledger.artifacts import ArtifactStore
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.snapshot import SnapshotStore
from walld.ledger.store import LedgerStore
from walld.wal.layout import Flag
from walld.wal.records import Begin, Happened

SESSION = "chat\x1b[2J/../é"
HELD = b"what the artifact holds"
DIGEST = sha256(HELD)


def lines(count: int, session: str = SESSION, **payloads: dict[str, Any]) -> list[bytes]:
    """Lines 1 to count of a session; payloads by "e<seq>"."""
    made, chain = [], chain_of(header_line(UID, session))
    for seq in range(1, count + 1):
        payload = payloads.get(f"e{seq}", {"role": "user", "content": f"line {seq}"})
        kind = "artifact" if "sha256" in payload else "message"
        line = make_line(seq, f"e{seq}", AT_MS, kind, json.dumps(payload).encode(), chain)
        made.append(line)
        chain = chain_of(line)
    return made


def in_log(stream_no: int, after: int, taken: list[bytes]) -> tuple[Any, ...]:
    """The record of lines that follow seq `after`, as the daemon writes it."""
    first = Begin(UID, b"", after, "", SESSION, None, None, None, AT_MS, GONE)
    events = [Happened(0, wire.Custom(0, seq, "line", line)) for seq, line in enumerate(taken, 1)]
    return row(stream_no, 0, len(taken), first, *events, flags=Flag.BEGIN)


pytestmark = pytest.mark.usefixtures("no_daemon_writes_it")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[DamagedDirectory]:
    directory = two_replies(DamagedDirectory(tmp_path / "old"))
    yield directory
    directory.close()


def events_of(path: Path) -> Path:
    (found,) = path.glob("sessions/*/*/events.jsonl")
    return found


def fsck(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any], str]:
    """Exit code, the one session, the text."""
    before = snapshot(path)
    code = main(["fsck", str(path)])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert main(["fsck", str(path), "--json"]) == code
    (found,) = json.loads(capsys.readouterr().out)["sessions"]
    assert snapshot(path) == before
    return code, found, shown


def salvage(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any], Path]:
    """Exit code, the account, the new directory."""
    before = snapshot(path)
    new = path.parent / "new"
    code = main(["salvage", str(path), "--to", str(new), "--json"])
    account = json.loads(capsys.readouterr().out)
    assert main(["salvage", str(path), "--to", str(path.parent / "again")]) == code
    assert "\x1b" not in capsys.readouterr().out
    assert snapshot(path) == before
    return code, account, new


def test_lines_in_the_file_and_lines_in_the_log_are_one_session(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    all_lines = lines(9)
    LedgerStore(made.disk).append(UID, SESSION, 1, all_lines[:5])
    made.batch(in_log(7, 4, all_lines[4:]))
    code, found, shown = fsck(made.path, capsys)
    assert (code, found["state"], found["events"], found["pending"]) == (0, "clean", 5, 4)
    assert (found["session_id"], found["last_seq"]) == (SESSION, 9)
    assert "1 whole, 0 not; 5 events in their files, 4 in the log alone" in shown
    code, account, new = salvage(made.path, capsys)
    assert code == 0
    assert events_of(new).read_bytes() == header_line(UID, SESSION) + b"".join(all_lines)
    (session,) = account["sessions"]
    assert (session["events"], session["from_log"]) == (9, 4)
    assert {one["stream_id"] for one in account["taken"]} == {"s1", "s2"}, "no bogus reply"


@pytest.mark.parametrize("strange", [slice(5, 6), slice(6, 7), slice(7, 8), slice(5, 8)])
def test_of_two_lines_of_a_seq_that_of_the_log_is_the_sessions(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str], strange: slice
) -> None:
    """One of another session stands where those of the log belong."""
    all_lines, other = lines(8), lines(8, "another")
    LedgerStore(made.disk).append(UID, SESSION, 1, all_lines[:5])
    path = events_of(made.path)
    path.write_bytes(path.read_bytes() + b"".join(other[strange]))
    made.batch(in_log(7, 5, all_lines[5:]))
    code, found, _ = fsck(made.path, capsys)
    assert (code, found["state"], found["pending"]) == (2, "corrupt", 3)
    seqs = list(range(strange.start + 1, strange.stop + 1))
    assert [one["first_seq"] for one in found["breaks"] if one["why"] == "order"] == seqs
    code, account, new = salvage(made.path, capsys)
    assert (code, account["sessions"][0]["events"]) == (1, 8)
    assert events_of(new).read_bytes().splitlines(keepends=True)[1:] == all_lines
    kept = (new / "quarantine").glob("*events.jsonl*")
    assert path.read_bytes() in [one.read_bytes() for one in kept], "it is set aside"


@pytest.mark.parametrize("is_hidden", [True, False])
def test_lines_that_follow_one_which_gives_way_to_the_log_are_not_the_sessions(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str], is_hidden: bool
) -> None:
    """Salvage took them for it, and left out those that they hid."""
    all_lines, other = lines(7), lines(12, "another")
    LedgerStore(made.disk).append(UID, SESSION, 1, all_lines[:5])
    path = events_of(made.path)
    behind = all_lines[3:5] if is_hidden else []
    file = [header_line(UID, SESSION), *all_lines[:3], *other[5:], *behind]
    path.write_bytes(b"".join(file))
    made.batch(in_log(7, 5, all_lines[5:]))
    _, found, _ = fsck(made.path, capsys)
    missing = [one for one in found["breaks"] if one["first_seq"] <= one["last_seq"]]
    seqs = [(one["first_seq"], one["last_seq"]) for one in missing]
    assert (found["last_seq"], seqs) == (7, [] if is_hidden else [(4, 5)])
    _, _, new = salvage(made.path, capsys)
    taken = events_of(new).read_bytes().splitlines(keepends=True)[1:]
    assert taken == [*all_lines[:3], *behind, *all_lines[5:]]


@pytest.mark.parametrize("first", [0, 2, 4])
def test_what_the_log_has_is_not_said_to_be_missing(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str], first: int
) -> None:
    """Of a file that is gone, or has a hole, behind which lines of the log stand."""
    all_lines = lines(6)
    LedgerStore(made.disk).append(UID, SESSION, 1, all_lines)
    SnapshotStore(made.disk).write_end(UID, SESSION, 6)
    made.batch(in_log(7, first, all_lines[first:]))
    path = events_of(made.path)
    gone = b"".join(all_lines[:5])
    path.write_bytes(path.read_bytes().replace(gone, b"\0" * len(gone)))
    for _ in range(2):
        _, found, _ = fsck(made.path, capsys)
        missing = [one for one in found["breaks"] if one["first_seq"] <= one["last_seq"]]
        seqs = [(one["first_seq"], one["last_seq"]) for one in missing]
        assert seqs == ([(1, first)] if first else [])
        assert found["last_seq"] == 6
        path.unlink(missing_ok=True)


def test_a_session_that_is_in_the_log_alone(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    all_lines = lines(3)
    made.batch(in_log(7, 0, all_lines))
    code, found, _ = fsck(made.path, capsys)
    assert (code, found["events"], found["pending"], found["last_seq"]) == (0, 0, 3, 3)
    code, _, new = salvage(made.path, capsys)
    assert code == 0
    assert events_of(new).read_bytes().splitlines(keepends=True)[1:] == all_lines


def test_lines_with_a_tombstone_are_not_in_the_log(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    all_lines = lines(3)
    LedgerStore(made.disk).append(UID, SESSION, 1, all_lines)
    made.batch(in_log(7, 0, all_lines), row(7, 4, 4, flags=Flag.RELEASED))
    assert fsck(made.path, capsys)[1]["pending"] == 0


def test_a_torn_end_is_torn_and_what_the_log_still_has_is_no_damage(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    all_lines = lines(6)
    LedgerStore(made.disk).append(UID, SESSION, 1, all_lines)
    path = events_of(made.path)
    path.write_bytes(path.read_bytes()[:-20])
    code, found, shown = fsck(made.path, capsys)
    assert (code, found["state"], found["breaks"]) == (1, "torn", [])
    assert f"its file ends in {len(all_lines[5]) - 20} bytes that are no line" in shown
    made.batch(in_log(7, 3, all_lines[3:]))
    at = path.read_bytes().index(all_lines[3])
    flip(path, at + 40)
    code, found, _ = fsck(made.path, capsys)
    assert (code, found["breaks"], found["last_seq"]) == (1, [], 6)
    _, _, new = salvage(made.path, capsys)
    assert events_of(new).read_bytes().splitlines(keepends=True)[1:] == all_lines
    assert any("events.jsonl" in name for name in snapshot(new / "quarantine"))


def test_damage_in_the_middle_is_said_with_its_seqs(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    all_lines = lines(6)
    LedgerStore(made.disk).append(UID, SESSION, 1, all_lines)
    path = events_of(made.path)
    at = path.read_bytes().index(all_lines[2])
    flip(path, at + 40)
    code, found, shown = fsck(made.path, capsys)
    (cut,) = found["breaks"]
    assert (code, cut["first_seq"], cut["last_seq"], cut["why"]) == (2, 3, 3, "damaged")
    assert f"damaged at {at}: events 3 to 3 are missing" in shown
    code, account, new = salvage(made.path, capsys)
    assert (code, account["sessions"][0]["breaks"]) == (1, [cut])
    assert events_of(new).read_bytes().splitlines(keepends=True)[1:] == (
        all_lines[:2] + all_lines[3:]
    )


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20] + b"\n")


def no_file(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(("spoil", "last_seq"), [(cut, 4), (Path.unlink, 0), (no_file, 0)])
def test_a_lost_end_stays_lost_in_the_new_directory(
    made: DamagedDirectory,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], None],
    last_seq: int,
) -> None:
    """Z1: or what is appended there would get the seqs of what is lost."""
    LedgerStore(made.disk).append(UID, "plain", 1, lines(5, "plain"))
    SnapshotStore(made.disk).write_base(UID, "plain", 5, events_of(made.path).stat().st_size, b"?")
    spoil(events_of(made.path))
    code, account, new = salvage(made.path, capsys)
    (taken,) = account["sessions"]
    assert (code, taken["last_seq"], taken["whole"]) == (1, last_seq, False)
    code, found, _ = fsck(new, capsys)
    missing = [(one["first_seq"], one["last_seq"], one["why"]) for one in found["breaks"]]
    assert (code, missing) == (2, [(last_seq + 1, 5, "missing")])
    with RealDisk(str(new)) as disk:
        assert not SnapshotStore(disk).add_increment(UID, "plain", 6, 1, b"x", follows=5)
        assert SnapshotStore(disk).read(UID, "plain") is None


def test_a_gap_between_the_file_and_the_log(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    all_lines = lines(9)
    LedgerStore(made.disk).append(UID, SESSION, 1, all_lines[:3])
    made.batch(in_log(7, 5, all_lines[5:]))
    made.batch(row(2, 3, 3, flags=Flag.RELEASED))
    code, found, _ = fsck(made.path, capsys)
    (cut,) = found["breaks"]
    assert (code, cut["first_seq"], cut["last_seq"], cut["why"]) == (2, 4, 5, "missing")


@pytest.mark.parametrize("in_file", [0, 3])
def test_lines_behind_a_torn_place(
    in_file: int, made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing says that they were synced: a start leaves them out, and so does salvage."""
    all_lines = lines(9)
    if in_file:
        LedgerStore(made.disk).append(UID, SESSION, 1, all_lines[:in_file])
    made.batch(in_log(7, in_file, all_lines[in_file:4]), in_log(8, 6, all_lines[6:]))
    code, found, shown = fsck(made.path, capsys)
    assert (code, found["state"], found["cut"], found["breaks"]) == (1, "torn", 3, [])
    assert (found["pending"], found["last_seq"]) == (4 - in_file, 4)
    assert "3 lines of the log stand behind a torn place" in shown
    _, account, new = salvage(made.path, capsys)
    (taken,) = account["sessions"]
    assert (taken["events"], taken["last_seq"], taken["whole"]) == (4, 4, True)
    assert events_of(new).read_bytes() == header_line(UID, SESSION) + b"".join(all_lines[:4])


def test_artifacts_that_are_missing_or_changed(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    named = {"sha256": DIGEST.hexdigest(), "size": len(HELD), "media_type": "text/plain"}
    far = {"role": "user", "content": {"_artifact": {**named, "sha256": "0" * 64}}}
    LedgerStore(made.disk).append(UID, SESSION, 1, lines(3, e2=named, e3=far))
    artifacts = ArtifactStore(made.disk)
    assert artifacts.put(UID, SESSION, DIGEST.digest(), len(HELD), 0, HELD)
    code, found, shown = fsck(made.path, capsys)
    assert (code, found["artifacts"]) == (2, 2)
    assert found["artifacts_damaged"] == [{"sha256": "0" * 64, "why": "missing"}]
    assert f"artifact {'0' * 64}: missing" in shown
    (file,) = made.path.glob("sessions/*/*/artifacts/*")
    code, account, new = salvage(made.path, capsys)
    assert (code, account["sessions"][0]["artifacts"]) == (1, 1)
    (copy,) = new.glob("sessions/*/*/artifacts/*")
    assert copy.read_bytes() == HELD
    flip(file, 3)
    assert fsck(made.path, capsys)[1]["artifacts_damaged"] == [
        {"sha256": DIGEST.hexdigest(), "why": "changed"},
        {"sha256": "0" * 64, "why": "missing"},
    ]


def test_a_header_of_a_later_version_is_kept_as_it_is(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    LedgerStore(made.disk).append(UID, SESSION, 1, lines(1))
    path = events_of(made.path)
    path.write_bytes(newer(path.read_bytes(), 7))
    code, found, shown = fsck(made.path, capsys)
    assert (code, found["session_id"], found["newer"]) == (2, None, True)
    assert "version 7" in shown
    code, account, new = salvage(made.path, capsys)
    assert (code, account["sessions"]) == (1, [])
    (kept,) = (one for one in (new / "quarantine").iterdir() if one.suffix != ".note")
    assert kept.read_bytes() == path.read_bytes()


def test_dump_shows_a_line_as_text(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    made.batch(in_log(7, 4, lines(6)[4:]))
    assert main(["dump", "--data", str(made.path), "--items", "--json"]) == 0
    rows = [json.loads(one) for one in capsys.readouterr().out.splitlines()]
    shown = [one for one in rows if one["what"] == "line"]
    assert [(one["session"], one["ledger_seq"]) for one in shown] == [(SESSION, 5), (SESSION, 6)]
    assert json.loads(shown[0]["text"])["payload"]["content"] == "line 5"
    main(["dump", "--data", str(made.path), "--items"])
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("in_file", [0, 40])
def test_one_that_is_deleted_between_the_log_and_its_file_is_no_damage(
    made: DamagedDirectory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    in_file: int,
) -> None:
    """Beside a daemon: the log was read before its tombstone, the files when they were gone."""
    all_lines = lines(45)
    if in_file:
        LedgerStore(made.disk).append(UID, SESSION, 1, all_lines[:in_file])
    made.batch(in_log(7, 40, all_lines[40:]))
    scan = directory_scan.scan
    is_deleted = []

    def deletes(*given: Any) -> None:
        scan(*given)
        if not is_deleted:
            is_deleted.append(True)
            made.batch(row(7, 6, 6, flags=Flag.RELEASED))
            shutil.rmtree(made.path / "sessions", ignore_errors=True)
            (made.path / "sessions").mkdir()

    monkeypatch.setattr(directory_scan, "scan", deletes)
    code = main(["fsck", str(made.path), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (code, report["state"], report["sessions"]) == (0, "clean", [])


def test_a_damaged_one_that_grows_meanwhile_is_looked_at_twice(
    made: DamagedDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look reads the whole log: twenty of them for each such session would be too long."""
    all_lines = lines(40)
    store = LedgerStore(made.disk)
    store.append(UID, SESSION, 1, all_lines[:5])
    flip(events_of(made.path), len(header_line(UID, SESSION)) + len(all_lines[0]) + 20)
    looks, scan = [], directory_scan.scan

    def grows(*given: Any) -> None:
        scan(*given)
        at = 5 + len(looks)
        looks.append(given[2])
        with events_of(made.path).open("ab") as file:
            file.write(all_lines[at])

    monkeypatch.setattr(directory_scan, "scan", grows)
    assert main(["fsck", str(made.path)]) == 2
    assert looks.count("reading the log again") == 1
