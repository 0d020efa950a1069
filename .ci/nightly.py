"""`python nightly.py [--room NAME] [--part 2/5]`: everything in full, room by room, part by part.

Owns: what `rooms.toml` may say, the rows of `docs/data/nightly.json`, the rule when a room's rows
are too old. Refuses: running steps (`lanes.py`).

A row says what one step of a room came to, on which commit. A room is judged when each of its
steps has a green row of a commit that has the last change to the paths that the room judges.
Before its first nightly a room has `not_judged` in that file, with the reason; it goes when each
step has a row.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from lanes import LANES, BadTable, Result, Step, run

ROOT: Final = Path(__file__).resolve().parents[1]
ROOMS: Final = ROOT / ".ci/rooms.toml"
ROWS: Final = ROOT / "docs/data/nightly.json"
PART_MINUTES_MAX: Final = 60

Rows = dict[str, dict[str, Any]]
"""By room: {"not_judged": why}, or {"steps": one row each}."""


class Room(NamedTuple):
    """parts: its steps, those of each part together; they run one after the other."""

    name: str
    judges: tuple[str, ...]
    parts: tuple[tuple[Step, ...], ...]


def rooms_of(path: Path) -> dict[str, Room]:
    rooms = {}
    for row in tomllib.loads(path.read_text())["room"]:
        parts: dict[int, list[Step]] = {}
        for step in row["step"]:
            one = Step(step["name"], LANES[0], step["command"], step["minutes"])
            parts.setdefault(step["part"], []).append(one)
        if sorted(parts) != list(range(1, len(parts) + 1)):
            raise BadTable(f"{path}: room {row['name']}: parts {sorted(parts)} are not 1, 2, ...")
        ordered = tuple(tuple(parts[number]) for number in sorted(parts))
        rooms[row["name"]] = Room(row["name"], tuple(row["judges"]), ordered)
    return rooms


def git(root: Path, *words: str) -> str | None:
    """What it prints, None where it fails."""
    done = subprocess.run(
        ["git", *words],
        cwd=root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else None


def troubles(root: Path, room: Room, rows: Rows) -> list[str]:
    """Why a room is not judged as the tree stands; none where it is, or says why it is not yet."""
    again = f"run `make nightly ROOM={room.name}` and commit {ROWS.relative_to(ROOT)}"
    if room.name not in rows:
        return [f"room {room.name} has no row and no not_judged: {again}"]
    if rows[room.name].get("not_judged"):
        return []
    last = git(root, "log", "-1", "--format=%H", "--", *room.judges)
    found = []
    have = {row["step"]: row for row in rows[room.name]["steps"]}
    for step in (step for part in room.parts for step in part):
        row = have.get(step.name)
        if row is None:
            found.append(f"room {room.name}, step {step.name}: no row: {again}")
        elif row["result"] != "passed":
            found.append(f"room {room.name}, step {step.name}: {row['result']}: mend it, {again}")
        elif git(root, "merge-base", "--is-ancestor", str(last), row["commit"]) is None:
            judged = ", ".join(room.judges)
            found.append(
                f"room {room.name}, step {step.name}: its row is of {row['commit'][:9]}, which"
                f" has not {str(last)[:9]}, the last change of {judged}: {again}"
            )
    return found


def with_results(
    rows: Rows, room: Room, results: Sequence[tuple[int, Result]], commit: str, date: str
) -> Rows:
    """The rows, with those of a run in the place of older ones; only of steps that the room has."""
    names = [step.name for part in room.parts for step in part]
    steps = {row["step"]: row for row in rows.get(room.name, {}).get("steps", ())}
    for part, one in results:
        steps[one.step.name] = {
            "room": room.name,
            "part": f"{part}/{len(room.parts)}",
            "step": one.step.name,
            "commit": commit,
            "date": date,
            "result": one.word,
            "passed": one.passed,
            "failed": one.failed,
            "minutes": round(one.minutes, 1),
        }
    kept = [steps[name] for name in names if name in steps]
    why = rows.get(room.name, {}).get("not_judged")
    waits = {"not_judged": why} if why and len(kept) < len(names) else {}
    return rows | {room.name: waits | {"steps": kept}}


def parts_of(room: Room, wanted: str) -> list[int]:
    """The numbers of the parts to run; "2/5" is the second of five."""
    numbers = list(range(1, len(room.parts) + 1))
    if not wanted:
        return numbers
    for number in numbers:
        if wanted == f"{number}/{len(numbers)}":
            return [number]
    raise SystemExit(
        f"nightly: no part {wanted!r}: room {room.name} has parts 1/{len(numbers)} to"
        f" {len(numbers)}/{len(numbers)}"
    )


def nightly(room: Room, wanted: str, commit: str) -> bool:
    """Run a room, or a part of it, and write down what each part came to. Whether it was green."""
    green = True
    for part in parts_of(room, wanted):
        steps = room.parts[part - 1]
        print(f"room {room.name}, part {part}/{len(room.parts)}", flush=True)
        results = [(part, one) for one in run(steps)]
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        rows = with_results(json.loads(ROWS.read_text()), room, results, commit, date)
        ROWS.write_text(json.dumps(rows, indent=1) + "\n")
        green = green and len(results) == len(steps) and not any(one.red for _, one in results)
    return green


def main() -> int:
    parser = argparse.ArgumentParser(prog="nightly", description=__doc__.split("\n")[0])
    parser.add_argument("--room", default="", help="one of .ci/rooms.toml (all)")
    parser.add_argument("--part", default="", help="2/5: the second of five; wants a room")
    options = parser.parse_args()
    rooms = rooms_of(ROOMS)
    if options.room and options.room not in rooms:
        parser.error(f"no room {options.room!r}; there are {', '.join(rooms)}")
    if options.part and not options.room:
        parser.error("a part is of one room: --room NAME too")
    commit = git(ROOT, "rev-parse", "HEAD")
    changed = git(ROOT, "status", "--porcelain", "--", ".", f":!{ROWS.relative_to(ROOT)}")
    if commit is None or changed:
        print(
            f"nightly: its rows are said of a commit: commit this first\n{changed}", file=sys.stderr
        )
        return 1
    # What is left out is no nightly.
    os.environ.setdefault("CI", "true")
    chosen = [rooms[options.room]] if options.room else list(rooms.values())
    green = [nightly(room, options.part, commit) for room in chosen]
    return int(not all(green))


if __name__ == "__main__":
    sys.exit(main())
