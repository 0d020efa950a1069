"""LiteLLM, as it comes from the registry, against a real daemon."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from adapters.answers import SCENARIOS, answer, joined, told
from adapters.examples import check
from adapters.replay import Replay
from adapters.trial import (
    Nursery,
    check_gate_behind_a_tool,
    check_kept_before_it_is_handed_on,
    kept,
    wants,
)
from daemon_process import DaemonProcess

wants("litellm")

WIRE = {"openai": "chat", "anthropic": "messages"}
each_way = pytest.mark.parametrize(
    ("provider", "colour"), [(one, colour) for one in WIRE for colour in ("sync", "async")]
)


@pytest.fixture(scope="module")
def programs(make_program: Callable[[str], Nursery]) -> Nursery:
    return make_program("litellm_completion")


def spec(provider: str, colour: str, model: str) -> dict[str, Any]:
    return {"provider": provider, "colour": colour, "model": model, "walld": True}


@pytest.mark.parametrize("scenario", SCENARIOS)
@each_way
def test_killed_behind_a_frame(
    programs: Nursery, kept_by: DaemonProcess, provider: str, colour: str, scenario: str
) -> None:
    """What is recovered is what the program had got."""
    frames = answer(WIRE[provider], scenario)
    spoken = [at for at, frame in enumerate(frames, 1) if frame.said]
    # Each in one of the four ways, the ends and the middle in the others.
    every = (provider, colour) == ("openai", "sync")
    for place in spoken if every else sorted({spoken[0], spoken[len(spoken) // 2], spoken[-1]}):
        expected = told(frames[:place])
        model = f"{scenario}:frames:hold{place}"
        trial = programs.run_until(expected, **spec(provider, colour, model))
        trial.kill()
        reply = kept_by.orphan(trial.words("stream")[0][0])
        assert kept(reply) == trial.told == joined(expected)
        assert reply.status == "crashed"


@pytest.mark.parametrize("scenario", ["text", "think", "tool"])
@pytest.mark.parametrize(("provider", "colour"), [("openai", "async"), ("anthropic", "sync")])
def test_kept_before_it_is_handed_on(
    programs: Nursery, kept_by: DaemonProcess, provider: str, colour: str, scenario: str
) -> None:
    check_kept_before_it_is_handed_on(programs, kept_by, scenario, **spec(provider, colour, ""))


@pytest.mark.parametrize("scenario", SCENARIOS)
@each_way
def test_a_whole_answer(
    programs: Nursery, kept_by: DaemonProcess, provider: str, colour: str, scenario: str
) -> None:
    trial = programs.run(**spec(provider, colour, scenario)).done()
    assert trial.raised is None, trial.lines
    reply = kept_by.orphan(trial.words("stream")[0][0])
    assert kept(reply) == trial.told == joined(told(answer(WIRE[provider], scenario)))
    assert (reply.status, reply.partial) == ("complete", False)
    assert reply.finish_reason == ("tool_calls" if scenario == "tool" else "stop")
    if scenario == "think" and provider == "anthropic":
        signatures = [one.result for one in reply.segments if one.name == "signature"]
        assert signatures == [{"signature": "c2ln"}]


@each_way
def test_a_body_without_its_terminal_event(
    programs: Nursery, kept_by: DaemonProcess, provider: str, colour: str
) -> None:
    """Trap 1: LiteLLM makes up a finish reason, or raises what it raises of a cut."""
    frames = answer(WIRE[provider], "text")
    last = max(at for at, frame in enumerate(frames, 1) if frame.said)
    trial = programs.run(**spec(provider, colour, f"text:eof{last}")).done()
    reply = kept_by.orphan(trial.words("stream")[0][0])
    assert kept(reply) == trial.told
    assert reply.status == "errored"
    assert reply.error is not None
    assert reply.error.kind == "no_terminal_event", trial.raised


@pytest.mark.parametrize("scenario", ["text", "tool"])
@each_way
def test_a_whole_answer_of_a_router(
    programs: Nursery, kept_by: DaemonProcess, provider: str, colour: str, scenario: str
) -> None:
    trial = programs.run(**spec(provider, colour, scenario), routed=True).done()
    assert trial.raised is None, trial.lines
    reply = kept_by.orphan(trial.words("stream")[0][0])
    assert kept(reply) == trial.told == joined(told(answer(WIRE[provider], scenario)))
    assert (reply.status, reply.error, reply.partial) == ("complete", None, False)


@each_way
def test_a_cut_answer_of_a_router(
    programs: Nursery, kept_by: DaemonProcess, provider: str, colour: str
) -> None:
    """What has made up the finish reason is the stream that the Router's reads."""
    frames = answer(WIRE[provider], "text")
    last = max(at for at, frame in enumerate(frames, 1) if frame.said)
    trial = programs.run(**spec(provider, colour, f"text:eof{last}"), routed=True).done()
    reply = kept_by.orphan(trial.words("stream")[0][0])
    assert kept(reply) == trial.told
    assert reply.status == "errored"
    assert reply.error is not None
    assert reply.error.kind == "no_terminal_event", trial.raised


