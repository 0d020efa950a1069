"""A few kills under load; `make kernel` makes thousands."""

from __future__ import annotations

import re

import pytest

from .conftest import LoopRun


@pytest.mark.parametrize(("kind", "count"), [("forked", 24), ("full", 6)])
def test_what_was_acknowledged_outlives_processes(loop: LoopRun, kind: str, count: int) -> None:
    more = ["--full"] if kind == "full" else []
    done = loop("kills", "--count", str(count), *more)
    assert done.returncode == 0
    assert re.search(r"[1-9]\d* of them acknowledged", done.stdout)


@pytest.mark.parametrize("name", ["no_write", "half_write"])
def test_a_daemon_that_does_not_write_is_found_out(loop: LoopRun, name: str) -> None:
    done = loop("kills", "--count", "16", "--spoil", name)
    assert done.returncode == 1
    assert "FAILED kills" in done.stderr


def test_what_is_younger_than_the_bound_may_go_and_nothing_else(loop: LoopRun) -> None:
    """A directory whose seed is a multiple of 16 is one for the bound."""
    assert loop("kills", "--count", "1", "--seed", "16").returncode == 0
