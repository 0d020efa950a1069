"""A daemon that was frozen while another took its directory acknowledges nothing, and changes
nothing that is not its own any more (W4).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemon_process import environment
from walld_client.wire import messages as wire
from wire_peer import PATIENCE_SECONDS, Daemon, Peer

from walld.disk.lock_record import LOCK_NAME, lock_record, parse_lock

_AGENT = """
import sys, time, walld_client
client = walld_client.connect(socket=sys.argv[1])
client.session("s").append("note", {"n": 1})
reply = client.reply("s", stream_id="r")
reply.token("mine")
assert reply.drain(20, "synced")
print("said", flush=True)
time.sleep(600)
"""


@contextmanager
def _daemon(home: Path) -> Iterator[Daemon]:
    """One that may end by itself."""
    daemon = Daemon(home)
    try:
        yield daemon
    finally:
        if daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait()


def _raise_epoch(home: Path) -> bytes:
    """What a new owner does first, where the lock of the old one no longer holds (NFS)."""
    lock = home / "data/LOCK"
    told = parse_lock(lock.read_bytes(), LOCK_NAME)
    assert told is not None
    raised = lock_record(told._replace(epoch=told.epoch + 1))
    with lock.open("r+b") as file:
        file.write(raised)
    return raised


def test_an_owner_whose_epoch_was_raised_stops_and_says_nothing_of_the_write(
    tmp_path: Path,
) -> None:
    with _daemon(tmp_path) as daemon:
        with Peer(daemon, "agent", os.urandom(16)) as peer:
            peer.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"mine"))
            peer.drain(1)
            raised = _raise_epoch(tmp_path)
            peer.send(wire.Token(1, 2, b"whose?"), wire.Drain(2, "written"))
            told = list(iter(peer.hear, None))
        assert not [message for message in told if isinstance(message, wire.Drained)], told
        assert daemon.process.wait(PATIENCE_SECONDS) == 3
        assert (tmp_path / "data/LOCK").read_bytes() == raised, "the new owner's is not touched"


def test_one_that_thaws_with_work_to_do_changes_no_file_and_stops(tmp_path: Path) -> None:
    """Its agent died meanwhile: a partial was made, and a line of its session written."""

    def files() -> dict[Path, bytes]:
        found = (path for path in (tmp_path / "data").rglob("*") if "wal" not in path.parts)
        return {path: path.read_bytes() if path.is_file() else b"" for path in found}

    with _daemon(tmp_path) as daemon:
        command = [sys.executable, "-c", _AGENT, daemon.socket_path]
        agent = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE)
        with agent:
            assert agent.stdout is not None
            assert agent.stdout.readline() == b"said\n"
            daemon.process.send_signal(signal.SIGSTOP)
            agent.kill()
        _raise_epoch(tmp_path)
        before = files()
        daemon.process.send_signal(signal.SIGCONT)
        assert daemon.process.wait(PATIENCE_SECONDS) == 3
        assert files() == before
        daemon.logged("fenced: another daemon owns")


def test_one_that_is_still_starting_stops_too(tmp_path: Path) -> None:
    with _daemon(tmp_path) as daemon:
        _raise_epoch(tmp_path)
        assert daemon.process.wait(PATIENCE_SECONDS) == 3


def test_one_that_is_told_to_stop_with_nothing_to_write_says_so_too(tmp_path: Path) -> None:
    """It ended as in order, though it could not say so in LOCK."""
    with _daemon(tmp_path) as daemon:
        with Peer(daemon, "query") as peer:
            peer.ask(wire.List(1))  # once the log is read
        daemon.process.send_signal(signal.SIGSTOP)
        _raise_epoch(tmp_path)
        daemon.process.send_signal(signal.SIGTERM)
        daemon.process.send_signal(signal.SIGCONT)
        assert daemon.process.wait(PATIENCE_SECONDS) == 3


def test_one_that_nobody_speaks_to_notices_too(tmp_path: Path) -> None:
    """It went on for ever, and answered what it knew."""
    with _daemon(tmp_path) as daemon:
        with Peer(daemon, "query") as peer:
            peer.ask(wire.List(1))  # once the log is read
        _raise_epoch(tmp_path)
        assert daemon.process.wait(PATIENCE_SECONDS) == 3
