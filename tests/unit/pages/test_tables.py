"""The tables of rooms, limits and invariants are what docs/tables.py makes of the code."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from track_record.rows import named_tests

from walld import limits

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "docs/tables.py"
_spec = importlib.util.spec_from_file_location("walld_docs_tables", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
tables = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tables)
NONE_YET_MAX = 0
"""Invariants that no test holds: this number only goes down."""


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.name)
def test_a_page_has_the_tables_of_the_code(page: Path) -> None:
    assert tables.placed(page) == page.read_text(), f"{page.name}: run python docs/tables.py"


def test_a_page_without_marks_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Limits\n")
    monkeypatch.setattr(tables, "PAGES", {page: {"limits": tables.limits}})
    with pytest.raises(ValueError, match="0 places for the table of limits, wanted 1"):
        tables.placed(page)


def test_every_invariant_names_the_tests_that_hold_it() -> None:
    held, none_yet = tables.held_by(), []
    assert set(held) == set(tables.invariants())
    for label, cell in held.items():
        named = named_tests(cell)
        if cell == "none yet":
            none_yet.append(label)
        else:
            assert named, f"{label} names no test"
        for path, function in named:
            text = (ROOT / "tests" / path).read_text()
            assert not function or f"def {function}(" in text, f"{label}: {path}::{function}"
    assert len(none_yet) <= NONE_YET_MAX, none_yet


def test_an_invariant_is_read_to_the_end_of_its_sentence() -> None:
    path, says = tables.invariants()["G2"]
    assert path == "walld/engine/segments.py"
    assert says.startswith("Live bytes of a segment are the record bytes (entry and body) in it")
    assert says.endswith("still needs.")


def test_every_limit_has_its_value_and_its_meaning() -> None:
    rows = [line[2:-2].split(" | ") for line in tables.limits().splitlines()[2:]]
    names = {name.lower() for name in vars(limits) if name.isupper()} - {"kib", "mib"}
    assert {row[0].strip("`") for row in rows} == names
    shown = {row[0].strip("`"): row[1] for row in rows}
    assert shown["frame_bytes_max"] == "1 MiB"
    assert shown["text_bytes_max"] == "1,020 KiB"
    assert shown["live_stream_bytes"] == "1,280 B"
    assert shown["flush_bound_ms_max"] == "3,000 ms"
    assert shown["retention_seconds_default"] == "7 days"
    assert shown["ack_period_seconds"] == "0.25 s"
    assert shown["queue_high_share"] == "75 %"
    assert shown["user_bytes_per_second"] == "8 MiB"
    assert shown["log_lines_per_second_max"] == "20"


def test_the_rooms_are_the_packages() -> None:
    named = {line.split("`")[1] for line in tables.rooms().splitlines()[2:]}
    folders = [ROOT / "walld", ROOT / "walld/daemon", ROOT / "clients/python/walld_client"]
    there = {
        f"{path.parent.relative_to(ROOT)}/"
        for folder in folders
        for path in folder.glob("*/__init__.py")
    }
    assert there <= named
