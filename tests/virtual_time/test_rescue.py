"""A start that can neither sync what a killed daemon wrote nor read it once more."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from virtual_daemon import Home, Peer, living, recovered, run, said, text_of, tokens
from walld_client.wire import messages as wire

from walld.disk.real import RealDisk, RealFile
from walld.wal.layout import segment_name


def fails(path: str) -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO), path)


def test_it_is_said_and_does_not_end_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are served; once it can be read it is written again."""
    home, bad = Home(tmp_path), f"wal/{segment_name(1)}"
    whole_reopen, whole_read, is_failing = RealDisk.reopen, RealFile.read_at, list[bool]()

    def reopen(disk: RealDisk, path: str) -> Any:
        if path == bad:
            is_failing.append(True)  # what the scan has read is not to be had again
            raise fails(path)
        return whole_reopen(disk, path)

    def read_at(file: RealFile, length: int, offset: int) -> bytes:
        if is_failing and file.path == bad:
            raise fails(file.path)
        return whole_read(file, length, offset)

    async def main() -> None:
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                virtual.syncer.seconds = 3.0  # killed before it is synced
                agent.send(wire.Start(1, 0, "r", "s"), *tokens(1, 10))
                await agent.drain("written")
                await virtual.crash()
        monkeypatch.setattr(RealDisk, "reopen", reopen)
        monkeypatch.setattr(RealFile, "read_at", read_at)
        async with living(home) as virtual:
            assert is_failing
            with Peer(virtual) as agent:
                agent.send(wire.Start(1, 0, "other", "s"), *tokens(1, 5))
                await agent.drain("synced")
            await anyio.sleep(5)
            assert not virtual.ended.is_set()
            assert virtual.daemon.maintenance.trouble
            is_failing.clear()
            await anyio.sleep(5)
            assert virtual.daemon.maintenance.trouble is None
            assert text_of(await recovered(virtual, "r")) == said(10)
            await virtual.crash()
        async with living(home) as virtual:
            assert text_of(await recovered(virtual, "r")) == said(10)

    run(main)


def test_one_that_never_can_be_read_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, bad = Home(tmp_path), f"wal/{segment_name(1)}"
    whole_reopen, whole_read = RealDisk.reopen, RealFile.read_at
    is_failing, until = list[bool](), [1 << 40]

    def reopen(disk: RealDisk, path: str) -> Any:
        if path == bad:
            is_failing.append(True)
            raise fails(path)
        return whole_reopen(disk, path)

    def read_at(file: RealFile, length: int, offset: int) -> bytes:
        if is_failing and file.path == bad and offset < until[0]:
            raise fails(file.path)
        return whole_read(file, length, offset)

    async def main() -> None:
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                virtual.syncer.seconds = 3.0
                agent.send(wire.Start(1, 0, "first", "s"), *tokens(1, 10))
                await agent.drain("written")
                size = (home.data / bad).stat().st_size
                agent.send(wire.Start(2, 0, "r", "s"), wire.Token(2, 1, b"of the other"))
                await agent.drain("written")
                await virtual.crash()
        monkeypatch.setattr(RealDisk, "reopen", reopen)
        monkeypatch.setattr(RealFile, "read_at", read_at)
        async with living(home) as virtual:
            until[0] = size
            where = virtual.engine.registry.by_key[os.getuid(), "r"].where
            before = tuple(where)
            await anyio.sleep(5)
            assert tuple(where) != before, "it is written again"
            assert virtual.daemon.maintenance.trouble, "of the first"
            await virtual.crash()

    run(main)
