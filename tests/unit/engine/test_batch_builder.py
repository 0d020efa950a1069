"""What waits becomes a batch, and a batch's fate becomes watermarks: B1 to B4, S3."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from engine_world import World, carry_of, entries
from wal_files import BytesFile
from walld_client.wire import messages as wire

from walld import limits
from walld.engine.batch import SealedBatch
from walld.engine.stream import Connection, Place
from walld.wal import records
from walld.wal.encode import Batch
from walld.wal.layout import (
    BATCH_HEADER_BYTES,
    ENTRY_BYTES,
    Flag,
    SegmentHeader,
    pack_segment_header,
    segment_seed,
)
from walld.wal.scan import SegmentScan


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def agent(world: World) -> Connection:
    return world.connect()


def finished(world: World) -> SealedBatch:
    """The batch that is being built."""
    sealed = world.engine.batches.finish()
    assert sealed is not None
    return sealed


def test_one_batch_for_all_streams_and_one_record_each(world: World, agent: Connection) -> None:
    streams = [world.begin(agent, number) for number in range(1, 51)]
    for stream in streams:
        world.say(
            agent,
            wire.Token(stream.begin.number, 1, b"a"),
            wire.Token(stream.begin.number, 2, b"b"),
        )
    (sealed,) = world.flush()
    assert [row[:3] for row in entries(sealed)] == [(s.no, 0, 2) for s in streams]
    assert all(row[4] == Flag.BEGIN for row in entries(sealed))


def test_what_is_acknowledged_comes_from_the_batch(world: World, agent: Connection) -> None:
    """B1: events taken after sealing are in no watermark of that batch."""
    stream = world.begin(agent)
    world.say(agent, wire.Token(1, 1, b"a"))
    sealed = world.seal()
    assert sealed is not None
    world.say(agent, wire.Token(1, 2, b"b"), wire.Token(1, 3, b"c"))
    world.write(sealed)
    assert (stream.next_seq, stream.written_seq, stream.synced_seq) == (4, 1, -1)
    world.engine.synced(1)
    assert (stream.written_seq, stream.synced_seq) == (1, 1)
    assert world.text(stream) == b"abc"
    world.flush()
    assert (stream.written_seq, stream.synced_seq) == (3, 1)


def test_also_while_the_batch_is_still_being_built(world: World, agent: Connection) -> None:
    """B1: a flush yields between records."""
    stream = world.begin(agent)
    world.engine.batches.seal_some(1, world.engine.batches.now)
    world.say(agent, wire.Token(1, 1, b"a"))
    sealed = world.engine.batches.finish()
    assert sealed is not None
    world.write(sealed)
    assert stream.written_seq == 0


def test_at_every_moment_a_reader_finds_everything_once(world: World, agent: Connection) -> None:
    """S3: in the open run, sealed, in the batch being built, written, synced."""
    stream = world.begin(agent)
    steps: list[Callable[[], object]] = [
        lambda: world.say(agent, wire.Token(1, 1, b"one ")),
        lambda: world.engine.batches.seal_some(1, world.engine.batches.now),
        lambda: world.say(agent, wire.Token(1, 2, b"two ")),
        lambda: batches.append(finished(world)),
        lambda: world.say(agent, wire.Token(1, 3, b"three")),
        lambda: world.write(batches[0]),
        lambda: world.engine.synced(1),
        world.flush,
    ]
    batches: list[SealedBatch] = []
    said = [b"one ", b"one ", b"one two ", b"one two ", b"one two three"]
    for number, step in enumerate(steps):
        step()
        assert world.text(stream) == said[min(number, 4)], number


def test_numbers_are_dense_and_given_at_sealing(world: World, agent: Connection) -> None:
    """B2."""
    world.begin(agent, 1)
    first = world.seal()
    world.begin(agent, 2)
    second = world.seal()
    assert first is not None
    assert second is not None
    assert (first.batch.batch_no, second.batch.batch_no) == (1, 2)
    with pytest.raises(AssertionError):
        world.write(second)
    world.write(first)
    world.write(second)
    third = world.engine.batches.finish_empty()
    assert (third.batch.batch_no, third.batch.records) == (3, 0)


def test_the_bytes_of_a_batch_are_those_of_the_format(world: World, agent: Connection) -> None:
    world.begin(agent)
    world.say(agent, wire.Token(1, 1, b"a"))
    (sealed,) = world.flush()
    header = pack_segment_header(SegmentHeader(b"l" * 16, 1, 0, 1))
    raw = header + sealed.batch.stamped(0, segment_seed(b"l" * 16, 1), len(header))
    (read,) = SegmentScan(BytesFile("x", raw), 1)
    ((_, _, _, length, _),) = entries(sealed)
    items = records.decode_body(1, read.body(read.bodies_at, length))
    assert [type(item) for item in items] == [records.Begin, records.Text]


def test_a_batch_is_cut_before_its_limit_and_a_larger_record_is_its_own(
    world: World, agent: Connection
) -> None:
    small, large = b"x" * 100_000, b"y" * (limits.BATCH_BYTES_CUT + 5000)
    for number in range(1, 6):
        world.begin(agent, number)
        world.say(agent, wire.Tool(number, 1, "c", "t", large if number == 3 else small))
    batches = world.flush()
    assert all(len(s.batch) <= limits.BATCH_BYTES_CUT for s in batches if s.batch.records > 1)
    (own,) = [s for s in batches if len(s.batch) > limits.BATCH_BYTES_CUT]
    assert own.batch.records == 1
    assert len(own.batch) <= limits.BATCH_BYTES_MAX
    assert world.engine.batches.queue_bytes == 0


def test_a_stream_larger_than_a_batch_goes_out_in_order(world: World, agent: Connection) -> None:
    stream = world.begin(agent)
    for seq in range(1, 400):
        world.say(agent, wire.Token(1, seq, b"%04d" % seq + b"z" * 2000))
    batches = world.flush()
    total = sum(len(s.batch) for s in batches)
    assert len(batches) == -(-total // limits.BATCH_BYTES_CUT), "filled as far as they may be"
    spans = [row[1:3] for s in batches for row in entries(s)]
    assert [first for first, _ in spans[1:]] == [last + 1 for _, last in spans[:-1]]
    assert spans[-1][1] == 399
    assert world.text(stream)[:4] == b"0001"
    assert len(world.text(stream)) == 399 * 2004


def test_watermarks_in_order_and_synced_without_holes(world: World, agent: Connection) -> None:
    """B3."""
    stream = world.begin(agent)
    for seq in range(1, 4):
        world.say(agent, wire.Token(1, seq, b"x"))
        world.flush()
    assert world.engine.batches.in_memory(Place(2, BATCH_HEADER_BYTES + ENTRY_BYTES, 1)) is not None
    world.engine.synced(2)
    assert (stream.written_seq, stream.synced_seq) == (3, 2)
    assert list(world.engine.batches.unsynced) == [3]
    assert world.engine.batches.unsynced_bytes == len(world.engine.batches.unsynced[3].batch)
    world.sync()
    assert (stream.synced_seq, world.engine.batches.unsynced_bytes) == (3, 0)


def test_all_that_is_not_synced_comes_again_also_the_second_time(
    world: World, agent: Connection
) -> None:
    """B3, P8: a failure while it is written again forgets nothing."""
    stream = world.begin(agent)
    world.flush()
    world.sync()
    for seq in (1, 2, 3):
        world.say(agent, wire.Token(1, seq, b"abc"[seq - 1 : seq]))
        world.flush()
    batches, segments = world.engine.batches, world.engine.segments
    segments.poison(batches.synced_no)
    again = batches.batches_to_rewrite()
    assert [sealed.batch.batch_no for sealed in again] == [2, 3, 4]
    world.segment()
    world.write(again[0])
    segments.poison(batches.synced_no)
    again = batches.batches_to_rewrite()
    assert [sealed.batch.batch_no for sealed in again] == [2, 3, 4]
    world.segment()
    for sealed in again:
        world.write(sealed)
    world.engine.recount()
    assert world.text(stream) == b"abc"
    world.sync()
    assert world.text(stream) == b"abc"
    assert {s.segment_id: s.live_bytes for s in segments} == world.recounted()


def test_what_is_written_again_counts_once(world: World, agent: Connection) -> None:
    world.begin(agent)
    world.flush()
    first = world.engine.agent_bytes
    world.replace_segment()
    assert (world.engine.agent_bytes, world.engine.batches.carry_bytes) == (first, 0)


def test_a_tombstone_is_behind_every_record_of_its_stream(world: World, agent: Connection) -> None:
    """B4: also of one whose last record is in the batch being built."""
    stream = world.begin(agent)
    world.say(agent, wire.End(1, 1, clean=True))
    world.engine.batches.seal_some(1, world.engine.batches.now)
    world.say(agent, wire.Release(1, 2))
    assert stream.gone
    rows = [row for sealed in world.flush() for row in entries(sealed)]
    assert [(row[0], row[4] & Flag.RELEASED) for row in rows] == [(1, 0), (1, Flag.RELEASED)]
    assert rows[1][2] == 2
    assert world.recounted() == {1: 0}
    assert world.engine.segments.live_bytes == 0


def test_release_while_its_batch_is_on_its_way(world: World, agent: Connection) -> None:
    stream = world.begin(agent)
    world.say(agent, wire.End(1, 1, clean=True))
    sealed = world.seal()
    assert sealed is not None
    world.say(agent, wire.Release(1, 2))
    world.write(sealed)
    assert world.engine.segments.live_bytes > 0, "its tombstone takes it away, not its absence"
    world.flush()
    world.sync()
    assert (stream.written_seq, stream.synced_seq) == (2, 2)
    assert world.engine.segments.live_bytes == 0
    assert world.engine.batches.queue_bytes == 0


def test_a_recount_while_a_tombstone_is_being_sealed(world: World, agent: Connection) -> None:
    world.begin(agent)
    world.say(agent, wire.End(1, 1, clean=True))
    world.flush()
    world.begin(agent, 2)
    world.say(agent, wire.Release(1, 2))
    world.engine.batches.seal_some(1, world.engine.batches.now)
    world.replace_segment()
    sealed = world.engine.batches.finish()
    assert sealed is not None
    world.write(sealed)
    world.flush()
    assert {s.segment_id: s.live_bytes for s in world.engine.segments} == world.recounted()


def test_what_is_released_in_the_batch_being_built_is_as_due(
    world: World, agent: Connection
) -> None:
    """Its bytes are in that batch and no live byte counts them: the clock must run all the same."""
    kept, gone = world.begin(agent, 1), world.begin(agent, 2)
    world.say(agent, wire.Token(1, 1, b"stays"), wire.Token(2, 1, b"goes"))
    batches = world.engine.batches
    batches.seal_some(batches.waiting, batches.now)
    world.say(agent, wire.End(2, 2, clean=True), wire.Release(2, 3))
    assert gone.gone
    world.write(finished(world), 7.0)
    current = world.engine.segments.current
    assert (current.released_since, current.last_release_at) == (7.0, 7.0)
    assert world.text(kept) == b"stays"


def test_released_before_its_first_flush_is_never_written(world: World, agent: Connection) -> None:
    stream = world.begin(agent)
    world.say(agent, wire.Token(1, 1, b"secret"), wire.End(1, 2, clean=True), wire.Release(1, 3))
    assert world.flush() == []
    assert world.engine.batches.queue_bytes == 0
    assert (stream.written_seq, stream.synced_seq) == (3, 3)
    world.engine.acknowledge(agent)
    (ack,) = world.heard(agent)
    assert isinstance(ack, wire.Ack)
    assert ack.streams == [(1, 3, 3)]


def test_carried_records_stand_for_those_they_replace(world: World, agent: Connection) -> None:
    stream = world.begin(agent)
    for seq in range(1, 4):
        world.say(agent, wire.Token(1, seq, b"abc"[seq - 1 : seq]))
        world.flush()
    world.segment()
    world.engine.carry(carry_of(world, stream, 0, 2), 0.0)
    world.say(agent, wire.Token(1, 4, b"d"))
    (sealed,) = world.flush()
    flags = [row[4] for row in entries(sealed)]
    assert flags == [Flag.CARRIED | Flag.BEGIN, 0]
    assert world.text(stream) == b"abcd"
    assert [place.batch_no for place in stream.places()] == [4, 3, 4]
    assert world.engine.segments.oldest.unlink_after == 4, "the copy must be synced first (G3)"
    assert {s.segment_id: s.live_bytes for s in world.engine.segments} == world.recounted()
    assert world.engine.carried_bytes == ENTRY_BYTES + entries(sealed)[0][3]
    assert world.engine.batches.carry_bytes == 0


def test_a_second_carry_of_the_same_records_waits_for_the_first(
    world: World, agent: Connection
) -> None:
    """Sealed and not closed: the index does not know yet, so the reclaimer must be kept away."""
    stream = world.begin(agent)
    for seq in range(1, 4):
        world.say(agent, wire.Token(1, seq, b"abc"[seq - 1 : seq]))
        world.flush()
    world.engine.carry(carry_of(world, stream, 0, 2), 0.0)
    world.engine.batches.seal_some(1, world.engine.batches.now)
    assert stream.carrying
    sealed = world.engine.batches.finish()
    assert not stream.carrying
    assert sealed is not None
    world.write(sealed)
    assert world.text(stream) == b"abc"


@pytest.mark.parametrize("change", ["released", "rewritten"])
def test_a_stale_carry_is_never_written(world: World, agent: Connection, change: str) -> None:
    """B4: checked once more when it is sealed."""
    stream = world.begin(agent)
    world.say(agent, wire.Token(1, 1, b"a"))
    world.flush()
    world.say(agent, wire.Token(1, 2, b"b"), wire.End(1, 3, clean=True))
    world.flush()
    carry = carry_of(world, stream, 0, 1)
    if change == "released":
        world.say(agent, wire.Release(1, 4))
    else:
        stream.replace_places(0, 1, Place(2, 999, 3))
    world.engine.carry(carry, 0.0)
    rows = [row for sealed in world.flush() for row in entries(sealed)]
    assert not [row for row in rows if row[4] & Flag.CARRIED]
    assert not stream.carrying
    assert (world.engine.batches.queue_bytes, world.engine.batches.carry_bytes) == (0, 0)


def test_a_crowded_stream_is_noticed_at_its_bound(world: World, agent: Connection) -> None:
    """S2."""
    stream = world.begin(agent)
    for seq in range(1, limits.INDEX_ENTRIES_MAX):
        world.say(agent, wire.Token(1, seq, b"x"))
        world.flush()
    world.say(agent, wire.Token(1, seq + 1, b"x"))
    assert (stream.records, world.engine.batches.crowded) == (limits.INDEX_ENTRIES_MAX - 1, {})
    world.flush()
    world.say(agent, wire.Token(1, seq + 2, b"x"))
    world.flush()
    assert world.engine.batches.crowded == {stream.no: stream}


def test_on_the_reserve_only_what_has_ended_is_written(world: World, agent: Connection) -> None:
    going = world.begin(agent, 1)
    world.begin(agent, 2)
    world.say(agent, wire.Token(1, 1, b"a"), wire.End(2, 1, clean=True))
    world.engine.batches.ends_only = True
    sealed = world.seal(2)
    assert sealed is not None
    assert [row[0] for row in entries(sealed)] == [2]
    world.write(sealed)
    assert world.text(going) == b"a"
    world.engine.batches.ends_only = False
    world.flush()
    assert going.written_seq == 1
    assert world.engine.batches.queue_bytes == 0


def test_a_batch_made_elsewhere_takes_its_place(world: World, agent: Connection) -> None:
    sealed = world.engine.batches.adopt(Batch(1, 0, b"", []))
    world.write(sealed)
    world.begin(agent)
    (after,) = world.flush()
    assert after.batch.batch_no == 2
    with pytest.raises(AssertionError):
        world.engine.batches.adopt(Batch(9, 0, b"", []))
