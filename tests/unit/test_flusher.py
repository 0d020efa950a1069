"""Flushes against a disk that is slow; their deadlines: `virtual_time/test_flushing.py`."""

from __future__ import annotations

from pathlib import Path

import anyio
from virtual_daemon import Home, Peer, living, recovered, run
from walld_client.wire import messages as wire

from walld import limits

START = wire.Start(1, 0, "r", "s")


def test_memory_of_what_is_not_synced_is_bounded(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            virtual.syncer.seconds = 30.0
            with Peer(virtual) as agent:
                agent.send(START)
                for seq in range(1, 130):
                    agent.send(wire.Token(1, seq, bytes(100_000)))
                    await anyio.sleep(0.1)
                most = limits.UNSYNCED_BYTES_MAX + limits.BATCH_BYTES_MAX
                assert limits.UNSYNCED_BYTES_MAX / 2 < virtual.engine.sealing.unsynced_bytes <= most
                virtual.syncer.seconds = 0.0
                await agent.drain("synced")
                assert virtual.engine.sealing.unsynced_bytes < 100, "a batch that only tells"
                assert virtual.engine.registry.by_no[1].synced_seq == 129

    run(main)


def test_a_stop_in_the_middle_of_a_flush_finishes_it(tmp_path: Path) -> None:
    """Several batches, each write takes a while; the stop comes between two of them."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            virtual.worker.seconds = 0.2
            with Peer(virtual) as agent:
                agent.send(START)
                piece = 100_000
                for seq in range(1, 21):
                    agent.send(wire.Token(1, seq, b"%04d" % seq + bytes(piece)))
                    await anyio.sleep(0.004)
                await anyio.sleep(0.6)
                assert 0 < virtual.engine.sealing.written_no < 8
        async with living(home) as again:
            reply = await recovered(again, "r")
            assert reply is not None
            assert (reply.last_seq, reply.gaps) == (20, [])

    run(main)
