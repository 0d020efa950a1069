"""LangChain and LangGraph, as they come from the registry, against a real daemon."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from adapters.answers import answer, joined, told
from adapters.examples import check
from adapters.replay import Replay
from adapters.trial import (
    Nursery,
    check_gate_behind_a_tool,
    check_kept_before_it_is_handed_on,
    check_killed_in_a_tool,
    check_two_replies,
    kept,
    wants,
)
from daemon_process import DaemonProcess, until

wants("langchain", "langchain-openai", "langchain-anthropic")

WIRE = {"openai": "chat", "responses": "responses", "anthropic": "messages"}
PROVIDERS = list(WIRE)
each_provider = pytest.mark.parametrize("provider", PROVIDERS)
each_colour = pytest.mark.parametrize("colour", ["sync", "async"])
SPEC: dict[str, Any] = {"session": "s", "attach": "callback", "what": "model", "colour": "sync"}


@pytest.fixture(scope="module")
def programs(make_program: Callable[[str], Nursery]) -> Nursery:
    return make_program("langchain_agents")


def shown(provider: str, state: dict[str, Any]) -> dict[str, Any]:
    """Of an answer, what LangChain hands on: ChatOpenAI drops `reasoning_content` (trap 8)."""
    return joined({**state, "reasoning": "" if provider == "openai" else state["reasoning"]})


@pytest.mark.parametrize("scenario", ["text", "think", "tool"])
@each_colour
@each_provider
def test_killed_behind_a_frame(
    programs: Nursery, kept_by: DaemonProcess, provider: str, colour: str, scenario: str
) -> None:
    """What is recovered is what the program had got."""
    frames = answer(WIRE[provider], scenario)
    shows = {"text", "call", "arguments"} | ({"reasoning"} if provider != "openai" else set())
    spoken = [at for at, frame in enumerate(frames, 1) if {one.kind for one in frame.said} & shows]
    # Each in the thread of the program, the ends and the middle on an event loop.
    middle = sorted({spoken[0], spoken[len(spoken) // 2], spoken[-1]})
    for place in spoken if colour == "sync" else middle:
        expected = shown(provider, told(frames[:place]))
        trial = programs.run_until(
            expected,
            **SPEC
            | {"provider": provider, "colour": colour, "model": f"{scenario}:frames:hold{place}"},
        )
        trial.kill()
        reply = kept_by.orphan(trial.words("stream")[0][0])
        assert kept(reply) == trial.told == expected
        assert reply.status == "crashed"


@pytest.mark.parametrize("scenario", ["text", "think", "tool"])
@each_colour
@each_provider
def test_kept_before_it_is_handed_on(
    programs: Nursery, kept_by: DaemonProcess, provider: str, colour: str, scenario: str
) -> None:
    spec = SPEC | {"provider": provider, "colour": colour}
    check_kept_before_it_is_handed_on(programs, kept_by, scenario, **spec)


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "whole"])
@each_colour
@each_provider
def test_an_agent(
    programs: Nursery, kept_by: DaemonProcess, provider: str, colour: str, streaming: bool
) -> None:
    """A call, its tool, the second call: two replies, each whole, the results where they belong."""
    spec = SPEC | {"provider": provider, "colour": colour, "what": "agent", "model": "tool"}
    trial = programs.run(**spec | {"streaming": streaming}).done()
    replies = check_two_replies(trial, kept_by)
    said = kept(replies[0])
    if not streaming:
        for one in said["calls"].values():
            one[1] = json.dumps(json.loads(one[1]))  # LangChain has parsed it
    assert said == shown(provider, told(answer(WIRE[provider], "tool")))
    for reply in replies:
        assert reply.finish_reason


@each_provider
def test_streamed_again_as_events(programs: Nursery, kept_by: DaemonProcess, provider: str) -> None:
    """Trap 7: `stream_events(version="v3")` tells the text twice; it is recorded once."""
    trial = programs.run(**SPEC | {"provider": provider, "what": "v3", "model": "text"}).done()
    assert trial.raised is None, trial.lines
    reply = kept_by.orphan(trial.ids[0])
    assert reply.text == trial.told["text"] == told(answer("chat", "text"))["text"]
    assert len(trial.ids) == 1


@each_provider
def test_attached_by_the_environment_alone(
    programs: Nursery, kept_by: DaemonProcess, provider: str
) -> None:
    session = f"env {provider}"
    spec = SPEC | {"provider": provider, "attach": "environment", "session": session}
    trial = programs.run(**spec | {"what": "agent", "model": "tool"}).done()
    assert trial.raised is None, trial.lines
    replies = kept_by.reader.recover_all(session)
    assert [one.status for one in replies] == ["complete", "complete"]
    assert kept(replies[0]) == shown(provider, told(answer(WIRE[provider], "tool")))


@each_colour
@each_provider
def test_a_body_without_its_terminal_event(
    programs: Nursery, kept_by: DaemonProcess, provider: str, colour: str
) -> None:
    """Trap 1: LangChain fires a normal end."""
    frames = answer(WIRE[provider], "text")
    last = max(at for at, frame in enumerate(frames, 1) if frame.said)
    spec = SPEC | {"provider": provider, "colour": colour, "model": f"text:eof{last}"}
    trial = programs.run(**spec).done()
    reply = kept_by.orphan(trial.ids[0])
    assert kept(reply) == trial.told
    assert reply.error is not None
    assert (reply.status, reply.error.kind) == ("errored", "no_terminal_event")


@each_provider
def test_cut(programs: Nursery, kept_by: DaemonProcess, provider: str) -> None:
    frames = answer(WIRE[provider], "text")
    last = max(at for at, frame in enumerate(frames, 1) if frame.said)
    trial = programs.run(**SPEC | {"provider": provider, "model": f"text:frames:cut{last}"}).done()
    assert trial.raised is not None
    reply = kept_by.orphan(trial.ids[0])
    assert kept(reply) == trial.told
    assert reply.status == "errored"


@each_provider
def test_an_answer_that_was_not_streamed(
    programs: Nursery, kept_by: DaemonProcess, provider: str
) -> None:
    """It is recorded whole."""
    spec = SPEC | {"provider": provider, "what": "invoke", "model": "text", "streaming": False}
    trial = programs.run(**spec).done()
    assert trial.raised is None, trial.lines
    reply = kept_by.orphan(trial.ids[0])
    assert reply.text == trial.told["text"] == told(answer("chat", "text"))["text"]
    assert (reply.status, reply.partial) == ("complete", False)


@each_colour
@each_provider
def test_killed_in_a_tool(
    programs: Nursery, kept_by: DaemonProcess, provider: str, colour: str
) -> None:
    spec = SPEC | {"provider": provider, "colour": colour, "what": "agent", "model": "tool"}
    check_killed_in_a_tool(programs.run(**spec, stall=True), kept_by)


@pytest.mark.parametrize("events", [False, True])
@each_provider
def test_the_gate_behind_a_tool(
    programs: Nursery, kept_by: DaemonProcess, provider: str, events: bool
) -> None:
    spec = SPEC | {"provider": provider, "what": "agent", "model": "tool", "events": events}
    check_gate_behind_a_tool(programs, kept_by, **spec)


@pytest.mark.parametrize(
    ("declared", "status"),
    [
        ('{"weather": ["external-write", "rerun-after-check"]}', "check"),
        ('{"weather": {"side_effect": "read", "resume_policy": "rerun-after-check"}}', "ok"),
        ('{"weather": ["external", "rerun-after-check"]}', "blocked"),
        ('{"weather": ', "blocked"),
        ("[]", "blocked"),
        ("", "blocked"),
    ],
)
def test_the_gate_behind_a_tool_that_the_environment_declares(
    programs: Nursery, kept_by: DaemonProcess, declared: str, status: str
) -> None:
    """What cannot be meant is passed over, and the program is asked as ever."""
    session = f"env {status} {declared.encode().hex()}"
    spec = SPEC | {"provider": PROVIDERS[0], "attach": "environment", "session": session}
    spec |= {"declared": declared, "what": "agent", "model": "tool", "stall": True}
    trial = programs.run(**spec)
    until(lambda: trial.words("running") or trial.words("raised"), "a tool that runs")
    assert trial.raised is None, trial.lines
    trial.kill()
    until(lambda: kept_by.reader.orphans(session), "an orphan")
    gate = kept_by.reader.session(session).resume_check()
    assert gate["status"] == status


def test_the_example(kept_by: DaemonProcess, replay: Replay) -> None:
    check("langchain_agent", "chat", kept_by, replay, tool=True)
