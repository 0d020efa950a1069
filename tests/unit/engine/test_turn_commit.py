"""A released reply of a turn: its messages become entries, with its tombstone or before it."""

from __future__ import annotations

import pytest
from engine_world import World
from unit.engine.test_engine import kept
from unit.engine.test_session_log import append, entry, opened
from walld_client.wire import messages as wire

from walld.engine.stream import Stream


@pytest.fixture
def world() -> World:
    return World()


def released_turn(world: World) -> Stream:
    """A turn's reply, ended, released and written."""
    agent = world.connect()
    world.say(agent, wire.Start(1, 0, "r1", "s", "t"), wire.Token(1, 1, b"hi"))
    world.say(agent, wire.End(1, 2, clean=True), wire.Release(1, 3))
    assert agent.producer is not None
    world.flush()
    return agent.producer.streams[1]


def test_a_turns_reply_gets_its_tombstone_behind_its_messages(world: World) -> None:
    """In one batch: after a crash its text is in the session or still a reply."""
    stream, ledger = released_turn(world), opened(world)
    assert list(world.engine.turn_commit.streams) == [stream.no]
    assert world.engine.turn_commit.move(stream, ledger, [entry("r1:1", "hi")], 1, 0.0)
    (batch,) = world.flush()
    flags = [part.is_tombstone for part in batch.parts]
    assert flags == [False, True]
    assert stream.synced_seq < 3
    world.sync()
    assert stream.synced_seq == 3


def test_a_drain_behind_the_release_of_a_turns_reply_waits_for_its_messages(world: World) -> None:
    agent, ledger = world.connect(), opened(world)
    world.say(agent, wire.Start(1, 0, "r1", "s", "t"), wire.Token(1, 1, b"hi"))
    world.say(agent, wire.End(1, 2, clean=True), wire.Release(1, 3), wire.Drain(9, "synced"))
    stream = agent.producer.streams[1] if agent.producer is not None else None
    assert stream is not None
    assert world.engine.schedule.flush_at() == 0.0, "what it said is written at once"
    world.flush()
    world.sync()
    assert wire.Drained(9, "synced") not in world.heard(agent)
    assert world.engine.turn_commit.move(stream, ledger, [entry("r1:1", "hi")], 1, 0.0)
    world.flush()
    world.sync()
    assert wire.Drained(9, "synced") in world.heard(agent)


def test_messages_behind_lines_that_power_may_take_go_before_their_tombstone(world: World) -> None:
    """A start would cut them at the hole, and with a tombstone nobody had the reply any more."""
    agent, ledger = world.connect(), opened(world)
    world.say(agent, wire.Start(1, 0, "r1", "s", "t"), wire.Token(1, 1, b"hi"))
    world.say(agent, wire.End(1, 2, clean=True), wire.Release(1, 3))
    assert agent.producer is not None
    stream = agent.producer.streams[1]
    append(world, ledger, entry("earlier"))
    world.flush()
    settling = world.engine.turn_commit
    assert not settling.move(stream, ledger, [entry("r1:1", "hi")], 1, 0.0)
    (batch,) = world.flush()
    assert [part.is_tombstone for part in batch.parts] == [False]
    world.sync()
    settling.go(stream, 0.0)
    (batch,) = world.flush()
    assert [part.is_tombstone for part in batch.parts] == [True]


def test_messages_that_a_batch_might_not_hold_go_before_their_tombstone(world: World) -> None:
    stream, ledger = released_turn(world), opened(world)
    long = [entry(f"r1:{at}", "x" * 100_000) for at in (1, 2)]
    assert not world.engine.turn_commit.move(stream, ledger, long, 1, 0.0)


@pytest.mark.parametrize("filled", [100, 200, 230, 250, 255])
def test_messages_and_their_tombstone_are_in_one_batch_however_full_it_is(
    world: World, filled: int
) -> None:
    """B5."""
    agent, ledger = world.connect(), opened(world)
    world.say(agent, wire.Start(1, 0, "r1", "s", "t"), wire.Token(1, 1, b"hi"))
    world.say(agent, wire.End(1, 2, clean=True), wire.Release(1, 3))
    world.flush()
    world.say(agent, wire.Start(2, 0, "r2", "other"))
    world.say(agent, *(wire.Token(2, seq, b"x" * 1024) for seq in range(1, filled)))
    assert agent.producer is not None
    stream = agent.producer.streams[1]
    messages = [entry(f"r1:{at}", "y" * 20_000) for at in range(1, 6)]
    assert world.engine.turn_commit.move(stream, ledger, messages, 1, 0.0)
    append(world, ledger, entry("later", "z" * 200_000))
    holds = []
    for batch in world.flush():
        whose = [part.stream for part in batch.parts]
        seqs = [part.last_seq for part in batch.parts if part.stream is ledger.stream]
        holds.append((stream in whose, max(seqs, default=0) >= 5))
    assert (True, True) in holds
    assert holds.index((True, True)) == [has for _, has in holds].index(True)


