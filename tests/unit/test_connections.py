"""The ends of connections, and peers that do not read: I2."""

from __future__ import annotations

import socket
from pathlib import Path

import anyio
from virtual_daemon import Home, Peer, living, recovered, run, text_of
from walld_client.wire import messages as wire

from walld import limits

START = wire.Start(1, 0, "r", "s")


def test_everything_before_the_end_is_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, *(wire.Token(1, seq, b"x" * 100) for seq in range(1, 500)))
            await anyio.sleep(1)
            assert virtual.engine.registry.by_no[1].next_seq == 500
            assert len(virtual.daemon.connections) == 0

    run(main)


def test_a_failed_send_ends_nothing(tmp_path: Path) -> None:
    """I2: the peer's receiving side is shut; it still has things to say."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                await agent.drain("synced")
                agent.socket.shutdown(socket.SHUT_RD)
                for seq in range(1, 30):
                    agent.send(wire.Token(1, seq, b"x"), wire.Drain(seq, "synced"))
                    await anyio.sleep(0.3)
                assert virtual.engine.registry.by_no[1].next_seq == 30
                assert len(virtual.daemon.connections) == 1

    run(main)


def test_a_peer_that_does_not_read_costs_a_bounded_memory(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                for _ in range(200):
                    agent.send(*(wire.Drain(n, "written" + "x" * 30) for n in range(50)))
                    await anyio.sleep(0.05)
                (connection,) = virtual.daemon.connections.by_connection
                assert 0 < connection.outbox_bytes <= limits.ACK_BYTES_MAX
                assert len(agent.heard()) > 100
                agent.send(wire.Token(1, 1, b"x"))
                await agent.drain()

    run(main)


def test_broken_framing_ends_that_connection_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as broken, Peer(virtual) as well:
                broken.send(START, wire.Token(1, 1, b"taken"))
                well.send(wire.Start(1, 0, "q", "s"))
                broken.socket.send(b"\xff\xff\xff\xff")
                await anyio.sleep(0.5)
                (error,) = broken.heard()
                assert (error.code, error.id, broken.ended) == ("frame_too_long", 0, True)
                assert error.got == str(0xFFFFFFFF)
                assert error.limit == str(limits.FRAME_BYTES_MAX)
                await well.drain()
                assert text_of(await recovered(virtual, "r")) == b"taken"
                assert virtual.engine.counters.protocol_errors["frame_too_long"] == 1

    run(main)
