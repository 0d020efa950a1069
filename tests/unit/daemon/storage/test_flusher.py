"""Flushes against a disk that is slow; their deadlines: `virtual_time/test_flushing.py`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import anyio
from virtual_daemon import Home, Peer, Virtual, living, recovered, run
from walld_client.wire import messages as wire

from walld import limits

PIECE = bytes(100_000)


def crowd(held: ExitStack, virtual: Virtual, count: int) -> list[Peer]:
    """So many agents with a reply each: none of them says so much that it is held."""
    agents = [held.enter_context(Peer(virtual)) for _ in range(count)]
    for number, agent in enumerate(agents):
        agent.send(wire.Start(1, 0, f"r{number}", "s"))
    return agents


def test_memory_of_what_is_not_synced_is_bounded(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            virtual.syncer.seconds = 30.0
            with ExitStack() as held:
                agents = crowd(held, virtual, 130)
                for agent in agents:
                    agent.send(wire.Token(1, 1, PIECE))
                    await anyio.sleep(0.1)
                most = limits.UNSYNCED_BYTES_MAX + limits.BATCH_BYTES_MAX
                assert limits.UNSYNCED_BYTES_MAX / 2 < virtual.engine.batches.unsynced_bytes <= most
                virtual.syncer.seconds = 0.0
                for agent in agents:
                    await agent.drain("synced")
                assert virtual.engine.batches.unsynced_bytes < 100, "a batch that only tells"
                assert all(one.synced_seq == 1 for one in virtual.engine.registry.by_no.values())

    run(main)


def test_a_stop_in_the_middle_of_a_flush_finishes_it(tmp_path: Path) -> None:
    """Several batches, each write takes a while; the stop comes between two of them."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            virtual.worker.seconds = 0.2
            with ExitStack() as held:
                for agent in crowd(held, virtual, 20):
                    agent.send(wire.Token(1, 1, PIECE))
                    await anyio.sleep(0.004)
                await anyio.sleep(0.6)
                assert 0 < virtual.engine.batches.written_no < 8
        async with living(home) as again:
            for number in range(20):
                reply = await recovered(again, f"r{number}")
                assert reply is not None
                assert (reply.last_seq, reply.gaps) == (1, [])

    run(main)
