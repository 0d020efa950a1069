"""LOCK is damaged beneath its owner: no other daemon is there, so nobody stops for it."""

from __future__ import annotations

import errno
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from walld.disk.lock import Owner
from walld.disk.lock_record import EPOCH_MAX, LOCK_NAME, LockRecord, lock_record, parse_lock

UUID, OTHER = bytes(range(16)), bytes(range(16, 32))
EPOCH = 6
TOLD = LockRecord(EPOCH, UUID, had_log=True, synced_no=7, first_no=1, had_dirs=True)
RECORD = lock_record(TOLD)


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    if os.major(tmp_path.stat().st_dev) == 0:
        pytest.skip("no disk of this machine")
    owner = Owner(str(tmp_path), UUID, epoch=EPOCH - 1)
    owner.first_no = 1
    owner.synced(1, 7)
    assert (tmp_path / LOCK_NAME).read_bytes() == RECORD
    yield owner
    owner.close()


def put(root: Path, raw: bytes) -> None:
    """In place: the same file, and what it held is gone."""
    with (root / LOCK_NAME).open("r+b") as file:
        file.truncate(0)
        file.write(raw)


def flipped(at: int, bit: int = 0) -> bytes:
    return RECORD[:at] + bytes([RECORD[at] ^ 1 << bit]) + RECORD[at + 1 :]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]


DAMAGES = {
    **{f"byte {at} bit {bit}": flipped(at, bit) for at in (0, 6, 8, 20, 33, 40) for bit in (0, 1)},
    "emptied": b"",
    "zeros": bytes(30) + RECORD[30:],
    "cut": RECORD[:40],
    "an older one": lock_record(TOLD._replace(epoch=EPOCH - 3, synced_no=2)),
    "one of its epoch": lock_record(TOLD._replace(log_uuid=OTHER)),
    "an epoch that nobody reached": lock_record(TOLD._replace(epoch=EPOCH_MAX)),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_said_once_and_written_over(
    tmp_path: Path, owner: Owner, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, DAMAGES[name])
    assert owner.is_owner()
    assert owner.is_owner()
    assert (tmp_path / LOCK_NAME).read_bytes() == RECORD
    path = tmp_path / LOCK_NAME
    assert said(caplog) == [f"{path}: was damaged beneath this daemon; written anew"]
    assert owner.damage is None


@pytest.mark.parametrize("told", [TOLD, TOLD._replace(log_uuid=OTHER, synced_no=0, first_no=0)])
@pytest.mark.parametrize("version", [b"1", b"2"])
def test_a_later_epoch_is_another_owners(
    tmp_path: Path, owner: Owner, told: LockRecord, version: bytes
) -> None:
    """One that begins another log where ours was taken away, too, and one of a later version."""
    raised = lock_record(told._replace(epoch=EPOCH + 1)).replace(b"walld 1", b"walld " + version)
    put(tmp_path, raised)
    assert not owner.is_owner()
    owner.synced(2, 9)
    assert (tmp_path / LOCK_NAME).read_bytes() == raised


def test_a_later_epoch_before_anything_was_synced_is_another_owners(tmp_path: Path) -> None:
    owner = Owner(str(tmp_path), UUID)
    put(tmp_path, lock_record(LockRecord(2, UUID)))
    assert not owner.is_owner()
    owner.close()


def test_what_a_mark_has_told_is_what_is_written_anew(tmp_path: Path, owner: Owner) -> None:
    owner.begins(5)
    put(tmp_path, b"")
    owner.synced(2, 9)
    told = parse_lock((tmp_path / LOCK_NAME).read_bytes(), LOCK_NAME)
    assert told == TOLD._replace(synced_no=9, first_no=5)
    put(tmp_path, bytes(160))
    assert owner.is_owner()
    assert parse_lock((tmp_path / LOCK_NAME).read_bytes(), LOCK_NAME) == told


def test_where_it_cannot_be_written_anew_that_is_said_once_and_tried_again(
    tmp_path: Path,
    owner: Owner,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An emptied one on a full disk."""

    def fails(*_given: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    put(tmp_path, b"")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fails)
        assert owner.is_owner()
        assert owner.is_owner()
    (text,) = said(caplog)
    assert "cannot be written anew: No space left on device" in text
    assert owner.damage is not None
    assert owner.is_owner()
    assert (tmp_path / LOCK_NAME).read_bytes() == RECORD
    assert owner.damage is None


@pytest.mark.parametrize("damage", [lambda raw: b"", lambda raw: bytes(30) + raw[30:]])
def test_where_another_machine_may_be_writing_nothing_is_written_over(
    damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """A next owner's record, half read, or one that came between a look and a write."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm: no file system without a device to try it on")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root:
        far = Owner(root, UUID, epoch=EPOCH - 1)
        far.first_no = 1
        far.synced(1, 7)
        damaged = damage(RECORD)
        put(Path(root), damaged)
        assert far.is_owner()
        assert far.is_owner()
        assert Path(root, LOCK_NAME).read_bytes() == damaged
        (text,) = said(caplog)
        assert "a restart writes it anew" in text
        assert far.damage is not None
        raised = lock_record(TOLD._replace(epoch=EPOCH + 1))[:72] + RECORD[72:]
        put(Path(root), raised)
        assert not far.is_owner(), "ours are the lines that a frozen owner put behind it"
        far.close()
