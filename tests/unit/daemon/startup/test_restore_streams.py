"""What a start found becomes the engine's state again, and the next start finds the same."""

from __future__ import annotations

from typing import Any, cast

import pytest
from engine_world import LOG, KeptAlone, LogDisk, World
from walld_client.wire import messages as wire

from walld.daemon.startup.restore_streams import restore
from walld.engine.engine import Engine
from walld.engine.flush_schedule import FlushSchedule
from walld.engine.partial_index import IndexedPartial, PartialIndex
from walld.engine.stream import Connection, Process
from walld.partials.life import Life
from walld.recovery.startup_recovery import recover_storage
from walld.wal.records import Owner


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def agent(world: World) -> Connection:
    """Stream 1 goes on, 2 has moved, 3 has ended, 4 is released."""
    connection = world.connect()
    for number in range(1, 5):
        world.begin(connection, number)
    world.say(connection, wire.Token(1, 1, b"one"), wire.Move(2, 1, "t"))
    world.say(connection, wire.End(3, 1, clean=True), wire.End(4, 1, clean=True))
    world.flush()
    world.say(connection, wire.Token(1, 2, b"two"), wire.Release(4, 2))
    world.flush()
    return connection


def test_streams_are_what_they_were(world: World, agent: Connection) -> None:
    again = world.restarted(power=False)
    streams = again.engine.registry.by_no
    assert sorted(streams) == [1, 2, 3]
    assert again.text(streams[1]) == b"onetwo"
    assert [streams[no].next_seq for no in (1, 2, 3)] == [3, 2, 2]
    assert [streams[no].terminal for no in (1, 2, 3)] == [False, False, True]
    assert again.engine.registry.of_session(1000, "t") == [streams[2]]
    assert (streams[1].written_seq, streams[1].synced_seq) == (2, 2), "a start syncs what it finds"


def test_numbers_go_on_where_they_were(world: World, agent: Connection) -> None:
    again = world.restarted(power=False)
    batches = again.engine.batches
    assert batches.next_batch == world.engine.batches.next_batch
    assert batches.written_no == batches.synced_no == batches.next_batch - 1
    assert again.engine.registry.last_no == 4, "of released streams too: none is given twice"


def test_live_bytes_are_a_recount(world: World, agent: Connection) -> None:
    again = world.restarted(power=False)
    live = {segment.segment_id: segment.live_bytes for segment in again.engine.segments}
    assert live == again.recounted() == world.recounted()
    assert again.engine.segments.oldest.released_since is not None, "it holds released bytes"


def test_a_log_without_released_replies_has_nothing_to_reclaim() -> None:
    world = World()
    world.begin(world.connect())
    world.flush()
    assert world.restarted(power=False).engine.segments.oldest.released_since is None


@pytest.mark.parametrize(
    ("boot", "found", "reason"),
    [("boot", True, None), ("boot", False, "agent_lost"), ("another", False, "host_restart")],
)
def test_live_while_its_process_is_there_else_an_orphan_at_once(
    world: World, agent: Connection, boot: str, found: bool, reason: str | None
) -> None:
    process = Process(1000, Owner("boot", 7, 0, 0), visible=True)
    asked: list[tuple[int, Owner]] = []

    def watch(uid: int, owner: Owner) -> Process | None:
        asked.append((uid, owner))
        return process if found else None

    engine = Engine(FlushSchedule(3000, None))
    engine.log_uuid = LOG
    recovered = recover_storage(
        LogDisk(dict(world.files)), cast("Any", KeptAlone(PartialIndex())), LOG
    )
    restore(engine, recovered, boot, watch, 0.0)
    assert asked == [(1000, Owner("boot", 7, 0, 0))] * 3
    streams = engine.registry.by_no.values()
    assert {stream.lost_reason for stream in streams} == {reason}
    assert set(engine.orphans) == (set() if found else {1, 2, 3})
    assert set(process.streams) == ({1, 2, 3} if found else set())


def test_what_is_kept_is_not_live_again(world: World, agent: Connection) -> None:
    kept = PartialIndex()
    kept.add(1000, "s", "r1", IndexedPartial(1, 2, 9, 5))
    again = world.restarted(power=False, kept=kept)
    assert sorted(again.engine.registry.by_no) == [2, 3]
    assert again.engine.partials.facts(1000, "s", "r1") is not None


def test_what_grew_since_it_was_kept_is_live(world: World, agent: Connection) -> None:
    kept = PartialIndex()
    kept.add(1000, "s", "r1", IndexedPartial(1, 1, 9, 5))
    again = world.restarted(power=False, kept=kept)
    assert sorted(again.engine.registry.by_no) == [1, 2, 3]


def test_a_partial_whose_stream_was_released_goes_too(world: World, agent: Connection) -> None:
    """The daemon was killed between the tombstone and the file (K3)."""
    kept = PartialIndex()
    kept.add(1000, "s", "r4", IndexedPartial(4, 1, 9, 5))
    again = world.restarted(power=False, kept=kept)
    assert again.engine.partials.unkept(Life.UNWANTED) == {(1000, "s", "r4"): 4}


def test_recovery_of_the_recovered_gives_the_same(world: World, agent: Connection) -> None:
    first = world.restarted(power=False)
    second = first.restarted(power=False)
    for no, stream in first.engine.registry.by_no.items():
        assert second.items(second.engine.registry.by_no[no]) == first.items(stream)
    assert second.recounted() == first.recounted()


def test_without_power_what_was_acknowledged_as_synced_is_there() -> None:
    world = World()
    agent = world.connect()
    stream = world.begin(agent)
    world.say(agent, wire.Token(1, 1, b"a"))
    world.flush()
    world.sync()
    world.say(agent, wire.Token(1, 2, b"b"))
    world.flush()
    again = world.restarted(power=True)
    assert again.text(again.engine.registry.by_no[stream.no]) == b"a"
