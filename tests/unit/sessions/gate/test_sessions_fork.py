"""Case 22: what a fork copies."""

from __future__ import annotations

import copy
import json

import pytest
from session_log import Log, contents
from walld_client.wire import messages as wire

from walld.daemon.session_store.fork_contents import forked_session
from walld.sessions.gate.fork import BEFORE_FIRST, forked
from walld.sessions.gate.resume import resume
from walld.sessions.state.entries import event_line, events_of
from walld.sessions.state.errors import BadArgument
from walld.sessions.state.path import path_events
from walld.sessions.views.messages import messages
from walld.sessions.views.tree import labels_of


@pytest.fixture
def log() -> Log:
    log = Log()
    log.say("user", "a")
    aside = log.say("assistant", "wrong")
    log.add("leaf", {"target": "e1"})
    log.add("branch_summary", {"target": aside, "text": "a dead end"})
    log.say("assistant", "right")
    log.add("label", {"target": aside, "text": "not copied"})
    log.add("label", {"target": "e1", "text": "old"})
    log.add("label", {"target": "e1", "text": "start"})
    log.say("user", "c")
    return log


def test_only_the_path_with_its_labels_and_nothing_twice(log: Log) -> None:
    source = copy.deepcopy(log.events)
    copies = forked(log.events)
    assert log.events == source
    assert [event.id for event in copies] == ["e1", "e4", "e5", "e9", "e8"]
    assert [event.parent for event in copies[:4]] == [None, "e1", "e4", "e5"]
    assert [event.seq for event in copies] == [1, 2, 3, 4, 5]
    assert labels_of(copies) == {"e1": "start"}
    assert contents(messages(copies)) == ["a", "a dead end", "right", "c"]
    assert copies[1].payload == {"target": "e1", "text": "a dead end"}


def test_the_summary_of_a_branch_left_before_the_first_entry_comes_along() -> None:
    log = Log()
    log.say("user", "first try")
    log.add("leaf", {"target": None})
    log.add("branch_summary", {"target": "e1", "text": "what it taught"})
    log.say("user", "second try")
    copies = forked(log.events)
    assert contents(messages(copies)) == ["what it taught", "second try"]
    assert copies[0].payload == {"target": None, "text": "what it taught"}


def test_at_an_entry_and_before_the_first(log: Log) -> None:
    assert contents(messages(forked(log.events, at="e2"))) == ["a", "wrong"]
    assert forked(log.events, at=BEFORE_FIRST) == []
    log.add("leaf", {"target": None})
    assert forked(log.events) == []
    assert forked([]) == []
    with pytest.raises(BadArgument, match=r"argument at .*got e99") as error:
        forked(log.events, at="e99")
    assert error.value.code == "unknown_entry"


def test_the_whole_is_every_branch(log: Log) -> None:
    copies = forked(log.events, whole=True)
    assert [event.id for event in copies] == [event.id for event in log.events]
    assert contents(messages(copies, branch="e2")) == ["a", "wrong"]
    lost = forked([log.events[0], *log.events[2:]], whole=True)
    assert [event.seq for event in lost] == list(range(1, 9))
    ids = {event.id for event in lost}
    assert all(event.parent is None or event.parent in ids for event in lost)


def test_undos_and_edits_stay_what_they_were(log: Log) -> None:
    log.add("message_edit", {"target": "e9", "message": {"role": "user", "content": "C"}})
    at = log.add("undo", {"n": 2})
    log.say("user", "later")
    assert contents(messages(forked(log.events, at=at))) == ["a", "a dead end"]
    assert contents(messages(forked(log.events))) == ["a", "a dead end", "later"]


def test_a_compaction_that_keeps_what_is_not_copied(log: Log) -> None:
    log.stand("compaction", {"summary": "s", "first_kept": "e2"})
    copies = forked(log.events)
    assert contents(messages(copies)) == contents(messages(log.events)) == ["s"]


def test_a_compaction_that_keeps_from_a_label_keeps_what_comes_behind_it() -> None:
    log = Log()
    log.say("user", "a")
    label = log.add("label", {"target": "e1", "text": "here"})
    log.add("message", {"role": "assistant", "content": "b"}, parent=label)
    log.add("compaction", {"summary": "short", "first_kept": label})
    assert contents(messages(log.events)) == ["short", "b"]
    assert contents(messages(forked(log.events))) == ["short", "b"]
    last = log.add("label", {"target": "e1", "text": "last"})
    log.add("compaction", {"summary": "nothing kept", "first_kept": last}, parent=last)
    assert contents(messages(log.events)) == contents(messages(forked(log.events)))


def test_turns_are_copied_without_owners() -> None:
    log = Log()
    log.submit("t", "q")
    log.add("turn_worker_started", {}, turn="t", owner={"pid": 1})
    log.add("turn_completed", {}, turn="t", leaf=False)
    copies = forked(log.events)
    assert [event.type for event in copies] == ["turn_submitted", "turn_worker_started"]
    assert [event.owner for event in copies] == [None, None]
    assert contents(messages(copies)) == ["q"]


def test_what_hangs_on_a_turn_that_is_not_copied_stays_out() -> None:
    log = Log()
    log.say("user", "a")
    log.submit("t", "q")
    log.add("leaf", {"target": "e1"})
    log.add("turn_completed", {}, turn="t")
    log.say("assistant", "b")
    assert [event.id for event in path_events(log.events)] == ["e1", "e4", "e5"]
    copies = forked(log.events)
    assert [(event.id, event.parent) for event in copies] == [("e1", None), ("e5", "e1")]


def test_an_entry_that_was_no_leaf_is_one_where_it_is_forked() -> None:
    log = Log()
    log.say("user", "a")
    at = log.add("message", {"role": "user", "content": "aside"}, leaf=False)
    assert contents(messages(forked(log.events, at=at))) == ["a", "aside"]


@pytest.mark.parametrize("lost", range(1, 7))
def test_all_of_a_damaged_session_is_forked_whatever_is_lost(lost: int) -> None:
    """What stands there without that which it was about tells the same in the copy."""
    log = Log()
    log.submit("t")
    log.add("label", {"target": "e1", "text": "x"})
    log.tool("t", "c", "approval:granted", "started")
    log.add("leaf", {"target": "e1"})
    left = [event for event in log.events if event.seq != lost]
    chain = b"\0" * 16
    lines = [event_line(event, json.dumps(event.payload).encode(), chain) for event in left]
    request = wire.Fork(1, "s", "new", whole=True)
    made = events_of(forked_session(events_of(lines), request, 0, 5, log.state.last_seq).lines)
    assert [event.id for event in made if event.type != "forked"][: len(left)] == [
        event.id for event in left
    ]
    ours, theirs = resume(made)["tools"], resume(left, last_seq=log.state.last_seq)["tools"]
    assert [one["may"] for one in ours] == [one["may"] for one in theirs]
