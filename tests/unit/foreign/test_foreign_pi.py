"""Sessions of pi, versions 1 to 3."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from imported_session import events_of, told
from walld_client.recovered.provider import anthropic_messages, openai_messages

from walld.errors import FormatError
from walld.foreign import pi
from walld.foreign.detect import read
from walld.foreign.entries import Imported
from walld.sessions.views.state_view import state_view

EXCERPT = Path(__file__).parents[2] / "golden/foreign/pi-v1.jsonl"
RECORDED = "WALLD_RECORDED"
"""Names a directory of recorded files of other systems, which is not part of the project."""


def lines(*values: object) -> list[str]:
    return [json.dumps(value) + "\n" for value in values]


def header(version: int | None = 3) -> dict[str, object]:
    versioned = {} if version is None else {"version": version}
    return {"type": "session", "id": "s", "timestamp": "2025-11-20T23:33:50.805Z"} | versioned


def entry(id_: str, parent: str | None, type_: str = "message", **fields: object) -> dict:
    return {"type": type_, "id": id_, "parentId": parent, "timestamp": ""} | fields


def user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


def leaf_of(imported: Imported) -> str | None:
    """Where the ledger's leaf would stand."""
    leaf = None
    for one in imported.entries:
        if one.type == "leaf":
            leaf = one.payload["target"]
        elif one.leaf and one.type != "label":
            leaf = one.id
    return leaf


def path_of(imported: Imported, at: str | None) -> list[str]:
    parents: dict[str, str | None] = {}
    leaf = None
    for one in imported.entries:
        parents[one.id] = one.parent if one.parent is not None else leaf
        if one.type == "leaf":
            leaf = one.payload["target"]
        elif one.leaf and one.type != "label":
            leaf = one.id
    path = []
    while at is not None:
        path.append(at)
        at = parents[at]
    return path[::-1]


def test_an_excerpt_of_a_real_session_is_understood_whole():
    imported = read(EXCERPT.read_bytes().splitlines(keepends=True))
    assert (imported.format, imported.version, imported.not_understood) == ("pi", 1, 0)
    types = [one.type for one in imported.entries]
    assert types[:3] == ["pi.session", "model_change", "setting"]  # the header's own
    assert types.count("setting") == 7
    assert len(types) == 47 + 2
    calls = [call for one in imported.entries for call in one.payload.get("tool_calls", [])]
    answered = {one.payload.get("tool_call_id") for one in imported.entries}
    assert len(calls) > 10
    assert {call["id"] for call in calls} - answered  # some were never answered
    assert json.loads(calls[0]["function"]["arguments"]) == {
        "path": "packages/coding-agent/docs/theme.md"
    }
    assert all(one.at_ms > 1763681000000 for one in imported.entries)


def test_the_whole_real_session():
    whole = Path(os.environ.get(RECORDED, "")) / "pi-large-session.jsonl"
    if not whole.is_file():
        pytest.skip(f"{RECORDED} names no directory with {whole.name}: only the excerpt was read")
    imported = read(whole.read_bytes().splitlines(keepends=True))
    assert (imported.version, imported.not_understood, len(imported.entries)) == (1, 0, 1019 + 2)
    calls = {c["id"] for one in imported.entries for c in one.payload.get("tool_calls", [])}
    answered = {one.payload.get("tool_call_id") for one in imported.entries}
    assert len(calls) == 391
    assert len(calls - answered) == 18


def test_a_tree_keeps_ids_parents_and_the_leaf():
    imported = pi.read(
        lines(
            header(),
            entry("a", None, message=user("one")),
            entry("b", "a", message={"role": "assistant", "content": [], "model": "m"}),
            entry("c", "a", "branch_summary", fromId="a", summary="tried b"),
            entry("d", "c", message=user("two")),
            entry("l", "d", "label", targetId="b", label="here"),
            entry("e", "l", message=user("three")),
            entry("m", "b", "label", targetId="a", label=None),
        )
    )
    assert [one.id for one in imported.entries][1:-1] == ["a", "b", "c", "d", "l", "e", "m"]
    by_id = {one.id: one for one in imported.entries}
    assert by_id["c"].payload["target"] == "a"
    assert by_id["l"].payload["target"] == "b"
    assert by_id["e"].parent == "d"  # never on a label
    assert by_id["m"].payload["text"] is None
    # pi's leaf is that last label, which hangs on b.
    assert leaf_of(imported) == "b"
    assert path_of(imported, "e") == ["a", "c", "d", "e"]
    assert imported.not_understood == 0


def test_a_second_root_is_before_the_first_entry():
    imported = pi.read(
        lines(
            header(),
            entry("a", None, message=user("one")),
            entry("x", "a", message=user("two")),
            entry("b", None, message=user("again")),
        )
    )
    assert path_of(imported, "b") == ["b"]
    assert leaf_of(imported) == "b"


