"""Sessions where the disk is full, hangs or holds what this daemon cannot write to."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import walld_client
from daemon_process import PATIENCE_SECONDS, DaemonProcess, MakeDaemon, until
from ledger_world import newer
from strace import needs_strace
from walld_client.wire import messages as wire
from wire_peer import Peer

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")


@pytest.fixture
def small_disk(make_daemon: MakeDaemon) -> Iterator[DaemonProcess]:
    """A daemon, not started, whose data directory is a file system of 6 MiB."""
    daemon = make_daemon("--reclaim-seconds", "1")
    daemon.data.mkdir(mode=0o700, parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=6m,mode=0700", "tmpfs", str(daemon.data)]
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.decode().strip()}")
    try:
        yield daemon
    finally:
        daemon.kill()
        subprocess.run(["umount", "-l", str(daemon.data)], check=True)


@needs_root
def test_a_full_disk_takes_submits_from_its_reserve_and_refuses_the_rest(
    small_disk: DaemonProcess,
) -> None:
    daemon = small_disk.start()
    client = walld_client.connect(daemon.socket_path, timeout=PATIENCE_SECONDS)
    session = client.session("s")
    turn = session.submit("before", message_id="before")
    ballast = daemon.data / "ballast"
    free = os.statvfs(daemon.data)
    ballast.write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - 200_000)))
    large = client.reply("large")
    for _ in range(1500):
        large.token("x" * 1000)
    until(lambda: daemon.status()["state"] == "disk_full", "a status that says so")
    turn.completed()
    acknowledged = session.submit("in need", message_id="in need")
    with acknowledged.reply(stream_id="in need") as reply:
        reply.token("an answer in need")
        reply.end()
    assert session.turn(stream_id="in need").state == "assistant_started"
    with pytest.raises(walld_client.Refused, match="disk_full"):
        session.message("user", "refused")
    told = [one["content"] for one in session.messages() or []]
    assert told[:2] == ["before", "in need"], "what is asked is answered with the disk full"
    ballast.unlink()
    until(lambda: daemon.status()["state"] == "ok", "a daemon that goes on by itself")
    session.message("user", "after")
    before = session.events()
    daemon.restart()
    assert session.events() == before
    assert session.turn(acknowledged.turn_id).message_id == "in need"
    large.end()
    client.close()


@needs_strace
def test_a_submit_waits_its_time_and_then_says_that_nothing_is_known(
    make_daemon: MakeDaemon,
) -> None:
    daemon = make_daemon("--flush-bound-ms", "200")
    daemon.inject("fdatasync:delay_enter=10000000:when=2")
    daemon.start()
    client = walld_client.connect(daemon.socket_path, timeout=PATIENCE_SECONDS)
    session = client.session("s")
    begun = time.monotonic()

    def submit_some() -> None:
        for number in range(4):
            session.submit(f"q{number}", message_id=f"m{number}", timeout=1.0)

    with pytest.raises(walld_client.NotDurable) as unknown:
        submit_some()
    assert time.monotonic() - begun < 10, "its own time, not the disk's"
    told = unknown.value
    assert told.message_id in str(told)
    again = session.submit(f"q{told.message_id[1:]}", message_id=told.message_id, timeout=20)
    assert again.turn_id == told.turn_id, "the turn is kept, and is there once"
    turns = (session.state() or {})["turns"]
    assert [one["message_id"] for one in turns].count(told.message_id) == 1
    client.close()


def test_a_file_that_is_anothers_by_now_holds_up_no_other_session(daemon: DaemonProcess) -> None:
    """Written by a later version while this one runs: its lines stay in the log, all goes on."""
    session = daemon.reader.session("s")
    session.append_many([{"type": "app.x"}] * 60)
    until(lambda: daemon.status()["wal_live_bytes"] == 0, "a checkpoint")
    (path,) = (daemon.data / "sessions").rglob("events.jsonl")
    changed = path.with_suffix(".new")
    changed.write_bytes(newer(path.read_bytes(), 9))
    changed.rename(path)
    before = path.read_bytes()
    session.append_many([{"type": "app.x"}] * 60)
    other = daemon.reader.session("other")
    other.append_many([{"type": "app.x"}] * 60)
    other_file = path.parent.parent / "other" / "events.jsonl"
    until(other_file.exists, "a checkpoint of the other one")
    daemon.logged("stays in the log")
    assert daemon.process is not None
    assert daemon.process.poll() is None
    assert path.read_bytes() == before
    assert daemon.terminate() == 0
    assert path.read_bytes() == before


def test_a_flood_of_views_keeps_nobody_from_beginning_a_session(daemon: DaemonProcess) -> None:
    """Folding has a thread of its own, one view of each user at a time."""
    big = daemon.reader.session("big")
    for base in range(0, 10_000, 500):
        big.append_many([{"type": "app.x", "payload": {"n": base}}] * 500)
    stopped = threading.Event()

    def flood() -> None:
        with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
            while not stopped.is_set():
                peer.ask(wire.Project(1, "big", "transcript"))

    threads = [threading.Thread(target=flood) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(1)
        waited = []
        for number in range(10):
            begun = time.monotonic()
            daemon.reader.session(f"new {number}").message("user", "first")
            waited.append(time.monotonic() - begun)
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    assert sorted(waited)[5] < 0.5


def test_a_stop_does_not_wait_for_a_thousand_files(daemon: DaemonProcess) -> None:
    """What has no file yet is in the log. A fast machine makes them all within the time: then it
    is asked for twice as many.
    """
    count = many = 0
    for many in (1200, 2400, 4800, 9600):
        if daemon.process is None:
            daemon.start()
        while count < many:
            with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
                for number in range(count, count + 50):
                    peer.ask(wire.Append(1, f"s{number}", [wire.NewEntry("app.x", b"{}", "a")]))
            count += 50
        assert daemon.terminate() == 0
        if len(list((daemon.data / "sessions").rglob("events.jsonl"))) < many:
            break
    else:
        pytest.fail(f"it wrote the files of all {many}")
    daemon.start()
    assert len(daemon.reader.sessions()) == many
    assert [one["id"] for one in daemon.reader.session("s7").events()] == ["a"]


@needs_strace
def test_a_stop_writes_also_what_came_behind_a_checkpoint_that_was_begun(
    make_daemon: MakeDaemon,
) -> None:
    """50 lines begin one, which waits for its sync when one more line and the stop come."""
    daemon = make_daemon()
    daemon.inject("fdatasync:delay_enter=400000")
    daemon.start()
    session = daemon.reader.session("s")
    session.append_many([{"type": "note", "payload": {"n": n}} for n in range(50)])
    time.sleep(0.1)
    session.append("note", {"n": 50})
    assert daemon.process is not None
    children = Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children")
    os.kill(int(children.read_text().split()[0]), signal.SIGTERM)
    assert daemon.ended() == 0
    (file,) = daemon.data.glob("sessions/*/*/events.jsonl")
    assert len(file.read_bytes().splitlines()) == 1 + 51