@pytest.mark.parametrize("scenario", ["text", "text:eof"])
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_router_that_falls_back(
    programs: Nursery, kept_by: DaemonProcess, colour: str, scenario: str
) -> None:
    """In the middle of a stream: the one that it falls back to is judged."""
    frames = answer("chat", "text")
    last = max(at for at, frame in enumerate(frames, 1) if frame.said)
    instead = scenario + (str(last) if scenario != "text" else "")
    one = spec("openai", colour, "text:frames:err1")
    trial = programs.run(**one, routed=True, instead=instead).done()
    reply = kept_by.orphan(trial.words("stream")[0][0])
    assert kept(reply) == trial.told == joined(told(frames))
    assert reply.status == ("complete" if scenario == "text" else "errored")


def _choice(index: int, text: str | None, reason: str | None = None) -> bytes:
    delta = {} if text is None else {"content": text}
    one = {"index": index, "delta": delta, "finish_reason": reason}
    about = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: " + json.dumps({**about, "choices": [one]}).encode() + b"\n\n"


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("first", [0, 1])
def test_several_choices(
    programs: Nursery, kept_by: DaemonProcess, replay: Replay, colour: str, first: int
) -> None:
    """LiteLLM hands on one finish reason, whichever choice ends first: a whole answer is whole."""
    begun = _choice(0, "A") + _choice(1, "B") + _choice(first, None, "stop")
    later = _choice(1 - first, "C") + _choice(1 - first, None, "stop")
    replay.bodies[f"two-{first}"] = begun + later + b"data: [DONE]\n\n"
    trial = programs.run(**spec("openai", colour, f"two-{first}"), n=2).done()
    assert trial.raised is None, trial.lines
    reply = kept_by.orphan(trial.words("stream")[0][0])
    assert (reply.status, reply.error, reply.partial) == ("complete", None, False)
    choices = [one.result for one in reply.segments if one.name == "choice"]
    other = "B" if first else "BC"
    assert reply.text == ("AC" if first else "A")
    assert "".join(one["content"] for one in choices) == other
    replay.bodies["two-cut"] = _choice(0, "A") + _choice(1, "B")
    trial = programs.run(**spec("openai", colour, "two-cut"), n=2).done()
    assert kept_by.orphan(trial.words("stream")[0][0]).status == "errored"


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("reason", ["error", "ERROR", "network_error", "a word of its own"])
def test_a_finish_reason_that_litellm_has_another_word_for(
    programs: Nursery, kept_by: DaemonProcess, replay: Replay, colour: str, reason: str
) -> None:
    """`stop`, or an exception where it is `error`."""
    replay.bodies[reason] = _choice(0, "A") + _choice(0, None, reason) + b"data: [DONE]\n\n"
    trial = programs.run(**spec("openai", colour, reason)).done()
    reply = kept_by.orphan(trial.words("stream")[0][0])
    assert (trial.raised is None) == (reason != "error")
    if reason == "a word of its own":
        assert (reply.status, reply.finish_reason, reply.text) == ("complete", reason, "A")
        return
    assert reply.status == "errored"
    assert reply.error is not None
    assert trial.raised or (reply.error.kind, reply.text) == ("finish_reason_error", "A")


@pytest.mark.parametrize("way", ["eof", "cut"])
@each_way
def test_asked_again(
    programs: Nursery, kept_by: DaemonProcess, provider: str, colour: str, way: str
) -> None:
    """The first stream of the reply failed, with or without a word; the program asks again."""
    frames = answer(WIRE[provider], "text")
    spoken = [at for at, frame in enumerate(frames, 1) if frame.said]
    expected = told(frames[: spoken[2]])
    again = spec(provider, colour, f"text:frames:hold{spoken[2]}")
    again["first"] = f"text:frames:{way}{spoken[3]}"
    trial = programs.run_until(expected, **again)
    trial.kill()
    reply = kept_by.orphan(trial.words("stream")[0][0])
    assert kept(reply) == trial.told == joined(expected)
    assert (reply.status, reply.attempts) == ("crashed", 2)
    trial = programs.run(**again | {"model": "text"}).done()
    reply = kept_by.orphan(trial.words("stream")[0][0])
    assert kept(reply) == trial.told == joined(told(frames))
    assert (reply.status, reply.attempts, reply.partial) == ("complete", 2, False)


@pytest.mark.parametrize("way", ["cut", "err"])
@each_way
def test_cut(
    programs: Nursery, kept_by: DaemonProcess, provider: str, colour: str, way: str
) -> None:
    """The same exception as without walld, and the reply is an error with its text."""
    frames = answer(WIRE[provider], "text")
    last = max(at for at, frame in enumerate(frames, 1) if frame.said)
    one = spec(provider, colour, f"text:frames:{way}{last}")
    trial = programs.run(**one).done()
    plain = programs.run(**one | {"walld": False}).done()
    assert trial.raised == plain.raised is not None
    reply = kept_by.orphan(trial.words("stream")[0][0])
    assert kept(reply) == trial.told
    assert reply.status == "errored"


@each_way
def test_the_gate_behind_a_tool(
    programs: Nursery, kept_by: DaemonProcess, provider: str, colour: str
) -> None:
    check_gate_behind_a_tool(programs, kept_by, **spec(provider, colour, "tool"))


def test_the_example(kept_by: DaemonProcess, replay: Replay) -> None:
    check("litellm_completion", "chat", kept_by, replay)
