"""A session whose client redacts: what it names is what is meant, and what it says is redacted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import walld_client
from daemon_process import DaemonProcess

KEYS = re.compile("[A-Fa-f0-9]{32,}")
MAIL = re.compile(r"\S+@\S+")
A, B = "a" * 32, "b" * 32
NEVER: dict[str, Any] = {"side_effect": "external-write", "resume_policy": "never-rerun"}


def hidden(text: str) -> str:
    return MAIL.sub("[mail]", KEYS.sub("[key]", text))


@pytest.fixture
def session(daemon: DaemonProcess) -> Any:
    client = walld_client.connect(daemon.socket_path, redact=hidden)
    yield client.session("s")
    client.close()


def test_a_message_is_edited_by_its_own_id(session: walld_client.Session) -> None:
    first = session.submit("from me@host", message_id="<1@host>")
    session.message("assistant", "an answer", id="a1@host")
    assert session.submit("from me@host", message_id="<1@host>").turn_id == first.turn_id
    assert session.submit("another", message_id="<2@host>").turn_id != first.turn_id
    session.edit("a1@host", role="assistant", content="better, me@host")
    session.edit("<1@host>", role="user", content="asked")
    session.label("a1@host", "me@host")
    said = [one["content"] for one in session.messages() or []]
    assert said == ["asked", "better, [mail]", "another"]
    session.branch("a1@host")
    assert len(session.messages() or []) == 2


def test_a_call_that_started_is_settled_by_its_own_result(session: walld_client.Session) -> None:
    turn = session.submit("x", message_id="m")
    turn.intent("pay", {"to": "me@host"}, call_id=A, **NEVER)
    turn.tool_started(A)
    turn.intent("mail", {}, call_id=B, **NEVER)
    turn.tool_started(B)
    turn.tool_finished(B, "ok")
    gate = session.resume_check() or {}
    assert [(one["call_id"], one["tool"]) for one in gate["tools"]] == [(A, "pay")]
    assert gate["status"] != "ready"


def test_bytes_and_files_are_found_by_their_hash(
    session: walld_client.Session, tmp_path: Path
) -> None:
    put = session.artifact(b"hello")
    turn = session.submit("x", attachments=[b"attached"])
    (message,) = session.messages() or []
    attached = message["attachments"][0]["_artifact"]
    held = [session.read_artifact(one) for one in (put.sha256, attached["sha256"])]
    assert held == [b"hello", b"attached"]
    work = tmp_path / "work"  # beside the daemon's files, which change
    work.mkdir()
    (work / "f").write_text("1")
    session.checkpoint_workspace(work, ["f"])
    turn.intent("t", {}, side_effect="read", resume_policy="rerun-after-check", call_id=A)
    turn.tool_started(A)
    turn.tool_finished(A, "ok", files=[work / "f"])
    assert (session.resume_check(work) or {})["workspace"]["verdict"] == "same"
    reply = turn.reply()
    assert session.turn(stream_id=reply.stream_id).turn_id == turn.turn_id
