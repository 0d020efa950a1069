"""What a session reads as, adopts, audits and deletes, against a real daemon.

With the blocking client and with that of asyncio: one script, told which.
"""

from __future__ import annotations

import json
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import walld_client
from agents.process import MakeAgent, Obedient
from daemon_process import DaemonProcess, MakeDaemon, until

TRICKY = (".", "..", "a/b", "../" * 5 + "etc", "ü" * 512, "con\n\0", " ")
TEXT = "half \ud83d, \u2028, \0, 'quotes\" and \\ "
BYTES = bytes(range(256)) * 5000


@pytest.fixture
def daemon(make_daemon: MakeDaemon) -> DaemonProcess:
    """For the delete that leaves no byte: it gives released bytes up after a second."""
    return make_daemon("--reclaim-seconds", "1").start()


def orphan(reader: Any, stream_id: str) -> walld_client.PartialReply:
    """The reply of a stream once its owner is known to be gone."""

    def gone() -> walld_client.PartialReply | None:
        reply = reader.recover(stream_id=stream_id)
        return None if reply is None or reply.owner_alive else reply

    found = until(gone, f"{stream_id} without an owner")
    assert found is not None
    return found


def adopt(session: Any, reply: walld_client.PartialReply) -> int:
    """What a program does whose store is the session itself; how many entries are new."""
    added = 0
    for message in reply.messages():
        place = f"{reply.stream_id}:{message['_wal_seq']}:{message['_wal_last_seq']}"
        added += session.append("message", message, id=place, once=True).is_new
    return added


def contents(session: Any, **options: Any) -> list[Any] | None:
    told = session.messages(**options)
    return None if told is None else [one["content"] for one in told]


def answered(turn: Any, text: str) -> str:
    with turn.reply() as reply:
        reply.token(text)
        reply.end()
    turn.completed()
    stream_id: str = reply.stream_id
    return stream_id


# --- turns and replies ----------------------------------------------------------------------------


def test_five_ends_are_five_readings(reader: Any, agent: Obedient) -> None:
    ends = {
        "clean": "reply.end(); turn.completed()",
        "cancel": "reply.cancel('user'); turn.interrupted('user')",
        "auth": "reply.error('no', kind='auth'); reply.end(); turn.interrupted('auth')",
        "limit": "reply.finish('tool_limit_reached'); reply.end(); turn.completed()",
        "killed": "assert reply.drain(10)",
    }
    for name, source in ends.items():
        agent.do(f"""
        turn = client.session("s").submit("{name}", message_id="{name}")
        reply = turn.reply(stream_id="{name}")
        reply.token("said in {name}")
        {source}
        """)
    agent.kill()
    session = reader.session("s")
    readings = {}
    for turn in session.state()["turns"]:
        name = turn["message_id"]
        reply = reader.recover(stream_id=name)
        status = None if reply is None else (reply.status, reply.error and reply.error.kind)
        said = [one for one in session.messages() if one.get("_wal_stream") == name]
        finished = [one.get("finish_reason") for one in said]
        readings[name] = (turn["state"], turn["reason"], status, finished)
    assert readings == {
        "clean": ("completed", None, None, [None]),
        "cancel": ("interrupted", "user", ("cancelled", None), [None]),
        "auth": ("interrupted", "auth", ("errored", "auth"), [None]),
        "limit": ("completed", None, None, ["tool_limit_reached"]),
        "killed": ("interrupted", "agent_lost", ("crashed", None), [None]),
    }


STEPS = """
turn = client.session("s").submit("q")
reply = turn.reply(stream_id="r")
reply.reasoning("thought a")
reply.token("b")
reply.tool("t", {"x": 1}, call_id="c1")
reply.tool_result("done", call_id="c1")
reply.step()
reply.reasoning("thought c")
reply.token("d")
"""


