"""Who waits, who comes back, what is let go: decisions that span more than one room."""

from __future__ import annotations

import msgspec
import pytest
from engine_world import LOG, World, carry_of, entries
from walld_client.wire import messages as wire

from walld import limits
from walld.engine.partial_index import IndexedPartial
from walld.engine.stream import Connection, Place, Stream
from walld.partials.life import Life
from walld.partials.names import PartialOwner
from walld.wal import records
from walld.wal.layout import Flag


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def agent(world: World) -> Connection:
    return world.connect()


def kept(world: World, stream: Stream) -> None:
    """What the keeper does with an orphan that is all written."""
    begin = stream.begin
    facts = IndexedPartial(
        *(stream.no, stream.next_seq - 1, world.engine.batches.written_no, begin.at_ms),
        whose=PartialOwner(begin.producer, begin.number, stream.session_id),
    )
    world.engine.keep(stream, stream.session_id, stream.begin.stream_id, facts)


# --- who waits ----------------------------------------------------------------------------------


def test_a_drain_is_answered_when_all_before_it_is_written(world: World, agent: Connection) -> None:
    world.begin(agent)
    world.say(agent, wire.Token(1, 1, b"a"), wire.Drain(7, "written"))
    assert world.heard(agent) == []
    assert world.engine.schedule.flush_at() == 0.0, "who waits cuts the linger short"
    world.flush()
    assert world.heard(agent) == [wire.Ack(LOG, 1, 0, [(1, 1, -1)]), wire.Drained(7, "written")]


def test_a_drain_for_synced_waits_for_its_sync_and_brings_the_ack(
    world: World, agent: Connection
) -> None:
    world.begin(agent)
    world.say(agent, wire.Token(1, 1, b"a"), wire.Drain(7, "synced"))
    world.flush()
    assert world.heard(agent) == []
    assert world.engine.schedule.sync_at(0) == 0.0
    world.say(agent, wire.Token(1, 2, b"b"))
    world.flush()
    world.engine.synced(1)
    assert world.heard(agent) == [
        wire.Ack(LOG, 2, 1, [(1, 2, 1)]),
        wire.Drained(7, "synced"),
    ]


def test_a_drain_with_nothing_queued_is_answered_by_the_next_flush(
    world: World, agent: Connection
) -> None:
    world.say(agent, wire.Drain(1, "synced"), wire.Drain(2, "written"))
    assert world.flush() == []
    assert world.heard(agent) == [wire.Drained(1, "synced"), wire.Drained(2, "written")]


def test_a_batch_that_only_tells_keeps_nobody_waiting(world: World, agent: Connection) -> None:
    """What is synced is said in an empty batch, which need not be synced itself."""
    world.begin(agent)
    world.flush()
    world.sync()
    world.write(world.engine.batches.finish_empty())
    world.say(agent, wire.Drain(1, "synced"))
    world.flush()
    due = world.engine.schedule.sync_at(0)
    assert wire.Drained(1, "synced") in world.heard(agent) or due == 0.0


def test_a_waiter_of_a_flush_waits_for_that_flush_alone(world: World, agent: Connection) -> None:
    """A request that comes while a flush is on its way is not answered by it."""
    world.begin(agent)
    world.engine.schedule.flush_begun()
    _, waiters = world.engine.begin_flush()
    world.say(agent, wire.Drain(1, "written"))
    world.engine.flushed(waiters)
    assert world.heard(agent) == []
    assert world.engine.schedule.flush_at() == 0.0
    world.flush()
    assert world.heard(agent) == [wire.Ack(LOG, 1, 0, [(1, 0, -1)]), wire.Drained(1, "written")]


def test_what_found_no_room_waits_on(world: World, agent: Connection) -> None:
    world.begin(agent)
    world.say(agent, wire.Drain(1, "written"))
    oldest = world.engine.schedule.flush_begun()
    _, waiters = world.engine.begin_flush()
    world.engine.not_flushed(waiters, oldest)
    assert world.heard(agent) == []
    world.flush()
    assert world.heard(agent) == [wire.Ack(LOG, 1, 0, [(1, 0, -1)]), wire.Drained(1, "written")]


