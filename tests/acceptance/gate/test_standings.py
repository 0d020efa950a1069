"""Where each of many sessions stands: the gate's word for the price of a look, never stale (Q6)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import DaemonProcess, until

from walld.sessions.gate.standing import standing

Cli = Callable[..., tuple[int, str, str]]
MakeAgent = Callable[..., Obedient]
DEPLOY = """intent("deploy", {}, call_id="c1", side_effect="external-write",
    resume_policy="require-user-confirmation")"""
CRASHED = f"""
for name in ("done", "waits", "blocked", "cut"):
    turn = client.session(name).submit("go", message_id="m", turn_id="t")
    if name == "done":
        with turn.reply() as reply:
            reply.token("It is done."); reply.end()
        turn.completed()
    elif name == "cut":
        reply = turn.reply(); reply.token("I was about to"); reply.drain(30, "synced")
    else:
        turn.{DEPLOY}
        turn.approval("c1", "asked") if name == "waits" else turn.tool_started("c1")
"""


def states(cli: Cli, *words: str) -> dict[str, str | None]:
    code, out, err = cli("session", "ls", "--json", *words)
    assert (code, err) == (0, "")
    return {one["session_id"]: one["state"] for one in json.loads(out)}


def state(cli: Cli, session_id: str) -> str | None:
    return states(cli, session_id)[session_id]


def judged(daemon: DaemonProcess, session_id: str) -> str:
    """The gate's own word, whole."""
    gate = daemon.reader.session(session_id).resume_check()
    assert gate is not None
    return standing(gate)


def test_each_word_and_who_needs_somebody(
    daemon: DaemonProcess, make_agent: MakeAgent, cli: Cli
) -> None:
    crashed, living = make_agent(daemon), make_agent(daemon)
    crashed.do(CRASHED)
    living.do("turn = client.session('live').submit('go', message_id='m')")
    assert set(states(cli).values()) == {"live", "done"}
    crashed.kill()
    words = {name: name for name in ("blocked", "cut", "done", "live", "waits")}
    until(lambda: states(cli) == words, "each owner that is gone to be missed")
    assert {name: judged(daemon, name) for name in words} == words
    assert list(states(cli, "--needs")) == ["blocked", "cut", "waits"]
    assert list(states(cli, "--needs", "wai")) == ["waits"]
    out = cli("session", "ls", "--needs")[1]
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["LAST", "EVENT", "UID", "EVENTS", "BYTES", "STATE", "SESSION"]
    assert [line[-2:] for line in lines[1:]] == [[name] * 2 for name in ("blocked", "cut", "waits")]
    assert daemon.terminate() == 0
    daemon.start()
    until(lambda: states(cli) == words | {"live": "live"}, "the living one to come back")
    living.kill()
    until(lambda: state(cli, "live") == "cut", "its owner to be missed")


def test_a_word_is_of_now_whatever_changes(
    daemon: DaemonProcess, make_agent: MakeAgent, cli: Cli
) -> None:
    """An entry, a settlement, a delete and what is begun anew in its place, as long as it was."""
    crashed = make_agent(daemon)
    crashed.do(CRASHED)
    crashed.kill()
    until(lambda: state(cli, "blocked") == "blocked", "its owner to be missed")
    assert cli("session", "settle", "blocked", "c1", "--ran")[0] == 0
    assert state(cli, "blocked") == judged(daemon, "blocked") == "cut"
    daemon.reader.session("blocked").append("budget", {"remaining": 0})
    assert state(cli, "blocked") == judged(daemon, "blocked") == "blocked"
    lengths = []
    for content in ("deploy it", "all done!"):
        session = daemon.reader.session("again")
        calls = [{"id": "c", "name": "deploy", "arguments": {}}] if content != "all done!" else []
        more = {"tool_calls": calls} if calls else {"padding": "x" * 44}
        session.append("message", {"role": "assistant", "content": content} | more, id="e")
        lengths.append(json.loads(cli("session", "ls", "again", "--json")[1])[0]["bytes"])
        assert state(cli, "again") == judged(daemon, "again") == ("done", "blocked")[bool(calls)]
        assert cli("session", "delete", "again")[0] == 0
        assert states(cli, "again") == {}
    assert lengths[0] == lengths[1], "only its words differ"


