"""Replies of turns that are not in their session yet, as messages() tells them."""

from __future__ import annotations

from typing import Any

import pytest
from session_log import Log

from walld.sessions.gate.pending import pending
from walld.sessions.gate.resume import resume
from walld.sessions.state.account import Unreleased, calls_of_events
from walld.sessions.views.audit import audit
from walld.sessions.views.evaluation import evaluation
from walld.sessions.views.messages import messages, undone
from walld.sessions.views.trace import trace
from walld.sessions.views.transcript import transcript

RISK = {"side_effect": "external-write", "resume_policy": "rerun-after-check"}
UNKNOWN = "No result was recorded: the work stopped while this call may have been running."


@pytest.fixture
def log() -> Log:
    log = Log()
    log.submit("t1", "deploy")
    return log


def item(call_id: str = "c1", seq: int = 2, **more: Any) -> dict[str, Any]:
    told = {"id": call_id, "name": "deploy", "arguments": '{"env": "prod"}', "seq": seq, "at": 9}
    return told | {"arguments_complete": True, "outcome": "unknown", "result": None} | more


def step(content: str, *calls: dict[str, Any], seq: int = 1, **more: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        said["tool_calls"] = list(calls)
    return said | {"_wal_recovered": True, "_wal_stream": "s", "_wal_seq": seq} | more


def reply(*steps: dict[str, Any], has_ended: bool = False, **more: Any) -> Unreleased:
    return Unreleased(
        **({"stream_id": "s", "turn": "t1"} | more), messages=list(steps), has_ended=has_ended
    )


def ran(log: Log, call_id: str, result: str | None = None, turn: str = "t1") -> None:
    call = {"call_id": call_id, "tool": "deploy", "arguments": {"env": "prod"}}
    log.add("tool_intent", call | RISK, turn=turn)
    log.add("tool_started", {"call_id": call_id}, turn=turn)
    if result is not None:
        log.add("tool_finished", {"call_id": call_id, "result": result}, turn=turn)


def sent(log: Log, *replies: Unreleased, **more: Any) -> list[tuple[str, Any]]:
    told = []
    for one in messages(log.events, "openai", unreleased=replies, **more) or ():
        calls = [call["function"]["name"] for call in one.get("tool_calls", ())]
        told.append((one["role"], calls or one["content"]))
    return told


def test_between_two_steps_of_a_reply_that_is_held_open(log: Log) -> None:
    """Its calls stand with its words, whether their results are in the journal or in the reply."""
    ran(log, "c1", "deployed")
    first = step("I deploy.", item())
    second = step("Done. And", seq=5)
    told = messages(log.events, unreleased=[reply(first)]) or []
    assert [one["content"] for one in told] == ["deploy", "I deploy."]
    assert told[1]["tool_calls"][0]["result"] == "deployed"
    assert "_wal_journal" not in told[1], "what a message says is not the journal's"
    called = [("user", "deploy"), ("assistant", ["deploy"]), ("tool", "deployed")]
    assert sent(log, reply(first)) == called
    assert sent(log, reply(first, second)) == called, "what may go on is not sent"
    assert sent(log, reply(first, second, has_ended=True)) == [*called, ("assistant", "Done. And")]


def test_text_on_both_sides_of_a_call_is_not_glued(log: Log) -> None:
    """Neither while its reply is not released nor behind that; the entry is as it was said."""
    said = step("NowI fix.", item(at=3, outcome="done", result="up"))
    loose = messages(log.events, unreleased=[reply(said, has_ended=True)]) or []
    before = sent(log, reply(said, has_ended=True))
    called = [("assistant", ["deploy"]), ("tool", "up"), ("assistant", "I fix.")]
    assert before == [("user", "deploy"), *called]
    log.add("message", said, turn="t1")
    told = messages(log.events) or []
    assert [one["content"] for one in (loose[-1], told[-1])] == ["Now\n\nI fix."] * 2
    assert sent(log) == before
    (turn,) = transcript(log.events)
    assert turn["messages"][-1]["message"]["content"] == "Now\n\nI fix."
    assert log.events[-1].payload["content"] == "NowI fix."


def test_a_result_of_the_reply_is_of_the_call_that_the_journal_knows(log: Log) -> None:
    ran(log, "c1", "journal")
    said = reply(step("I deploy.", item(outcome="done", result="reply")))
    assert sent(log, said)[1:] == [("assistant", ["deploy"]), ("tool", "journal")]
    (call,) = calls_of_events(log.events, [said]).calls
    assert (call.outcome, call.given) == ("done", {"journal": "journal", "said": "reply"})


def test_tool_messages_that_stand_before_the_reply_of_their_calls(log: Log) -> None:
    for text in ("first", "second"):
        log.add("message", {"role": "tool", "content": text, "tool_call_id": "c1"}, turn="t1")
    said = [step("a", item(at=1)), step("b", item(seq=6, at=1), seq=5)]
    shown = [("user", "deploy")]
    for text in ("first", "second"):
        shown += [("assistant", ["deploy"]), ("tool", text)]
    assert sent(log, reply(*said)) == shown
    for one in said:  # released behind them
        log.add("message", {**one, "_turn": "t1"} | {"_wal_recovered": False}, turn="t1")
    assert sent(log) == shown


@pytest.mark.parametrize("is_adopted", [False, True, "without its turn"])
def test_a_cut_reply_stands_in_its_turn_also_where_it_is_adopted_behind_the_retry(
    log: Log, is_adopted: bool | str
) -> None:
    log.add("turn_assistant_started", {"stream_id": "s"}, turn="t1")
    ran(log, "c1")
    log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t1")
    cut = step("I deploy.And then I", item(), _partial=True)
    log.submit("t2", "deploy", retry_of="t1", message_id="m-t1")
    ran(log, "c2", "looked", turn="t2")
    replies = () if is_adopted else (reply(cut),)
    if is_adopted:
        log.add("message", cut | ({"_turn": "t1"} if is_adopted is True else {}))
    log.add("message", {"role": "assistant", "content": "It is there."}, turn="t2")
    told = messages(log.events, unreleased=replies) or []
    said = [one["content"] for one in told]
    assert said == ["deploy", "I deploy.\n\nAnd then I", "", "It is there."]
    shown = sent(log, *replies)
    # The equal call of the retry took its place: the first is told no more.
    assert shown == [
        ("user", "deploy"),
        ("assistant", ["deploy"]),
        ("tool", "looked"),
        ("assistant", "It is there."),
    ]


def test_an_adopted_text_goes_on_until_its_turn_is_retried(log: Log) -> None:
    log.add("message", step("It is al", _partial=True, _turn="t1"), turn="t1")
    assert sent(log) == [("user", "deploy"), ("assistant", "It is al")]
    log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t1")
    log.submit("t2", "deploy", retry_of="t1", message_id="m-t1")
    assert sent(log) == [("user", "deploy")]
    assert len(messages(log.events) or ()) == 2, "plain has all"


def test_calls_of_which_nobody_knows(log: Log) -> None:
    cut = reply(step("I deploy.", item(), _partial=True))
    assert sent(log, cut)[2] == ("tool", "This call is still running.")
    log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t1")
    role, content = sent(log, cut)[2]
    assert (role, content[: len(UNKNOWN)]) == ("tool", UNKNOWN)
    assert sent(log, cut, unknown="drop") == [("user", "deploy")]
    (said,) = (messages(log.events, unreleased=[cut], unknown="drop") or [])[1:]
    assert said["tool_calls"] == []
    ran_alone = Log()
    ran_alone.submit("t1", "deploy")
    ran(ran_alone, "c1")
    assert [one["role"] for one in messages(ran_alone.events, unknown="drop") or ()] == ["user"]


def test_a_step_that_is_an_entry_is_the_entry(log: Log) -> None:
    said = [step("a", item(at=1)), step("b", seq=5)]
    log.add("message", {**said[0], "_turn": "t1"} | {"_wal_recovered": False}, turn="t1")
    told = messages(log.events, unreleased=[reply(*said)]) or []
    assert [one["content"] for one in told] == ["deploy", "a", "b"]
    log.add("message_edit", {"target": "e2", "message": {"role": "assistant", "content": "x"}})
    told = messages(log.events, unreleased=[reply(*said)]) or []
    assert [one["content"] for one in told] == ["deploy", "x", "b"]


def test_they_go_when_the_entry_before_them_goes_and_no_undo_counts_them(log: Log) -> None:
    said = reply(step("I deploy."))
    log.say("user", "next")
    assert [one["content"] for one in messages(log.events, unreleased=[said]) or ()] == [
        *("deploy", "I deploy.", "next"),
    ]
    log.add("undo", {"n": 1})
    assert len(messages(log.events, unreleased=[said]) or ()) == 2
    log.add("undo", {"n": 1})
    assert messages(log.events, unreleased=[said]) == []


@pytest.mark.parametrize("ended", ["before", "behind", "never"])
@pytest.mark.parametrize("result", [None, "R"])
@pytest.mark.parametrize("later", [False, True])
def test_what_an_undo_took_stays_gone_once_it_is_adopted(
    ended: str, result: str | None, later: bool
) -> None:
    """Its words came behind the answer of the turn before, without their user message; where its
    turn ended behind the undo they did so before they were adopted.
    """
    log = Log()
    log.say("user", "before")
    log.say("assistant", "earlier answer")
    log.submit("t1", "deploy")
    log.add("turn_assistant_started", {"stream_id": "s"}, turn="t1")
    if ended == "before":
        log.add("turn_interrupted", {"reason": "user"}, turn="t1")
    log.add("undo", {"n": 1})
    if ended == "behind":
        log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t1")
    if later:
        log.submit("t2", "another")
        log.add("message", {"role": "assistant", "content": "so"}, turn="t2")
    outcome = {"outcome": "unknown" if result is None else "done", "result": result}
    said = [step("words", item(**outcome)), step("then more", seq=5, _partial=True)]
    kept = [("user", "before"), ("assistant", "earlier answer")]
    kept += [("user", "another"), ("assistant", "so")] if later else []
    held = reply(*said)
    assert sent(log, held) == kept
    calls = [one["outcome"] for one in resume(log.events, replies=[held])["calls"]]
    for one in said:
        log.add("message", one | {"_turn": "t1"}, turn="t1", leaf=not later)
    assert sent(log) == kept
    for form in ("plain", "anthropic"):
        told = messages(log.events, form) or []
        assert not any("words" in str(one) or "then more" in str(one) for one in told)
    assert [one["outcome"] for one in resume(log.events)["calls"]] == calls, "as open as before"
    assert undone(log.events) >= {event.id for event in log.events if event.payload in said}
    log.say("user", "go on")
    log.add("undo", {"n": 1})
    assert sent(log) == kept, "what is not there is not counted"


def test_a_reply_that_begins_behind_an_undo_is_there(log: Log) -> None:
    log.add("turn_assistant_started", {"stream_id": "s"}, turn="t1")
    log.add("message", {"role": "assistant", "content": "not so"}, turn="t1")
    log.add("undo", {"n": 1})
    log.add("turn_assistant_started", {"stream_id": "s2"}, turn="t1")
    first = reply(step("I was"), has_ended=True)
    second = reply(step("anew", _wal_stream="s2"), stream_id="s2", has_ended=True)
    kept = [("user", "deploy"), ("assistant", "anew")]
    assert sent(log, first, second) == kept
    for one in (*first.messages, *second.messages):
        log.add("message", one | {"_turn": "t1"}, turn="t1")
    assert sent(log) == kept


def test_a_compaction_cuts_by_their_place(log: Log) -> None:
    said = reply(step("I deploy."))
    next_id = log.say("user", "next")
    log.add("compaction", {"summary": "sum", "first_kept": next_id})
    told = messages(log.events, unreleased=[said]) or []
    assert [one["content"] for one in told] == ["sum", "next"]
    told = messages(log.events, compacted=False, unreleased=[said]) or []
    assert [one["content"] for one in told] == ["deploy", "I deploy.", "next"]


def test_a_reply_of_a_turn_that_is_not_on_the_path_gives_no_message(log: Log) -> None:
    log.submit("t2", "else")
    said = reply(step("I deploy."), turn="t2")
    assert len(messages(log.events, unreleased=[said]) or ()) == 3
    log.add("leaf", {"target": "e1"})
    assert [one["content"] for one in messages(log.events, unreleased=[said]) or ()] == ["deploy"]


@pytest.mark.parametrize(
    ("has_ended", "outcome", "word"),
    [(False, "unknown", "withdrawn"), (True, "unknown", "unknown"), (False, "done", "done")],
)
def test_a_call_of_an_attempt_that_was_begun_anew(
    log: Log, has_ended: bool, outcome: str, word: str
) -> None:
    again = reply(step("b", item(seq=9)), earlier=((item(outcome=outcome), has_ended),))
    found = {one.is_withdrawn: one.outcome for one in calls_of_events(log.events, [again]).calls}
    assert found[word == "withdrawn" or not has_ended] == word
    ran(log, "c1", "deployed")  # in order: what the last attempt says ran
    calls = calls_of_events(log.events, [again]).calls
    assert [one.outcome for one in calls if one.intent is not None] == ["done"]
    assert [one[1] for one in sent(log, again)] == ["deploy", ["deploy"], "deployed"]


def tools_of(log: Log, *replies: Unreleased) -> list[list[tuple[Any, ...]]]:
    """What transcript, sample and trace say of calls: id, outcome, and of which reply."""
    parts = [one for part in transcript(log.events, replies) for one in part["tools"]]
    sample = evaluation(log.events, unreleased=replies)["tools"]
    shown = [
        [
            (one["call_id"], one["outcome"], one.get("unreleased", {}).get("stream_id"))
            for one in tools
        ]
        for tools in (parts, sample)
    ]
    spans = [one["attributes"] for one in trace(log.events, replies) if one["kind"] == "tool"]
    spans = [one for one in spans if one["outcome"] != "withdrawn"]
    return [*shown, [(one["call_id"], one["outcome"], one.get("unreleased")) for one in spans]]


def test_transcript_trace_and_sample_have_the_calls_of_replies_that_are_not_released(
    log: Log,
) -> None:
    """They stood in messages and in the gate alone."""
    log.add("turn_assistant_started", {"stream_id": "s"}, turn="t1")
    said = reply(step("I deploy.", item(), item("c2", 3, outcome="done", result="up")))
    told = [("c1", "unknown", "s"), ("c2", "done", "s")]
    assert tools_of(log, said) == [told, told, told]
    (turn,) = transcript(log.events, [said])
    first, second = turn["tools"]
    assert (first["tool"], first["arguments"], first["state"]) == (
        "deploy",
        '{"env": "prod"}',
        "said",
    )
    assert "result" not in first
    assert second["result"] == "up"
    assert first["unreleased"] == said.told()
    spans = [one for one in trace(log.events, [said]) if one["kind"] == "tool"]
    assert [one["span_id"] for one in spans] == ["s:1:c1", "s:1:c2"]
    assert {(one["parent_id"], one["start_ms"]) for one in spans} == {("e1", 1000)}
    told = [one for one in pending(log.events, replies=[said]) if one["action"] == "settle_tool"]
    assert [one["since_ms"] for one in told] == [1000], "no call is open since 1970"
    of_turn = evaluation(log.events, turn="t1", unreleased=[said])
    assert of_turn["metadata"]["outcomes"] == {"unknown": 1, "done": 1}
    served = reply(step("I look.", item(server=True)))
    assert tools_of(log, served) == [[], [], []], "the provider ran it itself"


def test_a_call_that_a_message_alone_says_is_in_trace_and_sample(log: Log) -> None:
    """As most are, once their reply was released: they were in its words alone."""
    call = {"id": "m1", "name": "grep", "arguments": '{"for": "x"}'}
    log.add("message", {"role": "assistant", "content": "I look.", "tool_calls": [call]}, turn="t1")
    log.add("message", {"role": "tool", "content": "found", "tool_call_id": "m1"}, turn="t1")
    open_call = call | {"id": "m2"}
    log.say("assistant", "And there.", tool_calls=[open_call])
    spans = [one for one in trace(log.events) if one["kind"] == "tool"]
    assert [(one["span_id"], one["parent_id"]) for one in spans] == [
        ("e2:m1", "e1"),
        ("e4:m2", None),
    ]
    assert [(one["start_ms"], one["end_ms"], one["status"]) for one in spans] == [
        (2000, 3000, "ok"),
        (4000, None, "unset"),
    ]
    sample = evaluation(log.events)
    assert sample["metadata"]["outcomes"] == {"done": 1, "unknown": 1}
    (first,) = evaluation(log.events, turn="t1")["tools"]
    assert (first["call_id"], first["arguments"], first["result"]) == (
        "m1",
        call["arguments"],
        "found",
    )
    log.say("assistant", "", tool_calls=[call | {"id": "m3", "server": True}])
    assert len([one for one in trace(log.events) if one["kind"] == "tool"]) == 2, "the provider's"


def test_a_call_that_its_journal_has_too_is_told_once(log: Log) -> None:
    ran(log, "c1", "deployed")
    told = [("c1", "done", None)]
    assert tools_of(log, reply(step("I deploy.", item()))) == [told, told, told]


def test_a_call_of_a_reply_without_a_turn_stands_outside_turns(log: Log) -> None:
    said = reply(step("I deploy.", item()), turn=None)
    _, part = transcript(log.events, [said])
    assert (part["turn_id"], [one["call_id"] for one in part["tools"]]) == (None, ["c1"])
    (span,) = [one for one in trace(log.events, [said]) if one["kind"] == "tool"]
    assert span["parent_id"] is None


def test_a_reply_that_is_read_while_it_is_released_is_told_once(log: Log) -> None:
    """What is read of it comes before the session, which may have its message, or its calls."""
    said = reply(step("I deploy.", item()))
    left = {"call_id": "c1", "name": "deploy", "seq": 2, "outcome": "unknown"}
    log.add("model_call", {"stream": "s", "calls": [left]}, turn="t1", leaf=False)
    assert [len(told) for told in tools_of(log, said)[::2]] == [1, 1]


def test_an_attempt_that_was_begun_anew_is_in_the_trace_alone(log: Log) -> None:
    again = reply(step("Once more."), earlier=((item("c1"), False), (item("c2", 3), True)))
    assert tools_of(log, again) == [[("c2", "unknown", "s")]] * 3
    spans = [one["attributes"] for one in trace(log.events, [again]) if one["kind"] == "tool"]
    assert {one["call_id"]: one["outcome"] for one in spans} == {"c1": "withdrawn", "c2": "unknown"}


def test_a_sample_has_the_answer_of_a_reply_that_is_not_released(log: Log) -> None:
    whole = evaluation(log.events, unreleased=[reply(step("It is done."), has_ended=True)])
    assert (whole["output"], whole["partial"], len(whole["input"])) == ("It is done.", False, 1)
    cut = evaluation(log.events, unreleased=[reply(step("It is"))])
    assert (cut["output"], cut["partial"]) == ("It is", True)


@pytest.mark.parametrize("turn", ["t1", None])
def test_an_audit_finds_the_open_call_of_a_reply_whose_owner_is_gone(
    log: Log, turn: str | None
) -> None:
    called = step("I deploy.", item(), item("c2", 3, outcome="done"), item("c3", 4, server=True))

    def found(said: Unreleased) -> list[tuple[str, Any]]:
        facts = audit(log.events, [said])
        of_turn = facts["turns"][0]["unanswered"]
        assert [] in (of_turn, facts["unanswered"])
        return [(one["call_id"], one["unreleased"]) for one in of_turn or facts["unanswered"]]

    gone = reply(called, turn=turn)
    assert found(gone) == [("c1", gone.told())]
    assert found(gone._replace(status="live", owner_alive=True)) == [], "it is being run"
    assert found(gone._replace(status="complete", owner_alive=True)) == []
    cut = step("I d", item(arguments='{"a": ', arguments_complete=False), _partial=True)
    assert found(reply(cut, turn=turn)) == [], "nobody had it whole"
