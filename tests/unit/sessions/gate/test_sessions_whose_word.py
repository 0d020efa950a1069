"""Whose word counts of a call: the tool's own, a person's, a policy's; and what a grant is for."""

from __future__ import annotations

from typing import Any

import pytest
from session_log import Log

from walld.sessions.gate.pending import pending
from walld.sessions.gate.resume import resume
from walld.sessions.state.account import Unreleased
from walld.sessions.views.explanation import explain
from walld.sessions.views.messages import messages

PAYS = {"tool": "pay", "arguments": {"a": 1}, "side_effect": "external-write"}
NEVER = PAYS | {"resume_policy": "never-rerun"}
CHECKS = PAYS | {"resume_policy": "rerun-after-check"}
CONFIRMS = PAYS | {"resume_policy": "require-user-confirmation"}
FORMATS = ("openai", "anthropic")
NOW_MS = 2_000_000_000_000
NOT_RUN = "This call did not run."


@pytest.fixture
def log() -> Log:
    log = Log()
    log.submit("t")
    return log


def settle(log: Log, word: str, call_id: str = "c", turn: str | None = "t", **more: Any) -> None:
    of = {"turn": turn, "call_id": call_id} if turn else {"stream": "s", "call_id": call_id}
    log.add("tool_settled", {"of": of, "word": word} | more, leaf=False)


def finish(log: Log, text: str = "paid", **more: Any) -> None:
    log.add("tool_finished", {"call_id": "c", "result": text} | more, turn="t")


def fail(log: Log) -> None:
    finish(log, failed=True)


def observe(log: Log) -> None:
    log.add("observation", {"call_id": "c", "text": "paid"}, turn="t")


def answer(log: Log) -> None:
    log.add("message", {"role": "tool", "content": "paid", "tool_call_id": "c"}, turn="t")


def cut_off(log: Log) -> None:
    log.add("tool_finished", {"call_id": "c", "outcome": "timeout", "failed": True}, turn="t")


WORDS = {
    finish: ("done", "paid"),
    fail: ("failed", "paid"),
    observe: ("done", "paid"),
    answer: ("done", "paid"),
    cut_off: ("timeout", "This call was cut off (timeout); what it had done by then is not known."),
}


def sent(log: Log, *replies: Unreleased) -> list[str]:
    """What the model is told of the one call, in each format."""
    openai, anthropic = (messages(log.events, one, unreleased=replies) or [] for one in FORMATS)
    assert sum(len(one.get("tool_calls", ())) for one in openai) == 1, "the call goes, too"
    told = [one["content"] for one in openai if one["role"] == "tool"]
    blocks = [one for message in anthropic for one in message["content"]]
    told += [one["content"] for one in blocks if one["type"] == "tool_result"]
    return [one if isinstance(one, str) else one[0]["text"] for one in told]


def item(log: Log, *replies: Unreleased) -> dict[str, Any]:
    plain = messages(log.events, unreleased=replies) or []
    (one,) = [one for message in plain for one in message.get("tool_calls") or ()]
    return dict(one)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("said", [True, False])
def test_the_tools_own_word_goes_before_what_somebody_settled_before(
    log: Log, word: Any, said: bool
) -> None:
    if said:
        call = {"id": "c", "name": "pay", "arguments": {"a": 1}, "outcome": "unknown"}
        log.add("message", {"role": "assistant", "content": "", "tool_calls": [call]}, turn="t")
    log.tool("t", "c", "started", **NEVER)
    settle(log, "did_not_run")
    word(log)
    outcome, text = WORDS[word]
    assert sent(log) == [text, text]
    told = item(log)
    assert told["outcome"] == outcome
    assert told.get("synthetic") != "not_run"
    (done,) = explain(log.events)["done"]
    assert done["outcome"] == outcome
    (call,) = resume(log.events)["calls"]
    assert (call["outcome"], call["may"], call["settled"]) == (outcome, "read_result", None)


@pytest.mark.parametrize("word", WORDS)
def test_what_somebody_settles_behind_the_tools_word_counts(log: Log, word: Any) -> None:
    log.tool("t", "c", "started", **NEVER)
    word(log)
    settle(log, "did_not_run")
    assert sent(log) == [NOT_RUN, NOT_RUN]
    assert (item(log)["outcome"], item(log)["synthetic"]) == ("not_run", "not_run")
    assert explain(log.events)["done"][0]["outcome"] == "not_run"


def test_the_word_of_a_reply_stands_behind_what_was_settled(log: Log) -> None:
    """Also once it is a message."""
    call = {"id": "c", "name": "pay", "arguments": {"a": 1}, "outcome": "done", "result": "paid"}
    listed = [call | {"seq": 2}]
    message: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": listed}
    message |= {"_wal_stream": "s", "_wal_seq": 1}
    reply = Unreleased("s", "t", [message], False)
    settle(log, "did_not_run")
    assert sent(log, reply) == ["paid", "paid"]
    assert item(log, reply)["outcome"] == "done"
    log.add("message", message, turn="t")
    assert sent(log) == ["paid", "paid"]
    log.add("message_edit", {"target": log.events[-1].id, "message": message | {"content": "x"}})
    settle(log, "did_not_run")
    assert sent(log) == [NOT_RUN, NOT_RUN]
    log.add("message_edit", {"target": "e3", "message": message | {"content": "y"}})
    assert sent(log) == [NOT_RUN, NOT_RUN], "an edit says nothing new of it"


