"""What other agents say to the model: it is in the messages that the model is sent."""

from __future__ import annotations

import json

import pytest
from imported_session import told_texts
from test_foreign_claude import TEXT, assistant, user
from test_foreign_claude import line as claude_line
from test_foreign_codex import item, line, said

from walld.foreign import claude, codex
from walld.foreign.entries import Imported

TASK = "Message Type: NEW_TASK\nSender: /root\nPayload:\nfind the flaky test"
FORMATS = ("plain", "openai", "anthropic")


def agent_message(text: str, **more: object) -> str:
    content = [{"type": "input_text", "text": text}]
    return item(type="agent_message", author="/root", recipient="/a", content=content, **more)


def communication(text: str, **more: object) -> dict[str, object]:
    said = {"author": "/root", "recipient": "/a", "other_recipients": [], "content": text}
    return said | {"trigger_turn": True} | more


def user_said(imported: Imported) -> list[list[str]]:
    assert imported.not_understood == 0
    return [[text for role, text in told_texts(imported, f) if role == "user"] for f in FORMATS]


def test_a_childs_task() -> None:
    imported = codex.read([agent_message(TASK, id="am1"), said("assistant", "It is test_clock.")])
    assert user_said(imported) == [[TASK]] * 3
    first = imported.entries[0]
    assert (first.id, first.payload["_foreign"]["author"]) == ("am1", "/root")


@pytest.mark.parametrize("trigger", [True, False])
def test_a_parents_later_word(trigger: bool) -> None:
    later = line("inter_agent_communication", **communication("fix it", trigger_turn=trigger))
    imported = codex.read([agent_message(TASK), said("assistant", "found"), later])
    assert user_said(imported) == [[TASK, "fix it"]] * 3


def test_a_childs_final_answer() -> None:
    lines = [said("user", "fix it"), said("assistant", "asking"), agent_message("it is fixed")]
    assert (
        user_said(codex.read([*lines, said("assistant", "thanks")]))
        == [["fix it", "it is fixed"]] * 3
    )


@pytest.mark.parametrize("role", ["assistant", "user"])
def test_a_word_that_was_kept_as_json(role: str) -> None:
    """As builds of the spring of 2026 told the model of it."""
    lines = [
        said("user", "hi"),
        said("assistant", "ready"),
        said(role, json.dumps(communication("go"))),
    ]
    imported = codex.read([*lines, said("assistant", "gone")])
    assert user_said(imported) == [["hi", "go"]] * 3


def test_a_word_that_nobody_can_read_says_that_it_was_there() -> None:
    sealed = communication("", encrypted_content="gAAAA")
    blocks = [
        {"type": "input_text", "text": "Message Type: MESSAGE\nPayload:\n"},
        {"type": "encrypted_content", "encrypted_content": "gAAAA"},
    ]
    both = item(type="agent_message", author="/root", recipient="/a", content=blocks)
    for sealed_line in (line("inter_agent_communication", **sealed), both):
        for texts in user_said(codex.read([sealed_line, said("assistant", "done")])):
            assert "Message Type: " in texts[0]


def test_a_word_that_stands_twice_is_told_once() -> None:
    told = line("inter_agent_communication", id="am1", **communication("fix it"))
    imported = codex.read([agent_message("fix it", id="am1"), told, said("assistant", "done")])
    assert user_said(imported) == [["fix it"]] * 3


def test_words_of_teammates_of_claude_code() -> None:
    mail = [
        {"from": "lead", "text": "take the parser", "timestamp": "2026-03-01T10:00:00Z"},
        {"from": "tests", "text": "42 fail", "color": "red"},
    ]
    attached = {"type": "teammate_mailbox", "messages": mail}
    imported = claude.read(
        [
            user("u", None, "hi"),
            assistant("a", "u", "m1", TEXT),
            claude_line("attachment", "t", "a", attachment=attached),
            assistant("b", "t", "m2", TEXT),
        ]
    )
    for texts in user_said(imported):
        assert texts[0] == "hi"
        for word in ("lead", "take the parser", "tests", "42 fail"):
            assert word in texts[1]