@pytest.mark.parametrize("end", ["killed", "whole"])
def test_steps_are_messages_and_no_provider_is_sent_reasoning(
    reader: Any, agent: Obedient, end: str
) -> None:
    agent.do(STEPS)
    session = reader.session("s")
    if end == "whole":
        agent.do("reply.end(); turn.completed()")
    else:
        agent.kill()
        unreleased = contents(session)
        assert adopt(session, orphan(reader, "r")) == 2
        assert contents(session) == unreleased, "adopting changes nothing"
    said = session.messages()
    assert [one["content"] for one in said] == ["q", "b", "d"]
    assert [one.get("reasoning") for one in said] == [None, "thought a", "thought c"]
    for form in ("openai", "anthropic"):
        sent = json.dumps(session.messages(form))
        assert "thought" not in sent
        assert sent.index('"b"') < sent.index('"done"') < sent.index('"d"')


def test_segments_and_retries(reader: Any, agent: Obedient) -> None:
    source = """
    turn = client.session("s").submit("q")
    reply = turn.reply(stream_id="r")
    reply.token("Hel")
    reply.retry("connection lost")
    reply.token("Hello")
    reply.tool("t", {}, call_id="c1")
    reply.tool_result("r", call_id="c1")
    reply.token("Hello")
    """
    agent.do(source)
    found = reader.recover("s")
    told = [(one.kind, one.attempt, one.text) for one in found.segments]
    hello = ("text", 1, "Hello")
    assert told == [("text", 0, "Hel"), hello, ("tool", 1, ""), hello]
    assert (found.text, found.attempts) == ("HelloHello", 2)
    agent.do("reply.end(); turn.completed()")
    assert contents(reader.session("s")) == ["q", "Hello\n\nHello"]
    assert "Hel" not in contents(reader.session("s"))


def test_an_equal_earlier_turn_is_untouched(reader: Any, agent: Obedient) -> None:
    session = reader.session("s")
    first = session.submit("same", message_id="m1")
    stream_id = answered(first, "equal")
    agent.do("""
    turn = client.session("s").submit("same", message_id="m2")
    reply = turn.reply(stream_id="second")
    reply.token("equal")
    assert reply.drain(10)
    """)
    agent.kill()
    left = orphan(reader, "second")
    assert left.turn_id != first.turn_id
    before = session.messages()
    assert [one.get("_wal_stream") for one in before] == [None, stream_id, None, "second"]
    (step,) = [
        one
        for one in reader.repair_plan("s", present=["m1"])
        if one.turn_id == left.turn_id and one.message["role"] == "user"
    ]
    assert (step.message_id, step.message["content"]) == ("m2", "same")
    for added in (1, 0):
        assert adopt(session, left) == added
    assert session.messages()[:3] == before[:3]
    assert contents(session) == ["same", "equal", "same", "equal"]


def test_reasoning_only_and_tool_only(reader: Any, agent: Obedient) -> None:
    agent.do("""
    thought = client.session("thought").submit("q").reply(stream_id="thought")
    thought.reasoning("hm")
    called = client.session("called").submit("q").reply(stream_id="called")
    called.tool("rm", {"path": "/"}, call_id="c1")
    ended = client.session("ended").submit("q").reply(stream_id="ended")
    ended.tool("rm", {"path": "/"}, call_id="c1")
    ended.end()
    assert called.drain(10)
    """)
    agent.kill()
    for name in ("thought", "called"):
        left = orphan(reader, name)
        assert reader.has_partial(name) is True
        assert (left.text, left.status, left.turn_id is None) == ("", "crashed", False)
        session = reader.session(name)
        assert contents(session) == ["q", ""]
        assert adopt(session, left) == 1
        for form in ("openai", "anthropic"):
            sent = str(session.messages(form))
            assert ("No result was recorded" in sent) is (name == "called"), "it may have run"
            assert "hm" not in sent
    assert orphan(reader, "called").segments[0].outcome == "unknown"
    session = reader.session("ended")  # whole, and still nobody knows of its call
    assert session.messages()[-1]["tool_calls"][0]["outcome"] == "unknown"
    assert reader.has_partial("ended") is False
    findings = reader.audit("ended", present=lambda turn: True).findings
    found = [(one.kind, one.category, one.subject) for one in findings]
    assert ("tool_call_unanswered", "unsafe_to_repair", "c1") in found


