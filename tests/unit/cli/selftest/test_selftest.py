"""`walld selftest`: its probes, verdicts and table, on real mounts where the kernel lets us."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_process import PATIENCE_SECONDS, until

from walld.cli import main
from walld.cli.selftest import command
from walld.disk.real import RealDisk, RealFile

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")


def tried(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Exit code and report of a short run; nothing stays behind."""
    before = sorted(path.iterdir())
    code = main(["selftest", str(path), "--seconds", "0.1", "--json"])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert sorted(path.iterdir()) == before
    return code, report


def verdicts(report: dict[str, Any]) -> list[str]:
    return [report["classes"][name]["verdict"] for name in ("sent", "written", "synced")]


@pytest.fixture
def small_tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A mount of its own, 64 MiB of memory."""
    path = tmp_path / "mount"
    path.mkdir(mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", "size=64m,mode=0700", "tmpfs", str(path)]
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_every_class_has_a_verdict_and_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = tried(tmp_path, capsys)
    assert verdicts(report)[:2] == ["yes", "yes"]
    assert all(one["why"] for one in report["classes"].values())
    assert code == (0 if verdicts(report)[2] == "yes" else 1)
    assert report["latency"]["rounds"] >= 1
    assert [probe["name"] for probe in report["probes"] if probe["is_good"]] == [
        *("directory", "exclusive create", "space", "names", "lock", "write"),
        *("directory sync", "rename", "sync"),
    ]


def test_no_time_is_one_sync(tmp_path: Path) -> None:
    latency = command.tried(str(tmp_path), 0).latency
    assert latency is not None
    assert latency.rounds == 1


def test_nothing_stays_behind_where_sigint_ends_it(tmp_path: Path) -> None:
    code = (
        "import sys; from walld.cli.selftest import command; command._ROUNDS_MAX = 1 << 60;"
        "from walld.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", code, "selftest", str(tmp_path), "--seconds", "60"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        until(lambda: list(tmp_path.glob("*/latency")), "the probe of syncs")
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=PATIENCE_SECONDS)
    assert (running.returncode, out) == (130, b"")
    assert list(tmp_path.iterdir()) == []


def test_the_table_for_a_person(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["selftest", str(tmp_path), "--seconds", "0.1"])
    shown = capsys.readouterr()
    assert "CLASS    HONOURED    WHY" in shown.out
    for word in ("  sent ", "  written ", "  synced ", "fdatasync: p50", "a client started here:"):
        assert word in shown.out
    assert shown.err == ""


@needs_root
def test_memory_cannot_promise_synced(
    small_tmpfs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = tried(small_tmpfs, capsys)
    assert code == 1
    assert verdicts(report) == ["yes", "yes", "no"]
    assert "nothing survives power" in report["classes"]["synced"]["why"]
    assert command._FAST in report["notes"]


@needs_root
def test_a_read_only_mount_can_promise_nothing(
    small_tmpfs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_tmpfs)], check=True)
    code, report = tried(small_tmpfs, capsys)
    assert code == 1
    assert verdicts(report) == ["no", "no", "no"]
    assert report["mount"]["read_only"] is True
    assert "Read-only file system" in report["classes"]["sent"]["why"]


@needs_root
def test_a_mount_without_room_is_told(
    small_tmpfs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (small_tmpfs / "full").write_bytes(bytes(63 << 20))
    code, report = tried(small_tmpfs, capsys)
    assert code == 1
    assert verdicts(report)[0] == "no"
    assert "are needed for the reserve" in report["classes"]["sent"]["why"]


def test_a_directory_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", str(tmp_path / "nowhere")]) == 1
    assert "No such file" in capsys.readouterr().err
    assert main(["selftest", str(tmp_path), "--seconds", "soon"]) == 64


def test_a_directory_that_a_daemon_refuses_is_a_no(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o777)
    code, report = tried(tmp_path, capsys)
    assert (code, verdicts(report)) == (1, ["no"] * 3)
    assert "chmod go-w" in report["classes"]["sent"]["why"]
    assert (report["probes"][0]["name"], report["probes"][0]["is_good"]) == ("directory", False)


# --- the probes find what they look for -----------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "trouble"),
    [(0, "another process took flock on a LOCK that is held (0)"), (7, "given up is refused (7)")],
)
def test_a_lock_that_is_none_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, trouble: str
) -> None:
    monkeypatch.setattr(command, "_lock_elsewhere", lambda _path: code)
    verdict, why = command.tried(str(tmp_path), 0).classes["sent"]
    assert (verdict, trouble in why) == ("no", True)


@pytest.mark.parametrize("call", ["sync_dir", "sync"])
def test_a_sync_that_fails_is_a_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refused(*_: object) -> None:
        raise OSError(22, "planted")

    monkeypatch.setattr(RealDisk if call == "sync_dir" else RealFile, call, refused)
    report = command.tried(str(tmp_path), 0)
    verdict, why = report.classes["synced"]
    assert (verdict, "planted" in why, report.latency) == ("no", True, None)
    assert list(tmp_path.iterdir()) == []


def test_a_sync_that_fails_alone_leaves_sent_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(5, "planted")

    monkeypatch.setattr(command, "_latency", refused)
    classes = command.tried(str(tmp_path), 0).classes
    assert [verdict for verdict, _ in classes.values()] == ["yes", "yes", "no"]


def test_descriptors_that_ran_out_prove_nothing_of_the_mount(tmp_path: Path) -> None:
    """As under `ulimit -n 8`."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8));"
        "from walld.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", code, "selftest", str(tmp_path), "--seconds", "0.1", "--json"]
    done = subprocess.run(words, capture_output=True, check=False, timeout=60)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert verdicts(report) == ["not proven"] * 3
    assert "Too many open files" in report["classes"]["sent"]["why"]
    assert list(tmp_path.iterdir()) == []
