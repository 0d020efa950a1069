"""A soak of some seconds: what runs for hours works."""

from __future__ import annotations

import pytest

from kernel import mounts

from .conftest import LoopRun


def test_nothing_promised_is_lost_and_what_it_takes_is_told(loop: LoopRun) -> None:
    reason = mounts.why_not("ext4")
    if reason is not None:
        pytest.skip(reason)
    done = loop("soak", "--count", "6")
    assert done.returncode == 0
    assert "nothing promised was lost" in done.stdout
    assert "descriptors: " in done.stdout
