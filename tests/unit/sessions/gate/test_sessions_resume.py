"""The resume gate: boundaries, what may be done with a call, reasons."""

from __future__ import annotations

from typing import Any

import pytest
from session_log import INTENT, Log

from walld.sessions.gate.pending import pending
from walld.sessions.gate.resume import has_written, resume
from walld.sessions.gate.turn_history import history_of
from walld.sessions.gate.workspace import compare, fingerprint_then, seen_now
from walld.sessions.state.budget import is_exhausted
from walld.sessions.views.audit import audit
from walld.sessions.views.messages import messages

A, B = "a" * 64, "b" * 64
THEN = {"head": "h1", "dirty": False, "files": {"x.py": A}}


def working(*types: str, fingerprint: bool = True, **intent: Any) -> Log:
    log = Log()
    if fingerprint:
        log.add("lifecycle", {"fingerprint": THEN})
    log.submit("t")
    if types or intent:
        log.tool("t", "c", *types, **intent)
    return log


def codes(gate: dict[str, Any], verdict: str = "blocked") -> list[str]:
    """Of its reasons with that verdict; they alone make the whole's."""
    found = [reason["verdict"] for reason in gate["reasons"]]
    assert gate["status"] == next((one for one in ("blocked", "check") if one in found), "ok")
    return [reason["code"] for reason in gate["reasons"] if reason["verdict"] == verdict]


@pytest.mark.parametrize(
    ("types", "boundary"),
    [
        (("approval:asked",), "intended"),
        (("approval:denied",), "intended"),
        (("approval:granted",), "approved"),
        (("started",), "started"),
        (("started", "finished"), "finished"),
        (("started", "finished:failed"), "finished"),
        (("started", "finished", "observation"), "observed"),
    ],
)
def test_the_boundary_the_work_stopped_at(types: tuple[str, ...], boundary: str) -> None:
    gate = resume(working(*types).events)
    assert (gate["boundary"], gate["turn"]) == (boundary, "t")


def test_boundaries_without_a_call() -> None:
    log = working()
    assert resume(log.events)["boundary"] == "before_intent"
    log.add("turn_completed", {}, turn="t")
    assert (resume(log.events)["boundary"], resume(log.events)["turn"]) == ("idle", None)
    assert resume([])["boundary"] == "idle"


def test_one_of_several_calls_that_is_unknown_is_the_boundary() -> None:
    log = working("started")
    log.tool("t", "c2", "started", "finished", "observation")
    assert resume(log.events)["boundary"] == "started"


REPLAY, CHECK = "replay-from-event", "rerun-after-check"
CONFIRM, NEVER = "require-user-confirmation", "never-rerun"


@pytest.mark.parametrize(
    ("types", "side_effect", "policy", "may"),
    [
        ((), "external-write", REPLAY, "replay"),
        ((), "external-write", NEVER, "replay"),
        ((), "read", CONFIRM, "ask_user"),
        (("approval:granted",), "external-write", CONFIRM, "replay"),
        (("approval:asked",), "none", REPLAY, "ask_user"),
        (("started",), "none", REPLAY, "replay"),
        (("started",), "read", REPLAY, "replay"),
        (("started",), "read", CHECK, "rerun_after_check"),
        (("started",), "read", CONFIRM, "ask_user"),
        (("started",), "read", NEVER, "never"),
        (("started",), "workspace-write", REPLAY, "rerun_after_check"),
        (("started",), "workspace-write", CHECK, "rerun_after_check"),
        (("started",), "workspace-write", CONFIRM, "ask_user"),
        (("started",), "workspace-write", NEVER, "never"),
        (("started",), "external-write", REPLAY, "ask_user"),
        (("started",), "external-write", CHECK, "rerun_after_check"),
        (("started",), "external-write", CONFIRM, "ask_user"),
        (("started",), "external-write", NEVER, "never"),
    ],
)
def test_what_may_be_done(types: tuple[str, ...], side_effect: str, policy: str, may: str) -> None:
    log = working(*types, side_effect=side_effect, resume_policy=policy)
    gate = resume(log.events, THEN)
    assert [tool["may"] for tool in gate["tools"]] == [may]
    assert (gate["status"] == "blocked") == (may in ("ask_user", "never"))
    for reason in gate["reasons"]:
        assert reason["call_id"] == "c"


