"""Transcript, trace, audit, eval sample, pending actions, state, find: shapes and facts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from session_log import Log

from walld.sessions.gate.pending import pending
from walld.sessions.gate.resume import resume
from walld.sessions.gate.workers import Worker
from walld.sessions.state.errors import BadArgument
from walld.sessions.state.events import Event
from walld.sessions.views.audit import audit
from walld.sessions.views.evaluation import evaluation
from walld.sessions.views.find import find
from walld.sessions.views.messages import messages
from walld.sessions.views.state_view import state_view
from walld.sessions.views.trace import trace
from walld.sessions.views.transcript import transcript


@pytest.fixture
def log() -> Log:
    """A turn with a call that worked, one that was denied and one nobody knows about."""
    log = Log()
    log.say("system", "be kind")
    log.submit("t1", "fix it", model="big")
    log.add("turn_worker_started", {}, turn="t1")
    log.add("turn_assistant_started", {"stream_id": "s1"}, turn="t1")
    log.tool("t1", "c1", "approval:asked", "approval:granted", "started", "finished")
    log.tool("t1", "c2", "approval:denied")
    log.tool("t1", "c3", "started", side_effect="external-write")
    log.add(
        "message",
        {"role": "assistant", "content": "so", "_wal_stream": "s1", "_wal_seq": 1},
        turn="t1",
    )
    log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t1")
    return log


def test_a_transcript_has_turns_with_messages_and_tools(log: Log) -> None:
    said = {"role": "assistant", "content": "so it is", "_wal_stream": "s1", "_wal_seq": 1}
    log.add("message", said, turn="t1")
    loose, turn = transcript(log.events)
    assert loose["turn_id"] is None
    assert [one["message"]["content"] for one in loose["messages"]] == ["be kind"]
    assert (turn["turn_id"], turn["state"], turn["reason"]) == ("t1", "interrupted", "agent_lost")
    assert [one["message"]["content"] for one in turn["messages"]] == ["fix it", "so it is"]
    assert turn["duration_ms"] == 13_000
    assert [(one["call_id"], one["outcome"], one["duration_ms"]) for one in turn["tools"]] == [
        ("c1", "done", 1000),
        ("c2", "denied", None),
        ("c3", "unknown", None),
    ]
    assert turn["tools"][0]["result"] == "done"
    assert [one["state"] for one in turn["tools"][0]["decisions"]] == ["asked", "granted"]


def test_loose_messages_stand_between_the_turns(log: Log) -> None:
    log.say("user", "x")
    log.say("user", "y")
    log.submit("t2")
    assert [(one["turn_id"], len(one["messages"])) for one in transcript(log.events)] == [
        (None, 1),
        ("t1", 2),
        (None, 2),
        ("t2", 1),
    ]


def test_a_trace_has_spans_within_spans(log: Log) -> None:
    spans = {span["name"]: span for span in trace(log.events)}
    turn, reply = spans["turn t1"], spans["reply s1"]
    assert (turn["start_ms"], turn["end_ms"], turn["status"]) == (2000, 15_000, "error")
    assert turn["attributes"]["model"] == "big"
    assert (reply["parent_id"], reply["start_ms"], reply["end_ms"]) == ("e2", 4000, 14_000)
    tools = [span for span in trace(log.events) if span["kind"] == "tool"]
    assert [span["status"] for span in tools] == ["ok", "error", "unset"]
    assert {span["parent_id"] for span in tools} == {turn["span_id"]}
    assert tools[2]["end_ms"] is None


def test_a_clock_that_went_back_gives_no_negative_span(log: Log) -> None:
    events = [msgspec.structs.replace(event, at_ms=100_000 - event.seq) for event in log.events]
    for span in trace(events):
        assert span["end_ms"] is None or span["end_ms"] == span["start_ms"]
    assert transcript(events)[1]["duration_ms"] == 0


def test_a_reply_that_said_nothing_here_is_not_called_ok() -> None:
    """Its provider failed, say, and the next one completed the turn; or its id came again."""
    log = Log()
    for turn in ("t1", "t2"):
        log.submit(turn)
        log.add("turn_assistant_started", {"stream_id": "failed"}, turn=turn)
    said = {"role": "assistant", "content": "a", "_wal_stream": "answered", "_wal_seq": 1}
    log.add("turn_assistant_started", {"stream_id": "answered"}, turn="t1")
    log.add("message", said, turn="t1")
    log.add("turn_completed", {}, turn="t1")
    log.add("message", said | {"_wal_stream": "failed"}, turn="t2")
    replies = [one for one in trace(log.events) if one["kind"] == "reply"]
    assert [(one["attributes"]["turn"], one["name"], one["status"]) for one in replies] == [
        ("t1", "reply failed", "unset"),
        ("t2", "reply failed", "ok"),
        ("t1", "reply answered", "ok"),
    ]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_list_that_does_not_say_which_messages_it_has_leaves_none_out(is_compacted: bool) -> None:
    """Of a program that keeps no ids; or with a summary, which stands for any of them."""
    log = Log()
    for turn in ("t1", "t2"):
        log.submit(turn, turn)
    told: Any = [{"role": "user", "content": one} for one in ("t1", "t2")]
    if is_compacted:
        log.add("compaction", {"summary": "of t1", "first_kept": log.events[-1].id})
        told = messages(log.events)
    log.add("message_edit", {"messages": told})
    assert [one["taken_back"] for one in audit(log.events)["turns"]] == [False, False]
    log.add("message_edit", {"messages": [{"role": "assistant", "content": "anew"}]})
    assert [one["taken_back"] for one in audit(log.events)["turns"]] == [True, True]


def test_the_facts_of_an_audit(log: Log) -> None:
    log.add("turn_completed", {}, turn="t1")
    log.add("artifact", {"sha256": "a" * 64, "size": 3, "media_type": "a/b"})
    log.add("artifact", {"sha256": "a" * 64, "size": 3, "media_type": "a/b"})
    facts = audit(log.events)
    (turn,) = facts["turns"]
    assert (turn["state"], turn["reason"], turn["stream_ids"]) == (
        "interrupted",
        "agent_lost",
        ["s1"],
    )
    assert turn["collisions"] == [16], "two ends are one collision"
    assert len(turn["content_hash"]) == 16
    assert [(one["call_id"], one["outcome"]) for one in turn["unanswered"]] == [("c3", "unknown")]
    assert [one["seq"] for one in facts["artifacts"]] == [17]
    assert facts["malformed"] == facts["unanswered"] == []


def test_calls_of_messages_are_unanswered_too() -> None:
    """Imported sessions have no journal of tools."""
    log = Log()
    calls: list[dict[str, Any]] = [
        {"id": "a", "name": "x"},
        {"id": "b", "function": {"name": "y"}},
        {"id": "d", "name": "z", "outcome": "done"},
    ]
    log.say("assistant", "", tool_calls=calls)
    log.say("assistant", [{"type": "tool_use", "id": "c", "name": "z", "input": {}}])
    assert [one["call_id"] for one in audit(log.events)["unanswered"]] == ["a", "b", "c"]
    log.say("tool", "ok", tool_call_id="a")
    log.say("user", [{"type": "tool_result", "tool_use_id": "c", "content": "ok"}])
    (left,) = audit(log.events)["unanswered"]
    assert (left["call_id"], left["tool"], left["seq"]) == ("b", "y", 1)


@pytest.mark.parametrize("end", ["", "turn_interrupted", "turn_completed"])
@pytest.mark.parametrize(
    ("more", "unknown"),
    [
        ({"calls": "journal"}, []),  # only said, and its program would have told of a start
        ({"words": []}, []),
        ({"words": ["approval:asked"]}, []),
        ({"words": ["approval:granted"]}, []),
        ({"words": ["started"]}, ["c"]),
        ({}, ["c"]),  # only said: nobody promised anything
    ],
)
def test_of_a_call_that_never_started_nothing_is_unknown(
    more: dict[str, Any], unknown: list[str], end: str
) -> None:
    """The audit reads the account that the gate reads, also behind a turn that was completed."""
    log = Log()
    log.submit("t", "go", **({"calls": more["calls"]} if "calls" in more else {}))
    said = {"id": "c", "name": "deploy", "arguments": {"k": 1}}
    message = {"role": "assistant", "content": "I deploy.", "tool_calls": [said]}
    log.add("message", message, turn="t")
    if (words := more.get("words")) is not None:
        log.tool("t", "c", *words, tool="deploy", arguments={"k": 1}, resume_policy="never-rerun")
    if end:
        log.add(end, {"reason": "agent_lost"} if end == "turn_interrupted" else {}, turn="t")
    assert [one["call_id"] for one in audit(log.events)["turns"][0]["unanswered"]] == unknown
    gate = resume(log.events)
    assert [one["call_id"] for one in gate["calls"] if one["outcome"] == "unknown"] == unknown


def test_of_a_call_whose_start_may_be_lost_the_audit_knows_as_little_as_the_gate() -> None:
    log = Log()
    log.submit("t")
    log.tool("t", "c", resume_policy="never-rerun")
    assert audit(log.events)["turns"][0]["unanswered"] == []
    lost = {"last_seq": log.events[-1].seq + 1}
    assert [one["outcome"] for one in resume(log.events, **lost)["calls"]] == ["unknown"]
    (left,) = audit(log.events, **lost)["turns"][0]["unanswered"]
    assert left["call_id"] == "c"


def test_a_call_that_the_provider_ran_is_answered_by_the_assistant() -> None:
    """As Claude Code's file has it: the call in one line of the answer, the result in another."""
    log = Log()
    function = {"name": "advisor", "arguments": "{}"}
    listed = [{"id": name, "type": "function", "function": function} for name in ("a", "b")]
    called = [{"type": "server_tool_use", "id": "a", "name": "advisor", "input": {}}]
    log.say("assistant", called, tool_calls=listed)
    given = {"type": "advisor_tool_result", "tool_use_id": "a", "content": {"text": "so"}}
    log.say("assistant", [given, 7, {"type": None, "tool_use_id": "b"}])
    assert [one["call_id"] for one in audit(log.events)["unanswered"]] == ["b"]


