"""Partials: when the log may let go of a reply, and when a partial goes: K3."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from virtual_daemon import (
    Home,
    Peer,
    Virtual,
    living,
    peers_named,
    recovered,
    run,
    text_of,
    until,
)
from walld_client.wire import messages as wire

from walld.daemon.storage.partial_writer import PartialWriter
from walld.engine.stream import Stream

UID = os.getuid()
START = wire.Start(1, 0, "r", "s")


async def orphaned(virtual: Virtual, stream_id: str = "r") -> None:
    """The owner of a stream is gone, and its partial is made."""
    virtual.engine.orphan(virtual.engine.registry.by_key[UID, stream_id], "agent_lost")
    virtual.daemon.maintenance.wake()
    await until(lambda: virtual.engine.partials.where(UID, stream_id))


def test_the_log_lets_go_of_a_partial_that_is_durable_and_not_before(tmp_path: Path) -> None:
    """K3."""
    seen: list[list[str]] = []

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            keep = virtual.engine.keep

            def watched(*given: Any) -> None:
                seen.append(home.holds(b"all of it"))
                keep(*given)

            vars(virtual.engine)["keep"] = watched
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, b"all of it"))
                await agent.drain()
            await orphaned(virtual)

    run(main)
    assert [[where.partition("/")[0] for where in found] for found in seen] == [["partials", "wal"]]


def test_a_partial_goes_after_its_tombstone_is_written(tmp_path: Path) -> None:
    """K3: killed in between, the next start removes the file; the other way round it came back."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent, Peer(virtual) as other:
                other.send(wire.Start(1, 0, "q", "s"))
                agent.send(START, wire.Token(1, 1, b"all of it"))
                await agent.drain("synced")
            await orphaned(virtual)
            virtual.worker.seconds = 5.0
            with Peer(virtual, "query") as reader:
                reader.send(wire.Resolve(1, "r", 1))
                await anyio.sleep(4)
                assert "partials" in home.holds(b"all of it")[0], "the write has not returned"
                assert await reader.hear(wire.Answer)
            assert not (home.data / "partials" / str(UID)).exists()
            virtual.worker.seconds = 0.0
            await virtual.crash()
        async with living(home) as again:
            assert await recovered(again, "r") is None

    run(main)


@pytest.mark.parametrize("by", ["a resolve", "its owner's release"])
def test_a_partial_goes_after_its_tombstone_is_synced(tmp_path: Path, by: str) -> None:
    """K3: power would take what is only written, and bring back what the log has of the reply."""
    verbs: list[list[str]] = []

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent, Peer(virtual) as other:
                other.send(wire.Start(1, 0, "q", "s"))
                agent.send(START, wire.Token(1, 1, b"all of it"), wire.End(1, 2, True))
                await agent.drain("synced")
                await orphaned(virtual)
                virtual.faults.told.clear()
                remove = virtual.daemon.maintenance._partial_writer._store.remove_named

                def watched(*names: Any) -> None:
                    verbs.append([verb for verb, _, _ in virtual.faults.told])
                    remove(*names)

                vars(virtual.daemon.maintenance._partial_writer._store)["remove_named"] = watched
                if by == "a resolve":
                    with Peer(virtual, "query") as reader:
                        reader.send(wire.Resolve(1, "r", 2))
                        assert await reader.hear(wire.Answer)
                else:
                    with Peer(virtual, producer=agent.producer) as again:
                        again.send(wire.Resume(START, 3, 2, 3), wire.Release(1, 3))
                        await until(lambda: verbs)

    run(main)
    assert verbs
    assert all("write" in told and told[-1] == "sync" for told in verbs), verbs


def test_a_stream_that_goes_on_while_its_partial_is_made_is_not_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two connections of one producer in processes that cannot be told apart; one of them ends."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            virtual.background.seconds = 0.05
            with Peer(virtual) as first:
                first.send(START)
                await first.drain()
            with Peer(virtual, producer=first.producer) as second:
                for seq in range(1, 4000):
                    second.send(wire.Token(1, seq, b"%04d" % seq))
                    await anyio.sleep(0.01)
                await second.drain("synced")
                reply = await recovered(virtual, "r")
                assert reply is not None
                assert reply.last_seq == seq
                assert text_of(reply) == b"".join(b"%04d" % n for n in range(1, seq + 1))

    with peers_named(monkeypatch, 0):
        run(main)


def test_an_empty_reply_is_kept_too(tmp_path: Path) -> None:
    """A Start and nothing else: somebody waited for an answer that never came."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                await agent.drain()
            await orphaned(virtual)
            reply = await recovered(virtual, "r")
            assert reply is not None
            assert (reply.status, reply.segments, reply.last_seq) == ("crashed", [], 0)

    run(main)


def test_a_moved_reply_is_kept_in_the_session_it_moved_to(tmp_path: Path) -> None:
    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, wire.Move(1, 1, "t"), wire.Token(1, 2, b"moved"))
                await agent.drain()
            await orphaned(virtual)
            assert (home.data / "partials" / str(UID) / "t" / "r").exists()
            assert not (home.data / "partials" / str(UID) / "s").exists()

    run(main)


def test_a_sync_that_fails_while_a_place_is_looked_for_puts_it_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written again meanwhile is the log's still, and wants a tombstone."""
    looks = PartialWriter._has_place

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            batches = virtual.engine.batches

            async def looks_while_a_sync_fails(self: PartialWriter, stream: Stream) -> bool:
                if all(number is None for _, _, number in virtual.faults.told):
                    virtual.faults.next["sync"] = [errno.EIO]
                    virtual.worker.seconds = 0.5
                    virtual.engine.schedule.hurry_sync()
                    virtual.daemon.syncer.wake()
                    await until(lambda: batches.written_no < last)
                found = await looks(self, stream)
                virtual.background.seconds = 1.0  # it is written again while the partial is made
                return found

            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, b"synced, "))
                await agent.drain("synced")
                agent.send(wire.Token(1, 2, b"and not"))
                await agent.drain()
            last = batches.written_no
            with monkeypatch.context() as patch:
                patch.setattr(PartialWriter, "_has_place", looks_while_a_sync_fails)
                await orphaned(virtual)
            names = virtual.engine.partials.where(UID, "r")
            assert names is not None
            facts = virtual.engine.partials.facts(UID, *names)
            assert facts is not None
            assert (facts.last_seq, facts.wal_until) == (2, last)

    run(main)
