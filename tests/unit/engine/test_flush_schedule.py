"""When a flush and a sync are due: the formula, number by number."""

from __future__ import annotations

import pytest

from walld import limits
from walld.engine.flush_schedule import FlushSchedule


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
    schedule = FlushSchedule(bound_ms, None)
    schedule.flush_cost(cost_ms / 1000, cost_ms / 1000)
    assert schedule.linger == pytest.approx(linger_ms / 1000)
    assert not schedule.linger_shortened


def test_an_adaptive_linger_follows_the_last_flush_alone() -> None:
    schedule = FlushSchedule(3000, None)
    schedule.flush_cost(1.0, 1.0)
    schedule.flush_cost(0.02, 0.02)
    assert schedule.linger == pytest.approx(0.4)


def test_a_fixed_linger_is_shortened_to_what_the_slowest_flush_leaves_of_the_bound() -> None:
    schedule = FlushSchedule(3000, 2900)
    assert (schedule.linger, schedule.linger_shortened) == (2.9, False)
    schedule.flush_cost(0.5, 0.5)
    assert (schedule.linger, schedule.linger_shortened) == (2.5, True)
    schedule.flush_cost(0.01, 0.01)  # one fast flush is not forgiveness: 10 % is forgotten a flush
    assert schedule.linger == pytest.approx(3.0 - 0.45)
    for _ in range(40):
        schedule.flush_cost(0.01, 0.01)
    assert (schedule.linger, schedule.linger_shortened) == (2.9, False)
    schedule.flush_cost(9.0, 9.0)
    assert schedule.linger == 0.0


def test_a_fixed_linger_may_be_none_at_all() -> None:
    schedule = FlushSchedule(3000, 0)
    schedule.offered(7.0)
    assert schedule.flush_at() == 7.0


def test_the_age_is_that_of_the_oldest_event() -> None:
    schedule = FlushSchedule(3000, None)
    assert schedule.flush_at() is None
    schedule.offered(10.0)
    schedule.offered(11.0)
    assert schedule.flush_at() == 10.25
    assert schedule.oldest == 10.0
    assert schedule.flush_begun() == 10.0
    assert schedule.flush_at() is None
    schedule.offered(12.0)
    assert schedule.flush_at() == 12.25


def test_what_a_flush_left_keeps_its_age() -> None:
    schedule = FlushSchedule(3000, None)
    schedule.offered(10.0)
    oldest = schedule.flush_begun()
    schedule.offered(12.0)
    schedule.flush_ended()
    schedule.flush_returned(oldest)
    assert schedule.oldest == 10.0
    schedule.flush_returned(11.0)
    schedule.flush_returned(None)
    assert schedule.oldest == 10.0


def test_who_waits_cuts_the_linger_short_once() -> None:
    schedule = FlushSchedule(3000, None)
    schedule.hurry_flush()
    assert schedule.flush_at() is None, "nothing is queued, so nothing is due"
    schedule.offered(10.0)
    assert schedule.flush_at() == 0.0
    schedule.flush_begun()
    schedule.offered(20.0)
    assert schedule.flush_at() == 20.25


def test_a_sync_comes_a_second_after_the_oldest_unsynced_write() -> None:
    schedule = FlushSchedule(3000, None)
    assert schedule.sync_at(0) is None
    schedule.written(10.0)
    schedule.written(10.9)
    assert schedule.sync_at(100) == 10.0 + limits.SYNC_PERIOD_MS / 1000
    schedule.sync_begun()
    assert schedule.sync_at(100) is None
    schedule.written(12.0)
    assert schedule.sync_at(100) == 13.0


@pytest.mark.parametrize(
    ("bound_ms", "cost", "period"), [(3000, 0.1, 2.0), (3000, 5.0, 3.0), (500, 0.0, 0.5)]
)
def test_dear_syncs_are_rarer_but_never_beyond_the_bound(
    bound_ms: int, cost: float, period: float
) -> None:
    schedule = FlushSchedule(bound_ms, None)
    schedule.sync_cost(cost)
    schedule.written(10.0)
    assert schedule.sync_at(0) == 10.0 + period


def test_who_waits_for_a_sync_gets_it_at_once_and_so_does_a_full_memory() -> None:
    schedule = FlushSchedule(3000, None)
    schedule.written(10.0)
    assert schedule.sync_at(limits.UNSYNCED_BYTES_MAX // 2 - 1) == 11.0
    assert schedule.sync_at(limits.UNSYNCED_BYTES_MAX // 2) == 0.0
    schedule.hurry_sync()
    assert schedule.sync_at(0) == 0.0
    schedule.sync_begun()
    schedule.written(20.0)
    assert schedule.sync_at(0) == 21.0


@pytest.mark.parametrize("bound_ms", [limits.FLUSH_BOUND_MS_MIN - 1, limits.FLUSH_BOUND_MS_MAX + 1])
def test_a_bound_that_is_no_promise_is_our_bug(bound_ms: int) -> None:
    with pytest.raises(AssertionError):
        FlushSchedule(bound_ms, None)
