"""A daemon that nobody uses ends, and looks for that without holding anybody up."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import anyio
import pytest
from virtual_daemon import Home, Peer, living, run
from walld_client.wire import messages as wire

from walld.daemon.idle_exit import IdleExit


async def no_signal() -> str:
    await anyio.sleep_forever()
    return ""


def test_a_lock_that_hangs_holds_up_no_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P9: the file is on a disk as any other, and the event loop never waits for one."""
    lock, begun, goes_on, went_on = fcntl.flock, threading.Event(), threading.Event(), []

    def hangs(fd: int, operation: int) -> None:
        begun.set()
        went_on.append(goes_on.wait(5))
        lock(fd, operation)

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            daemon = virtual.daemon
            idle = IdleExit(
                str(tmp_path / "users"), daemon.acceptor, daemon.connections, daemon.status
            )
            monkeypatch.setattr(fcntl, "flock", hangs)
            async with anyio.create_task_group() as tasks:
                ended: list[str] = []

                async def watch() -> None:
                    ended.append(await idle.stop(no_signal))

                tasks.start_soon(watch)
                while not begun.is_set():  # noqa: ASYNC110 - a thread's event
                    await anyio.sleep(0.05)
                with Peer(virtual) as agent:
                    agent.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"x"))
                    await agent.drain()
                    agent.send(wire.End(1, 2, clean=True), wire.Release(1, 3))
                    await agent.drain()
                goes_on.set()
            assert ended == ["unused"]
        assert set(went_on) == {True}, "an agent was served while it hung"

    run(main)
