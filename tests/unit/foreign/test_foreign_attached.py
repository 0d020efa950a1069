"""What Claude Code attached to what was said: the model was given it, so it is in the messages."""

from __future__ import annotations

from typing import Any

import pytest
from imported_session import told, told_texts
from test_foreign_claude import assistant, line, user

from walld.foreign import claude
from walld.foreign.entries import Imported

FORMATS = ("plain", "openai", "anthropic")
_PICTURE = {"type": "image", "file": {"base64": "iVBORw0KGgo=", "type": "image/png"}}
_TEXT = {"type": "text", "file": {"filePath": "/w/a.py", "content": "x = 1\n", "startLine": 3}}
_HOOKS = {"hookName": "SessionStart:startup", "hookEvent": "SessionStart", "toolUseID": "h"}


def session(**attachment: object) -> Imported:
    imported = claude.read(
        [
            user("u", None, "look at it"),
            line("attachment", "f", "u", attachment=attachment),
            assistant("a", "f", "m", {"type": "text", "text": "seen"}),
        ]
    )
    assert imported.not_understood == 0
    assert [one.id for one in imported.entries][-1] == "a"
    return imported


@pytest.mark.parametrize(
    ("attachment", "words"),
    [
        ({"type": "file", "filename": "/w/a.py", "content": _TEXT}, ["/w/a.py", "x = 1"]),
        (
            {"type": "selected_lines_in_ide", "filename": "/w/a.py", "lineStart": 3, "lineEnd": 4}
            | {"ideName": "an editor", "content": "x = 1"},
            ["/w/a.py", "3", "4", "x = 1"],
        ),
        ({"type": "edited_text_file", "filename": "/w/a.py", "snippet": "3→x = 2"}, ["3→x = 2"]),
        ({"type": "edited_text_file", "filename": "/w/big.py", "snippet": ""}, ["/w/big.py"]),
        ({"type": "opened_file_in_ide", "filename": "/w/a.py"}, ["/w/a.py"]),
        ({"type": "directory", "path": "/w", "content": "a.py\nb.py"}, ["/w", "a.py\nb.py"]),
        (
            {"type": "nested_memory", "path": "/w/CLAUDE.md"}
            | {"content": {"path": "/w/CLAUDE.md", "type": "Project", "content": "use tabs"}},
            ["/w/CLAUDE.md", "use tabs"],
        ),
        ({"type": "hook_additional_context", "content": ["on main", "clean"]} | _HOOKS, ["clean"]),
        ({"type": "hook_success", "content": "deploys are frozen"} | _HOOKS, ["frozen"]),
        (
            {"type": "hook_blocking_error", "blockingError": {"blockingError": "no tests ran"}}
            | _HOOKS,
            ["no tests ran"],
        ),
        (
            {"type": "task_reminder", "itemCount": 1}
            | {"content": [{"id": "1", "subject": "write it", "status": "pending"}]},
            ["write it", "pending"],
        ),
        (
            {"type": "mcp_resource", "server": "docs", "uri": "docs://a"}
            | {"content": {"contents": [{"uri": "docs://a", "text": "how to"}]}},
            ["docs://a", "how to"],
        ),
        (
            {"type": "diagnostics", "files": [{"uri": "file:///w/a.py", "diagnostics": [
                {"message": "x is not defined", "severity": "Error"}]}]},
            ["file:///w/a.py", "x is not defined"],
        ),
        ({"type": "compact_file_reference", "filename": "/w/long.py"}, ["/w/long.py"]),
    ],
)  # fmt: skip
def test_what_was_attached_is_told(attachment: dict[str, Any], words: list[str]) -> None:
    imported = session(**attachment)
    for format_ in FORMATS:
        said = "".join(text for role, text in told_texts(imported, format_) if role == "user")
        assert all(word in said for word in ["look at it", *words]), said
    entry = imported.entries[1]
    assert (entry.id, entry.payload["_foreign"]["attachment"]["type"]) == ("f", attachment["type"])


def test_a_picture_is_sent() -> None:
    imported = session(type="file", filename="/w/a.png", content=_PICTURE)
    (said, _) = told(imported, "anthropic")
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    assert {"type": "image", "source": source} in said["content"]


@pytest.mark.parametrize(
    "attachment",
    [
        {"type": "task_reminder", "content": [], "itemCount": 0},
        {"type": "hook_success", "content": "", **_HOOKS},
        {"type": "hook_success", "content": "fmt ok", "hookEvent": "PostToolUse"},
        {"type": "command_permissions", "allowedTools": []},
        {"type": "plan_mode", "reminderType": "full"},
        {"type": "file"},
        {"type": "file", "filename": "a", "content": {"type": "text", "file": None}},
        {"type": ["file"]},
        {"type": "nested_memory", "content": 1},
        {"type": "diagnostics", "files": [1, {"uri": 1, "diagnostics": 1}]},
    ],
)
def test_what_holds_nothing_for_the_model_is_an_event(attachment: dict[str, Any]) -> None:
    imported = session(**attachment)
    assert [one.type for one in imported.entries] == ["message", "claude.attachment", "message"]


def test_it_comes_between_a_call_and_its_result() -> None:
    call = {"type": "tool_use", "id": "c", "name": "Read", "input": {}}
    hook = {"type": "hook_additional_context", "content": ["mind the tests"], "hookName": "h"}
    result = [{"type": "tool_result", "tool_use_id": "c", "content": "done"}]
    imported = claude.read(
        [
            user("u", None, "go"),
            assistant("a", "u", "m", call),
            line("attachment", "h", "a", attachment=hook),
            user("r", "h", result),
            assistant("b", "r", "n", {"type": "text", "text": "ok"}),
        ]
    )
    sent = told(imported, "openai")
    assert [one["role"] for one in sent] == ["user", "assistant", "tool", "user", "assistant"]
    assert sent[2]["content"] == "done"
    assert "mind the tests" in sent[3]["content"]
