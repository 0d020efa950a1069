"""Rollouts of Codex."""

from __future__ import annotations

import json

from walld.foreign import codex


def line(type_: str, **payload: object) -> str:
    value = {"timestamp": "2025-09-01T10:00:00.000Z", "type": type_, "payload": payload}
    return json.dumps(value) + "\n"


def item(**payload: object) -> str:
    return line("response_item", **payload)


def said(role: str, text: str) -> str:
    kind = "output_text" if role == "assistant" else "input_text"
    return item(type="message", role=role, content=[{"type": kind, "text": text}])


CONTEXT = "<environment_context>\n</environment_context>"


def turn(text: str) -> list[str]:
    event = line("event_msg", type="user_message", message=text)
    return [said("user", text), event, said("assistant", f"on {text}")]


def test_a_rollout():
    imported = codex.read(
        [
            line("session_meta", id="s", cwd="/home/someone", cli_version="0.1"),
            line("turn_context", turn_id="1", model="gpt", cwd="/home/someone"),
            said("developer", "rules"),
            *turn("hi"),
            item(type="reasoning", summary=[], encrypted_content="x"),
            item(type="function_call", id="fc", name="shell", arguments='{"a":1}', call_id="c1"),
            item(type="function_call_output", call_id="c1", output="done"),
            item(type="custom_tool_call", name="apply_patch", input="*** Begin", call_id="c2"),
            item(
                type="custom_tool_call_output",
                call_id="c2",
                output={"content": "ok", "success": True},
            ),
            item(type="local_shell_call", call_id="c3", action={"command": ["ls"]}),
            line("turn_context", turn_id="2", model="gpt"),
        ]
    )
    assert imported.not_understood == 0
    types = [one.type for one in imported.entries]
    assert types.count("model_change") == 1
    assert types[:3] == ["codex.session_meta", "codex.turn_context", "model_change"]
    assert "codex.reasoning" in types
    assert "codex.event" in types
    messages = [one.payload for one in imported.entries if one.type == "message"]
    roles = [one["role"] for one in messages]
    assert roles == ["developer", "user", "assistant"] + ["assistant", "tool"] * 2 + ["assistant"]
    calls = [one["tool_calls"][0]["function"] for one in messages if "tool_calls" in one]
    assert calls[0] == {"name": "shell", "arguments": '{"a":1}'}
    assert json.loads(calls[1]["arguments"]) == {"input": "*** Begin"}
    assert calls[2] == {"name": "local_shell", "arguments": '{"command": ["ls"]}'}
    assert (messages[4]["content"], messages[6]["content"]) == ("done", "ok")
    assert messages[6]["_foreign"]["output"] == {"success": True}
    assert "fc" in {one.id for one in imported.entries}


def test_a_rollback_takes_turns_back():
    rollback = line("event_msg", type="thread_rolled_back", num_turns=2)
    imported = codex.read([said("user", CONTEXT), *turn("a"), *turn("b"), *turn("c"), rollback])
    undo = imported.entries[-1]
    assert (undo.type, undo.payload["n"]) == ("undo", 4)
    more = codex.read(
        [said("user", CONTEXT), *turn("a"), *turn("b"), rollback, *turn("d"), rollback]
    )
    undone = [one.payload["n"] for one in more.entries if one.type == "undo"]
    assert undone == [4, 2]  # the context before the first turn stays


def test_compactions():
    history = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "so far"}]},
        {"type": "compaction", "encrypted_content": "x"},
    ]
    imported = codex.read(
        [
            line("compacted", message="brief"),
            line("compacted", message="", replacement_history=history),
        ]
    )
    brief, whole = (one.payload for one in imported.entries)
    assert brief["replacement"] == [{"role": "user", "content": "brief"}]
    assert [one["role"] for one in whole["replacement"]] == ["user"]
    assert whole["_foreign"]["replacement_history"] == history[1:]


