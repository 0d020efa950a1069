"""What the replay server says: answers of a model on each of the three wires, frame by frame.

Owns: the frames, and what each adds to the answer (`said`), which is what a program must have got
behind it. Refuses: sockets (`replay.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from walld_client.encoding import wtf8

__all__ = [
    "SCENARIOS",
    "WIRES",
    "Frame",
    "Said",
    "answer",
    "blocks",
    "failure",
    "frames_of",
    "joined",
    "told",
]

WIRES = ("chat", "responses", "messages")
SCENARIOS = ("text", "think", "tool", "emoji")
AFTER_TOOL = ["4 degrees ", "in Oslo", " and 5 in Rome."]
CALLS = {
    "call_a": ("weather", ['{"ci', 'ty": "O', 'slo"}']),
    "call_b": ("weather", ['{"city"', ': "Rome"}']),
}
TEXTS = {
    "text": ["Once ", "upon ", "a time ", "there was", " a log."],
    "think": ["The answer", " is ", "42."],
    "tool": ["I look", " it up. "],
    "emoji": ["so far ", "\ud83d", "\ude00", " \U0001f680 gut"],
}
THOUGHTS = {"think": ["Let me ", "see", ". Yes."]}


class Said(NamedTuple):
    """kind: text | reasoning | call | arguments. call: the id, of the last two."""

    kind: str
    text: str
    call: str | None = None


class Frame(NamedTuple):
    """One server-sent event, and what it says of the answer."""

    body: bytes
    said: tuple[Said, ...] = ()


def answer(wire: str, scenario: str) -> list[Frame]:
    """All frames of an answer. scenario: of SCENARIOS, or "after-tool"; or "twins", which is "tool"
    with one id for both calls, though not in `said`.
    """
    if scenario == "twins":
        return [
            frame._replace(body=frame.body.replace(b'"call_b"', b'"call_a"'))
            for frame in answer(wire, "tool")
        ]
    texts = TEXTS.get(scenario, AFTER_TOOL)
    thoughts = THOUGHTS.get(scenario, [])
    calls = CALLS if scenario == "tool" else {}
    # An agent's second answer has ids of its own, as with every provider: some frameworks take
    # messages of one id for one message.
    number = "1" if scenario in TEXTS else "2"
    return frames_of(wire, number, texts, thoughts, calls)


def frames_of(
    wire: str,
    number: str,
    texts: list[str],
    thoughts: list[str],
    calls: dict[str, tuple[str, list[str]]],
) -> list[Frame]:
    """An answer that says this, in these pieces; calls: name and arguments by id."""
    make = {"chat": _chat, "responses": _responses, "messages": _messages}[wire]
    return list(make(number, texts, thoughts, calls))


def blocks(reason: str, *content: tuple[dict[str, Any], list[dict[str, Any]]]) -> list[bytes]:
    """A body of Anthropic's that ends for that reason; content: each block as it begins, and its
    deltas."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    begun = {"id": "msg_b", "type": "message", "role": "assistant", "model": "m-1", "content": []}
    begun |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    each = [
        {"index": index, **one}
        for index, (block, deltas) in enumerate(content)
        for one in (
            {"type": "content_block_start", "content_block": block},
            *({"type": "content_block_delta", "delta": delta} for delta in deltas),
            {"type": "content_block_stop"},
        )
    ]
    over = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}
    begin = {"type": "message_start", "message": begun}
    return [_event(one) for one in (begin, *each, over, {"type": "message_stop"})]


def failure(wire: str) -> Frame:
    """The vendor's own error, in the body."""
    if wire == "chat":
        error = {"message": "overloaded", "type": "server_error", "code": "busy"}
        return Frame(_data({"error": error}))
    if wire == "responses":
        error = {"code": "server_error", "message": "overloaded", "param": None}
        return Frame(_event({"type": "error", "sequence_number": 99, **error}))
    error = {"type": "overloaded_error", "message": "overloaded"}
    return Frame(_event({"type": "error", "error": error}))


