"""Calls that are the work of other sessions: what a view needs to know, and what it says then."""

from __future__ import annotations

from typing import Any

import pytest
from session_log import Log

from walld.sessions.gate.children import ChildrenUnknown, open_children, with_children
from walld.sessions.gate.pending import pending
from walld.sessions.gate.processes import NamedProcess
from walld.sessions.gate.resume import resume
from walld.sessions.state.events import Child
from walld.sessions.views.child_view import child_view
from walld.sessions.views.evaluation import evaluation
from walld.sessions.views.messages import messages
from walld.sessions.views.trace import trace
from walld.sessions.views.transcript import transcript

SPAWN = {"tool": "spawn", "side_effect": "external-write", "resume_policy": "never-rerun"}
DONE = Child("s1", is_done=True, result="4 degrees")
AT_WORK = {"code": "at_work", "message": "process 7 is at work", "verdict": "blocked"}


def link(session: str = "c", call_id: str = "k", **more: Any) -> dict[str, Any]:
    return {"session": session, "call_id": call_id, "of": {"turn": "t1", "call_id": call_id} | more}


@pytest.fixture
def log() -> Log:
    log = Log()
    log.submit("t1", "go")
    log.add("tool_intent", {"call_id": "k", **SPAWN}, turn="t1")
    log.add("child", link(), id="l1", leaf=False)
    log.add("tool_started", {"call_id": "k"}, turn="t1")
    return log


def seen(log: Log, child: Child | None) -> Any:
    return with_children(log.events, {"l1": child})


def test_a_view_needs_those_of_open_calls_alone(log: Log) -> None:
    assert [one.id for one in open_children(log.events)] == ["l1"]
    with pytest.raises(ChildrenUnknown) as unknown:
        with_children(log.events, {})
    assert [one.id for one in unknown.value.entries] == ["l1"]
    log.add("tool_finished", {"call_id": "k", "result": "own"}, turn="t1")
    assert open_children(log.events) == []
    assert with_children(log.events, {}) is log.events
    # Its id again, in the same turn: that call is another, and has a child of its own.
    log.add("tool_intent", {"call_id": "k", **SPAWN}, turn="t1")
    log.add("child", link(), id="l2", leaf=False)
    assert [one.id for one in open_children(log.events)] == ["l2"]


def test_every_view_has_what_it_said_last(log: Log) -> None:
    events = seen(log, DONE)
    (item,) = (messages(events) or [])[1]["tool_calls"]
    assert (item["result"], item["outcome"], item["child"]) == ("4 degrees", "done", "c")
    assert (messages(events, "openai") or [])[2]["content"] == "4 degrees"
    (tool,) = transcript(events)[0]["tools"]
    assert (tool["outcome"], tool["child"]) == ("done", "c")
    (span,) = [one for one in trace(events) if one["kind"] == "tool"]
    assert (span["status"], span["attributes"]["child"]) == ("ok", "c")
    assert evaluation(events)["metadata"]["outcomes"] == {"done": 1}
    gate = resume(events)
    assert (gate["status"], gate["calls"][0]["may"]) == ("ok", "read_result")
    assert [one["action"] for one in pending(events)] == ["answer_turn"]


def test_any_other_word_goes_before_it(log: Log) -> None:
    log.add("tool_finished", {"call_id": "k", "result": "own", "failed": True}, turn="t1")
    (item,) = (messages(seen(log, DONE)) or [])[1]["tool_calls"]
    assert (item["result"], item["outcome"]) == ("own", "failed")


