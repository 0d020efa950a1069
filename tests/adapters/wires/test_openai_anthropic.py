"""openai and anthropic, as they come from the registry, against a real daemon.

Killed behind each frame in turn: what is recovered is what the SDK had given the program. The
promises of `adapters/recording.py` are looked at here, in `test_promises.py` and in `test_tee.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from adapters.answers import SCENARIOS, WIRES, answer, joined, told
from adapters.examples import check
from adapters.replay import Replay
from adapters.trial import (
    Nursery,
    Trial,
    check_gate_behind_a_tool,
    check_kept_before_it_is_handed_on,
    check_model_call,
    kept,
    wants,
)
from daemon_process import DaemonProcess

wants("httpx2", "openai", "anthropic")

RECORDED = "WALLD_RECORDED"
WAYS = [
    *(
        (wire, how, colour)
        for wire in WIRES
        for how in ("hook", "tee")
        for colour in ("sync", "async")
    ),
    *(("messages", "middleware", colour) for colour in ("sync", "async")),
]
each_way = pytest.mark.parametrize(("wire", "how", "colour"), WAYS)


@pytest.fixture(scope="module")
def programs(make_program: Callable[[str], Nursery]) -> Nursery:
    return make_program("openai_anthropic")


def stream_of(trial: Trial) -> str:
    """The id of its one reply."""
    found = trial.words("stream")
    return str(found[0][0])


@pytest.mark.parametrize("scenario", SCENARIOS)
@each_way
def test_killed_behind_each_frame(
    programs: Nursery, kept_by: DaemonProcess, wire: str, how: str, colour: str, scenario: str
) -> None:
    """Nothing that the SDK had handed on is missing, and nothing more is there."""
    frames = answer(wire, scenario)
    spoken = [at for at, frame in enumerate(frames, 1) if frame.said]
    # Each frame that says something for the hook; the first, a middle one, the last elsewhere.
    places = spoken if (how, colour) == ("hook", "sync") else [spoken[0], spoken[-3], spoken[-1]]
    for place in places:
        expected = told(frames[:place])
        trial = programs.run_until(
            expected, wire=wire, how=how, colour=colour, model=f"{scenario}:frames:hold{place}"
        )
        trial.kill()
        reply = kept_by.orphan(stream_of(trial))
        assert kept(reply) == trial.told == joined(expected)
        assert (reply.status, reply.attempts, reply.gaps) == ("crashed", 1, [])


@each_way
def test_the_gate_behind_a_tool(
    programs: Nursery, kept_by: DaemonProcess, wire: str, how: str, colour: str
) -> None:
    spec = {"wire": wire, "how": how, "colour": colour, "model": "tool"}
    check_gate_behind_a_tool(programs, kept_by, **spec)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_kept_before_it_is_handed_on(
    programs: Nursery, kept_by: DaemonProcess, wire: str, colour: str
) -> None:
    spec = {"wire": wire, "how": "tee", "colour": colour}
    check_kept_before_it_is_handed_on(programs, kept_by, "tool", **spec)


@each_way
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_whole_answer(
    programs: Nursery, kept_by: DaemonProcess, wire: str, how: str, colour: str, scenario: str
) -> None:
    """Complete and not released, also where the SDK stops reading at `[DONE]` (trap 3)."""
    trial = programs.run(wire=wire, how=how, colour=colour, model=scenario).done()
    assert trial.raised is None
    reply = kept_by.orphan(stream_of(trial))
    assert kept(reply) == trial.told == joined(told(answer(wire, scenario)))
    assert (reply.status, reply.error) == ("complete", None)
    assert not reply.partial
    check_model_call(reply, "model", "request_id", *(["provider"] if how != "tee" else []))
    is_tool = scenario == "tool"
    assert (
        reply.finish_reason
        == {
            "chat": "tool_calls" if is_tool else "stop",
            "responses": "tool_calls" if is_tool else "completed",
            "messages": "tool_use" if is_tool else "end_turn",
        }[wire]
    )
    if is_tool:
        assert [one.outcome for one in reply.segments if one.kind == "tool"] == ["unknown"] * 2


@each_way
def test_released_by_its_id(
    programs: Nursery, kept_by: DaemonProcess, wire: str, how: str, colour: str
) -> None:
    """The program saved its copy and releases what `on_reply` told it: nothing is left."""
    trial = programs.run(wire=wire, how=how, colour=colour, model="text", release=True).done()
    assert trial.words("released") == [[True]]
    assert kept_by.reader.recover(stream_id=trial.ids[0]) is None


@pytest.mark.parametrize("wire", WIRES)
def test_auto_release(programs: Nursery, kept_by: DaemonProcess, wire: str) -> None:
    """Asked for, a whole answer is forgotten; one that was cut stays."""
    spec: dict[str, Any] = {"wire": wire, "how": "hook", "colour": "sync", "auto_release": True}
    whole = programs.run(model="text", **spec).done()
    assert kept_by.reader.recover(stream_id=whole.ids[0]) is None
    cut = programs.run(model="text:eof4", **spec).done()
    assert kept_by.orphan(cut.ids[0]).status == "errored"


@each_way
def test_a_body_without_its_terminal_event(
    programs: Nursery, kept_by: DaemonProcess, wire: str, how: str, colour: str
) -> None:
    """Trap 1: no SDK raises there, and it is no clean end."""
    frames = answer(wire, "text")
    last = max(at for at, frame in enumerate(frames, 1) if frame.said)
    trial = programs.run(wire=wire, how=how, colour=colour, model=f"text:eof{last}").done()
    assert trial.raised is None, "the SDK says nothing of it"
    reply = kept_by.orphan(stream_of(trial))
    assert kept(reply) == trial.told == joined(told(frames))
    assert reply.status == "errored"
    assert reply.error is not None
    assert reply.error.kind == "no_terminal_event"


@pytest.mark.parametrize("wire", WIRES)
def test_a_body_that_says_nothing_at_all(
    programs: Nursery, kept_by: DaemonProcess, wire: str
) -> None:
    trial = programs.run(wire=wire, how="hook", colour="sync", model="text:eof0").done()
    reply = kept_by.orphan(trial.ids[0])
    assert reply.error is not None
    assert (reply.error.kind, kept(reply)["text"]) == ("no_terminal_event", "")


@each_way
def test_cut(programs: Nursery, kept_by: DaemonProcess, wire: str, how: str, colour: str) -> None:
    """Trap 2: each SDK raises what it always raised, and the reply is an error with its text."""
    frames = answer(wire, "text")
    place = max(at for at, frame in enumerate(frames, 1) if frame.said) - 1
    model = f"text:frames:cut{place}"
    trial = programs.run(wire=wire, how=how, colour=colour, model=model).done()
    plain = programs.run(wire=wire, how="nothing", colour=colour, model=model).done()
    assert trial.raised == plain.raised is not None
    reply = kept_by.orphan(stream_of(trial))
    assert kept(reply) == trial.told
    assert reply.status == "errored"


@each_way
def test_the_vendors_error_in_the_body(
    programs: Nursery, kept_by: DaemonProcess, wire: str, how: str, colour: str
) -> None:
    frames = answer(wire, "text")
    place = max(at for at, frame in enumerate(frames, 1) if frame.said) - 1
    model = f"text:frames:err{place}"
    trial = programs.run(wire=wire, how=how, colour=colour, model=model).done()
    plain = programs.run(wire=wire, how="nothing", colour=colour, model=model).done()
    assert trial.raised == plain.raised
    assert (trial.raised is None) == (wire == "responses"), "handed on there, raised elsewhere"
    reply = kept_by.orphan(stream_of(trial))
    assert kept(reply) == trial.told
    assert reply.status == "errored"
    assert reply.error is not None
    assert "overloaded" in reply.error.message


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("how", ["hook", "tee"])
def test_an_error_that_comes_first(
    programs: Nursery, kept_by: DaemonProcess, wire: str, how: str
) -> None:
    trial = programs.run(wire=wire, how=how, colour="sync", model="text:err0").done()
    reply = kept_by.orphan(trial.ids[0])
    assert reply.status == "errored"
    assert reply.error is not None
    assert "overloaded" in reply.error.message


@pytest.mark.parametrize("how", ["hook", "tee", "middleware"])
def test_the_stream_of_anthropics_own_events(
    programs: Nursery, kept_by: DaemonProcess, how: str
) -> None:
    """Trap 6: `messages.stream()` says each text twice; it is recorded once."""
    for colour in ("sync", "async"):
        trial = programs.run(
            wire="messages", how=how, colour=colour, model="think", helper=True
        ).done()
        assert trial.raised is None
        assert kept(kept_by.orphan(stream_of(trial))) == joined(told(answer("messages", "think")))


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_left_early(programs: Nursery, kept_by: DaemonProcess, wire: str, colour: str) -> None:
    """Trap 9: whoever breaks out of the loop has cancelled the reply, at the latest by ending."""
    spec: dict[str, Any] = {"wire": wire, "colour": colour, "model": "text:frames:hold9"}
    for how, close in (("hook", False), ("hook", True), ("tee", True)):
        if colour == "async" and not close:
            continue  # httpx2 itself complains of a body that nobody closes
        trial = programs.run(**spec, how=how, leave=3, close=close).done()
        reply = kept_by.orphan(stream_of(trial))
        if how == "hook":
            assert reply.status in ({"cancelled"} if close else {"cancelled", "crashed"})
            assert reply.partial
            if close:
                assert reply.lost_reason == "the program closed the stream before its end"
        assert kept(reply)["text"].startswith(trial.told["text"])


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("way", ["eof", "err", "cut"])
@pytest.mark.parametrize("wire", WIRES)
def test_killed_in_the_second_try(
    programs: Nursery, kept_by: DaemonProcess, wire: str, way: str, colour: str
) -> None:
    """The first stream of the reply failed, with or without a word; the program asks again."""
    frames = answer(wire, "think")
    spoken = [at for at, frame in enumerate(frames, 1) if frame.said]
    spec = {"wire": wire, "how": "tee", "colour": colour, "first": f"think:frames:{way}{spoken[3]}"}
    for place in (spoken[1], spoken[-1]):
        expected = told(frames[:place])
        trial = programs.run_until(expected, **spec, model=f"think:frames:hold{place}")
        trial.kill()
        reply = kept_by.orphan(stream_of(trial))
        assert kept(reply) == trial.told == joined(expected)
        assert (reply.status, reply.attempts, reply.error) == ("crashed", 2, None)
    trial = programs.run(**spec, model="think").done()
    reply = kept_by.orphan(stream_of(trial))
    assert kept(reply) == trial.told == joined(told(frames))
    assert (reply.status, reply.attempts, reply.partial) == ("complete", 2, False)


@pytest.mark.parametrize(("wire", "how"), [("chat", "hook"), ("messages", "middleware")])
def test_tried_again_by_the_sdk(
    programs: Nursery, kept_by: DaemonProcess, replay: Replay, wire: str, how: str
) -> None:
    """Trap 10: the hook runs for each attempt, and the text is there once."""
    model = f"text:busy2:{how}"
    trial = programs.run(wire=wire, how=how, colour="sync", model=model, retries=3).done()
    assert replay.asked[model] == 3
    (stream_id,) = trial.ids
    reply = kept_by.orphan(stream_id)
    assert kept(reply) == joined(told(answer(wire, "text")))
    assert reply.meta["attempt"] == 3


def test_where_to_go_on_at_the_provider(programs: Nursery, kept_by: DaemonProcess) -> None:
    """Trap 11: the response's id and how far it was, in the order of what was said."""
    trial = programs.run(wire="responses", how="hook", colour="sync", model="tool").done()
    reply = kept_by.orphan(stream_of(trial))
    cursors = [one.result for one in reply.segments if one.name == "provider"]
    assert {one["id"] for one in cursors} == {"resp_1"}
    assert cursors[0] == {
        "wire": "openai-responses",
        "model": "m-1",
        "id": "resp_1",
        "sequence_number": 0,
    }
    numbers = [one["sequence_number"] for one in cursors]
    assert numbers == sorted(numbers)
    assert len(numbers) == 4, "the beginning, and behind each item"


