"""Sets of numbers as ranges, against Python's own sets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from walld.wal import ranges
from walld.wal.ranges import Range

small = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 6)), max_size=12).map(
    lambda found: ranges.merged((first, first + more - 1) for first, more in found)
)


def numbers(found: list[Range]) -> set[int]:
    return {number for first, last in found for number in range(first, last + 1)}


def check(found: list[Range]) -> None:
    for (_, last), (first, _) in pairwise(found):
        assert first > last + 1
    assert all(first <= last for first, last in found)


@given(small, small)
def test_without(left: list[Range], right: list[Range]) -> None:
    found = ranges.without(left, right)
    check(found)
    assert numbers(found) == numbers(left) - numbers(right)


@given(small, st.integers(0, 50), st.integers(0, 50))
def test_cut(found: list[Range], first: int, last: int) -> None:
    part = ranges.cut(found, first, last)
    check(part)
    assert numbers(part) == numbers(found) & set(range(first, last + 1))


@given(small, small)
def test_merged(left: list[Range], right: list[Range]) -> None:
    found = ranges.merged([*left, *right])
    check(found)
    assert numbers(found) == numbers(left) | numbers(right)


@given(st.lists(st.integers(1, 40)))
def test_add_and_contains(wanted: list[int]) -> None:
    found: list[Range] = []
    for number in wanted:
        ranges.add(found, number)
    check(found)
    assert numbers(found) == set(wanted)
    assert all(ranges.contains(found, number) == (number in wanted) for number in range(42))


def test_a_huge_gap_costs_nothing() -> None:
    assert ranges.without([(1, 2**60)], [(5, 5)]) == [(1, 4), (6, 2**60)]