@pytest.mark.parametrize("now", [None, THEN | {"files": {"x.py": B}}])
@pytest.mark.parametrize("policy", [REPLAY, CHECK])
def test_a_write_nobody_can_check_asks(now: dict[str, Any] | None, policy: str) -> None:
    log = working("started", side_effect="workspace-write", resume_policy=policy)
    gate = resume(log.events, now)
    assert [tool["may"] for tool in gate["tools"]] == ["ask_user"]


def test_it_is_unknown_even_when_the_turn_was_interrupted_and_others_followed() -> None:
    log = working("started", side_effect="external-write", resume_policy=NEVER)
    log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t")
    log.submit("t2")
    log.add("turn_completed", {}, turn="t2")
    gate = resume(log.events)
    assert codes(gate) == ["tool_unknown"]
    assert (gate["turn"], gate["boundary"]) == ("t", "started")
    log.add("observation", {"call_id": "c", "text": "was sent"}, turn="t")
    assert resume(log.events, THEN)["status"] == "ok"


@pytest.mark.parametrize(
    ("policy", "may"), [(NEVER, "never"), (CONFIRM, "ask_user"), (CHECK, "rerun_after_check")]
)
def test_it_is_unknown_also_in_a_turn_that_was_completed(policy: str, may: str) -> None:
    log = working("started", side_effect="external-write", resume_policy=policy)
    log.tool("t", "c2")
    log.add("turn_completed", {}, turn="t")
    gate = resume(log.events)
    assert (gate["turn"], gate["boundary"]) == ("t", "started")
    assert [(tool["call_id"], tool["may"]) for tool in gate["tools"]] == [("c", may)]
    assert codes(gate) == ([] if may == "rerun_after_check" else ["tool_unknown"])
    assert [one["action"] for one in pending(log.events)] == ["settle_tool"]
    log.submit("t2")
    log.add("turn_completed", {}, turn="t2")
    assert [tool["call_id"] for tool in resume(log.events)["tools"]] == ["c"]
    log.add("tool_finished", {"call_id": "c", "result": "sent"}, turn="t")
    gate = resume(log.events)
    assert (gate["boundary"], gate["tools"], pending(log.events)) == ("idle", [], [])


def test_a_call_that_an_older_walld_took_behind_its_turns_end_is_told() -> None:
    """What could not come today is malformed and stands there all the same."""
    log = working()
    log.add("turn_completed", {}, turn="t")
    for kind in ("tool_intent", "tool_started"):
        payload = {**INTENT, "call_id": "c", "resume_policy": NEVER}
        log.stand(kind, payload, turn="t")
    assert codes(resume(log.events)) == ["tool_unknown"]
    assert [one["code"] for one in audit(log.events)["malformed"]] == ["illegal_tool"] * 2


def test_a_call_whose_turn_is_lost_to_damage_is_told() -> None:
    log = working("started", resume_policy=NEVER)
    log.add("turn_completed", {}, turn="t")
    lost = [event for event in log.events if event.type not in ("turn_submitted", "tool_started")]
    for events in (lost, [event for event in log.events if event.type != "turn_submitted"]):
        assert [tool["call_id"] for tool in resume(events)["tools"]] == ["c"]
    without = [event for event in log.events if not event.type.startswith("turn_")]
    assert codes(resume(without)) == ["tool_unknown"]
    assert pending(without)[0]["action"] == "settle_tool"


