"""The transcript as a tree: branches, what stands on them, in the order of the log."""

from __future__ import annotations

import json

import pytest
from session_log import INTENT, Log

from walld.cli.page import columns
from walld.cli.session.show import render_show
from walld.cli.session.view import render_tree
from walld.sessions.state.account import Unreleased
from walld.sessions.views.transcript import transcript
from walld.sessions.views.tree import tree


def shown(log: Log, *unreleased: Unreleased) -> list[str]:
    """As the command shows it: both views went through JSON."""
    views = json.loads(json.dumps([transcript(log.events, unreleased), tree(log.events)]))
    drawn = render_show(views[0], "s", width=60, colour=False, tree=views[1])
    return [line for line in drawn.split("\n")[1:] if line.strip(" │")]


def said(log: Log, content: str, **more: str) -> str:
    return log.add("message", {"role": "assistant", "content": content}, **more)


def test_answers_and_tools_stand_in_the_order_of_the_log() -> None:
    log = Log()
    log.submit("t", "q")
    log.tool("t", "c1", "started", "finished")
    said(log, "one", turn="t")
    log.tool("t", "c2", "started")
    said(log, "two", turn="t")
    log.say("user", "loose")
    assert [line.strip() for line in shown(log)][1:] == [
        *("user", "q"),
        *("* bash  done  finished  1.0 s  c1", "=> done"),
        *("assistant", "one"),
        "* bash  unknown  started  c2",
        *("assistant", "two"),
        *("outside of any turn", "user", "loose"),
    ]


def test_a_call_of_a_reply_that_is_not_released_stands_at_the_end_of_its_turn() -> None:
    """It says so, and hides no call of its id that a message has."""
    log = Log()
    log.submit("t", "q")
    listed = [{"id": "c1", "name": "look", "arguments": {}, "outcome": "done"}]
    payload = {"role": "assistant", "content": "one", "tool_calls": listed}
    log.add("message", payload, turn="t")
    log.submit("t2", "more")
    item = {"id": "c1", "name": "deploy", "arguments": {"to": "prod"}, "outcome": "unknown"}
    message = {"role": "assistant", "content": "", "tool_calls": [item | {"seq": 1}]}
    message |= {"_wal_stream": "r", "_wal_seq": 1}
    lines = shown(log, Unreleased("r", "t", [message], status="live"))
    assert [line.strip() for line in lines][1:9] == [
        *("user", "q"),
        *("assistant", "one", "-> look({})  done"),
        *("* deploy  unknown  said", "c1  of reply r, live, not released"),
        '( {"to": "prod"}',
    ]
    assert lines[9] == "  = reply r  live  whole  owner gone  not released"
    assert lines[10].startswith("turn 2")


def test_branches_are_a_tree_with_their_names_and_what_was_left_says_so() -> None:
    log = Log()
    log.submit("t", "q")
    aside = said(log, "wrong", turn="t")
    log.tool("t", "c", "started")
    log.add("leaf", {"target": "e1", "name": "alt"})
    log.add("branch_summary", {"target": aside, "text": "it was wrong because " * 9})
    said(log, "right", turn="t")
    log.submit("t2", "more")
    lines = shown(log)
    assert lines[1:] == [
        "  user",
        "    q",
        "├─ branch",
        "│  turn 1 goes on",
        "│    assistant",
        "│      wrong",
        "│    * bash  unknown  started  c",
        "└─ branch alt, it stands here",
        "what the branch that was left came to",
        *(["    it was wrong because it was wrong because it was wrong"]),
        *(line for line in lines[11:14]),
        "turn 1 goes on",
        "  assistant",
        "    right",
        lines[17],
        "  user",
        "    more",
    ]
    assert lines[0].startswith("turn 1  submitted")
    assert "".join(lines[10:14]).count("because") == 9, "whole, not cut like a line of the tree"
    assert lines[17].startswith("turn 2  submitted")


