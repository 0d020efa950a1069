"""The gate, the audit and what no entry says: replies that are not released, and who is at work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import DaemonProcess, until


def orphaned(reader: Any, stream_id: str) -> bool:
    found = reader.recover(stream_id=stream_id)
    return found is not None and not found.owner_alive


@pytest.mark.parametrize("of_a_turn", [True, False])
def test_an_agent_killed_in_its_tool(
    daemon: DaemonProcess,
    make_agent: Callable[..., Obedient],
    of_a_turn: bool,
) -> None:
    """It books by its reply alone: that was `ok`, or nothing at all."""
    reader = daemon.reader
    agent = make_agent(daemon)
    whose = "client.session('s').submit('go')" if of_a_turn else "client"
    begun = "reply(stream_id='r')" if of_a_turn else "reply('s', stream_id='r')"
    agent.do(f"""
    own = {whose}
    reply = own.{begun}
    reply.token('I deploy.'); reply.tool('deploy', {{'to': 'prod'}}, call_id='c1')
    reply.drain(30, 'synced')
    """)
    agent.kill()
    until(lambda: orphaned(reader, "r"), "its process is gone")
    session = reader.session("s")
    gate = session.resume_check()
    assert (gate["status"], gate["calls"][0]["why"]) == ("blocked", "undeclared")
    assert [(one["stream_id"], one["status"]) for one in gate["replies"]] == [("r", "crashed")]
    assert gate["boundary"] == "started", "with a log or without one"
    found = [one["action"] for one in session.project("pending")]
    assert found == (["answer_turn"] if of_a_turn else []) + ["settle_tool"]
    if of_a_turn:
        tells_of_the_call(daemon)
    done = daemon.cli("resume-check", "s", "--socket", daemon.socket_path)
    assert (done.returncode, b"deploy (call c1)" in done.stdout) == (1, True)
    assert reader.resolve("r")
    after = session.resume_check()
    assert after is None if not of_a_turn else after["replies"] == []
    done = daemon.cli("resume-check", "other", "--json", "--socket", daemon.socket_path)
    assert (done.returncode, done.stdout) == (3, b"")


def tells_of_the_call(daemon: DaemonProcess) -> None:
    """Transcript, show, trace, sample and audit: they said nothing of it."""
    session = daemon.reader.session("s")
    (turn,) = session.project("transcript")
    for (one,) in (turn["tools"], session.project("eval")["tools"]):
        assert (one["call_id"], one["outcome"], one["state"]) == ("c1", "unknown", "said")
        assert (one["unreleased"]["stream_id"], one["unreleased"]["status"]) == ("r", "crashed")
    (span,) = [one for one in session.project("trace") if one["kind"] == "tool"]
    assert (span["attributes"]["call_id"], span["attributes"]["unreleased"]) == ("c1", "r")
    found = daemon.reader.audit("s").findings
    assert [(one.kind, one.subject) for one in found][1:] == [("tool_call_unanswered", "c1")]
    done = daemon.cli("session", "show", "s", "--socket", daemon.socket_path)
    assert b"* deploy  unknown  said" in done.stdout
    assert b"of reply r, crashed, not released" in done.stdout


def test_an_audit_passes_over_a_call_of_a_reply_that_lives(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do("""
    turn = client.session('s').submit('go'); reply = turn.reply(stream_id='r')
    reply.tool('deploy', {'to': 'prod'}, call_id='c1'); reply.drain(30, 'synced')
    alone = client.reply('s', stream_id='q'); alone.tool('mail', {}, call_id='c2')
    alone.drain(30, 'synced')
    """)
    assert {one.kind for one in daemon.reader.audit("s").findings} == {"turn_journal_pending_turn"}
    agent.kill()
    until(lambda: all(orphaned(daemon.reader, one) for one in "rq"), "its process is gone")
    found = daemon.reader.audit("s").findings
    told = {one.subject: one.turn_id is not None for one in found if one.subject}
    assert told == {"c1": True, "c2": False}


def test_another_process_that_lives_blocks_and_who_asks_does_not(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """An agent inside `make deploy`, and a second process that asks: that was ok."""
    agent = make_agent(daemon)
    agent.do("""
    session = client.session('s'); turn = session.submit('deploy it')
    turn.intent('look', {}, side_effect='read', resume_policy='replay-from-event', call_id='c')
    turn.tool_started('c')
    own = client.reply('other', stream_id='r'); own.token('I am'); own.drain(30, 'synced')
    """)
    session, other = daemon.reader.session("s"), daemon.reader.session("other")
    gate = session.resume_check()
    (reason,) = gate["reasons"]
    assert (gate["status"], reason["code"], reason["pid"]) == ("blocked", "at_work", agent.pid)
    assert gate["owner"]["turn"] == reason["turn"] == session.state()["turns"][0]["turn_id"]
    assert [(one["may"], one["why"]) for one in gate["calls"]] == [("never", "at_work")]
    assert agent.do("session.resume_check()['status']") == "ok", "it is its own work"
    gate = other.resume_check()
    assert [(one["code"], one["stream_id"]) for one in gate["reasons"]] == [("at_work", "r")]
    agent.do("own.cancel('closed')")
    until(lambda: other.resume_check()["status"] == "ok", "nobody speaks on it any more")
    daemon.kill()
    daemon.start()
    assert session.resume_check()["owner"]["pid"] == agent.pid, "behind a start, too"
    agent.kill()
    until(lambda: session.resume_check()["owner"] is None, "its process is gone")
    assert session.resume_check()["status"] == "ok"


def test_a_grant_is_judged_by_the_clock_and_the_policy_of_now(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    turn = session.submit("go")
    risk = {"side_effect": "external-write", "resume_policy": "never-rerun"}
    for call_id, expires_at in (("old", 1), ("good", 2**40)):
        turn.intent("mail", {}, call_id=call_id, **risk)
        turn.approval(call_id, "granted", by="anna", expires_at=expires_at)
    words = {one["call_id"]: one["why"] for one in session.resume_check()["calls"]}
    assert words == {"old": "approval_stale", "good": "never_started"}
    gate = session.resume_check(policy=lambda call: "deny" if call["call_id"] == "good" else "ask")
    words = {one["call_id"]: one["why"] for one in gate["calls"]}
    assert words == {"old": "approval_stale", "good": "policy_denies"}


@pytest.mark.parametrize("of_a_turn", [True, False])
@pytest.mark.parametrize(
    ("ended", "status"), [("r.finish('tool_use'); r.step()", "blocked"), ("", "ok")]
)
def test_a_call_of_an_attempt_that_was_done_again(
    daemon: DaemonProcess,
    make_agent: Callable[..., Obedient],
    of_a_turn: bool,
    ended: str,
    status: str,
) -> None:
    """It may have run where the step that said it had ended; else nobody had it whole."""
    agent = make_agent(daemon)
    whose = "client.session('s').submit('go')" if of_a_turn else "client"
    begun = "reply(stream_id='r')" if of_a_turn else "reply('s', stream_id='r')"
    agent.do(f"""
    own = {whose}
    r = own.{begun}
    r.tool('deploy', {{'to': 'prod'}}, call_id='c1')
    {ended or "pass"}
    r.retry('overloaded'); r.token('Once more.'); r.drain(30, 'synced')
    """)
    agent.kill()
    until(lambda: orphaned(daemon.reader, "r"), "its process is gone")
    gate = daemon.reader.session("s").resume_check()
    assert gate["status"] == status
    assert [one["call_id"] for one in gate["calls"]] == (["c1"] if status == "blocked" else [])


def test_a_reply_that_was_cut_is_no_answer_however_its_text_ends(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """A sentence may end where its process was killed: that was `answered`, nothing to resume."""
    agent = make_agent(daemon)
    agent.do("""
    turn = client.session('s').submit('go', message_id='m')
    reply = turn.reply(stream_id='r'); reply.token('I look.'); reply.drain(30, 'synced')
    """)
    agent.kill()
    until(lambda: orphaned(daemon.reader, "r"), "its process is gone")
    session = daemon.reader.session("s")
    gate = session.resume_check()
    assert (gate["status"], gate["boundary"]) == ("ok", "before_intent")
    assert [one["action"] for one in session.project("pending")] == ["answer_turn"]
    assert session.resume().message_id == "m"
    agent = make_agent(daemon)
    agent.do("""
    turn = client.session('t').submit('go', message_id='m')
    reply = turn.reply(stream_id='whole', auto_release=False)
    reply.token('It is done.'); reply.end('stop'); reply.drain(30, 'synced')
    """)
    agent.kill()
    until(lambda: orphaned(daemon.reader, "whole"), "its process is gone")
    assert daemon.reader.session("t").resume_check()["boundary"] == "answered"


def test_an_audit_passes_over_what_somebody_is_at(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """A healthy agent in its tool was called `needs manual review`, and its message, which it was
    about to save, was in the plan.
    """
    agent, reader = make_agent(daemon), daemon.reader
    agent.do("""
    turn = client.session('s').submit('deploy it', message_id='m')
    turn.intent('deploy', {}, side_effect='external-write', resume_policy='never-rerun',
                call_id='c1')
    turn.tool_started('c1')
    """)
    for present in (None, []):
        report = reader.audit("s", present=present)
        (found,) = report.findings
        assert (report.overall, found.category, found.state) == ("ok", "ok", "submitted")
        assert found.owner["pid"] == agent.pid
        assert str(agent.pid) in found.detail
    assert reader.repair_plan("s", present=[]) == []
    (owner,) = agent.do("[one.owner for one in client.repair_plan('s', present=[])]")
    assert (owner["pid"], owner["seen"]) == (agent.pid, True), "it asks itself"
    agent.kill()
    until(lambda: reader.session("s").resume_check()["owner"] is None, "its process is gone")
    report = reader.audit("s", present=[])
    assert report.overall == "needs_manual_review"
    told = {(one.kind, one.state, one.reason, one.owner is None) for one in report.findings}
    lost = ("interrupted", "agent_lost", True)
    assert told == {("turn_journal_pending_turn", *lost), ("tool_call_unanswered", *lost)}
    steps = reader.repair_plan("s", present=[])
    assert [one.op for one in steps] == ["materialise_user_message", "mark_interrupted"]
    assert {(one.state, one.reason) for one in steps} == {lost[:2]}
    turn_id = steps[0].turn_id
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for one in steps:
        assert one.owner == owner | {"seen": False, "turn": turn_id, "boot": boot}
    again = make_agent(daemon)
    again.do(f"turn = client.session('s').submit('deploy it', retry_of={turn_id!r})")
    assert reader.repair_plan("s", present=[]) == [], "who is at work on the retry saves it"
    again.do("turn.completed()")
    steps = reader.repair_plan("s", present=[])
    assert [one.op for one in steps] == ["materialise_user_message"], "the retry was answered"


@pytest.mark.parametrize(
    ("said", "marks"),
    [
        ("reply.token('It is done.'); reply.end('stop')", []),
        ("reply.token('It is done.'); reply.finish('stop')", []),
        ("reply.token('It is done.')", ["mark_interrupted"]),
        ("reply.token('I lo')", ["mark_interrupted"]),
        ("pass", ["mark_interrupted"]),
    ],
)
@pytest.mark.parametrize("released", [True, False])
def test_a_mark_is_put_only_where_there_is_no_answer(
    daemon: DaemonProcess,
    make_agent: Callable[..., Obedient],
    said: str,
    marks: list[str],
    released: bool,
) -> None:
    """SIGKILL behind `reply.end()` and before `turn.completed()`: the plan was to mark it."""
    agent = make_agent(daemon)
    agent.do(f"""
    turn = client.session('s').submit('go', message_id='m')
    reply = turn.reply(stream_id='r', auto_release={released})
    {said}
    reply.drain(30, 'synced')
    """)
    agent.kill()
    session = daemon.reader.session("s")
    until(lambda: session.state()["turns"][0]["state"] == "interrupted", "the turn to end")
    steps = daemon.reader.repair_plan("s", present=["m"])
    assert [one.op for one in steps] == marks


def test_a_long_reply_that_grows_between_two_asks(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """Its fold is kept: what it says of calls is what a daemon says that reads all of it anew."""
    agent, session = make_agent(daemon), daemon.reader.session("s")
    agent.do("""
    turn = client.session('s').submit('go')
    reply = turn.reply(stream_id='r')
    def work(name):
        for _ in range(20): reply.token('word ' * 1000)
        reply.tool('look', {'at': name}, call_id='done-' + name)
        reply.tool_result('seen', call_id='done-' + name)
        reply.tool('deploy', {'to': name}, call_id=name)
        reply.step()
        return reply.drain(30, 'synced')
    """)
    for number in range(3):
        assert agent.do(f"work('c{number}')")
        gate, waiting = session.resume_check(), session.project("pending")
        names = [f"c{at}" for at in range(number + 1)]
        assert [one["call_id"] for one in gate["tools"]] == names
        calls = [one["call_id"] for one in waiting if one["action"] != "answer_turn"]
        assert calls == names
        assert session.resume_check() == gate
    assert agent.do("reply.tool_result('it is up', call_id='c0'); reply.drain(30, 'synced')")
    agent.kill()
    until(lambda: orphaned(daemon.reader, "r"), "its process is gone")
    views = [session.resume_check(), session.project("pending")]
    daemon.kill()
    daemon.start()
    again = [session.resume_check(), session.project("pending")]
    for gate, waiting in (views, again):
        assert (gate["status"], gate["replies"][0]["status"]) == ("blocked", "crashed")
        assert [one["call_id"] for one in gate["tools"]] == ["c1", "c2"]
        assert [one["call_id"] for one in waiting if "call_id" in one] == ["c1", "c2"]


CALL = """
turn.intent('weather', {}, side_effect='read', resume_policy='replay-from-event', call_id='c')
turn.tool_started('c'); turn.tool_finished('c', 4)
"""
MESSAGES = """
call = {'id': 'c', 'name': 'weather', 'arguments': '{}'}
session.message('assistant', 'I look.', tool_calls=[call])
session.message('tool', '4', tool_call_id='c')
"""
ANSWERS = {
    "alone": ("", ""),
    "journalled": ("calls='journal'", ""),
    "behind a call": ("calls='journal'", CALL),
    "behind messages of a call": ("", MESSAGES),
    "behind both": ("calls='journal'", CALL + MESSAGES),
}


@pytest.mark.parametrize(("how", "before"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_that_names_no_turn_is_not_asked_for_again(
    daemon: DaemonProcess, agent: Obedient, how: str, before: str
) -> None:
    """Killed behind `session.message("assistant", ...)`, before `completed()`."""
    agent.do(f"session = client.session('s'); turn = session.submit('q', message_id='m', {how})")
    agent.do(before + "session.message('assistant', 'It is 4 degrees.')")
    agent.kill()
    session = daemon.reader.session("s")
    until(lambda: session.state()["turns"][0]["state"] == "interrupted", "the turn's end")
    gate, told = session.resume_check(), session.explain()
    assert (gate["status"], gate["boundary"], session.project("pending")) == ("ok", "answered", [])
    assert (told["state"], told["asked"][0]["answer"]) == ("done", "It is 4 degrees.")
    assert daemon.reader.repair_plan("s", present=["m"]) == []
    with pytest.raises(walld_client.Refused, match="answered"):
        session.resume()
