"""`walld session`, `audit`, `repair-plan`, `resume-check`: every verb against a real daemon."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import DaemonProcess, environment, until

HOSTILE = "chat\x1b]0;owned\x07\u202e/../é"
SAID = "red \x1b[31m and \u202e back"
ALICE, BOB = 61001, 61002


@pytest.fixture
def cli(daemon: DaemonProcess) -> Callable[..., tuple[int, str, str]]:
    """Exit code, stdout and stderr of a command; nothing of them acts on a terminal."""

    def run(*words: str) -> tuple[int, str, str]:
        done = daemon.cli(*words, "--socket", daemon.socket_path)
        out, err = done.stdout.decode(), done.stderr.decode()
        if words[:2] != ("session", "events") and words[:2] != ("session", "export"):
            assert not {"\x1b", "\x07", "\u202e"} & set(out + err), words
        return done.returncode, out, err

    return run


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
        ["LAST", "EVENT", "UID", "EVENTS", "BYTES", "SESSION"],
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
    shown, slave = pty.openpty()
    command = [sys.executable, "-m", "walld", "session", "events", HOSTILE]
    command += ["--socket", daemon.socket_path]
    ran = subprocess.Popen(command, env=environment(), stdout=slave)
    os.close(slave)
    told = b""
    while True:
        try:
            told += os.read(shown, 65536)
        except OSError:  # the last writer has closed it
            break
    assert ran.wait() == 0
    os.close(shown)
    assert told
    assert b"\x1b" not in told
    assert "\u202e".encode() not in told


def test_import_export_and_again(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    lines = [
        {"type": "session", "id": "s", "timestamp": "2025-11-20T23:33:50.805Z", "cwd": "/x"},
        {"type": "message", "message": {"role": "user", "content": SAID}},
        {"type": "message", "message": {"role": "user", "content": "y" * 300_000}},
        {"type": "of another time", "what": SAID},
    ]
    file = tmp_path / "pi.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in lines) + 'no json\xff\n{"torn')
    code, out, _ = cli("session", "import", str(file), "--session", HOSTILE, "--json")
    told = json.loads(out)
    assert (code, told["format"], told["new"], told["not_understood"]) == (
        0,
        "pi",
        told["entries"],
        3,
    )
    code, out, _ = cli("session", "import", str(file), "--session", HOSTILE)
    assert "0 entries from pi" in out
    assert "not understood: 1 lines (torn), kept as foreign.pi" in out
    kept = daemon.reader.session(HOSTILE).find("foreign.pi")
    assert [one["payload"]["line"] for one in kept][-1] == '{"torn'
    messages = daemon.reader.session(HOSTILE).messages()
    assert messages is not None
    assert [one["content"] for one in messages] == [SAID, "y" * 300_000]
    exported = daemon.cli("session", "export", HOSTILE, "--socket", daemon.socket_path).stdout
    said = daemon.cli("session", "export", HOSTILE, "--socket", daemon.socket_path).stderr
    assert b"1 artifacts that these lines name stay here" in said
    own = tmp_path / "own.jsonl"
    own.write_bytes(exported)
    for new in (len(exported.splitlines()) - 1, 0):
        code, out, _ = cli("session", "import", str(own), "--session", "copy", "--json")
        assert (code, json.loads(out)["new"], json.loads(out)["format"]) == (0, new, "walld")

    def plain(session_id: str) -> list[Any]:
        names = ("id", "parent", "type", "payload", "at", "leaf", "key", "turn")
        events = daemon.reader.session(session_id).events()
        return [{name: one.get(name) for name in names} for one in events]

    assert plain("copy") == plain(HOSTILE)


def test_an_entry_that_hangs_on_nothing_is_named(
    cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    def said(id_: str, parent: str | None) -> str:
        message = {"role": "user", "content": id_}
        one = {"type": "message", "id": id_, "parentId": parent, "message": message}
        return json.dumps(one) + "\n"

    file = tmp_path / "pi.jsonl"
    file.write_text('{"type":"session","version":3}\n' + said("a", "b") + said("b", "a"))
    words = ("session", "import", str(file), "--session", "s")
    code, out, _ = cli(*words)
    assert code == 0
    assert "1 entries whose parent is not above them (a)" in out
    assert json.loads(cli(*words, "--json")[1])["orphans"] == ["a"]


def test_no_line_ends_an_import(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """What no entry can hold, or this session contradicts, is kept as its text and counted."""
    fields = {f"k{number}": "v" * 10 for number in range(20_000)}
    pi = [
        {"type": "session", "version": 3, "id": "s", "cwd": "/x"},
        {"type": "custom", "id": "a", "parentId": None, **fields},
        {
            "type": "message",
            "id": "b",
            "parentId": "a",
            "message": {"role": "user", "content": "on"},
        },
    ]
    file = tmp_path / "pi.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in pi))
    for new in (3, 0):
        code, out, err = cli("session", "import", str(file), "--session", "many", "--json")
        told = json.loads(out)
        assert (code, told["new"], told["reasons"]) == (0, new, {"too_large": 1}), err
    session = daemon.reader.session("many")
    (kept,) = session.find("foreign.pi")
    assert (kept["id"], kept["payload"]["reason"], kept["payload"]["line_number"]) == (
        "a",
        "too_large",
        2,
    )
    whole = session.read_artifact(kept["payload"]["line"]["_artifact"]["sha256"])
    assert json.loads(whole) == pi[1]
    assert [one["content"] for one in session.messages() or ()] == ["on"]

    session.submit("mine", message_id="m")
    own = [
        {"walld": 1, "uid": 0, "session": "x"},
        {"seq": 1, "id": "o1", "type": "turn_submitted", "turn": "t9"}
        | {"payload": {"message_id": "m", "content": "theirs"}},
        {
            "seq": 2,
            "id": "o2",
            "parent": "o1",
            "type": "turn_completed",
            "turn": "t9",
            "payload": {},
        },
        {"seq": 3, "id": "o3", "parent": "o2", "type": "BAD", "payload": {}},
        {"seq": 4, "id": "o4", "parent": "o3", "type": "note", "payload": {"n": 10**400}},
        {
            "seq": 5,
            "id": "o5",
            "parent": "o4",
            "type": "turn_completed",
            "turn": "zz",
            "payload": {},
        },
        {"seq": 6, "id": "o6", "parent": "o5", "type": "undo", "payload": {"n": 0}},
        {"seq": 7, "id": "o7", "parent": "o6", "type": "message", "payload": {"role": "user"}},
    ]
    file.write_text("".join(json.dumps(one) + "\n" for one in own))
    code, out, err = cli("session", "import", str(file), "--session", "many", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert (told["new"], told["not_understood"]) == (7, sum(told["reasons"].values()))
    assert told["reasons"]["message_id_taken"] == told["reasons"]["bad_type"] == 1
    types = [one["type"] for one in session.events(after=4)]
    assert types[0] == types[2] == types[4] == types[5] == "foreign.walld"
    assert types[-1] == "message"


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


def gate_of(daemon: DaemonProcess, session_id: str) -> tuple[str, list[tuple[str, str]]]:
    gate = daemon.reader.session(session_id).resume_check()
    assert gate is not None
    return gate["status"], [(tool["call_id"], tool["may"]) for tool in gate["tools"]]


def test_an_import_owns_no_turn_and_is_repeated_while_the_source_goes_on(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """The command has ended each time, and interrupts nothing."""
    source, own = daemon.reader.session("source"), tmp_path / "own.jsonl"

    def copied() -> list[str]:
        own.write_bytes(
            daemon.cli("session", "export", "source", "--socket", daemon.socket_path).stdout
        )
        code, out, err = cli("session", "import", str(own), "--session", "copy", "--json")
        assert (code, json.loads(out)["not_understood"]) == (0, 0), out + err
        return [one["type"] for one in daemon.reader.session("copy").events()]

    turn = source.submit("pay")
    turn.worker_started()
    turn.intent("pay", {}, side_effect="external-write", resume_policy="never-rerun", call_id="p")
    assert copied() == ["turn_submitted", "turn_worker_started", "tool_intent"]
    turn.tool_started("p")
    assert copied()[3:] == ["tool_started"]
    assert gate_of(daemon, "copy") == gate_of(daemon, "source") == ("blocked", [("p", "never")])
    turn.tool_finished("p", "paid")
    turn.completed()
    assert copied()[4:] == ["tool_finished", "turn_completed"]
    assert gate_of(daemon, "copy") == ("ok", [])
    assert not any("owner" in one for one in daemon.reader.session("copy").events())


def test_the_gate_of_an_import_knows_what_its_file_lacks(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """A line taken out of an export, whatever it was, lets no call run again that may have run."""
    session, own = daemon.reader.session("source"), tmp_path / "own.jsonl"
    turn = session.submit("pay")
    turn.intent("pay", {}, side_effect="external-write", resume_policy="never-rerun", call_id="p")
    session.message("user", "secret")
    turn.tool_started("p")
    session.message("user", "after")
    exported = daemon.cli("session", "export", "source", "--socket", daemon.socket_path).stdout
    head, *lines = exported.splitlines(keepends=True)
    for lost in (0, 2, 3, 4):  # the last: cut between two lines
        own.write_bytes(b"".join([head, *lines[:lost], *lines[lost + 1 :]]))
        code, out, err = cli("session", "import", str(own), "--session", f"no {lost}", "--json")
        assert (code, json.loads(out)["missing"]) == (0, [[lost + 1, lost + 1]]), err
        assert gate_of(daemon, f"no {lost}") == ("blocked", [("p", "never")]), lost
        fork = daemon.reader.session(f"no {lost}").fork(None, f"fork {lost}")
        assert gate_of(daemon, fork.session_id) == ("blocked", [("p", "never")]), lost
    code, out, _ = cli("session", "import", str(own), "--session", "said")
    assert "missing in the file: seqs 5 to 5" in out
    said = [one["content"] for one in daemon.reader.session("no 2").messages() or ()]
    assert said == ["pay", "after"]


def test_what_a_session_contradicts_is_told_to_its_gate(
    daemon: DaemonProcess, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """Somebody ended the turn in the copy; then its call started in the source."""
    session, own = daemon.reader.session("source"), tmp_path / "own.jsonl"
    turn = session.submit("pay")
    turn.intent("pay", {}, side_effect="external-write", resume_policy="never-rerun", call_id="p")
    words = ("session", "import", str(own), "--session", "copy", "--json")

    def export() -> None:
        own.write_bytes(
            daemon.cli("session", "export", "source", "--socket", daemon.socket_path).stdout
        )

    export()
    assert cli(*words)[0] == 0
    daemon.reader.session("copy").turn(turn.turn_id).interrupted("operator")
    assert gate_of(daemon, "copy") == ("ok", [("p", "replay")])
    turn.tool_started("p")
    export()
    for doubted in (1, 0):
        told = json.loads(cli(*words)[1])
        assert (told["reasons"], told["doubted"]) == ({"illegal_tool": doubted}, doubted) or (
            doubted == 0
        )
        assert gate_of(daemon, "copy") == ("blocked", [("p", "never")])


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
    assert cli("session", "delete", HOSTILE, "--json")[0] == 0
    assert "there was nothing of it" in cli("session", "delete", HOSTILE)[1]
    for copy in ("forked", "other"):
        assert cli("session", "delete", copy)[1] == "deleted\n"
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
    assert cli("resume-check", HOSTILE)[0] == 1
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
    assert (code, out) == (0, "ok: stopped at idle\n")
    code, out, err = cli("resume-check", HOSTILE, "--workspace", str(work / "none"))
    assert (code, out) == (1, ""), "nothing was compared"
    assert "there is no directory" in err
    (work / "a.txt").write_text("b")
    code, out, _ = cli("resume-check", HOSTILE, "--workspace", str(work))
    assert (code, "workspace_changed" in out) == (1, True)
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
    assert "the session's file is damaged" in cli("resume-check", HOSTILE)[1]
