"""The daemon's own limits: how many descriptors peers may have."""

from __future__ import annotations

import resource

import pytest

from walld import limits
from walld.daemon import process_limits


@pytest.mark.parametrize("hard", [1 << 30, resource.RLIM_INFINITY])
def test_a_limit_that_limits_nothing_is_no_count_of_peers(
    monkeypatch: pytest.MonkeyPatch, hard: int
) -> None:
    """Containers have such: the share of a uid in it would bound nothing."""
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (hard, hard))
    assert process_limits.peers_max() == (1 << 20) - limits.PEERS_RESERVE_FDS


def test_a_limit_that_is_low_leaves_our_own_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    most = limits.PEERS_RESERVE_FDS + 768
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (most, most))
    assert process_limits.peers_max() == 768
