"""The room kept aside for a full disk: only what holds it counts as one."""

from __future__ import annotations

import errno
import os
import threading
import zlib
from pathlib import Path
from random import Random

import anyio
import pytest
from virtual_daemon import Home, living, run

from walld import limits
from walld.disk.medium import PROFILES, Crashed, Storage
from walld.disk.real import RealDisk, RealFile
from walld.disk.reserve import RESERVE_NAME, Reserve
from walld.disk.simulated import SimulatedDisk

WRITES = [("write", RESERVE_NAME)] * 4
MADE = [("statvfs", ""), ("create", RESERVE_NAME), *WRITES, ("sync", RESERVE_NAME)]
LOOKED_AT = [("list", "")]


def calls(storage: Storage, *, is_there: bool = True) -> list[tuple[str, str]]:
    """What a start does about it, which is there afterwards, or not."""
    storage.trace = []
    assert Reserve(SimulatedDisk(storage)).make() is is_there
    assert (len(storage.files().get(RESERVE_NAME, b"")) == limits.RESERVE_BYTES) is is_there
    return storage.trace


def killed_while_it_was_made() -> Storage:
    storage = Storage(Random(1), PROFILES["ext4"])
    storage.crash_at = 5  # the second of its writes
    with pytest.raises(Crashed):
        Reserve(SimulatedDisk(storage)).make()
    storage.kill()
    assert 0 < len(storage.files()[RESERVE_NAME]) < limits.RESERVE_BYTES
    return storage


def test_it_is_made_once() -> None:
    storage = Storage(Random(1), PROFILES["ext4"])
    assert calls(storage) == LOOKED_AT + MADE
    assert calls(storage) == LOOKED_AT


def test_one_that_a_killed_daemon_left_short_is_made_anew() -> None:
    storage = killed_while_it_was_made()
    assert calls(storage) == [*LOOKED_AT, ("unlink", RESERVE_NAME), *MADE]
    assert calls(storage) == LOOKED_AT


def test_a_short_one_on_a_full_disk_is_none() -> None:
    """It says so, and is made once there is room."""
    storage = killed_while_it_was_made()
    storage.room = 2 * limits.RESERVE_BYTES - 1
    assert calls(storage, is_there=False)[-1] == ("statvfs", "")
    storage.room += 1
    assert calls(storage) == LOOKED_AT + MADE


def test_a_copy_with_a_hole_in_its_place_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / RESERVE_NAME
    path.touch(0o600)
    os.truncate(path, limits.RESERVE_BYTES)
    with RealDisk(str(tmp_path)) as disk:
        assert disk.list_dir("")[0].hollow
        assert Reserve(disk).make()
        (made,) = disk.list_dir("")
        assert (made.size, made.hollow) == (limits.RESERVE_BYTES, False)
        before = path.stat().st_ino
        assert Reserve(disk).make()
    assert path.stat().st_ino == before


def test_no_file_system_makes_it_smaller(tmp_path: Path) -> None:
    with RealDisk(str(tmp_path)) as disk:
        assert Reserve(disk).make()
    content = (tmp_path / RESERVE_NAME).read_bytes()
    assert len(zlib.compress(content, 9)) >= len(content) == limits.RESERVE_BYTES
    assert len({content[at : at + 4096] for at in range(0, len(content), 4096)}) == 256


def test_nobody_spends_it_while_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would be called made, and be gone: who lends has a thread of his own."""
    whole, spent, waited = RealFile.sync, list[bool](), list[bool]()
    with RealDisk(str(tmp_path)) as disk:
        reserve = Reserve(disk)
        spending = threading.Thread(target=lambda: spent.append(reserve.spend()))

        def sync(file: RealFile) -> None:
            spending.start()
            spending.join(0.2)
            waited.append(spending.is_alive())
            whole(file)

        monkeypatch.setattr(RealFile, "sync", sync)
        assert reserve.make()
        spending.join()
        assert (waited, spent) == ([True], [True])
        assert reserve.is_spent


def test_a_sync_that_fails_while_it_is_put_aside_again(tmp_path: Path) -> None:
    """W3: where the disk is not called full the reserve is there."""
    home = Home(tmp_path)

    async def main() -> None:
        async with living(home) as virtual:
            writer, engine = virtual.daemon.writer, virtual.engine
            writer._reserve.spend()
            engine.disk_full = True
            virtual.worker.seconds = 0.1
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(writer.has_room_again)
                await anyio.sleep(0.05)
                await writer.sync_failed("planted", errno.ENOSPC, writer.generation)
            assert engine.disk_full
            await anyio.sleep(5)
            assert not engine.disk_full
            assert (home.data / RESERVE_NAME).exists()

    run(main)


def test_what_was_lent_is_put_aside_again(tmp_path: Path) -> None:
    """Also where the writer never finds the disk full."""
    home, tries = Home(tmp_path), list[int]()

    def note() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OSError(errno.ENOSPC, "planted")

    async def main() -> None:
        async with living(home) as virtual:
            virtual.daemon.writer._reserve.lend(note)
            assert not (home.data / RESERVE_NAME).exists()
            await anyio.sleep(5)
            assert (home.data / RESERVE_NAME).exists()

    run(main)
