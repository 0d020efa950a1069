"""What goes in comes out: what a program says beside its steps, calls and branches is in the views,
and what names an entry is taken wherever its id is; against a real daemon, with either client.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import walld_client
from acceptance.sessions.test_api_sessions import contents
from daemon_process import DaemonProcess

INFO = {"model": "m-2", "node": {"name": "écrire", "depth": [1, None, 2.5]}, "empty": ""}


# --- what a step is told ---------------------------------------------------------------------


def test_what_steps_are_told_is_in_the_reply_and_in_its_messages(reader: Any) -> None:
    with reader.reply("s", auto_release=False) as reply:
        reply.token("one")
        assert reply.step(**INFO) == 2
        reply.token("two")
        reply.step()
        reply.token("three")
        reply.step(n=3)
        reply.drain()
        found = reader.recover("s")
        told = [(one.attempt, one.step, one.seq, one.info) for one in found.steps]
        assert told == [(0, 1, 2, INFO), (0, 2, 4, None), (0, 3, 6, {"n": 3})]
        told = [(one["content"], one.get("_wal_info")) for one in found.messages()]
        assert told == [("one", None), ("two", INFO), ("three", None)]
        assert [one["info"] for one in found.to_dict()["steps"]] == [INFO, None, {"n": 3}]
        assert all("_wal_info" not in one for one in found.messages("openai"))


def test_what_a_step_is_told_stays_with_it_when_it_is_done_again(reader: Any) -> None:
    with reader.reply("s", auto_release=False) as reply:
        reply.step(of="first")
        reply.token("first")
        reply.step(of="second")
        reply.token("half of the sec")
        reply.retry("cut", step=True)
        reply.token("second")
        reply.drain()
        found = reader.recover("s")
        told = [(one["content"], one["_wal_info"]) for one in found.messages()]
        assert told == [("first", {"of": "first"}), ("second", {"of": "second"})]
        reply.retry("all of it")
        reply.token("anew")
        reply.step(of="another")
        reply.token("more")
        reply.drain()
        found = reader.recover("s")
        told = [(one["content"], one.get("_wal_info")) for one in found.messages()]
        assert told == [("anew", None), ("more", {"of": "another"})]
        assert {one.attempt for one in found.steps if one.info == {"of": "first"}} == {1}


def test_what_a_step_is_told_is_in_a_turn_before_and_after_its_release(
    daemon: DaemonProcess, reader: Any
) -> None:
    session = reader.session("s")
    turn = session.submit("q")
    reply = turn.reply()
    reply.token("a")
    reply.step(**INFO)
    reply.token("b")
    reply.drain()
    for is_released in (False, True):
        if is_released:
            reply.end()
            turn.completed()
        told = [(one["content"], one.get("_wal_info")) for one in session.messages()]
        assert told == [("q", None), ("a", None), ("b", INFO)]
    daemon.restart()
    assert session.messages()[-1]["_wal_info"] == INFO
    assert session.messages("openai")[-1] == {"role": "assistant", "content": "a\n\nb"}


# --- why a reply begins anew -----------------------------------------------------------------


def test_why_a_reply_began_anew_is_told(reader: Any) -> None:
    with reader.reply("s", auto_release=False) as reply:
        reply.token("Hel")
        reply.retry("overloaded_error: 529")
        reply.token("Hello")
        reply.step()
        reply.token("wor")
        reply.retry("reset \ud83d", step=True)
        reply.retry()
        reply.token("Hello")
        reply.drain()
        found = reader.recover("s")
        told = [(one.attempt, one.seq, one.reason, one.step) for one in found.retries]
        assert told[0] == (1, 2, "overloaded_error: 529", False)
        assert [one[:2] + one[3:] for one in told[1:]] == [(2, 6, True), (3, 7, False)]
        assert told[1][2].startswith("reset")
        assert told[2][2] is None
        assert found.attempts == 4
        json.dumps(found.to_dict())
        assert found.to_dict()["retries"][0]["reason"] == "overloaded_error: 529"


# --- a call and its result -------------------------------------------------------------------


def test_a_call_and_its_result_are_each_told_what_was_said_beside_them(reader: Any) -> None:
    with reader.reply("s", auto_release=False) as reply:
        reply.tool("both", {}, call_id="c1", side_effect="read", at="call")
        reply.tool_result("r", call_id="c1", took_ms=7, at="result")
        reply.tool("call alone", {}, call_id="c2", at="call")
        reply.tool_result("r", call_id="c2")
        reply.tool("result alone", {}, call_id="c3")
        reply.tool_result("r", call_id="c3", at="result")
        reply.tool_result("r", call_id="c1", at="later")
        reply.tool("open", {}, call_id="c4", at="call")
        reply.tool_result("r", call_id="nobody", at="orphan")
        reply.drain()
        segments = reader.recover("s").segments
    told = [(one.call_id, one.info, one.result_info) for one in segments]
    assert told == [
        ("c1", {"side_effect": "read", "at": "call"}, {"at": "later"}),
        ("c2", {"at": "call"}, None),
        ("c3", {"at": "result"}, {"at": "result"}),
        ("c4", {"at": "call"}, None),
        ("nobody", {"at": "orphan"}, None),
    ]
    assert segments[0].to_dict()["result_info"] == {"at": "later"}


# --- branches by their names -----------------------------------------------------------------


def test_a_branch_is_found_by_its_name(daemon: DaemonProcess, reader: Any) -> None:
    session = reader.session("s")
    first = session.message("user", "m0")
    session.message("assistant", "main")
    session.branch(first, name="try one")
    session.message("assistant", "one")
    session.branch(first, name="try two")
    session.message("assistant", "two")
    session.message("user", "two more")
    for _ in range(2):
        assert contents(session, branch="try one") == ["m0", "one"]
        assert contents(session, branch="try two") == ["m0", "two", "two more"]
        assert contents(session, branch="try two", last=2)[-1] == "two more"
        daemon.restart()
    assert session.events(branch="try one")[-1]["payload"]["content"] == "one"
    assert contents(session.fork("try one", "forked")) == ["m0", "one"]
    names = session.project("tree")["branches"]
    assert names["try one"]["at"] == first.id
    session.branch("try one")
    session.message("user", "one more")
    assert contents(session) == contents(session, branch="try one") == ["m0", "one", "one more"]
    assert contents(session, branch="try two") == ["m0", "two", "two more"]
    with pytest.raises(walld_client.Refused, match="try three"):
        session.branch("try three")
    with pytest.raises(walld_client.Refused, match="try three"):
        session.messages(branch="try three")


def test_a_name_that_is_an_entrys_id_is_that_entry(reader: Any) -> None:
    session = reader.session("s")
    session.message("user", "m0", id="a")
    session.message("user", "m1", id="b")
    session.branch("a", name="b")
    session.message("user", "on b")
    assert contents(session, branch="b") == ["m0", "m1"]
    session.branch("a", name="empty one")
    assert contents(session, branch="empty one") == ["m0"]
    session.branch(None, name="from the beginning")
    assert contents(session, branch="from the beginning") == []
    session.message("user", "anew")
    assert contents(session, branch="from the beginning") == ["anew"]
    session.branch("a", name="empty one")
    session.message("user", "named again")
    assert contents(session, branch="empty one") == ["m0", "named again"]


# --- calls in plain messages -----------------------------------------------------------------


def test_calls_have_one_shape_whoever_spoke_of_them(reader: Any) -> None:
    session = reader.session("s")
    arguments = {"city": "Oslo", "n": [1, None]}
    text = json.dumps(arguments)
    function = {"name": "weather", "arguments": text}
    openai = {"id": "c1", "type": "function", "function": function}
    session.message("assistant", "", tool_calls=[openai])
    session.message("tool", "r", tool_call_id="c1")
    own = {"id": "c2", "name": "weather", "arguments": arguments, "mine": True}
    session.message("assistant", "", tool_calls=[own])
    block = {"type": "tool_use", "id": "c3", "name": "weather", "input": arguments}
    session.message("assistant", [], tool_calls=[block])
    turn = session.submit("q")
    turn.intent("weather", arguments, side_effect="read", resume_policy="never-rerun", call_id="c4")
    reply = turn.reply()
    reply.tool("weather", arguments, call_id="c5")
    reply.drain()
    for is_released in (False, True):
        if is_released:
            reply.end()
            turn.completed()
        calls = [one for said in session.messages() for one in said.get("tool_calls", ())]
        by_id = {one["id"]: one for one in calls}
        assert sorted(by_id) == ["c1", "c2", "c3", "c4", "c5"]
        for one in calls:
            assert one["name"] == "weather"
            assert isinstance(one["arguments"], str), one["id"]
            assert json.loads(one["arguments"]) == arguments
            assert one["arguments_complete"] is True
            assert isinstance(one["outcome"], str)
        assert by_id["c1"]["function"] == function
        assert by_id["c2"]["mine"] is True
    listed = session.messages()
    session.edit([one for one in listed if one.get("tool_calls")][:1])
    ((one,),) = [said["tool_calls"] for said in session.messages()]
    assert json.loads(one["arguments"]) == arguments


def test_long_and_cut_arguments_have_the_same_shape(reader: Any) -> None:
    session = reader.session("s")
    long = {"text": "x" * 300_000}
    turn = session.submit("q")
    turn.intent("write", long, side_effect="read", resume_policy="never-rerun", call_id="c1")
    session.message("assistant", "", tool_calls=[{"id": "c2", "name": "write", "arguments": long}])
    reply = turn.reply()
    reply.tool("write", None, call_id="c3")
    reply.tool_arguments('{"text": "x', call_id="c3")
    reply.tool("write", None, call_id="c4")
    reply.drain()
    by_id = {one["id"]: one for said in session.messages() for one in said.get("tool_calls", ())}
    assert [json.loads(by_id[one]["arguments"]) for one in ("c1", "c2")] == [long, long]
    assert by_id["c3"]["arguments"] == '{"text": "x'
    assert by_id["c3"]["arguments_complete"] is False
    assert by_id["c4"]["arguments"] is None


# --- edits -----------------------------------------------------------------------------------


def test_an_edit_of_the_content_keeps_the_role(reader: Any) -> None:
    session = reader.session("s")
    first = session.message("system", "be good")
    session.submit("q", message_id="m-1")
    session.message("developer", "d", id="d")
    session.message("assistant", "an")
    session.edit(first, "be better")
    session.edit("m-1", "another q")
    session.edit("d", content=[{"type": "text", "text": "dd"}])
    session.edit(session.events()[-4]["id"], {"content": "answer", "mine": 1})
    told = [(one["role"], one["content"]) for one in session.messages()]
    assert told == [
        ("system", "be better"),
        ("user", "another q"),
        ("developer", [{"type": "text", "text": "dd"}]),
        ("assistant", "answer"),
    ]
    session.edit("d", "once more")
    session.edit(first, role="user", content="said so")
    told = [one["role"] for one in session.messages()]
    assert told == ["user", "user", "developer", "assistant"]
    session.edit([{"role": "assistant", "content": "x", "_message_id": "in the list"}])
    session.edit("in the list", "y")
    assert [(one["role"], one["content"]) for one in session.messages()] == [("assistant", "y")]
    with pytest.raises(walld_client.Refused, match="unknown_target"):
        session.edit("nobody", "z")
    with pytest.raises(TypeError):
        session.edit(first)


# --- an entry where its id is ----------------------------------------------------------------


def test_an_entry_is_taken_wherever_an_id_is(reader: Any) -> None:
    session = reader.session("s")
    first = session.message("user", "m0")
    second = session.message("user", "m1")
    session.label(second, "here")
    session.append("note", {}, cause=first, correlation=second, parent=second)
    session.append_many([{"type": "note", "parent": second, "cause": first}])
    assert contents(session, branch=first) == ["m0"]
    assert session.events(branch=first)[-1]["id"] == first.id
    assert contents(session.fork(first, "forked")) == ["m0"]
    session.compact("sum", second)
    assert contents(session) == ["sum", "m1"]
    session.branch(second)
    session.edit(second, "M1")
    assert contents(session) == ["m0", "M1"]
    turn = session.submit("q")
    call = turn.intent("look", {}, side_effect="none", resume_policy="never-rerun")
    turn.tool_started(call)
    turn.tool_finished(call, "r")
    turn.observation(call, "r")
    other = turn.intent("look", {"n": 1}, side_effect="none", resume_policy="never-rerun")
    turn.decision(other, "allow")
    turn.approval(other, "granted")
    session.settle(other, "did_not_run")
    retry = session.submit("q", retry_of=turn.turn_id)
    again = retry.intent(
        "look", {"n": 2}, side_effect="none", resume_policy="never-rerun", supersedes=other
    )
    with retry.reply(parent=second) as reply:
        reply.tool("look", {}, call_id=again)
        reply.tool_result("r", call_id=again)
        reply.end()
    events = session.events()
    labelled = next(one for one in events if one["type"] == "label")
    assert labelled["payload"]["target"] == second.id
    noted = [one for one in events if one["type"] == "note"]
    assert [(one["parent"], one["cause"]) for one in noted] == [(second.id, first.id)] * 2
    begun = next(one for one in events if one["type"] == "tool_started")
    assert begun["payload"]["call_id"] == call.id
    # The name of a session is no id of an entry.
    for wrong in (lambda: reader.session(first), lambda: session.fork(first, second)):
        with pytest.raises((TypeError, ValueError)):
            wrong()
