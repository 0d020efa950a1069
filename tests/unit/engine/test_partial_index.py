"""Which partials there are, by name: the table behind "nothing there"."""

from __future__ import annotations

from engine_world import World
from walld_client.paths import path_name
from walld_client.wire import messages as wire

from walld.engine.partial_index import IndexedPartial, PartialIndex
from walld.partials.names import PartialOwner

FACTS = IndexedPartial(stream_no=4, last_seq=9, wal_until=2, begun_at_ms=5)


def test_found_by_id_although_only_names_are_known() -> None:
    kept = PartialIndex()
    session, stream = "chat/1", "reply with spaces"
    kept.add(1000, path_name(session), path_name(stream), FACTS)
    where = (path_name(session), path_name(stream))
    assert kept.where(1000, stream) == where
    assert kept.of_session(1000, session) == [where[1]]
    assert kept.facts(1000, *where) == FACTS
    assert kept.by_no == {4: (1000, *where)}
    assert len(kept) == 1


def test_keys_hold_the_uid() -> None:
    kept = PartialIndex()
    kept.add(1000, "s", "r", FACTS)
    kept.add(1001, "s", "r", None)
    assert kept.where(1002, "r") is None
    assert kept.of_session(1002, "s") == []
    assert kept.all_names(1001) == [(1001, "s", "r")]
    assert sorted(kept.all_names()) == [(1000, "s", "r"), (1001, "s", "r")]
    kept.remove(1001, "s", "r")
    assert kept.facts(1000, "s", "r") == FACTS


def test_facts_may_be_unknown_until_they_are_read() -> None:
    kept = PartialIndex()
    kept.add(1000, "s", "r", None)
    assert kept.facts(1000, "s", "r") is None
    assert kept.facts(1000, "s", "other") is None
    assert kept.by_no == {}
    kept.add(1000, "s", "r", FACTS)
    assert (len(kept), kept.facts(1000, "s", "r")) == (1, FACTS)


def test_removed_is_removed_from_every_table() -> None:
    kept = PartialIndex()
    kept.add(1000, "s", "r", FACTS)
    kept.add(1000, "s", "q", None)
    kept.remove(1000, "s", "r")
    kept.remove(1000, "s", "r")
    assert (kept.of_session(1000, "s"), kept.by_no, len(kept)) == (["q"], {}, 1)
    kept.remove(1000, "s", "q")
    assert (kept.of_session(1000, "s"), kept.all_names()) == ([], [])


def test_two_of_one_stream_id_are_both_known() -> None:
    """The first could not be read when the second began."""
    kept = PartialIndex()
    kept.add(1000, "a", "r", FACTS)
    kept.add(1000, "b", "r", FACTS._replace(stream_no=7))
    kept.add(1000, "c", "r", None)
    assert sorted(kept.places(1000, "r")) == [("a", "r"), ("b", "r"), ("c", "r")]
    assert kept.where(1000, "r") == ("b", "r")
    kept.remove(1000, "b", "r")
    assert (len(kept), kept.where(1000, "r")) == (2, ("a", "r"))
    kept.remove(1000, "c", "r")
    assert kept.places(1000, "r") == [("a", "r")]


def test_of_several_of_one_stream_id_each_is_its_own_producer_s() -> None:
    """A stream id alone is no leave to go on with one."""
    world, kept = World(), PartialIndex()
    mine, other, third = (world.connect(letter * 16) for letter in (b"m", b"o", b"t"))
    for at, whose in enumerate((mine, other)):
        assert whose.producer is not None
        facts = FACTS._replace(stream_no=4 + at, whose=PartialOwner(whose.producer.id, 1, f"s{at}"))
        kept.add(1000, f"s{at}", "r", facts)
    kept.add(1000, "unread", "r", None)
    start = wire.Start(1, 0, "r", "s0")
    found = [kept.own(one, start) for one in (mine, other, third)]
    assert [None if one is None else one.stream_no for one in found] == [4, 5, None]
    assert kept.own(mine, wire.Start(2, 0, "r", "s0")) is None, "another reply of that process"
    assert kept.own(mine, wire.Start(1, 0, "q", "s0")) is None
