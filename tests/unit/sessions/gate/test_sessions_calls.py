"""What is said of a call, and of which: where a call id is given again, and where a session has
relatives that say something of it as well.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from session_log import Log
from walld_client.wire import messages as wire

from walld.daemon.session_store.fork_contents import forked_session
from walld.sessions.gate.fork import BEFORE_FIRST
from walld.sessions.gate.imported import settled_there, untold
from walld.sessions.gate.pending import pending
from walld.sessions.gate.processes import processes_of
from walld.sessions.gate.resume import resume
from walld.sessions.gate.turn_history import history_of
from walld.sessions.state.entries import event_line, events_of
from walld.sessions.state.events import Event
from walld.sessions.state.session_state import SessionState

NEVER = {"tool": "pay", "side_effect": "external-write", "resume_policy": "never-rerun"}


@pytest.fixture
def log() -> Log:
    log = Log()
    log.submit("t")
    return log


def fork_of(log: Log, at: str | None = None, whole: bool = False, lost: int = 0) -> Log:
    """What the daemon makes of it. lost: a seq of the source that is not there."""
    left = [one for one in log.events if one.seq != lost]
    lines = [event_line(one, json.dumps(one.payload).encode(), b"\0" * 16) for one in left]
    request = wire.Fork(1, "s", f"f{len(left)}", at, whole)
    fork = Log()
    for event in events_of(
        forked_session(events_of(lines), request, 0, 5, log.state.last_seq).lines
    ):
        fork.state.apply(event)
        fork.events.append(event)
    return fork


def told(events: list[Event], last_seq: int = 0) -> list[tuple[str, str, str]]:
    tools = resume(events, last_seq=last_seq)["tools"]
    return [(one["tool"], one["outcome"], one["may"]) for one in tools]


PAID = [("pay", "unknown", "never")]


def test_an_intent_that_gives_an_id_again_is_a_call_also_where_the_result_before_is_lost(
    log: Log,
) -> None:
    log.tool("t", "c", "started", "finished", tool="look")
    log.tool("t", "c", "started", **NEVER)
    left = [one for one in log.events if one.seq != 4]
    assert told(left) == PAID
    first, second = history_of(left).tools
    assert (first.closed, first.outcome, second.closed) == (True, "unknown", False)
    for whole in (False, True):
        assert told(fork_of(log, None, whole, lost=4).events) == PAID
    state = SessionState()
    for one in left:
        state.apply(one)
    again = SessionState.from_base(state.to_base())
    assert again.journal.tool("t", "c") == log.state.journal.tool("t", "c")


def test_a_start_behind_a_result_is_another_call_whose_intent_is_lost(log: Log) -> None:
    log.tool("t", "c", "started", "finished", tool="look")
    log.tool("t", "c", "started", **NEVER)
    left = [one for one in log.events if one.seq != 5]
    assert told(left) == [("unknown", "unknown", "never")]


@pytest.mark.parametrize("at_imported", [False, True])
def test_between_an_intent_and_its_start_lines_are_lost(log: Log, at_imported: bool) -> None:
    """They may have held the end of that call, and the intent of the one that started."""
    log.tool("t", "c", "finished", tool="look")
    log.tool("t", "c", "started", **NEVER)
    left = [one for one in log.events if one.seq not in (3, 4)]
    if at_imported:
        other = Log()
        other.submit("t")
        other.tool("t", "c", tool="look")
        other.add("imported", {"missing": [[3, 4]]}, leaf=False)
        other.add("tool_started", {"call_id": "c"}, turn="t")
        left = other.events
    assert told(left) == [("look", "unknown", "never")]
    copy = Log()
    copy.events = left
    copy.state.lose(left[-1].seq)
    assert told(fork_of(copy, None, whole=True).events) == [("look", "unknown", "never")]


def test_a_path_with_the_second_call_of_an_id_and_without_the_end_of_the_first(log: Log) -> None:
    log.tool("t", "c", "started", tool="look")
    start = log.events[-1].id
    log.add("tool_finished", {"call_id": "c"}, turn="t")
    log.add("leaf", {"target": start})
    log.tool("t", "c", "started", **NEVER)
    fork = fork_of(log)
    assert told(fork.events) == PAID
    assert [one.id for one in fork.events if one.type == "tool_intent"] == ["e2", "e6"]


def test_a_path_with_the_start_of_another_call_of_its_id(log: Log) -> None:
    log.tool("t", "c", tool="look")
    log.add("tool_finished", {"call_id": "c"}, turn="t")
    log.tool("t", "c", **NEVER)
    log.add("leaf", {"target": "e2"})
    log.add("tool_started", {"call_id": "c"}, turn="t")
    fork = fork_of(log)
    assert "tool_started" not in [one.type for one in fork.events]
    assert ("pay", "unknown", "never") in told(fork.events)
    fork.add("observation", {"of_turn": "t", "of_call": "c"})
    assert told(fork.events) == []


def test_an_observation_by_name_closes_a_call_that_is_here(log: Log) -> None:
    log.tool("t", "c", **NEVER)
    intent = log.events[-1].id
    log.add("tool_started", {"call_id": "c"}, turn="t")
    fork = fork_of(log, intent)
    assert told(fork.events) == PAID
    fork.add("observation", {"of_turn": "t", "of_call": "c", "text": "it was paid"})
    assert resume(fork.events)["status"] == "ok"
    assert told(fork.events) == []
    before = fork.state.to_base()
    fork.add("observation", {"of_turn": "t", "of_call": "c"})
    fork.state.revert(fork.undos[-1])
    assert fork.state.to_base() == before
    assert told(fork_of(fork).events) == []
    assert told(fork_of(fork, intent).events) == PAID, "forked before that was said"


def test_a_fork_of_a_fork_knows_that_the_call_ran(log: Log) -> None:
    log.tool("t", "c", **NEVER)
    intent = log.events[-1].id
    log.add("tool_started", {"call_id": "c"}, turn="t")
    fork = fork_of(log, intent)
    fork.add("tool_approval", {"call_id": "c", "state": "denied"}, turn="t")
    assert told(fork.events) == []
    assert told(fork_of(fork).events) == [], "who denied it knew, and is copied"
    assert told(fork_of(fork, intent).events) == PAID


@pytest.mark.parametrize("is_ended", [False, True])
@pytest.mark.parametrize("at", [None, "e2", BEFORE_FIRST])
@pytest.mark.parametrize("whole", [False, True])
def test_no_lost_line_of_a_fork_opens_its_gate(
    log: Log, whole: bool, at: str | None, is_ended: bool
) -> None:
    log.tool("t", "c", **NEVER)
    log.add("tool_started", {"call_id": "c"}, turn="t", leaf=False)
    if is_ended:
        log.add("turn_interrupted", {"reason": "why"}, turn="t")
    fork = fork_of(log, at, whole)
    for lost in range(1, len(fork.events) + 1):
        left = [one for one in fork.events if one.seq != lost]
        if any(one.type == "tool_intent" for one in left):
            assert told(left, fork.events[-1].seq)[0][1:] == ("unknown", "never")


@pytest.mark.parametrize("types", [("started",), ("started", "finished")])
def test_a_call_of_a_turn_that_is_not_here_can_be_settled(log: Log, types: tuple[str]) -> None:
    log.events.clear()
    log = Log()
    root = log.say("user", "root")
    log.submit("t")
    log.tool("t", "c", **NEVER)
    log.add("leaf", {"target": root})
    for one in types:
        log.add(f"tool_{one}", {"call_id": "c"}, turn="t")
    fork = fork_of(log)
    if "finished" in types:
        assert told(fork.events) == []
        return
    assert told(fork.events) == [("unknown", "unknown", "never")]
    (reason,) = resume(fork.events)["reasons"]
    assert "an observation with of_turn and of_call" in reason["message"]
    problem = fork.offer("tool_intent", NEVER | {"call_id": "d"}, turn="t")
    assert problem is not None
    assert problem.code == "unknown_turn"
    fork.add("tool_finished", {"call_id": "c"}, turn="t")
    assert told(fork.events) == []


def test_what_was_intended_behind_an_old_loss_did_not_start(log: Log) -> None:
    log.say("user", "lost")
    log.tool("t", "c", **NEVER)
    for whole in (False, True):
        assert told(fork_of(log, None, whole, lost=2).events) == [("pay", "pending", "replay")]


def copied(log: Log, *events: Event) -> Log:
    """As an import brings them, those that may come."""
    for one in events:
        if one.id not in log.state.ids:
            log.offer(one.type, one.payload, id=one.id, turn=one.turn, leaf=False)
    return log


@pytest.mark.parametrize("word", ["observation", "tool_finished", "by name"])
def test_a_relative_that_does_not_know_of_a_start_settles_nothing(log: Log, word: str) -> None:
    log.tool("t", "c", **NEVER)
    relative = copied(Log(), *log.events)
    said: dict[str, Any] = {"call_id": "c"}
    if word == "by name":
        relative.add("observation", {"of_turn": "t", "of_call": "c"}, id="theirs")
    else:
        relative.add(word, said, turn="t", id="theirs")
    log.add("tool_started", {"call_id": "c"}, turn="t", id="ours")
    copied(log, *relative.events)
    assert told(log.events) == []
    lacks = untold(relative.events, relative.state.last_seq, log.events)
    assert [one["call_id"] for one in lacks["calls"]] == ["c"]
    log.add("imported", lacks, leaf=False)
    assert told(log.events) == PAID
    assert untold(relative.events, relative.state.last_seq, log.events) == {}
    log.add("observation", {"of_turn": "t", "of_call": "c"}, id="own")
    assert untold(relative.events, relative.state.last_seq, log.events) == {}


def test_a_relative_that_has_the_start_settles_it(log: Log) -> None:
    log.tool("t", "c", "started", **NEVER)
    relative = copied(Log(), *log.events)
    relative.add("observation", {"call_id": "c"}, turn="t", id="theirs")
    copied(log, *relative.events)
    log.say("user", "more")
    assert untold(relative.events, relative.state.last_seq, log.events) == {}


def test_only_what_goes_on_from_what_was_told_settles_it(log: Log) -> None:
    log.tool("t", "c", **NEVER)
    relative = copied(Log(), *log.events)
    relative.add("tool_approval", {"call_id": "c", "state": "denied"}, turn="t", id="theirs")
    for at in range(5):
        relative.say("user", "longer", id=f"longer-{at}")
    log.add("tool_started", {"call_id": "c"}, turn="t")
    copy = Log()
    copy.add("imported", untold(log.events, log.state.last_seq, copy.events), leaf=False, id="word")
    assert told(copy.events) == PAID
    assert settled_there(relative.events, relative.state.last_seq, copy.events) == []
    log.add("tool_finished", {"call_id": "c"}, turn="t")
    (said,) = settled_there(log.events, log.state.last_seq, copy.events)
    copy.add("observation", said)
    assert told(copy.events) == []


ASKS = {"tool": "pay", "side_effect": "external-write", "arguments": {"to": "b"}}
ASKS |= {"resume_policy": "require-user-confirmation"}


def retry(log: Log, number: int) -> str:
    """The next turn of the message of t."""
    before = "t" if number == 2 else f"t{number - 1}"
    log.offer("turn_interrupted", {"reason": "x"}, turn=before)
    log.submit(f"t{number}", retry_of=before, message_id="m-t")
    return f"t{number}"


def waiting(log: Log, **more: Any) -> dict[str, tuple[str, str]]:
    calls = resume(log.events, **more)["calls"]
    return {
        one["call_id"]: (one["may"], one["why"]) for one in calls if one["may"] != "read_result"
    }


def grant(log: Log, call_id: str, turn: str = "t", **more: Any) -> None:
    of = {"turn": turn, "call_id": call_id}
    log.add("tool_settled", {"of": of, "word": "granted", **more}, leaf=False)


@pytest.mark.parametrize("had", [(), ("approval:granted",), ("started",)])
def test_a_grant_is_for_the_call_wherever_it_is_run_next_once(log: Log, had: tuple[str]) -> None:
    """The user was asked a second time for what they had just allowed."""
    log.tool("t", "c", *had, **ASKS)
    turn = retry(log, 2)
    if had != ("approval:granted",):
        grant(log, "c")
    log.tool(turn, "k1", **ASKS)
    assert waiting(log)["k1"] == ("run", "never_started")
    (told,) = [one["action"] for one in pending(log.events) if one.get("call_id") == "k1"]
    assert told == "run_tool"
    log.tool(turn, "k2", **ASKS)
    assert waiting(log)["k2"] == ("ask_user", "approval_pending"), "once"
    turn = retry(log, 3)
    log.tool(turn, "k3", **ASKS)
    assert waiting(log)["k3"] == ("run", "never_started"), "k1 did not use it"
    log.add("tool_started", {"call_id": "k3"}, turn=turn)
    assert waiting(log) == {"k3": ("ask_user", "may_have_run")}
    log.tool(retry(log, 4), "k4", **ASKS)
    assert waiting(log)["k4"] == ("ask_user", "approval_pending"), "k3 used it up"


def test_one_of_a_granted_call_and_its_retry_may_run(log: Log) -> None:
    """A program that ran whatever said run did it twice: its last one died before its start."""
    log.tool("t", "c", "started", **ASKS)
    turn = retry(log, 2)
    grant(log, "c")
    assert waiting(log) == {"c": ("run", "granted")}
    log.tool(turn, "k1", **ASKS)
    assert waiting(log) == {"k1": ("run", "never_started")}
    log.tool(retry(log, 3), "k2", "approval:denied", **ASKS)
    assert waiting(log) == {"k1": ("run", "never_started")}, "what is denied takes nothing over"
    log.tool(turn := retry(log, 4), "k3", **ASKS)
    assert waiting(log) == {"k3": ("run", "never_started")}
    log.add("tool_started", {"call_id": "k3"}, turn=turn)
    log.add("tool_finished", {"call_id": "k3", "result": "r"}, turn=turn)
    assert waiting(log) == {}


def test_a_granted_call_that_still_runs_is_in_the_way_of_its_retry(log: Log) -> None:
    """Who forces a grant upon it allows nothing beside it."""
    named = {"call_id": "c", "pid": 7, "start": 9, "boot": "b"}
    log.tool("t", "c", **ASKS)
    log.add("tool_started", named, turn="t")
    turn = retry(log, 2)
    grant(log, "c")
    log.tool(turn, "k1", **ASKS)
    (process,) = processes_of(log.events)
    told = waiting(log, processes={process: "running"})
    assert told["c"] == ("never", "still_runs")
    assert waiting(log, processes={process: "gone"}) == {"k1": ("run", "never_started")}


@pytest.mark.parametrize(
    ("granted", "intent", "then", "may"),
    [
        ({}, {}, (), "run"),
        ({}, {"arguments": {"to": "c"}}, (), "ask_user"),
        ({}, {"arguments": {"to": "c"}, "supersedes": "c"}, (), "ask_user"),
        ({}, {"arguments": {"to": "c"}, "key": "k"}, (), "ask_user"),
        ({}, {"tool": "mail"}, (), "ask_user"),
        ({"expires_at": 9}, {}, (), "ask_user"),
        ({"expires_at": 10}, {}, (), "run"),
        ({"scope": {"arguments": {"to": "b"}}}, {}, (), "run"),
        ({"scope": {"arguments": {"to": "c"}}}, {}, (), "ask_user"),
        ({}, {}, ("approval:asked",), "ask_user"),
    ],
)
def test_what_takes_over_a_grant_is_what_was_allowed(
    log: Log, granted: dict[str, Any], intent: dict[str, Any], then: tuple[str], may: str
) -> None:
    log.tool("t", "c", **ASKS, key="k")
    turn = retry(log, 2)
    grant(log, "c", **granted)
    log.tool(turn, "k1", *then, **(ASKS | intent))
    assert waiting(log, now_ms=9500)["k1"][0] == may


def test_a_grant_that_a_start_may_have_used_up_is_not_taken_over(log: Log) -> None:
    """Of a start that is here, one behind which it was denied, a policy's word, and a lost line."""
    log.tool("t", "c", "approval:granted", "started", **ASKS)
    log.tool(retry(log, 2), "k1", **ASKS)
    assert waiting(log)["k1"] == ("ask_user", "approval_pending")
    for last in ("decision", "settled"):
        log = Log()
        log.submit("t")
        log.tool("t", "c", **ASKS)
        if last == "decision":
            log.add("tool_decision", {"call_id": "c", "verdict": "allow"}, turn="t")
        turn = retry(log, 2)
        if last == "settled":
            grant(log, "c")
            of = {"turn": "t", "call_id": "c"}
            log.add("tool_settled", {"of": of, "word": "denied"}, leaf=False)
        log.tool(turn, "k1", **ASKS)
        assert waiting(log)["k1"] == ("ask_user", "approval_pending"), last
    log = Log()
    log.submit("t")
    log.tool("t", "c", "approval:granted", **ASKS)
    log.state.last_seq += 1  # a line is lost
    log.tool(retry(log, 2), "k1", **ASKS)
    assert waiting(log)["k1"] == ("ask_user", "approval_pending")
