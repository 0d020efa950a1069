"""walld's own lines, taken into another session."""

from __future__ import annotations

import json
from typing import Any

import pytest

from walld.errors import FormatError
from walld.foreign.detect import detect, read
from walld.foreign.own import events_in

HEADER = '{"walld":1,"uid":1000,"session":"s"}\n'


def line(seq: int, type: str, payload: dict[str, Any], **more: Any) -> str:  # noqa: A002
    fields = {"seq": seq, "id": f"e{seq}", **more, "at": "2026-11-22T13:20:11.123Z", "type": type}
    return json.dumps(fields | {"payload": payload, "chain": "c", "crc": "0"}) + "\n"


def test_all_that_a_line_says_comes_along():
    lines = [
        HEADER,
        line(1, "message", {"role": "user", "content": "a"}, key="k", cause="x", correlation="y"),
        line(2, "note", {"n": 1}, parent="e1", turn="t", leaf=False),
        line(3, "leaf", {"target": None, "name": "back"}, parent="e1"),
        line(4, "message", {"role": "user", "content": "b"}),
        line(5, "label", {"target": "e1", "text": "here"}, parent="e4"),
    ]
    assert detect(lines) == detect(lines[1:]) == "walld"
    found = read(lines)
    assert (found.version, found.not_understood, len(found.entries)) == (1, 0, 5)
    one, two, three, four, five = found.entries
    assert (one.id, one.key, one.cause, one.correlation) == ("e1", "k", "x", "y")
    assert one.at_ms == 1795353611123
    assert (two.parent, two.turn, two.leaf) == ("e1", "t", False)
    assert (three.parent, three.payload) == ("e1", {"target": None, "name": "back"})
    assert (four.parent, four.leaf) == (None, True)
    assert (five.parent, five.type) == ("e4", "label")
    assert read(lines).entries == found.entries


def test_what_was_submitted_and_is_no_text_is_text_in_another_session() -> None:
    """An older walld took numbers; a session of now would refuse them."""
    (one,) = read([line(1, "turn_submitted", {"message_id": "m", "content": 42}, turn="t")]).entries
    assert one.payload == {"message_id": "m", "content": "42"}


def test_what_is_not_understood_is_kept_and_counted():
    strange = '{"seq":2,"chain":"c","crc":"0","type":5}\n'
    lines = [line(1, "note", {}), strange, line(3, "note", {}, parent="gone"), "no json\n", '{"t']
    found = read(lines, "walld")
    reasons = {"malformed": 1, "torn": 1, "unknown_shape": 1}
    assert (found.reasons, found.not_understood) == (reasons, 3)
    kept, lost = "foreign.walld", "imported"
    assert [one.type for one in found.entries] == ["note", kept, lost, "note", kept, kept, lost]
    assert found.missing == [[2, 2], [4, 4]]


def test_an_entry_whose_parent_is_lost_hangs_on_the_one_before() -> None:
    """As in the session itself; and the hole is an entry of its own, in its place."""
    lines = [
        line(1, "note", {}),
        line(2, "note", {}, parent="e1"),
        line(4, "note", {}, parent="e3"),
        line(7, "leaf", {"target": "e1"}, parent="e6"),
    ]
    found = read([*lines, '{"walld":1,"last_seq":9}\n'], "walld")
    shown = [(one.type, one.parent, one.leaf) for one in found.entries]
    lost = ("imported", None, False)
    assert shown[:4] == [("note", None, True), ("note", "e1", True), lost, ("note", "e2", True)]
    assert shown[4:] == [lost, ("leaf", "e4", True), lost]
    assert found.missing == [[3, 3], [5, 6], [8, 9]]
    said = [one.payload["missing"] for one in found.entries if one.type == "imported"]
    assert said == [[hole] for hole in found.missing]
    assert found.orphans == ["e4", "e7"]
    assert [one.seq for one in events_in(lines)] == [1, 2, 4, 6]
    assert (found.event_count, found.last_seq) == (4, 7)
    assert read([*lines, '{"walld":1,"last_seq":9}\n'], "walld").entries == found.entries
    assert read(lines[:2]).missing == read([HEADER, *lines[:2]]).missing == []


def test_lines_at_the_end_that_are_none_are_lost_ones() -> None:
    """Nobody knows what they said."""
    assert read([line(1, "note", {}), '{"seq":2,"id'], "walld").missing == [[2, 2]]
    assert read([line(1, "note", {}), "no\n", line(2, "note", {})], "walld").missing == []
    (lost,) = read([line(3, "note", {}, parent="e2")], "walld").missing
    assert lost == [1, 2]


def test_a_compaction_that_kept_nothing_still_keeps_nothing() -> None:
    lines = [
        line(1, "message", {"role": "user", "content": "a"}),
        line(2, "message", {"role": "user", "content": "b"}, parent="e1"),
        line(3, "leaf", {"target": "e1"}, parent="e2"),
        line(4, "compaction", {"summary": "s", "first_kept": "e2"}, parent="e1"),
        line(5, "compaction", {"summary": "s", "first_kept": "e1"}, parent="e4"),
        line(6, "message_edit", {"target": "e2", "message": {"role": "user"}}, parent="e5"),
    ]
    found = read(lines, "walld")
    assert found.reasons == {"not_on_path": 1}, "an edit of another branch changed nothing"
    assert found.entries[3].payload["replacement"] == [{"role": "user", "content": "s"}]
    assert found.entries[4].payload == {"summary": "s", "first_kept": "e1"}


def test_a_later_version_is_refused():
    with pytest.raises(FormatError, match="version 2 of a session file, known is 1"):
        read([HEADER.replace("1", "2", 1)])


@pytest.mark.parametrize("ident", ["L" * 2000, "e1", ""])
def test_the_events_of_a_file_are_those_that_were_read(ident: str) -> None:
    """An id comes twice: one too long for an id is another each time, one that was taken is not."""
    twice = [line(seq, "note", {}, id=ident) for seq in (2, 3)]
    lines = [line(1, "note", {}), *twice, line(5, "note", {})]
    found, events = read(lines, "walld"), events_in(lines)
    assert (len(events), events[-1].seq) == (found.event_count, found.last_seq)
