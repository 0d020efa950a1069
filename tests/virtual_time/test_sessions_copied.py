"""A data directory that was copied while a daemon wrote to it: its files are of several times."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from virtual_daemon import Home, Virtual, asked, living, run
from walld_client.wire import messages as wire

from walld.cli import main


async def noted(virtual: Virtual, *names: str) -> list[int]:
    """Entries are durable; their seqs."""
    entries = [wire.NewEntry("app.note", b"{}", name) for name in names]
    return [one[0] for one in await asked(virtual, wire.Append(1, "s", entries, level="synced"))]


async def told(virtual: Virtual, after: int = 0) -> tuple[list[int], list[tuple[int, int]]]:
    """The seqs that there are behind one, and those that are said to be missing."""
    lines, breaks = await asked(virtual, wire.Events(1, "s", after=after, breaks=True))
    missing = [(one["first_seq"], one["last_seq"]) for one in json.loads(breaks)]
    return [json.loads(line)["seq"] for line in lines], missing


def test_what_comes_behind_seqs_that_a_newer_snapshot_alone_knows_is_not_torn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kill before the next checkpoint took it, though synced; nothing was said to be missing."""
    home, copy = Home(tmp_path), tmp_path / "copy"

    async def live() -> None:
        async with living(home) as virtual:
            await noted(virtual, *"abcde")
        async with living(home) as virtual:
            await noted(virtual, "f", "g")
            await virtual.crash()
        shutil.copytree(home.data, copy)
        async with living(home) as virtual:
            await noted(virtual, "h", "i")
        (snapshot,) = home.data.rglob("snapshot")
        shutil.copy(snapshot, copy / snapshot.relative_to(home.data))
        shutil.rmtree(home.data)
        copy.rename(home.data)
        assert main(["fsck", str(home.data), "--json"]) == 2
        (found,) = json.loads(capsys.readouterr().out)["sessions"]
        assert [(one["first_seq"], one["last_seq"]) for one in found["breaks"]] == [(8, 9)]
        async with living(home) as virtual:
            assert await told(virtual) == ([1, 2, 3, 4, 5, 6, 7], [(8, 9)])
            gate = json.loads(await asked(virtual, wire.Project(1, "s", "resume", b"{}")))
            assert gate["status"] == "blocked"
            assert await noted(virtual, "j") == [10]
            assert await told(virtual) == ([1, 2, 3, 4, 5, 6, 7, 10], [(8, 9)])
            assert await told(virtual, after=8) == ([10], [(9, 9)])
            await virtual.crash()
        async with living(home) as virtual:
            assert await told(virtual) == ([1, 2, 3, 4, 5, 6, 7, 10], [(8, 9)])

    run(live)
