"""Who has hung up, and how long anybody waits for what such a one left."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import anyio
from engine_world import World
from virtual_daemon import Home, Peer, asked, living, run
from walld_client.wire import messages as wire

from walld.daemon.transport.query_sockets import QuerySockets


def test_who_waits_waits_for_those_who_are_gone_by_then() -> None:
    """One after another hangs up with words unread: each alone would be waited for a second."""
    ours: list[socket.socket] = []

    async def main() -> None:
        world, query_sockets = World(), QuerySockets()
        asking = world.connect(b"a" * 16)

        def hang_up(number: int) -> None:
            own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            ours.append(own)
            query_sockets.add(own, world.connect(bytes([number]) * 16))
            other.send(b"unread")
            other.close()

        async def one_after_another() -> None:
            for number in range(1, 60):
                hang_up(number)
                await anyio.sleep(0.5)

        hang_up(60)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one_after_another)
            assert not query_sockets.has_hung_up(asking)
            begun = anyio.current_time()
            await query_sockets.settled(None, asking)
            assert anyio.current_time() - begun < 1.5
            tasks.cancel_scope.cancel()
        query_sockets.close()

    run(main)
    for one in ours:
        one.close()


def test_who_waited_too_long_is_told_so(tmp_path: Path) -> None:
    """A gate is not to say "safe" without a start that a dead caller left; the rest is answered."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual, "query") as peer:
                peer.send(wire.Append(1, "s", [wire.NewEntry("n", b"{}", "a")]))
                await peer.hear(wire.Answer)
            gone = virtual.daemon.connections.query_sockets
            own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            caller = gone.add(own, World().connect(b"g" * 16))
            caller.connection.uid = os.geteuid()
            other.send(b"a start that nobody takes in")
            other.close()
            assert await asked(virtual, wire.Events(1, "s"))
            with Peer(virtual, "query") as peer:
                peer.send(wire.Project(1, "s", "resume", b"{}"))
                refused = await peer.hear(wire.Error)
            assert (refused.code, refused.id) == ("behind", 1)
            gone.end(caller)
            own.close()
            assert await asked(virtual, wire.Project(1, "s", "resume", b"{}"))

    run(main)
