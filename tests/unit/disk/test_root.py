"""The data directory itself: a directory whose sync its file system refuses."""

from __future__ import annotations

import os

import pytest
from daemon_process import DaemonProcess, MakeDaemon, until

from walld.disk.root import sync_names


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
