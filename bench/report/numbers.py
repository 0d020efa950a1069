"""Medians, quantiles, spreads, ratios, and how a figure grows.

Owns: the few statistics the questions share. Refuses: means; on a shared machine they measure the
neighbours.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise

__all__ = [
    "TAIL_CALLS_LEAST",
    "blocks",
    "crosses",
    "exponent",
    "interval",
    "median",
    "quantile",
    "ratio",
    "reaches",
    "spread",
]

TAIL_CALLS_LEAST = 20_000
"""A p99.9 is of that many calls: of 1,500 it is the second largest, and so is a neighbour."""


def quantile(values: Iterable[float], share: float) -> float:
    """The value that `share` of them do not exceed; NaN of nothing."""
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def median(values: Iterable[float]) -> float:
    """The one in the middle, or between the two."""
    kept = list(values)
    return statistics.median(kept) if kept else float("nan")


def spread(values: Iterable[float]) -> tuple[float, float] | None:
    """Lowest and highest, where there are at least two."""
    kept = list(values)
    return (min(kept), max(kept)) if len(kept) > 1 else None


def interval(values: Iterable[float], sure: float = 0.98) -> tuple[float, float] | None:
    """Where the median of many more such values lies, as likely as that; None of fewer than two.

    By their order alone, so whatever their shape: half of all lie below the median. Fewer than
    seven cannot be so sure: it is their lowest and highest then, of five 94 times of 100.
    """
    ordered = sorted(values)
    count = len(ordered)
    if count < 2:
        return None
    at, outside = 0, 2 + 2 * count  # of 2 ** count ways to lie, those beyond `at` and one more
    while outside <= (1 - sure) * 2**count:
        at += 1
        outside += 2 * math.comb(count, at + 1)
    return ordered[at], ordered[-1 - at]


def crosses(within: tuple[float, float] | None, goal: float, most: bool) -> bool:
    """Whether a value that lies there may be on either side of its goal: nothing is decided."""
    if within is None:
        return False
    low, high = within
    return low <= goal < high if most else low < goal <= high


def blocks(values: Sequence[float], count: int) -> list[Sequence[float]]:
    """So many runs of equal length, as they follow each other; what is left over is in none."""
    size = max(1, len(values) // count)
    return [values[at : at + size] for at in range(0, size * count, size)]


def ratio(upper: Sequence[float], lower: Sequence[float], count: int) -> tuple[float, list[float]]:
    """(of the medians, and of the medians of each of `count` blocks) of two that took turns."""
    each = [
        median(above) / median(below)
        for above, below in zip(blocks(upper, count), blocks(lower, count), strict=True)
    ]
    return median(upper) / median(lower), each


def exponent(points: Iterable[tuple[float, float]]) -> float:
    """k of cost = c * size ** k, by least squares of the logarithms: 1 is linear, 0 constant.

    NaN of fewer than two sizes. A cost that is not above 0 has no logarithm: ValueError.
    """
    logs = [(math.log(size), math.log(cost)) for size, cost in points]
    if len({size for size, _ in logs}) < 2:
        return float("nan")
    return statistics.linear_regression(*zip(*logs, strict=True)).slope


def reaches(points: Iterable[tuple[float, float]], most: float) -> float:
    """The largest size up to which no step to the next grows by more than that exponent.

    NaN of nothing.
    """
    ordered = sorted(points)
    if not ordered:
        return float("nan")
    for smaller, larger in pairwise(ordered):
        if exponent((smaller, larger)) > most:
            return smaller[0]
    return ordered[-1][0]
