"""Sessions of Claude Code."""

from __future__ import annotations

import json

from imported_session import events_of
from test_foreign_pi import leaf_of, path_of

from walld.foreign import claude
from walld.sessions.views.state_view import state_view


def line(type_: str, uuid: str | None, parent: str | None, **fields: object) -> str:
    value = {"parentUuid": parent, "isSidechain": False, "sessionId": "s", "type": type_}
    at = {"timestamp": "2025-06-01T10:00:00.000Z"}
    return json.dumps(value | ({"uuid": uuid} if uuid else {}) | at | fields) + "\n"


def user(uuid: str, parent: str | None, content: object, **fields: object) -> str:
    return line("user", uuid, parent, message={"role": "user", "content": content}, **fields)


def assistant(uuid: str, parent: str | None, answer: str, *blocks: object, **fields: object) -> str:
    said = {"id": answer, "role": "assistant", "model": "m", "content": list(blocks)}
    return line("assistant", uuid, parent, message=said, **fields)


def call(call_id: str) -> dict[str, object]:
    return {"type": "tool_use", "id": call_id, "name": "Read", "input": {"path": "a"}}


def result(call_id: str, text: str = "read") -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": False}


TEXT = {"type": "text", "text": "hello"}


def test_a_turn_with_a_tool():
    imported = claude.read(
        [
            user("u", None, "hi", cwd="/home/someone"),
            assistant("a", "u", "m1", TEXT),
            assistant("b", "a", "m1", call("t")),
            user("r", "b", [result("t")], toolUseResult={"file": 1}),
            assistant("c", "r", "m2", TEXT),
        ]
    )
    assert imported.not_understood == 0
    assert path_of(imported, leaf_of(imported)) == ["u", "a", "b", "r", "c"]
    by_id = {one.id: one.payload for one in imported.entries}
    assert by_id["u"]["_foreign"]["cwd"] == "/home/someone"
    assert by_id["b"]["tool_calls"][0]["function"] == {
        "name": "Read",
        "arguments": '{"path": "a"}',
    }
    assert by_id["b"]["_foreign"]["message"] == {"id": "m1", "model": "m"}
    assert (by_id["r"]["role"], by_id["r"]["tool_call_id"]) == ("tool", "t")
    assert by_id["r"]["content"] == "read"
    assert by_id["r"]["_foreign"]["toolUseResult"] == {"file": 1}


def test_parallel_calls_keep_all_their_results():
    imported = claude.read(
        [
            user("u", None, "hi"),
            assistant("a", "u", "m1", call("t1")),
            assistant("b", "a", "m1", call("t2")),
            user("r1", "a", [result("t1")]),
            user("r2", "b", [result("t2")]),
            assistant("c", "r1", "m2", TEXT),
        ]
    )
    assert path_of(imported, leaf_of(imported)) == ["u", "a", "b", "r1", "r2", "c"]


def test_a_retry_is_a_branch():
    imported = claude.read(
        [
            user("u", None, "hi"),
            assistant("a", "u", "m1", TEXT),
            assistant("b", "u", "m2", TEXT),
            user("v", "a", "back to the first"),
        ]
    )
    assert path_of(imported, "b") == ["u", "b"]
    assert path_of(imported, leaf_of(imported)) == ["u", "a", "v"]


def test_several_results_in_a_line():
    imported = claude.read(
        [
            assistant("a", None, "m1", call("t1"), call("t2")),
            user("r", "a", [result("t1"), result("t2"), {"type": "text", "text": "and"}]),
        ]
    )
    payloads = [one.payload for one in imported.entries[1:]]
    assert [one["role"] for one in payloads] == ["tool", "tool", "user"]
    assert payloads[2]["content"] == [{"type": "text", "text": "and"}]
    assert imported.entries[-1].id == "r"
    assert len(path_of(imported, "r")) == 4


def test_a_sidechain_is_a_branch_that_is_never_the_leaf():
    imported = claude.read(
        [
            user("u", None, "hi"),
            assistant("a", "u", "m1", call("task")),
            user("s1", None, "do it", isSidechain=True),
            assistant("s2", "s1", "m9", TEXT, isSidechain=True),
            user("r", "a", [result("task")]),
        ]
    )
    assert path_of(imported, "s2") == ["u", "a", "s1", "s2"]
    assert path_of(imported, leaf_of(imported)) == ["u", "a", "r"]


def test_a_file_that_is_a_sidechain_alone():
    imported = claude.read([user("s1", None, "do it", isSidechain=True)])
    assert leaf_of(imported) == "s1"


def test_a_compaction_replaces_what_is_above():
    imported = claude.read(
        [
            user("u", None, "hi"),
            assistant("a", "u", "m1", TEXT),
            line("system", "b", None, subtype="compact_boundary", logicalParentUuid="a"),
            user("k", "b", "so far", isCompactSummary=True),
            user("v", "k", "go on"),
        ]
    )
    assert path_of(imported, "v") == ["u", "a", "b", "k", "v"]
    kinds = {one.id: one.type for one in imported.entries}
    assert (kinds["b"], kinds["k"]) == ("claude.system", "compaction")
    replacement = imported.entries[3].payload["replacement"]
    assert replacement == [{"role": "user", "content": "so far"}]