def test_an_approval_behind_a_loss_does_not_say_that_it_never_started() -> None:
    """Who gave it may not know that it was granted before, and started, in what is lost."""
    log = working("approval:asked", side_effect="external-write", resume_policy=NEVER)
    seq = log.state.last_seq
    log.add("tool_approval", {"call_id": "c", "state": "granted"}, turn="t")
    log.add("tool_started", {"call_id": "c"}, turn="t")
    left, asked = log.events[:seq], log.events[:seq]
    again = Log()
    for event in left:
        again.state.apply(event)
    again.state.lose(log.state.last_seq)
    again.events = left
    assert pending(asked)[1]["action"] == "approve"
    again.add("tool_approval", {"call_id": "c", "state": "granted"}, turn="t")
    assert [tool["may"] for tool in resume(again.events)["tools"]] == ["never"]
    assert pending(again.events)[1]["action"] == "settle_tool"
    again.add("tool_approval", {"call_id": "c", "state": "denied"}, turn="t")
    assert resume(again.events)["tools"] == []


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        (THEN, []),
        (THEN | {"head": "h2"}, ["head (then h1, now h2)"]),
        (THEN | {"dirty": True}, ["dirty (then false, now true)"]),
        (THEN | {"files": {"x.py": B}}, ["file x.py"]),
        (THEN | {"files": {}}, ["file x.py"]),
        (THEN | {"files": {"x.py": None}}, ["file x.py"]),
    ],
)
def test_a_workspace_that_changed_blocks(now: dict[str, Any], changed: list[str]) -> None:
    gate = resume(working().events, now)
    assert gate["workspace"]["changed"] == changed
    assert codes(gate) == (["workspace_changed"] if changed else [])


def test_nothing_is_compared_with_nothing() -> None:
    assert resume(working().events)["workspace"]["verdict"] == "not_compared"
    gate = resume(working(fingerprint=False).events, THEN)
    assert gate["workspace"]["verdict"] == "not_compared"
    assert gate["status"] == "ok"


def test_what_the_agent_wrote_itself_is_expected() -> None:
    log = working("started", side_effect="workspace-write")
    log.add("tool_finished", {"call_id": "c", "files": {"x.py": B, "y.py": None}}, turn="t")
    now = {"head": "h1", "dirty": True, "files": {"x.py": B, "y.py": None}}
    assert codes(resume(log.events, now)) == []
    assert codes(resume(log.events, now | {"files": {"x.py": A, "y.py": None}})) != []
    log.add("lifecycle", {"fingerprint": now | {"dirty": False}})
    assert codes(resume(log.events, now)) == ["workspace_changed"], "clean since it wrote"
    assert fingerprint_then(log.events) == now | {"dirty": False}


def test_files_alone_are_a_fingerprint() -> None:
    then = {"files": {"x": A}}
    assert compare(then, {"head": "h", "dirty": True, "files": {"x": A}}, False).verdict == "same"


DIRTY = THEN | {"dirty": True, "root": "/w", "changes": {"d.py": A}}
NO_GIT: dict[str, Any] = {
    "root": None,
    "head": None,
    "dirty": None,
    "kinds": {},
    "files": {"x.py": A},
    "changes": {"x.py": B, "y.py": A},
}
UNSAID = {"head": "h1", "dirty": True, "files": {}}


@pytest.mark.parametrize(
    ("then", "now", "verdict", "changed"),
    [
        (DIRTY, DIRTY, "same", []),
        (DIRTY, DIRTY | {"changes": {"d.py": B}}, "changed", ["file d.py"]),
        (DIRTY, DIRTY | {"changes": {"d.py": A, "e.py": None}}, "changed", ["file e.py"]),
        (DIRTY, DIRTY | {"changes": {}}, "changed", ["file d.py"]),
        (DIRTY, THEN, "changed", ["file d.py"]),
        (DIRTY, DIRTY | {"changes": None}, "unknown", []),
        (THEN, DIRTY, "changed", ["file d.py"]),
        (THEN, DIRTY | {"changes": None}, "changed", ["dirty (then false, now true)"]),
        (UNSAID, UNSAID, "unknown", []),
        (UNSAID, UNSAID | {"dirty": False}, "changed", ["dirty (then true, now false)"]),
        (THEN, THEN | {"dirty": None}, "unknown", []),
        (THEN | {"dirty": None}, THEN, "unknown", []),
        (THEN | {"head": None, "dirty": None}, {"files": {"x.py": A}}, "unknown", []),
        (NO_GIT, NO_GIT, "same", []),
        (NO_GIT, NO_GIT | {"changes": {"y.py": B}}, "unknown", []),
        (NO_GIT, NO_GIT | {"changes": {"y.py": A, "z.py": A}}, "unknown", []),
        (NO_GIT, NO_GIT | {"changes": {}}, "unknown", []),
        (NO_GIT, NO_GIT | {"changes": None}, "unknown", []),
        (NO_GIT, NO_GIT | {"kinds": {"y.py": "link"}}, "unknown", []),
        (NO_GIT | {"changes": None}, NO_GIT, "unknown", []),
        (NO_GIT, NO_GIT | {"files": {"x.py": B}}, "changed", ["file x.py"]),
        ({"head": None, "dirty": None, "files": {}}, {"head": None, "files": {}}, "unknown", []),
        ({"head": "h", "files": {}}, {"head": "h"}, "same", []),
        ({"other": "than that", "files": {}}, {}, "unknown", []),
    ],
)
def test_a_tree_that_differs_from_its_commit_is_the_same_where_all_of_it_was_seen(
    then: dict[str, Any], now: dict[str, Any], verdict: str, changed: list[str]
) -> None:
    compared = compare(then, now, has_written=False)
    assert (compared.verdict, compared.changed) == (verdict, changed)


