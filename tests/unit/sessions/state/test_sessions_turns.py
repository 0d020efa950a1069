"""The turn machine, its ends, and what makes two submissions the same."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from session_log import Log, contents

from walld.sessions.gate.fork import forked
from walld.sessions.state.session_state import SessionState
from walld.sessions.state.turns import TurnState, content_hash
from walld.sessions.views.messages import messages
from walld.sessions.views.projections import project
from walld.sessions.views.transcript import transcript
from walld.sessions.views.turn_view import turn, turn_in

STEPS = ("worker_started", "assistant_started", "completed", "interrupted")
PAYLOADS = {"assistant_started": {"stream_id": "s"}, "interrupted": {"reason": "r"}}


def stepped(*steps: str) -> Log:
    log = Log()
    log.submit("t")
    for step in steps:
        log.add(f"turn_{step}", PAYLOADS.get(step, {}), turn="t")
    return log


def code(log: Log, step: str, **payload: str) -> str | None:
    problem = log.offer(f"turn_{step}", payload or PAYLOADS.get(step, {}), turn="t")
    return problem and problem.code


def turn_of(log: Log, turn: str = "t") -> TurnState:
    found = log.state.journal.turn(turn)
    assert found is not None
    return found


@pytest.mark.parametrize("last", range(len(STEPS)))
def test_skipping_forward_is_legal(last: int) -> None:
    assert turn_of(stepped(STEPS[last])).state == STEPS[last]


@pytest.mark.parametrize(
    ("taken", "refused"),
    [
        (("worker_started",), "worker_started"),
        (("assistant_started",), "worker_started"),
        (("assistant_started",), "assistant_started"),
        (("completed",), "worker_started"),
        (("interrupted",), "assistant_started"),
    ],
)
def test_going_back_is_refused_with_both_values(taken: tuple[str, ...], refused: str) -> None:
    log = stepped(*taken)
    problem = log.offer(f"turn_{refused}", PAYLOADS.get(refused, {}), turn="t")
    assert problem is not None
    assert problem.code == "illegal_turn"
    assert problem.got == refused
    assert taken[-1] in problem.limit
    assert turn_of(log).state == taken[-1]


def test_a_turn_may_have_several_replies() -> None:
    log = stepped("assistant_started")
    assert code(log, "assistant_started", stream_id="s2") is None
    assert list(turn_of(log).stream_ids) == ["s", "s2"]


@pytest.mark.parametrize("first", ["completed", "interrupted"])
@pytest.mark.parametrize("second", ["completed", "interrupted"])
def test_a_second_end_is_kept_and_changes_nothing(first: str, second: str) -> None:
    log = stepped(first)
    reason = turn_of(log).reason
    assert code(log, second, reason="other") is None
    turn = turn_of(log)
    assert (turn.state, turn.reason, turn.terminal_seq) == (first, reason, 2)
    assert turn.collisions == [3]
    assert len(log.events) == 3


@pytest.mark.parametrize("step", STEPS)
def test_an_unknown_turn(step: str) -> None:
    assert code(Log(), step) == "unknown_turn"


def test_a_turn_is_submitted_once() -> None:
    log = stepped()
    assert code(log, "submitted", message_id="m2", content="x") == "illegal_turn"


@pytest.mark.parametrize("content", [42, 0.5, True])
def test_what_no_message_holds_is_not_submitted(content: Any) -> None:
    """A turn that an older walld took so is there, and is the one of its message."""
    log = Log()
    payload = {"message_id": "m", "content": content}
    problem = log.offer("turn_submitted", payload, turn="t")
    assert problem is not None
    assert (problem.code, problem.got) == ("bad_payload", repr(content))
    assert "content of turn_submitted" in problem.message
    log.stand("turn_submitted", payload, turn="t")
    assert (found := log.state.submitted(payload)) is not None
    assert found.turn_id == "t"
    assert contents(messages(log.events)) == [content]
    for taken in (None, [], {"a": content}):
        log.add("turn_submitted", {"message_id": repr(taken), "content": taken}, turn=repr(taken))


def test_what_a_former_walld_took_is_shown_and_copied_as_it_is() -> None:
    log = Log()
    log.stand("turn_submitted", {"message_id": "m", "content": 42}, turn="t")
    log.add("turn_worker_started", {}, turn="t")
    log.add("message", {"role": "assistant", "content": "hi"}, turn="t")
    (shown,) = transcript(log.events)
    assert [said["message"]["role"] for said in shown["messages"]] == ["user", "assistant"]
    assert project("audit", log.events, {})["malformed"] == []
    assert len(forked(log.events)) == len(log.events)
    log.add("turn_interrupted", {"reason": "r"}, turn="t")
    again = {"message_id": "m", "content": 42, "retry_of": "t"}
    assert log.offer("turn_submitted", again, turn="t2") is None


def test_a_message_is_submitted_once_but_may_be_tried_again() -> None:
    log = stepped("interrupted")
    again = {"message_id": "m-t", "content": "hello"}
    found = log.state.submitted(again)
    assert found is not None
    assert found.turn_id == "t"
    assert log.state.submitted(again | {"content": "other"}) is None
    problem = log.offer("turn_submitted", again | {"content": "other"}, turn="t2")
    assert problem is not None
    assert (problem.code, problem.got) == ("message_id_taken", "m-t")
    log.add("turn_submitted", {"retry_of": "t", "content": "hello"}, turn="t2")
    assert (turn_of(log, "t2").message_id, turn_of(log, "t2").retry_of) == ("m-t", "t")
    assert log.state.journal.turn_id_of("m-t") == "t"
    problem = log.offer("turn_submitted", {"retry_of": "t9", "content": ""}, turn="t3")
    assert problem is not None
    assert problem.code == "unknown_turn"


def test_the_owner_is_of_whoever_last_advanced_it() -> None:
    log = Log()
    log.submit("t")
    log.add("turn_worker_started", {}, turn="t", owner={"pid": 7})
    assert turn_of(log).owner == {"pid": 7}
    log.add("turn_completed", {}, turn="t")
    assert turn_of(log).owner == {"pid": 7}


def test_what_makes_two_submissions_the_same() -> None:
    one = content_hash({"content": {"a": 1, "b": 2}, "attachments": []})
    assert len(one) == 8
    assert one == content_hash({"content": {"b": 2, "a": 1}, "message_id": "any"})
    assert one != content_hash({"content": {"a": 1, "b": 2}, "attachments": ["x"]})
    for text in ("", 'é\u2028\n"\\', "\ud83d", "x" * 3000):
        said = f'{{"attachments":[],"content":{json.dumps(text)}}}'
        for no_attachments in ({}, {"attachments": []}, {"attachments": None}):
            hashed = content_hash({"content": text} | no_attachments)
            assert hashed == hashlib.sha256(said.encode()).digest()[:8], "as canonical JSON"
            assert hashed != content_hash({"content": text, "attachments": [""]})
    assert content_hash({"content": "\ud83d"}) != content_hash({"content": "\ud83c"})


def test_a_value_that_nests_too_deep_is_refused() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    log = Log()
    problem = log.offer("turn_submitted", {"message_id": "m", "content": deep}, turn="t")
    assert problem is not None
    assert (problem.code, log.events) == ("bad_payload", [])
    while deep:
        deep = deep.pop()  # type: ignore[assignment]


def test_a_turn_is_found_by_its_streams_at_work_and_at_rest() -> None:
    """Out of the fold, out of the events, and after a snapshot: the same one, the first."""
    log = stepped("assistant_started")
    log.add("turn_assistant_started", {"stream_id": "s2"}, turn="t")
    log.submit("u")
    log.add("turn_assistant_started", {"stream_id": "s2"}, turn="u")
    for packed in (False, True):
        if packed:
            log.add("turn_completed", {}, turn="t")
            log.add("turn_completed", {}, turn="u")
            log.state = SessionState.from_base(log.state.to_base())
        for stream_id, turn_id in (("s", "t"), ("s2", "t"), ("s3", None)):
            found = turn_in(log.state.journal, stream_id=stream_id)
            assert found == turn(log.events, stream_id=stream_id)
            assert (found and found["turn_id"]) == turn_id
        assert turn_in(log.state.journal, "u") == turn(log.events, "u")
        assert turn_in(log.state.journal, "nobody") is None


def test_a_stream_of_an_event_that_was_taken_back_is_nobodys() -> None:
    log = stepped()
    log.add("turn_assistant_started", {"stream_id": "s"}, turn="t")
    log.state.revert(log.undos.pop())
    assert log.state.journal.turn_of_stream("s") is None
    log.submit("u")
    log.add("turn_assistant_started", {"stream_id": "s"}, turn="u")
    found = log.state.journal.turn_of_stream("s")
    assert found is not None
    assert found.turn_id == "u"
