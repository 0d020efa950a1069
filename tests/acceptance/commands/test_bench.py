"""The bench runs, names its goals and writes down what it found, which decides nothing here."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from daemon_process import PATIENCE_SECONDS, environment, until

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


def of_session(leader: int) -> list[Path]:
    """The processes of a session that live, as folders of /proc."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == leader and state != "Z":
                found.append(folder)
    return found


def says(leader: int, file: str, text: str) -> bool:
    """Does one of the session's processes show this in its file of /proc?"""
    for folder in of_session(leader):
        with suppress(OSError):
            if text in (folder / file).read_text(errors="replace"):
                return True
    return False


MOMENTS: dict[str, Callable[[int, Path], object]] = {
    "its modules are imported": lambda pid, _: says(pid, "maps", "msgspec"),
    # Not the file by which `tempfile` tries first whether it may write there.
    "its folder is there": lambda _, folder: any(one.is_dir() for one in folder.iterdir()),
    "a daemon starts": lambda pid, _: says(pid, "cmdline", "\0serve\0"),
    "a daemon listens": lambda _, folder: list(folder.glob("walldb*/*/*/s")),
    "a second process is beside it": lambda pid, _: says(pid, "cmdline", "\0-c\0from bench."),
    "the third folder is there": lambda _, folder: list(folder.glob("walldb*/*/3")),
}


@pytest.mark.parametrize(
    ("name", "moment"),
    [
        # Its third folder comes too late where other work shares the cores.
        *(("ladders", moment) for moment in MOMENTS if moment != "the third folder is there"),
        ("sessions", "a second process is beside it"),
        ("slow_disks", "the third folder is there"),
        ("streaming", "a daemon listens"),
    ],
)
def test_ctrl_c_is_one_line(tmp_path: Path, name: str, moment: str) -> None:
    """A terminal sends it to each process of its foreground group."""
    command = [sys.executable, "-m", "bench", name, "--quick"]
    with (tmp_path / "said").open("w+") as file:
        folder = tmp_path / "T"
        folder.mkdir()
        running = subprocess.Popen(
            command, cwd=ROOT, env=environment() | {"TMPDIR": str(folder)}, stderr=file,
            stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            until(lambda: MOMENTS[moment](running.pid, folder), moment, 2 * PATIENCE_SECONDS)
            os.killpg(running.pid, signal.SIGINT)
            running.wait(60)
            file.seek(0)
            said = file.read()
            assert running.returncode == 128 + signal.SIGINT, said
            begun = rf"(bench: {name} \(about \d+ s\)\n)?"
            assert re.fullmatch(rf"{begun}bench: stopped; answered by then: nothing\n", said), said
            assert not list(folder.iterdir())
            assert not of_session(running.pid)
        finally:
            for left in of_session(running.pid):
                os.kill(int(left.name), signal.SIGKILL)
            running.wait()


@pytest.mark.parametrize("moment", ["its folder is there", "a daemon starts"])
def test_ctrl_c_in_the_check_is_one_line(tmp_path: Path, moment: str) -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "bench.check"], cwd=ROOT, text=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, env=environment() | {"TMPDIR": str(tmp_path)},
        start_new_session=True,
    )  # fmt: skip
    try:
        until(lambda: MOMENTS[moment](running.pid, tmp_path), moment)
        os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=60)
        assert re.sub(r"^bench: \w+ \(about \d+ s\)\n", "", said) == (
            "bench: stopped; answered by then: nothing\n"
        )
        assert running.returncode == 128 + signal.SIGINT
        assert not list(tmp_path.iterdir())
        assert not of_session(running.pid)
    finally:
        for left in of_session(running.pid):
            os.kill(int(left.name), signal.SIGKILL)
        running.communicate()


def test_a_terminal_reaches_none_but_the_bench(tmp_path: Path) -> None:
    """Its Ctrl-C goes to the foreground group: a daemon that ends of it ends a question, too."""
    command = [sys.executable, "-m", "bench", "ladders", "--quick"]
    running = subprocess.Popen(
        command, cwd=ROOT, env=environment() | {"TMPDIR": str(tmp_path)}, start_new_session=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: MOMENTS["a daemon listens"](running.pid, tmp_path), "a daemon")
        there = [int(folder.name) for folder in of_session(running.pid)]
        assert len(there) > 1
        assert [pid for pid in there if os.getpgid(pid) == running.pid] == [running.pid]
    finally:
        os.killpg(running.pid, signal.SIGINT)
        running.wait()


def test_a_supervisor_that_is_killed_takes_all_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "ladders", "--quick"]
    running = subprocess.Popen(
        command, cwd=ROOT, env=environment() | {"TMPDIR": str(tmp_path)}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until(lambda: MOMENTS["a daemon listens"](running.pid, tmp_path), "a daemon")
    running.kill()
    running.wait()
    until(lambda: not of_session(running.pid), "the end of all it had started")
    assert not list(tmp_path.iterdir())


def test_ctrl_z_stops_what_is_measured_until_it_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "ladders", "--quick"]
    running = subprocess.Popen(
        command, cwd=ROOT, env=environment() | {"TMPDIR": str(tmp_path)}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def states() -> set[str]:
        stats = ((folder / "stat").read_text() for folder in of_session(running.pid))
        return {stat.rpartition(")")[2].split()[0] for stat in stats}

    try:
        until(lambda: MOMENTS["a daemon listens"](running.pid, tmp_path), "a daemon")
        os.killpg(running.pid, signal.SIGTSTP)
        until(lambda: states() == {"T"}, "all of it stands")
        os.killpg(running.pid, signal.SIGCONT)
        until(lambda: "T" not in states(), "all of it goes on")
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(60) == 128 + signal.SIGINT
    finally:
        for left in of_session(running.pid):
            os.kill(int(left.name), signal.SIGKILL)
        running.wait()


def test_a_question_that_is_not_there_is_one_error() -> None:
    done = bench("nonsense")
    assert done.returncode == 2
    assert "no such question: nonsense; there are agent_cost" in done.stderr