def test_twenty_readings_are_the_same_bytes(daemon: DaemonProcess, reader: Any) -> None:
    session = reader.session("s")
    for number in range(5):
        turn = session.submit(f"q{number}", attachments=[b"x" * number])
        turn.intent("t", {}, side_effect="none", resume_policy="never-rerun", call_id="c")
        answered(turn, f"a{number}")
    until(lambda: not reader.recover_all("s"), "replies that are in the session")

    def reading() -> list[str]:
        views = ("messages", "state", "tree", "transcript", "trace", "audit", "eval", "pending")
        found = [json.dumps(session.project(name)) for name in (*views, "resume")]
        return [*found, json.dumps(session.events())]

    def on_disk() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in daemon.files()}

    first = reading()

    def twenty_change_nothing() -> bool:
        before = on_disk()
        assert all(reading() == first for _ in range(20))
        return on_disk() == before

    # The daemon itself still moves what released replies have left; readings would never end to.
    until(twenty_change_nothing, "readings that leave the disk as it is")
    daemon.restart()
    assert reading() == first


def test_what_was_adopted_and_grew_is_replaced_in_its_place(reader: Any, agent: Obedient) -> None:
    agent.do("""
    turn = client.session("s").submit("q")
    reply = turn.reply(stream_id="r")
    [reply.token("x") for _ in range(7)]
    reply.step()
    assert reply.drain(10)
    """)
    session = reader.session("s")
    early = reader.recover("s")
    assert early.last_seq == 8
    assert adopt(session, early) == 1
    session.message("user", "meanwhile")
    agent.do("[reply.token('y') for _ in range(4)]")
    agent.kill()
    later = orphan(reader, "r")
    assert later.last_seq == 12
    with pytest.raises(walld_client.Refused) as grown:
        reader.resolve("r", 8)
    assert (grown.value.got, grown.value.limit) == ("8", "12")
    first_seqs = [one["_wal_seq"] for one in early.messages()]
    assert [one["_wal_seq"] for one in later.messages()][: len(first_seqs)] == first_seqs
    assert adopt(session, later) >= 1
    assert contents(session) == ["q", "x" * 7, "meanwhile", "yyyy"]
    assert adopt(session, later) == 0
    assert reader.resolve("r", 12) is True
    assert contents(session) == ["q", "x" * 7, "meanwhile", "yyyy"]


def test_killed_between_a_save_and_what_follows_it(
    daemon: DaemonProcess, make_agent: MakeAgent, reader: Any, colour: str
) -> None:
    saved = make_agent(daemon, colour=colour)
    saved.do("""
    turn = client.session("s").submit("q", message_id="m")
    reply = turn.reply(stream_id="r", auto_release=False)
    reply.token("saved")
    client.session("s").message("assistant", "saved", _wal_stream="r", _wal_seq=1)
    reply.end()
    assert reply.drain(10)
    """)
    saved.kill()
    session = reader.session("s")
    left = orphan(reader, "r")
    assert [one.stream_id for one in reader.orphans()] == ["r"]
    assert (left.status, left.text) == ("complete", "saved")
    assert reader.resolve("r", left.last_seq)
    assert contents(session) == ["q", "saved"]

    torn = make_agent(daemon, colour=colour)
    torn.do('reply = client.session("s").turn(stream_id="r").session_id')
    torn.do("""
    reply = client.session("s").submit("again").reply(stream_id="torn")
    reply.token("half of")
    assert reply.drain(10)
    """)
    torn.kill()
    for added in (1, 0):  # the second is that of who was killed before its resolve
        left = orphan(reader, "torn")
        assert adopt(session, left) == added
        daemon.restart()
    assert reader.resolve("torn", left.last_seq)
    assert reader.recover_all() == []
    assert contents(session) == ["q", "saved", "again", "half of"]


