"""The life of a tool call: its order, and what its outcome is called."""

from __future__ import annotations

import pytest
from session_log import INTENT, Log

from walld.sessions.state.tools import ToolState


def called(*types: str) -> Log:
    log = Log()
    log.submit("t")
    log.tool("t", "c", *types)
    return log


def tool_of(log: Log) -> ToolState:
    found = log.state.journal.tool("t", "c")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("types", "state", "outcome", "closed"),
    [
        ((), "intended", "pending", False),
        (("approval:asked",), "asked", "pending", False),
        (("approval:asked", "approval:granted"), "approved", "pending", False),
        (("approval:denied",), "denied", "denied", True),
        (("approval:denied", "observation"), "observed", "denied", True),
        (("approval:denied", "approval:granted"), "approved", "pending", False),
        (("started",), "started", "unknown", False),
        (("started", "finished"), "finished", "done", True),
        (("started", "finished:failed"), "failed", "failed", True),
        (("finished",), "finished", "done", True),
        (("started", "finished:failed", "observation"), "observed", "failed", True),
        (("started", "observation"), "observed", "unknown", True),
        (("started", "observation", "observation"), "observed", "unknown", True),
    ],
)
def test_states_and_outcomes(
    types: tuple[str, ...], state: str, outcome: str, closed: bool
) -> None:
    tool = tool_of(called(*types))
    assert (tool.state, tool.outcome, tool.closed) == (state, outcome, closed)


@pytest.mark.parametrize(
    ("types", "refused"),
    [
        (("started",), ("tool_started", {})),
        (("started",), ("tool_approval", {"state": "granted"})),
        (("started", "finished"), ("tool_finished", {})),
        (("started", "finished"), ("tool_started", {})),
        (("approval:denied",), ("tool_started", {})),
        (("started",), ("tool_intent", INTENT)),
    ],
)
def test_going_back_is_refused(
    types: tuple[str, ...], refused: tuple[str, dict[str, object]]
) -> None:
    log = called(*types)
    before = tool_of(log).state
    problem = log.offer(refused[0], {"call_id": "c", **refused[1]}, turn="t")
    assert problem is not None
    assert problem.code == "illegal_tool"
    assert before in problem.limit or "denied" in problem.limit
    assert tool_of(log).state == before


def test_an_unknown_call_and_an_unknown_turn() -> None:
    log = called()
    for payload, turn, code in (
        ({"call_id": "c9"}, "t", "unknown_tool"),
        ({"call_id": "c"}, "t9", "unknown_turn"),
        ({"call_id": "c"}, None, "unknown_turn"),
    ):
        problem = log.offer("tool_started", payload, turn=turn)
        assert problem is not None
        assert problem.code == code


@pytest.mark.parametrize(
    ("verdict", "state"), [("Allow", "approved"), ("deny", "denied"), ("hm", "intended")]
)
def test_a_verdict_is_read_where_it_is_one(verdict: str, state: str) -> None:
    log = called()
    log.add("tool_decision", {"call_id": "c", "verdict": verdict}, turn="t")
    assert tool_of(log).state == state


def test_a_call_id_that_is_counted_anew_is_a_new_call() -> None:
    log = called("started", "finished")
    log.tool("t", "c", "started")
    assert tool_of(log).outcome == "unknown"


def test_what_became_of_a_call_may_be_said_after_the_turn() -> None:
    log = called("started")
    log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t")
    log.add("tool_finished", {"call_id": "c"}, turn="t")
    assert tool_of(log).outcome == "done"


@pytest.mark.parametrize("end", ["completed", "interrupted"])
@pytest.mark.parametrize(
    ("types", "legal"),
    [
        ((), {"approval:denied", "decision:deny", "finished", "observation"}),
        (("approval:asked",), {"approval:denied", "decision:deny", "finished", "observation"}),
        (("approval:granted",), {"approval:denied", "decision:deny", "finished", "observation"}),
        (("started",), {"finished", "observation"}),
        (("started", "finished"), {"observation"}),
        (("approval:denied",), {"observation", "finished"}),
    ],
)
def test_behind_its_turns_end_a_call_is_settled_and_nothing_else(
    types: tuple[str, ...], legal: set[str], end: str
) -> None:
    payload = {"reason": "why"} if end == "interrupted" else {}
    steps = ["intent", "started", "finished", "observation"]
    steps += ["approval:asked", "approval:granted", "approval:denied"]
    steps += ["decision:allow", "decision:ask", "decision:deny", "decision:hm"]
    taken = set()
    for step in steps:
        log = called(*types)
        log.add(f"turn_{end}", payload, turn="t")
        kind, _, word = step.partition(":")
        name = kind if kind == "observation" else f"tool_{kind}"
        said = {"call_id": "c", "state": word, "verdict": word, "text": "so it went"}
        problem = log.offer(name, (INTENT if step == "intent" else {}) | said, turn="t")
        if problem is None:
            taken.add(step)
        elif step == "intent" or "finished" not in types:
            assert problem.code == "illegal_tool"
            assert problem.message == f"turn of {name} has ended"
            assert problem.got == f"{name} of call c in turn t, which is {end}"
            assert problem.limit.startswith("a turn that has not ended")
    assert taken == legal


def test_a_new_call_behind_the_end_of_its_turn_is_refused() -> None:
    log = called("started")
    log.add("turn_completed", {}, turn="t")
    problem = log.offer("tool_intent", {**INTENT, "call_id": "c2"}, turn="t")
    assert problem is not None
    assert problem.got == "tool_intent of call c2 in turn t, which is completed"
    problem = log.offer("tool_started", {"call_id": "c9"}, turn="t")
    assert problem is not None
    assert problem.code == "unknown_tool"


def test_an_observation_of_no_call_is_only_kept() -> None:
    log = called()
    log.add("observation", {"text": "it rains"})
    assert tool_of(log).state == "intended"