def test_a_compaction_that_is_a_summary_alone_keeps_what_the_user_said():
    """As Codex rebuilds it, and once more behind the next one."""
    rollback = line("event_msg", type="thread_rolled_back", num_turns=1)
    brief = line("compacted", message="brief")
    lines = [said("user", CONTEXT), *turn("a"), *turn("b"), brief, *turn("c"), *turn("d")]
    imported = codex.read([*lines, rollback, line("compacted", message="briefer")])
    assert imported.not_understood == 0
    kept = [one.payload["replacement"] for one in imported.entries if one.type == "compaction"]
    texts = [
        [
            one["content"] if isinstance(one["content"], str) else one["content"][0]["text"]
            for one in k
        ]
        for k in kept
    ]
    assert texts == [["a", "b", "brief"], ["a", "b", "c", "briefer"]]
    assert {one["role"] for k in kept for one in k} == {"user"}


def undone(lines: list[str]) -> list[int]:
    entries = codex.read(lines).entries
    return [one.payload["n"] for one in entries if one.type == "undo"]


def test_a_rollback_past_a_compaction_takes_of_what_that_left():
    """As Codex counts: what the user said, and the summary, which stands last."""
    summary = "Another language model started to solve this problem and produced a summary of it"
    spoken = ("<environment_context>\n", "a", "b", summary)
    history = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        for text in spoken
    ]
    whole = line("compacted", message="", replacement_history=history)
    brief = line("compacted", message="brief")
    for compacted in (whole, brief):
        before = [said("user", CONTEXT), *turn("a"), *turn("b"), compacted]
        for turns, lost in ((1, 2), (2, 3), (3, 4), (9, 5)):
            rollback = line("event_msg", type="thread_rolled_back", num_turns=turns)
            # c and its answer, the summary, b, a; the context before them stays
            assert undone([*before, *turn("c"), rollback]) == [lost], (turns, compacted)
        rollback = line("event_msg", type="thread_rolled_back", num_turns=1)
        assert undone([*before, rollback]) == [1]


def test_a_summary_alone_keeps_what_the_list_of_the_compaction_before_has():
    history = [{"type": "message", "role": "user", "content": text} for text in ("a", "b")]
    lines = [line("compacted", message="", replacement_history=history), *turn("c")]
    brief = codex.read([*lines, line("compacted", message="brief")]).entries[-1]
    told = [one["content"] for one in brief.payload["replacement"]]
    assert told == ["a", "b", [{"type": "input_text", "text": "c"}], "brief"]


def test_lines_without_a_payload():
    bare = [
        {"id": "s", "timestamp": "2025-05-01T10:00:00Z", "instructions": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    ]
    imported = codex.read([json.dumps(one) + "\n" for one in bare])
    types = [one.type for one in imported.entries]
    assert types == ["codex.session_meta", "codex.state", "message"]


def test_all_that_its_writer_writes_is_known():
    """Lines and items of its present version; none of them is a message."""
    lines = ("world_state", "inter_agent_communication_metadata")
    items = ("context_compaction", "configuration_update", "additional_tools")
    imported = codex.read(
        [*(line(kind, x=1) for kind in lines), *(item(type=kind) for kind in items)]
    )
    assert imported.not_understood == 0
    assert [one.type for one in imported.entries] == [f"codex.{kind}" for kind in (*lines, *items)]


def test_a_call_that_failed_says_so():
    output = {"content": "no such file", "success": False}
    imported = codex.read([item(type="function_call_output", call_id="c1", output=output)])
    assert imported.entries[0].payload["is_error"] is True


def test_a_message_whose_writer_leaves_its_type_out():
    """As agentgrep has it in its samples."""
    imported = codex.read(
        [
            item(role="user", content=[{"type": "input_text", "text": "hi"}]),
            item(role="assistant", content=[{"type": "output_text", "text": "hello"}]),
            item(role="user"),
        ]
    )
    told = [(one.type, one.payload.get("role")) for one in imported.entries]
    assert told == [("message", "user"), ("message", "assistant"), ("foreign.codex", None)]


def test_what_is_not_understood():
    imported = codex.read(
        [
            line("hologram", x=1),
            item(type="hologram"),
            item(type="function_call", name="no call id"),
            item(type=["list"]),
            "oops\n",
            line("event_msg", type="token_count")[:-4],
        ]
    )
    assert imported.reasons == {
        "malformed": 1,
        "torn": 1,
        "unknown_shape": 2,
        "unknown_type": 2,
    }
    assert {one.type for one in imported.entries} == {"foreign.codex"}
