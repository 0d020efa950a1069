"""A person says what became of a call, also where its turn has ended; gate and model hear of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import DaemonProcess, until

STARTED = """
session = client.session('s'); turn = session.submit('deploy it', message_id='m')
turn.intent('deploy', {'to': 'prod'}, side_effect='external-write',
            resume_policy='never-rerun', call_id='c1')
turn.tool_started('c1')
"""


@pytest.fixture
def session(daemon: DaemonProcess, make_agent: Callable[..., Obedient]) -> Any:
    """One whose agent was killed inside `deploy`."""
    agent = make_agent(daemon)
    agent.do(STARTED)
    agent.kill()
    session = daemon.reader.session("s")
    until(lambda: session.resume_check()["owner"] is None, "its process is gone")
    gate = session.resume_check()
    assert (gate["status"], gate["calls"][0]["why"]) == ("blocked", "may_have_run")
    assert gate["calls"][0]["arguments"] == {"to": "prod"}
    (reason,) = gate["reasons"]
    command = "`walld session settle s c1 --ran` (or --did-not-run, --grant)"
    assert reason["message"].endswith(command)
    return session


def sent(session: Any) -> str:
    """What the model is told of the call."""
    (told,) = [one["content"] for one in session.messages("openai") if one["role"] == "tool"]
    return str(told)


def settle(daemon: DaemonProcess, *words: str) -> Any:
    return daemon.cli("session", "settle", "s", *words, "--socket", daemon.socket_path)


def test_it_ran(daemon: DaemonProcess, session: Any, tmp_path: Path) -> None:
    done = settle(daemon, "c1", "--ran", "--by", "ops")
    assert (done.returncode, done.stdout[:12]) == (0, b"settled: ran"), done.stderr
    assert (session.resume_check()["status"], session.project("pending")[0]["action"]) == (
        "ok",
        "answer_turn",
    )
    assert sent(session) == "This call ran; its result was not recorded."
    first = session.find("tool_settled")
    assert settle(daemon, "c1", "--ran").returncode == 0
    assert session.find("tool_settled") == first, "the same word is the first entry"
    (tmp_path / "out").write_text("it is up")
    done = settle(daemon, "c1", "--did-not-run")
    assert (done.returncode, sent(session)) == (0, "This call did not run.")
    done = settle(daemon, "c1", "--ran", "--result", str(tmp_path / "out"))
    assert (done.returncode, sent(session)) == (0, "it is up"), "the newest word counts"
    assert len(session.find("tool_settled")) == 3


def test_it_may_run_and_a_retry_takes_its_place(daemon: DaemonProcess, session: Any) -> None:
    done = settle(daemon, "c1", "--grant", "--for", "1h")
    assert done.returncode == 0, done.stderr
    gate = session.resume_check()
    assert (gate["status"], gate["calls"][0]["may"]) == ("ok", "run")
    (entry,) = session.find("tool_settled")
    first = session.state()["turns"][0]["turn_id"]
    assert entry["payload"]["of"] == {"turn": first, "call_id": "c1"}
    turn = session.submit("deploy it", retry_of=first)
    turn.intent(
        "deploy",
        {"to": "prod"},
        side_effect="external-write",
        resume_policy="never-rerun",
        call_id="k9",
    )
    turn.tool_started("k9")
    turn.tool_finished("k9", "deployed")
    assert session.resume_check()["status"] == "ok"
    assert sent(session) == "deployed"


def test_a_grant_that_has_expired_is_renewed(daemon: DaemonProcess, session: Any) -> None:
    """The word is the same, what it says is not: the first entry was given back, the gate shut."""
    assert session.settle("c1", "granted", expires_at=10).is_new
    assert session.resume_check()["calls"][0]["may"] == "never"
    assert settle(daemon, "c1", "--grant", "--for", "1h").returncode == 0
    assert session.resume_check()["calls"][0]["may"] == "run"
    for scope in ({"tool": "mail"}, {"tool": "deploy"}):
        entry = session.settle("c1", "granted", scope=scope)
        assert entry.is_new
        again = session.settle("c1", "granted", scope=scope, by="anna", note="again")
        assert (again.id, again.is_new) == (entry.id, False)
        is_it = scope["tool"] == "deploy"
        assert session.resume_check()["calls"][0]["may"] == ("run" if is_it else "never")


def test_a_result_that_is_said_again_is_the_first_entry(session: Any) -> None:
    """Also one that is long, which stands beside the session."""
    for result in ("up", {"ports": [1, 2]}, "x" * 2_000_000, None):
        entry = session.settle("c1", "ran", result=result)
        assert entry.is_new
        assert not session.settle("c1", "ran", result=result).is_new
    assert len(session.find("tool_settled")) == 4


@pytest.mark.parametrize("asks", ["turn.approval('c1', 'asked')", ""])
def test_a_call_that_waited_for_a_person_may_run_once_one_says_so(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], asks: str
) -> None:
    """Killed while it waited: the turn has ended, and nobody could grant it there."""
    agent = make_agent(daemon)
    policy = "'never-rerun'" if asks else "'require-user-confirmation'"
    agent.do(STARTED.replace("'never-rerun'", policy).replace("turn.tool_started('c1')", asks))
    agent.kill()
    session = daemon.reader.session("s")
    until(lambda: session.resume_check()["owner"] is None, "its process is gone")
    gate = session.resume_check()
    assert (gate["status"], gate["calls"][0]["may"]) == ("blocked", "ask_user")
    assert settle(daemon, "c1", "--grant", "--for", "1h").returncode == 0
    gate = session.resume_check()
    assert (gate["status"], gate["calls"][0]["why"]) == ("ok", "never_started")
    assert settle(daemon, "c1", "--deny").returncode == 0
    assert session.resume_check()["status"] == "ok", "it is denied: nothing is left to ask"


def test_the_tools_own_word_comes_behind_a_persons(daemon: DaemonProcess, session: Any) -> None:
    """What a person took for not run came back: it is what the model sees, and is open no more."""
    assert settle(daemon, "c1", "--did-not-run").returncode == 0
    assert sent(session) == "This call did not run."
    turn = session.turn(session.resume_check()["turn"])
    turn.tool_finished("c1", "deployed")
    assert sent(session) == "deployed"
    assert "deployed" in str(session.messages("anthropic"))
    gate = session.resume_check()
    assert [(one["outcome"], one["may"]) for one in gate["calls"]] == [("done", "read_result")]
    assert [one["outcome"] for one in session.explain()["done"]] == ["done"]
    again = settle(daemon, "c1", "--did-not-run")
    assert (again.returncode, b"unknown_call" in again.stderr) == (1, True), again.stderr
    assert sent(session) == "deployed"


def test_a_retry_that_did_not_run_leaves_the_first_open(
    daemon: DaemonProcess, session: Any, make_agent: Callable[..., Obedient]
) -> None:
    assert settle(daemon, "c1", "--grant").returncode == 0
    agent = make_agent(daemon)
    agent.do("session = client.session('s'); turn = session.resume()")
    agent.do(STARTED.partition("message_id='m')")[2].replace("'c1'", "'c2'"))
    agent.kill()
    until(lambda: session.resume_check()["owner"] is None, "its process is gone")
    assert [one["call_id"] for one in session.resume_check()["calls"]] == ["c2"]
    assert settle(daemon, "c2", "--did-not-run").returncode == 0
    gate = session.resume_check()
    assert (gate["status"], gate["calls"][0]["call_id"]) == ("blocked", "c1")
    assert gate["calls"][0]["why"] == "may_have_run", "its grant was used up by the start of c2"
    assert [one["call_id"] for one in session.explain()["unknown"]] == ["c1"]
    told = [one["content"] for one in session.messages("openai") if one["role"] == "tool"]
    assert told[0].startswith("No result was recorded")
    assert told[1:] == ["This call did not run."]
    assert settle(daemon, "c1", "--grant").returncode == 0
    assert session.resume_check()["calls"][0]["why"] == "granted", "anew"


def test_what_is_denied_is_never_run(daemon: DaemonProcess, session: Any) -> None:
    assert settle(daemon, "c1", "--deny", "--note", "not on a Friday").returncode == 0
    gate = session.resume_check()
    assert (gate["status"], gate["calls"][0]["may"]) == ("blocked", "never")
    assert sent(session) == "The user rejected deploy: not on a Friday; it may have run before that"
    assert settle(daemon, "c1", "--did-not-run", "--by", "ops").returncode == 0
    assert sent(session) == "This call did not run.", "the newest word counts"
    (turn,) = session.project("transcript")
    said = [one.get("word") for one in turn["tools"][0]["decisions"]]
    assert said == ["denied", "did_not_run"], "both are told"
    shown = daemon.cli("session", "show", "s", "--socket", daemon.socket_path).stdout.decode()
    assert "settled: denied: not on a Friday" in shown
    assert "settled: did_not_run by ops" in shown


@pytest.mark.parametrize("books", ["turn", "reply"])
def test_what_was_denied_is_not_safe_to_repeat(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], books: str
) -> None:
    """Its program says that to run it twice changes nothing: that was `run`, whatever was said."""
    agent = make_agent(daemon)
    risk = "side_effect='read', resume_policy='rerun-after-check', idempotency='safe'"
    said = {
        "turn": f"turn.intent('look', {{}}, call_id='c1', {risk}); turn.tool_started('c1')",
        "reply": f"r = turn.reply(); r.tool('look', {{}}, call_id='c1', {risk}); r.drain(30)",
    }
    agent.do(f"turn = client.session('s').submit('go'); {said[books]}")
    agent.kill()
    session = daemon.reader.session("s")
    until(lambda: session.resume_check()["owner"] is None, "its process is gone")
    assert session.resume_check()["calls"][0]["may"] == "run"
    session.settle("c1", "denied")
    gate = session.resume_check()
    assert (gate["status"], gate["calls"][0]["may"]) == ("blocked", "never")
    assert sent(session) == "The user rejected look; it may have run before that"
    session.settle("c1", "did_not_run")
    assert (session.resume_check()["status"], sent(session)) == ("ok", "This call did not run.")


def test_a_call_of_a_reply_without_a_turn(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do("""
    both = [client.reply('s', stream_id=name) for name in ('a', 'b')]
    [(one.tool('deploy', {}, call_id='c1'), one.drain(30, 'synced')) for one in both]
    """)
    session = daemon.reader.session("s")
    with pytest.raises(walld_client.Refused) as refused:
        session.settle("c1", "ran")
    assert refused.value.code == "ambiguous_call"
    with pytest.raises(walld_client.Refused) as refused:
        session.settle("c1", "ran", stream_id="a")
    assert refused.value.code == "call_at_work"
    agent.kill()
    until(lambda: len(daemon.reader.orphans("s")) == 2, "its process is gone")
    assert session.settle("c1", "ran", stream_id="a").is_new
    gate = session.resume_check()
    assert [one["stream"] for one in gate["calls"] if one["may"] != "read_result"] == ["b"]
    assert session.settle("c1", "did_not_run", stream_id="b").is_new
    assert session.resume_check()["status"] == "ok"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing", "--ran"), b"code unknown_call, got nothing, limit c1"),
        (("c1", "--ran", "--turn", "t9"), b"code unknown_call"),
        (("c1", "--deny", "--result", "-"), b"--result is of --ran"),
        (("c1", "--ran", "--for", "1h"), b"--for is of --grant"),
        (("c1", "--grant", "--for", "soon"), b"90s, 15m, 1h, 2d"),
        (("c1",), b"required"),
    ],
)
def test_what_is_no_settlement_is_one_error(
    daemon: DaemonProcess, session: Any, words: tuple[str, ...], said: bytes
) -> None:
    done = settle(daemon, *words)
    assert (done.returncode in (1, 64), said in done.stderr) == (True, True), done.stderr
    assert session.find("tool_settled") == []
    with pytest.raises(ValueError, match="word must be one of"):
        session.settle("c1", "maybe")


def test_a_call_that_only_a_reply_said_may_run_once_a_person_says_so(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """It has no start that the grant could be behind: the gate stayed shut."""
    agent = make_agent(daemon)
    agent.do("""
    turn = client.session('s').submit('go'); reply = turn.reply()
    reply.tool('deploy', {}, call_id='c1', side_effect='network', resume_policy='never-rerun')
    reply.drain(30, 'synced')
    """)
    agent.kill()
    session = daemon.reader.session("s")
    until(lambda: session.resume_check()["owner"] is None, "its process is gone")
    assert session.resume_check()["status"] == "blocked"
    session.settle("c1", "granted", by="anna")
    gate = session.resume_check()
    assert (gate["status"], gate["calls"][0]["why"]) == ("ok", "granted")


RISK = {"side_effect": "external-write", "resume_policy": "rerun-after-check"}


def said_twice(session: Any, **more: Any) -> None:
    for name in ("deploy", "mail"):
        call = {"id": "call_1", "name": name, "arguments": {}} | RISK
        session.message("assistant", "", tool_calls=[call], **more)


@pytest.mark.parametrize("is_of_a_turn", [True, False])
def test_calls_of_one_id_are_told_apart_by_how_often_it_came(
    daemon: DaemonProcess, is_of_a_turn: bool
) -> None:
    """No word named one of them: the gate stayed shut."""
    session = daemon.reader.session("s")
    turn = None
    if is_of_a_turn:
        of = session.submit("go")
        turn = of.turn_id
    said_twice(session, **({} if turn is None else {"turn": turn}))
    if is_of_a_turn:
        of.interrupted("stopped")
    place = turn or "no turn"
    for more in ({}, {} if turn is None else {"turn": turn}):
        with pytest.raises(walld_client.Refused, match="n=") as refused:
            session.settle("call_1", "ran", **more)
        assert (refused.value.code, refused.value.limit) == (
            "ambiguous_call",
            f"deploy (said) of {place}, n 1, mail (said) of {place}, n 2",
        )
    if is_of_a_turn:
        with pytest.raises(walld_client.Refused, match="n="):
            session.resume(checked={"call_1": "ran"}, accept="check")
    done = settle(daemon, "call_1", "--ran")
    assert (done.returncode, b"--n" in done.stderr) == (1, True), done.stderr
    shown = daemon.cli("resume-check", "s", "--socket", daemon.socket_path).stdout
    assert b"mail (call call_1, n 2)" in shown
    assert b"    arguments: {}" in shown
    where = "" if turn is None else f" --turn {turn}"
    command = f"walld session settle s call_1{where} --n 2"
    assert f"`{command} --ran` (or --did-not-run, --grant)".encode() in shown
    done = settle(daemon, *command.split()[4:], "--ran")
    assert done.returncode == 0, done.stderr
    if is_of_a_turn:
        assert not session.settle("call_1", "ran", n=2).is_new, "it is that entry"
    assert [(one["tool"], one["n"]) for one in open_calls(session)] == [("deploy", 1)]
    assert session.settle("call_1", "did_not_run", n=1).is_new
    assert (open_calls(session), session.resume_check()["status"]) == ([], "ok")
    told = session.project("messages")
    calls = [one for message in told for one in message.get("tool_calls", ())]
    assert [(one["name"], one["outcome"]) for one in calls] == [
        ("deploy", "not_run"),
        ("mail", "done"),
    ]
    for n in (0, 3):
        done = settle(daemon, "call_1", "--ran", "--n", str(n))
        assert (done.returncode in (1, 64), done.stderr.count(b"\n")) == (True, 1), done.stderr


def open_calls(session: Any) -> list[Any]:
    return [one for one in session.resume_check()["calls"] if one["may"] != "read_result"]


def test_a_tool_message_settles_the_newest_call_of_an_id_first(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    turn = session.submit("go").turn_id
    said_twice(session, turn=turn)
    for gave in ("sent", "deployed"):
        session.message("tool", gave, turn=turn, tool_call_id="call_1")
    assert session.resume_check()["status"] == "ok"
    told = session.project("messages")
    calls = [one for message in told for one in message.get("tool_calls", ())]
    assert [(one["name"], one["outcome"]) for one in calls] == [
        ("deploy", "done"),
        ("mail", "done"),
    ]


def test_calls_of_one_id_in_replies_of_one_turn_are_told_apart(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """And stay so once they are adopted, in whatever order: a place in a reply names each."""
    agent = make_agent(daemon)
    agent.do("""
    turn = client.session('s').submit('go')
    both = [(name, turn.reply(stream_id='of ' + name)) for name in ('deploy', 'mail')]
    [(one.tool(name, {}, call_id='call_1'), one.drain(30, 'synced')) for name, one in both]
    """)
    agent.kill()
    session = daemon.reader.session("s")
    until(lambda: session.resume_check()["owner"] is None, "its process is gone")
    assert [(one["tool"], one["n"]) for one in open_calls(session)] == [("deploy", 1), ("mail", 2)]
    assert session.settle("call_1", "did_not_run", n=1).is_new
    assert [(one["tool"], one["n"]) for one in open_calls(session)] == [("mail", 2)]
    for stream in ("of mail", "of deploy"):
        (reply,) = (one for one in daemon.reader.orphans("s") if one.stream_id == stream)
        for message in reply.messages():
            name = f"{stream}:{message['_wal_seq']}"
            session.append("message", message, id=name, once=True, turn=reply.turn_id)
        daemon.reader.resolve(stream)
        assert [one["tool"] for one in open_calls(session)] == ["mail"]
    assert session.settle("call_1", "ran", n=1).is_new, "mail is in the log, and before deploy"
    assert session.resume_check()["status"] == "ok"


def test_a_command_that_cannot_be_is_told_as_every_other(
    daemon: DaemonProcess, session: Any, tmp_path: Path
) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    done = settle(daemon, "c1", "--ran", "--result", str(tmp_path / "bytes"))
    assert (done.returncode, b"cannot be read as UTF-8" in done.stderr) == (66, True)
    done = settle(daemon, "c1", "--ran", "--result", str(tmp_path / "none"))
    assert (done.returncode, b"No such file" in done.stderr) == (66, True)
    assert settle(daemon, "c1", "--ran", "--for", "1h").returncode == 64
    assert session.find("tool_settled") == [], "nothing was said"