def test_a_reply_alone_changes_it(daemon: DaemonProcess, make_agent: MakeAgent, cli: Cli) -> None:
    """No entry says that it began, went on, that its owner is gone, or that it was resolved."""
    daemon.reader.session("s").message("user", "hello")
    assert state(cli, "s") == "done"
    agent = make_agent(daemon)
    agent.do(
        "reply = client.reply('s', stream_id='r'); reply.token('It'); reply.drain(30, 'synced')"
    )
    assert state(cli, "s") == "live"
    agent.kill()
    until(lambda: state(cli, "s") == "cut", "its owner to be missed")
    assert daemon.reader.session("s").state()["last_seq"] == 1
    assert cli("resolve", "r")[0] == 0
    assert state(cli, "s") == "done"


def test_a_process_that_a_call_named_is_looked_for_at_each_ask(
    daemon: DaemonProcess, make_agent: MakeAgent, cli: Cli
) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=-1)
    try:
        agent = make_agent(daemon)
        agent.do(f"""
        turn = client.session("s").submit("go", message_id="m")
        turn.intent("look", {{}}, call_id="c", side_effect="read",
                    resume_policy="replay-from-event")
        turn.tool_started("c", pid={child.pid})
        """)
        agent.kill()
        until(lambda: state(cli, "s") == "blocked", "its owner to be missed, not its child")
        session = daemon.reader.session("s")
        for last in ({}, {"last": 1}):
            result = session.messages("openai", **last)[-1]["content"]
            assert result == "This call is still running."
        assert [one["role"] for one in session.messages("openai", unknown="drop")] == ["user"]
        seq = daemon.reader.session("s").state()["last_seq"]
    finally:
        child.communicate()
    assert state(cli, "s") == judged(daemon, "s") == "cut"
    for last in ({}, {"last": 1}):
        result = session.messages("openai", **last)[-1]["content"]
        assert result.startswith("No result was recorded: the work stopped")
    assert daemon.reader.session("s").state()["last_seq"] == seq


def test_a_grant_that_expires_meanwhile(
    daemon: DaemonProcess, make_agent: MakeAgent, cli: Cli
) -> None:
    agent = make_agent(daemon)
    agent.do(f"""
    turn = client.session("s").submit("go", message_id="m")
    turn.{DEPLOY}
    turn.approval("c1", "granted", expires_at={time.time() + 3})
    """)
    agent.kill()
    until(lambda: judged(daemon, "s") != "live", "its owner to be missed")
    words = []
    while not words or words[-1] != "waits":
        before, word, after = judged(daemon, "s"), state(cli, "s"), judged(daemon, "s")
        assert word in (before, after)
        words.append(word)
    assert judged(daemon, "s") == "waits"


def test_an_artifact_that_is_gone_and_put_again(daemon: DaemonProcess, cli: Cli) -> None:
    session = daemon.reader.session("s")
    artifact = session.artifact(b"kept beside", media_type="text/plain")
    assert state(cli, "s") == "done"
    assert daemon.terminate() == 0
    digest = artifact.sha256
    (file,) = daemon.data.glob(f"sessions/*/s/artifacts/{digest}*")
    held = file.read_bytes()
    file.unlink()
    daemon.start()
    assert state(cli, "s") == judged(daemon, "s") == "blocked"
    file.write_bytes(held)
    assert state(cli, "s") == judged(daemon, "s") == "done"


def test_of_a_session_whose_sub_agent_works_it_is_looked_at_both(
    daemon: DaemonProcess, make_agent: MakeAgent, cli: Cli
) -> None:
    """No word of it is kept: what changes is in the other session, or is who lives."""
    parent, child = make_agent(daemon), make_agent(daemon)
    parent.do(f"session = client.session('p'); turn = session.submit('go'); turn.{DEPLOY}")
    parent.do("session.child('c', call_id='c1'); turn.tool_started('c1')")
    child.do("sub = client.session('c').submit('look')")
    child.do(f"sub.{DEPLOY.replace('c1', 'k')}; sub.tool_started('k')")
    assert state(cli, "p") == "live"
    parent.kill()
    until(lambda: judged(daemon, "p") == "live", "the child lives")
    assert state(cli, "p") == "live"
    child.kill()
    until(lambda: state(cli, "c") == "blocked", "nobody knows what became of its call")
    assert state(cli, "p") == judged(daemon, "p") == "blocked"
    daemon.reader.session("c").settle("k", "did_not_run")
    assert state(cli, "p") == judged(daemon, "p") == "cut"


def test_a_session_waits_for_whom_its_sub_agent_waits(
    daemon: DaemonProcess, make_agent: MakeAgent, cli: Cli
) -> None:
    agent = make_agent(daemon)
    agent.do(f"session = client.session('p'); turn = session.submit('go'); turn.{DEPLOY}")
    agent.do("session.child('c', call_id='c1'); turn.tool_started('c1')")
    agent.do("sub = client.session('c').submit('look')")
    agent.do(f"sub.{DEPLOY.replace('c1', 'k')}; sub.approval('k', 'asked')")
    agent.kill()
    until(lambda: state(cli, "c") == "waits", "a yes or a no")
    assert state(cli, "p") == judged(daemon, "p") == "waits"


