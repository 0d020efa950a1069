"""A session explained: what is told of it, and how much of long texts."""

from __future__ import annotations

from typing import Any

import pytest
from session_log import INTENT, Log

from walld.cli.query.explain_page import render_explanation
from walld.sessions.gate.pending import pending
from walld.sessions.gate.workers import Worker
from walld.sessions.state.account import Unreleased
from walld.sessions.views.explanation import explain

DEPLOY = {"tool": "deploy", "arguments": {"to": "prod"}, "side_effect": "external-write"}


def named(rows: list[dict[str, Any]]) -> list[str]:
    return [one["call_id"] for one in rows]


def test_each_call_stands_under_one_heading() -> None:
    log = Log()
    log.submit("t")
    log.tool("t", "done", "started", "finished", **INTENT)
    log.tool("t", "failed", "started", "finished:failed", **INTENT)
    log.tool("t", "denied", "approval:denied", **INTENT)
    log.tool("t", "unknown", "started", **DEPLOY | {"resume_policy": "never-rerun"})
    log.tool("t", "pending", **INTENT | {"tool": "later"})
    log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t")
    told = explain(log.events, session="s")
    found = {name: named(told[name]) for name in ("done", "refused", "replaced", "unknown")}
    assert found == {
        "done": ["done", "failed"],
        "refused": ["denied"],
        "replaced": [],
        "unknown": ["unknown"],
    }
    assert [(one["call_id"], one["action"]) for one in told["may"]] == [
        ("unknown", "settle"),
        ("pending", "run"),
        (None, "resume"),
    ]
    assert told["unknown"][0]["since_ms"] == told["may"][0]["since_ms"] == 11_000
    assert told["asked"][0]["ended_at_ms"] == 13_000


SAID_BEFORE = {"said": "I deploy now.", "answer": None}
ITS_ANSWER = {"said": None, "answer": "It is up."}


def asks(log: Log, content: str = "I deploy now.", **more: Any) -> None:
    call = {"id": "c", "name": "deploy", "arguments": {"to": "prod"}}
    message = {"role": "assistant", "content": content, "tool_calls": [call]} | more
    log.add("message", message, turn="t")


@pytest.mark.parametrize(
    ("types", "then", "told"),
    [
        (None, None, SAID_BEFORE),  # a message alone says the call
        (("approval:asked",), None, SAID_BEFORE),
        (("started",), None, SAID_BEFORE),
        (("started", "finished", "observation"), None, SAID_BEFORE),  # the model has yet to see it
        (("started", "finished", "observation"), "It is up.", ITS_ANSWER),
        (("started",), "It is up.", {"said": "It is up.", "answer": None}),  # a call is open
    ],
)
def test_what_the_model_said_before_its_call_is_no_answer(
    types: tuple[str, ...] | None, then: str | None, told: dict[str, Any]
) -> None:
    log = Log()
    log.submit("t", "deploy it")
    asks(log)
    if types is not None:
        log.tool("t", "c", *types, **DEPLOY, resume_policy="require-user-confirmation")
    if then is not None:
        log.add("message", {"role": "assistant", "content": then}, turn="t")
    log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t")
    view = explain(log.events)
    (row,) = view["asked"]
    assert {name: row[name] for name in told} == told
    assert (view["gate"]["boundary"] == "answered") == (row["answer"] is not None)
    drawn = render_explanation(view, width=80, colour=False)
    assert ("answered:" in drawn, "said:" in drawn) == (bool(row["answer"]), bool(row["said"]))


def test_the_words_of_a_turn_that_goes_on_are_no_answer_unless_it_was_completed() -> None:
    log = Log()
    log.submit("t", "deploy it")
    log.add("message", {"role": "assistant", "content": "It is up."}, turn="t")
    step = {"role": "assistant", "content": "And n", "_wal_stream": "r", "_wal_seq": 1}
    goes_on = Unreleased("r", "t", [step], status="crashed", owner_alive=False)
    (row,) = explain(log.events, replies=[goes_on])["asked"]
    assert (row["answer"], row["said"]) == (None, "It is up.")
    log.tool("t", "c", **DEPLOY)
    (row,) = explain(log.events)["asked"]
    assert (row["answer"], row["said"]) == (None, "It is up."), "it began a call behind them"
    log.add("turn_completed", {}, turn="t")
    (row,) = explain(log.events)["asked"]
    assert (row["answer"], row["said"]) == ("It is up.", None)


