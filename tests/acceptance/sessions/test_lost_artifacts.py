"""Long content is put beside its session: what is said where it is lost, or never was there."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import walld_client
from daemon_process import DaemonProcess

LONG = "B" * 300_000


def lose(daemon: DaemonProcess) -> None:
    """Remove all artifacts of all sessions."""
    found = [path for path in daemon.files() if len(path.name) == 64 and "sessions" in str(path)]
    assert found
    for path in found:
        path.unlink()


def test_one_lost_artifact_costs_its_message_and_no_other(
    daemon: DaemonProcess, reader: Any
) -> None:
    session = reader.session("s")
    session.message("user", "small")
    session.message("user", LONG)
    session.message("assistant", "fine")
    lose(daemon)
    small, long, fine = session.messages()
    assert (small["content"], fine["content"]) == ("small", "fine")
    assert long["_artifact_lost"] == "artifact_missing"
    assert long["content"]["_artifact"]["size"] == len(LONG)
    for name in ("openai", "anthropic"):
        said = str(session.messages(name))
        assert "artifact, 300000 bytes" in said
        assert "small" in said
        assert "fine" in said
        assert "_artifact" not in said
    done = daemon.cli("session", "messages", "s", "--socket", daemon.socket_path)
    assert done.returncode == 0
    assert b"artifact_missing" in done.stderr
    assert b"fine" in done.stdout
    report = reader.audit("s")
    assert [one.kind for one in report.findings] == ["artifact_missing"]


def test_a_plan_has_the_other_steps(daemon: DaemonProcess, reader: Any) -> None:
    session = reader.session("s")
    session.submit(LONG, message_id="m1")
    session.submit("second", message_id="m2")
    lose(daemon)
    one, two = reader.repair_plan("s", present=[])
    assert one.message["_artifact_lost"] == "artifact_missing"
    assert two.message["content"] == "second"
    assert "_artifact_lost" not in two.message


def test_an_artifact_that_cannot_be_read_hides_nothing_else(
    daemon: DaemonProcess, reader: Any
) -> None:
    """A link in its place stands for any error of the kernel: it is not followed."""
    session, other = reader.session("s"), reader.session("other")
    kept = session.artifact(b"kept")
    other.submit("q", message_id="m")
    (path,) = (path for path in daemon.files() if path.name == kept.sha256)
    path.unlink()
    path.symlink_to("/etc/hostname")
    report = reader.audit(present=[])
    assert [one.kind for one in report.findings if one.session_id == "other"] == [
        "turn_journal_pending_turn"
    ]
    (finding,) = (one for one in report.findings if one.session_id == "s")
    assert finding.kind == "artifact_missing"
    assert kept.sha256 in finding.subject
    assert "unreadable: " in finding.subject
    gate = session.resume_check()
    assert [one["code"] for one in gate["reasons"]] == ["artifact_unreadable"]
    assert gate["status"] == "check"
    assert "cannot be read" in gate["reasons"][0]["message"]
    with pytest.raises(walld_client.Unavailable, match=kept.sha256):
        session.read_artifact(kept.sha256)


@pytest.mark.parametrize(
    "content",
    [
        {"_artifact": {"sha256": "ab", "size": 1}},
        {"_artifact": {"sha256": 7}},
        {"_artifact": {}},
        {"_artifact": "of mine"},
    ],
)
def test_content_that_looks_like_an_artifact_is_the_applications_own(
    daemon: DaemonProcess, reader: Any, content: Any
) -> None:
    session = reader.session("s")
    session.message("user", content)
    session.submit(content, message_id="m")
    session.message("user", "other")
    assert [one["content"] for one in session.messages()] == [content, content, "other"]
    (step,) = reader.repair_plan("s", present=[])
    assert step.message["content"] == content
    assert isinstance(reader.audit("s"), walld_client.Report)


def test_a_provider_is_sent_all_of_what_is_long(daemon: DaemonProcess, reader: Any) -> None:
    session = reader.session("s")
    turn = session.submit("A" * 300_000)
    with turn.reply() as reply:
        reply.token("B" * 400_000)
        reply.tool("t", {"big": "C" * 300_000}, call_id="k")
        reply.tool_result("D" * 300_000, call_id="k")
        reply.step()
        reply.token("done")
        reply.end()
    turn.completed()
    blocks = [{"type": "text", "text": "E" * 300_000}]
    session.message("user", blocks)
    openai, anthropic = session.messages("openai"), session.messages("anthropic")
    call = openai[1]["tool_calls"][0]["function"]
    result = openai[2]["content"]  # of a tool: its first and last halves
    assert re.fullmatch(
        r"D{8192}\n?\[\.\.\. 283,616 of 300,000 characters left out.*\]\n?D{8192}", result
    )
    assert [one["content"] for one in openai] == [
        "A" * 300_000,
        "B" * 400_000,
        result,
        "done",
        "E" * 300_000,
    ]
    assert json.loads(call["arguments"]) == {"big": "C" * 300_000}
    said, used = anthropic[1]["content"]
    assert (said["text"], used["input"]) == ("B" * 400_000, {"big": "C" * 300_000})
    assert anthropic[2]["content"][0]["content"] == result
    assert anthropic[-1]["content"] == blocks
    for words in (("messages",), ("export",)):
        for name, told in (("openai", openai), ("anthropic", anthropic)):
            names = ("session", *words, "s", "--format", name, "--socket", daemon.socket_path)
            assert json.loads(daemon.cli(*names).stdout) == told
    lose(daemon)
    words = ("session", "messages", "s", "--format", "openai")
    done = daemon.cli(*words, "--socket", daemon.socket_path)
    assert done.returncode == 0
    assert done.stderr.count(b"artifact_missing") == 3
    assert b"only its beginning is shown" in done.stdout


def test_a_long_text_of_an_event_is_kept_whole(daemon: DaemonProcess, reader: Any) -> None:
    session = reader.session("s")
    first = session.message("user", "a")
    turn = session.submit("q")
    turn.intent("t", {}, side_effect="none", resume_policy="never-rerun", call_id="k")
    turn.tool_started("k")
    turn.tool_finished("k", "r" * 300_000)
    turn.observation("k", LONG)
    turn.interrupted("I" * 300_000)
    (tool,) = session.project("transcript")[1]["tools"]
    assert tool["observations"] == [LONG]
    assert tool["result"] == "r" * 300_000
    observed, interrupted = (one["payload"] for one in session.events()[-2:])
    assert observed["text"] == "B" * 1024
    assert session.read_artifact(observed["_artifact"]["sha256"]) == LONG.encode()
    assert interrupted["reason"] == "I" * 1024
    assert session.project("turn", turn_id=turn.turn_id)["reason"] == "I" * 1024
    session.branch(first.id, summary="L" * 300_000)
    assert session.messages()[-1]["content"] == "L" * 300_000
    session.compact("S" * 300_000, session.message("user", "kept").id)
    for name in ("plain", "openai"):
        assert str(session.messages(name)).count("S") == 300_000
    assert not reader.audit("s", present=[turn.turn_id]).to_dict()["collisions"]
    fork = session.fork(None, "s2")
    assert fork.messages() == session.messages()
    lose(daemon)
    assert session.messages()[0]["_artifact_lost"] == "artifact_missing"
    assert session.project("transcript")[1]["tools"][0]["_artifact_lost"] == "artifact_missing"


def test_a_name_that_is_too_long_is_named(reader: Any) -> None:
    session = reader.session("s")
    entry = session.message("user", "a")
    turn = session.submit("q")
    policies = {"side_effect": "none", "resume_policy": "never-rerun"}
    for call, said in (
        (lambda: session.label(entry.id, LONG), "text of label"),
        (lambda: session.change_model(LONG), "model of model_change"),
        (lambda: turn.intent(LONG, {}, **policies), "tool of tool_intent"),
        (lambda: session.submit("q", attachments=[{"of mine": LONG}]), "attachments of turn_"),
        (lambda: session.message(LONG, "a"), "role"),
    ):
        with pytest.raises(ValueError, match=f"{said}.* is 300"):
            call()
    assert len(session.events()) == 2