def test_calls_that_may_have_run_elsewhere_are_unanswered_until_somebody_says() -> None:
    log = Log()
    log.submit("t1")
    call = {"tool": "pay", "side_effect": "external-write", "resume_policy": "never-rerun"}
    told = [{"turn": turn, "call_id": "c", **call} for turn in ("t1", "T")]
    log.add("imported", {"calls": told}, leaf=False)
    found = audit(log.events)
    for left in (found["turns"][0]["unanswered"], found["unanswered"]):
        assert [(one["call_id"], one["tool"], one["outcome"]) for one in left] == [
            ("c", "pay", "unknown")
        ]
    log.add("observation", {"of_turn": "T", "of_call": "c", "text": "it was paid"})
    assert audit(log.events)["unanswered"] == []


def test_an_entry_whose_parent_is_lost_is_not_malformed() -> None:
    log = Log()
    for text in "abc":
        log.say("user", text)
    left = [one for one in log.events if one.seq != 2]
    assert audit(left)["malformed"] == []
    stray = Event(seq=2, id="x", parent="none", type="message", payload=log.events[1].payload)
    (told,) = audit([log.events[0], stray])["malformed"]
    assert (told["seq"], told["code"]) == (2, "unknown_parent")


def test_an_audit_names_what_is_malformed(log: Log) -> None:
    broken = [
        Event(seq=16, id="x1", parent="e15", type="turn_interrupted", turn="t1"),
        Event(seq=17, id="x2", parent="x1", type="turn_worker_started", turn="t1"),
        Event(seq=18, id="x3", parent="x2", type="turn_completed", turn="t9"),
    ]
    found = audit([*log.events, *broken])
    assert [(one["seq"], one["code"]) for one in found["malformed"]] == [
        (16, "bad_payload"),
        (17, "illegal_turn"),
        (18, "unknown_turn"),
    ]
    known, lost = found["turns"]
    assert [known] == audit(log.events)["turns"], "it moves nothing"
    assert (lost["turn_id"], lost["message_id"], lost["state"]) == ("t9", None, "completed")


