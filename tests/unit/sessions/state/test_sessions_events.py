"""Payloads: what each known type must hold, and errors that name the field and both values."""

from __future__ import annotations

from typing import Any

import pytest

from walld.sessions.state.events import KNOWN, Event, as_dict, check_payload, check_type

SHA = "0" * 64
INTENT = {"call_id": "c", "tool": "t", "side_effect": "read", "resume_policy": "never-rerun"}

GOOD: list[tuple[str, dict[str, Any]]] = [
    ("message", {"role": "user", "content": "x", "extra": 1}),
    ("message", {"role": "assistant", "content": None}),
    ("message_edit", {"target": "e1", "message": {"role": "user"}}),
    ("message_edit", {"messages": []}),
    ("undo", {"n": 1}),
    ("label", {"target": "e1", "text": None}),
    ("branch_summary", {"target": "e1", "text": ""}),
    ("setting", {"key": "k", "value": None}),
    ("model_change", {"model": "m"}),
    ("compaction", {"summary": "s", "first_kept": "e1"}),
    ("compaction", {"replacement": []}),
    ("leaf", {"target": None}),
    ("leaf", {"target": "e1", "name": "n"}),
    ("forked", {"session": "s", "at": None, "whole": False}),
    ("imported", {"missing": [[1, 2]], "started": ["e1"], "calls": [INTENT | {"turn": "t"}]}),
    ("turn_submitted", {"message_id": "m", "content": "c", "attachments": [], "meta": {}}),
    ("turn_submitted", {"retry_of": "t", "content": "c"}),
    ("turn_worker_started", {}),
    ("turn_assistant_started", {"stream_id": "s"}),
    ("turn_completed", {}),
    ("turn_interrupted", {"reason": "r"}),
    ("tool_intent", INTENT),
    ("tool_decision", {"call_id": "c", "verdict": "allow"}),
    ("tool_approval", {"call_id": "c", "state": "asked"}),
    ("child", {"session": "c", "call_id": "k", "of": {"turn": "t", "call_id": "k"}}),
    ("child", {"age": 7}),
    *((one, {"age": 7}) for one in ("queued", "dequeued", "tool_progress", "session_info")),
    ("compaction_failed", {"reason": "the model did not answer"}),
    ("child_of", {"session": "p", "call_id": "k", "of": {"turn": "t", "call_id": "k"}}),
    ("model_call", {"stream": "r", "calls": [{"call_id": "c", "outcome": "unknown"}]}),
    ("tool_settled", {"of": {"turn": "t", "call_id": "c"}, "word": "ran", "note": "seen"}),
    ("tool_settled", {"of": {"stream": "r", "call_id": "c"}, "word": "denied"}),
    ("tool_started", {"call_id": "c"}),
    (
        "tool_finished",
        {"call_id": "c", "result": 1, "failed": True, "files": {"a": SHA, "b": None}},
    ),
    ("observation", {"text": "t"}),
    ("artifact", {"sha256": SHA, "size": 0, "media_type": "a/b"}),
    ("verification", {}),
    ("budget", {"used": 1}),
    ("budget", {"used": 0.5, "limit": None, "remaining": 2, "exhausted": False, "unit": "USD"}),
    ("lifecycle", {"fingerprint": {}}),
    ("my-app.note:1/x", {}),
]

