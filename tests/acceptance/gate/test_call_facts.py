"""What a program says of a call beyond its result: outcome, exit code, its own fields, causes."""

from __future__ import annotations

from typing import Any

import pytest
import walld_client
from daemon_process import DaemonProcess
from walld_client.reply.reply import open_calls_of

EDIT = {"side_effect": "workspace-write", "resume_policy": "rerun-after-check"}


@pytest.fixture
def session(daemon: DaemonProcess) -> Any:
    return daemon.reader.session("s")


def call(session: Any, call_id: str) -> dict[str, Any]:
    found = [
        one
        for message in session.messages()
        for one in message.get("tool_calls", ())
        if one["id"] == call_id
    ]
    return dict(found[-1])


@pytest.mark.parametrize("outcome", ["done", "failed", "timeout", "cancelled"])
def test_an_outcome_is_told_by_everybody(daemon: DaemonProcess, session: Any, outcome: str) -> None:
    turn = session.submit("edit it")
    turn.intent("edit", {"path": "a"}, call_id="c", **EDIT, cwd="/src")
    turn.decision("c", "allow", rule=7)
    turn.approval("c", "granted", asked_in="chat")
    turn.tool_started("c", host="h1")
    turn.tool_finished("c", "said so", outcome=outcome, exit_code=-9, stdout="some")
    turn.observation("c", "seen", tokens=3)
    turn.completed(cost=1.5)
    told = {one["type"]: one["payload"] for one in session.events()}
    assert told["tool_intent"]["cwd"] == "/src"
    assert told["tool_decision"]["rule"] == 7
    assert told["tool_approval"]["asked_in"] == "chat"
    assert told["tool_started"]["host"] == "h1"
    finished = told["tool_finished"]
    assert (finished["outcome"], finished["exit_code"], finished["stdout"]) == (outcome, -9, "some")
    assert finished.get("failed", False) is (outcome != "done"), "for readers that know no outcome"
    assert told["observation"]["tokens"] == 3
    assert told["turn_completed"]["cost"] == 1.5
    assert call(session, "c")["outcome"] == outcome
    shown = daemon.cli("session", "show", "s", "--socket", daemon.socket_path).stdout.decode()
    assert outcome in shown


def test_what_takes_the_place_of_an_open_call_may_be_named(session: Any) -> None:
    """Arguments of a retry are seldom the same: without the name the old call stays open."""
    first = session.submit("edit it", message_id="m")
    first.intent("edit", {"path": "a", "text": "x"}, call_id="c1", **EDIT)
    first.tool_started("c1")
    first.interrupted("the program says")
    retry = session.submit("edit it", retry_of=first.turn_id)
    retry.intent("edit", {"path": "a", "text": "y"}, call_id="k1", **EDIT)
    retry.tool_started("k1")
    retry.tool_finished("k1", "ok")
    assert session.resume_check()["status"] == "blocked", "c1 may have run, and is another call"
    retry.intent("edit", {"path": "a", "text": "z"}, call_id="k2", **EDIT, supersedes="c1")
    retry.tool_started("k2")
    retry.tool_finished("k2", "ok")
    assert session.resume_check()["status"] == "ok"
    assert call(session, "c1")["superseded_by"] == "k2"


def test_an_intent_is_of_the_call_that_its_program_streamed(session: Any) -> None:
    """Two replies of a turn say one id with the same arguments; the first never ran it."""
    turn = session.submit("edit it")
    seqs = []
    for _ in range(2):
        reply = turn.reply()
        reply.token("now ")
        seqs.append((reply.stream_id, reply.tool("edit", {"path": "a"}, call_id="call_1")))
        reply.end()
    turn.intent("edit", {"path": "a"}, call_id="call_1", **EDIT)
    turn.tool_started("call_1")
    turn.tool_finished("call_1", "ok")
    (intent,) = session.find("tool_intent")
    place = "{}:{}".format(*seqs[1])
    assert (intent["payload"]["said"], intent["cause"]) == (place, place)
    said = [one for m in session.messages() for one in m.get("tool_calls", ())]
    assert [one["outcome"] for one in said] == ["unknown", "done"]


