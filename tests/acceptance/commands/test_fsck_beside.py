"""`walld fsck` and `walld salvage` beside a daemon at work: no lock and no false alarm."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import walld_client
from daemon_process import DaemonProcess

from walld.cli import main

KEPT_MAX = 200
"""Replies that stay: each is read by each fsck, and costs salvage a sync."""


def test_a_log_that_is_being_written_is_clean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = DaemonProcess(tmp_path, "--flush-linger-ms", "1").start()
    done = threading.Event()
    client = walld_client.connect(daemon.socket_path)

    def speak() -> None:
        kept = 0
        while not done.is_set():
            with client.reply("chat") as reply:
                for _ in range(200):
                    reply.token("x" * 500)
                reply.end()
            if kept < KEPT_MAX:
                kept += 1
                with client.reply("kept") as reply:
                    reply.token("y" * 5000)

    speaker = threading.Thread(target=speak)
    speaker.start()
    try:
        for _ in range(15):
            assert main(["fsck", str(daemon.data)]) == 0, capsys.readouterr().out
        capsys.readouterr()
        assert main(["salvage", str(daemon.data), "--to", str(tmp_path / "copy")]) == 1
        assert "in doubt: the log was written to while it was read" in capsys.readouterr().out
        assert daemon.status()["state"] == "ok"
    finally:
        done.set()
        speaker.join()
        client.close()
        daemon.terminate()
    assert main(["fsck", str(daemon.data)]) == 0
    assert main(["salvage", str(daemon.data), "--to", str(tmp_path / "whole")]) == 0


def test_after_a_kill_it_is_clean_or_torn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = DaemonProcess(tmp_path, "--flush-linger-ms", "1").start()
    client = walld_client.connect(daemon.socket_path)
    reply = client.reply("chat")
    for _ in range(2000):
        reply.token("z" * 300)
    daemon.kill()
    client.close(0.0)
    assert main(["fsck", str(daemon.data)]) in (0, 1), capsys.readouterr().out
