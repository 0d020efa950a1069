"""What is called like a session's snapshot and is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import walld_client
from daemon_process import PATIENCE_SECONDS, MakeDaemon, walld


@pytest.mark.parametrize("kind", ["directory", "pipe", "link"])
def test_what_stands_in_the_place_of_a_snapshot_keeps_no_line_in_the_log(
    make_daemon: MakeDaemon, tmp_path: Path, kind: str
) -> None:
    """Nobody relies on a snapshot: lines go to their file without one."""
    (elsewhere := tmp_path / "elsewhere").write_text("of another")
    daemon = make_daemon().start()
    client = walld_client.connect(daemon.socket_path, timeout=PATIENCE_SECONDS)
    client.session("q").append("note", {"n": 1})
    daemon.terminate()
    folder = daemon.events_path("q").parent
    snapshot = folder / "snapshot"
    snapshot.unlink()
    if kind == "directory":
        snapshot.mkdir()
    elif kind == "pipe":
        os.mkfifo(snapshot)
    else:
        snapshot.symlink_to(elsewhere)
    daemon.start()
    client.session("q").append("note", {"n": 2})
    client.close()
    daemon.terminate()
    assert len(daemon.events_path("q").read_bytes().splitlines()) == 3
    repaired = walld("session", "repair", "q", "--data", daemon.data)
    assert (repaired.returncode, repaired.stderr) == (0, ""), "no line of it is in the log"
    assert elsewhere.read_text() == "of another"
    assert "stays in the log" not in daemon.log_text()
    told = "session q of uid" in daemon.log_text()
    assert told == snapshot.is_dir() == (kind == "directory")
    assert snapshot.is_file() or told
    assert [one.name for one in folder.iterdir() if one.name.endswith(".tmp")] == []
