"""Disks that are full, that fail and that stall, once or twice each; `make kernel` does many."""

from __future__ import annotations

import pytest

from . import mounts
from .conftest import LoopRun


@pytest.fixture(autouse=True, scope="module")
def _mountable() -> None:
    reasons = [reason for kind in mounts.CUTTABLE if (reason := mounts.why_not(kind))]
    if reasons:
        pytest.skip("; ".join(reasons))


@pytest.mark.parametrize(
    ("kind", "count", "word"),
    [("full", 2, "disk_full"), ("failing on ext4", 2, "syncs that failed on ext4")],
)
def test_all_of_it_is_there_once_the_disk_is_well(
    loop: LoopRun, kind: str, count: int, word: str
) -> None:
    done = loop("disks", "--kind", kind, "--count", str(count), "--seed", "4")
    assert done.returncode == 0
    assert word in done.stdout


def test_a_daemon_that_syncs_again_is_found_out(loop: LoopRun) -> None:
    done = loop("disks", "--kind", "failing on ext4", "--count", "2", "--spoil", "sync_again")
    assert done.returncode == 1