def test_words_that_were_cut_before_a_call_are_said_and_cut() -> None:
    log = Log()
    log.submit("t", "deploy it")
    asks(log, _partial=True)
    view = explain(log.events)
    (row,) = view["asked"]
    assert (row["said"], row["answer"], row["answer_partial"]) == ("I deploy now.", None, True)
    assert "said, cut off:" in render_explanation(view, width=80, colour=False)


@pytest.mark.parametrize("policy", ["never-rerun", "require-user-confirmation"])
def test_a_call_that_never_started_before_a_message_that_was_answered_is_taken_off(
    policy: str,
) -> None:
    """No turn is left to resume: `--grant` changed nothing, and pending said run_tool for ever."""
    log = Log()
    log.submit("t", "first")
    log.tool("t", "c", **DEPLOY, resume_policy=policy)
    log.add("turn_interrupted", {"reason": "user"}, turn="t")
    log.submit("t2", "second")
    log.add("message", {"role": "assistant", "content": "so"}, turn="t2")
    log.add("turn_completed", {}, turn="t2")
    of = {"turn": "t", "call_id": "c"}
    if policy != "never-rerun":
        told = explain(log.events, session="s")
        assert (told["state"], [one["action"] for one in told["may"]]) == ("waits", ["decide"])
        assert [one["action"] for one in pending(log.events)] == ["decide_tool"]
        log.add("tool_settled", {"of": of, "word": "granted"}, leaf=False)
    told = explain(log.events, session="s")
    assert (told["state"], pending(log.events)) == ("done", [])
    (row,) = told["may"]
    assert (row["action"], row["code"]) == ("settle", "never_started")
    assert [one["command"] for one in row["commands"]] == ["walld session settle s c --did-not-run"]
    drawn = render_explanation(told, width=100, colour=False)
    assert "session s:  done  nothing is to be done" in drawn
    assert "no turn is left to run it" in drawn
    assert "who resumes" not in drawn
    assert "effect: external-write" in drawn
    log.add("tool_settled", {"of": of, "word": "did_not_run"}, leaf=False)
    told = explain(log.events, session="s")
    assert (told["state"], told["may"], pending(log.events)) == ("done", [], [])
    log.submit("t3", "third")
    assert [one["action"] for one in pending(log.events)] == ["answer_turn"]


def test_what_may_run_while_a_turn_stands_to_be_resumed_is_of_who_resumes() -> None:
    log = Log()
    log.submit("t", "first")
    log.tool("t", "c", **DEPLOY, resume_policy="never-rerun")
    log.add("turn_interrupted", {"reason": "user"}, turn="t")
    log.submit("t2", "second")
    log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t2")
    assert [one["action"] for one in explain(log.events)["may"]] == ["run", "resume"]
    assert [one["action"] for one in pending(log.events)] == ["decide_tool", "answer_turn"]


def test_who_refused_why_it_is_asked_and_what_waits_to_be_said() -> None:
    log = Log()
    log.submit("t")
    log.tool("t", "no", **INTENT)
    log.add("tool_approval", {"call_id": "no", "state": "denied", "by": "ann"}, turn="t")
    log.tool("t", "barred", **INTENT)
    barred = {"call_id": "barred", "verdict": "deny", "policy": "p1", "reason": "never here"}
    log.add("tool_decision", barred, turn="t")
    log.tool("t", "ask", **INTENT)
    asks = {"call_id": "ask", "verdict": "ask", "reason": "it touches production"}
    log.add("tool_decision", asks, turn="t")
    log.add("tool_approval", {"call_id": "ask", "state": "asked"}, turn="t")
    log.add("queued", {"content": "and then?", "kind": "input"}, turn="t")
    log.add("lifecycle", {"state": "paused", "reason": "lunch"}, turn="t")
    told = explain(log.events)
    refused = [
        (one["denied_by"], one["denied_by_name"], one["denied_because"]) for one in told["refused"]
    ]
    assert refused == [("user", "ann", None), ("policy", "p1", "never here")]
    assert [(one["call_id"], one["asked_because"]) for one in told["may"]] == [
        ("ask", "it touches production"),
        (None, None),
    ]
    assert [(one["kind"], one["content"]) for one in told["queued"]] == [("input", "and then?")]
    assert (told["lifecycle"]["state"], told["lifecycle"]["reason"]) == ("paused", "lunch")


