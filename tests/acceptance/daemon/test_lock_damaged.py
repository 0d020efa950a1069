"""LOCK is damaged beneath a running daemon, and no other one is there: it goes on."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from walld_client.wire import messages as wire
from wire_peer import Daemon, Peer

from walld.disk.lock_record import LOCK_NAME, lock_record, parse_lock


def _damage(lock: Path, how: str) -> None:
    raw = lock.read_bytes()
    if how == "an older one":
        told = parse_lock(raw, LOCK_NAME)
        assert told is not None
        raw = lock_record(told._replace(epoch=told.epoch - 1, synced_no=1))
    elif how == "zeros":
        raw = bytes(30) + raw[30:]
    elif how == "emptied":
        raw = b""
    else:
        at = int(how.removeprefix("byte "))
        raw = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
    with lock.open("r+b") as file:
        file.truncate(len(raw))
        file.write(raw)


def _text(daemon: Daemon) -> bytes:
    with Peer(daemon, "query") as peer:
        raw = peer.ask(wire.Recover(1, "latest", "s"))
    (found,) = msgspec.msgpack.decode(raw, type=list[wire.Recovered])
    return b"".join(one.text for one in found.segments)


@pytest.mark.parametrize(
    "how", ["byte 8", "byte 20", "byte 33", "byte 40", "emptied", "zeros", "an older one"]
)
def test_a_damaged_lock_ends_nobody(tmp_path: Path, how: str) -> None:
    Daemon(tmp_path).stop()  # the epoch of the next one is a digit on from it
    daemon = Daemon(tmp_path)
    lock = tmp_path / "data" / LOCK_NAME
    try:
        with Peer(daemon, "agent", os.urandom(16)) as peer:
            peer.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"one "))
            peer.drain(1, "synced")
            whole = lock.read_bytes()
            _damage(lock, how)
            peer.send(wire.Token(1, 2, b"two"))
            peer.drain(2, "synced")
            assert lock.read_bytes() == whole or os.major(lock.stat().st_dev) == 0
        daemon.logged("was damaged beneath this daemon")
    finally:
        daemon.stop()  # in order: 0
    again = Daemon(tmp_path)
    try:
        assert _text(again) == b"one two"
    finally:
        again.stop()
