"""What may be done with a call: every combination of facts has one word, and the laws between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from session_log import Log

from walld.sessions.gate.call_rules import RULES, STAGES, WORDS, CallFacts, rule_of
from walld.sessions.gate.pending import pending
from walld.sessions.gate.resume import resume
from walld.sessions.state.errors import BadArgument

EFFECTS = (
    "none",
    "read",
    "workspace-write",
    "external-write",
    "network",
    "process",
    "undeclared",
)
POLICIES = (
    "replay-from-event",
    "rerun-after-check",
    "require-user-confirmation",
    "never-rerun",
    "undeclared",
)
SAFETY = ("safe", "conditional", "unsafe")
PROCESS = ("gone", "running", "unseen")
POLICY_NOW = ("not_given", "allows", "asks", "denies")
WORKSPACES = ("same", "changed", "unseen")
WORKERS = ("nobody", "asker", "other")
CLOSED = ("result", "denied", "superseded")
NOT_STARTED = ("intended", "asked", "undecided", "approved", "approved_stale")
MAY_HAVE_STARTED = ("unknown", "unknown_granted", "intent_lost")


def every_call() -> Iterator[CallFacts]:
    facts = (STAGES, EFFECTS, POLICIES, SAFETY, PROCESS, POLICY_NOW, WORKSPACES, WORKERS)
    for one in product(*facts):
        yield CallFacts(*one)


def strictness(call: CallFacts) -> int:
    return WORDS.index(rule_of(call).may)


def test_every_call_has_one_word_and_every_rule_is_of_some_use() -> None:
    assert set(STAGES) == {*CLOSED, *NOT_STARTED, *MAY_HAVE_STARTED}
    found = Counter(rule_of(call).name for call in every_call())
    assert found.total() == 11 * 7 * 5 * 3 * 3 * 4 * 3 * 3 == 124_740
    assert set(found) == {f"M{number}" for number in range(1, 20)}
    named = [rule.name for rule in RULES if not rule.name.startswith("C")]
    assert named == [f"M{number}" for number in range(1, 20)]


CHILDREN = ("ok", "check", "blocked", "at_work")


def test_the_work_of_a_sub_agent_is_judged_by_its_session() -> None:
    """No rule of it opens what is shut for another cause, and a worse child is never laxer."""
    facts = (STAGES, ("external-write", "none"), POLICIES, ("unsafe",), PROCESS, POLICY_NOW)
    found: set[str] = set()
    for one in product(*facts, ("same",), WORKERS):
        alone = CallFacts(*one)
        rules = [rule_of(alone._replace(child=child)) for child in CHILDREN]
        found |= {rule.name for rule in rules}
        words = [WORDS.index(rule.may) for rule in rules]
        assert words == sorted(words), alone
        before = rule_of(alone)
        if before.name in ("M1", "M2", "M3", "M4", "M5", "M6", "M7"):
            assert {rule.name for rule in rules} == {before.name}, alone
        if before.name == "M9":
            assert {rule.may for rule in rules} == {"never"}, alone
        if before.name == "M8":
            assert [rule.may for rule in rules] == ["run", "check_then_run", "never", "never"]
        if alone.may_have_started and alone.policy_now == "asks":
            assert words[0] == WORDS.index(before.may), "whoever asks is asked anew"
    assert {"C1", "C2", "C3", "C4"} <= found


def test_what_started_is_never_laxer_than_what_did_not() -> None:
    """Of the same words about it: a grant before the start, and one behind it, are a grant."""
    for call in every_call():
        if call.stage == "unknown":
            assert strictness(call) >= strictness(call._replace(stage="approved")), call
            bare = call._replace(stage="intended")
            if not call.wants_grant:
                assert strictness(call) >= strictness(bare), call
        elif call.stage == "unknown_granted":
            assert strictness(call) >= strictness(call._replace(stage="approved")), call
        elif call.stage == "intent_lost":
            assert strictness(call) == WORDS.index("never"), call


def test_a_workspace_that_is_not_the_same_and_a_call_that_is_less_safe_are_never_laxer() -> None:
    for call in every_call():
        if call.workspace != "same":
            assert strictness(call) >= strictness(call._replace(workspace="same")), call
        if call.idempotency != "safe":
            assert strictness(call) >= strictness(call._replace(idempotency="safe")), call
        if call.idempotency == "unsafe":
            assert strictness(call) >= strictness(call._replace(idempotency="conditional")), call
        if call.process != "gone":
            assert strictness(call) >= strictness(call._replace(process="gone")), call
        if call.policy_now != "allows":
            assert strictness(call) >= strictness(call._replace(policy_now="allows")), call


def test_what_may_have_run_runs_again_only_by_three_rules() -> None:
    for call in every_call():
        rule = rule_of(call)
        if call.may_have_started and rule.may == "run":
            assert rule.name in ("M10", "M13", "M17"), call
        if call.may_have_started and call.resume_policy == "never-rerun" and rule.name != "M10":
            assert rule.may == "never", call
        if call.stage not in CLOSED:
            if call.worker == "other" or call.policy_now == "denies":
                assert rule.may == "never", call
            assert rule.may != "read_result", call


@pytest.mark.parametrize(
    ("more", "may", "why"),
    [
        ({}, "check_then_run", "look_first"),
        ({"idempotency": "safe"}, "run", "safe"),
        ({"idempotency": "conditional"}, "check_then_run", "look_first"),
        ({"idempotency": "a word of its own"}, "check_then_run", "look_first"),
        ({"side_effect": "read"}, "run", "nothing_to_repeat"),
        ({"side_effect": "workspace-write"}, "ask_user", "may_have_run"),
    ],
)
def test_the_gate_finds_the_facts(more: dict[str, Any], may: str, why: str) -> None:
    log = Log()
    log.submit("t")
    risk = {"side_effect": "external-write", "resume_policy": "rerun-after-check"}
    log.tool("t", "c", "started", **(risk | more))
    log.tool("t", "d", "started", "finished", **risk)
    told = [(one["call_id"], one["may"], one["why"]) for one in resume(log.events)["calls"]]
    assert told == [("c", may, why), ("d", "read_result", "settled")]


def test_older_words_are_no_laxer_than_they_were() -> None:
    """A client of 0.1.0 knows `replay` and `rerun_after_check`, and nothing of idempotency."""
    for side_effect, policy, more, word in (
        ("read", "rerun-after-check", {}, "rerun_after_check"),
        ("read", "replay-from-event", {}, "replay"),
        ("external-write", "rerun-after-check", {"idempotency": "safe"}, "rerun_after_check"),
        ("external-write", "replay-from-event", {}, "ask_user"),
        ("external-write", "replay-from-event", {"idempotency": "safe"}, "ask_user"),
    ):
        log = Log()
        log.submit("t")
        log.tool("t", "c", "started", side_effect=side_effect, resume_policy=policy, **more)
        (tool,) = resume(log.events)["tools"]
        assert tool["may"] == word
        assert "why" not in tool


NOW_MS = 2_000_000_000_000


@pytest.mark.parametrize(
    ("said", "may", "action"),
    [
        ({}, "run", "run_tool"),
        ({"expires_at": 2_000_000_000.5}, "run", "run_tool"),
        ({"expires_at": 2_000_000_000}, "ask_user", "decide_tool"),
        ({"expires_at": 0}, "ask_user", "decide_tool"),
        ({"expires_at": "tomorrow"}, "ask_user", "decide_tool"),
        ({"expires_at": None}, "run", "run_tool"),
        ({"scope": {"tool": "bash", "arguments": {"to": "b", "at": 1}}}, "run", "run_tool"),
        ({"scope": {"arguments": {"to": "c", "at": 1}}}, "ask_user", "decide_tool"),
        ({"scope": {"environment": "prod"}}, "ask_user", "decide_tool"),
        ({"scope": "just this once"}, "run", "run_tool"),
    ],
)
def test_a_grant_grows_old_and_is_for_what_it_names(
    said: dict[str, Any], may: str, action: str
) -> None:
    log = Log()
    log.submit("t")
    risk = {"side_effect": "external-write", "resume_policy": "never-rerun"}
    log.tool("t", "c", **risk, arguments={"at": 1, "to": "b"})
    log.add("tool_approval", {"call_id": "c", "state": "granted", **said}, turn="t")
    gate = resume(log.events, now_ms=NOW_MS)
    (call,) = gate["calls"]
    assert (call["may"], gate["status"]) == (may, "blocked" if may == "ask_user" else "ok")
    if may == "ask_user":
        assert call["why"] == gate["reasons"][0]["code"] == "approval_stale"
    assert pending(log.events, now_ms=NOW_MS)[-1]["action"] == action
    assert resume(log.events)["status"] == ("blocked" if "scope" in said else "ok") or may == "run"


def test_a_grant_behind_the_start_lets_it_run_again_once() -> None:
    log = Log()
    log.submit("t")
    log.tool("t", "c", "started", side_effect="external-write", resume_policy="never-rerun")
    of = {"turn": "t", "call_id": "c"}
    granted = {"of": of, "word": "granted", "expires_at": 2_000_000_001}
    assert resume(log.events)["calls"][0]["may"] == "never"
    log.add("tool_settled", granted, leaf=False)
    for now_ms, may, why in (
        (NOW_MS, "run", "granted"),
        (NOW_MS + 1000, "never", "may_have_run"),
    ):
        (call,) = resume(log.events, now_ms=now_ms)["calls"]
        assert (call["may"], call["why"]) == (may, why)
    assert resume(log.events, last_seq=9)["calls"][0]["may"] == "never", "a start may be lost"


@pytest.mark.parametrize(
    ("policy", "may", "why"),
    [
        ({}, "run", "never_started"),
        ({"tools": {"bash": "allow"}}, "run", "never_started"),
        ({"tools": {"bash": "ask"}}, "ask_user", "approval_stale"),
        ({"tools": {"*": "deny"}}, "never", "policy_denies"),
        ({"tools": {"*": "deny", "bash": "allow"}}, "run", "never_started"),
        (
            {"tools": {"bash": "allow"}, "calls": [{"turn": "t", "call_id": "c", "word": "deny"}]},
            "never",
            "policy_denies",
        ),
    ],
)
def test_a_policy_of_now_goes_before_what_was_granted(
    policy: dict[str, Any], may: str, why: str
) -> None:
    log = Log()
    log.submit("t")
    log.tool("t", "c", "approval:granted", side_effect="external-write")
    gate = resume(log.events, policy=policy)
    (call,) = gate["calls"]
    assert (call["may"], call["why"]) == (may, why)
    assert gate["status"] == ("ok" if may == "run" else "blocked")


@pytest.mark.parametrize(
    "policy",
    [
        {"bash": "allow"},
        {"tools": ["bash"]},
        {"tools": {"bash": "maybe"}},
        {"tools": {"bash": 1}},
        {"calls": {"c": "deny"}},
        {"calls": [{"call_id": "c", "word": "deny"}]},
        {"calls": [{"turn": "t", "call_id": "c", "word": None}]},
    ],
)
def test_a_policy_that_says_nothing_is_refused(policy: dict[str, Any]) -> None:
    with pytest.raises(BadArgument, match="policy"):
        resume([], policy=policy)


@pytest.mark.parametrize("effect", ["network", "process", "read", 7])
def test_a_finer_word_for_an_external_write_is_shown_and_judged_as_one(effect: object) -> None:
    log = Log()
    log.submit("t")
    risk = {"side_effect": "external-write", "resume_policy": "rerun-after-check"}
    log.tool("t", "c", "started", **risk, effect=effect)
    item = {"id": "d", "name": "put", "resume_policy": "rerun-after-check", "side_effect": effect}
    log.add("message", {"role": "assistant", "content": "", "tool_calls": [item]}, turn="t")
    gate = resume(log.events)
    is_finer = effect in ("network", "process")
    shown = effect if is_finer else "external-write"
    told = {one["call_id"]: (one["side_effect"], one["may"]) for one in gate["calls"]}
    assert told["c"] == (shown, "check_then_run")
    assert gate["tools"][0]["side_effect"] == "external-write", "0.1.0 has four words"
    said = (shown, "check_then_run") if is_finer else told["d"]
    assert told["d"] == said
    assert (told["d"][0] == "undeclared") == (effect == 7)