def test_an_unknown_level_is_refused_with_both_words(world: World, agent: Connection) -> None:
    world.say(agent, wire.Drain(3, "carved in stone"))
    assert world.heard(agent) == [
        wire.Refused(0, 3, "bad_level", "carved in stone", "written, synced")
    ]


def test_acks_are_cumulative_and_of_ones_own_streams(world: World, agent: Connection) -> None:
    other = world.connect(b"q" * 16)
    world.begin(agent, 1)
    world.begin(agent, 2)
    world.begin(other, 1, "theirs")
    world.flush()
    world.sync()
    world.engine.acknowledge(agent)
    (ack,) = world.heard(agent)
    assert isinstance(ack, wire.Ack)
    assert sorted(ack.streams) == [(1, 0, 0), (2, 0, 0)]
    world.engine.acknowledge(agent)
    assert world.heard(agent) == [], "nothing moved since"


# --- who comes back -----------------------------------------------------------------------------

START = wire.Start(1, 0, "r1", "s")


def test_a_returning_producer_goes_on_where_it_was(world: World, agent: Connection) -> None:
    stream = world.begin(agent)
    world.say(agent, wire.Token(1, 1, b"a"))
    world.flush()
    world.sync()
    again = world.connect(process=agent.process)
    world.say(again, wire.Resume(START, 1, 1, 3), wire.Token(1, 1, b"a"), wire.Token(1, 2, b"b"))
    assert (stream.connection, world.text(stream)) == (again, b"ab")
    assert world.engine.counters.lost_acked == 0


def test_a_lost_owner_that_returns_is_an_owner(world: World, agent: Connection) -> None:
    stream = world.begin(agent)
    world.engine.lose(agent.process, "agent_lost")
    assert world.engine.orphans == {1: stream}
    assert (stream.lost_reason, stream.owner) == ("agent_lost", None)
    again = world.connect()
    world.say(again, wire.Resume(START, 0, -1, 1))
    assert world.engine.orphans == {}
    assert (stream.lost_reason, stream.owner) == (None, again.process)
    assert again.process.streams == {1: stream}


@pytest.mark.parametrize(("synced", "lost"), [(-1, 0), (1, 0), (2, 1), (5, 4)])
def test_less_than_was_acknowledged_as_synced_is_lost_and_counted(
    world: World, agent: Connection, synced: int, lost: int
) -> None:
    world.begin(agent)
    world.say(agent, wire.Token(1, 1, b"a"))
    again = world.connect()
    world.say(again, wire.Resume(START, 6, synced, 7))
    assert world.engine.counters.lost_acked == lost


def test_a_stream_nobody_knows_that_was_acknowledged_is_lost_and_begins_anew(
    world: World, agent: Connection
) -> None:
    world.say(agent, wire.Resume(START, 0, 4, 9), START, wire.Token(1, 1, b"a"))
    assert world.engine.counters.lost_acked == 5
    assert world.text(world.engine.registry.by_no[1]) == b"a"


def test_a_released_stream_is_done_and_not_resent(world: World, agent: Connection) -> None:
    """Its tombstone was written by a daemon that could not say so any more."""
    world.say(agent, wire.Resume(START, 3, 1, 5, released=True))
    assert world.heard(agent) == [], "its release may wait for its sync"
    world.flush()
    assert world.heard(agent) == [wire.Ack(LOG, 0, 0, [(1, 4, 4)])]
    assert world.engine.registry.by_no == {}
    world.say(agent, START, wire.Token(1, 1, b"x"))
    assert world.engine.registry.by_no == {}
    assert world.engine.counters.lost_acked == 0


def test_a_revived_stream_knows_what_its_partial_holds(world: World, agent: Connection) -> None:
    stream = world.begin(agent)
    world.say(agent, wire.Token(1, 1, b"a"), wire.Token(1, 2, b"b"))
    world.flush()
    world.sync()
    world.engine.lose(agent.process, "agent_lost")
    kept(world, stream)
    assert world.engine.registry.by_no == {}
    again = world.connect()
    world.say(again, wire.Resume(START, 3, 2, 3), wire.Token(1, 2, b"b"), wire.Token(1, 3, b"c"))
    revived = world.engine.registry.by_no[stream.no]
    assert (revived.written_seq, revived.synced_seq, revived.next_seq) == (2, 2, 4)
    assert world.engine.counters.lost_acked == 0
    world.flush()
    assert revived.written_seq == 3


