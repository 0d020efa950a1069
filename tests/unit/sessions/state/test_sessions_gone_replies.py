"""What is left of a reply that went (`model_call`): which calls, and whose words are of them."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest
from session_log import Log

from walld.sessions.gate.fork import forked
from walld.sessions.gate.pending import pending
from walld.sessions.gate.resume import resume
from walld.sessions.state.account import Unreleased, calls_of_events
from walld.sessions.state.call_account import arguments_hash
from walld.sessions.views.messages import messages
from walld.sessions.views.trace import trace
from walld.sessions.views.transcript import transcript

PROD = {"to": "prod"}
OPEN = [("c1", "unknown")]


@pytest.fixture
def log() -> Log:
    log = Log()
    log.submit("t1")
    return log


def left(
    call_id: str = "c1", seq: int = 2, outcome: str = "unknown", **more: Any
) -> dict[str, Any]:
    hashed = arguments_hash(more.pop("arguments", PROD))
    told = {"call_id": call_id, "name": "deploy", "seq": seq, "outcome": outcome}
    return told | {"arguments_hash": hashed} | more


def go(log: Log, *calls: dict[str, Any], turn: str | None = "t1", **more: Any) -> str:
    """A reply of that name is released."""
    told = {"stream": "r", "step": 1, "started_at_ms": 1500, "calls": list(calls)} | more
    return log.add("model_call", told, turn=turn, leaf=False)


def say(log: Log, turn: str | None = "t1", **more: Any) -> None:
    one = {"id": "c1", "name": "deploy", "arguments": PROD, "outcome": "unknown"}
    told = {"role": "assistant", "content": "", "tool_calls": [one | more.pop("call", {})]} | more
    log.add("message", told, turn=turn)


def intend(log: Log, turn: str = "t1", *types: str, **more: Any) -> None:
    log.tool(turn, "c1", *types, **({"tool": "deploy", "arguments": PROD} | more))


def calls(log: Log, *unreleased: Unreleased) -> list[tuple[str, str]]:
    return [(one.call_id, one.outcome) for one in calls_of_events(log.events, unreleased).calls]


@pytest.mark.parametrize("turn", ["t1", None])
def test_gate_pending_transcript_and_trace_name_it(log: Log, turn: str | None) -> None:
    seq = len(log.events) + 1
    entry = go(log, left(), turn=turn)
    gate = resume(log.events)
    assert gate["status"] == "blocked"
    (one,) = gate["calls"]
    assert (one["tool"], one["state"], one["why"]) == ("deploy", "said", "undeclared")
    assert one["stream"] == (None if turn else "r")
    waits = [one for one in pending(log.events) if one["action"] == "settle_tool"]
    assert [(one["call_id"], one["seq"]) for one in waits] == [("c1", seq)]
    tools = [tool for part in transcript(log.events) for tool in part["tools"]]
    assert [(one["id"], one["outcome"]) for one in tools] == [(entry, "unknown")]
    spans = [one for one in trace(log.events) if one["kind"] == "tool"]
    assert [(one["span_id"], one["parent_id"]) for one in spans] == [
        (f"{entry}:c1", "e1" if turn else None)
    ]


def test_its_risk_is_what_the_reply_said(log: Log) -> None:
    go(log, left(side_effect="read", resume_policy="rerun-after-check"))
    assert [one["may"] for one in resume(log.events)["calls"]] == ["run"]
    go(log, left("c2", server=True), stream="q")
    assert [one["call_id"] for one in resume(log.events)["calls"]] == ["c1"], "the provider ran it"


def test_a_promise_and_cut_arguments_make_it_one_that_never_ran(log: Log) -> None:
    log.submit("t2", calls="journal")
    go(log, left(outcome="pending"))
    go(log, left("c2"), turn="t2", stream="q")
    assert (calls(log), resume(log.events)["status"]) == (
        [("c1", "pending"), ("c2", "pending")],
        "ok",
    )


# --- in messages ----------------------------------------------------------------------------------


def test_messages_name_a_turns_call_and_say_that_its_arguments_are_gone(log: Log) -> None:
    entry = go(
        log, left(), left("c2", 3, "failed"), left("c3", 4, "done"), left("c4", 5, "pending")
    )
    log.submit("t2", "and now?")
    told = messages(log.events)
    assert told is not None
    assert [one["role"] for one in told] == ["user", "assistant", "user"], "in its turn"
    assert (told[1]["content"], told[1]["_wal_journal"]) == ("", entry)
    assert [one["arguments"] for one in told[1]["tool_calls"]] == [None] * 4
    sent = messages(log.events, "openai")
    assert sent is not None
    named = {one["tool_call_id"]: one["content"] for one in sent if one["role"] == "tool"}
    assert list(named) == ["c1", "c2", "c3"]
    assert named["c1"] == "This call is still running. Its arguments were not kept."
    log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t1")
    sent = messages(log.events, "anthropic")
    assert "It may have taken effect" in str(sent)
    told = messages(log.events, unknown="drop")
    assert told is not None
    assert [one["id"] for one in told[1]["tool_calls"]] == ["c2", "c3", "c4"]


def test_of_a_reply_without_a_turn_and_of_a_call_that_others_name_no_message_is_made(
    log: Log,
) -> None:
    go(log, left(), turn=None)
    assert [one["role"] for one in messages(log.events) or ()] == ["user"]
    intend(log, "t1", "started")
    (made,) = (messages(log.events) or [])[1:]
    told = [json.loads(one["arguments"]) for one in made["tool_calls"]]
    assert told == [PROD], "the journal has them"
    assert calls(log) == OPEN


# --- which others it is one with ------------------------------------------------------------------


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("turn", ["t1", None])
def test_one_call_with_the_journals(log: Log, turn: str | None, is_first: bool) -> None:
    """Released before it was journalled, or after: the same, whatever came of it."""
    if is_first:
        go(log, left(), turn=turn)
    intend(log, "t1", "started")
    if not is_first:
        go(log, left(), turn=turn)
    assert calls(log) == OPEN
    log.add("tool_finished", {"call_id": "c1", "result": "ok"}, turn="t1")
    assert (calls(log), resume(log.events)["status"]) == ([("c1", "done")], "ok")


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("turns", [("t1", "t1"), (None, None), (None, "t1")])
def test_one_call_with_a_message_that_names_no_reply(
    log: Log, turns: tuple[str | None, str | None], is_first: bool
) -> None:
    """An application that keeps what it was told itself, and releases the reply."""
    if is_first:
        go(log, left(), turn=turns[0])
    say(log, turns[1])
    log.add("message", {"role": "tool", "tool_call_id": "c1", "content": "ok"}, turn=turns[1])
    if not is_first:
        go(log, left(), turn=turns[0])
    assert (calls(log), resume(log.events)["status"]) == ([("c1", "done")], "ok")


@pytest.mark.parametrize("turn", ["t1", None])
@pytest.mark.parametrize("order", list(permutations(("reply", "journal", "message"))))
def test_one_call_in_whatever_order_three_speak_of_it(
    log: Log, order: tuple[str, ...], turn: str | None
) -> None:
    for _ in range(2):
        for who in order:
            if who == "reply":
                go(log, left(), turn=turn, stream=f"r{len(log.events)}")
            elif who == "journal":
                intend(log, "t1", "started", "finished")
            else:
                say(log)
    assert calls(log) == [("c1", "done")] * 2


def test_other_arguments_or_another_tool_are_another_call(log: Log) -> None:
    go(log, left())
    intend(log, "t1", "started", "finished", arguments={"to": "test"})
    intend(log, "t1", "started", "finished", tool="look")
    say(log, call={"arguments": {"to": "dev"}})
    assert len(calls(log)) == 4
    go(log, left(arguments={"to": "other"}), turn=None, stream="q")
    assert len(calls(log)) == 5


def test_a_reply_without_a_turn_is_of_no_call_that_is_older_than_it(log: Log) -> None:
    """Ids that models make up come again, and so do arguments."""
    intend(log, "t1", "started", "finished")
    go(log, left(), turn=None, started_at_ms=10**9)
    assert calls(log) == [("c1", "done"), ("c1", "unknown")]


def test_each_of_equal_calls_is_one(log: Log) -> None:
    go(log, left(seq=2), left(seq=9))
    assert calls(log) == OPEN * 2
    intend(log, "t1", "started", "finished")
    assert calls(log) == [("c1", "done"), ("c1", "unknown")]


@pytest.mark.parametrize("is_first", [True, False])
def test_one_with_what_names_the_same_place(log: Log, is_first: bool) -> None:
    """Adopted into the session, and then resolved; or still unreleased, after a kill."""
    place = {"_wal_stream": "r", "_wal_seq": 1}
    if is_first:
        go(log, left())
    say(log, call={"seq": 2}, **place)
    if not is_first:
        go(log, left())
    assert calls(log) == OPEN
    say(log, call={"seq": 8}, **place | {"_wal_seq": 7})
    assert calls(log) == OPEN * 2, "of another place"


def test_one_with_the_reply_while_that_is_still_there(log: Log) -> None:
    go(log, left())
    one = {"id": "c1", "name": "deploy", "arguments": '{"to": "prod"}', "outcome": "done"}
    told = {"role": "assistant", "content": "I", "tool_calls": [one | {"seq": 2, "result": "ok"}]}
    reply = Unreleased("r", "t1", [told | {"_wal_stream": "r", "_wal_seq": 1}], True)
    assert calls(log, reply) == [("c1", "done")]
    shown = messages(log.events, unreleased=[reply])
    assert [one["content"] for one in shown or ()] == ["hello", "I"]


def test_of_two_replies_of_one_name_each_has_its_call(log: Log) -> None:
    go(log, left())
    log.add("tool_settled", {"of": {"turn": "t1", "call_id": "c1"}, "word": "ran"}, leaf=False)
    go(log, left(), started_at_ms=2500)
    assert calls(log) == [("c1", "done"), ("c1", "unknown")]


# --- what settles it ------------------------------------------------------------------------------


@pytest.mark.parametrize("turn", ["t1", None])
def test_a_word_of_a_person_a_tool_message_or_a_later_reply_settles_it(
    log: Log, turn: str | None
) -> None:
    for call_id, stream in (("c1", "r"), ("c2", "q"), ("c3", "p")):
        go(log, left(call_id), turn=turn, stream=stream)
    of = {"turn": "t1"} if turn else {"stream": "r"}
    log.add("tool_settled", {"of": {**of, "call_id": "c1"}, "word": "did_not_run"}, leaf=False)
    log.add("message", {"role": "tool", "tool_call_id": "c2", "content": "ok"}, turn=turn)
    brought = [{"call_id": "c3", "seq": 1, "outcome": "failed"}]
    go(log, turn=turn, stream="later", results=brought)
    assert calls(log) == [("c1", "not_run"), ("c2", "done"), ("c3", "failed")]
    assert resume(log.events)["status"] == "ok"


def test_a_result_that_a_reply_brought_before_its_call_was_told(log: Log) -> None:
    go(log, stream="later", results=[{"call_id": "c1", "seq": 1, "outcome": "done"}])
    go(log, left())
    assert calls(log) == [("c1", "done")]


def test_the_same_call_in_a_retry_takes_its_place_by_the_hash(log: Log) -> None:
    go(log, left())
    log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t1")
    log.add("turn_submitted", {"retry_of": "t1", "content": "hello"}, turn="t2")
    log.tool("t2", "k9", "started", tool="deploy", arguments={"to": "test"})
    assert {one["call_id"] for one in resume(log.events)["calls"]} == {"c1", "k9"}
    log.tool("t2", "k8", "started", "finished", tool="deploy", arguments=PROD)
    open_calls = [one for one in resume(log.events)["calls"] if one["outcome"] == "unknown"]
    assert [one["call_id"] for one in open_calls] == ["k9"]


# --- what is none ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"stream": 1, "calls": [left()]},
        {"stream": "r", "calls": left()},
        {"stream": "r", "calls": [1, {"call_id": 2}, {}], "results": [{}, 3]},
        {"model": "m", "tokens": 3},
    ],
)
def test_an_entry_of_that_type_of_an_applications_own_says_nothing(
    log: Log, payload: dict[str, Any]
) -> None:
    log.add("model_call", payload, turn="t1")
    assert (calls(log), resume(log.events)["status"]) == ([], "ok")


def test_a_fork_behind_it_knows_it(log: Log) -> None:
    log.say("user", "before")
    at = log.events[-1].id
    go(log, left())
    log.say("user", "after")
    copies = forked(log.events)
    assert [one.type for one in copies] == ["turn_submitted", "message", "model_call", "message"]
    assert [(one.call_id, one.outcome) for one in calls_of_events(copies).calls] == OPEN
    assert copies[-1].parent == at, "it is beside the path there, too"
    assert [one.type for one in forked(log.events, "e1")] == ["turn_submitted"]
