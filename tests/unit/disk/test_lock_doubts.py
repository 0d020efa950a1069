"""Where LOCK cannot be read, what it alone knew speaks against "nothing there" (P11)."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from damaged_directory import LOG, DamagedDirectory, begin, text, two_replies

from walld.cli import main
from walld.cli.inspect.offline import find
from walld.disk.lock_record import LOCK_NAME, LockRecord, lock_record, parse_lock
from walld.disk.real import RealDisk, RealFile
from walld.partials.store import PartialStore
from walld.recovery.directory_lock import own
from walld.recovery.startup_recovery import recover_storage


@pytest.fixture
def made(tmp_path: Path) -> DamagedDirectory:
    """A log with nothing in it, and LOCK says no more: without that nothing speaks for a loss."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.close()
    return made


def test_with_a_lock_that_is_read_nothing_is_proven(made: DamagedDirectory) -> None:
    assert find(str(made.path)).doubts == []
    assert main(["recover", "chat", "--data", str(made.path)]) == 3


def _reply(made: DamagedDirectory) -> None:
    with RealDisk(str(made.path)) as made.disk:
        made.partial(1, begin(), text(1, "x"))


def _spoil(lock: Path, kind: str) -> None:
    raw = lock.read_bytes()
    lock.unlink()
    if kind == "fifo":
        os.mkfifo(lock)
    elif kind == "directory":
        lock.mkdir()
    elif kind == "link":
        lock.symlink_to("nowhere")
    else:
        lock.write_bytes(raw.replace(b"walld 1", b"walld 3"))


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "version"])
def test_one_that_is_there_and_not_read_is_a_doubt(made: DamagedDirectory, kind: str) -> None:
    _spoil(made.path / LOCK_NAME, kind)
    (doubt,) = find(str(made.path)).doubts
    assert LOCK_NAME in doubt
    for command in (["recover", "chat", "--data"], ["ls", "--data"]):
        assert main([*command, str(made.path)]) == 1, command


@pytest.mark.parametrize("works", [0, 1])
def test_one_whose_bytes_cannot_be_read_is_a_doubt(
    made: DamagedDirectory, monkeypatch: pytest.MonkeyPatch, works: int
) -> None:
    """At the first look, or at the one behind the segments."""
    read_at, left = RealFile.read_at, [works]

    def fails(file: RealFile, length: int, offset: int) -> bytes:
        if file.path == LOCK_NAME:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO), LOCK_NAME)
        return read_at(file, length, offset)

    monkeypatch.setattr(RealFile, "read_at", fails)
    (doubt,) = find(str(made.path)).doubts
    assert LOCK_NAME in doubt
    assert "Input/output error" in doubt


def _start(path: Path) -> str | None:
    with RealDisk(str(path)) as disk:
        owner = own(str(path), disk)
        try:
            lock = parse_lock((path / LOCK_NAME).read_bytes(), LOCK_NAME)
            assert lock is not None
            recovered = recover_storage(
                disk, PartialStore(disk), owner.log_uuid, owner.epoch, owner.lock_before
            )
        finally:
            owner.close()
    if recovered.doubt is not None:
        assert lock.had_log, "a start that is killed before it has noted it is not the last to know"
    return recovered.doubt


@pytest.mark.parametrize("how", ["walld", "written", "emptied", "removed"])
def test_where_the_only_segment_is_gone_with_it_that_is_a_doubt(
    made: DamagedDirectory, how: str
) -> None:
    lock = made.path / LOCK_NAME
    raw = lock.read_bytes()
    (made.path / "reserve").write_bytes(b"")
    for segment in (made.path / "wal").iterdir():
        segment.unlink()
    if how == "removed":
        lock.unlink()
    else:
        at = {"walld": 3, "written": 74, "emptied": 0}[how]
        spoilt = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        lock.write_bytes(b"" if how == "emptied" else spoilt)
    (doubt,) = find(str(made.path)).doubts
    assert doubt == "wal/ holds no log, and LOCK, which would tell of one, is lost"
    assert _start(made.path) is not None
    assert _start(made.path) is not None


def test_what_salvage_has_made_is_no_log_that_is_gone(made: DamagedDirectory) -> None:
    """Directories and partials, with neither LOCK nor a reserve, and no log."""
    for path in [made.path / LOCK_NAME, *(made.path / "wal").iterdir()]:
        path.unlink()
    assert find(str(made.path)).doubts == []
    assert _start(made.path) is None


def test_a_first_start_that_lost_its_power_is_no_log_that_is_gone(tmp_path: Path) -> None:
    """LOCK is written before anything else is made."""
    tmp_path.chmod(0o700)
    (tmp_path / LOCK_NAME).write_bytes(bytes(160))
    assert _start(tmp_path) is None


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "version", "right"])
def test_salvage_of_one_that_is_not_read_is_in_doubt_and_so_is_what_it_makes(
    made: DamagedDirectory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    """It would have told of a segment that is gone."""
    _reply(made)
    lock, new = made.path / LOCK_NAME, made.path.parent / "new"
    if kind == "right":
        whole = RealDisk._open

        def planted(disk: RealDisk, path: str, access: int) -> RealFile:
            if path == LOCK_NAME and disk.root == str(made.path):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            return whole(disk, path, access)

        monkeypatch.setattr(RealDisk, "_open", planted)
    else:
        _spoil(lock, kind)
    assert main(["salvage", str(made.path), "--to", str(new)]) == 1
    (doubt,) = [line for line in capsys.readouterr().out.splitlines() if "in doubt" in line]
    assert LOCK_NAME in doubt
    assert doubt.strip() in (new / "quarantine/salvage").read_text()
    assert main(["recover", "other", "--data", str(new)]) == 1


@pytest.mark.parametrize("command", ["fsck", "salvage"])
def test_a_log_that_may_be_gone_with_lock_is_said_by_all(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    _reply(made)
    for segment in (made.path / "wal").iterdir():
        segment.unlink()
    (made.path / LOCK_NAME).write_bytes(b"")
    new = made.path.parent / "new"
    words = [command, str(made.path), *(["--to", str(new)] if command == "salvage" else [])]
    assert main(words) == {"fsck": 2, "salvage": 1}[command]
    assert "wal/ holds no log, and LOCK, which would tell of one" in capsys.readouterr().out


def test_fsck_tells_how_far_it_was_synced_as_lock_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No header behind the last batch of an orderly end says that it was."""
    two = two_replies(DamagedDirectory(tmp_path / "data"))
    two.close()
    command = ["fsck", "--json", str(two.path)]
    for synced_no, expected in ((6, 6), (3, 5)):
        told = LockRecord(1, LOG, had_log=True, synced_no=synced_no, first_no=1)
        (two.path / LOCK_NAME).write_bytes(lock_record(told))
        assert main(command) == 0
        assert json.loads(capsys.readouterr().out)["synced_batch"] == expected
        assert main(["fsck", str(two.path)]) == 0
        assert f"up to 6, synced up to {expected}\n" in capsys.readouterr().out
