"""The bench runs, names its goals and writes down what it found, which decides nothing here."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from daemon_process import environment

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "bench" / "results"


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )


def remove(written: Path) -> None:
    """A results file, and the folder with its table and charts."""
    written.unlink()
    shutil.rmtree(written.with_suffix(""))


def test_a_question_is_answered_with_a_table_and_a_file() -> None:
    before = set(RESULTS.glob("*.json"))
    done = bench("restart", "--quick")
    assert done.returncode == 0, done.stderr
    (written,) = set(RESULTS.glob("*.json")) - before
    try:
        report = json.loads(written.read_text())
    finally:
        remove(written)
    figures = {figure["name"]: figure for figure in report["figures"]}
    assert any(figure["goal"] == 400 for figure in figures.values())
    for name, figure in figures.items():
        assert math.isfinite(figure["value"]), name
        assert figure["value"] > 0, name
        assert name in done.stdout
    assert "goals met" in done.stdout


def test_sessions_are_measured_with_all_their_goals() -> None:
    before = set(RESULTS.glob("*.json"))
    done = bench("sessions", "--quick")
    assert done.returncode == 0, done.stderr
    (written,) = set(RESULTS.glob("*.json")) - before
    try:
        figures = json.loads(written.read_text())["figures"]
    finally:
        remove(written)
    assert {one["goal"] for one in figures} >= {20, 1.2, 50, 1.3}
    assert all(math.isfinite(one["value"]) and one["value"] >= 0 for one in figures)
    (missing,) = [one for one in figures if one["name"] == "tokens missing"]
    assert missing["value"] == 0


def test_a_kill_of_one_of_the_two_loses_nothing() -> None:
    """P1, P2: nothing of what was taken while one of the two lives."""
    before = set(RESULTS.glob("*.json"))
    done = bench("loss", "--quick")
    assert done.returncode == 0, done.stderr
    (written,) = set(RESULTS.glob("*.json")) - before
    try:
        figures = json.loads(written.read_text())["figures"]
    finally:
        remove(written)
    promised = {one["name"]: one["value"] for one in figures if one["goal"] == 0}
    assert len(promised) == 3
    assert not any(promised.values()), promised


def test_who_ends_it_leaves_nothing_and_keeps_what_was_answered(tmp_path: Path) -> None:
    before = set(RESULTS.glob("*.json"))
    command = [sys.executable, "-m", "bench", "recover", "restart", "--quick"]
    running = subprocess.Popen(
        command, cwd=ROOT, env=environment() | {"TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert running.stderr is not None
        while "bench: restart" not in running.stderr.readline():
            assert running.poll() is None
        time.sleep(1.0)
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 128 + signal.SIGTERM
    assert "bench: stopped; answered by then: recover" in said
    (written,) = set(RESULTS.glob("*.json")) - before
    try:
        questions = {one["question"] for one in json.loads(written.read_text())["figures"]}
    finally:
        remove(written)
    assert questions == {"recover"}
    assert not list(tmp_path.iterdir())
    with pytest.raises(ProcessLookupError):
        os.killpg(running.pid, 0)


@pytest.mark.parametrize("name", ["ladders", "sessions", "slow_disks", "streaming"])
def test_ctrl_c_is_one_line(tmp_path: Path, name: str) -> None:
    """A terminal sends it to each process of the question."""
    command = [sys.executable, "-m", "bench", name, "--quick"]
    running = subprocess.Popen(
        command, cwd=ROOT, env=environment() | {"TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert running.stderr is not None
        while f"bench: {name}" not in running.stderr.readline():
            assert running.poll() is None
        time.sleep(3.0)
        os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 128 + signal.SIGINT
    assert said == "bench: stopped; answered by then: nothing\n"
    assert not list(tmp_path.iterdir())
    with pytest.raises(ProcessLookupError):
        os.killpg(running.pid, 0)


def test_a_question_that_is_not_there_is_one_error() -> None:
    done = bench("nonsense")
    assert done.returncode == 2
    assert "no such question: nonsense; there are agent_cost" in done.stderr