def test_a_leaf_that_is_named():
    imported = pi.read(
        lines(
            header(),
            entry("a", None, message=user("one")),
            entry("b", "a", message=user("two")),
            entry("x", "b", "leaf", targetId="a"),
        )
    )
    assert leaf_of(imported) == "a"
    assert imported.entries[-1].id == "x"


def test_version_2_calls_a_role_by_another_name():
    said = {"role": "hookMessage", "customType": "todo", "content": "remember", "display": True}
    imported = pi.read(lines(header(2), entry("a", None, message=said)))
    assert imported.version == 2
    payload = imported.entries[-1].payload
    assert (payload["role"], payload["content"]) == ("user", "remember")
    assert payload["_foreign"]["role"] == "custom"


def test_a_compaction_of_version_1_names_a_line():
    imported = pi.read(
        lines(
            header(None),
            {"type": "message", "message": user("one")},
            {"type": "message", "message": user("two")},
            {"type": "compaction", "summary": "so far", "firstKeptEntryIndex": 2},
        )
    )
    two, compaction = imported.entries[-2:]
    assert compaction.payload["first_kept"] == two.id
    assert compaction.payload["summary"] == "so far"


@pytest.mark.parametrize("kept", ["nowhere", "b", None, 7])
def test_a_compaction_that_keeps_nothing_of_its_path(kept: object):
    imported = pi.read(
        lines(
            header(),
            entry("a", None, message=user("one")),
            entry("b", "a", message=user("side")),
            entry("c", "a", "compaction", summary="so far", firstKeptEntryId=kept, tokensBefore=9),
        )
    )
    payload = imported.entries[-1].payload
    assert payload["replacement"] == [{"role": "user", "content": "so far"}]
    assert payload["_foreign"] == {"firstKeptEntryId": kept, "tokensBefore": 9}


def test_what_else_there_is():
    bash = {"role": "bashExecution", "command": "ls", "output": "a", "exitCode": 1}
    imported = pi.read(
        lines(
            header(),
            entry("a", None, "custom", customType="t", data=[1]),
            entry("b", "a", "custom_message", customType="t", content="said", display=False),
            entry("c", "b", message=bash),
            entry("d", "c", message=bash | {"excludeFromContext": True}),
            entry("e", "d", "session_info", name="mine"),
            entry("f", "e", "model_change", provider="p", modelId="m"),
            entry("g", "f", "thinking_level_change", thinkingLevel="high"),
        )
    )
    assert [one.type for one in imported.entries[1:]] == [
        "pi.custom",
        "message",
        "message",
        "pi.bash_execution",
        "setting",
        "model_change",
        "setting",
    ]
    ran = imported.entries[3].payload
    assert ran["content"] == "Ran `ls`\n```\na\n```\n(exit code 1)"
    assert ran["_foreign"]["command"] == "ls"


def test_what_is_not_understood_is_kept_counted_and_hung_on():
    imported = pi.read(
        [
            *lines(header(), entry("a", None, message=user("one")), entry("b", "a", "new", x=1)),
            "{broken\n",
            *lines(entry("c", "b", message=user("two")), entry("c", "b", message=user("2"))),
            '{"type":"mess',
        ]
    )
    assert imported.reasons == {"malformed": 1, "repeated_id": 1, "torn": 1, "unknown_type": 1}
    assert imported.not_understood == 4
    kept = [one for one in imported.entries if one.type == "foreign.pi"]
    assert [one.payload["reason"] for one in kept] == [
        "unknown_type",
        "malformed",
        "repeated_id",
        "torn",
    ]
    assert kept[1].payload["line"] == "{broken"
    assert kept[3].payload["line"] == '{"type":"mess'
    assert path_of(imported, "c") == ["a", "b", "c"]
    assert leaf_of(imported) == "c"


def test_a_newer_version_is_refused():
    with pytest.raises(FormatError, match="got 4, limit 3"):
        pi.read(lines(header(4), entry("a", None, message=user("one"))))


@pytest.mark.parametrize("parent", ["a", "b", "gone"])
def test_an_entry_whose_parent_is_not_above_it_is_named(parent: str) -> None:
    imported = pi.read(
        lines(
            header(),
            entry("a", parent, message=user("one")),
            entry("b", "a", message=user("two")),
            entry("c", "b", message=user("three")),
        )
    )
    assert imported.orphans == ["a"]
    assert imported.reasons == {}
    assert path_of(imported, "c")[-3:] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("version", "shown"),
    [
        (4.0, "4.0"),
        ("4", '"4"'),
        ("3", '"3"'),
        (2.5, "2.5"),
        (0, "0"),
        (-1, "-1"),
        (True, "true"),
        ([3], r"\[3\]"),
        ("9" * 99, '"9{39}\\.\\.\\.'),
    ],
)
def test_a_version_that_is_none_of_the_known_is_refused_by_its_name(version, shown):
    with pytest.raises(FormatError, match=f"line 1: version of a pi session: got {shown}, limit 3"):
        pi.read(lines({**header(), "version": version}))


