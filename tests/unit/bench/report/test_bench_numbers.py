"""How a figure grows is what its sizes say; medians and blocks are of what was given."""

from __future__ import annotations

import math

import pytest

from bench.report.numbers import blocks, exponent, median, quantile, ratio, reaches, spread

SIZES = (1, 10, 100, 1000)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0, -1.0])
def test_the_exponent_is_that_of_the_power_law(power: float) -> None:
    assert exponent((size, 3.0 * size**power) for size in SIZES) == pytest.approx(power)


def test_the_exponent_lies_between_those_of_its_steps() -> None:
    bent = [(1, 1.0), (10, 10.0), (100, 1000.0)]
    assert 1.0 < exponent(bent) < 2.0


def test_of_one_size_nothing_can_be_said() -> None:
    assert math.isnan(exponent([]))
    assert math.isnan(exponent([(10, 5.0), (10, 6.0)]))
    with pytest.raises(ValueError, match="math domain"):
        exponent([(1, 1.0), (10, 0.0)])


def test_it_reaches_the_size_before_the_first_step_that_is_too_steep() -> None:
    linear = [(size, 2.0 * size) for size in SIZES]
    assert reaches(linear, 1.1) == 1000
    assert reaches([*linear, (10_000, 40_000.0)], 1.1) == 1000
    assert reaches([*linear, (10_000, 40_000.0), (100_000, 40_000.0)], 1.1) == 1000
    assert reaches(linear, 0.9) == 1
    assert reaches(reversed(linear), 1.1) == 1000
    assert math.isnan(reaches([], 1.0))


def test_blocks_follow_each_other() -> None:
    assert blocks([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4]]
    assert blocks([1, 2], 2) == [[1], [2]]


def test_a_ratio_is_of_medians_and_of_those_of_each_block() -> None:
    value, each = ratio([2, 2, 6, 6], [1, 1, 2, 2], 2)
    assert each == [2.0, 3.0]
    assert value == 4.0 / 1.5


def test_medians_quantiles_and_spreads() -> None:
    assert median([3, 1, 2]) == 2
    assert quantile([5, 1, 3], 0.99) == 5
    assert spread([2]) is None
    assert spread([2, 1, 3]) == (1, 3)
    assert math.isnan(median([]))
    assert math.isnan(quantile([], 0.5))
