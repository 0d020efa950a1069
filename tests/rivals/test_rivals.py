"""That the table can be believed: walld's own promises once each, and every adapter undisturbed.

`make rivals` counts; here one trial each. What a rival loses is no test of walld.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from daemon_process import ROOT, environment

from .faults import FAULTS
from .stores import CLASSES, Entry

Rows = dict[str, dict[str, Any]]
PROMISED = (
    "all killed: walld, told written",
    "power cut, ext4: walld, told synced",
    "disk full, then room: walld, told synced",
    "one bit flipped: walld, told synced",
)
WRONG = ("altered", "glued", "doubled", "reordered", "refused", "silent")
SECONDS_MAX = 90


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """One trial of each pair, in a process of its own: it forks, and pytest has threads."""
    path = tmp_path_factory.mktemp("rivals") / "rows"
    command = [sys.executable, "-m", "rivals", "--count", "1", "--rows", str(path)]
    for text in ("no fault", *PROMISED):
        command += ["--only", text]
    own = environment()
    own["PYTHONPATH"] += f":{ROOT / 'tests'}"
    done = subprocess.run(
        command, env=own, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return {f"{row['fault']}: {row['store']}": row for row in found}


@pytest.mark.parametrize("entry", CLASSES, ids=lambda entry: entry.name)
def test_an_adapter_reads_what_it_wrote(entry: Entry, rows: Rows) -> None:
    if reason := entry.why_not():
        pytest.skip(reason)
    row = rows[f"no fault: {entry.name}"]
    assert row["acked"] > 0
    assert row["lost"] == row["unacked_lost"] == 0
    assert not any(row[name] for name in WRONG), row


@pytest.mark.parametrize("pair", PROMISED)
def test_walld_keeps_its_word(pair: str, rows: Rows) -> None:
    (fault,) = [fault for fault in FAULTS if pair.startswith(fault.name + ":")]
    if reason := fault.why_not():
        pytest.skip(reason)
    row = rows[pair]
    assert row["acked"] > 0
    assert not any(row[name] for name in WRONG), row
    if fault.name == "one bit flipped":
        assert row["lost"] == 0 or row["said"] == 1
    else:
        assert row["lost"] == 0
