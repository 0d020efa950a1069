"""What the comparison calls worse and better, and what `make gauges` does with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gauges import __main__ as command
from gauges import record
from gauges.ratchet import Measure, compare, total


@pytest.mark.parametrize(
    ("recorded", "measured", "worse", "better"),
    [
        (3, 3, [], []),
        (3, 4, ["n: 4, recorded are 3"], []),
        (3, 2, [], ["n: 2, recorded are 3"]),
        (["a"], ["a"], [], []),
        (["a"], ["a", "b"], ["n: b is not recorded"], []),
        (["a", "b"], ["a"], [], ["n: b is recorded and no more so"]),
        ([["a", "b"]], [["b", "a"]], [], []),
        ([["a", "b"]], [["a", "b", "c"]], ["n: a, b, c is not recorded"], []),
        ([["a", "b", "c"]], [["a", "b"]], [], ["n: a, b, c is recorded and no more so"]),
        ([["a", "b", "c", "d"]], [["a", "b"], ["c", "d"]], [], None),
        ([["a", "b"], ["c", "d"]], [["a", "c"]], ["n: a, c is not recorded"], None),
        ({"a": 1}, {"a": 1}, [], []),
        ({"a": 1}, {"a": 2}, ["n: a: 2, recorded are 1"], []),
        ({"a": 1}, {"a": 1, "b": 1}, ["n: b: 1, recorded are 0"], []),
        ({"a": 1, "b": 1}, {"a": 1}, [], ["n: b: 0, recorded are 1"]),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ["n: a: b: 2, recorded are 1"], []),
    ],
)
def test_worse_and_better(
    recorded: Measure, measured: Measure, worse: list[str], better: list[str] | None
) -> None:
    change = compare("n", recorded, measured)
    assert change.worse == worse
    if better is None:
        assert change.better
    else:
        assert change.better == better


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, 3), (["a", "b"], 2), ([["a", "b"], ["c"]], 3), ({"a": {"b": 2}, "c": ["d"]}, 3)],
)
def test_a_total_is_of_all_names(value: Measure, expected: int) -> None:
    assert total(value) == expected


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Path, dict[str, Measure]]:
    """The command on measures of the test's own; where it records, and what it measures."""
    values: dict[str, Measure] = {}
    path = tmp_path / "values.json"
    monkeypatch.setattr(record, "VALUES", path)
    monkeypatch.setattr(record, "CODE_LINES", tmp_path / "lines")
    monkeypatch.setattr(record, "line_of", lambda *_: {"commit": "c", "rooms": {}})
    monkeypatch.setattr(command, "MEASURES", {"circles": lambda: values["circles"]})
    monkeypatch.setattr(command, "_print_places", lambda: None)
    return path, values


def _main(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["gauges", *words])
    return command.main()


def test_what_is_worse_is_recorded_only_where_that_is_said(
    run: tuple[Path, dict[str, Measure]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, values = run
    values["circles"] = [["a", "b"]]
    assert _main(monkeypatch, "--record") == 0
    assert json.loads(path.read_text()) == values
    assert _main(monkeypatch) == 0

    values["circles"] = [["moved.a", "moved.b"]]
    assert _main(monkeypatch) == 1, "nobody has recorded the move"
    assert "worse   circles: moved.a, moved.b is not recorded" in capsys.readouterr().out
    assert _main(monkeypatch, "--record") == 0, "the names are others, there is no more of it"
    assert json.loads(path.read_text()) == values

    values["circles"] = [["moved.a", "moved.b", "moved.c"]]
    assert _main(monkeypatch, "--record") == 1
    assert "not recorded, there is more of: circles" in capsys.readouterr().err
    assert json.loads(path.read_text()) != values
    assert _main(monkeypatch, "--record=worse") == 0
    assert json.loads(path.read_text()) == values

    values["circles"] = []
    assert _main(monkeypatch) == 0, "better is no failure of the command"
    assert "better  circles: moved.a, moved.b, moved.c" in capsys.readouterr().out
