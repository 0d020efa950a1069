"""Transcripts and trees on a terminal."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from walld.cli.page import WIDTH_MIN, Page, columns
from walld.cli.session.show import render_show
from walld.cli.session.view import render_tree
from walld.escape import escaped

TRANSCRIPT = [
    {
        "turn_id": None,
        "messages": [{"on_path": True, "message": {"role": "system", "content": "be kind"}}],
        "tools": [],
    },
    {
        "turn_id": "t1",
        "state": "completed",
        "submitted_at_ms": 1763681630000,
        "duration_ms": 7500,
        "messages": [
            {
                "on_path": True,
                "message": {
                    "role": "user",
                    "content": "look at a.txt, please, and say what it holds",
                },
            },
            {
                "on_path": False,
                "message": {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "I look."}],
                    "tool_calls": [
                        {"id": "c1", "function": {"name": "read", "arguments": "{}"}},
                        {"id": "c2", "function": {"name": "rm", "arguments": '{"p":"a"}'}},
                    ],
                },
            },
        ],
        "tools": [
            {
                "call_id": "c1",
                "tool": "read",
                "state": "finished",
                "outcome": "unknown",
                "duration_ms": 12,
                "arguments": {"p": 1},
                "result": "a\nb",
            }
        ],
    },
    {"turn_id": "t2", "state": "interrupted", "reason": "agent_lost", "submitted_at_ms": 1},
]


def test_show():
    assert render_show(TRANSCRIPT, "chat-1", width=34, colour=False).split("\n") == [
        "session chat-1",
        "",
        "outside of any turn",
        "  system",
        "    be kind",
        "",
        "turn 1  completed",
        "  2025-11-20 23:33:50Z  7.5 s",
        "  t1",
        "  user",
        "    look at a.txt, please, and say",
        "    what it holds",
        "  assistant (on another branch)",
        "    I look.",
        '    -> rm({"p":"a"})',
        "  * read  unknown  finished  12 ms",
        "    c1",
        '    ( {"p": 1}',
        "    => a\\nb",
        "",
        "turn 2  interrupted (agent_lost)",
        "  1970-01-01 00:00:00Z",
        "  t2",
    ]


def test_a_wide_terminal_has_the_turn_in_one_line():
    shown = render_show(TRANSCRIPT, "chat-1", width=80, colour=False)
    assert "turn 1  completed  2025-11-20 23:33:50Z  7.5 s  t1" in shown.split("\n")


def test_a_call_says_what_became_of_it():
    call = {"id": "c", "name": "rm", "arguments": "x" * 99, "outcome": "unknown"}
    part = {"messages": [{"message": {"role": "assistant", "tool_calls": [call]}}]}
    line = render_show([part], "s", width=34, colour=False).split("\n")[-1]
    assert line == "    -> rm(xxxxxxxxxxx ...  unknown"


def test_colour_changes_nothing_else():
    coloured = render_show(TRANSCRIPT, "chat-1", width=80, colour=True)
    assert "\x1b[32mcompleted\x1b[0m" in coloured
    plain = coloured
    for code in ("0", "1", "2", "31", "32", "33", "36"):
        plain = plain.replace(f"\x1b[{code}m", "")
    assert plain == render_show(TRANSCRIPT, "chat-1", width=80, colour=False)


def test_a_long_message_is_cut_and_says_so():
    message = {"role": "user", "content": "\n".join(["x"] * 100)}
    part = {"messages": [{"message": message}]}
    shown = render_show([part], "s", width=80, colour=False)
    assert "... 60 more lines" in shown
    assert len(shown.split("\n")) < 50


def test_wide_characters_are_wrapped_by_their_columns():
    part = {"messages": [{"message": {"content": "日本" * 20}}]}
    shown = render_show([part], "s", width=34, colour=False)
    assert [line.strip() for line in shown.split("\n")[-3:]] == [
        "日本" * 7 + "日",
        "本" + "日本" * 7,
        "日本" * 5,
    ]


def test_tree():
    nodes = [
        {"id": "a", "parent": None, "type": "message", "role": "user", "text": "hi"},
        {"id": "b", "parent": "a", "type": "message", "role": "assistant", "text": "well"},
        {"id": "c", "parent": "b", "type": "message", "text": "one", "label": "here"},
        {"id": "d", "parent": "c", "type": "message", "text": "two"},
        {"id": "e", "parent": "b", "type": "message", "text": "three"},
        {"id": "f", "parent": "b", "type": "message", "text": "four"},
        {"id": "g", "parent": "f", "type": "undo"},
    ]
    assert render_tree({"leaf": "g", "nodes": nodes}, width=80).split("\n") == [
        "user hi (a)",
        "assistant well (b)",
        "├─ message one [here] (c)",
        "│  message two (d)",
        "├─ message three (e)",
        "└─ message four (f)",
        "   undo (g) <- leaf",
    ]


def test_a_line_of_the_tree_keeps_its_id_and_fits():
    said = {"type": "message", "role": "user", "text": "one two three " * 20, "label": "here"}
    nodes = [
        {"id": "a" * 34, "parent": None, **said},
        {"id": "b" * 34, "parent": "a" * 34, **said},
        {"id": "c" * 34, "parent": "a" * 34, "type": "undo", "text": "3"},
    ]
    lines = render_tree({"leaf": "c" * 34, "nodes": nodes}, width=80).split("\n")
    assert [one.count("one two") for one in lines] == [2, 2, 0]
    assert all(len(line) <= 80 for line in lines)
    assert [f"({letter * 34})" in line for letter, line in zip("abc", lines, strict=True)] == [
        True
    ] * 3
    assert lines[2].startswith("└─ undo 3 (")
    narrow = render_tree({"leaf": None, "nodes": nodes}, width=40).split("\n")
    assert narrow[0] == f"user [here] ({'a' * 34})", "no text for want of room, and still its id"


def test_trees_at_the_edge():
    assert render_tree({}, width=80) == "no entries"
    nodes = [{"id": "a", "type": "message"}, {"id": "b", "type": "message"}]
    assert render_tree({"leaf": None, "nodes": nodes}, width=80).split("\n") == [
        "├─ message (a)",
        "└─ message (b)",
        "the leaf is before the first entry",
    ]
    loop = [{"id": "a", "parent": "b", "type": "x"}, {"id": "b", "parent": "a", "type": "x"}]
    assert "hang on each other" in render_tree({"leaf": "a", "nodes": loop}, width=80)


def test_a_tree_deeper_than_the_stack():
    nodes = [{"id": str(n), "parent": str(n - 1), "type": "m"} for n in range(20_000)]
    assert render_tree({"leaf": "0", "nodes": nodes}, width=80).count("\n") == 19_999


keys = st.sampled_from(
    [
        "session",
        "on_path",
        "message",
        "turn_id",
        "state",
        "reason",
        "submitted_at_ms",
        "duration_ms",
        "messages",
        "tools",
        "role",
        "content",
        "tool_calls",
        "id",
        "function",
        "name",
        "arguments",
        "call_id",
        "tool",
        "outcome",
        "collisions",
        "type",
        "text",
        "result",
        "leaf",
        "nodes",
        "parent",
        "summaries",
        "label",
        "children",
        "thinking",
        "_partial",
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=6),
    max_leaves=25,
)


@given(st.dictionaries(keys, values), st.text(max_size=10), st.integers(0, 200))
def test_anything_is_shown_and_nothing_acts(shape: dict[str, object], session_id: str, width: int):
    parts = [shape, *shape.values()]
    for shown in (
        render_show(parts, session_id, width=width, colour=False),
        render_show(parts, session_id, width=width, colour=False, tree=shape),
        render_tree(shape, width=width),
    ):
        assert escaped(shown) == shown


def test_a_long_line_in_any_script_is_wrapped_in_one_pass() -> None:
    """Each character is looked at a few times, however many lines there are."""

    def looks(text: str) -> int:
        count = 0

        def called(_frame: object, kind: str, _of: object) -> None:
            nonlocal count
            count += kind == "c_call"

        before = sys.getprofile()
        sys.setprofile(called)
        try:
            Page(80, False).block(text, "    ", 40)
        finally:
            sys.setprofile(before)
        return count

    for text in ("я" * 20_000, "漢字 " * 7_000, "e\u0301" * 10_000):
        assert looks(text) < 8 * len(text)


def plainly_wrapped(line: str, width: int) -> list[str]:
    """At the last space that fits, where more than half of the line stands before it."""
    found = []
    while columns(line) > width:
        fit = next(at for at in range(1, len(line) + 1) if columns(line[:at]) > width) - 1
        space = line.rfind(" ", 0, fit + 1)
        end = space if space > fit // 2 else max(fit, 1)
        found.append(line[:end].rstrip())
        line = line[end:].lstrip(" ")
    return [*found, line]


@given(st.text(st.sampled_from("ab  я漢\u0301"), max_size=120), st.integers(10, 40))
def test_lines_are_wrapped_by_columns(text: str, width: int) -> None:
    page = Page(width + 4, False)
    page.block(text, "    ", 1000)
    wide = max(width + 4, WIDTH_MIN) - 4
    drawn = [("    " + line).rstrip() for line in plainly_wrapped(text, wide)]
    assert page.lines == (drawn if text else [])
