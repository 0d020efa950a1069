"""Files that somebody else made before the daemon came: refused or left alone, never followed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import DaemonProcess, MakeDaemon, until
from strangers import DaemonOf, needs_root
from walld_client.wire import messages as wire
from wire_peer import Peer

OTHER = 61001


@pytest.fixture
def precious(tmp_path: Path) -> Iterator[Path]:
    """A file outside the data directory that no test may change."""
    path = tmp_path / "precious"
    path.write_bytes(b"precious" * 100)
    yield path
    assert path.read_bytes() == b"precious" * 100


def takes_and_gives_back(daemon: DaemonProcess) -> None:
    """It works, whatever lies there."""
    with Peer(daemon, "agent") as peer:  # type: ignore[arg-type]
        peer.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"x"))
        peer.drain(1, "synced")
        reply = daemon.reader.recover(stream_id="r")
        assert reply is not None
        assert reply.text == "x"


def refused(daemon: DaemonProcess, *words: str) -> None:
    """It says why and ends with 1; nobody can connect."""
    daemon.start(wait=False)
    assert daemon.ended() == 1
    assert all(word in daemon.log_text() for word in words), daemon.log_text()
    assert "Traceback" not in daemon.log_text()
    assert not os.path.lexists(daemon.socket_path)


@pytest.mark.parametrize("mode", [0o775, 0o1777])
def test_a_directory_that_others_can_write_is_refused(make_daemon: MakeDaemon, mode: int) -> None:
    daemon = make_daemon()
    daemon.data.mkdir()
    daemon.data.chmod(mode)
    refused(daemon, f"mode {mode & 0o1777:04o}", "chmod go-w")
    assert list(daemon.data.iterdir()) == []


@needs_root
def test_a_directory_of_somebody_else_is_refused(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon()
    daemon.data.mkdir(0o700)
    os.chown(daemon.data, OTHER, OTHER)
    refused(daemon, f"belongs to uid {OTHER}", "chown")


@needs_root
def test_a_daemon_of_another_user_says_what_it_may_not_write(tmp_path: Path) -> None:
    """Its directory is root's and closed to it: one clear line, and no way around it."""
    daemon = DaemonOf(tmp_path, OTHER)
    try:
        daemon.data.mkdir(0o700)
        refused(daemon, "Permission denied")
    finally:
        daemon.close()


@needs_root
@pytest.mark.parametrize("place", ["LOCK", "reserve", "wal/00000000000000000001.wal"])
def test_a_file_of_root_among_its_own(tmp_path: Path, place: str) -> None:
    """What it cannot open costs nothing; a LOCK that it cannot take is said."""
    daemon = DaemonOf(tmp_path, OTHER)
    try:
        for folder in (daemon.data, daemon.data / "wal"):
            folder.mkdir(0o700)
            os.chown(folder, OTHER, OTHER)
        (daemon.data / place).write_bytes(b"root's")
        os.chmod(daemon.data / place, 0o600)
        if place == "LOCK":
            refused(daemon, "Permission denied")
        else:
            daemon.start()
            with Peer(daemon, "agent") as peer:  # type: ignore[arg-type]
                peer.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"x"))
                peer.drain(1, "synced")
        kept = [path.read_bytes() for path in daemon.data.rglob("*") if path.is_file()]
        assert b"root's" in kept or place == "reserve"
    finally:
        daemon.close()


@needs_root
def test_a_partial_of_root_among_its_own(tmp_path: Path) -> None:
    """Restored by hand, as root: its reply waits until it may be read, and no other does."""
    daemon = DaemonOf(tmp_path, OTHER, "--socket-mode", "0666")
    try:
        daemon.data.mkdir(0o700)
        os.chown(daemon.data, OTHER, OTHER)
        daemon.start()
        agent = Obedient(tmp_path, daemon.socket_path)
        for name in ("one", "two"):
            agent.do(f"r = client.reply('s', stream_id='{name}'); r.token('{name}'); r.drain(20)")
        agent.close()
        folder = daemon.data / "partials" / str(os.getuid()) / "s"
        until(lambda: all((folder / name).exists() for name in ("one", "two")), "partials")
        until(lambda: not daemon.wal_holds(b"two"), "a log that has let go of them")
        assert daemon.terminate() == 0
        os.chown(folder / "one", 0, 0)
        daemon.start()
        assert [reply.stream_id for reply in daemon.reader.orphans()] == ["two"]
        with pytest.raises(walld_client.Unavailable):
            daemon.reader.recover(stream_id="one")
        with pytest.raises(walld_client.Unavailable):
            daemon.reader.recover("session of nobody")
        os.chown(folder / "one", OTHER, OTHER)
        assert daemon.orphan("one").text == "one"
        assert [reply.stream_id for reply in daemon.reader.orphans()] == ["one", "two"]
    finally:
        daemon.close()