def test_what_is_pending(log: Log) -> None:
    log.submit("t2")
    log.tool("t2", "d1", "approval:asked")
    log.tool("t2", "d2")
    log.tool("t2", "d3", "approval:granted")
    assert [(one["action"], one.get("call_id")) for one in pending(log.events)] == [
        ("settle_tool", "c3"),
        ("answer_turn", None),
        ("approve", "d1"),
        ("decide_tool", "d2"),
        ("run_tool", "d3"),
    ]
    log.add("turn_completed", {}, turn="t2")
    log.add("observation", {"call_id": "c3", "text": "it was sent"}, turn="t1")
    assert pending(log.events) == []


def test_what_is_pending_of_turns() -> None:
    """Retried ones, and those that a message came behind, want no answer any more."""
    log = Log()
    log.submit("t1")
    log.tool("t1", "c", "approval:granted", tool="a")
    log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t1")
    assert actions(log) == [("answer_turn", "t1"), ("run_tool", "t1")], "and it was not answered"
    log.add("turn_submitted", {"content": "hello", "retry_of": "t1"}, turn="t2")
    assert actions(log) == [("answer_turn", "t2")]
    log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t2")
    log.submit("t3")
    assert actions(log) == [("answer_turn", "t3")]
    log.add("message", {"role": "assistant", "content": "Here"}, turn="t3")
    assert actions(log) == [], "it is answered; that it is not completed changes nothing"
    assert resume(log.events)["boundary"] == "answered"
    log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t3")
    assert (actions(log), resume(log.events)["boundary"]) == ([], "answered")