def test_very_many_short_messages_are_more_than_a_batch_holds(world: World) -> None:
    """A line is longer than its payload: what counts is what is written (B5)."""
    stream, ledger = released_turn(world), opened(world)
    many = [entry(f"r1:{at}", "x") for at in range(2000)]
    assert not world.engine.turn_commit.move(stream, ledger, many, 1, 0.0)
    assert len(world.flush()) > 1


def test_a_reply_whose_session_is_deleted_before_its_messages_are_written_goes(
    world: World,
) -> None:
    """Its tombstone was to stand with them; with nothing left to stand with it is written alone."""
    stream, ledger = released_turn(world), opened(world)
    assert world.engine.turn_commit.move(stream, ledger, [entry("r1:1", "hi")], 1, 0.0)
    world.engine.session_logs.forget(ledger, 0.0)
    append(world, opened(world), entry("another session's"))
    batches = world.flush()
    buried = [part.stream for batch in batches for part in batch.parts if part.is_tombstone]
    assert stream in buried
    assert stream not in world.engine.batches.buried


def test_a_turns_reply_that_is_resolved_is_not_remembered(world: World) -> None:
    """P10. All of it was synced before, so its tombstone moves no watermark."""
    agent = world.connect()
    world.say(agent, wire.Start(1, 0, "r1", "s", "t"), wire.Token(1, 1, b"hi"))
    assert agent.producer is not None
    producer, stream = agent.producer, agent.producer.streams[1]
    world.flush()
    world.sync()
    world.engine.orphan(stream, "agent_lost")
    world.engine.resolved.let_go(stream, 0.0)
    world.flush()
    assert world.engine.registry.is_leaving(producer, 1)
    world.sync()
    assert not world.engine.registry.is_leaving(producer, 1)


@pytest.mark.parametrize("said", [wire.Tool(1, 1, "c1", "deploy", b"{}"), wire.Token(1, 1, b"hi")])
@pytest.mark.parametrize("has_sessions", [True, False])
def test_a_reply_without_a_turn_waits_where_it_has_calls_and_its_user_sessions(
    world: World, said: wire.Event, has_sessions: bool
) -> None:
    agent = world.connect()
    if has_sessions:
        world.engine.session_logs.has({agent.uid})
    world.say(agent, wire.Start(1, 0, "r1", "s"), said)
    world.say(agent, wire.End(1, 2, clean=False), wire.Release(1, 3))
    waits = has_sessions and isinstance(said, wire.Tool)
    assert bool(world.engine.turn_commit.streams) == waits
    assert ((agent.uid, "r1") in world.engine.registry.by_key) == waits
    world.engine.session_logs.has(None)
    assert world.engine.session_logs.may_have(7), "not known"


def test_the_end_of_a_turns_reply_starts_the_clock_of_the_segments_before_its_partial(
    world: World,
) -> None:
    """P5: the segment that its partial was made from still has its bytes, released by now."""
    agent = world.connect()
    start = wire.Start(1, 0, "r1", "s", "t")
    world.say(agent, start, wire.Token(1, 1, b"hi"))
    world.flush()
    world.engine.lose(agent.process, "agent_lost")
    (stream,) = world.engine.registry.replies
    kept(world, stream)
    world.segment()
    again, ledger = world.connect(), opened(world)
    world.say(again, wire.Resume(start, 2, 1, 2), wire.End(1, 2, clean=True), wire.Release(1, 3))
    world.flush()
    (revived,) = world.engine.turn_commit.streams.values()
    assert world.engine.segments.oldest.released_since is None
    assert world.engine.turn_commit.move(revived, ledger, [entry("r1:1", "hi")], 1, 7.0)
    assert world.engine.segments.oldest.released_since == 7.0
