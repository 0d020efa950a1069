"""What names a call: the shortest that is of it alone, and never of another."""

from __future__ import annotations

from typing import Any

import pytest
from session_log import Log

from walld.sessions.gate.resume import resume
from walld.sessions.state.account import Unreleased
from walld.sessions.state.events import check_payload
from walld.sessions.views.messages import messages

ASKS = {"side_effect": "external-write", "resume_policy": "never-rerun"}


def call(name: str, **more: Any) -> dict[str, Any]:
    return {"id": "c1", "name": name, "arguments": {}, "outcome": "unknown"} | more


def said(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [*calls]} | more


def names(log: Log, replies: list[Unreleased] | None = None) -> list[tuple[int, dict[str, Any]]]:
    gate = resume(log.events, replies=replies or [])
    return [(one["n"], one["of"]) for one in gate["calls"] if one["may"] != "read_result"]


def settle(log: Log, of: dict[str, Any], word: str = "ran") -> None:
    log.add("tool_settled", {"of": of, "word": word}, leaf=False)


def test_a_call_whose_id_came_once_is_named_by_its_turn_or_reply() -> None:
    log = Log()
    log.submit("t")
    log.tool("t", "c1", "started", **ASKS)
    log.add("message", said(call("mail"), _wal_stream="s"))
    assert names(log) == [
        (1, {"turn": "t", "call_id": "c1"}),
        (2, {"stream": "s", "call_id": "c1"}),
    ]


def test_an_id_that_came_again_is_named_by_the_entry_or_the_place_in_the_reply() -> None:
    log = Log()
    log.submit("t")
    log.tool("t", "c1", "started", "finished", **ASKS)
    log.tool("t", "c1", "started", **ASKS)
    both = log.add("message", said(call("mail"), call("put")), turn="t")
    reply = Unreleased("s", "t", [said(call("get", seq=7), _wal_stream="s", _wal_seq=7)])
    of = {"turn": "t", "call_id": "c1"}
    told = [
        (2, of | {"entry": "e5"}),
        (3, of | {"entry": both}),
        (4, of | {"entry": both, "n": 2}),
        (5, of | {"stream": "s", "seq": 7, "step": 7, "place": 0}),
    ]
    assert names(log, [reply]) == told
    while told:
        settle(log, told.pop(1 if len(told) > 1 else 0)[1])
        assert names(log, [reply]) == told


def test_a_call_of_a_message_without_turn_and_reply_is_named_by_its_entry() -> None:
    log = Log()
    entry = log.add("message", said(call("mail"), call("put")))
    told = [
        (1, {"entry": entry, "call_id": "c1"}),
        (2, {"entry": entry, "call_id": "c1", "n": 2}),
    ]
    assert names(log) == told
    settle(log, told[0][1])
    assert names(log) == told[1:]


def test_a_call_that_ran_elsewhere_is_settled_as_one_that_is_here() -> None:
    """Its turn and id are also those of a call that is here: the word is of the one named."""
    log = Log()
    log.submit("t")
    log.tool("t", "c1", "started", **ASKS)
    told = {"turn": "t", "call_id": "c1", "tool": "pay", **ASKS}
    entry = log.add("forked", {"session": "other", "calls": [told]}, leaf=False)
    of = {"turn": "t", "call_id": "c1"}
    assert names(log) == [(1, of | {"entry": "e2"}), (2, of | {"entry": entry})]
    settle(log, of | {"entry": entry}, "granted")
    assert len(names(log)) == 2, "nobody said what became of it"
    settle(log, of | {"entry": entry}, "did_not_run")
    ((_, left),) = names(log)
    settle(log, left)
    assert names(log) == []
    again = log.add("imported", {"calls": [told]}, leaf=False)
    assert [one for _, one in names(log)] == [of | {"entry": again}], "it was told anew"


