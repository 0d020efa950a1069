"""Any answer of a model: legal events in any order, of any text, broken off anywhere.

Owns: bodies by chance, and the order of what is in them. Refuses: what an SDK makes of one, and
what walld keeps (`test_any_answer.py`); the answers that are written down (`answers.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

__all__ = ["body_of", "pieces"]

_WORDS = (
    "a", "hello ", "\U0001f600", "\u00e9", "\n", "\r\n", "data: x", "[DONE]", "", " ", '{"a":',
    "\ud83d", "\ude00", "\u2028", "\x00", "\u00fc" * 50, "event: error\n\n", "\\", '"', "\ufeff",
)  # fmt: skip
Event = dict[str, Any]


def _text(random: Random) -> str:
    return "".join(random.choice(_WORDS) for _ in range(random.randint(0, 3)))


def _arguments(random: Random) -> Iterator[str]:
    """A JSON object in pieces."""
    text, size = json.dumps({"q": _text(random)}), random.randint(1, 5)
    for at in range(0, len(text), size):
        yield text[at : at + size]


# --- chat -----------------------------------------------------------------------------------------


def _chunk(delta: Event | None, finish: str | None = None) -> Event:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}] if delta is not None else []
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": choices,
    }


def _chat(random: Random) -> list[Event]:
    events = [_chunk({"role": "assistant", "content": ""})]
    begun: set[int] = set()
    for _ in range(random.randint(0, 12)):
        kind = random.choice(("text", "text", "text", "reasoning", "call", "nothing", "usage"))
        if kind == "text":
            events.append(_chunk({"content": random.choice((_text(random), None))}))
        elif kind == "reasoning":
            events.append(_chunk({"reasoning_content": _text(random)}))
        elif kind == "call":
            index = random.randint(0, 2)
            call: Event = {"index": index, "function": {"arguments": _text(random)}}
            if index not in begun:
                begun.add(index)
                call |= {"id": f"call_{index}", "type": "function"}
                call["function"]["name"] = f"tool{index}"
            events.append(_chunk({"tool_calls": [call]}))
        else:
            events.append(_chunk({} if kind == "nothing" else None))
    if random.random() < 0.85:
        events.append(_chunk({}, random.choice(("stop", "tool_calls", "length"))))
    return events


# --- messages -------------------------------------------------------------------------------------


def _messages(random: Random) -> list[Event]:
    about = {"id": "m1", "type": "message", "role": "assistant", "content": [], "model": "m"}
    about |= {"stop_reason": None, "usage": {"input_tokens": 1, "output_tokens": 0}}
    events: list[Event] = [{"type": "message_start", "message": about}]
    for index in range(random.randint(0, 4)):
        events += [one | {"index": index} for one in _block(random, index)]
        if random.random() < 0.2:
            events.append({"type": "ping"})
    chance = random.random()
    if chance < 0.8:
        ended = {"stop_reason": random.choice(("end_turn", "tool_use", "max_tokens"))}
        events.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 3}})
        events.append({"type": "message_stop"})
    elif chance < 0.9:
        error = {"type": "overloaded_error", "message": "too much"}
        events.append({"type": "error", "error": error})
    return events


def _block(random: Random, index: int) -> Iterator[Event]:
    kind = random.choice(("text", "thinking", "tool_use"))
    block: Event = {"type": kind}
    if kind == "tool_use":
        block |= {"id": f"t{index}", "name": "tool", "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": one} for one in _arguments(random)]
    else:
        block |= {"text": _text(random)} if kind == "text" else {"thinking": "", "signature": ""}
        deltas = [
            {"type": f"{kind}_delta", kind: _text(random)} for _ in range(random.randint(0, 4))
        ]
    yield {"type": "content_block_start", "content_block": block}
    for delta in deltas:
        yield {"type": "content_block_delta", "delta": delta}
    if random.random() < 0.95:
        yield {"type": "content_block_stop"}


# --- responses ------------------------------------------------------------------------------------


def _responses(random: Random) -> list[Event]:
    about = {"id": "r1", "object": "response", "created_at": 1, "model": "m", "output": []}
    about |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None}
    events: list[Event] = [{"type": "created", "response": about | {"status": "in_progress"}}]
    output = []
    for index in range(random.randint(0, 4)):
        kind = random.choice(("message", "function_call", "reasoning"))
        item, said = _ITEMS[kind](random, f"i{index}")
        begun = item | {"status": "in_progress"} | _EMPTY[kind]
        events.append({"type": "output_item.added", "output_index": index, "item": begun})
        events += [one | {"output_index": index, "item_id": f"i{index}"} for one in said]
        if random.random() < 0.95:
            events.append({"type": "output_item.done", "output_index": index, "item": item})
        output.append(item)
    status = random.choice(("completed",) * 7 + ("incomplete", "failed", ""))
    ended: Event = {"status": status, "output": output}
    if status == "incomplete":
        ended["incomplete_details"] = {"reason": "max_output_tokens"}
    elif status == "failed":
        ended["error"] = {"code": "server_error", "message": "x"}
    if status:
        events.append({"type": status, "response": about | ended})
    return [
        one | {"type": "response." + one["type"], "sequence_number": at}
        for at, one in enumerate(events)
    ]


def _message(random: Random, ident: str) -> tuple[Event, list[Event]]:
    whole = ""
    said: list[Event] = []
    part = {"type": "output_text", "text": "", "annotations": []}
    said.append({"type": "content_part.added", "content_index": 0, "part": part})
    for _ in range(random.randint(0, 4)):
        text = _text(random)
        whole += text
        said.append({"type": "output_text.delta", "content_index": 0, "delta": text})
    if random.random() < 0.9:
        said.append({"type": "output_text.done", "content_index": 0, "text": whole})
    content = [part | {"text": whole}]
    item = {"id": ident, "type": "message", "role": "assistant", "status": "completed"}
    return item | {"content": content}, said


def _function_call(random: Random, ident: str) -> tuple[Event, list[Event]]:
    deltas = list(_arguments(random))
    said: list[Event] = [
        {"type": "function_call_arguments.delta", "delta": delta} for delta in deltas
    ]
    said.append({"type": "function_call_arguments.done", "arguments": "".join(deltas)})
    item = {"id": ident, "type": "function_call", "call_id": f"call_{ident}", "name": "tool"}
    return item | {"arguments": "".join(deltas), "status": "completed"}, said


def _reasoning(random: Random, ident: str) -> tuple[Event, list[Event]]:
    texts = [_text(random) for _ in range(random.randint(0, 3))]
    said: list[Event] = [
        {"type": "reasoning_summary_text.delta", "summary_index": 0, "delta": text}
        for text in texts
    ]
    summary = [{"type": "summary_text", "text": "".join(texts)}]
    return {"id": ident, "type": "reasoning", "summary": summary}, said


_ITEMS = {"message": _message, "function_call": _function_call, "reasoning": _reasoning}
_EMPTY: dict[str, Event] = {
    "message": {"content": []},
    "function_call": {"arguments": ""},
    "reasoning": {"summary": []},
}


# --- bodies ---------------------------------------------------------------------------------------

_EVENTS: dict[str, Callable[[Random], list[Event]]] = {
    "chat": _chat,
    "messages": _messages,
    "responses": _responses,
}


def body_of(wire: str, random: Random) -> bytes:
    """Events as a server sends them; one in seven bodies is cut at any byte."""
    parts = []
    for event in _EVENTS[wire](random):
        line = random.choice(("\n", "\n", "\n", "\r\n"))
        name = f"event: {event['type']}{line}" if wire != "chat" else ""
        parts.append(f"{name}data: {json.dumps(event)}{line}{line}")
        if random.random() < 0.1:
            parts.append(": nothing\n\n")
    if wire == "chat" and random.random() < 0.85:
        parts.append("data: [DONE]\n\n")
    body = "".join(parts).encode()
    return body[: random.randint(0, len(body))] if random.random() < 0.15 else body


def pieces(body: bytes, random: Random) -> list[bytes]:
    """As a network hands it over."""
    found = []
    while body:
        size = random.choice((1, 3, 17, 100, 1000, 10000))
        found.append(body[:size])
        body = body[size:]
    return found
