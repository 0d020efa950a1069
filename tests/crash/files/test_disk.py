"""A disk that is full, that fails, that hangs: agents never block, nothing acknowledged is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import PATIENCE_SECONDS, DaemonProcess, until
from strace import needs_strace

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")


@pytest.fixture
def small_disk(make_daemon: Callable[..., DaemonProcess]) -> Iterator[DaemonProcess]:
    """A daemon, not started, whose data directory is a file system of 6 MiB."""
    daemon = make_daemon("--reclaim-seconds", "1")
    data = daemon.data
    data.mkdir(mode=0o700, parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=6m,mode=0700", "tmpfs", str(data)]
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.decode().strip()}")
    try:
        yield daemon
    finally:
        daemon.kill()
        subprocess.run(["umount", "-l", str(data)], check=True)


@needs_root
def test_a_full_disk_takes_ends_from_its_reserve_and_goes_on_by_itself(
    small_disk: DaemonProcess,
) -> None:
    daemon = small_disk.start()
    ballast = daemon.data / "ballast"
    client = walld_client.connect(daemon.socket_path, timeout=PATIENCE_SECONDS)
    small, large = client.reply("small"), client.reply("large")
    small.token("it ends while the disk is full")
    assert small.drain(PATIENCE_SECONDS, "synced")
    free = os.statvfs(daemon.data)
    ballast.write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - 300_000)))
    piece = "x" * 1000
    slowest = 0.0
    for _ in range(2000):
        begun = time.perf_counter()
        large.token(piece)
        slowest = max(slowest, time.perf_counter() - begun)
    until(lambda: daemon.status()["state"] == "disk_full", "a status that says so")
    reserve = daemon.data / "reserve"
    until(lambda: not reserve.exists(), "a reserve that gives its room to what must go on")
    small.end()
    until(lambda: client.recover("small") is None, "the release is taken with the disk full")
    assert daemon.status()["state"] == "disk_full"
    assert client.recover("large") is not None, "queries are answered with the disk full"
    ballast.unlink()
    until(lambda: daemon.status()["state"] == "ok", "a daemon that goes on by itself")
    assert (daemon.data / "reserve").stat().st_size == 1024 * 1024
    assert large.drain(PATIENCE_SECONDS, "synced")
    reply = client.recover("large")
    assert reply is not None
    assert reply.text == piece * 2000, "nothing is lost within the bounds of memory"
    assert not reply.gaps
    assert slowest < 5.0, "no call waited for the disk"
    large.end()
    client.close()


@needs_root
@pytest.mark.parametrize("reserve", ["whole", "spent"])
def test_a_start_on_a_full_disk_serves_what_is_there(
    small_disk: DaemonProcess, reserve: str
) -> None:
    """Its first segment has the room of the reserve, and comes later where that is spent: a full
    disk is no reason to hide a reply.
    """
    daemon = small_disk.start()
    client = walld_client.connect(daemon.socket_path, timeout=PATIENCE_SECONDS)
    reply = client.reply("s")
    reply.token("said before")
    assert reply.drain(PATIENCE_SECONDS, "synced")
    session = client.session("t")
    turn = session.submit("a question")
    daemon.kill()
    if reserve == "spent":
        (daemon.data / "reserve").unlink()
    with open(daemon.data / "ballast", "wb", buffering=0) as ballast, suppress(OSError):
        while ballast.write(bytes(4096)):
            pass
    assert os.statvfs(daemon.data).f_bavail == 0
    daemon.start()
    until(lambda: daemon.status()["state"] == "disk_full", "a start that gets to its end")
    told = client.recover("s")
    assert told is not None
    assert told.text == "said before"
    assert client.recover("nobody") is None
    assert [one["content"] for one in session.messages() or []] == ["a question"]
    if reserve == "whole":
        turn.completed()
    else:
        with pytest.raises(walld_client.Refused, match="disk_full"):
            turn.completed()
        with pytest.raises(walld_client.Refused, match="disk_full"):
            client.delete("t")
    with pytest.raises(walld_client.Refused, match="disk_full"):
        session.append("app.note", {})
    reply.token(", and meanwhile")
    (daemon.data / "ballast").unlink()
    until(lambda: daemon.status()["state"] == "ok", "a daemon that goes on by itself")
    assert (daemon.data / "reserve").exists()
    session.append("app.note", {}, synced=True)
    if reserve == "spent":
        turn.completed()
    assert reply.drain(PATIENCE_SECONDS, "synced")
    told = client.recover("s")
    assert told is not None
    assert (told.text, told.gaps) == ("said before, and meanwhile", [])
    reply.end()
    client.close()


@needs_root
def test_a_start_without_any_room_refuses_to_resolve_and_ends_when_told(
    small_disk: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """What it cannot write down it does not do; who takes nothing waits for no room to stop."""
    daemon = small_disk.start()
    agent = make_agent(daemon)
    agent.do("r = client.reply('s', stream_id='r'); r.token('left'); r.drain(20, level='synced')")
    daemon.kill()
    agent.kill()
    (daemon.data / "reserve").unlink()
    with open(daemon.data / "ballast", "wb", buffering=0) as ballast, suppress(OSError):
        while ballast.write(bytes(4096)):
            pass
    for _ in range(2):
        daemon.start()
        until(lambda: daemon.status()["state"] == "disk_full", "a start that gets to its end")
        told = daemon.reader.recover("s")
        assert told is not None
        assert told.text == "left"
        with pytest.raises(walld_client.Refused, match="disk_full"):
            daemon.reader.resolve("r")
        assert daemon.terminate() == 0
    daemon.start()
    until(lambda: daemon.status()["state"] == "disk_full", "a start that gets to its end")
    (daemon.data / "ballast").unlink()
    until(lambda: daemon.status()["state"] == "ok", "a daemon that goes on by itself")
    told = daemon.reader.recover("s")
    assert told is not None
    daemon.reader.resolve("r")
    assert daemon.reader.recover("s") is None


@needs_root
def test_a_start_on_a_disk_that_is_full_of_what_nobody_needs_makes_room(
    small_disk: DaemonProcess,
) -> None:
    """Its own log: what frees it is all there."""
    # What is released stays until the last start.
    small_disk.options += ["--reclaim-seconds", "1000", "--release-hold-seconds", "1000"]
    daemon = small_disk.start()
    client = walld_client.connect(daemon.socket_path, timeout=PATIENCE_SECONDS)
    large = client.reply("large")
    for _ in range(1500):
        large.token("x" * 1000)
    assert large.drain(PATIENCE_SECONDS, "synced")
    daemon.kill()
    daemon.start()
    small = client.reply("small")
    small.token("said before")
    large.end()
    assert small.drain(PATIENCE_SECONDS, "synced")
    first, second = sorted((daemon.data / "wal").iterdir())
    daemon.kill()
    (daemon.data / "reserve").unlink()
    with open(daemon.data / "ballast", "wb", buffering=0) as ballast, suppress(OSError):
        while ballast.write(bytes(4096)):
            pass
    assert first.exists()
    small_disk.options[-1] = "0"
    daemon.start()
    until(lambda: not first.exists(), "a segment that goes")
    assert second.exists()
    small.end()
    assert small.drain(PATIENCE_SECONDS, "synced")
    assert client.recover("small") is None
    assert client.recover("large") is None
    client.close()


@needs_strace
def test_a_failed_sync_is_never_repeated_on_its_file(
    make_daemon: Callable[..., DaemonProcess],
) -> None:
    daemon = make_daemon()
    # The first sync of a batch fails: LOCK and the start's own files are synced by fsync.
    daemon.inject("fdatasync:error=EIO:when=3")
    daemon.start()
    client = walld_client.connect(daemon.socket_path, timeout=PATIENCE_SECONDS)
    reply = client.reply("s")
    sent = []
    for number in range(30):
        sent.append(f"word {number} ")
        reply.token(sent[-1])
        assert reply.drain(PATIENCE_SECONDS, "synced")
        assert reply.durable_seq == number + 1
    daemon.logged("disk trouble: sync up to batch")
    daemon.logged("written again")
    assert daemon.status()["state"] == "ok"
    stream_id = reply.stream_id
    daemon.kill()
    daemon.wrapper = []
    daemon.start()
    got = client.recover(stream_id=stream_id)
    assert got is not None
    assert got.text == "".join(sent)
    status = daemon.status()
    assert status["lost_acked"] == 0
    assert status["start"]["corrupt"] == 0, "batches written again keep their numbers"
    reply.end()
    client.close()


@needs_strace
def test_a_failed_write_moves_on_to_a_new_segment(
    make_daemon: Callable[..., DaemonProcess],
) -> None:
    daemon = make_daemon()
    daemon.inject("pwrite64:error=EIO:when=12..13")
    daemon.start()
    client = walld_client.connect(daemon.socket_path, timeout=PATIENCE_SECONDS)
    reply = client.reply("s")
    sent = []
    for number in range(30):
        sent.append(f"word {number} ")
        reply.token(sent[-1])
        assert reply.drain(PATIENCE_SECONDS, "written")
    daemon.logged("disk trouble: write")
    daemon.kill()
    daemon.wrapper = []
    daemon.start()
    got = client.recover(stream_id=reply.stream_id)
    assert got is not None
    assert got.text == "".join(sent)
    assert not got.gaps
    assert daemon.status()["start"]["corrupt"] == 0
    reply.end()
    client.close()


@needs_strace
def test_a_sync_that_hangs_holds_up_neither_writes_nor_agents_nor_queries(
    make_daemon: Callable[..., DaemonProcess],
) -> None:
    daemon = make_daemon("--flush-bound-ms", "200")
    daemon.inject("fdatasync:delay_enter=3000000")
    daemon.start()  # each: `when` counts by thread
    client = walld_client.connect(daemon.socket_path, timeout=PATIENCE_SECONDS)
    reply = client.reply("s")
    reply.token("first ")
    begun = time.monotonic()
    until(lambda: daemon.status()["state"] == "degraded", "a status that says so")
    written = daemon.status()["written_no"]
    reply.token("second ")
    assert reply.drain(PATIENCE_SECONDS, "written"), "write(2) goes on while a sync hangs"
    assert daemon.status()["written_no"] > written
    got = client.recover("s")
    assert got is not None
    assert got.text == "first second "
    assert reply.durable_seq < 2, "and says nothing it does not know"
    assert reply.drain(PATIENCE_SECONDS, "synced")
    assert time.monotonic() - begun > 1.0, "the sync was to hang"
    until(lambda: daemon.status()["state"] == "ok", "a disk that answers again")
    reply.end()
    client.close()


@needs_strace
def test_a_write_that_hangs_pauses_agents_and_answers_whoever_asks(
    make_daemon: Callable[..., DaemonProcess],
) -> None:
    """The queue fills to its bound and no further; new connections still learn what is wrong."""
    daemon = make_daemon("--flush-bound-ms", "200")
    daemon.inject("pwrite64:delay_enter=8000000:when=8")
    daemon.start()
    client = walld_client.connect(daemon.socket_path, timeout=PATIENCE_SECONDS)
    reply = client.reply("s")
    piece = "y" * 250_000
    slowest = 0.0
    for _ in range(400):  # 100 MB against a queue of 64 MiB and a ring of 16 MiB
        begun = time.perf_counter()
        reply.token(piece)
        slowest = max(slowest, time.perf_counter() - begun)
        time.sleep(0.002)
    status = daemon.status()
    assert status["state"] == "degraded"
    assert 0 < status["queue_bytes"] <= 64 * 1024 * 1024
    assert slowest < 5.0, "no call waited for the disk"
    until(lambda: daemon.status()["state"] == "ok", "a disk that answers again")
    assert reply.drain(PATIENCE_SECONDS, "written")
    got = client.recover("s")
    assert got is not None
    missing = sum(gap.last_seq - gap.first_seq + 1 for gap in got.gaps)
    assert len(got.text) == (400 - missing) * len(piece), "what is missing is a gap, not a silence"
    assert missing == client.stats().dropped
    reply.end()
    client.close()


def fill_up(path: Path) -> None:
    """No room is left, also once what was removed just now has given its blocks back."""
    size = -1
    while path.touch() or path.stat().st_size > size:
        size = path.stat().st_size
        with open(path, "ab", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                pass
        os.sync()


@needs_root
def test_a_start_that_cannot_note_that_the_log_was_replaced_says_what_to_do(
    small_disk: DaemonProcess, make_daemon: Callable[..., DaemonProcess]
) -> None:
    """Nothing may name the log that was there any less before it is noted that it is gone."""
    other, daemon = make_daemon(), small_disk
    for one in (other, daemon):
        one.start()
        client = walld_client.connect(one.socket_path, timeout=PATIENCE_SECONDS)
        for session in ("in the first segment", "in the second"):
            reply = client.reply(session)
            reply.token("of one log")
            assert reply.drain(PATIENCE_SECONDS, "synced")
            if session == "in the first segment":
                one.restart()
        one.kill()
        client.close(0)
    assert len(other.segments()) > 1, "one alone of another log proves nothing"
    for path in daemon.segments():
        path.unlink()
    for path in other.segments():
        shutil.copy(path, daemon.data / "wal")
    (daemon.data / "reserve").unlink()
    fill_up(ballast := daemon.data / "ballast")
    lock = (daemon.data / "LOCK").read_bytes()
    daemon.start(wait=False)
    assert daemon.ended() == 1
    said = daemon.log_text().splitlines()[-1]
    assert f"{daemon.data}/quarantine/wal: " in said
    assert "make room" in said
    assert "Traceback" not in daemon.log_text()
    assert (daemon.data / "LOCK").read_bytes() == lock
    ballast.unlink()
    daemon.start()
    with pytest.raises(walld_client.Unavailable, match="tell of damage"):
        daemon.reader.recover("nobody")
