"""Some calls that fail and some that are the last; `make kernel` goes through all of them."""

from __future__ import annotations

import pytest

from kernel import errnos, kill_points, traced

from .conftest import LoopRun


@pytest.fixture(autouse=True, scope="module")
def _traceable() -> None:
    reason = traced.why_not()
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.parametrize("name", ["errnos", "kill_points"])
def test_nothing_acknowledged_is_lost(loop: LoopRun, name: str) -> None:
    done = loop(name, "--count", "4", "--seed", "0")
    assert done.returncode == 0
    assert "call that failed" in done.stdout or "died of it" in done.stdout


def test_each_fault_is_there_once() -> None:
    for found in (errnos.faults(), kill_points.points()):
        assert len(set(found)) == len(found)
