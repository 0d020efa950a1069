"""Calls of replies that are not released, and who is at work, as the gate knows them."""

from __future__ import annotations

from typing import Any

import pytest
from session_log import Log

from walld.sessions.gate.pending import pending
from walld.sessions.gate.resume import resume
from walld.sessions.gate.workers import Worker
from walld.sessions.state.account import Unreleased
from walld.sessions.state.events import Event


def reply(turn: str | None, *calls: dict[str, Any], **more: Any) -> Unreleased:
    """One step that says these calls."""
    items = [{"name": "deploy", "arguments": {}, "outcome": "unknown"} | call for call in calls]
    message = {"role": "assistant", "content": "I deploy.", "tool_calls": items, "_turn": turn}
    message |= {"_wal_stream": "r", "_wal_seq": 1}
    facts: dict[str, Any] = {"status": "crashed", "owner_alive": False, "unread": None} | more
    return Unreleased("r", turn, messages=[message], **facts)


def test_an_id_that_has_replies_alone_is_judged_by_the_same_rules() -> None:
    gate = resume([], replies=[reply(None, {"id": "c", "seq": 2})])
    assert (gate["status"], gate["turn"], gate["boundary"]) == ("blocked", None, "started")
    (call,) = gate["calls"]
    assert (call["call_id"], call["may"], call["why"]) == ("c", "ask_user", "undeclared")
    assert gate["replies"] == [
        {"stream_id": "r", "turn": None, "status": "crashed", "owner_alive": False}
    ]
    (one,) = pending([], replies=[reply(None, {"id": "c", "seq": 2})])
    assert (one["action"], one["call_id"], one["state"]) == ("settle_tool", "c", "said")
    risk = {"side_effect": "external-write", "resume_policy": "rerun-after-check"}
    gate = resume([], replies=[reply(None, {"id": "c", "seq": 2, **risk})])
    assert (gate["status"], gate["calls"][0]["may"]) == ("check", "check_then_run")
    done = {"id": "c", "seq": 2, "outcome": "done", "result": "it is up"}
    gate = resume([], replies=[reply(None, done)])
    assert (gate["status"], pending([], replies=[reply(None, done)])) == ("ok", [])
    assert gate["boundary"] == "observed"
    assert resume([], replies=[reply(None)])["boundary"] == "before_intent"


def test_a_call_that_was_journalled_too_is_one_call() -> None:
    log = Log()
    log.submit("t")
    log.tool("t", "c", "started", tool="deploy", arguments={}, side_effect="external-write")
    said = reply("t", {"id": "c", "seq": 2})
    (call,) = resume(log.events, replies=[said])["calls"]
    assert (call["state"], call["intent"]) == ("started", log.events[1].id)
    log.add("tool_finished", {"call_id": "c", "result": "it is up"}, turn="t")
    assert resume(log.events, replies=[said])["status"] == "ok"
    payload = said.messages[0]
    log.add("message", payload, turn="t")
    assert len(resume(log.events, replies=[said])["calls"]) == 1, "moved meanwhile"


@pytest.mark.parametrize("is_promised", [True, False])
def test_a_promise_holds_for_what_a_reply_says(is_promised: bool) -> None:
    log = Log()
    log.submit("t", **({"calls": "journal"} if is_promised else {}))
    gate = resume(log.events, replies=[reply("t", {"id": "c", "seq": 2})])
    assert gate["status"] == ("ok" if is_promised else "blocked")
    assert gate["as_of"] == log.events[-1].id, "a reply is no entry"
    gate = resume(log.events, last_seq=3, replies=[reply("t", {"id": "c", "seq": 2})])
    assert gate["status"] == "blocked", "what is lost behind the submission may be its intent"


def test_a_reply_that_is_not_known_to_its_end_is_to_be_checked() -> None:
    gate = resume([], replies=[reply(None, unread="a gap stands in it")])
    assert gate["status"] == "check"
    (reason,) = gate["reasons"]
    assert (reason["code"], reason["stream_id"]) == ("reply_unreadable", "r")


def test_nothing_is_still_nothing() -> None:
    events: list[Event] = []
    assert (resume(events)["boundary"], resume(events)["status"]) == ("idle", "ok")


