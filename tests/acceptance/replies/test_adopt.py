"""What a process that is gone had said becomes messages of its session, once."""

from __future__ import annotations

import json
import sys
from typing import Any

import fork_server
import pytest
import walld_client
from agents.process import Obedient
from daemon_process import DaemonProcess, environment, until

OF_A_TURN = "turn = client.session('s').submit('go', message_id='m'); r = turn.reply(stream_id='r')"
ALONE = "r = client.reply('s', stream_id='r')"
SAID = """
r.token('I look.'); r.tool('look', {'at': 1}, call_id='c1')
r.tool_result('4 degrees', call_id='c1')
r.step(); r.token('I deploy.'); r.tool('deploy', {'to': 'prod'}, call_id='c2')
r.step(); r.token('It is cu')
r.drain(30, 'synced')
"""
DIES_BEHIND = """
import os, signal
from walld_client.query.query import Query
exchange, left = Query._exchange, [{count}]
def dying(*given, **named):
    answer = exchange(*given, **named)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer
Query._exchange = dying
client.session('s').adopt()
"""


def cut_off(daemon: DaemonProcess, agent: Obedient, begins: str) -> None:
    agent.do(begins)
    agent.do(SAID)
    agent.kill()
    daemon.orphan("r")


def told(session: Any) -> dict[str, Any]:
    """What the model and the gate see, without the keys that only say that it was adopted."""
    gate = session.resume_check()
    return {
        "openai": session.messages("openai"),
        "calls": [
            (one["call_id"], one["outcome"], one["may"], one.get("arguments"))
            for one in gate["calls"]
            if one["may"] != "read_result"
        ],
        "status": gate["status"],
    }


def test_in_its_turn_everything_is_as_it_was(
    daemon: DaemonProcess, agent: Obedient, reader: Any
) -> None:
    cut_off(daemon, agent, OF_A_TURN)
    session = reader.session("s")
    before = told(session)
    assert before["calls"][0][:2] == ("c2", "unknown")
    made = session.adopt()
    assert [one.id for one in made] == ["r:1", "r:5", "r:8"]
    assert all(one.is_new for one in made)
    after = told(session)
    assert (after["calls"], after["status"]) == (before["calls"], before["status"])
    # Its last words may go to the model now (they were held back until somebody saved them).
    assert after["openai"][: len(before["openai"])] == before["openai"]
    assert "It is cu" in json.dumps(after["openai"])
    first, second, last = (one for one in session.messages() if one["role"] == "assistant")
    assert (first["content"], first["tool_calls"][0]["result"]) == ("I look.", "4 degrees")
    assert second["tool_calls"][0]["outcome"] == "unknown"
    assert (last["_wal_recovered"], last["_partial"]) == (True, True)
    assert last["_turn"] == session.turn(stream_id="r").turn_id
    assert reader.recover(stream_id="r") is None
    count = len(session.events())
    assert session.adopt() == []
    assert len(session.events()) == count


def test_a_session_without_a_ledger_gets_one(daemon: DaemonProcess, agent: Obedient) -> None:
    cut_off(daemon, agent, ALONE)
    session = daemon.reader.session("s")
    assert session.messages() is None
    assert len(session.adopt()) == 3
    assert [one["content"] for one in session.messages()] == ["I look.", "I deploy.", "It is cu"]
    (call,) = [one for one in session.resume_check()["calls"] if one["may"] != "read_result"]
    assert (call["call_id"], call["outcome"]) == ("c2", "unknown")