def test_what_nobody_says_the_agent_wrote_is_neither_the_same_nor_changed() -> None:
    assert compare(THEN, DIRTY, has_written=True).verdict == "unknown"
    assert compare(THEN, DIRTY | {"changes": None}, has_written=True).verdict == "unknown"
    for name in ("d.py", "./d.py", "/w/d.py"):
        said = {"files": THEN["files"] | {name: A}}
        assert compare(THEN | said, DIRTY | said, has_written=True).verdict == "same", name
        assert compare(THEN | said, DIRTY | said, has_written=False).verdict == "same", name
    log = working("started", side_effect="workspace-write", resume_policy=REPLAY)
    gate = resume(log.events, DIRTY)
    assert gate["workspace"]["verdict"] == "unknown"
    assert codes(gate) == ["tool_unknown"], "and so the write asks"


def test_where_nobody_lists_what_differs_a_write_may_be_any_file() -> None:
    no_git = {"head": None, "dirty": None, "files": {"x.py": A}}
    for then in ({"files": {"x.py": A}}, {"head": "h", "files": {}}):
        assert compare(then, then, has_written=False).verdict == "same"
        assert compare(then, then, has_written=True).verdict == "unknown"
    assert compare(NO_GIT, NO_GIT, has_written=True).verdict == "same", "all of it is as it was"
    for fingerprint, may in ((no_git, "ask_user"), (NO_GIT, "rerun_after_check")):
        log = Log()
        log.add("lifecycle", {"fingerprint": fingerprint})
        log.submit("t")
        log.tool("t", "c", "started", side_effect="workspace-write", resume_policy=CHECK)
        gate = resume(log.events, fingerprint)
        assert gate["tools"][0]["may"] == may
        assert gate["workspace"]["verdict"] == ("unknown" if may == "ask_user" else "same")


def test_without_git_a_file_that_nobody_named_is_not_taken_for_the_same() -> None:
    """Of a folder that another file was named of: that was `same`, and the gate ok."""
    log = Log()
    log.add("lifecycle", {"fingerprint": NO_GIT})
    log.submit("t")
    assert resume(log.events, NO_GIT)["status"] == "ok"
    gate = resume(log.events, NO_GIT | {"changes": NO_GIT["changes"] | {"y.py": B}})
    assert (gate["status"], codes(gate, "check")) == ("check", ["workspace_unknown"])
    log.add("lifecycle", {"fingerprint": NO_GIT | {"changes": None}})
    assert resume(log.events, NO_GIT)["status"] == "check", "nobody saw the others then"


def test_a_tree_whose_commit_nobody_could_read_is_not_the_same() -> None:
    """It has a git folder; where there is none, `root` is None."""
    unread = {"root": "/w", "head": None, "dirty": None, "files": {"x.py": A}}
    assert compare(unread, unread, has_written=False).verdict == "unknown"