def test_a_message_that_says_calls_and_one_that_was_cut_are_no_answer() -> None:
    said = {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "c", "name": "look"}]}
    for more in (said, {"role": "assistant", "content": "He", "_partial": True}):
        log = Log()
        log.submit("t", calls="journal")
        log.add("message", more, turn="t")
        assert actions(log)[0] == ("answer_turn", "t")
        assert resume(log.events)["boundary"] == "before_intent"
    log = Log()
    log.submit("t")
    log.add("message", {"role": "assistant", "content": "I look."}, turn="t")
    log.tool("t", "c", "started", "finished")
    assert actions(log) == [("answer_turn", "t"), ("observe_tool", "t")], "the tool came since"


def test_an_answer_that_names_no_turn_is_of_the_newest_open_one() -> None:
    log = Log()
    log.submit("t1")
    log.add("turn_interrupted", {"reason": "stopped"}, turn="t1")
    log.say("assistant", "of no turn: the newest has ended")
    assert actions(log) == [("answer_turn", "t1")]
    begun = log.submit("t2")
    log.add("message", {"role": "assistant", "content": "of another"}, turn="t1")
    for more in ({"_turn": "t1"}, {"_wal_recovered": True}):
        log.say("assistant", "of a reply", **more)
    log.say("user", "and")
    assert actions(log) == [("answer_turn", "t2")]
    call = {"id": "c", "name": "look", "arguments": "{}"}
    log.say("assistant", "I look.", tool_calls=[call])
    log.say("tool", "4", tool_call_id="c")
    assert actions(log) == [("answer_turn", "t2")], "the model is yet to see it"
    log.say("assistant", "", tool_calls=[])
    assert actions(log) == [("answer_turn", "t2")], "it said nothing"
    log.say("assistant", "It is 4 degrees.")
    assert (actions(log), resume(log.events)["boundary"]) == ([], "answered")
    log.tool("t2", "c2", "started", "finished", side_effect="read")
    assert actions(log)[0] == ("answer_turn", "t2"), "the tool came since"
    log.say("assistant", "It is 5 degrees.")
    log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t2")
    assert (actions(log), resume(log.events)["boundary"]) == ([], "answered")
    log.add("turn_submitted", {"content": "hello", "retry_of": "t2"}, turn="t3", parent=begun)
    assert actions(log) == [("answer_turn", "t3")]
    log.add("message", {"role": "assistant", "content": "beside it"}, parent=begun)
    assert actions(log) == [("answer_turn", "t3")], "not behind its submission"


def test_a_result_that_the_model_did_not_see() -> None:
    log = Log()
    log.submit("t")
    kept = {"_artifact": {"sha256": "a" * 64, "size": 1, "media_type": "x", "preview": ""}}
    log.tool("t", "c", "started")
    log.add("tool_finished", {"call_id": "c", "result": kept}, turn="t")
    observe = pending(log.events)[-1]
    assert (observe["action"], observe["call_id"]) == ("observe_tool", "c")
    assert observe["artifact"] == "a" * 64
    for word in (
        ("observation", {"call_id": "c", "text": "4 degrees"}),
        ("message", {"role": "tool", "tool_call_id": "c", "content": "4 degrees"}),
        ("message", {"role": "assistant", "content": "It is cold."}),
        ("turn_completed", {}),
    ):
        seen = [*log.events, Event(seq=9, id="w", type=word[0], turn="t", payload=word[1])]
        assert "observe_tool" not in [one["action"] for one in pending(seen)], word


def test_what_another_process_is_at_has_no_action() -> None:
    log = Log()
    log.submit("t")
    log.tool("t", "c", "started")
    worker = Worker("t", None, 4711, 5, is_asker=False, is_seen=True)
    (one,) = pending(log.events, workers=[worker])
    assert (one["action"], one["call_id"], one["owner"]["pid"]) == (None, "c", 4711)
    own = worker._replace(is_asker=True)
    assert len(pending(log.events, workers=[own])) == 2


