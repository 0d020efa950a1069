"""Ten sessions that stopped, and the four questions: what was done, what was being said, what is
unknown, what may be done. Each was made by an agent that was killed; the truth stands beside it.

The tenth, whose reply went for its age, takes days: `virtual_time/test_grace_and_reclaim.py`.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from agents.process import Obedient
from daemon_process import DaemonProcess, until

MakeAgent = Callable[..., Obedient]

SUBMIT: Final = """
session = client.session('s'); turn = session.submit('deploy it', message_id='m', calls='journal')
def intent(call, tool, arguments={}, effect='external-write', policy='never-rerun'):
    turn.intent(tool, arguments, side_effect=effect, resume_policy=policy, call_id=call)
def run(call, tool, result, arguments={}, **more):
    intent(call, tool, arguments, 'read', 'replay-from-event')
    turn.tool_started(call); turn.tool_finished(call, result, **more)
"""
IN_A_TOOL: Final = """
run('c1', 'read', 'port 80', {'path': 'site.conf'})
intent('c2', 'deploy', {'to': 'prod'}); turn.tool_started('c2')
"""


class Truth(NamedTuple):
    """What is so. done, refused, unknown: (tool, result, reason or what may be done). may: actions
    in order, each with how many commands it has.
    """

    state: str
    done: tuple[tuple[str, object], ...] = ()
    refused: tuple[tuple[str, str, object], ...] = ()
    saying: tuple[tuple[str, bool], ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()
    may: tuple[tuple[str, int], ...] = ()


READ: Final = ("read", "port 80")
RESUME: Final = ("resume", 0)
CASES: Final = {
    "killed in a tool": (
        SUBMIT + IN_A_TOOL,
        Truth(
            "blocked",
            done=(READ,),
            unknown=(("deploy", "never"),),
            may=(("settle", 3), RESUME),
        ),
    ),
    "waits for approval": (
        SUBMIT + "intent('c2', 'deploy', {'to': 'prod'}); turn.approval('c2', 'asked')",
        Truth("waits", may=(("decide", 2), RESUME)),
    ),
    "cut within a word": (
        SUBMIT
        + """
reply = turn.reply(stream_id='r'); reply.reasoning('Where is it?')
reply.token('It is at por'); reply.drain(30, 'synced')
""",
        Truth("cut", saying=(("It is at por", True),), may=(("adopt", 3), RESUME)),
    ),
    "denied": (
        SUBMIT
        + """