def test_files_alone_leave_what_was_seen_of_the_tree() -> None:
    log = working()
    log.add("lifecycle", {"fingerprint": {"part": True, "files": {"y.py": B}}})
    assert fingerprint_then(log.events) == THEN | {"files": THEN["files"] | {"y.py": B}}
    log.tool("t", "w", "started", side_effect="workspace-write", resume_policy=CHECK)
    log.add("lifecycle", {"fingerprint": {"part": True, "files": {}}})
    gate = resume(log.events, fingerprint_then(log.events))
    assert gate["tools"][-1]["may"] == "rerun_after_check"
    assert has_written(history_of(log.events).tools, log.events), "nobody has looked since"


def test_what_is_as_the_log_has_it_may_be_left_out() -> None:
    log = working()
    as_of = log.events[-1].id
    now = THEN | {"files": {}, "as_of": as_of}
    gate = resume(log.events, now)
    assert (gate["as_of"], gate["workspace"]["verdict"]) == (as_of, "same")
    assert gate["workspace"]["now"] == THEN
    gate = resume(log.events, now | {"files": {"x.py": B}})
    assert gate["workspace"]["changed"] == ["file x.py"]
    gate = resume(log.events, now | {"more": 3})
    assert gate["workspace"]["changed"] == ["3 more files"]
    log.add("lifecycle", {"fingerprint": {"part": True, "files": {"y.py": A}}})
    gate = resume(log.events, now)
    assert gate["workspace"]["changed"] == ["file y.py"], "named since, and not looked at"
    gate = resume(log.events, now | {"as_of": "of another session"})
    assert gate["workspace"]["changed"] == ["file x.py", "file y.py"]
    for odd in ({"as_of": 7, "files": {}}, {"as_of": as_of}, {"as_of": as_of, "files": "x"}):
        assert seen_now(log.events, odd) == odd, "nothing is known of what was left out"


def test_a_reason_names_a_hundred_files_and_counts_the_others() -> None:
    log = Log()
    files = dict.fromkeys(map(str, range(150)), A)
    log.add("lifecycle", {"fingerprint": {"head": "h", "files": files}})
    gate = resume(log.events, {"head": "h", "files": {}})
    assert len(gate["workspace"]["changed"]) == 150
    assert gate["reasons"][0]["message"].endswith(", file 99 and 50 others")
    gate = resume(log.events, {"head": "h", "files": {}, "more": 7})
    assert gate["reasons"][0]["message"].endswith(", file 99 and 57 others")


def test_a_file_that_could_not_be_read_then_nor_now_is_not_the_same() -> None:
    then = THEN | {"files": {"x.py": None}}
    assert compare(then, then, has_written=False).verdict == "unknown"
    assert compare(then, THEN, has_written=False).changed == ["file x.py"]


def test_missing_artifacts_and_budget_block() -> None:
    log = working()
    assert codes(resume(log.events, missing_artifacts=[A])) == ["artifact_missing"]
    log.add("budget", {"used": 5, "limit": 5})
    assert codes(resume(log.events)) == ["budget_exhausted"]
    assert codes(resume(log.events, budget={"used": 5, "limit": 9})) == []


@pytest.mark.parametrize(
    ("budget", "exhausted"),
    [
        ({}, False),
        ({"exhausted": True}, True),
        ({"remaining": 0}, True),
        ({"remaining": 0.5}, False),
        ({"used": 1, "limit": 2}, False),
        ({"used": 3, "limit": 2}, True),
        ({"used": "many", "limit": 2}, False),
        ({"remaining": False}, False),
    ],
)
def test_when_a_budget_is_used_up(budget: dict[str, Any], exhausted: bool) -> None:
    assert is_exhausted(budget) == exhausted


@pytest.mark.parametrize(
    ("types", "may", "action"),
    [
        (("decision:blocked",), "ask_user", "decide_tool"),
        (("decision:deny_once",), "ask_user", "decide_tool"),
        (("approval:granted", "decision:forbidden"), "ask_user", "decide_tool"),
        (("decision:allow", "decision:hm"), "ask_user", "decide_tool"),
        (("decision:hm", "decision:allow"), "replay", "run_tool"),
        (("decision:hm", "approval:granted"), "replay", "run_tool"),
        (("decision:hm", "approval:asked"), "ask_user", "approve"),
        (("decision:hm", "started"), "rerun_after_check", "settle_tool"),
    ],
)
def test_a_verdict_that_nobody_reads_may_be_a_no(
    types: tuple[str, ...], may: str, action: str
) -> None:
    log = working(side_effect="external-write", resume_policy=CHECK)
    for type_ in types:
        kind, _, word = type_.partition(":")
        said = {"verdict": word} if kind == "decision" else {"state": word} if word else {}
        log.add(f"tool_{kind}", {"call_id": "c"} | said, turn="t")
    gate = resume(log.events)
    (tool,) = gate["tools"]
    assert tool["may"] == may
    assert codes(gate) == ([] if may != "ask_user" else [gate["reasons"][0]["code"]])
    (one,) = [one for one in pending(log.events) if one["action"] != "answer_turn"]
    assert one["action"] == action


