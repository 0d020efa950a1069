"""Which processes the daemon watches, counted from outside by its pidfds (L1)."""

from __future__ import annotations

import os
import time
from pathlib import Path

from walld_client.wire import messages as wire
from wire_peer import PATIENCE_SECONDS, Daemon, Peer


def watched(daemon: Daemon) -> int:
    """How many processes the daemon holds a pidfd of."""
    found = 0
    for entry in Path(f"/proc/{daemon.process.pid}/fd").iterdir():
        try:
            found += "pidfd" in os.readlink(entry)
        except FileNotFoundError:
            continue
    return found


def becomes(daemon: Daemon, count: int) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while watched(daemon) != count:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_process_is_watched_for_its_connection_or_its_stream_and_no_longer(
    tmp_path: Path,
) -> None:
    daemon = Daemon(tmp_path)
    producer = os.urandom(16)
    try:
        assert becomes(daemon, 0), "those that asked whether it listens are gone"
        with Peer(daemon, "agent", producer) as peer:
            peer.send(wire.Start(1, 0, "r", "s"))
            peer.drain(1)
            with Peer(daemon, "agent", producer) as again:
                again.drain(1)
                assert watched(daemon) == 1, "one for the process, however many connections"
        with Peer(daemon, "query") as peer:
            peer.ask(wire.Status(1))
        assert watched(daemon) == 1, "no connection, and a stream that is not released"
        with Peer(daemon, "agent", producer) as peer:
            peer.send(wire.End(1, 1, clean=True), wire.Release(1, 2))
            peer.drain(1)
        assert becomes(daemon, 0)
    finally:
        daemon.stop()
