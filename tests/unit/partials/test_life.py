"""The life of a partial's file: each edge of the table, and no other."""

from __future__ import annotations

from itertools import product

import pytest

from walld.engine.partial_index import IndexedPartial, PartialIndex
from walld.partials.life import EDGES, Life

NAMES = 1000, "s", "r"
FACTS = IndexedPartial(4, 1, 9, 5)
WAY: dict[Life, list[Life]] = {
    Life.NONE: [],
    Life.DOUBTED: [Life.DOUBTED],
    Life.KEPT: [Life.KEPT],
    Life.LEFT: [Life.KEPT, Life.LEFT],
    Life.UNWANTED: [Life.KEPT, Life.UNWANTED],
}


def goes(index: PartialIndex, life: Life) -> None:
    if life is Life.KEPT:
        index.add(*NAMES, FACTS)
    else:
        index.move(NAMES, life, FACTS.stream_no)


@pytest.mark.parametrize(("now", "to"), list(product(Life, Life)), ids=lambda life: life.name)
def test_each_edge_and_no_other(now: Life, to: Life) -> None:
    index = PartialIndex()
    for life in WAY[now]:
        goes(index, life)
    assert index.life(NAMES)[0] is now
    if to not in EDGES[now]:
        with pytest.raises(AssertionError):
            goes(index, to)
        to = now
    else:
        goes(index, to)
    assert index.life(NAMES) == (to, None if to is Life.NONE else 4)
    assert (NAMES in index) == (to is Life.KEPT), "a question finds what is kept, and nothing else"
    for life in (Life.DOUBTED, Life.LEFT, Life.UNWANTED):
        assert index.unkept(life) == ({NAMES: 4} if life is to else {})


def test_of_one_that_no_start_could_read_the_number_is_not_known() -> None:
    index = PartialIndex()
    index.add(*NAMES, None)
    assert index.life(NAMES) == (Life.KEPT, None)