@pytest.mark.parametrize(
    ("had", "more", "words"),
    [
        (("started",), {}, "--ran` (or --did-not-run, --grant)"),
        (("approval:asked",), {}, "--grant` (or --deny)"),
        (("approval:asked",), {"policy": {"tools": {"*": "deny"}}}, "--deny`"),
        (("started",), {"policy": {"tools": {"*": "deny"}}}, "--ran` (or --did-not-run)"),
        (("started",), {"last_seq": 9}, "--ran` (or --did-not-run)"),
    ],
)
def test_a_reason_has_the_command_that_settles_its_call(
    had: tuple[str], more: dict[str, Any], words: str
) -> None:
    log = Log()
    log.submit("t")
    log.tool("t", "c 1", *had, **ASKS)
    (reason,) = resume(log.events, session="chat/1 b", **more)["reasons"]
    assert reason["message"].endswith(f": `walld session settle 'chat/1 b' 'c 1' {words}")


def test_a_command_says_which_of_several_calls_it_is() -> None:
    log = Log()
    for turn in ("t", "t2"):
        log.submit(turn)
        log.add("message", said(call("mail")), turn=turn)
    log.add("message", said(call("put")), turn="t2")
    log.add("message", said(call("get"), _wal_stream="s"))
    log.add("message", said(call("list")))
    reasons = resume(log.events)["reasons"]
    assert [one["message"].rpartition("c1 ")[2].partition(" --ran")[0] for one in reasons] == [
        "--turn t",
        "--turn t2 --n 2",
        "--turn t2 --n 3",
        "--stream s",
        "--n 5",
    ]


@pytest.mark.parametrize(
    ("given", "told", "cut"),
    [
        ({"to": "b"}, {"to": "b"}, None),
        (None, None, None),
        ("{half", "{half", None),
        ("x" * 1024, "x" * 1024, None),
        ("x" * 1025, "x" * 1024, 1025),
        ({"to": "x" * 2000}, '{"to": "' + "x" * 1016, 2010),
    ],
)
def test_a_call_of_the_gate_has_its_arguments(given: Any, told: Any, cut: int | None) -> None:
    log = Log()
    log.submit("t")
    log.tool("t", "c", "started", arguments=given, **ASKS)
    gate = resume(log.events)
    (row,) = gate["calls"]
    assert (row["arguments"], row["arguments_cut"]) == (told, cut)
    assert "arguments" not in gate["tools"][0]


def test_what_an_older_client_kept_beside_did_not_run_is_no_result() -> None:
    log = Log()
    log.submit("t")
    log.tool("t", "c1", "started", **ASKS)
    ((_, of),) = names(log)
    log.add("tool_settled", {"of": of, "word": "did_not_run", "result": "x"}, leaf=False)
    (call,) = (messages(log.events) or [])[-1]["tool_calls"]
    assert (call["outcome"], call["synthetic"]) == ("not_run", "not_run")
    assert call["result"] == "This call did not run."
    log.add("tool_settled", {"of": of, "word": "ran", "result": "y"}, leaf=False)
    (call,) = (messages(log.events) or [])[-1]["tool_calls"]
    assert (call["outcome"], call["result"]) == ("done", "y")


@pytest.mark.parametrize("word", ["ran", "did_not_run"])
def test_a_call_behind_which_lines_are_lost_is_settled(word: str) -> None:
    log = Log()
    log.submit("t")
    log.tool("t", "c1", **ASKS)
    log.state.last_seq += 2  # two lines are lost
    log.add("turn_interrupted", {"reason": "x"}, turn="t")
    ((_, of),) = names(log)
    settle(log, of, "granted")
    assert names(log) == [(1, of)], "nobody said what became of it"
    settle(log, of, word)
    assert names(log) == []


@pytest.mark.parametrize(
    "of",
    [
        {},
        {"entry": ""},
        {"entry": "e", "stream": "s"},
        {"entry": "e", "seq": 1},
        {"entry": "e", "n": 1},
        {"stream": "s", "seq": "1"},
        {"stream": "s", "seq": True, "turn": "t"},
        {"turn": "t", "seq": 1},
        {"stream": "s", "step": 1},
        {"stream": "s", "place": 1},
        {"turn": "t", "stream": "s"},
    ],
)
def test_what_names_no_call_is_refused(of: dict[str, Any]) -> None:
    assert check_payload("tool_settled", {"of": of | {"call_id": "c"}, "word": "ran"})
