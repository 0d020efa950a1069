"""Sets of numbers (batches, streams, seqs) as ranges.

Owns: joining, subtracting and cutting of such sets. Refuses: what a gap means (`verdict.py`).

A range is (first, last), both in it. A set is a list of ranges, ascending, that do not touch.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Range", "add", "contains", "cut", "merged", "without"]

Range = tuple[int, int]


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The set of all numbers in any of these ranges, which may be empty or overlap."""
    out: list[Range] = []
    for first, last in sorted(ranges):
        if last < first:
            continue
        if out and first <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(last, out[-1][1]))
        else:
            out.append((first, last))
    return out


def add(numbers: list[Range], number: int) -> None:
    """Put one number into a set. Cheap where it is the next one, as in a log it is."""
    if numbers and number == numbers[-1][1] + 1:
        numbers[-1] = (numbers[-1][0], number)
    elif not numbers or number > numbers[-1][1]:
        numbers.append((number, number))
    elif not contains(numbers, number):
        numbers[:] = merged([*numbers, (number, number)])


def contains(numbers: list[Range], number: int) -> bool:
    """True where the number is in the set."""
    at = bisect_left(numbers, number, key=lambda item: item[1])
    return at < len(numbers) and numbers[at][0] <= number


def cut(numbers: list[Range], first: int, last: int) -> list[Range]:
    """The part of a set that lies from first to last; nothing where first > last."""
    out: list[Range] = []
    if first > last:
        return out
    for at in range(bisect_left(numbers, first, key=lambda item: item[1]), len(numbers)):
        start, end = numbers[at]
        if start > last:
            break
        out.append((max(start, first), min(end, last)))
    return out


def without(numbers: list[Range], others: list[Range]) -> list[Range]:
    """The numbers of one set that are not in another."""
    out: list[Range] = []
    for first, last in numbers:
        for start, end in cut(others, first, last):
            if start > first:
                out.append((first, start - 1))
            first = end + 1
        if first <= last:
            out.append((first, last))
    return out
