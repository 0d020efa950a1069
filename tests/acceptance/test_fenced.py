"""A daemon that was frozen while another took its directory acknowledges nothing (W4)."""

from __future__ import annotations

import os
from pathlib import Path

from walld_client.wire import messages as wire
from wire_peer import PATIENCE_SECONDS, Daemon, Peer


def test_an_owner_whose_epoch_was_raised_stops_and_says_nothing_of_the_write(
    tmp_path: Path,
) -> None:
    daemon = Daemon(tmp_path)
    try:
        with Peer(daemon, "agent", os.urandom(16)) as peer:
            peer.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"mine"))
            peer.drain(1)
            # What a new owner does first, where the lock of the old one no longer holds (NFS).
            lock = tmp_path / "data/LOCK"
            record = lock.read_bytes()
            raised = record.replace(b"1\nlog", b"2\nlog")
            assert raised != record
            with lock.open("r+b") as file:
                file.write(raised)
            peer.send(wire.Token(1, 2, b"whose?"), wire.Drain(2, "written"))
            told = list(iter(peer.hear, None))
        assert not [message for message in told if isinstance(message, wire.Drained)], told
        assert daemon.process.wait(PATIENCE_SECONDS) == 3
        assert lock.read_bytes() == raised, "the new owner's LOCK is not touched"
    finally:
        if daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait()
        daemon._log.close()
