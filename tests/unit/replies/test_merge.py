"""Items that say the same as many: runs joined to one, copies dropped."""

from __future__ import annotations

from reply_items import BEGIN, REASONING, end, text, tool

from walld.replies.fold import fold
from walld.replies.merge import MERGED_TEXT_BYTES_MAX, merge
from walld.wal.records import Item


def test_merge_joins_neighbours_of_one_kind_and_leaves_the_last_run() -> None:
    items: list[Item] = [
        BEGIN,
        text(1, "a"),
        text(2, "b", "c"),
        text(4, "r", kind=REASONING),
        text(5, "d"),
        text(7, "e"),
        tool(8, "c", "t"),
        text(9, "f"),
        text(10, "g"),
        text(11, "h"),
    ]
    merged = merge(items)
    assert merged == [
        BEGIN,
        text(1, "a", "b", "c"),
        text(4, "r", kind=REASONING),
        text(5, "d"),
        text(7, "e"),
        tool(8, "c", "t"),
        text(9, "f", "g"),
        text(11, "h"),
    ]
    assert fold(BEGIN, merged, owner_alive=False, live=True, lost_reason=None) == fold(
        BEGIN, items, owner_alive=False, live=True, lost_reason=None
    )
    assert merge([]) == []
    assert merge([text(1, "a"), text(2, "b"), end(3)]) == [text(1, "a", "b"), end(3)]


def test_merge_stops_at_its_limit() -> None:
    half = "x" * (MERGED_TEXT_BYTES_MAX // 2)
    runs = [text(n, half) for n in range(1, 6)]
    assert [(one.first_seq, one.last_seq) for one in merge([*runs, end(6)])[:-1]] == [  # type: ignore[union-attr]
        (1, 2),
        (3, 4),
        (5, 5),
    ]
    large = text(1, "x" * (MERGED_TEXT_BYTES_MAX + 1))
    assert merge([large, text(2, "a"), end(3)])[0] == large


def test_merge_drops_copies() -> None:
    assert merge([BEGIN, text(1, "a", "b"), BEGIN, text(1, "a"), text(2, "b", "c"), end(4)]) == [
        BEGIN,
        text(1, "a", "b", "c"),
        end(4),
    ]
