"""What is done with stays so where a partial cannot be read: `.gone` (FORMAT.md, "Partial")."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import anyio
import pytest
from damaged_directory import LOG, DamagedDirectory, begin, row, text
from unit.recovery.test_fragment_merge import failing
from virtual_daemon import Home, Peer, Virtual, living, recovered, run, until
from walld_client.wire import messages as wire

from walld.cli.inspect.offline import find
from walld.daemon.storage.partial_writer import PartialWriter
from walld.disk.real import RealDisk, RealFile
from walld.errors import FormatError
from walld.partials.tombstone_file import GONE_PATH, done_with, read_gone, write_down
from walld.wal.layout import Flag

NUMBERS = [(3, 5), (9, 9)]


@pytest.fixture
def made(tmp_path: Path) -> DamagedDirectory:
    return DamagedDirectory(tmp_path / "data")


def test_one_fault_takes_nothing(made: DamagedDirectory) -> None:
    with RealDisk(str(made.path)) as disk:
        write_down(disk, LOG, [3, 4, 5, 9])
        path = made.path / GONE_PATH
        whole = path.read_bytes()
        for bit in range(8 * len(whole)):
            hurt = bytearray(whole)
            hurt[bit // 8] ^= 1 << bit % 8
            path.write_bytes(hurt)
            assert read_gone(disk, LOG) == NUMBERS, bit
        assert read_gone(disk, b"another log 1234") == []


def test_a_damaged_one_is_kept_apart_and_another_is_written(made: DamagedDirectory) -> None:
    """At a start, and by whoever adds to it later."""
    contents = [b"", b"log", b"crc 00000000\n" * 2]
    with RealDisk(str(made.path)) as disk:
        for content in contents:
            (made.path / GONE_PATH).write_bytes(content)
            with pytest.raises(FormatError, match="damaged"):
                read_gone(disk, LOG)
            if content == contents[-1]:
                assert done_with(disk, LOG, [7], [], is_all=True) == ([], True)
                assert not (made.path / GONE_PATH).exists()
            else:
                write_down(disk, LOG, [7])
                assert read_gone(disk, LOG) == [(7, 7)]
    kept = [one for one in (made.path / "quarantine").iterdir() if one.suffix != ".note"]
    assert sorted(one.read_bytes() for one in kept) == sorted(contents)


def test_one_that_names_what_no_daemon_gives_is_damaged(made: DamagedDirectory) -> None:
    """The next number would not fit a record."""
    with RealDisk(str(made.path)) as disk:
        write_down(disk, LOG, [3, 1 << 63])
        with pytest.raises(FormatError, match="stream 9223372036854775808, limit"):
            read_gone(disk, LOG)


def test_no_tombstone_goes_before_it_is_written(tmp_path: Path, made: DamagedDirectory) -> None:
    """K7, also where there is no room for it, and however long."""
    made.segment()
    made.batch(row(7, 0, 1, begin("r"), text(1, "x"), flags=Flag.BEGIN))
    made.batch(row(7, 2, 2, flags=Flag.RESOLVED))
    partial = made.partial(7, begin("r"), text(1, "x"))
    made.close()
    failing = [True]

    def plant(virtual: Virtual) -> None:
        open_whole, replace_whole = virtual.disk.open, virtual.disk.replace

        def planted_open(path: str) -> RealFile:
            if path.endswith(partial.name) and path.startswith("partials/"):
                raise OSError(errno.EIO, "planted", path)
            return open_whole(path)

        def planted_replace(path: str, data: bytes) -> None:
            if path == GONE_PATH and failing:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            replace_whole(path, data)

        virtual.disk.open = planted_open  # type: ignore[method-assign]
        virtual.disk.replace = planted_replace  # type: ignore[method-assign]

    async def main() -> None:
        async with living(Home(tmp_path), plant) as virtual:
            await anyio.sleep(400)
            assert made.file(1).exists()
            failing.clear()
            await until(lambda: not made.file(1).exists())
            assert read_gone(virtual.disk, LOG) == [(7, 7)]

    run(main)


def test_what_was_released_stays_so_while_its_partial_cannot_be_removed(
    tmp_path: Path, made: DamagedDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tombstone goes with the log, and the partial is there at each start."""
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)  # what is kept here is not too old
    made.segment()
    made.batch(row(1, 0, 1, begin(), text(1, "a "), flags=Flag.BEGIN))
    made.batch()
    partial = made.partial(1, begin(), text(1, "a "))
    made.close()
    fails = failing(monkeypatch, RealDisk, "unlink", errno.EIO, "chat/s1")

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual, producer=b"p" * 16) as agent:
                agent.send(wire.Resume(wire.Start(1, 0, "s1", "chat"), 2, 1, 2))
                agent.send(wire.End(1, 2, True, "stop"), wire.Release(1, 3))
                await agent.drain("synced")
            await anyio.sleep(300)
            assert not made.file(1).exists()
        for _ in range(2):
            async with living(Home(tmp_path)) as virtual:
                assert await recovered(virtual, "s1") is None
                assert find(str(made.path)).replies == []
                await anyio.sleep(300)
        assert partial.exists()
        fails.clear()
        for _ in range(2):
            async with living(Home(tmp_path)) as virtual:
                await anyio.sleep(300)
                assert await recovered(virtual, "s1") is None
        assert not partial.exists()
        assert not (made.path / GONE_PATH).exists()

    run(main)


def test_no_tombstone_goes_before_the_partial_had_its_turn(
    tmp_path: Path, made: DamagedDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that is killed in between leaves it."""
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    made.segment()
    made.batch(row(1, 0, 1, begin(), text(1, "a "), flags=Flag.BEGIN))
    made.batch()
    made.partial(1, begin(), text(1, "a "))
    made.close()

    async def not_yet(partial_writer: PartialWriter) -> None:
        pass

    async def main() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(PartialWriter, "remove_unwanted", not_yet)
            async with living(Home(tmp_path)) as virtual:
                with Peer(virtual, producer=b"p" * 16) as agent:
                    agent.send(wire.Resume(wire.Start(1, 0, "s1", "chat"), 2, 1, 2))
                    agent.send(wire.End(1, 2, True, "stop"), wire.Release(1, 3))
                    await agent.drain("synced")
                await anyio.sleep(300)
                await virtual.crash()
        async with living(Home(tmp_path)) as virtual:
            assert await recovered(virtual, "s1") is None
            await until(lambda: not made.file(1).exists())

    run(main)