def compacted(preserves: dict[str, object], after: str) -> list[dict[str, object]]:
    """A session of four messages, compacted, with one more that hangs on `after`."""
    imported = claude.read(
        [
            user("u", None, "hi"),
            assistant("a", "u", "m1", TEXT),
            user("v", "a", "and?"),
            assistant("b", "v", "m2", call("t")),
            user("r", "b", [result("t")]),
            line("system", "c", None, subtype="compact_boundary", compactMetadata=preserves),
            user("k", "c", "so far", isCompactSummary=True),
            user("w", after, "go on"),
        ]
    )
    assert imported.not_understood == 0
    path = path_of(imported, leaf_of(imported))
    assert path[-2:] == ["k", "w"], "what hangs on a preserved message hangs on the compaction"
    by_id = {one.id: one.payload for one in imported.entries}
    replacement: list[dict[str, object]] = by_id["k"]["replacement"]
    return replacement


def test_what_a_compaction_preserves_stands_behind_its_summary():
    listed = {"anchorUuid": "k", "uuids": ["v", "b", "r", "gone"], "allUuids": ["v", "b", "r"]}
    segment = {"headUuid": "v", "anchorUuid": "k", "tailUuid": "r"}
    for preserves in (
        {"preservedMessages": listed, "preservedSegment": segment},
        {"preservedSegment": segment},
    ):
        for after in ("k", "r"):
            kept = compacted(preserves, after)
            assert [one["role"] for one in kept] == ["user", "user", "assistant", "tool"]
            assert [one["content"] for one in kept[:2]] == ["so far", "and?"]
    broken = ({"headUuid": "r", "tailUuid": "v"}, {"headUuid": "gone", "tailUuid": "r"}, {}, [])
    for one in broken:
        assert len(compacted({"preservedSegment": one}, "k")) == 1


def test_what_was_typed_while_the_model_worked_is_a_message():
    """No line of the user's has it."""
    typed = {"type": "queued_command", "prompt": "and in euros", "commandMode": "prompt"}
    queued = line("queue-operation", None, None, operation="enqueue", content="and in euros")
    imported = claude.read(
        [
            user("u", None, "hi"),
            assistant("a", "u", "m1", call("t1")),
            queued,
            assistant("b", "a", "m1", call("t2")),
            user("r1", "a", [result("t1")]),
            user("r2", "b", [result("t2")]),
            line("attachment", "q", "r2", attachment=typed),
            line("attachment", "f", "q", attachment={"type": "file", "content": "x"}),
            assistant("c", "f", "m2", TEXT),
        ]
    )
    assert imported.not_understood == 0
    path = path_of(imported, leaf_of(imported))
    by_id = {one.id: one for one in imported.entries}
    said = [by_id[id_] for id_ in path if by_id[id_].type == "message"]
    assert [one.id for one in said] == ["u", "a", "b", "r1", "r2", "q", "c"]
    told = by_id["q"].payload
    assert (told["role"], told["content"]) == ("user", "and in euros")
    assert told["_foreign"]["attachment"] == {"type": "queued_command", "commandMode": "prompt"}


def test_what_the_program_says_of_the_api_is_no_message():
    imported = claude.read(
        [
            user("u", None, "hi"),
            assistant("e", "u", "m1", TEXT, isApiErrorMessage=True),
            user("v", "e", "again"),
        ]
    )
    assert [one.type for one in imported.entries] == ["message", "claude.api_error", "message"]
    assert path_of(imported, "v") == ["u", "e", "v"]


def test_a_result_that_is_an_error_says_so():
    failed = result("t") | {"is_error": True}
    imported = claude.read([assistant("a", None, "m1", call("t")), user("r", "a", [failed])])
    assert imported.entries[-1].payload["is_error"] is True


def test_titles_and_bookkeeping():
    imported = claude.read(
        [
            json.dumps({"type": "summary", "summary": "title", "leafUuid": "a"}) + "\n",
            json.dumps({"type": "summary", "summary": "other", "leafUuid": "elsewhere"}) + "\n",
            json.dumps({"type": "file-history-snapshot", "messageId": "x"}) + "\n",
            user("u", None, "hi"),
            assistant("a", "u", "m1", TEXT),
            assistant("b", "u", "m2", TEXT),
            json.dumps({"type": "last-prompt", "leafUuid": "a"}) + "\n",
        ]
    )
    labels = [one.payload for one in imported.entries if one.type == "label"]
    assert [(one["target"], one["text"]) for one in labels] == [("a", "title")]
    assert "claude.summary" in [one.type for one in imported.entries]
    assert path_of(imported, "a") == ["u", "a"]
    assert leaf_of(imported) == "a"
    assert imported.not_understood == 0


def test_what_is_not_understood():
    imported = claude.read(
        [
            user("u", None, "hi"),
            line("hologram", "h", "u"),
            "oops\n",
            user("v", "h", "still here"),
            user("v", "h", "twice"),
            line("user", "w", "v"),
            '{"type":"us',
        ]
    )
    assert imported.reasons == {
        "malformed": 1,
        "repeated_id": 1,
        "torn": 1,
        "unknown_shape": 1,
        "unknown_type": 1,
    }
    assert path_of(imported, "v") == ["u", "h", "v"]


def test_the_model_is_the_one_of_the_last_answer_but_for_what_claude_code_says_itself():
    """As pi's fold, which `test_foreign_pi_folds.py` has."""
    own = {"id": "m9", "role": "assistant", "model": "<synthetic>", "content": [TEXT]}
    lines = [
        user("u", None, "hi"),
        assistant("a", "u", "m1", TEXT),
        line("assistant", "b", "a", message=own),
    ]
    assert state_view(events_of(claude.read(lines[:1])))["model"] is None
    assert state_view(events_of(claude.read(lines)))["model"] == "m"