intent('c1', 'mail', {'to': 'all'}); turn.approval('c1', 'denied', reason='not today')
intent('c2', 'wipe'); turn.decision('c2', 'deny', reason='never')
""",
        Truth(
            "cut",
            refused=(("mail", "user", "not today"), ("wipe", "policy", "never")),
            may=(RESUME,),
        ),
    ),
    "budget used up": (
        SUBMIT + "run('c1', 'read', 'port 80'); session.append('budget', {'used': 5, 'limit': 5})",
        Truth("blocked", done=(READ,), may=(("mend", 0), RESUME)),
    ),
}


def explained(daemon: DaemonProcess, session: str = "s", *words: str) -> Any:
    done = daemon.cli("explain", session, *words, "--json", "--socket", daemon.socket_path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def read(daemon: DaemonProcess, session: str = "s", *words: str) -> str:
    """The text."""
    done = daemon.cli("explain", session, *words, "--socket", daemon.socket_path)
    assert (done.returncode, done.stderr) == (0, b"")
    return str(done.stdout.decode())


def tell(told: dict[str, Any]) -> Truth:
    """The four answers of the JSON."""
    return Truth(
        told["state"],
        tuple((one["tool"], one["result"]) for one in told["done"]),
        tuple((one["tool"], one["denied_by"], one["denied_because"]) for one in told["refused"]),
        tuple((one["text"], one["partial"]) for one in told["saying"]),
        tuple((one["tool"], one["may"]) for one in told["unknown"]),
        tuple((one["action"], len(one["commands"])) for one in told["may"]),
    )


def gone(daemon: DaemonProcess, session: str = "s") -> Any:
    """Once nobody is at work on it."""
    until(lambda: explained(daemon, session)["owner"] is None, "its process is gone")
    return explained(daemon, session)


def typed(daemon: DaemonProcess, command: str) -> None:
    """As a person does."""
    words = shlex.split(command)
    assert words[0] == "walld"
    done = daemon.cli(*words[1:])
    assert done.returncode == 0, (command, done.stderr)


@pytest.mark.parametrize("name", CASES)
def test_what_stopped_is_explained(daemon: DaemonProcess, make_agent: MakeAgent, name: str) -> None:
    source, truth = CASES[name]
    agent = make_agent(daemon)
    agent.do(source)
    agent.kill()
    told = gone(daemon)
    assert tell(told) == truth
    assert [one["content"] for one in told["asked"]] == ["deploy it"]
    assert told["asked"][0]["state"] == "interrupted"
    assert read(daemon).startswith(f"session s:  {truth.state}  ")


def test_every_command_works_when_it_is_typed(daemon: DaemonProcess, make_agent: MakeAgent) -> None:
    """Those of three sessions one after the other, until nothing is open but to go on."""
    for name in ("killed in a tool", "waits for approval", "cut within a word"):
        session = name.split(maxsplit=1)[0]
        agent = make_agent(daemon)
        agent.do(CASES[name][0].replace("session('s')", f"session('{session}')"))
        agent.kill()
        first = gone(daemon, session)["may"][0]
        for one in first["commands"]:
            typed(daemon, one["command"])
            left = [row["action"] for row in explained(daemon, session)["may"]]
            assert left[-1] == "resume"
        assert explained(daemon, session)["state"] == "cut"
        assert [one["action"] for one in explained(daemon, session)["may"]][:-1] in (
            ["run"],
            [],
        ), "granted last, or denied; resolved"


def test_what_is_asked_is_said_to_go_on_and_done(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    """The Python of the last row, and what came of it."""
    agent = make_agent(daemon)
    agent.do(SUBMIT)
    agent.kill()
    (row,) = gone(daemon)["may"]
    turn = eval(row["python"], {"client": daemon.reader})
    assert explained(daemon)["state"] == "live"
    reply = turn.reply()
    reply.token("It is up.")
    reply.end()
    reply.release()
    turn.completed()
    told = explained(daemon)
    assert (told["state"], told["may"]) == ("done", [])
    assert [(one["answer"], one["state"]) for one in told["asked"]] == [
        (None, "interrupted"),
        ("It is up.", "completed"),
    ]
    assert told["asked"][1]["retry_of"] == told["asked"][0]["turn"]


def test_a_living_owner(daemon: DaemonProcess, make_agent: MakeAgent) -> None:
    agent = make_agent(daemon)
    agent.do(
        SUBMIT
        + IN_A_TOOL
        + "reply = turn.reply(stream_id='r'); reply.token('I am at it'); reply.drain(30, 'synced')"
    )
    told = explained(daemon)
    assert tell(told) == Truth(
        "live", done=(READ,), saying=(("I am at it", True),), may=(("wait", 0),)
    )
    assert [(one["tool"], one["why"]) for one in told["running"]] == [("deploy", "at_work")]
    assert told["owner"]["pid"] == agent.pid
    assert f"process {agent.pid} is at work" in read(daemon)


def test_two_agents_of_which_one_was_killed(daemon: DaemonProcess, make_agent: MakeAgent) -> None:
    agent, other = make_agent(daemon), make_agent(daemon)
    agent.do(SUBMIT + IN_A_TOOL)
    other.do("""
    reply = client.reply('s', stream_id='q'); reply.token('and I'); reply.drain(30, 'synced')
    """)
    agent.kill()
    until(lambda: explained(daemon)["running"] == [], "its process is gone")
    told = explained(daemon)
    assert tell(told) == Truth(
        "live",
        done=(READ,),
        saying=(("and I", True),),
        unknown=(("deploy", "never"),),
        may=(("wait", 0), ("settle", 3)),
    )


def test_a_workspace_that_was_changed(
    daemon: DaemonProcess, make_agent: MakeAgent, tmp_path: Path
) -> None:
    tree = tmp_path / "a tree"
    tree.mkdir()
    (tree / "site.conf").write_text("port 80")
    agent = make_agent(daemon)
    agent.do(f"""{SUBMIT}
