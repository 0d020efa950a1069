"""No measure of this tree is worse than recorded, and none is better without being recorded."""

from __future__ import annotations

import json

import pytest

from gauges import record
from gauges.measures import MEASURES, long_files
from gauges.ratchet import Change, compare


@pytest.fixture(scope="module", params=MEASURES)
def change(request: pytest.FixtureRequest) -> Change:
    """Of each measure in turn."""
    name: str = request.param
    return compare(name, record.recorded()[name], MEASURES[name]())


def test_no_measure_is_worse_than_recorded(change: Change) -> None:
    assert change.worse == [], "worse than recorded, see `make gauges`: " + "; ".join(change.worse)


def test_what_is_better_is_recorded(change: Change) -> None:
    """So that it stays as good."""
    assert change.better == [], "better: `make gauges RECORD=1`, and commit it with the change"


def test_what_is_recorded_is_measured() -> None:
    assert set(record.recorded()) == set(MEASURES)


def test_no_commit_has_two_lines_of_code_lines() -> None:
    lines = [json.loads(line) for line in record.CODE_LINES.read_text().splitlines()]
    commits = [line["commit"] for line in lines]
    assert len(set(commits)) == len(commits) > 0
    assert [line["date"] for line in lines] == sorted(line["date"] for line in lines)
    for line in lines:
        assert sum(line["rooms"].values()) > 0, line["commit"]
        assert all(lines >= 0 for lines in line["rooms"].values()), line["commit"]


def test_long_files_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """For information: none fails for its length; it is asked whether it is one subject."""
    with capsys.disabled():
        for path, lines in long_files().items():
            print(f"\n{path}: {lines} lines: is it one subject?", end="")