@pytest.mark.parametrize("begins", [OF_A_TURN, ALONE])
def test_killed_behind_each_request_the_next_one_ends_it(
    daemon: DaemonProcess, make_agent: Any, begins: str
) -> None:
    cut_off(daemon, make_agent(daemon), begins)
    session = daemon.reader.session("s")
    for count in range(1, 20):
        adopting = make_agent(daemon)
        adopting.begin(DIES_BEHIND.format(count=count))
        line = adopting.process.stdout.readline()
        if line:
            break
        said = [one["id"] for one in session.events() if one["type"] == "message"]
        assert len(said) == len(set(said)), "no message twice"
        assert said in ([], ["r:1", "r:5", "r:8"]), "all or none"
        assert said or daemon.reader.recover(stream_id="r") is not None
    assert count > 3, "it was killed behind each"
    assert [one["id"] for one in session.events() if one["type"] == "message"] == [
        "r:1",
        "r:5",
        "r:8",
    ]
    assert daemon.reader.recover(stream_id="r") is None


def test_one_whose_owner_lives_is_left_to_it(daemon: DaemonProcess, agent: Obedient) -> None:
    agent.do(OF_A_TURN)
    agent.do(SAID)
    session = daemon.reader.session("s")
    assert session.adopt() == []
    with pytest.raises(walld_client.Refused, match="its owner is alive"):
        session.adopt("r")
    assert session.adopt("none of that name") == []


def test_other_applications_are_left_to_them(daemon: DaemonProcess, make_agent: Any) -> None:
    cut_off(daemon, make_agent(daemon, app="other"), ALONE)
    session = daemon.reader.session("s")
    assert session.adopt() == []
    assert len(session.adopt("r")) == 3, "who names it sees it"


def test_words_of_a_branch_that_was_left_stay_on_it(daemon: DaemonProcess, agent: Obedient) -> None:
    """They came to the model on the branch that is read now."""
    session = daemon.reader.session("s")
    first = session.message("user", "zero").id
    agent.do(OF_A_TURN)
    agent.do(SAID)
    agent.do(f"p = client.reply('s', stream_id='p', parent={first!r}); p.token('of another')")
    assert agent.do("p.drain(30, 'synced')") is True
    agent.kill()
    for stream_id in ("r", "p"):
        daemon.orphan(stream_id)
    session.branch(first)
    session.message("user", "elsewhere")
    before = session.messages()
    assert len(session.adopt()) == 4
    assert session.messages() == before
    told = [one["content"] for one in session.messages(branch="r:8")]
    assert [one for one in told if one] == ["zero", "go", "I look.", "I deploy.", "It is cu"]
    (hung,) = [one for one in session.events() if one["id"] == "p:1"]
    assert hung["parent"] == first


@pytest.mark.parametrize("begins", [OF_A_TURN, ALONE])
def test_what_grew_since_it_was_adopted_is_not_lost(
    daemon: DaemonProcess, agent: Obedient, begins: str
) -> None:
    """Its owner came back, and said more, before the one that adopted it had resolved it."""
    cut_off(daemon, agent, begins)
    session = daemon.reader.session("s")
    words = {"_wal_stream": "r", "_wal_seq": 8, "_wal_last_seq": 7, "_wal_recovered": True}
    session.message("assistant", "It", id="r:8", **words)
    assert [one.id for one in session.adopt()] == ["r:1", "r:5", "r:8:8"]
    contents = [one["content"] for one in session.messages() if one["role"] == "assistant"]
    assert sorted(contents) == ["I deploy.", "I look.", "It is cu"]


def test_an_id_that_another_entry_has_hides_no_words(
    daemon: DaemonProcess, agent: Obedient
) -> None:
    cut_off(daemon, agent, ALONE)
    session = daemon.reader.session("s")
    session.append("app.note", {"a": 1}, id="r:5")
    assert [one.id for one in session.adopt()] == ["r:1", "r:5:7", "r:8"]
    assert "I deploy." in [one["content"] for one in session.messages()]