session.checkpoint_workspace({str(tree)!r}, ['site.conf'])
""")
    agent.kill()
    told = gone(daemon)
    assert (told["state"], told["workspace"]["verdict"]) == ("cut", "not_compared")
    assert tell(told).may == (("mend", 1), RESUME)
    assert told["may"][0]["commands"][0]["command"].startswith("walld explain s --workspace DIR")
    (tree / "site.conf").write_text("port 81")
    told = explained(daemon, "s", "--workspace", str(tree))
    assert (told["state"], told["workspace"]["changed"]) == ("blocked", ["file site.conf"])
    (row,) = [one for one in told["may"] if one["code"] == "workspace_changed"]
    typed(daemon, row["commands"][0]["command"])


def test_an_import(daemon: DaemonProcess, make_agent: MakeAgent, tmp_path: Path) -> None:
    agent = make_agent(daemon)
    agent.do(SUBMIT + IN_A_TOOL)
    agent.kill()
    gone(daemon)
    exported = daemon.cli("session", "export", "s", "--socket", daemon.socket_path)
    (tmp_path / "s.jsonl").write_bytes(exported.stdout)
    typed(
        daemon, f"walld session import {tmp_path}/s.jsonl --session t --socket {daemon.socket_path}"
    )
    told = explained(daemon, "t")
    assert tell(told) == CASES["killed in a tool"][1]
    for one in told["may"][0]["commands"]:
        typed(daemon, one["command"])
    assert [one["kind"] for one in told["notes"]] == ["import"]


def test_an_id_that_has_replies_alone(daemon: DaemonProcess, make_agent: MakeAgent) -> None:
    agent = make_agent(daemon)
    agent.do("""
    reply = client.reply('s', stream_id='r'); reply.token('I deploy.')
    reply.tool('deploy', {'to': 'prod'}, call_id='c1'); reply.drain(30, 'synced')
    """)
    agent.kill()
    told = gone(daemon)
    assert tell(told) == Truth(
        "blocked",
        saying=(("I deploy.", True),),
        unknown=(("deploy", "ask_user"),),
        may=(("settle", 3), ("adopt", 3)),
    )
    said_at = told["unknown"][0]["since_ms"]
    assert told["saying"][0]["started_at_ms"] <= said_at <= told["saying"][0]["last_event_at_ms"]
    settle, adopt = told["may"]
    for one in (settle["commands"][1], *adopt["commands"][:2]):
        typed(daemon, one["command"])
    told = explained(daemon)
    assert tell(told) == Truth("done", done=(("deploy", None),))
    assert (told["done"][0]["outcome"], told["done"][0]["settled"]) == ("not_run", "did_not_run")


def test_a_call_that_is_to_be_looked_at(daemon: DaemonProcess, make_agent: MakeAgent) -> None:
    agent = make_agent(daemon)
    agent.do(f"{SUBMIT}\nintent('c2', 'deploy', policy='rerun-after-check')")
    agent.do("turn.tool_started('c2')")
    agent.kill()
    unknown = (("deploy", "check_then_run"),)
    assert tell(gone(daemon)) == Truth("cut", unknown=unknown, may=(("check", 3), RESUME))
    look, resume = explained(daemon)["may"]
    assert resume["python"] == "client.session('s').resume(accept=\"check\")"
    typed(daemon, look["commands"][0]["command"])
    (resume,) = explained(daemon)["may"]
    assert resume["python"] == "client.session('s').resume()"


def test_of_another_user_it_is_said_whose_a_command_is(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    agent = make_agent(daemon)
    agent.do(CASES["cut within a word"][0])
    agent.kill()
    gone(daemon)
    adopt = explained(daemon, "s", "--uid", str(os.getuid()))["may"][0]
    whole, adopted, _ = adopt["commands"]
    typed(daemon, whole["command"])
    assert f" --uid {os.getuid()} " in whole["command"]
    assert ("--uid" in adopted["command"], adopted["what"]) == (
        False,
        f"make messages of it, as user {os.getuid()}",
    )


def test_a_damaged_file(daemon: DaemonProcess, make_agent: MakeAgent) -> None:
    """The daemon's directory stands in the commands, and those work."""
    agent = make_agent(daemon)
    agent.do(SUBMIT + IN_A_TOOL)
    agent.kill()
    gone(daemon)
    assert daemon.terminate() == 0
    path = daemon.events_path("s")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b"port 80", b"port 81")
    path.write_bytes(b"".join(lines))
    daemon.start()
    told = explained(daemon)
    assert told["state"] == "blocked"
    assert [one["kind"] for one in told["notes"]] == ["damage"]
    assert "its file is damaged" in read(daemon)
    (mend,) = [one for one in told["may"] if one["code"] == "session_damaged"]
    look, repair = (shlex.split(one["command"]) for one in mend["commands"])
    assert look == ["walld", "fsck", str(daemon.data)]
    assert daemon.cli(*look[1:]).returncode == 2
    assert daemon.terminate() == 0
    assert daemon.cli(*repair[1:]).returncode == 0
    daemon.start()
    left = [one["code"] for one in explained(daemon)["may"]]
    assert "session_damaged" not in left


