"""What an import tells the gate of the session it went to."""

from __future__ import annotations

import pytest
from session_log import INTENT, Log

from walld.sessions.gate.imported import settled_there, untold, untold_files
from walld.sessions.gate.pending import pending
from walld.sessions.gate.resume import resume
from walld.sessions.state.events import Event

NEVER = {"side_effect": "external-write", "resume_policy": "never-rerun"}
A, B = "a" * 64, "b" * 64


@pytest.fixture
def source() -> Log:
    log = Log()
    log.submit("t")
    log.tool("t", "paid", "started", **NEVER)
    return log


def test_nothing_where_both_say_the_same(source: Log) -> None:
    assert untold(source.events, source.state.last_seq, source.events) == {}
    assert untold_files(source.events, source.events) is None


def test_a_call_whose_start_was_not_taken_has_started(source: Log) -> None:
    copy = Log()
    copy.submit("t")
    copy.tool("t", "paid", **NEVER)
    copy.add("turn_interrupted", {"reason": "operator"}, turn="t")
    assert resume(copy.events)["status"] == "ok"
    lacks = untold(source.events, 3, copy.events)
    assert lacks == {"started": ["e2"]}
    copy.add("imported", lacks, leaf=False)
    (tool,) = resume(copy.events)["tools"]
    assert (tool["outcome"], tool["may"]) == ("unknown", "never")
    assert untold(source.events, 3, copy.events) == {}, "said once"
    copy.add("tool_approval", {"call_id": "paid", "state": "denied"}, turn="t")
    assert resume(copy.events)["status"] == "ok"
    assert untold(source.events, 3, copy.events) == {}, "what is settled stays settled"


@pytest.mark.parametrize("word", ["approval:denied", "decision:deny", "observation"])
def test_what_was_said_here_before_it_started_there_settles_nothing(source: Log, word: str) -> None:
    copy = Log()
    copy.submit("t")
    copy.tool("t", "paid", **NEVER)
    kind, _, state = word.partition(":")
    said = {"approval": {"state": state}, "decision": {"verdict": state}, "observation": {}}[kind]
    name = "observation" if kind == "observation" else f"tool_{kind}"
    copy.add(name, {"call_id": "paid"} | said, turn="t")
    lacks = untold(source.events, source.state.last_seq, copy.events)
    assert lacks == {"started": ["e2"]}
    copy.add("imported", lacks, leaf=False)
    (tool,) = resume(copy.events)["tools"]
    assert (tool["outcome"], tool["may"]) == ("unknown", "never")
    settles = "tool_finished" if kind == "approval" else "observation"
    copy.add(settles, {"call_id": "paid"}, turn="t")
    assert resume(copy.events)["status"] == "ok"
    assert untold(source.events, source.state.last_seq, copy.events) == {}


def test_one_of_a_turn_that_is_completed_here_can_be_settled(source: Log) -> None:
    copy = Log()
    copy.submit("t")
    copy.tool("t", "paid", **NEVER)
    copy.add("turn_completed", {}, turn="t")
    lacks = untold(source.events, source.state.last_seq, copy.events)
    assert lacks == {"started": ["e2"]}
    copy.add("imported", lacks, leaf=False)
    assert resume(copy.events)["status"] == "blocked"
    copy.add("tool_finished", {"call_id": "paid"}, turn="t")
    assert resume(copy.events)["status"] == "ok"
    assert untold(source.events, source.state.last_seq, copy.events) == {}


def test_a_call_whose_turn_is_not_here_is_told_all_the_same(source: Log) -> None:
    """Its submission was lost; the lines behind it can be no entries of this session."""
    source.tool("t", "waits", "approval:asked")
    source.tool("t", "harmless")
    left, copy = source.events[1:], Log()
    lacks = untold(left, source.state.last_seq, copy.events)
    waits, paid = lacks["calls"]
    named = {"turn": "t", "call_id": "paid", "tool": INTENT["tool"], "as_of": "e6", **NEVER}
    assert paid == named
    assert (waits["call_id"], waits["resume_policy"]) == ("waits", "require-user-confirmation")
    copy.add("imported", lacks, leaf=False)
    gate = resume(copy.events)
    assert gate["status"] == "blocked"
    assert [tool["may"] for tool in gate["tools"]] == ["ask_user", "never"]
    assert untold(left, source.state.last_seq, copy.events) == {}


def test_what_became_of_such_a_call_can_be_said(source: Log) -> None:
    """It has no turn here that a result could be of."""
    left, copy = source.events[1:], Log()
    lacks = untold(left, source.state.last_seq, copy.events)
    copy.add("imported", lacks, leaf=False)
    (waits,) = pending(copy.events)
    assert (waits["action"], waits["turn"], waits["call_id"]) == ("settle_tool", "t", "paid")
    (reason,) = resume(copy.events)["reasons"]
    assert "an observation with of_turn and of_call" in reason["message"]
    copy.add("observation", {"of_turn": "t", "of_call": "another", "text": "no"})
    assert resume(copy.events)["status"] == "blocked"
    copy.add("observation", {"of_turn": "t", "of_call": "paid", "text": "the receipt is there"})
    assert (resume(copy.events)["status"], pending(copy.events)) == ("ok", [])
    assert untold(left, source.state.last_seq, copy.events) == {}, "what is settled stays settled"
    copy.add("imported", lacks, leaf=False)
    assert resume(copy.events)["status"] == "blocked", "it ran there again, or may have"