def test_a_version_as_another_program_writes_the_number():
    assert pi.read(lines({**header(), "version": 3.0})).version == 3
    assert pi.read(lines({**header(), "version": None})).version == 1


BLOCKS = [
    {"type": "thinking", "thinking": "first", "thinkingSignature": "SIG-1"},
    {"type": "text", "text": "I look.", "textSignature": "x"},
    {"type": "thinking", "thinking": "[redacted]", "thinkingSignature": "RED", "redacted": True},
    {"type": "thinking", "thinking": "unsigned"},
    {"type": "toolCall", "id": "c1", "name": "read", "arguments": {}},
    {"type": "thinking", "thinking": "last", "thinkingSignature": "SIG-2"},
    {"type": "text", "text": "and then"},
]


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_signed_thoughts_go_back_to_the_provider_they_are_of(provider: str):
    """What pi keeps as one is with others an id of an item, or of nobody's but theirs."""
    said = {"role": "assistant", "provider": provider, "model": "m", "content": BLOCKS}
    gave = {"role": "toolResult", "toolCallId": "c1", "toolName": "read", "content": "abc"}
    imported = pi.read(
        lines(
            header(),
            entry("u", None, message=user("look")),
            entry("a", "u", message=said),
            entry("r", "a", message=gave),
        )
    )
    messages = [one.payload for one in imported.entries if one.type == "message"]
    kept = [
        one for one in messages[1]["content"] if one["type"] in ("thinking", "redacted_thinking")
    ]
    assert len(kept) == 4, "all of them, in the plain form"
    answers = [m["content"] for m in anthropic_messages(messages) if m["role"] == "assistant"]
    call = {"type": "tool_use", "id": "c1", "name": "read", "input": {}}
    look, then = {"type": "text", "text": "I look."}, {"type": "text", "text": "and then"}
    if provider == "openai":
        assert answers == [[look, call], [then]]
        return
    one, two = (
        {"type": "thinking", "thinking": word, "signature": signature}
        for word, signature in (("first", "SIG-1"), ("last", "SIG-2"))
    )
    assert answers == [
        [one, look, {"type": "redacted_thinking", "data": "RED"}, call],
        [two, then],
    ]
    assert [m.get("content") for m in openai_messages(messages)] == [
        "look",
        "I look.",
        "abc",
        "and then",
    ]


def test_a_tree_of_another_writer_without_its_version():
    """Calls with `input`, a model by its name alone, and parents in what it calls version 1."""
    call = {"type": "toolCall", "id": "c1", "name": "read", "input": {"path": "a"}}
    for version in (None, 1):
        imported = pi.read(
            lines(
                header(version),
                entry("m1", None, message=user("one")),
                entry("x", "m1", "model_change", model="m"),
                entry("m3", "x", message={"role": "assistant", "content": [call]}),
                entry("m4", "m3", message=user("approach A")),
                entry("m5", "m3", message=user("approach B")),
            )
        )
        assert imported.not_understood == 0
        assert path_of(imported, leaf_of(imported)) == ["m1", "x", "m3", "m5"]
        by_id = {one.id: one.payload for one in imported.entries}
        assert by_id["x"] == {"model": "m"}
        (said,) = by_id["m3"]["tool_calls"]
        assert json.loads(said["function"]["arguments"]) == {"path": "a"}
        assert state_view(events_of(imported))["model"] == "m"


@pytest.mark.parametrize("name", ["arguments", "input", "args", "parameters"])
@pytest.mark.parametrize("given", [{"path": "a"}, '{"path": "a"}'])
def test_arguments_by_whatever_name_go_to_the_provider(name: str, given: object) -> None:
    call = {"type": "toolCall", "id": "c1", "name": "read", name: given}
    gave = {"role": "toolResult", "toolCallId": "c1", "toolName": "read", "content": "abc"}
    imported = pi.read(
        lines(
            header(1),
            entry("u", None, message=user("look")),
            entry("a", "u", message={"role": "assistant", "content": [call]}),
            entry("r", "a", message=gave),
        )
    )
    assert imported.not_understood == 0
    (asked,) = told(imported)[1]["tool_calls"]
    assert json.loads(asked["function"]["arguments"]) == {"path": "a"}
    assert told(imported, "anthropic")[1]["content"][0]["input"] == {"path": "a"}
