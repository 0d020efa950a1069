"""Parents by seq: the way up that skips, against the way step by step."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from walld.errors import FormatError
from walld.sessions.state import parents as module
from walld.sessions.state.parents import Parents


def walked(by_seq: Sequence[int], seq: int, place: int) -> bool:
    while place > seq:
        place = by_seq[place]
    return place == seq


@pytest.mark.parametrize("straight", [0.0, 0.5, 0.9, 1.0])
def test_the_way_up_is_that_step_by_step(straight: float) -> None:
    chance = Random(7)
    for _ in range(30):
        by_seq, parents = [0], Parents()
        for seq in range(1, 40):
            by_seq.append(seq - 1 if chance.random() < straight else chance.randrange(seq))
            parents.add(by_seq[-1:])
        again = Parents()
        cut = chance.randrange(39)
        again.add(by_seq[1 : cut + 1])
        again.go_on(39, parents.odd_behind(cut))
        assert again == parents
        assert again.odd_behind(0) == parents.odd_behind(0)
        again.add([3, 4])
        again.cut(39)
        for place in range(40):
            for seq in range(1, 40):
                found = [one.is_above(seq, place) for one in (parents, again)]
                assert found == [walked(by_seq, seq, place)] * 2, (by_seq, seq, place)


def test_a_way_up_costs_what_it_turns_and_not_its_length() -> None:
    steps = 0

    class Counted(module.array):  # type: ignore[type-arg, misc]
        def __getitem__(self, at: int) -> int:  # type: ignore[override]
            nonlocal steps
            steps += 1
            return int(super().__getitem__(at))

    parents = Parents()
    parents.add([*range(1000), 500, *range(1001, 10_000)])
    parents._by_seq, parents._odd = Counted("I", parents._by_seq), Counted("I", parents._odd)
    assert parents.is_above(1, 10_000)
    assert not parents.is_above(700, 10_000)
    assert steps < 20


def test_parents_that_cannot_be() -> None:
    for odd in ([9, 1], [3], [2, 1, 2, 0], [3, 1, 2, 0], [0, 0], [2, -1], [2, 2**40]):
        with pytest.raises(FormatError, match="parents of no entry"):
            Parents().go_on(3, odd)
