"""What a user installs: few dependencies, none pinned by us, and the same bytes at each build."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from daemon_process import ROOT

PROJECTS = [ROOT, ROOT / "clients/python"]
DAEMON_NEEDS = {"walld-client", "anyio", "msgspec", "prometheus-client", "uvloop"}
CLIENT_NEEDS = {"msgspec"}


def needs(project: Path) -> set[str]:
    """Names of the run-time dependencies."""
    table = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    return {one.partition(">")[0].strip() for one in table["dependencies"]}


def test_the_dependencies_are_few_and_named() -> None:
    assert needs(ROOT) == DAEMON_NEEDS
    assert needs(ROOT / "clients/python") == CLIENT_NEEDS


def test_no_lock_file_is_committed_and_no_version_is_pinned() -> None:
    """An application pins; a library that pins keeps security fixes from its users."""
    for project in PROJECTS:
        names = {path.name for path in project.iterdir()}
        assert not names & {"uv.lock", "poetry.lock", "Pipfile.lock", "requirements.txt"}
        table = tomllib.loads((project / "pyproject.toml").read_text())["project"]
        for one in table["dependencies"]:
            assert "==" not in one.partition(";")[0], one
            assert "<" not in one.partition(";")[0], one
            assert "@" not in one, one


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_two_builds_are_the_same_bytes(project: Path, tmp_path: Path) -> None:
    """Without a network, at another time, as another umask would have it."""
    pytest.importorskip("hatchling", reason="the build back end is not installed here")
    build = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1]))"
    sums = []
    for number, umask in enumerate((0o022, 0o077)):
        folder = tmp_path / str(number)
        folder.mkdir()
        before = os.umask(umask)
        try:
            done = subprocess.run(
                [sys.executable, "-c", build, str(folder)],
                cwd=project,
                env={name: value for name, value in os.environ.items() if "proxy" not in name},
                capture_output=True,
                text=True,
                check=True,
            )
        finally:
            os.umask(before)
        wheel = folder / done.stdout.strip()
        sums.append(hashlib.sha256(wheel.read_bytes()).hexdigest())
    assert sums[0] == sums[1]