@pytest.mark.parametrize("in_a_turn", [True, False])
def test_a_stream_id_that_is_used_again_hides_no_words(
    daemon: DaemonProcess, make_agent: Any, in_a_turn: bool
) -> None:
    """A stream id is free again once its reply is released: each time the same seqs say more."""
    session = daemon.reader.session("s")
    for count, words in enumerate(("a first one, long", "two", "six")):
        agent = make_agent(daemon)
        agent.do(OF_A_TURN.replace("'m'", f"'m{count}'") if in_a_turn else ALONE)
        agent.do(f"r.token({words!r}); r.drain(30, 'synced')")
        if count == 0 and in_a_turn:
            agent.do("r.token('.'); r.end(); turn.completed(); r.drain(30, 'synced')")
        agent.kill()
        if count or not in_a_turn:
            daemon.orphan("r")
            told = [
                one["messages"]
                for turn in session.project("transcript") or []
                for one in turn.get("replies", ())
            ]
            assert [[one["content"] for one in said] for said in told] == [[words]]
            assert len(session.adopt()) == 1
    said = [one["payload"]["content"] for one in session.events() if one["type"] == "message"]
    assert said[1:] == ["two", "six"], "each is an entry"
    if in_a_turn:
        told = [one["content"] for one in session.messages() if one["role"] == "assistant"]
        assert told == ["a first one, long.", "two", "six"]


def test_by_hand(daemon: DaemonProcess, agent: Obedient) -> None:
    cut_off(daemon, agent, OF_A_TURN)
    done = daemon.cli("session", "adopt", "s", "--socket", daemon.socket_path)
    assert (done.returncode, done.stdout) == (0, b"adopted: 3 messages\n"), done.stderr
    done = daemon.cli("session", "adopt", "s", "--json", "--socket", daemon.socket_path)
    assert (done.returncode, json.loads(done.stdout)) == (0, [])


def test_by_hand_whose_it_is_counts_as_in_the_client(
    daemon: DaemonProcess, make_agent: Any
) -> None:
    apps: dict[str, dict[str, str]] = {"tests": {}, "billing": {"app": "billing"}}
    for name, spec in apps.items():
        said = f"r = client.reply('s', stream_id={name!r}); r.token('of {name}')"
        agent = make_agent(daemon, **spec)
        agent.do(said + "; r.drain(30, 'synced')")
        agent.kill()
        daemon.orphan(name)

    def adopt(*words: str, **env: str) -> tuple[bytes, bool]:
        command = [sys.executable, "-m", "walld", "session", "adopt", "s", *words]
        known = {name: value for name, value in environment().items() if name != "WALLD_APP"}
        told = fork_server.run([*command, "--socket", daemon.socket_path], known | env)
        assert told.returncode == 0, told.stderr
        return told.stdout, b"1 reply of other applications left" in told.stderr

    assert adopt(WALLD_APP="tests") == (b"adopted: 1 message\n", True)
    assert adopt("--app", "tests") == (b"adopted: 0 messages\n", True)
    session = daemon.reader.session("s")
    assert [one["content"] for one in session.messages()] == ["of tests"]
    assert session.adopt() == []
    assert adopt("--app", "*", WALLD_APP="tests") == (b"adopted: 1 message\n", False)
    assert [one["content"] for one in session.messages()] == ["of tests", "of billing"]
    agent = make_agent(daemon, app="billing")
    agent.do("r = client.reply('s', stream_id='more'); r.token('x'); r.drain(30, 'synced')")
    agent.kill()
    daemon.orphan("more")
    assert adopt() == (b"adopted: 1 message\n", False), "a command is no application by itself"


