"""A delay on every token is seen, whatever else is slow; two that are the same are never judged
to differ; and where a delay could not have been seen nothing is said."""

from __future__ import annotations

import random

import pytest

from bench.report.numbers import crosses, interval, quantile
from bench.report.paired import later
from bench.report.table import Figure, render

RUNS = 200
SEEN = 200.0


def blocks(
    chance: random.Random, delay: float, neighbour: float
) -> tuple[list[float], list[float]]:
    """p50 of 20 blocks of 50 calls that take 80 us or so, some of them milliseconds; both of a pair
    are slowed by the same neighbour. delay: of the first's calls."""
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(20):
        slowed = chance.uniform(0, neighbour)
        for more, kept in ((delay, ours), (0.0, bare)):
            calls = [
                80 + slowed + more + chance.expovariate(1 / 20) + 5000 * (chance.random() < 0.1)
                for _ in range(50)
            ]
            kept.append(quantile(calls, 0.5))
    return ours, bare


def judged(seed: int, delay: float, neighbour: float = 500.0) -> Figure:
    return later("q", "later", "us", *blocks(random.Random(seed), delay, neighbour), seen=SEEN)


def test_a_delay_of_200_us_fails() -> None:
    """Also beside a neighbour who slows both by more than that."""
    for seed in range(RUNS):
        one = judged(seed, 200.0)
        assert one.met is False
        assert one.value == pytest.approx(200, abs=20)


def test_no_delay_passes() -> None:
    """But for the two or so of a hundred that chance fails."""
    met = [judged(seed, 0.0).met for seed in range(RUNS)]
    assert met.count(False) <= RUNS * 0.03
    assert None not in met


def test_a_delay_as_small_as_a_send_is_resolved() -> None:
    """So that the verdict is about walld, and not about how loud the machine was."""
    assert [judged(seed, 30.0).met for seed in range(RUNS)].count(False) >= RUNS * 0.95


def test_where_it_could_not_be_seen_nothing_is_said() -> None:
    chance = random.Random(1)
    ours, bare = ([chance.uniform(0, 5000) for _ in range(8)] for _ in range(2))
    one = later("q", "later", "us", ours, bare, seen=SEEN)
    assert one.met is None
    assert "not decidable" in render([one])
    assert render([one]).endswith("0 of 1 goals met, 1 not decidable")


def test_what_is_faster_is_not_later() -> None:
    assert judged(1, -50.0).met is True


def test_one_pair_says_nothing() -> None:
    with pytest.raises(ValueError, match="1 pairs, wanted at least 2"):
        later("q", "later", "us", [1.0], [1.0], seen=SEEN)


# --- where a median lies --------------------------------------------------------------------------


@pytest.mark.parametrize("count", [7, 8, 20, 41])
def test_the_interval_has_the_median_as_often_as_it_says(count: int) -> None:
    """Of values of any shape: here 1 of 20 is a hundred times the others."""
    chance = random.Random(2)
    missed = 0
    for _ in range(2000):
        values = [chance.expovariate(1) * (100 if chance.random() < 0.05 else 1)
                  for _ in range(count)]  # fmt: skip
        low, high = interval(values) or (0.0, 0.0)
        missed += not low <= 0.739 <= high  # ln 2, and what the twentieth moves it
    assert missed <= 2000 * 0.03


def test_few_values_are_all_there_is_to_say() -> None:
    assert interval([1.0]) is None
    assert interval([3.0, 1.0]) == (1.0, 3.0)
    assert interval([5.0, 1.0, 2.0, 4.0, 3.0]) == (1.0, 5.0)
    assert interval(range(20)) == (4, 15)


def test_a_goal_within_the_interval_decides_nothing() -> None:
    assert crosses((0.5, 2.0), 1.0, most=True)
    assert crosses((0.5, 2.0), 1.0, most=False)
    assert not crosses((0.5, 1.0), 1.0, most=True)
    assert not crosses((1.1, 2.0), 1.0, most=True)
    assert not crosses((1.0, 2.0), 1.0, most=False)
    assert not crosses((0.5, 0.9), 1.0, most=False)
    assert not crosses(None, 1.0, most=True)
