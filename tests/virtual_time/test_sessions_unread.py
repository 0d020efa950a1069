"""Lines of sessions in segments of which each start cannot read another one."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from ledger_world import lines_of
from virtual_daemon import Home, Peer, Virtual, asked, living, run
from walld_client.wire import messages as wire

from walld.daemon.session_store.checkpoints import Checkpoints
from walld.disk.real import RealDisk
from walld.disk.retrying import READ_TRIES
from walld.ledger.snapshot import SnapshotStore
from walld.ledger.store import LedgerStore
from walld.wal.layout import segment_name


class Lives:
    """One daemon after the other; each is killed. A live reply holds the first segment."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._home = Home(path, reclaim_seconds="10000")  # no segment leaves unread
        self._unread = ""
        self._has_begun = False
        for verb in ("open", "reopen"):
            monkeypatch.setattr(RealDisk, verb, self._planted(getattr(RealDisk, verb)))

    def _planted(self, whole: Any) -> Any:
        def planted(disk: RealDisk, path: str) -> Any:
            if path == self._unread:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            return whole(disk, path)

        return planted

    def newest(self) -> int:
        """The segment that is written to."""
        return max(int(path.stem) for path in (self._home.data / "wal").glob("*.wal"))

    @asynccontextmanager
    async def one(self, unread: int = 0) -> AsyncIterator[Virtual]:
        """unread: the segment that it cannot read."""
        self._unread = f"wal/{segment_name(unread)}" if unread else ""
        async with living(self._home) as virtual:
            with Peer(virtual, producer=b"h" * 16) as agent:
                start = wire.Start(1, 0, "hold", "other")
                first, again = (start, wire.Token(1, 1, b"x")), wire.Resume(start, 2, 1, 2)
                agent.send(*((again,) if self._has_begun else first))
                await agent.drain("synced")
                self._has_begun = True
                yield virtual
                await virtual.crash()


async def noted(virtual: Virtual, n: int) -> int:
    """An entry is durable; its seq."""
    entry = wire.NewEntry("app.note", json.dumps({"n": n}).encode(), f"n{n}")
    (placed,) = await asked(virtual, wire.Append(1, "t", [entry], level="synced"))
    return int(placed["seq"] if isinstance(placed, dict) else placed[0])


async def told(virtual: Virtual) -> list[tuple[int, int]]:
    """(seq, n) of each line."""
    lines = [json.loads(line) for line in await asked(virtual, wire.Events(1, "t"))]
    return [(line["seq"], line["payload"]["n"]) for line in lines]


async def not_yet(_checkpoints: Checkpoints, _now: float) -> None:
    """It is killed before there is one."""


