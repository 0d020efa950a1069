"""`walld session show` and `recover` behind a kill: all that is known, from a real daemon."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from agents.process import Obedient
from daemon_process import DaemonProcess, until

Cli = Callable[..., tuple[int, str, str]]
RISK = '{"side_effect": "external-write", "resume_policy": "require-user-confirmation"}'
WORKED = f"""
session = client.session("s")
session.append("model_change", {{"model": "large-2"}})
turn = session.submit("deploy it", message_id="m", model="large-1")
turn.intent("deploy", {{"to": "prod"}}, call_id="c1", **{RISK})
turn.decision("c1", "denied", reason="no tests ran")
turn.intent("look", {{}}, call_id="c2", side_effect="read", resume_policy="replay-from-event")
turn.tool_started("c2"); turn.tool_finished("c2", "green"); turn.observation("c2", "all is green")
session.append("verification", {{"name": "unit", "passed": True}}, turn=turn.turn_id)
session.append("budget", {{"remaining": 12, "limit": 100}})
session.append("lifecycle", {{"state": "paused"}})
session.append("my.mark", {{"note": "x" * 3000}})
reply = turn.reply(stream_id="r1")
reply.reasoning("They want prod."); reply.token("I looked, and now I wi")
other = client.reply("s", stream_id="r2")
other.token("aside, whole.")
other.drain(30, "synced"); reply.drain(30, "synced")
"""


@pytest.fixture
def killed(daemon: DaemonProcess, make_agent: Callable[..., Obedient]) -> DaemonProcess:
    agent = make_agent(daemon)
    agent.do(WORKED)
    agent.kill()
    for stream_id in ("r1", "r2"):
        daemon.orphan(stream_id)
    session = daemon.reader.session("s")
    until(lambda: session.state()["turns"][0]["state"] == "interrupted", "the turn to end")
    return daemon


def test_all_that_is_known_of_a_session_is_shown(killed: DaemonProcess, cli: Cli) -> None:
    code, out, _ = cli("session", "show", "s")
    assert code == 0
    lines = [line.strip() for line in out.splitlines()]
    (head,) = [line for line in lines if line.startswith("turn 1")]
    assert "interrupted (agent_lost)" in head
    assert any("model large-1" in line for line in lines)
    for line in (
        '- model_change {"model": "large-2"}',
        "decision: denied: no tests ran",
        "observed: all is green",
        '- verification {"name": "unit", "passed": true}',
        '- budget {"remaining": 12, "limit": 100}',
        '- lifecycle {"state": "paused"}',
        "= reply r1  crashed  partial (mid_sentence)  owner gone  not released",
        "(reasoning) They want prod.",
        "I looked, and now I wi",
        "= reply r2  crashed  cut off, though its text reads as whole  owner gone",
        "aside, whole.",
    ):
        assert lines.count(line) == 1, (line, out)
    (mark,) = [line for line in lines if line.startswith("- my.mark ")]
    assert mark.endswith(" ...")
    at = {line: lines.index(line) for line in lines}
    assert at[head] < at["= reply r1  crashed  partial (mid_sentence)  owner gone  not released"]
    assert at["I looked, and now I wi"] < at["outside of any turn"] < at["aside, whole."]


def test_the_json_has_it_too_and_what_it_had(killed: DaemonProcess, cli: Cli) -> None:
    told: list[dict[str, Any]] = json.loads(cli("session", "show", "s", "--json")[1])
    assert told == killed.reader.session("s").project("transcript")
    (turn,) = [one for one in told if one["turn_id"] is not None]
    assert (turn["state"], turn["model"]) == ("interrupted", "large-1")
    assert [one["message"]["content"] for one in turn["messages"]] == ["deploy it"]
    (reply,) = turn["replies"]
    assert (reply["stream_id"], reply["partial_reason"]) == ("r1", "mid_sentence")
    assert (reply["partial"], reply["owner_alive"]) == (True, False)
    (said,) = reply["messages"]
    assert (said["content"], said["reasoning"]) == ("I looked, and now I wi", "They want prod.")
    assert [one["type"] for one in turn["entries"]] == ["verification"]
    loose = [entry for one in told for entry in one.get("entries", ()) if one is not turn]
    by_type = {one["type"]: one for one in loose}
    assert set(by_type) == {"model_change", "budget", "lifecycle", "my.mark"}
    assert by_type["budget"]["payload"] == {"remaining": 12, "limit": 100}
    mark = by_type["my.mark"]
    assert mark["payload_cut"] == len(json.dumps({"note": "x" * 3000}))
    assert json.dumps({"note": "x" * 3000}).startswith(mark["payload"])
    apart = [
        one["stream_id"] for part in told if part is not turn for one in part.get("replies", ())
    ]
    assert apart == ["r2"]


def test_what_stands_in_the_session_is_told_once(killed: DaemonProcess, cli: Cli) -> None:
    """Also where the reply is not resolved yet, as between the two steps of adopting it."""
    session, reply = killed.reader.session("s"), killed.reader.recover(stream_id="r1")
    assert reply is not None
    (message,) = reply.messages()
    session.append("message", message, once=True, id="mine")
    out = cli("session", "show", "s")[1]
    assert out.count("I looked, and now I wi") == 1
    assert "what it said stands in the session" in out


def test_recover_says_that_there_are_others(killed: DaemonProcess, cli: Cli) -> None:
    code, out, err = cli("recover", "s", "--text")
    assert (code, out) == (0, "aside, whole.\n")
    assert "session s has 1 other reply not released: `walld ls s`" in err
    code, out, err = cli("recover", "--stream", "r1", "--text")
    assert (code, out, err) == (0, "I looked, and now I wi\n", "")
    code, out, err = cli("recover", "s", "--json", "--resolve")
    assert (json.loads(out)["stream_id"], "1 other reply" in err) == ("r2", True)
    code, out, err = cli("recover", "s", "--text")
    assert (code, out, err) == (0, "I looked, and now I wi\n", "")


def test_recover_says_so_of_a_directory_too(killed: DaemonProcess) -> None:
    killed.kill()
    done = killed.cli("recover", "s", "--text", "--data", str(killed.data))
    assert (done.returncode, done.stdout) == (0, b"aside, whole.\n")
    assert b"1 other reply not released" in done.stderr


def test_an_id_that_has_replies_alone_is_shown(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], cli: Cli
) -> None:
    agent = make_agent(daemon)
    agent.do("""
    reply = client.reply("only", stream_id="r")
    reply.token("It was said and n"); reply.tool("deploy", {}, call_id="c1")
    reply.drain(30, "synced")
    """)
    code, out, _ = cli("session", "show", "only")
    assert code == 0
    assert "= reply r  live  partial (tool_open)  owner alive  not released" in out
    agent.kill()
    daemon.orphan("r")
    code, out, err = cli("session", "show", "only")
    lines = [line.strip() for line in out.splitlines()]
    assert (code, lines[0]) == (0, "session only")
    assert "= reply r  crashed  partial (tool_open)  owner gone  not released" in lines
    assert "It was said and n" in lines
    assert "deploy (call c1) may have run" in err
    (part,) = json.loads(cli("session", "show", "only", "--json")[1])
    assert [one["tool"] for one in part["tools"]] == ["deploy"]
    code, out, err = cli("session", "show", "nothing")
    assert (code, out, err) == (3, "", "walld: there is no session nothing\n")
    assert daemon.reader.session("nothing").project("transcript") is None
    assert daemon.reader.resolve("r")
    for verb in ("explain", "resume-check"):  # of an id without a log nothing is left: it says that
        code, out, err = cli(verb, "only")
        assert (code, out) == (3, "")
        assert "it never was, or it had no log, and its replies were resolved" in err
