"""The ends of connections, and peers that do not read: I2."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from virtual_daemon import Home, Peer, Virtual, living, recovered, run, text_of, until
from walld_client.wire import messages as wire

from walld import limits
from walld.engine.stream import Connection

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


def test_a_long_frame_that_ends_its_connection_counts_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was whole: nothing of it waited as the connection went, and so it was counted for good."""
    monkeypatch.setattr(limits, "BEGUN_FRAMES_PER_UID_MAX", 2)
    bad = wire.Hello(1, "agent", b"p" * 16, client="x" * 100_000)

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            for _ in range(3):
                with Peer(virtual) as broken:
                    broken.send(bad)
                    assert (await broken.hear(wire.Error)).code == "not_hello"
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, b"x" * 100_000))
                await agent.drain()
                assert text_of(await recovered(virtual, "r")) == b"x" * 100_000

    run(main)


# --- acks of many streams, and peers that never read them -----------------------------------------


def test_the_acks_of_many_streams_come_in_pieces_and_before_the_answer(tmp_path: Path) -> None:
    """One Ack of 12,000 streams was longer than what may wait for a peer, and never sent."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                count = 12_000
                for first in range(1, count + 1, 500):
                    numbers = range(first, first + 500)
                    agent.send(*(wire.Start(number, 0, f"r{number}", "s") for number in numbers))
                    await anyio.sleep(0.05)
                agent.send(wire.Drain(5, "synced"))
                acked: dict[int, int] = {}
                while True:
                    await anyio.sleep(0.01)
                    heard = agent.heard()
                    for message in heard:
                        if isinstance(message, wire.Ack):
                            acked |= {number: synced for number, _, synced in message.streams}
                    if any(isinstance(message, wire.Drained) for message in heard):
                        break
                assert acked == dict.fromkeys(range(1, count + 1), 0)

    run(main)


def test_one_that_releases_without_end_and_never_reads_is_held_until_it_does(
    tmp_path: Path,
) -> None:
    """P10: what it was to be told grew with each release: 1.2 GB in a few seconds."""

    def replies(first: int) -> list[wire.FromAgent]:
        many: list[wire.FromAgent] = []
        for number in range(first, first + 20):
            many += [wire.Start(number, 0, f"r{number}", "s"), wire.End(number, 1, clean=True)]
            many.append(wire.Release(number, 2))
        return many

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as deaf, Peer(virtual) as other:
                deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                (connection,) = [
                    one
                    for one in await connected(virtual, 2)
                    if one.producer is not None and one.producer.id == deaf.producer
                ]
                most = number = 0
                with suppress(BlockingIOError):
                    for number in range(1, 200_000, 20):
                        deaf.send(*replies(number))
                        await anyio.sleep(0.02)
                        most = max(most, len(connection.dirty))
                assert limits.UNHEARD_STREAMS_MAX < most < limits.UNHEARD_STREAMS_MAX + 1000
                other.send(wire.Start(1, 0, "other", "s"))
                await other.drain()
                was = connection.dirty
                for _ in range(100):
                    deaf.heard()
                    await anyio.sleep(0.1)
                assert not was, "told, and read on"
                number += 1_000_000
                deaf.send(wire.Start(number, 0, "last", "s"))
                await deaf.drain()

    run(main)


async def connected(virtual: Virtual, count: int) -> list[Connection]:
    connections = virtual.daemon.connections.by_connection
    await until(lambda: len([one for one in connections if one.producer]) == count)
    return list(connections)
