"""Each row of the track record says what it must, and the page is what the rows make."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from track_record import rows
from track_record.page import PAGE, made

BUGS, RUNS = rows.bugs(), rows.runs()
LINES_MAX = 80
BY_HAND = ("by hand", "the same", "the tests near each")


def test_the_page_is_made_of_the_rows() -> None:
    assert PAGE.read_text() == made(), "PYTHONPATH=tests python -m track_record makes it anew"
    assert len(made().splitlines()) <= LINES_MAX


def test_every_run_names_its_command_its_commit_and_how_much_it_was() -> None:
    for number, run in enumerate(RUNS, 2):
        where = f"row {number}: {run.what}"
        assert run.what, where
        assert "`" in run.command or run.command.startswith(BY_HAND), where
        assert re.search(r"`[0-9a-f]{7,10}`", run.commit), where
        assert run.seeds_or_cases, where
        assert run.failed, where
        assert run.kind in rows.KINDS, where
        assert run.broken.isdecimal(), where
        assert run.counted(), where
        assert set(run.counted()) <= set(rows.COUNTED), where


def test_counts_are_what_the_row_says_in_words() -> None:
    """Where it says one number of one thing: ranges of seeds and sums stand in the words alone."""
    compared = 0
    for number, run in enumerate(RUNS, 2):
        (name, count), *more = run.counted().items()
        said = re.fullmatch(r"([\d,]+) (?!of)[a-z ]+", run.seeds_or_cases)
        if said and not more:
            assert count == int(said[1].replace(",", "")), f"row {number}: {name}"
            compared += 1
    assert compared >= 10


def test_a_run_that_broke_nothing_names_no_failure_first() -> None:
    for number, run in enumerate(RUNS, 2):
        if run.failed == "0" or re.fullmatch(r"[1-9]\d*", run.failed):
            assert run.broken == run.failed, f"row {number}"


def test_every_bug_is_there_once_and_says_how_it_was_found() -> None:
    told = [(bug.bug, bug.found_by, bug.held_by) for bug in BUGS]
    assert [bug for bug in told if told.count(bug) > 1] == []
    long = [bug.bug for bug in BUGS if len(bug.bug) > 100]
    assert [bug for bug in set(long) if long.count(bug) > 1] == [], "two versions of one row"
    for bug in BUGS:
        assert bug.bug, bug
        assert bug.found_by, bug.bug
        assert bug.way in rows.WAYS, bug.bug
    assert BUGS[0].found_by != "the same"


def test_the_same_is_the_way_of_the_row_above() -> None:
    for above, bug in pairwise(BUGS):
        if bug.found_by == "the same":
            assert bug.way == above.way, bug.bug


def test_every_bug_names_what_holds_it() -> None:
    for bug in BUGS:
        named = rows.named_tests(bug.held_by)
        node = r"`(clients/node/test/[\w/]+\.test\.ts)(?:::([^`]+))?`"
        of_node = re.findall(node, bug.held_by)
        assert named or of_node, bug.bug
        for path, function in named:
            text = (rows.ROOT / "tests" / path).read_text()
            assert not function or f"def {function}(" in text, f"{path}::{function}"
        for path, title in of_node:
            assert title in (rows.ROOT / path).read_text(), f"{path}::{title}"


def test_every_goal_is_of_something_that_is_counted() -> None:
    for goal in rows.goals():
        assert goal.of in ("all runs", "each run of .ci/run")
        assert set(goal.aimed()) <= set(rows.COUNTED), goal.figure
        assert bool(goal.aims) == (goal.of == "all runs"), goal.figure


def test_counts_that_are_no_list_are_refused() -> None:
    for counts in ("worlds", "worlds=", "worlds=1,000", "worlds=1  states=2", "worlds=1 "):
        run = rows.Run("", "", "", "", "", "", counts, "0")
        with pytest.raises(ValueError, match="wanted name=number"):
            run.counted()
