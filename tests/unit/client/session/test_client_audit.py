"""The audit: the log's facts against what the application holds. Pure, then both colours."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator
from typing import Any

import pytest
import walld_client
from colours import Coloured, connect
from fake_daemon import FakeDaemon
from fake_ledger import FakeLedger
from walld_client.session import audit


def turn(turn_id: str = "t1", **facts: Any) -> dict[str, Any]:
    return {
        "turn_id": turn_id,
        "message_id": f"m-{turn_id}",
        "state": "submitted",
        "reason": None,
        "interrupted_by": None,
        "collisions": 0,
        "stream_ids": [],
        "content": f"said in {turn_id}",
        "unanswered": [],
    } | facts


def facts(*turns: dict[str, Any], **lists: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"chain_breaks": [], "artifacts_missing": [], "malformed": []}
    return {"turns": list(turns)} | empty | lists


def judged(one: dict[str, Any], present: audit.Present) -> tuple[list[tuple[str, str]], str, int]:
    report = audit.report_of({"S": one}, present)
    found = [(each.kind, each.category) for each in report.findings]
    return found, report.overall, report.exit_code


AUTOMATIC = {"state": "interrupted", "reason": "agent_lost", "interrupted_by": "daemon"}
BY_APP = {"state": "interrupted", "reason": "user", "interrupted_by": "app"}
PENDING, INTERRUPTED = "turn_journal_pending_turn", "turn_journal_interrupted_turn"


@pytest.mark.parametrize(
    ("about", "is_present", "kind", "category"),
    [
        ({}, False, PENDING, "repairable"),
        ({"state": "assistant_started"}, False, PENDING, "repairable"),
        ({"state": "completed"}, False, PENDING, "repairable"),  # that store has shrunk
        (AUTOMATIC, False, PENDING, "repairable"),
        (BY_APP, False, INTERRUPTED, "repairable"),
        (AUTOMATIC, True, INTERRUPTED, "ok"),
        (BY_APP, True, INTERRUPTED, "ok"),
        ({}, None, PENDING, "unknown"),
        ({"state": "completed"}, None, PENDING, "unknown"),
        (AUTOMATIC, None, PENDING, "unknown"),
        ({}, True, None, None),
        ({"state": "completed"}, True, None, None),
    ],
)
def test_a_turn_and_what_the_store_says(
    about: dict[str, Any], is_present: bool | None, kind: str | None, category: str | None
) -> None:
    found, overall, exit_code = judged(facts(turn(**about)), lambda one: is_present)
    assert found == ([] if kind is None else [(kind, category)])
    warns = category in ("repairable", "unknown")
    assert (overall, exit_code) == (("warn", 1) if warns else ("ok", 0))


@pytest.mark.parametrize(("ids", "is_there"), [({"t1"}, True), (["m-t1"], True), (["x"], False)])
def test_present_may_be_turn_or_message_ids(ids: Any, is_there: bool) -> None:
    assert judged(facts(turn()), ids)[0] == ([] if is_there else [(PENDING, "repairable")])


def test_one_str_is_not_ids() -> None:
    with pytest.raises(TypeError, match="present must be ids or a callable, got str 't1'"):
        audit.report_of({}, "t1")


def test_nobody_to_ask() -> None:
    found, overall, _ = judged(facts(turn(), turn("t2", state="completed")), None)
    assert (found, overall) == ([(PENDING, "unknown")], "warn")
    assert judged(facts(turn("t2", state="completed")), None)[1:] == ("ok", 0)
    assert audit.plan_of("S", facts(turn()), None) == []


def test_equal_text_elsewhere_proves_nothing() -> None:
    twice = facts(turn("t1", content="same"), turn("t2", content="same"))
    report = audit.report_of({"S": twice}, ["t1"])
    assert [one.turn_id for one in report.findings] == ["t2"]


def test_what_needs_a_person() -> None:
    one = facts(
        turn(unanswered=["c1"]),
        unanswered=["imported"],
        malformed=[{"seq": 3, "why": "no role"}],
        artifacts_missing=["ab" * 32],
        chain_breaks=[7],
    )
    report = audit.report_of({"S": one}, ["t1"])
    assert [(each.kind, each.subject, each.turn_id) for each in report.findings] == [
        ("tool_call_unanswered", "c1", "t1"),
        ("tool_call_unanswered", "imported", None),
        ("turn_journal_malformed_event", '{"seq":3,"why":"no role"}', None),
        ("artifact_missing", "ab" * 32, None),
        ("chain_broken", "7", None),
    ]
    assert {each.category for each in report.findings} == {"unsafe_to_repair"}
    assert (report.overall, report.exit_code) == ("needs_manual_review", 2)
    assert json.loads(json.dumps(report.to_dict()))["overall"] == "needs_manual_review"


def test_facts_as_the_daemon_has_them() -> None:
    call = {"call_id": "c1", "tool": "t", "outcome": "unknown"}
    by_reason = turn(state="interrupted", reason="agent_lost", collisions=[4], unanswered=[call])
    report = audit.report_of({"S": facts(by_reason)}, [])
    assert [(one.kind, one.subject) for one in report.findings] == [
        (PENDING, None),
        ("tool_call_unanswered", "c1"),
    ]
    assert report.collisions == {"t1": 1}


def test_two_ends_are_one_collision() -> None:
    report = audit.report_of({"S": facts(turn(state="completed", collisions=1))}, ["t1"])
    assert (report.collisions, report.overall, report.turns) == ({"t1": 1}, "ok", 1)


def test_a_plan_puts_back_what_was_said_and_where_it_was_cut_off() -> None:
    one = facts(
        turn("t1", state="completed"),
        turn("t2", **AUTOMATIC),
        turn("t3"),
        turn("t4", **BY_APP),
        turn("t5", message_id="m-t3", retry_of="t3"),
    )
    answers = {"t1": True, "t2": False, "t3": False, "t4": True, "t5": False}
    steps = audit.plan_of("S", one, lambda each: answers[each.turn_id])
    assert [(step.key, step.message["role"]) for step in steps] == [
        ("t2:materialise_user_message", "user"),
        ("t2:mark_interrupted", "system"),
        ("t3:materialise_user_message", "user"),
        ("t4:mark_interrupted", "system"),
    ]
    assert steps[0].message == {
        "role": "user",
        "content": "said in t2",
        "_turn": "t2",
        "_message_id": "m-t2",
    }
    assert "agent_lost" in steps[1].message["content"]
    assert not any(step.message["role"] == "assistant" for step in steps)
    assert audit.plan_of("S", one, lambda each: answers[each.turn_id]) == steps


def test_a_plan_that_was_applied_is_empty() -> None:
    one = facts(turn("t2", **AUTOMATIC))
    store: set[str] = set()
    for step in audit.plan_of("S", one, store):
        store |= {step.key, step.turn_id}
    assert audit.plan_of("S", one, store) == []
    assert judged(one, store)[1] == "ok"


# --- asked of a daemon ----------------------------------------------------------------------------


@pytest.fixture(params=["sync", "aio"])
def client(request: pytest.FixtureRequest, daemon: FakeDaemon) -> Iterator[Coloured]:
    client = connect(request.param, daemon.path)
    yield client
    client.let_go()


def test_of_one_session_or_all(client: Coloured, daemon: FakeDaemon) -> None:
    ledger = FakeLedger(daemon)
    ledger.views["audit"] = facts(turn())
    assert client.audit("never written", present=[]).sessions == 0
    client.session("A").append("a")
    client.session("B").append("a")
    report = client.audit(present=[])
    assert (report.sessions, report.overall) == (2, "warn")
    assert [one.session_id for one in report.findings] == ["A", "B"]
    assert client.audit("A", present=["m-t1"]).findings == []
    asked: list[Any] = []
    client.audit("A", present=asked.append)
    assert isinstance(asked[0], walld_client.AuditedTurn)
    assert (asked[0].session_id, asked[0].content) == ("A", "said in t1")
    with pytest.raises(TypeError):
        client.audit("A", present="t1")


async def saved(_turn: audit.AuditedTurn) -> bool:
    return True


async def not_saved(turn: audit.AuditedTurn) -> bool:
    await asyncio.sleep(0)
    return not turn


@pytest.mark.filterwarnings("error")
def test_what_answers_has_to_say_yes_or_no(client: Coloured, daemon: FakeDaemon) -> None:
    """Anything else counted as yes: an async function, a word, a row of a table."""
    ledger = FakeLedger(daemon)
    ledger.views["audit"] = facts(turn(state="completed"))
    client.session("A").append("a")
    calls = (client.audit, client.repair_plan)
    for answer, told in (("no", "str 'no'"), (0, "int 0"), ([], r"list \[\]")):
        for call in calls:
            with pytest.raises(TypeError, match=f"answers must be True, False or None, got {told}"):
                call("A", present=lambda turn, answer=answer: answer)
    if client.loop is None:
        for call in calls:
            with pytest.raises(TypeError, match="or None without being awaited"):
                call("A", present=not_saved)
    else:
        assert client.audit("A", present=saved).overall == "ok"
        assert client.audit("A", present=not_saved).overall == "warn"
        (step,) = client.repair_plan("A", present=not_saved)
        assert step.op == "materialise_user_message"
    with pytest.raises(TypeError, match="or None without being awaited"):
        audit.report_of({"A": facts(turn())}, saved)
    gc.collect()


def test_a_plan_holds_what_was_put_beside_the_session(client: Coloured, daemon: FakeDaemon) -> None:
    ledger = FakeLedger(daemon)
    client.session("S").submit("x" * 300_000)
    content = ledger.sessions["S"][0]["payload"]["content"]
    assert list(content) == ["_artifact"]
    ledger.views["audit"] = facts(turn(content=content))
    (step,) = client.repair_plan("S", present=[])
    assert step.message["content"] == "x" * 300_000
    assert client.repair_plan("never written", present=[]) == []
    ledger.views["audit"] = facts(turn(content=None, submitted_seq=1))
    (step,) = client.repair_plan("S", present=[])
    assert step.message["content"] == "x" * 300_000, "facts without it: it is looked up"
