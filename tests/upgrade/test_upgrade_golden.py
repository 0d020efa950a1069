"""Every golden directory is read by both builds, with the same answers.

What the bytes in them say is held by `tests/golden`; here the commands and a daemon of each build
are asked. New ones, of later changes, are found by themselves; what the build before refuses must
name a version.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from answers import without_app
from builds import PATIENCE_SECONDS, TREE, Build, Daemon, same

GOLDEN = TREE / "tests" / "golden"
DIRECTORIES = sorted(
    {path.parent for name in ("wal", "sessions") for path in GOLDEN.rglob(name) if path.is_dir()}
)
REFUSED = {"folded_v2": "a LOCK of version 2, this walld reads 1"}
"""By the build before, with this line."""
READ = [path for path in DIRECTORIES if str(path.relative_to(GOLDEN)) not in REFUSED]


def test_they_are_found() -> None:
    names = {str(path.relative_to(GOLDEN)) for path in DIRECTORIES}
    assert names >= REFUSED.keys()
    assert {"session_v1", "v1/clean", "v1/corrupt", "v1/settled", "v1/torn"} <= names


@pytest.mark.parametrize("directory", READ, ids=lambda path: str(path.relative_to(GOLDEN)))
def test_both_read_it_with_the_same_answers(
    directory: Path, old: Build, new: Build, tmp_path: Path, socket_path: str
) -> None:
    told = dict[str, Any]()
    for build in (old, new):
        data = tmp_path / build.name
        shutil.copytree(directory, data)
        commands = [
            build.walld(*words)
            for words in (
                ("dump", "--data", data, "--items", "--json"),
                ("fsck", data, "--json"),
                ("recover", "chat/7", "--data", data, "--json"),
            )
        ]
        with Daemon(build, data, socket_path, tmp_path / "log") as daemon:
            answers = build.answers(socket_path)
            daemon.terminate()
        told[build.name] = [str(without_app(commands)).replace(str(data), "DIR"), answers]
    same(told["old"], told["new"])


@pytest.mark.parametrize(("name", "says"), REFUSED.items())
def test_the_build_before_refuses_it_and_changes_nothing(
    name: str, says: str, old: Build, tmp_path: Path, socket_path: str
) -> None:
    data = tmp_path / "data"
    shutil.copytree(GOLDEN / name, data)
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    # Not by `start_daemon`, which quotes the last lines: it ends, and its whole stderr is judged.
    done = subprocess.run(
        [sys.executable, "-m", "walld", "serve", "--data", data, "--socket", socket_path],
        env=old.environment(),
        cwd=old.root,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert says in line
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before