def test_a_revived_stream_counts_its_times_from_when_it_began(
    world: World, agent: Connection
) -> None:
    """Also where its producer's clock, or the daemon's, says something else by now."""
    began = wire.Start(1, 0, "r1", "s", at_ms=1000)
    world.say(agent, began, wire.Token(1, 1, b"a"), at_ms=1500)
    stream = world.engine.registry.by_no[1]
    world.flush()
    world.engine.lose(agent.process, "agent_lost")
    kept(world, stream)
    again = world.connect()
    moved = msgspec.structs.replace(began, at_ms=700)
    world.say(again, wire.Resume(moved, 2, 1, 2), wire.Token(1, 2, b"b"), at_ms=900)
    world.flush()
    revived = world.engine.registry.by_no[stream.no]
    assert revived.begin.at_ms == 1000
    fresh = [
        item
        for place in revived.places()
        for item in records.decode_body(revived.no, body_of(world, place))
    ]
    assert [item.at_ms for item in fresh if isinstance(item, records.Begin)] in ([], [1000])
    assert [(i.after_ms, i.text) for i in fresh if isinstance(i, records.Text)] == [(-100, b"b")]


def body_of(world: World, place: Place) -> bytes:
    body = world.engine.batches.in_memory(place)
    assert body is not None
    return body


def test_a_revived_stream_that_is_released_takes_its_partial_along(
    world: World, agent: Connection
) -> None:
    stream = world.begin(agent)
    world.flush()
    world.engine.lose(agent.process, "agent_lost")
    kept(world, stream)
    again = world.connect()
    world.say(again, wire.Resume(START, 1, 0, 1), wire.End(1, 1, clean=True), wire.Release(1, 2))
    assert list(world.engine.partials.unkept(Life.UNWANTED)) == [(1000, "s", "r1")]
    (sealed,) = world.flush()
    assert [row[4] for row in entries(sealed)] == [Flag.RELEASED], "for what the WAL still holds"


def test_a_revived_stream_that_had_ended_may_be_released(world: World, agent: Connection) -> None:
    stream = world.begin(agent)
    world.say(agent, wire.End(1, 1, clean=True))
    world.flush()
    world.engine.lose(agent.process, "agent_lost")
    kept(world, stream)
    again = world.connect()
    world.say(again, wire.Resume(START, 2, 1, 2), wire.Release(1, 2))
    assert [type(m) for m in world.heard(again)] == []
    assert list(world.engine.partials.unkept(Life.UNWANTED)) == [(1000, "s", "r1")]
    assert world.engine.registry.by_no == {}


def test_attested_is_the_highest_that_was_told(world: World) -> None:
    for number in (3, 9, 4):
        world.engine.lost_acked.attest(number)
    assert world.engine.lost_acked.missing == 9


@pytest.mark.parametrize("is_gap", [True, False])
def test_what_a_full_disk_dropped_is_said_again_to_who_comes_back(
    world: World, agent: Connection, is_gap: bool
) -> None:
    """Nobody may have heard it, and an Ack covers gaps. What can be taken now is not lost."""
    world.begin(agent)
    world.engine.disk_full = True
    world.engine.batches.queue_bytes += limits.QUEUE_BYTES_MAX
    rest = [wire.Token(1, 1, b"b"), wire.End(1, 2, clean=True)]
    world.say(agent, *rest[: 1 + is_gap])
    again = world.connect()
    world.engine.disk_full = False
    world.say(again, wire.Resume(wire.Start(1, 0, "r1", "s"), 0, -1, 3), *rest)
    world.flush()
    world.sync()
    world.engine.acknowledge(again)
    refused = wire.Refused(1, 1, "disk_full", "event", "room on the disk")
    assert world.heard(again) == [refused] * is_gap + [wire.Ack(LOG, 1, 1, [(1, 2, 2)])]


# --- what is let go -----------------------------------------------------------------------------


