"""LangChain's protocol events, `stream_events(version="v3")`: recorded once, whoever tells them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from adapters.answers import AFTER_TOOL, answer, joined, told
from adapters.trial import Nursery, Trial, check_kept_before_it_is_handed_on, kept, wants
from daemon_process import DaemonProcess

wants("langchain", "langchain-openai", "langchain-anthropic")

WIRE = {"openai": "chat", "responses": "responses", "anthropic": "messages"}
each_provider = pytest.mark.parametrize("provider", WIRE)
each_colour = pytest.mark.parametrize("colour", ["sync", "async"])
each_asked = pytest.mark.parametrize("what", ["model", "agent"])
each_scenario = pytest.mark.parametrize("scenario", ["text", "think", "tool"])
SPEC: dict[str, Any] = {"session": "s", "attach": "callback", "events": True, "colour": "sync"}


@pytest.fixture(scope="module")
def programs(make_program: Callable[[str], Nursery]) -> Nursery:
    return make_program("langchain_agents")


def shown(provider: str, state: dict[str, Any]) -> dict[str, Any]:
    """Of an answer, what LangChain hands on: ChatOpenAI drops `reasoning_content`."""
    return joined({**state, "reasoning": "" if provider == "openai" else state["reasoning"]})


def spoken(provider: str, scenario: str) -> list[int]:
    """The frames that a program is shown something of."""
    shows = {"text", "call", "arguments"} | ({"reasoning"} if provider != "openai" else set())
    frames = enumerate(answer(WIRE[provider], scenario), 1)
    return [at for at, frame in frames if {one.kind for one in frame.said} & shows]


@each_scenario
@each_asked
@each_colour
@each_provider
def test_killed_behind_a_frame(
    programs: Nursery,
    kept_by: DaemonProcess,
    provider: str,
    colour: str,
    what: str,
    scenario: str,
) -> None:
    """What is recovered is what the program had got."""
    places = spoken(provider, scenario)
    if colour == "async" or what == "agent":
        places = sorted({places[0], places[len(places) // 2], places[-1]})
    for place in places:
        expected = shown(provider, told(answer(WIRE[provider], scenario)[:place]))
        asked = {"provider": provider, "colour": colour, "what": what}
        model = f"{scenario}:frames:hold{place}"
        trial = programs.run_until(expected, **SPEC | asked, model=model)
        trial.kill()
        reply = kept_by.orphan(trial.words("stream")[0][0])
        assert kept(reply) == trial.told == expected
        assert reply.status == "crashed"


@each_scenario
@each_provider
def test_kept_before_it_is_handed_on(
    programs: Nursery, kept_by: DaemonProcess, provider: str, scenario: str
) -> None:
    spec = SPEC | {"provider": provider, "what": "model"}
    check_kept_before_it_is_handed_on(programs, kept_by, scenario, **spec)


def replies_of(trial: Trial, daemon: DaemonProcess) -> list[Any]:
    assert trial.done().raised is None, trial.lines
    return [daemon.orphan(one) for one in trial.ids]


@each_scenario
@each_colour
@each_provider
def test_a_model_to_its_end(
    programs: Nursery, kept_by: DaemonProcess, provider: str, colour: str, scenario: str
) -> None:
    spec = SPEC | {"provider": provider, "colour": colour, "what": "model", "model": scenario}
    trial = programs.run(**spec)
    (reply,) = replies_of(trial, kept_by)
    assert kept(reply) == trial.told == shown(provider, told(answer(WIRE[provider], scenario)))
    assert (reply.status, reply.partial) == ("complete", False)
    assert reply.finish_reason


@each_colour
@each_provider
def test_an_agent_to_its_end(
    programs: Nursery, kept_by: DaemonProcess, provider: str, colour: str
) -> None:
    spec = SPEC | {"provider": provider, "colour": colour, "what": "agent", "model": "tool"}
    first, second = replies_of(programs.run(**spec), kept_by)
    assert kept(first) == shown(provider, told(answer(WIRE[provider], "tool")))
    assert [one.result for one in first.segments if one.kind == "tool"] == [
        "4 degrees in Oslo",
        "4 degrees in Rome",
    ]
    assert second.text == "".join(AFTER_TOOL)
    for reply in (first, second):
        assert (reply.status, reply.partial) == ("complete", False)
        assert reply.finish_reason


@each_scenario
@each_asked
@each_colour
@each_provider
def test_a_body_without_its_terminal_event(
    programs: Nursery,
    kept_by: DaemonProcess,
    provider: str,
    colour: str,
    what: str,
    scenario: str,
) -> None:
    """LangChain ends it as if all were well."""
    place = spoken(provider, scenario)[-1]
    asked = {"provider": provider, "colour": colour, "what": what}
    trial = programs.run(**SPEC | asked, model=f"{scenario}:eof{place}").done()
    reply = kept_by.orphan(trial.ids[0])
    assert kept(reply) == shown(provider, told(answer(WIRE[provider], scenario)[:place]))
    assert reply.error is not None
    assert (reply.status, reply.error.kind) == ("errored", "no_terminal_event")
