"""Partials that a start could not read, list, trust or remove: nothing is lost or comes back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from asking import refused
from damaged_directory import DamagedDirectory, begin
from damaged_directory import text as said
from unit.daemon.storage.test_partial_writer import START, UID, orphaned
from virtual_daemon import (
    Home,
    Peer,
    Virtual,
    asked,
    living,
    recovered,
    run,
    text_of,
    until,
)
from walld_client.wire import messages as wire

from walld.cli.inspect.offline import find
from walld.disk.real import RealDisk, RealFile
from walld.partials.tombstone_file import GONE_PATH


async def kept_and_gone_on(home: Home) -> None:
    """The partial of "r" says less than the log."""
    async with living(home) as virtual:
        with Peer(virtual) as agent:
            agent.send(START, wire.Token(1, 1, b"before"))
            await agent.drain("synced")
            await orphaned(virtual)
            await until(lambda: virtual.engine.segments.oldest.is_empty)  # what it was is gone
        with Peer(virtual, producer=agent.producer) as again:
            again.send(wire.Resume(START, 2, 1, 3), wire.Token(1, 2, b" behind"))
            await again.drain("synced")
            await virtual.crash()


async def kept_and_in_the_log(home: Home) -> None:
    """The partial of "r" says as much as the log, which a reply that goes on holds."""
    async with living(home) as virtual:
        with Peer(virtual) as other, Peer(virtual) as agent:
            other.send(wire.Start(1, 0, "other", "s"), wire.Token(1, 1, b"goes on"))
            await other.drain("synced")
            agent.send(START, wire.Token(1, 1, b"before"))
            await agent.drain("synced")
            await orphaned(virtual)
            await virtual.crash()


def unreadable(path: str, failing: list[bool]) -> Callable[[Virtual], None]:
    """A daemon whose disk does not give that file, for as long as the list is not empty."""

    def plant(virtual: Virtual) -> None:
        whole = virtual.disk.open

        def planted(named: str) -> RealFile:
            if named == path and failing:
                raise OSError(5, "planted", named)
            return whole(named)

        virtual.disk.open = planted  # type: ignore[method-assign]

    return plant


def unlisted(path: str, failing: list[bool]) -> Callable[[Virtual], None]:
    """A daemon whose disk does not list that directory, for as long as the list is not empty."""

    def plant(virtual: Virtual) -> None:
        whole = virtual.disk.list_dir

        def planted(named: str) -> Any:
            if named == path and failing:
                raise OSError(5, "planted", named)
            return whole(named)

        virtual.disk.list_dir = planted  # type: ignore[method-assign]

    return plant


def test_what_no_start_could_read_is_not_written_over(tmp_path: Path) -> None:
    """It is the beginning of a reply that the log goes on with, and waits for it."""

    async def main() -> None:
        home = Home(tmp_path)
        await kept_and_gone_on(home)
        path, failing = f"partials/{UID}/s/r", [True]
        before = (home.data / path).read_bytes()
        async with living(home, unreadable(path, failing)) as virtual:
            virtual.engine.orphan(virtual.engine.registry.by_key[UID, "r"], "agent_lost")
            await anyio.sleep(20)
            assert text_of(await recovered(virtual, "r")) == b" behind"
            assert (home.data / path).read_bytes() == before
            assert "planted" in str((await asked(virtual, wire.Status(1)))["trouble"])
            failing.clear()
            await anyio.sleep(20)
            assert text_of(await recovered(virtual, "r")) == b"before behind"
            assert not virtual.engine.orphans

    run(main)


def test_what_no_start_could_list_is_not_written_over(tmp_path: Path) -> None:
    async def main() -> None:
        home = Home(tmp_path)
        await kept_and_gone_on(home)
        failing = [True]
        async with living(home, unlisted(f"partials/{UID}/s", failing)) as virtual:
            virtual.engine.orphan(virtual.engine.registry.by_key[UID, "r"], "agent_lost")
            await anyio.sleep(20)
            assert text_of(await recovered(virtual, "r")) == b"before behind"
            failing.clear()
        async with living(home) as virtual:
            assert text_of(await recovered(virtual, "r")) == b"before behind"
            assert list((home.data / "quarantine").iterdir()) == []

    run(main)


@pytest.mark.parametrize("by", ["a resolve", "its owner's release"])
def test_what_no_start_could_list_does_not_come_back_once_it_was_let_go(
    tmp_path: Path, by: str
) -> None:
    """K7: its tombstone goes with the segment, and a later start can list the partial."""

    async def main() -> None:
        home = Home(tmp_path)
        await kept_and_gone_on(home)
        path, failing = home.data / f"partials/{UID}/s/r", [True]
        async with living(home, unlisted(f"partials/{UID}/s", failing)) as virtual:
            stream = virtual.engine.registry.by_key[UID, "r"]
            number = stream.begin.number
            if by == "a resolve":
                virtual.engine.orphan(stream, "agent_lost")
                assert await asked(virtual, wire.Resolve(1, "r", 2)) is True
            else:
                with Peer(virtual, producer=stream.begin.producer) as again:
                    start = wire.Start(number, 0, "r", "s")
                    again.send(wire.Resume(start, 3, 2, 3), wire.End(number, 3, True))
                    again.send(wire.Release(number, 4))
                    await again.drain("synced")
            await anyio.sleep(100)
            assert path.exists(), "nobody could list it"
            assert sum(file.stat().st_size for file in (home.data / "wal").iterdir()) < 200
            failing.clear()
        assert find(str(home.data)).replies == []
        async with living(home) as virtual:
            assert await recovered(virtual, "r") is None
            await anyio.sleep(20)
            assert not path.exists()
        async with living(home):
            assert not (home.data / GONE_PATH).exists()

    run(main)


@pytest.mark.parametrize("verb", ["unlink", "open"])
def test_an_earlier_partial_that_cannot_be_removed_is_no_second_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """T3, K7: its later one is served and resolved, and nothing of either comes back."""
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)  # what is kept here is not too old
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch()
    # The one that is found last is the earlier one.
    earlier = made.partial(5, begin("r", "z"), said(1, "moved "))
    later = made.partial(5, begin("r", "a"), said(1, "moved ", "on"))
    made.close()
    name, failing = str(earlier.relative_to(made.path)), [True]
    whole = getattr(RealDisk, verb)

    def planted(disk: RealDisk, path: str) -> Any:
        if path == name and failing:
            raise OSError(5, "planted", path)
        return whole(disk, path)

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:  # more of it, in the log
                agent.send(wire.Start(1, 0, "q", "s"))
                await agent.drain("synced")
            assert [one.stream_id for one in await replies(virtual)] == ["q", "r"]
            assert text_of(await recovered(virtual, "r")) == b"moved on"
            status = await asked(virtual, wire.Status(1))
            assert status["partials"] == 1
            assert await asked(virtual, wire.Resolve(1, "r")) is True
            assert [one.stream_id for one in await replies(virtual)] == ["q"]
            assert not later.exists()
            virtual.engine.orphan(virtual.engine.registry.by_key[UID, "q"], "agent_lost")
            assert await asked(virtual, wire.Resolve(1, "q")) is True
            await anyio.sleep(100)
            assert earlier.exists()
        failing.clear()
        async with living(home) as virtual:
            assert await replies(virtual) == []
            await anyio.sleep(20)
            assert not earlier.exists()

    monkeypatch.setattr(RealDisk, verb, planted)
    run(main)


async def replies(virtual: Virtual) -> list[wire.Recovered]:
    answer = await asked(virtual, wire.List(1, ""))
    found = msgspec.convert(answer, list[wire.Recovered])
    return sorted(found, key=lambda one: one.stream_id)


def test_what_no_start_could_read_goes_with_the_rest_of_its_reply(tmp_path: Path) -> None:
    """Resolved while its beginning cannot be read: it is not to come back when it can."""

    async def main() -> None:
        home = Home(tmp_path)
        await kept_and_gone_on(home)
        async with living(home, unreadable(f"partials/{UID}/s/r", [True])) as virtual:
            virtual.engine.orphan(virtual.engine.registry.by_key[UID, "r"], "agent_lost")
            assert await asked(virtual, wire.Resolve(1, "r", 2)) is True
            await anyio.sleep(20)
            assert home.holds(b"before") == []
        async with living(home) as virtual:
            assert await recovered(virtual, "r") is None

    run(main)


def test_what_was_resolved_stays_so_though_its_tombstone_goes_while_it_cannot_be_read(
    tmp_path: Path,
) -> None:
    """Power took the unlink of its file back; a start that cannot read that cannot tell."""

    async def main() -> None:
        home = Home(tmp_path)
        await kept_and_in_the_log(home)
        path, gone = home.data / f"partials/{UID}/s/r", home.data / GONE_PATH
        content = path.read_bytes()
        async with living(home) as virtual:
            assert await asked(virtual, wire.Resolve(1, "r")) is True
            await anyio.sleep(1)
            await virtual.crash()
        assert not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        async with living(home, unreadable(f"partials/{UID}/s/r", [True])) as virtual:
            assert gone.exists()
            await orphaned(virtual, "other")
            assert await asked(virtual, wire.Resolve(1, "other")) is True
            await anyio.sleep(100)
            assert home.holds(b"before") == [f"partials/{UID}/s/r"]
            assert sum(file.stat().st_size for file in (home.data / "wal").iterdir()) < 200
        assert find(str(home.data)).replies == []
        async with living(home) as virtual:
            assert await recovered(virtual, "r") is None
            await anyio.sleep(20)
            assert not path.exists()
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, b"later"))
                await agent.drain("synced")
        async with living(home) as virtual:
            assert not gone.exists()
            assert text_of(await recovered(virtual, "r")) == b"later"

    run(main)


@pytest.mark.parametrize("unread", [False, True])
def test_what_was_resolved_is_not_served_while_its_file_is_still_there(
    tmp_path: Path, *, unread: bool
) -> None:
    async def main() -> None:
        home = Home(tmp_path)
        await kept_and_gone_on(home)
        failing = [True] * unread
        async with living(home, unreadable(f"partials/{UID}/s/r", failing)) as virtual:
            failing.clear()
            virtual.engine.orphan(virtual.engine.registry.by_key[UID, "r"], "agent_lost")
            virtual.background.seconds = 1.0
            assert await asked(virtual, wire.Resolve(1, "r", 2)) is True
            assert home.holds(b"before") != []
            if unread:
                for question in (wire.Recover(1, "all", "s"), wire.HasPartial(1, "s")):
                    assert (await refused(virtual, question)).code == "unreadable"
            else:
                assert await recovered(virtual, "r") is None
                assert await asked(virtual, wire.HasPartial(1, "s")) is False
            await anyio.sleep(20)
            assert home.holds(b"before") == []

    run(main)


def test_what_stands_where_the_beginning_of_a_reply_was_is_not_joined_to_it(tmp_path: Path) -> None:
    """Another's partial was put over it, while a daemon runs: its words are nobody else's."""

    async def main() -> None:
        home = Home(tmp_path)
        await kept_and_gone_on(home)
        async with living(home) as virtual:
            assert text_of(await recovered(virtual, "r")) == b"before behind"
            with Peer(virtual) as agent:
                agent.send(wire.Start(1, 0, "q", "s"), wire.Token(1, 1, b"another's"))
                await agent.drain("synced")
                await orphaned(virtual, "q")
            partials = home.data / "partials" / str(UID) / "s"
            (partials / "r").write_bytes((partials / "q").read_bytes())
            error = await refused(virtual, wire.Recover(1, "all", None, "r"))
            assert "it belongs in" in error.message

    run(main)


@pytest.mark.parametrize("went_on", [False, True])
def test_a_partial_whose_name_may_not_be_durable_is_made_once_more(
    tmp_path: Path, *, went_on: bool
) -> None:
    """A start could not sync its directory: the log keeps what it has until that is done."""

    async def main() -> None:
        home = Home(tmp_path)
        await (kept_and_gone_on(home) if went_on else kept_and_in_the_log(home))
        says = b"before behind" if went_on else b"before"
        synced: list[str] = []

        def plant(virtual: Virtual) -> None:
            whole = virtual.disk.sync_dir

            def planted(named: str) -> None:
                if named.startswith("partials/"):
                    synced.append(named)
                    if len(synced) == 1:
                        raise OSError(5, "planted", named)
                whole(named)

            virtual.disk.sync_dir = planted  # type: ignore[method-assign]

        async with living(home, plant) as virtual:
            assert text_of(await recovered(virtual, "r")) == says
            assert synced
            virtual.engine.orphan(virtual.engine.registry.by_key[UID, "r"], "agent_lost")
            made = len(synced)
            await anyio.sleep(20)
            assert len(synced) > made
            assert synced[-1] == f"partials/{UID}/s"
            assert not virtual.engine.orphans
        async with living(home) as virtual:
            assert text_of(await recovered(virtual, "r")) == says
            assert list((home.data / "quarantine").iterdir()) == []

    run(main)