# --- a retry that did not run ---------------------------------------------------------------------


def retried(*stages: str, **risk: Any) -> Log:
    """A call that may have run, and its retry."""
    log = Log()
    log.submit("t")
    log.tool("t", "o", "started", **risk)
    log.add("turn_interrupted", {"reason": "x"}, turn="t")
    log.submit("u", message_id="m-t", retry_of="t")
    log.tool("u", "n", *stages, **risk)
    return log


@pytest.mark.parametrize(("risk", "may"), [(CHECKS, "check_then_run"), (NEVER, "never")])
def test_a_retry_that_did_not_run_closes_nothing(risk: dict[str, Any], may: str) -> None:
    log = retried("started", **risk)
    assert [one["call_id"] for one in resume(log.events)["calls"]] == ["n"]
    settle(log, "did_not_run", "n", "u")
    gate = resume(log.events)
    told = {one["call_id"]: (one["outcome"], one["may"]) for one in gate["calls"]}
    assert told["o"] == ("unknown", may)
    assert [one["call_id"] for one in gate["reasons"]] == ["o"]
    assert [one["call_id"] for one in explain(log.events)["unknown"]] == ["o"]
    assert "settle_tool" in [one["action"] for one in pending(log.events)]
    openai = [
        one["content"] for one in messages(log.events, "openai") or () if "tool" in one["role"]
    ]
    assert openai[0].startswith("No result was recorded")
    assert openai[1:] == [NOT_RUN]
    answered = {"role": "tool", "content": "it was skipped", "tool_call_id": "n"}
    log.add("message", answered, turn="u")
    assert resume(log.events)["status"] != "ok", "the application's own words are no run"
    log.add("tool_finished", {"call_id": "n", "result": "paid"}, turn="u")
    assert resume(log.events)["status"] == "ok", "it did run"


# --- a policy's yes -------------------------------------------------------------------------------


def decide(log: Log, verdict: str = "allow") -> None:
    log.add("tool_decision", {"call_id": "c", "verdict": verdict}, turn="t")


def approve(log: Log, state: str, **more: Any) -> None:
    log.add("tool_approval", {"call_id": "c", "state": state} | more, turn="t")


def judged(log: Log, **asked: Any) -> tuple[str, str, str, str]:
    (call,) = resume(log.events, now_ms=NOW_MS, **asked)["calls"]
    return call["state"], call["outcome"], call["may"], call["why"]


def test_a_policys_yes_is_no_persons(log: Log) -> None:
    log.tool("t", "c", **CONFIRMS)
    decide(log)
    assert judged(log) == ("intended", "pending", "ask_user", "approval_pending")
    assert pending(log.events)[-1]["action"] == "decide_tool"
    approve(log, "asked")
    decide(log)
    assert judged(log) == ("asked", "pending", "ask_user", "approval_pending")
    approve(log, "granted")
    decide(log)
    assert judged(log) == ("approved", "pending", "run", "never_started")
    decide(log, "deny")
    assert judged(log)[1:3] == ("denied", "read_result")
    decide(log)
    assert judged(log)[2] == "run", "it takes back its own no, and the person said yes"


@pytest.mark.parametrize("policy", [CONFIRMS, CHECKS])
@pytest.mark.parametrize("by", ["approval", "settle"])
def test_a_policys_yes_lifts_no_persons_no(log: Log, policy: dict[str, Any], by: str) -> None:
    log.tool("t", "c", **policy)
    if by == "settle":
        settle(log, "denied", note="no!")
    else:
        approve(log, "denied", reason="no!")
    decide(log)
    assert judged(log) == ("denied", "denied", "read_result", "settled")
    assert sent(log) == ["The user rejected pay: no!"] * 2
    assert explain(log.events)["refused"][0]["denied_by"] == "user"
    approve(log, "asked")
    decide(log)
    assert judged(log)[2] == "ask_user", "who was asked anew has not said"
    approve(log, "granted")
    assert judged(log)[2] == "run"


@pytest.mark.parametrize("stale", [{"expires_at": 1}, {"scope": {"tool": "mail"}}])
@pytest.mark.parametrize("policy", [CONFIRMS, CHECKS])
def test_a_policys_yes_renews_no_grant(
    log: Log, stale: dict[str, Any], policy: dict[str, Any]
) -> None:
    log.tool("t", "c", **policy)
    approve(log, "granted", **stale)
    decide(log)
    assert judged(log)[2:] == ("ask_user", "approval_stale")


