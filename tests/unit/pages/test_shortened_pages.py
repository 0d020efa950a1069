"""Pages that were shortened stay short, and what they promised stands where the list says."""

from __future__ import annotations

import csv
from pathlib import Path

ROOT = Path(__file__).parents[3]
MOVED = ROOT / "docs/data/moved_sentences.csv"
OF_A_BUILD_BEFORE = (
    "a figure or a fault of a build before, in the message of the commit that changed it"
)


def moved() -> list[list[str]]:
    with MOVED.open(newline="", encoding="utf-8") as file:
        heading, *rows = csv.reader(file)
    assert heading == ["page", "sentence", "stands in"]
    return rows


def test_each_sentence_stands_in_a_page_a_test_or_the_code() -> None:
    for page, sentence, places in moved():
        assert (ROOT / page).exists(), page
        assert sentence, page
        if places == OF_A_BUILD_BEFORE:
            assert page == "CHANGELOG.md", sentence
            continue
        for place in places.split("; "):
            path, _, name = place.partition("::")
            assert (ROOT / path).is_file(), f"{sentence}: {place}"
            of = f"def {name}(" if path.endswith(".py") else name
            assert of in (ROOT / path).read_text() or not name, f"{sentence}: {place}"


def test_no_sentence_is_listed_twice() -> None:
    rows = [tuple(row) for row in moved()]
    assert [row for row in set(rows) if rows.count(row) > 1] == []


def test_the_changelog_is_short() -> None:
    """What each build changed is in its commits: nothing but 0.1.0 has a number."""
    assert len((ROOT / "CHANGELOG.md").read_text().splitlines()) <= 30


def test_a_case_of_what_fails_is_a_row_and_a_cell_is_short() -> None:
    lines = (ROOT / "walld/FAULTS.md").read_text().splitlines()
    headings = [at - 1 for at, line in enumerate(lines) if line.startswith("|---")]
    rows = [line for at, line in enumerate(lines) if line.startswith("| ") and at not in headings]
    assert 1 <= len(rows) <= 50
    for row in rows:
        cells = [cell.strip() for cell in row.strip()[1:-1].split("|")]
        assert all(cells), row
        assert max(map(len, cells)) <= 160, row
