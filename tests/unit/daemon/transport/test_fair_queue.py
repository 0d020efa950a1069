"""What one agent may give between two flushes, and when it may give more."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
from virtual_daemon import Home, Peer, Virtual, living, recovered, run, text_of, until
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from walld import limits

PIECE = b"p" * 8000
DISK_SECONDS = 0.5
"""What a write or a sync takes, in virtual time, where a disk is slow."""


async def push(peer: Peer, messages: list[wire.FromAgent], while_: Callable[[], object]) -> None:
    """Send as the kernel takes it, until all is sent or `while_` no longer holds."""
    raw = memoryview(b"".join(map(encode, messages)))
    while raw and while_():
        with suppress(BlockingIOError):
            raw = raw[peer.socket.send(raw) :]
        await anyio.sleep(0.001)


def flood(first: int, count: int) -> list[wire.FromAgent]:
    return [wire.Token(1, first + at, PIECE) for at in range(count)]


def taken(virtual: Virtual, name: str) -> int:
    """Text bytes of a stream the daemon has read."""
    stream = next(s for s in virtual.engine.registry.by_no.values() if s.begin.stream_id == name)
    return (stream.next_seq - 1) * len(PIECE)


def test_who_has_given_its_share_waits_for_the_flush_and_nobody_else_does(tmp_path: Path) -> None:
    """I1: beside a flood on a slow disk a drain waits for four shares at most, not for all.

    Two are in the flush under way, one of them given while it was, and two in the next.
    """

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual, anyio.create_task_group() as tasks:
            with Peer(virtual) as loud, Peer(virtual) as quiet:
                loud.send(wire.Start(1, 0, "loud", "s"))
                quiet.send(wire.Start(1, 0, "quiet", "s"))
                await quiet.drain()
                virtual.worker.seconds = DISK_SECONDS
                tasks.start_soon(push, loud, flood(1, 400), lambda: True)
                share = limits.SHARE_BYTES + limits.READ_BYTES_MAX + len(PIECE)
                for seq in range(1, 6):
                    quiet.send(wire.Token(1, seq, b"%d" % seq))
                    written = virtual.engine.agent_bytes
                    await quiet.drain()
                    assert virtual.engine.agent_bytes - written <= 4 * share
                    assert virtual.engine.batches.queue_bytes <= 2 * share
                virtual.worker.seconds = 0.0
                await until(lambda: taken(virtual, "loud") == 400 * len(PIECE))
                await loud.drain()
                assert text_of(await recovered(virtual, "loud")) == PIECE * 400
                assert text_of(await recovered(virtual, "quiet")) == b"12345"

    run(main)


def test_while_much_is_not_synced_no_new_share_is_given(tmp_path: Path) -> None:
    """I1: a sync that hangs stops the flood at half of what may be unsynced; the quiet go on."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual, anyio.create_task_group() as tasks:
            with Peer(virtual) as loud, Peer(virtual) as quiet:
                loud.send(wire.Start(1, 0, "loud", "s"))
                quiet.send(wire.Start(1, 0, "quiet", "s"))
                await quiet.drain()
                virtual.syncer.seconds = 100.0
                tasks.start_soon(push, loud, flood(1, 2000), lambda: True)
                await anyio.sleep(50)
                half, most = limits.UNSYNCED_BYTES_MAX // 2, 3 * limits.SHARE_BYTES
                assert half - limits.SHARE_BYTES < taken(virtual, "loud") < half + most
                quiet.send(wire.Token(1, 1, b"still taken"))
                await quiet.drain()
                assert virtual.engine.batches.unsynced_bytes < half + most
                virtual.syncer.seconds = 0.0
                await until(lambda: taken(virtual, "loud") == 2000 * len(PIECE), 600)
                await loud.drain("synced")
                assert text_of(await recovered(virtual, "loud")) == PIECE * 2000

    run(main)


