"""A whole record behind damage: on its line, or over several; and what is lost stands as a gap."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

import pytest
import test_foreign_claude
import test_foreign_codex
import test_foreign_gptme
import test_foreign_pi
from hypothesis import given, settings
from hypothesis import strategies as st

from walld.errors import NotUnderstood
from walld.foreign.detect import read

codex, claude, gptme, pi = (
    test_foreign_codex,
    test_foreign_claude,
    test_foreign_gptme,
    test_foreign_pi,
)


def codex_line(name: str) -> str:
    return codex.said("user", f"said {name}").strip()


def claude_line(name: str) -> str:
    return claude.user(f"id-{name}", None, f"said {name}").strip()


def pi_line(name: str) -> str:
    return pi.lines(pi.entry(f"id-{name}", None, message=pi.user(f"said {name}")))[0].strip()


def gptme_line(name: str) -> str:
    return gptme.lines(gptme.said("user", f"said {name}"))[0].strip()


def event_line(name: str) -> str:
    said = gptme.said("user", f"said {name}")
    return gptme.lines(gptme.event(1, "message_append", message=said))[0].strip()


def own_line(name: str) -> str:
    payload = {"role": "user", "content": f"said {name}"}
    one = {"seq": len(name) + ord(name[0]), "id": f"id-{name}", "type": "message"}
    return json.dumps(one | {"payload": payload})


Writer = Callable[[str], str]
WRITERS: dict[str, tuple[str, Writer]] = {
    "codex": ("codex", codex_line),
    "claude": ("claude", claude_line),
    "pi": ("pi", pi_line),
    "gptme": ("gptme", gptme_line),
    "gptme events": ("gptme", event_line),
    "walld": ("walld", own_line),
}
each = pytest.mark.parametrize("writer", WRITERS)


def said(writer: str, text: str | bytes) -> list[str]:
    """What became of a file: texts of messages, and gaps as <text>."""
    held = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    found = read(held.splitlines(keepends=True), WRITERS[writer][0])
    told: list[str] = []
    for one in found.entries:
        if one.type == "message":
            content = one.payload["content"]
            told.append(content if isinstance(content, str) else content[0]["text"])
        elif one.type.startswith("foreign."):
            told.append(f"<{one.payload['line']}>")
    kept = [one for one in found.entries if one.type.startswith("foreign.")]
    assert found.not_understood == len(kept)
    return told


@each
@pytest.mark.parametrize(
    "garbage",
    ["\0" * 300, "}}}", '"},"x":1}', "\ufffd\ufffd", 'll"}}]}', "2026-08-01 INFO ", "{", '{"'],
)
def test_behind_garbage(writer: str, garbage: str):
    line = WRITERS[writer][1]
    text = f"{line('a')}\n{garbage}{line('b')}\n{line('c')}\n"
    assert said(writer, text) == ["said a", f"<{garbage.strip()}>", "said b", "said c"]


@each
@pytest.mark.parametrize("garbage", ["\0" * 300, "}}}", "\ufffd", "{", '{"a": "b', "INFO: done"])
def test_before_garbage(writer: str, garbage: str):
    line = WRITERS[writer][1]
    text = f"{line('a')}\n{line('b')}{garbage}\n{line('c')}\n"
    assert said(writer, text) == ["said a", "said b", f"<{garbage.strip()}>", "said c"]


@each
@pytest.mark.parametrize("between", ["", " ", "\r", "\ufeff", "\x1e", ", "])
def test_two_and_three_on_a_line(writer: str, between: str):
    line = WRITERS[writer][1]
    text = between.join(map(line, "abc")) + "\n" + line("d") + "\n"
    assert said(writer, text) == ["said a", "said b", "said c", "said d"]


@each
def test_the_beginning_of_one_wherever_it_was_cut(writer: str):
    line = WRITERS[writer][1]
    cut, whole = line("lost"), line("b")
    for at in range(1, len(cut)):
        text = f"{line('a')}\n{cut[:at]}{whole}\n{line('c')}\n"
        told = said(writer, text)
        assert told[0] == "said a", at
        assert told[-2:] == ["said b", "said c"], at
        assert told[1:-2] == [f"<{cut[:at].strip()}>"], at


@each
def test_the_end_of_one_whose_beginning_is_lost(writer: str):
    line = WRITERS[writer][1]
    cut, whole = line("lost"), line("b")
    for at in range(1, len(cut)):
        told = said(writer, f"{line('a')}\n{cut[at:]}{whole}\n")
        assert told == ["said a", f"<{cut[at:].strip()}>", "said b"], at


@each
def test_one_within_another(writer: str):
    """Two programs that append to one file."""
    line = WRITERS[writer][1]
    outer, inner = line("outer"), line("inner")
    at = outer.index("outer") + 2
    for newline in ("", "\n"):
        text = f"{line('a')}\n{outer[:at]}{inner}{newline}{outer[at:]}\n{line('c')}\n"
        assert said(writer, text) == ["said a", "said outer", "said inner", "said c"]


@each
@pytest.mark.parametrize("indent", [1, 2, "\t"])
def test_a_record_over_several_lines(writer: str, indent: int | str):
    line = WRITERS[writer][1]
    wide = json.dumps(json.loads(line("b")) | {"more": [[], {}, 1, "x", {"a": {}}]}, indent=indent)
    assert len(wide.splitlines()) > 5
    assert said(writer, f"{line('a')}\n{wide}\n{line('c')}\n") == ["said a", "said b", "said c"]
    assert said(writer, f"{wide}\n{wide.replace('said b', 'said d').replace('id-b', 'id-d')}") == [
        "said b",
        "said d",
    ]


@each
@pytest.mark.parametrize(
    "raw", ["\n", "\r\n", "\n\n", "\n10\n", "\t", "\n- [ ] x\n", '\n\\"a\\": 1\n']
)
def test_newlines_that_nobody_escaped(writer: str, raw: str):
    line = WRITERS[writer][1]
    text = f"{line('a')}\n{line('b@@end').replace('@@', raw)}\n{line('c')}\n"
    told = json.loads(f'"{raw}"', strict=False)
    assert said(writer, text) == ["said a", f"said b{told}end", "said c"]


@each
def test_what_was_lost_stands_where_it_stood(writer: str):
    line = WRITERS[writer][1]
    text = f"{line('a')}\n{line('b')[:-4]}\n\0\0\0\0\n{line('c')}\n{line('d')[:20]}"
    assert said(writer, text) == [
        "said a",
        f"<{line('b')[:-4].strip()}>",
        "<\0\0\0\0>",
        "said c",
        f"<{line('d')[:20].strip()}>",
    ]


def test_a_piece_of_a_record_is_none():
    """What a cut record holds is not what was said once more, and of nobody's role."""
    held = [gptme.said("user", "one"), gptme.said("assistant", "two")]
    cut = gptme.lines(gptme.event(2, "message_edit", messages=held))[0].strip()
    first = event_line("a")
    for at in range(1, len(cut)):
        assert said("gptme events", f"{first}\n{cut[:at]}\n{event_line('b')}\n") == [
            "said a",
            f"<{cut[:at].strip()}>",
            "said b",
        ]
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}]
    cut = codex.line("compacted", message="", replacement_history=items * 2).strip()
    for at in range(1, len(cut)):
        told = said("codex", f"{codex_line('a')}\n{cut[:at]}\n{codex_line('b')}\n")
        assert told == ["said a", f"<{cut[:at].strip()}>", "said b"]


