"""A call that is the work of a sub-agent in a session of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from agents.process import Obedient
from daemon_process import DaemonProcess

SPAWN = """
session = client.session({parent!r})
turn = session.submit('go', message_id='m', calls='journal')
turn.intent('spawn', {{'of': {child!r}}}, call_id='k', side_effect='external-write',
            resume_policy='never-rerun')
child = session.child({child!r}, call_id='k')
turn.tool_started('k')
"""
WORK = """
sub = child.submit('look', message_id='sm', calls='journal')
"""
ANSWER = """
reply = sub.reply()
reply.token('It is 4 degrees.')
reply.end()
"""


def spawned(agent: Obedient, parent: str = "p", child: str = "c") -> None:
    agent.do(SPAWN.format(parent=parent, child=child))
    agent.do(WORK)


def results(session: Any) -> list[dict[str, Any]]:
    return [one["payload"] for one in session.events() if one["type"] == "tool_finished"]


def call_of(session: Any) -> dict[str, Any]:
    (call,) = session.resume_check()["calls"]
    return dict(call)


def test_what_it_said_last_is_what_the_call_gave(
    daemon: DaemonProcess, agent: Obedient, reader: Any
) -> None:
    spawned(agent)
    agent.do(ANSWER)
    session = reader.session("p")
    # Not completed yet, but answered: views look into the child, and nothing is written.
    assert results(session) == []
    (item,) = session.messages()[1]["tool_calls"]
    assert (item["child"], item["outcome"], item["result"]) == ("c", "done", "It is 4 degrees.")
    assert session.messages("openai")[2]["content"] == "It is 4 degrees."
    assert session.messages("openai", last=1)[-1]["content"] == "It is 4 degrees."
    (tool,) = session.project("transcript")[0]["tools"]
    assert (tool["child"], tool["outcome"]) == ("c", "done")
    agent.do("sub.completed()")
    assert results(session) == [{"call_id": "k", "result": "It is 4 degrees."}]
    agent.do("session.child('c', call_id='k')")
    assert len(results(session)) == 1, "once"
    (told,) = [one for one in session.events() if one["type"] == "tool_finished"]
    turn = reader.session("c").state()["turns"][0]["turn_id"]
    assert (told["id"], told["leaf"]) == (f"c:{turn}:result", False)


def test_both_sessions_name_each_other(daemon: DaemonProcess, agent: Obedient, reader: Any) -> None:
    spawned(agent)
    agent.do("child = session.child('c', call_id='k')")
    parent, child = reader.session("p"), reader.session("c")
    turn = parent.state()["turns"][0]["turn_id"]
    of = {"turn": turn, "call_id": "k"}
    (named,) = [one for one in parent.events() if one["type"] == "child"]
    assert named["payload"] == {"session": "c", "call_id": "k", "of": of}
    assert named["leaf"] is False
    first, *rest = child.events()
    assert (first["type"], first["leaf"]) == ("child_of", False)
    assert first["payload"] == {"session": "p", "call_id": "k", "of": of}
    assert "child_of" not in [one["type"] for one in rest], "once"


def test_its_gate_is_the_gate_of_the_call(
    daemon: DaemonProcess, agent: Obedient, reader: Any
) -> None:
    """A killed spawn may go on where the child may, whatever its own policy is."""
    spawned(agent)
    agent.kill()
    session = reader.session("p")
    gate = session.resume_check()
    (call,) = gate["calls"]
    assert (gate["status"], gate["reasons"]) == ("ok", [])
    assert (call["child"], call["outcome"], call["may"], call["why"]) == (
        *("c", "unknown"),
        *("run", "child"),
    )
    (waiting,) = [one for one in session.project("pending") if "call_id" in one]
    assert (waiting["action"], waiting["child"]) == ("run_tool", "c")
    shown = daemon.cli("session", "show", "p", "--socket", daemon.socket_path).stdout
    assert b"the work of session c" in shown


@pytest.mark.parametrize(
    ("policy", "verdict", "may"),
    [("never-rerun", "blocked", "never"), ("rerun-after-check", "check", "check_then_run")],
)
def test_what_keeps_the_child_keeps_its_parent(
    daemon: DaemonProcess, agent: Obedient, reader: Any, policy: str, verdict: str, may: str
) -> None:
    spawned(agent)
    agent.do(
        "sub.intent('deploy', {}, call_id='d', side_effect='external-write',"
        f" resume_policy={policy!r}); sub.tool_started('d')"
    )
    agent.kill()
    gate = reader.session("p").resume_check()
    assert gate["status"] == verdict
    (reason,) = gate["reasons"]
    assert (reason["verdict"], reason["call_id"], reason["session"]) == (verdict, "k", "c")
    assert reason["message"].startswith("session c (call k): tool deploy (call d): it may have run")
    assert reason["of_child"]["call_id"] == "d"
    assert (call_of(reader.session("p"))["may"], gate["calls"][0]["why"]) == (may, "child")
    reader.session("c").settle("d", "did_not_run")
    assert reader.session("p").resume_check()["status"] == "ok"


def test_who_is_at_work_on_the_child_is_at_work_on_the_call(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], reader: Any
) -> None:
    parent, worker = make_agent(daemon), make_agent(daemon)
    parent.do(SPAWN.format(parent="p", child="c"))
    worker.do("sub = client.session('c').submit('look', message_id='sm')")
    parent.kill()
    session = reader.session("p")
    gate = session.resume_check()
    (reason,) = gate["reasons"]
    assert (gate["status"], reason["code"]) == ("blocked", "at_work")
    assert f"process {worker.pid} is at work" in reason["message"]
    (waiting,) = [one for one in session.project("pending") if "call_id" in one]
    assert (waiting["action"], waiting["owner"]["pid"]) == (None, worker.pid)
    assert worker.do("client.session('p').resume_check()['status']") == "ok", "it asks itself"
    worker.kill()
    assert session.resume_check()["status"] == "ok"


def test_a_child_that_was_never_begun_says_nothing(daemon: DaemonProcess, agent: Obedient) -> None:
    """Killed between the two entries: the call is judged as any other."""
    agent.do(SPAWN.format(parent="p", child="c").replace("turn.tool_started('k')", ""))
    agent.do("client.delete('c'); turn.tool_started('k')")
    agent.kill()
    gate = daemon.reader.session("p").resume_check()
    assert (gate["status"], gate["calls"][0]["why"]) == ("blocked", "may_have_run")


def test_a_child_serves_one_call_behind_the_other(
    daemon: DaemonProcess, agent: Obedient, reader: Any
) -> None:
    spawned(agent)
    agent.do(ANSWER)
    agent.do("sub.completed()")
    agent.do(
        "turn.intent('spawn', {}, call_id='k2', side_effect='none', resume_policy='never-rerun');"
        "child = session.child('c', call_id='k2')"
    )
    one, two = reader.session("p").resume_check()["calls"]
    by_id = {call["call_id"]: call["outcome"] for call in (one, two)}
    assert by_id == {"k": "done", "k2": "pending"}, "what it said of the first is not of the second"
    agent.do("sub = child.submit('again', message_id='sm2'); r = sub.reply(); r.token('Now 5.')")
    agent.do("r.end(); sub.completed()")
    assert [one["result"] for one in results(reader.session("p"))] == ["It is 4 degrees.", "Now 5."]


def test_children_of_children_and_a_circle(
    daemon: DaemonProcess, agent: Obedient, reader: Any
) -> None:
    for at in range(12):
        agent.do(SPAWN.format(parent=f"s{at}", child=f"s{at + 1}"))
    agent.do(SPAWN.format(parent="s12", child="s0"))
    agent.kill()
    gate = reader.session("s0").resume_check()
    assert gate["status"] == "blocked", "of the last one nobody looked into its child"
    codes = {one["code"]: one["message"] for one in gate["reasons"]}
    assert set(codes) == {"child_unreadable", "tool_unknown"}
    assert "more than 8 sessions deep" in codes["child_unreadable"]
    assert reader.session("s12").resume_check() is not None
    client = daemon.reader.session("circle")
    turn = client.submit("x", message_id="m")
    turn.intent("spawn", {}, call_id="k", side_effect="none", resume_policy="never-rerun")
    other = client.child("other", call_id="k")
    sub = other.submit("x", message_id="m")
    sub.intent("spawn", {}, call_id="k", side_effect="none", resume_policy="never-rerun")
    other.child("circle", call_id="k")
    assert client.resume_check()["status"] == "ok"


def test_long_words_are_read_from_beside_the_child(
    daemon: DaemonProcess, agent: Obedient, reader: Any
) -> None:
    spawned(agent)
    agent.do(
        "r = sub.reply(); [r.token('word ' * 20_000) for _ in range(6)]; r.end(); child.state()"
    )
    session, whole = reader.session("p"), "word " * 120_000
    (item,) = session.messages()[1]["tool_calls"]
    assert item["result"] == whole
    assert item["result"] == session.messages(last=1)[-1]["tool_calls"][0]["result"]
    agent.do("sub.completed()")
    (item,) = session.messages()[1]["tool_calls"]
    assert item["result"] == whole
    reader.delete("c")
    (item,) = session.messages()[1]["tool_calls"]
    assert item["result"] == whole, "it stands beside the parent now"


def test_a_call_that_nobody_intends_is_refused(
    daemon: DaemonProcess, agent: Obedient, reader: Any
) -> None:
    import walld_client

    session = reader.session("p")
    session.submit("go", message_id="m")
    with pytest.raises(walld_client.Refused, match="no open call has that id"):
        session.child("c", call_id="k")
    with pytest.raises(ValueError, match="must be another session's"):
        session.child("p", call_id="k")
    assert reader.session("c").events() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_another_user_s_session_of_that_name_is_not_read(
    make_daemon: Callable[..., DaemonProcess], make_agent: Callable[..., Obedient]
) -> None:
    daemon = make_daemon("--socket-mode", "0666")
    os.chmod(daemon.folder, 0o711)
    daemon.start()
    alice, bob = make_agent(daemon, uid=61001), make_agent(daemon, uid=61002)
    spawned(bob)
    bob.do(ANSWER)
    alice.do(SPAWN.format(parent="p", child="c"))
    alice.do("client.delete('c')")
    told = "client.session('p').messages()[1]['tool_calls'][0]['outcome']"
    assert bob.do(told) == "done"
    assert alice.do(told) == "unknown"