def test_no_line_is_read_while_nothing_changed(daemon: DaemonProcess, cli: Cli) -> None:
    """Seen by damage in the middle of a file, which a disk does and no program: a word tells of it
    once something else changes, and the gate at once.
    """
    session = daemon.reader.session("s")
    for number in range(40):
        session.message("user", f"message {number}", id=f"e{number}")
    assert daemon.terminate() == 0
    session = daemon.start().reader.session("s")
    assert session.resume_check()["status"] == "ok"
    assert state(cli, "s") == "done"
    file = daemon.events_path("s")
    held = bytearray(file.read_bytes())
    held[len(held) // 2] ^= 1
    with file.open("r+b") as opened:
        opened.write(held)
    assert state(cli, "s") == "done"
    session.message("user", "one more")
    assert state(cli, "s") == judged(daemon, "s") == "blocked"


def test_more_than_one_question(daemon: DaemonProcess, cli: Cli) -> None:
    for number in range(150):
        daemon.reader.session(f"s{number:03}").append("note", {"n": number})
    assert len(states(cli)) == 150
    assert set(states(cli).values()) == {"done"}
    with pytest.raises(walld_client.Refused) as refused:
        daemon.reader.session("s").project("standing", sessions=["s"] * 65)
    assert (refused.value.code, refused.value.got, refused.value.limit) == (
        "bad_argument",
        "65",
        "64",
    )


def test_behind_a_closed_tab_nobody_works_though_its_process_lives(
    daemon: DaemonProcess, agent: Obedient, cli: Cli
) -> None:
    agent.do("""
    turn = client.session("s").submit("go", message_id="m")
    r = turn.reply(); r.token("I am ha"); r.cancel("tab closed"); turn.interrupted("tab closed")
    alone = client.reply("tab"); alone.token("half"); alone.cancel("tab closed")
    r.drain(30, "synced"); alone.drain(30, "synced")
    """)
    assert states(cli, "--needs") == {"s": "cut"}
    for name in ("s", "tab"):
        told = daemon.reader.session(name).explain()
        assert (told["state"], told["saying"][0]["owner_alive"]) == ("cut", True)
    waiting = json.loads(cli("ls", "--json", "--needs")[1])
    assert [(one["session_id"], one["state"]) for one in waiting] == [("s", "cut"), ("tab", "cut")]
    agent.do("client.release(r.stream_id); client.release(alone.stream_id)")
    until(lambda: not daemon.reader.recover_all(), "both are released")
    assert cli("ls", "--needs")[1] == "no reply needs anybody\n"


def test_replies_that_are_not_released_have_a_state(
    daemon: DaemonProcess, make_agent: MakeAgent, cli: Cli
) -> None:
    """One that has ended and waits for its program is live as long as that is."""
    gone, living = make_agent(daemon), make_agent(daemon)
    said = "reply = client.reply({0!r}, stream_id={0!r}, auto_release=False); reply.token('It.')"
    said += "; reply.drain(30, 'synced')"
    gone.do(said.format("gone"))
    living.do(said.format("ended") + "; reply.end(); reply.drain(30, 'synced')")
    gone.kill()
    daemon.orphan("gone")

    def told(*words: str) -> dict[str, Any]:
        found = json.loads(cli("ls", "--json", *words)[1])
        return {one["stream_id"]: (one["state"], one["status"]) for one in found}

    assert told() == {"gone": ("cut", "crashed"), "ended": ("live", "complete")}
    assert told("--needs") == {"gone": ("cut", "crashed")}
    code, out, _ = cli("ls", "--needs")
    lines = [line.split() for line in out.splitlines()]
    assert (code, lines[0][2], lines[1][3], len(lines)) == (0, "STATE", "cut", 2)
    assert cli("resolve", "gone")[0] == 0
    assert cli("ls", "--needs")[:2] == (0, "no reply needs anybody\n")
    daemon.kill()
    offline = ("ls", "--json", "--data", str(daemon.data))
    (ended,) = json.loads(daemon.cli(*offline).stdout)
    assert ended["state"] == "live", "its process is there, whatever became of the daemon"
    living.kill()
    (ended,) = json.loads(daemon.cli(*offline, "--needs").stdout)
    assert ended["state"] == "cut"
