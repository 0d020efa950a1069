"""Lines, detection, what every format has in common; and the way out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import test_foreign_claude
import test_foreign_codex
import test_foreign_gptme
import test_foreign_pi
from hypothesis import given, settings
from hypothesis import strategies as st

from walld.errors import FormatError
from walld.foreign import entries
from walld.foreign.detect import FORMATS, detect, read
from walld.foreign.entries import Draft, Foreign
from walld.foreign.export import to_otel
from walld.foreign.lines import Line, at_ms, parsed
from walld.sessions.state.events import Event
from walld.sessions.state.session_state import SessionState

EXCERPT = Path(__file__).parents[2] / "golden/foreign/pi-v1.jsonl"


def test_lines():
    found = parsed(
        ["\ufeff{}\r\n", "  \n", b'{"a": "\xff"}\n', "[]\n", "NaN\n", '{"a":1e999}\n', "{"]
    )
    assert [one.number for one in found] == [1, 3, 4, 5, 6, 7]
    assert [one.problem for one in found] == [
        None,
        None,
        "not_an_object",
        "malformed",
        "malformed",
        "torn",
    ]
    assert found[1].value == {"a": "\udcff"}
    assert parsed(["{\n"])[0].problem == "malformed"  # its writer did finish the line
    assert parsed(['{"a":' * 500 + "1" + "}" * 500])[0].problem == "too_deep"
    assert parsed([json.dumps({"a": "[" * 500})])[0].problem is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2025-11-20T23:33:50.805Z", 1763681630805),
        ("2025-11-20T23:33:50.805", 1763681630805),
        (1763681630805, 1763681630805),
        (-5, 0),
        (1e300, 0),
        (float("1e17"), 0),
        ("yesterday", 0),
        ("0001-01-01T00:00:00+14:00", 0),
        (None, 0),
        (True, 0),
    ],
)
def test_times(value: object, expected: int):
    assert at_ms(value) == expected


def test_each_format_is_told_by_its_lines():
    claude, codex = test_foreign_claude, test_foreign_codex
    gptme, pi = test_foreign_gptme, test_foreign_pi
    assert detect(EXCERPT.read_bytes().splitlines(keepends=True)) == "pi"
    assert detect(pi.lines(pi.entry("a", None, message=pi.user("no header")))) == "pi"
    assert detect([claude.user("u", None, "hi")]) == "claude"
    assert detect(['{"type":"summary","summary":"s","leafUuid":"u"}\n']) == "claude"
    assert detect([codex.line("session_meta", id="s")]) == "codex"
    assert detect([codex.said("user", "hi")]) == "codex"
    assert detect(gptme.lines(gptme.ONE)) == "gptme"
    assert detect(gptme.lines(gptme.event(1, "undo", n=1))) == "gptme"
    assert detect(["damaged\n", *gptme.lines(gptme.ONE)]) == "gptme"


def test_what_is_none_of_them():
    with pytest.raises(FormatError, match=r"none of its 1 lines is one of pi, .* fields what, uid"):
        read(['{"what":1,"uid":1000,"session":"s"}\n'])
    with pytest.raises(FormatError, match="there is no line in it"):
        read([])
    with pytest.raises(
        FormatError, match="got 'word', limit pi, gptme, claude, codex, walld or auto"
    ):
        read([], "word")


def test_the_same_lines_give_the_same_ids():
    """So that an import that is repeated can append once."""
    text = EXCERPT.read_text()
    assert read(text.splitlines(keepends=True)) == read(text.encode().splitlines(keepends=True))


def test_ids_that_cannot_be_kept():
    """Too long, empty, half a character, no text at all."""
    draft = Draft("pi")
    for number, id_ in enumerate(("", "x" * 2000, "\ud83d", 7, ["a"], {"a": 1}, None)):
        assert draft.add(Line(number, ""), "setting", {}, id=id_).startswith("pi.")


def test_a_parent_that_is_not_there_is_the_leaf():
    """What was damaged or lost leaves no hole in the path."""
    draft = Draft("pi")
    first = draft.add(Line(1, ""), "setting", {}, id="a")
    draft.add(Line(2, ""), "setting", {}, id="b", parent="nowhere")
    assert draft.entries[-1].parent is None
    assert draft.above(first, "b")


words = st.sampled_from(
    [
        "a",
        "b",
        "c",
        "user",
        "assistant",
        "message",
        "toolResult",
        "session",
        "undo",
        "label",
        "summary",
        "leaf",
        "compaction",
        "custom",
        "response_item",
        "event_msg",
        "function_call",
        "user_message",
        "thread_rolled_back",
        "tool_use",
        "tool_result",
        "message_append",
        "message_edit",
        "checkpoint",
        "system",
        "compacted",
        "branch_summary",
        "model_change",
    ]
)
keys = st.sampled_from(
    [
        "type",
        "id",
        "parentId",
        "uuid",
        "parentUuid",
        "leafUuid",
        "message",
        "role",
        "content",
        "payload",
        "n",
        "messages",
        "seq",
        "ts",
        "timestamp",
        "version",
        "targetId",
        "fromId",
        "label",
        "summary",
        "firstKeptEntryId",
        "firstKeptEntryIndex",
        "name",
        "call_id",
        "output",
        "input",
        "arguments",
        "tool_use_id",
        "isSidechain",
        "toolCallId",
        "modelId",
        "num_turns",
        "replacement_history",
        "isCompactSummary",
        "isMeta",
        "subtype",
        "thinkingLevel",
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | words | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=12,
)
line = (
    st.dictionaries(keys, values, max_size=8).map(json.dumps)
    | st.builds(lambda one, cut: json.dumps(one)[:cut], values, st.integers(0, 40))
    | st.text(max_size=20)
    | st.binary(max_size=20)
)


@pytest.mark.parametrize("name", FORMATS)
@given(st.data())
@settings(max_examples=60)
def test_any_lines_give_entries_or_are_counted(name: str, data: st.DataObject):
    given_lines = data.draw(st.lists(line, max_size=12))
    try:
        imported = FORMATS[name](given_lines)
    except FormatError:
        assert name == "pi"  # a newer version
        return
    could_be_appended(imported.entries)
    ids: set[str] = set()
    for one in imported.entries:
        assert one.id not in ids, "ids are unique"
        assert one.parent is None or one.parent in ids, "parents are earlier"
        for field in ("target", "first_kept"):
            if one.type in ("label", "leaf", "branch_summary", "compaction"):
                target = one.payload.get(field)
                assert target is None or target in ids
        ids.add(one.id)
        json.dumps(one.payload, allow_nan=False)
        if one.type == "message":
            assert isinstance(one.payload["role"], str)
            assert isinstance(one.payload["content"], (str, list))
    kept = [one for one in imported.entries if one.type.startswith("foreign.")]
    assert imported.not_understood == len(kept)
    assert imported.reasons.get("torn", 0) <= 1


def could_be_appended(found: list[Foreign]) -> None:
    """Each in its turn, to a session that is new."""
    state = SessionState()
    for seq, one in enumerate(found, 1):
        links = {name: getattr(one, name) for name in ("turn", "cause", "correlation", "key")}
        fields = {"id": one.id, "parent": one.parent, "leaf": one.leaf, **links}
        event = Event(seq=seq, type=one.type, payload=one.payload, **fields)
        assert state.check(event) is None, one
        state.apply(msgspec.structs.replace(event, parent=state.parent_for(event)))


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("levels", [150, 190, 196, 198])
def test_what_nests_too_deep_for_a_session_is_kept_as_its_text(levels: int):
    odd = test_foreign_pi.entry("a", None, message=test_foreign_pi.user("x"), x=nested(levels))
    after = test_foreign_pi.entry("b", "a", message=test_foreign_pi.user("after"))
    lines = test_foreign_pi.lines(odd, after)
    imported = read(lines, "pi")
    could_be_appended(imported.entries)
    assert [one.id for one in imported.entries] == ["a", "b"]
    kept = imported.entries[0]
    if kept.type != "message":
        assert (kept.type, imported.reasons) == ("foreign.pi", {"too_deep": 1})
        assert kept.payload == {"reason": "too_deep", "line_number": 1, "line": lines[0].strip()}
    assert (kept.type == "message") == (levels < 198)


def test_a_line_that_is_too_long_to_keep_is_kept_in_part(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(entries, "_TEXT_CHARS_MAX", 10)
    (kept,) = FORMATS["pi"](["x" * 11 + "\n"]).entries
    assert kept.payload == {
        "reason": "malformed",
        "line_number": 1,
        "line": "x" * 11,
        "line_chars": 11,
    }
    assert entries.kept_line(Line(1, "y" * 5000), "r")["line"] == "y" * 4096


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (42, {"type": "text", "content": "42"}),
        (False, {"type": "text", "content": "false"}),
        ({"a": 1}, {"type": "unknown", "a": 1}),
        ({"type": "text", "text": "hi"}, {"type": "text", "content": "hi"}),
        ([[1]], {"type": "text", "content": "[1]"}),
    ],
)
def test_content_that_is_no_text_is_in_otel_too(content: Any, part: dict[str, Any]):
    assert to_otel([{"role": "user", "content": content}]) == [{"role": "user", "parts": [part]}]
    assert to_otel([{"role": "user", "content": None}]) == [{"role": "user", "parts": []}]


def test_to_otel():
    call = {"id": "c", "type": "function", "function": {"name": "ls", "arguments": '{"a":1}'}}
    recovered = {"id": "d", "name": "rm", "arguments": '{"a', "outcome": "done", "result": 3}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "well", "reasoning": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "a.txt"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "so"},
                {"type": "text", "text": "done"},
                {"type": "tool_use", "id": "d", "name": "rm", "input": {}},
                {"type": "image", "source": 1},
            ],
            "tool_calls": [recovered],
            "_partial": True,
        },
        {"role": "assistant", "content": "", "finish_reason": "length"},
    ]
    assert to_otel(messages) == [
        {"role": "user", "parts": [{"type": "text", "content": "hi"}]},
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "hm"},
                {"type": "text", "content": "well"},
                {"type": "tool_call", "id": "c", "name": "ls", "arguments": {"a": 1}},
            ],
            "finish_reason": "tool_call",
        },
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "c", "response": "a.txt"}],
        },
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "so"},
                {"type": "text", "content": "done"},
                {"type": "image", "source": 1},
                {"type": "tool_call", "id": "d", "name": "rm", "arguments": '{"a'},
                {"type": "tool_call_response", "id": "d", "response": 3},
            ],
            "finish_reason": "error",
        },
        {"role": "assistant", "parts": [], "finish_reason": "length"},
    ]


@given(st.lists(st.dictionaries(keys | st.just("tool_calls"), values), max_size=5))
@settings(max_examples=60)
def test_to_otel_takes_anything(messages: list[dict[str, object]]):
    assert len(to_otel(messages)) == len(messages)


@pytest.mark.parametrize(
    ("word", "told"), [("aborted", "aborted"), ("max_tokens", "max_tokens"), (None, "stop")]
)
def test_an_answer_that_was_cut_says_so_in_otel(word: str | None, told: str) -> None:
    """pi and Claude Code say how each answer ended; walld said `stop` of all."""
    said = {"role": "assistant", "content": [{"type": "text", "text": "half a"}]}
    ended = {"pi": "stopReason", "claude": "stop_reason"}
    lines = {
        name: {"type": kind, "uuid": "a", "parentUuid": None, "message": said | {ended[name]: word}}
        for name, kind in (("pi", "message"), ("claude", "assistant"))
    }
    for name, line in lines.items():
        (entry,) = read([json.dumps(line) + "\n"], name).entries
        assert to_otel([entry.payload])[0]["finish_reason"] == told
    assert to_otel([{"role": "assistant", "finish_reason": "toolUse"}]) == [
        {"role": "assistant", "parts": [], "finish_reason": "tool_call"}
    ]


def test_reasoning_that_is_a_summary_alone_says_it_in_otel() -> None:
    """OpenAI's Responses give the summary; what it is of is encrypted, or a list of its own."""
    parts = [{"type": "summary_text", "text": text} for text in ("first", "then")]
    held = {"type": "reasoning", "encrypted_content": "x"}
    for block in (
        {**held, "summary": parts},
        {**held, "summary": [], "content": [{"type": "reasoning_text", "text": "first\n\nthen"}]},
        {"type": "thinking", "thinking": "first\n\nthen", "signature": "s"},
    ):
        (told,) = to_otel([{"role": "assistant", "content": [block]}])
        assert told["parts"] == [{"type": "reasoning", "content": "first\n\nthen"}]


def test_what_is_attached_to_a_message_is_exported() -> None:
    named = {"_artifact": {"sha256": "0" * 64, "size": 9}}
    said = {"role": "user", "content": "q", "attachments": [named, {"type": "file", "url": "x"}, 1]}
    assert to_otel([said])[0]["parts"] == [
        {"type": "text", "content": "q"},
        {"type": "attachment", **named},
        {"type": "file", "url": "x"},
        {"type": "attachment", "content": 1},
    ]
