"""`walld selftest` on a disk that is slow or hangs: it ends in time and says what it waits for."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kernel import mounts

from walld.cli.selftest.termination import held
from walld.cli.selftest.watchdog import Watched

COMMAND = [sys.executable, "-m", "walld", "selftest"]
_MARGIN_SECONDS = 40.0
"""Only how long a broken one may keep a test waiting: on a busy machine all of it takes longer."""


def report_of(said: bytes) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(said)
    return report


def probes_of(report: dict[str, Any], is_good: bool | None) -> dict[str, str]:
    return {one["name"]: one["said"] for one in report["probes"] if one["is_good"] is is_good}


@pytest.fixture
def frozen() -> Iterator[Path]:
    """A directory of a file system on which each write waits."""
    reason = mounts.why_not("ext4")
    if reason is not None:
        pytest.skip(reason)
    with mounts.mounted("ext4") as mount:
        path = mount.path / "d"
        path.mkdir(mode=0o700)
        mount.freeze()
        try:
            yield path
        finally:
            mount.thaw()


def ended(process: subprocess.Popen[bytes], within: float) -> tuple[bytes, bytes, float]:
    """What it said and how long that took; never left running."""
    begun = time.monotonic()
    try:
        out, err = process.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"it had not ended after {within} s")
    return out, err, time.monotonic() - begun


def test_a_disk_that_hangs_is_told_of(frozen: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, str(frozen), "--seconds", "3", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err, _ = ended(process, 3 + _MARGIN_SECONDS)
    assert (process.returncode, err) == (1, b"")
    report = report_of(out)
    assert {one["verdict"] for one in report["classes"].values()} == {"not proven"}
    assert "has not returned" in report["classes"]["synced"]["why"]
    assert [said for said in probes_of(report, None).values() if "the disk hangs" in said]
    assert [note for note in report["notes"] if f"{frozen}/walld-selftest-" in note]


def test_a_process_that_dies_is_no_lack_of_time(tmp_path: Path) -> None:
    """As the kernel ends one where memory runs out."""
    process = subprocess.Popen(
        [*COMMAND, str(tmp_path), "--seconds", "60", "--json"], stdout=subprocess.PIPE
    )
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob("*/torn-*")):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    out, _, _ = ended(process, 30)
    report = report_of(out)
    assert report["classes"]["written"]["verdict"] == "not proven"
    assert "its process died" in str(probes_of(report, None))
    (folder,) = tmp_path.iterdir()
    assert [note for note in report["notes"] if note.startswith(f"{folder} may stay")]


def test_a_signal_in_the_middle_of_a_message_leaves_nothing_behind(tmp_path: Path) -> None:
    """What is read behind such a message is none: it looked like the end of all."""
    folder = tmp_path / "probes"
    with held():
        watched = Watched(str(tmp_path), str(folder), 30)
    deadline = time.monotonic() + 30
    while not folder.exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    os.read(watched._told.fileno(), 4)
    assert watched.end(signal.SIGTERM)
    assert list(tmp_path.iterdir()) == []


def _waits_for_a_disk(process: subprocess.Popen[bytes]) -> bool:
    """It, or a child of it."""
    family = {process.pid}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            words = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(words[1]) in family:
                family.add(int(stat.parent.name))
    states = set()
    for pid in family:
        for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
            with suppress(OSError):
                states.add(stat.read_text(errors="replace").rpartition(")")[2].split()[0])
    return "D" in states


def test_a_signal_ends_it_on_a_disk_that_hangs(frozen: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, str(frozen), "--seconds", "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 30
    looks = 0
    while looks < 100:  # one alone may see it load its own code
        looks = looks + 1 if _waits_for_a_disk(process) else 0
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err, _ = ended(process, _MARGIN_SECONDS)
    assert (process.returncode, out) == (128 + signal.SIGINT, b"")
    assert f"{frozen}/walld-selftest-".encode() in err


@pytest.mark.parametrize("milliseconds", [1000, 3000])
def test_a_disk_that_is_slow_is_given_up_in_time(tmp_path: Path, milliseconds: int) -> None:
    if shutil.which("strace") is None:
        pytest.skip("needs strace (Debian: apt-get install strace)")
    slow = f"inject=fdatasync,fsync:delay_enter={milliseconds}000"
    trace = ["strace", "-f", "-qq", "-o", os.devnull, "-e", "trace=fdatasync,fsync", "-e", slow]
    tried = subprocess.run([*trace, "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"strace cannot trace here: {tried.stderr!r}")
    process = subprocess.Popen(
        [*trace, *COMMAND, str(tmp_path), "--seconds", "4", "--json"], stdout=subprocess.PIPE
    )
    out, _, _ = ended(process, 4 + _MARGIN_SECONDS)
    assert process.returncode == 1
    report = report_of(out)
    assert report["classes"]["synced"]["verdict"] == "not proven"
    assert probes_of(report, False) == {}
    assert probes_of(report, None), "what there was no time for, or has not returned"