@pytest.mark.parametrize(
    ("child", "status", "may", "why", "codes"),
    [
        (None, "blocked", "never", "may_have_run", ["tool_unknown"]),
        (Child(unread="no"), "blocked", "never", "may_have_run", None),
        (Child(status="ok"), "ok", "run", "child", []),
        (
            Child(status="check", reasons=[AT_WORK | {"code": "x", "verdict": "check"}]),
            *("check", "check_then_run", "child", ["x"]),
        ),
        (Child(status="blocked", reasons=[AT_WORK]), "blocked", "never", "at_work", ["at_work"]),
    ],
)
def test_the_gate_says_what_the_child_s_gate_says(
    log: Log, child: Child | None, status: str, may: str, why: str, codes: list[str] | None
) -> None:
    gate = resume(seen(log, child))
    (call,) = gate["calls"]
    assert (gate["status"], call["may"], call["why"]) == (status, may, why)
    found = [one["code"] for one in gate["reasons"]]
    assert found == (["tool_unknown", "child_unreadable"] if codes is None else codes)


def test_what_waits_of_a_call_whose_child_may_go_on() -> None:
    named = NamedProcess(7, 70, "b", 1)
    start = {"pid": 7, "start": 70, "boot": "b", "namespace": 1}
    log = Log()
    log.submit("t1", "go")
    log.add("tool_intent", {"call_id": "k", **SPAWN}, turn="t1")
    log.add("child", link(), id="l1", leaf=False)
    log.add("tool_started", {"call_id": "k"} | start, turn="t1")

    def waiting(child: Child, **more: Any) -> tuple[Any, Any]:
        found = [one for one in pending(seen(log, child), **more) if "call_id" in one]
        return found[0]["action"], (found[0].get("owner") or {}).get("pid")

    assert waiting(Child(status="ok")) == ("run_tool", None)
    assert waiting(Child(status="blocked")) == ("settle_tool", None)
    assert waiting(Child(status="blocked", owner={"pid": 9})) == (None, 9)
    assert waiting(Child(status="ok"), processes={named: "running"}) == (None, 7)


def test_an_entry_of_that_name_may_be_an_application_s_own() -> None:
    log = Log()
    log.submit("t1", "go")
    log.add("tool_intent", {"call_id": "k", **SPAWN}, turn="t1")
    for payload in ({}, {"session": "c"}, {"session": "c", "call_id": "k", "of": "x"}):
        log.add("child", payload)
    log.add("child", {"session": "c", "call_id": "k", "of": {"call_id": "k"}})
    assert open_children(log.events) == []


def child_log(*, is_completed: bool = True) -> Log:
    log = Log()
    log.add("child_of", link("p"), leaf=False)
    log.submit("s1", "look")
    log.add("message", {"role": "assistant", "content": "4 degrees"}, turn="s1")
    if is_completed:
        log.add("turn_completed", {}, turn="s1")
    return log


@pytest.mark.parametrize("is_completed", [True, False])
def test_a_child_says_whose_it_is_and_what_it_said(*, is_completed: bool) -> None:
    log = child_log(is_completed=is_completed)
    told = child_view(log.events)
    assert told is not None
    assert (told["session"], told["of"], told["is_newest"]) == ("p", link()["of"], True)
    assert (told["turn"], told["is_done"], told["result"]) == ("s1", True, "4 degrees")
    assert child_view(log.events, "p", link()["of"]) == told
    assert child_view(log.events, "q", link()["of"]) is None
    assert child_view([]) is None


def test_the_work_of_one_call_is_not_that_of_the_next() -> None:
    log = child_log()
    log.add("child_of", link("p", "k2"), leaf=False)
    newest = child_view(log.events)
    assert newest is not None
    assert (newest["call_id"], newest["turn"], newest["is_done"]) == ("k2", None, False)
    first = child_view(log.events, "p", link()["of"])
    assert first is not None
    assert (first["is_newest"], first["is_done"], first["result"]) == (False, True, "4 degrees")
    log.submit("s2", "again")
    assert child_view(log.events)["is_done"] is False  # type: ignore[index]
    log.add("message", {"role": "assistant", "content": [{"type": "text", "text": "5"}]}, turn="s2")
    log.add("turn_completed", {}, turn="s2")
    assert child_view(log.events)["result"] == "5"  # type: ignore[index]
    assert child_view(log.events, "p", link()["of"]) == first