def test_who_gives_nothing_that_is_queued_is_not_held_for_a_flush_that_never_comes(
    tmp_path: Path,
) -> None:
    """What comes again is dropped and no flush takes it: it is read on."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, PIECE))
                await agent.drain("synced")
                assert virtual.engine.schedule.oldest is None
                again: list[wire.FromAgent] = [wire.Token(1, 1, PIECE)] * 200
                await push(agent, [*again, wire.Token(1, 2, b"new")], lambda: True)
                await until(lambda: virtual.engine.counters.discarded["duplicate"] == 200)
                await agent.drain()
                assert text_of(await recovered(virtual, "r")) == PIECE + b"new"

    run(main)


def test_one_that_hangs_up_while_it_is_held_is_forgotten(tmp_path: Path) -> None:
    """Its share is in the flush under way; its descriptor may be another's by the next."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            loud = Peer(virtual)
            loud.send(wire.Start(1, 0, "loud", "s"))
            await loud.drain()
            virtual.worker.seconds = DISK_SECONDS
            peer = next(iter(virtual.daemon.connections.by_fd.values()))
            await push(loud, flood(1, 400), lambda: peer.selector is not None)
            assert peer.selector is None, "held"
            virtual.daemon.connections.close(peer)
            loud.socket.close()
            with Peer(virtual) as other:
                other.send(wire.Start(1, 0, "other", "s"), wire.Token(1, 1, b"heard"))
                await other.drain()
                assert text_of(await recovered(virtual, "other")) == b"heard"

    run(main)


def test_a_frame_that_was_begun_when_nobody_is_read_any_more_is_not_a_slow_one(
    tmp_path: Path,
) -> None:
    """The time for the rest of it counts only while it would be read."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(wire.Start(1, 0, "r", "s"))
                await agent.drain()
                frame = encode(wire.Token(1, 1, b"whole"))
                agent.socket.send(frame[:10])
                peer = next(iter(virtual.daemon.connections.by_fd.values()))
                await until(lambda: peer.frame_since is not None)
                held = int(limits.QUEUE_BYTES_MAX * limits.QUEUE_HIGH_SHARE) + 1
                virtual.engine.batches.queue_bytes += held
                agent.socket.send(frame[10:])
                await anyio.sleep(2 * limits.FRAME_SECONDS_MAX)
                virtual.engine.batches.queue_bytes -= held
                await agent.drain()
                assert text_of(await recovered(virtual, "r")) == b"whole"

    run(main)


def test_who_is_held_is_let_on_each_second_behind_a_disk_that_takes_nothing(
    tmp_path: Path,
) -> None:
    """P7: what the daemon has read is safe from the agent's death; a full disk holds nobody."""

    async def main() -> None:
        for error in (errno.ENOSPC, errno.EIO):
            home = tmp_path / str(error)
            home.mkdir()
            async with living(Home(home)) as virtual:
                with Peer(virtual) as loud:
                    loud.send(wire.Start(1, 0, "loud", "s"))
                    await loud.drain()
                    virtual.faults.stuck = {"write": error, "create": error}
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(push, loud, flood(1, 400), lambda: True)
                        await until(lambda: taken(virtual, "loud") == 400 * len(PIECE), 60)
                    virtual.faults.stuck = {}
                    await loud.drain("synced")
                    assert text_of(await recovered(virtual, "loud")) == PIECE * 400

    run(main)


def test_a_silence_is_no_age(tmp_path: Path) -> None:
    """One that was held had nothing more to say: a minute later nothing has waited a minute."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as loud, Peer(virtual) as quiet:
                loud.send(wire.Start(1, 0, "loud", "s"))
                quiet.send(wire.Start(1, 0, "quiet", "s"))
                await quiet.drain()
                virtual.worker.seconds = DISK_SECONDS
                peers = list(virtual.daemon.connections.by_fd.values())
                for first in range(1, 100):
                    await push(loud, flood(first, 1), lambda: True)
                    if any(virtual.daemon.fair_queue.is_held(peer) for peer in peers):
                        break
                else:
                    raise AssertionError("nobody was held")
                virtual.worker.seconds = 0.0
                await anyio.sleep(60)
                quiet.send(wire.Token(1, 1, b"fresh"))
                await quiet.drain()
                assert virtual.lag_max() <= 2

    run(main)


def test_the_age_of_what_was_not_read_counts(tmp_path: Path) -> None:
    """It lay in the kernel because it was held there: the flush that takes it says how long."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(wire.Start(1, 0, "r", "s"))
                await agent.drain()
                held = int(limits.QUEUE_BYTES_MAX * limits.QUEUE_HIGH_SHARE) + 1
                virtual.engine.batches.queue_bytes += held
                agent.send(wire.Token(1, 1, b"paused"))
                await anyio.sleep(2)
                virtual.daemon.fair_queue.begun()  # flushes of what is queued end a pause
                await anyio.sleep(2)
                virtual.engine.batches.queue_bytes -= held
                await agent.drain()
                assert virtual.lag_max() > 3.5, "and it was a tenth at most before"

    run(main)
