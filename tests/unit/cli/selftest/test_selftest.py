"""`walld selftest`: its probes, verdicts and table, on real mounts where the kernel lets us."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from walld.cli import main
from walld.cli.progress import Progress
from walld.cli.selftest import command, probes, torn_write, trials, watchdog
from walld.cli.selftest.probes import Latency
from walld.disk.real import RealDisk
from walld.wal.layout import SEGMENT_HEADER_BYTES, segment_name
from walld.wal.segment_files import SegmentFiles

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine gets through all of it."""
    monkeypatch.setattr(watchdog, "_LEAST_SECONDS", 60.0)


def tried(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Exit code and report of a short run; nothing stays behind."""
    before = sorted(path.iterdir())
    code = main(["selftest", str(path), "--seconds", "0.5", "--json"])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert sorted(path.iterdir()) == before
    return code, report


def tried_here(path: Path) -> command.Report:
    """The same in this process, where something can be planted."""
    report, begun = command.Report(str(path)), time.monotonic()
    heard = command._Heard(report, begun, Progress("probing", 1))
    trials.try_all(str(path), str(path / "probes"), begun, 0.5, begun + 60, heard)
    command._what_is_missing(report, heard, command._NO_TIME, is_gone=True)
    command._judge(report)
    assert list(path.iterdir()) == []
    return report


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
    assert report["kills"]["kills"] >= 1
    assert (report["kills"]["lost"], report["kills"]["corrupt"]) == (0, 0)
    assert report["latency"]["rounds"] >= probes.ROUNDS_MIN
    assert {probe["name"] for probe in report["probes"]} == {
        "directory",
        "exclusive create",
        "space",
        "directory sync",
        "rename",
        "names",
        "read without waiting",
        "lock",
    }


def descendants_of(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(FileNotFoundError):  # ended meanwhile
        for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found += [int(word), *descendants_of(int(word))]
    return found


@pytest.mark.parametrize("when", ["*", "*/torn-*"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_stays_behind_where_a_signal_ends_it(
    tmp_path: Path, number: signal.Signals, when: str
) -> None:
    command = [sys.executable, "-m", "walld", "selftest", str(tmp_path), "--seconds", "8"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(when)):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        children = descendants_of(running.pid)
        running.send_signal(number)
        said = running.communicate(timeout=60)
    assert (running.returncode, said) == (128 + number, (b"", b""))
    assert list(tmp_path.iterdir()) == []
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []


def test_a_signal_that_is_ignored_stays_so(tmp_path: Path) -> None:
    """nohup(1)."""
    code = (
        "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
        "from walld.cli.selftest import watchdog; watchdog._LEAST_SECONDS = 60.0;"  # as _patient
        "from walld.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "selftest", str(tmp_path), "--seconds", "1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        while not list(tmp_path.iterdir()) and running.poll() is None:
            time.sleep(0.001)
        running.send_signal(signal.SIGHUP)
        said, _ = running.communicate(timeout=60)
    assert running.returncode in (0, 1)
    assert json.loads(said)["kills"]["kills"] >= 1


def test_the_table_for_a_person(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["selftest", str(tmp_path), "--seconds", "0.3"])
    shown = capsys.readouterr()
    assert "CLASS    HONOURED    WHY" in shown.out
    for word in ("  sent ", "  written ", "  synced ", "fdatasync: p50", "a client started here:"):
        assert word in shown.out
    assert shown.err == "", "no bar where stderr is no terminal"


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


# --- the probes find what they look for -----------------------------------------------------------


def test_a_directory_that_is_owned_by_another_process_is_seen(tmp_path: Path) -> None:
    code = (
        "import fcntl, os, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "LOCK"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        found = probes.lock(str(tmp_path))
        other.communicate()
    assert found.is_good is False
    assert "another walld owns" in found.said
    assert probes.lock(str(tmp_path)).is_good is True


def test_a_lock_that_locks_nobody_out_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "_try_lock", lambda _path: 0)
    found = probes.lock(str(tmp_path))
    assert (found.is_good, "another process took" in found.said) == (False, True)


def test_directory_syncs_that_fail_are_a_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_disk: RealDisk, path: str) -> None:
        if path == "names":
            raise OSError(22, "planted", path)

    monkeypatch.setattr(RealDisk, "sync_dir", refused)
    synced = tried_here(tmp_path).classes["synced"]
    assert synced.verdict == "no"
    assert "planted" in synced.why


def test_a_sync_that_fails_is_a_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_disk: RealDisk, _until: float, _deadline: float) -> Latency:
        raise OSError(5, "planted")

    monkeypatch.setattr(probes, "latency", failing)
    report = tried_here(tmp_path)
    assert report.classes["synced"].verdict == "no"
    assert [probe.name for probe in report.probes if not probe.is_good] == ["sync"]


def test_descriptors_that_ran_out_prove_nothing_of_the_mount(tmp_path: Path) -> None:
    """As under `ulimit -n 12`."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12));"
        "from walld.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "selftest", str(tmp_path), "--seconds", "1", "--json"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert verdicts(report) == ["not proven"] * 3
    assert "Too many open files" in report["classes"]["sent"]["why"]
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_a_daemon_refuses_is_a_no(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o777)
    code, report = tried(tmp_path, capsys)
    assert (code, verdicts(report)) == (1, ["no"] * 3)
    assert "chmod go-w" in report["classes"]["sent"]["why"]
    assert (report["probes"][0]["name"], report["probes"][0]["is_good"]) == ("directory", False)


def test_a_write_that_was_acknowledged_and_is_gone_is_found(tmp_path: Path) -> None:
    """The canary: one batch less than the writer said."""
    with RealDisk(str(tmp_path / "log")) as disk:
        disk.make_dir("wal")
        files = SegmentFiles(disk, torn_write.LOG)
        files.create(1, 0, 1)
        offset = SEGMENT_HEADER_BYTES
        for number in (1, 2):
            batch = torn_write._batch(number)
            files.write(1, batch, 0, offset)
            offset += len(batch)
        files.close()
    path = tmp_path / "log/wal" / segment_name(1)
    seen = torn_write.Kills()
    torn_write._look(str(tmp_path / "log"), 2, seen)
    assert (seen.lost, seen.torn, seen.corrupt) == (0, 0, 0)
    os.truncate(path, path.stat().st_size - 1)
    torn_write._look(str(tmp_path / "log"), 2, seen)
    assert (seen.lost, seen.torn, seen.corrupt) == (1, 1, 0)
