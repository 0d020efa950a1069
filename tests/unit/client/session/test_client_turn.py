"""Turns: submitting, finding again, their reply, their tools. Both colours, one script."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import walld_client
import walld_client.aio
from colours import Coloured, connect
from fake_daemon import FakeDaemon, Peer
from fake_ledger import FakeLedger
from walld_client.wire import messages as wire


@pytest.fixture(params=["sync", "aio"])
def client(request: pytest.FixtureRequest, path: str, ledger: FakeLedger) -> Iterator[Coloured]:
    client = connect(request.param, path)
    yield client
    client.let_go()


def payloads(ledger: FakeLedger) -> list[tuple[str, dict[str, Any]]]:
    return [(event["type"], event["payload"]) for event in ledger.sessions["S"]]


# --- submitting -----------------------------------------------------------------------------------


def test_a_submit_is_synced_and_names_its_turn(client: Coloured, ledger: FakeLedger) -> None:
    turn = client.session("S").submit(
        "hello",
        message_id="m1",
        stream_id="r1",
        model="m",
        attachments=[b"\x00", {"url": "x"}],
        channel="web",
    )
    (event,) = ledger.sessions["S"]
    assert ledger.asked[-1].level == "synced"
    assert (turn.message_id, turn.stream_ids, turn.state) == ("m1", ["r1"], "submitted")
    assert (event["id"], event["turn"], event["key"]) == (turn.turn_id, turn.turn_id, "m1")
    put = event["payload"].pop("attachments")
    assert event["payload"] == {
        "message_id": "m1",
        "content": "hello",
        "stream_id": "r1",
        "model": "m",
        "meta": {"channel": "web"},
    }
    assert put[1] == {"url": "x"}
    assert client.session("S").read_artifact(put[0]["_artifact"]["sha256"]) == b"\x00"
    assert turn.turn_id in repr(turn.inner)


def test_the_same_message_is_the_first_turn(client: Coloured, ledger: FakeLedger) -> None:
    session = client.session("S")
    first = session.submit("hello", message_id="m1", stream_id="r1")
    first.worker_started()
    again = session.submit("hello", message_id="m1")
    assert (again.turn_id, again.state, again.stream_ids) == (
        first.turn_id,
        "worker_started",
        ["r1"],
    )
    assert ledger.types("S") == ["turn_submitted", "turn_worker_started"]
    long = session.submit("x" * 300_000, message_id="m2")
    assert session.submit("x" * 300_000, message_id="m2").turn_id == long.turn_id
    with pytest.raises(walld_client.Refused) as refused:
        session.submit("other", message_id="m1")
    assert (refused.value.code, refused.value.got) == ("message_id_taken", "m1")
    session.append("note", key="m3")
    with pytest.raises(walld_client.Refused, match="message_id_taken"):
        session.submit("hello", message_id="m3")


def test_the_form_of_content_follows_from_it_alone(client: Coloured, ledger: FakeLedger) -> None:
    for number, (content, meta) in enumerate(
        [(2_000, 300_000), (230_000, 300_000), (230_000, 0), (250_000, 0), (250_000, 300_000)]
    ):
        client.session("S").submit("x" * content, message_id=f"m{number}", a="y" * meta)
    told = [payload for _, payload in payloads(ledger)]
    assert ["_artifact" in one["content"] for one in told] == [False, False, False, True, True]
    assert ["_artifact" in one["meta"] for one in told if "meta" in one] == [
        *(True, True),
        *(False, False, True),
    ]


def test_a_turn_promises_a_journal_of_its_calls(client: Coloured, ledger: FakeLedger) -> None:
    session = client.session("S")
    session.submit("hello", calls="journal", mine=1)
    payload = ledger.sessions["S"][-1]["payload"]
    assert (payload["calls"], payload["meta"]) == ("journal", {"mine": 1})
    session.submit("hello")
    assert "calls" not in ledger.sessions["S"][-1]["payload"]
    with pytest.raises(ValueError, match="calls of submit: got 'reply', limit 'journal'"):
        session.submit("hello", calls="reply")


def test_equal_messages_are_two_turns(client: Coloured, ledger: FakeLedger) -> None:
    session = client.session("S")
    one, two = session.submit("hello"), session.submit("hello")
    assert one.turn_id != two.turn_id
    assert one.message_id != two.message_id


def test_a_retry_is_another_turn_on_the_same_message(client: Coloured, ledger: FakeLedger) -> None:
    session = client.session("S")
    first = session.submit("hello", message_id="m1")
    first.interrupted("user")
    retry = session.submit("hello", retry_of=first.turn_id)
    assert retry.turn_id != first.turn_id
    assert retry.message_id == "m1"
    assert ledger.sessions["S"][-1]["payload"]["retry_of"] == first.turn_id
    with pytest.raises(walld_client.Refused, match="unknown_turn"):
        session.submit("hello", retry_of="none")


def test_a_submit_of_which_nobody_knows(client: Coloured, ledger: FakeLedger) -> None:
    def before(peer: Peer, request: Any) -> bool:
        ledger._append(request)  # taken, and never said so
        return True

    ledger.before = before
    session = client.session("S")
    began = time.monotonic()
    with pytest.raises(walld_client.NotDurable) as raised:
        session.submit("hello", timeout=0.2)
    assert time.monotonic() - began < 2
    error = raised.value
    assert isinstance(error, walld_client.Unavailable)
    assert error.session_id == "S"
    assert 0.15 < error.waited < 2
    assert f"message_id='{error.message_id}'" in str(error)
    ledger.before = lambda peer, request: False
    again = session.submit("hello", message_id=error.message_id)
    assert again.turn_id == error.turn_id == session.turn(error.turn_id).turn_id
    assert ledger.types("S") == ["turn_submitted"]


@pytest.mark.parametrize("code", [*wire.OF_THIS_MOMENT, *wire.OF_ITS_SESSION])
def test_a_submit_that_is_not_taken_now(client: Coloured, ledger: FakeLedger, code: str) -> None:
    """Whatever is of the moment or of the session says nothing of the message."""

    def before(peer: Peer, request: Any) -> bool:
        peer.say(wire.Error(code, "not now", "much", "less", request.id))
        return True

    ledger.before = before
    with pytest.raises(walld_client.NotDurable, match=code) as raised:
        client.session("S").submit("hello", message_id="m", timeout=0.3)
    assert raised.value.message_id == "m"
    ledger.before = lambda peer, request: False
    assert client.session("S").submit("hello", message_id="m").message_id == "m"


def test_without_a_daemon_a_submit_says_so_at_once(tmp_path: Path) -> None:
    client = walld_client.connect(tmp_path / "nobody")
    with pytest.raises(walld_client.NotDurable, match="no walld at"):
        client.session("S").submit("hello")
    with pytest.raises(walld_client.NotDurable, match=r"look for it with session\.turn"):
        client.session("S").submit("hello", retry_of="t")
    client.close(0.0)


# --- its way --------------------------------------------------------------------------------------


def test_a_turn_is_found_again(client: Coloured, ledger: FakeLedger) -> None:
    session = client.session("S")
    with pytest.raises(walld_client.Refused, match="unknown_turn"):
        session.turn("none")
    made = session.submit("hello", message_id="m1", stream_id="r1")
    session.submit("another")
    for found in (session.turn(made.turn_id), session.turn(stream_id="r1")):
        assert (found.turn_id, found.message_id, found.session_id) == (made.turn_id, "m1", "S")
    with pytest.raises(walld_client.Refused, match="stream r2"):
        session.turn(stream_id="r2")


def test_its_states(client: Coloured, ledger: FakeLedger) -> None:
    turn = client.session("S").submit("hello")
    assert turn.worker_started().seq == 2
    assert turn.state == "worker_started"
    turn.completed()
    turn.interrupted("late")
    assert turn.state == "completed", "the first end stands"
    assert payloads(ledger)[-1] == ("turn_interrupted", {"reason": "late"})
    assert {event["turn"] for event in ledger.sessions["S"]} == {turn.turn_id}


def test_a_daemon_is_asked_once_whether_it_reads_what_a_grant_is_for(
    client: Coloured, ledger: FakeLedger
) -> None:
    """One of 0.1.0 would keep scope and end and judge by neither."""
    ledger.views["resume"] = {"calls": []}
    turn = client.session("S").submit("hello")
    turn.approval("c", "asked", scope={"tool": "mail"})
    turn.approval("c", "granted", by="anna")
    turn.approval("c", "denied", expires_at=1.0)
    assert not [one for one in ledger.asked if isinstance(one, wire.Project)]
    turn.approval("c", "granted", scope={"tool": "mail"})
    turn.approval("c", "granted", expires_at=1.0)
    (asked,) = [one for one in ledger.asked if isinstance(one, wire.Project)]
    assert (asked.name, "policy" in json.loads(asked.arguments)) == ("resume", True)


def test_its_tools(client: Coloured, ledger: FakeLedger, tmp_path: Path) -> None:
    ledger.views["resume"] = {"calls": []}
    turn = client.session("S").submit("hello")
    file = tmp_path / "f"
    file.write_bytes(b"x")
    mailing = {"side_effect": "external-write", "resume_policy": "never-rerun"}
    call_id = turn.intent("mail", {"to": "a"}, **mailing).id
    turn.decision(call_id, "allow", "policy 7")
    turn.decision(call_id, "allow")
    turn.approval(call_id, "asked")
    turn.approval(call_id, "granted", by="anna", scope={"tool": "mail"}, expires_at=2e9)
    started = turn.tool_started(call_id)
    assert ledger.asked[-1].level == "synced"
    finished = turn.tool_finished(call_id, {"ok": True}, files=[file, str(tmp_path / "none")])
    assert ledger.asked[-1].level == "written"
    turn.observation(call_id, "sent")
    policy = {"side_effect": "read", "resume_policy": "replay-from-event"}
    other = turn.intent("ls", None, call_id="c2", **policy)
    turn.tool_started("c2")
    assert ledger.asked[-1].level == "written"
    turn.tool_finished("c2", None, failed=True, files={"a": None})
    turn.tool_finished("c2")
    about = [payload for name, payload in payloads(ledger)[1:]]
    assert {one["call_id"] for one in about} == {call_id, "c2"}
    assert about[0] == {"call_id": call_id, "tool": "mail", "arguments": {"to": "a"}, **mailing}
    assert about[1] == {"call_id": call_id, "verdict": "allow", "reason": "policy 7"}
    assert about[3] == {"call_id": call_id, "state": "asked"}
    told = {"by": "anna", "scope": {"tool": "mail"}, "expires_at": 2e9}
    assert about[4] == {"call_id": call_id, "state": "granted", **told}
    assert about[6] == {
        "call_id": call_id,
        "result": {"ok": True},
        "files": {str(file): sha256(b"x").hexdigest(), str(tmp_path / "none"): None},
    }
    assert about[10] == {"call_id": "c2", "result": None, "failed": True, "files": {"a": None}}
    by_id = {event["id"]: event for event in ledger.sessions["S"]}
    assert by_id[finished.id]["cause"] == started.id
    assert "cause" not in by_id[other.id]


@pytest.mark.parametrize("effect", ["network", "process"])
def test_an_effect_that_0_1_0_does_not_know_is_an_external_write_there(
    client: Coloured, ledger: FakeLedger, effect: str
) -> None:
    turn = client.session("S").submit("hello")
    named = {"side_effect": effect, "resume_policy": "rerun-after-check"}
    more = {"idempotency": "conditional", "key": "order-7"}
    turn.intent("put", {}, call_id="c", **named, **more)
    (name, payload) = payloads(ledger)[-1]
    assert (name, payload["side_effect"], payload["effect"]) == (
        "tool_intent",
        "external-write",
        effect,
    )
    assert (payload["idempotency"], payload["key"]) == ("conditional", "order-7")
    turn.tool_started("c")
    assert ledger.asked[-1].level == "synced"
    with pytest.raises(ValueError, match="idempotency must be"):
        turn.intent("put", {}, **named, idempotency="perhaps")


def test_what_may_be_an_external_write_is_synced_before_it_starts(
    client: Coloured, ledger: FakeLedger
) -> None:
    session = client.session("S")
    turn = session.submit("hello", message_id="m")
    mailing = {"side_effect": "external-write", "resume_policy": "never-rerun"}
    reading = {"side_effect": "read", "resume_policy": "never-rerun"}
    for number, finder in enumerate(
        (lambda: session.turn(turn.turn_id), lambda: session.submit("hello", message_id="m"))
    ):
        turn.intent("mail", {}, call_id=f"c{number}", **mailing)
        finder().tool_started(f"c{number}")
        assert ledger.asked[-1].level == "synced"
    turn.intent("ls", {}, call_id="again", **reading)
    turn.tool_started("again")
    assert ledger.asked[-1].level == "written"
    turn.tool_finished("again")
    session.turn(turn.turn_id).intent("mail", {}, call_id="again", **mailing)
    turn.tool_started("again")
    assert ledger.asked[-1].level == "synced", "another call of the same id"


@pytest.mark.parametrize(
    ("call", "given", "named"),
    [
        ("intent", ("t", {}), {"side_effect": "some", "resume_policy": "never-rerun"}),
        ("intent", ("t", {}), {"side_effect": "none", "resume_policy": "maybe"}),
        ("approval", ("c", "perhaps"), {}),
        ("tool_started", ("",), {}),
    ],
)
def test_a_word_that_is_none(
    client: Coloured, call: str, given: tuple[Any, ...], named: dict[str, Any]
) -> None:
    turn = client.session("S").submit("hello")
    with pytest.raises(ValueError, match="must be"):
        getattr(turn, call)(*given, **named)


@pytest.mark.parametrize(
    ("files", "said"), [("out.txt", "got str"), (5, "got int"), ([5], "got int 5 in it")]
)
def test_files_that_are_none(client: Coloured, files: Any, said: str) -> None:
    turn = client.session("S").submit("hello")
    with pytest.raises(TypeError, match=f"files must be a list of paths, {said}"):
        turn.tool_finished("c", files=files)


# --- its reply ------------------------------------------------------------------------------------


def starts(daemon: FakeDaemon) -> list[wire.Start]:
    return [m for peer in daemon.agents() for m in peer.messages if isinstance(m, wire.Start)]


def test_its_reply(client: Coloured, ledger: FakeLedger, daemon: FakeDaemon) -> None:
    session = client.session("S")
    turn = session.submit("hello", stream_id="r1")
    with turn.reply(model="m") as reply:
        assert payloads(ledger)[-1] == ("turn_assistant_started", {"stream_id": "r1"})
        assert (reply.stream_id, reply.turn_id, reply.session_id) == ("r1", turn.turn_id, "S")
        reply.token("x")
        reply.end()
    assert turn.state == "assistant_started"
    second = turn.reply()
    assert second.stream_id != "r1", "a stream is of one reply"
    assert turn.stream_ids == ["r1", second.stream_id]
    own = session.turn(turn.turn_id).reply(stream_id="r3", parent="r1", auto_release=False)
    assert own.stream_id == "r3"
    for one in (second, own):
        one.cancel()
    daemon.until(lambda: len(starts(daemon)) == 3)
    assert [(one.stream_id, one.turn_id) for one in starts(daemon)] == [
        ("r1", turn.turn_id),
        (second.stream_id, turn.turn_id),
        ("r3", turn.turn_id),
    ]
    assert session.turn(stream_id="r3").turn_id == turn.turn_id


@pytest.mark.parametrize("code", [*wire.OF_THIS_MOMENT, *wire.OF_ITS_SESSION])
def test_a_reply_does_not_fail_for_the_daemons_sake(
    client: Coloured, ledger: FakeLedger, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    turn = client.session("S").submit("hello", stream_id="r1")

    def before(peer: Peer, request: Any) -> bool:
        peer.say(wire.Error(code, "wait", id=request.id))
        return True

    ledger.before = before
    reply = turn.reply()
    assert (reply.stream_id, reply.token("x")) == ("r1", 1)
    said = [one for one in caplog.messages if "its reply begins, and is in the log later" in one]
    assert len(said) == 1
    other = turn.reply()
    assert other.stream_id != "r1", "that is this reply's, until its release is acked"
    assert turn.state == "assistant_started"
    other.cancel()
    reply.cancel()


def test_a_reply_of_a_turn_that_ended_is_refused(client: Coloured, ledger: FakeLedger) -> None:
    turn = client.session("S").submit("hello")

    def before(peer: Peer, request: Any) -> bool:
        peer.say(wire.Error("illegal_turn", "no", "assistant_started", "completed", request.id))
        return True

    ledger.before = before
    with pytest.raises(walld_client.Refused, match="illegal_turn"):
        turn.reply()


def test_async_with_of_a_reply(path: str, ledger: FakeLedger, daemon: FakeDaemon) -> None:
    async def main() -> None:
        client = walld_client.aio.connect(path)
        turn = await client.session("S").submit("hello")
        async with turn.reply() as reply:
            reply.token("x")
            reply.end()
        with pytest.raises(KeyError):
            async with turn.reply():
                raise KeyError
        await client.close()

    asyncio.run(main())
    peer = daemon.agent()
    daemon.until(lambda: any(isinstance(m, wire.AppError) for m in peer.messages))
    assert ledger.types("S").count("turn_assistant_started") == 2


def test_many_submits_of_one_loop_are_under_way_together(path: str, ledger: FakeLedger) -> None:
    waiting: list[tuple[Peer, Any]] = []

    def before(peer: Peer, request: Any) -> bool:
        waiting.append((peer, request))
        if len(waiting) == 20:  # one sync for all of them
            ledger.before = lambda peer, request: False
            for each in waiting:
                ledger.answer(*each)
        return True

    ledger.before = before

    async def main() -> None:
        client = walld_client.aio.connect(path)
        sessions = [client.session(f"S{n}") for n in range(20)]
        turns = await asyncio.gather(*(one.submit("hello") for one in sessions))
        assert len({turn.turn_id for turn in turns}) == 20
        await client.close()

    asyncio.run(main())


# --- the workspace --------------------------------------------------------------------------------


def test_the_gate_is_told_what_the_workspace_is(
    client: Coloured, ledger: FakeLedger, tmp_path: Path
) -> None:
    session = client.session("S")
    assert session.resume_check() is None
    (tmp_path / "a").write_bytes(b"x")
    session.checkpoint_workspace(tmp_path, ["a"])
    found = payloads(ledger)[0]
    hashed = sha256(b"x").hexdigest()
    assert found[0] == "lifecycle"
    assert found[1]["fingerprint"]["files"] == {"a": hashed}
    ledger.views["resume"] = lambda arguments: {
        "status": "ok",
        "workspace": {"then": {"files": {"a": hashed, "b": None}}},
        "asked": arguments,
    }
    assert session.resume_check()["asked"] == {}
    given = session.resume_check(workspace=tmp_path)["asked"]["workspace"]
    assert given["files"] == {"a": hashed, "b": None}
    assert session.resume_check(workspace={"head": "x"})["asked"] == {"workspace": {"head": "x"}}
    assert session.resume_check(policy={"rm": "deny"})["asked"] == {
        "policy": {"tools": {"rm": "deny"}}
    }
    session.checkpoint_workspace(tmp_path, [Path("c")])
    assert payloads(ledger)[-1][1]["fingerprint"]["files"] == {"c": None}, "it has the others"
    (tmp_path / "b").write_bytes(b"x")
    session.checkpoint_workspace(tmp_path)
    assert payloads(ledger)[-1][1]["fingerprint"]["files"] == {"b": hashed}


def test_a_policy_may_be_a_function(client: Coloured, ledger: FakeLedger) -> None:
    session = client.session("S")
    session.message("user", "hello")
    calls = [
        {"turn": "t", "call_id": "c", "tool": "rm", "may": "run"},
        {"turn": "t", "call_id": "d", "tool": "ls", "may": "read_result"},
    ]
    ledger.views["resume"] = lambda arguments: {"calls": calls, "asked": arguments}
    asked = session.resume_check(policy=lambda call: "deny" if call["tool"] == "rm" else "allow")
    assert asked["asked"] == {
        "policy": {
            "tools": {"*": "ask"},
            "calls": [{"turn": "t", "call_id": "c", "word": "deny"}],
        }
    }
    for bad, named in ((5, TypeError), ({"rm": "no"}, ValueError), (lambda _: None, ValueError)):
        with pytest.raises(named, match=r"^policy must be"):
            session.resume_check(policy=bad)


# --- the page of the client -----------------------------------------------------------------------


def test_the_page_of_the_client(path: str, ledger: FakeLedger) -> None:
    page = Path(__file__).parents[4] / "clients/python/README.md"
    section = page.read_text().split("## Sessions")[1]
    space: dict[str, Any] = {}
    exec(section.split("```python\n")[1].split("```")[0], space)
    client = walld_client.connect(path)
    messages = space["answer"](client, "hello", lambda said: [one["content"] for one in said])
    assert [one["content"] for one in messages] == ["hello"]
    turn_id = ledger.sessions["chat-1"][0]["turn"]
    facts = {"turn_id": turn_id, "message_id": "m-17", "state": "submitted", "content": "hello"}
    ledger.views["audit"] = {"turns": [facts]}
    (step,) = space["after_a_crash"](client, [])
    assert step.message["content"] == "hello"
    for name in vars(walld_client.Session) | vars(walld_client.Turn):
        if not name.startswith("_") and name != "session_id":
            assert name in section, f"{name} is not there"
    client.close()


# --- switched off ---------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", ["sync", "aio"])
def test_switched_off_a_session_is_there_and_empty(
    colour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALLD_ENABLED", "0")
    before = sorted(os.listdir("/proc/self/fd")) if colour == "sync" else []
    client = connect(colour, str(tmp_path / "s"))
    session = client.session("S")
    turn = session.submit("hello", message_id="m1", stream_id="r1", attachments=[b"x"])
    assert (turn.message_id, turn.state, len(turn.turn_id)) == ("m1", "submitted", 16)
    turn.worker_started()
    with turn.reply() as reply:
        assert (reply.stream_id, reply.token("x")) == ("r1", 0)
        reply.end()
    entry = session.message("user", "x" * 300_000, id="mine")
    assert (entry.id, entry.seq) == ("mine", 0)
    assert len(session.append("a").id) == 16
    assert session.artifact(b"x").size == 1
    assert session.messages() is session.state() is session.resume_check() is None
    assert session.events() == session.find("a") == client.sessions() == []
    assert session.fork(None, "T").session_id == "T"
    assert client.delete("S") is False
    report = client.audit()
    assert (report.overall, report.exit_code) == ("ok", 0)
    assert client.repair_plan("S", present=[]) == []
    assert session.turn("t").turn_id == "t"
    assert session.turn(stream_id="r9").stream_ids == ["r9"]
    assert session.submit("again", retry_of="t").state == "submitted"
    client.let_go()
    assert list(tmp_path.iterdir()) == []
    if before:
        assert sorted(os.listdir("/proc/self/fd")) == before
