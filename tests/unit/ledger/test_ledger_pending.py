"""Lines of several streams of the log as one session's: what a hole means (H1, H2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walld.ledger.pending import FoundLines, Joined, Pending, is_dense, join

SYNCED, NOT_SYNCED = 3, 9
"""Numbers of batches up to and beyond what is known to have been synced."""


def lines(*seqs: int, word: str = "first") -> list[Pending]:
    return [Pending(seq, b"%d %s" % (seq, word.encode())) for seq in seqs]


def found(base: int, *seqs: int, batch_no: int = NOT_SYNCED, word: str = "first") -> FoundLines:
    return FoundLines(base, batch_no, lines(*seqs, word=word))


def leapt(base: int, *seqs: int, batch_no: int = NOT_SYNCED) -> FoundLines:
    return FoundLines(base, batch_no, lines(*seqs), leapt=True)


def joined(*streams: FoundLines, last_in_file: int = 0, met_damage: bool = False) -> Joined:
    return join(streams, last_in_file, SYNCED, met_damage=met_damage)


def test_lines_without_a_hole_are_all_there() -> None:
    assert joined(found(0, 1, 2), found(2, 3)) == (lines(1, 2, 3), [])
    assert joined(found(4, 5, 6), last_in_file=5) == (lines(5, 6), [])
    assert joined(found(0), found(0)) == ([], [])


@pytest.mark.parametrize(
    ("streams", "kept", "cut"),
    [
        ([found(0, 1, 3)], [1], [3]),
        ([found(0, 2)], [], [2]),
        ([found(0, 1), found(2, 3, 4)], [1], [3, 4]),
        ([found(2, 3)], [], [3]),
    ],
    ids=["within", "first", "between", "stream"],
)
def test_what_stands_behind_a_torn_place_is_cut(
    streams: list[FoundLines], kept: list[int], cut: list[int]
) -> None:
    assert joined(*streams) == (lines(*kept), lines(*cut))


def test_what_was_cut_does_not_come_back() -> None:
    """The next daemon wrote another line 2 behind line 1; the log still has the old line 3."""
    again = found(1, 2, 3, word="again")
    assert joined(found(0, 1, 3), again) == ([*lines(1), *lines(2, 3, word="again")], [])


def test_what_was_cut_does_not_come_back_where_the_file_went_on() -> None:
    """Of the next daemon's stream the tombstone is durable, of the torn one it is not."""
    assert joined(found(0, 1, 3), last_in_file=5) == ([], [])
    assert joined(found(0, 1, 3, 4), last_in_file=3) == (lines(4), [])


def test_a_hole_that_may_be_damage_stays_one() -> None:
    assert joined(found(0, 1, 3), met_damage=True) == (lines(1, 3), [])
    assert joined(found(0, 1), found(2, 3), met_damage=True) == (lines(1, 3), [])


def test_lines_behind_a_file_that_lost_its_end_stay() -> None:
    """The log let go of 4 and 5 when the file had them: no crash takes them from there."""
    assert joined(found(5, 6, batch_no=SYNCED), last_in_file=3) == (lines(6), [])


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
    st.sets(st.integers(1, 25)),
    st.integers(0, 25),
)
def test_a_crash_leaves_a_prefix_of_what_there_was(
    lengths: list[int], torn: set[int], last_in_file: int
) -> None:
    """Whatever lines power took, what is kept goes on from the file without a hole."""
    streams, base = [], 0
    for length in lengths:
        left = [seq for seq in range(base + 1, base + length + 1) if seq not in torn]
        streams.append(found(base, *left))
        base += length
    last_in_file = min(last_in_file, base)
    kept, cut = joined(*streams, last_in_file=last_in_file)
    assert is_dense(kept)
    assert not kept or kept[0].seq <= last_in_file + 1
    behind = [seq for seq in range(last_in_file + 1, base + 1) if seq in torn]
    first = behind[0] if behind else base + 1
    assert {one.seq for one in kept} >= set(range(last_in_file + 1, first))
    assert all(one.seq > first for one in cut)


def test_what_was_leapt_over_is_no_torn_place() -> None:
    """H3: also where nothing is known to be damaged any more, and nothing was synced."""
    assert joined(found(0, 1, 2), leapt(9, 10, 11)) == (lines(1, 2, 10, 11), [])
    assert joined(leapt(9, 10), last_in_file=2) == (lines(10), [])
    assert joined(leapt(9, 10, 12), last_in_file=2) == (lines(10), lines(12))
    assert joined(found(2, 3, 5), leapt(9, 10), last_in_file=2) == (lines(3, 10), lines(5))


def test_what_an_earlier_start_did_not_see_for_damage_is_kept_aside() -> None:
    again = found(1, 2, 3, word="again")
    kept = [*lines(1), *lines(2, 3, word="again")]
    assert joined(found(0, 1, 2), again, met_damage=True) == (kept, lines(2))
