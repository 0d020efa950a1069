"""Entries of a file whose ids other words have in the session it goes to."""

from __future__ import annotations

from typing import Any

import pytest
from session_log import INTENT, Log

from walld.foreign.entries import Foreign
from walld.foreign.taken import misplaced, renamed, taken
from walld.sessions.gate.turn_history import calls_of
from walld.sessions.state.events import Event

LONG = "x" * 300_000


def said(
    payload: dict[str, Any], kind: str = "message", turn: str | None = None
) -> tuple[Foreign, Event]:
    """An entry of a file and one of a session, the same."""
    one = Foreign(kind, payload, "1", turn=turn)
    return one, Event(seq=1, id="1", type=kind, turn=turn, payload=payload)


def other(event: Event, **fields: Any) -> Event:
    made: dict[str, Any] = {name: getattr(event, name) for name in ("seq", "id", "type", "turn")}
    return Event(**made | {"payload": event.payload} | fields)


@pytest.mark.parametrize("form", ["walld", "pi"])
def test_the_same_words_are_the_entry(form: str) -> None:
    one, event = said({"role": "user", "content": "hi"})
    assert taken([one], form, {"1": event}) == {}
    assert taken([one], form, {}) == {}
    kept = other(event, type=f"foreign.{form}", payload={"line": "..."})
    assert taken([one], form, {"1": kept}) == {}


@pytest.mark.parametrize("form", ["walld", "pi"])
@pytest.mark.parametrize(
    "fields",
    [{"type": "note"}, {"turn": "t"}, {"payload": {"role": "user", "content": "hello"}}],
)
def test_other_words_are_another_entry(form: str, fields: dict[str, Any]) -> None:
    one, event = said({"role": "user", "content": "hi"})
    there = {"1": other(event, **fields)}
    names = taken([one], form, there)
    assert list(names) == ["1"]
    assert names == taken([one], form, there)
    assert names["1"].startswith(f"{form}.")
    assert names != taken([said({"role": "user", "content": "ho"})[0]], form, there)


def test_a_command_of_the_user_is_told_in_words_of_the_build_that_imported_it() -> None:
    ran = {"role": "bashExecution", "command": "make", "cancelled": True, "timestamp": 1}
    one, event = said({"role": "user", "content": "Ran `make`\n(cancelled)", "_foreign": ran})
    before = {"role": "user", "content": "Ran `make`"}
    assert taken([one], "pi", {"1": other(event, payload=before | {"_foreign": ran})}) == {}
    later = ran | {"timestamp": 2}
    assert list(taken([one], "pi", {"1": other(event, payload=before | {"_foreign": later})})) == [
        "1"
    ]


def test_what_is_beside_the_session_is_the_entry_that_was_too_long() -> None:
    one, event = said({"role": "user", "content": LONG})
    beside = other(event, payload={"role": "user", "content": {"_artifact": {"sha256": "0" * 64}}})
    assert taken([one], "walld", {"1": beside}) == {}
    assert taken([one], "pi", {"1": beside}) == {}
    text, event = said({"text": LONG}, "observation")
    beside = other(event, payload={"text": "xx", "_artifact": {"sha256": "0" * 64}})
    assert taken([text], "walld", {"1": beside}) == {}
    assert taken([text], "walld", {"1": other(event, payload={"of_turn": "t", "text": "xx"})})


def test_what_a_fork_told_anew_and_another_version_read_otherwise_is_the_entry() -> None:
    one, event = said({"summary": "s", "first_kept": "0"}, "compaction")
    told = other(event, payload={"summary": "s", "replacement": []})
    assert taken([one], "walld", {"1": told}) == {}
    one, event = said({"model": "m"}, "model_change")
    assert taken([one], "pi", {"1": other(event, payload={"model": "m", "by": "x"})}) == {}
    assert taken([one], "walld", {"1": other(event, payload={"model": "m", "by": "x"})})


def test_whatever_names_it_names_it_so() -> None:
    call = {"turn": "1", "call_id": "c"}
    payload = {
        "target": "1",
        "of_turn": "1",
        "started": ["1", "2"],
        "calls": [call, "odd"],
        "mixed": "1",
        "content": "1",
        "first_kept": ["1"],
    }
    one = Foreign("note", payload, "1", "1", "1", key="1")
    made = renamed(one, {"1": "new"})
    assert (made.id, made.parent, made.turn, made.key) == ("new", "new", "new", "1")
    assert made.payload == {
        "target": "new",
        "of_turn": "new",
        "started": ["new", "2"],
        "calls": [call | {"turn": "new"}, "odd"],
        "mixed": "1",
        "content": "1",
        "first_kept": ["1"],
    }
    assert payload["target"] == "1"
    assert renamed(one, {}) is one
    assert renamed(one, {"3": "new"}) == one


def foreign(event: Event) -> Foreign:
    names = ("type", "payload", "id", "parent", "turn")
    return Foreign(**{name: getattr(event, name) for name in names})


def test_a_word_of_a_call_whose_id_was_given_again_is_of_no_other() -> None:
    source, copy = Log(), Log()
    for log in (source, copy):
        log.submit("t")
        log.tool("t", "c", "started", **INTENT)
    source.add("tool_finished", {"call_id": "c"}, turn="t", id="word")
    copy.add("observation", {"call_id": "c", "text": "seen"}, turn="t", id="own")
    copy.tool("t", "c", "started", **INTENT)
    source.add("message", {"role": "user"}, id="on", parent="word")
    calls = calls_of(source.events)
    assert calls["word"] == "e2"
    late = [foreign(event) for event in source.events[3:]]
    assert misplaced(late, copy.events, calls) == {"word"}
    assert misplaced(late, source.events[:3], calls) == frozenset()
    assert misplaced(late, copy.events[:3], calls) == frozenset()
    assert misplaced(late, copy.events, {}) == frozenset()


def test_a_start_whose_intent_is_lost_is_of_no_call_that_waits() -> None:
    source, copy = Log(), Log()
    for log in (source, copy):
        log.submit("t")
    source.stand("tool_started", {"call_id": "c"}, turn="t", id="start")
    calls = calls_of(source.events)
    assert calls == {"start": "start"}
    copy.tool("t", "c", **INTENT)
    start = [foreign(source.events[-1])]
    assert misplaced(start, copy.events, calls) == {"start"}
    assert misplaced(start, copy.events[:1], calls) == frozenset()
