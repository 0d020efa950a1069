"""`walld session`, `audit`, `repair-plan`, `resume-check`: every verb against a real daemon."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import DaemonProcess, until

HOSTILE = "chat\x1b]0;owned\x07\u202e/../é"
SAID = "red \x1b[31m and \u202e back"
ALICE, BOB = 61001, 61002


@pytest.fixture
def worked(daemon: DaemonProcess) -> walld_client.Session:
    """A session with a turn that was completed, a branch, a label and a long message."""
    session = daemon.reader.session(HOSTILE)
    turn = session.submit(SAID, message_id="m-1")
    turn.worker_started()
    turn.intent(
        "bash",
        {"cmd": SAID},
        side_effect="none",
        resume_policy="replay-from-event",
        call_id="c-1",
    )
    turn.tool_started("c-1")
    turn.tool_finished("c-1", "done")
    with turn.reply() as reply:
        reply.token("an answer")
        reply.end()
    turn.completed()
    first = session.message("user", "first branch")
    session.branch(first.id)
    session.message("user", "second branch", id="second")
    session.branch(first.id)
    session.message("user", "x" * 300_000, id="long")
    session.label("second", SAID)
    return session


def test_what_is_shown(
    worked: walld_client.Session, cli: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, _ = cli("session", "ls")
    assert (code, out.splitlines()[0].split()) == (
        0,
        ["LAST", "EVENT", "UID", "EVENTS", "BYTES", "STATE", "SESSION"],
    )
    assert "chat\\x1b]0;owned\\x07\\u202e/../é" in out
    (facts,) = json.loads(cli("session", "ls", "chat", "--json")[1])
    assert (facts["session_id"], facts["uid"]) == (HOSTILE, os.geteuid())
    assert json.loads(cli("session", "ls", "other", "--json")[1]) == []
    code, out, _ = cli("session", "show", HOSTILE)
    assert code == 0
    for part in ("turn 1  completed", "an answer", "* bash  done", "[artifact ", "first branch"):
        assert part in out, part
    assert len(json.loads(cli("session", "show", HOSTILE, "--json")[1])) == 2
    code, out, _ = cli("session", "tree", HOSTILE)
    assert "├─ user second branch [red \\x1b[31m and \\u202e back] (second)" in out
    assert out.count("<- leaf") == 1
    assert json.loads(cli("session", "tree", HOSTILE, "--json")[1])["leaf"] == "long"
    assert json.loads(cli("session", "state", HOSTILE)[1])["counts"]["turns"] == 1
    assert cli("session", "trace", HOSTILE)[0] == 0


def test_messages_and_their_forms(
    worked: walld_client.Session, cli: Callable[..., tuple[int, str, str]]
) -> None:
    told = json.loads(cli("session", "messages", HOSTILE, "--json")[1])
    assert told == worked.messages()
    assert [one["content"] for one in told][-1] == "x" * 300_000
    other = json.loads(cli("session", "messages", HOSTILE, "--json", "--branch", "second")[1])
    assert other[-1]["content"] == "second branch"
    code, out, _ = cli("session", "messages", HOSTILE)
    assert (code, out.count("--- user")) == (0, 3)
    for form in ("openai", "anthropic"):
        made = json.loads(cli("session", "export", HOSTILE, "--format", form)[1])
        assert made == worked.messages(format=form)
    otel = json.loads(cli("session", "export", HOSTILE, "--format", "otel")[1])
    assert {"type": "text", "content": "an answer"} in [p for one in otel for p in one["parts"]]
    code, out, _ = cli(
        "session", "compact", HOSTILE, "--summary", "so far", "--first-kept", "long", "--json"
    )
    assert code == 0
    assert len(json.loads(cli("session", "messages", HOSTILE, "--json")[1])) < len(told)
    whole = json.loads(cli("session", "messages", HOSTILE, "--json", "--whole")[1])
    assert whole == told


def test_events_are_the_bytes_that_are_kept(
    daemon: DaemonProcess,
    worked: walld_client.Session,
    cli: Callable[..., tuple[int, str, str]],
) -> None:
    piped = daemon.cli("session", "events", HOSTILE, "--socket", daemon.socket_path).stdout
    assert daemon.terminate() == 0
    (file,) = daemon.data.glob("sessions/*/*/events.jsonl")
    assert file.read_bytes().partition(b"\n")[2] == piped
    daemon.start()
    after = daemon.cli("session", "events", HOSTILE, "--after", "3", "--socket", daemon.socket_path)
    assert after.stdout == b"".join(piped.splitlines(keepends=True)[3:])
    at = ("--socket", daemon.socket_path)
    code, told = daemon.on_a_terminal("session", "events", HOSTILE, *at)
    assert code == 0
    assert told
    assert b"\x1b" not in told
    assert "\u202e".encode() not in told


def test_a_session_with_turns_and_branches_comes_back_as_it_was(
    daemon: DaemonProcess,
    worked: walld_client.Session,
    cli: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
) -> None:
    own = tmp_path / "own.jsonl"
    own.write_bytes(daemon.cli("session", "export", HOSTILE, "--socket", daemon.socket_path).stdout)
    assert cli("session", "delete", HOSTILE)[0] == 0
    assert cli("session", "show", HOSTILE)[0] == 3
    code, out, err = cli("session", "import", str(own), "--session", HOSTILE)
    assert code == 0, err
    assert "0 entries" not in out
    tree = json.loads(cli("session", "tree", HOSTILE, "--json")[1])
    assert tree["leaf"] == "long"
    (turn,) = json.loads(cli("session", "state", HOSTILE)[1])["turns"]
    assert turn["state"] == "completed"


def test_show_says_which_calls_may_have_run(
    cli: Callable[..., tuple[int, str, str]], daemon: DaemonProcess
) -> None:
    """Also in a session that has nothing of them but that they started elsewhere."""
    call = {"turn": "T", "call_id": "c", "tool": "pay"}
    call |= {"side_effect": "external-write", "resume_policy": "never-rerun"}
    daemon.reader.session("came").append("imported", {"calls": [call]}, leaf=False)
    code, out, told = cli("session", "show", "came")
    assert (code, out) == (0, "session came\nnothing was said\n")
    assert "pay (call c) may have run, and nothing says what became of it" in told


def test_fork_and_delete(
    worked: walld_client.Session, cli: Callable[..., tuple[int, str, str]], daemon: DaemonProcess
) -> None:
    code, out, _ = cli("session", "fork", HOSTILE, "forked", "--at", "second", "--json")
    assert (code, json.loads(out)["session"]) == (0, "forked")
    told = daemon.reader.session("forked").messages()
    assert told is not None
    assert told[-1]["content"] == "second branch"
    assert cli("session", "fork", HOSTILE, "other")[0] == 0
    copied = json.loads(cli("session", "messages", "other", "--json")[1])
    assert copied[-1]["content"] == "x" * 300_000, "its artifact comes with it"
    assert "session_exists" in cli("session", "fork", HOSTILE, "forked")[2]
    assert cli("session", "fork", HOSTILE, "x", "--at", SAID)[0] == 1
    assert cli("session", "fork", HOSTILE, "before all", "--at", "")[0] == 0
    assert daemon.reader.session("before all").messages() == []
    assert cli("session", "fork", "nobody's", "x")[0] == 3
    assert cli("session", "delete", HOSTILE, "--json")[0] == 0
    assert "there was nothing of it" in cli("session", "delete", HOSTILE)[1]
    for copy in ("forked", "other", "before all"):
        assert cli("session", "delete", copy)[1] == f"deleted: {copy}\n"
    until(lambda: not daemon.holding([b"first branch"]), "nothing of it on the disk")


def test_a_session_that_is_not_there(cli: Callable[..., tuple[int, str, str]]) -> None:
    for verb in ("show", "tree", "state", "trace", "events", "messages", "export"):
        code, out, err = cli("session", verb, HOSTILE)
        assert (code, out) == (3, "")
        assert "there is no session chat\\x1b" in err
    words = ("--summary", "s", "--first-kept", "x")
    assert cli("session", "compact", HOSTILE, *words)[0] == 3
    assert cli("audit", HOSTILE)[0] == 3
    assert cli("repair-plan", HOSTILE)[0] == 3
    assert cli("resume-check", HOSTILE)[0] == 3
    assert json.loads(cli("session", "ls", "--json")[1]) == []


def test_audit_and_repair(
    daemon: DaemonProcess,
    make_agent: Callable[..., Obedient],
    cli: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
) -> None:
    assert cli("audit")[0] == 0
    agent = make_agent(daemon)
    agent.do(f"turn = client.session({HOSTILE!r}).submit({SAID!r}, message_id='m-1')")
    agent.kill()

    def interrupted() -> bool:
        state = daemon.reader.session(HOSTILE).state()
        return state is not None and state["turns"][0]["state"] == "interrupted"

    until(interrupted, "an interruption")
    code, out, _ = cli("audit", HOSTILE)
    assert (code, out.splitlines()[0]) == (1, "warn: 1 sessions, 1 turns")
    assert json.loads(cli("audit", "--json")[1])["overall"] == "warn"
    present = tmp_path / "present"
    present.write_text("")
    code, out, _ = cli("repair-plan", HOSTILE, "--present", str(present))
    assert (code, out.count("materialise_user_message"), out.count("mark_interrupted")) == (0, 1, 1)
    steps = json.loads(cli("repair-plan", HOSTILE, "--present", str(present), "--json")[1])
    assert [one["message"]["content"] for one in steps] == [SAID, "[interrupted: agent_lost]"]
    present.write_text("m-1\r\n")
    assert cli("audit", HOSTILE, "--present", str(present))[0] == 0
    present.write_text("m-1\n", encoding="utf-8-sig")
    assert cli("audit", HOSTILE, "--present", str(present))[0] == 0
    (step,) = json.loads(cli("repair-plan", HOSTILE, "--present", str(present), "--json")[1])
    assert step["op"] == "mark_interrupted"
    present.write_text(f"m-1\n{step['key']}\n")
    assert cli("repair-plan", HOSTILE, "--present", str(present))[1] == "nothing to do\n"
    present.write_bytes(b"\xff")
    assert cli("audit", "--present", str(present))[0] == 64
    assert cli("audit", "--present", str(tmp_path / "none"))[0] == 66
    code, _, err = cli("audit", "--present", "/dev/zero")
    assert (code, "more than 67108864 bytes" in err) == (64, True)
    call = {"id": "c", "type": "function", "function": {"name": "rm", "arguments": "{}"}}
    daemon.reader.session(HOSTILE).message("assistant", "", tool_calls=[call])
    code, out, _ = cli("audit", HOSTILE)
    assert (code, "unsafe_to_repair: tool_call_unanswered" in out) == (2, True)
    nobody = daemon.cli("audit", "--socket", str(tmp_path / "nobody"))
    assert nobody.returncode == 66, "1 would be the answer warn"


def test_the_gate(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    session = daemon.reader.session(HOSTILE)
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("a")
    session.checkpoint_workspace(work, ["a.txt"])
    code, out, _ = cli("resume-check", HOSTILE, "--workspace", str(work))
    assert (code, out) == (0, "ok: stopped at idle\n  workspace: same\n")
    code, out, _ = cli("resume-check", HOSTILE)
    assert (code, out.splitlines()[0]) == (4, "check: stopped at idle"), "nobody looked"
    assert "workspace_not_compared" in out
    code, out, err = cli("resume-check", HOSTILE, "--workspace", str(work / "none"))
    assert (code, out) == (66, ""), "nothing was compared"
    assert "there is no directory" in err
    nobody = daemon.cli("resume-check", HOSTILE, "--socket", str(tmp_path / "nobody"))
    assert nobody.returncode == 66, "1 would be the answer blocked"
    (work / "a.txt").write_text("b")
    code, out, _ = cli("resume-check", HOSTILE, "--workspace", str(work))
    assert (code, "workspace_changed" in out) == (1, True)
    assert out.splitlines()[-2:] == ["  workspace: changed", "    file a.txt"]
    session.checkpoint_workspace(work)
    code, out, _ = cli("resume-check", HOSTILE, "--workspace", str(work))
    assert (code, out) == (0, "ok: stopped at idle\n  workspace: same\n"), (
        "what it is by now was looked at"
    )
    session.checkpoint_workspace(work, [f"{n:0100}" for n in range(2500)])
    then = session.resume_check()["workspace"]["then"]
    assert (len(then["files"]), then["head"], "_artifact" in then) == (2501, None, False)
    last = len(session.events())
    session.checkpoint_workspace(work)
    (entry,) = session.events(last)
    assert entry["payload"]["fingerprint"]["files"] == {}, "the log has them all"
    assert session.resume_check()["workspace"]["then"]["files"] == then["files"]
    turn = session.submit("go on")
    turn.intent(SAID, {}, side_effect="external-write", resume_policy="never-rerun", call_id="c")
    turn.tool_started("c")
    code, out, _ = cli("resume-check", HOSTILE)
    assert (code, out.splitlines()[0].partition(",")[0]) == (1, "blocked: stopped at started")
    assert "may: never" in out
    assert json.loads(cli("resume-check", HOSTILE, "--json")[1])["status"] == "blocked"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_two_users(
    make_daemon: Callable[..., DaemonProcess], make_agent: Callable[..., Obedient]
) -> None:
    daemon = make_daemon("--socket-mode", "0666")
    os.chmod(daemon.folder, 0o711)
    daemon.start()
    for uid, name in ((ALICE, "alice"), (BOB, "bob")):
        agent = make_agent(daemon, uid=uid)
        agent.do(f"client.session('s').message('user', 'of {name}')")

    def out(*words: str) -> tuple[int, str]:
        done = daemon.cli(*words, "--socket", daemon.socket_path)
        return done.returncode, done.stdout.decode()

    assert out("session", "show", "s")[0] == 3, "root is a user like any other unless it says whose"
    assert json.loads(out("session", "ls", "--json")[1]) == []
    for uid, name in ((ALICE, "alice"), (BOB, "bob")):
        code, shown = out("session", "messages", "s", "--uid", str(uid))
        assert (code, shown) == (0, f"--- user\nof {name}\n")
        assert out("audit", "--uid", str(uid))[0] == 0
        assert out("resume-check", "s", "--uid", str(uid))[0] == 0
        (facts,) = json.loads(out("session", "ls", "--json", "--uid", str(uid))[1])
        assert facts["uid"] == uid
    assert out("session", "delete", "s", "--uid", str(ALICE))[0] == 0
    assert out("session", "show", "s", "--uid", str(ALICE))[0] == 3
    assert out("session", "show", "s", "--uid", str(BOB))[0] == 0
    assert out("session", "compact", "s", "--uid", str(BOB))[0] == 64, "appended is one's own"


def test_a_damaged_file_is_said_and_the_rest_is_shown(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]]
) -> None:
    session = daemon.reader.session(HOSTILE)
    for number in range(5):
        session.message("user", f"message {number}")
    assert daemon.terminate() == 0
    (file,) = daemon.data.glob("sessions/*/*/events.jsonl")
    file.write_bytes(file.read_bytes().replace(b"message 2", b"message 7"))
    assert daemon.cli("fsck", str(daemon.data)).returncode == 2
    daemon.start()
    for verb in ("show", "messages", "tree", "events", "export"):
        code, out, err = cli("session", verb, HOSTILE)
        assert code == 0
        assert ("message 1" in out, "message 7" in out, "message 4" in out) == (True, False, True)
        assert "damaged at" in err
        assert "events 3 to 3 are missing" in err
    assert "chain_broken" in cli("audit", HOSTILE)[1]
    assert cli("audit", HOSTILE)[0] == 2
    told = cli("resume-check", HOSTILE)
    assert ("the session's file is damaged" in told[1], told[2]) == (True, "")
    code, out, err = cli("repair-plan", HOSTILE, "--present", os.devnull)
    assert (code, out) == (0, "nothing to do\n"), "of what can be read"
    assert err.count("events 3 to 3 are missing") == err.count("\n") == 1
