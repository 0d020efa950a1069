"""OpenAI Agents, as they come from the registry, against a real daemon."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from adapters.answers import answer, joined, told
from adapters.examples import check
from adapters.replay import Replay
from adapters.trial import (
    Nursery,
    check_gate_behind_a_tool,
    check_kept_before_it_is_handed_on,
    check_killed_behind_each_frame,
    check_killed_in_a_tool,
    check_two_replies,
    kept,
    wants,
)
from daemon_process import DaemonProcess

wants("openai-agents")

each_wire = pytest.mark.parametrize("wire", ["chat", "responses"])


@pytest.fixture(scope="module")
def programs(make_program: Callable[[str], Nursery]) -> Nursery:
    return make_program("agents_agents")


@pytest.mark.parametrize("scenario", ["text", "think", "tool"])
@each_wire
def test_killed_behind_each_frame(
    programs: Nursery, kept_by: DaemonProcess, wire: str, scenario: str
) -> None:
    """What is recovered is what the program had got."""
    check_killed_behind_each_frame(programs, kept_by, wire, scenario, "tee")


@pytest.mark.parametrize("scenario", ["text", "think", "tool"])
@each_wire
def test_kept_before_it_is_handed_on(
    programs: Nursery, kept_by: DaemonProcess, wire: str, scenario: str
) -> None:
    check_kept_before_it_is_handed_on(programs, kept_by, scenario, provider=wire, what="tee")


@pytest.mark.parametrize("what", ["run", "tee", "hooks"])
@each_wire
def test_an_agent(programs: Nursery, kept_by: DaemonProcess, wire: str, what: str) -> None:
    """A call, its tool, the second call: two replies, the results where they belong."""
    trial = programs.run(provider=wire, what=what, model="tool", loud=False).done()
    first, _ = check_two_replies(trial, kept_by)
    assert kept(first) == joined(told(answer(wire, "tool")))


@each_wire
def test_a_body_without_its_terminal_event(
    programs: Nursery, kept_by: DaemonProcess, wire: str
) -> None:
    """Trap 1; of a Chat model Agents itself makes up that it was whole, of Responses it raises."""
    frames = answer(wire, "text")
    last = max(at for at, frame in enumerate(frames, 1) if frame.said)
    trial = programs.run(provider=wire, what="tee", model=f"text:eof{last - 1}").done()
    reply = kept_by.orphan(trial.ids[0])
    assert kept(reply) == trial.told
    assert (reply.status, reply.partial) == ("errored", True)
    assert reply.error is not None
    assert reply.error.kind == "no_terminal_event", trial.raised
    assert (trial.raised is None) == (wire == "chat")
    if trial.raised is None:
        assert "include_usage=True" in reply.error.message


@each_wire
def test_cut(programs: Nursery, kept_by: DaemonProcess, wire: str) -> None:
    frames = answer(wire, "text")
    last = max(at for at, frame in enumerate(frames, 1) if frame.said)
    trial = programs.run(provider=wire, what="tee", model=f"text:frames:cut{last}").done()
    assert trial.raised is not None
    reply = kept_by.orphan(trial.ids[0])
    assert kept(reply) == trial.told
    assert reply.status == "errored"


@pytest.mark.parametrize("what", ["run", "tee"])
@each_wire
def test_killed_in_a_tool(programs: Nursery, kept_by: DaemonProcess, wire: str, what: str) -> None:
    trial = programs.run(provider=wire, what=what, model="tool", stall=True, loud=False)
    check_killed_in_a_tool(trial, kept_by)


@pytest.mark.parametrize("what", ["run", "tee"])
@each_wire
def test_the_gate_behind_a_tool(
    programs: Nursery, kept_by: DaemonProcess, wire: str, what: str
) -> None:
    spec = {"provider": wire, "what": what, "model": "tool", "loud": False}
    check_gate_behind_a_tool(programs, kept_by, **spec)


def test_the_example(kept_by: DaemonProcess, replay: Replay) -> None:
    check("openai_agents_run", "responses", kept_by, replay, tool=True)