def test_ended_and_unreleased_with_its_owner_alive_is_no_orphan(
    daemon: DaemonProcess, reader: Any, agent: Obedient
) -> None:
    agent.do("""
    turn = client.session("s").submit("q")
    reply = turn.reply(stream_id="r", auto_release=False)
    reply.token("a")
    reply.end()
    turn.completed()
    assert reply.drain(10)
    """)
    session = reader.session("s")
    for _ in range(2):  # a restart orphans nobody
        assert reader.orphans() == []
        found = reader.recover("s")
        assert (found.owner_alive, found.status) == (True, "complete")
        with pytest.raises(walld_client.Refused) as refused:
            reader.resolve("r")
        assert refused.value.got == "alive"
        assert contents(session) == ["q", "a"]
        daemon.restart()
    agent.do("client.release('r')")
    until(lambda: reader.recover("s") is None, "its message in the session, once its owner let go")
    assert contents(session) == ["q", "a"]


def test_cancelled_from_another_thread(daemon: DaemonProcess, reader: Any, agent: Obedient) -> None:
    late = agent.do("""
    import threading
    turn = client.session("s").submit("q")
    reply = turn.reply(stream_id="r")
    reply.token("cancelled-text"); reply.reasoning("cancelled-reason")
    reply.tool("cancelled-tool", {"at": 1}, call_id="c")
    thread = threading.Thread(target=reply.inner.cancel, args=("stop button",))
    thread.start(); thread.join()
    [reply.token("more") for _ in range(3)]
    turn.interrupted("stop button")
    assert reply.drain(10)
    client.stats().late
    """)
    assert late == 3
    found = reader.recover("s")
    assert [one.kind for one in found.segments] == ["text", "reasoning", "tool"]
    told = (found.text, found.status, found.lost_reason, found.segments[2].outcome)
    assert told == ("cancelled-text", "cancelled", "stop button", "unknown")
    session = reader.session("s")
    assert contents(session) == ["q", "cancelled-text"]
    (turn,) = session.state()["turns"]
    assert (turn["state"], turn["reason"]) == ("interrupted", "stop button")
    agent.do("reply.release()")
    said = [b"cancelled-text", b"cancelled-reason"]
    until(lambda: not daemon.holding(said), "the disk free of it")
    assert reader.recover("s") is None
    assert [one for one in contents(session) if one] == ["q"]
    (call,) = session.resume_check()["calls"]
    assert (call["tool"], call["outcome"]) == ("cancelled-tool", "unknown"), "nobody said its end"


def test_errors_after_and_before_any_word(reader: Any) -> None:
    session = reader.session("s")
    turn = session.submit("q")
    reply = turn.reply()
    reply.error("no key", kind="auth")
    turn.interrupted("auth")
    reply.drain(10)
    left = reader.recover("s")
    assert (left.status, left.text, left.messages()) == ("errored", "", [])
    assert contents(session) == ["q"]
    assert session.messages("openai") == [{"role": "user", "content": "q"}]
    reply = session.submit("again").reply()
    reply.token("so far")
    reply.error("broke")
    reply.drain(10)
    left = reader.recover("s")
    assert (left.status, left.text, len(left.messages())) == ("errored", "so far", 1)
    assert contents(session) == ["q", "again", "so far"]


