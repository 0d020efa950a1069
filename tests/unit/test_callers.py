"""Who has hung up, and how long anybody waits for what such a one left."""

from __future__ import annotations

import socket

import anyio
from engine_world import World
from virtual_daemon import run

from walld.daemon.callers import Callers


def test_who_waits_waits_for_those_who_are_gone_by_then() -> None:
    """One after another hangs up with words unread: each alone would be waited for a second."""
    ours: list[socket.socket] = []

    async def main() -> None:
        world, callers = World(), Callers()
        asking = world.connect(b"a" * 16)

        def hang_up(number: int) -> None:
            own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            ours.append(own)
            callers.add(own, world.connect(bytes([number]) * 16))
            other.send(b"unread")
            other.close()

        async def one_after_another() -> None:
            for number in range(1, 60):
                hang_up(number)
                await anyio.sleep(0.5)

        hang_up(60)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one_after_another)
            assert not callers.has_hung_up(asking)
            begun = anyio.current_time()
            await callers.settled(None, asking)
            assert anyio.current_time() - begun < 1.5
            tasks.cancel_scope.cancel()
        callers.close()

    run(main)
    for one in ours:
        one.close()