def actions(log: Log) -> list[tuple[str, str]]:
    return [(one["action"], one["turn"]) for one in pending(log.events)]


def test_a_sample_for_an_evaluation(log: Log) -> None:
    log.add("verification", {"passed": True}, turn="t1")
    log.submit("t2", "again")
    sample = evaluation(log.events, turn="t1")
    said = [one for one in sample["input"] if "_wal_journal" not in one]
    assert [one["content"] for one in said] == ["be kind", "fix it"]
    told = [call for one in sample["input"] for call in one.get("tool_calls", ())]
    assert len(told) == 3, "the model saw the calls of the journal"
    assert sample["output"] == "so"
    assert sample["metadata"]["outcomes"] == {"denied": 1, "done": 1, "unknown": 1}
    assert sample["verifications"] == [{"passed": True}]
    whole = evaluation(log.events)
    assert whole["output"] is None
    assert whole["input"][-1]["content"] == "again"
    with pytest.raises(BadArgument, match=r"turn .*got t9"):
        evaluation(log.events, turn="t9")
    assert evaluation([])["input"] == []


def test_the_state_is_that_of_the_path(log: Log) -> None:
    log.add("setting", {"key": "k", "value": 1})
    at = log.add("model_change", {"model": "small"})
    log.add("setting", {"key": "k", "value": 2})
    log.add("budget", {"used": 3})
    log.add("label", {"target": at, "text": "here"})
    log.add("leaf", {"target": at})
    view = state_view(log.events)
    assert (view["leaf"], view["model"], view["settings"]) == (at, "small", {"k": 1})
    assert view["labels"] == {at: "here"}
    (denial,) = view["denials"]
    assert (denial["turn"], denial["call_id"], denial["tool"]) == ("t1", "c2", "bash")
    assert view["failures"] == []
    assert view["budget"] == {"used": 3}
    assert view["counts"]["events"] == view["last_seq"] == 21
    assert (view["counts"]["messages"], view["counts"]["open_tools"]) == (3, 1)
    assert state_view([])["leaf"] is None


def test_find() -> None:
    log = Log()
    for number in range(5):
        log.add("note", {"n": number}, key=f"k{number}")
        log.add("other", {})
    assert [one["payload"]["n"] for one in find(log.events, "note", last=2)] == [3, 4]
    assert [one["key"] for one in find(log.events, key_prefix="k1")] == ["k1"]
    assert [one["key"] for one in find(log.events, "note", key="k1")] == ["k1"]
    assert find(log.events, "note", key="k") == find(log.events, "other", "k") == []
    assert find(log.events, last=0) == []
    assert len(find(log.events)) == 10
    with pytest.raises(BadArgument, match="got -1, limit 0 or more"):
        find(log.events, last=-1)
    with pytest.raises(BadArgument, match="got k1, limit none beside key 'k'"):
        find(log.events, key_prefix="k1", key="k")


def test_an_audit_has_what_was_said_and_who_interrupted() -> None:
    log = Log()
    for turn, by in (("t1", {"by": "daemon"}), ("t2", {"by": "app"}), ("t3", {})):
        log.submit(turn, f"said in {turn}")
        log.add("turn_interrupted", {"reason": "why", **by}, turn=turn)
    log.submit("t4", [{"type": "text"}])
    turns = audit(log.events)["turns"]
    assert [one["interrupted_by"] for one in turns] == ["daemon", "app", "app", None]
    assert [one["content"] for one in turns][2:] == ["said in t3", [{"type": "text"}]]


def test_an_audit_names_the_artifacts_of_contents_and_attachments() -> None:
    def named(digit: str, **more: Any) -> dict[str, Any]:
        return {"_artifact": {"sha256": digit * 64, "size": 7, **more}}

    log = Log()
    log.submit("t1", named("a"), attachments=[named("b"), {"own": 1}, named("a")])
    log.say("user", [{"type": "text", "text": "see"}, named("c", size="none")])
    log.tool("t1", "c1")
    log.add("tool_finished", {"call_id": "c1", "result": {"deep": [named("d")]}}, turn="t1")
    log.say("user", {"_artifact": {"sha256": "no hash"}})
    told = [(one["sha256"][0], one["size"], one["id"]) for one in audit(log.events)["artifacts"]]
    assert told == [("a", 7, "e1"), ("b", 7, "e1"), ("c", None, "e2"), ("d", 7, "e4")]
