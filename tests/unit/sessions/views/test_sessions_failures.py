"""Why a sample failed: each rule of the table alone, and which of several counts."""

from __future__ import annotations

from typing import Any

import pytest
from session_log import Log

from walld.sessions.state.account import Unreleased
from walld.sessions.views.evaluation import evaluation
from walld.sessions.views.failure_layers import LAYERS

RUN = {"tool": "run", "side_effect": "none", "resume_policy": "never-rerun"}
Entries = list[tuple[str, dict[str, Any]]]
INTENT = ("tool_intent", {"call_id": "c", **RUN})
STARTED = ("tool_started", {"call_id": "c"})
FAILED = ("tool_finished", {"call_id": "c", "result": "no such host", "failed": True})
DONE = ("tool_finished", {"call_id": "c", "result": "ok"})
CUT_CALL = {"id": "c", "name": "run", "arguments": '{"a', "arguments_complete": False}
CUT = {"role": "assistant", "content": "", "tool_calls": [CUT_CALL], "_partial": True}
INTERRUPTED = ("turn_interrupted", {"reason": "agent_lost"})
GONE = {"stream": "r", "status": "errored", "calls": []}

CASES: list[tuple[str, str, Entries]] = [
    ("context", "context_length", [("model_call", GONE | {"error_class": "context_length"})]),
    ("context", "no room", [("compaction_failed", {"reason": "no room"})]),
    ("provider", "rate_limit", [("model_call", GONE | {"error_class": "rate_limit"})]),
    ("provider", "auth", [("model_call", GONE | {"error_class": "auth"})]),
    ("lifecycle", "agent_lost", [("model_call", GONE | {"error_class": "cancelled"})]),
    ("tool_validation", "no such host", [INTENT, FAILED]),
    ("permission", "by", [INTENT, ("tool_decision", {"call_id": "c", "verdict": "deny"})]),
    ("permission", "allowed", [INTENT, ("tool_approval", {"call_id": "c", "state": "asked"})]),
    ("execution", "no such host", [INTENT, STARTED, FAILED]),
    ("execution", "unknown", [INTENT, STARTED]),
    (
        "execution",
        "timeout",
        [INTENT, STARTED, ("tool_finished", {"call_id": "c", "outcome": "timeout"})],
    ),
    ("observation", "did not see", [INTENT, STARTED, DONE]),
    ("lifecycle", "agent_lost", []),
    ("lifecycle", "agent_lost", [INTENT]),
]


def failure(log: Log, **more: Any) -> dict[str, Any] | None:
    found: dict[str, Any] | None = evaluation(log.events, **more)["failure"]
    return found


@pytest.mark.parametrize(("layer", "why", "entries"), CASES)
def test_each_layer(layer: str, why: str, entries: Entries) -> None:
    log = Log()
    log.submit("t1", "go")
    for kind, payload in entries:
        log.add(kind, payload, turn="t1")
    assert failure(log) is None, "it is at work"
    log.add(*INTERRUPTED, turn="t1")
    found = failure(log)
    assert found is not None
    assert found["layer"] == layer in LAYERS
    assert why in found["why"] or why == "by"
    assert found == failure(log, turn="t1")


def test_all_layers_have_a_case() -> None:
    assert {layer for layer, *_ in CASES} | {"verification"} == set(LAYERS)


def test_a_call_that_was_cut_within_its_arguments() -> None:
    log = Log()
    log.submit("t1", "go")
    log.add("message", CUT, turn="t1")
    log.add("turn_completed", {}, turn="t1")
    assert failure(log) == {"layer": "lifecycle", "why": "completed without an answer", "seq": 3}
    log = Log()
    log.submit("t1", "go")
    one = {key: value for key, value in CUT.items() if key != "role"}
    cut = Unreleased("r", "t1", [{"role": "assistant", **one}], has_ended=False)
    log.add(*INTERRUPTED, turn="t1")
    found = failure(log, unreleased=[cut])
    assert found is not None
    assert (found["layer"], "cut" in found["why"]) == ("tool_validation", True)


def test_a_reply_that_ended_in_an_error() -> None:
    log = Log()
    log.submit("t1", "go")
    log.add(*INTERRUPTED, turn="t1")
    found = failure(log, unreleased=[Unreleased("r", "t1", [], status="errored")])
    assert found is not None
    assert (found["layer"], found["why"]) == ("provider", "reply r ended in an error")


def test_what_the_model_got_over_is_no_failure() -> None:
    log = Log()
    log.submit("t1", "go")
    for kind, payload in (INTENT, STARTED, FAILED):
        log.add(kind, payload, turn="t1")
    log.add("message", {"role": "assistant", "content": "it failed; done by hand"}, turn="t1")
    log.add("turn_completed", {}, turn="t1")
    assert failure(log) is None
    log.submit("t2", "more")
    log.add("tool_intent", {"call_id": "d", **RUN}, turn="t2")
    log.add("tool_started", {"call_id": "d"}, turn="t2")
    log.add("model_call", GONE | {"error_class": "rate_limit"}, turn="t2")
    log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t2")
    found = failure(log)
    assert found is not None
    assert (found["layer"], found["why"]) == ("provider", "rate_limit"), "the newest counts"
    assert failure(log, turn="t1") is None


def test_a_verification_says_it_whatever_else_there_is() -> None:
    log = Log()
    log.submit("t1", "go")
    log.add("message", {"role": "assistant", "content": "done"}, turn="t1")
    at = log.add("verification", {"name": "tests", "passed": False}, turn="t1", leaf=False)
    log.add("turn_completed", {}, turn="t1")
    seq = next(one.seq for one in log.events if one.id == at)
    assert failure(log) == {"layer": "verification", "why": "tests", "seq": seq}
    log.add("verification", {"name": "tests", "passed": True}, turn="t1", leaf=False)
    assert failure(log) is None


def test_an_application_s_own_word_of_the_session() -> None:
    log = Log()
    log.submit("t1", "go")
    log.add("lifecycle", {"state": "failed", "reason": "out of money"}, leaf=False)
    found = failure(log)
    assert found is not None
    assert (found["layer"], found["why"]) == ("lifecycle", "out of money")
    assert failure(Log()) is None


def test_an_attempt_that_another_step_of_its_reply_made_good_is_no_failure() -> None:
    """The daemon writes what is known of it behind the message, as the reply goes."""
    log = Log()
    log.submit("t")
    said = {"role": "assistant", "content": "whole", "_wal_stream": "r", "_wal_seq": 4}
    log.add("message", said, turn="t")
    failed: dict[str, Any] = {"stream": "r", "step": 1, "calls": [], "error_class": "rate_limit"}
    log.add("model_call", failed, turn="t", leaf=False)
    log.add("turn_interrupted", {"reason": "stopped"}, turn="t")
    found = evaluation(log.events)["failure"]
    assert (found["layer"], found["why"]) == ("lifecycle", "stopped")
    log.add("model_call", failed | {"step": 9, "error_class": "timeout"}, turn="t", leaf=False)
    assert evaluation(log.events)["failure"]["why"] == "timeout", "nothing came behind that"