@needs_root
def test_its_own_user_cannot_look_inside(tmp_path: Path) -> None:
    """Not dumpable: what /proc shows of its memory is root's, so ptrace(2) is refused too."""
    daemon = DaemonOf(tmp_path, OTHER)
    try:
        daemon.data.mkdir(0o700)
        os.chown(daemon.data, OTHER, OTHER)
        daemon.start()
        assert daemon.process is not None
        assert os.stat(f"/proc/{daemon.process.pid}/mem").st_uid == 0
        assert Path(f"/proc/{daemon.process.pid}/status").read_text().count(str(OTHER)) > 0
    finally:
        daemon.close()


PLANTS: dict[str, Callable[[Path, Path], None]] = {
    "link": lambda path, precious: path.symlink_to(precious),
    "hard link": lambda path, precious: path.hardlink_to(precious),
    "fifo": lambda path, _precious: os.mkfifo(path),
}


def test_plants_where_the_next_segments_will_be(make_daemon: MakeDaemon, precious: Path) -> None:
    """One of each, in the places of the first segments: walld goes past them."""
    daemon = make_daemon()
    (daemon.data / "wal").mkdir(0o700, parents=True)
    daemon.data.chmod(0o700)
    for number, plant in enumerate(PLANTS.values(), 1):
        plant(daemon.data / f"wal/{number:020d}.wal", precious)
    daemon.start()
    takes_and_gives_back(daemon)
    daemon.restart()
    until(lambda: daemon.reader.recover(stream_id="r"), "what was said")
    assert daemon.terminate() == 0


@pytest.mark.parametrize("plant", ["link", "fifo"])
def test_a_plant_in_place_of_lock_is_refused(
    make_daemon: MakeDaemon, precious: Path, plant: str
) -> None:
    """No owner without a lock: anything that is no file there ends the start, and is kept."""
    daemon = make_daemon()
    daemon.data.mkdir(0o700)
    PLANTS[plant](daemon.data / "LOCK", precious)
    before = os.lstat(daemon.data / "LOCK")
    refused(daemon)
    assert os.lstat(daemon.data / "LOCK").st_ino == before.st_ino


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_second_name_of_a_sessions_files_is_not_written_through(
    make_daemon: MakeDaemon, tmp_path: Path, is_stopped: bool
) -> None:
    """A copy by `cp -al`, or a file of somebody else's that was linked there: it stays as it is."""
    daemon = make_daemon()
    daemon.start()
    session = daemon.reader.session("s")
    for number in range(60):  # more than a checkpoint waits for
        session.append("note", {"n": number})
    folder = daemon.data / "sessions" / str(os.getuid()) / "s"
    names = ("events.jsonl", "snapshot")
    until(lambda: all((folder / name).exists() for name in names), "files")
    if is_stopped:
        assert daemon.terminate() == 0
    copies = {}
    for name in names:
        copy = tmp_path / name
        copy.hardlink_to(folder / name)
        copies[copy] = copy.read_bytes()
    if is_stopped:
        daemon.start()
    for number in range(60, 130):
        session.append("note", {"n": number})
    assert daemon.terminate() == 0
    assert all(copy.read_bytes() == content for copy, content in copies.items())
    assert all(path.stat().st_nlink == 1 for path in folder.iterdir() if path.is_file())
    daemon.start()
    told = [event["payload"]["n"] for event in daemon.reader.session("s").events()]
    assert told == list(range(130))


def test_a_link_in_place_of_a_folder_is_not_followed(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    daemon = make_daemon()
    daemon.data.mkdir(0o700)
    (daemon.data / "wal").symlink_to(elsewhere)
    daemon.start()
    assert list(elsewhere.iterdir()) == []
    assert not (daemon.data / "wal").is_symlink()
    assert os.readlink(daemon.data / "quarantine/not-a-directory.wal") == str(elsewhere)
    daemon.logged("wal: is no directory; moved to quarantine/")


def test_links_where_partials_will_be(
    make_daemon: MakeDaemon, make_agent: Callable[..., Obedient], precious: Path
) -> None:
    """A link in the place of a session's folder, of a partial and of its temporary file."""
    daemon = make_daemon()
    uid = daemon.data / "partials" / str(os.getuid())
    uid.mkdir(0o700, parents=True)
    daemon.data.chmod(0o700)
    (uid / "linked").symlink_to(precious.parent)
    (uid / "s").mkdir(0o700)
    (uid / "s" / "r").symlink_to(precious)
    daemon.start()
    agent = make_agent(daemon)
    agent.do("a = client.reply('s', stream_id='r'); a.token('one')")
    agent.do("b = client.reply('linked', stream_id='q'); b.token('two')")
    agent.do("b.drain(20)")
    agent.kill()
    assert daemon.orphan("r").text == "one"
    assert daemon.orphan("q").text == "two"
    until(lambda: (uid / "s" / "r").is_file() and not (uid / "s" / "r").is_symlink(), "a partial")
    daemon.restart()
    assert daemon.orphan("r").text == "one"
    assert daemon.orphan("q").text == "two", "the log serves what has no place"
    assert sorted(path.name for path in precious.parent.iterdir() if path.is_symlink()) == []