def test_a_call_whose_place_a_retry_took_is_told_with_that() -> None:
    log = Log()
    log.submit("t")
    log.tool("t", "c1", "started", **DEPLOY | {"resume_policy": "rerun-after-check"})
    log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t")
    log.add(
        "turn_submitted",
        {"message_id": "m-t", "content": "hello", "retry_of": "t"},
        turn="u",
    )
    log.tool("u", "k9", "started", "finished", **DEPLOY | {"resume_policy": "rerun-after-check"})
    told = explain(log.events)
    assert (named(told["done"]), named(told["replaced"]), told["unknown"]) == (["k9"], ["c1"], [])
    assert told["replaced"][0]["replaced_by"] == "k9"
    assert [one["retry_of"] for one in told["asked"]] == [None, "t"]


def test_a_call_at_work_runs_and_is_not_unknown() -> None:
    log = Log()
    log.submit("t")
    log.tool("t", "c", "started", **DEPLOY | {"resume_policy": "never-rerun"})
    told = explain(log.events, workers=[Worker("t", None, 7, 0, is_asker=False, is_seen=True)])
    assert (told["state"], named(told["running"]), told["unknown"]) == ("live", ["c"], [])
    assert [(one["action"], one["commands"]) for one in told["may"]] == [("wait", [])]


def test_the_last_verification_of_a_name_counts() -> None:
    log = Log()
    log.submit("t")
    for name, ok in (("tests", False), ("lint", True), ("tests", True), (None, True)):
        log.add("verification", {"ok": ok} | ({} if name is None else {"name": name}), turn="t")
    told = [
        (one["said"].get("name"), one["said"]["ok"], one["before"])
        for one in explain(log.events)["verified"]
    ]
    assert told == [("lint", True, 0), ("tests", True, 1), (None, True, 0)]


def test_what_was_spent_is_the_last_budget_and_all_tokens() -> None:
    log = Log()
    assert explain(log.events)["spent"] == {
        "budget": None,
        "exhausted": False,
        "model_calls": 0,
        "models": [],
        "usage": {},
    }
    log.add("budget", {"remaining": 3})
    log.add("budget", {"remaining": 0})
    given = {"input_tokens": 10, "cached": True, "by": "x"}, {"input_tokens": 5}, None, "x"
    for step, used in enumerate(given):
        payload: dict[str, Any] = {"stream": "r", "step": step, "at_ms": 1, "calls": []}
        payload |= {"model": "m1", "usage": used}
        log.add("model_call", payload, leaf=False)
    log.add("model_call", {"an application's": "own"}, leaf=False)
    assert explain(log.events)["spent"] == {
        "budget": {"remaining": 0},
        "exhausted": True,
        "model_calls": 4,
        "models": ["m1"],
        "usage": {"input_tokens": 15},
    }


def test_long_texts_are_cut_and_their_length_is_told() -> None:
    log = Log()
    log.submit("t", "x" * 3000)
    arguments = {"text": "y" * 3000}
    log.add("tool_intent", {"call_id": "c", "arguments": arguments, **INTENT}, turn="t")
    log.add("tool_started", {"call_id": "c"}, turn="t")
    log.add("tool_finished", {"call_id": "c", "result": "z" * 3000}, turn="t")
    log.add("message", {"role": "assistant", "content": "w" * 3000}, turn="t")
    told = explain(log.events)
    (asked,), (done,) = told["asked"], told["done"]
    assert (asked["content"], asked["content_cut"]) == ("x" * 1024, 3000)
    assert (asked["answer"], asked["answer_cut"]) == ("w" * 1024, 3000)
    assert (done["result"], done["result_cut"]) == ("z" * 1024, 3000)
    assert (done["arguments"][:12], done["arguments_cut"]) == ('{"text": "yy', 3012)


def test_what_a_reply_says_is_whole() -> None:
    text = "w" * 3000
    said = [{"role": "assistant", "content": text, "_wal_stream": "r", "_wal_seq": 1}]
    told = explain([], replies=[Unreleased("r", None, said, has_ended=False)], session="s")
    (row,) = told["saying"]
    assert (row["text"], row["partial"], told["state"]) == (text, True, "cut")
    assert told["asked"] == told["done"] == told["unknown"] == []


