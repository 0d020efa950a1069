"""`walld session archive` and the import of its file, killed at each call that they make.

What must be true: the session is there, or its whole archive is; the same command, given again,
finishes; what is imported then is what was archived, whatever an import before it had begun.
"""

from __future__ import annotations

import gzip
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from daemon_process import DaemonProcess, environment
from strace import needs_strace

from walld.foreign import archive_text

CALLS = ("flock", "ftruncate", "write", "fsync", "rename", "sendto")
"""That change the file, or ask the daemon."""
KILLS_MAX = 6
"""Of calls of one name, the first and the last among them."""
SAID = "what was said; "
KEPT = ("id", "parent", "type", "payload", "at", "leaf", "key", "turn")


class World:
    """A session, and the folder that its archive goes to."""

    def __init__(self, daemon: DaemonProcess, folder: Path, name: str = "s") -> None:
        self.name, self.folder = name, folder
        folder.mkdir()
        self.session = daemon.reader.session(name)
        for artifact in (b"one", b"two"):
            self.session.artifact(artifact * 400_000, "text/plain")
        self.session.append_many([{"type": "app.note", "payload": {"text": SAID * 20}}] * 300)
        self.session.message("user", "the end")
        self.events = self.read()

    def read(self) -> list[dict[str, Any]]:
        """The session but for the words of an import."""
        return [
            {name: one.get(name) for name in KEPT}
            for one in self.session.events()
            if one["type"] != "imported"
        ]

    @property
    def words(self) -> list[str]:
        return ["session", "archive", self.name, "--to", str(self.folder)]

    def archives(self) -> list[Path]:
        """Those that have their name."""
        return [path for path in self.folder.iterdir() if not path.name.startswith(".")]

    def is_archived(self) -> bool:
        """There is a file of that name, and it is whole."""
        for path in self.archives():
            text = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
            own = [
                line for line in archive_text.read(text).lines if b'"type":"imported"' not in line
            ]
            assert len(own) == 1 + len(self.events)
            assert len(list(archive_text.artifacts(text))) == 2
        return bool(self.archives())


@pytest.fixture
def run(daemon: DaemonProcess) -> Callable[..., int]:
    """The exit code of a command, under strace where it is given options."""

    def done(words: list[str], *options: str) -> int:
        command = [sys.executable, "-m", "walld", *words]
        command += ["--socket", daemon.socket_path, "--timeout", "60"]
        if options:
            command = [str(shutil.which("strace")), "-f", *options, *command]
        return subprocess.run(
            command, env=environment(), check=False, capture_output=True, timeout=120
        ).returncode

    return done


def calls_of(trace: Path, since: str) -> list[tuple[str, int]]:
    """Each call that the command made since it first touched something so called, as (name, which
    of its name from the start of the process).
    """
    counts: Counter[str] = Counter()
    found: list[tuple[str, int]] = []
    for line in trace.read_text().splitlines():
        if (call := re.match(r"\d+ +(\w+)\(", line)) is None:
            continue
        counts[call[1]] += 1
        if found or since in line:
            found.append((call[1], counts[call[1]]))
    return found


def killed(run: Callable[..., int], words: list[str], name: str, count: int) -> bool:
    """The command, killed as it makes its count-th call of that name."""
    killing = ("-e", f"trace={name}", "-e", f"inject={name}:signal=KILL:when={count}")
    code = run(words, *killing, "-o", "/dev/null")
    assert code in (-signal.SIGKILL, 128 + signal.SIGKILL), (name, count, code)
    return True


def some(counts: list[int]) -> list[int]:
    """At most KILLS_MAX of them."""
    most = min(KILLS_MAX, len(counts))
    return [counts[at * (len(counts) - 1) // max(most - 1, 1)] for at in range(most)]


@needs_strace
@pytest.mark.parametrize("name", CALLS)
def test_killed_at_each_call(
    name: str, daemon: DaemonProcess, run: Callable[..., int], tmp_path: Path
) -> None:
    world, trace = World(daemon, tmp_path / "first", "first"), tmp_path / "trace"
    assert run(world.words, "-e", f"trace={name},sendto", "-o", str(trace)) == 0
    counts = [count for call, count in calls_of(trace, "sendto(") if call == name]
    assert counts, "it is made"
    for count in some(counts):
        world = World(daemon, tmp_path / f"killed at {count}", f"killed at {count}")
        before = world.session.events()
        assert killed(run, world.words, name, count)
        is_there = world.session.events() == before
        assert is_there or (world.is_archived() and world.session.events() == []), count
        assert run(world.words) == 0, count
        assert world.session.events() == []
        assert world.is_archived()
        assert list(world.folder.iterdir()) == world.archives(), "no hidden file is left"
    assert run(["session", "import", str(world.archives()[0])]) == 0
    assert world.read() == world.events


@needs_strace
def test_an_import_killed_at_each_request_is_ended_by_the_next(
    daemon: DaemonProcess, run: Callable[..., int], tmp_path: Path
) -> None:
    world, trace = World(daemon, tmp_path / "archives"), tmp_path / "trace"
    assert run(world.words) == 0
    words = ["session", "import", str(world.archives()[0])]
    assert run(words, "-e", "trace=sendto", "-o", str(trace)) == 0
    assert world.read() == world.events
    # strace counts the calls of each thread by itself, and it is another one that sends most.
    senders = Counter(re.findall(r"^(\d+) +sendto\(", trace.read_text(), re.M))
    for count in some(list(range(1, max(senders.values()) + 1))):
        daemon.reader.delete("s")
        assert killed(run, words, "sendto", count)
        there = world.read()
        assert there == world.events[: len(there)]
        gate = world.session.resume_check()
        if there and there != world.events:
            assert gate["status"] == "blocked", "nobody goes on with a part of it"
            assert [one["code"] for one in gate["reasons"]] == ["import_unfinished"]
        assert run(words) == 0, count
        assert world.read() == world.events
        assert world.session.resume_check()["status"] == "ok"
