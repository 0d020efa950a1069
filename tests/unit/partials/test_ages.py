"""Ages of partials: what counts, what a clock cannot do, and the file."""

from __future__ import annotations

import pytest

from walld.errors import FormatError
from walld.partials.ages import HOLD_MS, LOOK_MS_MAX, STEP_MS_MIN, Ages, Name

A: Name = (0, "s", "a")
B: Name = (1000, "h~" + "0" * 40, "b")
LOOK = 600_000
WALL = 1_800_000_000_000


def looked(ages: Ages, looks: int, *names: Name, made_at_ms: int = 5, wall: int = WALL) -> int:
    """So many looks, ten minutes apart; the wall clock behind them."""
    for _ in range(looks):
        wall += LOOK
        assert ages.look([(name, made_at_ms) for name in names], LOOK, wall) is None
    return wall


def test_age_counts_from_the_look_that_saw_it() -> None:
    ages = Ages()
    ages.look([(A, 5)], None, WALL)
    wall = looked(ages, 3, A)
    looked(ages, 2, A, B, wall=wall)
    assert ages.past(5 * LOOK) == [A]
    assert ages.past(1 * LOOK) == [A, B]
    assert ages.past(6 * LOOK) == []


def test_a_new_one_of_that_name_begins_anew() -> None:
    ages = Ages()
    ages.look([(A, 5)], None, WALL)
    wall = looked(ages, 3, A)
    looked(ages, 1, A, made_at_ms=6, wall=wall)
    assert ages.past(1) == []


@pytest.mark.parametrize("elapsed", [8 * 24 * 3600 * 1000, -1, 0])
def test_no_monotonic_clock_makes_it_older_than_a_look(elapsed: int) -> None:
    """X1."""
    ages = Ages()
    ages.look([(A, 5)], None, WALL)
    ages.look([(A, 5)], elapsed, WALL + elapsed)
    assert 0 <= ages.running_ms <= LOOK_MS_MAX


@pytest.mark.parametrize("step", [STEP_MS_MIN, -STEP_MS_MIN, 8 * 24 * 3600 * 1000])
def test_a_step_holds_everything_for_a_day(step: int) -> None:
    """X2, also behind a restart."""
    ages = Ages()
    ages.look([(A, 5)], None, WALL)
    wall = looked(ages, 3, A)
    assert ages.look([(A, 5)], LOOK, wall + LOOK + step) == step
    again = Ages.decode(ages.encode())
    looked(again, HOLD_MS // LOOK - 1, A, wall=wall + LOOK + step)
    assert again.past(LOOK) == []
    looked(again, 1, A, wall=wall + LOOK + step + HOLD_MS - LOOK)
    assert again.past(LOOK) == [A]


def test_between_two_daemons_only_a_step_back_is_one() -> None:
    ages = Ages()
    ages.look([(A, 5)], None, WALL)
    assert ages.look([(A, 5)], None, WALL + 30 * 24 * 3600 * 1000) is None
    assert ages.look([(A, 5)], None, WALL) == -30 * 24 * 3600 * 1000


def test_the_file_holds_all_of_it_and_no_flipped_bit_is_believed() -> None:
    ages = Ages()
    ages.look([(A, 5), (B, 7)], None, WALL)
    looked(ages, 2, A, B)
    written = ages.encode()
    assert Ages.decode(written).encode() == written
    for at in range(len(written)):
        for bit in range(8):
            hurt = bytearray(written)
            hurt[at] ^= 1 << bit
            with pytest.raises(FormatError):
                Ages.decode(bytes(hurt))
    for size in range(len(written)):
        with pytest.raises(FormatError):
            Ages.decode(written[:size])
    with pytest.raises(FormatError, match="version 2, this daemon reads 1"):
        Ages.decode(b"ages 2\nsomething else\n")
