"""What pi makes of the entries of a path: a name, a model, a shorter conversation, other words.

pi's own code judges whole trees of all types in `clients/node/test/foreign/pi.test.ts`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from imported_session import events_of, told

from walld.foreign import pi
from walld.foreign.entries import Imported
from walld.sessions.views.messages import messages
from walld.sessions.views.state_view import state_view

HEADER = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-11-20T10:00:00Z"}


def entry(id_: str, parent: str | None, type_: str = "message", **fields: object) -> dict[str, Any]:
    return {"type": type_, "id": id_, "parentId": parent, "timestamp": ""} | fields


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text, "timestamp": 1}


def answer(text: str, *more: dict[str, Any], **fields: object) -> dict[str, Any]:
    blocks = [{"type": "text", "text": text}, *more]
    of = {"provider": "openai", "model": "m-said", "stopReason": "stop"} | fields
    return {"role": "assistant", "content": blocks, "timestamp": 1} | of


def imported(*entries: dict[str, Any]) -> Imported:
    return pi.read([json.dumps(one) + "\n" for one in (HEADER, *entries)])


def texts(found: Imported, branch: str | None = None) -> list[str]:
    """The plain texts of the messages of its leaf, or of an entry."""
    said = messages(events_of(found), "plain", branch) or []
    return [_text(one["content"]) for one in said]


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    assert isinstance(content, list)
    return "".join(block.get("text", "") for block in content)


def talk(*ids: str, below: str | None = None) -> list[dict[str, Any]]:
    """Messages of the user's, each below the one before, that say their ids."""
    parents = [below, *ids[:-1]]
    return [entry(id_, parent, message=user(id_)) for id_, parent in zip(ids, parents, strict=True)]


# --- a compaction that names a label --------------------------------------------------------------


def compaction(id_: str, parent: str | None, kept: object) -> dict[str, Any]:
    return entry(id_, parent, "compaction", summary="so far", firstKeptEntryId=kept, tokensBefore=9)


LABEL = {"type_": "label", "targetId": "a", "label": "here"}


@pytest.mark.parametrize(
    ("entries", "kept"),
    [
        pytest.param(
            [
                *talk("a", "b"),
                entry("l", "b", **LABEL),
                *talk("c", "d", below="l"),
                compaction("z", "d", "l"),
            ],
            ["c", "d"],
            id="what hangs on the label is kept, what it hangs on is not",
        ),
        pytest.param(
            [
                *talk("a", "b"),
                entry("l", "b", **LABEL),
                entry("m", "l", **LABEL),
                *talk("c", below="m"),
                compaction("z", "c", "l"),
            ],
            ["c"],
            id="a label on a label",
        ),
        pytest.param(
            [*talk("a", "b"), entry("l", "b", **LABEL), compaction("z", "l", "l")],
            [],
            id="nothing stands behind it",
        ),
        pytest.param(
            [
                *talk("a", "b"),
                entry("l", "b", **LABEL),
                *talk("c", below="l"),
                *talk("x", "y", below="b"),
                compaction("z", "y", "l"),
            ],
            [],
            id="it stands on another branch, and hangs where this one begins",
        ),
        pytest.param(
            [
                *talk("a"),
                entry("l", "a", **LABEL),
                *talk("x", below="l"),
                *talk("b", "c", below="l"),
                entry("t", "c", "thinking_level_change", thinkingLevel="high"),
                compaction("z", "t", "l"),
            ],
            ["b", "c"],
            id="two branches hang on it",
        ),
        pytest.param(
            [
                *talk("a", "b"),
                entry("l", "b", type_="label", targetId="elsewhere", label="x"),
                *talk("c", below="l"),
                compaction("z", "c", "l"),
            ],
            ["c"],
            id="what it labels is not there",
        ),
    ],
)
def test_a_compaction_keeps_what_hangs_on_the_label_it_names(
    entries: list[dict[str, Any]], kept: list[str]
) -> None:
    assert texts(imported(*entries, *talk("end", below="z"))) == ["so far", *kept, "end"]


def test_a_compaction_that_is_a_root_keeps_nothing_of_the_other_tree() -> None:
    found = imported(*talk("a", "b"), compaction("z", None, "b"), *talk("end", below="z"))
    assert texts(found) == ["so far", "end"]
    assert found.not_understood == 0


