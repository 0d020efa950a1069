"""Conversations and event logs of gptme."""

from __future__ import annotations

import json

import pytest
from walld_client.recovered.provider import in_format

from walld.foreign import gptme


def lines(*values: object) -> list[str]:
    return [json.dumps(value) + "\n" for value in values]


def said(role: str, content: str, **fields: object) -> dict[str, object]:
    return {"role": role, "content": content, "timestamp": "2025-01-02T03:04:05"} | fields


def event(seq: int, type_: str, **payload: object) -> dict[str, object]:
    return {"seq": seq, "ts": "2025-01-02T03:04:05+00:00", "type": type_, "payload": payload}


ONE, TWO, THREE = said("user", "one"), said("assistant", "two"), said("user", "three")


def replayed(values: list[str]) -> list[str]:
    """What the messages say in the end, folded as the ledger does."""
    found: list[str] = []
    for one in gptme.read(values).entries:
        if one.type == "message":
            found.append(one.payload["content"])
        elif one.type == "undo":
            del found[max(0, len(found) - one.payload["n"]) :]
        elif one.type == "message_edit":
            found = [message["content"] for message in one.payload["messages"]]
    return found


def test_a_conversation():
    files = {"files": ["a.png"], "file_hashes": {"a.png": "00"}, "pinned": True}
    imported = gptme.read(lines(said("system", "be kind"), said("user", "look", **files)))
    assert (imported.format, imported.not_understood) == ("gptme", 0)
    assert [one.payload["role"] for one in imported.entries] == ["system", "user"]
    foreign = imported.entries[1].payload["_foreign"]
    assert foreign == files | {"timestamp": "2025-01-02T03:04:05"}
    assert imported.entries[1].at_ms == 1735787045000


def test_a_call_in_the_text_and_its_result():
    text = 'I look.\n@shell(call-1): {"command": "ls"}\nand @no(x): {1'
    imported = gptme.read(
        lines(
            said("assistant", text),
            said("system", "a.txt", call_id="call-1"),
            said("system", "who?", call_id="call-2"),
        )
    )
    call, result, orphan = (one.payload for one in imported.entries)
    assert call["content"] == text
    assert call["tool_calls"] == [
        {
            "id": "call-1",
            "type": "function",
            "function": {"name": "shell", "arguments": '{"command": "ls"}'},
        }
    ]
    assert (result["role"], result["tool_call_id"]) == ("tool", "call-1")
    assert result["_foreign"]["role"] == "system"
    assert orphan["role"] == "system"


def test_an_event_log():
    log = lines(
        event(1, "message_append", message=ONE),
        event(2, "message_append", message=TWO),
        event(3, "undo", n=1),
        event(4, "message_append", message=THREE),
        event(5, "checkpoint", messages=[ONE, THREE]),
        event(6, "message_edit", messages=[ONE | {"content": "1"}, THREE]),
    )
    assert replayed(log) == ["1", "three"]
    types = [one.type for one in gptme.read(log).entries]
    assert types == ["message", "message", "undo", "message", "message_edit"]


def test_a_compacted_log_begins_with_a_checkpoint():
    log = lines(event(50, "checkpoint", messages=[ONE, TWO]), event(51, "undo"))
    assert replayed(log) == ["one"]
    assert [one.type for one in gptme.read(log).entries] == ["message", "message", "undo"]


def test_a_checkpoint_that_knows_more_wins():
    log = lines(event(1, "message_append", message=ONE), event(9, "checkpoint", messages=[TWO]))
    assert replayed(log) == ["two"]


def test_all_undone():
    log = lines(event(1, "message_append", message=ONE), event(2, "undo", n=9))
    assert replayed(log) == []


def test_what_is_for_the_screen_alone_goes_to_no_provider():
    notice = said("system", "compacting") | {"ui_only": True}
    imported = gptme.read(lines(ONE, notice, TWO))
    assert [one.payload["role"] for one in imported.entries] == ["user", "ui", "assistant"]
    assert imported.entries[1].payload["_foreign"]["role"] == "system"
    log = lines(
        event(1, "message_append", message=ONE),
        event(2, "message_append", message=notice),
        event(3, "undo", n=1),
    )
    assert replayed(log) == ["one"]


def test_a_long_list_is_taken_back_and_appended():
    long = said("user", "x" * 200_000)
    log = lines(
        event(1, "message_append", message=ONE),
        event(2, "message_append", message=TWO),
        event(3, "message_edit", messages=[ONE, long, THREE]),
    )
    assert replayed(log) == ["one", long["content"], "three"]
    assert "message_edit" not in [one.type for one in gptme.read(log).entries]


def test_what_is_not_understood():
    imported = gptme.read(
        [
            *lines(event(1, "merge", x=1), event(2, "undo", n="two"), {"role": "pope"}),
            "nonsense\n",
            "[1]\n",
            json.dumps(ONE)[:-3],
        ]
    )
    assert imported.reasons == {
        "malformed": 1,
        "not_an_object": 1,
        "torn": 1,
        "unknown_shape": 2,
        "unknown_type": 1,
    }
    assert [one.type for one in imported.entries] == ["foreign.gptme"] * 6
    assert imported.entries[0].payload["line"] == json.dumps(event(1, "merge", x=1))


@pytest.mark.parametrize("shape", ["openai", "anthropic"])
@pytest.mark.parametrize("written", ["conversation", "events", "edited"])
def test_files_that_were_sent_with_a_message_are_named(shape: str, written: str):
    files = {"files": ["/w/shot.png", "b.pdf"], "file_hashes": {"/w/shot.png": "ab12"}}
    call = 'I look.\n@vision(call-1): {"path": "x"}'
    told = [
        said("system", "rules", files=["rules.md"]),
        said("user", "what is this?", **files),
        said("assistant", call),
        said("system", "seen", call_id="call-1", files=["seen.png"]),
        said("system", "screenshot", files=["screen.png"]),
        said("user", "", files=["alone.png"]),
    ]
    if written == "conversation":
        log = lines(*told)
    else:
        log = lines(*(event(n, "message_append", message=one) for n, one in enumerate(told, 1)))
    if written == "edited":
        log += lines(event(9, "message_edit", messages=[*told, said("user", "go on")]))
    newest = gptme.read(log).entries
    messages = (
        newest[-1].payload["messages"] if written == "edited" else [one.payload for one in newest]
    )
    assert messages[1]["attachments"] == [
        {"name": "/w/shot.png", "hash": "ab12"},
        {"name": "b.pdf"},
    ]
    shown = json.dumps(in_format(messages, shape))
    for name in ("rules.md", "/w/shot.png", "b.pdf", "seen.png", "screen.png", "alone.png"):
        assert f"[attachment {name}: not shown]" in shown, name


@pytest.mark.parametrize("files", [None, [], "a.png", [1, None, ""], {"a": 1}])
def test_what_names_no_files_attaches_nothing(files: object):
    (one,) = gptme.read(lines(said("user", "hi", files=files, file_hashes=files))).entries
    assert "attachments" not in one.payload
