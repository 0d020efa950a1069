"""What a stranger wrote into a session never acts on the terminal of whoever looks at it.

Every command about sessions, in every form, on a terminal of its own: where none reads them, events
and exports are the bytes that are kept. Ids, roles, text, tools, labels, settings, artifacts, files
and paths are all evil, and so is a file that is imported, and a session's file that is damaged.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from daemon_process import DaemonProcess
from evil_text import CONTROL, EVIL, SHOWN

SESSION = f"session {EVIL}"
VIEWS = ("show", "tree", "state", "trace", "events", "messages")
EXPORTS = ("jsonl", "plain", "openai", "anthropic", "otel")


@pytest.fixture
def evil(daemon: DaemonProcess, tmp_path: Path) -> DaemonProcess:
    """A session in which everything that an application can name is evil."""
    session = daemon.reader.session(SESSION)
    session.setting(EVIL, {EVIL: EVIL})
    session.change_model(EVIL)
    turn = session.submit(EVIL, message_id=EVIL, model=EVIL, stream_id=f"s {EVIL}", why=EVIL)
    turn.worker_started()
    with turn.reply() as reply:
        reply.token(EVIL)
        reply.reasoning(EVIL)
        reply.tool(EVIL, {EVIL: EVIL}, call_id=EVIL)
        reply.tool_result(EVIL, call_id=EVIL)
        reply.event("app.x", {EVIL: EVIL})
        reply.end()
    for call in (EVIL, f"open {EVIL}"):
        turn.intent(
            EVIL,
            {EVIL: EVIL},
            side_effect="external-write",
            resume_policy="require-user-confirmation",
            call_id=call,
        )
        turn.tool_started(call)
    (tmp_path / "file").write_text(EVIL)
    turn.tool_finished(EVIL, EVIL, failed=True)
    turn.interrupted(EVIL)
    open_turn = session.submit(EVIL, attachments=[{"name": EVIL, "url": EVIL}])
    open_turn.intent("b", {}, side_effect="none", resume_policy="never-rerun", call_id=EVIL)
    open_turn.approval(EVIL, "asked")
    at = session.message(EVIL, EVIL, id=EVIL)
    session.append(f"app.{'x' * 9}", {EVIL: EVIL}, key=EVIL, cause=f"{EVIL}:1", correlation=EVIL)
    session.append("verification", {"ok": False, EVIL: EVIL})
    session.append("failure", {"error": EVIL, EVIL: EVIL})
    session.branch(at.id, summary=EVIL)
    session.message("user", EVIL, id=f"other {EVIL}")
    session.label(EVIL, EVIL)
    session.artifact(EVIL.encode(), EVIL, name=EVIL)
    return daemon


def harmless(daemon: DaemonProcess, *words: str, shows: bool = True) -> None:
    told = daemon.on_a_terminal(*words)[1].decode("utf-8", "surrogateescape")
    assert CONTROL.findall(told) == [], (words, told)
    assert "Traceback" not in told, (words, told)
    assert "a bug of walld" not in told, (words, told)
    assert not shows or SHOWN in told, (words, told)


def test_every_command_on_a_terminal(evil: DaemonProcess, tmp_path: Path) -> None:
    at = ("--socket", evil.socket_path)
    harmless(evil, "session", "ls", *at)
    harmless(evil, "session", "ls", EVIL, *at, shows=False)
    for view in VIEWS:
        for form in ((), ("--json",)):
            harmless(evil, "session", view, SESSION, *form, *at)
    for form in EXPORTS:
        harmless(evil, "session", "export", SESSION, "--format", form, *at)
    present = tmp_path / f"present {EVIL}"
    present.parent.mkdir(parents=True)
    present.write_text(f"{EVIL}\n\n{EVIL}", errors="surrogateescape")
    (nobody := tmp_path / "nobody").touch()
    for form in ((), ("--json",)):
        harmless(evil, "audit", SESSION, *form, *at)
        harmless(evil, "repair-plan", SESSION, *form, *at, shows=False)
        for command in ("audit", "repair-plan"):
            harmless(evil, command, SESSION, "--present", str(nobody), *form, *at)
            harmless(evil, command, SESSION, "--present", str(present), *form, *at, shows=False)
            harmless(evil, command, SESSION, "--present", f"{present} no", *form, *at)
    for form in ((), ("--json",)):
        harmless(evil, "resume-check", SESSION, *form, *at)
        workspace = ("--workspace", str(tmp_path))
        harmless(evil, "resume-check", SESSION, *workspace, *form, *at)
        harmless(evil, "resume-check", SESSION, "--workspace", f"/no {EVIL}", *form, *at)
    harmless(evil, "session", "messages", SESSION, "--branch", f"no {EVIL}", *at)
    harmless(evil, "session", "fork", SESSION, f"new {EVIL}", *at)
    harmless(evil, "session", "fork", SESSION, f"new {EVIL}", *at)
    harmless(evil, "session", "fork", SESSION, "x", "--at", f"no {EVIL}", *at)
    words = ("--summary", EVIL, "--first-kept")
    harmless(evil, "session", "compact", SESSION, *words, f"no {EVIL}", *at)
    harmless(evil, "session", "compact", SESSION, *words, f"other {EVIL}", *at, shows=False)
    harmless(evil, "session", "show", SESSION, *at)
    harmless(evil, "session", "delete", f"new {EVIL}", *at, shows=False)
    harmless(evil, "session", "delete", f"new {EVIL}", "--json", *at)
    harmless(evil, "session", "show", f"new {EVIL}", *at)


def test_what_is_imported_on_a_terminal(daemon: DaemonProcess, tmp_path: Path) -> None:
    """Lines of any tool, some of them nothing that one would write; below a path that is evil."""
    at = ("--socket", daemon.socket_path)
    file = tmp_path / f"file {EVIL}"
    file.parent.mkdir(parents=True)
    message = {"role": EVIL, "content": EVIL, "timestamp": EVIL, "files": [EVIL]}
    lines = [
        json.dumps({"role": "user", "content": EVIL, "timestamp": "2026-01-01T00:00:00"}),
        json.dumps(message),
        json.dumps({"type": EVIL, "id": EVIL, "parentId": EVIL, "message": message}),
        json.dumps({"type": "session_meta", "payload": {"id": EVIL, "cwd": EVIL}}),
        json.dumps({"walld": EVIL, "last_seq": EVIL}),
        EVIL,
        json.dumps([EVIL]),
    ]
    forms = [("auto", first) for first in lines]
    forms += [(form, lines[0]) for form in ("gptme", "pi", "claude", "codex", EVIL)]
    for number, (form, first) in enumerate(forms):
        file.write_text("\n".join([first, *lines]), errors="surrogateescape")
        words = ("--format", form, "--session", f"{number} {EVIL}")
        harmless(daemon, "session", "import", str(file), *words, *at, shows=False)
    harmless(daemon, "session", "import", f"{file} no", "--session", "x", *at)
    harmless(daemon, "session", "ls", *at)


def test_a_session_that_is_damaged_on_a_terminal(evil: DaemonProcess, tmp_path: Path) -> None:
    """Told from its directory, and by a daemon that meets it."""
    assert evil.terminate() == 0
    (file,) = evil.data.glob("sessions/*/*/events.jsonl")
    whole = file.read_bytes()
    middle = whole.index(b"\n", len(whole) // 2) + 1
    stop = whole.index(b"\n", middle)
    file.write_bytes(whole[:middle] + EVIL.encode() + whole[stop:])
    for snapshot in file.parent.glob("snapshot*"):
        snapshot.unlink()
    data = str(evil.data)
    harmless(evil, "fsck", data, shows=False)
    harmless(evil, "fsck", data, "--json", shows=False)
    harmless(evil, "salvage", data, "--to", str(tmp_path / f"to {EVIL}"))
    evil.start()
    at = ("--socket", evil.socket_path)
    for view in VIEWS:
        for form in ((), ("--json",)):
            harmless(evil, "session", view, SESSION, *form, *at, shows=False)
    for form in EXPORTS:
        harmless(evil, "session", "export", SESSION, "--format", form, *at, shows=False)
    for command in ("audit", "repair-plan", "resume-check"):
        harmless(evil, command, SESSION, *at, shows=False)
    words = ("session", "repair", SESSION, "--data", data)
    harmless(evil, *words, shows=False)  # refused: a daemon runs
    assert evil.terminate() == 0
    harmless(evil, *words, shows=False)
    harmless(evil, "session", "repair", f"no {EVIL}", "--data", data)
    evil.start()
    harmless(evil, "session", "show", SESSION, *at)
