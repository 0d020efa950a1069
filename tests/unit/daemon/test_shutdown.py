"""A stop of a daemon whose data directory somebody removes, whenever that is."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import anyio
import pytest
from virtual_daemon import Home, Peer, Virtual, run, until
from walld_client.wire import messages as wire

from walld.disk.real import RealDisk
from walld.errors import WalldError

SYNC_SECONDS = 5.0
TRIES_MAX = 12


@pytest.mark.parametrize("removed_at", ["before the stop", "within the sync", "within the move"])
def test_an_end_does_not_wait_for_a_directory_that_was_removed(
    tmp_path: Path, removed_at: str
) -> None:
    """A sync is under way: that it failed is known only once the stop has begun."""

    async def main() -> None:
        virtual = Virtual(Home(tmp_path))
        pause, tries = virtual.daemon.writer.pause, list[float]()

        async def counted(least: float = 0.0) -> None:
            tries.append(least)
            assert len(tries) < TRIES_MAX, "it tries for ever"
            await pause(least)

        virtual.daemon.writer.pause = counted  # type: ignore[method-assign]

        async def stops() -> None:
            await until(lambda: not virtual.is_starting)
            with Peer(virtual) as agent:
                agent.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"x"))
                virtual.syncer.seconds = SYNC_SECONDS
                await until(lambda: virtual.daemon.syncer.syncing_since is not None)
                if removed_at == "within the move":
                    virtual.faults.stuck["create"] = errno.EIO
                    virtual.faults.next["sync"] = [errno.EIO]
                elif removed_at == "before the stop":
                    shutil.rmtree(virtual.home.data)
                virtual.stop.set()
                await anyio.sleep(1 if removed_at != "within the move" else 2 * SYNC_SECONDS)
                shutil.rmtree(virtual.home.data, ignore_errors=True)
                await virtual.ended.wait()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(virtual.live)
            tasks.start_soon(stops)

    with pytest.raises(BaseExceptionGroup) as raised:
        run(main)
    told, rest = raised.value.split(WalldError)
    assert rest is None
    assert told is not None
    assert "was removed: what was not synced is lost" in repr(told)


def test_on_a_file_server_it_is_removed_where_the_kernel_says_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RealDisk(str(tmp_path)) as disk:
        assert not disk.is_removed()

        def fails(number: int) -> None:
            def fstat(_fd: int) -> None:
                raise OSError(number, "it fails")

            monkeypatch.setattr("walld.disk.real.os.fstat", fstat)

        fails(errno.ESTALE)
        assert disk.is_removed()
        fails(errno.EIO)
        assert not disk.is_removed()
        monkeypatch.undo()
