"""The cases of sessions (5 to 23 of the client's specification), each against a real daemon."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import walld_client
import walld_client.aio
from agents.process import Obedient
from daemon_process import DaemonProcess, until
from walld_client.wire import messages as wire
from wire_peer import Peer

MakeAgent = Callable[..., Obedient]
MakeDaemon = Callable[..., DaemonProcess]
TRICKY = (".", "..", "a/b", "../" * 5 + "etc", "ü" * 512, "con\n\0", " ")
TEXT = "half \ud83d, \u2028, \0, 'quotes\" and \\ "
BYTES = bytes(range(256)) * 5000


def contents(session: walld_client.Session, **options: Any) -> list[Any] | None:
    told = session.messages(**options)
    return None if told is None else [one["content"] for one in told]


def answered(turn: walld_client.Turn, text: str) -> str:
    with turn.reply() as reply:
        reply.token(text)
        reply.end()
    turn.completed()
    return reply.stream_id


# --- turns and replies ----------------------------------------------------------------------------


def test_case_5_five_ends_are_five_readings(daemon: DaemonProcess, make_agent: MakeAgent) -> None:
    agent = make_agent(daemon)
    ends = {
        "clean": "reply.end(); turn.completed()",
        "cancel": "reply.cancel('user'); turn.interrupted('user')",
        "auth": "reply.error('no', kind='auth'); turn.interrupted('auth')",
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
    session = daemon.reader.session("s")

    def readings() -> dict[str, tuple[Any, ...]]:
        found = {}
        for turn in (session.state() or {})["turns"]:
            reply = daemon.reader.recover(stream_id=turn["message_id"])
            status = None if reply is None else (reply.status, reply.error and reply.error.kind)
            found[turn["message_id"]] = (turn["state"], turn["reason"], status)
        return found

    until(lambda: readings()["killed"][0] == "interrupted", "the end of a turn nobody works on")
    found = readings()
    assert found["clean"] == found["limit"] == ("completed", None, None)
    assert found["cancel"] == ("interrupted", "user", ("cancelled", None))
    assert found["auth"] == ("interrupted", "auth", ("errored", "auth"))
    assert found["killed"] == ("interrupted", "agent_lost", ("crashed", None))
    told = contents(session) or []
    assert "said in clean" in told
    assert "said in limit" in told
    assert not {"said in cancel", "said in auth", "said in killed"} & set(told)


def test_case_6_steps_are_messages_and_no_provider_is_sent_reasoning(
    daemon: DaemonProcess,
) -> None:
    session = daemon.reader.session("s")
    turn = session.submit("q")
    with turn.reply() as reply:
        reply.reasoning("thought a")
        reply.token("b")
        reply.tool("t", {"x": 1}, call_id="c1")
        reply.tool_result("done", call_id="c1")
        reply.step()
        reply.reasoning("thought c")
        reply.token("d")
        reply.end()
    turn.completed()
    assert contents(session) == ["q", "b", "d"]
    for form in ("openai", "anthropic"):
        sent = json.dumps(session.messages(form))
        assert "thought" not in sent
        assert '"b"' in sent
        assert '"d"' in sent


def test_case_7_and_23_segments_and_retries(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    turn = session.submit("q")
    with turn.reply() as reply:
        reply.token("Hel")
        reply.retry("connection lost")
        reply.token("Hello")
        reply.tool("t", {}, call_id="c1")
        reply.tool_result("r", call_id="c1")
        reply.token("Hello")
        reply.end()
    assert contents(session) == ["q", "HelloHello"]


def test_case_8_an_equal_earlier_turn_is_untouched(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    session = daemon.reader.session("s")
    first = session.submit("same", message_id="m1")
    stream_id = answered(first, "equal")
    agent = make_agent(daemon)
    agent.do("""
    turn = client.session("s").submit("same", message_id="m2")
    reply = turn.reply(stream_id="second")
    reply.token("equal")
    assert reply.drain(10)
    """)
    agent.kill()
    left = daemon.orphan("second")
    assert left.turn_id != first.turn_id
    assert [one.get("_wal_stream") for one in session.messages() or []] == [None, stream_id, None]
    (step,) = [
        one
        for one in daemon.reader.repair_plan("s", present=["m1"])
        if one.turn_id == left.turn_id and one.message["role"] == "user"
    ]
    assert (step.message_id, step.message["content"]) == ("m2", "same")


def test_case_10_twenty_readings_are_the_same_bytes(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    for number in range(5):
        turn = session.submit(f"q{number}", attachments=[b"x" * number])
        turn.intent("t", {}, side_effect="none", resume_policy="never-rerun", call_id="c")
        answered(turn, f"a{number}")
    until(lambda: not daemon.reader.recover_all("s"), "replies that are in the session")

    def reading() -> list[str]:
        views = ("messages", "state", "tree", "transcript", "trace", "audit", "eval", "pending")
        found = [json.dumps(session.project(name)) for name in (*views, "resume")]
        return [*found, json.dumps(session.events())]

    def on_disk() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in daemon.files()}

    first = reading()
    before = on_disk()
    assert all(reading() == first for _ in range(20))
    assert on_disk() == before
    daemon.restart()
    assert reading() == first


def test_case_12_killed_between_its_save_and_its_release(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    agent = make_agent(daemon)
    agent.do("""
    turn = client.session("s").submit("q", message_id="m")
    reply = turn.reply(stream_id="r", auto_release=False)
    reply.token("saved")
    reply.end()
    assert reply.drain(10)
    """)
    agent.kill()
    left = daemon.orphan("r")
    assert (left.status, left.text) == ("complete", "saved")
    assert daemon.reader.resolve("r", left.last_seq)
    assert daemon.reader.recover("s") is None
    assert contents(daemon.reader.session("s")) == ["q"]


def test_case_15_an_error_before_any_word_gives_no_message(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    turn = session.submit("q")
    reply = turn.reply()
    reply.error("no key", kind="auth")
    turn.interrupted("auth")
    assert contents(session) == ["q"]
    assert session.messages("openai") == [{"role": "user", "content": "q"}]


def test_case_16_what_a_provider_is_sent_alternates(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    session.submit("no answer").interrupted("user")
    session.submit("a partial")
    session.message("assistant", "begun", _partial=True)
    call = {"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    session.message("assistant", "an orphan call", tool_calls=[call])
    session.message("tool", "an orphan result", tool_call_id="c9")
    session.submit("at last")
    for form in ("openai", "anthropic"):
        sent = session.messages(form) or []
        assert [one["role"] for one in sent] == ["user", "assistant", "user"]
        assert "orphan result" not in json.dumps(sent)
        assert '"c1"' not in json.dumps(sent)
        assert all(one["role"] != other["role"] for one, other in pairwise(sent))


def test_case_17_both_are_killed_right_after_a_submit(
    daemon: DaemonProcess, make_agent: MakeAgent, tmp_path: Path
) -> None:
    (tmp_path / "attached").write_bytes(BYTES)
    agent = make_agent(daemon)
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
    session = daemon.reader.session("s")
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


def test_case_18_the_audit_asks_the_applications_own_store(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    session = daemon.reader.session("s")
    answered(session.submit("done", message_id="done"), "yes")
    session.submit("stopped", message_id="stopped").interrupted("user")
    collided = session.submit("twice", message_id="twice")
    collided.completed()
    collided.interrupted("late")
    agent = make_agent(daemon)
    agent.do('client.session("s").submit("lost", message_id="lost").worker_started()')
    agent.kill()
    state = session.state
    until(lambda: (state() or {})["turns"][-1]["state"] == "interrupted", "an interruption")

    def judged(present: Any) -> dict[str, tuple[str, str]]:
        report = daemon.reader.audit("s", present=present)
        return {one.message_id or "": (one.kind, one.category) for one in report.findings}

    found = judged({"done", "twice"})
    assert found["lost"] == ("turn_journal_pending_turn", "repairable")
    assert found["stopped"] == ("turn_journal_interrupted_turn", "repairable")
    assert judged(None)["lost"] == ("turn_journal_pending_turn", "unknown")
    facts = session.project("audit")
    assert [len(turn["collisions"]) for turn in facts["turns"]] == [0, 0, 1, 0]
    assert [turn["interrupted_by"] for turn in facts["turns"]] == [None, "app", None, "daemon"]
    assert [turn["content"] for turn in facts["turns"]] == ["done", "stopped", "twice", "lost"]
    steps = daemon.reader.repair_plan("s", present={"done", "twice"})
    assert {one.message["role"] for one in steps} <= {"user", "system"}
    assert len({one.key for one in steps}) == len(steps)
    assert steps == daemon.reader.repair_plan("s", present={"done", "twice"})


# --- deleting -------------------------------------------------------------------------------------


def test_case_19_delete_leaves_no_byte_and_no_neighbour_is_hurt(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    daemon = make_daemon("--reclaim-seconds", "1").start()
    reader = daemon.reader
    for session_id in (*TRICKY, "stays"):
        session = reader.session(session_id)
        session.submit("secret words", attachments=[b"secret bytes"])
        session.append_many(
            [{"type": "message", "payload": {"role": "user", "content": "secret"}}] * 60
        )
    agent = make_agent(daemon)
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
    assert not [path for path in (daemon.data / "sessions").rglob("*") if path.is_file()]
    reader.session("..").message("user", "begins anew")
    assert [one["seq"] for one in reader.session("..").events()] == [1]


def test_case_19_an_empty_id_is_refused_by_name(daemon: DaemonProcess) -> None:
    with pytest.raises(ValueError, match="session_id"):
        daemon.reader.session("")
    with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
        peer.send(wire.Append(1, "", [wire.NewEntry("x.y", b"{}", "a")]))
        error = peer.hear()
        assert isinstance(error, wire.Error)
        assert (error.code, error.got, error.limit) == ("id_length", "0 bytes", "1..1024")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_two_users_have_two_sessions_of_one_name(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    for folder in (daemon.folder, daemon.socket_path):
        os.chmod(folder, 0o777)
    mine = daemon.reader.session("s")
    mine.message("user", "mine")
    agent = make_agent(daemon, uid=12345)
    theirs = agent.do('client.session("s").messages()')
    assert theirs is None
    agent.do('client.session("s").message("user", "theirs")')
    assert agent.do('[one["content"] for one in client.session("s").messages()]') == ["theirs"]
    assert contents(mine) == ["mine"]
    assert agent.do('client.delete("s")') is True
    assert agent.do('client.session("s").messages()') is None
    assert contents(mine) == ["mine"]


# --- undo, compaction, branches -------------------------------------------------------------------


def test_case_20_undo_and_bounded_replay(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    assert session.messages() is None
    for number in range(4):
        session.message("user", f"m{number}")
    session.undo(3)
    assert contents(session) == ["m0"]
    session.undo(1)
    assert contents(session) == []
    many = daemon.reader.session("many")
    for number in range(55):
        many.message("user", f"m{number}")
    until(lambda: daemon.status()["wal_live_bytes"] < 10_000, "a checkpoint")
    daemon.restart()
    assert contents(many) == [f"m{number}" for number in range(55)]
    assert contents(session) == []
    from walld.disk.real import RealDisk
    from walld.ledger.snapshot import SnapshotStore

    snapshot = SnapshotStore(RealDisk(str(daemon.data))).read(os.geteuid(), "many")
    assert snapshot is not None
    assert 55 - snapshot.covers_seq <= 50


def test_case_21_compactions_and_branches(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    ids = [session.message("user", f"m{number}").id for number in range(6)]
    session.compact("sum 1", ids[2])
    assert contents(session) == ["sum 1", "m2", "m3", "m4", "m5"]
    session.compact("sum 2", ids[4])
    tip = session.message("user", "m6").id
    assert contents(session) == ["sum 2", "m4", "m5", "m6"]
    session.branch(ids[5])
    session.compact("aside", ids[5])
    assert contents(session) == ["aside", "m5"]
    assert contents(session, branch=tip) == ["sum 2", "m4", "m5", "m6"]
    assert contents(session, branch=tip, compacted=False) == [f"m{number}" for number in range(7)]
    session.branch(None)
    assert contents(session) == []
    session.message("user", "another beginning")
    assert contents(session) == ["another beginning"]
    with pytest.raises(walld_client.Refused) as refused:
        session.branch("nowhere")
    assert (refused.value.code, refused.value.got) == ("unknown_target", "nowhere")
    with pytest.raises(walld_client.Refused, match="unknown_entry"):
        session.messages(branch="nowhere")
    daemon.restart()
    assert contents(session) == ["another beginning"]


def test_case_22_a_fork_is_the_path_and_the_source_is_untouched(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    first = session.message("user", "a").id
    aside = session.message("assistant", "wrong").id
    session.branch(first)
    right = session.message("assistant", "right").id
    session.label(first, "start")
    session.label(aside, "not copied")
    before = session.events()
    copy = session.fork(None, "copy")
    assert contents(copy) == ["a", "right"]
    ids = [one["id"] for one in copy.events()]
    assert len(ids) == len(set(ids))
    assert [(one["label"]) for one in _labels(copy)] == ["start"]
    assert contents(session.fork(aside, "wrong")) == ["a", "wrong"]
    assert contents(session.fork("", "empty")) == []
    whole = session.fork(aside, "whole", whole=True)
    assert contents(whole) == ["a", "wrong"]
    assert contents(whole, branch=right) == ["a", "right"]
    (forked,) = [one for one in whole.events() if one["type"] == "forked"]
    assert forked["parent"] == aside
    assert contents(session.fork("", "whole before", whole=True)) == []
    assert session.events() == before
    with pytest.raises(walld_client.Refused) as refused:
        session.fork("nowhere", "never")
    assert (refused.value.code, refused.value.got) == ("unknown_entry", "nowhere")
    assert daemon.reader.session("never").messages() is None
    with pytest.raises(walld_client.Refused, match="session_exists"):
        session.fork(None, "copy")
    whole_again = whole.fork(None, "whole again", whole=True)
    daemon.restart()
    assert contents(copy) == ["a", "right"]
    assert contents(whole) == contents(whole_again) == ["a", "wrong"]


def _labels(session: walld_client.Session) -> list[dict[str, Any]]:
    return [{"label": one["payload"]["text"]} for one in session.events() if one["type"] == "label"]


@pytest.mark.parametrize("whole", [False, True])
def test_case_22_open_turns_of_a_fork_are_interrupted(daemon: DaemonProcess, whole: bool) -> None:
    session = daemon.reader.session("s")
    answered(session.submit("ended"), "yes")
    turn = session.submit("open")
    turn.worker_started()
    copy = session.fork(None, "copy", whole=whole)
    states = [(one["state"], one["reason"]) for one in (copy.state() or {})["turns"]]
    assert states == [("completed", None), ("interrupted", "forked")]
    assert copy.events()[-1]["payload"] == {"reason": "forked", "by": "daemon"}
    assert [one["state"] for one in (session.state() or {})["turns"]][-1] == "worker_started"
    turn.completed()
    assert session.turn(turn.turn_id).state == "completed"


def test_a_fork_holds_what_is_long_in_any_script(daemon: DaemonProcess) -> None:
    """Its payload is as long as it was: a letter is no escape of six bytes."""
    session = daemon.reader.session("s")
    session.append("app.note", {"text": "ü" * 120_000})
    copy = session.fork(None, "copy")
    assert copy.events()[-1]["payload"] == {"text": "ü" * 120_000}


def test_a_fork_of_any_length_holds_up_no_agent(daemon: DaemonProcess) -> None:
    """12 MB: more than the daemon holds of all sessions in memory."""
    session = daemon.reader.session("s")
    for number in range(50):
        session.append("app.note", {"text": "x" * 240_000, "number": number})
    session.submit("open")
    with pytest.raises(walld_client.Refused, match="bad_payload"):
        daemon.reader.session("refused").append("undo", {"n": 0})
    copy = session.fork(None, "refused")
    assert daemon.status()["queue_bytes"] == 0
    entry = copy.message("user", "goes on")
    assert [one["seq"] for one in copy.events()] == list(range(1, entry.seq + 1))
    daemon.restart()
    assert contents(copy) == ["open", "goes on"]
    assert not copy.project("audit")["chain_breaks"]


# --- what is refused ------------------------------------------------------------------------------


def test_a_stale_writer_is_told_where_the_session_is(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    session.message("user", "a")
    session.append("app.x", {}, expected_seq=1)
    with pytest.raises(walld_client.Refused) as refused:
        session.append("app.x", {}, expected_seq=1)
    assert (refused.value.code, refused.value.got, refused.value.limit) == ("stale", "1", "2")
    assert len(session.events()) == 2


@pytest.mark.parametrize(
    ("entry", "code", "told"),
    [
        ({"type": "app.x", "parent": "nowhere"}, "unknown_parent", "nowhere"),
        ({"type": "app.x", "id": "a", "parent": "a"}, "cycle", "a"),
        ({"type": "app.x", "id": "there"}, "duplicate_id", "there"),
        ({"type": "label", "payload": {"target": "nowhere"}}, "unknown_target", "nowhere"),
        ({"type": "turn_completed", "turn": "nobody"}, "unknown_turn", "nobody"),
        ({"type": "undo", "payload": {"n": 0}}, "bad_payload", "0"),
        ({"type": "Not a type"}, "bad_type", "'Not a type'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_clear_error_and_nothing_half_written(
    daemon: DaemonProcess, entry: dict[str, Any], code: str, told: str
) -> None:
    session = daemon.reader.session("s")
    session.append("app.x", {}, id="there")
    before = session.events()
    with pytest.raises(walld_client.Refused) as refused:
        session.append_many([{"type": "app.good"}, entry])
    assert (refused.value.code, refused.value.got) == (code, told)
    assert refused.value.limit
    assert session.events() == before
    assert session.append("app.x", {}).seq == 2
    daemon.restart()
    assert len(session.events()) == 2


def test_an_illegal_step_of_a_turn_is_refused(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    turn = session.submit("q", message_id="m")
    turn.completed()
    with pytest.raises(walld_client.Refused, match="illegal_turn"):
        turn.worker_started()
    with pytest.raises(walld_client.Refused) as refused:
        session.submit("another text", message_id="m")
    assert (refused.value.code, refused.value.got) == ("message_id_taken", "m")
    with pytest.raises(walld_client.Refused, match="unknown_turn"):
        session.turn("nobody")


@pytest.mark.parametrize(
    "payload",
    [
        b'{"role":"user","content":"' + b"x" * (256 * 1024) + b'"}',
        b'{"role":"user","content":[1e400]}',
        b'{"role":"user","content":[NaN]}',
        b'{"role":"user","content":[' + b"[" * 300 + b"]" * 300 + b"]}",
        b'{"role":"user","content":"\xed\xa0\x80"}',
        '{"role":"user"}'.encode("utf-16-le"),
        b'\xef\xbb\xbf{"role":"user"}',
        b'{"role":"user"}{}',
    ],
    ids=["long", "beyond", "nan", "deep", "half", "utf-16", "bom", "two"],
)
def test_a_payload_that_no_view_could_tell_is_refused(
    daemon: DaemonProcess, payload: bytes
) -> None:
    with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
        entries = [wire.NewEntry("app.x", b"{}", "good"), wire.NewEntry("message", payload, "bad")]
        peer.send(wire.Append(1, "s", entries))
        error = peer.hear()
        assert isinstance(error, wire.Error)
        assert error.code in ("bad_payload", "payload_length")
        assert error.got
        assert error.limit
    assert daemon.reader.session("s").messages() is None


def test_a_request_has_entries_and_ids_within_bounds(daemon: DaemonProcess) -> None:
    """Each is taken in one step of the daemon, which reads no agent meanwhile."""
    entries = [wire.NewEntry("app.x", b"{}", str(at)) for at in range(1001)]
    long = "x" * 1025
    asked = [
        (entries, "entries_count"),
        ([wire.NewEntry("app.x", b"{}", "a", key=long)], "id_length"),
        ([wire.NewEntry("app.x", b"{}", "a", turn=long)], "id_length"),
        ([wire.NewEntry("app.x", b"{}", "a", cause=long)], "id_length"),
        ([wire.NewEntry("app.x", b"{}", "a", correlation=long)], "id_length"),
    ]
    with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
        for given, code in asked:
            peer.send(wire.Append(1, "s", given))
            error = peer.hear()
            assert isinstance(error, wire.Error)
            assert error.code == code
        peer.send(wire.GetArtifact(2, "s", b"short"))
        error = peer.hear()
        assert isinstance(error, wire.Error)
        assert (error.code, error.got, error.limit) == ("bad_artifact", "5", "32")


def test_an_artifact_of_another_hash_is_not_there(daemon: DaemonProcess) -> None:
    said = sha256(b"said").digest()
    with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
        peer.send(wire.PutArtifact(1, "s", said, 5, 0, b"other"))
        error = peer.hear()
        assert isinstance(error, wire.Error)
        assert error.code == "artifact_hash"
        assert (error.got, error.limit) == (sha256(b"other").hexdigest(), said.hex())
    with pytest.raises(walld_client.Refused, match="artifact_missing"):
        daemon.reader.session("s").read_artifact(said.hex())
    assert not daemon.holding([b"other"])


def test_an_upload_whose_client_was_killed_hinders_nobody(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    for number in range(20):
        with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
            peer.send(wire.PutArtifact(1, "s", bytes([number]) * 32, 1000, 0, b"begun"))
            assert isinstance(peer.hear(), wire.Answer)
    session = daemon.reader.session("s")
    made = session.artifact(BYTES, "application/x-any")
    assert session.read_artifact(made.sha256) == BYTES
    daemon.restart()
    until(lambda: not daemon.holding([b"begun"]), "nothing of what was begun")
    assert session.read_artifact(made.sha256) == BYTES


def test_a_file_of_a_later_version_is_refused_and_left_alone(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    session.message("user", "a")
    daemon.reader.session("other").message("user", "b")
    assert daemon.terminate() == 0
    (path,) = (daemon.data / "sessions").rglob("s/events.jsonl")
    text = path.read_bytes()
    assert text.startswith(b'{"walld":1')
    path.write_bytes(text.replace(b'{"walld":1', b'{"walld":9', 1))
    before = path.read_bytes()
    daemon.start()
    for ask in (
        session.messages,
        session.events,
        lambda: session.message("user", "x"),
        lambda: session.submit("x"),
        lambda: session.fork(None, "copy"),
    ):
        with pytest.raises(walld_client.Unavailable, match="9"):
            ask()
    assert contents(daemon.reader.session("other")) == ["b"]
    assert daemon.terminate() == 0
    assert path.read_bytes() == before
    daemon.start()


# --- one daemon for all ---------------------------------------------------------------------------


def test_an_id_that_an_application_took_stops_no_interruption(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    """The daemon's own entry finds another id; nobody else's turns wait for it."""
    hostile, other = make_agent(daemon), make_agent(daemon)
    other.do('client.session("other").submit("x", message_id="m").turn_id')
    hostile.do("""
    session = client.session("s")
    turn = session.submit("x", message_id="m")
    taken = [f"{turn.turn_id}:agent_lost:{seq}" for seq in range(300, 1000)]
    session.append_many([{"type": "app.x", "id": one} for one in taken])
    """)
    hostile.kill()
    other.kill()

    def reasons() -> list[str | None]:
        sessions = [daemon.reader.session(session_id) for session_id in ("s", "other")]
        return [(session.state() or {})["turns"][0]["reason"] for session in sessions]

    until(lambda: reasons() == ["agent_lost", "agent_lost"], "two interruptions")


def test_a_session_deleted_while_it_is_appended_to(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    agent = make_agent(daemon)
    agent.begin("""
    import threading
    failed = []
    def write(at):
        for number in range(150):
            try:
                client.session("s").message("user", f"{at} {number}")
            except Exception as error:
                failed.append(repr(error))
    threads = [threading.Thread(target=write, args=(at,)) for at in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    failed
    """)
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        daemon.reader.delete("s")
    assert agent.done() == []
    daemon.reader.session("s").message("user", "last")
    before = daemon.reader.session("s").events()
    assert [one["seq"] for one in before] == list(range(1, len(before) + 1))
    daemon.restart()
    assert daemon.reader.session("s").events() == before
    assert not daemon.reader.session("s").project("state")["chain_breaks"]


def test_a_session_deleted_at_its_checkpoint_stays_deleted(daemon: DaemonProcess) -> None:
    """The checkpoint was begun, and waited for the log's sync."""
    for number in range(40):
        session = daemon.reader.session(f"s{number}")
        session.append_many([{"type": "message", "payload": {"role": "user"}}] * 60)
        time.sleep(number / 1000)
        assert daemon.reader.delete(session.session_id)
    time.sleep(1)
    assert daemon.reader.sessions() == []
    assert not [path for path in (daemon.data / "sessions").rglob("*") if path.is_file()]


def test_who_appends_faster_than_files_are_written_waits(daemon: DaemonProcess) -> None:
    """Room for lines comes with the next checkpoint: nobody is refused for a moment's haste."""
    big = "x" * 250_000

    def write(at: int) -> None:
        for _ in range(12):
            client.session(f"s{at}").append("app.note", {"text": big})

    client = daemon.reader
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    assert [len(client.session(f"s{at}").events()) for at in range(6)] == [12] * 6


# --- the same for asyncio -------------------------------------------------------------------------


def test_on_asyncio(daemon: DaemonProcess) -> None:
    """Submit, reply, undo, fork, refusals: cases 17, 20 and 22."""

    async def scene() -> None:
        client = walld_client.aio.connect(daemon.socket_path)
        session = client.session("s")
        assert await session.messages() is None
        turn = await session.submit("q", message_id="m", stream_id="r", attachments=[BYTES])
        again = await session.submit("q", message_id="m", attachments=[BYTES])
        assert again.turn_id == turn.turn_id
        assert (await session.turn(stream_id="r")).turn_id == turn.turn_id
        reply = await turn.reply()
        reply.token("a")
        reply.end()
        await turn.completed()
        assert [one["content"] for one in await session.messages() or []] == ["q", "a"]
        await session.undo(2)
        assert await session.messages() == []
        assert await (await session.fork(turn.turn_id, "copy")).messages() is not None
        with pytest.raises(walld_client.Refused, match="stale"):
            await session.append("app.x", {}, expected_seq=1)
        many = [session.message("user", str(at)) for at in range(64)]
        entries = await asyncio.gather(*many)
        seqs = sorted(entry.seq for entry in entries)
        assert seqs == list(range(seqs[0], seqs[0] + 64))
        assert await client.delete("s") is True
        assert await session.messages() is None
        await client.close()

    asyncio.run(scene())