@pytest.mark.parametrize("result", ["", "r.tool_result('R', call_id='c');"])
@pytest.mark.parametrize("ended", ["turn.interrupted('user');", ""])
def test_what_was_undone_stays_so(
    daemon: DaemonProcess, agent: Obedient, result: str, ended: str
) -> None:
    """Killed behind the undo: its words came back without the message of their user."""
    agent.do(
        "session = client.session('s'); session.message('user', 'before');"
        " session.message('assistant', 'earlier answer')"
    )
    agent.do(OF_A_TURN)
    agent.do(f"""
    r.token('words'); r.tool('sh', {{'n': 1}}, call_id='c'); {result} r.token('then more')
    r.drain(30, 'synced'); {ended} session.undo(1); session.state()
    """)
    agent.kill()
    daemon.orphan("r")
    session = daemon.reader.session("s")
    until(lambda: session.state()["turns"][0]["state"] == "interrupted", "the turn's end")
    before = told(session)
    kept = [("user", "before"), ("assistant", "earlier answer")]
    assert [(one["role"], one["content"]) for one in before["openai"]] == kept
    assert session.adopt()
    assert told(session) == before
    for form in ("plain", "anthropic"):
        assert [one["role"] for one in session.messages(form)] == ["user", "assistant"]
    assert session.explain()["asked"][-1]["answer"] is None


READS_WHOLE = {
    "behind a sentence": "r.token('Step 1: back up. Step 2: stop it.')",
    "behind a call": "r.tool('look', {}, call_id='c'); r.tool_result('4', call_id='c');"
    " r.token('It is 4 degrees.')",
    "a step begun": "r.token('I look.'); r.step()",
    "a later step": "r.token('Step 1'); r.step(); r.token('Step 2 is done.')",
    "cancelled": "r.token('I stop here.'); r.cancel('closed')",
    "failed": "r.token('I stop here.'); r.error('overloaded')",
    "a table": "r.token('| a | b |\\n|---|---|\\n| 1 | 2 |\\n')",
}
ENDED = {
    "by its program": "r.token('It is 4 degrees'); r.end()",
    "by its provider": "r.token('It is 4 degrees.'); r.finish('stop')",
}


def standing(reader: Any) -> dict[str, Any]:
    """Whether there is anything to go on with, wherever it is asked."""
    session = reader.session("s")
    gate, told = session.resume_check(), session.explain()
    return {
        "boundary": gate["boundary"],
        "pending": [one["action"] for one in session.project("pending")],
        "state": told["state"],
        "resumed": [one["action"] for one in told["may"] if one["action"] == "resume"],
        "planned": [one.op for one in reader.repair_plan("s", present=["m"])],
    }


@pytest.mark.parametrize("said", READS_WHOLE.values(), ids=READS_WHOLE)
def test_a_cut_reply_is_no_answer_once_it_is_adopted(
    daemon: DaemonProcess, agent: Obedient, said: str
) -> None:
    """Its text, or its last step, reads as whole; that made it the answer."""
    agent.do(f"{OF_A_TURN}; {said}; r.drain(30, 'synced')")
    agent.kill()
    daemon.orphan("r")
    session = daemon.reader.session("s")
    before = standing(daemon.reader)
    assert (before["pending"], before["resumed"]) == (["answer_turn"], ["resume"])
    assert (before["state"], before["planned"]) == ("cut", ["mark_interrupted"])
    is_partial = daemon.reader.recover(stream_id="r").partial
    for command in (("explain", "s"), ("session", "show", "s"), ("recover", "s")):
        shown = daemon.cli(*command, "--socket", daemon.socket_path).stdout.decode()
        assert is_partial or "cut off, though its text reads as whole" in shown, command
        assert "  whole" not in shown
    kept = session.messages("openai")
    assert session.adopt()
    assert standing(daemon.reader) == before
    (asked,) = session.explain()["asked"]
    assert asked["answer_partial"]
    assert session.project("eval")["partial"]
    session.resume()
    assert session.messages("openai") == kept, "as if it had not been adopted"


@pytest.mark.parametrize("said", ENDED.values(), ids=ENDED)
def test_a_reply_that_ended_is_the_answer_before_and_behind(
    daemon: DaemonProcess, agent: Obedient, said: str
) -> None:
    agent.do(f"{OF_A_TURN}; {said}; r.drain(30, 'synced')")
    agent.kill()
    daemon.orphan("r") if "finish" in said else None
    session = daemon.reader.session("s")
    for _ in range(2):
        assert session.resume_check()["boundary"] == "answered"
        session.adopt()