def test_a_call_whose_id_was_given_again_is_settled_by_its_name(source: Log) -> None:
    """Any result would be of the later one."""
    copy = Log()
    copy.submit("t")
    copy.tool("t", "paid", "approval:denied", **NEVER)
    lacks = untold(source.events, source.state.last_seq, copy.events)
    copy.tool("t", "paid", side_effect="none", resume_policy="replay-from-event")
    copy.add("imported", lacks, leaf=False)
    (reason,) = resume(copy.events)["reasons"]
    assert "an observation with of_turn and of_call" in reason["message"]
    copy.add("observation", {"call_id": "paid"}, turn="t")
    assert resume(copy.events)["status"] == "blocked"
    copy.add("observation", {"of_turn": "t", "of_call": "paid"})
    assert resume(copy.events)["status"] == "ok"
    assert untold(source.events, source.state.last_seq, copy.events) == {}


def test_what_became_of_such_a_call_comes_with_the_next_import(source: Log) -> None:
    copy = Log()
    copy.add("imported", untold(source.events[1:], 3, copy.events), leaf=False)
    assert settled_there(source.events[1:], source.state.last_seq, copy.events) == []
    source.add("tool_finished", {"call_id": "paid", "failed": True}, turn="t")
    (said,) = settled_there(source.events[1:], source.state.last_seq, copy.events)
    assert (said["of_turn"], said["of_call"]) == ("t", "paid")
    assert "failed" in said["text"]
    older = Log()
    older.submit("t")
    older.tool("t", "paid", "approval:denied", **NEVER)
    assert settled_there(older.events[:2], 2, copy.events) == [], "an older export"
    copy.add("observation", said)
    assert resume(copy.events)["status"] == "ok"
    assert settled_there(source.events[1:], source.state.last_seq, copy.events) == [], "said once"


def test_the_end_that_was_lost_may_have_been_its_start(source: Log) -> None:
    left = source.events[:2]
    assert untold(left, 2, left) == {}
    assert untold(left, 3, left) == {"started": ["e2"]}


def test_files_that_a_tool_wrote_are_known_though_its_end_was_not_taken(source: Log) -> None:
    source.add("tool_finished", {"call_id": "paid", "files": {"x": A}}, turn="t")
    copy = Log()
    copy.add("lifecycle", {"fingerprint": {"head": "h", "dirty": False, "files": {"y": B}}})
    fingerprint = untold_files(source.events[1:], copy.events)
    told = {"head": "h", "dirty": False, "files": {"x": A, "y": B}, "written": True}
    assert fingerprint == told
    copy.add("lifecycle", {"fingerprint": fingerprint})
    assert untold_files(source.events[1:], copy.events) is None
    now = {"head": "h", "dirty": False, "files": {"x": B, "y": B}}
    assert resume(copy.events, now)["workspace"]["changed"] == ["file x"]


def lose_before_last(log: Log) -> list[Event]:
    """The line before the last one is lost."""
    return [*log.events[:-2], log.events[-1]]


def test_a_word_behind_a_loss_of_the_copy_settles_nothing_that_the_source_did_not_know() -> None:
    """The line that is lost right before it may have been a start that was here alone."""
    source, copy = Log(), Log()
    for log in (source, copy):
        log.submit("t")
        log.tool("t", "paid", **NEVER)
    copy.add("tool_started", {"call_id": "paid"}, turn="t", id="mine")
    for log in (source, copy):
        log.add("observation", {"call_id": "paid", "text": "did not run"}, turn="t", id="word")
    assert resume(lose_before_last(copy))["tools"] == []
    (call,) = untold(source.events, 3, lose_before_last(copy))["calls"]
    assert (call["call_id"], call["resume_policy"]) == ("paid", "never-rerun")


def test_a_result_behind_a_loss_of_both_is_a_result() -> None:
    log = Log()
    log.submit("t")
    log.tool("t", "paid", "started", **NEVER)
    log.add("tool_finished", {"call_id": "paid"}, turn="t")
    events = lose_before_last(log)
    copy = Log()
    for event in events[:-1]:
        copy.add(event.type, event.payload, turn=event.turn, id=event.id)
    copy.add("imported", {"missing": [[3, 3]]}, leaf=False, id="hole")
    copy.add("tool_finished", {"call_id": "paid"}, turn="t", id=events[-1].id)
    assert resume(events)["tools"] == resume(copy.events)["tools"] == []
    assert untold(events, 4, copy.events) == {}


def test_an_effect_of_two_words_is_told_in_the_one_that_an_entry_takes() -> None:
    source = Log()
    source.submit("t")
    risk = {"side_effect": "external-write", "resume_policy": "never-rerun", "effect": "process"}
    source.tool("t", "c", "started", **risk)
    lacks = untold(source.events, source.state.last_seq, Log().events)
    assert [one["side_effect"] for one in lacks["calls"]] == ["external-write"]
    copy = Log()
    copy.add("imported", lacks, leaf=False)
    assert resume(copy.events)["status"] == "blocked"
