"""Writing on a disk that fails: W1 to W4, on a daemon in virtual time."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_daemon import (
    Home,
    Peer,
    Virtual,
    all_is_there_after,
    living,
    recovered,
    run,
    said,
    text_of,
    tokens,
)
from walld_client.wire import messages as wire

from walld import limits
from walld.disk.lock_record import LOCK_BYTES, LOCK_NAME, lock_record, parse_lock
from walld.disk.real import RealDisk
from walld.errors import DirectoryTaken
from walld.wal.headers import good_headers
from walld.wal.layout import parse_segment_name
from walld.wal.log_scan import LogScan, list_segments

START = wire.Start(1, 0, "r", "s")


def test_batches_are_written_in_order_one_behind_the_other(tmp_path: Path) -> None:
    """W1: also while many flushes and syncs go on at once."""

    async def main() -> None:
        home = Home(tmp_path, flush_linger_ms="0")
        async with living(home) as virtual:
            virtual.worker.seconds, virtual.syncer.seconds = 0.01, 0.03
            with Peer(virtual) as agent:
                agent.send(START)
                for seq in range(1, 200):
                    agent.send(*tokens(seq, seq))
                    if seq % 20 == 0:
                        agent.send(wire.Drain(seq, "synced"))
                    await anyio.sleep(0.003)
                await agent.drain("synced")
                virtual.worker.seconds = virtual.syncer.seconds = 0.0
                await virtual.crash()
        disk = RealDisk(str(home.data), read_only=True)
        scan = LogScan(disk)
        found = [(segment, batch.offset, batch.batch_no) for segment, batch in scan]
        disk.close()
        assert [number for _, _, number in found] == list(range(1, len(found) + 1))
        assert all(a < b for a, b in pairwise(found))
        assert scan.verdict().is_clean
        await all_is_there_after(home, 199)

    run(main)


FAILURES: dict[str, Callable[[Virtual], None]] = {
    "write": lambda v: v.faults.next.update(write=[errno.EIO]),
    "second write": lambda v: v.faults.next.update(write=[None, errno.EIO]),
    "write, then the new segment": lambda v: v.faults.next.update(
        write=[errno.EIO], create=[errno.EIO, errno.EIO]
    ),
    "sync, then the new segment": lambda v: v.faults.next.update(
        sync=[errno.EIO], create=[errno.EROFS]
    ),
    "sync, then what is written again": lambda v: v.faults.next.update(
        sync=[errno.EIO], write=[None, None, None, errno.EIO, None, errno.EIO]
    ),
    "sync twice": lambda v: v.faults.next.update(sync=[errno.EIO, errno.EIO]),
    "no room to write again": lambda v: v.faults.next.update(
        sync=[errno.EIO], create=[errno.ENOSPC, errno.ENOSPC]
    ),
}


@pytest.mark.parametrize("what", FAILURES)
def test_whatever_fails_all_of_it_is_synced_in_the_end(tmp_path: Path, what: str) -> None:
    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, *tokens(1, 10))
                await agent.drain("synced")
                FAILURES[what](virtual)
                for seq in range(11, 40):
                    agent.send(*tokens(seq, seq))
                    await anyio.sleep(0.2)
                await agent.drain("synced")
                assert virtual.engine.registry.by_no[1].synced_seq == 39
                assert not any(virtual.faults.next.values()), "all of it happened"
                virtual.faults.none_was_tried_again()
                assert virtual.daemon.status.word == "ok"
                await virtual.crash()
        await all_is_there_after(home, 39)

    run(main)


def test_a_segment_that_batches_are_written_to_again_says_so(tmp_path: Path) -> None:
    """FORMAT.md, rule 4: what the one before it holds may never have been synced."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, *tokens(1, 10))
                await agent.drain("synced")
                await virtual.daemon.writer.roll()
                virtual.faults.next["sync"] = [errno.EIO]
                agent.send(*tokens(11, 12))
                await agent.drain("synced")
                await virtual.crash()
        with RealDisk(str(home.data), read_only=True) as disk:
            found = [header.again for header in good_headers(disk, list_segments(disk))]
        assert found == [True, False, False], "newest first"

    run(main)


def test_a_failure_right_after_a_roll(tmp_path: Path) -> None:
    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            virtual.syncer.seconds = 5.0
            with Peer(virtual) as agent:
                agent.send(START, *tokens(1, 10))
                await agent.drain("written")
                await virtual.daemon.writer.roll()
                virtual.faults.next["write"] = [errno.EIO]
                agent.send(*tokens(11, 12))
                await agent.drain("written")
                virtual.syncer.seconds = 0.0
                await agent.drain("synced")
                await virtual.crash()
        await all_is_there_after(home, 12)

    run(main)


