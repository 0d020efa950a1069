"""Partials that cannot be read, or are not of their place: no reason not to start (P9).

They are never passed over, never followed, never taken for another's; what is whole is served.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import walld_client
from agents.process import MakeAgent
from daemon_process import DaemonProcess, MakeDaemon, until, walld
from strace import needs_strace
from walld_client.query import offline

KEPT = ("one", "two", "three")


def place(daemon: DaemonProcess, name: str) -> Path:
    """Where the partial of a reply stands."""
    return daemon.data / "partials" / str(os.geteuid()) / f"session-{name}" / name


@pytest.fixture
def stopped(make_daemon: MakeDaemon, make_agent: MakeAgent) -> DaemonProcess:
    """A daemon that has ended, and left a partial of each of KEPT."""
    daemon = make_daemon()
    daemon.start()
    agent = make_agent(daemon)
    for name in KEPT:
        agent.do(f"r = client.reply('session-{name}', stream_id='{name}'); r.token('says {name}')")
        agent.do("r.drain(20)")
    agent.kill()
    until(lambda: all(place(daemon, name).exists() for name in KEPT), "their partials")
    until(lambda: not daemon.wal_holds(b"says"), "a log that has let go of them")
    assert daemon.terminate() == 0
    return daemon


def orphans(daemon: DaemonProcess) -> dict[str, str]:
    """Text by stream id."""
    return {one.stream_id: one.text for one in daemon.reader.orphans()}


def says(*names: str) -> dict[str, str]:
    return {name: f"says {name}" for name in names}


@needs_strace
def test_an_error_that_passes_costs_nothing(stopped: DaemonProcess) -> None:
    stopped.inject("pread64:error=EIO:when=1..2", place(stopped, "one"))
    stopped.start()
    assert orphans(stopped) == says(*KEPT)
    assert stopped.reader.recover("session-of-nobody") is None


@needs_strace
def test_a_partial_that_cannot_be_read_hides_no_other(stopped: DaemonProcess) -> None:
    path = place(stopped, "one")
    stopped.inject("pread64:error=EIO", path)
    stopped.start()
    assert orphans(stopped) == says("two", "three")
    assert all("partials/" in (one.doubt or "") for one in stopped.reader.orphans())
    for asked in ({"session_id": "session-one"}, {"stream_id": "one"}, {"stream_id": "nobody's"}):
        with pytest.raises(walld_client.Unavailable):
            stopped.reader.recover(**asked)
    with pytest.raises(walld_client.Unavailable):
        stopped.reader.resolve("one")
    assert stopped.reader.recover(stream_id="two").text == "says two"  # type: ignore[union-attr]
    stopped.logged(str(path.relative_to(stopped.data)))
    assert path.is_file(), "it stays: it may be read tomorrow"
    stopped.kill()
    stopped.wrapper = []
    stopped.start()
    assert orphans(stopped) == says(*KEPT)
    assert [one.doubt for one in stopped.reader.orphans()] == [None] * 3
    assert stopped.reader.recover("session-of-nobody") is None
    assert stopped.reader.resolve("one")


def test_what_is_told_beside_a_damaged_one_says_so(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """As where it is alone: of a session the one before would be taken for its latest."""
    daemon = make_daemon().start()
    agent = make_agent(daemon)
    for name in KEPT:
        agent.do(f"r = client.reply('S', stream_id='{name}'); r.token('says {name}'); r.drain(20)")
    agent.kill()
    paths = [daemon.data / "partials" / str(os.geteuid()) / "S" / name for name in KEPT]
    until(lambda: all(path.exists() for path in paths), "their partials")
    until(lambda: not daemon.wal_holds(b"says"), "a log that has let go of them")
    assert [one.doubt for one in daemon.reader.recover_all("S")] == [None] * 3
    content = bytearray(paths[-1].read_bytes())
    content[-1] ^= 1
    paths[-1].write_bytes(content)
    for _ in range(2):
        for told in (daemon.reader.recover_all("S"), daemon.reader.orphans(), latest(daemon)):
            assert {one.stream_id for one in told} <= set(KEPT[:-1])
            assert all("quarantine" in (one.doubt or "") for one in told)
            assert not any("not among" in (one.doubt or "") for one in told), "these are"
        listed = daemon.cli("ls", "--socket", daemon.socket_path)
        assert (listed.returncode, b"quarantine" in listed.stderr) == (1, True), listed
        shown = daemon.cli("recover", "S", "--socket", daemon.socket_path)
        assert (shown.returncode, b"or a later one" in shown.stderr) == (0, True), shown
        with pytest.raises(walld_client.Unavailable, match="not among what can be read; but 1 "):
            daemon.reader.recover("of-nobody")
        one = daemon.reader.recover(stream_id="one")
        assert one is not None
        assert one.doubt is None, "it is the one that was asked for"
        daemon.restart()
    assert daemon.terminate() == 0
    found = daemon.cli("recover", "S", "--data", str(daemon.data), "--json")
    assert (found.returncode, b'"doubt": "1 files' in found.stdout) == (0, True)


def latest(daemon: DaemonProcess) -> list[walld_client.PartialReply]:
    found = daemon.reader.recover("S")
    assert found is not None
    return [found]


@needs_strace
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("what", ["partial", "segment"])
def test_a_reply_that_could_not_be_read_shares_its_number_with_no_later_one(
    make_daemon: MakeDaemon, make_agent: MakeAgent, what: str, *, ends: bool
) -> None:
    """Neither is taken for the other by the next start, and the end of the one ends no other."""
    daemon = make_daemon()
    daemon.start()
    if what == "segment":  # one that nothing older holds is set aside
        older = make_agent(daemon)
        older.do("r = client.reply('session-old', stream_id='old'); r.token('live'); r.drain(20)")
        daemon.restart()
        older.do("r.token('again'); r.drain(20)")
    agent = make_agent(daemon)
    agent.do("r = client.reply('session-one', stream_id='one'); r.token('says one')")
    agent.do("r.drain(20)")
    if what == "partial":
        agent.kill()
        until(place(daemon, "one").exists, "its partial")
        until(lambda: not daemon.wal_holds(b"says"), "a log that has let go of it")
        daemon.kill()
        daemon.inject("pread64:error=EIO", place(daemon, "one"))
    else:
        daemon.kill()
        agent.kill()
        daemon.inject("pread64:error=EIO", max((daemon.data / "wal").iterdir()))
    daemon.start()
    later = make_agent(daemon)
    later.do("r = client.reply('session-two', stream_id='two'); r.token('says two'); r.drain(20)")
    other = make_agent(daemon)
    other.do("r = client.reply('session-three', stream_id='three'); r.token('says three')")
    other.do("r.drain(20)")
    if ends:
        later.do("r.end(); r.drain(20)")
    daemon.kill()
    later.kill()
    other.kill()
    daemon.wrapper = []
    daemon.start()
    assert orphans(daemon) == says("one", "three") | ({} if ends else says("two"))
    daemon.restart()
    assert orphans(daemon) == says("one", "three") | ({} if ends else says("two"))


def a_directory(path: Path, _aside: Path) -> None:
    path.unlink()
    path.mkdir()


def a_fifo(path: Path, _aside: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_link(path: Path, aside: Path) -> None:
    shutil.move(path, aside)
    path.symlink_to(aside)


def a_linked_session(path: Path, aside: Path) -> None:
    a_link(path.parent, aside)


def a_linked_user(path: Path, aside: Path) -> None:
    a_link(path.parent.parent, aside)


@pytest.mark.parametrize("plant", [a_directory, a_fifo, a_link, a_linked_session, a_linked_user])
def test_what_is_no_file_in_the_place_of_one(
    stopped: DaemonProcess, plant: Callable[[Path, Path], None]
) -> None:
    """Not followed; said by fsck and in the log; "nothing" is proven once it was looked at."""
    plant(place(stopped, "one"), stopped.home / "aside")
    left = () if plant is a_linked_user else ("two", "three")
    found = walld("fsck", stopped.data)
    assert found.returncode == 2, found.stdout
    assert "not followed" in found.stdout
    found = walld("recover", "session-one", "--data", stopped.data)
    assert found.returncode == 1, found
    stopped.start()
    stopped.logged("not followed")
    with pytest.raises(walld_client.Unavailable):
        stopped.reader.recover("session-one")
    with pytest.raises(walld_client.Unavailable):
        stopped.reader.recover("session-of-nobody")
    assert (orphans(stopped) if left else {}) == says(*left)
    kept = [one for one in (stopped.data / "quarantine").iterdir() if one.suffix != ".note"]
    assert len(kept) == 1
    if plant not in (a_directory, a_fifo):
        assert kept[0].is_symlink()
        assert (stopped.home / "aside").exists(), "and what it led to is as it was"
    stopped.restart()
    with pytest.raises(walld_client.Unavailable):
        stopped.reader.recover("session-one")
    shutil.rmtree(stopped.data / "quarantine")
    stopped.restart()
    assert stopped.reader.recover("session-one") is None


@pytest.mark.parametrize("runs", [False, True])
def test_a_partial_in_the_place_of_another_is_neither_served_nor_resolved(
    stopped: DaemonProcess, *, runs: bool
) -> None:
    one, two = place(stopped, "one"), place(stopped, "two")
    was = {path: path.read_bytes() for path in (one, two)}
    if runs:
        stopped.start()
    one.write_bytes(was[two])
    two.write_bytes(was[one])
    found = walld("fsck", stopped.data)
    assert found.returncode == 2, found.stdout
    assert "it belongs in" in found.stdout
    if runs:
        with pytest.raises(walld_client.Unavailable):
            stopped.reader.resolve("one")
    else:
        stopped.start()
        assert not stopped.reader.resolve("one"), "set aside"
    with pytest.raises(walld_client.Unavailable):
        stopped.reader.recover("session-two")
    assert orphans(stopped) == says("three")
    kept = [path.read_bytes() for path in (stopped.data / "quarantine").glob("partials+*")]
    assert all(content in kept for content in was.values()), "both, under where they stood"
    assert stopped.terminate() == 0
    shutil.rmtree(stopped.data / "quarantine")
    for path, content in was.items():
        path.parent.mkdir(0o700, exist_ok=True)
        path.write_bytes(content)
    stopped.start()
    assert orphans(stopped) == says(*KEPT), "nothing of either was lost"


@pytest.mark.parametrize("copy", ["another/one", "session-one/other", "another/other"])
def test_a_copy_of_a_partial_does_not_outlive_its_resolve(
    stopped: DaemonProcess, copy: str
) -> None:
    path = place(stopped, "one").parent.parent / copy
    path.parent.mkdir(0o700, exist_ok=True)
    shutil.copy(place(stopped, "one"), path)
    assert walld("fsck", stopped.data).returncode == 2
    stopped.start()
    assert orphans(stopped) == says(*KEPT)
    assert stopped.reader.resolve("one")
    assert orphans(stopped) == says("two", "three")
    stopped.restart()
    assert orphans(stopped) == says("two", "three")
    assert not path.exists()


def test_a_partial_that_was_moved_hides_nothing_of_what_the_log_has(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """It is of its own stream by its number, and stands elsewhere: the log is what counts."""
    daemon = make_daemon()
    daemon.start()
    alive = make_agent(daemon)
    alive.do("r = client.reply('other'); r.token('holds its segment'); r.drain(20)")
    agent = make_agent(daemon)
    agent.do("r = client.reply('session-one', stream_id='one'); r.token('says one'); r.drain(20)")
    agent.kill()
    until(place(daemon, "one").exists, "its partial")
    daemon.kill()
    assert daemon.wal_holds(b"says one")
    elsewhere = place(daemon, "one").parent.parent / "elsewhere"
    elsewhere.mkdir(0o700)
    place(daemon, "one").rename(elsewhere / "one")
    place(daemon, "one").parent.rmdir()
    for _ in range(2):
        daemon.start()
        assert daemon.reader.recover("session-one").text == "says one"
        with pytest.raises(walld_client.Unavailable):
            daemon.reader.recover("elsewhere")
        daemon.kill()


def test_a_damaged_partial_of_an_id_like_a_notes_is_never_nothing(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    daemon = make_daemon()
    daemon.start()
    agent = make_agent(daemon)
    agent.do("r = client.reply('s', stream_id='x.note'); r.token('says'); r.drain(20)")
    agent.kill()
    path = daemon.data / "partials" / str(os.geteuid()) / "s/x.note"
    until(path.exists, "its partial")
    until(lambda: not daemon.wal_holds(b"says"), "a log that has let go of it")
    daemon.kill()
    content = bytearray(path.read_bytes())
    content[50] ^= 1
    path.write_bytes(content)
    daemon.start()
    with pytest.raises(walld_client.Unavailable):
        daemon.reader.recover("s")
    daemon.kill()
    assert offline.has_partial(str(daemon.data), os.geteuid(), "s") is None
    assert walld("recover", "s", "--data", daemon.data).returncode not in (0, 3)