def test_lines_that_the_file_went_on_without_go_where_they_belong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those behind them could be read, so that nothing was leapt over."""
    lives = Lives(tmp_path, monkeypatch)

    async def main() -> None:
        async with lives.one():
            pass
        async with lives.one() as virtual:
            await noted(virtual, 1)
            await anyio.sleep(100)  # it is in the file
            await noted(virtual, 2)
            unread = lives.newest()
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoints, "round", not_yet)
            async with lives.one() as virtual:
                await noted(virtual, 3)
        async with lives.one(unread) as virtual:
            assert await noted(virtual, 4) == 4
            assert await told(virtual) == [(1, 1), (3, 3), (4, 4)]
            await anyio.sleep(100)  # what can be read is in the file
        for _ in range(2):
            async with lives.one() as virtual:
                assert await told(virtual) == [(1, 1), (2, 2), (3, 3), (4, 4)]

    run(main)


class Failing:
    """Calls of a method raise an error of the disk, the first `times` of each daemon."""

    def __init__(self, patch: pytest.MonkeyPatch, of: type, name: str, number: int) -> None:
        self.times = self.met = 0
        whole = getattr(of, name)

        def planted(*arguments: Any, **named: Any) -> Any:
            if self.met < self.times:
                self.met += 1
                raise OSError(number, os.strerror(number))
            return whole(*arguments, **named)

        patch.setattr(of, name, planted)


@pytest.mark.parametrize(
    ("what", "number", "times"),
    [
        ("read", errno.EIO, 1),
        ("read", errno.EIO, READ_TRIES),
        ("tail", errno.EIO, READ_TRIES),
        ("append", errno.EIO, READ_TRIES),
        ("append", errno.ENOSPC, 2),
        ("remove", errno.EIO, 1),
        ("remove", errno.EIO, READ_TRIES),
    ],
)
def test_lines_that_find_no_place_at_once_are_not_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, number: int, times: int
) -> None:
    """The file cannot be read, or written, when they are to go between those that it has."""
    lives = Lives(tmp_path, monkeypatch)

    async def main() -> None:
        async with lives.one():
            pass
        async with lives.one() as virtual:
            await noted(virtual, 1)
            await anyio.sleep(100)  # it is in the file
            await noted(virtual, 2)
            unread = lives.newest()
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoints, "round", not_yet)
            async with lives.one() as virtual:
                await noted(virtual, 3)
        async with lives.one(unread) as virtual:
            await noted(virtual, 4)
            await anyio.sleep(100)
        of = SnapshotStore if what == "remove" else LedgerStore
        failing = Failing(monkeypatch, of, what, number)
        for is_asked in (False, True):  # the first is killed at once
            failing.times, failing.met = times, 0
            async with lives.one() as virtual:
                if is_asked:
                    await anyio.sleep(5)
                    assert await told(virtual) == [(n, n) for n in range(1, 5)]
                    assert await noted(virtual, 5) == 5
                    await anyio.sleep(100)
        for n in (6, 7):
            async with lives.one() as virtual:
                assert await noted(virtual, n) == n
                assert await told(virtual) == [(one, one) for one in range(1, n + 1)]
                (ledger,) = virtual.engine.session_logs.open.values()
                assert ledger.state is not None
                assert [ledger.state.ids.get(f"n{one}") for one in range(1, n)] == list(range(1, n))

    run(main)


@pytest.mark.parametrize("cut", [0, 37])
@pytest.mark.parametrize("seqs", [(41, 60), (4, 4), (4, 5), (4, 6), (5, 9)])
def test_a_stale_block_where_lines_belong_costs_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int, seqs: tuple[int, int]
) -> None:
    """Power took what a checkpoint wrote; the disk shows another file's block, of these seqs."""
    home = Home(tmp_path)

    async def main() -> None:
        async with living(home) as virtual:
            for n in (1, 2, 3):
                await noted(virtual, n)
            await anyio.sleep(100)  # they are in the file
            with monkeypatch.context() as patch:
                patch.setattr(Checkpoints, "round", not_yet)
                for n in (4, 5):
                    await noted(virtual, n)
                await virtual.crash()
        (path,) = home.data.rglob("events.jsonl")
        stale = b"".join(lines_of(60, session="another")[seqs[0] - 1 : seqs[1]])
        path.write_bytes(path.read_bytes() + stale[cut:])
        for n in (6, 7):
            async with living(home) as virtual:
                lines = [json.loads(line) for line in await asked(virtual, wire.Events(1, "t"))]
                notes = [line["payload"]["n"] for line in lines if line["type"] == "app.note"]
                assert notes == list(range(1, n))
                # Where the first whole line of it has no seq of the log's nothing tells.
                assert len(lines) == len(notes) or seqs[0] + bool(cut) > 5
                await noted(virtual, n)
                await anyio.sleep(100)
                assert not any(one.pending for one in virtual.engine.session_logs.open.values())
                await virtual.crash()

    run(main)


def test_no_seq_is_given_twice_by_two_starts_that_leap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second cannot read the lines with which the first went on."""
    lives = Lives(tmp_path, monkeypatch)

    async def main() -> None:
        async with lives.one():
            pass
        async with lives.one() as virtual:
            seqs = [await noted(virtual, n) for n in (1, 2)]
            await anyio.sleep(100)  # they are in the file
            unread = lives.newest()
        async with lives.one(unread) as virtual:
            seqs += [await noted(virtual, n) for n in (3, 4)]
            unread = lives.newest()
        async with lives.one(unread) as virtual:
            seqs += [await noted(virtual, n) for n in (5, 6)]
        assert seqs == sorted(set(seqs))
        for _ in range(2):
            async with lives.one() as virtual:
                assert await told(virtual) == list(zip(seqs, range(1, 7), strict=True))

    run(main)


def test_a_bug_met_by_the_listing_does_not_end_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again later, and sessions are written all the while."""
    lives, tries = Lives(tmp_path, monkeypatch), list[int]()
    whole = LedgerStore.tree

    def failing(store: LedgerStore) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise MemoryError("planted")
        return whole(store)

    async def main() -> None:
        async with lives.one():
            pass
        monkeypatch.setattr(LedgerStore, "tree", failing)
        async with lives.one() as virtual:
            await noted(virtual, 1)
            await anyio.sleep(200)
            assert await told(virtual) == [(1, 1)]
            assert len(tries) == 2

    run(main)
