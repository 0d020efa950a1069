"""Syncing on a disk that fails: what is acknowledged, and that no file is synced twice (W2)."""

from __future__ import annotations

import errno
from pathlib import Path

import anyio
from virtual_daemon import (
    Home,
    Peer,
    all_is_there_after,
    living,
    recovered,
    run,
    said,
    text_of,
    tokens,
    until,
)
from walld_client.wire import messages as wire

START = wire.Start(1, 0, "r", "s")


def test_a_failed_sync_is_never_tried_again_on_that_file(tmp_path: Path) -> None:
    """W2, P8."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, *tokens(1, 10))
                await agent.drain("synced")
                virtual.faults.next["sync"] = [errno.EIO]
                agent.send(*tokens(11, 20), wire.Drain(2, "synced"))
                drained = await agent.hear(wire.Drained)
                assert drained == wire.Drained(2, "synced")
                stream = virtual.engine.registry.by_no[1]
                assert stream.synced_seq == 20
                segments = [path for verb, path, _ in virtual.faults.told if verb == "sync"]
                assert len(set(segments)) == 2
                virtual.faults.none_was_tried_again()
                assert virtual.daemon.status.word == "ok"
                await virtual.crash()
        await all_is_there_after(home, 20)

    run(main)


def test_nothing_is_acknowledged_between_a_failed_sync_and_the_next_good_one(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, *tokens(1, 10))
                await agent.drain("synced")
                virtual.faults.stuck["sync"] = errno.EIO
                agent.send(*tokens(11, 20), wire.Drain(2, "synced"))
                await anyio.sleep(10)
                acks = [m for m in agent.heard() if isinstance(m, wire.Ack | wire.Drained)]
                assert all(isinstance(m, wire.Ack) and m.streams[0][2] <= 10 for m in acks)
                assert virtual.daemon.status.word == "degraded"
                assert virtual.daemon.status.trouble is not None
                # Its memory may be the only copy: it still answers with all of it.
                assert text_of(await recovered(virtual, "r")) == said(20)
                virtual.faults.stuck.clear()
                await agent.hear(wire.Drained)
                virtual.faults.none_was_tried_again()
                assert virtual.daemon.status.word == "ok"

    run(main)


def test_a_sync_says_nothing_of_batches_that_moved_meanwhile(tmp_path: Path) -> None:
    """W2: it was on its way when a write failed; what it made durable is not where they are now."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, *tokens(1, 10))
                await agent.drain("synced")
                virtual.syncer.seconds = 5.0
                agent.send(*tokens(11, 20), wire.Drain(1, "synced"))
                await anyio.sleep(1.0)
                assert virtual.daemon.syncer.syncing_since is not None
                virtual.faults.next["write"] = [errno.EIO]
                agent.send(*tokens(21, 22))
                before = len(virtual.faults.told)
                await agent.hear(wire.Drained)
                syncs = [path for verb, path, _ in virtual.faults.told[before:] if verb == "sync"]
                assert virtual.engine.segments.current.segment_id == 2
                assert len(set(syncs)) == 2, "the old one for nothing, then the new one"
                virtual.syncer.seconds = 0.0

    run(main)


def test_a_segment_that_is_bare_when_it_is_synced_is_missed_once_it_holds_something(
    tmp_path: Path,
) -> None:
    """P9: LOCK names a batch of it when it has one, not one of the segment before."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, *tokens(1, 2))
                await agent.drain("written")
                await virtual.daemon.writer.roll()
                await anyio.sleep(3.0)  # what is in the one before it is synced meanwhile
                agent.send(*tokens(3, 4))
                await agent.drain("synced")
                await virtual.crash()
        _, newest = sorted((home.data / "wal").glob("*.wal"))
        newest.unlink()
        async with living(home) as again:
            assert again.daemon.status.status()["start"]["corrupt"] == 1  # type: ignore[index]
            reply = await recovered(again, "r")
            assert reply is not None
            assert [gap.verdict for gap in reply.gaps] == ["corrupt"]

    run(main)


def test_no_sync_begins_beside_one_that_the_writer_has_begun(tmp_path: Path) -> None:
    """The loop has not heard of its write yet. Of its end, an error say, nobody would hear."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                await agent.drain("synced")
                syncer, written_no = virtual.daemon.syncer, virtual.engine.batches.written_no
                following = syncer.follow(written_no)
                assert following is not None
                following.start()
                assert syncer.follow(written_no) is None
                following.written()
                assert syncer.syncing_since is not None
                await until(lambda: syncer.syncing_since is None)

    run(main)
