"""What each wire can say, event by event: one test for each thing that a naive fold gets wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from adapters.answers import answer
from unit.client.adapters.wires.test_adapters_odd_bodies import Said
from walld_client.adapters.wires.body import Body
from walld_client.adapters.wires.wire import Fold, failure_of


def fold(events: list[dict[str, Any]], *, done: bool = False) -> tuple[list[Any], Fold]:
    """The calls that a body of these events makes."""
    body, said = Body(is_answer=True), Said()
    frames = [
        ("" if event.get("type") == "error" else f"event: {event.get('type')}\n")
        + f"data: {json.dumps(event)}\n\n"
        for event in events
    ]
    for frame in [*frames, *["data: [DONE]\n\n"] * done]:
        for item in body.feed(frame.encode()):
            assert body.fold is not None
            body.fold.take(item, said)
    assert body.unread == 0
    assert body.fold is not None
    return said.calls, body.fold


# --- OpenAI Chat ----------------------------------------------------------------------------------


def chunk(delta: dict[str, Any], reason: str | None = None, index: int = 0) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "finish_reason": reason}
    return {"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


def call(index: int | None, call_id: str | None, name: str | None, arguments: str | None) -> Any:
    one = {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}
    return {"tool_calls": [{key: value for key, value in one.items() if value is not None}]}


def test_calls_interleave_by_index() -> None:
    said, _ = fold(
        [
            chunk(call(0, "a", "f", "")),
            chunk(call(1, "b", "g", "")),
            chunk(call(0, None, None, "{1")),
            chunk(call(1, None, None, "{2")),
            chunk(call(0, None, None, "}")),
        ]
    )
    assert said == [
        ("tool", "f", {"call_id": "a"}),
        ("tool", "g", {"call_id": "b"}),
        ("tool_arguments", "{1", {"call_id": "a"}),
        ("tool_arguments", "{2", {"call_id": "b"}),
        ("tool_arguments", "}", {"call_id": "a"}),
    ]


def test_a_server_that_gives_every_call_the_index_0() -> None:
    said, _ = fold(
        [
            chunk(call(0, "a", "f", "{}")),
            chunk(call(0, "b", "f", "[")),
            chunk(call(0, "b", None, "]")),
        ]
    )
    assert said == [
        ("tool", "f", {"call_id": "a"}),
        ("tool_arguments", "{}", {"call_id": "a"}),
        ("tool", "f", {"call_id": "b"}),
        ("tool_arguments", "[", {"call_id": "b"}),
        ("tool_arguments", "]", {"call_id": "b"}),
    ]


def test_calls_without_an_id_or_an_index() -> None:
    said, _ = fold([chunk(call(0, None, "f", "{")), chunk(call(None, None, None, "}"))])
    assert said == [
        ("tool", "f", {"call_id": "c1:0"}),
        ("tool_arguments", "{", {"call_id": "c1:0"}),
        ("tool_arguments", "}", {"call_id": "c1:0"}),
    ]


def test_calls_of_a_server_that_gives_no_index_at_all() -> None:
    said, _ = fold(
        [
            chunk(call(None, "a", "f", "")),
            chunk(call(None, None, None, '{"x":')),
            chunk(call(None, None, None, "1}")),
            chunk(call(None, "b", "g", "[")),
            chunk(call(None, None, None, "]")),
            chunk(call(None, "a", None, " ")),
            chunk({}, "tool_calls"),
        ]
    )
    assert said == [
        ("tool", "f", {"call_id": "a"}),
        ("tool_arguments", '{"x":', {"call_id": "a"}),
        ("tool_arguments", "1}", {"call_id": "a"}),
        ("tool", "g", {"call_id": "b"}),
        ("tool_arguments", "[", {"call_id": "b"}),
        ("tool_arguments", "]", {"call_id": "b"}),
        ("tool_arguments", " ", {"call_id": "a"}),
        ("finish", "tool_calls"),
    ]


def test_the_function_call_of_before_there_were_tools() -> None:
    said, _ = fold(
        [
            chunk({"function_call": {"name": "f", "arguments": ""}}),
            chunk({"function_call": {"arguments": "{}"}}),
            chunk({}, "function_call"),
        ]
    )
    assert said == [
        ("tool", "f", {"call_id": "c1:-1"}),
        ("tool_arguments", "{}", {"call_id": "c1:-1"}),
        ("finish", "function_call"),
    ]


def test_the_first_choice_is_the_reply_and_others_stand_beside_it() -> None:
    said, folded = fold(
        [
            chunk({"content": "one"}),
            chunk({"content": "other \ud83d"}, index=1),
            chunk({"content": " more"}),
            chunk({"content": "\ude00"}, index=1),
            chunk({}, "stop"),
        ]
    )
    assert said == [
        ("token", "one"),
        (
            "event",
            "choice",
            {"index": 1, "content": "other \ud83d".encode("utf-8", "surrogatepass")},
        ),
        ("token", " more"),
        ("event", "choice", {"index": 1, "content": "\ude00".encode("utf-8", "surrogatepass")}),
        ("finish", "stop"),
    ]
    assert not folded.may_end_here(), "the other one goes on"
    _, folded = fold(
        [chunk({"content": "a"}), chunk({"content": "b"}, "stop", 1), chunk({}, "stop")]
    )
    assert folded.may_end_here()
    assert not folded.is_ended
    _, folded = fold([chunk({"content": "a"}), chunk({}, "stop"), chunk({"content": "b"}, index=1)])
    assert not folded.may_end_here(), "one that began behind the end of the first"
    _, folded = fold([chunk({"content": "a"}), chunk({}, "stop"), chunk({})])
    assert folded.may_end_here(), "an empty chunk behind the end opens nothing"


def test_reasoning_that_comes_under_two_names_is_taken_once() -> None:
    said, _ = fold(
        [chunk({"reasoning_content": "hm", "reasoning": "hm"}), chunk({"reasoning": "so"})]
    )
    assert said == [("reasoning", "hm"), ("reasoning", "so")]


def test_chunks_without_choices_say_nothing() -> None:
    usage = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "choices": [],
        "usage": {"total_tokens": 9},
    }
    said, folded = fold(
        [{**usage, "prompt_filter_results": []}, chunk({"content": "x"}), usage], done=True
    )
    assert said == [("token", "x")]
    assert folded.is_ended


def test_a_refusal_is_text_with_a_mark() -> None:
    said, _ = fold([chunk({"refusal": "No."}), chunk({}, "stop")])
    assert said == [("token", "No.", {"refusal": True}), ("finish", "stop")]


def test_content_that_is_no_text_is_no_text() -> None:
    said, folded = fold(
        [chunk({"content": {"x": 1}}), chunk({"content": 7}), chunk({"content": None})]
    )
    assert said == [("event", "unknown_block", {"block": {"x": 1}})]
    assert folded.odd_events() == 1


def test_half_a_character() -> None:
    """Trap 4: msgspec refuses it, json lets it through, and the sink gets both halves."""
    for wire in ("chat", "responses", "messages"):
        body, said = Body(), Said()
        for frame in answer(wire, "emoji"):
            for item in body.feed(frame.body):
                assert body.fold is not None
                body.fold.take(item, said)
        texts = [one[1] for one in said.calls if one[0] == "token"]
        assert texts == ["so far ", "\ud83d", "\ude00", " \U0001f680 gut"], wire


# --- Anthropic Messages ---------------------------------------------------------------------------


def block(index: int, **about: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": about}


def delta(index: int, **about: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": about}


def test_a_block_may_begin_with_text() -> None:
    said, _ = fold([block(0, type="text", text="He"), delta(0, type="text_delta", text="llo")])
    assert said == [("token", "He"), ("token", "llo")]
    said, _ = fold([block(0, type="thinking", thinking="Hm", signature="")])
    assert said == [("reasoning", "Hm")]


def test_a_call_may_come_whole() -> None:
    said, _ = fold([block(0, type="tool_use", id="t", name="f", input={"a": 1})])
    assert said == [("tool", "f", {"a": 1}, {"call_id": "t"})]


def test_signatures_and_redacted_thinking_are_no_text() -> None:
    said, _ = fold(
        [
            block(0, type="thinking", thinking="", signature=""),
            delta(0, type="thinking_delta", thinking="a"),
            delta(0, type="signature_delta", signature="c2ln"),
            block(1, type="redacted_thinking", data="eA=="),
        ]
    )
    assert said == [
        ("reasoning", "a"),
        ("event", "signature", {"index": 0, "signature": "c2ln"}),
        ("event", "redacted_thinking", {"index": 1, "data": "eA=="}),
    ]


def test_tools_that_the_provider_runs() -> None:
    found = [{"type": "web_search_result", "url": "u", "title": "t"}]
    failed = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    said, _ = fold(
        [
            block(0, type="server_tool_use", id="s1", name="web_search", input={}),
            delta(0, type="input_json_delta", partial_json='{"query": "x"}'),
            block(1, type="web_search_tool_result", tool_use_id="s1", content=found),
            block(2, type="server_tool_use", id="s2", name="web_search", input={}),
            block(3, type="web_search_tool_result", tool_use_id="s2", content=failed),
            block(4, type="mcp_tool_use", id="s3", name="say", server_name="m", input={"a": 1}),
            block(5, type="mcp_tool_result", tool_use_id="s3", is_error=True, content="no"),
        ]
    )
    server = {"server": True}
    assert said == [
        ("tool", "web_search", None, {"call_id": "s1", **server}),
        ("tool_arguments", '{"query": "x"}', {"call_id": "s1"}),
        ("tool_result", found, {"call_id": "s1", "failed": False, **server}),
        ("tool", "web_search", None, {"call_id": "s2", **server}),
        ("tool_result", failed, {"call_id": "s2", "failed": True, **server}),
        ("tool", "say", {"a": 1}, {"call_id": "s3", **server}),
        ("tool_result", "no", {"call_id": "s3", "failed": True, **server}),
    ]


def test_pings_citations_and_events_of_another_day() -> None:
    said, folded = fold(
        [
            {"type": "message_start", "message": {"id": "m", "model": "x"}},
            {"type": "ping"},
            block(0, type="fallback", model="y"),
            delta(0, type="citations_delta", citation={}),
            {"type": "something_new", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        ]
    )
    fallback = {"type": "fallback", "model": "y"}
    assert said == [
        ("event", "unknown_block", {"index": 0, "block": fallback}),
        ("finish", "end_turn"),
    ]
    assert not folded.may_end_here(), "message_stop has not come"


# --- OpenAI Responses -----------------------------------------------------------------------------


def event(kind: str, **about: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "sequence_number": 1, **about}


def test_only_what_is_done_of_a_server_that_sends_no_deltas() -> None:
    at = {"output_index": 0, "content_index": 0}
    item = {"type": "function_call", "id": "i", "call_id": "c", "name": "f", "arguments": "{}"}
    said, _ = fold(
        [
            event("output_text.done", text="whole", **at),
            event("refusal.done", refusal="No.", **at),
            event("reasoning_text.done", text="hm", **at),
            event("output_item.done", output_index=1, item=item),
        ]
    )
    assert said == [
        ("token", "whole"),
        ("token", "No.", {"refusal": True}),
        ("reasoning", "hm"),
        ("tool", "f", {"call_id": "c"}),
        ("tool", "f", "{}", {"call_id": "c"}),
    ]


def test_deltas_and_then_what_is_done_say_it_once() -> None:
    at = {"output_index": 0, "content_index": 0}
    said, _ = fold(
        [
            event("output_text.delta", delta="a", **at),
            event("output_text.done", text="a", **at),
            event("refusal.delta", delta="b", **at),
            event("refusal.done", refusal="b", **at),
        ]
    )
    assert said == [("token", "a"), ("token", "b", {"refusal": True})]


def test_calls_that_the_provider_runs() -> None:
    mcp = {"type": "mcp_call", "id": "m1", "name": "say", "server_label": "l"}
    code = {"type": "code_interpreter_call", "id": "ci", "container_id": "k"}
    search = {"type": "web_search_call", "id": "w1", "status": "completed"}
    said, _ = fold(
        [
            event("output_item.added", output_index=0, item=mcp),
            event("mcp_call_arguments.delta", output_index=0, delta="{}"),
            event("output_item.done", output_index=0, item={**mcp, "error": "no", "output": None}),
            event("output_item.added", output_index=1, item=code),
            event("code_interpreter_call_code.delta", output_index=1, delta="1+1"),
            event("output_item.done", output_index=1, item={**code, "outputs": [1]}),
            event("output_item.added", output_index=2, item=search),
            event("output_item.done", output_index=2, item={**search, "action": {"query": "q"}}),
        ]
    )
    server = {"server": True}
    assert said == [
        ("tool", "say", {"call_id": "m1", **server}),
        ("tool_arguments", "{}", {"call_id": "m1"}),
        ("tool_result", "no", {"call_id": "m1", "failed": True, **server}),
        ("tool", "code_interpreter", {"call_id": "ci", **server}),
        ("tool_arguments", "1+1", {"call_id": "ci"}),
        (
            "tool_result",
            {"container_id": "k", "outputs": [1]},
            {"call_id": "ci", "failed": False, **server},
        ),
        ("tool", "web_search", {"call_id": "w1", **server}),
        ("tool", "web_search", {"query": "q"}, {"call_id": "w1"}),
        ("tool_result", {"action": {"query": "q"}}, {"call_id": "w1", "failed": False, **server}),
    ]


def test_an_answer_that_asks_for_tools_is_not_called_final() -> None:
    item = {"type": "function_call", "id": "i", "call_id": "c", "name": "f", "arguments": ""}
    added = event("output_item.added", output_index=0, item=item)
    said, _ = fold([added, event("completed", response={"id": "r"})])
    assert said[-1] == ("finish", "tool_calls")
    searched = event(
        "output_item.added", output_index=0, item={"type": "web_search_call", "id": "w"}
    )
    said, _ = fold([searched, event("completed", response={"id": "r"})])
    assert said[-1] == ("finish", "completed")
    said, _ = fold([chunk(call(0, "a", "f", "{}")), chunk({}, "stop")])
    assert said[-1] == ("finish", "tool_calls")


def test_the_ends_of_a_response() -> None:
    said, folded = fold(
        [
            event(
                "incomplete",
                response={"id": "r", "incomplete_details": {"reason": "max_output_tokens"}},
            )
        ]
    )
    assert (said, folded.is_ended) == ([("finish", "max_output_tokens")], True)
    error = {"code": "server_error", "message": "boom"}
    _, folded = fold([event("failed", response={"id": "r", "error": error})])
    assert folded.failure == ("boom", "server_error", {"code": "server_error"})
    assert not folded.may_end_here()
    _, folded = fold([{"type": "error", "code": "x", "message": "y", "sequence_number": 3}])
    assert folded.complaint is not None
    assert folded.complaint[:2] == ("y", "x")
    assert (folded.failure, folded.may_end_here()) == (None, False)


# --- all ------------------------------------------------------------------------------------------


def test_a_strangers_stream_is_not_recorded() -> None:
    """An MCP server's events, say: they have an error too, and it is no model's."""
    body = Body()
    assert body.feed(b'data: {"jsonrpc": "2.0", "id": 1, "error": {"message": "x"}}\n\n') == []
    assert body.feed(b"data: [DONE]\n\n") == []
    assert body.fold is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("text", ("text", "provider_error", "text")),
        (None, ("so", "provider_error", None)),
        ({"type": "error", "code": 7}, ("so", "7", {"type": "error", "code": 7})),
    ],
)
def test_an_error_of_any_shape(error: object, expected: tuple[Any, ...]) -> None:
    assert failure_of(error, "so") == (
        *expected[:2],
        None if not isinstance(error, dict) else error,
    )


def loaded(imports: str, *names: str) -> list[str]:
    """The modules of these names that importing that loads."""
    code = f"import sys, {imports}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    return [one for one in done.stdout.split() if set(one.split(".")) & set(names)]


def test_importing_the_client_imports_no_adapter() -> None:
    assert loaded("walld_client, walld_client.aio", "adapters") == []
    assert "walld_client.adapters.frameworks.teeing" in loaded("walld_client.adapters", "adapters")
    sdks = ("httpx2", "openai", "anthropic", "langchain_core", "pydantic_ai", "agents", "litellm")
    assert loaded("walld_client.adapters", *sdks) == []
