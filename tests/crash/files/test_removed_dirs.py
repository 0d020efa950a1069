"""Somebody removes all of partials/, or of sessions/.

Of a daemon that is not running LOCK tells (`disk/lock.py`): every start makes both, so they were
there. One that is running looks, and makes them again only once that is noted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import walld_client
from agents.process import MakeAgent
from crash.files.test_newest_segment import say
from daemon_process import DaemonProcess, MakeDaemon, until
from walld_client.query import offline

from walld.disk.lock_record import LOCK_NAME, parse_lock


@pytest.fixture
def kept(make_daemon: MakeDaemon, make_agent: MakeAgent) -> DaemonProcess:
    """A directory with a reply and a session, in files of their own; the daemon has ended."""
    daemon = make_daemon("--reclaim-seconds", "0").start()
    say(daemon, make_agent, "lost").kill()
    daemon.orphan("lost")
    until(lambda: not daemon.wal_holds(b"session-lost"), "a reply that is a partial alone")
    daemon.reader.session("S").append("note", {"n": 1})
    assert daemon.terminate() == 0
    assert daemon.events_path("S").exists()
    assert daemon.cli("fsck", str(daemon.data)).returncode == 0
    return daemon


def test_without_its_partials_nothing_is_proven(kept: DaemonProcess) -> None:
    """By nobody, at each start, until somebody has looked."""
    shutil.rmtree(kept.data / "partials")
    assert offline.has_partial(str(kept.data), os.geteuid(), "session-lost") is None
    assert kept.cli("recover", "session-lost", "--data", str(kept.data)).returncode == 1
    found = kept.cli("fsck", str(kept.data))
    assert (found.returncode, b"partials/ is gone" in found.stdout) == (2, True)
    taken = kept.cli("salvage", str(kept.data), "--to", f"{kept.data}.taken")
    assert (taken.returncode, b"partials/ is gone" in taken.stdout) == (1, True)
    for _ in range(2):
        kept.start()
        with pytest.raises(walld_client.Unavailable, match="quarantine"):
            kept.reader.recover("session-lost")
        listed = kept.cli("ls", "--socket", kept.socket_path)
        assert (listed.returncode, b"quarantine" in listed.stderr) == (1, True)
        assert [one["seq"] for one in kept.reader.session("S").events()] == [1]
        assert kept.reader.session("none").events() == [], "no session was in there"
        assert kept.terminate() == 0
        assert kept.cli("recover", "session-lost", "--data", str(kept.data)).returncode == 1
        assert offline.has_partial(str(kept.data), os.geteuid(), "session-lost") is not False
    (kept.data / "quarantine" / "partials").unlink()
    kept.start()
    assert kept.reader.recover("session-lost") is None
    assert kept.terminate() == 0
    assert kept.cli("fsck", str(kept.data)).returncode == 0
    assert kept.cli("recover", "session-lost", "--data", str(kept.data)).returncode == 3


def test_without_its_sessions_none_was_never_written(kept: DaemonProcess) -> None:
    shutil.rmtree(kept.data / "sessions")
    found = kept.cli("fsck", str(kept.data))
    assert (found.returncode, b"sessions/ is gone" in found.stdout) == (2, True)
    for _ in range(2):
        kept.start()
        for ask in (kept.reader.session("S").events, kept.reader.sessions):
            with pytest.raises(walld_client.Unavailable, match="quarantine/sessions"):
                ask()
        assert kept.reader.recover("none") is None, "no reply was in there"
        assert kept.terminate() == 0
    kept.start()
    assert kept.reader.session("S").append("note", {"n": 2}).seq > 2
    gate = kept.reader.session("S").resume_check()
    assert gate is not None
    assert gate["status"] == "blocked"
    assert kept.terminate() == 0
    (kept.data / "quarantine" / "sessions").unlink()
    kept.start()
    assert kept.reader.session("T").events() == []
    assert kept.reader.session("T").append("note", {"n": 1}).seq == 1


def remove(path: Path) -> None:
    """At once: a daemon may take an empty directory out of it meanwhile."""
    away = path.parent.with_suffix(".away")
    path.rename(away)
    shutil.rmtree(away)


def is_not_told(ask: Callable[..., object], *arguments: object) -> None:
    with pytest.raises(walld_client.Unavailable):
        ask(*arguments)


@pytest.mark.parametrize("is_killed", [True, False])
def test_beneath_a_daemon_its_partials_are_missed(
    kept: DaemonProcess, make_agent: MakeAgent, *, is_killed: bool
) -> None:
    """Also by the next start, though the directory was made again meanwhile."""
    kept.start()
    assert kept.reader.recover("session-lost") is not None
    remove(kept.data / "partials")
    is_not_told(kept.reader.recover, "session-lost")
    say(kept, make_agent, "later").kill()
    if not is_killed:
        until(lambda: (kept.data / "partials").exists() and kept.partials(), "one that is kept")
        is_not_told(kept.reader.recover, "session-lost")
        later = kept.reader.recover("session-later")
        assert later is not None
        assert "partials" in (later.doubt or "")
        assert kept.status()["trouble"] is None
    kept.restart()
    is_not_told(kept.reader.recover, "session-lost")
    assert kept.orphan("later").text == "0 1 2 "
    assert (kept.data / "quarantine" / "partials").exists()


def test_beneath_a_daemon_its_sessions_are_missed(kept: DaemonProcess) -> None:
    kept.start()
    remove(kept.data / "sessions")
    is_not_told(kept.reader.session("S").events)
    is_not_told(kept.reader.sessions)
    until((kept.data / "quarantine" / "sessions").exists, "a note")
    until((kept.data / "sessions").exists, "a directory")
    is_not_told(kept.reader.session("S").events)
    assert kept.reader.session("S").append("note", {"n": 2}).seq > 2
    assert kept.status()["trouble"] is None
    kept.restart()
    is_not_told(kept.reader.session("T").events)
    gate = kept.reader.session("S").resume_check()
    assert gate is not None
    assert gate["status"] == "blocked"


def test_a_session_that_is_open_goes_on_where_it_was(kept: DaemonProcess) -> None:
    kept.start()
    session = kept.reader.session("S")
    assert session.append("note", {"n": 2}).seq == 2
    remove(kept.data / "sessions")
    assert session.append("note", {"n": 3}).seq == 3
    until((kept.data / "sessions").exists, "a directory")
    assert session.append("note", {"n": 4}).seq == 4
    assert kept.terminate() == 0
    kept.start()
    assert [one["payload"]["n"] for one in session.events()] == [2, 3, 4]
    gate = session.resume_check()
    assert gate is not None
    assert gate["status"] == "blocked"


def a_file(path: Path) -> None:
    path.write_bytes(b"kept")


def a_link(path: Path) -> None:
    path.symlink_to("/nowhere")


@pytest.mark.parametrize("put", [a_file, a_link, os.mkfifo])
def test_what_stands_in_the_place_of_sessions_is_moved_away(
    make_daemon: MakeDaemon, put: Callable[[Path], None]
) -> None:
    """Also at a first start: who put a link there may have meant the sessions behind it."""
    daemon = make_daemon()
    daemon.data.mkdir(mode=0o700, exist_ok=True)
    put(daemon.data / "sessions")
    for seq_min in (1, 2):
        daemon.start()
        is_not_told(daemon.reader.session("never").events)
        assert daemon.reader.session("S").append("note", {"n": 1}).seq >= seq_min
        assert daemon.reader.recover("none") is None, "no reply was in there"
        assert (daemon.status()["state"], daemon.status()["trouble"]) == ("ok", None)
        assert daemon.terminate() == 0
    kept = {path.name for path in (daemon.data / "quarantine").iterdir()}
    assert kept == {"sessions", "sessions+not-a-directory"}
    (daemon.data / "quarantine" / "sessions").unlink()
    daemon.start()
    assert daemon.reader.session("never").events() == []


@pytest.mark.parametrize("name", ["partials", "sessions"])
def test_what_is_put_in_the_place_of_one_beneath_a_daemon_is_moved_away(
    kept: DaemonProcess, name: str
) -> None:
    kept.start()
    (kept.data / name).rename(kept.data.with_suffix(".away"))
    (kept.data / name).symlink_to(kept.data.with_suffix(".away"))
    until((kept.data / "quarantine" / name).exists, "a note")
    made = kept.data / name
    until(lambda: made.is_dir() and not made.is_symlink(), "a directory")
    if name == "sessions":
        is_not_told(kept.reader.session("T").events)
        assert kept.reader.session("S").append("note", {"n": 2}).seq > 1
    else:
        is_not_told(kept.reader.recover, "session-lost")
    until(lambda: kept.status()["trouble"] is None, "that nothing is wrong")


def test_what_was_in_them_may_be_removed_on_purpose(kept: DaemonProcess) -> None:
    for name in ("partials", "sessions"):
        for path in (kept.data / name).iterdir():
            shutil.rmtree(path)
    kept.start()
    assert kept.reader.recover("session-lost") is None
    assert kept.reader.session("S").append("note", {"n": 1}).seq == 1


def test_a_directory_that_held_nothing_and_one_of_an_older_version_are_not_doubted(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    daemon = make_daemon().start()
    assert daemon.terminate() == 0
    daemon.start()
    held = say(daemon, make_agent, "held")
    daemon.kill()
    held.kill()
    lock = daemon.data / LOCK_NAME
    told = parse_lock(lock.read_bytes(), str(lock))
    assert told is not None
    assert told.had_dirs
    lock.write_bytes(lock.read_bytes().replace(b"directories\n", b" " * 12))
    (daemon.data / "sessions").rmdir()  # made with the first session, then
    daemon.start()
    assert daemon.reader.session("S").events() == []
    assert daemon.reader.recover("session-none") is None
    daemon.kill()
    assert daemon.cli("fsck", str(daemon.data)).returncode < 2
    assert (daemon.data / "sessions").is_dir()
