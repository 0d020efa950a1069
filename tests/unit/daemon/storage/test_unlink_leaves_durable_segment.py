"""LOCK says that there is a log: power must never leave none (FORMAT.md, "LOCK")."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import anyio
import pytest
from virtual_daemon import Home, Peer, Virtual, living, recovered, run, until
from walld_client.wire import messages as wire

from walld import limits
from walld.disk.real import RealFile
from walld.wal.layout import (
    SEGMENT_HEADER_BYTES,
    WAL_DIR,
    SegmentHeader,
    pack_segment_header,
    segment_name,
)


async def with_nothing_alive(home: Home) -> tuple[int, bytes]:
    """A daemon was killed behind a reply that is done with. The last batch, and the log."""
    async with living(home) as virtual:
        with Peer(virtual) as agent:
            agent.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"x"))
            agent.send(wire.End(1, 2, True, "stop"), wire.Release(1, 3))
            await agent.drain("synced")
        found = virtual.engine.batches.written_no, virtual.engine.log_uuid
        await virtual.crash()
    return found


def test_no_segment_goes_before_another_one_is_synced(tmp_path: Path) -> None:
    """Nothing is written to the new one of an idle daemon: its header alone is to stay."""

    async def main() -> None:
        gone: list[bool] = []

        def watch(virtual: Virtual) -> None:
            whole = virtual.disk.unlink

            def unlink(path: str) -> None:
                if path.startswith(f"{WAL_DIR}/"):
                    current = virtual.engine.segments.current
                    gone.append(virtual.daemon._files.is_durable(current.segment_id))
                whole(path)

            virtual.disk.unlink = unlink  # type: ignore[method-assign]

        async with living(Home(tmp_path), watch) as virtual:
            with Peer(virtual) as agent:
                agent.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"x"))
                await agent.drain("synced")
                agent.send(wire.End(1, 2, True, "stop"), wire.Release(1, 3))
                await until(lambda: bool(gone))
            assert gone == [True]
            assert virtual.engine.segments.size == 64

    run(main)


def test_restarts_beneath_a_silent_agent_leave_few_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start begins one, and they go oldest first: behind what is alive none of them would."""
    monkeypatch.setattr(limits, "SEGMENTS_MAX", 4)
    left = []

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"x"))
                await agent.drain("synced")
            await virtual.crash()
        for _ in range(12):
            async with living(home) as virtual:
                await anyio.sleep(3)
                left.append(len(virtual.engine.segments))
                reply = await recovered(virtual, "r")
                assert reply is not None
                await virtual.crash()

    run(main)
    assert max(left) <= 6, left


def test_one_that_a_start_could_not_sync_is_not_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before its first sync; the next start meets an error there, and goes on."""
    name, gone = segment_name(90), list[bool]()
    whole = RealFile.sync

    def sync(file: RealFile) -> None:
        if file.path.endswith(name):
            raise OSError(errno.EIO, os.strerror(errno.EIO), file.path)
        whole(file)

    def watch(virtual: Virtual) -> None:
        unlink = virtual.disk.unlink

        def watched(path: str) -> None:
            rest = {one.segment_id for one in virtual.engine.segments} - {90}
            rest = {one for one in rest if f"{WAL_DIR}/{segment_name(one)}" != path}
            gone.append(any(virtual.daemon._files.is_durable(one) for one in rest))
            unlink(path)

        virtual.disk.unlink = watched  # type: ignore[method-assign]

    async def main() -> None:
        home = Home(tmp_path)
        no, log = await with_nothing_alive(home)
        header = pack_segment_header(SegmentHeader(log, 90, no, 1))
        (home.data / WAL_DIR / name).write_bytes(header)
        monkeypatch.setattr(RealFile, "sync", sync)
        async with living(home, watch):
            await until(lambda: len(gone) >= 2)
        assert all(gone)

    run(main)


def open_in(folder: Path) -> int:
    """Files of it that this process has open."""
    names = [os.path.realpath(fd) for fd in Path("/proc/self/fd").iterdir()]
    return sum(name.startswith(f"{folder}/") for name in names)


def test_a_start_opens_no_segment_of_which_nothing_is_alive(tmp_path: Path) -> None:
    """One that was killed again and again has left more than it may open."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"x"))
                await agent.drain("synced")
            no, log, epoch = virtual.engine.batches.written_no, virtual.engine.log_uuid, 1
            await virtual.crash()
        for segment_id in range(50, 150):
            header = pack_segment_header(SegmentHeader(log, segment_id, no, epoch))
            (home.data / WAL_DIR / segment_name(segment_id)).write_bytes(header)
        async with living(home) as virtual:
            assert len(virtual.engine.segments) > 100
            assert len(list((home.data / WAL_DIR).iterdir())) > 100
            assert open_in(home.data / WAL_DIR) < 4
            assert await recovered(virtual, "r") is not None

    run(main)


def test_none_goes_where_what_would_be_left_proves_no_log(tmp_path: Path) -> None:
    """A start on a full disk makes room; the header of the one that would stay is lost to power."""

    def full(virtual: Virtual) -> None:
        virtual.faults.stuck["write"] = errno.ENOSPC

    async def main() -> None:
        home = Home(tmp_path)
        await with_nothing_alive(home)
        wal = home.data / WAL_DIR
        (there,) = wal.iterdir()
        (wal / segment_name(90)).write_bytes(bytes(SEGMENT_HEADER_BYTES))
        async with living(home, full) as virtual:
            await anyio.sleep(5)
            assert there.exists()
            await virtual.crash()
        async with living(home) as virtual:
            assert virtual.daemon.status.doubt is None

    run(main)
