"""When a flush and a sync are due: the formula, number by number."""

from __future__ import annotations

import pytest

from walld import limits
from walld.engine.flush_schedule import GroupCommit


@pytest.mark.parametrize(
    ("bound_ms", "cost_ms", "linger_ms"),
    [
        (3000, 0, 250),  # a flush that cost nothing: the usual quarter of a second
        (3000, 5, 250),
        (3000, 12.5, 250),  # 20 x 12.5 ms is where the cost begins to count
        (3000, 20, 400),
        (3000, 75, 1500),
        (3000, 10_000, 1500),  # never above half of the bound
        (400, 0, 200),  # a short bound: half of it is less than 250 ms
        (400, 15, 200),
        (20, 100, 10),
    ],
)
def test_linger_is_twenty_times_the_last_cost_within_its_limits(
    bound_ms: int, cost_ms: float, linger_ms: float
) -> None:
    commit = GroupCommit(bound_ms, None)
    commit.flush_cost(cost_ms / 1000, cost_ms / 1000)
    assert commit.linger == pytest.approx(linger_ms / 1000)
    assert not commit.linger_shortened


def test_an_adaptive_linger_follows_the_last_flush_alone() -> None:
    commit = GroupCommit(3000, None)
    commit.flush_cost(1.0, 1.0)
    commit.flush_cost(0.02, 0.02)
    assert commit.linger == pytest.approx(0.4)


def test_a_fixed_linger_is_shortened_to_what_the_slowest_flush_leaves_of_the_bound() -> None:
    commit = GroupCommit(3000, 2900)
    assert (commit.linger, commit.linger_shortened) == (2.9, False)
    commit.flush_cost(0.5, 0.5)
    assert (commit.linger, commit.linger_shortened) == (2.5, True)
    commit.flush_cost(0.01, 0.01)  # one fast flush is not forgiveness: 10 % is forgotten a flush
    assert commit.linger == pytest.approx(3.0 - 0.45)
    for _ in range(40):
        commit.flush_cost(0.01, 0.01)
    assert (commit.linger, commit.linger_shortened) == (2.9, False)
    commit.flush_cost(9.0, 9.0)
    assert commit.linger == 0.0


def test_a_fixed_linger_may_be_none_at_all() -> None:
    commit = GroupCommit(3000, 0)
    commit.offered(7.0)
    assert commit.flush_at() == 7.0


def test_the_age_is_that_of_the_oldest_event() -> None:
    commit = GroupCommit(3000, None)
    assert commit.flush_at() is None
    commit.offered(10.0)
    commit.offered(11.0)
    assert commit.flush_at() == 10.25
    assert commit.oldest == 10.0
    assert commit.flush_begun() == 10.0
    assert commit.flush_at() is None
    commit.offered(12.0)
    assert commit.flush_at() == 12.25


def test_what_a_flush_left_keeps_its_age() -> None:
    commit = GroupCommit(3000, None)
    commit.offered(10.0)
    oldest = commit.flush_begun()
    commit.offered(12.0)
    commit.flush_ended()
    commit.flush_returned(oldest)
    assert commit.oldest == 10.0
    commit.flush_returned(11.0)
    commit.flush_returned(None)
    assert commit.oldest == 10.0


def test_who_waits_cuts_the_linger_short_once() -> None:
    commit = GroupCommit(3000, None)
    commit.hurry_flush()
    assert commit.flush_at() is None, "nothing is queued, so nothing is due"
    commit.offered(10.0)
    assert commit.flush_at() == 0.0
    commit.flush_begun()
    commit.offered(20.0)
    assert commit.flush_at() == 20.25


def test_a_sync_comes_a_second_after_the_oldest_unsynced_write() -> None:
    commit = GroupCommit(3000, None)
    assert commit.sync_at(0) is None
    commit.written(10.0)
    commit.written(10.9)
    assert commit.sync_at(100) == 10.0 + limits.SYNC_PERIOD_MS / 1000
    commit.sync_begun()
    assert commit.sync_at(100) is None
    commit.written(12.0)
    assert commit.sync_at(100) == 13.0


@pytest.mark.parametrize(
    ("bound_ms", "cost", "period"), [(3000, 0.1, 2.0), (3000, 5.0, 3.0), (500, 0.0, 0.5)]
)
def test_dear_syncs_are_rarer_but_never_beyond_the_bound(
    bound_ms: int, cost: float, period: float
) -> None:
    commit = GroupCommit(bound_ms, None)
    commit.sync_cost(cost)
    commit.written(10.0)
    assert commit.sync_at(0) == 10.0 + period


def test_who_waits_for_a_sync_gets_it_at_once_and_so_does_a_full_memory() -> None:
    commit = GroupCommit(3000, None)
    commit.written(10.0)
    assert commit.sync_at(limits.UNSYNCED_BYTES_MAX // 2 - 1) == 11.0
    assert commit.sync_at(limits.UNSYNCED_BYTES_MAX // 2) == 0.0
    commit.hurry_sync()
    assert commit.sync_at(0) == 0.0
    commit.sync_begun()
    commit.written(20.0)
    assert commit.sync_at(0) == 21.0


@pytest.mark.parametrize("bound_ms", [limits.FLUSH_BOUND_MS_MIN - 1, limits.FLUSH_BOUND_MS_MAX + 1])
def test_a_bound_that_is_no_promise_is_our_bug(bound_ms: int) -> None:
    with pytest.raises(AssertionError):
        GroupCommit(bound_ms, None)