def test_bookkeeping_is_no_branch() -> None:
    """What is left of a reply, and what somebody settled, make nothing that goes another way."""
    log = Log()
    log.submit("t", "q")
    log.add("turn_assistant_started", {"stream_id": "s"}, turn="t")
    left = {"call_id": "c1", "name": "deploy", "seq": 2, "outcome": "unknown"}
    log.add("model_call", {"stream": "s", "calls": [left]}, turn="t", leaf=False)
    said(log, "after", turn="t")
    settled = {"of": {"turn": "t", "call_id": "c1"}, "word": "ran"}
    log.add("tool_settled", settled, leaf=False)
    log.add("label", {"target": "e4", "text": "good"})
    log.say("user", "more")
    assert [line.strip() for line in shown(log)][1:] == [
        *("user", "q", "* deploy  done  said  c1", "settled: ran", "assistant", "after"),
        *("outside of any turn", "user", "more"),
    ]
    assert render_tree(tree(log.events), width=60).split("\n") == [
        "turn_submitted q (e1)",
        "turn_assistant_started (e2)",
        "model_call (e3)",
        "assistant after [good] (e4)",
        "tool_settled (e5)",
        "label good (e6)",
        "user more (e7) <- leaf",
    ]


def test_what_hangs_on_bookkeeping_is_a_branch() -> None:
    log = Log()
    log.submit("t", "q")
    settled = {"of": {"turn": "t", "call_id": "c1"}, "word": "ran"}
    log.add("tool_settled", settled, leaf=False)
    log.add("message", {"role": "user", "content": "there"}, parent="e2", leaf=False)
    log.say("user", "more")
    assert shown(log)[3:5] == ["├─ branch", "│  outside of any turn"]
    assert render_tree(tree(log.events), width=60).split("\n") == [
        "turn_submitted q (e1)",
        "├─ tool_settled (e2)",
        "│  user there (e3)",
        "└─ user more (e4) <- leaf",
    ]


def test_branches_of_branches_and_one_before_the_first_entry() -> None:
    log = Log()
    log.say("user", "a")
    log.say("user", "b")
    log.add("leaf", {"target": "e1"})
    log.say("user", "c")
    log.add("leaf", {"target": None, "name": "afresh"})
    begun = [line for line in shown(log) if "─" in line]
    assert begun == [
        "├─ branch",
        "│  ├─ branch",
        "│  └─ branch",
        "└─ branch afresh: nothing said yet, it stands here",
    ]
    log.say("user", "d")
    assert [line for line in shown(log) if "─" in line][-1] == "└─ branch afresh, it stands here"
    log.add("leaf", {"target": "e1"})
    assert "   └─ nothing said yet, it stands here" not in shown(log)
    begun = [line for line in shown(log) if "─" in line]
    assert begun == [
        "├─ branch afresh",
        "└─ branch, it stands here",
        "├─ branch",
        "├─ branch",
        "└─ nothing said yet, it stands here",
    ]


def test_a_branch_that_goes_straight_on_is_named_and_not_drawn_aside() -> None:
    log = Log()
    log.say("user", "a")
    log.add("leaf", {"target": "e1", "name": "here"})
    log.say("user", "b")
    assert "branch here" in shown(log)
    assert not any("─" in line for line in shown(log))


def test_where_the_leaf_stands_before_what_was_said_that_is_a_branch() -> None:
    log = Log()
    log.say("user", "a")
    log.say("user", "b")
    log.add("leaf", {"target": "e1"})
    assert [line for line in shown(log) if "─" in line] == [
        "├─ branch",
        "└─ nothing said yet, it stands here",
    ]
    log.add("setting", {"key": "k", "value": 1})
    assert [line for line in shown(log) if "─" in line] == [
        "├─ branch",
        "└─ nothing said yet, it stands here",
    ]


def test_a_thousand_branches_are_no_wider_than_one() -> None:
    log = Log()
    log.say("user", "0")
    for number in range(1000):
        at = log.events[-1].id if number == 0 else f"e{log.state.last_seq}"
        log.say("user", "left")
        log.add("leaf", {"target": at})
        log.say("user", "kept")
    assert max(map(len, shown(log))) < 60


def test_a_reply_that_was_said_anew_stands_where_it_first_stood() -> None:
    log = Log()
    log.submit("t", "q")
    for content in ("half", "between", "whole"):
        of = {} if content == "between" else {"_wal_stream": "s", "_wal_seq": 1}
        log.add("message", {"role": "assistant", "content": content, **of}, turn="t")
    assert [line.strip() for line in shown(log)][3:] == [
        *("assistant", "whole", "assistant", "between"),
    ]


