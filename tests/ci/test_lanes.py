"""The runner of `.ci/run`, with real processes: what makes it red, what it prints and leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lanes import BadTable, counts, steps_of

ROOT = Path(__file__).resolve().parents[2]
LANES = ROOT / ".ci/lanes.py"
PATIENCE_SECONDS = 60
AUTOGROUP = Path("/proc/self/autogroup")

Rows = list[tuple[str, str, str, float]]


def written(folder: Path, rows: Rows) -> Path:
    """A table of steps: name, lane, command, minutes."""
    keys = ("name", "lane", "command", "minutes")
    path = folder / "steps.toml"
    path.write_text(
        "\n".join(
            "[[step]]\n"
            + "\n".join(f"{k} = {json.dumps(v)}" for k, v in zip(keys, row, strict=True))
            for row in rows
        )
    )
    return path


def ran(folder: Path, *rows: tuple[str, str, str, float]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, LANES, written(folder, list(rows))],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def last_table(out: str) -> dict[str, list[str]]:
    """The cells of the table that is printed last, by step."""
    lines = out.splitlines()
    head = max(at for at, line in enumerate(lines) if line.startswith("lane "))
    rows = (line.split() for line in lines[head + 1 :] if not line.startswith("OVER: "))
    return {row[1]: row for row in rows}


def test_green_steps_are_shown_whole_and_counted(tmp_path: Path) -> None:
    done = ran(
        tmp_path,
        ("before", "first", "echo made", 10),
        ("a", "waits", "echo '7 passed, 1 skipped in 0.10s'", 10),
        ("b", "computes", "echo computed", 10),
    )
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert {"made", "7 passed, 1 skipped in 0.10s", "computed"} <= set(lines)
    assert lines.index("before: begins") < lines.index("made") < lines.index("a: begins")
    rows = last_table(done.stdout)
    assert list(rows) == ["before", "a", "b"]
    minutes = {name: float(row.pop(2)) for name, row in rows.items()}
    assert all(0 <= one < 10 for one in minutes.values()), minutes
    assert rows["a"] == ["waits", "a", "10", "7", "0", "passed"]
    assert rows["b"] == ["computes", "b", "10", "passed"]


def test_all_of_it_too_long_is_red(tmp_path: Path) -> None:
    path = written(tmp_path, [("a", "waits", "sleep 0.5", 10)])
    path.write_text("minutes_max = 0.001\n" + path.read_text())
    command = [sys.executable, LANES, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "at most 0.001 are allowed" in done.stdout
    assert last_table(done.stdout)["a"][-1] == "passed"


@pytest.mark.parametrize("red", ["before", "a", "b"])
def test_a_red_step_makes_it_red_and_all_lanes_run_to_their_end(tmp_path: Path, red: str) -> None:
    lanes = {"before": "first", "a": "waits", "a2": "waits", "b": "computes", "b2": "computes"}
    done = ran(
        tmp_path,
        *(
            (name, lane, f"echo {name} ran; exit {3 if name == red else 0}", 10)
            for name, lane in lanes.items()
        ),
    )
    assert done.returncode == 1
    rows = last_table(done.stdout)
    assert {name: " ".join(row[4:]) for name, row in rows.items()} == {
        name: "FAILED (3)" if name == red else "passed" for name in lanes
    }
    # What it printed stands behind what all the others did, by its name.
    out = done.stdout
    assert out.count(f"{red} ran") == 1
    assert all(out.index(f"{name} ran") < out.index(f"{red} ran") for name in lanes if name != red)
    assert f"=== {red}: FAILED (3)" in out


def test_a_step_over_its_share_is_red(tmp_path: Path) -> None:
    done = ran(tmp_path, ("slow", "waits", "sleep 1.2; echo through", 0.015))
    assert done.returncode == 1
    # On a machine that is slow enough it is ended before it is through.
    assert last_table(done.stdout)["slow"][-2:] == ["its", "share"], done.stdout


def test_a_step_that_hangs_is_ended_and_the_lane_goes_on(tmp_path: Path) -> None:
    done = ran(
        tmp_path,
        ("hangs", "waits", f"echo $$ >{tmp_path}/pid; sleep 1000", 0.001),
        ("next", "waits", "true", 10),
    )
    assert done.returncode == 1
    rows = last_table(done.stdout)
    assert rows["hangs"][4] == "ENDED"
    assert rows["next"][-1] == "passed"


def test_a_step_has_no_stdin_and_nothing_of_a_make_above(tmp_path: Path) -> None:
    table = written(tmp_path, [("a", "waits", "cat; env; echo end", 10)])
    with subprocess.Popen(
        [sys.executable, LANES, table],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"MAKEFLAGS": "w --jobserver-auth=3,4", "MAKELEVEL": "1"},
        text=True,
    ) as process:
        assert process.stdout is not None
        out = process.stdout.read()  # its stdin is open meanwhile
    assert process.returncode == 0, out
    assert "\nend\n" in out
    assert "MAKE" not in out


def test_what_computes_yields(tmp_path: Path) -> None:
    show = "nice; cat /proc/self/autogroup 2>/dev/null; true"
    done = ran(tmp_path, ("a", "waits", show, 10), ("b", "computes", show, 10))
    assert done.returncode == 0, done.stdout
    own = os.nice(0)
    seen = {
        name: done.stdout.split(f"=== {name}: ")[1].split(f"=== end of {name}")[0].split()
        for name in ("a", "b")
    }
    assert str(own) in seen["a"]
    assert str(min(own + 10, 19)) in seen["b"]
    if AUTOGROUP.exists():
        assert seen["a"][-2:] == ["nice", "0"]
        assert seen["b"][-2:] == ["nice", "10"]


def test_what_a_step_leaves_behind_is_ended_and_named(tmp_path: Path) -> None:
    leaves = f"setsid sleep 1000 & echo $! >{tmp_path}/pid"
    done = ran(tmp_path, ("a", "waits", leaves, 10))
    assert done.returncode == 0
    pid = int((tmp_path / "pid").read_text())
    assert f"left behind: {pid} (" in done.stdout
    assert not lives(pid)


def lives(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text[text.rindex(")") + 2] != "Z"


def wait_for(path: Path, lines: int) -> list[int]:
    """Pids that the steps write there."""
    late = time.monotonic() + PATIENCE_SECONDS
    while not path.exists() or len(path.read_text().split()) < lines:
        assert time.monotonic() < late, "the steps did not begin"
        time.sleep(0.02)
    return [int(word) for word in path.read_text().split()]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_killed_run_leaves_no_process(tmp_path: Path, how: signal.Signals) -> None:
    pids = tmp_path / "pids"
    # One in a session of its own whose parent has gone, one that may ignore what asks it to end.
    ignores = 'trap "" TERM; ' if how in (signal.SIGTERM, signal.SIGKILL) else ""
    away = f"(setsid bash -c 'echo $$ >>{pids}; exec sleep 1000' &)"
    deaf = f"bash -c '{ignores}echo $$ >>{pids}; while :; do sleep 1; done'"
    table = written(
        tmp_path,
        [
            ("a", "waits", f"echo said a; {away}; sleep 1000", 10),
            ("a2", "waits", f"touch {tmp_path}/a2", 10),
            ("b", "computes", deaf, 10),
        ],
    )
    process = subprocess.Popen([sys.executable, LANES, table], stdout=subprocess.PIPE, text=True)
    started = wait_for(pids, 2)
    assert all(map(lives, started))
    process.send_signal(how)
    out, _ = process.communicate(timeout=PATIENCE_SECONDS)
    late = time.monotonic() + PATIENCE_SECONDS
    while left := [pid for pid in started if lives(pid)]:
        assert time.monotonic() < late, left
        time.sleep(0.05)
    assert not (tmp_path / "a2").exists()
    if how == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 128 + how
        assert "said a" in out
        assert {name: row[4] for name, row in last_table(out).items()} == {
            "a": "ENDED",
            "b": "ENDED",
        }


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([("a", "waits", "true", 1.0), ("a", "computes", "true", 1.0)], "a name stands twice"),
        ([("a", "elsewhere", "true", 1.0)], "lane 'elsewhere' is none of"),
    ],
)
def test_a_table_that_is_wrong_is_refused(tmp_path: Path, rows: Rows, why: str) -> None:
    with pytest.raises(BadTable, match=why):
        steps_of(written(tmp_path, rows))


def test_a_step_without_a_share_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "steps.toml"
    path.write_text('[[step]]\nname = "a"\nlane = "waits"\ncommand = "true"\n')
    with pytest.raises(BadTable, match="a step has name, lane, command, minutes"):
        steps_of(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("10218 passed, 9 skipped in 600.01s (0:10:00)\n", (10218, 0)),
        ("== 1 failed, 20 passed, 1 error in 3.1s ==\n", (20, 2)),
        ("3 passed in 0.1s\nother\n4 passed in 0.1s\n", (7, 0)),
        ("3 errors in 0.52s\n", (0, 3)),
        ("# tests 213\n# pass 211\n# fail 2\n", (211, 2)),
        ("\u2139 pass 211\n\u2139 fail 0\n", (211, 0)),
        ("107 of 107 found\n", (None, None)),
        ("they passed in front of me, 3 failed\n", (None, None)),
    ],
)
def test_tests_are_counted(text: str, told: tuple[int | None, int | None]) -> None:
    assert counts(text) == told


# --- .ci/run --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "ci", "shown"), [(0, None, "true"), (7, None, "true"), (0, "", "")]
)
def test_run_sets_ci_and_ends_as_its_steps_did(
    tmp_path: Path, code: int, ci: str | None, shown: str
) -> None:
    """Started from anywhere; the folder of the steps is that of the tree."""
    tree = tmp_path / "a tree"
    (tree / ".ci").mkdir(parents=True)
    for name in ("run", "lanes.py"):
        shutil.copy(ROOT / ".ci" / name, tree / ".ci")
    written(tree / ".ci", [("a", "waits", f'echo "CI=<$CI> in $PWD"; exit {code}', 10)])
    done = subprocess.run(
        ["bash", tree / ".ci/run"],
        cwd=tmp_path,
        env=os.environ | ({} if ci is None else {"CI": ci}),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == (1 if code else 0), done.stderr
    assert f"CI=<{shown}> in {tree}" in done.stdout
