"""A few power cuts on real file systems; `make kernel` makes thousands."""

from __future__ import annotations

import re

import pytest

from kernel import mounts

from .conftest import LoopRun


@pytest.fixture(autouse=True, scope="module")
def _mountable() -> None:
    reasons = [reason for kind in mounts.CUTTABLE if (reason := mounts.why_not(kind))]
    if len(reasons) == len(mounts.CUTTABLE):  # else the run says which of them it leaves out
        pytest.skip("; ".join(reasons))


@pytest.mark.parametrize("kind", ["forked", "full"])
def test_nothing_synced_is_lost(loop: LoopRun, kind: str) -> None:
    count = "16" if kind == "forked" else "2"
    more = ["--full"] if kind == "full" else []
    done = loop("power_cuts", "--count", count, *more)
    assert done.returncode == 0
    assert re.search(r"[1-9]\d* of them acknowledged", done.stdout)


def test_a_daemon_that_does_not_sync_is_found_out(loop: LoopRun) -> None:
    done = loop("power_cuts", "--count", "8", "--spoil", "no_sync")
    assert done.returncode == 1
    # Acknowledged and gone; or the whole log is, and LOCK, whose sync is not spoiled, knew of it.
    assert re.search("acknowledged up to|acknowledged$|there was one", done.stderr, re.M)