@pytest.mark.parametrize("by", ["application", "reply"])
def test_a_call_that_only_the_model_speaks_of_is_asked_about(by: str) -> None:
    """An agent that is killed in its tool, and whose reply was adopted: no journal tells of it."""
    log = Log()
    log.submit("t1")
    item = {"id": "c1", "name": "deploy", "arguments": {}, "outcome": "unknown"}
    log.add("message", {"role": "assistant", "content": "", "tool_calls": [item]}, turn="t1")
    gate = resume(log.events)
    (tool,) = gate["tools"]
    assert (gate["status"], tool["may"], tool["state"]) == ("blocked", "ask_user", "said")
    assert (tool["side_effect"], tool["intent"]) == ("undeclared", None)
    assert "tool message" in gate["reasons"][0]["message"]
    assert [one["action"] for one in pending(log.events)] == ["answer_turn", "settle_tool"]
    told: dict[str, Any] = {"role": "tool", "tool_call_id": "c1", "content": "deployed"}
    if by == "reply":  # its adapter sees requests alone: the next one brings the result
        brought = {"id": "c1", "name": None, "outcome": "done", "result": "deployed"}
        told = {"role": "assistant", "content": "", "tool_results": [brought]}
    log.add("message", told, turn="t1")
    assert resume(log.events)["status"] == "ok"
    assert [one["action"] for one in pending(log.events)] == ["answer_turn"]


@pytest.mark.parametrize("word", [{"call_id": "c1"}, {"of_turn": "t1", "of_call": "c1"}])
def test_a_call_that_was_only_said_is_settled_by_an_observation(word: dict[str, str]) -> None:
    log = Log()
    log.submit("t1")
    item = {"id": "c1", "name": "deploy", "outcome": "unknown"}
    log.add("message", {"role": "assistant", "content": "", "tool_calls": [item]}, turn="t1")
    if "call_id" in word:  # the words of a journal want an intent
        assert log.offer("observation", word, turn="t1") is not None
        return
    log.add("observation", {"text": "it ran"} | word)
    assert resume(log.events)["tools"] == []


def test_a_call_of_a_turn_that_promised_a_journal_did_not_start() -> None:
    log = Log()
    log.submit("t1", calls="journal")
    item = {"id": "c1", "name": "deploy", "outcome": "unknown"}
    log.add("message", {"role": "assistant", "content": "", "tool_calls": [item]}, turn="t1")
    assert (resume(log.events)["status"], resume(log.events)["tools"]) == ("ok", [])
    seq = log.events[-1].seq
    assert [one["call_id"] for one in resume(log.events, last_seq=seq + 1)["tools"]] == ["c1"], (
        "the intent may be lost"
    )


def test_a_call_that_a_retry_ran_again_waits_for_nothing() -> None:
    log = Log()
    log.submit("t1")
    log.tool("t1", "c1", "started", arguments={"a": 1}, resume_policy="never-rerun")
    assert resume(log.events)["status"] == "blocked"
    log.add("turn_interrupted", {"reason": "x"}, turn="t1")
    log.add("turn_submitted", {"content": "hello", "retry_of": "t1"}, turn="t2")
    log.tool("t2", "k9", "started", "finished", arguments={"a": 1})
    assert resume(log.events)["tools"] == []
    waits = [(one["action"], one.get("call_id")) for one in pending(log.events)]
    assert waits == [("answer_turn", None), ("observe_tool", "k9")]


