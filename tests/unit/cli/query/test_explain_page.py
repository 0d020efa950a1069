"""A session explained as text: the four questions, escaped, within the terminal, commands whole."""

from __future__ import annotations

import json
import re

import pytest
from evil_text import CONTROL, EVIL, SHOWN
from session_log import Log

from walld.cli.page import columns
from walld.cli.query.explain_page import render_explanation
from walld.escape import escaped_line
from walld.sessions.state.account import Unreleased
from walld.sessions.views.explanation import explain

HEADINGS = ("DONE", "WAS SAYING", "UNKNOWN", "WHAT YOU MAY DO NOW")


def told(log: Log, *replies: Unreleased, session: str = "s") -> str:
    return render_explanation(
        json.loads(json.dumps(explain(log.events, replies=replies, session=session))),
        width=60,
        colour=False,
    )


def test_of_the_four_questions_each_has_an_answer() -> None:
    lines = told(Log()).split("\n")
    assert lines[0] == "session s:  done  nothing is to be done"
    at = [lines.index(one) for one in HEADINGS]
    assert at == sorted(at)
    assert [lines[one + 1] for one in at] == [
        "  no call that is known to have run",
        "  nothing: each reply of a turn is in the session",
        "  of each call it is known whether it ran",
        "  nothing is open",
    ]


def everything() -> tuple[Log, list[Unreleased]]:
    """All there is to be said, in words that act on a terminal."""
    log = Log()
    log.add("forked", {"session": EVIL, "at": EVIL})
    log.add("imported", {"begun": "x"})
    log.add("imported", {"ended": "x"})
    log.submit("t", EVIL)
    for call, *types in (
        (f"a{EVIL}", "started", "finished", "observation"),
        (f"b{EVIL}", "started"),
        (f"c{EVIL}", "approval:asked"),
        (f"d{EVIL}", "approval:denied"),
    ):
        more = {"side_effect": "external-write", "resume_policy": "never-rerun"}
        log.tool("t", call, *types, tool=f"tool{EVIL}", arguments={EVIL: EVIL}, **more)
    log.add("message", {"role": "assistant", "content": EVIL, "_partial": True}, turn="t")
    log.add("tool_approval", {"call_id": f"c{EVIL}", "state": "asked", "reason": EVIL}, turn="t")
    log.add(
        "tool_approval",
        {"call_id": f"d{EVIL}", "state": "denied", "by": EVIL, "reason": EVIL},
        turn="t",
    )
    log.add("queued", {"content": EVIL, "kind": "input"}, turn="t")
    log.add("lifecycle", {"state": "paused", "reason": EVIL}, turn="t")
    log.add("verification", {"name": EVIL, EVIL: EVIL}, turn="t")
    log.add("budget", {"remaining": 0, EVIL: EVIL})
    log.add("model_call", {"stream": "r", "model": EVIL, "usage": {EVIL: 1}}, leaf=False)
    log.add("reply_expired", {"stream": EVIL, "characters": EVIL}, leaf=False)
    log.add("compaction", {"summary": EVIL, "replacement": [{"role": "user"}]})
    log.add("turn_interrupted", {"reason": EVIL}, turn="t")
    said = {"role": "assistant", "content": EVIL, "reasoning": EVIL, "_wal_seq": 1}
    said |= {"tool_calls": [{"id": EVIL, "name": EVIL, "arguments": EVIL, "seq": 1}]}
    facts = {"lost_reason": EVIL, "error": {"message": EVIL, "kind": EVIL}, "last_seq": 3}
    reply = Unreleased(EVIL, None, [said | {"_wal_stream": EVIL}], has_ended=False, facts=facts)
    return log, [reply._replace(unread=EVIL)]


@pytest.mark.parametrize("colour", [True, False])
def test_nothing_said_acts_on_the_terminal(colour: bool) -> None:
    log, replies = everything()
    view = explain(log.events, replies=replies, session=f"s{EVIL}")
    drawn = render_explanation(view, width=60, colour=colour)
    assert CONTROL.findall(re.sub(r"\x1b\[[0-9]+m", "", drawn) if colour else drawn) == []
    for heading in (*HEADINGS, "ASKED", "REFUSED", "VERIFIED", "SPENT", "WAITS", "NOTES"):
        _, _, part = drawn.partition(heading)
        assert SHOWN in part.split("\n\n")[0], heading


@pytest.mark.parametrize("width", [30, 80])
def test_what_is_no_command_fits_and_a_command_is_whole(width: int) -> None:
    log, replies = everything()
    view = explain(log.events, replies=replies, session="a session")
    drawn = render_explanation(view, width=width, colour=False).split("\n")
    typed = {one["command"] for row in view["may"] for one in row["commands"]}
    wide = [line for line in drawn if columns(line) > width]
    assert typed, "there are some"
    assert all(line.startswith(("      walld ", "      python: ")) for line in wide)
    shown = [line.split("  # ")[0].strip() for line in drawn]
    assert {escaped_line(one) for one in typed} <= set(shown)


def test_of_a_long_session_the_newest_is_shown_and_the_rest_counted() -> None:
    log = Log()
    for number in range(50):
        log.say("user", f"question {number}.")
    lines = [line.strip() for line in told(log).split("\n")]
    assert "... 30 earlier: --json has them" in lines
    assert ("question 29." in lines, "question 30." in lines, lines.count("question 49.")) == (
        False,
        True,
        1,
    )


def test_of_a_long_reply_its_end_is_shown() -> None:
    text = "".join(f"line {number}\n" for number in range(100)) + "it is at por"
    said = {"role": "assistant", "content": text, "_wal_stream": "r", "_wal_seq": 1}
    lines = told(Log(), Unreleased("r", None, [said], has_ended=False)).split("\n")
    assert lines[lines.index("    it is at por") - 1] == "    line 99"
    assert "    ... 61 lines before" in lines


def test_a_call_that_waits_is_shown_with_its_arguments() -> None:
    log = Log()
    log.submit("t")
    risk = {"side_effect": "external-write", "resume_policy": "never-rerun"}
    log.tool("t", "c", "approval:asked", tool="deploy", arguments={"to": "prod"}, **risk)
    lines = told(log).split("\n")
    at = lines.index("  * deploy (call c): it waits for a yes or a no")
    assert lines[at + 1 : at + 4] == [
        '      effect: external-write; {"to": "prod"}',
        "      walld session settle s c --grant  # yes, it may run",
        "      walld session settle s c --deny   # no, it may not",
    ]


def test_no_reply_is_said_to_be_in_the_session_that_is_not() -> None:
    log = Log()
    log.submit("t")
    log.add("turn_assistant_started", {"stream_id": "r"}, turn="t")
    text = told(log)
    assert "each reply of a turn is in the session" not in text
    assert "reply r, turn t: it was resolved, or released without" in text


def test_a_no_to_a_call_that_may_have_run_says_who_and_why() -> None:
    log = Log()
    log.submit("t")
    more = {"side_effect": "external-write", "resume_policy": "never-rerun"}
    for call in ("k3", "k4"):
        log.tool("t", call, "started", **more)
    of = {"turn": "t", "call_id": "k3"}
    denied = {"of": of, "word": "denied", "by": "ann", "note": "never!"}
    log.add("tool_settled", denied, leaf=False)
    rows = explain(log.events)["unknown"]
    names = ("denied_by", "denied_by_name", "denied_because")
    assert [tuple(one[name] for name in names) for one in rows] == [
        ("user", "ann", "never!"),
        (None, None, None),
    ]
    text = " ".join(told(log).split())
    assert "denied by the user (ann); it may have run before that" in text
    assert "because: never!" in text
