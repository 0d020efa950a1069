"""A segment that cannot be read: who may have lost something in it, for as long as that is so."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from damaged_directory import DamagedDirectory, begin, ended, row, text
from virtual_daemon import Home, Peer, living, recovered, run, text_of
from walld_client.wire import messages as wire

from walld.cli import main
from walld.cli.inspect.offline import find
from walld.daemon.transport import credentials
from walld.disk.real import RealDisk
from walld.wal.layout import Flag, segment_name

Told = tuple[bytes, list[tuple[int, int, str]]]


pytestmark = pytest.mark.usefixtures("no_daemon_writes_it")


def made_at(path: Path) -> DamagedDirectory:
    """s1 stands in three segments, s2 has ended in the first, s4 began and said no more there.

    So did s5, whose owner is this process: the log keeps all its segments.
    """
    made = DamagedDirectory(path)
    made.segment()
    fd = os.pidfd_open(os.getpid())
    owner = credentials.describe(os.getpid(), fd, credentials.boot_id())
    os.close(fd)
    held = msgspec.structs.replace(begin("s5"), owner=owner, number=5)
    made.batch(row(5, 0, 0, held, flags=Flag.BEGIN))
    made.batch(row(1, 0, 1, begin(), text(1, "a "), flags=Flag.BEGIN))
    two = begin("s2"), text(1, "x "), ended(2)
    made.batch(row(2, 0, 2, *two, flags=Flag.BEGIN | Flag.TERMINAL))
    made.batch(row(4, 0, 1, begin("s4"), text(1, "y "), flags=Flag.BEGIN))
    made.segment()
    made.batch(row(1, 2, 3, text(2, "b ", "c ")))
    made.segment()
    made.batch(row(1, 4, 4, text(4, "d ")))
    made.batch()
    made.close()
    return made


def unreadable(monkeypatch: pytest.MonkeyPatch, segment_id: int) -> list[bool]:
    """For as long as the list is not empty."""
    whole, fails = RealDisk.open, [True]

    def planted(self: RealDisk, path: str) -> Any:
        if fails and path == f"wal/{segment_name(segment_id)}":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return whole(self, path)

    monkeypatch.setattr(RealDisk, "open", planted)
    return fails


def told(reply: Any) -> Told:
    return text_of(reply), [(gap.first_seq, gap.last_seq, gap.verdict) for gap in reply.gaps]


def without_a_daemon(data: Path) -> dict[str, Told]:
    found = {reply.stream_id: told(reply) for reply in find(str(data)).replies}
    del found["s5"]
    return found


def by_a_daemon(home: Home, seconds: float = 0) -> dict[str, Told]:
    found: dict[str, Told] = {}

    async def main_walld() -> None:
        async with living(home) as virtual:
            await anyio.sleep(seconds)
            for name in ("s1", "s2", "s4"):
                found[name] = told(await recovered(virtual, name))

    run(main_walld)
    return found


WHOLE = {"s1": (b"a b c d ", []), "s2": (b"x ", []), "s4": (b"y ", [])}
FEARED = {"s2": (b"x ", []), "s4": (b"y ", [(2, 2, "unknown")])}
"""s4 had not ended: it may have said more there."""
WITHOUT: dict[int, dict[str, Told]] = {
    2: {"s1": (b"a d ", [(2, 3, "unknown")]), **FEARED},
    3: {"s1": (b"a b c ", [(4, 4, "unknown")]), **FEARED},
}


@pytest.mark.parametrize("segment_id", [2, 3])
def test_everybody_says_what_may_have_stood_in_it(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    segment_id: int,
) -> None:
    made = made_at(tmp_path / "data")
    fails = unreadable(monkeypatch, segment_id)
    expected = WITHOUT[segment_id]
    assert without_a_daemon(made.path) == expected
    assert main(["fsck", str(made.path)]) == 2
    capsys.readouterr()
    assert main(["salvage", str(made.path), "--to", str(tmp_path / "new/data"), "--json"]) == 1
    taken = json.loads(capsys.readouterr().out)["taken"]
    words = {one["stream_id"]: one["gap_word"] for one in taken if one["gaps"]}
    assert words == dict.fromkeys(("s1", "s4", "s5"), "unknown")
    fails.clear()
    assert without_a_daemon(tmp_path / "new/data") == expected
    assert by_a_daemon(Home(tmp_path / "new")) == expected
    fails.append(True)
    assert by_a_daemon(Home(tmp_path)) == expected
    assert by_a_daemon(Home(tmp_path), 60) == expected, "they are kept now"
    assert by_a_daemon(Home(tmp_path)) == expected
    assert without_a_daemon(made.path) == expected


@pytest.mark.parametrize("segment_id", [2, 3])
@pytest.mark.parametrize("seconds", [0, 60])
def test_once_it_can_be_read_all_of_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_id: int, seconds: float
) -> None:
    """Also where partials were made without it, which hold less than the log does."""
    made = made_at(tmp_path / "data")
    fails = unreadable(monkeypatch, segment_id)
    for _ in range(2):
        assert by_a_daemon(Home(tmp_path), seconds) == WITHOUT[segment_id]
    fails.clear()
    assert without_a_daemon(made.path) == WHOLE, "before a start has looked, too"
    new = tmp_path / "new/data"
    assert main(["salvage", str(made.path), "--to", str(new)]) == 0
    assert without_a_daemon(new) == WHOLE
    assert by_a_daemon(Home(tmp_path)) == WHOLE
    assert by_a_daemon(Home(tmp_path), 60) == WHOLE
    assert by_a_daemon(Home(tmp_path)) == WHOLE
    assert without_a_daemon(made.path) == WHOLE


@pytest.mark.parametrize("lives", [1, 2])
def test_what_is_feared_there_is_taken_from_who_still_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lives: int
) -> None:
    """It may never be read: what its owner sends again is no duplicate."""
    made = made_at(tmp_path / "data")
    unreadable(monkeypatch, 3)
    for _ in range(lives - 1):
        by_a_daemon(Home(tmp_path), 60)

    async def main_walld() -> None:
        async with living(Home(tmp_path)) as virtual:
            await anyio.sleep(60)
            assert told(await recovered(virtual, "s4")) == FEARED["s4"]
            with Peer(virtual, producer=b"p" * 16) as agent:
                agent.send(wire.Resume(wire.Start(1, 0, "s4", "chat"), 2, 1, 2))
                agent.send(wire.Token(1, 2, b"z "))
                await agent.drain("synced")
            assert told(await recovered(virtual, "s4")) == (b"y z ", [])

    run(main_walld)
    assert without_a_daemon(made.path)["s4"] == (b"y z ", [])


def test_what_went_before_one_that_cannot_be_read_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LOCK did not say where the log begins, nor can that start: it is in what it cannot read."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 0, begin(), flags=Flag.BEGIN))
    made.segment()
    made.batch(row(1, 0, 0, flags=Flag.RELEASED), row(2, 0, 0, begin("s2"), flags=Flag.BEGIN))
    made.segment()
    made.batch(row(2, 1, 1, text(1, "x ")))
    made.batch()
    made.close()
    (made.path / "wal" / segment_name(1)).unlink()
    assert main(["fsck", str(made.path)]) == 0
    fails = unreadable(monkeypatch, 2)
    run(begins_to_say, Home(tmp_path))
    fails.clear()
    assert main(["fsck", str(made.path)]) == 0


async def begins_to_say(home: Home) -> None:
    async with living(home) as virtual:
        with Peer(virtual) as peer:
            peer.send(wire.Start(1, 0, "s3", "chat"))
            await peer.drain("synced")
        await virtual.crash()