@pytest.mark.parametrize(
    "script",
    [
        "call c; call c",
        "call c; step; call c",
        "call c; result c; call c",
        "call c; result c; step; call c",
        "call c; result c; step; call c; result c; step; call c",
        "call c; retry; call c",
        "call c; step; call d; retry step; call d; call c",
        "call c; result c; step; call d; retry step; call c",
        "call d; step; call c; result c; retry; call c; step; call c",
    ],
)
def test_a_call_began_where_its_reader_says_that_it_did(daemon: DaemonProcess, script: str) -> None:
    reply = daemon.reader.reply("s")
    for word in script.split("; "):
        match word.split():
            case ["call", call_id]:
                reply.tool("edit", {}, call_id=call_id)
            case ["result", call_id]:
                reply.tool_result("ok", call_id=call_id)
            case ["step"]:
                reply.step()
            case ["retry", *of_step]:
                reply.retry("again", step=bool(of_step))
    assert reply.drain(20)
    found = daemon.reader.recover(stream_id=reply.stream_id)
    began = {one.call_id: one.first_seq for one in found.segments if one.kind == "tool"}
    for call_id in began:
        last = [one for one in found.segments if one.call_id == call_id][-1]
        known = open_calls_of(reply).begun_at(call_id)
        is_over = last.attempt < found.attempts - 1
        assert known == (None if is_over else last.first_seq), (call_id, known)


def test_a_cause_that_is_nothing_is_refused(session: Any) -> None:
    first = session.append("app.a", {})
    assert session.append("app.b", {}, cause=first.id).seq == 2
    assert session.append("app.b", {}, cause="0123:7").seq == 3, "a place in a reply"
    for cause in ("nope", ":7", "a:b"):
        with pytest.raises(walld_client.Refused) as refused:
            session.append("app.c", {}, cause=cause)
        assert (refused.value.code, refused.value.got) == ("unknown_cause", cause)
    later = {"type": "app.d", "id": "d"}
    placed = session.append_many([later, {"type": "app.e", "cause": "d"}])
    assert [one.seq for one in placed] == [4, 5]


def test_what_is_not_the_applications_to_give(session: Any) -> None:
    turn = session.submit("edit it")
    with pytest.raises(TypeError, match="said of tool_intent is not the application's to give"):
        turn.intent("edit", {}, call_id="c", **EDIT, said="x:1")
    with pytest.raises(ValueError, match="outcome must be one of done, failed, timeout, cancelled"):
        turn.tool_finished("c", outcome="great")
    with pytest.raises(ValueError, match="contradict"):
        turn.tool_finished("c", failed=True, outcome="done")


def test_a_call_that_is_said_in_both_forms_is_one(daemon: DaemonProcess, session: Any) -> None:
    """Some programs keep a provider's block and the item of `tool_calls`."""
    session.message("user", "deploy")
    block = {"type": "tool_use", "id": "t1", "name": "deploy", "input": {"a": 1}}
    item = {"id": "t1", "name": "deploy", "arguments": {"a": 1}}
    session.message("assistant", [{"type": "text", "text": "ok"}, block], tool_calls=[item])
    session.message("tool", "deployed", tool_call_id="t1")
    assert session.resume_check()["status"] == "ok"
    said = session.messages("openai")
    assert [len(one.get("tool_calls", ())) for one in said] == [0, 1, 0]
    assert said[2]["content"] == "deployed"
    told = session.messages("anthropic")
    assert [one["type"] for one in told[1]["content"]] == ["text", "tool_use"]
    plain = session.messages()[1]
    assert [plain["content"][1]["outcome"], plain["tool_calls"][0]["outcome"]] == ["done", "done"]


@pytest.mark.parametrize("outcome", ["timeout", "cancelled"])
def test_a_call_that_was_cut_off_without_a_word_is_told_so(session: Any, outcome: str) -> None:
    turn = session.submit("edit it")
    turn.intent("edit", {"path": "a"}, call_id="c", **EDIT)
    turn.tool_started("c")
    turn.tool_finished("c", outcome=outcome)
    assert call(session, "c")["synthetic"] == outcome
    (told,) = [one for one in session.messages("openai") if one["role"] == "tool"]
    assert told["content"].startswith(f"This call was cut off ({outcome})")
    (block,) = session.messages("anthropic")[-1]["content"]
    assert (block["type"], block["is_error"]) == ("tool_result", True)


@pytest.mark.parametrize("word", ["did_not_run", "denied", "granted"])
def test_the_newest_word_of_a_person_is_what_the_model_is_told(session: Any, word: str) -> None:
    turn = session.submit("edit it")
    turn.intent("edit", {"path": "a"}, call_id="c", **EDIT)
    turn.tool_started("c")
    turn.interrupted("the program says")
    session.settle("c", "ran", result="ok")
    assert session.messages("openai")[-1]["content"] == "ok"
    session.settle("c", word)
    told = session.messages("openai")[-1]
    assert (told["role"], told["content"] != "ok") == ("tool", True)
