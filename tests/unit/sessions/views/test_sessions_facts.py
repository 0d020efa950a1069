"""What an application says of its session beside the conversation, and what stands of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from session_log import Log

from walld.sessions.state.events import check_new, check_payload
from walld.sessions.views.messages import messages
from walld.sessions.views.state_view import state_view
from walld.sessions.views.transcript import transcript

RUN = {"tool": "run", "side_effect": "none", "resume_policy": "never-rerun"}


@pytest.fixture
def log() -> Log:
    return Log()


def test_what_is_queued_waits_until_it_is_said_or_taken_off(log: Log) -> None:
    said = {"content": "and then deploy", "kind": "input", "message_id": "m2"}
    first = log.add("queued", said, leaf=False)
    log.add("queued", {"content": "be quick", "kind": "steering"}, id="q2", leaf=False)
    log.add("queued", {"content": "never mind", "kind": "input"}, id="q3", leaf=False)
    log.add("dequeued", {"target": "q3"}, leaf=False)
    own = msgspec.structs.replace(log.events[0], id="own", seq=99, payload={"age": 7})
    waiting = state_view([*log.events, own])["queue"]
    assert [(one["id"], one["kind"], one["content"]) for one in waiting] == [
        (first, "input", "and then deploy"),
        ("q2", "steering", "be quick"),
    ]
    log.add("turn_submitted", {"message_id": "m2", "content": "and then deploy"}, turn="t1")
    assert [one["id"] for one in state_view(log.events)["queue"]] == ["q2"]
    log.add("queued", {"content": "faster", "kind": "steering", "message_id": "m3"}, leaf=False)
    log.add("message", {"role": "user", "content": "faster", "_message_id": "m3"}, turn="t1")
    assert [one["id"] for one in state_view(log.events)["queue"]] == ["q2"]


def test_a_session_says_where_it_runs(log: Log) -> None:
    log.add("session_info", {"cwd": "/a", "version": "1.2"}, leaf=False)
    log.add("session_info", {"cwd": "/b", "host": "h"}, leaf=False)
    assert state_view(log.events)["session"] == {"cwd": "/b", "version": "1.2", "host": "h"}
    assert state_view([])["session"] == {}


def test_its_state_is_what_was_said_last(log: Log) -> None:
    def now() -> tuple[str, Any, bool]:
        told = state_view(log.events)["lifecycle"]
        return told["state"], told["reason"], told["is_said"]

    assert state_view([])["lifecycle"] is None
    log.submit("t1", "go")
    assert now() == ("running", None, False)
    log.add("lifecycle", {"state": "paused", "reason": "waits for Anna"}, leaf=False)
    log.add("lifecycle", {"kind": "workspace_checkpoint", "fingerprint": {}}, leaf=False)
    log.add("lifecycle", {"state": "elsewhere"}, leaf=False)
    assert now() == ("paused", "waits for Anna", True)
    log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t1")
    assert now() == ("paused", "agent_lost", False)
    log.submit("t2", "on")
    log.add("turn_completed", {}, turn="t2")
    assert now() == ("done", None, False)
    log.add("lifecycle", {"state": "failed", "reason": "out of money"}, leaf=False)
    assert now() == ("failed", "out of money", True)


def test_a_later_verification_of_a_name_takes_the_place_of_the_one_before(log: Log) -> None:
    log.submit("t1", "go")
    log.add("verification", {"name": "tests", "passed": False}, turn="t1", leaf=False)
    log.add("verification", {"name": "lint", "passed": False}, turn="t1", leaf=False)
    log.add("verification", {"passed": True}, leaf=False)
    log.add("verification", {"name": "tests", "passed": True}, turn="t1", leaf=False)
    log.add("verification", {"ok": 1}, leaf=False)
    found = [(one["name"], one["passed"]) for one in state_view(log.events)["verifications"]]
    assert found == [("lint", False), (None, True), ("tests", True), (None, None)]


def test_files_results_and_denials(log: Log) -> None:
    log.submit("t1", "go")
    for at in range(7):
        log.add("tool_intent", {"call_id": f"c{at}", **RUN, "arguments": {"at": at}}, turn="t1")
        files = {"a": "0" * 64} if at == 0 else {"a": "1" * 64, "b": None} if at == 6 else {}
        finished = {"call_id": f"c{at}", "result": f"r{at}", "files": files}
        log.add("tool_finished", finished, turn="t1")
    part = {"kind": "files_written", "fingerprint": {"part": True, "files": {"c": "2" * 64}}}
    log.add("lifecycle", part, turn="t1")
    log.add("tool_intent", {"call_id": "no", **RUN, "arguments": {"rm": "/"}}, turn="t1")
    log.add("tool_approval", {"call_id": "no", "state": "denied", "reason": "never"}, turn="t1")
    view = state_view(log.events)
    assert view["modified_files"] == {"a": "1" * 64, "b": None, "c": "2" * 64}
    assert view["modified_files_left_out"] == 0
    assert [one["result"] for one in view["last_results"]] == ["r2", "r3", "r4", "r5", "r6"]
    (denial,) = view["denials"]
    assert (denial["arguments"], denial["reason"]) == ({"rm": "/"}, "never")
    assert (denial["by"], denial["started"]) == ("The user", False)
    for at in range(1200):
        log.add("tool_intent", {"call_id": f"f{at}", **RUN}, turn="t1")
        finished = {"call_id": f"f{at}", "files": {f"f{at}": "0" * 64}}
        log.add("tool_finished", finished, turn="t1")
    view = state_view(log.events)
    assert (len(view["modified_files"]), view["modified_files_left_out"]) == (1000, 203)
    assert list(view["modified_files"])[-1] == "f1199"


def test_how_far_a_call_is(log: Log) -> None:
    log.submit("t1", "go")
    log.add("tool_intent", {"call_id": "c", **RUN}, turn="t1")
    for done in (1, 2):
        log.add("tool_progress", {"call_id": "c", "done": done, "of": 3}, turn="t1", leaf=False)
    log.add("tool_progress", {"call_id": "another"}, turn="t1", leaf=False)
    (tool,) = transcript(log.events)[0]["tools"]
    told = {name: value for name, value in tool["progress"].items() if name != "at_ms"}
    assert told == {"call_id": "c", "done": 2, "of": 3}
    assert (tool["state"], tool["outcome"]) == ("intended", "pending")


def test_an_entry_that_is_declared_a_message_stands_at_its_place(log: Log) -> None:
    log.say("user", "hello")
    log.add("app.note", {"_message": {"role": "user", "content": "it rains"}, "more": 1}, id="n")
    log.say("assistant", "I see")
    for told in ("x", {"role": "tool", "content": "x"}, {"role": "user", "content": [1]}):
        log.add("app.note", {"_message": told})
    found = messages(log.events) or []
    assert [one["content"] for one in found] == ["hello", "it rains", "I see"]
    assert found[1]["_declared"] == "app.note"
    openai = messages(log.events, "openai") or []
    assert [one["role"] for one in openai] == ["user", "assistant"]
    assert "it rains" in openai[0]["content"]
    log.add("message_edit", {"target": "n", "message": {"role": "user", "content": "it pours"}})
    assert [one["content"] for one in messages(log.events) or []][1] == "it pours"
    log.add("undo", {"n": 2})
    assert [one["content"] for one in messages(log.events) or []] == ["hello"]
    log.add("verification", {"_message": {"role": "user", "content": "of a known type"}})
    assert [one["content"] for one in messages(log.events) or []] == ["hello"]


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("queued", {"kind": "input"}),
        ("queued", {"content": 7, "kind": "input"}),
        ("queued", {"content": "x", "kind": "elsewhere"}),
        ("dequeued", {}),
        ("tool_progress", {"done": 1}),
        ("session_info", {"cwd": 7}),
    ],
)
def test_what_is_new_has_to_fit_and_what_is_there_is_read(
    kind: str, payload: dict[str, Any]
) -> None:
    problem = check_new(kind, payload)
    assert problem is not None
    assert kind in problem.message
    assert check_payload(kind, payload) is None
