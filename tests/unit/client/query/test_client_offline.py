"""Answers without a daemon: yes, no, unknown."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import walld_client
from fake_daemon import fake_daemon
from walld_client.paths import path_name
from walld_client.query import offline

from walld.disk.lock_record import LockRecord, lock_record
from walld.wal.layout import SegmentHeader, pack_segment_header

UID = os.geteuid()
VECTORS = Path(__file__).parents[4] / "clients" / "vectors" / "directories.json"
DIRECTORIES = json.loads(VECTORS.read_text(encoding="ascii"))["directories"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "wal").mkdir(parents=True)
    (folder / "wal" / f"{1:020d}.wal").write_bytes(header(1))
    return folder


def header(segment_id: int, before: int = 0, log_uuid: bytes = b"l" * 16) -> bytes:
    return pack_segment_header(SegmentHeader(log_uuid, segment_id, before, 1))


def keep(folder: Path, session_id: str) -> None:
    kept = folder / "partials" / str(UID) / path_name(session_id)
    kept.mkdir(parents=True)
    (kept / "stream").write_bytes(b"p")


@pytest.mark.parametrize("vector", DIRECTORIES, ids=[each["name"] for each in DIRECTORIES])
def test_each_directory_of_the_vectors_is_told_as_they_say(
    tmp_path: Path, vector: dict[str, Any]
) -> None:
    for name, content in vector["files"].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes.fromhex(content))
    assert offline.has_partial(str(tmp_path), 0, "S") is vector["kept"], vector["why"]
    for session_id, kept in vector.get("of", {}).items():
        assert offline.has_partial(str(tmp_path), 0, session_id) is kept, vector["why"]
    if "of" not in vector:
        assert offline.has_any(str(tmp_path), 0) is vector["kept"], vector["why"]


def test_yes_no_unknown(folder: Path) -> None:
    assert offline.has_partial(str(folder), UID, "S") is False
    assert offline.has_any(str(folder), UID) is False
    keep(folder, "a/b")
    assert offline.has_partial(str(folder), UID, "a/b") is True
    assert offline.has_partial(str(folder), UID, "S") is False
    assert offline.has_any(str(folder), UID) is True
    assert offline.has_any(str(folder), UID + 1) is False
    (folder / "wal" / f"{2:020d}.wal").write_bytes(header(2) + b"x")
    assert offline.has_partial(str(folder), UID, "S") is None
    assert offline.has_partial(str(folder), UID, "a/b") is True


def test_what_lies_in_quarantine_may_have_been_any_reply(folder: Path) -> None:
    (folder / "quarantine").mkdir()
    for harmless in ("sessions+0+S+events.jsonl.0.9", ".half.tmp", "partials+0+S+r.note"):
        (folder / "quarantine" / harmless).touch()
    assert offline.has_partial(str(folder), UID, "S") is False
    (folder / "quarantine" / "batches-3-7").touch()
    assert offline.has_partial(str(folder), UID, "S") is None
    assert offline.has_any(str(folder), UID) is None
    keep(folder, "S")
    assert offline.has_partial(str(folder), UID, "S") is True


def test_a_log_that_was_cut_below_its_header_proves_nothing(folder: Path) -> None:
    (folder / "wal" / f"{1:020d}.wal").write_bytes(header(1)[:40])
    assert offline.has_partial(str(folder), UID, "S") is None
    (folder / "wal" / f"{2:020d}.wal").write_bytes(header(2))
    assert offline.has_partial(str(folder), UID, "S") is None, "that one was not cut at its birth"
    (folder / "wal" / f"{1:020d}.wal").write_bytes(header(1))
    (folder / "wal" / f"{2:020d}.wal").write_bytes(header(2)[:40])
    assert offline.has_partial(str(folder), UID, "S") is False


def test_a_log_without_the_batch_that_lock_names_proves_nothing(folder: Path) -> None:
    """Its newest segment was taken away, or cut to its header."""
    record = LockRecord(1, b"l" * 16, had_log=True, synced_no=7)
    (folder / "LOCK").write_bytes(lock_record(record))
    for before, answer in ((6, None), (7, False)):
        (folder / "wal" / f"{1:020d}.wal").write_bytes(header(1, before))
        assert offline.has_partial(str(folder), UID, "S") is answer
    (folder / "LOCK").write_bytes(lock_record(record._replace(synced_no=8)))
    assert offline.has_any(str(folder), UID) is None


def test_a_log_that_begins_behind_the_first_batch_that_must_be_there_proves_nothing(
    folder: Path,
) -> None:
    """Its oldest segment was taken away."""
    (folder / "wal" / f"{1:020d}.wal").write_bytes(header(1, 7))
    for first_no, answer in ((0, False), (1, None), (7, None), (8, False)):
        record = LockRecord(1, b"l" * 16, had_log=True, synced_no=6, first_no=first_no)
        (folder / "LOCK").write_bytes(lock_record(record))
        assert offline.has_partial(str(folder), UID, "S") is answer


def test_a_lock_that_is_no_file_is_not_waited_for_and_proves_nothing(folder: Path) -> None:
    os.mkfifo(folder / "LOCK")
    assert offline.has_partial(str(folder), UID, "S") is None
    (folder / "LOCK").unlink()
    (folder / "LOCK").symlink_to("/dev/zero")
    assert offline.has_any(str(folder), UID) is None


def test_what_is_no_header_of_this_log_proves_nothing(folder: Path) -> None:
    """As for a daemon, and `walld recover --data`: that log is gone, or cannot be read."""
    first, second = (folder / "wal" / f"{no:020d}.wal" for no in (1, 2))
    (folder / "LOCK").write_bytes(lock_record(LockRecord(1, b"l" * 16, had_log=True)))
    whole = header(1)
    for byte in range(64):
        first.write_bytes(whole[:byte] + bytes([whole[byte] ^ 16]) + whole[byte + 1 :])
        assert offline.has_partial(str(folder), UID, "S") is None, byte
    first.write_bytes(header(1, log_uuid=b"m" * 16))
    assert offline.has_partial(str(folder), UID, "S") is None
    first.write_bytes(whole)
    assert offline.has_partial(str(folder), UID, "S") is False
    for odd in (header(1), header(2, log_uuid=b"m" * 16)):
        second.write_bytes(odd)
        assert offline.has_any(str(folder), UID) is None
    (folder / "LOCK").unlink()
    assert offline.has_any(str(folder), UID) is None
    second.write_bytes(bytes(64))  # power took it, header and all
    assert offline.has_any(str(folder), UID) is False


@pytest.mark.parametrize("name", ["wal", "quarantine", "partials", f"partials/{UID}"])
@pytest.mark.parametrize("target", ["/nowhere/else", "empty"])
def test_a_link_in_the_place_of_a_directory_proves_nothing(
    folder: Path, name: str, target: str
) -> None:
    """It is not followed: the disk behind it may not be mounted."""
    for made in (name, "empty"):
        (folder / made).mkdir(parents=True, exist_ok=True)
    (folder / name).rename(folder / "aside")
    if name == "wal":
        target = "aside"
    (folder / name).symlink_to(folder / target)
    assert offline.has_partial(str(folder), UID, "S") is None
    assert offline.has_any(str(folder), UID) is None


def test_a_link_in_the_place_of_a_session_proves_nothing(folder: Path) -> None:
    keep(folder, "other")
    (folder / "partials" / str(UID) / "S").symlink_to("/nowhere/else")
    assert offline.has_partial(str(folder), UID, "S") is None


def test_a_segment_that_is_no_file_proves_nothing(folder: Path) -> None:
    (folder / "wal" / "odd.wal").write_bytes(header(1))
    assert offline.has_partial(str(folder), UID, "S") is None
    (folder / "wal" / "odd.wal").unlink()
    (folder / "wal" / "lost+found").mkdir()
    assert offline.has_partial(str(folder), UID, "S") is False
    (folder / "wal" / f"{2:020d}.wal").symlink_to("/nowhere")
    assert offline.has_partial(str(folder), UID, "S") is None


def test_a_folder_that_cannot_be_read_proves_nothing(tmp_path: Path, folder: Path) -> None:
    assert offline.has_partial(str(tmp_path / "none"), UID, "S") is None
    (tmp_path / "file").touch()
    assert offline.has_partial(str(tmp_path / "file"), UID, "S") is None
    for segment in (folder / "wal").iterdir():
        segment.unlink()
    (folder / "wal").rmdir()
    assert offline.has_partial(str(folder), UID, "S") is None


@pytest.mark.skipif(UID == 0, reason="root may read everything")
def test_no_permission_is_unknown(folder: Path) -> None:
    (folder / "wal").chmod(0)
    assert offline.has_partial(str(folder), UID, "S") is None
    (folder / "wal").chmod(0o700)


def test_a_client_with_a_data_directory_and_no_daemon(tmp_path: Path, folder: Path) -> None:
    client = walld_client.connect(tmp_path / "s", data=folder)
    keep(folder, "kept")
    assert client.has_partial("kept") is True
    assert client.has_partial("S") is False
    assert client.recover("S") is None
    with pytest.raises(walld_client.Unavailable, match=r"walld recover --data .*/data"):
        client.recover("kept")
    with pytest.raises(walld_client.Unavailable):
        client.recover_all()
    assert client.orphans("S") == []
    with pytest.raises(walld_client.Unavailable):
        client.resolve("stream")
    client.close(0)


def test_the_environment_names_the_directory(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALLD_DATA", str(folder))
    client = walld_client.connect(tmp_path / "s")
    assert client.has_partial("S") is False
    client.close(0)


def test_what_this_process_holds_for_a_daemon_is_not_nothing(tmp_path: Path, folder: Path) -> None:
    client = walld_client.connect(tmp_path / "s", data=folder)
    reply = client.reply("S")
    reply.token("x")
    assert client.has_partial("S") is None
    with pytest.raises(walld_client.Unavailable):
        client.recover("S")
    client.close(0)


def test_without_a_directory_it_cannot_know(tmp_path: Path) -> None:
    client = walld_client.connect(tmp_path / "s")
    assert client.has_partial("S") is None
    with pytest.raises(walld_client.Unavailable, match="errno 2"):
        client.recover("S")
    client.close(0)


def test_a_daemon_that_listens_and_says_nothing_is_not_absent(tmp_path: Path, folder: Path) -> None:
    with fake_daemon(str(tmp_path / "s")) as daemon:
        daemon.greets = False
        client = walld_client.connect(tmp_path / "s", data=folder, timeout=0.05)
        assert client.has_partial("S") is None
        with pytest.raises(walld_client.Unavailable, match="no answer"):
            client.recover("S")
        client.close(0)