def test_a_compressed_body(programs: Nursery, kept_by: DaemonProcess) -> None:
    for wire in WIRES:
        trial = programs.run(wire=wire, how="hook", colour="sync", model="tool:gzip").done()
        reply = kept_by.orphan(trial.ids[0])
        assert kept(reply) == trial.told == joined(told(answer(wire, "tool")))
        assert reply.status == "complete"


@pytest.mark.parametrize("name", ["basic", "tool_use", "incomplete_partial_json"])
def test_a_recorded_body(
    programs: Nursery, kept_by: DaemonProcess, replay: Replay, name: str
) -> None:
    path = Path(os.environ.get(RECORDED, "")) / f"sse/anthropic-{name}_response.sse"
    if not path.is_file():
        pytest.skip(f"{RECORDED} names no directory with sse/{path.name}")
    replay.bodies[name] = path.read_bytes().rstrip(b"\n") + b"\n\n"
    trial = programs.run(wire="messages", how="middleware", colour="sync", model=name).done()
    reply = kept_by.orphan(trial.ids[0])
    assert kept(reply) == trial.told
    assert trial.told["text"] or trial.told["calls"]
    assert reply.status == "complete"
    assert reply.partial == (name == "incomplete_partial_json"), reply.partial_reason


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("openai_chat", "chat"),
        ("openai_responses_async", "responses"),
        ("anthropic_middleware", "messages"),
        ("tee_a_stream", "chat"),
    ],
)
def test_an_example(name: str, wire: str, kept_by: DaemonProcess, replay: Replay) -> None:
    check(name, wire, kept_by, replay)
