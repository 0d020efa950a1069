"""Resolving, and partials that come and go while others are asked for."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import anyio
import msgspec
import pytest
from asking import UID, orphaned, refused, replies, say
from virtual_daemon import Home, Peer, asked, living, recovered, run
from walld_client.wire import messages as wire

from walld.partials.life import Life

# --- partials that come and go meanwhile ----------------------------------------------------------


def test_what_is_resolved_while_all_are_read_is_left_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            agents = [await say(virtual, f"r{n}", b"%d" % n) for n in range(5)]
            await orphaned(virtual, *(f"r{n}" for n in range(5)))
            virtual.background.seconds = 0.1
            with Peer(virtual, "query") as reader, Peer(virtual, "query") as resolver:
                reader.send(wire.Recover(1, "all"))
                await anyio.sleep(0.05)
                resolver.send(wire.Resolve(1, "r4"))
                answer = await reader.hear(wire.Answer)
                found = msgspec.msgpack.decode(answer.chunk, type=list[wire.Recovered])
                assert {r.stream_id for r in found} >= {f"r{n}" for n in range(4)}
            for agent in agents:
                agent.socket.close()

    run(main)


@pytest.mark.parametrize("which", ["latest", "all"])
def test_also_where_nothing_but_its_name_is_known(tmp_path: Path, which: str) -> None:
    """After a start under a new log the partials of the old one are known by name alone."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            agents = [await say(virtual, f"r{n}", b"%d" % n) for n in range(5)]
            await orphaned(virtual, *(f"r{n}" for n in range(5)))
            for agent in agents:
                agent.socket.close()
        shutil.rmtree(home.data / "wal")
        (home.data / "LOCK").unlink()
        async with living(home) as again:
            again.background.seconds = 0.1
            with Peer(again, "query") as reader, Peer(again, "query") as resolver:
                reader.send(wire.Recover(1, which, "s"))
                await anyio.sleep(0.05)
                resolver.send(wire.Resolve(1, "r4"), wire.Resolve(2, "r0"))
                heard = await reader.hear(wire.Answer | wire.Error)  # type: ignore[arg-type]
                assert isinstance(heard, wire.Answer), heard

    run(main)


def test_resolved_by_two_at_once_is_resolved_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with await say(virtual, "r", b"x"):
                await orphaned(virtual, "r")
                virtual.background.seconds = virtual.worker.seconds = 0.1
                with Peer(virtual, "query") as one, Peer(virtual, "query") as two:
                    one.send(wire.Resolve(1, "r"))
                    two.send(wire.Resolve(1, "r"))
                    said = [await peer.hear(wire.Answer) for peer in (one, two)]
                    told = [msgspec.msgpack.decode(answer.chunk) for answer in said]
                    assert sorted(told) == [False, True], "whoever came first"
                assert await recovered(virtual, "r") is None

    run(main)


def test_numbers_of_another_log_hide_nothing(tmp_path: Path) -> None:
    """The log was removed and began anew, with its numbers; what was kept is still there."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with await say(virtual, "old", b"from the old log"):
                await orphaned(virtual, "old")
        shutil.rmtree(home.data / "wal")
        (home.data / "LOCK").unlink()
        async with living(home) as again:
            with await say(again, "new", b"from the new log"):
                found = await replies(again, "all")
                assert sorted(reply.stream_id for reply in found) == ["new", "old"]
                await orphaned(again, "new")
                found = await replies(again, "all", session_id="s")
                assert sorted(reply.stream_id for reply in found) == ["new", "old"]

    run(main)


# --- who may resolve ------------------------------------------------------------------------------


def test_only_an_orphan_is_resolved_and_only_as_it_was_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with await say(virtual, "r", b"x") as agent:
                error = await refused(virtual, wire.Resolve(1, "r"))
                assert (error.code, error.got, error.limit) == ("refused", "alive", "gone")
                agent.send(wire.Token(1, 2, b"y"))
                await agent.drain()
                virtual.engine.orphan(virtual.engine.registry.by_key[UID, "r"], "agent_lost")
                error = await refused(virtual, wire.Resolve(2, "r", 1))
                assert (error.code, error.got, error.limit) == ("refused", "1", "2")
                await orphaned(virtual)
                error = await refused(virtual, wire.Resolve(3, "r", 1))
                assert (error.code, error.got, error.limit) == ("refused", "1", "2")
                assert await asked(virtual, wire.Resolve(4, "r", 2)) is True
                assert await asked(virtual, wire.Resolve(5, "r", 2)) is False
                assert await asked(virtual, wire.Resolve(6, "never was")) is False

    run(main)


def test_an_orphan_that_is_not_kept_yet_is_resolved_too(tmp_path: Path) -> None:
    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            virtual.background.seconds = 0.5
            with await say(virtual, "r", b"the words"):
                virtual.engine.orphan(virtual.engine.registry.by_key[UID, "r"], "agent_lost")
                virtual.daemon.maintenance.wake()
                await anyio.sleep(1.2)  # directories and its place are looked at; it is being made
                assert await asked(virtual, wire.Resolve(1, "r", 1)) is True
                assert await recovered(virtual, "r") is None
                virtual.background.seconds = 0.0
                await anyio.sleep(5)
                assert home.holds(b"the words") == [], "the file being made must not outlive it"

    run(main)


def test_also_where_the_file_cannot_be_removed_at_once(tmp_path: Path) -> None:
    refused: list[str] = []

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            unlink = virtual.disk.unlink

            def refuse(path: str) -> None:
                if path.startswith("partials/") and not path.endswith(".tmp") and not refused:
                    refused.append(path)
                    raise OSError(5, "planted", path)
                unlink(path)

            vars(virtual.disk)["unlink"] = refuse
            virtual.background.seconds = 0.5
            with await say(virtual, "r", b"the words"):
                virtual.engine.orphan(virtual.engine.registry.by_key[UID, "r"], "agent_lost")
                virtual.daemon.maintenance.wake()
                await anyio.sleep(1.2)  # directories and its place are looked at; it is being made
                assert await asked(virtual, wire.Resolve(1, "r", 1)) is True
                virtual.background.seconds = 0.0
                await anyio.sleep(20)
                assert refused
                assert home.holds(b"the words") == []

    run(main)


def test_a_partial_of_another_log_that_cannot_be_removed_ends_no_reply_of_this_one(
    tmp_path: Path,
) -> None:
    """Its number is that of a living one here: nothing is written down as done with under it."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with await say(virtual, "old", b"from the old log"):
                await orphaned(virtual, "old")
        shutil.rmtree(home.data / "wal")
        (home.data / "LOCK").unlink()
        async with living(home) as again:
            with await say(again, "new", b"from the new log"):
                kept = again.engine.partials
                assert all(kept.facts(*names) is None for names in kept.all_names())
                store = again.daemon.maintenance._partial_writer._store

                def failing(*_names: object) -> None:
                    raise OSError(errno.EIO, "no removal here")

                vars(store)["remove_named"] = failing
                with Peer(again, "query") as reader:
                    reader.send(wire.Resolve(1, "old"))
                    assert (await reader.hear(wire.Error)).code == "unreadable"
                await anyio.sleep(5)
                assert kept.unremoved == set()
                assert kept.unkept(Life.UNWANTED) == {}
                assert [names[2] for names in kept.all_names()] == ["old"]
            await again.crash()
        async with living(home) as last:
            assert await recovered(last, "new") is not None

    run(main)
