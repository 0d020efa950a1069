"""The oldest segment is taken away, or cut: what is left looks like a log that begins behind it.

LOCK tells (`disk/lock.py`): the first batch that must be there, raised before a segment goes.
"""

from __future__ import annotations

import os
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import walld_client
from agents.process import MakeAgent
from crash.files.test_newest_segment import is_missed, say
from daemon_process import PATIENCE_SECONDS, DaemonProcess, MakeDaemon, until
from strace import needs_strace

from walld.disk.lock_record import WRITTEN_AT, parse_lock


def first_no(daemon: DaemonProcess) -> int:
    found = re.search(rb"first ([0-9]{20}) ", (daemon.data / "LOCK").read_bytes())
    return int(found[1]) if found is not None else 0


def goes(daemon: DaemonProcess, text: str) -> None:
    """Until then a release may be nowhere but in the daemon, which is killed next."""
    until(lambda: not daemon.wal_holds(text.encode()), f"{text} goes")


@pytest.mark.parametrize(
    "spoil",
    [Path.unlink, lambda path: os.truncate(path, 64), lambda path: os.truncate(path, 40)],
    ids=["removed", "cut to its header", "cut below it"],
)
def test_the_oldest_segment_is_missed_though_another_begins_behind_it(
    make_daemon: MakeDaemon, make_agent: MakeAgent, spoil: Callable[[Path], None]
) -> None:
    daemon = make_daemon().start()
    lost = say(daemon, make_agent, "lost")
    daemon.restart()
    held = say(daemon, make_agent, "held")
    daemon.kill()
    lost.kill()
    held.kill()
    spoil(daemon.segments()[0])
    is_missed(daemon)