@pytest.mark.parametrize("hole", ["\0", "\0" * 40])
@each
def test_zeros_within_a_record_are_no_words_of_it(writer: str, hole: str):
    """A disk's block that was never written: what stood there is lost."""
    line = WRITERS[writer][1]
    text = f"{line('a')}\n{line('b@@end').replace('@@', hole)}\n{line('c')}\n"
    assert said(writer, text)[::2] == ["said a", "said c"]
    assert said(writer, text)[1].startswith("<{")


def test_lines_of_pi_are_counted_as_pi_counts_them():
    """Its version 1 names what a compaction keeps by the number of a line that pi could read."""
    told = [
        '{"type":"session","id":"s"}\n',
        json.dumps({"type": "message", "timestamp": "", "message": pi.user("one")}) + "\n",
        '{"type":"mess'
        + json.dumps({"type": "message", "timestamp": "", "message": pi.user("found")})
        + "\n",
        json.dumps({"type": "message", "timestamp": "", "message": pi.user("two")}) + "\n",
        '{"type":"compaction","timestamp":"","summary":"so far","firstKeptEntryIndex":2}\n',
    ]
    found = read(told, "pi")
    by_text = {str(one.payload.get("content")): one.id for one in found.entries}
    assert found.entries[-1].payload["first_kept"] == by_text["two"]
    assert "found" in by_text


@pytest.mark.parametrize("name", ["pi", "gptme", "claude", "codex", "walld", "auto"])
@given(st.lists(st.sampled_from(['{"a":', "[", '"', "{", "}", "\n", "\\", '{"type":"x",', "1"])))
@settings(max_examples=20)
def test_no_bytes_take_long(name: str, pieces: list[str]):
    text = "".join(pieces) * 40
    with suppress(NotUnderstood):
        read(text.splitlines(keepends=True), name)


@pytest.mark.parametrize("piece", ['{"a":', '{"a":"', '{"', '[{"a":[', '{"a":1,"b":"x'])
def test_a_long_file_of_beginnings_ends(piece: str):
    """Work is bounded by the length, not by its square."""
    tried = codex_line("a") + "\n" + piece * 15_000 + "\n" + codex_line("b") + "\n"
    found = read(tried.splitlines(keepends=True), "codex")
    assert [one.type for one in found.entries if one.type == "message"] == ["message"] * 2
