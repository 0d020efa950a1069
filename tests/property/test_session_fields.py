"""Fields that no type of theirs knows, with values of any kind: kept, and no view ends over them.

A type is checked for the fields that it knows, and what it does not know is kept: so whoever reads
a payload reads what an application put there under that name.
"""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from session_log import Log
from walld_client.wire import messages as wire

from walld.daemon.session_store.fork_contents import forked_session
from walld.sessions.gate.imported import settled_there, untold, untold_files
from walld.sessions.state.entries import events_of
from walld.sessions.state.events import KNOWN, Event
from walld.sessions.state.session_state import SessionState
from walld.sessions.views.projections import PROJECTIONS, project

SHA = "0" * 64
RISK = {"tool": "t", "side_effect": "read", "resume_policy": "never-rerun"}
LEAST: dict[str, dict[str, Any]] = {
    "message": {"role": "user"},
    "message_edit": {"messages": [{"role": "user", "content": "x"}]},
    "undo": {"n": 1},
    "label": {"target": "e1"},
    "branch_summary": {"target": "e1", "text": "x"},
    "setting": {"key": "k", "value": 1},
    "model_change": {"model": "m"},
    "compaction": {"replacement": [{"role": "user", "content": "x"}]},
    "leaf": {"target": "e1"},
    "forked": {"session": "s"},
    "turn_submitted": {"message_id": "m", "content": "x"},
    "turn_assistant_started": {"stream_id": "r"},
    "turn_interrupted": {"reason": "x"},
    "tool_intent": {"call_id": "c2", **RISK},
    "tool_decision": {"call_id": "c", "verdict": "ask"},
    "tool_approval": {"call_id": "c", "state": "asked"},
    "tool_settled": {"of": {"turn": "t", "call_id": "c"}, "word": "ran"},
    "tool_started": {"call_id": "c"},
    "tool_finished": {"call_id": "c"},
    "artifact": {"sha256": SHA, "size": 1, "media_type": "a/b"},
    "child": {"session": "c", "call_id": "c", "of": {"turn": "t1", "call_id": "c"}},
    "child_of": {"session": "p", "call_id": "c", "of": {"turn": "t1", "call_id": "c"}},
    "queued": {"content": "x", "kind": "input"},
    "dequeued": {"target": "e1"},
    "tool_progress": {"call_id": "c"},
    "model_call": {"stream": "r", "step": 1, "at_ms": 1},
    "app.x": {},
}
"""What each type must hold; the others nothing."""
MORE = (
    *("_artifact", "_foreign", "_message_id", "_turn", "_wal_stream", "_wal_seq", "tool_calls"),
    *("tool_call_id", "tool_results", "attachments", "result", "arguments", "reasoning", "by"),
    *("_message", "kind", "passed", "error_class", "of", "outcome", "started_at_ms", "synthetic"),
    *("calls", "results", "arguments_hash", "side_effect", "resume_policy", "idempotency", "key"),
    *("_wal_last_seq", "_wal_started_at", "_partial", "_partial_reason", "status", "usage"),
)
FIELDS = sorted({field.name for fields in KNOWN.values() for field in fields} | set(MORE))
VALUES: tuple[Any, ...] = ("e1", {}, [7])
PAGES = [
    {"format": form, "last": last, "unknown": unknown}
    for form, last, unknown in (("plain", 1, "say"), ("openai", 2, "drop"), ("anthropic", 3, "say"))
]
KINDS = sorted({*KNOWN, "app.x"})


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_that_a_type_does_not_know_ends_no_view(kind: str) -> None:
    """Each field with one of the values, others for the next type. `make sweep` has all."""
    at = KINDS.index(kind)
    _offer(kind, [(name, VALUES[(at + n) % len(VALUES)]) for n, name in enumerate(FIELDS)])


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
def test_no_field_of_any_value_ends_a_view(kind: str) -> None:
    _offer(kind, list(product(FIELDS, VALUES)))


def _offer(kind: str, fields: list[tuple[str, Any]]) -> None:
    """Each in an entry of that type, in a log of its own, which all views must take."""
    taken = 0
    for name, value in fields:
        log = Log()
        log.say("user", "first")
        log.submit("t1")
        log.add("tool_intent", {"call_id": "c", **RISK}, turn="t1")
        turn = "t2" if kind == "turn_submitted" else "t1"
        payload = {name: value} | LEAST.get(kind, {}) | {name: value}
        if log.offer(kind, payload, turn=turn) is not None:
            continue
        taken += 1
        _look_at(log.events, (kind, name, value))
    assert taken > len(fields) // len(VALUES), "most are kept"


@pytest.mark.parametrize("name", FIELDS)
def test_no_value_in_an_item_of_a_message_ends_a_view(name: str) -> None:
    """Of a call, or of a result, that it names beside its text, or that what is left of one has."""
    for value in VALUES:
        call = {"id": "c", "call_id": "c", "name": "t", "arguments": "{}", "seq": 1} | {name: value}
        log = Log()
        log.submit("t1")
        log.add("tool_intent", {"call_id": "c", **RISK}, turn="t1")
        said = {"role": "assistant", "tool_calls": [call], "tool_results": [call]}
        log.offer("message", said, turn="t1")
        log.offer("message", {"role": "tool", "tool_call_id": "c", "content": "x"} | {name: value})
        log.offer("model_call", LEAST["model_call"] | {"calls": [call], "results": [call]})
        _look_at(log.events, (name, value))


def _look_at(events: list[Event], what: object) -> None:
    for view in PROJECTIONS:
        try:
            json.dumps(project(view, events, {}))
        except Exception as error:
            raise AssertionError(f"{view} of {what}: {error!r}") from error
    for asked in PAGES:
        try:
            json.dumps(project("messages", events, asked))
        except Exception as error:
            raise AssertionError(f"a page {asked} of {what}: {error!r}") from error
    state = SessionState()
    for event in events:
        state.apply(event)
    assert SessionState.from_base(state.to_base()).last_seq == state.last_seq
    copied = forked_session(events, wire.Fork(1, "s", "f"), 0, 5)
    project("resume", events_of(copied.lines), {})
    untold(events, events[-1].seq, events[:-1])
    settled_there(events, events[-1].seq, events[:-1])
    untold_files(events, events[:-1])