def at(turn: str | None, stream_id: str | None = None, **more: bool) -> Worker:
    told = {"is_asker": False, "is_seen": True} | more
    return Worker(turn, stream_id, 4711, 5, **told)


def test_another_process_at_work_blocks_and_its_calls_are_not_to_be_touched() -> None:
    log = Log()
    log.submit("t")
    log.tool("t", "c", "started", side_effect="read")
    gate = resume(log.events, workers=[at("t")])
    (reason,) = gate["reasons"]
    assert (gate["status"], reason["code"], reason["turn"]) == ("blocked", "at_work", "t")
    assert (reason["pid"], reason["since_ms"]) == (4711, 1000), "since it was submitted"
    assert [(one["may"], one["why"]) for one in gate["calls"]] == [("never", "at_work")]
    assert gate["owner"]["pid"] == 4711
    gate = resume(log.events, workers=[at("t", is_asker=True)])
    assert (gate["status"], gate["calls"][0]["may"], gate["owner"]) == ("ok", "run", None)
    gate = resume(log.events, workers=[at("t", is_seen=False)])
    assert (gate["status"], gate["reasons"][0]["code"]) == ("check", "owner_unseen")
    log.add("turn_completed", {}, turn="t")
    assert resume(log.events, workers=[at("t")])["status"] == "ok", "it ended meanwhile"


def test_a_live_reply_of_another_process_is_work() -> None:
    said = reply(None, {"id": "c", "seq": 2}, status="live", owner_alive=True)
    gate = resume([], replies=[said], workers=[at(None, "r")])
    assert [one["code"] for one in gate["reasons"]] == ["at_work"]
    assert gate["calls"][0]["why"] == "at_work"
    gate = resume([], replies=[said], workers=[at(None, "another")])
    assert gate["calls"][0]["why"] == "undeclared"
    log = Log()
    log.submit("t")
    both = [at("t"), at("t", "r")]
    assert len(resume(log.events, workers=both)["reasons"]) == 1, "a turn and its reply are one"


def test_a_call_of_an_earlier_attempt_is_another_than_that_of_the_last() -> None:
    """Of two that fit one intent it is of the last attempt: the first has none."""
    log = Log()
    log.submit("t", calls="journal")
    log.tool("t", "c", "started", tool="deploy", arguments={}, side_effect="external-write")
    log.add("tool_finished", {"call_id": "c", "result": "it is up"}, turn="t")
    again = {"id": "c", "name": "deploy", "arguments": {}, "outcome": "unknown", "seq": 1}
    told = resume(log.events, replies=[reply("t", {"id": "c", "seq": 9}, earlier=((again, True),))])
    assert told["status"] == "ok", "the program promised an intent before each run"
    alone = [reply(None, {"id": "c", "seq": 9, "outcome": "done"}, earlier=((again, True),))]
    gate = resume([], replies=alone)
    assert (gate["status"], len(pending([], replies=alone))) == ("blocked", 1)


@pytest.mark.parametrize("outcome", ["done", "unknown"])
@pytest.mark.parametrize("is_released", [True, False])
def test_what_a_reply_says_that_it_wrote_is_a_write(is_released: bool, outcome: str) -> None:
    """Of files alone nobody lists what it changed: the workspace was `same`, and the gate ok."""
    log, fingerprint = Log(), {"files": {"x": "a" * 64}}
    looked = {"kind": "workspace_checkpoint", "fingerprint": fingerprint}
    log.submit("t")
    log.add("lifecycle", looked)
    risk = {"side_effect": "workspace-write", "resume_policy": "rerun-after-check"}
    said = reply("t", {"id": "c", "seq": 2, "outcome": outcome, **risk}, status="complete")
    if is_released:
        log.add("message", said.messages[0], turn="t")
    replies = [] if is_released else [said]
    log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t")
    gate = resume(log.events, workspace=fingerprint, replies=replies)
    assert gate["workspace"]["verdict"] == "unknown"
    assert gate["status"] == ("check" if outcome == "done" else "blocked")
    log.add("lifecycle", looked)
    gate = resume(log.events, workspace=fingerprint, replies=replies)
    assert gate["workspace"]["verdict"] == "same", "looked at since"
