"""Disks that are full, that fail and that stall, once or twice each; `make kernel` does many."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel import mounts

from .conftest import LoopRun


def _needed(*kinds: str) -> None:
    reasons = [reason for kind in kinds if (reason := mounts.why_not(kind))]
    if reasons:
        pytest.skip("; ".join(reasons))


@pytest.mark.parametrize(
    ("kind", "on", "count", "word"),
    [
        ("full", ("tmpfs", "ext4", "btrfs"), 2, "disk_full"),
        ("failing on ext4", ("ext4",), 2, "syncs that failed on ext4"),
        ("failing on btrfs", ("btrfs",), 2, "syncs that failed on btrfs"),
    ],
)
def test_all_of_it_is_there_once_the_disk_is_well(
    loop: LoopRun, kind: str, on: tuple[str, ...], count: int, word: str
) -> None:
    _needed(*on)
    done = loop("disks", "--kind", kind, "--count", str(count), "--seed", "4")
    assert done.returncode == 0
    assert word in done.stdout


def test_a_file_system_that_cannot_be_made_is_left_out_alone(
    loop: LoopRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _needed("tmpfs", "ext4")
    for folder in os.environ["PATH"].split(os.pathsep)[::-1]:
        for tool in Path(folder).glob("*"):
            if tool.name not in ("mkfs.xfs", "mkfs.btrfs"):
                (tmp_path / tool.name).unlink(missing_ok=True)
                (tmp_path / tool.name).symlink_to(tool)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = loop("disks", "--kind", "full on", "--count", "2", "--seed", "4")
    assert done.returncode == 0
    assert "skipped, all on btrfs: needs mkfs.btrfs" in done.stdout
    assert "1 full ext4" in done.stdout
    assert "1 full tmpfs" in done.stdout


@pytest.mark.parametrize("kind", ["ext4", "btrfs"])
def test_a_daemon_that_syncs_again_is_found_out(loop: LoopRun, kind: str) -> None:
    _needed(kind)
    done = loop("disks", "--kind", f"failing on {kind}", "--count", "2", "--spoil", "sync_again")
    assert done.returncode == 1