BAD: list[tuple[str, dict[str, Any], str]] = [
    ("message", {"content": "x"}, "role"),
    ("message", {"role": "", "content": "x"}, "role"),
    ("message", {"role": "user", "content": 1}, "content"),
    ("message_edit", {"target": "e1"}, "what to edit"),
    ("message_edit", {"target": "e1", "message": {}}, "message"),
    ("message_edit", {"target": "e", "message": {"role": "u"}, "messages": []}, "what to edit"),
    ("message_edit", {"messages": [{"content": 1}]}, "messages"),
    ("undo", {"n": 0}, "n of undo"),
    ("undo", {"n": True}, "n of undo"),
    ("undo", {}, "n of undo"),
    ("label", {"text": "x"}, "target"),
    ("setting", {"key": "k"}, "value"),
    ("compaction", {"summary": "s"}, "what is kept"),
    ("leaf", {}, "target"),
    ("turn_submitted", {"content": "c"}, "message_id"),
    ("turn_submitted", {"message_id": "m"}, "content"),
    ("turn_assistant_started", {}, "stream_id"),
    ("turn_interrupted", {"reason": ""}, "reason"),
    ("tool_intent", INTENT | {"side_effect": "sometimes"}, "side_effect"),
    ("tool_intent", INTENT | {"resume_policy": "maybe"}, "resume_policy"),
    ("tool_approval", {"call_id": "c", "state": "yes"}, "state"),
    ("tool_settled", {"of": {"turn": "t", "call_id": "c"}, "word": "maybe"}, "word"),
    ("tool_settled", {"of": {"turn": "t"}, "word": "ran"}, "of of tool_settled"),
    ("tool_settled", {"of": {"turn": "t", "stream": "r", "call_id": "c"}, "word": "ran"}, "of"),
    ("budget", {"remaining": "0"}, "remaining"),
    ("budget", {"used": True, "limit": 1}, "used"),
    ("budget", {"used": 1, "limit": "1 USD"}, "limit"),
    ("budget", {"exhausted": "yes"}, "exhausted"),
    ("forked", {"session": "s", "started": [1]}, "started"),
    ("imported", {"calls": [INTENT]}, "calls"),
    ("imported", {"missing": [7]}, "missing"),
    ("imported", {"missing": [[1, True]]}, "missing"),
    ("forked", {"session": "s", "missing": [[1, 2, 3]]}, "missing"),
    ("observation", {"text": "x", "of_turn": "t"}, "observed"),
    ("observation", {"call_id": "c", "of_turn": "t", "of_call": "c"}, "observed"),
    ("imported", {"calls": [INTENT | {"turn": "t", "resume_policy": "maybe"}]}, "calls"),
    ("turn_worker_started", {"stream_id": ["x"]}, "stream_id"),
    ("turn_worker_started", {"stream_id": 5}, "stream_id"),
    ("turn_completed", {"reason": {"a": 1}}, "reason"),
    ("turn_completed", {"stream_id": ""}, "stream_id"),
    ("turn_interrupted", {"reason": "r", "stream_id": {}}, "stream_id"),
    ("tool_finished", {"call_id": "c", "files": {"a": "short"}}, "files"),
    ("artifact", {"sha256": "x", "size": 1, "media_type": "a/b"}, "sha256"),
    ("artifact", {"sha256": SHA, "size": -1, "media_type": "a/b"}, "size"),
]


@pytest.mark.parametrize(("type", "payload"), GOOD)
def test_what_is_taken(type: str, payload: dict[str, Any]) -> None:  # noqa: A002
    assert check_payload(type, payload) is None


def test_each_known_type_is_taken_somehow() -> None:
    assert set(KNOWN) <= {one for one, _ in GOOD}


@pytest.mark.parametrize(("type", "payload", "field"), BAD)
def test_what_is_refused_names_the_field_and_both_values(
    type: str,  # noqa: A002
    payload: dict[str, Any],
    field: str,
) -> None:
    problem = check_payload(type, payload)
    assert problem is not None
    assert problem.code == "bad_payload"
    assert field in problem.message
    assert type in problem.message
    assert problem.got
    assert problem.limit


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ("what was said", "a text of 13 characters"),
        (["what was said"] * 3, "a list of 3"),
        ({"what was said": 1}, "an object of 1 fields"),
        (True, "True"),
        (None, "None"),
        (-1.5, "-1.5"),
        (-(10**200), "-1" + "0" * 75 + "..."),
    ],
)
def test_of_a_value_of_another_kind_its_kind_is_told(value: object, got: str) -> None:
    """The error is raised, and logged, where the application runs: it is no place for a secret."""
    problem = check_payload("undo", {"n": value})
    assert problem is not None
    assert problem.got == got


@pytest.mark.parametrize("type", ["", "Message", "1a", "a" * 101, "a b", "a\n", "é"])
def test_names_that_are_no_types(type: str) -> None:  # noqa: A002
    problem = check_type(type)
    assert problem is not None
    assert problem.code == "bad_type"
    assert check_payload(type, {}) == problem


def test_an_event_is_shown_as_its_line_has_it() -> None:
    event = Event(seq=1, id="a", type="note", leaf=False, key="k", payload={"x": 1})
    assert as_dict(event) == {
        "seq": 1,
        "id": "a",
        "at_ms": 0,
        "type": "note",
        "key": "k",
        "leaf": False,
        "payload": {"x": 1},
    }
