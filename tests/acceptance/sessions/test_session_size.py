"""Sessions of which no entry, no request and no wait has room for all: many files, slow views."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import walld_client
from colours import connect
from daemon_process import DaemonProcess, walld

FILES = 8_000
"""Their hashes are more than a frame holds, and five times what an entry does."""


def test_a_gate_compares_as_many_files_as_the_session_knows(
    daemon: DaemonProcess, reader: Any, tmp_path: Path
) -> None:
    """A tool names them, a checkpoint hashes them anew; none of it is cut or left out."""
    work = tmp_path / "work"  # beside the daemon's files, which change
    folder = work / ("d" * 90)
    folder.mkdir(parents=True)
    names = [f"{folder.name}/file-{number:06}.txt" for number in range(FILES)]
    for name in names:
        (work / name).write_text("then")
    session = reader.session("s")
    turn = session.submit("go")
    turn.intent(
        "write", {}, side_effect="workspace-write", resume_policy="rerun-after-check", call_id="c"
    )
    turn.tool_started("c")
    session.checkpoint_workspace(work)
    turn.tool_finished("c", "ok", files=dict.fromkeys(names, "0" * 64))
    turn.completed()
    gate = session.resume_check(work)
    then = gate["workspace"]["then"]
    assert (len(then["files"]), set(then["files"].values())) == (FILES, {"0" * 64})
    assert "head" in then, "what was looked at stands beside what a tool says"
    assert gate["as_of"] == session.events()[-1]["id"]
    assert [one["code"] for one in gate["reasons"]] == ["workspace_changed"]
    changed = gate["workspace"]["changed"]
    shown = len(changed) - 1
    assert changed[:2] == [f"file {name}" for name in names[:2]]
    assert changed[-1] == f"{FILES - shown} more files", "all differ, and all are counted"
    assert gate["reasons"][0]["message"].endswith(f" and {FILES - 100} others")

    session.checkpoint_workspace(work)
    gate = session.resume_check(work)
    assert (gate["status"], gate["workspace"]["verdict"]) == ("ok", "same")
    elsewhere = walld_client.workspace_fingerprint(work, names)
    assert session.resume_check(elsewhere)["workspace"]["changed"] == []
    (work / names[7]).write_text("now")
    (work / names[-1]).unlink()
    expected = [f"file {names[7]}", f"file {names[-1]}"]
    assert session.resume_check(work)["workspace"]["changed"] == expected
    elsewhere = walld_client.workspace_fingerprint(work, names)
    assert session.resume_check(elsewhere)["workspace"]["changed"] == expected
    told = walld("resume-check", "s", "--workspace", work, "--socket", daemon.socket_path)
    assert (told.returncode, told.stderr) == (1, "")
    assert f"changed: {', '.join(expected)} (workspace_changed)" in told.stdout


@pytest.mark.parametrize("view", ["messages", "state", "audit"])
def test_a_view_that_comes_too_late_says_what_to_do(
    daemon: DaemonProcess, colour: str, view: str
) -> None:
    daemon.reader.session("s").message("user", "x")
    client = connect(colour, daemon.socket_path, timeout=0.2)
    session = client.session("s")
    command = ("session", "state", "s", "--socket", daemon.socket_path)
    daemon.freeze()
    with pytest.raises(walld_client.Unavailable) as late:
        client.audit("s") if view == "audit" else getattr(session, view)()
    told = walld(*command, "--timeout", "0.2")
    daemon.thaw()
    client.let_go()
    for word in ("within 0.2 s", f"view {view} of session 's'", "connect(timeout=)"):
        assert word in str(late.value)
    assert told.returncode == 1
    assert "no answer within 0.2 s (--timeout S waits longer)" in told.stderr
    assert json.loads(walld(*command).stdout)["last_seq"] == 1
