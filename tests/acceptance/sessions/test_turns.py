"""Turns and the processes that advance them: interrupted by the kernel's word alone (N5)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from agents.process import MakeAgent, Obedient
from colours import connect
from daemon_process import DaemonProcess, until
from walld_client import Refused
from walld_client.wire import messages as wire
from wire_peer import Peer

SUBMIT = """
session = client.session("s")
turn = session.submit("hello", message_id="m")
turn.worker_started()
turn.turn_id
"""


def state_of(daemon: DaemonProcess, turn_id: str) -> tuple[str, str | None]:
    state = daemon.reader.session("s").state()
    assert state is not None
    (turn,) = [one for one in state["turns"] if one["turn_id"] == turn_id]
    return turn["state"], turn.get("reason")


def test_a_killed_process_interrupts_its_turn_at_once(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    turn_id = agent.do(SUBMIT)
    agent.kill()
    until(lambda: state_of(daemon, turn_id) == ("interrupted", "agent_lost"), "an interruption")


def test_who_asks_is_told_of_an_end_that_has_been(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """No answer is older than the question: also for a session nobody has opened since a start."""
    for _ in range(5):
        agent = make_agent(daemon)
        turn_id = agent.do(SUBMIT.replace('"m"', repr(f"m{agent.pid}")))
        agent.kill()
        assert state_of(daemon, turn_id) == ("interrupted", "agent_lost")
    agent = make_agent(daemon)
    turn_id = agent.do(SUBMIT.replace('"m"', '"last"'))
    agent.do('for at in range(200): client.session(f"k{at}").submit("x")')
    daemon.kill()
    agent.kill()
    daemon.start()
    assert state_of(daemon, turn_id) == ("interrupted", "agent_lost")


@pytest.mark.parametrize("restarted", [False, True])
def test_a_silent_process_keeps_its_turn(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], restarted: bool
) -> None:
    agent = make_agent(daemon)
    turn_id = agent.do(SUBMIT)
    if restarted:
        daemon.restart()
    time.sleep(3)
    assert state_of(daemon, turn_id) == ("worker_started", None)
    agent.do("turn.completed()")
    assert state_of(daemon, turn_id) == ("completed", None)


@pytest.mark.parametrize("orderly", [False, True])
def test_a_process_killed_while_no_daemon_runs(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], orderly: bool
) -> None:
    agent = make_agent(daemon)
    turn_id = agent.do(SUBMIT)
    if orderly:
        assert daemon.terminate() == 0
    else:
        daemon.kill()
    agent.kill()
    daemon.start()
    until(lambda: state_of(daemon, turn_id) == ("interrupted", "agent_lost"), "an interruption")


def test_who_advances_a_turn_owns_it(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    first, second = make_agent(daemon), make_agent(daemon)
    turn_id = first.do(SUBMIT.replace("turn.worker_started()", ""))
    second.do(f'turn = client.session("s").turn({turn_id!r})\nturn.worker_started()')
    first.kill()
    time.sleep(1)
    assert state_of(daemon, turn_id) == ("worker_started", None)
    second.kill()
    until(lambda: state_of(daemon, turn_id) == ("interrupted", "agent_lost"), "an interruption")


def test_the_end_of_a_turns_reply_appends_its_messages(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    turn = session.submit("what is it?", message_id="m")
    turn.worker_started()
    with turn.reply() as reply:
        reply.reasoning("hm")
        reply.token("it is ")
        reply.tool("look", {"at": 1}, call_id="c")
        reply.tool_result("seen", call_id="c")
        reply.step()
        reply.token("this")
        reply.end()
    turn.completed()

    def told() -> list[str]:
        return [one["content"] for one in session.messages() or []]

    assert told() == ["what is it?", "it is ", "this"], "what is asked for is behind what was said"
    assert [one["type"] for one in session.events()][-1] == "turn_completed"
    assert daemon.reader.recover("s") is None, "what is in the session is no reply beside it"
    messages = session.messages() or []
    assert messages[1]["_wal_stream"] == reply.stream_id
    assert messages[1]["_wal_seq"] < messages[2]["_wal_seq"]
    until(lambda: daemon.reader.recover("s") is None, "the reply's end")
    daemon.restart()
    until(lambda: told() == ["what is it?", "it is ", "this"], "the messages again")
    assert daemon.reader.recover("s") is None


def test_leaving_a_turns_reply_without_an_end_appends_nothing(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    turn = session.submit("what is it?")
    with turn.reply() as reply:
        reply.token("it is")
    assert [one["type"] for one in session.events() or []][-1] == "turn_assistant_started"
    _, said = session.messages() or []
    assert (said["content"], said["_wal_recovered"]) == ("it is", True), "in the list, no entry"
    kept = daemon.reader.recover("s")
    assert kept is not None
    assert (kept.text, kept.status, kept.turn_id) == ("it is", "complete", turn.turn_id)


@pytest.mark.parametrize("power", ["daemon", "both"])
def test_killed_at_the_end_of_a_reply_its_text_is_somewhere(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], power: str
) -> None:
    """In the session or still a reply, never neither, and once where it is asked by its stamps."""
    agent = make_agent(daemon)
    agent.do(SUBMIT)
    for at in range(10):
        source = f"""
        with turn.reply(stream_id="r{at}") as reply:
            reply.token("answer {at}")
            reply.end()
            assert reply.drain(10, level="synced")
        reply.stream_id
        """
        stream_id = agent.do(source)
        daemon.kill()
        if power == "both":
            agent.kill()
        daemon.start()
        left = daemon.reader.recover(stream_id=stream_id)  # first: what goes there is here then
        found = [
            one["content"]
            for one in daemon.reader.session("s").messages() or []
            if one.get("_wal_stream") == stream_id
        ]
        assert found == [f"answer {at}"] or (left is not None and left.text == f"answer {at}")
        assert len(found) <= 1
        if power == "both":
            agent = make_agent(daemon)
            agent.do(SUBMIT.replace('message_id="m"', f'message_id="m{at}"'))


def test_a_message_says_that_some_of_its_reply_never_came(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    turn = session.submit("what is it?")
    with Peer(daemon, "agent") as agent:  # type: ignore[arg-type]
        agent.send(wire.Start(1, 0, "r", "s", turn.turn_id), wire.Token(1, 1, b"it "))
        agent.send(wire.Token(1, 3, b"this"), wire.End(1, 4, clean=True), wire.Release(1, 5))
        agent.drain(1, "synced")
    message = (session.messages() or [])[-1]
    assert (message["content"], message["_partial"]) == ("it this", True)
    assert message["_partial_reason"] == "gap"


def test_a_turn_is_looked_up_in_a_long_session_without_reading_it(daemon: DaemonProcess) -> None:
    """By its id and by its stream, before and after a restart; a view would fold 3,000 events."""
    session = daemon.reader.session("s")
    turn = session.submit("first", message_id="m1", stream_id="r1")
    turn.completed()
    for start in range(0, 3000, 100):
        session.append_many([{"type": "note", "payload": {"n": start + n}} for n in range(100)])
    for _ in range(2):
        assert session.turn(turn.turn_id).state == "completed"
        assert session.turn(stream_id="r1").turn_id == turn.turn_id
        assert session.project("turn", turn_id="nobody") is None
        (told,) = (session.state() or {})["turns"]
        assert session.project("turn", turn_id=turn.turn_id) == told
        assert session.submit("first", message_id="m1").turn_id == turn.turn_id
        daemon.restart()
    assert daemon.reader.session("never").project("turn", turn_id="t") is None
    with pytest.raises(Refused, match="turn"):
        session.project("turn", seq=3)


def test_a_turns_reply_of_many_steps_and_one_whose_session_goes(daemon: DaemonProcess) -> None:
    """More lines than a batch holds; and a delete right behind a release."""
    session = daemon.reader.session("s")
    turn = session.submit("count", message_id="m")
    turn.worker_started()
    with turn.reply() as reply:
        for number in range(900):
            reply.token(str(number))
            reply.step()
        reply.token("end")
        reply.end()
    turn.completed()
    told = [one["content"] for one in session.messages() or []]
    assert told == ["count", *map(str, range(900)), "end"]
    until(lambda: daemon.status()["streams_live"] == 0, "the reply's end")
    other = daemon.reader.session("other")
    with other.submit("q", message_id="m").reply() as reply:
        reply.token("a")
        reply.end()
    assert daemon.reader.delete("other") is True
    daemon.restart()
    assert daemon.reader.recover("other") is None
    assert len(session.messages() or []) == 902


def test_what_was_released_is_in_its_session_for_whoever_asks_next(daemon: DaemonProcess) -> None:
    """Not once as a reply and once as a message; also where a deleted session's reply comes again,
    out of the memory of an agent whom a daemon that was killed had not told of its end.
    """
    for number in range(20):
        session = daemon.reader.session(f"s{number}")
        with session.submit("q", message_id="m").reply() as reply:
            reply.token("a")
            reply.end()
        if number % 2:
            assert daemon.reader.recover(session.session_id) is None
            assert not daemon.reader.has_partial(session.session_id)
        else:
            assert [one.session_id for one in daemon.reader.recover_all()] == []
        assert [one["content"] for one in session.messages() or []] == ["q", "a"]
    for number in range(5):
        assert daemon.reader.delete(f"s{number}") is True
    daemon.restart()
    assert daemon.reader.recover("s4") is None


@pytest.mark.parametrize("colour", ["sync", "aio"])
def test_what_is_posted_behind_a_release_stands_behind_its_messages(
    daemon: DaemonProcess, colour: str
) -> None:
    """Each comes on a connection of its own; what is said next is not to be read before it."""
    client = connect(colour, daemon.socket_path)
    session = client.session("S")
    turn = session.submit("q")
    for number in range(100):
        reply = turn.reply()
        reply.token(f"answer {number}")
        reply.end()
        session.message("user", f"next {number}", wait=False)
    told = [f"{what} {number}" for number in range(100) for what in ("answer", "next")]
    assert [one["content"] for one in session.messages()] == ["q", *told]
    client.let_go()


def test_what_is_posted_behind_a_release_that_the_kernel_never_got_is_appended(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    """Its process dies with the rest of the reply, and nobody waits for that."""
    agent = make_agent(daemon)
    agent.do("session = client.session('S'); turn = session.submit('q'); reply = turn.reply()")
    agent.do("session.append('a', {}, wait=False)")
    assert len(daemon.reader.session("S").find("a")) == 1
    daemon.freeze()
    behind = """
    while reply.token("x" * 10_000) == reply.sent_seq:
        pass
    reply.end()
    session.append("a", {}, wait=False)
    reply.stream_id, reply.sent_seq
    """
    stream_id, sent_seq = agent.do(behind)
    agent.kill()
    daemon.thaw()
    assert daemon.orphan(stream_id).last_seq == sent_seq
    assert len(daemon.reader.session("S").find("a")) == 2


def test_what_a_process_posted_behind_its_last_release_outlives_it(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    """Its reply is in the session, and it itself forgotten, long before the last entry is."""
    agent = make_agent(daemon)
    agent.do("session = client.session('S'); turn = session.submit('q'); reply = turn.reply()")
    agent.do("session.append('a', {}, wait=False); session.state() and None")
    behind = """
    import os
    reply.token("a")
    reply.end()
    for number in range(1500):
        session.append("a", {}, wait=False)
    os._exit(0)
    """
    agent.begin(behind)
    agent.process.wait()
    session = daemon.reader.session("S")
    until(lambda: len(session.find("a")) == 1501, "all of them")
    assert [one["content"] for one in session.messages() or []] == ["q", "a"]


def test_a_long_answer_and_a_long_result_come_back_as_they_were_said(daemon: DaemonProcess) -> None:
    """What is too long for an entry is put beside the session, field by field."""
    session = daemon.reader.session("s")
    text, result = "0123456789" * 30_000, "L" * 300_000
    with session.submit("q", message_id="m").reply() as reply:
        reply.token(text)
        reply.end()
    with session.submit("read it", message_id="m2").reply() as reply:
        reply.token("I read the file.")
        reply.tool("read", {"path": "a"}, call_id="c1")
        reply.tool_result(result, call_id="c1")
        reply.end()
    told = session.messages() or []
    assert [one["content"] for one in told] == ["q", text, "read it", "I read the file."]
    assert "tool_calls" not in told[1]
    (call,) = told[3]["tool_calls"]
    assert (call["arguments"], call["result"], call["outcome"]) == ('{"path":"a"}', result, "done")
    sent = session.messages("openai") or []
    assert [one["role"] for one in sent] == ["user", "assistant", "user", "assistant", "tool"]
    assert sent[3]["tool_calls"][0]["function"]["name"] == "read"
    assert sent[4]["content"].startswith("LLL")


def test_an_answer_that_no_artifact_holds_stays_a_reply(daemon: DaemonProcess) -> None:
    """And ends no daemon, neither this one nor the next."""
    session = daemon.reader.session("s")
    piece = "x" * 1_000_000
    with session.submit("q", message_id="m").reply(stream_id="long") as reply:
        for _ in range(70):
            reply.token(piece)
            assert reply.drain(60)
        reply.end()
    for _ in range(2):
        found = daemon.reader.recover(stream_id="long")
        assert found is not None
        assert (found.status, len(found.text)) == ("complete", 70_000_000)
        assert [len(one["content"]) for one in session.messages() or []] == [1, 70_000_000]
        daemon.restart()


def test_a_reply_that_was_moved_answers_its_turn(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    reply = session.submit("q", message_id="m").reply(stream_id="r")
    reply.token("the whole answer")
    reply.move("s2")
    reply.end()
    assert [one["content"] for one in session.messages() or []] == ["q", "the whole answer"]
    assert daemon.reader.recover_all() == []
    assert daemon.reader.session("s2").messages() is None


def test_an_answer_stands_below_its_turn(daemon: DaemonProcess) -> None:
    """Also where the session has gone on from elsewhere, or where the reply says on what it is."""
    session = daemon.reader.session("s")
    first = session.submit("q1", message_id="m1")
    reply = first.reply()
    reply.token("a1")
    session.branch(None)
    session.submit("q2", message_id="m2")
    reply.end()
    assert [one["content"] for one in session.messages() or []] == ["q2"]
    (answer,) = [one for one in session.events() or [] if one["payload"].get("content") == "a1"]
    session.branch(answer["id"])
    assert [one["content"] for one in session.messages() or []] == ["q1", "a1"]
    noted = session.append("note", {"n": 1})
    session.append("note", {"n": 2})
    again = session.submit("q1", retry_of=first.turn_id)
    with again.reply(parent=noted.id) as other:
        other.token("a3")
        other.end()
    (answer,) = [one for one in session.events() or [] if one["payload"].get("content") == "a3"]
    assert answer["parent"] == noted.id


def test_a_retry_is_of_the_same_message_or_is_refused(daemon: DaemonProcess) -> None:
    """Another one would be taken as durable and then be in no view: neither message nor repair."""
    session = daemon.reader.session("s")
    first = session.submit("the words", message_id="m", attachments=[b"a file"])
    first.interrupted("user")
    before = session.events()
    with pytest.raises(Refused, match='got "other words", limit "the words", content'):
        session.submit("other words", retry_of=first.turn_id)
    with pytest.raises(Refused, match='got "other", limit "m", message_id of turn'):
        session.submit("the words", message_id="other", retry_of=first.turn_id)
    with pytest.raises(Refused, match="attachments of turn"):
        session.submit("the words", attachments=[b"another"], retry_of=first.turn_id)
    for one in ({"content": "other words"}, {"content": "the words", "message_id": "other"}):
        with pytest.raises(Refused, match="message_id_taken"):  # whoever sends it
            session.append("turn_submitted", one | {"retry_of": first.turn_id}, turn="t", id="t")
    assert session.events() == before
    again = session.submit("the words", retry_of=first.turn_id)
    assert again.message_id == "m"
    named = [event["payload"].get("attachments") for event in session.events()]
    assert named[0]
    assert named[0] == named[-1], "those of the turn, where none are given"
    assert session.submit("the words", message_id="m", retry_of=again.turn_id).message_id == "m"
    assert [one["content"] for one in session.messages() or []] == ["the words"]


def test_a_fork_names_as_many_calls_as_started_behind_it(daemon: DaemonProcess) -> None:
    """300 ids of a kilobyte are no list that one entry holds."""
    session = daemon.reader.session("s")
    turn = session.submit("many", message_id="m")
    for number in range(300):
        payload = {"call_id": f"c{number}", "tool": "x", "side_effect": "read",
                   "resume_policy": "never-rerun"}  # fmt: skip
        session.append("tool_intent", payload, id=f"{number:04}" + "i" * 1000, turn=turn.turn_id)
    at = session.message("user", "here")
    for number in range(300):
        turn.tool_started(f"c{number}")
    fork = session.fork(at.id, "fork")
    assert fork.state()["forked_from"]["session"] == "s"
    for one in (fork, fork.fork(None, "again"), fork.fork(None, "whole", whole=True)):
        gate = one.resume_check()
        assert [tool["may"] for tool in gate["tools"]] == ["never"] * 300


@pytest.mark.parametrize("ended", ["started", "finished", "observed"])
def test_a_call_that_ran_behind_the_fork_may_have_run_in_it(
    daemon: DaemonProcess, ended: str
) -> None:
    """Also in a fork of the fork; a call made anew there is one of its own."""
    session = daemon.reader.session("s")
    turn = session.submit("pay", message_id="m")
    for call_id in ("paid", "not"):
        turn.intent("pay", {}, side_effect="external-write", resume_policy="never-rerun",
                    call_id=call_id)  # fmt: skip
    turn.approval("not", "granted")
    turn.approval("paid", "granted")
    approval = (session.events() or [])[-1]["id"]
    if ended != "observed":
        turn.tool_started("paid")
    if ended == "finished":
        turn.tool_finished("paid", "done")
    if ended == "observed":
        turn.observation("paid", "it is there")
    fork = session.fork(approval, "fork")
    session.fork(None, "all of it")
    for one in (fork, fork.fork(None, "again"), fork.fork(None, "whole", whole=True)):
        gate = one.resume_check()
        assert gate["status"] == "blocked"
        assert [(each["call_id"], each["may"], each["outcome"]) for each in gate["tools"]] == [
            ("paid", "never", "unknown"),
            ("not", "replay", "pending"),
        ]
    (first, *_) = daemon.reader.session("all of it").events() or []
    assert "started" not in first["payload"], "all that is known of its calls is in it"
    retried = fork.submit("pay", retry_of=turn.turn_id)
    retried.intent("pay", {}, side_effect="external-write", resume_policy="never-rerun",
                   call_id="paid")  # fmt: skip
    told = [(each["turn"], each["may"]) for each in fork.resume_check()["tools"]]
    # "not", which never started, is closed by the equal call of the retry; "paid" may have run.
    assert told == [(turn.turn_id, "never"), (retried.turn_id, "replay")]


@pytest.mark.parametrize("saved", ["half of the ", "half of the answer", None])
def test_an_answer_whose_id_is_taken_is_in_the_session(
    daemon: DaemonProcess, saved: str | None
) -> None:
    """Once, also where the application saved the same under its key, and after a kill."""
    session = daemon.reader.session("s")
    turn = session.submit("q", message_id="m")
    reply = turn.reply()
    reply.token("half of the ")
    if saved is None:
        session.append("app.saved", {"content": "half of the answer"}, id=f"{reply.stream_id}:1")
    else:
        session.message("assistant", saved, id=f"{reply.stream_id}:1")
    reply.token("answer")
    reply.end()
    told = [one["content"] for one in session.messages() or []][1:]
    assert told == {
        "half of the ": ["half of the ", "half of the answer"],
    }.get(saved or "", ["half of the answer"])
    events = session.events()
    daemon.kill()
    daemon.start()
    assert daemon.reader.session("s").events() == events
    assert daemon.reader.recover_all("s") == []


@pytest.mark.parametrize("is_released", [True, False])
def test_the_same_words_under_the_same_name_answer_each_turn(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], is_released: bool
) -> None:
    """A program may give its replies one name, and say "Done." in two turns."""
    agent = make_agent(daemon)
    agent.do(
        f"""
        session = client.session("s")
        for released in (True, {is_released}):
            turn = session.submit("do it")
            reply = turn.reply(stream_id="r", auto_release=released)
            reply.token("Done."); reply.end()
            reply.drain(20, "synced")
        """
    )
    agent.kill()
    daemon.restart()
    said = [one["content"] for one in daemon.reader.session("s").messages()]
    kept = [one.text for one in daemon.reader.recover_all("s")]
    assert said == ["do it", "Done.", "do it", "Done."][: 4 if is_released else 3]
    assert kept == ([] if is_released else ["Done."])


@pytest.mark.parametrize("words", [("Let me look.", "Done."), ("Done.", "Done.")])
def test_two_replies_of_one_name_in_one_turn_are_one_message(
    daemon: DaemonProcess, words: tuple[str, str]
) -> None:
    """A message is known by stream id and seq: its turn refuses the second, who goes round it has
    the later one in the place of the first.
    """
    session = daemon.reader.session("s")
    turn = session.submit("do it")
    with turn.reply(stream_id="r") as reply:
        reply.token(words[0])
        reply.end()
    assert reply.drain(level="synced")
    with pytest.raises(Refused, match="illegal_turn"):
        turn.reply(stream_id="r")
    with daemon.reader.reply("s", stream_id="r", turn_id=turn.turn_id) as reply:
        reply.token(words[1])
        reply.end()
    assert [one["content"] for one in session.messages() or []] == ["do it", words[1]]
    said = [one["payload"]["content"] for one in session.events() if one["type"] == "message"]
    assert said == list(words[: len(set(words))])


@pytest.mark.parametrize("lost", ["all of it", "what was synced", "what the daemon deleted"])
def test_a_turns_reply_that_moved_and_begins_anew_answers_its_turn(
    daemon: DaemonProcess, make_agent: MakeAgent, lost: str
) -> None:
    """The turn stays where the reply began, whatever a daemon has of that."""
    agent = make_agent(daemon)
    agent.do("session = client.session('s'); turn = session.submit('q'); reply = None")
    if lost == "all of it":
        daemon.freeze()
    agent.do("reply = turn.reply(); reply.token('first'); reply.move('t')")
    if lost != "all of it":
        assert agent.do("reply.drain(20, 'synced')")
        assert daemon.reader.delete("t")
    if lost != "what the daemon deleted":
        daemon.restart()
    agent.do("reply.token(', rest')")
    assert agent.do("reply.drain(20, 'synced')")
    found = daemon.reader.recover("t")
    assert found is not None
    agent.do("reply.end()")
    assert agent.do("reply.drain(20, 'synced')")
    said = [one["content"] for one in daemon.reader.session("s").messages() or []]
    assert said == ["q", found.text]
    assert found.text == ("first, rest" if lost == "all of it" else ", rest")
    assert daemon.reader.recover_all() == []


def test_a_turns_reply_of_a_long_name_is_an_entry_that_can_be_named(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    turn = session.submit("q", message_id="m")
    with turn.reply(stream_id="r" * 1024) as reply:
        reply.token("answer")
        reply.end()
    (answer,) = [one for one in session.events() or [] if one["type"] == "message"]
    assert answer["payload"]["_wal_stream"] == "r" * 1024
    session.label(answer["id"], "here")
    fork = session.fork(answer["id"], "fork")
    assert [one["content"] for one in fork.messages() or []] == ["q", "answer"]


@pytest.mark.parametrize("view", ["events", "trace"])
def test_a_line_that_was_read_never_changes(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], view: str
) -> None:
    """Also one that the daemon made for who asked: it is told once a kill does not take it (N1)."""
    for at in range(4):
        agent = make_agent(daemon)
        agent.do(SUBMIT.replace('"s"', f'"s{at}"'))
        agent.kill()
        told = []
        for _ in range(2):
            session = daemon.reader.session(f"s{at}")
            told.append(session.events() if view == "events" else session.project(view))
            daemon.kill()
            daemon.start()
        assert told[0] == told[1]
        assert told[0]
        assert "agent_lost" in str(told[0])