@pytest.mark.parametrize(
    ("more", "is_asked"),
    [
        ({"arguments": '{"env": "pr', "arguments_complete": False}, False),
        ({"arguments": "", "arguments_complete": False}, True),
        ({"arguments": "rm {", "arguments_complete": False}, True),
        ({"arguments": '{"env": 1}', "arguments_complete": True}, True),
        ({"server": True}, False),
    ],
)
def test_a_call_that_nobody_can_have_run_is_not_asked_about(
    more: dict[str, Any], is_asked: bool
) -> None:
    """Cut within its arguments, as JSON begins; or the provider ran it itself."""
    log = Log()
    log.submit("t1")
    item = {"id": "c1", "name": "deploy", "outcome": "unknown"} | more
    told = {"role": "assistant", "content": "", "tool_calls": [item], "_partial": True}
    log.add("message", told, turn="t1")
    assert bool(resume(log.events)["tools"]) is is_asked
    assert bool(audit(log.events)["turns"][0]["unanswered"]) is is_asked
    (_, said) = messages(log.events) or []
    assert ("synthetic" in said["tool_calls"][0]) is is_asked


def test_what_a_program_declares_beside_a_call_of_its_reply_is_its_risk() -> None:
    log = Log()
    log.submit("t1")
    risk = {"side_effect": "read", "resume_policy": "replay-from-event"}
    item = {"id": "c1", "name": "look", "outcome": "unknown"} | risk
    log.add("message", {"role": "assistant", "content": "", "tool_calls": [item]}, turn="t1")
    (tool,) = resume(log.events)["tools"]
    assert {name: tool[name] for name in risk} == risk
    assert tool["may"] == "replay"


def test_what_nobody_looked_at_is_to_be_checked() -> None:
    """It was `ok`, where walld knew that something was not seen."""
    log = working()
    assert codes(resume(log.events), "check") == ["workspace_not_compared"]
    assert "--workspace" in resume(log.events)["reasons"][0]["message"]
    assert resume(log.events, THEN)["status"] == "ok"
    assert codes(resume(log.events, THEN | {"dirty": None}), "check") == ["workspace_unknown"]
    changed = resume(log.events, THEN | {"files": {"x.py": B}})
    assert (codes(changed), changed["reasons"][0]["paths"]) == (
        ["workspace_changed"],
        ["file x.py"],
    )
    log.tool("t", "c", "started", side_effect="external-write", resume_policy=CHECK)
    gate = resume(log.events, THEN)
    assert (gate["status"], codes(gate, "check")) == ("check", ["tool_unknown"])
    (reason,) = gate["reasons"]
    assert (reason["call_id"], reason["why"]) == ("c", "look_first")


def test_an_artifact_is_missing_or_changed_or_could_not_be_read() -> None:
    found = [{"sha256": A, "why": why} for why in ("missing", "changed", "unreadable: EIO")]
    gate = resume(working().events, THEN, found)
    assert codes(gate) == ["artifact_missing", "artifact_changed"]
    assert codes(gate, "check") == ["artifact_unreadable"]
    assert [one["sha256"] for one in gate["reasons"]] == [A, A, A]
    assert resume(working().events, THEN, found[2:])["status"] == "check"


def test_a_compaction_that_hides_an_open_call_or_keeps_nothing() -> None:
    log = working("started", side_effect="external-write", resume_policy=CHECK)
    kept = log.add("message", {"role": "user", "content": "and then?"})
    log.add("compaction", {"summary": "they deployed", "first_kept": kept})
    gate = resume(log.events, THEN)
    assert codes(gate, "check") == ["tool_unknown", "call_compacted"]
    log.add("tool_finished", {"call_id": "c", "result": "deployed"}, turn="t")
    assert resume(log.events, THEN)["status"] == "ok"
    told = [one["action"] for one in pending(log.events)]
    assert told == ["answer_turn", "observe_tool"], "what it gave goes to no model"
    without = [event for event in log.events if event.id != kept]
    gate = resume(without, THEN)
    assert codes(gate) == ["compaction_cut_off"]
    turn = Log()
    turn.submit("t")
    turn.add("compaction", {"summary": "nothing yet", "first_kept": "m-t"})
    assert resume(turn.events)["status"] == "ok", "a message is named by its own id, too"
