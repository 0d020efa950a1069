"""What a turn's reply said that is not released stands in messages(), against a real daemon."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import DaemonProcess, MakeDaemon, until

RISK = '{"side_effect": "external-write", "resume_policy": "rerun-after-check"}'
HELD = f"""
turn = client.session("s").submit("deploy it", message_id="m")
reply = turn.reply(stream_id="r")
reply.token("I deploy. ")
reply.tool("deploy", {{"env": "prod"}}, call_id="c1")
turn.intent("deploy", {{"env": "prod"}}, call_id="c1", **{RISK})
turn.tool_started("c1")
"""


@pytest.fixture
def daemon(make_daemon: MakeDaemon) -> DaemonProcess:
    return make_daemon().start()


def sent(session: Any, **more: Any) -> list[tuple[str, Any]]:
    told = []
    for one in session.messages("openai", **more):
        calls = [call["function"]["name"] for call in one.get("tool_calls", ())]
        told.append((one["role"], calls or one["content"]))
    return told


def test_between_two_steps_and_behind_a_kill_in_a_tool(reader: Any, agent: Obedient) -> None:
    agent.do(HELD)
    session = reader.session("s")
    called = [("user", "deploy it"), ("assistant", ["deploy"])]
    assert sent(session) == [*called, ("tool", "This call is still running.")]
    agent.do('turn.tool_finished("c1", "deployed"); reply.step()')
    assert sent(session) == [*called, ("tool", "deployed")]
    agent.do('reply.token("Now th"); reply.drain(10)')
    assert [one["content"] for one in session.messages()] == ["deploy it", "I deploy. ", "Now th"]
    assert sent(session) == [*called, ("tool", "deployed")], "a text that goes on is not sent"
    agent.do('reply.token("is.")')
    agent.do('reply.end("stop"); turn.completed()')
    assert sent(session) == [*called, ("tool", "deployed"), ("assistant", "Now this.")]


def test_a_kill_in_a_tool_is_told_whoever_asks(
    reader: Any, agent: Obedient, daemon: DaemonProcess
) -> None:
    agent.do(HELD)
    agent.do("reply.drain(10)")
    agent.kill()
    session = reader.session("s")
    until(lambda: session.state()["turns"][0]["state"] == "interrupted", "the turn to end")
    told = sent(session)
    assert told[:2] == [("user", "deploy it"), ("assistant", ["deploy"])]
    assert told[2][1].startswith("No result was recorded: the work stopped")
    assert sent(session, unknown="drop") == [("user", "deploy it")]
    command = [sys.executable, "-m", "walld", "session", "messages", "s", "--format", "openai"]
    command += ["--unknown", "drop", "--socket", str(daemon.socket_path)]
    told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert [one["role"] for one in told] == ["user"]
    reply = reader.recover(stream_id="r")
    assert reply is not None
    for message in reply.messages():
        session.append("message", message, once=True, id="adopted")
    assert sent(session)[:2] == [("user", "deploy it"), ("assistant", ["deploy"])]
    assert len(session.messages()) == 2, "what is in the session is told once"


STEPS = {
    "in one piece": 'reply.tool("sh", {"a": %d}, call_id="call_0")',
    "streamed": 'reply.tool("sh", call_id="call_0"); '
    'reply.tool_arguments(\'{"a"\', call_id="call_0"); '
    'reply.tool_arguments(": %d}", call_id="call_0")',
}


def number_in(call: dict[str, Any]) -> int:
    """Arguments of a reply are the text that came."""
    told = call["arguments"]
    return int((json.loads(told) if isinstance(told, str) else told)["a"])


NEVER = 'side_effect="external-write", resume_policy="never-rerun", call_id="call_0"'


@pytest.mark.parametrize("parted", ["reply.step()", 'reply.finish("tool_calls")'])
@pytest.mark.parametrize("has_journal", [False, True])
@pytest.mark.parametrize("said", STEPS.values(), ids=STEPS)
def test_an_id_that_comes_again_in_the_next_answer_is_another_call(
    reader: Any, agent: Obedient, said: str, has_journal: bool, parted: str
) -> None:
    """Killed in the second: neither the gate, nor a message, nor who adopts it sees one alone."""
    session = reader.session("s")
    agent.do(
        f"turn = client.session('s').submit('go', calls={'journal' if has_journal else None!r})"
    )
    agent.do("reply = turn.reply()")
    for number in (1, 2):
        agent.do(said % number)
        agent.do("reply.drain(10)")
        if has_journal:
            agent.do(f"turn.intent('sh', {{'a': {number}}}, {NEVER}); turn.tool_started('call_0')")
        if number == 1:
            agent.do(f"turn.tool_finished('call_0', 'R1'); {parted}" if has_journal else parted)
    agent.kill()
    until(lambda: session.state()["turns"][0]["state"] == "interrupted", "the turn to end")
    verdict = session.resume_check()
    assert verdict["status"] == "blocked"
    found = sorted((one["n"], one["may"], number_in(one)) for one in verdict["calls"])
    assert found == [(1, "read_result" if has_journal else "ask_user", 1), (2, found[1][1], 2)]
    assert found[1][1] == ("never" if has_journal else "ask_user")
    assert [number_in(one) for one in session.explain()["unknown"]][-1] == 2

    def sent_calls() -> list[tuple[str, str]]:
        told = session.messages("openai")
        calls = [
            one["function"]["arguments"] for each in told for one in each.get("tool_calls", ())
        ]
        results = [one["content"] for one in told if one["role"] == "tool"]
        return list(zip([json.loads(one)["a"] for one in calls], results, strict=True))

    (one, gave), (two, unknown) = before = sent_calls()
    assert (one, two) == (1, 2)
    assert gave == "R1" if has_journal else gave.startswith("No result was recorded")
    assert unknown.startswith("No result was recorded")
    assert session.adopt()
    assert sent_calls() == before


def test_an_intent_names_the_call_of_its_answer(reader: Any, agent: Obedient) -> None:
    """By its place, though nothing else tells two calls of one id apart."""
    agent.do("turn = client.session('s').submit('go'); reply = turn.reply(stream_id='r')")
    for parted in ("reply.step()", "reply.finish()", "reply.tool_result('x', call_id='c')", ""):
        agent.do("reply.tool('sh', {}, call_id='c')")
        agent.do(f"turn.intent('sh', None, {NEVER.replace('call_0', 'c')}); turn.tool_started('c')")
        agent.do(f"turn.tool_finished('c'); {parted}")
    told = [one["payload"].get("said") for one in reader.session("s").events()]
    assert [one for one in told if one is not None] == ["r:1", "r:3", "r:5", "r:7"]


def test_a_daemon_that_does_not_know_it_is_of_another_build(reader: Any) -> None:
    """Any other argument that a view does not have is a mistake."""
    with pytest.raises(walld_client.Refused) as refused:
        reader.session("s").project("messages", knowing=True)
    assert not isinstance(refused.value, walld_client.Unsupported)
    assert "unknown" in refused.value.limit.split(" | ")