@pytest.mark.parametrize("width", [30, 44, 80, 200])
def test_no_line_is_wider_than_the_terminal_whatever_it_is_about(width: int) -> None:
    long = "a long reason 漢字 " * 40
    log = Log()
    log.submit("turn " * 30, "q")
    log.tool("turn " * 30, "call " * 50, "started", "finished", tool="tool" * 40)
    log.add("turn_interrupted", {"reason": long}, turn="turn " * 30)
    first = log.say(long, "x " * 300)
    log.add("leaf", {"target": first, "name": long})
    log.say("user", "y")
    log.add("leaf", {"target": first})
    log.say("user", "z")
    log.add("label", {"target": first, "text": long})
    views = json.loads(json.dumps([transcript(log.events), tree(log.events)]))
    drawn = render_show(views[0], "s", width=width, colour=False, tree=views[1])
    margin = 3
    assert max(map(columns, drawn.split("\n"))) <= max(width, 30 + margin)
    assert "interrupted (a long" in drawn
    for line in render_tree(views[1], width=width).split("\n"):
        assert columns(line) <= max(width, 70), "ids are never cut"


def test_a_turn_and_a_tool_go_on_below_where_the_terminal_is_narrow() -> None:
    log = Log()
    log.submit("t", "q")
    log.tool("t", "c1", "started", "finished")
    log.add("turn_interrupted", {"reason": "the network was gone"}, turn="t")
    views = json.loads(json.dumps([transcript(log.events), tree(log.events)]))
    drawn = render_show(views[0], "s", width=34, colour=False, tree=views[1])
    assert drawn.split("\n")[2:] == [
        "turn 1",
        "  interrupted (the network was ...",
        "  1970-01-01 00:00:01Z  4.0 s",
        "  t",
        "  user",
        "    q",
        "  * bash  done  finished  1.0 s",
        "    c1",
        "    => done",
    ]


def test_what_is_attached_to_a_message_is_named() -> None:
    log = Log()
    named = {"_artifact": {"sha256": "0" * 64, "size": 9, "name": "p\x1b.png"}}
    log.submit("t", "q", attachments=[named, {"name": "a.pdf"}, {"url": "x"}, 1])
    assert [line.strip() for line in shown(log)][1:] == [
        *("user", "q", "+ p\\x1b.png, 9 bytes", "+ a.pdf", '+ {"url": "x"}', "+ 1"),
    ]


@pytest.mark.parametrize("width", [20, 30, 57, 80, 120])
@pytest.mark.parametrize("letter", ["o", "o ", "\N{CJK UNIFIED IDEOGRAPH-6F22}"])
def test_an_outcome_of_any_length_fits_the_terminal(width: int, letter: str) -> None:
    long = letter * 120
    call = {"id": "c", "function": {"name": long, "arguments": long}, "outcome": long}
    log = Log()
    log.add("message", {"role": "assistant", "content": "x", "tool_calls": [call]})
    call = {"id": "d", "function": {"name": "bash", "arguments": "{}"}, "outcome": "done"}
    log.add("message", {"role": "assistant", "content": "x", "tool_calls": [call]})
    views = json.loads(json.dumps([transcript(log.events), tree(log.events)]))
    drawn = render_show(views[0], "s", width=width, colour=False, tree=views[1])
    lines = drawn.split("\n")
    assert max(map(columns, lines)) <= max(width, 30)
    assert any(line.strip() == "-> bash({})  done" for line in lines)


def test_what_was_undone_edited_or_compacted_says_so() -> None:
    log = Log()
    log.say("user", "said first")
    said(log, "answer")
    log.add("message_edit", {"target": "e1", "message": {"role": "user", "content": "said so"}})
    log.add("undo", {"n": 1})
    log.submit("t", "of a turn")
    log.add("undo", {"n": 1})
    kept = log.say("user", "kept")
    log.add("compaction", {"summary": "all in all", "first_kept": kept})
    assert [line.strip() for line in shown(log)] == [
        *("outside of any turn", "user (edited)", "said so", "assistant (undone)", "answer"),
        *("~ edit of e1", "~ undo of 1 message"),
        *("turn 1  submitted  1970-01-01 00:00:05Z  t", "user (undone)", "of a turn"),
        *("~ undo of 1 message", "outside of any turn", "user", "kept"),
        f"~ compaction, kept from {kept}: all in all",
    ]
    new = {"role": "user", "content": "new"}
    log.add("message_edit", {"messages": [new, new]})
    log.add("message_edit", {"messages": [new], "append": True})
    log.add("compaction", {"replacement": [new]})
    log.add("undo", {"n": 2})
    lines = [line.strip() for line in shown(log)]
    assert lines[-3:] == [
        "~ edit: a list of 3 in place of all messages",
        "~ compaction: 1 in place of all messages so far",
        "~ undo of 2 messages",
    ]
    assert "user (replaced)" in lines


