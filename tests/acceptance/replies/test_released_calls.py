"""A call that a reply said and nobody gave a result of stays known once the reply is released."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agents.process import Obedient
from daemon_process import DaemonProcess, until

OPEN: dict[bool, str] = {
    True: "turn = client.session('s').submit('go', message_id='m'); r = turn.reply(stream_id='r')",
    False: "client.session('s').append('note', {}); r = client.reply('s', stream_id='r')",
}
SAID = "r.token('I deploy.'); r.tool('deploy', {'to': 'prod'}, call_id='c1')"
ENDS = ("r.cancel('stopped')", "r.error('it broke')", "r.end('tool_use')")


def named(session: Any) -> tuple[str, list[tuple[str, str, str]], list[str]]:
    """What gate and pending say of calls."""
    gate = session.resume_check()
    calls = [(one["call_id"], one["state"], one["outcome"]) for one in gate["calls"]]
    waits = [one["action"] for one in session.project("pending") if "call_id" in one]
    return gate["status"], calls, waits


OPEN_CALL = ("blocked", [("c1", "said", "unknown")], ["settle_tool"])


def entries(session: Any) -> list[dict[str, Any]]:
    return [one["payload"] for one in session.events() if one["type"] == "model_call"]


def gone(reader: Any, stream_id: str = "r") -> bool:
    return reader.recover(stream_id=stream_id) is None


@pytest.mark.parametrize("of_a_turn", [True, False])
@pytest.mark.parametrize("end", ENDS)
def test_a_released_reply_leaves_its_open_call(
    daemon: DaemonProcess, agent: Obedient, end: str, of_a_turn: bool
) -> None:
    agent.do(f"{OPEN[of_a_turn]}; {SAID}; {end}; r.release(); r.drain(30)")
    reader = daemon.reader
    session = reader.session("s")
    until(lambda: gone(reader), "the reply to go")
    agent.kill()
    until(lambda: session.resume_check()["owner"] is None, "its process is gone")
    assert named(session) == OPEN_CALL
    done = daemon.cli("resume-check", "s", "--socket", daemon.socket_path)
    assert (done.returncode, b"deploy (call c1)" in done.stdout) == (1, True)
    shown = json.loads(
        daemon.cli("session", "show", "s", "--json", "--socket", daemon.socket_path).stdout
    )
    assert "c1" in json.dumps(shown)
    daemon.kill()
    daemon.start()
    assert named(session) == OPEN_CALL, "behind a kill, too"
    session.settle("c1", "did_not_run")
    assert named(session)[0] == "ok"


@pytest.mark.parametrize("of_a_turn", [True, False])
def test_a_resolved_orphan_leaves_its_open_call(
    daemon: DaemonProcess, agent: Obedient, of_a_turn: bool
) -> None:
    agent.do(f"{OPEN[of_a_turn]}; {SAID}; r.drain(30, 'synced')")
    agent.kill()
    reader, session = daemon.reader, daemon.reader.session("s")
    daemon.orphan("r")
    before = named(session)
    assert before == OPEN_CALL
    assert reader.resolve("r")
    assert (gone(reader), named(session)) == (True, before)
    (one,) = entries(session)
    assert "prod" not in json.dumps(one), "no arguments"
    assert one["calls"][0]["seq"] == 2


# --- which are written ----------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["r.cancel('stopped'); r.release()", ""])
def test_where_the_session_has_no_ledger_nothing_is_written(
    daemon: DaemonProcess, agent: Obedient, end: str
) -> None:
    """The application has taken the calls over. It has another session, which has one."""
    agent.do("client.session('other').append('note', {}); r = client.reply('s', stream_id='r')")
    agent.do(f"{SAID}; {end or 'pass'}; r.drain(30, 'synced')")
    reader = daemon.reader
    if not end:
        agent.kill()
        daemon.orphan("r")
        assert reader.resolve("r")
    until(lambda: gone(reader), "the reply to go")
    assert reader.session("s").resume_check() is None
    assert [one.session_id for one in reader.sessions()] == ["other"]


def test_what_the_messages_of_a_turns_reply_say_is_not_said_again(
    daemon: DaemonProcess, agent: Obedient
) -> None:
    """But for an attempt that was begun anew, of which no message is made."""
    agent.do(f"{OPEN[True]}; r.tool('look', {{}}, call_id='c0'); r.finish('tool_use'); r.step()")
    agent.do("r.tool('cut', {}, call_id='c9'); r.retry('overloaded')")
    agent.do(f"{SAID}; r.end('tool_use'); r.release(); r.drain(30)")
    session = daemon.reader.session("s")
    (one,) = entries(session)
    assert [call["call_id"] for call in one["calls"]] == ["c0"], "c9 nobody had whole"
    assert one["status"] == "complete"
    calls = session.resume_check()["calls"]
    assert sorted((call["call_id"], call["outcome"]) for call in calls) == [
        ("c0", "unknown"),
        ("c1", "unknown"),
    ]


@pytest.mark.parametrize("of_a_turn", [True, False])
def test_what_was_adopted_before_it_is_resolved_is_not_said_again(
    daemon: DaemonProcess, agent: Obedient, of_a_turn: bool
) -> None:
    agent.do(f"{OPEN[of_a_turn]}; {SAID}; r.step(); r.tool('look', {{}}, call_id='c2')")
    agent.do("r.drain(30, 'synced')")
    agent.kill()
    reader, session = daemon.reader, daemon.reader.session("s")
    first = daemon.orphan("r").messages()[0]
    session.append("message", first, id=f"r:{first['_wal_seq']}", once=True)
    assert reader.resolve("r")
    assert [[call["call_id"] for call in one["calls"]] for one in entries(session)] == [["c2"]]
    told = [(one["call_id"], one["outcome"]) for one in session.resume_check()["calls"]]
    assert sorted(told) == [("c1", "unknown"), ("c2", "unknown")]


def test_it_says_what_the_reply_said_of_it_and_no_more(
    daemon: DaemonProcess, agent: Obedient
) -> None:
    """P5: words, results and arguments leave the disk."""
    agent.do(f"{OPEN[True]}; r.token('secret-word')")
    agent.do(
        "r.tool('read', {'path': 'secret-path'}, call_id='c1', "
        "side_effect='read', resume_policy='rerun-after-check', own='secret-info')"
    )
    agent.do("r.tool_result('secret-result', call_id='c1'); r.tool('put', call_id='c2')")
    agent.do("r.error('it broke', kind='overloaded'); r.release(); r.drain(30, 'synced')")
    reader, session = daemon.reader, daemon.reader.session("s")
    until(lambda: gone(reader), "the reply to go")
    (one,) = entries(session)
    hashed = one["calls"][0].pop("arguments_hash")
    assert len(hashed) == 64
    assert isinstance(one.pop("started_at_ms"), int)
    assert isinstance(one.pop("at_ms"), int)
    assert all(isinstance(call.pop("at_ms"), int) for call in one["calls"])
    risk = {"side_effect": "read", "resume_policy": "rerun-after-check"}
    assert one == {
        "stream": "r",
        "step": 1,
        "status": "error",
        "error_class": "provider",
        "error_kind": "overloaded",
        "calls": [
            {"call_id": "c1", "name": "read", "seq": 2, "outcome": "done"} | risk,
            {"call_id": "c2", "name": "put", "seq": 4, "outcome": "unknown"}
            | {"arguments_hash": None},
        ],
    }
    event = session.events()[-1]
    assert (event["id"], event["leaf"], event["turn"]) == (
        "r:1:call",
        False,
        session.state()["turns"][0]["turn_id"],
    )


def test_a_step_of_very_many_calls_is_told_in_parts(daemon: DaemonProcess, agent: Obedient) -> None:
    agent.do(f"{OPEN[False]}; [r.tool('x' * 3000, call_id=f'c{{n}}') for n in range(600)]")
    agent.do("r.cancel('stopped'); r.release(); r.drain(30)")
    session = daemon.reader.session("s")
    until(lambda: gone(daemon.reader), "the reply to go")
    told = entries(session)
    assert len(told) > 3
    assert [call["call_id"] for one in told for call in one["calls"]] == [
        f"c{n}" for n in range(600)
    ]


def test_a_live_client_that_released_it_while_no_daemon_ran(
    daemon: DaemonProcess, agent: Obedient
) -> None:
    agent.do(f"{OPEN[False]}; {SAID}; r.drain(30, 'synced')")
    daemon.kill()
    agent.do("r.cancel('stopped'); r.release()")
    daemon.start()
    assert agent.do("r.drain(30)") is True
    session = daemon.reader.session("s")
    until(lambda: gone(daemon.reader), "the reply to go")
    assert named(session) == OPEN_CALL


def test_a_start_lets_a_reply_with_its_messages_go_only_with_its_other_calls(
    daemon: DaemonProcess, agent: Obedient
) -> None:
    """No message says the call of an attempt that was begun anew."""
    agent.do("turn = client.session('s').submit('go', message_id='m')")
    agent.do("r = turn.reply(stream_id='r', auto_release=False); r.tool('look', {}, call_id='c0')")
    agent.do("r.finish('tool_use'); r.step(); r.retry('overloaded'); r.token('Done.'); r.end()")
    agent.do("r.drain(30, 'synced')")
    reader, session = daemon.reader, daemon.reader.session("s")
    for message in reader.recover(stream_id="r").messages():
        session.append("message", message, id=f"r:{message['_wal_seq']}", once=True)
    daemon.kill()
    agent.kill()
    daemon.start()
    assert not gone(reader)
    assert ("c0", "said", "unknown") in named(session)[1]
    assert reader.resolve("r")
    assert [[call["call_id"] for call in one["calls"]] for one in entries(session)] == [["c0"]]