def told(frames: Iterable[Frame]) -> dict[str, Any]:
    """What a program has got behind these frames, in the form of `trial.kept`."""
    state: dict[str, Any] = {"text": "", "reasoning": "", "calls": {}}
    for frame in frames:
        for kind, text, call in frame.said:
            if kind == "call":
                state["calls"][call] = [text, ""]
            elif kind == "arguments":
                state["calls"][call][1] += text
            else:
                state[kind] += text
    return state


def joined(state: dict[str, Any]) -> dict[str, Any]:
    """Halves of a character that meet are one."""
    return {
        "text": wtf8.join(state["text"]),
        "reasoning": wtf8.join(state["reasoning"]),
        "calls": {
            call: [name, wtf8.join(arguments)] for call, (name, arguments) in state["calls"].items()
        },
    }


def _data(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _event(value: dict[str, Any]) -> bytes:
    return b"event: " + value["type"].encode() + b"\n" + _data(value)


def _interleaved(calls: dict[str, tuple[str, list[str]]]) -> Iterable[tuple[int, str, str]]:
    """(index, call id, piece of arguments), a piece of each call in turn."""
    longest = max((len(pieces) for _, pieces in calls.values()), default=0)
    for at in range(longest):
        for index, (call_id, (_, pieces)) in enumerate(calls.items()):
            if at < len(pieces):
                yield index, call_id, pieces[at]


def _chat(
    answer_no: str, texts: list[str], thoughts: list[str], calls: dict[str, tuple[str, list[str]]]
) -> Iterable[Frame]:
    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _data({**about, "choices": [choice], "usage": None})

    about = {
        "id": f"chatcmpl-{answer_no}",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m-1",
    }
    yield Frame(b": a comment\n\n")
    yield Frame(chunk({"role": "assistant", "content": "", "refusal": None}))
    for text in thoughts:
        yield Frame(chunk({"reasoning_content": text}), (Said("reasoning", text),))
    for text in texts:
        yield Frame(chunk({"content": text}), (Said("text", text),))
    for index, (call_id, (name, _)) in enumerate(calls.items()):
        function = {"name": name, "arguments": ""}
        call = {"index": index, "id": call_id, "type": "function", "function": function}
        yield Frame(chunk({"tool_calls": [call]}), (Said("call", name, call_id),))
    for index, call_id, piece in _interleaved(calls):
        call = {"index": index, "function": {"arguments": piece}}
        yield Frame(chunk({"tool_calls": [call]}), (Said("arguments", piece, call_id),))
    yield Frame(chunk({}, "tool_calls" if calls else "stop"))
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    yield Frame(_data({**about, "choices": [], "usage": usage}))
    yield Frame(b"data: [DONE]\n\n")


def _messages(
    answer_no: str, texts: list[str], thoughts: list[str], calls: dict[str, tuple[str, list[str]]]
) -> Iterable[Frame]:
    def start(block: dict[str, Any]) -> bytes:
        return _event({"type": "content_block_start", "index": index, "content_block": block})

    def delta(**value: str) -> bytes:
        return _event({"type": "content_block_delta", "index": index, "delta": value})

    def stop() -> bytes:
        return _event({"type": "content_block_stop", "index": index})

    usage = {"input_tokens": 5, "output_tokens": 1}
    message = {"id": f"msg_{answer_no}", "type": "message", "role": "assistant", "model": "m-1"}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield Frame(_event({"type": "message_start", "message": message}))
    yield Frame(_event({"type": "ping"}))
    index = 0
    if thoughts:
        yield Frame(start({"type": "thinking", "thinking": "", "signature": ""}))
        for text in thoughts:
            yield Frame(delta(type="thinking_delta", thinking=text), (Said("reasoning", text),))
        yield Frame(delta(type="signature_delta", signature="c2ln"))
        yield Frame(stop())
        index += 1
    yield Frame(start({"type": "text", "text": ""}))
    for text in texts:
        yield Frame(delta(type="text_delta", text=text), (Said("text", text),))
    yield Frame(stop())
    for call_id, (name, pieces) in calls.items():
        index += 1
        block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        yield Frame(start(block), (Said("call", name, call_id),))
        yield Frame(delta(type="input_json_delta", partial_json=""))
        for piece in pieces:
            said = (Said("arguments", piece, call_id),)
            yield Frame(delta(type="input_json_delta", partial_json=piece), said)
        yield Frame(stop())
    about = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    yield Frame(_event({"type": "message_delta", "delta": about, "usage": usage}))
    yield Frame(_event({"type": "message_stop"}))


def _responses(
    answer_no: str, texts: list[str], thoughts: list[str], calls: dict[str, tuple[str, list[str]]]
) -> Iterable[Frame]:
    number = -1

    def event(kind: str, **value: Any) -> bytes:
        nonlocal number
        number += 1
        return _event({"type": f"response.{kind}", "sequence_number": number, **value})

    response: dict[str, Any] = {"id": f"resp_{answer_no}", "object": "response", "created_at": 1}
    response |= {"status": "in_progress", "model": "m-1", "output": [], "tools": []}
    response |= {"parallel_tool_calls": True, "tool_choice": "auto", "error": None}
    output: list[dict[str, Any]] = []
    yield Frame(event("created", response=response))
    yield Frame(event("in_progress", response=response))
    if thoughts:
        item: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}
        yield Frame(event("output_item.added", output_index=0, item=item))
        at: dict[str, Any] = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
        part = {"type": "summary_text", "text": ""}
        yield Frame(event("reasoning_summary_part.added", part=part, **at))
        for text in thoughts:
            body = event("reasoning_summary_text.delta", delta=text, **at)
            yield Frame(body, (Said("reasoning", text),))
        part = {"type": "summary_text", "text": "".join(thoughts)}
        yield Frame(event("reasoning_summary_text.done", text=part["text"], **at))
        yield Frame(event("reasoning_summary_part.done", part=part, **at))
        output.append({**item, "summary": [part]})
        yield Frame(event("output_item.done", output_index=0, item=output[-1]))
    index = len(output)
    item = {
        "type": "message",
        "id": f"msg_{answer_no}",
        "role": "assistant",
        "status": "in_progress",
    }
    yield Frame(event("output_item.added", output_index=index, item={**item, "content": []}))
    at = {"item_id": item["id"], "output_index": index, "content_index": 0}
    written: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
    yield Frame(event("content_part.added", part=written, **at))
    for text in texts:
        body = event("output_text.delta", delta=text, logprobs=[], **at)
        yield Frame(body, (Said("text", text),))
    written = {**written, "text": "".join(texts)}
    yield Frame(event("output_text.done", text=written["text"], logprobs=[], **at))
    yield Frame(event("content_part.done", part=written, **at))
    output.append({**item, "status": "completed", "content": [written]})
    yield Frame(event("output_item.done", output_index=index, item=output[-1]))
    for call_id, (name, pieces) in calls.items():
        index = len(output)
        item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name}
        item |= {"arguments": "", "status": "in_progress"}
        body = event("output_item.added", output_index=index, item=item)
        yield Frame(body, (Said("call", name, call_id),))
        at = {"item_id": item["id"], "output_index": index}
        for piece in pieces:
            body = event("function_call_arguments.delta", delta=piece, **at)
            yield Frame(body, (Said("arguments", piece, call_id),))
        whole = "".join(pieces)
        done = event("function_call_arguments.done", arguments=whole, name=name, **at)
        yield Frame(done)
        output.append({**item, "arguments": whole, "status": "completed"})
        yield Frame(event("output_item.done", output_index=index, item=output[-1]))
    usage = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}
    usage |= {"input_tokens_details": {"cached_tokens": 0}}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}}
    whole_response = {**response, "status": "completed", "output": output, "usage": usage}
    yield Frame(event("completed", response=whole_response))
