"""The examples are short, and each is run by the tests of its SDK."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LINES_MAX = 30


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example(path: Path) -> None:
    assert len(path.read_text().splitlines()) < LINES_MAX
    compile(path.read_text(), str(path), "exec")
    tests = [one.read_text() for one in (ROOT / "tests/adapters").rglob("test_*.py")]
    assert any(f'"{path.stem}"' in one for one in tests), "no test runs it"
    assert path.name in (ROOT / "clients/python/ADAPTERS.md").read_text(), "nobody hears of it"


def test_there_are_some() -> None:
    assert len(EXAMPLES) >= 8
