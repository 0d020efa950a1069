"""Which partials there are, by name: the table behind "nothing there"."""

from __future__ import annotations

from walld_client.paths import path_name

from walld.engine.kept import Kept, KeptFacts

FACTS = KeptFacts(stream_no=4, last_seq=9, wal_until=2, begun_at_ms=5)


def test_found_by_id_although_only_names_are_known() -> None:
    kept = Kept()
    session, stream = "chat/1", "reply with spaces"
    kept.add(1000, path_name(session), path_name(stream), FACTS)
    where = (path_name(session), path_name(stream))
    assert kept.where(1000, stream) == where
    assert kept.of_session(1000, session) == [where[1]]
    assert kept.facts_of(1000, stream) == FACTS
    assert kept.by_no == {4: (1000, *where)}
    assert len(kept) == 1


def test_keys_hold_the_uid() -> None:
    kept = Kept()
    kept.add(1000, "s", "r", FACTS)
    kept.add(1001, "s", "r", None)
    assert kept.where(1002, "r") is None
    assert kept.of_session(1002, "s") == []
    assert kept.all_names(1001) == [(1001, "s", "r")]
    assert sorted(kept.all_names()) == [(1000, "s", "r"), (1001, "s", "r")]
    kept.remove(1001, "s", "r")
    assert kept.facts_of(1000, "r") == FACTS


def test_facts_may_be_unknown_until_they_are_read() -> None:
    kept = Kept()
    kept.add(1000, "s", "r", None)
    assert kept.facts(1000, "s", "r") is None
    assert kept.facts_of(1000, "r") is None
    assert kept.facts_of(1000, "other") is None
    assert kept.by_no == {}
    kept.add(1000, "s", "r", FACTS)
    assert (len(kept), kept.facts_of(1000, "r")) == (1, FACTS)


def test_removed_is_removed_from_every_table() -> None:
    kept = Kept()
    kept.add(1000, "s", "r", FACTS)
    kept.add(1000, "s", "q", None)
    kept.remove(1000, "s", "r")
    kept.remove(1000, "s", "r")
    assert (kept.of_session(1000, "s"), kept.by_no, len(kept)) == (["q"], {}, 1)
    kept.remove(1000, "s", "q")
    assert (kept.of_session(1000, "s"), kept.all_names()) == ([], [])


def test_two_of_one_stream_id_are_both_known() -> None:
    """The first could not be read when the second began."""
    kept = Kept()
    kept.add(1000, "a", "r", FACTS)
    kept.add(1000, "b", "r", FACTS._replace(stream_no=7))
    kept.add(1000, "c", "r", None)
    assert sorted(kept.places(1000, "r")) == [("a", "r"), ("b", "r"), ("c", "r")]
    assert kept.where(1000, "r") == ("b", "r")
    assert kept.facts_of(1000, "r") is None, "whose it is its id does not tell"
    kept.remove(1000, "b", "r")
    assert (len(kept), kept.where(1000, "r")) == (2, ("a", "r"))
    kept.remove(1000, "c", "r")
    assert kept.facts_of(1000, "r") == FACTS
