"""A daemon that stands still, runs out of memory, loses the time: once each."""

from __future__ import annotations

import pytest

from kernel import pauses

from .conftest import LoopRun


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("stopped", "stops and continuations"),
        ("memory", "memory"),
        ("clock", "jumps of the clock"),
    ],
)
def test_all_of_it_is_there_in_the_end(loop: LoopRun, kind: str, word: str) -> None:
    reason = pauses.why_not(kind)
    if reason is not None:
        pytest.skip(reason)
    done = loop("pauses", "--kind", kind, "--count", "1")
    assert done.returncode == 0
    assert word in done.stdout
