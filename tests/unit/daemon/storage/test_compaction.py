"""Carried records and unlinked segments: K1 and K2."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from engine_world import entries
from hypothesis import given
from hypothesis import strategies as st
from virtual_daemon import Home, Peer, Virtual, living, run
from walld_client.wire import messages as wire

from walld import limits
from walld.daemon.storage.compaction import _CARRY_BYTES_MAX, _run_within, _small_run, carried_flags
from walld.disk.real import RealDisk
from walld.engine.batch import SealedBatch
from walld.engine.segments import Segment
from walld.engine.stream import Place, Stream
from walld.wal.layout import ENTRY_BYTES, Flag
from walld.wal.log_scan import LogScan, list_segments
from walld.wal.records import Begin, Happened, Item, Owner, Text

START = wire.Start(1, 0, "r", "s")
BEGIN = Begin(1000, b"p" * 16, 1, "r", "s", None, None, None, 5, Owner("boot", 7, 0, 0))


# --- which records are carried --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "flags"),
    [
        ([BEGIN], Flag.BEGIN),
        ([Text(1, 5, b"\x01\x01", b"ab")], 0),
        ([BEGIN, Happened(5, wire.Move(1, 1, "t"))], Flag.BEGIN | Flag.MOVED),
        ([Happened(5, wire.End(1, 1, clean=True))], Flag.TERMINAL),
        ([Happened(5, wire.AppError(1, 1, "no"))], Flag.TERMINAL),
        ([Happened(5, wire.Step(1, 1))], 0),
    ],
)
def test_a_carried_record_says_what_stands_in_it(items: list[Item], flags: int) -> None:
    assert carried_flags(items) == flags


def stream_with(sizes: list[int]) -> Stream:
    stream = Stream(1, BEGIN, None)
    for batch_no, size in enumerate(sizes, 1):
        stream.place(Place(batch_no, 48, size))
    return stream


lengths = st.lists(st.integers(1, 200_000) | st.integers(1, 3000), min_size=1, max_size=150)
crowded = st.lists(st.integers(1, 200_000) | st.integers(1, 3000), min_size=1, max_size=40).map(
    lambda sizes: sizes * (limits.INDEX_ENTRIES_MAX // len(sizes) + 1)
)


@given(crowded)
def test_a_run_to_fold_is_small_enough_and_the_cheapest_there_is(sizes: list[int]) -> None:
    at, count = _small_run(stream_with(sizes))
    chosen = sizes[at : at + count]
    assert len(chosen) == count
    if count > 1:
        assert sum(chosen) <= _CARRY_BYTES_MAX
        sums = [sum(sizes[i : i + count]) for i in range(len(sizes) - count + 1)]
        assert sum(chosen) == min(sums), "what was folded before is not taken along"
    small = [size < _CARRY_BYTES_MAX // 8 for size in sizes]
    if any(a and b for a, b in itertools.pairwise(small)):
        assert count >= 2, "two small neighbours can always be folded"


@given(lengths, st.integers(1, 160), st.integers(1, 160))
def test_a_run_to_carry_stays_within_its_segment(sizes: list[int], a: int, b: int) -> None:
    low, high = min(a, b), max(a, b) + 1
    if low > len(sizes):
        return
    segment = Segment(1, low, 0.0)
    segment.offsets.extend(range(64, 64 + high - low))
    at, count = _run_within(stream_with(sizes), segment)
    assert count >= 1
    assert low <= at + 1
    assert at + count < high or at + count == len(sizes)
    assert sum(sizes[at : at + count]) <= _CARRY_BYTES_MAX or count == 1


# --- amounts --------------------------------------------------------------------------------------


def grows(virtual: Virtual) -> Callable[[], None]:
    """Checks that hold at any moment (K2)."""

    def check() -> None:
        engine = virtual.engine
        slack = _CARRY_BYTES_MAX
        assert engine.carried_bytes <= engine.agent_bytes + slack, "K2"
        most = 2 * engine.segments.live_bytes + 2 * limits.SEGMENT_BYTES_MAX
        assert engine.segments.size <= most + limits.SEGMENT_BYTES_MAX

    return check


def records_written(virtual: Virtual) -> list[int]:
    """[how many records were written for the first time], from here on."""
    count = [0]
    written = virtual.engine.written

    def counted(sealed: SealedBatch, offset: int, now: float) -> None:
        written(sealed, offset, now)
        dead = Flag.CARRIED | Flag.RELEASED | Flag.RESOLVED
        count[0] += sum(1 for row in entries(sealed) if not row[4] & dead)

    virtual.engine.written = counted  # type: ignore[method-assign]
    return count


@pytest.mark.parametrize(
    ("streams", "token_bytes", "lives"),
    [
        (30, 40, (1000.0,)),  # long replies alone: nothing but folding
        (30, 400, (5.0, 240.0)),  # short ones among long ones
        (10, 4000, (20.0, 60.0, 150.0)),
    ],
)
def test_what_is_written_is_at_most_twice_what_agents_wrote(
    tmp_path: Path, streams: int, token_bytes: int, lives: tuple[float, ...]
) -> None:
    """K2, over six minutes of replies of several lengths, each begun when the last one ended."""

    async def main() -> None:
        home = Home(tmp_path, reclaim_seconds="5")
        async with living(home) as virtual:
            check, first = grows(virtual), records_written(virtual)
            with Peer(virtual) as agent:
                number = 0
                open_now: dict[int, tuple[int, float, float]] = {}
                until = anyio.current_time() + 360
                while (now := anyio.current_time()) < until:
                    while len(open_now) < streams:
                        number += 1
                        agent.send(wire.Start(number, 0, f"r{number}", "s"))
                        open_now[number] = (0, now, lives[number % len(lives)])
                    for stream, (seq, begun, life) in list(open_now.items()):
                        if now - begun > life:
                            del open_now[stream]
                            agent.send(wire.End(stream, seq + 1, clean=True))
                            agent.send(wire.Release(stream, seq + 2))
                        else:
                            agent.send(wire.Token(stream, seq + 1, bytes(token_bytes)))
                            open_now[stream] = (seq + 1, begun, life)
                    await anyio.sleep(0.5)
                    check()
                engine = virtual.engine
                records = engine.agent_bytes
                written = engine.counters.wal_write_bytes
                print(
                    f"first {records}, carried {engine.carried_bytes}, written {written}: "
                    f"{written / records:.2f}"
                )
                assert written <= 2 * (records + ENTRY_BYTES * first[0]), "headers and all"
                assert engine.carried_bytes > 0, "or the test shows nothing"
                longest = max(stream.records for stream in engine.registry.by_no.values())
                assert longest <= 2 * limits.INDEX_ENTRIES_MAX, "S2"

    run(main)


def test_segments_go_oldest_first_and_durably_one_by_one(tmp_path: Path) -> None:
    """K1."""
    verbs: list[tuple[str, str]] = []

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                for number in range(1, 5):
                    agent.send(wire.Start(number, 0, f"r{number}", "s"))
                    await agent.drain("synced")
                    await virtual.daemon.writer.roll()
                disk = virtual.disk
                unlink, sync_dir = disk.unlink, disk.sync_dir
                disk.unlink = lambda path: (verbs.append(("unlink", path)), unlink(path))[1]  # type: ignore[method-assign, func-returns-value]
                disk.sync_dir = lambda path: (verbs.append(("sync", path)), sync_dir(path))[1]  # type: ignore[method-assign, func-returns-value]
                for number in (3, 2, 4):
                    agent.send(wire.End(number, 1, clean=True), wire.Release(number, 2))
                await agent.drain("synced")
                await anyio.sleep(1)
                assert not [path for verb, path in verbs if verb == "unlink"], "r1 is live"
                agent.send(wire.End(1, 1, clean=True), wire.Release(1, 2))
                await anyio.sleep(5)
        names = [(verb, path.rpartition("/")[2]) for verb, path in verbs if "wal" in path]
        unlinked = [name for verb, name in names if verb == "unlink"]
        assert unlinked == sorted(unlinked)
        assert len(unlinked) >= 4
        for position, (verb, _) in enumerate(names):
            if verb == "unlink":
                assert names[position + 1] == ("sync", "wal")

    run(main)


def test_a_tombstone_that_a_start_cannot_sync_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read, and may be in the page cache alone: with the power the reply would come back."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, wire.Start(2, 0, "live", "s"))
                await agent.drain("synced")
                virtual.syncer.seconds = 20.0
                agent.send(wire.End(1, 1, clean=True), wire.Release(1, 2))
                await agent.drain("written")
                await virtual.crash()
        with RealDisk(str(home.data), read_only=True) as disk:
            old = list_segments(disk)
        with monkeypatch.context() as patch:
            patch.setattr(
                "walld.recovery.startup_recovery.resync", lambda _disk, _uuid, tails: list(tails)
            )
            async with living(home) as again:
                await again.crash()
        with RealDisk(str(home.data), read_only=True) as disk:
            written = {
                (record.stream_no, record.last_seq)
                for segment_id, batch in LogScan(disk)
                for record in batch.records
                if segment_id not in old and record.flags & Flag.RELEASED
            }
        assert written == {(1, 2)}

    run(main)


def test_a_segment_stays_while_the_tombstone_is_not_synced(tmp_path: Path) -> None:
    """K1: without power between the two the reply would be back without its text."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, b"the words"))
                await agent.drain("synced")
                await virtual.daemon.writer.roll()
                virtual.syncer.seconds = 20.0
                agent.send(wire.End(1, 2, clean=True), wire.Release(1, 3))
                await agent.drain("written")
                await anyio.sleep(15)
                assert home.holds(b"the words")
                await anyio.sleep(30)  # the same thread tells LOCK first
                assert home.holds(b"the words") == []
                virtual.syncer.seconds = 0.0

    run(main)
