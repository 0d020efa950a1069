"""How much longer does one of two take that took turns, and could it be chance?

Owns: the verdict on "no difference outside noise". Both are measured in blocks, a block of the one
beside a block of the other, so that what slows a machine down for a while slows both; what counts
is how the differences of such pairs differ among themselves. How single calls differ says nothing:
a call that takes 200 us more, each time, hides in calls that differ by a millisecond. Refuses:
calling it "no difference" where one that matters could not have been seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.report.numbers import interval, median
from bench.report.table import Figure

__all__ = ["later"]


def later(
    question: str, name: str, unit: str, ours: Sequence[float], bare: Sequence[float], seen: float
) -> Figure:
    """The median difference of the pairs; its goal is the noise, so it is met where 0 is as likely.

    ours, bare: a value of each block, in pairs. seen: a difference that must not hide in the noise.
    The spread is where the median of such differences lies (`numbers.interval`).
    """
    each = [above - below for above, below in zip(ours, bare, strict=True)]
    value, within = median(each), interval(each)
    if within is None:
        raise ValueError(f"{name}: {len(each)} pairs, wanted at least 2")
    low, high = within
    note = (
        f"{name}: {value:+,.1f} {unit}, by {len(each)} pairs of blocks between {low:+,.1f} and "
        f"{high:+,.1f}; a difference of {seen:,.0f} {unit} would not be called none"
    )
    undecided = low <= 0 and high >= seen
    return Figure(question, name, value, unit, value - low, spread=within, note=note,
                  undecided=undecided)  # fmt: skip