def test_a_compaction_that_names_itself_keeps_nothing() -> None:
    found = imported(*talk("a", "b"), compaction("z", "b", "z"), *talk("end", below="z"))
    assert texts(found) == ["so far", "end"]


# --- names and models -----------------------------------------------------------------------------


def named(id_: str, parent: str | None, **fields: object) -> dict[str, Any]:
    return entry(id_, parent, "session_info", **fields)


@pytest.mark.parametrize(
    ("entries", "name"),
    [
        pytest.param([named("n", "a", name="one"), *talk("b", below="a")], "one", id="a branch"),
        pytest.param(
            [named("n", "a", name="one"), named("m", "n", name="two"), *talk("b", below="n")],
            "two",
            id="the later one was given on a branch that was left",
        ),
        pytest.param(
            [named("n", "a", name="one"), named("m", "a", name=""), *talk("b", below="n")],
            None,
            id="it was taken away on a branch that was left",
        ),
        pytest.param([named("n", "a", name="  one \n")], "one", id="white space"),
        pytest.param([named("n", "a", name="one"), named("m", "n", name=" ")], None, id="blank"),
        pytest.param([named("n", "a", name="one"), named("m", "n")], None, id="no name"),
        pytest.param(
            [named("n", "a", name="one"), entry("l", "n", **LABEL)], "one", id="a label behind it"
        ),
    ],
)
def test_the_last_name_of_the_file_is_the_sessions(
    entries: list[dict[str, Any]], name: str | None
) -> None:
    found = imported(*talk("a"), *entries)
    assert state_view(events_of(found))["settings"].get("name") == name
    assert found.not_understood == 0


def test_a_file_that_is_read_again_gives_the_same_entries() -> None:
    entries = [*talk("a"), named("n", "a", name="one"), *talk("b", below="a")]
    once, grown = imported(*entries), imported(*entries, *talk("c", below="b"))
    ids = [one.id for one in once.entries]
    assert [one.id for one in imported(*entries).entries] == ids
    assert {"a", "n", "b"} < {one.id for one in grown.entries}
    assert state_view(events_of(grown))["settings"]["name"] == "one"
    assert texts(grown) == ["a", "b", "c"]


CHANGE = {"type_": "model_change", "provider": "p", "modelId": "m-chosen"}


@pytest.mark.parametrize(
    ("entries", "model"),
    [
        pytest.param([entry("b", "a", message=answer("x"))], "m-said", id="of an answer alone"),
        pytest.param(
            [entry("c", "a", **CHANGE), entry("b", "c", message=answer("x"))],
            "m-said",
            id="an answer behind a change",
        ),
        pytest.param(
            [entry("b", "a", message=answer("x")), entry("c", "b", **CHANGE)],
            "m-chosen",
            id="a change behind an answer",
        ),
        pytest.param(
            [
                entry("c", "a", **CHANGE),
                entry("b", "c", message=answer("", stopReason="error", model="m-failed")),
            ],
            "m-failed",
            id="an answer that failed",
        ),
        pytest.param(
            [
                entry("c", "a", **CHANGE),
                entry("b", "c", message=answer("x")),
                entry("d", "c", message=user("y")),
            ],
            "m-chosen",
            id="an answer on a branch that was left",
        ),
        pytest.param(
            [entry("c", "a", **CHANGE), entry("b", "c", message=answer("x", model=None))],
            "m-chosen",
            id="an answer that names none",
        ),
    ],
)
def test_the_model_is_that_of_the_last_change_or_answer(
    entries: list[dict[str, Any]], model: str
) -> None:
    assert state_view(events_of(imported(*talk("a"), *entries)))["model"] == model


# --- types of pi 1.x ------------------------------------------------------------------------------


def edit(id_: str, parent: str, target: str, content: object) -> dict[str, Any]:
    replacement = None if content is None else {"content": content}
    return entry(id_, parent, "context_edit", targetId=target, replacement=replacement)