def test_calls_of_a_reply_have_what_their_journal_says_and_its_steps_stand_apart() -> None:
    log = Log()
    log.submit("t")
    risk = {"side_effect": "external-write", "resume_policy": "never-rerun"}
    for number, words in enumerate([("started", "finished"), ("approval:denied",), ("started",)]):
        log.tool("t", f"c{number}", *words, tool="sh", arguments={"a": number}, **risk)

    def step(seq: int, text: str, *numbers: int) -> dict[str, Any]:
        calls = [
            {"id": f"c{one}", "name": "sh", "arguments": f'{{"a":{one}}}', "outcome": "unknown"}
            | {"seq": seq + 1, "at": 8, "result": None}
            for one in numbers
        ]
        told = {"role": "assistant", "content": text, "reasoning": f"r{seq}", "tool_calls": calls}
        return told | {"_wal_stream": "r", "_wal_seq": seq}

    said = [step(1, "I look. Now", 0), step(5, " then", 1), step(9, "so", 2)]
    reply = Unreleased("r", "t", said, has_ended=False)
    told = explain(log.events, replies=[reply])
    (row,) = told["saying"]
    assert row["text"] == "I look. Now then\n\nso"
    assert row["reasoning"] == "r1\n\nr5\n\nr9"
    assert [one["outcome"] for one in row["calls"]] == ["done", "denied", "unknown"]


def test_content_of_blocks_is_told_as_text() -> None:
    log = Log()
    blocks = [{"type": "text", "text": "look"}, {"type": "image", "source": "..."}, "there", 5]
    log.say("user", blocks)
    log.say("assistant", "I see")
    log.say("assistant", [{"type": "tool_use", "id": "c", "name": "n", "input": {}}])
    (row,) = explain(log.events)["asked"]
    assert (row["content"], row["turn"]) == ("look\n[image]\nthere\n5", None)
    assert (row["answer"], row["said"]) == (None, "I see"), (
        "a call alone makes what it follows none"
    )


def test_notes_say_what_is_not_there() -> None:
    log = Log()
    log.add("forked", {"session": "a", "at": "e5"})
    log.add("imported", {"begun": "e5", "missing": [[2, 3]]})
    log.add("imported", {"ended": "e5"})
    first = log.say("user", "hello")
    log.say("user", "again")
    log.add("compaction", {"summary": "greetings", "first_kept": first})
    log.add("reply_expired", {"stream": "r", "characters": 5, "calls": 0}, leaf=False)
    log.add("reply_expired", {"an application's": "own"}, leaf=False)
    broken = {"first_seq": 9, "last_seq": 10, "offset": 1, "why": "crc", "seam": False}
    told = explain(log.events, breaks=[broken], session="it's")
    assert [(one["kind"], one["at_ms"]) for one in told["notes"]] == [
        ("fork", 1000),
        ("import", 2000),
        ("expired", 7000),
        ("compaction", 6000),
        ("damage", None),
    ]
    damaged = next(one for one in told["may"] if one["code"] == "session_damaged")
    assert [one["command"] for one in damaged["commands"]] == [
        "walld fsck DATA",
        """walld session repair 'it'"'"'s' --data DATA""",
    ]


def test_an_undone_message_says_so() -> None:
    log = Log()
    log.say("user", "hello")
    log.say("user", "no")
    log.add("undo", {"n": 1})
    assert [one["gone"] for one in explain(log.events)["asked"]] == ["", "undone"]


def test_a_reply_that_no_message_has_is_named_and_how_it_went() -> None:
    log = Log()
    for turn, streams in (("a", "rs"), ("b", "x"), ("c", "yz")):
        log.submit(turn)
        for stream in streams:
            log.add("turn_assistant_started", {"stream_id": stream}, turn=turn)
    log.add("message", {"role": "assistant", "content": "here", "_wal_stream": "r"}, turn="a")
    log.add("model_call", {"stream": "x", "calls": [], "answer": True}, turn="b", leaf=False)
    log.add("reply_expired", {"stream": "y", "characters": 9, "calls": 0}, turn="c", leaf=False)
    log.add("reply_expired", {"stream": "alone", "characters": 9, "calls": 0}, leaf=False)
    saying = Unreleased("z", "c", [{"role": "assistant", "content": "so far"}], False)
    told = explain(log.events, replies=[saying])["said_elsewhere"]
    assert told == [
        {"stream_id": "s", "turn": "a", "how": "taken"},
        {"stream_id": "x", "turn": "b", "how": "answered"},
        {"stream_id": "y", "turn": "c", "how": "expired"},
        {"stream_id": "alone", "turn": None, "how": "expired"},
    ]
    log.add("forked", {"session": "source"})
    assert [one["stream_id"] for one in explain(log.events)["said_elsewhere"]] == ["y", "alone"]


def test_that_it_came_with_a_fork_or_an_import_is_noted_once() -> None:
    log = Log()
    for at in ("e1", "e1", "e2"):
        log.add("forked", {"session": "source", "at": at}, leaf=False)
    kinds = [(one["kind"], one["at"]) for one in explain(log.events)["notes"]]
    assert kinds == [("fork", "e1"), ("fork", "e2")]
