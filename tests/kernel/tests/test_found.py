"""What the loops found, each on a clock that jumps, so that it is seen at once and every time."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from virtual_daemon import Home, Peer, asked, living, peers_named, recovered, run, tokens, until
from wal_files import LogWriter
from walld_client.wire import messages as wire


def test_a_partial_whose_name_could_not_be_synced_does_not_come_back_once_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lies under its name, and the daemon calls it not made: `resolve` does not remove it."""
    home = Home(tmp_path, reclaim_seconds="0")
    failed: list[str] = []

    async def main() -> None:
        async with living(home) as virtual:
            sync_dir = virtual.disk.sync_dir

            def fail_once(path: str) -> None:
                if path.count("/") == 2 and not failed:
                    failed.append(path)
                    raise OSError(errno.EIO, os.strerror(errno.EIO), path)
                sync_dir(path)

            monkeypatch.setattr(virtual.disk, "sync_dir", fail_once)
            with Peer(virtual) as peer:
                peer.send(wire.Start(1, 0, "r", "s"), *tokens(1, 3))
                await peer.drain("synced")
            await until(lambda: failed, 120.0)
            assert await asked(virtual, wire.Resolve(1, "r", 3)) is True
            await anyio.sleep(5.0)
        async with living(home) as again:
            assert await recovered(again, "r") is None

    with peers_named(monkeypatch, 0):
        run(main)


def test_a_reserve_that_cannot_be_unlinked_does_not_end_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk that is read-only or out of reach besides: the daemon has the only copy (P8)."""
    home = Home(tmp_path)

    async def main() -> None:
        async with living(home) as virtual:
            unlink = virtual.disk.unlink

            def refuse(path: str) -> None:
                if path == "reserve" and virtual.faults.stuck:
                    raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
                unlink(path)

            monkeypatch.setattr(virtual.disk, "unlink", refuse)
            with Peer(virtual) as peer:
                peer.send(wire.Start(1, 0, "r", "s"))
                await peer.drain("synced")
                virtual.faults.stuck["write"] = errno.ENOSPC
                peer.send(*tokens(1, 3))
                await anyio.sleep(5.0)
                virtual.faults.stuck.clear()
                await peer.drain("synced")
            reply: Any = await recovered(virtual, "r")
            assert reply is not None
            assert reply.last_seq == 3

    run(main)


def test_a_resolved_reply_is_not_answered_by_a_start_that_has_yet_to_remove_its_partial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tombstone is in the log, its partial still on disk: the first second says it is there."""
    home = Home(tmp_path)

    async def main() -> None:
        async with living(home) as virtual:
            with Peer(virtual) as peer:
                peer.send(wire.Start(1, 0, "r", "s"), *tokens(1, 3))
                await peer.drain("synced")
            with Peer(virtual) as other:  # keeps the segment, and the tombstone in it
                other.send(wire.Start(1, 0, "alive", "s"), *tokens(1, 3))
                await other.drain("synced")
                kept = virtual.engine.partials
                await until(lambda: list(kept.all_names()), 120.0)
                unlink = virtual.disk.unlink

                def refuse(path: str) -> None:
                    if path.startswith("partials/"):
                        raise OSError(errno.EIO, os.strerror(errno.EIO), path)
                    unlink(path)

                monkeypatch.setattr(virtual.disk, "unlink", refuse)
                with Peer(virtual, "query") as asking:
                    asking.send(wire.Resolve(1, "r", 3))
                    await asking.hear(wire.Error)
                await virtual.crash()
        async with living(home) as again:
            first = await recovered(again, "r")
            await anyio.sleep(5.0)
            assert await recovered(again, "r") == first

    with peers_named(monkeypatch, 0):
        run(main)


def test_a_segment_that_was_given_up_and_never_synced_is_not_called_damage() -> None:
    """Its sync failed, its batch was written again, the cut took its header: nothing is missing."""
    log = LogWriter()
    log.segment()
    log.batch(b"synced")
    given_up = log.segment()
    log.batch(b"x" * 3000)
    log.segment(next_no=2)
    log.batch(b"x" * 3000)
    log.batch(b"later", synced_no=2)
    file = log.files[given_up]
    assert isinstance(file, bytearray)
    file[:64] = bytes(64)
    found, verdict = log.read()
    assert sorted(found) == [1, 2, 3]
    assert verdict.corrupt == []