def test_nothing_is_nothing_and_who_cannot_ask_says_so(daemon: DaemonProcess) -> None:
    done = daemon.cli("explain", "other", "--json", "--socket", daemon.socket_path)
    assert (done.returncode, done.stdout) == (3, b"")
    assert daemon.reader.session("other").explain() is None
    done = daemon.cli("explain", "s", "--workspace", "/nowhere", "--socket", daemon.socket_path)
    assert done.returncode == 66
    daemon.kill()
    done = daemon.cli("explain", "s", "--socket", daemon.socket_path)
    assert (done.returncode, done.stdout) == (66, b"")


def test_the_work_of_a_sub_agent(daemon: DaemonProcess, make_agent: MakeAgent) -> None:
    """What keeps it is told where it is to be settled, in its own session."""
    agent, worker = make_agent(daemon), make_agent(daemon)
    agent.do(SUBMIT + "intent('k', 'spawn')\nsession.child('of s', call_id='k')")
    agent.do("turn.tool_started('k')")
    worker.do(SUBMIT.replace("session('s')", "session('of s')") + IN_A_TOOL)
    agent.kill()
    until(lambda: explained(daemon)["owner"] is None, "its process is gone")
    (row, resume) = explained(daemon)["may"]
    assert (row["action"], resume["action"], row["commands"]) == ("wait", "resume", [])
    assert f"process {worker.pid} is at work on turn" in row["what"]
    assert "of session of s" in row["what"]
    worker.kill()
    gone(daemon, "of s")
    told = explained(daemon)
    ((call, may),) = [(one["tool"], one["may"]) for one in told["unknown"]]
    (row, _) = told["may"]
    assert (call, row["child"], row["code"]) == ("spawn", "of s", "child")
    assert may == {"wait": "never", "check": "check_then_run"}[row["action"]]
    (command,) = row["commands"]
    typed(daemon, command["command"])
    assert "the work of session of s" in read(daemon)
    daemon.reader.session("of s").settle("c2", "did_not_run")
    assert [one["action"] for one in explained(daemon)["may"]] == ["run", "resume"]


@pytest.mark.parametrize("session", ["--resolve", "--workspace", "x DATA y; touch owned", "-- DIR"])
def test_no_id_makes_another_command_of_one(
    daemon: DaemonProcess, make_agent: MakeAgent, session: str
) -> None:
    """Ids are chosen by programs, and those of calls by models."""
    agent = make_agent(daemon)
    agent.do(SUBMIT.replace("session('s')", f"session({session!r})"))
    agent.do("""
intent('--grant', 'deploy'); turn.tool_started('--grant')
reply = turn.reply(stream_id='-r'); reply.token('kept'); reply.drain(30, 'synced')
""")
    agent.kill()
    told = daemon.reader.session(session)
    until(lambda: told.explain()["owner"] is None, "its process is gone")
    done = daemon.cli("explain", "--json", "--socket", daemon.socket_path, "--", session)
    call, reply, _ = json.loads(done.stdout)["may"]
    assert (call["call_id"], reply["stream_id"]) == ("--grant", "-r")
    seen, adopt, _ = [one["command"] for one in reply["commands"]]
    typed(daemon, seen)
    assert daemon.reader.recover(stream_id="-r") is not None, "printed, and no more"
    typed(daemon, adopt)
    typed(daemon, call["commands"][0]["command"])
    assert told.explain()["may"][0]["action"] == "resume"
    assert [one["content"] for one in told.messages()][-1] == "kept"