CALL = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a"}}
GAVE = {"role": "toolResult", "toolCallId": "c1", "toolName": "read", "content": "whole file"}


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        pytest.param(
            [*talk("a", "b"), edit("e", "b", "a", "other")], ["other", "b"], id="the user's"
        ),
        pytest.param([*talk("a", "b"), edit("e", "b", "a", None)], ["b"], id="left out"),
        pytest.param(
            [
                *talk("a"),
                entry("b", "a", message=answer("look", CALL)),
                entry("r", "b", message=GAVE),
                edit("e", "r", "r", [{"type": "text", "text": "short"}]),
            ],
            ["a", "look", "short"],
            id="a result",
        ),
        pytest.param(
            [
                *talk("a"),
                entry("b", "a", message=answer("look", CALL)),
                entry("r", "b", message=GAVE),
                edit("e", "r", "b", None),
                edit("f", "e", "r", None),
            ],
            ["a"],
            id="a call and its result, left out",
        ),
        pytest.param(
            [*talk("a", "b"), edit("e", "b", "a", "one"), edit("f", "e", "a", "two")],
            ["two", "b"],
            id="the later of two",
        ),
        pytest.param(
            [
                entry("a", None, "custom_message", customType="t", content="hint", display=True),
                edit("e", "a", "a", "other hint"),
            ],
            ["other hint"],
            id="what an extension said",
        ),
        pytest.param(
            [*talk("a", "b"), edit("e", "b", "a", "other"), *talk("c", below="b")],
            ["a", "b", "c"],
            id="on a branch that was left",
        ),
        pytest.param(
            [*talk("a", "b", "x"), *talk("c", below="b"), edit("e", "c", "x", "other")],
            ["a", "b", "c"],
            id="of what is on another branch",
        ),
    ],
)
def test_an_edit_of_the_context_changes_what_the_model_is_sent(
    entries: list[dict[str, Any]], said: list[str]
) -> None:
    found = imported(*entries)
    assert found.reasons == {}
    assert [text for text in texts(found) if text] == said
    assert "whole file" not in json.dumps([told(found, "openai"), told(found, "anthropic")])


@pytest.mark.parametrize("content", [7, {"no": "content"}, True])
def test_an_edit_that_nobody_understands_is_counted(content: object) -> None:
    broken = edit("e", "a", "a", "x") | {"replacement": content}
    found = imported(*talk("a"), broken)
    assert found.reasons == {"unknown_shape": 1}
    assert texts(found) == ["a"]


def test_the_types_of_this_autumn_are_no_doubt_of_the_file() -> None:
    found = imported(
        entry("p", None, message={"role": "system", "content": "", "sections": {"cwd": "/x"}}),
        *talk("a", below="p"),
        entry("w", "a", "usage", kind="cache_warm", provider="p", model="m", usage={"input": 1}),
        entry("n", "w", message={"role": "user", "content": None}),
        entry("o", "n", message=answer("x") | {"content": None}),
        entry("q", "o", "custom_message", customType="t", content=None, display=False),
    )
    assert (found.reasons, found.unknown_types) == ({}, {})
    assert [one["content"] for one in told(found)] == ["a"]
    assert [one.type for one in found.entries][3] == "pi.usage"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"exitCode": 0}, "Ran `make`\n```\nbuilt\n```"),
        ({"exitCode": 2}, "Ran `make`\n```\nbuilt\n```\n(exit code 2)"),
        ({"cancelled": True}, "Ran `make`\n```\nbuilt\n```\n(cancelled)"),
        (
            {"exitCode": 0, "truncated": True, "fullOutputPath": "/tmp/out"},
            "Ran `make`\n```\nbuilt\n```\n(only a part of the output; all of it: /tmp/out)",
        ),
        (
            {"exitCode": 1, "truncated": True},
            "Ran `make`\n```\nbuilt\n```\n(exit code 1)\n(only a part of the output)",
        ),
        ({"output": "", "cancelled": True, "exitCode": None}, "Ran `make`\n(cancelled)"),
    ],
)
def test_how_a_command_of_the_user_ended(more: dict[str, Any], said: str) -> None:
    ran = {"role": "bashExecution", "command": "make", "output": "built", "timestamp": 1}
    assert texts(imported(entry("a", None, message=ran | more))) == [said]
