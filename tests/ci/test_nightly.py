"""The rule of the nightlies: a room's rows are newer than the last change to what it judges."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from lanes import FIRST, BadTable, Result, Step
from nightly import (
    PART_MINUTES_MAX,
    ROOMS,
    ROOT,
    ROWS,
    Room,
    git,
    parts_of,
    rooms_of,
    troubles,
    with_results,
)

REAL = rooms_of(ROOMS)
FIRST_STEP, SECOND_STEP = (Step(name, FIRST, "true", 5) for name in ("one", "two"))
ROOM = Room("room", ("judged",), ((FIRST_STEP,), (SECOND_STEP,)))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    commit(tmp_path, "judged/a", first=True)
    return tmp_path


def commit(tree: Path, name: str, first: bool = False) -> str:
    """Change a file; the commit's name."""
    if first:
        run_git(tree, "init", "-q", "-b", "main")
    path = tree / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(path.read_text() + "more\n" if path.exists() else "new\n")
    run_git(tree, "add", ".")
    run_git(tree, "commit", "-q", "-m", name)
    return str(git(tree, "rev-parse", "HEAD"))


def run_git(tree: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=tree, check=True, capture_output=True)


def rows_of(head: str, *steps: Step, word: str = "passed") -> dict[str, dict[str, object]]:
    results = [(at, Result(step, 1.0, word, 3, 0)) for at, step in enumerate(steps, 1)]
    return with_results({}, ROOM, results, head, "2026-11-29")


def test_rows_of_the_last_change_judge_the_room(tree: Path) -> None:
    head = commit(tree, "judged/a")
    rows = rows_of(head, FIRST_STEP, SECOND_STEP)
    assert troubles(tree, ROOM, rows) == []
    # The rows themselves are committed behind it, and other rooms go on.
    commit(tree, "docs/nightly.json")
    commit(tree, "elsewhere/b")
    assert troubles(tree, ROOM, rows) == []


def test_rows_older_than_the_last_change_do_not(tree: Path) -> None:
    old = commit(tree, "judged/a")
    new = commit(tree, "judged/a")
    found = troubles(tree, ROOM, rows_of(old, FIRST_STEP, SECOND_STEP))
    assert len(found) == 2
    assert (
        f"its row is of {old[:9]}, which has not {new[:9]}, the last change of judged" in found[0]
    )
    assert "make nightly ROOM=room" in found[0]


def test_a_row_of_a_commit_that_is_not_in_the_history_does_not(tree: Path) -> None:
    assert len(troubles(tree, ROOM, rows_of("0" * 40, FIRST_STEP, SECOND_STEP))) == 2


def test_a_step_without_a_row_or_with_a_red_one_does_not(tree: Path) -> None:
    head = commit(tree, "judged/a")
    [missing] = troubles(tree, ROOM, rows_of(head, FIRST_STEP))
    assert "step two: no row" in missing
    red = rows_of(head, FIRST_STEP, SECOND_STEP, word="FAILED (1)")
    assert [line.split(": ")[1] for line in troubles(tree, ROOM, red)] == ["FAILED (1)"] * 2


def test_a_room_waits_for_its_first_nightly_with_a_reason_only(tree: Path) -> None:
    assert "no row and no not_judged" in troubles(tree, ROOM, {})[0]
    waiting = {"room": {"not_judged": "new"}}
    assert troubles(tree, ROOM, waiting) == []
    head = commit(tree, "judged/a")
    part = with_results(waiting, ROOM, [(1, Result(FIRST_STEP, 1, "passed", 1, 0))], head, "d")
    assert part["room"]["not_judged"] == "new"
    whole = with_results(part, ROOM, [(2, Result(SECOND_STEP, 2, "passed", 1, 0))], head, "d")
    assert "not_judged" not in whole["room"]
    assert troubles(tree, ROOM, whole) == []
    assert [row["part"] for row in whole["room"]["steps"]] == ["1/2", "2/2"]


def test_a_run_replaces_rows_of_its_steps_and_drops_those_of_others(tree: Path) -> None:
    gone = Step("gone", FIRST, "true", 5)
    before = rows_of("a" * 40, FIRST_STEP, SECOND_STEP)
    before["room"]["steps"].append({"step": "gone"})  # type: ignore[attr-defined]
    after = with_results(before, ROOM, [(2, Result(SECOND_STEP, 2, "passed", 9, 0))], "b" * 40, "d")
    assert [(row["step"], row["commit"][0]) for row in after["room"]["steps"]] == [
        ("one", "a"),
        ("two", "b"),
    ]
    assert gone.name not in json.dumps(after)


def test_a_part_is_named_with_how_many_there_are() -> None:
    assert parts_of(ROOM, "") == [1, 2]
    assert parts_of(ROOM, "2/2") == [2]
    with pytest.raises(SystemExit, match="no part '2/3': room room has parts 1/2 to 2/2"):
        parts_of(ROOM, "2/3")


def test_parts_are_numbered_from_one(tmp_path: Path) -> None:
    path = tmp_path / "rooms.toml"
    step = 'part = 2\nname = "a"\ncommand = "true"\nminutes = 1\n'
    path.write_text(f'[[room]]\nname = "room"\njudges = ["x"]\n[[room.step]]\n{step}')
    with pytest.raises(BadTable, match=r"parts \[2\] are not 1, 2, \.\.\."):
        rooms_of(path)


# --- this tree ------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", REAL.values(), ids=list(REAL))
def test_a_part_fits_into_an_hour_and_its_paths_are_there(room: Room) -> None:
    for part in room.parts:
        assert sum(step.minutes for step in part) <= PART_MINUTES_MAX
    assert all((ROOT / path).exists() for path in room.judges)


@pytest.mark.parametrize("room", REAL.values(), ids=list(REAL))
def test_every_room_has_been_judged_since_it_was_changed(room: Room) -> None:
    if git(ROOT, "rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("no whole history of git is here: which commit changed what is not known")
    assert troubles(ROOT, room, json.loads(ROWS.read_text())) == []


def test_every_row_is_of_a_room() -> None:
    assert set(json.loads(ROWS.read_text())) == set(REAL)