def test_what_a_list_took_the_place_of_says_so() -> None:
    log = Log()
    log.say("user", "before")
    log.add("message_edit", {"target": "e1", "message": {"role": "user", "content": "edited"}})
    log.add("message_edit", {"messages": []})
    assert [line.strip() for line in shown(log)][1:3] == ["user (edited, replaced)", "edited"]


def test_other_letters_are_shown_as_they_are() -> None:
    log = Log()
    log.submit("t", {"text": "帮我"})
    log.add(
        "tool_intent", INTENT | {"call_id": "c", "arguments": {"引数": "値\x1b[2J\ud83d"}}, turn="t"
    )
    log.add("tool_started", {"call_id": "c"}, turn="t")
    log.add("tool_finished", {"call_id": "c", "result": {"結果": "é"}}, turn="t")
    call = {"id": "d", "name": "rm", "arguments": {"p": "ü"}}
    log.add("message", {"role": "assistant", "content": "", "tool_calls": [call]})
    lines = [line.strip() for line in shown(log)]
    assert '{"text": "帮我"}' in lines
    assert r'( {"引数": "値\u001b[2J\ud83d"}' in lines
    assert '=> {"結果": "é"}' in lines
    assert '-> rm({"p": "ü"})' in lines


def test_a_list_that_goes_on_is_one_of_its_kind() -> None:
    """Whatever change came between: an undo, the edit of one message, a list on another branch."""
    one, two = {"role": "user", "content": "b"}, {"role": "user", "content": "c"}
    goes_on = {"messages": [two], "append": True}
    for first, counts in (
        ([("message_edit", {"target": "e1", "message": one})], [None, 1]),
        ([("message_edit", {"messages": [one]}), ("undo", {"n": 1})], [2, 1]),
    ):
        log = Log()
        log.say("user", "a")
        for type_, payload in [*first, ("message_edit", goes_on)]:
            log.stand(type_, payload)
        changes = [change for part in transcript(log.events) for change in part.get("changes", ())]
        assert [change.get("count") for change in changes] == counts


def test_an_entry_that_is_no_leaf_is_no_branch() -> None:
    """It stands at what it hangs on; bookkeeping is not drawn."""
    log = Log()
    log.submit("t", "q")
    log.add("my.note", {"n": 1}, leaf=False)
    log.add("setting", {"key": "k", "value": 1}, leaf=False)
    log.add("model_call", {"stream": "r", "step": 0, "calls": []}, leaf=False)
    said(log, "a", turn="t")
    assert [line.strip() for line in shown(log)][1:] == [
        *("user", "q"),
        '- my.note {"n": 1}',
        *("assistant", "a"),
    ]


def test_what_an_application_put_there_cannot_act_on_the_terminal() -> None:
    log = Log()
    log.submit("t", "q")
    log.add("my.note", {"text": "\x1b]0;owned\x07"}, turn="t")
    log.add("my.note", {"text": "\x1b[31m" + "x" * 5000}, turn="t")
    evil = {"role": "assistant", "content": "\x1b[31mred", "reasoning": "\x1b[32mgreen"}
    reply = Unreleased(
        "r\x1b", "t", [evil], unread="\x1b[31m", facts={"partial": True, "partial_reason": "\x1b"}
    )
    drawn = "\n".join(shown(log, reply))
    assert "owned" in drawn
    assert "green" in drawn
    assert "\x1b" not in drawn


@pytest.mark.parametrize("odd", [[], {}, None, "1", 2.5])
def test_what_an_application_calls_by_our_names_is_no_step_of_a_reply(odd: object) -> None:
    log = Log()
    log.submit("t", "q")
    kept = {"role": "assistant", "content": "kept", "_wal_stream": "r", "_wal_seq": odd}
    log.add("message", kept, turn="t")
    said = {"role": "assistant", "content": "said", "_wal_stream": "r", "_wal_seq": 1}
    lines = shown(log, Unreleased("r", "t", [said | {"_wal_last_seq": 2}]))
    assert [line.strip() for line in lines if line.strip() in ("kept", "said")] == ["kept", "said"]
