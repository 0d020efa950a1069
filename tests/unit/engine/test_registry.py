"""R1: a stream is in all tables or in none; keys hold the uid."""

from __future__ import annotations

import pytest

from walld.engine.registry import Registry
from walld.engine.stream import Connection, Process, Stream
from walld.wal.records import Begin, Owner

OWNER = Owner("boot", 7, 0, 0)


def stream_of(
    no: int, stream_id: str, session: str = "s", uid: int = 1000, owner: Process | None = None
) -> Stream:
    return Stream(
        no, Begin(uid, b"p" * 16, no, stream_id, session, None, None, None, 5, OWNER), owner
    )


def test_in_all_tables_then_in_none() -> None:
    registry, process = Registry(), Process(1000, OWNER, visible=True)
    stream = stream_of(3, "r", owner=process)
    registry.add(stream)
    producer = registry.producer(1000, b"p" * 16)
    assert registry.by_no == {3: stream}
    assert registry.by_key == {(1000, "r"): stream}
    assert registry.of_session(1000, "s") == [stream]
    assert (producer.streams, process.streams) == ({3: stream}, {3: stream})
    registry.remove(stream)
    tables = (registry.by_no, registry.by_key, registry.by_session, registry.producers)
    assert [*tables, producer.streams, process.streams] == [{}] * 6
    assert (registry.last_no, producer.number_max) == (3, 3), "numbers are never used again"


def test_one_users_streams_do_not_exist_for_another() -> None:
    registry = Registry()
    registry.add(stream_of(1, "r", uid=1000))
    registry.add(stream_of(2, "r", uid=1001))
    assert [s.no for s in registry.of_session(1000, "s")] == [1]
    assert [s.no for s in registry.of_session(1001, "s")] == [2]
    assert registry.of_session(1002, "s") == []
    assert registry.producer(1000, b"p" * 16) is not registry.producer(1001, b"p" * 16)


def test_two_streams_of_one_name_are_our_bug() -> None:
    registry = Registry()
    registry.add(stream_of(1, "r"))
    with pytest.raises(AssertionError):
        registry.add(stream_of(2, "r"))


def test_a_session_lists_in_start_order() -> None:
    registry = Registry()
    for no in (5, 2, 9):
        registry.add(stream_of(no, f"r{no}"))
    assert [s.no for s in registry.of_session(1000, "s")] == [2, 5, 9]


def test_a_stream_that_moves_is_in_one_session() -> None:
    registry = Registry()
    stream = stream_of(1, "r")
    registry.add(stream)
    registry.move(stream, "t")
    assert (registry.of_session(1000, "s"), registry.of_session(1000, "t")) == ([], [stream])
    assert stream.session_id == "t"
    registry.move(stream, "t")
    registry.remove(stream)
    assert registry.by_session == {}


def test_a_returning_owner_is_an_owner_whatever_was_thought() -> None:
    registry = Registry()
    before, now = Process(1000, OWNER, visible=True), Process(1000, OWNER, visible=True)
    stream = stream_of(1, "r", owner=before)
    registry.add(stream)
    stream.lost_reason = "agent_lost"
    registry.own(stream, now)
    assert stream.owner is now
    assert stream.lost_reason is None
    assert (before.streams, now.streams) == ({}, {1: stream})


def test_a_producer_is_forgotten_with_its_last_stream_and_connection() -> None:
    registry = Registry()
    producer = registry.producer(1000, b"p" * 16)
    connection = Connection(1, 1000, Process(1000, OWNER, visible=True), set())
    producer.connections.append(connection)
    registry.add(stream_of(1, "r"))
    registry.forget_producer(producer)
    assert registry.producers
    registry.remove(registry.by_no[1])
    assert registry.producers, "a connection of it is open"
    producer.connections.remove(connection)
    registry.forget_producer(producer)
    assert not registry.producers


def test_how_many_have_lost_their_owner_is_known_without_looking_at_them() -> None:
    """Status counted them, 15 ms for 40,000: whoever asked for it had that of the loop."""
    registry, process = Registry(), Process(1000, OWNER, visible=True)
    streams = [stream_of(no, f"r{no}", owner=process) for no in (1, 2, 3)]
    for stream in streams:
        registry.add(stream)
        registry.disown(stream, "agent_lost")

    def lost() -> set[int]:
        return {no for no, stream in registry.by_no.items() if stream.lost_reason is not None}

    assert registry.lost == lost() == {1, 2, 3}
    registry.own(streams[0], process)
    assert registry.lost == lost() == {2, 3}
    registry.remove(streams[1])
    assert registry.lost == lost() == {3}
    streams[1].gone = True
    registry.disown(streams[1], "agent_lost")
    assert registry.lost == {3}, "it is released, and its process ends"