def test_kept_as_a_partial_is_let_go_by_the_log(world: World, agent: Connection) -> None:
    stream = world.begin(agent)
    world.flush()
    world.engine.lose(agent.process, "agent_lost")
    kept(world, stream)
    assert world.engine.segments.live_bytes == 0
    assert world.engine.segments.oldest.released_since is None, "nobody released it"
    assert world.engine.partials.of_session(1000, "s") == ["r1"]
    assert (stream.gone, world.engine.orphans) == (True, {})


def test_what_still_waits_is_never_kept(world: World, agent: Connection) -> None:
    """K3's other half: a partial must hold all of it before the log lets go."""
    stream = world.begin(agent)
    world.engine.lose(agent.process, "agent_lost")
    with pytest.raises(AssertionError):
        kept(world, stream)
    world.engine.batches.seal_some(1, world.engine.batches.now)
    with pytest.raises(AssertionError):
        kept(world, stream)


def test_what_is_on_its_way_is_not_kept(world: World, agent: Connection) -> None:
    """A carried copy whose write has not returned: its bytes would count as live for ever."""
    stream = world.begin(agent)
    world.say(agent, wire.Token(1, 1, b"a"))
    world.flush()
    world.engine.carry(carry_of(world, stream, 0, 1), 0.0)
    sealed = world.seal()
    assert sealed is not None
    world.engine.lose(agent.process, "agent_lost")
    with pytest.raises(AssertionError):
        kept(world, stream)
    world.write(sealed)
    kept(world, stream)
    assert world.engine.segments.live_bytes == 0


def test_resolving_a_partial_buries_its_records(world: World) -> None:
    world.engine.bury(IndexedPartial(9, 44, 3, 5), now=3.0)
    (sealed,) = world.flush()
    assert entries(sealed)[0][:3] == (9, 44, 44)
    assert entries(sealed)[0][4] == Flag.RESOLVED


def test_released_twice_is_our_bug(world: World, agent: Connection) -> None:
    stream = world.begin(agent)
    world.engine.release(stream, Flag.RELEASED, 0.0)
    with pytest.raises(AssertionError):
        world.engine.release(stream, Flag.RELEASED, 0.0)


# --- memory -------------------------------------------------------------------------------------


def test_the_queue_has_a_mark_where_reading_stops_and_one_where_it_goes_on(world: World) -> None:
    engine, most = world.engine, limits.QUEUE_BYTES_MAX
    for share, full, room in ((0.4, False, True), (0.6, False, False), (0.8, True, False)):
        engine.batches.queue_bytes = int(most * share)
        assert (engine.is_full, engine.has_room, engine.is_dropping) == (full, room, False)
    engine.disk_full = True
    assert engine.is_dropping


def test_a_peer_that_does_not_read_gets_no_more_than_its_bound(
    world: World, agent: Connection
) -> None:
    frame = b"x" * 1000
    for _ in range(2 * limits.ACK_BYTES_MAX // len(frame)):
        agent.post(frame)
    assert limits.ACK_BYTES_MAX - len(frame) < agent.outbox_bytes <= limits.ACK_BYTES_MAX
    assert sum(map(len, agent.outbox)) == agent.outbox_bytes
    assert agent.posted == {agent}
    agent.outbox.clear()


@pytest.mark.parametrize(
    ("turn_id", "held_from", "synced", "is_taken"),
    [("t", 0, -1, True), ("t", 0, 2, False), ("t", 1, -1, False), (None, 0, -1, False)],
)
def test_a_released_reply_of_a_turn_that_is_held_whole_is_taken_once_more(
    world: World,
    agent: Connection,
    turn_id: str | None,
    held_from: int,
    synced: int,
    is_taken: bool,
) -> None:
    """Its messages may not have reached their session; a reply without a turn is done with.

    So is one of which a part was told to be synced: it is gone since, and nothing else takes that.
    """
    start = wire.Start(1, 0, "r1", "s", turn_id)
    world.say(agent, wire.Resume(start, held_from, synced, 4, released=True))
    world.say(agent, start, wire.Token(1, 1, b"x"), wire.End(1, 2, clean=True), wire.Release(1, 3))
    assert bool(world.engine.turn_commit.streams) == is_taken
    assert world.engine.counters.lost_acked == 0
