"""Where LOCK cannot be read, what it alone knew speaks against "nothing there" (P11)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from damaged_directory import DamagedDirectory

from walld.cli import main
from walld.cli.offline import find
from walld.daemon.mend import mend
from walld.daemon.owning import own
from walld.disk.lock_record import LOCK_NAME, parse_lock
from walld.disk.real import RealDisk, RealFile
from walld.partials.store import PartialStore


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


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "version"])
def test_one_that_is_there_and_not_read_is_a_doubt(made: DamagedDirectory, kind: str) -> None:
    lock = made.path / LOCK_NAME
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
            mended = mend(disk, PartialStore(disk), owner.log_uuid, owner.epoch, owner.told)
        finally:
            owner.close()
    if mended.doubt is not None:
        assert lock.had_log, "a start that is killed before it has noted it is not the last to know"
    return mended.doubt


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