def test_what_a_provider_is_sent_alternates(daemon: DaemonProcess, reader: Any) -> None:
    session = reader.session("s")
    session.submit("no answer").interrupted("user")
    session.submit("a partial")
    session.message("assistant", "begun", _partial=True)
    call = {"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    session.message("assistant", "an orphan call", tool_calls=[call])
    session.message("tool", "an orphan result", tool_call_id="c9")
    session.submit("at last")
    for form in ("openai", "anthropic"):
        sent = session.messages(form) or []
        told = "tool" if form == "openai" else "user"  # that nobody knows what the call gave
        roles = ["user", "assistant", told, "user"]
        assert [one["role"] for one in sent] == roles[: 4 if form == "openai" else 3]
        assert "orphan result" not in json.dumps(sent)
        assert "No result was recorded" in json.dumps(sent)
        assert all(one["role"] != other["role"] for one, other in pairwise(sent))


def test_both_are_killed_right_after_a_submit(
    daemon: DaemonProcess, agent: Obedient, tmp_path: Path, reader: Any
) -> None:
    (tmp_path / "attached").write_bytes(BYTES)
    content = [{"type": "text", "text": TEXT}, {"n": 1.5, "long": "x" * 300_000}]
    turn_id = agent.do(f"""
    turn = client.session("s").submit(
        {content!r}, message_id="m", stream_id="r", model="big",
        attachments=[{str(tmp_path / "attached")!r}, b"small", {{"own": ["kept"]}}], who="me",
    )
    turn.turn_id
    """)
    daemon.kill()
    agent.kill()
    daemon.start()
    session = reader.session("s")
    (message,) = session.messages() or []
    assert message["content"] == content
    large, small, own = message["attachments"]
    assert session.read_artifact(large["_artifact"]["sha256"]) == BYTES
    assert session.read_artifact(small["_artifact"]["sha256"]) == b"small"
    assert own == {"own": ["kept"]}
    found = session.turn(stream_id="r")
    assert (found.turn_id, found.message_id) == (turn_id, "m")
    until(lambda: session.turn(turn_id).state == "interrupted", "its process is gone")
    again = session.submit(content, message_id="m", attachments=message["attachments"])
    assert again.turn_id == turn_id
    retried = session.submit(content, retry_of=turn_id)
    assert retried.turn_id != turn_id
    assert len(session.messages() or []) == 1


def test_the_audit_asks_the_applications_own_store(reader: Any, agent: Obedient) -> None:
    session = reader.session("s")
    answered(session.submit("done", message_id="done"), "yes")
    session.submit("stopped", message_id="stopped").interrupted("user")
    collided = session.submit("twice", message_id="twice")
    collided.completed()
    collided.interrupted("late")
    agent.do('client.session("s").submit("lost", message_id="lost").worker_started()')
    agent.kill()
    state = session.state
    until(lambda: (state() or {})["turns"][-1]["state"] == "interrupted", "an interruption")

    def judged(present: Any) -> dict[str, tuple[str, str]]:
        report = reader.audit("s", present=present)
        return {one.message_id or "": (one.kind, one.category) for one in report.findings}

    found = judged({"done", "twice"})
    assert found["lost"] == ("turn_journal_pending_turn", "repairable")
    assert found["stopped"] == ("turn_journal_interrupted_turn", "repairable")
    assert judged(None)["lost"] == ("turn_journal_pending_turn", "unknown")
    facts = session.project("audit")
    assert [len(turn["collisions"]) for turn in facts["turns"]] == [0, 0, 1, 0]
    assert [turn["interrupted_by"] for turn in facts["turns"]] == [None, "app", None, "daemon"]
    assert [turn["content"] for turn in facts["turns"]] == ["done", "stopped", "twice", "lost"]
    steps = reader.repair_plan("s", present={"done", "twice"})
    assert {one.message["role"] for one in steps} <= {"user", "system"}
    assert len({one.key for one in steps}) == len(steps)
    assert steps == reader.repair_plan("s", present={"done", "twice"})


def test_delete_leaves_no_byte_and_no_neighbour_is_hurt(
    daemon: DaemonProcess, agent: Obedient, reader: Any
) -> None:
    for session_id in (*TRICKY, "stays"):
        session = reader.session(session_id)
        session.submit("secret words", attachments=[b"secret bytes"])
        session.append_many(
            [{"type": "message", "payload": {"role": "user", "content": "secret"}}] * 60
        )
    agent.do("""
    lost = client.reply("..", stream_id="lost")
    lost.token("secret partial")
    assert lost.drain(10)
    """)
    agent.kill()
    until(daemon.partials, "a partial")
    live = reader.reply("..", stream_id="live")
    live.token("secret live")
    assert live.drain(10)
    other = reader.session("stays").events()
    outside = sorted(path.name for path in daemon.data.iterdir())
    for session_id in TRICKY:
        assert reader.delete(session_id) is True
        assert reader.session(session_id).messages() is None
        assert reader.session(session_id).events() == []
        assert reader.delete(session_id) is False
    assert [one.session_id for one in reader.sessions()] == ["stays"]
    assert reader.session("stays").events() == other
    assert reader.session("stays").read_artifact(sha256(b"secret bytes").hexdigest())
    assert sorted(path.name for path in daemon.data.iterdir()) == outside
    assert reader.recover("..") is None
    assert reader.delete("stays")
    until(lambda: not daemon.holding([b"secret"]), "a directory without a byte of it")
    left = [path for path in (daemon.data / "sessions").rglob("*") if path.is_file()]
    assert [path.name for path in left] == [".deleted"], "that there was one, which names nobody"
    reader.session("..").message("user", "begins anew")
    assert [one["seq"] for one in reader.session("..").events()] == [1]


def test_a_process_that_appends_64_at_once_gets_64_places(reader: Any, colour: str) -> None:
    session = reader.session("s")
    entries = session.gather(
        [lambda at=at: session.inner.message("user", str(at)) for at in range(64)]
    )
    assert sorted(entry.seq for entry in entries) == list(range(1, 65))
    told = {one["seq"]: one["payload"]["content"] for one in session.events()}
    assert [told[entry.seq] for entry in entries] == [str(at) for at in range(64)]
    with pytest.raises(walld_client.Refused, match="stale"):
        session.append("app.x", {}, expected_seq=1)


def test_a_plan_tells_a_message_as_the_session_does(daemon: DaemonProcess, reader: Any) -> None:
    """With what was attached to it; edited, where it was edited since."""
    session = reader.session("s")
    session.submit("see the file", message_id="m1", attachments=[b"a file", {"mine": 1}])
    session.submit("with a words as they were sent", message_id="m2")
    session.submit("as it was", message_id="m3")
    by_id = session.submit("L" * 300_000, message_id="m4")
    session.edit("m2", role="user", content="with a tipo")
    session.edit("m2", role="user", content="with a typo")
    session.edit(by_id.turn_id, role="user", content="M" * 300_000)
    steps = [step.message for step in reader.repair_plan("s", present=[])]
    told = session.messages()
    assert [one["content"] for one in steps] == [one["content"] for one in told]
    assert [one["content"] for one in steps][1:3] == ["with a typo", "as it was"]
    assert steps[0]["attachments"] == told[0]["attachments"]
    assert len(steps[0]["attachments"]) == 2
    assert [one["_message_id"] for one in steps] == ["m1", "m2", "m3", "m4"]


def test_a_plan_puts_back_nothing_that_was_taken_back(daemon: DaemonProcess, reader: Any) -> None:
    """Nor what was saved once, by the id of the turn or of its retry: they have one message."""
    session = reader.session("s")
    first = session.submit("tried twice", message_id="m1")
    first.interrupted("user")
    again = session.submit("tried twice", retry_of=first.turn_id)
    taken_back = session.submit("taken back", message_id="m2")
    taken_back.interrupted("user")
    session.submit("taken back", retry_of=taken_back.turn_id)
    session.undo(1)
    assert [one["content"] for one in session.messages()] == ["tried twice"]
    for saved in (first.turn_id, again.turn_id, "m1"):
        steps = reader.repair_plan("s", present=[saved])
        assert [step.key for step in steps] == [f"{first.turn_id}:mark_interrupted"]
        assert reader.audit("s", present=[saved]).overall == "ok"
    steps = reader.repair_plan("s", present=[])
    assert [(step.turn_id, step.message["role"]) for step in steps] == [
        (first.turn_id, "user"),
        (first.turn_id, "system"),
    ]
    session.branch(taken_back.turn_id)
    steps = reader.repair_plan("s", present=["m1"])
    assert [step.message["content"] for step in steps][1:2] == ["taken back"]


def test_a_plan_puts_back_what_a_list_has_and_not_what_it_left_out(
    daemon: DaemonProcess, reader: Any
) -> None:
    session = reader.session("s")
    for name in ("m1", "m2"):
        session.submit(f"said as {name}", message_id=name)
    session.edit(session.messages()[:1])
    assert [step.message_id for step in reader.repair_plan("s", present=[])] == ["m1"]
    session.undo(1)
    assert reader.repair_plan("s", present=[]) == []
