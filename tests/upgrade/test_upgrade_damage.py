"""A damaged directory of one build, read, mended and salvaged by both: they say the same of it.

Each build starts on a copy of its own; the other one then goes on with what that start wrote:
settled rows, quarantine, gaps.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builds import Agent, Build, Daemon, offline, same, settled

NAMES = ["r-kept"]


def torn_tail(data: Path) -> None:
    """A write that was cut off, behind what was synced; and a partial that was never finished."""
    newest = max((data / "wal").glob("*.wal"))
    newest.write_bytes(newest.read_bytes() + b"\xfe\xb1\x00\x00half of a batch")
    whole = next(path for path in (data / "partials").rglob("*") if path.is_file())
    whole.with_name(f".{whole.name}.tmp").write_bytes(whole.read_bytes()[:50])


def corrupt_log(data: Path) -> None:
    """A bit of a batch that was synced."""
    newest = max((data / "wal").glob("*.wal"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 0x10
    newest.write_bytes(content)


def damaged_files(data: Path) -> None:
    """A partial, a line of a session, a snapshot, and LOCK's last lines."""
    partial = next(path for path in (data / "partials").rglob("*") if path.is_file())
    partial.write_bytes(partial.read_bytes()[:-3])
    (events,) = data.glob("sessions/*/r-session/events.jsonl")
    lines = events.read_bytes().splitlines(keepends=True)
    lines[20] = lines[20].replace(b'"seq"', b'"sec"')
    events.write_bytes(b"".join(lines))
    for snapshot in data.rglob("snapshot"):
        snapshot.write_bytes(snapshot.read_bytes()[:-1] + b"\xff")
    lock = bytearray((data / "LOCK").read_bytes())
    lock[90] ^= 1
    (data / "LOCK").write_bytes(lock)


DAMAGE = [torn_tail, corrupt_log, damaged_files]


@pytest.fixture(scope="module", params=["old", "new"])
def filled(
    request: pytest.FixtureRequest, old: Build, new: Build, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A directory that a build has filled, killed; and partials, by its start behind the kill."""
    build = old if request.param == "old" else new
    home = tmp_path_factory.mktemp("filled")
    data, socket_path = home / "data", str(home / "s")
    with Daemon(build, data, socket_path, home / "log") as daemon:
        with Agent(build, socket_path, "r") as agent:
            agent.kill()
            settled(daemon, [agent])
        daemon.terminate()
    return data


@pytest.mark.parametrize("damage", DAMAGE)
def test_both_say_the_same_of_damage(
    damage: Callable[[Path], None],
    filled: Path,
    old: Build,
    new: Build,
    tmp_path: Path,
    socket_path: str,
) -> None:
    told = dict[str, Any]()
    for build, other in ((old, new), (new, old)):
        data = tmp_path / build.name / "data"
        shutil.copytree(filled, data)
        damage(data)
        before = offline(build, data, NAMES)
        same(before, offline(other, data, NAMES))
        salvaged = tmp_path / f"salvaged by {build.name}"
        code, account = build.walld("salvage", data, "--to", salvaged, "--json")
        with Daemon(build, data, socket_path, tmp_path / "log") as daemon:
            first = build.answers(socket_path)
            daemon.kill()
        mended = offline(other, data, NAMES)
        code_then, found = mended["fsck"]  # what was written down and what went is a matter of when
        mended["fsck"] = code_then, found["state"], found["partials_damaged"]
        with Daemon(other, data, socket_path, tmp_path / "log") as daemon:
            second = other.answers(socket_path)
            daemon.terminate()
        same(first, second)
        told[build.name] = [
            without_places(one, data, salvaged)
            for one in (
                before, (code, account), offline(other, salvaged, NAMES), first, mended, second,
                quarantined(data),
            )
        ]  # fmt: skip
    same(told["old"], told["new"])


def quarantined(data: Path) -> dict[str, int]:
    """Names in quarantine/ and how long each is."""
    found = data / "quarantine"
    return {path.name: path.stat().st_size for path in found.iterdir()} if found.exists() else {}


def without_places(told: Any, *places: Path) -> Any:
    """The same, wherever it lies and whenever it was made."""
    if isinstance(told, dict):
        return {key: without_places(one, *places) for key, one in told.items()}
    if isinstance(told, list | tuple):
        return [without_places(one, *places) for one in told]
    if isinstance(told, str):
        for place in places:
            told = told.replace(str(place), "DIR")
    return told
