"""The memory of events, and what of one a view that tells no words needs."""

from __future__ import annotations

import gc
import json
import tracemalloc
from typing import Any

import pytest
from session_log import Log

from walld.ledger.line import make_line
from walld.sessions.state.entries import line_event
from walld.sessions.state.events import Event
from walld.sessions.views.event_memory import TELLS_NO_TEXT, held_bytes, shortened
from walld.sessions.views.projections import PROJECTIONS

LONG = "y" * 10_000


def event(kind: str, payload: dict[str, Any]) -> Event:
    return Event(seq=1, id="e", type=kind, payload=payload)


def test_views_that_tell_no_words_are_views() -> None:
    assert PROJECTIONS.keys() > TELLS_NO_TEXT


@pytest.mark.parametrize(
    "content", ["x" * 100, "é" * 5000, "x" * 5000 + "\U0001f600", [{"type": "text", "text": LONG}]]
)
def test_no_event_takes_more_than_is_counted(content: Any) -> None:
    """One character beyond Latin makes a text two or four times as long."""
    payload = json.dumps({"role": "user", "content": content}).encode()
    lines = [
        make_line(seq, f"entry-{seq}", 1, "message", payload, b"\0" * 16, parent=f"entry-{seq - 1}")
        for seq in range(1, 1001)
    ]
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    events = [line_event(line) for line in lines]
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < sum(map(held_bytes, events))


@pytest.mark.parametrize("kind", ["message", "tool_finished", "observation"])
def test_a_long_text_is_its_beginning(kind: str) -> None:
    name = {"message": "content", "tool_finished": "result", "observation": "text"}[kind]
    payload = {"role": "tool", "call_id": "c", name: LONG, "_artifact": {"sha256": "0" * 64}}
    found = shortened(event(kind, payload))
    assert found.payload == payload | {name: LONG[:256]}
    assert held_bytes(found) < 4096


def test_blocks_keep_what_names_and_what_a_call_is_given() -> None:
    use = {"type": "tool_use", "id": "c", "name": "edit", "input": {"text": LONG}}
    inner = [{"type": "text", "text": LONG}, {"type": "image", "source": {"_artifact": {}}}]
    told = {"type": "tool_result", "tool_use_id": "c", "content": inner, "is_error": True}
    content = [use, told, {"type": "text", "text": LONG}, "half"]
    said = shortened(event("message", {"role": "user", "content": content})).payload["content"]
    short = {"type": "text", "text": LONG[:256]}
    assert said == [use, told | {"content": [short, inner[1]]}, short, "half"]


@pytest.mark.parametrize("kind", ["turn_submitted", "message_edit", "tool_intent", "setting"])
def test_what_is_compared_or_told_is_left_as_it_is(kind: str) -> None:
    """The words of a submission have a hash; arguments are compared; an audit tells edits."""
    one = event(kind, {"content": LONG, "arguments": LONG, "message": {"content": LONG}})
    assert shortened(one) is one


def test_short_events_are_told_as_they_are() -> None:
    log = Log()
    log.say("user", "hello")
    log.say("assistant", None)
    assert [shortened(one) for one in log.events] == log.events
