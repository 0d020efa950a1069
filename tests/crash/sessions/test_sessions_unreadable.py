"""A session's file that cannot be read: that session's trouble, and nobody else's (P5, P9)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import walld_client
from daemon_process import DaemonProcess, MakeDaemon, until, walld
from strace import needs_strace

SECRET = "a secret that was released"


@pytest.fixture
def stopped(make_daemon: MakeDaemon) -> DaemonProcess:
    """A daemon that has ended, and left two sessions in their files."""
    daemon = make_daemon("--reclaim-seconds", "1")
    daemon.start()
    for name in ("good", "hurt"):
        daemon.reader.session(name).message("user", f"to {name}")
    assert daemon.terminate() == 0
    return daemon


def a_directory(path: Path, _aside: Path) -> None:
    path.unlink()
    path.mkdir()


def a_link(path: Path, aside: Path) -> None:
    shutil.move(path, aside)
    path.symlink_to(aside)


def a_linked_folder(path: Path, aside: Path) -> None:
    a_link(path.parent, aside)


PLANTS = [a_directory, a_link, a_linked_folder]


def goes_on(daemon: DaemonProcess) -> None:
    """Everything but that session: lines go to their files, what was released leaves the disk."""
    client = daemon.reader
    assert [one["content"] for one in client.session("good").messages()] == ["to good"]
    with client.reply("other", stream_id="released") as reply:
        reply.token(SECRET)
        reply.drain(20, level="synced")
        reply.end()
    for number in range(130):
        client.session("new").append("note", {"n": number})
    until(lambda: daemon.events_path("new").exists(), "the file of a new session")
    until(lambda: not daemon.wal_holds(SECRET.encode()), "the end of what was released")
    with pytest.raises(walld_client.Unavailable):
        client.session("hurt").events()
    with pytest.raises(walld_client.Unavailable):
        client.session("hurt").append("note", {})
    told = {one.session_id: one.trouble for one in client.sessions()}
    assert set(told) == {"good", "hurt", "new"}
    assert told["hurt"]
    assert not told["good"]
    said = [
        line for line in daemon.logged("cannot be read").splitlines() if "cannot be read" in line
    ]
    assert len([line for line in said if "request" not in line]) == 1, said
    assert daemon.status()["state"] == "ok"


@pytest.mark.parametrize("plant", PLANTS)
def test_it_holds_up_nothing(stopped: DaemonProcess, plant: Callable[[Path, Path], None]) -> None:
    plant(stopped.events_path("hurt"), stopped.home / "aside")
    stopped.start()
    goes_on(stopped)


@needs_strace
def test_one_whose_disk_fails_holds_up_nothing(stopped: DaemonProcess) -> None:
    stopped.inject("pread64:error=EIO", stopped.events_path("hurt"))
    stopped.start()
    goes_on(stopped)
    stopped.kill()
    stopped.wrapper = []
    stopped.start()
    assert [one["content"] for one in stopped.reader.session("hurt").messages()] == ["to hurt"]


@pytest.mark.parametrize("plant", PLANTS)
def test_fsck_names_it_and_salvage_takes_the_rest(
    stopped: DaemonProcess, plant: Callable[[Path, Path], None]
) -> None:
    plant(stopped.events_path("hurt"), stopped.home / "aside")
    found = walld("fsck", stopped.data, "--json")
    assert found.returncode == 2, found
    states = {one["session_id"]: one["state"] for one in json.loads(found.stdout)["sessions"]}
    assert states == {"good": "clean", "hurt": "corrupt"}
    assert "hurt" in walld("fsck", stopped.data).stdout
    to = stopped.home / "new"
    taken = walld("salvage", stopped.data, "--to", to, "--json")
    assert taken.returncode == 1, taken
    assert any("hurt" in why for why in json.loads(taken.stdout)["unread"])
    good = to / stopped.events_path("good").relative_to(stopped.data)
    assert b"to good" in good.read_bytes()


def test_salvage_takes_what_the_log_has_of_it(stopped: DaemonProcess) -> None:
    stopped.start()
    stopped.reader.session("hurt").message("user", "in the log alone")
    stopped.kill()
    a_directory(stopped.events_path("hurt"), stopped.home)
    to = stopped.home / "new"
    taken = walld("salvage", stopped.data, "--to", to, "--json")
    assert taken.returncode == 1, taken
    lines = (to / stopped.events_path("hurt").relative_to(stopped.data)).read_bytes().splitlines()
    assert [b"in the log alone" in line for line in lines] == [False, True]
