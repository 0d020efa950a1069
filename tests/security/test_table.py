"""The table of threats names tests that exist, and every test of this folder is in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "walld/SECURITY.md"
NAMED = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`")


def rows() -> list[list[str]]:
    """The cells of each row."""
    lines = PAGE.read_text().splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("| threat |"))
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip()[1:-1].split("|")])
    return found


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_every_threat_names_tests_that_exist(row: list[str]) -> None:
    threat, _, cell = row
    named = NAMED.findall(cell)
    assert named, threat
    for path, function in named:
        text = (ROOT / "tests" / path).read_text()
        assert not function or f"def {function}(" in text, f"{path}::{function}"


def test_every_file_of_this_folder_is_named() -> None:
    cells = " ".join(row[2] for row in rows())
    for path in Path(__file__).parent.glob("test_*.py"):
        if path != Path(__file__):
            assert f"security/{path.name}" in cells, path.name


def test_it_says_what_is_not_defended() -> None:
    text = PAGE.read_text()
    assert "## What it does not do" in text
    assert len(rows()) >= 15