def test_a_log_that_is_nothing_but_a_header_is_missed_where_it_held_a_reply(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """As a start leaves it that is killed before it has said a word; then the older one went."""
    daemon = make_daemon().start()
    lost = say(daemon, make_agent, "lost")
    daemon.restart()
    daemon.kill()
    lost.kill()
    oldest, newest = daemon.segments()
    os.truncate(newest, 64)
    oldest.unlink()
    reader = walld_client.connect(daemon.socket_path, data=str(daemon.data), timeout=0.5)
    with pytest.raises(walld_client.Unavailable):
        reader.recover("session-lost")
    reader.close(timeout=0)
    assert daemon.cli("recover", "session-lost", "--data", str(daemon.data)).returncode == 1
    assert daemon.cli("fsck", str(daemon.data)).returncode == 2


def test_segments_that_went_in_their_turn_are_not_missed(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """Also where something lives on behind them, and the daemon is killed at any time."""
    daemon = make_daemon("--reclaim-seconds", "0").start()
    living = say(daemon, make_agent, "living")
    firsts = []
    for number in range(3):
        agent = say(daemon, make_agent, f"n{number}")
        agent.do("r.end(); assert client.close()")
        agent.kill()
        goes(daemon, f"session-n{number}")
        daemon.kill()
        assert daemon.cli("fsck", str(daemon.data)).returncode < 2
        assert first_no(daemon) > max(firsts, default=1)
        firsts.append(first_no(daemon))
        daemon.start()
        assert daemon.status()["start"]["corrupt"] == 0
        reply = daemon.reader.recover("session-living")
        assert reply is not None
        assert reply.text == "0 1 2 "
    living.do("r.end(); assert client.close()")
    living.kill()
    assert daemon.terminate() == 0
    assert daemon.cli("fsck", str(daemon.data)).returncode == 0


@needs_strace
def test_a_segment_stays_where_lock_alone_finds_no_room(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """Batches are written, so nothing is full: gone without that word it would be missed."""
    daemon = make_daemon("--reclaim-seconds", "0").start()
    living = say(daemon, make_agent, "living")
    daemon.kill()
    daemon.inject("pwrite64:error=ENOSPC:when=2+", daemon.data / "LOCK")  # the first is the start's
    daemon.start()
    agent = say(daemon, make_agent, "released")
    agent.do("r.end(); assert client.close()")
    agent.kill()
    living.do("r.end(); assert client.close()")
    living.kill()
    daemon.logged("No space left")
    until(lambda: daemon.status()["state"] == "degraded", "a word about it")
    daemon.kill()
    assert daemon.cli("fsck", str(daemon.data)).returncode < 2
    daemon.wrapper = []
    daemon.start()
    assert daemon.status()["start"]["corrupt"] == 0
    goes(daemon, "session-released")
    assert daemon.reader.recover("session-living") is None


def by_an_older_version(daemon: DaemonProcess) -> None:
    """LOCK as that one leaves it: it names a batch that was synced, and not the first."""
    path = daemon.data / "LOCK"
    told = parse_lock(path.read_bytes(), str(path))
    assert told is not None
    number = b"%020d" % told.synced_no
    crc = zlib.crc32(number, zlib.crc32(told.log_uuid))
    lines = b"written\nsynced %s %08x\n" % (number, crc)
    path.write_bytes(path.read_bytes()[:WRITTEN_AT] + lines.ljust(128 - WRITTEN_AT))


def test_what_went_before_an_older_version_was_replaced_is_not_missed(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """All had gone: the log is nothing but a header, which tells alone where it begins."""
    daemon = make_daemon("--reclaim-seconds", "0").start()
    agent = say(daemon, make_agent, "gone")
    agent.do("r.end(); assert client.close()")
    agent.kill()
    until(lambda: not any(path.stat().st_size > 64 for path in daemon.segments()), "it goes")
    daemon.kill()
    by_an_older_version(daemon)
    daemon.start()
    held = say(daemon, make_agent, "held")
    daemon.kill()
    held.kill()
    assert first_no(daemon) > 1
    assert daemon.cli("fsck", str(daemon.data)).returncode < 2
    daemon.start()
    assert daemon.status()["start"]["corrupt"] == 0
    assert daemon.reader.recover("session-gone") is None


def test_a_copy_without_lock_misses_nothing_that_went_while_it_was_made(
    make_daemon: MakeDaemon, make_agent: MakeAgent, tmp_path: Path
) -> None:
    """One file after the other is not of one instant: LOCK would be of another one."""
    daemon = make_daemon("--reclaim-seconds", "0").start()
    living = say(daemon, make_agent, "living")
    oldest = daemon.segments()[0]
    agent = say(daemon, make_agent, "gone")
    agent.do("r.end(); assert client.close()")
    agent.kill()
    until(lambda: not oldest.exists(), "it goes")
    for name in ("wal", "partials"):
        shutil.copytree(daemon.data / name, tmp_path / "copy" / name)
    assert daemon.cli("fsck", str(tmp_path / "copy")).returncode < 2
    for name, code in (("living", 0), ("gone", 3)):
        found = daemon.cli("recover", f"session-{name}", "--data", str(tmp_path / "copy"))
        assert found.returncode == code
    living.kill()


def let_go(
    make_daemon: MakeDaemon, make_agent: MakeAgent, copy: Path, copied_after: int = 0
) -> tuple[DaemonProcess, set[str]]:
    """A directory whose first segment has left the log since it was copied; and its name.

    copied_after: so many restarts, each of which begins another segment.
    """
    daemon = make_daemon("--reclaim-seconds", "0.2").start()
    released = make_agent(daemon)
    released.do("r = client.reply('s', stream_id='released')")
    released.do("r.token('a secret'); r.drain(20, level='synced')")
    old = set[str]()
    for number in range(4):
        if number == copied_after:
            shutil.copytree(daemon.data / "wal", copy)
            released.do("r.end(); client.release('released'); r.drain(20, level='synced')")
            holding = [one for one in daemon.segments() if b"a secret" in one.read_bytes()]
            old = {path.name for path in holding}
        daemon.restart()
        agent = make_agent(daemon)
        agent.do(f"o = client.reply('other', stream_id='{number}')")
        agent.do("o.token('goes on'); o.drain(20, level='synced')")
    until(lambda: not old & {path.name for path in daemon.segments()}, "the old segments' end")
    daemon.terminate()
    released.kill()
    return daemon, old


def test_a_segment_that_was_let_go_and_comes_back_is_read(
    make_daemon: MakeDaemon, make_agent: MakeAgent, tmp_path: Path
) -> None:
    """Out of a copy that somebody puts beside what is there: it may be all there is."""
    daemon, old = let_go(make_daemon, make_agent, tmp_path / "copy")
    for name in old:
        shutil.copy(tmp_path / "copy" / name, daemon.data / "wal" / name)
    assert daemon.cli("fsck", str(daemon.data)).returncode == 0
    assert b"a secret" in daemon.cli("recover", "s", "--data", str(daemon.data)).stdout
    daemon.start()
    assert daemon.reader.recover("other") is not None
    client = walld_client.connect(daemon.socket_path, timeout=PATIENCE_SECONDS)
    assert client.resolve("released")
    assert client.recover("s") is None
    client.close()
    until(lambda: not old & {path.name for path in daemon.segments()}, "their end, once more")
    daemon.terminate()
    assert b"a secret" not in b"".join(path.read_bytes() for path in daemon.files())


def test_a_copy_that_lacks_what_was_carried_since_is_read(
    make_daemon: MakeDaemon, make_agent: MakeAgent, tmp_path: Path
) -> None:
    """It has each batch that LOCK names, which is one a segment."""
    daemon = make_daemon("--reclaim-seconds", "0.5").start()
    dying = say(daemon, make_agent, "dying")
    held = make_agent(daemon)
    held.do("r = client.reply('held', stream_id='held')")
    held.do("r.token('not released'); r.drain(20, level='synced')")
    daemon.restart()
    other = make_agent(daemon)
    other.do("o = client.reply('other', stream_id='o')")
    for _ in range(3):
        other.do("o.token('goes on'); o.drain(20, level='synced')")
    shutil.copytree(daemon.data / "wal", tmp_path / "copy")
    oldest = daemon.segments()[0]
    dying.do("r.end(); r.release(); r.drain(20, level='synced')")
    until(lambda: not oldest.exists(), "what is held is carried, and it goes")
    daemon.kill()
    for agent in (dying, held, other):
        agent.kill()
    shutil.rmtree(daemon.data / "wal")
    shutil.copytree(tmp_path / "copy", daemon.data / "wal")
    assert b"not released" in daemon.cli("recover", "held", "--data", str(daemon.data)).stdout
    daemon.start()
    reply = daemon.reader.recover("held")
    assert reply is not None
    assert reply.text == "not released"


@pytest.mark.parametrize("copied_after", [0, 1])
def test_an_older_log_put_under_a_newer_lock_is_read(
    make_daemon: MakeDaemon, make_agent: MakeAgent, tmp_path: Path, copied_after: int
) -> None:
    """Not all that LOCK tells of is there: what the copy has may be all there is, by any start."""
    daemon, _ = let_go(make_daemon, make_agent, tmp_path / "copy", copied_after)
    shutil.rmtree(daemon.data / "wal")
    shutil.copytree(tmp_path / "copy", daemon.data / "wal")
    assert daemon.cli("fsck", str(daemon.data)).returncode == 2
    for _ in range(3):
        daemon.start()
        reply = daemon.reader.recover("s")
        assert reply is not None
        assert reply.text == "a secret"
        daemon.kill()
