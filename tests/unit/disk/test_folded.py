"""Names on a disk that does not look at case: none meets another (D5), and all are found again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.disk.case_blind import CaseBlindDisk
from walld_client.paths import path_name

from walld.disk.folded import FoldedDisk, fold, looks_at_case, strays_of, unfold
from walld.disk.lock import Owner
from walld.disk.lock_record import LOCK_NAME, parse_lock
from walld.disk.real import RealDisk
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.store import LedgerStore

IDS = st.text("aAbB1@~-._", max_size=8) | st.text(max_size=4)


@given(IDS, IDS)
def test_no_two_ids_have_names_that_differ_in_case_alone(one: str, other: str) -> None:
    names = [fold(path_name(ident)) for ident in (one, other)]
    assert (names[0].lower() == names[1].lower()) == (one == other)
    assert names[0] == names[0].lower()
    assert unfold(names[0]) == path_name(one)


def test_a_name_in_quarantine_that_gets_too_long_ends_in_a_hash() -> None:
    name = "partials+1000+" + "A" * 96 + "+" + "B" * 96
    for one in (name, f"{name}.note", f".{name}.note.tmp"):
        assert len(fold(one)) <= 255
        assert fold(one) == fold(one).lower()
        assert fold(fold(one)) == fold(one)
    assert fold(f"{name}.note") == f"{fold(name)}.note", "a note stands beside what it is about"
    assert fold(f".{name}.tmp") == f".{fold(name)}.tmp"
    assert fold(name) != fold(name[:-1] + "b")


def test_whether_a_disk_looks_at_case_is_seen_by_a_name_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "LOCK").touch()
    assert looks_at_case(str(tmp_path), "LOCK")
    (tmp_path / "lock").touch()
    assert looks_at_case(str(tmp_path), "LOCK"), "both are there"
    (tmp_path / "lock").unlink()
    blind(monkeypatch)
    assert not looks_at_case(str(tmp_path), "LOCK")


def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """lstat(2) finds a name by any letters from now on."""
    real = os.lstat

    def lstat(path: str) -> os.stat_result:
        folder, name = os.path.split(path)
        near = [one for one in os.listdir(folder) if one.lower() == name.lower()]
        return real(os.path.join(folder, near[0] if near else name))

    monkeypatch.setattr("walld.disk.folded.os.lstat", lstat)


def test_a_lock_says_that_names_may_be_folded_from_its_first_byte_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / LOCK_NAME
    Owner(str(tmp_path), b"l" * 16).close()
    assert lock.read_bytes().startswith(b"walld 1\n")
    with monkeypatch.context() as patched:
        blind(patched)
        owner = Owner(str(tmp_path), b"l" * 16)
        assert (owner.is_case_blind, owner.is_folded) == (True, True)
        owner.synced(1, 7)
        owner.close()
    told = parse_lock(lock.read_bytes(), "LOCK")
    assert lock.read_bytes().startswith(b"walld 2\n")
    assert told is not None
    assert (told.is_folded, told.synced_no) == (True, 7)
    owner = Owner(str(tmp_path), b"l" * 16)  # moved to a disk that looks at case
    assert (owner.is_case_blind, owner.is_folded) == (False, True)
    assert lock.read_bytes().startswith(b"walld 2\n"), "names in it are folded still"
    owner.says_unfolded()
    assert owner.is_owner()
    owner.synced(2, 8)
    owner.close()
    told = parse_lock(lock.read_bytes(), "LOCK")
    assert lock.read_bytes().startswith(b"walld 1\n")
    assert told is not None
    assert (told.is_folded, told.synced_no) == (False, 8)


def test_where_no_lock_says_it_the_names_do(tmp_path: Path) -> None:
    owner = Owner(str(tmp_path), b"l" * 16, has_folded=lambda: True)
    assert owner.is_folded
    owner.close()


def test_sessions_that_differ_in_case_alone_have_files_of_their_own(tmp_path: Path) -> None:
    with CaseBlindDisk(str(tmp_path)) as blind_disk:
        disk = FoldedDisk(blind_disk, is_folded=True)
        store = LedgerStore(disk)
        for session in ("Chat-1", "chat-1", "CHAT-1", "a/B"):
            header = header_line(1, session)
            line = make_line(1, "e1", 1, "note", b"{}", chain_of(header))
            store.append(1, session, 1, [line])
        names = {path.name for path in (tmp_path / "sessions/1").iterdir()}
        assert names == {"@chat-1", "chat-1", "@c@h@a@t-1", path_name("a/B")}
        listed = {entry.name for entry in disk.list_dir("sessions/1")}
        assert listed == {"Chat-1", "chat-1", "CHAT-1", path_name("a/B")}
        for session in ("Chat-1", "chat-1", "CHAT-1", "a/B"):
            path = f"sessions/1/{path_name(session)}/events.jsonl"
            file = disk.open(path)
            assert file.read_at(999, 0).startswith(header_line(1, session))
            assert file.path == path
            assert file.same_file()
            file.close()


def test_what_is_there_in_the_other_form_is_found_by_it(tmp_path: Path) -> None:
    for path in ("partials/1/Old/R1", "partials/1/@new/r", "partials/1/Old/.DS_Store"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(path.encode())
    for make, is_folded in ((CaseBlindDisk, True), (RealDisk, False)):
        with make(str(tmp_path)) as below:
            strays = strays_of(below, is_folded=is_folded)
            disk = FoldedDisk(below, is_folded=is_folded, strays=strays)
            assert [one.name for one in disk.list_dir("partials/1")] == ["New", "Old"]
            for path, stands in (
                ("partials/1/Old/R1", "partials/1/Old/R1"),
                ("partials/1/New/r", "partials/1/@new/r"),
            ):
                file = disk.open(path)
                assert file.read_at(99, 0) == stands.encode()
                file.close()


def test_no_other_name_is_changed(tmp_path: Path) -> None:
    with RealDisk(str(tmp_path)) as below:
        disk = FoldedDisk(below, is_folded=True)
        for path in ("LOCK", "wal/X", "sessions/1/Chat/artifacts/F"):
            where = path.replace("Chat", "@chat")
            assert disk.at(path) == where
