"""A reply in the log under two numbers: it is one again, or nothing of it is let go."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from damaged_directory import LOG, DamagedDirectory, begin, row, text
from virtual_daemon import Home, asked, living, recovered, run, text_of
from walld_client.wire import messages as wire

from walld.disk.real import RealDisk
from walld.partials.store import PartialStore
from walld.partials.tombstone_file import done_with, read_gone
from walld.wal.layout import Flag

EARLIER, LATER = text(1, "a ", "b ", "c "), text(4, "d ", "e ")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DamagedDirectory:
    """An earlier part, which a start could not read, and what its producer said to that daemon."""
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)  # what is kept here is not too old
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 3, begin(), EARLIER, flags=Flag.BEGIN))
    made.batch(row(9, 0, 0, begin(), flags=Flag.BEGIN))
    made.batch(row(9, 4, 5, LATER))
    made.batch()
    return made


def said(home: Home, lives: int = 3) -> list[bytes]:
    """What is served at the beginning and at the end of each life."""
    told: list[bytes] = []

    async def main() -> None:
        for _ in range(lives):
            async with living(home) as virtual:
                told.append(text_of(await recovered(virtual, "s1")))
                await anyio.sleep(120)
                told.append(text_of(await recovered(virtual, "s1")))

    run(main)
    return told


def failing(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, code: int, ends: str
) -> list[bool]:
    """A verb that fails for paths that end so, for as long as the list is not empty."""
    whole, fails = getattr(owner, name), [True]

    def planted(self: Any, *given: Any, **named: Any) -> Any:
        if fails and any(str(one).endswith(ends) for one in given):
            raise OSError(code, os.strerror(code), ends)
        return whole(self, *given, **named)

    monkeypatch.setattr(owner, name, planted)
    return fails


def test_also_where_the_later_part_has_a_partial(made: DamagedDirectory, tmp_path: Path) -> None:
    """Which is no sign that they were joined before."""
    made.partial(9, begin(), LATER)
    made.close()
    assert said(Home(tmp_path)) == [b"a b c d e "] * 6


def test_three_parts_of_which_the_one_in_the_middle_has_a_partial(
    made: DamagedDirectory, tmp_path: Path
) -> None:
    """Its owner had come back to two starts that could not read what stood before."""
    made.batch(row(11, 0, 0, begin(), flags=Flag.BEGIN))
    made.batch(row(11, 6, 6, text(6, "f ")))
    made.batch()
    made.partial(9, begin(), LATER)
    made.close()
    assert said(Home(tmp_path)) == [b"a b c d e f "] * 6


def test_a_partial_that_cannot_be_read_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier part in the log goes on behind it."""
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 4, 5, begin(), LATER, flags=Flag.BEGIN))
    made.batch(row(9, 0, 0, begin(), flags=Flag.BEGIN))
    made.batch(row(9, 6, 7, text(6, "f ", "g ")))
    made.batch()
    kept = made.partial(1, begin(), EARLIER)
    made.close()
    before = kept.read_bytes()
    fails = failing(monkeypatch, RealDisk, "open", errno.EIO, "/chat/s1")

    async def main() -> None:
        async with living(Home(tmp_path)):
            await anyio.sleep(60)

    run(main)
    assert kept.read_bytes() == before
    fails.clear()
    assert said(Home(tmp_path), 2)[-1] == b"a b c d e f g "


def test_what_finds_no_room_is_kept_apart(
    made: DamagedDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its segment goes: served or not, its bytes are there, and "nothing" is not proven."""
    made.close()
    fails = failing(monkeypatch, PartialStore, "write", errno.ENOSPC, "s1")

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            assert text_of(await recovered(virtual, "s1")) == b"d e "
            assert virtual.daemon.status.doubt is not None
            fails.clear()
            await anyio.sleep(120)
        async with living(Home(tmp_path)) as virtual:
            assert virtual.daemon.status.doubt is not None

    run(main)
    assert all(body in (made.path / "quarantine/stream-1").read_bytes() for body in (b"a ", b"c "))


def test_the_partial_of_another_reply_is_not_joined_to_it(
    made: DamagedDirectory, tmp_path: Path
) -> None:
    """Released under the same id before, and its file is not unlinked yet."""
    made.batch(row(5, 1, 1, flags=Flag.RELEASED))
    made.partial(5, begin(), text(1, "RELEASED "))
    made.close()
    assert not any(b"RELEASED" in one for one in said(Home(tmp_path)))


def test_the_partial_of_a_later_number_alone_is_not_lost(tmp_path: Path) -> None:
    """Nothing tells that it goes on with the one in the log: it is set aside, not written over."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 3, begin(), EARLIER, flags=Flag.BEGIN))
    made.batch()
    made.partial(9, begin(), LATER)
    made.close()
    said(Home(tmp_path), 2)
    content = b"".join(path.read_bytes() for path in made.path.rglob("*") if path.is_file())
    assert b"d " in content
    assert b"e " in content


# --- what is done with ----------------------------------------------------------------------------


def test_a_list_of_what_is_done_with_that_cannot_be_read_takes_no_new_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any number may be in it: new ones leap, and "nothing" is not proven."""
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch()
    made.partial(7, begin("old"), text(1, "x "))
    with RealDisk(str(made.path)) as disk:
        assert done_with(disk, LOG, [8, 9], [], is_all=False) == ([], True)
        assert read_gone(disk, LOG) == [(8, 9)]
    made.close()
    fails = failing(monkeypatch, RealDisk, "open", errno.EIO, "partials/.gone")

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            assert virtual.daemon.status.doubt is not None
            assert virtual.engine.registry.last_no > 9
            fails.clear()
        async with living(Home(tmp_path)) as virtual:
            assert await recovered(virtual, "old") is not None
            assert await asked(virtual, wire.HasPartial(1, "nobody's")) is False

    run(main)
