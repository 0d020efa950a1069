"""Medians, quantiles, spreads.

Owns: the few statistics the questions share. Refuses: means; on a shared machine they measure the
neighbours.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable

__all__ = ["median", "quantile", "spread"]


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
