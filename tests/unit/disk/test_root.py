"""The data directory itself: how it is made, and one whose sync its file system refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from daemon_process import DaemonProcess, MakeDaemon, until
from strace import needs_strace

from walld.disk.root import make_root, sync_names


def test_the_error_names_the_call_the_path_and_the_file_system() -> None:
    """/proc refuses it for real, as SMB and vboxsf do."""
    fd = os.open("/proc/self", os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(OSError, match="Invalid argument") as raised:
            sync_names(fd, "/proc/self")
    finally:
        os.close(fd)
    said = str(raised.value)
    assert "fsync(2) of a directory" in said
    assert "file system proc, mounted at /proc" in said
    assert "'/proc/self'" in said


def test_what_is_no_directory_is_named(tmp_path: Path) -> None:
    """ "File exists" would be no reason to whoever reads it."""
    (tmp_path / "file").touch()
    for root in (tmp_path / "file", tmp_path / "file" / "data"):
        with pytest.raises(NotADirectoryError, match="is no directory: name another") as refused:
            make_root(str(root))
        assert refused.value.filename == str(tmp_path / "file")


def test_a_name_that_could_not_be_synced_is_made_anew_and_synced_by_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_fd: int) -> None:
        raise OSError(5, "planted")

    root, synced, fsync = tmp_path / "data", [], os.fsync
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(OSError, match="planted") as refused:
            make_root(str(root))
    assert refused.value.filename == str(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino) or fsync(fd))
    make_root(str(root))
    assert synced == [tmp_path.stat().st_ino]


@needs_strace
def test_a_daemon_that_makes_its_directory_syncs_the_name(make_daemon: MakeDaemon) -> None:
    daemon: DaemonProcess = make_daemon()
    daemon.inject("fsync:error=EINVAL", daemon.data.parent)
    daemon.start(wait=False)
    assert daemon.process is not None
    assert daemon.ended() == 1
    said = daemon.log_text()
    assert "fsync(2) of a directory" in said
    assert str(daemon.data.parent) in said


@pytest.mark.parametrize("folder", ["", "wal"])
def test_a_daemon_on_it_says_so(make_daemon: MakeDaemon, folder: str) -> None:
    daemon: DaemonProcess = make_daemon()
    daemon.data.mkdir(mode=0o700)
    place = daemon.data / folder
    place.mkdir(mode=0o700, exist_ok=True)
    daemon.inject("fsync:error=EINVAL", place)
    daemon.start(wait=False)
    until(lambda: "fsync(2) of a directory" in daemon.log_text(), "why it cannot")
    assert daemon.process is not None
    if not folder:  # its own directory: it does not start
        assert daemon.ended() == 1
    said = daemon.log_text()
    assert "file system" in said
    assert (str(daemon.data) if not folder else "wal") in said
