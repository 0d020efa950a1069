"""Released bytes are held for as long as the operator said, each reply's for itself."""

from __future__ import annotations

import os
import time
from pathlib import Path

from walld_client.wire import messages as wire
from wire_peer import PATIENCE_SECONDS, Daemon, Peer

HOLD_SECONDS = 3.0
RECLAIM_SECONDS = 2.0


class _Holding(Daemon):
    """The same daemon, with two settings from its environment."""

    def __init__(self, home: Path) -> None:
        os.environ["WALLD_RELEASE_HOLD_SECONDS"] = f"{HOLD_SECONDS:g}"
        os.environ["WALLD_RECLAIM_SECONDS"] = f"{RECLAIM_SECONDS:g}"
        try:
            super().__init__(home)
        finally:
            del os.environ["WALLD_RELEASE_HOLD_SECONDS"], os.environ["WALLD_RECLAIM_SECONDS"]


def is_on_disk(home: Path, text: bytes) -> bool:
    found = False
    for path in (home / "data/wal").iterdir():
        try:
            found |= text in path.read_bytes()
        except FileNotFoundError:
            continue  # unlinked meanwhile
    return found


def test_the_hold_counts_from_each_release_not_from_the_first_of_its_segment(
    tmp_path: Path,
) -> None:
    daemon = _Holding(tmp_path)
    try:
        with Peer(daemon, "agent", os.urandom(16)) as peer:
            # Something live in the segment, so that it is not left at once.
            peer.send(wire.Start(1, 0, "live", "s"), wire.Token(1, 1, b"x" * 100))
            for number, text, pause in ((2, b"first" * 999, 1.5), (3, b"second" * 999, 0.0)):
                peer.send(wire.Start(number, 0, f"r{number}", "s"), wire.Token(number, 1, text))
                peer.drain(number)
                released = time.monotonic()
                peer.send(wire.End(number, 2, clean=True), wire.Release(number, 3))
                time.sleep(pause)
            while is_on_disk(tmp_path, b"secondsecond"):
                assert time.monotonic() - released < PATIENCE_SECONDS
                time.sleep(0.05)
            assert time.monotonic() - released >= HOLD_SECONDS
    finally:
        daemon.stop()
