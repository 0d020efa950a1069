"""A disk made a session's file a TiB long: the daemon starts, in bounded memory, and says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from daemon_process import DaemonProcess, walld

TEXTS = [f"text {n}" for n in range(60)]


def resident_bytes(daemon: DaemonProcess) -> int:
    """At its most."""
    assert daemon.process is not None
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def contents(daemon: DaemonProcess, session_id: str) -> list[str]:
    return [one["content"] for one in daemon.reader.session(session_id).messages()]


@pytest.mark.parametrize("size", [1 << 30, 1 << 40])
def test_a_session_file_of_any_length_costs_neither_memory_nor_the_daemon(
    daemon: DaemonProcess, size: int, tmp_path: Path
) -> None:
    for name in ("long", "other"):
        session = daemon.reader.session(name)
        session.append_many(
            [{"type": "message", "payload": {"role": "user", "content": text}} for text in TEXTS]
        )
    assert daemon.terminate() == 0
    path = daemon.events_path("long")
    os.truncate(path, size)
    for lives in range(2):
        daemon.start()
        assert contents(daemon, "other") == TEXTS
        assert contents(daemon, "long") == TEXTS + ["behind"] * lives
        session = daemon.reader.session("long")
        session.events()
        assert [(one["first_seq"], one["last_seq"]) for one in session.breaks] == [(61, 61)]
        session.message("user", "behind")
        assert resident_bytes(daemon) < 200 << 20
        if lives:
            break
        salvaged = walld("salvage", daemon.data, "--to", tmp_path / "new")
        assert "taken: session long" in (salvaged.stdout + salvaged.stderr)
        assert daemon.terminate() == 0  # what came goes into a file of its own
    assert path.stat().st_size < 100_000
    (whole,) = (daemon.data / "quarantine").glob("*.whole")
    assert whole.stat().st_size == size
    said = "bytes behind its last line are none"
    assert daemon.logged(said).count(said) == 1
