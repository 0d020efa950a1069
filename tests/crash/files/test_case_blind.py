"""A daemon on a disk that does not look at case (SMB, APFS, a drive of Windows), for real."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from agents.process import MakeAgent
from crash.files.test_newest_segment import say
from daemon_process import DaemonProcess, MakeDaemon, until, walld
from walld_client.query import offline

MOUNT = Path(__file__).with_name("case_blind_mount.py")
BOTH = ("Chat-1", "chat-1")


def _why_not() -> str | None:
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        return "needs root and /dev/fuse"
    done = subprocess.run(
        [sys.executable, "-c", "import fuse"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = done.stderr.strip().rpartition("\n")[2]
        return f"needs libfuse2 and the Python package fusepy: {said}"
    return None


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mounted."""
    why = _why_not()
    if why is not None:
        pytest.skip(why)
    (tmp_path / "below").mkdir(mode=0o700)
    place = tmp_path / "disk"
    place.mkdir()
    log = (tmp_path / "fuse.log").open("w")
    mount = subprocess.Popen(
        [sys.executable, MOUNT, tmp_path / "below", place], stdout=log, stderr=log
    )
    try:
        until(lambda: os.path.ismount(place) or mount.poll() is not None, "a mount")
        assert mount.poll() is None, (tmp_path / "fuse.log").read_text()
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=False)
        mount.kill()
        mount.wait()
        log.close()


@pytest.fixture
def daemon(disk: Path, make_daemon: MakeDaemon) -> DaemonProcess:
    made = make_daemon("--reclaim-seconds", "0")
    made.data = disk / "data"
    return made.start()


def _words(daemon: DaemonProcess) -> dict[str, list[str]]:
    reader = daemon.reader
    return {one: [m["content"] for m in reader.session(one).messages() or []] for one in BOTH}


def _said(daemon: DaemonProcess) -> None:
    for session in BOTH:
        turn = daemon.reader.session(session).submit(f"in {session}", message_id=f"m-{session}")
        turn.completed()


SAID = {one: [f"in {one}"] for one in BOTH}


def test_sessions_keep_their_words_over_kills_and_ends(daemon: DaemonProcess) -> None:
    _said(daemon)
    assert _words(daemon) == SAID
    daemon.kill()
    daemon.start()
    assert _words(daemon) == SAID
    assert daemon.terminate() == 0
    names = {path.name for path in daemon.data.glob("sessions/*/*")}
    assert names == {"@chat-1", "chat-1"}
    assert walld("fsck", daemon.data).returncode == 0
    daemon.start()
    assert _words(daemon) == SAID
    assert daemon.logged("this disk does not look at case")


def test_replies_are_kept_and_told_without_a_daemon(
    daemon: DaemonProcess, make_agent: MakeAgent, tmp_path: Path
) -> None:
    say(daemon, make_agent, "R").kill()  # of session-R
    daemon.orphan("R")
    until(lambda: not daemon.wal_holds(b"session-R"), "a reply that is a partial alone")
    assert daemon.terminate() == 0
    data = str(daemon.data)
    assert [path.name for path in daemon.data.glob("partials/*/*/*")] == ["@r"]
    uid = os.geteuid()
    assert offline.has_partial(data, uid, "session-R") is True
    assert offline.has_partial(data, uid, "session-r") is False
    assert walld("recover", "session-R", "--data", data).returncode == 0
    assert walld("recover", "session-r", "--data", data).returncode == 3  # nothing
    taken = tmp_path / "taken"
    assert walld("salvage", data, "--to", taken).returncode == 0
    assert [path.name for path in taken.glob("partials/*/*/*")] == ["R"]
    again = f"{data}.again"
    assert walld("salvage", data, "--to", again).returncode == 0
    assert [path.name for path in Path(again).glob("partials/*/*/*")] == ["@r"]


def test_a_directory_is_moved_there_and_back(
    daemon: DaemonProcess, make_agent: MakeAgent, tmp_path: Path
) -> None:
    there, here = daemon.data, tmp_path / "data"
    _said(daemon)
    say(daemon, make_agent, "R").kill()
    daemon.orphan("R")
    until(lambda: list(there.glob("partials/*/session-@r/@r")), "a partial")
    assert daemon.terminate() == 0
    shutil.copytree(there, here)
    shutil.rmtree(there)
    daemon.data = here
    assert offline.has_partial(str(here), os.geteuid(), "session-R") is True
    assert walld("recover", "session-R", "--data", here).returncode == 0
    assert walld("fsck", here).returncode == 0
    daemon.start()
    assert _words(daemon) == SAID
    assert daemon.reader.recover("session-R") is not None
    assert daemon.terminate() == 0
    assert {path.name for path in here.glob("sessions/*/*")} == set(BOTH)
    assert (here / "LOCK").read_bytes().startswith(b"walld 1\n")
    shutil.rmtree(here / "sessions" / str(os.geteuid()) / "chat-1")  # two would be one there
    shutil.copytree(here, there)
    daemon.data = there
    daemon.start()
    assert _words(daemon)["Chat-1"] == SAID["Chat-1"]
    assert daemon.reader.recover("session-R") is not None
    assert daemon.terminate() == 0
    assert (there / "LOCK").read_bytes().startswith(b"walld 2\n")
    assert [path.name for path in there.glob("partials/*/*/*")] == ["@r"]
