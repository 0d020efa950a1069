"""Every golden directory is read by both builds, with the same answers.

What the bytes in them say is held by `tests/golden`; here the commands and a daemon of each build
are asked. New ones, of later changes, are found by themselves; what the build before refuses must
name a version.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from builds import TREE, Build, Daemon, same

GOLDEN = TREE / "tests" / "golden"
DIRECTORIES = sorted(
    {path.parent for name in ("wal", "sessions") for path in GOLDEN.rglob(name) if path.is_dir()}
)


def test_they_are_found() -> None:
    names = {str(path.relative_to(GOLDEN)) for path in DIRECTORIES}
    assert {"session_v1", "v1/clean", "v1/corrupt", "v1/settled", "v1/torn"} <= names


@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda path: str(path.relative_to(GOLDEN)))
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
        told[build.name] = [str(commands).replace(str(data), "DIR"), answers]
    same(told["old"], told["new"])
