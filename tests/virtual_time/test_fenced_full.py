"""A full disk is tried again for ever; not by a daemon whose directory is another one's (W4)."""

from __future__ import annotations

import errno
from pathlib import Path

import anyio
import pytest
from virtual_daemon import Home, Peer, Virtual, run, tokens, until
from walld_client.wire import messages as wire

from walld.disk.lock_record import LOCK_NAME, lock_record, parse_lock
from walld.disk.real import RealDisk
from walld.errors import DirectoryTaken


def _raise_epoch(home: Home) -> None:
    lock = home.data / "LOCK"
    told = parse_lock(lock.read_bytes(), LOCK_NAME)
    assert told is not None
    with lock.open("r+b") as file:
        file.write(lock_record(told._replace(epoch=told.epoch + 1)))


async def _leave_torn(home: Home) -> None:
    """A log of which the next start has something to write down."""
    virtual = Virtual(home)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(virtual.live)
        await until(lambda: not virtual.is_starting)
        with Peer(virtual) as peer:
            peer.send(wire.Start(1, 0, "r", "s"), *tokens(1, 3))
            await peer.drain("synced")
        await virtual.crash()
    with max((home.data / "wal").glob("*.wal")).open("r+b") as file:
        file.truncate(file.seek(0, 2) - 3)


async def _fill(virtual: Virtual, peer: Peer, at: str, room: list[int]) -> None:
    """Until nothing is written any more."""
    peer.send(wire.Start(1, 0, "r", "s"), *tokens(1, 3), wire.Start(2, 0, "old", "s"))
    peer.send(*(wire.Token(2, seq, b"x") for seq in range(1, 5)))
    await peer.drain("synced")
    if at == "an end that waits for room":
        room.clear()
        virtual.faults.next["write"] = [errno.ENOSPC] * 3
        peer.send(*tokens(4, 9))
        await anyio.sleep(5)
        peer.send(*tokens(10, 12))  # only ends are written now
        await anyio.sleep(5)
        assert virtual.engine.batches.waiting
    else:
        virtual.faults.stuck["write"] = errno.ENOSPC
        if at == "its background":  # what was released is to go, and a segment to be begun for it
            peer.send(wire.End(2, 5, True), wire.Release(2, 6))
        peer.send(*tokens(4, 9))
        await anyio.sleep(8)


@pytest.mark.parametrize(
    "at", ["its start", "its background", "an end", "an end that waits for room"]
)
def test_a_full_disk_keeps_nobody_who_is_not_the_owner(
    tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[float] = []
    room = [1 << 40]
    monkeypatch.setattr(RealDisk, "free_bytes", lambda _disk: sum(room))

    async def live(virtual: Virtual) -> None:
        with pytest.raises(BaseExceptionGroup) as raised:
            await virtual.live()
        taken, rest = raised.value.split(DirectoryTaken)
        assert taken is not None
        assert rest is None, "it is no trouble but this"
        ended.append(anyio.current_time())

    async def main() -> None:
        home = Home(tmp_path, reclaim_seconds="1")
        if at == "its start":
            await _leave_torn(home)
        virtual = Virtual(home)
        async with anyio.create_task_group() as tasks:
            if at == "its start":
                virtual.faults.next["write"] = [None]  # the header of its segment
                virtual.faults.stuck["write"] = errno.ENOSPC
                tasks.start_soon(live, virtual)
                await anyio.sleep(5)
                assert not virtual.daemon._first_segment.is_over.is_set()
            else:
                tasks.start_soon(live, virtual)
                await until(lambda: not virtual.is_starting)
                with Peer(virtual) as peer:
                    await _fill(virtual, peer, at, room)
            _raise_epoch(home)
            begun = anyio.current_time()
            if at.startswith("an end"):
                virtual.stop.set()
            await anyio.sleep(60)
            is_over = virtual.ended.is_set()
            virtual.faults.stuck.clear()  # or it would keep this test, too
            await virtual.crash()
            assert is_over, "it went on while the disk was full"
        assert ended[0] - begun < 2.5

    run(main)