def test_a_no_to_a_call_is_one_to_its_sub_agent(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    agent = make_agent(daemon)
    agent.do(SUBMIT + "intent('k', 'spawn', policy='rerun-after-check'); turn.tool_started('k')")
    agent.do("session.child('c', call_id='k').submit('look').interrupted('over')")
    agent.do("turn.interrupted('over')")
    session = daemon.reader.session("s")
    assert session.resume_check()["calls"][0]["may"] == "run"
    session.settle("k", "denied", note="no")
    gate = session.resume_check()
    assert (gate["status"], gate["calls"][0]["may"]) == ("blocked", "never")
    actions = [one["action"] for one in session.project("pending") if "call_id" in one]
    assert actions == ["settle_tool"]


def test_a_sub_agent_is_not_done_while_a_call_of_it_may_have_run(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    """Also of an earlier turn than the one that ended well."""
    agent = make_agent(daemon)
    agent.do(SUBMIT + "intent('k', 'spawn'); turn.tool_started('k')")
    agent.do("child = session.child('c', call_id='k'); turn = child.submit('look')")
    agent.do("intent('d', 'deploy'); turn.tool_started('d'); turn.interrupted('over')")
    agent.do("second = child.submit('and then'); reply = second.reply(); reply.token('It is.')")
    agent.do("reply.end(); second.completed()")
    agent.kill()
    session = daemon.reader.session("s")
    until(lambda: session.resume_check()["owner"] is None, "its process is gone")
    assert session.resume_check()["status"] == "blocked"
    daemon.reader.session("c").settle("d", "did_not_run")
    gate = session.resume_check()
    assert (gate["status"], [one["may"] for one in gate["calls"]]) == ("ok", ["read_result"])


WENT: Final = """
def asked(name, **named):
    turn = client.session(name).submit('q', message_id=name)
    return turn.reply(stream_id=f'{name}-r', **named)
cancelled = asked('cancelled'); cancelled.token('I say')
cancelled.cancel('tab'); cancelled.release()
resolved = asked('resolved'); resolved.token('I say')
answered = asked('answered', auto_release=False); answered.token('I say'); answered.end()
here = asked('here'); here.token('I say'); here.end()
[one.drain(30, 'synced') for one in (cancelled, resolved, answered, here)]
"""


def test_what_went_elsewhere_is_not_said_to_be_in_the_session(
    daemon: DaemonProcess, make_agent: MakeAgent, cli: Callable[..., tuple[int, str, str]]
) -> None:
    left = make_agent(daemon)
    left.do(WENT)
    left.kill()
    for name in ("resolved", "answered"):
        daemon.orphan(f"{name}-r")
        assert daemon.reader.resolve(f"{name}-r")
    how = {"cancelled": "taken", "resolved": "taken", "answered": "answered", "here": None}
    for name, word in how.items():
        told = daemon.reader.session(name).explain()["said_elsewhere"]
        assert [(one["stream_id"], one["how"]) for one in told] == (
            [(f"{name}-r", word)] if word else []
        )
        text = cli("explain", name)[1]
        assert ("each reply of a turn is in the session" in text) == (word is None), name


SAID: Final = """
turn = client.session('turned').submit('q')
turned = turn.reply(stream_id='turned-r'); alone = client.reply('alone', stream_id='alone-r')
adopted = client.reply('adopted', stream_id='adopted-r')
for one in (turned, alone, adopted):
    one.token('I deploy.'); one.drain(30, 'synced'); time.sleep(0.05)
    one.step(); one.tool('deploy', {}, call_id='c'); one.drain(30, 'synced')
"""


def test_an_open_call_is_unknown_since_it_was_said_whatever_became_of_its_reply(
    daemon: DaemonProcess, make_agent: MakeAgent, agent: Obedient
) -> None:
    """An entry that is made as its reply goes says when it was made, which is any time later."""
    left = make_agent(daemon)
    left.do("import time")
    left.do(SAID)
    left.kill()
    said: dict[str, int] = {}
    for name in ("turned", "alone", "adopted"):
        reply = daemon.orphan(f"{name}-r")
        said[name] = round(next(one.at for one in reply.segments if one.kind == "tool") * 1000)

    def since(name: str) -> set[int]:
        session = daemon.reader.session(name)
        (call,) = session.resume_check()["calls"]
        (unknown,) = session.explain()["unknown"]
        pending = [one for one in session.project("pending") or [] if one.get("call_id") == "c"]
        return {one["since_ms"] for one in (call, unknown, *pending)}

    for name, at_ms in said.items():
        assert since(name) == {at_ms}, name
    daemon.reader.resolve("turned-r")
    agent.do("client.session('adopted').adopt('adopted-r'); None")
    for name in ("turned", "adopted"):
        assert since(name) == {said[name]}, f"{name}, behind its reply"
    working = make_agent(daemon)
    working.do(SUBMIT + IN_A_TOOL)
    session = daemon.reader.session("s")
    (asked,) = session.explain()["asked"]
    owners = [one["owner"] for one in session.project("pending") if one.get("owner")]
    assert [one["since_ms"] for one in owners] == [asked["at_ms"]]
    working.kill()


ANSWERED = """
session = client.session('s'); turn = session.submit('q1', message_id='m', calls='journal')
with turn.reply() as r: r.token('the old answer'); r.end()
"""


@pytest.mark.parametrize(
    ("then", "boundary", "answer", "line"),
    [
        ("session.undo(1)", "before_intent", None, "an answer was undone"),
        ("session.message('user', 'and'); session.undo(2)", "before_intent", None, "was undone"),
        ("session.message('user', 'and'); session.undo(1)", "answered", "the old answer", "ed:"),
        ("session.undo(2)", "answered", None, "an answer was undone"),
        ("session.edit(session.events()[-1]['id'], 'new')", "answered", "new", "edited since:"),
        (
            "session.edit([{'role': 'user', 'content': 'q1'}])",
            "answered",
            "the old answer",
            "(an answer was replaced)",
        ),
        (
            "session.undo(1); session.message('assistant', 'another'); session.state()",
            "answered",
            "another",
            "answered:",
        ),
    ],
)
def test_an_answer_that_was_taken_back_is_none_and_an_edited_one_is_what_it_is_now(
    daemon: DaemonProcess,
    agent: Obedient,
    then: str,
    boundary: str,
    answer: str | None,
    line: str,
) -> None:
    """Killed behind the undo: the gate said that there is an answer, explain told it."""
    agent.do(ANSWERED + then)
    agent.kill()
    session = daemon.reader.session("s")
    until(lambda: session.state()["turns"][0]["state"] == "interrupted", "the turn's end")
    told = session.explain()
    assert (session.resume_check()["boundary"], told["asked"][0]["answer"]) == (boundary, answer)
    is_open = boundary != "answered"
    assert [one["action"] for one in session.project("pending")] == ["answer_turn"] * is_open
    plan = daemon.reader.repair_plan("s", present=["m"])
    assert [one.op for one in plan] == ["mark_interrupted"] * is_open
    assert told["state"] == ("cut" if is_open else "done")
    shown = daemon.cli("explain", "s", "--socket", daemon.socket_path).stdout.decode()
    assert line in shown
    assert answer == "the old answer" or "the old answer" not in shown


SAID_AND_GIVEN = """
call = {'id': 'k', 'name': 'sh', 'arguments': '{}'}
session.message('assistant', 'I look.', turn=turn.turn_id, tool_calls=[call])
session.message('tool', 'R', tool_call_id='k', turn=turn.turn_id)
"""


@pytest.mark.parametrize(
    ("said", "boundary"),
    [
        (
            "r.tool('sh', {}, call_id='k'); r.tool_result('R', call_id='k'); r.token('I f')",
            "observed",
        ),
        ("r.tool('sh', {}, call_id='k'); r.tool_result('R', call_id='k')", "observed"),
        ("r.tool('sh', {}, call_id='k')", "started"),
        (
            "r.tool('web', {}, call_id='k', server=True); r.tool_result('R', call_id='k')",
            "before_intent",
        ),
        ("r.token('I f')", "before_intent"),
        (
            SAID_AND_GIVEN,
            "observed",
        ),
    ],
)
def test_it_does_not_stand_before_a_call_that_was_done(
    daemon: DaemonProcess, agent: Obedient, said: str, boundary: str
) -> None:
    """Also one that no journal has: the model said it, and its result."""
    agent.do("session = client.session('s'); turn = session.submit('q', message_id='m')")
    agent.do(f"r = turn.reply(stream_id='r'); r.event('begun', 1)\n{said}\nr.drain(30, 'synced')")
    agent.kill()
    daemon.orphan("r")
    told = daemon.reader.session("s").explain()
    assert told["gate"]["boundary"] == boundary
    if boundary == "observed":
        assert [one["tool"] for one in told["done"]] == ["sh"]
