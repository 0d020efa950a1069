"""A row of another log: each build proves "nothing" to its user only once it is moved away."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from builds import TREE, Agent, Build, Daemon, until

GOLDEN = TREE / "tests" / "golden" / "other_log_v1"


@pytest.mark.parametrize("name", ["old", "new"])
def test_nothing_is_proven_while_it_lies_there(
    name: str, old: Build, new: Build, tmp_path: Path, socket_path: str
) -> None:
    build, data = {"old": old, "new": new}[name], tmp_path / "data"
    data.mkdir(mode=0o700)
    shutil.copytree(GOLDEN, data, dirs_exist_ok=True)
    data.chmod(0o700)
    row = data / "quarantine" / f"other-log.{os.geteuid()}"
    (data / "quarantine" / "other-log.1000").rename(row)
    made = (data / "made").read_bytes()
    for code in (1, 3):
        with Daemon(build, data, socket_path, tmp_path / "log") as daemon:
            assert build.walld("recover", "S", "--socket", socket_path)[0] == code
            daemon.terminate()
        assert build.walld("recover", "S", "--data", data)[0] == code
        row.unlink(missing_ok=True)
    assert (data / "made").read_bytes() == made


def test_what_a_build_made_the_other_reads(
    old: Build, new: Build, tmp_path: Path, socket_path: str
) -> None:
    """New, old, new again: nobody takes the directory for a new one."""
    told = []
    for build in (new, old, new):
        with Daemon(build, tmp_path / "data", socket_path, tmp_path / "log") as daemon:
            assert build.walld("recover", "S", "--socket", socket_path)[0] == 3
            told.append(build.walld("status", "--json", "--socket", socket_path)[1])
            daemon.terminate()
    first, between, last = (one.get("new_directory") for one in told)
    assert first is not None
    assert (between, last) == (None, first)


@pytest.mark.parametrize("whose", ["old", "new"])
def test_a_client_of_each_build_says_which_log_it_knows(
    whose: str, old: Build, new: Build, tmp_path: Path, socket_path: str
) -> None:
    """0.1.0 attests its log with each connection, and reads "unreadable" as "cannot know"."""
    builds, data, log = {"old": old, "new": new}, tmp_path / "data", tmp_path / "log"
    ask = ("recover", "elsewhere", "--socket", socket_path)
    with Daemon(new, data, socket_path, log) as daemon:
        with Agent(builds[whose], socket_path, "a") as agent:
            agent.say("one")
            daemon.kill()
            data.rename(tmp_path / "away")
            with Daemon(new, data, socket_path, log) as daemon:
                agent.say("two")
                assert [build.walld(*ask)[0] for build in (old, new)] == [1, 1]
                agent.kill()
                daemon.kill()
        row = data / "quarantine" / f"other-log.{os.geteuid()}"
        until(row.exists, "a row, written before that agent was let in")
        with Daemon(new, data, socket_path, log) as daemon:
            assert [build.walld(*ask)[0] for build in (old, new)] == [1, 1]
            daemon.terminate()
