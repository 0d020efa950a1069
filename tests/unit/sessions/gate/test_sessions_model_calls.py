"""The model's calls of a session, each once: from its entries and from unreleased replies."""

from __future__ import annotations

from typing import Any

from session_log import Log

from walld.sessions.gate.model_calls import calls_by_turn, model_calls, total_usage
from walld.sessions.state.account import Unreleased
from walld.sessions.views.evaluation import evaluation
from walld.sessions.views.messages import messages
from walld.sessions.views.trace import trace
from walld.sessions.views.transcript import transcript


def left(step: int = 1, stream: str = "r", **more: Any) -> dict[str, Any]:
    known = {"stream": stream, "step": step, "started_at_ms": 500, "at_ms": 1000 + step}
    return known | {"status": "complete", "calls": []} | more


def ledger() -> Log:
    log = Log()
    log.submit("t1")
    log.add("turn_assistant_started", {"stream_id": "r"}, turn="t1")
    return log


def waiting(*payloads: dict[str, Any], turn: str | None = "t1") -> Unreleased:
    return Unreleased("r", turn, [], model_calls=payloads)


def test_an_entry_is_a_record_and_what_nobody_said_is_none() -> None:
    log = ledger()
    facts = {"model": "m", "usage": {"in": 5}, "ended_at_ms": 1900, "finish_reason": "stop"}
    log.add("model_call", left(**facts), turn="t1", leaf=False)
    assert model_calls(log.events) == [
        {
            "id": "r:1:call",
            "seq": 3,
            "turn": "t1",
            "stream": "r",
            "step": 1,
            "started_at_ms": 500,
            "at_ms": 1001,
            "ended_at_ms": 1900,
            "status": "complete",
            "model": "m",
            "provider": None,
            "request_id": None,
            "tools_hash": None,
            "error_class": None,
            "usage": {"in": 5},
            "error_kind": None,
            "finish_reason": "stop",
            "unreleased": False,
        }
    ]


def test_a_reply_and_its_entry_are_one_record_and_the_entry_counts() -> None:
    log = ledger()
    reply = waiting(left(model="m"), left(step=4, model="m"))
    before = model_calls(log.events, [reply])
    assert [(one["id"], one["unreleased"]) for one in before] == [
        ("r:1:call", True),
        ("r:4:call", True),
    ]
    log.add("model_call", left(model="m"), turn="t1", leaf=False)
    both = model_calls(log.events, [reply])
    assert sorted((one["id"], one["unreleased"]) for one in both) == [
        ("r:1:call", False),
        ("r:4:call", True),
    ]
    log.add("model_call", left(step=4, model="m"), turn="t1", leaf=False)
    after = model_calls(log.events)
    assert after == model_calls(log.events, [reply])
    same = [one | {"seq": 0, "unreleased": False} for one in before]
    assert [one | {"seq": 0} for one in after] == same, "released or not"


def test_parts_of_a_step_are_one_and_equal_names_of_other_replies_are_not() -> None:
    log = ledger()
    log.add("model_call", left(model="m"), turn="t1", leaf=False)
    rest = {"stream": "r", "step": 1, "started_at_ms": 500, "status": "complete", "calls": []}
    log.add("model_call", rest, turn="t1", leaf=False)
    log.add("model_call", left(model="n", started_at_ms=900), leaf=False)
    assert [(one["model"], one["turn"]) for one in model_calls(log.events)] == [
        ("m", "t1"),
        ("n", None),
    ]


def test_entries_of_before_and_of_applications() -> None:
    log = ledger()
    alone = {"stream": "r", "step": 1, "started_at_ms": 500, "calls": [], "status": "crashed"}
    log.add("model_call", alone, turn="t1", leaf=False)
    log.add("model_call", {"of": "the application's own", "model": "x"})
    log.add("model_call", {"stream": ["odd"], "step": "one", "model": "x"})
    assert model_calls(log.events) == [], "of tool calls alone, of an application"
    log.add("model_call", alone | {"status": "errored", "error_class": "overloaded"}, turn="t1")
    (one,) = model_calls(log.events)
    assert (one["status"], one["error_class"], one["error_kind"]) == (
        "error",
        "provider",
        "overloaded",
    )


def test_totals_and_turns() -> None:
    log = ledger()
    log.add("model_call", left(usage={"in": 5, "out": 1}), turn="t1", leaf=False)
    log.add("model_call", left(step=9, usage={"in": 2, "cost": 0.5}), turn="t1", leaf=False)
    log.add("model_call", left(stream="s"), leaf=False)
    records = model_calls(log.events)
    assert total_usage(records) == {"in": 7, "out": 1, "cost": 0.5}
    assert {name: len(found) for name, found in calls_by_turn(records).items()} == {
        "t1": 2,
        None: 1,
    }


def test_views_have_them_and_messages_do_not() -> None:
    log = ledger()
    log.say("assistant", "Hi", _wal_stream="r", _wal_seq=1)
    before = messages(log.events)
    facts = {"model": "m", "usage": {"in": 5}, "ended_at_ms": 1900, "error_class": "timeout"}
    log.add("model_call", left(**facts, status="error"), turn="t1", leaf=False)
    log.submit("t2")
    records = model_calls(log.events)
    assert messages(log.events)[: len(before or [])] == before  # type: ignore[index]
    turns = {one["turn_id"]: one for one in transcript(log.events) if one["turn_id"]}
    assert (turns["t1"]["model_calls"], turns["t2"]["model_calls"]) == (records, [])
    (span,) = [one for one in trace(log.events) if one["kind"] == "model"]
    (reply,) = [one for one in trace(log.events) if one["kind"] == "reply"]
    assert (span["span_id"], span["parent_id"]) == ("r:1:call", reply["span_id"])
    assert (span["start_ms"], span["end_ms"], span["status"]) == (1001, 1900, "error")
    told = {"model": "m", "usage": {"in": 5}, "call_status": "error", "error_class": "timeout"}
    assert span["attributes"].items() >= told.items()
    sample = evaluation(log.events)
    assert (sample["model_calls"], sample["metadata"]["usage"]) == (records, {"in": 5})
    assert evaluation(log.events, "t2")["model_calls"] == []


def test_views_have_those_of_replies_that_are_not_released() -> None:
    log = ledger()
    reply = waiting(left(model="m", usage={"in": 5}, status="partial"))
    (turn,) = transcript(log.events, [reply])
    assert [one["unreleased"] for one in turn["model_calls"]] == [True]
    (span,) = [one for one in trace(log.events, [reply]) if one["kind"] == "model"]
    assert (span["end_ms"], span["status"]) == (None, "unset")
    assert span["attributes"]["unreleased"] == "r"
    assert evaluation(log.events, unreleased=[reply])["metadata"]["usage"] == {"in": 5}
    alone = waiting(left(model="m"), turn=None)
    (part,) = [one for one in transcript(log.events, [alone]) if one["turn_id"] is None]
    assert len(part["model_calls"]) == 1