def test_a_policys_yes_counts_where_the_call_leaves_it_to_a_policy(log: Log) -> None:
    log.tool("t", "c", **CHECKS)
    for verdict, may in (("ask", "ask_user"), ("allow", "run"), ("deny", "read_result")):
        decide(log, verdict)
        assert judged(log)[2] == may
    decide(log)
    assert judged(log) == ("approved", "pending", "run", "never_started")
    log.add("tool_started", {"call_id": "c"}, turn="t")
    assert judged(log)[1:3] == ("unknown", "check_then_run")


def test_a_start_behind_a_persons_no_is_of_that_call(log: Log) -> None:
    """What the journal takes is what happened, whoever forbade it."""
    log.tool("t", "c", **CHECKS)
    approve(log, "denied")
    decide(log)
    log.add("tool_started", {"call_id": "c"}, turn="t")
    assert judged(log) == ("started", "unknown", "never", "may_have_run")


def test_a_retry_has_the_grant_whatever_its_policy_said_of_it() -> None:
    log = retried(**CONFIRMS)
    settle(log, "granted", "o")
    log.add("turn_interrupted", {"reason": "x"}, turn="u")
    log.submit("v", message_id="m-t", retry_of="u")
    log.tool("v", "n", **CONFIRMS)
    log.add("tool_decision", {"call_id": "n", "verdict": "allow"}, turn="v")
    assert {one["turn"]: one["may"] for one in resume(log.events)["calls"]}["v"] == "run"


# --- a policy of now, and what is granted of a call without an intent -----------------------------


def test_what_was_allowed_and_is_asked_anew_need_not_have_expired(log: Log) -> None:
    log.tool("t", "c", **CHECKS)
    approve(log, "granted", expires_at=NOW_MS, scope={"tool": "pay"})
    asks = {"tools": {"pay": "ask"}}
    gate = resume(log.events, now_ms=NOW_MS, policy=asks)
    told = explain(log.events, now_ms=NOW_MS, policy=asks)
    texts = [gate["reasons"][0]["message"], told["may"][0]["what"]]
    assert gate["calls"][0]["why"] == "approval_stale"
    assert all("or the policy that was given asks anew" in text for text in texts)


@pytest.mark.parametrize("turn", ["t", None])
@pytest.mark.parametrize("gone", [{"expires_at": 1}, {"scope": {"tool": "mail"}}])
def test_a_stale_grant_of_a_call_that_was_only_said_may_be_given_again(
    log: Log, turn: str | None, gone: dict[str, Any]
) -> None:
    call = {"id": "c", "name": "pay", "arguments": '{"a": 1}', "outcome": "unknown"}
    call |= {"side_effect": "external-write", "resume_policy": "never-rerun"}
    said = {"role": "assistant", "content": "", "tool_calls": [call], "_wal_stream": "s"}
    log.add("message", said | {"_wal_seq": 1}, **({"turn": turn} if turn else {}))
    before = resume(log.events, now_ms=NOW_MS)
    assert before["calls"][0]["settle"] == ["ran", "did_not_run", "granted"]
    settle(log, "granted", turn=turn, **gone)
    gate = resume(log.events, now_ms=NOW_MS)
    assert gate["calls"][0]["settle"] == ["ran", "did_not_run", "granted"]
    assert gate["reasons"][0]["message"] == before["reasons"][0]["message"]
    assert pending(log.events, now_ms=NOW_MS)[-1]["action"] == "settle_tool"
    commands = explain(log.events, now_ms=NOW_MS)["may"][0]["commands"]
    assert any(one["command"].endswith("--grant") for one in commands)
    settle(log, "granted", turn=turn)
    assert resume(log.events, now_ms=NOW_MS)["calls"][0]["why"] == "granted"


SAID = {"side_effect": "network", "resume_policy": "never-rerun", "key": "k"}


@pytest.mark.parametrize(
    ("scope", "fits"),
    [
        ({"tool": "pay"}, True),
        ({"call_id": "c", "arguments": {"a": 1}}, True),
        ({"side_effect": "network", "resume_policy": "never-rerun", "key": "k"}, True),
        ({"tool": "mail"}, False),
        ({"arguments": {"a": 2}}, False),
        ({"idempotency": "safe"}, False),
        ({"environment": "prod"}, False),
    ],
)
@pytest.mark.parametrize("is_kept", [True, False])
def test_a_scope_is_of_what_said_the_call(
    log: Log, scope: dict[str, Any], fits: bool, is_kept: bool
) -> None:
    """is_kept: the message is there; else what is left of the reply, with a hash."""
    if is_kept:
        call = {"id": "c", "name": "pay", "arguments": '{"a": 1}', "outcome": "unknown"} | SAID
        log.add("message", {"role": "assistant", "content": "", "tool_calls": [call]}, turn="t")
    else:
        hashed = "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"
        call = {"call_id": "c", "name": "pay", "outcome": "unknown", "arguments_hash": hashed}
        log.add("model_call", {"stream": "s", "calls": [call | SAID]}, turn="t", leaf=False)
    settle(log, "granted", scope=scope)
    assert (resume(log.events)["status"] == "ok") == fits