errors = st.sampled_from([None, None, None, errno.EIO, errno.ENOSPC])


@settings(max_examples=20)
@given(
    writes=st.lists(errors, max_size=8),
    syncs=st.lists(st.sampled_from([None, None, errno.EIO]), max_size=5),
    creates=st.lists(st.sampled_from([None, errno.EIO, errno.ENOSPC]), max_size=4),
    pace=st.sampled_from([0.01, 0.1, 0.5]),
    slow=st.sampled_from([0.0, 0.05]),
)
def test_any_failures_at_all(
    tmp_path_factory: pytest.TempPathFactory,
    writes: list[int | None],
    syncs: list[int | None],
    creates: list[int | None],
    pace: float,
    slow: float,
) -> None:
    async def main() -> None:
        home = Home(tmp_path_factory.mktemp("d"))
        async with living(home) as virtual:
            virtual.worker.seconds = virtual.syncer.seconds = slow
            with Peer(virtual) as agent:
                agent.send(START)
                virtual.faults.next.update(write=writes, sync=syncs, create=creates)
                synced = -1
                for seq in range(1, 40):
                    agent.send(*tokens(seq, seq))
                    await anyio.sleep(pace)
                    for message in agent.heard():
                        if isinstance(message, wire.Ack):
                            assert message.streams[0][2] >= synced
                            synced = message.streams[0][2]
                virtual.faults.none_was_tried_again()
                await virtual.crash()
        async with living(home) as again:
            reply = await recovered(again, "r")
            assert reply is not None or synced < 0
            assert again.engine.counters.lost_acked == 0
            if reply is not None:
                assert reply.last_seq >= synced
                assert text_of(reply) == said(reply.last_seq)
                assert reply.gaps == []

    run(main)


def test_a_full_disk_is_tried_again_and_agents_go_on(tmp_path: Path) -> None:
    """W3, P7."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, *tokens(1, 10))
                await agent.drain("synced")
                virtual.faults.stuck["write"] = errno.ENOSPC
                before = len(virtual.faults.told)
                agent.send(*tokens(11, 20))
                await anyio.sleep(10)
                tries = [t for t in virtual.faults.told[before:] if t[0] == "write"]
                assert 5 <= len(tries) <= 25, "about one a second"
                assert len({path for _, path, _ in tries}) == 1, "no new segment for want of room"
                assert virtual.daemon.status.word == "disk_full"
                assert text_of(await recovered(virtual, "r")) == said(20)
                agent.send(*tokens(21, 30))
                virtual.faults.stuck.clear()
                await agent.drain("synced")
                await anyio.sleep(3)
                assert virtual.daemon.status.word == "ok"
                await virtual.crash()
        await all_is_there_after(home, 30)

    run(main)


def test_a_segment_is_left_when_it_is_full(tmp_path: Path) -> None:
    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                piece = b"x" * 100_000
                seq = 0
                while len(virtual.engine.segments) < 3 and seq < 400:
                    seq += 1
                    agent.send(wire.Token(1, seq, piece))
                    await agent.drain("written")
                sizes = [segment.size for segment in virtual.engine.segments][:-1]
                assert all(size <= limits.SEGMENT_BYTES_MAX for size in sizes)
                assert all(size > limits.SEGMENT_BYTES_MAX - 200_000 for size in sizes)
                names = sorted(path.name for path in (home.data / "wal").iterdir())
                assert [parse_segment_name(name) for name in names] == [1, 2, 3]

    run(main)


def test_who_is_no_longer_the_owner_acknowledges_nothing(tmp_path: Path) -> None:
    """W4: frozen, another daemon took the directory, thawed."""
    heard: list[object] = []

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, *tokens(1, 10))
                await agent.drain("synced")
                with (home.data / "LOCK").open("r+b") as lock:
                    told = parse_lock(lock.read(LOCK_BYTES), LOCK_NAME)
                    assert told is not None
                    os.pwrite(lock.fileno(), lock_record(told._replace(epoch=2)), 0)
                agent.send(*tokens(11, 20), wire.Drain(2, "written"))
                await virtual.ended.wait()
                heard.extend(agent.heard())

    with pytest.raises(BaseExceptionGroup) as caught:
        run(main)
    taken, rest = caught.value.split(DirectoryTaken)
    assert taken is not None
    assert rest is None
    assert [m for m in heard if isinstance(m, wire.Ack | wire.Drained)] == []
