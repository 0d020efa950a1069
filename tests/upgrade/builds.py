"""Two builds side by side: this tree, and the one that was released before.

Owns: where the sources of each lie, and their processes: daemons, agents, command lines, each with
its own PYTHONPATH in the one interpreter there is. Refuses: what they are asked (`answers.py`).
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Self

import pytest
from answers import differences, without_app
from walld_client.start import start_daemon

__all__ = [
    "HERE",
    "PATIENCE_SECONDS",
    "TREE",
    "Agent",
    "Build",
    "Daemon",
    "offline",
    "same",
    "settled",
    "until",
    "without_state",
]

HERE = Path(__file__).parent
TREE = HERE.parents[1]
PATIENCE_SECONDS = 60.0
"""Only how long something broken may keep a test waiting; no test passes by it."""


class Build:
    """Sources of one build."""

    def __init__(self, name: str, root: Path) -> None:
        self.name, self.root = name, root

    @classmethod
    def present(cls) -> Self:
        """This tree."""
        return cls("new", TREE)

    @classmethod
    def released(cls, folder: Path) -> Self:
        """The build before, unpacked there. Without its commit no test runs; in CI that is red."""
        commit = (HERE / "released").read_text().strip()
        git = ["git", "-C", str(TREE), "archive", "--format=tar", commit, "walld", "clients/python"]
        packed = subprocess.run(git, capture_output=True, check=False)
        if packed.returncode:
            why = packed.stderr.decode(errors="replace").strip()
            text = f"no commit {commit} here, which tests/upgrade/released names ({why}): "
            text += "`git fetch --unshallow` brings the history, and these tests need it"
            (pytest.fail if os.environ.get("CI") else pytest.skip)(text)
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as sources:
            sources.extractall(folder, filter="data")
        return cls("old", folder)

    def environment(self) -> dict[str, str]:
        """This process's without anything of walld, with the packages of this build. All programs
        are one application: to 0.1.0 there are no others.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WALLD_")}
        return kept | {
            "PYTHONPATH": f"{self.root}:{self.root / 'clients/python'}",
            "PYTHONDONTWRITEBYTECODE": "",
            "WALLD_APP": "tests",
        }

    def python(self, *words: object) -> subprocess.CompletedProcess[str]:
        """A program with this build's packages, to its end."""
        return subprocess.run(
            [sys.executable, *map(str, words)],
            env=self.environment(),
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def walld(self, *words: object) -> tuple[int, Any]:
        """A command line of this build: its exit code, and what it printed, JSON where it is."""
        done = self.python("-m", "walld", *words)
        try:
            return done.returncode, json.loads(done.stdout)
        except ValueError:
            return done.returncode, done.stdout + done.stderr

    def answers(self, socket_path: str) -> dict[str, Any]:
        """What its client is told there."""
        done = self.python(HERE / "answers.py", socket_path)
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told


class Daemon:
    """`walld serve` of a build on a directory; one at a time on a socket."""

    def __init__(self, build: Build, data: Path, socket_path: str, log: Path) -> None:
        self.build, self.socket_path, self.log = build, socket_path, log
        start_daemon(
            data,
            socket=socket_path,
            log=log,
            command=[sys.executable, "-m", "walld"],
            env=build.environment(),
            wait=False,  # for the command line of the build itself, which knows its wire
            launch=self._launch,
        )
        until(self._is_ready, f"a daemon of the {build.name} build; see {log}")

    def _launch(
        self, command: list[str], env: Mapping[str, str], stderr: int
    ) -> subprocess.Popen[bytes]:
        """Where the sources of the build are: an interpreter finds `walld` there first."""
        self.process = subprocess.Popen(
            command,
            env=env,
            cwd=self.build.root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
        return self.process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        code, told = self.build.walld("status", "--json", "--socket", self.socket_path)
        return code == 0 and told["state"] != "recovering"

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def terminate(self) -> None:
        """SIGTERM, and it ends in order."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_SECONDS) == 0, self.log.read_text()


class Agent:
    """`acts.py` with the client of a build, once it has said all but what it is told to say."""

    def __init__(self, build: Build, socket_path: str, name: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "acts.py"), socket_path, name],
            env=build.environment(),
            cwd=build.root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def say(self, word: str) -> None:
        """One more word of its live reply, known synced."""
        _stream(self.process.stdin).write(f"{word}\n")
        _stream(self.process.stdin).flush()
        assert self._line() == "said"

    def _line(self) -> str:
        return _stream(self.process.stdout).readline().strip()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.communicate()


def _stream(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.05)


def settled(daemon: Daemon, agents: list[Agent]) -> None:
    """The daemon knows that these are gone, and what their turns have become."""
    names = {f"{one.name}-live" for one in agents}

    def all_orphans() -> bool:
        told = daemon.build.answers(daemon.socket_path)
        open_turns = [
            turn
            for one in agents
            for turn in told[f"session {one.name}-session"]["state"]["turns"]
            if turn["state"] not in ("completed", "interrupted")
        ]
        return names <= {*told["orphans"]} and not open_turns

    until(all_orphans, f"orphans {names}")


def same(one: Any, other: Any) -> None:
    """Nothing differs of what both builds know."""
    found = list(differences(without_app(one), without_app(other)))
    assert not found, "\n".join(found[:20])


def offline(build: Build, data: Path, sessions: list[str]) -> dict[str, Any]:
    """What a build's commands say of a directory that nobody owns: exit codes and JSON."""
    told = {name: build.walld("recover", name, "--data", data, "--json") for name in sessions}
    fsck = build.walld("fsck", data, "--json")
    listed = without_state(build.walld("ls", "--data", data, "--json"))
    return told | {"fsck": fsck, "ls": listed}


def without_state(listed: tuple[int, Any]) -> tuple[int, Any]:
    """A list as 0.1.0 prints it, too: it has no word of where replies and sessions stand."""
    code, rows = listed
    if not isinstance(rows, list):
        return listed
    return code, [{name: one[name] for name in one if name != "state"} for one in rows]
