"""The README's first program is killed as it says, and comes back as it shows."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire_peer import Daemon

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
CLIENT_README = (ROOT / "clients/python/README.md").read_text()
LINES_MAX = 120
DIFFERS = {
    "stream": r"[0-9a-f]{32}",
    "app": r"/.*/agent\.py",
    "started": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ",
    "last event": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ",
}
"""What is another at each run, and its form."""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    running = Daemon(tmp_path)
    try:
        yield running
    finally:
        running.stop()


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.M | re.S)


def run(daemon: Daemon, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """The command in that folder; a client of it finds the daemon as a user's would."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("WALLD_")}
    env |= {
        "PYTHONPATH": f"{ROOT}:{ROOT / 'clients/python'}",
        "WALLD_SOCKET": daemon.socket_path,
    }
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def shown(console: str) -> dict[str, list[str]]:
    """What stands below each command of the block."""
    command, *rest = re.split(r"^\$ (.*)\n", console, flags=re.M)
    assert command == ""
    return {rest[at]: rest[at + 1].splitlines() for at in range(0, len(rest), 2)}


def test_the_program_is_killed_and_its_reply_comes_back(daemon: Daemon, tmp_path: Path) -> None:
    first, adopt = blocks(README, "python")
    (console,) = blocks(README, "console")
    page = shown(console)
    assert list(page) == ["python agent.py", "walld recover chat-42"]
    agent = tmp_path / "agent.py"

    agent.write_text(first)
    assert run(daemon, tmp_path, "agent.py").returncode == -signal.SIGKILL
    assert page["python agent.py"] == ["Killed"]

    told = run(daemon, tmp_path, "-m", "walld", "recover", "chat-42")
    assert told.returncode == 0, told.stderr
    lines = [line.rstrip() for line in told.stdout.splitlines()]
    assert len(lines) == len(page["walld recover chat-42"])
    for got, line in zip(lines, page["walld recover chat-42"], strict=True):
        name = line[:12].rstrip()
        if name in DIFFERS:
            for of in (got, line):
                assert re.fullmatch(f"{name:12}{DIFFERS[name]}", of)
        else:
            assert got == line

    # The same program, started anew, with the store that the page links to.
    (store,) = [block for block in blocks(CLIENT_README, "python") if "class Messages" in block]
    head = "import json, sqlite3, walld_client\n"
    made = "walld = walld_client.connect()\nstore = Messages('messages.db')\n"
    agent.write_text(f"{head}{store}{made}{adopt}walld.close()\n")
    assert run(daemon, tmp_path, "agent.py").stdout == "1 messages came back\n"
    assert run(daemon, tmp_path, "agent.py").stdout == "0 messages came back\n"
    with sqlite3.connect(tmp_path / "messages.db") as db:
        ((body,),) = db.execute("select body from messages where session = 'chat-42'")
    db.close()
    assert "The capital of France is Paris," in body
    assert run(daemon, tmp_path, "-m", "walld", "recover", "chat-42").returncode == 3


def test_what_it_installs_is_here() -> None:
    (block,) = blocks(README, "sh")
    install, serve = block.splitlines()
    assert serve == "walld serve &"
    assert install.startswith("pip install ")
    for folder in re.findall(r"(\S+)(?: |$)", install.partition("#")[0])[2:]:
        assert (ROOT / folder / "pyproject.toml").exists(), folder


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= LINES_MAX
